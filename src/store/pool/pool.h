/*
 * A rank's pool: memory for the blocks of puts and for copies of other ranks' blocks, of one size or several.
 *
 * Each size is a class: a cache of blocks of that size and its owner (owner.h), with its own generations. Several
 * classes lie over one arena, the memory of the first class's cache; slabs.h keeps which class has which part. Before a
 * slab moves to another class, each of its blocks is discarded, which bumps its generation. A reader that is still
 * copying the block therefore detects the change after its copy, whatever was written meanwhile. A slab with a block
 * that is being filled or is pinned does not move. A class's slots outside its slabs are FILLING, so they cannot be
 * allocated. Engine lock held, except while the pool is opened and closed.
 */
#ifndef KVCL_STORE_POOL_POOL_H
#define KVCL_STORE_POOL_POOL_H

#include "store/store.h"

typedef struct kvcl_pool {
    unsigned       n;         /* classes */
    kvcl_cache_h   caches[KVCL_SLABS_CLASSES_MAX];
    kvcl_owner_t   *owners[KVCL_SLABS_CLASSES_MAX];
    kvcl_tenants_t tenants;
    uint64_t       bytes;     /* bytes of the arena */
    kvcl_slabs_t   slabs;     /* valid if n > 1 */
    void           *slabs_mem;
    uint64_t       n_taken;   /* slabs that moved from one class to another */
} kvcl_pool_t;

/** The block sizes of params, each once. @return their number; 0, with the error sentence set: params are wrong. */
unsigned      kvcl_pool_sizes(const kvcl_store_params_t *p, uint64_t sizes[KVCL_SLABS_CLASSES_MAX]);

/** No lock. Sets store->pool, also on failure; kvcl_pool_close() frees it. */
kvcl_status_t kvcl_pool_open(kvcl_store_h store, const kvcl_store_params_t *p) KVCL_MUST_CHECK;
/** No lock; the pool's owners are detached, or were never attached. NULL is allowed. */
void          kvcl_pool_close(kvcl_pool_t *pool);
/** The same, but the room of caches frees the pool's caches. */
void          kvcl_pool_free(kvcl_pool_t *pool);

/** The class for blocks of this size, or NULL. */
static inline kvcl_owner_t *kvcl_pool_for(const struct kvcl_store *store, uint64_t bytes)
{
    const kvcl_pool_t *pool = store->pool;
    unsigned          i;

    for (i = 0; (pool != NULL) && (i < pool->n); ++i) {
        if (pool->caches[i]->shape.block_bytes == bytes) {
            return pool->owners[i];
        }
    }
    return NULL;
}

/** Bytes that this class can take without an eviction: its free blocks, and slabs that no class has or that are
 * empty. */
uint64_t kvcl_pool_free_bytes(const kvcl_owner_t *owner);
/** Blocks that the class has memory for now, or could have with those slabs. */
uint64_t kvcl_pool_room(const kvcl_owner_t *owner);
/** Bytes of free blocks of all classes, and of slabs that no class has. */
uint64_t kvcl_pool_all_free_bytes(const kvcl_pool_t *pool);

/** Gives the owner another slab: one that no class has; an empty one; one of another class whose blocks were used
 * longer ago; or, with `must`, any. The slab's blocks are evicted. False: no slab now; with a tier, one may be written
 * to the tier first. */
bool     kvcl_pool_grow(kvcl_owner_t *owner, bool must);
/** Would the owner have about n more blocks if it had all slabs that can be vacated? Changes nothing. */
bool     kvcl_pool_could(const kvcl_owner_t *owner, uint64_t n);
/** Call it before n blocks are evicted for room: the owner first gets slabs that no class has or that are empty, and
 * now and then one of another class. Fewer blocks may have to be evicted afterwards. */
void     kvcl_pool_balance(kvcl_owner_t *owner, size_t n);

#endif
