/*
 * A rank's pool (pool.h): opening its classes, and moving slabs between them.
 *
 * Owns the pool's caches and its slab table. Invariant: each slot of a class that lies in none of its slabs is FILLING.
 * Engine lock held, except while the pool is opened and closed.
 */
#include "config.h"
#include "store/home/home_answer.h"
#include "store/pool/pool.h"
#include "base/error.h"
#include "base/log.h"

#include <stdlib.h>

enum { TRIES = 8, BATCH = 64 };

/* ---- opening ---- */

static bool add_size(uint64_t *sizes, unsigned *n, uint64_t size)
{
    unsigned i;

    for (i = 0; i < *n; ++i) {
        if (sizes[i] == size) {
            return true;
        }
    }
    if ((*n == KVCL_SLABS_CLASSES_MAX) || (size == 0) || (size > UINT32_MAX - 1)) {
        return false;
    }
    sizes[(*n)++] = size;
    return true;
}

unsigned kvcl_pool_sizes(const kvcl_store_params_t *p, uint64_t sizes[KVCL_SLABS_CLASSES_MAX])
{
    unsigned n = 0;
    uint64_t bytes, i;

    if ((p->n_block_sizes == 0) && (p->block_bytes == 0)) {
        (void)kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_open: dram_bytes is %llu but block_bytes is 0: set "
                        "block_bytes to a block's size (kvcl_cache_block_bytes), or block_sizes",
                        (unsigned long long)p->dram_bytes);
        return 0;
    }
    if (((p->n_block_sizes == 0) || (p->block_bytes != 0)) && !add_size(sizes, &n, p->block_bytes)) {
        (void)kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_open: dram_bytes is %llu, but block_bytes is %llu: set it "
                        "to 1 to %u", (unsigned long long)p->dram_bytes, (unsigned long long)p->block_bytes,
                        UINT32_MAX - 1);
        return 0;
    }
    if ((p->n_block_sizes != 0) && (p->block_sizes == NULL)) {
        (void)kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_open: n_block_sizes is %llu, but block_sizes is NULL",
                        (unsigned long long)p->n_block_sizes);
        return 0;
    }
    for (i = 0; i < p->n_block_sizes; ++i) {
        if (!add_size(sizes, &n, p->block_sizes[i])) {
            (void)kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_open: block_sizes[%llu] is %llu: at most %d sizes, of "
                            "1 to %u bytes", (unsigned long long)i, (unsigned long long)p->block_sizes[i],
                            KVCL_SLABS_CLASSES_MAX, UINT32_MAX - 1);
            return 0;
        }
    }
    bytes = p->dram_bytes - (p->dram_bytes % sizes[0]); /* bytes of the first class's cache */
    if ((n == 1) && (bytes == 0)) {
        (void)kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_open: a pool of %llu bytes has no room for blocks of %llu",
                        (unsigned long long)p->dram_bytes, (unsigned long long)sizes[0]);
        return 0;
    }
    if ((n > 1) && (kvcl_slabs_bytes(bytes, sizes, n) == 0)) {
        (void)kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_open: a pool of %llu bytes for blocks of %u sizes: it must "
                        "have room for %u blocks of the largest, rounded down to blocks of the first, and for fewer "
                        "than 2^32 of the smallest", (unsigned long long)p->dram_bytes, n, 4 * n);
        return 0;
    }
    return n;
}

/* Makes a class's cache. The first class's cache owns the memory; the others lie over it. */
static kvcl_status_t make_cache(kvcl_store_h store, uint64_t size, kvcl_cache_h arena, kvcl_cache_h *cache_p)
{
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(store->pool->bytes / size, (uint32_t)size);
    char          name[KVCL_CACHE_NAME_MAX + 1];

    if (arena == NULL) {
        snprintf(name, sizeof(name), "kvcl.pool.%016llx", (unsigned long long)store->id);
        return kvcl_cache_create(store->ctx, name, &layout, NULL, cache_p);
    }
    snprintf(name, sizeof(name), "kvcl.pool.%016llx.%llu", (unsigned long long)store->id, (unsigned long long)size);
    return kvcl_cache_create_over(arena, name, &layout, cache_p);
}

/* Lock held; all slots are free. Leaves each class the slots of its own slabs. */
static kvcl_status_t assign_slots(kvcl_pool_t *pool)
{
    kvcl_status_t status = KVCL_OK;
    kvcl_owner_t  *owner;
    uint32_t      slot;
    unsigned      i;

    kvcl_assert_locked(pool->owners[0]->store->ctx);
    for (i = 0; i < pool->n; ++i) {
        owner        = pool->owners[i];
        owner->slabs = &pool->slabs;
        for (slot = 0; (slot < owner->slots.n) && (status == KVCL_OK); ++slot) {
            status = kvcl_slabs_has(&pool->slabs, i, slot) ? KVCL_OK : kvcl_slots_take(&owner->slots, slot);
        }
    }
    return status;
}

