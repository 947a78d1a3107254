/*
 * A rank's pool: memory for blocks that puts and other ranks' copies bring, of one size or several.
 *
 * Each size is a class: a cache of that size of block and its owner (owner.h), with generations of its own. Several
 * classes lie over one arena, the memory of the first one's cache, and slabs.h says which parts of it are whose. To
 * take a slab over from another class each of its blocks is given up first, which bumps its generation, so whoever
 * still reads it finds that out after its copy, whatever has been written there meanwhile; and a slab with a block
 * that is being filled, or is pinned, is not taken. Slots that lie in no slab of their class are FILLING: nobody's to
 * give out. All under the engine lock but for opening and closing.
 */
#ifndef KVCL_STORE_POOL_POOL_H
#define KVCL_STORE_POOL_POOL_H

#include "store/store.h"

typedef struct kvcl_pool {
    unsigned       n;         /* classes */
    kvcl_cache_h   caches[KVCL_SLABS_CLASSES_MAX];
    kvcl_owner_t   *owners[KVCL_SLABS_CLASSES_MAX];
    kvcl_tenants_t tenants;
    uint64_t       bytes;     /* of the arena */
    kvcl_slabs_t   slabs;     /* n > 1 */
    void           *slabs_mem;
    uint64_t       n_taken;   /* slabs that went from one class to another */
} kvcl_pool_t;

/** The sizes that params ask for, each once. @return how many; 0, with the sentence set: they make no sense. */
unsigned      kvcl_pool_sizes(const kvcl_store_params_t *p, uint64_t sizes[KVCL_SLABS_CLASSES_MAX]);

/** No lock. store->pool; what is there on failure, kvcl_pool_close() frees. */
kvcl_status_t kvcl_pool_open(kvcl_store_h store, const kvcl_store_params_t *p) KVCL_MUST_CHECK;
/** No lock; its owners are detached, or never were attached. NULL is allowed. */
void          kvcl_pool_close(kvcl_pool_t *pool);
/** The same, but its caches have been freed, or will be, by their own room. */
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

/** Bytes that this class could take without evicting: of free blocks, and of slabs that nobody has or others have
 * empty. */
uint64_t kvcl_pool_free_bytes(const kvcl_owner_t *owner);
/** Blocks that it has room for now, or could have by such slabs. */
uint64_t kvcl_pool_room(const kvcl_owner_t *owner);
/** Bytes of free blocks of all classes, and of slabs that nobody has. */
uint64_t kvcl_pool_all_free_bytes(const kvcl_pool_t *pool);

/** The owner gets another slab, if there is one to be had: nobody's; an empty one; of another class that has used
 * its blocks longer ago; or (must) of any. Its blocks are evicted. False: none now; with a tier, one may be on its way
 * there first. */
bool     kvcl_pool_grow(kvcl_owner_t *owner, bool must);
/** Would there be n blocks more, or nearly so, if all slabs that may go came to this owner? Nothing changes. */
bool     kvcl_pool_could(const kvcl_owner_t *owner, uint64_t n);
/** n blocks are about to be evicted for room: slabs that nobody has or others have empty come first, and now and then
 * one of another class's. Afterwards fewer may have to be. */
void     kvcl_pool_balance(kvcl_owner_t *owner, size_t n);

#endif
