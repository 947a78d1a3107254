/*
 * Blocks that the store hands out: alloc and free of its cache, pins, and the pool behind kvcl_store_put.
 *
 * To take a block: the one free for longest, else the victim of the eviction order, which is withdrawn first (its
 * generation is bumped before anybody may write a byte of it) and removed from the directory in the background.
 */
#include "config.h"
#include "base/error.h"
#include "store/store.h"
#include "xfer/params.h"

#include <stdlib.h>

/* Lock held. Evict until n slots are free. There are enough. */
static void make_room(kvcl_owner_t *owner, size_t n, kvcl_store_rec_t *recs)
{
    size_t   gone = 0;
    uint32_t slot;

    while ((owner->slots.n_free < n) && (kvcl_evict_victim(&owner->evict, &slot) == KVCL_OK)) {
        if (kvcl_owner_withdraw(owner, slot, KVCL_SLOT_FREE, &recs[gone]) == KVCL_OK) {
            ++owner->store->n_evicted;
            ++gone;
        }
    }
    kvcl_store_tell_removed(owner->store, recs, gone);
}

kvcl_status_t kvcl_owner_take(kvcl_owner_t *owner, size_t n, uint32_t *ids)
{
    size_t           spare = (size_t)owner->slots.n_free + kvcl_evict_count(&owner->evict) - owner->pinned;
    kvcl_store_rec_t *recs;
    kvcl_status_t    status = KVCL_OK;
    size_t           i;

    if (n > spare) {
        return kvcl_fail(KVCL_ERR_NO_SPACE, "%zu blocks of cache \"%s\" asked for: %u are free, %u could be evicted", n,
                         owner->cache->name, owner->slots.n_free, kvcl_evict_count(&owner->evict) - owner->pinned);
    }
    if (owner->slots.n_free < n) {
        recs = malloc((n - owner->slots.n_free) * sizeof(*recs));
        if (recs == NULL) {
            return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory to evict blocks");
        }
        make_room(owner, n, recs);
        free(recs);
    }
    for (i = 0; (i < n) && (status == KVCL_OK); ++i) {
        status = kvcl_slots_alloc(&owner->slots, &ids[i]);
    }
    return status;
}

static kvcl_status_t own_cache(kvcl_store_h store, const void *ids, size_t n, const char *call)
{
    kvcl_status_t status = kvcl_store_check(store, ids, n, call);

    if ((status == KVCL_OK) && (store->own == NULL)) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: the store was opened without a cache of its own", call);
    }
    return status;
}

kvcl_status_t kvcl_store_alloc(kvcl_store_h store, size_t n, uint32_t *ids)
{
    kvcl_status_t status = own_cache(store, ids, n, "kvcl_store_alloc");

    if (status == KVCL_OK) {
        kvcl_lock(store->ctx);
        status = kvcl_owner_take(store->own, n, ids);
        kvcl_unlock(store->ctx);
    }
    return status;
}

kvcl_status_t kvcl_store_free(kvcl_store_h store, const uint32_t *ids, size_t n)
{
    kvcl_status_t status = own_cache(store, ids, n, "kvcl_store_free");
    size_t        i, done;

    if (status != KVCL_OK) {
        return status;
    }
    kvcl_lock(store->ctx);
    for (i = 0; (i < n) && (status == KVCL_OK); ++i) {
        status = kvcl_slots_abort(&store->own->slots, ids[i]);
    }
    if (status != KVCL_OK) { /* the one at i - 1 was not the caller's: nothing changes */
        for (done = 0; done + 1 < i; ++done) {
            (void)!kvcl_slots_take(&store->own->slots, ids[done]);
        }
        status = kvcl_fail(status, "kvcl_store_free: block %u is not in the caller's hands (withdraw it first?)",
                           ids[i - 1]);
    }
    pthread_mutex_unlock(&store->ctx->engine.lock);
    return status;
}

/* ---- pins ---- */

