/*
 * The holders of a block: for each slot a mask of tiers. Five lie in the block; more in a list; many in a bitmap for
 * each tier. A holder that stays keeps its place while others come and go, so a reader misses none; a set that changes
 * its form is published whole, and the old one is retired. It never comes back into the block before it is empty.
 */
#ifndef KVCL_SCHED_INDEX_IDX_SET_H
#define KVCL_SCHED_INDEX_IDX_SET_H

#include "sched/index/idx.h"

typedef struct kvcl_idx_list {
    kvcl_idx_mem_t   mem;
    uint32_t         cap;
    _Atomic uint32_t used; /* words behind are free */
    _Atomic uint32_t word[];
} kvcl_idx_list_t;

typedef struct kvcl_idx_row {
    kvcl_idx_mem_t   mem;
    _Atomic uint64_t word[];
} kvcl_idx_row_t;

typedef struct kvcl_idx_bits {
    kvcl_idx_mem_t             mem;
    uint32_t                   words;               /* of a row */
    _Atomic(kvcl_idx_row_t *) row[KVCL_IDX_TIERS]; /* NULL: nobody on this tier */
} kvcl_idx_bits_t;

static inline kvcl_idx_list_t *kvcl_idx_as_list(uintptr_t more)
{
    return ((more != 0) && ((more & 1) == 0)) ? (kvcl_idx_list_t *)more : NULL;
}

static inline kvcl_idx_bits_t *kvcl_idx_as_bits(uintptr_t more)
{
    return ((more & 1) != 0) ? (kvcl_idx_bits_t *)(more & ~(uintptr_t)1) : NULL;
}

/* All below: the lock is held. */

/** The tiers of a slot; 0: none. */
uint32_t      kvcl_idx_set_get(const kvcl_idx_block_t *block, uint32_t slot);
/** Set them; old: those of now. To have fewer needs no memory. @return KVCL_OK, KVCL_ERR_NO_MEMORY. */
kvcl_status_t kvcl_idx_set_put(kvcl_sched_index_h index, kvcl_idx_block_t *block, uint32_t slot, uint32_t old,
                               uint32_t mask) KVCL_MUST_CHECK;
/** Retire what an empty block has. */
void          kvcl_idx_set_fini(kvcl_sched_index_h index, kvcl_idx_block_t *block);
/** At the index's end: free what a block has. */
void          kvcl_idx_set_free(kvcl_sched_index_h index, kvcl_idx_block_t *block);

#endif
