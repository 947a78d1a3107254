/*
 * Allocation of a managed owner's blocks (pool/blocks.c). Lock held.
 */
#ifndef KVCL_STORE_POOL_BLOCKS_H
#define KVCL_STORE_POOL_BLOCKS_H

#include "store/store.h"

/** Allocates n blocks of a managed owner for a tenant (0: none), which become FILLING; evicts others where needed.
 * KVCL_ERR_NO_SPACE: nothing was allocated. */
kvcl_status_t kvcl_owner_take_for(kvcl_owner_t *owner, uint64_t tenant, size_t n, uint32_t *ids) KVCL_MUST_CHECK;
/** The most blocks that the owner can ever have, whatever is evicted. */
uint64_t kvcl_owner_most(const kvcl_owner_t *owner);
static inline kvcl_status_t kvcl_owner_take(kvcl_owner_t *owner, size_t n, uint32_t *ids)
{
    return kvcl_owner_take_for(owner, 0, n, ids);
}

#endif
