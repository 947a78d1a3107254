/*
 * A histogram of times: four buckets to a power of two, from 64 ns to 68 s. Bucket 0 has all up to 64 ns, the last one
 * what is beyond. Owns nothing. Threads may add at once, without a lock: each number is right by itself, a reader may
 * see one add's count before its sum.
 */
#ifndef KVCL_BASE_HISTOGRAM_H
#define KVCL_BASE_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

enum { KVCL_HIST_MIN_BITS = 6, KVCL_HIST_MAX_BITS = 36, KVCL_HIST_SUB_BITS = 2,
       KVCL_HIST_BUCKETS = ((KVCL_HIST_MAX_BITS - KVCL_HIST_MIN_BITS) << KVCL_HIST_SUB_BITS) + 2 };

typedef struct kvcl_hist {
    _Atomic uint64_t counts[KVCL_HIST_BUCKETS];
    _Atomic uint64_t sum_ns;
} kvcl_hist_t;

/** The bucket of a time: the first whose bound is not below it. */
unsigned kvcl_hist_bucket(uint64_t ns);
/** The longest time of a bucket; UINT64_MAX of the last. */
uint64_t kvcl_hist_bound(unsigned bucket);
/** weight times of ns. */
void     kvcl_hist_add(kvcl_hist_t *hist, uint64_t ns, unsigned weight);

/** The bound of the bucket that has the percent-th of 100 times of n histograms together; of the last bucket the bound
 * before. 0: there are no times. Threads may add meanwhile. */
uint64_t kvcl_hist_quantile(const kvcl_hist_t *hists, unsigned n, unsigned percent);

#endif
