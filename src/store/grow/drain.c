/*
 * kvcl_store_drain: the blocks that only this rank holds move to other ranks, which fetch them (copy/send.c).
 *
 * Each size goes by itself: the pool's blocks in use first, then its others, then those of its tier. A batch goes to
 * the rank with the most room, and no rank has to evict for it; blocks that have arrived are removed here, so a key can
 * be found at any time. store->draining keeps new copies away; ranks that drain as well receive none. Where a rank is
 * silent, or a home fails, all of that is tried again until the deadline (grow/drain_ranks.c).
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "req/timeout.h"
#include "store/admin/ops.h"
#include "store/cold/cold.h"
#include "store/grow/drain_ranks.h"
#include "store/home/home_answer.h"
#include "store/pool/pool.h"
#include "store/tenant.h"
#include "xfer/params.h"
#include <kvcl/kvcl_store_admin.h>

#include <stdlib.h>

_Static_assert((int)KVCL_SEND_BATCH <= (int)KVCL_HELD_MAX, "one batch is one question");

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
static kvcl_status_t keep_single(kvcl_store_h store, uint64_t deadline_ns, kvcl_send_t *batch)
{
    kvcl_found_t  found[KVCL_SEND_BATCH];
    kvcl_key_t    keys[KVCL_SEND_BATCH];
    uint8_t       held[KVCL_SEND_BATCH];
    uint64_t      left_ns = kvcl_deadline_left(deadline_ns);
    uint32_t      kept = 0, i, j;
    kvcl_status_t status;

    left_ns = (left_ns < kvcl_timeout(store->ctx, 0)) ? left_ns + 1 : 0;
    for (i = 0; i < batch->n; ++i) {
        keys[i] = batch->recs[i].key;
    }
    batch->unlisted = false;
    status          = kvcl_locate(store, keys, batch->n, found, left_ns);
    status          = (status == KVCL_OK) ? kvcl_held(store, keys, found, batch->n, left_ns, held) : status;
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

/* Send a batch of blocks that only this rank holds to a rank with room, as many as it has room for.
 * KVCL_INPROGRESS: the others of the batch are still to be sent. */
static kvcl_status_t move_batch(kvcl_owner_t *pool, uint64_t tenant, kvcl_drain_t *drain)
{
    kvcl_store_h store  = pool->store;
    kvcl_send_t  *batch = &drain->batch;
    uint32_t     all    = batch->n;
    uint16_t     to;

    if (kvcl_drain_send(drain, tenant, kvcl_owner_bytes(pool), &to) != KVCL_OK) {
        drain->full  = true;
        drain->left += batch->n;
        return KVCL_OK; /* the others of the pass are counted as well */
    }
    if (batch->n == 0) {
        return KVCL_INPROGRESS;
    }
    kvcl_lock(store->ctx);
    drain->moved += leave_made(pool, batch, to);
    kvcl_unlock(store->ctx);
    drain->missed   = drain->missed || (memchr(batch->made, 0, batch->n) != NULL);
    drain->skip[to] = (batch->n < all) && (memchr(batch->made, 1, batch->n) == NULL); /* it has no room after all */
    return (batch->n < all) ? KVCL_INPROGRESS : KVCL_OK;
}

/* The end of a pass: used blocks are tried again with all the others. */
static kvcl_status_t end_pass(const kvcl_owner_t *pool, bool used, kvcl_status_t status, kvcl_drain_t *drain)
{
    drain->any_missed = drain->any_missed || (drain->missed && !used);
    if ((status != KVCL_OK) || used || ((drain->left == 0) && !drain->missed)) {
        return status;
    }
    drain->all_left   += drain->left;
    drain->left_bytes += drain->left * kvcl_owner_bytes(pool);
    return KVCL_ERR_NO_SPACE;
}

/* Blocks without room will not have any later: they are reported, as far as they have been counted. */
static kvcl_status_t late(const kvcl_owner_t *pool, kvcl_drain_t *drain)
{
    drain->left       = (drain->left > drain->least) ? drain->left : drain->least;
    drain->any_missed = drain->any_missed || drain->missed;
    return (drain->left != 0) ? end_pass(pool, false, KVCL_OK, drain) : KVCL_ERR_TIMED_OUT;
}

static void begin_pass(kvcl_drain_t *drain, uint64_t least)
{
    drain->missed = false;
    drain->least  = least;
    drain->left   = 0;
}

