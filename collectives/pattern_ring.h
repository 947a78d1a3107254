/*
 * Ranks on a ring: steps around it, and virtual ranks that start at the root. Pure arithmetic, safe
 * for any size up to 2^32 - 1. All arguments but distances are below size.
 */
#ifndef KVCL_COLLECTIVES_PATTERN_RING_H
#define KVCL_COLLECTIVES_PATTERN_RING_H

#include <stdint.h>

/* The rank `distance` places ahead. */
static inline uint32_t kvcl_ring_ahead(uint32_t rank, uint32_t distance, uint32_t size)
{
    return (uint32_t)(((uint64_t)rank + (distance % size)) % size);
}

/* The rank `distance` places behind. */
static inline uint32_t kvcl_ring_behind(uint32_t rank, uint32_t distance, uint32_t size)
{
    return kvcl_ring_ahead(rank, size - (distance % size), size);
}

/* Virtual rank: 0 is the root. kvcl_ring_ahead(root, vrank, size) is the way back. */
static inline uint32_t kvcl_ring_vrank(uint32_t rank, uint32_t root, uint32_t size)
{
    return kvcl_ring_behind(rank, root, size);
}

#endif
