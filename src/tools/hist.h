/*
 * A histogram of latencies: any number of samples in fixed space, percentiles within 1.6%. A plain value: zero is
 * empty, the bytes may be sent between ranks of one byte order. No lock; each thread fills its own and merges.
 */
#ifndef KVCL_TOOLS_HIST_H
#define KVCL_TOOLS_HIST_H

#include <stdint.h>

#define HIST_SUB_BITS 6u  /* 64 buckets an octave */
#define HIST_MAX_BITS 40u /* samples are cut at 2^40 ns, 18 minutes */
#define HIST_BUCKETS  ((HIST_MAX_BITS - HIST_SUB_BITS + 1u) << HIST_SUB_BITS)

typedef struct hist {
    uint64_t count;
    uint32_t buckets[HIST_BUCKETS];
} hist_t;

void hist_add(hist_t *hist, uint64_t ns);
void hist_merge(hist_t *hist, const hist_t *other);

/* The value that a fraction q (0..1) of the samples does not exceed, in nanoseconds; 0 when empty. */
double hist_quantile(const hist_t *hist, double q);

#endif