/* Once no rank has room, the used blocks are left to the second pass, which then only counts. */
static kvcl_status_t drain_pool(kvcl_owner_t *pool, bool used, kvcl_drain_t *drain)
{
    kvcl_store_h  store  = pool->store;
    kvcl_status_t status = KVCL_OK;
    uint32_t      slot   = 0, first;
    uint64_t      tenant;

    begin_pass(drain, used ? 0 : drain->left);
    while ((status == KVCL_OK) && (slot < pool->slots.n) && !(used && drain->full)) {
        first = slot;
        kvcl_lock(store->ctx);
        tenant = next_blocks(pool, used, &slot, &drain->batch);
        kvcl_unlock(store->ctx);
        status = keep_single(store, drain->deadline_ns, &drain->batch);
        if (kvcl_deadline_passed(drain->deadline_ns)) {
            return late(pool, drain);
        }
        status = ((status == KVCL_OK) && (drain->batch.n != 0)) ? move_batch(pool, tenant, drain) : status;
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
static kvcl_status_t drain_tier(kvcl_owner_t *pool, kvcl_drain_t *drain)
{
    kvcl_store_h  store  = pool->store;
    kvcl_status_t status = KVCL_OK;
    uint64_t      it     = 0, first = 0;

    begin_pass(drain, 0);
    while ((status == KVCL_OK) && (store->cold != NULL) && next_of_tier(pool, &it, &drain->batch)) {
        status = keep_single(store, drain->deadline_ns, &drain->batch);
        if (kvcl_deadline_passed(drain->deadline_ns)) {
            return late(pool, drain);
        }
        status = ((status == KVCL_OK) && (drain->batch.n != 0)) ? move_batch(pool, 0, drain) : status;
        if (status == KVCL_INPROGRESS) {
            it     = first;
            status = KVCL_OK;
        }
        first = it;
    }
    return end_pass(pool, false, status, drain);
}

/* Drain all blocks of one size; tier: those of its tier, after its pool is empty. */
static kvcl_status_t drain_class(kvcl_owner_t *pool, bool tier, kvcl_drain_t *drain)
{
    kvcl_status_t status;

    kvcl_drain_query(drain, kvcl_owner_bytes(pool), tier || (pool->cls != 0));
    if (tier) {
        return drain_tier(pool, drain);
    }
    status = drain_pool(pool, true, drain);
    return (status == KVCL_OK) ? drain_pool(pool, false, drain) : status;
}

/* The pools first: their blocks were used last. */
static kvcl_status_t drain_all(kvcl_pool_t *pool, kvcl_drain_t *drain)
{
    kvcl_status_t status[KVCL_SLABS_CLASSES_MAX], first = KVCL_OK;
    unsigned      i;

    for (i = 0; i < pool->n; ++i) {
        status[i] = drain_class(pool->owners[i], false, drain);
    }
    for (i = 0; i < pool->n; ++i) {
        if ((status[i] == KVCL_OK) && (pool->owners[i]->store->cold != NULL)) {
            status[i] = drain_class(pool->owners[i], true, drain);
        }
        first = (first == KVCL_OK) ? status[i] : first;
    }
    return first;
}

static kvcl_status_t drain_rank(kvcl_store_h store, uint64_t *moved_p, const kvcl_xfer_params_t *params)
{
    kvcl_status_t      status = kvcl_store_check(store, NULL, 0, "kvcl_store_drain");
    kvcl_xfer_params_t p;
    kvcl_drain_t       *drain;

    status = (status == KVCL_OK) ? kvcl_xfer_params(params, KVCL_CALL_STORE_DRAIN, &p) : status;
    if (status != KVCL_OK) {
        return status;
    }
    drain = kvcl_drain_new(store, kvcl_deadline_after(kvcl_timeout(store->ctx, p.timeout_ns)));
    if (drain == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_store_drain: no memory");
    }
    kvcl_lock(store->ctx);
    store->draining = true;
    kvcl_unlock(store->ctx);
    do {
        kvcl_drain_begin(drain);
        status = (store->pool != NULL) ? drain_all(store->pool, drain) : KVCL_OK;
    } while ((status != KVCL_OK) && kvcl_drain_again(drain, status));
    kvcl_lock(store->ctx);
    status = ((status == KVCL_OK) && store->closing) ? KVCL_ERR_SHUTDOWN : status; /* its blocks have gone */
    kvcl_unlock(store->ctx);
    status = (status == KVCL_OK) ? KVCL_OK : kvcl_drain_failed(drain, status);
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
