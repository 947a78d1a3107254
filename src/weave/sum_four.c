/*
 * The woven copy that sums (sum_four.h): XXH3's accumulators of four blocks side by side, with AVX-512 or AVX2.
 *
 * The blocks have one length, so they are at the same stripe all the time and share the parts of the secret. The
 * algorithm is that of weave/sum_copy.c. ThreadSanitizer does not see these stores, so it gets the plain way.
 */
#include "config.h"
#include "weave/sum_four.h"

#include "base/checksum.h"
#include "base/sanitizers.h"

#include <string.h>

#if defined(KVCL_HAVE_XXH3_INSIDE) && defined(__x86_64__) && !KVCL_TSAN
#include <immintrin.h>

#define AVX2          __attribute__((target("avx2")))
#define AVX2_INLINE   __attribute__((target("avx2"), always_inline)) static inline
#define AVX512        __attribute__((target("avx512f")))
#define AVX512_INLINE __attribute__((target("avx512f"), always_inline)) static inline

enum {
    LANES       = KVCL_SUM_LANES,
    STRIPE      = 64,
    BLOCK       = 1024,
    TO_L2       = 2, /* of a prefetch: into the second cache; at 4 KiB a block 1.2 times as fast as into the first */
    STEP        = 128, /* bytes of one block before the next block's turn */
    SECRET_STEP = 8,
    SECRET_LAST = 7
};

static const uint8_t *const secret = XXH3_kSecret;

/* ---- one stripe of one block: stored past the caches, and added ---- */

typedef struct avx2_acc {
    __m256i a, b;
} avx2_acc_t;

AVX2_INLINE __m256i avx2_load(const void *at)
{
    return _mm256_loadu_si256((const __m256i *)at);
}

AVX2_INLINE __m256i avx2_add_half(__m256i acc, __m256i data, const uint8_t *key)
{
    __m256i mixed   = _mm256_xor_si256(data, avx2_load(key));
    __m256i product = _mm256_mul_epu32(mixed, _mm256_srli_epi64(mixed, 32));

    return _mm256_add_epi64(_mm256_add_epi64(acc, _mm256_shuffle_epi32(data, 0x4e)), product);
}

AVX2_INLINE avx2_acc_t avx2_stripe(avx2_acc_t acc, uint8_t *dst, const uint8_t *src, const uint8_t *key,
                                   const uint8_t *ahead)
{
    __m256i a = avx2_load(src), b = avx2_load(src + 32);

    __builtin_prefetch(ahead, 0, TO_L2);
    _mm256_stream_si256((__m256i *)(void *)dst, a);
    _mm256_stream_si256((__m256i *)(void *)(dst + 32), b);
    acc.a = avx2_add_half(acc.a, a, key);
    acc.b = avx2_add_half(acc.b, b, key + 32);
    return acc;
}

AVX2_INLINE __m256i avx2_scramble_half(__m256i acc, const uint8_t *key)
{
    const __m256i prime = _mm256_set1_epi32((int)XXH_PRIME32_1);
    __m256i       mixed = _mm256_xor_si256(_mm256_xor_si256(acc, _mm256_srli_epi64(acc, 47)), avx2_load(key));
    __m256i       high  = _mm256_mul_epu32(_mm256_srli_epi64(mixed, 32), prime);

    return _mm256_add_epi64(_mm256_mul_epu32(mixed, prime), _mm256_slli_epi64(high, 32));
}

AVX2_INLINE avx2_acc_t avx2_scramble(avx2_acc_t acc)
{
    const uint8_t *end = secret + XXH_SECRET_DEFAULT_SIZE - STRIPE;

    acc.a = avx2_scramble_half(acc.a, end);
    acc.b = avx2_scramble_half(acc.b, end + 32);
    return acc;
}

AVX2_INLINE avx2_acc_t avx2_take(const uint64_t *acc)
{
    return (avx2_acc_t){avx2_load(acc), avx2_load(acc + 4)};
}

AVX2_INLINE void avx2_give(uint64_t *to, avx2_acc_t acc)
{
    _mm256_storeu_si256((__m256i *)(void *)to, acc.a);
    _mm256_storeu_si256((__m256i *)(void *)(to + 4), acc.b);
}

typedef __m512i avx512_acc_t;