static kvcl_status_t open_slabs(kvcl_store_h store, const uint64_t *sizes)
{
    kvcl_pool_t   *pool = store->pool;
    size_t        bytes = kvcl_slabs_bytes(pool->bytes, sizes, pool->n);
    kvcl_status_t status;

    pool->slabs_mem = malloc(bytes);
    if (pool->slabs_mem == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for the slab table of a pool of %u sizes", pool->n);
    }
    status = kvcl_slabs_init(&pool->slabs, pool->bytes, sizes, pool->n, pool->slabs_mem, bytes);
    if (status == KVCL_OK) {
        kvcl_lock(store->ctx);
        status = assign_slots(pool);
        kvcl_unlock(store->ctx);
        kvcl_log_debug("a pool of %llu bytes for blocks of %u sizes: %u slabs of %llu bytes",
                       (unsigned long long)pool->bytes, pool->n, pool->slabs.n,
                       (unsigned long long)pool->slabs.slab_bytes);
    }
    return status;
}

kvcl_status_t kvcl_pool_open(kvcl_store_h store, const kvcl_store_params_t *p)
{
    uint64_t      sizes[KVCL_SLABS_CLASSES_MAX];
    unsigned      n      = kvcl_pool_sizes(p, sizes), i;
    kvcl_status_t status = KVCL_OK;
    kvcl_pool_t   *pool;

    if (n == 0) {
        return KVCL_ERR_INVALID_PARAM;
    }
    pool = calloc(1, sizeof(*pool));
    if (pool == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a pool");
    }
    store->pool = pool;
    kvcl_tenants_init(&pool->tenants);
    pool->bytes = p->dram_bytes - (p->dram_bytes % sizes[0]); /* bytes of the first class's cache */
    for (i = 0; (i < n) && (status == KVCL_OK); ++i) {
        status = make_cache(store, sizes[i], pool->caches[0], &pool->caches[i]);
        if (status == KVCL_OK) {
            pool->n = i + 1;
            status = kvcl_owner_attach_class(store, pool->caches[i], pool, i, &pool->owners[i]);
        }
    }
    return ((status == KVCL_OK) && (n > 1)) ? open_slabs(store, sizes) : status;
}

void kvcl_pool_free(kvcl_pool_t *pool)
{
    if (pool != NULL) {
        kvcl_tenants_fini(&pool->tenants);
        free(pool->slabs_mem);
        free(pool);
    }
}

void kvcl_pool_close(kvcl_pool_t *pool)
{
    unsigned i;

    for (i = (pool != NULL) ? pool->n : 0; i-- > 0;) { /* the first one, which owns the memory, last */
        kvcl_cache_destroy(pool->caches[i]);
    }
    kvcl_pool_free(pool);
}

/* ---- free space ---- */

/* Bytes of the slabs that this class can have without an eviction. */
static uint64_t spare_bytes(const kvcl_owner_t *owner)
{
    return (owner->slabs != NULL) ? kvcl_slabs_spare(owner->slabs, owner->cls) * owner->slabs->slab_bytes : 0;
}

uint64_t kvcl_pool_free_bytes(const kvcl_owner_t *owner)
{
    return (owner->slots.n_free * kvcl_owner_bytes(owner)) + spare_bytes(owner);
}

uint64_t kvcl_pool_room(const kvcl_owner_t *owner)
{
    return kvcl_owner_room(owner) + (spare_bytes(owner) / kvcl_owner_bytes(owner));
}

uint64_t kvcl_pool_all_free_bytes(const kvcl_pool_t *pool)
{
    uint64_t bytes = (pool->n > 1) ? pool->slabs.n_free * pool->slabs.slab_bytes : 0;
    unsigned i;

    for (i = 0; i < pool->n; ++i) {
        bytes += pool->owners[i]->slots.n_free * kvcl_owner_bytes(pool->owners[i]);
    }
    return bytes;
}

/* ---- moving slabs between classes: lock held ---- */

/* Is the slot neither being filled nor pinned? */
static bool is_evictable(const kvcl_owner_t *owner, uint32_t slot)
{
    const kvcl_slot_t *at = &owner->array[slot];

    return (at->state == KVCL_SLOT_FREE) ||
           ((at->state == KVCL_SLOT_PUBLISHED) && (owner->pins[slot] == 0));
}

/* Are all of the owner's slots in the slab free or evictable? */
static bool can_vacate(const kvcl_owner_t *owner, uint32_t slab)
{
    kvcl_slab_ids_t ids = kvcl_slabs_ids(owner->slabs, slab, owner->cls);
    uint32_t        slot;

    for (slot = ids.first; slot < ids.end; ++slot) {
        if (kvcl_slabs_has(owner->slabs, owner->cls, slot) && !is_evictable(owner, slot)) {
            return false;
        }
    }
    return true;
}

