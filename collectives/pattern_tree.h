/*
 * Binomial tree over the virtual ranks 0..size-1 (0 is the root). Pure arithmetic.
 *
 * The parent of v is v without its lowest set bit; its children are v + 2^i for all 2^i below that
 * bit, as far as they exist. Depth is the most bits set in a v,
 * at most ceil(log2(size)). The tree of MPICH's broadcast: R. Thakur,
 * R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", 2005.
 */
#ifndef KVCL_COLLECTIVES_PATTERN_TREE_H
#define KVCL_COLLECTIVES_PATTERN_TREE_H

#include <stdint.h>

/* The parent of v > 0. */
static inline uint32_t kvcl_binomial_parent(uint32_t v)
{
    return v & (v - 1);
}

/* The first bit to try for children of v, largest subtree first; 0 if v can have none. */
static inline uint32_t kvcl_binomial_first_bit(uint32_t v, uint32_t size)
{
    uint64_t bit = 1;

    if (v != 0) {
        return (v & (0 - v)) >> 1;
    }
    while (bit * 2 < size) {
        bit *= 2;
    }
    return (size > 1) ? (uint32_t)bit : 0;
}

/* Does v + bit exist? The next bit to try is bit / 2. */
static inline int kvcl_binomial_has_child(uint32_t v, uint32_t bit, uint32_t size)
{
    return bit < size - v;
}

#endif
