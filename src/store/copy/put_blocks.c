/*
 * Put: copies into this rank's pool, published; if more copies are wanted, copy/chain.c continues.
 *
 * The bytes are copied inside the call, so the source may change when it returns. An upsert puts all of its keys, and
 * removes the blocks that the keys named before only after its own blocks are filled: a failure before that has changed
 * nothing.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "store/admin/ops.h"
#include "store/copy/chain.h"
#include "store/copy/put_far.h"
#include "store/pool/blocks.h"
#include "store/pool/pool.h"
#include "store/pool/publish.h"
#include "store/pool/publish_own.h"
#include "store/pool/room.h"
#include "store/tenant.h"
#include "xfer/copy.h"
#include "xfer/params.h"

#include <stdlib.h>

/* All arrays have room for n. */
typedef struct put_work {
    uint32_t         *todo, *from, *slots;
    kvcl_store_rec_t *recs;
    kvcl_owner_t     *pool;   /* the class for blocks of this size */
    unsigned         copies;  /* wanted */
    uint64_t         tenant;
    bool             instead; /* an upsert */
    kvcl_timing_t    timing;
} put_work_t;

/* True also for a block that no home is known to list: it is listed again. */
static bool lacks_copies(const kvcl_slot_t *slot, unsigned copies)
{
    return !(slot->note & KVCL_NOTE_LISTED) ||
           ((copies > 1) && ((slot->note & KVCL_NOTE_COPIES) < copies));
}

/* Lock held. Collect the keys that the pool lacks: their indexes go into todo[]; those of blocks with fewer copies than
 * wanted go to its end, backwards. Blocks that the pool has count as used, the end of a chain first. */
static size_t missing(kvcl_store_h store, const kvcl_key_t *keys, size_t n, const put_work_t *work, size_t *n_held_p)
{
    kvcl_owner_node_t *node;
    size_t            n_todo = 0, i;

    kvcl_assert_locked(store->ctx);
    *n_held_p = 0;
    for (i = 0; work->instead && (i < n); ++i) {
        work->todo[n_todo++] = (uint32_t)i;
    }
    for (i = work->instead ? 0 : n; i-- > 0;) {
        node = kvcl_owner_find(store, &keys[i], work->pool);
        if (node != NULL) {
            kvcl_owner_touch(work->pool, kvcl_owner_slot(node));
        }
    }
    for (i = 0; !work->instead && (i < n); ++i) {
        node = kvcl_owner_find(store, &keys[i], work->pool);
        if (node == NULL) {
            work->todo[n_todo++] = (uint32_t)i;
        } else if (lacks_copies(&work->pool->array[kvcl_owner_slot(node)], work->copies)) {
            work->todo[n - ++*n_held_p] = (uint32_t)i;
        }
    }
    return n_todo;
}

/* No lock. Copy the bytes, in canonical order, into pool blocks slots[], and compute their checksums. */
static kvcl_status_t copy_in(const kvcl_owner_t *pool, kvcl_cache_h cache, const uint32_t *from, const uint32_t *slots,
                             size_t n, kvcl_store_rec_t *recs)
{
    enum { PIECE = 64 };
    uint64_t      sums[PIECE];
    bool          summed = !(pool->store->flags & KVCL_STORE_NO_CHECKSUM);
    bool          large  = (n * pool->cache->shape.block_bytes >= KVCL_COPY_COLD_BYTES);
    kvcl_status_t status = KVCL_OK;
    size_t        at, some, i;

    for (at = 0; (at < n) && (status == KVCL_OK); at += some) {
        some = (n - at < PIECE) ? n - at : PIECE;
        kvcl_sel_t  from_sel = {.blocks = from + at, .n_blocks = some};
        kvcl_sel_t  to_sel   = {.blocks = slots + at, .n_blocks = some};
        kvcl_side_t src      = kvcl_cache_side(cache, &from_sel);
        kvcl_side_t dst      = kvcl_cache_side(pool->cache, &to_sel);
        status = large ? kvcl_side_copy_sums_large(&dst, &src, summed ? sums : NULL)
                       : kvcl_side_copy_sums(&dst, &src, summed ? sums : NULL);
        for (i = 0; summed && (i < some) && (status == KVCL_OK); ++i) {
            recs[at + i].loc.checksum = sums[i];
        }
    }
    return status;
}

