/*
 * Owners (owner.h): a cache is attached to a store, and detached.
 *
 * Owns: the arrays of an owner. Invariant: an owner is linked to its store, and is its cache's, from the end of its
 * attaching to its detaching. Engine lock held, except where marked.
 */
#include "config.h"
#include "store/pool/owner.h"
#include "base/error.h"
#include "base/rand.h"
#include "store/pool/pool.h"
#include "store/store.h"

#include <stdlib.h>

/* kvcl_cache_user_t.release: kvcl_cache_destroy queries whether the cache may be destroyed. */
static bool release(kvcl_cache_h cache)
{
    kvcl_owner_t *owner = cache->store;

    kvcl_assert_locked(cache->ctx);
    if (owner->managed || (owner->slots.n_published != 0)) {
        return false;
    }
    kvcl_owner_detach(owner);
    return true;
}

/* No generation may be used twice: start above those that earlier stores left in the words, else at a random one. */
static uint32_t first_gen(kvcl_cache_h cache)
{
    uint32_t top = 0, word;
    uint64_t i;

    for (i = 0; i < cache->shape.blocks; ++i) {
        word = atomic_load_explicit(&cache->gens[i], memory_order_relaxed);
        top  = (word > top) ? word : top;
    }
    if (top == 0) {
        if (kvcl_random_bytes(&top, sizeof(top)) != KVCL_OK) {
            top = 0;
        }
        top &= 0x3fffffff;
    }
    return top + 1;
}

static void destroy(kvcl_owner_t *owner)
{
    free(owner->array);
    free(owner->nodes);
    free(owner->evict_mem);
    free(owner->pins);
    free(owner->takers);
    kvcl_tenants_fini(&owner->own_tenants);
    free(owner);
}

static kvcl_status_t make_arrays(kvcl_owner_t *owner, uint32_t n)
{
    size_t   bytes = kvcl_evict_bytes(n);
    uint32_t i;

    owner->array = calloc(n, sizeof(*owner->array));
    owner->nodes = calloc(n, sizeof(*owner->nodes));
    if (owner->managed) {
        owner->evict_mem = calloc(1, bytes);
        owner->pins      = calloc(n, sizeof(*owner->pins));
        owner->takers    = (owner->pool == NULL) ? calloc(n, sizeof(*owner->takers)) : NULL;
        if (kvcl_tenants_class(owner->tenants, owner->cls, n, owner->cache->shape.block_bytes) != KVCL_OK) {
            return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory to keep track of %u blocks", n);
        }
    }
    if ((owner->array == NULL) || (owner->nodes == NULL) ||
        (owner->managed && ((owner->evict_mem == NULL) || (owner->pins == NULL) ||
                            ((owner->pool == NULL) && (owner->takers == NULL))))) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory to keep track of %u blocks", n);
    }
    for (i = 0; i < n; ++i) {
        owner->nodes[i].owner = owner;
    }
    return owner->managed ? kvcl_evict_init(&owner->evict, n, owner->evict_mem, bytes) : KVCL_OK;
}

kvcl_status_t kvcl_owner_check_id(kvcl_cache_h cache)
{
    if (cache->id > UINT16_MAX) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "cache \"%s\" is number %u of this process, but a store takes at most "
                         "number %u: create fewer caches before it", cache->name, (unsigned)cache->id, UINT16_MAX);
    }
    return KVCL_OK;
}

/* Not linked yet. Of a cache that others do not know it needs no lock. */
static kvcl_status_t make_owner(kvcl_store_h store, kvcl_cache_h cache, bool managed, uint16_t tier, kvcl_pool_t *pool,
                                unsigned cls, kvcl_owner_t **owner_p)
{
    kvcl_owner_t  *owner;
    kvcl_status_t status;

    if (cache->shape.blocks >= KVCL_SLOT_NONE) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "cache \"%s\" has %llu blocks, but a store takes fewer than %u",
                         cache->name, (unsigned long long)cache->shape.blocks, KVCL_SLOT_NONE);
    }
    if (cache->shape.block_bytes > UINT32_MAX) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "cache \"%s\" has blocks of %llu bytes, but a store takes blocks below "
                         "4 GiB", cache->name, (unsigned long long)cache->shape.block_bytes);
    }
    status = kvcl_owner_check_id(cache);
    if (status != KVCL_OK) {
        return status;
    }
    owner = calloc(1, sizeof(*owner));
    if (owner == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a store's cache");
    }
    owner->user.release = release;
    owner->store        = store;
    owner->cache        = cache;
    owner->managed      = managed;
    owner->tier         = tier;
    owner->pool         = pool;
    owner->cls          = cls;
    kvcl_tenants_init(&owner->own_tenants);
    owner->tenants = (pool != NULL) ? &pool->tenants : &owner->own_tenants;
    kvcl_pins_init(&owner->held);
    status = make_arrays(owner, (uint32_t)cache->shape.blocks);
    if (status == KVCL_OK) {
        status = kvcl_slots_init(&owner->slots, cache->gens, owner->array, (uint32_t)cache->shape.blocks,
                                 (uint16_t)store->me, store->incarnation, (uint16_t)cache->id, first_gen(cache));
    }
    if (status != KVCL_OK) {
        destroy(owner);
        return status;
    }
    *owner_p = owner;
    return KVCL_OK;
}

static void link_owner(kvcl_owner_t *owner)
{
    kvcl_assert_locked(owner->store->ctx);
    kvcl_list_add_tail(&owner->store->owners, &owner->link);
    owner->cache->store = owner;
}

kvcl_status_t kvcl_owner_attach(kvcl_store_h store, kvcl_cache_h cache, bool managed, uint16_t tier,
                                kvcl_owner_t **owner_p)
{
    kvcl_owner_t  *owner = cache->store;
    kvcl_status_t status;

    kvcl_assert_locked(store->ctx);
    if (owner == NULL) {
        status = make_owner(store, cache, managed, tier, NULL, 0, owner_p);
        if (status == KVCL_OK) {
            link_owner(*owner_p);
        }
        return status;
    }
    if ((owner->store != store) || (owner->managed != managed)) {
        return kvcl_fail(KVCL_ERR_BUSY, "cache \"%s\" is used by another store", cache->name);
    }
    *owner_p = owner;
    return KVCL_OK;
}

kvcl_status_t kvcl_owner_attach_class(kvcl_store_h store, kvcl_cache_h cache, kvcl_pool_t *pool, unsigned cls,
                                      kvcl_owner_t **owner_p)
{
    kvcl_status_t status = make_owner(store, cache, true, KVCL_DIR_TIER_DRAM, pool, cls, owner_p);

    if (status == KVCL_OK) {
        kvcl_lock(store->ctx);
        link_owner(*owner_p);
        kvcl_unlock(store->ctx);
    }
    return status;
}

void kvcl_owner_detach(kvcl_owner_t *owner)
{
    owner->store->notify->detached(owner);
    kvcl_pins_fini(owner);
    kvcl_list_del(&owner->link);
    owner->cache->store = NULL;
    destroy(owner);
}
