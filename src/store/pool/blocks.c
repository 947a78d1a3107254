/*
 * Blocks that the store allocates: kvcl_store_alloc and _free of its own cache, local pins, and the allocation of
 * blocks of the pool.
 *
 * The source of a block, in this order: the block that has been free longest; in a pool of several sizes, a block of a
 * slab that moves to this class; a victim. The victim is the tenant's own block if the tenant would exceed its quota,
 * else a block of a tenant that exceeds its quota, else the next of the eviction order. A victim is withdrawn first:
 * its generation is bumped before a byte of it may be written. The homes are notified in the background.
 *
 * Owns nothing. Engine lock held, except in the public calls, which take it.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "store/home/home_answer.h"
#include "store/pool/blocks.h"
#include "store/pool/pool.h"
#include "store/pool/room.h"
#include "store/tenant.h"
#include "store/words.h"

#include <stdlib.h>

enum { BATCH = 64 };

/* Evicted blocks whose homes have not been notified yet. */
typedef struct evicted {
    kvcl_store_h     store;
    size_t           n;
    kvcl_store_rec_t recs[BATCH];
} evicted_t;

static void notify(evicted_t *evicted)
{
    kvcl_store_notify_removed(evicted->store, evicted->recs, evicted->n);
    evicted->n = 0;
}

/* The next victim: a block of a tenant that exceeds its quota, else the next of the eviction order. */
static kvcl_status_t next_victim(kvcl_owner_t *owner, uint32_t *slot_p)
{
    uint64_t tenant = kvcl_tenants_any_over(owner->tenants);

    if ((tenant != 0) &&
        (kvcl_tenants_victim(owner->tenants, tenant, owner->cls, &owner->evict, slot_p) == KVCL_OK)) {
        return KVCL_OK;
    }
    return kvcl_evict_victim(&owner->evict, slot_p);
}

static bool evict(kvcl_owner_t *owner, uint32_t slot, evicted_t *evicted)
{
    if (kvcl_owner_discard(owner, slot, KVCL_SLOT_FREE, KVCL_STORE_EVICTED, -1, &evicted->recs[evicted->n]) !=
        KVCL_OK) {
        return false;
    }
    ++owner->store->n_evicted;
    if (owner->store->notify->evicted(owner, slot)) {
        return true; /* the listener notifies the homes later */
    }
    if (++evicted->n == BATCH) {
        notify(evicted);
    }
    return true;
}

/* Evicts `over` bytes of the tenant's blocks, those of this class first. False: the rest is pinned. */
static bool shrink(kvcl_owner_t *owner, uint64_t tenant, uint64_t over, evicted_t *evicted)
{
    unsigned     n = (owner->pool != NULL) ? owner->pool->n : 1, i;
    kvcl_owner_t *from;
    uint64_t     bytes;
    uint32_t     slot;

    for (i = 0; (over != 0) && (i < n); ++i) {
        from  = (owner->pool != NULL) ? owner->pool->owners[(owner->cls + i) % n] : owner;
        bytes = kvcl_owner_bytes(from);
        while ((over != 0) &&
               (kvcl_tenants_victim(from->tenants, tenant, from->cls, &from->evict, &slot) == KVCL_OK)) {
            over -= !evict(from, slot, evicted) ? 0 : (over < bytes) ? over : bytes;
        }
    }
    return over == 0;
}

/* Lock held. Evicts until n slots are free; the caller has checked that enough can be evicted. over: bytes that the
 * tenant must free of its quota. False: these are pinned. */
static bool make_room(kvcl_owner_t *owner, uint64_t tenant, uint64_t over, size_t n)
{
    evicted_t evicted;
    uint32_t  slot;
    bool      room;

    kvcl_assert_locked(owner->store->ctx);
    evicted.store = owner->store;
    evicted.n     = 0;
    room          = shrink(owner, tenant, over, &evicted);
    if (room && (owner->slots.n_free < n)) {
        kvcl_pool_balance(owner, n - owner->slots.n_free);
    }
    while (room && (owner->slots.n_free < n) && (next_victim(owner, &slot) == KVCL_OK)) {
        (void)evict(owner, slot, &evicted);
    }
    notify(&evicted);
    return room;
}