/* Lock held. A block that another thread has put meanwhile is not put twice. Returns how many recs are to be listed. */
static size_t publish_copies(kvcl_store_h store, const put_work_t *work, size_t n)
{
    bool             summed = !(store->flags & KVCL_STORE_NO_CHECKSUM);
    kvcl_store_rec_t *recs  = work->recs;
    size_t           i      = n, kept = n;

    kvcl_assert_locked(store->ctx);
    while (i-- > 0) { /* the end of a chain first */
        if ((kvcl_owner_find(store, &recs[i].key, work->pool) != NULL) ||
            (kvcl_owner_publish(work->pool, work->slots[i], &recs[i].key, recs[i].loc.checksum, summed, work->copies,
                                work->tenant, &recs[i].loc) != KVCL_OK)) {
            (void)!kvcl_slots_abort(&work->pool->slots, work->slots[i]);
            kvcl_store_freed(store);
            continue;
        }
        recs[--kept]     = recs[i];
        work->todo[kept] = work->todo[i];
    }
    return n - kept;
}

static void abort_slots(kvcl_owner_t *owner, const uint32_t *slots, size_t n)
{
    size_t i;

    kvcl_lock(owner->store->ctx);
    for (i = 0; i < n; ++i) {
        (void)!kvcl_slots_abort(&owner->slots, slots[i]);
        kvcl_store_freed(owner->store);
    }
    kvcl_unlock(owner->store->ctx);
}

/* No lock. Put new blocks into the pool. Afterwards recs and todo[], from *first_p on, are those to be listed. */
static kvcl_status_t put_new(kvcl_store_h store, const kvcl_key_t *keys, size_t n_todo, kvcl_cache_h cache,
                             const uint32_t *ids, const put_work_t *work, size_t *first_p)
{
    kvcl_status_t status;
    size_t        i;

    for (i = 0; i < n_todo; ++i) {
        work->from[i]     = ids[work->todo[i]];
        work->recs[i].key = keys[work->todo[i]];
    }
    status = copy_in(work->pool, cache, work->from, work->slots, n_todo, work->recs);
    if ((status == KVCL_OK) && work->instead) {
        status = kvcl_discard_all(store, keys, n_todo, 0);
    }
    if (status != KVCL_OK) {
        abort_slots(work->pool, work->slots, n_todo);
        return status;
    }
    kvcl_lock(store->ctx);
    for (i = 0; work->instead && (i < n_todo); ++i) { /* blocks that were published here since */
        (void)kvcl_discard_key(store, &keys[i]);
    }
    *first_p = n_todo - publish_copies(store, work, n_todo);
    kvcl_unlock(store->ctx);
    return KVCL_OK;
}

/* No lock. Make the record of a block that the pool had before; it is listed again, as one of more copies. */
static bool put_held(kvcl_owner_t *pool, const kvcl_key_t *key, kvcl_cache_h cache, uint32_t id, unsigned copies,
                     kvcl_store_rec_t *rec)
{
    kvcl_store_h      store = pool->store;
    kvcl_owner_node_t *node;
    uint64_t          sum   = (store->flags & KVCL_STORE_NO_CHECKSUM) ? 0 : kvcl_store_block_sum(cache, id);
    kvcl_slot_t       *slot;

    kvcl_lock(store->ctx);
    node = kvcl_owner_find(store, key, pool);
    if (node != NULL) {
        slot        = &pool->array[kvcl_owner_slot(node)];
        slot->flags = (uint8_t)((slot->flags & ~KVCL_LOC_COPIES_MASK) | ((copies - 1) << KVCL_LOC_COPIES_SHIFT));
        rec->key    = *key;
        rec->loc    = (kvcl_dir_loc_t){.rank = pool->slots.rank, .incarnation = pool->slots.incarnation,
                                       .cache = pool->slots.cache, .flags = slot->flags,
                                       .slot = kvcl_owner_slot(node),
                                       .len = (uint32_t)kvcl_owner_bytes(pool),
                                       .gen = kvcl_slots_gen(&pool->slots, kvcl_owner_slot(node)), .checksum = sum};
    }
    kvcl_unlock(store->ctx);
    return node != NULL;
}

/* No lock. The number of copies known here for each key, before more copies are made. */
static void count_copies(const kvcl_owner_t *pool, const kvcl_key_t *keys, size_t n, uint8_t *copies)
{
    kvcl_owner_node_t *node;
    unsigned          note;
    size_t            i;

    kvcl_lock(pool->store->ctx);
    for (i = 0; i < n; ++i) {
        node      = kvcl_owner_find(pool->store, &keys[i], pool);
        note      = (node != NULL) ? pool->array[kvcl_owner_slot(node)].note & KVCL_NOTE_COPIES : 0;
        copies[i] = (uint8_t)((node == NULL) ? 0 : (note > 1) ? note : 1);
    }
    kvcl_unlock_quietly(pool->store->ctx);
}

