/*
 * The instruction sets that weave copies: one row each in kvcl_weave_kernels, best first.
 *
 * Owns the inner loops. Invariants: a kernel reads and writes exactly the bytes that it is given; destinations are
 * multiples of 64, so each line is written whole. No locks, no state.
 */
#include "config.h"
#include "weave/weave.h"

#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* The three functions of a kernel, from line(dst, src), which copies 64 bytes. */
#define KERNEL(_name, _attr)                                                                                    \
    _attr static void _name##_one(char *const *dst, const char *const *src, size_t bytes)                       \
    {                                                                                                           \
        char       *to   = dst[0];                                                                              \
        const char *from = src[0];                                                                              \
        size_t     i;                                                                                           \
                                                                                                                \
        for (i = 0; i < bytes; i += KVCL_WEAVE_LINE) {                                                          \
            _name##_line(to + i, from + i);                                                                     \
        }                                                                                                       \
    }                                                                                                           \
    _attr static void _name##_two(char *const *dst, const char *const *src, size_t bytes)                       \
    {                                                                                                           \
        char       *const to[]   = {dst[0], dst[1]};                                                            \
        const char *const from[] = {src[0], src[1]};                                                            \
        size_t     i;                                                                                           \
                                                                                                                \
        for (i = 0; i < bytes; i += KVCL_WEAVE_STEP) {                                                          \
            _name##_step(to[0] + i, from[0] + i);                                                               \
            _name##_step(to[1] + i, from[1] + i);                                                               \
        }                                                                                                       \
    }                                                                                                           \
    _attr static void _name##_four(char *const *dst, const char *const *src, size_t bytes)                      \
    {                                                                                                           \
        char       *const to[]   = {dst[0], dst[1], dst[2], dst[3]};                                            \
        const char *const from[] = {src[0], src[1], src[2], src[3]};                                            \
        size_t     i;                                                                                           \
                                                                                                                \
        for (i = 0; i < bytes; i += KVCL_WEAVE_STEP) {                                                          \
            _name##_step(to[0] + i, from[0] + i);                                                               \
            _name##_step(to[1] + i, from[1] + i);                                                               \
            _name##_step(to[2] + i, from[2] + i);                                                               \
            _name##_step(to[3] + i, from[3] + i);                                                               \
        }                                                                                                       \
    }                                                                                                           \
    _Static_assert(KVCL_WEAVE_STEP % KVCL_WEAVE_LINE == 0, "a step is of whole lines")

#define STEP(_name, _attr)                                    \
    _attr INLINE void _name##_step(char *dst, const char *src) \
    {                                                         \
        size_t i;                                             \
                                                              \
        for (i = 0; i < KVCL_WEAVE_STEP; i += KVCL_WEAVE_LINE) { \
            _name##_line(dst + i, src + i);                   \
        }                                                     \
    }

#define PLAIN

INLINE void plain_line(char *dst, const char *src)
{
    memcpy(dst, src, KVCL_WEAVE_LINE);
}

STEP(plain, PLAIN)
KERNEL(plain, PLAIN);

static bool always(void)
{
    return true;
}

static void no_end(void)
{
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#define SSE2   __attribute__((target("sse2")))
#define AVX2   __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f")))

SSE2 INLINE void sse2_line(char *dst, const char *src)
{
    __m128i a = _mm_loadu_si128((const __m128i *)(const void *)src);
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(src + 16));
    __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(src + 32));
    __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(src + 48));

    _mm_stream_si128((__m128i *)(void *)dst, a);
    _mm_stream_si128((__m128i *)(void *)(dst + 16), b);
    _mm_stream_si128((__m128i *)(void *)(dst + 32), c);
    _mm_stream_si128((__m128i *)(void *)(dst + 48), d);
}

AVX2 INLINE void avx2_line(char *dst, const char *src)
{
    __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)src);
    __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(src + 32));

    _mm256_stream_si256((__m256i *)(void *)dst, a);
    _mm256_stream_si256((__m256i *)(void *)(dst + 32), b);
}

AVX512 INLINE void avx512_line(char *dst, const char *src)
{
    _mm512_stream_si512((__m512i *)(void *)dst, _mm512_loadu_si512((const void *)src));
}

STEP(sse2, SSE2)
STEP(avx2, AVX2)
STEP(avx512, AVX512)
KERNEL(sse2, SSE2);
KERNEL(avx2, AVX2);
KERNEL(avx512, AVX512);

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2");
}

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f");
}

static void fence(void)
{
    _mm_sfence();
}

__attribute__((target("clflushopt"))) static void flush_unordered(const char *at, size_t bytes)
{
    size_t i;

    for (i = 0; i < bytes; i += KVCL_WEAVE_LINE) {
        _mm_clflushopt((void *)(uintptr_t)(at + i));
    }
}

static void flush(const char *at, size_t bytes)
{
    const unsigned clflushopt = 1u << 23;
    unsigned       a, b = 0, c, d;
    size_t         i;

    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && ((b & clflushopt) != 0)) {
        flush_unordered(at, bytes);
    } else {
        for (i = 0; i < bytes; i += KVCL_WEAVE_LINE) {
            _mm_clflush(at + i);
        }
    }
    _mm_mfence();
}
#endif

#define ROW(_name, _supported, _end, _flush) \
    {#_name, _supported, _name##_one, _name##_two, _name##_four, _end, _flush}

const kvcl_weave_kernel_t kvcl_weave_kernels[] = {
#if defined(__x86_64__)
    ROW(avx512, has_avx512, fence, flush),
    ROW(avx2, has_avx2, fence, flush),
    ROW(sse2, always, fence, flush),
#endif
    ROW(plain, always, no_end, NULL),
};
const size_t kvcl_weave_n_kernels = sizeof(kvcl_weave_kernels) / sizeof(kvcl_weave_kernels[0]);

const kvcl_weave_kernel_t *kvcl_weave_best(void)
{
    size_t i = 0;

    while ((i + 1 < kvcl_weave_n_kernels) && !kvcl_weave_kernels[i].supported()) {
        ++i;
    }
    return &kvcl_weave_kernels[i];
}