kvcl_status_t kvcl_store_pin_local(kvcl_store_h store, const kvcl_key_t *key, uint32_t *id_p)
{
    kvcl_status_t     status = kvcl_store_check(store, key, 1, "kvcl_store_pin_local");
    kvcl_owner_node_t *node;
    uint32_t          slot;

    if (status != KVCL_OK) {
        return status;
    }
    if (id_p == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_pin_local: id_p is NULL");
    }
    kvcl_lock(store->ctx);
    node = kvcl_owner_find(store, key, NULL);
    if ((node == NULL) || (node->owner == store->pool)) {
        status = kvcl_fail(KVCL_ERR_NOT_FOUND, "kvcl_store_pin_local: no cache of this rank holds the key");
    } else {
        slot = kvcl_owner_slot(node);
        kvcl_owner_touch(node->owner, slot);
        if (node->owner->managed && (kvcl_evict_pin(&node->owner->evict, slot) == KVCL_OK) &&
            (node->owner->pins[slot]++ == 0)) {
            ++node->owner->pinned;
        }
        *id_p = slot;
    }
    pthread_mutex_unlock(&store->ctx->engine.lock);
    return status;
}

static void unpin(kvcl_owner_t *owner, uint32_t id)
{
    if ((owner != NULL) && (id < owner->slots.n) && (owner->pins[id] != 0)) {
        (void)!kvcl_evict_unpin(&owner->evict, id);
        owner->pinned -= (--owner->pins[id] == 0) ? 1 : 0;
    }
}

void kvcl_store_unpin(kvcl_store_h store, uint32_t id)
{
    if (store != NULL) {
        kvcl_lock(store->ctx);
        unpin(store->own, id);
        pthread_mutex_unlock(&store->ctx->engine.lock);
    }
}

/* ---- put: copies into the pool ---- */

/* Lock held. Which keys the pool lacks: their places in todo[]. What it has is in use, the end of a chain first. */
static size_t missing(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint32_t *todo)
{
    kvcl_owner_node_t *node;
    size_t            n_todo = 0, i;

    for (i = n; i-- > 0;) {
        node = kvcl_owner_find(store, &keys[i], store->pool);
        if (node != NULL) {
            kvcl_owner_touch(store->pool, kvcl_owner_slot(node));
        }
    }
    for (i = 0; i < n; ++i) {
        if (kvcl_owner_find(store, &keys[i], store->pool) == NULL) {
            todo[n_todo++] = (uint32_t)i;
        }
    }
    return n_todo;
}

/* No lock: the bytes, in canonical order, into pool blocks slots[], and their checksums. */
static kvcl_status_t copy_in(kvcl_store_h store, kvcl_cache_h cache, const uint32_t *from, const uint32_t *slots,
                             size_t n, kvcl_store_rec_t *recs)
{
    kvcl_sel_t    from_sel = {.blocks = from, .n_blocks = n};
    kvcl_sel_t    to_sel   = {.blocks = slots, .n_blocks = n};
    kvcl_side_t   src      = kvcl_cache_side(cache, &from_sel);
    kvcl_side_t   dst      = kvcl_cache_side(store->pool_cache, &to_sel);
    kvcl_runs_t   runs;
    kvcl_status_t status = kvcl_runs_init(&runs, &dst, &src, KVCL_STREAM_CANONICAL);
    size_t        i;

    if (status != KVCL_OK) {
        return status;
    }
    kvcl_runs_copy(&runs, 0, kvcl_runs_bytes(&runs));
    for (i = 0; !(store->flags & KVCL_STORE_NO_CHECKSUM) && (i < n); ++i) {
        recs[i].loc.checksum = kvcl_store_block_sum(store->pool_cache, slots[i]);
    }
    return KVCL_OK;
}

/* Lock held. What another thread put meanwhile is not put twice. Returns how many recs are to be published. */
static size_t publish_copies(kvcl_store_h store, const uint32_t *slots, size_t n, kvcl_store_rec_t *recs)
{
    bool   summed = !(store->flags & KVCL_STORE_NO_CHECKSUM);
    size_t i      = n, kept = n;

    while (i-- > 0) { /* the end of a chain first */
        if ((kvcl_owner_find(store, &recs[i].key, store->pool) != NULL) ||
            (kvcl_owner_publish(store->pool, slots[i], &recs[i].key, recs[i].loc.checksum, summed, &recs[i].loc) !=
             KVCL_OK)) {
            (void)!kvcl_slots_abort(&store->pool->slots, slots[i]);
            continue;
        }
        recs[--kept] = recs[i];
    }
    return n - kept;
}

