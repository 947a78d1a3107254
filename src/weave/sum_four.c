/*
 * The woven copy that sums (sum_four.h): XXH3's accumulators of four blocks side by side, with AVX-512 or AVX2.
 *
 * The blocks have one length, so they are at the same stripe all the time and share the parts of the secret (xxh3.h).
 */
#include "config.h"
#include "weave/sum_four.h"

#include "weave/xxh3.h"

#if KVCL_XXH3_STEPS

enum {
    LANES  = KVCL_SUM_LANES,
    STRIPE = KVCL_XXH3_STRIPE,
    BLOCK  = KVCL_XXH3_BLOCK,
    TO_L2  = 2,  /* of a prefetch: into the second cache; at 4 KiB a block 1.2 times as fast as into the first */
    STEP   = 128 /* bytes of one block before the next block's turn */
};

/* ---- one stripe of one block: stored past the caches, and added ---- */

KVCL_AVX2_INLINE kvcl_avx2_acc_t avx2_stripe(kvcl_avx2_acc_t acc, uint8_t *dst, const uint8_t *src, const uint8_t *key,
                                             const uint8_t *ahead)
{
    __m256i a = kvcl_avx2_load(src), b = kvcl_avx2_load(src + 32);

    __builtin_prefetch(ahead, 0, TO_L2);
    _mm256_stream_si256((__m256i *)(void *)dst, a);
    _mm256_stream_si256((__m256i *)(void *)(dst + 32), b);
    return kvcl_avx2_add(acc, a, b, key);
}

KVCL_AVX512_INLINE kvcl_avx512_acc_t avx512_stripe(kvcl_avx512_acc_t acc, uint8_t *dst, const uint8_t *src,
                                                   const uint8_t *key, const uint8_t *ahead)
{
    __m512i data = _mm512_loadu_si512(src);

    __builtin_prefetch(ahead, 0, TO_L2);
    _mm512_stream_si512((__m512i *)(void *)dst, data);
    return kvcl_avx512_add(acc, data, key);
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
    _inline kvcl_##_isa##_acc_t _isa##_step(kvcl_##_isa##_acc_t acc, uint8_t *dst, const uint8_t *src, size_t i,       \
                                            const uint8_t *ahead)                                                      \
    {                                                                                                                  \
        acc = _isa##_stripe(acc, dst, src, kvcl_xxh3_key(i), ahead);                                                   \
        return _isa##_stripe(acc, dst + STRIPE, src + STRIPE, kvcl_xxh3_key(i + 1), ahead + STRIPE);                   \
    }

/* Whole XXH3 blocks; is_end: then the last one, which is not scrambled, and whose last stripe has its own key. */
#define FOUR_OF(_isa, _target)                                                                                         \
    _target static void _isa##_four(uint64_t (*acc)[8], uint8_t *const *dst, const uint8_t *const *src, size_t bytes,  \
                                    const uint8_t *const *next, bool is_end)                                           \
    {                                                                                                                  \
        kvcl_##_isa##_acc_t p = kvcl_##_isa##_take(acc[0]), q = kvcl_##_isa##_take(acc[1]);                            \
        kvcl_##_isa##_acc_t r = kvcl_##_isa##_take(acc[2]), s = kvcl_##_isa##_take(acc[3]);                            \
        const size_t        whole = is_end ? ((bytes - 1) / BLOCK) * BLOCK : bytes;                                    \
        const uint8_t       *key, *ahead[LANES];                                                                       \
        size_t              at = 0, i;                                                                                 \
                                                                                                                       \
        while (at < whole) {                                                                                           \
            look_ahead(ahead, src, at, bytes, next);                                                                   \
            for (i = 0; i < BLOCK; i += STEP, at += STEP) {                                                            \
                p = _isa##_step(p, dst[0] + at, src[0] + at, i / STRIPE, ahead[0] + i);                                \
                q = _isa##_step(q, dst[1] + at, src[1] + at, i / STRIPE, ahead[1] + i);                                \
                r = _isa##_step(r, dst[2] + at, src[2] + at, i / STRIPE, ahead[2] + i);                                \
                s = _isa##_step(s, dst[3] + at, src[3] + at, i / STRIPE, ahead[3] + i);                                \
            }                                                                                                          \
            p = kvcl_##_isa##_scramble(p);                                                                             \
            q = kvcl_##_isa##_scramble(q);                                                                             \
            r = kvcl_##_isa##_scramble(r);                                                                             \
            s = kvcl_##_isa##_scramble(s);                                                                             \
        }                                                                                                              \
        look_ahead(ahead, src, at, bytes, next);                                                                       \
        for (i = 0; at < bytes; at += STRIPE, i += STRIPE) {                                                           \
            key = (at + STRIPE < bytes) ? kvcl_xxh3_key(i / STRIPE) : kvcl_xxh3_last_key();                            \
            p   = _isa##_stripe(p, dst[0] + at, src[0] + at, key, ahead[0] + i);                                       \
            q   = _isa##_stripe(q, dst[1] + at, src[1] + at, key, ahead[1] + i);                                       \
            r   = _isa##_stripe(r, dst[2] + at, src[2] + at, key, ahead[2] + i);                                       \
            s   = _isa##_stripe(s, dst[3] + at, src[3] + at, key, ahead[3] + i);                                       \
        }                                                                                                              \
        kvcl_##_isa##_give(acc[0], p);                                                                                 \
        kvcl_##_isa##_give(acc[1], q);                                                                                 \
        kvcl_##_isa##_give(acc[2], r);                                                                                 \
        kvcl_##_isa##_give(acc[3], s);                                                                                 \
    }

STEP_OF(avx2, KVCL_AVX2_INLINE)
STEP_OF(avx512, KVCL_AVX512_INLINE)
FOUR_OF(avx2, KVCL_AVX2)
FOUR_OF(avx512, KVCL_AVX512)

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
    size_t i;

    for (i = 0; i < LANES; ++i) {
        kvcl_xxh3_begin(sum->acc[i]);
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
        sums[i] = kvcl_xxh3_end(sum->acc[i], total);
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