uint64_t kvcl_owner_most(const kvcl_owner_t *owner)
{
    return (owner->slabs != NULL) ? kvcl_slabs_most(owner->slabs, owner->cls) : owner->slots.n;
}

/* Blocks that are free or can be evicted, and are not promised. */
static size_t spare(const kvcl_owner_t *owner)
{
    size_t n = (size_t)owner->slots.n_free + kvcl_evict_count(&owner->evict) - owner->pinned;

    return (n > owner->promised) ? n - owner->promised : 0;
}

/* Lock held. Takes over slabs of other classes, then drops soft pins, until n slots are free or can be evicted. Changes
 * nothing if that cannot be enough. */
static void find_room(kvcl_owner_t *owner, size_t n)
{
    uint64_t yield = kvcl_list_is_empty(&owner->held.soft) ? 0 : owner->pinned;

    kvcl_assert_locked(owner->store->ctx);
    if ((n > spare(owner) + yield) && !kvcl_pool_could(owner, n - spare(owner) - yield)) {
        return;
    }
    while ((n > spare(owner)) && (kvcl_pool_grow(owner, true) || kvcl_pins_yield(owner))) {
    }
}

/* Takes n blocks for a tenant whose quota must have room for `all`. */
static kvcl_status_t take(kvcl_owner_t *owner, uint64_t tenant, size_t all, size_t n, uint32_t *ids)
{
    uint64_t      over   = kvcl_tenants_over(owner->tenants, tenant, all * kvcl_owner_bytes(owner));
    kvcl_status_t status = KVCL_OK;
    size_t        i;

    if (n > kvcl_owner_most(owner)) { /* before anything is evicted in vain */
        return kvcl_fail(KVCL_ERR_NO_SPACE, "%zu blocks of cache \"%s\" requested, but it never has more than %llu", n,
                         owner->cache->name, (unsigned long long)kvcl_owner_most(owner));
    }
    kvcl_pins_expire(owner, (owner->held.n != 0) ? kvcl_now_ns() : 0);
    if (over != KVCL_TENANT_NEVER) {
        find_room(owner, n);
    }
    if (n > spare(owner)) {
        return kvcl_fail(KVCL_ERR_NO_SPACE, "%zu blocks of cache \"%s\" requested, but %u are free and %u can be "
                         "evicted%s: unpin or free some", n, owner->cache->name, owner->slots.n_free,
                         kvcl_evict_count(&owner->evict) - owner->pinned,
                         (owner->promised != 0) ? ", in part for puts under way" : "");
    }
    if (over == KVCL_TENANT_NEVER) {
        return kvcl_fail(KVCL_ERR_NO_SPACE, "%zu blocks of %llu bytes exceed the quota of tenant %llu: raise it with "
                         "kvcl_store_quota, or request fewer", all, (unsigned long long)kvcl_owner_bytes(owner),
                         (unsigned long long)tenant);
    }
    if (((owner->slots.n_free < n) || (over != 0)) && !make_room(owner, tenant, over, n)) {
        return kvcl_fail(KVCL_ERR_NO_SPACE, "tenant %llu would exceed its quota by %llu bytes, and its blocks are "
                         "pinned: unpin some", (unsigned long long)tenant, (unsigned long long)over);
    }
    for (i = 0; (i < n) && (status == KVCL_OK); ++i) {
        status = kvcl_slots_alloc(&owner->slots, &ids[i]);
    }
    owner->store->notify->taken(owner);
    return status;
}

kvcl_status_t kvcl_owner_take_for(kvcl_owner_t *owner, uint64_t tenant, size_t n, uint32_t *ids)
{
    return take(owner, tenant, n, n, ids);
}

/* ---- promises ---- */

