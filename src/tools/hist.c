/*
 * Owns the bucket arithmetic: each value below 64 ns has a bucket; above, each octave has 64.
 */
#include "config.h"
#include "tools/hist.h"

#include <stddef.h>

#define SUB (UINT64_C(1) << HIST_SUB_BITS)

static size_t bucket_of(uint64_t ns)
{
    const uint64_t limit = (UINT64_C(1) << HIST_MAX_BITS) - 1;
    unsigned       top;

    ns = (ns > limit) ? limit : ns;
    if (ns < SUB) {
        return (size_t)ns;
    }
    top = 63u - (unsigned)__builtin_clzll(ns);
    return ((size_t)(top - HIST_SUB_BITS + 1) << HIST_SUB_BITS) + (size_t)((ns >> (top - HIST_SUB_BITS)) & (SUB - 1));
}

/* The smallest value of a bucket; it ends where the next one begins. */
static double bucket_start(size_t bucket)
{
    const size_t octave = bucket >> HIST_SUB_BITS;

    if (octave == 0) {
        return (double)bucket;
    }
    return (double)((SUB + (bucket & (SUB - 1))) << (octave - 1));
}

void hist_add(hist_t *hist, uint64_t ns)
{
    ++hist->buckets[bucket_of(ns)];
    ++hist->count;
}

void hist_merge(hist_t *hist, const hist_t *other)
{
    size_t i;

    for (i = 0; i < HIST_BUCKETS; ++i) {
        hist->buckets[i] += other->buckets[i];
    }
    hist->count += other->count;
}

double hist_quantile(const hist_t *hist, double q)
{
    const double rank = q * (double)hist->count;
    uint64_t     seen = 0;
    double       start, end;
    size_t       i;

    if (hist->count == 0) {
        return 0;
    }
    for (i = 0; i < HIST_BUCKETS; ++i) {
        if ((hist->buckets[i] != 0) && ((double)(seen + hist->buckets[i]) >= rank)) {
            start = bucket_start(i);
            end   = bucket_start(i + 1);
            return start + ((end - start) * (rank - (double)seen)) / (double)hist->buckets[i];
        }
        seen += hist->buckets[i];
    }
    return bucket_start(HIST_BUCKETS);
}
