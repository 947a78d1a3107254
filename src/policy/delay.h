/*
 * How long like things took, as a small histogram: what is a delay beyond which something is slower than 99 of 100.
 * Pure: no clock, no lock, nothing allocated.
 */
#ifndef KVCL_POLICY_DELAY_H
#define KVCL_POLICY_DELAY_H

#include <stdint.h>

enum {
    KVCL_DELAY_BUCKETS = 64, /* two an octave, from KVCL_DELAY_LEAST_NS on: to some 9 hours */
    KVCL_DELAY_ENOUGH  = 64, /* with fewer nothing is known */
    KVCL_DELAY_MOST    = 2048 /* at this total all counts are halved: old samples lose weight */
};
#define KVCL_DELAY_LEAST_NS UINT64_C(8192)

typedef struct kvcl_delay {
    uint32_t n;
    uint32_t count[KVCL_DELAY_BUCKETS];
} kvcl_delay_t;

void     kvcl_delay_add(kvcl_delay_t *delay, uint64_t ns);
/** A time that at most one of 100 took longer than, at most half as long again as need be; 0: not known. */
uint64_t kvcl_delay_p99(const kvcl_delay_t *delay);

/* Which histogram: requests to homes; transfers by size, each class four times the one before. */
enum { KVCL_DELAY_QUERY = 0, KVCL_DELAY_CLASSES = 12 };
unsigned kvcl_delay_class(uint64_t bytes);
/** The p99 of a class; where it is not known four times the smaller class's, or what the larger one's is; 0: of none of
 * them is it known. classes: KVCL_DELAY_CLASSES histograms. */
uint64_t kvcl_delay_p99_of(const kvcl_delay_t *classes, unsigned class);

#endif