bool kvcl_owner_promise(kvcl_owner_t *owner, uint64_t tenant, size_t n)
{
    kvcl_pins_expire(owner, (owner->held.n != 0) ? kvcl_now_ns() : 0);
    if ((n > spare(owner)) || (kvcl_tenants_over(owner->tenants, tenant, n * kvcl_owner_bytes(owner)) != 0)) {
        return false;
    }
    owner->promised += n;
    return true;
}

kvcl_status_t kvcl_owner_take_promised(kvcl_owner_t *owner, uint64_t tenant, size_t all, size_t n, uint32_t *ids)
{
    kvcl_status_t status;

    owner->promised -= n;
    status = take(owner, tenant, all, n, ids);
    owner->promised += (status == KVCL_OK) ? 0 : n;
    return status;
}

void kvcl_owner_unpromise(kvcl_owner_t *owner, size_t n)
{
    owner->promised -= n;
    kvcl_store_freed(owner->store);
}

static kvcl_status_t own_cache(kvcl_store_h store, const void *ids, size_t n, const char *call)
{
    kvcl_status_t status = kvcl_store_check(store, ids, n, call);

    if ((status == KVCL_OK) && (store->own == NULL)) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: the store has no cache of its own: open it with params.cache",
                           call);
    }
    return status;
}

/* No lock: the blocks are the caller's. */
static kvcl_status_t zero_blocks(kvcl_store_h store, const uint32_t *ids, size_t n)
{
    static const char zeros[16384];
    kvcl_sel_t        sel  = {.blocks = ids, .n_blocks = n};
    kvcl_side_t       side = kvcl_cache_side(store->own->cache, &sel);
    kvcl_stream_t     stream;
    uint64_t          left, len;

    kvcl_stream_init(&stream, &side, KVCL_STREAM_CANONICAL);
    for (left = stream.total_bytes; left > 0; left -= len) {
        len = (left < sizeof(zeros)) ? left : sizeof(zeros);
        if (kvcl_stream_scatter(&stream, zeros, (size_t)len) != len) {
            return KVCL_ERR_IO; /* with the device's sentence */
        }
    }
    return KVCL_OK;
}

/* tenant: must not read what another one has left in a block. 0: the store's own handle. */
static kvcl_status_t alloc(kvcl_store_h store, uint64_t tenant, size_t n, uint32_t *ids)
{
    bool          zero   = (tenant != 0);
    kvcl_status_t status = own_cache(store, ids, n, "kvcl_store_alloc");
    size_t        i;

    if (status == KVCL_OK) {
        zero = zero || (store->flags & KVCL_STORE_ZERO);
        kvcl_lock(store->ctx);
        status = kvcl_owner_take(store->own, n, ids);
        for (i = 0; (status == KVCL_OK) && (i < n); ++i) {
            store->own->takers[ids[i]] = tenant;
        }
        kvcl_unlock(store->ctx);
    }
    if ((status != KVCL_OK) || (n == 0) || !zero ||
        ((status = zero_blocks(store, ids, n)) == KVCL_OK)) {
        return status;
    }
    kvcl_lock(store->ctx);
    for (i = 0; i < n; ++i) {
        (void)!kvcl_slots_abort(&store->own->slots, ids[i]);
        kvcl_store_freed(store);
    }
    kvcl_unlock_quietly(store->ctx);
    return status;
}

kvcl_status_t kvcl_store_alloc(kvcl_store_h store, size_t n, uint32_t *ids)
{
    kvcl_entry_t  entry;
    kvcl_status_t status = kvcl_store_enter(&store, NULL, 0, "kvcl_store_alloc", &entry);

    status = (status == KVCL_OK) ? alloc(store, kvcl_tenant_of(entry.tenant), n, ids) : status;
    kvcl_store_leave(&entry);
    return status;
}

