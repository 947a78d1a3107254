/*
 * Put: copies into this rank's pool, published; if more copies are wanted, copy/chain.c continues.
 *
 * Up to KVCL_INLINE_COPY bytes are copied inside the call, more by put_later.c: the call only looks for the keys and
 * keeps room for the blocks, so it evicts none. An upsert copies inside the call: it puts all of its keys, and removes
 * the blocks that the keys named before only after its own blocks are filled, so a failure before that has changed
 * nothing.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "store/admin/ops.h"
#include "store/copy/chain.h"
#include "store/copy/put_far.h"
#include "store/copy/put_work.h"
#include "store/pool/blocks.h"
#include "store/pool/pool.h"
#include "store/pool/publish.h"
#include "store/pool/room.h"
#include "store/tenant.h"
#include "xfer/params.h"

#include <stdlib.h>

/* True also for a block that no home is known to list: it is listed again. */
static bool lacks_copies(const kvcl_slot_t *slot, unsigned copies)
{
    return !(slot->note & KVCL_NOTE_LISTED) ||
           ((copies > 1) && ((slot->note & KVCL_NOTE_COPIES) < copies));
}

/* Lock held. Collect the keys that the pool lacks, and those of blocks with fewer copies than wanted. Blocks that the
 * pool has count as used, the end of a chain first. */
static void find_missing(kvcl_put_work_t *work)
{
    kvcl_store_h      store = work->pool->store;
    kvcl_owner_node_t *node;
    uint32_t          item;
    size_t            i;

    kvcl_assert_locked(store->ctx);
    work->n_todo = work->n_held = 0;
    for (i = work->n; i-- > 0;) {
        node = work->instead ? NULL : kvcl_owner_find(store, &work->keys[i], work->pool);
        if (node == NULL) {
            work->todo[work->n_todo++] = (uint32_t)i;
            continue;
        }
        kvcl_owner_touch(work->pool, kvcl_owner_slot(node));
        if (lacks_copies(&work->pool->array[kvcl_owner_slot(node)], work->copies)) {
            work->todo[work->n - ++work->n_held] = (uint32_t)i;
        }
    }
    for (i = 0; i < work->n_todo / 2; ++i) { /* in the caller's order, which is that of a chain */
        item                              = work->todo[i];
        work->todo[i]                     = work->todo[work->n_todo - 1 - i];
        work->todo[work->n_todo - 1 - i] = item;
    }
}

/* A caller who waits for nothing cannot know when its bytes may change. */
static bool is_later(const kvcl_put_work_t *work, const kvcl_xfer_params_t *p, const kvcl_req_h *req_p)
{
    return !work->instead && kvcl_req_is_awaited(p, req_p) &&
           (work->n_todo * kvcl_owner_bytes(work->pool) > work->pool->store->ctx->config.inline_copy);
}

/* Lock held. Take pool blocks for the missing keys or, if they are to be filled later, have them promised. */
static kvcl_status_t take_blocks(kvcl_put_work_t *work, bool later)
{
    kvcl_status_t status = KVCL_OK;

    kvcl_assert_locked(work->pool->store->ctx);
    work->n_taken = 0;
    if (later && kvcl_owner_promise(work->pool, work->tenant, work->n_todo)) {
        return KVCL_OK;
    }
    status = kvcl_owner_reserve(work->pool->store, work->n_todo);
    if (status == KVCL_OK) {
        status = kvcl_owner_take_for(work->pool, work->tenant, work->n_todo, work->slots);
    }
    work->n_taken = work->n_todo;
    return status;
}

/* No lock. Find the missing keys, and room for them; with KVCL_PUT_WAIT wait until there is some. */
static kvcl_status_t take_room(kvcl_put_work_t *work, const kvcl_xfer_params_t *p, const kvcl_req_h *req_p,
                               bool *later_p)
{
    kvcl_store_h  store    = work->pool->store;
    uint64_t      deadline = kvcl_deadline_add(work->timing.begun_ns, kvcl_timeout(store->ctx, p->timeout_ns));
    kvcl_status_t status;
    uint64_t      seen;

    do {
        kvcl_lock(store->ctx);
        find_missing(work);
        seen     = store->n_freed;
        *later_p = is_later(work, p, req_p);
        status   = take_blocks(work, *later_p);
        if ((status == KVCL_OK) && (p->copies != NULL)) {
            kvcl_put_count(work, p->copies);
        }
        kvcl_unlock(store->ctx);
    } while ((status == KVCL_ERR_NO_SPACE) && (p->flags & KVCL_PUT_WAIT) &&
             (work->n_todo <= kvcl_owner_most(work->pool)) && kvcl_store_wait_room(store, seen, deadline));
    return status;
}