/* No lock. Take pool blocks for the missing keys; with KVCL_PUT_WAIT wait until there is room. */
static kvcl_status_t take_room(kvcl_store_h store, const kvcl_key_t *keys, size_t n, const put_work_t *work,
                               const kvcl_xfer_params_t *p, size_t *n_todo_p, size_t *n_held_p)
{
    uint64_t      deadline = kvcl_deadline_add(work->timing.begun_ns, kvcl_timeout(store->ctx, p->timeout_ns));
    kvcl_status_t status;
    uint64_t      seen;

    do {
        kvcl_lock(store->ctx);
        *n_todo_p = missing(store, keys, n, work, n_held_p);
        seen      = store->n_freed;
        status    = kvcl_owner_reserve(store, *n_todo_p);
        if (status == KVCL_OK) {
            status = kvcl_owner_take_for(work->pool, work->tenant, *n_todo_p, work->slots);
        }
        kvcl_unlock(store->ctx);
    } while ((status == KVCL_ERR_NO_SPACE) && (p->flags & KVCL_PUT_WAIT) &&
             (*n_todo_p <= kvcl_owner_most(work->pool)) && kvcl_store_wait_room(store, seen, deadline));
    return status;
}

static kvcl_status_t put_blocks(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                                const uint32_t *ids, const put_work_t *work, const kvcl_xfer_params_t *params,
                                kvcl_req_h *req_p)
{
    kvcl_xfer_params_t p = *params;
    kvcl_status_t      status;
    size_t             n_todo, n_held, first = 0, at, i;

    for (i = 0; (p.status != NULL) && (i < n); ++i) {
        p.status[i] = KVCL_OK;
    }
    p.status = NULL; /* a publish would set those of todo[] */
    status   = take_room(store, keys, n, work, &p, &n_todo, &n_held);
    if (status == KVCL_OK) {
        status = put_new(store, keys, n_todo, cache, ids, work, &first);
    }
    if (status != KVCL_OK) {
        return status;
    }
    for (i = 0, at = n_todo; i < n_held; ++i) {
        uint32_t item = work->todo[n - 1 - i];
        if (put_held(work->pool, &keys[item], cache, ids[item], work->copies, &work->recs[at])) {
            work->from[at++] = item;
        }
    }
    memcpy(work->from + first, work->todo + first, (n_todo - first) * sizeof(*work->from));
    if (p.copies != NULL) {
        count_copies(work->pool, keys, n, p.copies);
    }
    if ((work->copies == 1) && (p.copies == NULL)) {
        return kvcl_publish_start(work->pool, work->recs + first, at - first, &work->timing, &p, req_p);
    }
    return kvcl_chain_start(work->pool, work->recs + first, work->from + first, at - first, work->copies,
                            &work->timing, &p, req_p);
}

static kvcl_status_t put_check(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                               const uint32_t *ids, const kvcl_xfer_params_t *params, kvcl_call_id_t which,
                               kvcl_xfer_params_t *p)
{
    kvcl_sel_t    sel    = {.blocks = ids, .n_blocks = n};
    const char    *call  = kvcl_call_name(which);
    kvcl_status_t status = kvcl_store_check(store, keys, n, call);

    if ((status != KVCL_OK) || ((status = kvcl_xfer_params(params, which, p)) != KVCL_OK) ||
        ((status = kvcl_xfer_local(store->ctx, cache, &sel, call)) != KVCL_OK)) {
        return status;
    }
    if (p->replicas > KVCL_DIR_LOCS_MAX) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: replicas is %llu, at most %d", call,
                         (unsigned long long)p->replicas, KVCL_DIR_LOCS_MAX);
    }
    if (!kvcl_put_is_far(store, cache->shape.block_bytes, p) &&
        (kvcl_pool_for(store, cache->shape.block_bytes) == NULL)) { /* no rank has them, or to_rank is this rank */
        if (store->pool == NULL) {
            return kvcl_fail(KVCL_ERR_UNSUPPORTED, "%s: to_rank is this rank, which has no pool (dram_bytes)", call);
        }
        return kvcl_fail(KVCL_ERR_BAD_LAYOUT, "%s: a block of cache \"%s\" has %llu bytes, the pool's %llu%s: open the "
                         "stores with this size in block_sizes, or put from another cache", call, cache->name,
                         (unsigned long long)cache->shape.block_bytes,
                         (unsigned long long)store->pool->caches[0]->shape.block_bytes,
                         (store->pool->n > 1) ? ", or others" : "");
    }
    return KVCL_OK;
}

