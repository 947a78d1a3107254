/*
 * Seeded random numbers (xoshiro256**, seeded by splitmix64) for everything that must replay, and
 * the kernel's random bytes for secrets. The generator is the caller's struct: no lock, no global.
 */
#ifndef KVCL_BASE_RAND_H
#define KVCL_BASE_RAND_H

#include <kvcl/kvcl_status.h>

#include <stddef.h>
#include <stdint.h>

typedef struct kvcl_rand {
    uint64_t s[4];
} kvcl_rand_t;

/* One splitmix64 step: also a good mixer of a 64-bit number. */
static inline uint64_t kvcl_splitmix64(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline void kvcl_rand_seed(kvcl_rand_t *rnd, uint64_t seed)
{
    int i;

    for (i = 0; i < 4; ++i) {
        rnd->s[i] = kvcl_splitmix64(&seed);
    }
}

static inline uint64_t kvcl_rotl64(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

static inline uint64_t kvcl_rand_next(kvcl_rand_t *rnd)
{
    uint64_t *s      = rnd->s;
    uint64_t  result = kvcl_rotl64(s[1] * 5, 7) * 9;
    uint64_t  t      = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = kvcl_rotl64(s[3], 45);
    return result;
}

/* Uniform in [0, n), n > 0, without modulo bias. */
static inline uint64_t kvcl_rand_below(kvcl_rand_t *rnd, uint64_t n)
{
    uint64_t x         = kvcl_rand_next(rnd);
    uint64_t threshold = (0 - n) % n;

    while (x < threshold) {
        x = kvcl_rand_next(rnd);
    }
    return x % n;
}

/** Unpredictable bytes from the kernel (getrandom). @return KVCL_OK, KVCL_ERR_IO. */
kvcl_status_t kvcl_random_bytes(void *buf, size_t len) KVCL_MUST_CHECK;

#endif
