/*
 * Blocks that the store hands out: alloc and free of its cache, pins; and how a block is taken, of the pool too.
 *
 * To take a block: the one free for longest, else the victim of the eviction order, which is withdrawn first (its
 * generation is bumped before anybody may write a byte of it) and removed from the directory in the background.
 */
#include "config.h"
#include "base/error.h"
#include "store/nvme.h"

#include <stdlib.h>

/* Lock held. Evict until n slots are free. There are enough. */
static void make_room(kvcl_owner_t *owner, size_t n, kvcl_store_rec_t *recs)
{
    kvcl_nvme_t *nvme = (owner == owner->store->pool) ? owner->store->nvme : NULL;
    size_t   gone = 0;
    uint32_t slot;

    while ((owner->slots.n_free < n) && (kvcl_evict_victim(&owner->evict, &slot) == KVCL_OK)) {
        if (kvcl_owner_give_up(owner, slot, KVCL_SLOT_FREE, KVCL_STORE_EVICTED, -1, &recs[gone]) == KVCL_OK) {
            ++owner->store->n_evicted;
            ++gone;
            if (nvme != NULL) {
                kvcl_nvme_evicted(nvme, slot);
            }
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
    if ((owner == owner->store->pool) && (owner->store->nvme != NULL)) {
        kvcl_nvme_taken(owner->store->nvme);
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
        kvcl_owner_pin(node->owner, slot);
        *id_p = slot;
    }
    pthread_mutex_unlock(&store->ctx->engine.lock);
    return status;
}

void kvcl_store_unpin(kvcl_store_h store, uint32_t id)
{
    if (store != NULL) {
        kvcl_lock(store->ctx);
        if (store->own != NULL) {
            kvcl_owner_unpin(store->own, id);
        }
        pthread_mutex_unlock(&store->ctx->engine.lock);
    }
}
