/*
 * Four blocks of one length copied past the caches and summed in one loop, 256 bytes of each in turn. The sums are
 * kvcl_checksum() (XXH3-64) of the bytes stored, each read from the source once. Pure; no lock.
 */
#ifndef KVCL_WEAVE_SUM_FOUR_H
#define KVCL_WEAVE_SUM_FOUR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KVCL_SUM_LANES = 4 };

/**
 * Copy @a len bytes from each src to its dst. Call kvcl_bulk_end() after the last copy.
 * @return false, and nothing was copied: this processor has no AVX2, len is less than 1,024, or a dst is not a multiple
 *         of 32.
 */
bool kvcl_sum_four(uint8_t *const dst[KVCL_SUM_LANES], const uint8_t *const src[KVCL_SUM_LANES], size_t len,
                   uint64_t sums[KVCL_SUM_LANES]);

#endif