static kvcl_status_t free_one(kvcl_owner_t *owner, uint64_t tenant, uint32_t slot)
{
    if ((slot < owner->slots.n) && (owner->array[slot].state == KVCL_SLOT_FILLING) &&
        !kvcl_owner_allows(owner, slot, tenant)) {
        return KVCL_ERR_ACCESS;
    }
    if ((slot < owner->slots.n) && (owner->array[slot].state == KVCL_SLOT_FILLING) &&
        (owner->array[slot].note & KVCL_NOTE_TAKEN)) {
        return KVCL_ERR_BUSY;
    }
    return kvcl_slots_abort(&owner->slots, slot);
}

static kvcl_status_t free_blocks(kvcl_store_h store, uint64_t tenant, const uint32_t *ids, size_t n)
{
    kvcl_status_t status = own_cache(store, ids, n, "kvcl_store_free");
    size_t        i, done;

    if (status != KVCL_OK) {
        return status;
    }
    kvcl_lock(store->ctx);
    for (i = 0; (i < n) && (status == KVCL_OK); ++i) {
        status = free_one(store->own, tenant, ids[i]);
        kvcl_store_freed(store);
    }
    if (status != KVCL_OK) { /* block i - 1 was not the caller's: undo the others */
        for (done = 0; done + 1 < i; ++done) {
            (void)!kvcl_slots_take(&store->own->slots, ids[done]);
        }
        status = kvcl_fail(status, "kvcl_store_free: block %u (number %zu of %zu) %s", ids[i - 1], i - 1, n,
                           (status == KVCL_ERR_ACCESS)
                               ? "was not allocated by this tenant's handle: free it by the handle that allocated it"
                               : "is free or published, or being put: withdraw a published block first");
    }
    kvcl_unlock_quietly(store->ctx);
    return status;
}

kvcl_status_t kvcl_store_free(kvcl_store_h store, const uint32_t *ids, size_t n)
{
    kvcl_entry_t  entry;
    kvcl_status_t status = kvcl_store_enter(&store, NULL, 0, "kvcl_store_free", &entry);

    status = (status == KVCL_OK) ? free_blocks(store, kvcl_tenant_of(entry.tenant), ids, n) : status;
    kvcl_store_leave(&entry);
    return status;
}

/* ---- pins ---- */

static kvcl_status_t pin_local(kvcl_store_h store, const kvcl_key_t *key, uint32_t *id_p)
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
    if ((node == NULL) || (node->owner->pool != NULL)) {
        status = kvcl_fail(KVCL_ERR_NOT_FOUND, "kvcl_store_pin_local: no cache of this rank holds the key %016llx...",
                           kvcl_key_prefix(key));
    } else {
        slot = kvcl_owner_slot(node);
        kvcl_owner_touch(node->owner, slot);
        kvcl_owner_pin(node->owner, slot);
        *id_p = slot;
    }
    kvcl_unlock_quietly(store->ctx);
    return status;
}

kvcl_status_t kvcl_store_pin_local(kvcl_store_h store, const kvcl_key_t *key, uint32_t *id_p)
{
    kvcl_entry_t  entry;
    kvcl_status_t status = kvcl_store_enter(&store, &key, 1, "kvcl_store_pin_local", &entry);

    status = (status == KVCL_OK) ? pin_local(store, key, id_p) : status;
    kvcl_store_leave(&entry);
    return status;
}

void kvcl_store_unpin_local(kvcl_store_h store, uint32_t id)
{
    kvcl_entry_t entry;

    if ((kvcl_store_enter(&store, NULL, 0, "kvcl_store_unpin_local", &entry) == KVCL_OK) &&
        kvcl_handle_may_free(store, KVCL_KIND_STORE, "kvcl_store_unpin_local")) {
        kvcl_lock(store->ctx);
        if ((store->own != NULL) && (id < store->own->slots.n) &&
            ((entry.tenant == NULL) || (kvcl_owner_tenant(store->own, id) == entry.tenant->number))) {
            kvcl_owner_unpin(store->own, id);
        }
        kvcl_unlock_quietly(store->ctx);
    }
    kvcl_store_leave(&entry);
}
