/*
 * Allocation of a managed owner's blocks (pool/blocks.c). Lock held.
 *
 * A promise keeps room for blocks that are taken later, in parts: nothing is evicted until then. Blocks that others
 * pin meanwhile may break it.
 */
#ifndef KVCL_STORE_POOL_BLOCKS_H
#define KVCL_STORE_POOL_BLOCKS_H

#include "store/store.h"

/** Allocates n blocks of a managed owner for a tenant (0: none), which become FILLING; evicts others where needed.
 * KVCL_ERR_NO_SPACE: nothing was allocated. */
kvcl_status_t kvcl_owner_take_for(kvcl_owner_t *owner, uint64_t tenant, size_t n, uint32_t *ids) KVCL_MUST_CHECK;
/** Promises n blocks if so many are free or can be evicted now, and the tenant has room for them. False: they must be
 * taken at once, or there is no room. */
bool          kvcl_owner_promise(kvcl_owner_t *owner, uint64_t tenant, size_t n) KVCL_MUST_CHECK;
/** Takes n promised blocks, a part of the `all` that were promised together; the rest of them stays promised. On an
 * error these do, too. */
kvcl_status_t kvcl_owner_take_promised(kvcl_owner_t *owner, uint64_t tenant, size_t all, size_t n,
                                       uint32_t *ids) KVCL_MUST_CHECK;
/** Ends the promise of n blocks that were not taken. */
void          kvcl_owner_unpromise(kvcl_owner_t *owner, size_t n);
/** The most blocks that the owner can ever have, whatever is evicted. */
uint64_t kvcl_owner_most(const kvcl_owner_t *owner);
static inline kvcl_status_t kvcl_owner_take(kvcl_owner_t *owner, size_t n, uint32_t *ids)
{
    return kvcl_owner_take_for(owner, 0, n, ids);
}

#endif
