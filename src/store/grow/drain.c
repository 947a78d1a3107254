/*
 * kvcl_store_drain: the blocks that only this rank holds move to other ranks, which fetch them (copy/send.c).
 *
 * Each size goes by itself: the pool's blocks in use first, then its others, then those of its tier. A batch goes to
 * the rank with the most room, and no rank has to evict for it; blocks that have arrived are removed here, so a key can
 * be found at any time. store->draining keeps new copies away; ranks that drain as well receive none.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "req/timeout.h"
#include "store/admin/ops.h"
#include "store/cold/cold.h"
#include "store/copy/send.h"
#include "store/home/home_answer.h"
#include "store/place/choose.h"
#include "store/pool/pool.h"
#include "store/tenant.h"
#include "xfer/params.h"
#include <kvcl/kvcl_store_admin.h>

#include <stdlib.h>

_Static_assert((int)KVCL_SEND_BATCH <= (int)KVCL_HELD_MAX, "one batch is one question");

typedef struct drain {
    kvcl_send_t batch;
    uint64_t    moved;
    uint64_t    left;                 /* in this pass: blocks for which no rank has room */
    uint64_t    least;                /* what `left` was in the pass before */
    uint64_t    all_left, left_bytes; /* of all sizes; at least so many */
    bool        missed; /* in this pass some blocks did not arrive */
    bool        full;   /* no rank has room for a block of the size being moved */
    uint8_t     *skip;  /* one byte a rank: it takes none */
    uint64_t    room[]; /* by rank: bytes of blocks of the size being moved that it could take without evicting */
} drain_t;

/* Used blocks first, since there may not be room for all of them; then the others. */
static bool is_to_move(const kvcl_owner_t *pool, uint32_t slot, bool used)
{
    const kvcl_evict_node_t *node = &pool->evict.nodes[slot];

    return (pool->array[slot].state == KVCL_SLOT_PUBLISHED) &&
           (!used || (node->queue > 1) || (node->pins != 0));
}

/* Lock held: the next blocks of one tenant. */
static uint64_t next_blocks(kvcl_owner_t *pool, bool used, uint32_t *slot_p, kvcl_send_t *batch)
{
    uint64_t tenant = 0;

    kvcl_assert_locked(pool->store->ctx);
    for (batch->n = 0; (*slot_p < pool->slots.n) && (batch->n < KVCL_SEND_BATCH); ++*slot_p) {
        if (!is_to_move(pool, *slot_p, used)) {
            continue;
        }
        if ((batch->n != 0) && ((kvcl_owner_tenant(pool, *slot_p) != tenant) ||
                                (kvcl_loc_copies(pool->array[*slot_p].flags) !=
                                 kvcl_loc_copies(batch->recs[0].loc.flags)))) {
            break;
        }
        tenant                  = kvcl_owner_tenant(pool, *slot_p);
        batch->recs[batch->n++] = kvcl_owner_record(pool, *slot_p);
    }
    return tenant;
}

/* Keep only the blocks that no other rank has, not counting ranks that drain as well. */
static kvcl_status_t keep_single(kvcl_store_h store, kvcl_send_t *batch)
{
    kvcl_found_t  found[KVCL_SEND_BATCH];
    kvcl_key_t    keys[KVCL_SEND_BATCH];
    uint8_t       held[KVCL_SEND_BATCH];
    uint32_t      kept = 0, i, j;
    kvcl_status_t status;

    for (i = 0; i < batch->n; ++i) {
        keys[i] = batch->recs[i].key;
    }
    batch->unlisted = false;
    status          = kvcl_locate(store, keys, batch->n, found, 0);
    status          = (status == KVCL_OK) ? kvcl_held(store, keys, found, batch->n, 0, held) : status;
    for (i = 0; (status == KVCL_OK) && (i < batch->n); ++i) {
        bool listed = false;
        for (j = 0; j < found[i].n; ++j) {
            listed = listed || (kvcl_dir_loc_tag(&found[i].locs[j]) == kvcl_dir_loc_tag(&batch->recs[i].loc));
        }
        if (!held[i]) {
            batch->recs[kept++] = batch->recs[i];
            batch->unlisted     = batch->unlisted || !listed;
        }
    }
    batch->n = kept;
    return status;
}

