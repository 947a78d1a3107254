/*
 * The steps of XXH3-64 with AVX2 and AVX-512, for the loops that copy the bytes as well (sum_copy.c, sum_four.c). Only
 * where KVCL_XXH3_STEPS is 1; the caller asks what the processor has.
 *
 * Eight accumulators of 64 bits take stripes of 64 bytes, each with another part of the secret; after every 16 stripes,
 * a block, they are scrambled; the last 64 bytes are one stripe more, whatever lies before them. Pure, no locks.
 */
#ifndef KVCL_WEAVE_XXH3_H
#define KVCL_WEAVE_XXH3_H

#include "base/checksum.h"
#include "base/sanitizers.h"

/* ThreadSanitizer does not see these loads and stores, so it gets the plain way. */
#if defined(KVCL_HAVE_XXH3_INSIDE) && defined(__x86_64__) && !KVCL_TSAN
#define KVCL_XXH3_STEPS 1
#include <immintrin.h>

#define KVCL_AVX2          __attribute__((target("avx2")))
#define KVCL_AVX2_INLINE   __attribute__((target("avx2"), always_inline)) static inline
#define KVCL_AVX512        __attribute__((target("avx512f")))
#define KVCL_AVX512_INLINE __attribute__((target("avx512f"), always_inline)) static inline

/* The part of the secret of stripe i of a block, of a scramble, and of the last stripe. */
static inline const uint8_t *kvcl_xxh3_key(size_t i)
{
    return XXH3_kSecret + (i * 8);
}

static inline const uint8_t *kvcl_xxh3_scramble_key(void)
{
    return XXH3_kSecret + XXH_SECRET_DEFAULT_SIZE - KVCL_XXH3_STRIPE;
}

static inline const uint8_t *kvcl_xxh3_last_key(void)
{
    return XXH3_kSecret + XXH_SECRET_DEFAULT_SIZE - KVCL_XXH3_STRIPE - 7;
}

static inline void kvcl_xxh3_begin(uint64_t acc[8])
{
    static const uint64_t begin[8] = XXH3_INIT_ACC;
    size_t                i;

    for (i = 0; i < 8; ++i) {
        acc[i] = begin[i];
    }
}

/* The sum of len bytes. */
static inline uint64_t kvcl_xxh3_end(const uint64_t acc[8], uint64_t len)
{
    return XXH3_mergeAccs(acc, XXH3_kSecret + XXH_SECRET_MERGEACCS_START, len * XXH_PRIME64_1);
}

/* ---- AVX2: a stripe is two halves ---- */

typedef struct kvcl_avx2_acc {
    __m256i a, b;
} kvcl_avx2_acc_t;

KVCL_AVX2_INLINE __m256i kvcl_avx2_load(const void *at)
{
    return _mm256_loadu_si256((const __m256i *)at);
}

KVCL_AVX2_INLINE kvcl_avx2_acc_t kvcl_avx2_take(const uint64_t *acc)
{
    return (kvcl_avx2_acc_t){kvcl_avx2_load(acc), kvcl_avx2_load(acc + 4)};
}

KVCL_AVX2_INLINE void kvcl_avx2_give(uint64_t *to, kvcl_avx2_acc_t acc)
{
    _mm256_storeu_si256((__m256i *)(void *)to, acc.a);
    _mm256_storeu_si256((__m256i *)(void *)(to + 4), acc.b);
}

KVCL_AVX2_INLINE __m256i kvcl_avx2_add_half(__m256i acc, __m256i data, const uint8_t *key)
{
    __m256i mixed   = _mm256_xor_si256(data, kvcl_avx2_load(key));
    __m256i product = _mm256_mul_epu32(mixed, _mm256_srli_epi64(mixed, 32));

    return _mm256_add_epi64(_mm256_add_epi64(acc, _mm256_shuffle_epi32(data, 0x4e)), product);
}

/* One stripe: a and b. */
KVCL_AVX2_INLINE kvcl_avx2_acc_t kvcl_avx2_add(kvcl_avx2_acc_t acc, __m256i a, __m256i b, const uint8_t *key)
{
    return (kvcl_avx2_acc_t){kvcl_avx2_add_half(acc.a, a, key), kvcl_avx2_add_half(acc.b, b, key + 32)};
}

KVCL_AVX2_INLINE __m256i kvcl_avx2_scramble_half(__m256i acc, const uint8_t *key)
{
    const __m256i prime = _mm256_set1_epi32((int)XXH_PRIME32_1);
    __m256i       mixed = _mm256_xor_si256(_mm256_xor_si256(acc, _mm256_srli_epi64(acc, 47)), kvcl_avx2_load(key));
    __m256i       high  = _mm256_mul_epu32(_mm256_srli_epi64(mixed, 32), prime);

    return _mm256_add_epi64(_mm256_mul_epu32(mixed, prime), _mm256_slli_epi64(high, 32));
}

KVCL_AVX2_INLINE kvcl_avx2_acc_t kvcl_avx2_scramble(kvcl_avx2_acc_t acc)
{
    const uint8_t *key = kvcl_xxh3_scramble_key();

    return (kvcl_avx2_acc_t){kvcl_avx2_scramble_half(acc.a, key), kvcl_avx2_scramble_half(acc.b, key + 32)};
}

/* ---- AVX-512 ---- */

typedef __m512i kvcl_avx512_acc_t;

KVCL_AVX512_INLINE kvcl_avx512_acc_t kvcl_avx512_take(const uint64_t *acc)
{
    return _mm512_loadu_si512(acc);
}

KVCL_AVX512_INLINE void kvcl_avx512_give(uint64_t *to, kvcl_avx512_acc_t acc)
{
    _mm512_storeu_si512(to, acc);
}

KVCL_AVX512_INLINE kvcl_avx512_acc_t kvcl_avx512_add(kvcl_avx512_acc_t acc, __m512i data, const uint8_t *key)
{
    __m512i mixed   = _mm512_xor_si512(data, _mm512_loadu_si512(key));
    __m512i product = _mm512_mul_epu32(mixed, _mm512_srli_epi64(mixed, 32));

    return _mm512_add_epi64(_mm512_add_epi64(acc, _mm512_shuffle_epi32(data, (_MM_PERM_ENUM)0x4e)), product);
}

KVCL_AVX512_INLINE kvcl_avx512_acc_t kvcl_avx512_scramble(kvcl_avx512_acc_t acc)
{
    const __m512i prime = _mm512_set1_epi32((int)XXH_PRIME32_1);
    const __m512i key   = _mm512_loadu_si512(kvcl_xxh3_scramble_key());
    __m512i       mixed = _mm512_xor_si512(_mm512_xor_si512(acc, _mm512_srli_epi64(acc, 47)), key);
    __m512i       high  = _mm512_mul_epu32(_mm512_srli_epi64(mixed, 32), prime);

    return _mm512_add_epi64(_mm512_mul_epu32(mixed, prime), _mm512_slli_epi64(high, 32));
}

#else
#define KVCL_XXH3_STEPS 0
#endif

#endif