/* Put into other ranks' pools. */
static kvcl_status_t put_far(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                             const uint32_t *ids, const kvcl_xfer_params_t *p, bool instead, const char *call,
                             kvcl_req_h *req_p)
{
    kvcl_status_t status = KVCL_OK;

    if (instead && (n != 0)) {
        status = kvcl_store_hold(store);
        if (status == KVCL_OK) {
            status = kvcl_discard_all(store, keys, n, p->timeout_ns);
            kvcl_store_release(store);
        }
    }
    return (status == KVCL_OK) ? kvcl_put_far(store, keys, n, cache, ids, p, instead, call, req_p) : status;
}

static kvcl_status_t put_keys(kvcl_store_h store, const kvcl_store_tenant_t *tenant, const kvcl_key_t *keys, size_t n,
                              kvcl_cache_h cache, const uint32_t *ids, const kvcl_xfer_params_t *params, bool instead,
                              kvcl_req_h *req_p)
{
    kvcl_xfer_params_t p;
    put_work_t         work   = {.instead = instead, .timing = kvcl_timing_begin(KVCL_LATENCY_STORE_PUT)};
    kvcl_call_id_t     which  = instead ? KVCL_CALL_STORE_UPSERT : KVCL_CALL_STORE_PUT;
    const char         *call  = kvcl_call_name(which);
    kvcl_status_t      status = put_check(store, keys, n, cache, ids, params, which, &p);
    char               *mem;

    status = (status == KVCL_OK) ? kvcl_tenant_number(tenant, &p.tenant, call) : status;
    if (status != KVCL_OK) {
        return status;
    }
    if (kvcl_put_is_far(store, cache->shape.block_bytes, &p)) {
        return put_far(store, keys, n, cache, ids, &p, instead, call, req_p);
    }
    mem = calloc(n + 1, sizeof(kvcl_store_rec_t) + (3 * sizeof(uint32_t)));
    if (mem == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for %zu blocks", call, n);
    }
    work.recs   = (kvcl_store_rec_t *)(void *)mem;
    work.todo   = (uint32_t *)(void *)(work.recs + n);
    work.from   = work.todo + n;
    work.slots  = work.from + n;
    work.tenant = p.tenant;
    work.pool   = kvcl_pool_for(store, cache->shape.block_bytes);
    work.copies = (unsigned)((p.replicas != 0) ? p.replicas : store->replicas);
    status      = (p.flags & KVCL_PUT_WAIT) ? kvcl_store_hold(store) : KVCL_OK;
    if (status == KVCL_OK) {
        status = put_blocks(store, keys, n, cache, ids, &work, &p, req_p);
        if (p.flags & KVCL_PUT_WAIT) {
            kvcl_store_release(store);
        }
    }
    free(mem);
    if (status == KVCL_ERR_NO_SPACE) {
        return kvcl_fail(status, "%s: %s; unpin or remove blocks, wait for room with KVCL_PUT_WAIT, or open the store "
                         "with more dram_bytes", call, kvcl_last_error());
    }
    return status;
}

static kvcl_status_t put(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache, const uint32_t *ids,
                         const kvcl_xfer_params_t *params, bool instead, kvcl_req_h *req_p)
{
    kvcl_call_id_t which = instead ? KVCL_CALL_STORE_UPSERT : KVCL_CALL_STORE_PUT;
    kvcl_entry_t   entry;
    kvcl_status_t  status = kvcl_store_enter(&store, &keys, n, kvcl_call_name(which), &entry);

    if (status == KVCL_OK) {
        status = put_keys(store, entry.tenant, keys, n, cache, ids, params, instead, req_p);
    }
    kvcl_store_leave(&entry);
    return status;
}

kvcl_status_t kvcl_store_put(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                             const uint32_t *ids, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    return put(store, keys, n, cache, ids, params, false, req_p);
}

kvcl_status_t kvcl_store_upsert(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                                const uint32_t *ids, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    return put(store, keys, n, cache, ids, params, true, req_p);
}
