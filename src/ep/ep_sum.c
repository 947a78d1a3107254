/*
 * Weighted sums of rows, in f32 and in a fixed order, and kvcl_ep_renormalise (kvcl_ep_step.h).
 *
 * Products are rounded before they are added: no fused multiply-add, so that all machines get the same bits. The loops
 * are over blocks of a fixed length in local arrays, of which the compiler makes vectors. Pure; no lock.
 */
#include "config.h"

/* Before the functions of headers, which could not be inlined otherwise. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

#include "ep/ep_step.h"

#include "base/bf16.h"
#include "base/error.h"

#include <stdbool.h>
#include <string.h>

enum { WIDTH = 128 };

/* Elements [at, at + n) of a row as f32, and back. */
__attribute__((always_inline)) static inline void load(float *to, const void *row, kvcl_dtype_t dtype, size_t at,
                                                       size_t n)
{
    uint16_t half[WIDTH];
    size_t   i;

    if (dtype == KVCL_DTYPE_F32) {
        memcpy(to, (const float *)row + at, n * sizeof(*to));
        return;
    }
    memcpy(half, (const uint16_t *)row + at, n * sizeof(*half));
    for (i = 0; i < n; ++i) {
        to[i] = kvcl_bf16_in(half[i]);
    }
}

__attribute__((always_inline)) static inline void store(void *row, kvcl_dtype_t dtype, size_t at, size_t n,
                                                        const float *from)
{
    uint16_t half[WIDTH];
    size_t   i;

    if (dtype == KVCL_DTYPE_F32) {
        memcpy((float *)row + at, from, n * sizeof(*from));
        return;
    }
    for (i = 0; i < n; ++i) {
        half[i] = kvcl_bf16_out(from[i]);
    }
    memcpy((uint16_t *)row + at, half, n * sizeof(*half));
}

__attribute__((always_inline)) static inline void sum_block(void *out, kvcl_dtype_t dtype, size_t at, size_t width,
                                                            const void *const *rows, const float *weights, uint32_t n)
{
    float    sum[WIDTH] = {0}, x[WIDTH];
    uint32_t k;
    size_t   i;

    for (k = 0; k < n; ++k) {
        load(x, rows[k], dtype, at, width);
        for (i = 0; i < width; ++i) {
            sum[i] += weights[k] * x[i];
        }
    }
    store(out, dtype, at, width, sum);
}

/* One for each set of instructions. A constant width is inlined into loops of that length. */
#define SUM(_name, _target)                                                                                            \
    _target static void _name(void *out, kvcl_dtype_t dtype, uint32_t hidden, const void *const *rows,                 \
                              const float *weights, uint32_t n)                                                        \
    {                                                                                                                  \
        size_t at;                                                                                                     \
                                                                                                                       \
        for (at = 0; hidden - at >= WIDTH; at += WIDTH) {                                                              \
            if (dtype == KVCL_DTYPE_F32) {                                                                             \
                sum_block(out, KVCL_DTYPE_F32, at, WIDTH, rows, weights, n);                                           \
            } else {                                                                                                   \
                sum_block(out, KVCL_DTYPE_BF16, at, WIDTH, rows, weights, n);                                          \
            }                                                                                                          \
        }                                                                                                              \
        if (at < hidden) {                                                                                             \
            sum_block(out, dtype, at, hidden - at, rows, weights, n);                                                  \
        }                                                                                                              \
    }

SUM(sum_base, )
#if defined(__x86_64__)
SUM(sum_avx2, __attribute__((target("avx2"))))
#endif

void kvcl_ep_sum(void *out, kvcl_dtype_t dtype, uint32_t hidden, const void *const *rows, const float *weights,
                 uint32_t n)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        sum_avx2(out, dtype, hidden, rows, weights, n);
        return;
    }
#endif
    sum_base(out, dtype, hidden, rows, weights, n);
}

static void scale(void *row, kvcl_dtype_t dtype, uint32_t hidden, float factor)
{
    float  x[WIDTH];
    size_t at, i, n;

    for (at = 0; at < hidden; at += n) {
        n = (hidden - at < WIDTH) ? hidden - at : WIDTH;
        load(x, row, dtype, at, n);
        for (i = 0; i < n; ++i) {
            x[i] *= factor;
        }
        store(row, dtype, at, n, x);
    }
}

/* Tokens that lost nothing are told by lost alone: exactly 0. A lost weight that is NaN counts as lost. */
static bool has_lost(float lost)
{
    return !(lost == 0.0f);
}

static float sum_of(const int64_t *ids, const float *weights, uint32_t top_k)
{
    float    sum = 0.0f;
    uint32_t k;

    for (k = 0; k < top_k; ++k) {
        if (ids[k] != KVCL_EP_ID_NONE) {
            sum += weights[k];
        }
    }
    return sum;
}

kvcl_status_t kvcl_ep_renormalise(void *out, kvcl_dtype_t dtype, uint32_t n_tokens, uint32_t hidden,
                                  const int64_t *ids, const float *weights, uint32_t top_k, const float *lost,
                                  uint8_t *hopeless, uint32_t *n_hopeless_p)
{
    const size_t row_bytes = (size_t)hidden * ((dtype == KVCL_DTYPE_F32) ? 4 : 2);
    uint32_t     t, n = 0;
    float        all, left;
    bool         none;

    if ((dtype != KVCL_DTYPE_BF16) && (dtype != KVCL_DTYPE_F32)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "ep_renormalise: dtype %d: KVCL_DTYPE_BF16 and KVCL_DTYPE_F32 are "
                         "possible", (int)dtype);
    }
    if ((n_tokens != 0) && ((out == NULL) || (ids == NULL) || (weights == NULL) || (lost == NULL))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "ep_renormalise: %s is NULL", (out == NULL) ? "out" : (ids == NULL)
                         ? "ids" : (weights == NULL) ? "weights" : "lost");
    }
    for (t = 0; t < n_tokens; ++t) {
        all  = sum_of(ids + ((size_t)t * top_k), weights + ((size_t)t * top_k), top_k);
        left = all - lost[t];
        none = has_lost(lost[t]) && (left == 0.0f);
        if (has_lost(lost[t]) && !none) {
            scale((char *)out + (t * row_bytes), dtype, hidden, all / left);
        }
        n += none;
        if (hopeless != NULL) {
            hopeless[t] = none;
        }
    }
    if (n_hopeless_p != NULL) {
        *n_hopeless_p = n;
    }
    return KVCL_OK;
}
