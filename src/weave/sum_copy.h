/*
 * A checksum that is computed while bytes are copied: XXH3-64 of all bytes so far, equal to kvcl_checksum() of them in
 * one piece. It is of the bytes stored at the destination, each read from the source once, so it matches the copy even
 * if the owner writes the source meanwhile (weave/copy_racy.h).
 *
 * With AVX2 both are one loop over the bytes (at 1 MiB nine tenths of memcpy's speed); otherwise slices are copied, and
 * summed while they are in the nearest cache.
 */
#ifndef KVCL_WEAVE_SUM_COPY_H
#define KVCL_WEAVE_SUM_COPY_H

#include "base/checksum.h"

#include <stdbool.h>

/* XXH3's accumulators by hand: a whole block is added when more follows, for the last one is added in another way. */
typedef struct kvcl_sum_fast {
    _Alignas(64) uint64_t acc[8];
    uint8_t               pending[KVCL_XXH3_BLOCK];
    uint8_t               last[KVCL_XXH3_STRIPE]; /* the end of the block before */
    size_t                n_pending;
    uint64_t              total;
} kvcl_sum_fast_t;

typedef struct kvcl_sum {
    bool is_fast;
    union {
        kvcl_sum_fast_t       fast;
        kvcl_checksum_state_t plain;
    } u;
} kvcl_sum_t;

void kvcl_sum_init(kvcl_sum_t *sum);
/** The next @a len bytes, of @a src, to @a dst (NULL: they are only summed). They must not overlap. */
void kvcl_sum_copy(kvcl_sum_t *sum, void *dst, const void *src, size_t len);
/** Of all bytes so far; more may follow. */
uint64_t kvcl_sum_end(const kvcl_sum_t *sum);

/** All at once: kvcl_checksum(), quicker for long ones. */
uint64_t kvcl_sum_of(const void *buf, size_t len);
/** The same of what was copied to @a dst. */
uint64_t kvcl_sum_copy_of(void *dst, const void *src, size_t len);

#endif