/* Lock held. */
static uint64_t leave_made(kvcl_owner_t *pool, const kvcl_send_t *batch, uint32_t to)
{
    kvcl_store_h     store = pool->store;
    kvcl_store_rec_t removed;
    uint64_t         n = 0;
    uint32_t         i;

    kvcl_assert_locked(store->ctx);
    for (i = 0; i < batch->n; ++i) {
        const kvcl_dir_loc_t *loc = &batch->recs[i].loc;
        if ((batch->made[i] != 0) && kvcl_loc_is_nvme(loc)) {
            n += kvcl_cold_holds(store->cold, &batch->recs[i].key, loc) ? 1 : 0;
            kvcl_cold_drop(store->cold, &batch->recs[i].key);
        } else if ((batch->made[i] != 0) &&
                   (kvcl_slots_check(&pool->slots, loc->slot, loc->gen, &batch->recs[i].key) == KVCL_OK) &&
                   (kvcl_owner_discard(pool, loc->slot, KVCL_SLOT_FREE, KVCL_STORE_MOVED, (int)to, &removed) ==
                    KVCL_OK)) {
            kvcl_store_notify_removed(store, &removed, 1);
            kvcl_cold_drop(store->cold, &removed.key);
            ++n;
        }
    }
    store->n_moved += n;
    return n;
}

static uint64_t room_for(const kvcl_store_stats_t *stats, uint64_t bytes)
{
    unsigned i;

    for (i = 0; i < KVCL_STORE_SIZES_MAX; ++i) {
        if ((i < stats->n_sizes) && (stats->sizes[i].block_bytes == bytes)) {
            return stats->sizes[i].takes * bytes;
        }
    }
    return 0;
}

/* Query how much room the other ranks have for blocks of this size, and whether they are drained as well. If two ranks
 * drain at once, at least one learns of the other, since each sets `draining` before it queries. For a second size
 * (again) ranks that did not answer, or are drained, are not queried any more. */
static void request_room(kvcl_store_h store, uint64_t bytes, bool again, drain_t *drain)
{
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;
    uint32_t           i;
    bool               answered;

    memset(drain->skip, 0, store->n_ranks); /* a rank without room for one size may have room for another */
    drain->full = false;
    for (i = 0; i < store->n_ranks; ++i) {
        if ((i == store->me) || (again && store->ranks[i].leaving)) {
            continue;
        }
        answered                = (kvcl_store_rank_stats(store, (int)i, &stats, NULL) == KVCL_OK);
        store->ranks[i].leaving = !answered || (stats.draining != 0);
        drain->room[i]          = (answered && !stats.draining) ? room_for(&stats, bytes) : 0;
        if (answered && (store->ranks[i].n_sizes != 0)) {
            kvcl_lock(store->ctx);
            kvcl_place_seen(&store->places[i], stats.draining ? 0 : stats.pool_free_bytes);
            kvcl_unlock(store->ctx);
        }
    }
}

/* Lock held. The rank with the most room, in the order of kvcl_store_place; false: no rank has any. */
static bool choose(kvcl_store_h store, uint64_t bytes, drain_t *drain, uint16_t *to_p)
{
    kvcl_assert_locked(store->ctx);
    while (kvcl_store_place(store, bytes, drain->skip, 1, to_p) == 1) {
        if (drain->room[*to_p] >= bytes) {
            return true;
        }
        drain->skip[*to_p] = 1;
    }
    return false;
}

/* Send a batch of blocks that only this rank holds to a rank with room, as many as it has room for.
 * KVCL_INPROGRESS: the others of the batch are still to be sent. */
static kvcl_status_t move_batch(kvcl_owner_t *pool, uint64_t tenant, uint64_t deadline, drain_t *drain)
{
    kvcl_store_h store  = pool->store;
    uint64_t     bytes  = kvcl_owner_bytes(pool);
    kvcl_send_t  *batch = &drain->batch;
    uint32_t     all    = batch->n;
    bool         found;
    uint16_t     to;

    kvcl_lock(store->ctx);
    found = choose(store, bytes, drain, &to);
    if (found && (drain->room[to] / bytes < batch->n)) {
        batch->n = (uint32_t)(drain->room[to] / bytes);
    }
    kvcl_unlock(store->ctx);
    if (!found) {
        drain->full  = true;
        drain->left += batch->n;
        return KVCL_OK; /* the others of the pass are counted as well */
    }
    if (kvcl_send_batch(store, to, tenant, deadline, batch) != KVCL_OK) {
        drain->skip[to] = 1; /* another rank takes them */
        batch->n        = 0;
        return KVCL_INPROGRESS;
    }
    drain->room[to] = batch->room;
    kvcl_lock(store->ctx);
    drain->moved += leave_made(pool, batch, to);
    kvcl_unlock(store->ctx);
    drain->missed   = drain->missed || (memchr(batch->made, 0, batch->n) != NULL);
    drain->skip[to] = (batch->n < all) && (memchr(batch->made, 1, batch->n) == NULL); /* it has no room after all */
    return (batch->n < all) ? KVCL_INPROGRESS : KVCL_OK;
}