/* Evicts the owner's blocks of the slab and takes its slots out of use; can_vacate() has allowed it. */
static void vacate(kvcl_owner_t *owner, uint32_t slab)
{
    kvcl_slab_ids_t  ids = kvcl_slabs_ids(owner->slabs, slab, owner->cls);
    kvcl_store_rec_t evicted[BATCH];
    size_t           n = 0;
    uint32_t         slot;

    for (slot = ids.first; slot < ids.end; ++slot) {
        if (!kvcl_slabs_has(owner->slabs, owner->cls, slot)) {
            continue;
        }
        if (owner->array[slot].state == KVCL_SLOT_FREE) {
            (void)!kvcl_slots_take(&owner->slots, slot);
        } else if (kvcl_owner_discard(owner, slot, KVCL_SLOT_FILLING, KVCL_STORE_EVICTED, -1, &evicted[n]) ==
                   KVCL_OK) {
            ++owner->store->n_evicted;
            n += owner->store->notify->evicted(owner, slot) ? 0 : 1; /* true: the listener notifies the homes later */
        }
        if (n == BATCH) {
            kvcl_store_notify_removed(owner->store, evicted, n);
            n = 0;
        }
    }
    kvcl_store_notify_removed(owner->store, evicted, n);
    owner->store->notify->released(owner, ids);
    owner->store->notify->taken(owner);
}

static void give(kvcl_owner_t *owner, uint32_t slab, kvcl_owner_t *from)
{
    kvcl_slab_ids_t got, lost;
    uint32_t        slot;

    kvcl_slabs_give(owner->slabs, slab, owner->cls, &got, &lost);
    for (slot = got.first; slot < got.end; ++slot) {
        (void)!kvcl_slots_abort(&owner->slots, slot);
    }
    owner->pool->n_taken += (from != NULL) ? 1 : 0;
}

/* The class that has the slab; NULL: none. */
static kvcl_owner_t *owner_of(const kvcl_pool_t *pool, uint32_t slab)
{
    unsigned cls = pool->slabs.slabs[slab].owner;

    return (cls != KVCL_SLAB_NOBODY) ? pool->owners[cls] : NULL;
}

static void take_over(kvcl_owner_t *owner, uint32_t slab, kvcl_owner_t *from)
{
    if (from != NULL) {
        vacate(from, slab);
    }
    give(owner, slab, from);
}

/* A slab that cannot be vacated is refused and not chosen again; after TRIES refusals any slab will do. A slab with
 * blocks that the tier does not have yet is not refused: unless `must` is set, it is written to the tier first, one
 * slab at a time, and a later call may take it. */
bool kvcl_pool_grow(kvcl_owner_t *owner, bool must)
{
    kvcl_slabs_t *slabs = owner->slabs;
    kvcl_owner_t *from;
    uint32_t     slab;
    unsigned     i;

    for (i = 0; (slabs != NULL) && (must || (i < TRIES)); ++i) {
        slab = (i < TRIES) ? kvcl_slabs_choose(slabs, owner->cls, must) : kvcl_slabs_next(slabs, owner->cls);
        if (slab == KVCL_SLAB_NONE) {
            kvcl_slabs_round(slabs); /* the next call may try the refused slabs again */
            return false;
        }
        from = owner_of(owner->pool, slab);
        if ((from != NULL) && !can_vacate(from, slab)) {
            kvcl_slabs_refuse(slabs, slab);
            continue;
        }
        if ((from != NULL) && !must &&
            !from->store->notify->may_release(from, kvcl_slabs_ids(slabs, slab, from->cls))) {
            return false;
        }
        take_over(owner, slab, from);
        return true;
    }
    return false;
}

bool kvcl_pool_could(const kvcl_owner_t *owner, uint64_t n)
{
    const kvcl_slabs_t *slabs = owner->slabs;
    uint32_t           left[KVCL_SLABS_CLASSES_MAX] = {0}, s;
    kvcl_slab_ids_t    ids;
    uint64_t           found = 0;
    unsigned           i;

    for (i = 0; (slabs != NULL) && (i < slabs->n_classes); ++i) {
        left[i] = (i != owner->cls) ? slabs->classes[i].n_slabs - 1 : 0;
    }
    for (s = 0; (slabs != NULL) && (s < slabs->n) && (found < n); ++s) {
        i = slabs->slabs[s].owner;
        if ((i != KVCL_SLAB_NOBODY) && ((left[i] == 0) || !can_vacate(owner->pool->owners[i], s))) {
            continue;
        }
        if (i != KVCL_SLAB_NOBODY) {
            --left[i];
        }
        ids    = kvcl_slabs_ids(slabs, s, owner->cls);
        found += ids.end - ids.first;
    }
    return found >= n;
}

void kvcl_pool_balance(kvcl_owner_t *owner, size_t n)
{
    kvcl_slabs_t *slabs = owner->slabs;
    uint64_t     want   = owner->slots.n_free + (uint64_t)n;

    if (slabs == NULL) {
        return;
    }
    while ((owner->slots.n_free < want) && (kvcl_slabs_spare(slabs, owner->cls) != 0) && kvcl_pool_grow(owner, false)) {
    }
    if ((owner->slots.n_free < want) && kvcl_slabs_due(slabs, owner->cls, (uint32_t)(want - owner->slots.n_free))) {
        (void)kvcl_pool_grow(owner, false);
    }
}
