/*
 * Blocks that the store hands out: alloc and free of its cache, pins; and how a block is taken, of the pool too.
 *
 * To take a block: the one free for longest, else a victim: the tenant's own if it would be over its quota, one of a
 * tenant that is over its, else that of the eviction order. It is withdrawn first (its
 * generation is bumped before anybody may write a byte of it) and removed from the directory in the background.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "store/nvme.h"

#include <stdlib.h>

/* Whose turn it is: a tenant that has more than its quota, else the order of eviction says. */
static kvcl_status_t next_victim(kvcl_owner_t *owner, uint32_t *slot_p)
{
    uint64_t tenant = kvcl_tenants_any_over(&owner->tenants);

    if ((tenant != 0) && (kvcl_tenants_victim(&owner->tenants, tenant, &owner->evict, slot_p) == KVCL_OK)) {
        return KVCL_OK;
    }
    return kvcl_evict_victim(&owner->evict, slot_p);
}

/* rec->loc.gen 0: nobody is to be told yet. */
static bool evict(kvcl_owner_t *owner, uint32_t slot, kvcl_store_rec_t *rec)
{
    if (kvcl_owner_give_up(owner, slot, KVCL_SLOT_FREE, KVCL_STORE_EVICTED, -1, rec) != KVCL_OK) {
        return false;
    }
    ++owner->store->n_evicted;
    if ((owner == owner->store->pool) && (owner->store->nvme != NULL) && kvcl_nvme_evicted(owner->store->nvme, slot)) {
        rec->loc.gen = 0;
    }
    return true;
}

static void tell(kvcl_store_h store, kvcl_store_rec_t *recs, size_t n)
{
    size_t kept = 0, i;

    for (i = 0; i < n; ++i) {
        if (recs[i].loc.gen != 0) {
            recs[kept++] = recs[i];
        }
    }
    kvcl_store_tell_removed(store, recs, kept);
}

/* Lock held. Evict `over` blocks of the tenant, then until n slots are free; there are enough of those. False: the
 * tenant's are pinned. */
static bool make_room(kvcl_owner_t *owner, uint64_t tenant, size_t over, size_t n, kvcl_store_rec_t *recs)
{
    size_t   gone = 0;
    uint32_t slot;

    while ((gone < over) && (kvcl_tenants_victim(&owner->tenants, tenant, &owner->evict, &slot) == KVCL_OK)) {
        gone += evict(owner, slot, &recs[gone]) ? 1 : 0;
    }
    over -= gone;
    while ((over == 0) && (owner->slots.n_free < n) && (next_victim(owner, &slot) == KVCL_OK)) {
        gone += evict(owner, slot, &recs[gone]) ? 1 : 0;
    }
    tell(owner->store, recs, gone);
    return over == 0;
}

static size_t spare(const kvcl_owner_t *owner)
{
    return (size_t)owner->slots.n_free + kvcl_evict_count(&owner->evict) - owner->pinned;
}

kvcl_status_t kvcl_owner_take_for(kvcl_owner_t *owner, uint64_t tenant, size_t n, uint32_t *ids)
{
    uint64_t         over = kvcl_tenants_over(&owner->tenants, tenant, n);
    kvcl_store_rec_t *recs;
    kvcl_status_t    status = KVCL_OK;
    bool             room;
    size_t           i;

    kvcl_pins_expire(owner, (owner->held.n != 0) ? kvcl_now_ns() : 0);
    while ((n > spare(owner)) && kvcl_pins_yield(owner)) {
    }
    if (n > spare(owner)) {
        return kvcl_fail(KVCL_ERR_NO_SPACE, "%zu blocks of cache \"%s\" asked for: %u are free, %u could be evicted", n,
                         owner->cache->name, owner->slots.n_free, kvcl_evict_count(&owner->evict) - owner->pinned);
    }
    if (over > owner->slots.n) {
        return kvcl_fail(KVCL_ERR_NO_SPACE, "%zu blocks asked for are beyond the quota of tenant %llu", n,
                         (unsigned long long)tenant);
    }
    if ((owner->slots.n_free < n) || (over != 0)) {
        recs = malloc((n + over) * sizeof(*recs));
        if (recs == NULL) {
            return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory to evict blocks");
        }
        room = make_room(owner, tenant, (size_t)over, n, recs);
        free(recs);
        if (!room) {
            return kvcl_fail(KVCL_ERR_NO_SPACE, "tenant %llu has its quota in blocks that are pinned",
                             (unsigned long long)tenant);
        }
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
        kvcl_store_freed(store);
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

void kvcl_store_unpin_local(kvcl_store_h store, uint32_t id)
{
    if (store != NULL) {
        kvcl_lock(store->ctx);
        if (store->own != NULL) {
            kvcl_owner_unpin(store->own, id);
        }
        pthread_mutex_unlock(&store->ctx->engine.lock);
    }
}
