/*
 * Histograms of times (histogram.h). A bucket has the times in (low, bound]: its number is that of ns - 1 in half-open
 * ones, whose edges are 4, 5, 6 and 7 quarters of a power of two.
 */
#include "config.h"
#include "base/histogram.h"

enum { SUB = 1 << KVCL_HIST_SUB_BITS };

unsigned kvcl_hist_bucket(uint64_t ns)
{
    uint64_t v = (ns > 0) ? ns - 1 : 0;
    unsigned bits;

    if (v < (UINT64_C(1) << KVCL_HIST_MIN_BITS)) {
        return 0;
    }
    if (v >= (UINT64_C(1) << KVCL_HIST_MAX_BITS)) {
        return KVCL_HIST_BUCKETS - 1;
    }
    bits = 63u - (unsigned)__builtin_clzll(v);
    return 1 + ((bits - KVCL_HIST_MIN_BITS) * SUB) + (unsigned)((v >> (bits - KVCL_HIST_SUB_BITS)) & (SUB - 1));
}

uint64_t kvcl_hist_bound(unsigned bucket)
{
    unsigned bits;

    if (bucket == 0) {
        return UINT64_C(1) << KVCL_HIST_MIN_BITS;
    }
    if (bucket >= KVCL_HIST_BUCKETS - 1) {
        return UINT64_MAX;
    }
    bits = KVCL_HIST_MIN_BITS + ((bucket - 1) / SUB);
    return (UINT64_C(1) << bits) + ((UINT64_C(1) << (bits - KVCL_HIST_SUB_BITS)) * (1 + ((bucket - 1) % SUB)));
}

void kvcl_hist_add(kvcl_hist_t *hist, uint64_t ns, unsigned weight)
{
    atomic_fetch_add_explicit(&hist->counts[kvcl_hist_bucket(ns)], weight, memory_order_relaxed);
    atomic_fetch_add_explicit(&hist->sum_ns, ns * weight, memory_order_relaxed);
}

static uint64_t count_of(const kvcl_hist_t *hists, unsigned n, unsigned bucket)
{
    uint64_t count = 0;
    unsigned i;

    for (i = 0; i < n; ++i) {
        count += atomic_load_explicit(&((kvcl_hist_t *)hists)[i].counts[bucket], memory_order_relaxed);
    }
    return count;
}

uint64_t kvcl_hist_quantile(const kvcl_hist_t *hists, unsigned n, unsigned percent)
{
    uint64_t all = 0, below = 0;
    unsigned bucket;

    for (bucket = 0; bucket < KVCL_HIST_BUCKETS; ++bucket) {
        all += count_of(hists, n, bucket);
    }
    for (bucket = 0; bucket < KVCL_HIST_BUCKETS - 1; ++bucket) {
        below += count_of(hists, n, bucket);
        if ((below != 0) && (below >= (all * percent + 99) / 100)) {
            return kvcl_hist_bound(bucket);
        }
    }
    return (all != 0) ? kvcl_hist_bound(KVCL_HIST_BUCKETS - 2) : 0;
}
