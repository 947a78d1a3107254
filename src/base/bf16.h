/*
 * bfloat16: the upper half of an f32. Pure.
 */
#ifndef KVCL_BASE_BF16_H
#define KVCL_BASE_BF16_H

#include <stdint.h>
#include <string.h>

static inline uint32_t kvcl_f32_bits(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float kvcl_f32_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline float kvcl_bf16_in(uint16_t h)
{
    return kvcl_f32_of((uint32_t)h << 16);
}

/** Rounded to nearest even; a NaN stays one. */
static inline uint16_t kvcl_bf16_out(float x)
{
    const uint32_t bits = kvcl_f32_bits(x);

    return (uint16_t)(((bits & UINT32_C(0x7fffffff)) > UINT32_C(0x7f800000))
                          ? ((bits >> 16) | 0x40)
                          : ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16));
}

#endif
