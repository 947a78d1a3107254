/*
 * Reductions (reduce.h). Each loop has an inner one of a fixed count into a local array: the compiler makes vectors of
 * it, whatever the three pointers share. All functions exist once for each set of instructions.
 */
#include "config.h"

#include "collectives/reduce.h"

#include "base/bf16.h"

#include <string.h>

enum { WIDTH = 64 };

/* ---- 16-bit floats ---- */

/* The exponent is rebased by a multiplication, which is exact for subnormal numbers too. Comparisons are of integers:
 * those of floats may trap, and are not made vectors. */
static inline float f16_in(uint16_t h)
{
    const uint32_t large = (uint32_t)0 - ((h & 0x7fff) >= 0x7c00); /* infinity or NaN */
    const float    x     = kvcl_f32_of((uint32_t)(h & 0x7fff) << 13) * 0x1p112f;

    return kvcl_f32_of(kvcl_f32_bits(x) | (large & UINT32_C(0x7f800000)) | ((uint32_t)(h & 0x8000) << 16));
}

/* Three cases: too large or NaN; subnormal, which an addition rounds; the others, rounded by integers. */
static inline uint16_t f16_out(float x)
{
    const uint32_t half  = UINT32_C(126) << 23; /* 0.5: its last bit is that of a subnormal f16 */
    const uint32_t sign  = kvcl_f32_bits(x) & UINT32_C(0x80000000);
    const uint32_t bits  = kvcl_f32_bits(x) ^ sign;
    const uint32_t large = 0x7c00 | ((uint32_t)(bits > UINT32_C(0x7f800000)) << 9);
    const uint32_t small = kvcl_f32_bits(kvcl_f32_of(bits) + kvcl_f32_of(half)) - half;
    const uint32_t other = (bits - (UINT32_C(112) << 23) + 0xfff + ((bits >> 13) & 1)) >> 13;
    const uint32_t over  = (uint32_t)0 - (bits >= (UINT32_C(143) << 23));
    const uint32_t under = (uint32_t)0 - (bits < (UINT32_C(113) << 23));

    return (uint16_t)((large & over) | (small & under) | (other & ~(over | under)) | (sign >> 16));
}

/* ---- one function for each type and operation ---- */

/* T: the element. P: the type to compute in; _in and _out convert. _expr: of x and y, the two operands. */
#define REDUCE(_name, _target, T, P, _in, _out, _expr)                                                                 \
    _target static inline T _name##_one(T a, T b)                                                                     \
    {                                                                                                                 \
        const P x = _in(a), y = _in(b);                                                                               \
                                                                                                                      \
        return _out(_expr);                                                                                           \
    }                                                                                                                 \
    _target static void _name(void *out, const void *a, const void *b, size_t n)                                      \
    {                                                                                                                 \
        const T *p = a, *q = b;                                                                                       \
        T       *to = out, block[WIDTH];                                                                              \
        size_t   at, i;                                                                                               \
                                                                                                                      \
        for (at = 0; n - at >= WIDTH; at += WIDTH) {                                                                  \
            for (i = 0; i < WIDTH; ++i) {                                                                             \
                block[i] = _name##_one(p[at + i], q[at + i]);                                                         \
            }                                                                                                         \
            memcpy(to + at, block, sizeof(block));                                                                    \
        }                                                                                                             \
        for (; at < n; ++at) {                                                                                        \
            to[at] = _name##_one(p[at], q[at]);                                                                       \
        }                                                                                                             \
    }