AVX512_INLINE avx512_acc_t avx512_stripe(avx512_acc_t acc, uint8_t *dst, const uint8_t *src, const uint8_t *key,
                                         const uint8_t *ahead)
{
    __m512i data    = _mm512_loadu_si512(src);
    __m512i mixed   = _mm512_xor_si512(data, _mm512_loadu_si512(key));
    __m512i product = _mm512_mul_epu32(mixed, _mm512_srli_epi64(mixed, 32));

    __builtin_prefetch(ahead, 0, TO_L2);
    _mm512_stream_si512((__m512i *)(void *)dst, data);
    return _mm512_add_epi64(_mm512_add_epi64(acc, _mm512_shuffle_epi32(data, (_MM_PERM_ENUM)0x4e)), product);
}

AVX512_INLINE avx512_acc_t avx512_scramble(avx512_acc_t acc)
{
    const __m512i prime = _mm512_set1_epi32((int)XXH_PRIME32_1);
    const __m512i key   = _mm512_loadu_si512(secret + XXH_SECRET_DEFAULT_SIZE - STRIPE);
    __m512i       mixed = _mm512_xor_si512(_mm512_xor_si512(acc, _mm512_srli_epi64(acc, 47)), key);
    __m512i       high  = _mm512_mul_epu32(_mm512_srli_epi64(mixed, 32), prime);

    return _mm512_add_epi64(_mm512_mul_epu32(mixed, prime), _mm512_slli_epi64(high, 32));
}

AVX512_INLINE avx512_acc_t avx512_take(const uint64_t *acc)
{
    return _mm512_loadu_si512(acc);
}

AVX512_INLINE void avx512_give(uint64_t *to, avx512_acc_t acc)
{
    _mm512_storeu_si512(to, acc);
}

/* ---- four blocks in turn ---- */

/* Where each lane is prefetched from while its bytes at `at` are copied. */
__attribute__((always_inline)) static inline void look_ahead(const uint8_t **ahead, const uint8_t *const *src,
                                                             size_t at, size_t bytes, const uint8_t *const *next)
{
    size_t i;

    for (i = 0; i < LANES; ++i) {
        ahead[i] = (at + BLOCK < bytes) ? src[i] + at + BLOCK : ((next != NULL) ? next[i] : src[i]);
    }
}

#define STEP_OF(_isa, _inline)                                                                                         \
    _inline _isa##_acc_t _isa##_step(_isa##_acc_t acc, uint8_t *dst, const uint8_t *src, const uint8_t *key,           \
                                     const uint8_t *ahead)                                                             \
    {                                                                                                                  \
        acc = _isa##_stripe(acc, dst, src, key, ahead);                                                                \
        return _isa##_stripe(acc, dst + STRIPE, src + STRIPE, key + SECRET_STEP, ahead + STRIPE);\
    }

/* Whole XXH3 blocks; is_end: then the last one, which is not scrambled, and whose last stripe has its own key. */
#define FOUR_OF(_isa, _target)                                                                                         \
    _target static void _isa##_four(uint64_t (*acc)[8], uint8_t *const *dst, const uint8_t *const *src, size_t bytes,  \
                                    const uint8_t *const *next, bool is_end)                                           \
    {                                                                                                                  \
        _isa##_acc_t   p = _isa##_take(acc[0]), q = _isa##_take(acc[1]);                                               \
        _isa##_acc_t   r = _isa##_take(acc[2]), s = _isa##_take(acc[3]);                                               \
        const size_t   whole = is_end ? ((bytes - 1) / BLOCK) * BLOCK : bytes;                                         \
        const uint8_t *key, *ahead[LANES];                                                                             \
        size_t         at = 0, i;                                                                                      \
                                                                                                                       \
        while (at < whole) {                                                                                           \
            look_ahead(ahead, src, at, bytes, next);                                                                   \
            for (i = 0; i < BLOCK; i += STEP, at += STEP) {                                                            \
                key = secret + ((i / STRIPE) * SECRET_STEP);                                                           \
                p   = _isa##_step(p, dst[0] + at, src[0] + at, key, ahead[0] + i);                                     \
                q   = _isa##_step(q, dst[1] + at, src[1] + at, key, ahead[1] + i);                                     \
                r   = _isa##_step(r, dst[2] + at, src[2] + at, key, ahead[2] + i);                                     \
                s   = _isa##_step(s, dst[3] + at, src[3] + at, key, ahead[3] + i);                                     \
            }                                                                                                          \
            p = _isa##_scramble(p);                                                                                    \
            q = _isa##_scramble(q);                                                                                    \
            r = _isa##_scramble(r);                                                                                    \
            s = _isa##_scramble(s);                                                                                    \
        }                                                                                                              \
        look_ahead(ahead, src, at, bytes, next);                                                                       \
        for (key = secret, i = 0; at < bytes; at += STRIPE, i += STRIPE, key += SECRET_STEP) {                         \
            key = (at + STRIPE < bytes) ? key : secret + XXH_SECRET_DEFAULT_SIZE - STRIPE - SECRET_LAST;               \
            p   = _isa##_stripe(p, dst[0] + at, src[0] + at, key, ahead[0] + i);                                       \
            q   = _isa##_stripe(q, dst[1] + at, src[1] + at, key, ahead[1] + i);                                       \
            r   = _isa##_stripe(r, dst[2] + at, src[2] + at, key, ahead[2] + i);                                       \
            s   = _isa##_stripe(s, dst[3] + at, src[3] + at, key, ahead[3] + i);                                       \
        }                                                                                                              \
        _isa##_give(acc[0], p);                                                                                        \
        _isa##_give(acc[1], q);                                                                                        \
        _isa##_give(acc[2], r);                                                                                        \
        _isa##_give(acc[3], s);                                                                                        \
    }