/* The end of a pass: used blocks are tried again with all the others. */
static kvcl_status_t end_pass(const kvcl_owner_t *pool, bool used, kvcl_status_t status, drain_t *drain)
{
    if ((status != KVCL_OK) || used || ((drain->left == 0) && !drain->missed)) {
        return status;
    }
    drain->all_left   += drain->left;
    drain->left_bytes += drain->left * kvcl_owner_bytes(pool);
    return KVCL_ERR_NO_SPACE;
}

/* Blocks without room will not have any later: they are reported, as far as they have been counted. */
static kvcl_status_t late(const kvcl_owner_t *pool, drain_t *drain)
{
    drain->left = (drain->left > drain->least) ? drain->left : drain->least;
    return (drain->left != 0) ? end_pass(pool, false, KVCL_OK, drain) : KVCL_ERR_TIMED_OUT;
}

static void begin_pass(drain_t *drain, uint64_t least)
{
    drain->missed = false;
    drain->least  = least;
    drain->left   = 0;
}

/* Once no rank has room, the used blocks are left to the second pass, which then only counts. */
static kvcl_status_t drain_pool(kvcl_owner_t *pool, bool used, uint64_t deadline, drain_t *drain)
{
    kvcl_store_h  store  = pool->store;
    kvcl_status_t status = KVCL_OK;
    uint32_t      slot   = 0, first;
    uint64_t      tenant;

    begin_pass(drain, used ? 0 : drain->left);
    while ((status == KVCL_OK) && (slot < pool->slots.n) && !(used && drain->full)) {
        if (kvcl_deadline_passed(deadline)) {
            return late(pool, drain);
        }
        first = slot;
        kvcl_lock(store->ctx);
        tenant = next_blocks(pool, used, &slot, &drain->batch);
        kvcl_unlock(store->ctx);
        status = keep_single(store, &drain->batch);
        status = ((status == KVCL_OK) && (drain->batch.n != 0)) ? move_batch(pool, tenant, deadline, drain) : status;
        if (status == KVCL_INPROGRESS) {
            slot   = (drain->batch.n != 0) ? drain->batch.recs[drain->batch.n].loc.slot : first;
            status = KVCL_OK;
        }
    }
    return end_pass(pool, used, status, drain);
}

/* The next blocks of this pool's size that are in the tier and not in the pool. False: the walk is over. */
static bool next_of_tier(const kvcl_owner_t *pool, uint64_t *it, kvcl_send_t *batch)
{
    kvcl_store_h     store = pool->store;
    kvcl_tier_item_t items[KVCL_SEND_BATCH];
    size_t           n = kvcl_tier_walk(store->cold->tier, it, items, KVCL_SEND_BATCH), i;
    kvcl_store_rec_t rec;

    batch->n = 0;
    kvcl_lock(store->ctx);
    for (i = 0; i < n; ++i) {
        memcpy(rec.key.bytes, items[i].key, sizeof(rec.key.bytes));
        rec.loc = kvcl_cold_loc(store->cold, &items[i].loc, store->replicas);
        if ((rec.loc.len == kvcl_owner_bytes(pool)) && (kvcl_owner_find(store, &rec.key, pool) == NULL)) {
            batch->recs[batch->n++] = rec;
        }
    }
    kvcl_unlock(store->ctx);
    return n != 0;
}

/* The tenant of these blocks is not known any more. Moved blocks leave the tier, so the walk continues where a batch
 * began if a part of it was not sent. */
static kvcl_status_t drain_tier(kvcl_owner_t *pool, uint64_t deadline, drain_t *drain)
{
    kvcl_store_h  store  = pool->store;
    kvcl_status_t status = KVCL_OK;
    uint64_t      it     = 0, first = 0;

    begin_pass(drain, 0);
    while ((status == KVCL_OK) && (store->cold != NULL) && next_of_tier(pool, &it, &drain->batch)) {
        if (kvcl_deadline_passed(deadline)) {
            return late(pool, drain);
        }
        status = keep_single(store, &drain->batch);
        status = ((status == KVCL_OK) && (drain->batch.n != 0)) ? move_batch(pool, 0, deadline, drain) : status;
        if (status == KVCL_INPROGRESS) {
            it     = first;
            status = KVCL_OK;
        }
        first = it;
    }
    return end_pass(pool, false, status, drain);
}