static void give_back(kvcl_owner_t *owner, const uint32_t *slots, size_t n)
{
    size_t i;

    kvcl_lock(owner->store->ctx);
    for (i = 0; i < n; ++i) {
        (void)!kvcl_slots_abort(&owner->slots, slots[i]);
    }
    kvcl_unlock(owner->store->ctx);
}

/* work: room for n of each. */
typedef struct put_work {
    uint32_t         *todo, *from, *slots;
    kvcl_store_rec_t *recs;
} put_work_t;

static kvcl_status_t put_blocks(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                                const uint32_t *ids, const put_work_t *work, const kvcl_xfer_params_t *params,
                                kvcl_req_h *req_p)
{
    kvcl_xfer_params_t p = *params;
    kvcl_status_t      status;
    size_t             n_todo, i, kept;

    for (i = 0; (p.status != NULL) && (i < n); ++i) {
        p.status[i] = KVCL_OK;
    }
    p.status = NULL; /* a publish's statuses would be those of todo[] */
    kvcl_lock(store->ctx);
    n_todo = missing(store, keys, n, work->todo);
    status = kvcl_owner_reserve(store, n_todo);
    if (status == KVCL_OK) {
        status = kvcl_owner_take(store->pool, n_todo, work->slots);
    }
    kvcl_unlock(store->ctx);
    if (status != KVCL_OK) {
        return status;
    }
    for (i = 0; i < n_todo; ++i) {
        work->from[i]     = ids[work->todo[i]];
        work->recs[i].key = keys[work->todo[i]];
    }
    status = copy_in(store, cache, work->from, work->slots, n_todo, work->recs);
    if (status != KVCL_OK) {
        give_back(store->pool, work->slots, n_todo);
        return status;
    }
    kvcl_lock(store->ctx);
    kept = publish_copies(store, work->slots, n_todo, work->recs);
    kvcl_unlock(store->ctx);
    return kvcl_publish_start(store->pool, work->recs + (n_todo - kept), kept, &p, req_p);
}

static kvcl_status_t put_check(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                               const uint32_t *ids, const kvcl_xfer_params_t *params, kvcl_xfer_params_t *p)
{
    kvcl_sel_t    sel    = {.blocks = ids, .n_blocks = n};
    kvcl_status_t status = kvcl_store_check(store, keys, n, "kvcl_store_put");

    if ((status != KVCL_OK) || ((status = kvcl_xfer_params(params, "kvcl_store_put", p)) != KVCL_OK) ||
        ((status = kvcl_xfer_local(store->ctx, cache, &sel, "kvcl_store_put")) != KVCL_OK)) {
        return status;
    }
    if (store->pool == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_put: the store was opened without a pool (dram_bytes)");
    }
    if (cache->shape.block_bytes != store->pool_cache->shape.block_bytes) {
        return kvcl_fail(KVCL_ERR_BAD_LAYOUT, "kvcl_store_put: a block of cache \"%s\" has %llu bytes, the pool's %llu",
                         cache->name, (unsigned long long)cache->shape.block_bytes,
                         (unsigned long long)store->pool_cache->shape.block_bytes);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_store_put(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                             const uint32_t *ids, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_xfer_params_t p;
    put_work_t         work;
    kvcl_status_t      status = put_check(store, keys, n, cache, ids, params, &p);
    char               *mem;

    if (status != KVCL_OK) {
        return status;
    }
    mem = calloc(n + 1, sizeof(kvcl_store_rec_t) + (3 * sizeof(uint32_t)));
    if (mem == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_store_put: no memory for %zu blocks", n);
    }
    work.recs  = (kvcl_store_rec_t *)(void *)mem;
    work.todo  = (uint32_t *)(void *)(work.recs + n);
    work.from  = work.todo + n;
    work.slots = work.from + n;
    status     = put_blocks(store, keys, n, cache, ids, &work, &p, req_p);
    free(mem);
    return status;
}