/* 1u: a product of 16-bit numbers is not one of ints, which may not wrap. */
#define INTEGERS(_t, _target, T, U)                                                                                   \
    REDUCE(_t##_sum, _target, T, U, (U), (T), x + y)                                                                  \
    REDUCE(_t##_prod, _target, T, U, (U), (T), 1u * x * y)                                                            \
    REDUCE(_t##_min, _target, T, T, , , (y < x) ? y : x)                                                              \
    REDUCE(_t##_max, _target, T, T, , , (y > x) ? y : x)                                                              \
    REDUCE(_t##_and, _target, T, U, (U), (T), x & y)                                                                  \
    REDUCE(_t##_or, _target, T, U, (U), (T), x | y)                                                                   \
    REDUCE(_t##_xor, _target, T, U, (U), (T), x ^ y)

#define FLOATS(_t, _target, T, P, _in, _out)                                                                          \
    REDUCE(_t##_sum, _target, T, P, _in, _out, x + y)                                                                 \
    REDUCE(_t##_prod, _target, T, P, _in, _out, x * y)                                                                \
    REDUCE(_t##_min, _target, T, P, _in, _out, ((y < x) || (y != y)) ? y : x)                                         \
    REDUCE(_t##_max, _target, T, P, _in, _out, ((y > x) || (y != y)) ? y : x)

/* A row of the table, in the order of kvcl_reduce_t. */
#define INTEGER_ROW(_t) {_t##_sum, _t##_prod, _t##_min, _t##_max, _t##_and, _t##_or, _t##_xor}
#define FLOAT_ROW(_t)   {_t##_sum, _t##_prod, _t##_min, _t##_max, NULL, NULL, NULL}

enum { OPS = KVCL_REDUCE_XOR + 1, DTYPES = KVCL_DTYPE_F64 + 1 };

/* All functions for one set of instructions, and their table, in the order of kvcl_dtype_t. */
#define SET(_s, _target)                                                                                              \
    INTEGERS(_s##_u8, _target, uint8_t, uint8_t)                                                                      \
    INTEGERS(_s##_i8, _target, int8_t, uint8_t)                                                                       \
    INTEGERS(_s##_u16, _target, uint16_t, uint16_t)                                                                   \
    INTEGERS(_s##_i16, _target, int16_t, uint16_t)                                                                    \
    INTEGERS(_s##_u32, _target, uint32_t, uint32_t)                                                                   \
    INTEGERS(_s##_i32, _target, int32_t, uint32_t)                                                                    \
    INTEGERS(_s##_u64, _target, uint64_t, uint64_t)                                                                   \
    INTEGERS(_s##_i64, _target, int64_t, uint64_t)                                                                    \
    FLOATS(_s##_f16, _target, uint16_t, float, f16_in, f16_out)                                                       \
    FLOATS(_s##_bf16, _target, uint16_t, float, kvcl_bf16_in, kvcl_bf16_out)                                          \
    FLOATS(_s##_f32, _target, float, float, , )                                                                       \
    FLOATS(_s##_f64, _target, double, double, , )                                                                     \
    static const kvcl_reduce_fn_t _s##_table[DTYPES][OPS] = {                                                         \
        INTEGER_ROW(_s##_u8),  INTEGER_ROW(_s##_i8),  INTEGER_ROW(_s##_u16), INTEGER_ROW(_s##_i16),                   \
        INTEGER_ROW(_s##_u32), INTEGER_ROW(_s##_i32), INTEGER_ROW(_s##_u64), INTEGER_ROW(_s##_i64),                   \
        FLOAT_ROW(_s##_f16),   FLOAT_ROW(_s##_bf16),  FLOAT_ROW(_s##_f32),   FLOAT_ROW(_s##_f64)};

SET(base, )
#if defined(__x86_64__)
SET(avx2, __attribute__((target("avx2"))))
SET(avx512, __attribute__((target("avx512f,avx512bw,avx512vl"))))
#endif

/* ---- the table ---- */

static const struct {
    const char *name;
    uint32_t   bytes;
} dtypes[DTYPES] = {{"u8", 1},  {"i8", 1},  {"u16", 2}, {"i16", 2},  {"u32", 4}, {"i32", 4},
                    {"u64", 8}, {"i64", 8}, {"f16", 2}, {"bf16", 2}, {"f32", 4}, {"f64", 8}};

static const kvcl_reduce_fn_t (*const sets[])[OPS] = {
    base_table,
#if defined(__x86_64__)
    avx2_table, avx512_table,
#endif
};

unsigned kvcl_reduce_best_set(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
        return 2;
    }
    return (__builtin_cpu_supports("avx2") != 0) ? 1 : 0;
#else
    return 0;
#endif
}

kvcl_reduce_fn_t kvcl_reduce_find(unsigned set, kvcl_dtype_t dtype, kvcl_reduce_t op)
{
    return (((unsigned)dtype < DTYPES) && ((unsigned)op < OPS)) ? sets[set][dtype][op] : NULL;
}

uint32_t kvcl_dtype_bytes(kvcl_dtype_t dtype)
{
    return ((unsigned)dtype < DTYPES) ? dtypes[dtype].bytes : 0;
}

const char *kvcl_dtype_name(kvcl_dtype_t dtype)
{
    return ((unsigned)dtype < DTYPES) ? dtypes[dtype].name : "unknown";
}

const char *kvcl_reduce_name(kvcl_reduce_t op)
{
    static const char *const names[OPS] = {"sum", "prod", "min", "max", "and", "or", "xor"};

    return ((unsigned)op < OPS) ? names[op] : "unknown";
}
