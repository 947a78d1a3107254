/*
 * The histogram of delay.h. Bucket 2k holds times from LEAST * 2^k on, bucket 2k + 1 those from LEAST * 1.5 * 2^k on;
 * the first holds all that are less, the last all that are more.
 */
#include "config.h"
#include "policy/delay.h"

static unsigned bucket_of(uint64_t ns)
{
    uint64_t in_least = ns / KVCL_DELAY_LEAST_NS;
    unsigned octave, bucket;

    if (in_least == 0) {
        return 0;
    }
    octave = 63u - (unsigned)__builtin_clzll(in_least);
    bucket = (2 * octave) + (((ns >> octave) >= KVCL_DELAY_LEAST_NS + (KVCL_DELAY_LEAST_NS / 2)) ? 1 : 0);
    return (bucket < KVCL_DELAY_BUCKETS) ? bucket : KVCL_DELAY_BUCKETS - 1;
}

/* What the next bucket begins with. */
static uint64_t end_of(unsigned bucket)
{
    uint64_t octave = KVCL_DELAY_LEAST_NS << (bucket / 2);

    return (bucket % 2 == 0) ? octave + (octave / 2) : 2 * octave;
}

void kvcl_delay_add(kvcl_delay_t *delay, uint64_t ns)
{
    unsigned i;

    if (delay->n == KVCL_DELAY_MOST) {
        for (i = 0, delay->n = 0; i < KVCL_DELAY_BUCKETS; ++i) {
            delay->count[i] /= 2;
            delay->n += delay->count[i];
        }
    }
    ++delay->count[bucket_of(ns)];
    ++delay->n;
}

uint64_t kvcl_delay_p99(const kvcl_delay_t *delay)
{
    uint32_t above = 0;
    unsigned i;

    if (delay->n < KVCL_DELAY_ENOUGH) {
        return 0;
    }
    for (i = KVCL_DELAY_BUCKETS; i-- > 1;) {
        above += delay->count[i];
        if (above > delay->n / 100) {
            return end_of(i);
        }
    }
    return end_of(0);
}

unsigned kvcl_delay_class(uint64_t bytes)
{
    unsigned class = KVCL_DELAY_QUERY + 1;

    for (bytes /= 4096; (bytes != 0) && (class < KVCL_DELAY_CLASSES - 1); bytes /= 4) {
        ++class;
    }
    return class;
}

uint64_t kvcl_delay_p99_of(const kvcl_delay_t *classes, unsigned class)
{
    uint64_t p99 = kvcl_delay_p99(&classes[class]);
    unsigned i;

    if ((p99 != 0) || (class == KVCL_DELAY_QUERY)) {
        return p99;
    }
    for (i = class; (p99 == 0) && (--i > KVCL_DELAY_QUERY);) {
        p99 = kvcl_delay_p99(&classes[i]);
        p99 = (p99 >> (62 - (2 * (class - i))) != 0) ? UINT64_MAX : p99 << (2 * (class - i));
    }
    for (i = class + 1; (p99 == 0) && (i < KVCL_DELAY_CLASSES); ++i) {
        p99 = kvcl_delay_p99(&classes[i]);
    }
    return p99;
}
