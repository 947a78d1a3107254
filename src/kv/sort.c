/*
 * Sorting two block lists together (kvcl_blocks_sort): a heap sort, because it needs no memory and no luck.
 * Locks: none, pure.
 */
#include "kvcl/kvcl_layout.h"

static uint64_t pair_at(const uint32_t *blocks, const uint32_t *others, size_t i)
{
    return ((uint64_t)blocks[i] << 32) | others[i];
}

static void set_pair(uint32_t *blocks, uint32_t *others, size_t i, uint64_t pair)
{
    blocks[i] = (uint32_t)(pair >> 32);
    others[i] = (uint32_t)pair;
}

/* Place @a pair in the heap of n below i, whose own place is free. */
static void sift(uint32_t *blocks, uint32_t *others, size_t i, size_t n, uint64_t pair)
{
    size_t child;

    while ((child = (2 * i) + 1) < n) {
        if ((child + 1 < n) && (pair_at(blocks, others, child + 1) > pair_at(blocks, others, child))) {
            ++child;
        }
        if (pair_at(blocks, others, child) <= pair) {
            break;
        }
        set_pair(blocks, others, i, pair_at(blocks, others, child));
        i = child;
    }
    set_pair(blocks, others, i, pair);
}

void kvcl_blocks_sort(uint32_t *blocks, uint32_t *others, size_t n)
{
    uint64_t pair;
    size_t i;

    for (i = n / 2; i > 0; --i) {
        sift(blocks, others, i - 1, n, pair_at(blocks, others, i - 1));
    }
    for (i = n; i > 1; --i) {
        pair = pair_at(blocks, others, i - 1);
        set_pair(blocks, others, i - 1, pair_at(blocks, others, 0));
        sift(blocks, others, 0, i - 1, pair);
    }
}
