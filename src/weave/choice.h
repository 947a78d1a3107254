/*
 * Which copy large transfers use, by the length of their pieces: memcpy, or one, two or four pieces woven; and which
 * transfers are large. The choice follows from a table of measured speeds (calibrate.h, saved.h) or from a setting.
 *
 * Pure: no lock, no state.
 */
#ifndef KVCL_WEAVE_CHOICE_H
#define KVCL_WEAVE_CHOICE_H

#include "weave/weave.h"

#include <stdint.h>

enum { KVCL_COPY_MEMCPY, KVCL_COPY_WEAVE1, KVCL_COPY_WEAVE2, KVCL_COPY_WEAVE4, KVCL_COPY_N_WAYS };
enum { KVCL_COPY_ROWS = 3, KVCL_COPY_LARGE_ROWS = 3, KVCL_COPY_MBPS_MAX = 10000000 };
enum { KVCL_COPY_LARGE = 16 << 20 }; /* larger ones than this, and this, are large without a measurement */

extern const char *const kvcl_copy_way_names[KVCL_COPY_N_WAYS + 1]; /* NULL at the end */
extern const size_t      kvcl_copy_row_bytes[KVCL_COPY_ROWS];       /* the pieces that are measured, rising */
extern const size_t      kvcl_copy_large_bytes[KVCL_COPY_LARGE_ROWS]; /* the transfers that are measured, rising */

/* Speeds of one machine in MB/s, each from 1 to KVCL_COPY_MBPS_MAX, and when they were measured (s since 1970). */
typedef struct kvcl_copy_table {
    uint32_t mbps[KVCL_COPY_ROWS][KVCL_COPY_N_WAYS];
    uint32_t large[KVCL_COPY_LARGE_ROWS][2]; /* a transfer is copied, then read: by memcpy, and past the caches */
    int64_t  when_s;
} kvcl_copy_table_t;

typedef struct kvcl_copy_choice {
    uint8_t way[KVCL_COPY_ROWS];
    size_t  large; /* bytes; transfers of fewer are written into the caches */
} kvcl_copy_choice_t;

/**
 * The way for each row: the widest of the woven copies that are within 10% of the fastest one, if it is at least 1.05
 * times as fast as memcpy; otherwise memcpy. Large: from the smallest measured transfer on, where it and all longer
 * ones are 1.05 times as fast past the caches, the read of their bytes included.
 */
kvcl_copy_choice_t kvcl_copy_choose(const kvcl_copy_table_t *table);

/** The row for pieces of @a bytes: the nearest one by ratio. */
static inline unsigned kvcl_copy_row(size_t bytes)
{
    return (bytes < 2048) ? 0 : ((bytes < 16384) ? 1 : 2);
}

/** The way for pieces of @a bytes: memcpy for those that a woven copy leaves to memcpy, otherwise that of their row. */
static inline unsigned kvcl_copy_way(const kvcl_copy_choice_t *choice, size_t bytes)
{
    return (bytes < KVCL_WEAVE_SHORT) ? (unsigned)KVCL_COPY_MEMCPY : choice->way[kvcl_copy_row(bytes)];
}

/** Copy @a n pieces in one way. Call kernel->end() after the last copy, as for kvcl_weave_copy. */
void kvcl_copy_by(unsigned way, const kvcl_weave_kernel_t *kernel, const kvcl_weave_piece_t *pieces, size_t n);

#endif
