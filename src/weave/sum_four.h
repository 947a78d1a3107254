/*
 * Four blocks of one length copied past the caches and summed in one loop, 128 bytes of each in turn. The sums are
 * kvcl_checksum() (XXH3-64) of the bytes stored, each read from the source once. The bytes 1,024 further on are
 * prefetched meanwhile, in the end those of the blocks that come next.
 *
 * A block may lie in several parts: init, add for each part but the last, end. Call kvcl_bulk_end() after the last
 * copy. When a call returns false, copy and sum the four blocks in another way. No lock; a kvcl_sum_four_t belongs to
 * one thread.
 */
#ifndef KVCL_WEAVE_SUM_FOUR_H
#define KVCL_WEAVE_SUM_FOUR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KVCL_SUM_LANES = 4 };

typedef struct kvcl_sum_four {
    _Alignas(64) uint64_t acc[KVCL_SUM_LANES][8];
    uint64_t              total; /* bytes of each block so far */
} kvcl_sum_four_t;

void kvcl_sum_four_init(kvcl_sum_four_t *sum);
/**
 * The next @a len bytes of each block, which are not its last.
 * @param next  the bytes of each lane that are copied after these; only prefetched, any address. NULL: none.
 * @return false: this processor has neither AVX-512 nor AVX2, len is not a multiple of 1,024, or a dst not one of 64.
 */
bool kvcl_sum_four_add(kvcl_sum_four_t *sum, uint8_t *const dst[KVCL_SUM_LANES],
                       const uint8_t *const src[KVCL_SUM_LANES], size_t len,
                       const uint8_t *const next[KVCL_SUM_LANES]);
/**
 * The last @a len bytes of each block.
 * @return false: as for kvcl_sum_four_add(), but len must be a multiple of 64 and at least 1,024.
 */
bool kvcl_sum_four_end(kvcl_sum_four_t *sum, uint8_t *const dst[KVCL_SUM_LANES],
                       const uint8_t *const src[KVCL_SUM_LANES], size_t len,
                       const uint8_t *const next[KVCL_SUM_LANES], uint64_t sums[KVCL_SUM_LANES]);

#endif