STEP_OF(avx2, AVX2_INLINE)
STEP_OF(avx512, AVX512_INLINE)
FOUR_OF(avx2, AVX2)
FOUR_OF(avx512, AVX512)

static bool is_aligned(uint8_t *const *dst, size_t len)
{
    uintptr_t all = (uintptr_t)dst[0] | (uintptr_t)dst[1] | (uintptr_t)dst[2] | (uintptr_t)dst[3] | len;

    return (all % STRIPE) == 0;
}

/* @return false: this processor has no kernel. */
static bool copy_four(uint64_t (*acc)[8], uint8_t *const *dst, const uint8_t *const *src, size_t len,
                      const uint8_t *const *next, bool is_end)
{
    if (__builtin_cpu_supports("avx512f")) {
        avx512_four(acc, dst, src, len, next, is_end);
    } else if (__builtin_cpu_supports("avx2")) {
        avx2_four(acc, dst, src, len, next, is_end);
    } else {
        return false;
    }
    return true;
}

void kvcl_sum_four_init(kvcl_sum_four_t *sum)
{
    static const uint64_t begin[8] = XXH3_INIT_ACC;
    size_t                i;

    for (i = 0; i < LANES; ++i) {
        memcpy(sum->acc[i], begin, sizeof(begin));
    }
    sum->total = 0;
}

bool kvcl_sum_four_add(kvcl_sum_four_t *sum, uint8_t *const dst[KVCL_SUM_LANES],
                       const uint8_t *const src[KVCL_SUM_LANES], size_t len,
                       const uint8_t *const next[KVCL_SUM_LANES])
{
    sum->total += len;
    return ((len % BLOCK) == 0) && is_aligned(dst, len) && copy_four(sum->acc, dst, src, len, next, false);
}

bool kvcl_sum_four_end(kvcl_sum_four_t *sum, uint8_t *const dst[KVCL_SUM_LANES],
                       const uint8_t *const src[KVCL_SUM_LANES], size_t len,
                       const uint8_t *const next[KVCL_SUM_LANES], uint64_t sums[KVCL_SUM_LANES])
{
    const uint64_t total = sum->total + len;
    size_t         i;

    if ((len < BLOCK) || !is_aligned(dst, len) || !copy_four(sum->acc, dst, src, len, next, true)) {
        return false;
    }
    for (i = 0; i < LANES; ++i) {
        sums[i] = XXH3_mergeAccs(sum->acc[i], secret + XXH_SECRET_MERGEACCS_START, total * XXH_PRIME64_1);
    }
    return true;
}

#else

void kvcl_sum_four_init(kvcl_sum_four_t *sum)
{
    sum->total = 0;
}

bool kvcl_sum_four_add(kvcl_sum_four_t *sum, uint8_t *const dst[KVCL_SUM_LANES],
                       const uint8_t *const src[KVCL_SUM_LANES], size_t len,
                       const uint8_t *const next[KVCL_SUM_LANES])
{
    (void)sum, (void)dst, (void)src, (void)len, (void)next;
    return false;
}

bool kvcl_sum_four_end(kvcl_sum_four_t *sum, uint8_t *const dst[KVCL_SUM_LANES],
                       const uint8_t *const src[KVCL_SUM_LANES], size_t len,
                       const uint8_t *const next[KVCL_SUM_LANES], uint64_t sums[KVCL_SUM_LANES])
{
    (void)sum, (void)dst, (void)src, (void)len, (void)next, (void)sums;
    return false;
}

#endif
