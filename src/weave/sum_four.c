/*
 * The woven copy that sums (sum_four.h): XXH3's accumulators of four blocks side by side, with AVX2.
 *
 * The blocks have one length, so they are at the same stripe all the time and share the parts of the secret. The
 * algorithm is that of base/sum_copy.c. ThreadSanitizer does not see these stores, so it gets the plain way.
 */
#include "config.h"
#include "weave/sum_four.h"

#include "base/checksum.h"
#include "base/sanitizers.h"

#include <string.h>

#if defined(KVCL_HAVE_XXH3_INSIDE) && defined(__x86_64__) && !KVCL_TSAN
#include <immintrin.h>

#define AVX2        __attribute__((target("avx2")))
#define AVX2_INLINE __attribute__((target("avx2"), always_inline)) static inline

enum { LANES = KVCL_SUM_LANES, STRIPE = 64, BLOCK = 1024, STEP = 256, SECRET_STEP = 8, SECRET_LAST = 7, ALIGN = 32 };

typedef struct acc {
    __m256i a, b;
} acc_t;

static const uint8_t *const secret = XXH3_kSecret;

AVX2_INLINE __m256i load(const void *at)
{
    return _mm256_loadu_si256((const __m256i *)at);
}

AVX2_INLINE __m256i add_half(__m256i acc, __m256i data, const uint8_t *key)
{
    __m256i mixed   = _mm256_xor_si256(data, load(key));
    __m256i product = _mm256_mul_epu32(mixed, _mm256_srli_epi64(mixed, 32));

    return _mm256_add_epi64(_mm256_add_epi64(acc, _mm256_shuffle_epi32(data, 0x4e)), product);
}

AVX2_INLINE acc_t stripe(acc_t acc, const uint8_t *src, const uint8_t *key)
{
    acc.a = add_half(acc.a, load(src), key);
    acc.b = add_half(acc.b, load(src + 32), key + 32);
    return acc;
}

/* STEP bytes, stored past the caches. */
AVX2_INLINE acc_t copy_step(acc_t acc, uint8_t *dst, const uint8_t *src, const uint8_t *key)
{
    size_t i;

    for (i = 0; i < STEP / STRIPE; ++i) {
        __m256i a = load(src + (i * STRIPE)), b = load(src + (i * STRIPE) + 32);

        _mm256_stream_si256((__m256i *)(void *)(dst + (i * STRIPE)), a);
        _mm256_stream_si256((__m256i *)(void *)(dst + (i * STRIPE) + 32), b);
        acc.a = add_half(acc.a, a, key + (i * SECRET_STEP));
        acc.b = add_half(acc.b, b, key + (i * SECRET_STEP) + 32);
    }
    return acc;
}

AVX2_INLINE __m256i scramble_half(__m256i acc, const uint8_t *key)
{
    const __m256i prime = _mm256_set1_epi32((int)XXH_PRIME32_1);
    __m256i       mixed = _mm256_xor_si256(_mm256_xor_si256(acc, _mm256_srli_epi64(acc, 47)), load(key));
    __m256i       high  = _mm256_mul_epu32(_mm256_srli_epi64(mixed, 32), prime);

    return _mm256_add_epi64(_mm256_mul_epu32(mixed, prime), _mm256_slli_epi64(high, 32));
}

AVX2_INLINE acc_t scramble(acc_t acc)
{
    const uint8_t *end = secret + XXH_SECRET_DEFAULT_SIZE - STRIPE;

    acc.a = scramble_half(acc.a, end);
    acc.b = scramble_half(acc.b, end + 32);
    return acc;
}

/* What follows the whole blocks, read from the destination: its stripes, then the last 64 bytes of all. */
AVX2_INLINE uint64_t finish(acc_t acc, const uint8_t *dst, size_t whole, size_t len)
{
    const uint8_t *last = secret + XXH_SECRET_DEFAULT_SIZE - STRIPE - SECRET_LAST;
    uint64_t      sums[8];
    size_t        i, n = (len - whole - 1) / STRIPE;

    for (i = 0; i < n; ++i) {
        acc = stripe(acc, dst + whole + (i * STRIPE), secret + (i * SECRET_STEP));
    }
    acc = stripe(acc, dst + len - STRIPE, last);
    _mm256_storeu_si256((__m256i *)(void *)sums, acc.a);
    _mm256_storeu_si256((__m256i *)(void *)(sums + 4), acc.b);
    return XXH3_mergeAccs(sums, secret + XXH_SECRET_MERGEACCS_START, (uint64_t)len * XXH_PRIME64_1);
}

AVX2 static void copy_four(uint8_t *const *dst, const uint8_t *const *src, size_t len, uint64_t *sums)
{
    static const uint64_t begin[8] = XXH3_INIT_ACC;
    const size_t          whole    = ((len - 1) / BLOCK) * BLOCK;
    const acc_t           first    = {load(begin), load(begin + 4)};
    acc_t                 p = first, q = first, r = first, s = first;
    size_t                at, i;

    for (at = 0; at < whole; at += BLOCK) {
        for (i = 0; i < BLOCK; i += STEP) {
            const uint8_t *key = secret + ((i / STRIPE) * SECRET_STEP);

            p = copy_step(p, dst[0] + at + i, src[0] + at + i, key);
            q = copy_step(q, dst[1] + at + i, src[1] + at + i, key);
            r = copy_step(r, dst[2] + at + i, src[2] + at + i, key);
            s = copy_step(s, dst[3] + at + i, src[3] + at + i, key);
        }
        p = scramble(p);
        q = scramble(q);
        r = scramble(r);
        s = scramble(s);
    }
    for (i = 0; i < LANES; ++i) {
        memcpy(dst[i] + whole, src[i] + whole, len - whole);
    }
    sums[0] = finish(p, dst[0], whole, len);
    sums[1] = finish(q, dst[1], whole, len);
    sums[2] = finish(r, dst[2], whole, len);
    sums[3] = finish(s, dst[3], whole, len);
}

bool kvcl_sum_four(uint8_t *const dst[KVCL_SUM_LANES], const uint8_t *const src[KVCL_SUM_LANES], size_t len,
                   uint64_t sums[KVCL_SUM_LANES])
{
    uintptr_t all = (uintptr_t)dst[0] | (uintptr_t)dst[1] | (uintptr_t)dst[2] | (uintptr_t)dst[3];

    if ((len < BLOCK) || ((all % ALIGN) != 0) || !__builtin_cpu_supports("avx2")) {
        return false;
    }
    copy_four(dst, src, len, sums);
    return true;
}

#else

bool kvcl_sum_four(uint8_t *const dst[KVCL_SUM_LANES], const uint8_t *const src[KVCL_SUM_LANES], size_t len,
                   uint64_t sums[KVCL_SUM_LANES])
{
    (void)dst, (void)src, (void)len, (void)sums;
    return false;
}

#endif