/* No lock. Fill, publish and list the blocks. A chain counts copies, so it pins the blocks before another thread can
 * evict them. */
static kvcl_status_t put_now(kvcl_put_work_t *work, const kvcl_xfer_params_t *p, kvcl_req_h *req_p)
{
    kvcl_context_h ctx    = work->pool->store->ctx;
    kvcl_status_t  status = kvcl_put_fill(work, 0, work->n_todo + work->n_held);
    kvcl_put_out_t out;
    bool           counts;

    if ((status == KVCL_OK) && work->instead) {
        status = kvcl_discard_all(work->pool->store, work->keys, work->n_todo, p->timeout_ns);
    }
    kvcl_lock(ctx);
    if (status != KVCL_OK) {
        kvcl_put_abort(work);
        kvcl_unlock(ctx);
        return status;
    }
    kvcl_put_publish(work, &out);
    if (p->copies != NULL) {
        kvcl_put_count(work, p->copies);
    }
    counts = (out.n != 0) && ((work->copies > 1) || (p->copies != NULL));
    if (counts) {
        status = kvcl_chain_start(work->pool, out.recs, out.items, out.n, work->copies, &work->timing, p, req_p);
    }
    kvcl_unlock(ctx);
    return counts ? status : kvcl_publish_start(work->pool, out.recs, out.n, &work->timing, p, req_p);
}

static kvcl_status_t put_blocks(kvcl_put_work_t *work, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_xfer_params_t p = *params;
    kvcl_status_t      status;
    bool               later;
    size_t             i;

    for (i = 0; (p.status != NULL) && (i < work->n); ++i) {
        p.status[i] = KVCL_OK;
    }
    p.status = NULL; /* a publish would set those of todo[] */
    status   = take_room(work, &p, req_p, &later);
    if (status != KVCL_OK) {
        return status;
    }
    work->timing.bytes = work->n_todo * kvcl_owner_bytes(work->pool);
    return later ? kvcl_put_later(work, &p, req_p) : put_now(work, &p, req_p);
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

/* False: no memory. */
static bool make_arrays(kvcl_put_work_t *work)
{
    const size_t room = work->n + 1;

    work->arrays = malloc(room * (sizeof(*work->recs) + (3 * sizeof(uint32_t))));
    work->recs   = work->arrays;
    work->todo   = (uint32_t *)(void *)(work->recs + room);
    work->from   = work->todo + room;
    work->slots  = work->from + room;
    return work->arrays != NULL;
}

static kvcl_status_t put_keys(kvcl_store_h store, const kvcl_store_tenant_t *tenant, const kvcl_key_t *keys, size_t n,
                              kvcl_cache_h cache, const uint32_t *ids, const kvcl_xfer_params_t *params, bool instead,
                              kvcl_req_h *req_p)
{
    kvcl_xfer_params_t p;
    kvcl_put_work_t    work   = {.cache = cache, .keys = keys, .ids = ids, .n = n, .instead = instead,
                                 .timing = kvcl_timing_begin(KVCL_LATENCY_STORE_PUT)};
    kvcl_call_id_t     which  = instead ? KVCL_CALL_STORE_UPSERT : KVCL_CALL_STORE_PUT;
    const char         *call  = kvcl_call_name(which);
    kvcl_status_t      status = put_check(store, keys, n, cache, ids, params, which, &p);

    status = (status == KVCL_OK) ? kvcl_tenant_number(tenant, &p.tenant, call) : status;
    if (status != KVCL_OK) {
        return status;
    }
    if (kvcl_put_is_far(store, cache->shape.block_bytes, &p)) {
        return put_far(store, keys, n, cache, ids, &p, instead, call, req_p);
    }
    if (!make_arrays(&work)) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for %zu blocks", call, n);
    }
    work.tenant = p.tenant;
    work.pool   = kvcl_pool_for(store, cache->shape.block_bytes);
    work.copies = (unsigned)((p.replicas != 0) ? p.replicas : store->replicas);
    status      = (p.flags & KVCL_PUT_WAIT) ? kvcl_store_hold(store) : KVCL_OK;
    if (status == KVCL_OK) {
        status = put_blocks(&work, &p, req_p);
        if (p.flags & KVCL_PUT_WAIT) {
            kvcl_store_release(store);
        }
    }
    free(work.arrays);
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