/* Drain all blocks of one size; tier: those of its tier, after its pool is empty. */
static kvcl_status_t drain_class(kvcl_owner_t *pool, bool tier, uint64_t deadline, drain_t *drain)
{
    kvcl_status_t status;

    request_room(pool->store, kvcl_owner_bytes(pool), tier || (pool->cls != 0), drain);
    if (tier) {
        return drain_tier(pool, deadline, drain);
    }
    status = drain_pool(pool, true, deadline, drain);
    return (status == KVCL_OK) ? drain_pool(pool, false, deadline, drain) : status;
}

/* The pools first: their blocks were used last. */
static kvcl_status_t drain_all(kvcl_pool_t *pool, uint64_t deadline, drain_t *drain)
{
    kvcl_status_t status[KVCL_SLABS_CLASSES_MAX], first = KVCL_OK;
    unsigned      i;

    for (i = 0; i < pool->n; ++i) {
        status[i] = drain_class(pool->owners[i], false, deadline, drain);
    }
    for (i = 0; i < pool->n; ++i) {
        if ((status[i] == KVCL_OK) && (pool->owners[i]->store->cold != NULL)) {
            status[i] = drain_class(pool->owners[i], true, deadline, drain);
        }
        first = (first == KVCL_OK) ? status[i] : first;
    }
    return first;
}

static kvcl_status_t failed(const drain_t *drain, kvcl_status_t status)
{
    const unsigned long long moved = drain->moved, left = drain->all_left, bytes = drain->left_bytes;

    if ((status == KVCL_ERR_NO_SPACE) && (left != 0)) {
        return kvcl_fail(status, "kvcl_store_drain: %llu blocks have moved, at least %llu blocks (%llu bytes) have not:"
                         " no other rank's pool has room for them, and none evicts for them: remove blocks, or open "
                         "ranks with more dram_bytes", moved, left, bytes);
    }
    return kvcl_fail(status, "kvcl_store_drain: %llu blocks have moved, others not: %s; call it again%s", moved,
                     kvcl_status_text(status), (status == KVCL_ERR_TIMED_OUT) ? ", or give a longer timeout_ns" : "");
}

static kvcl_status_t drain_rank(kvcl_store_h store, uint64_t *moved_p, const kvcl_xfer_params_t *params)
{
    kvcl_status_t      status = kvcl_store_check(store, NULL, 0, "kvcl_store_drain");
    kvcl_xfer_params_t p;
    uint64_t           deadline;
    drain_t            *drain;

    status = (status == KVCL_OK) ? kvcl_xfer_params(params, KVCL_CALL_STORE_DRAIN, &p) : status;
    if (status != KVCL_OK) {
        return status;
    }
    deadline = kvcl_deadline_after(kvcl_timeout(store->ctx, p.timeout_ns));
    drain    = calloc(1, sizeof(*drain) + (store->n_ranks * (sizeof(drain->room[0]) + sizeof(drain->skip[0]))));
    if (drain == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_store_drain: no memory");
    }
    drain->skip = (uint8_t *)(drain->room + store->n_ranks);
    kvcl_lock(store->ctx);
    store->draining = true;
    kvcl_unlock(store->ctx);
    status = (store->pool != NULL) ? drain_all(store->pool, deadline, drain) : KVCL_OK;
    kvcl_lock(store->ctx);
    status = ((status == KVCL_OK) && store->closing) ? KVCL_ERR_SHUTDOWN : status; /* its blocks have gone */
    kvcl_unlock(store->ctx);
    status = (status == KVCL_OK) ? KVCL_OK : failed(drain, status);
    if (moved_p != NULL) {
        *moved_p = drain->moved;
    }
    free(drain);
    return status;
}

kvcl_status_t kvcl_store_drain(kvcl_store_h store, uint64_t *moved_p, const kvcl_xfer_params_t *params)
{
    kvcl_entry_t  entry;
    kvcl_status_t status = kvcl_store_enter(&store, NULL, 0, "kvcl_store_drain", &entry);

    status = (status == KVCL_OK) ? kvcl_tenant_refuse(&entry, "kvcl_store_drain") : status;
    status = (status == KVCL_OK) ? drain_rank(store, moved_p, params) : status;
    kvcl_store_leave(&entry);
    return status;
}
