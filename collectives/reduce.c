/*
 * Reductions (reduce.h). Each loop has an inner one of a fixed count into a local array: the compiler makes vectors of
 * it, whatever the three pointers share.
 */
#include "config.h"

#include "collectives/reduce.h"

#include <string.h>

enum { WIDTH = 64 };

/* ---- 16-bit floats ---- */

static inline float float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* The exponent is rebased by a multiplication, which is exact for subnormal numbers too. Comparisons are of integers:
 * those of floats may trap, and are not made vectors. */
static inline float f16_in(uint16_t h)
{
    const uint32_t large = (uint32_t)0 - ((h & 0x7fff) >= 0x7c00); /* infinity or NaN */
    const float    x     = float_of((uint32_t)(h & 0x7fff) << 13) * 0x1p112f;

    return float_of(bits_of(x) | (large & UINT32_C(0x7f800000)) | ((uint32_t)(h & 0x8000) << 16));
}

/* Three cases: too large or NaN; subnormal, which an addition rounds; the others, rounded by integers. */
static inline uint16_t f16_out(float x)
{
    const uint32_t half  = UINT32_C(126) << 23; /* 0.5: its last bit is that of a subnormal f16 */
    const uint32_t sign  = bits_of(x) & UINT32_C(0x80000000);
    const uint32_t bits  = bits_of(x) ^ sign;
    const uint32_t large = 0x7c00 | ((uint32_t)(bits > UINT32_C(0x7f800000)) << 9);
    const uint32_t small = bits_of(float_of(bits) + float_of(half)) - half;
    const uint32_t other = (bits - (UINT32_C(112) << 23) + 0xfff + ((bits >> 13) & 1)) >> 13;
    const uint32_t over  = (uint32_t)0 - (bits >= (UINT32_C(143) << 23));
    const uint32_t under = (uint32_t)0 - (bits < (UINT32_C(113) << 23));

    return (uint16_t)((large & over) | (small & under) | (other & ~(over | under)) | (sign >> 16));
}

static inline float bf16_in(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}

static inline uint16_t bf16_out(float x)
{
    const uint32_t bits = bits_of(x);

    return (uint16_t)(((bits & UINT32_C(0x7fffffff)) > UINT32_C(0x7f800000))
                          ? ((bits >> 16) | 0x40)
                          : ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16));
}

/* ---- one function for each type and operation ---- */

/* T: the element. P: the type to compute in; _in and _out convert. _expr: of x and y, the two operands. */
#define REDUCE(_name, T, P, _in, _out, _expr)                                                                         \
    static inline T _name##_one(T a, T b)                                                                             \
    {                                                                                                                 \
        const P x = _in(a), y = _in(b);                                                                               \
                                                                                                                      \
        return _out(_expr);                                                                                           \
    }                                                                                                                 \
    static void _name(void *out, const void *a, const void *b, size_t n)                                              \
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
#define INTEGERS(_t, T, U)                                                                                            \
    REDUCE(_t##_sum, T, U, (U), (T), x + y)                                                                           \
    REDUCE(_t##_prod, T, U, (U), (T), 1u * x * y)                                                                     \
    REDUCE(_t##_min, T, T, , , (y < x) ? y : x)                                                                       \
    REDUCE(_t##_max, T, T, , , (y > x) ? y : x)                                                                       \
    REDUCE(_t##_and, T, U, (U), (T), x & y)                                                                           \
    REDUCE(_t##_or, T, U, (U), (T), x | y)                                                                            \
    REDUCE(_t##_xor, T, U, (U), (T), x ^ y)

#define FLOATS(_t, T, P, _in, _out)                                                                                   \
    REDUCE(_t##_sum, T, P, _in, _out, x + y)                                                                          \
    REDUCE(_t##_prod, T, P, _in, _out, x * y)                                                                         \
    REDUCE(_t##_min, T, P, _in, _out, ((y < x) || (y != y)) ? y : x)                                                  \
    REDUCE(_t##_max, T, P, _in, _out, ((y > x) || (y != y)) ? y : x)

INTEGERS(u8, uint8_t, uint8_t)
INTEGERS(i8, int8_t, uint8_t)
INTEGERS(u16, uint16_t, uint16_t)
INTEGERS(i16, int16_t, uint16_t)
INTEGERS(u32, uint32_t, uint32_t)
INTEGERS(i32, int32_t, uint32_t)
INTEGERS(u64, uint64_t, uint64_t)
INTEGERS(i64, int64_t, uint64_t)
FLOATS(f16, uint16_t, float, f16_in, f16_out)
FLOATS(bf16, uint16_t, float, bf16_in, bf16_out)
FLOATS(f32, float, float, , )
FLOATS(f64, double, double, , )

/* ---- the table ---- */

enum { OPS = KVCL_REDUCE_XOR + 1, DTYPES = KVCL_DTYPE_F64 + 1 };

typedef struct dtype {
    const char       *name;
    uint32_t         bytes;
    kvcl_reduce_fn_t fn[OPS]; /* in the order of kvcl_reduce_t */
} dtype_t;

#define INTEGER_ROW(_t, T) {#_t, sizeof(T), {_t##_sum, _t##_prod, _t##_min, _t##_max, _t##_and, _t##_or, _t##_xor}}
#define FLOAT_ROW(_t, T)   {#_t, sizeof(T), {_t##_sum, _t##_prod, _t##_min, _t##_max, NULL, NULL, NULL}}

static const dtype_t dtypes[DTYPES] = {
    [KVCL_DTYPE_U8]   = INTEGER_ROW(u8, uint8_t),
    [KVCL_DTYPE_I8]   = INTEGER_ROW(i8, int8_t),
    [KVCL_DTYPE_U16]  = INTEGER_ROW(u16, uint16_t),
    [KVCL_DTYPE_I16]  = INTEGER_ROW(i16, int16_t),
    [KVCL_DTYPE_U32]  = INTEGER_ROW(u32, uint32_t),
    [KVCL_DTYPE_I32]  = INTEGER_ROW(i32, int32_t),
    [KVCL_DTYPE_U64]  = INTEGER_ROW(u64, uint64_t),
    [KVCL_DTYPE_I64]  = INTEGER_ROW(i64, int64_t),
    [KVCL_DTYPE_F16]  = FLOAT_ROW(f16, uint16_t),
    [KVCL_DTYPE_BF16] = FLOAT_ROW(bf16, uint16_t),
    [KVCL_DTYPE_F32]  = FLOAT_ROW(f32, float),
    [KVCL_DTYPE_F64]  = FLOAT_ROW(f64, double),
};

kvcl_reduce_fn_t kvcl_reduce_find(kvcl_dtype_t dtype, kvcl_reduce_t op)
{
    return (((unsigned)dtype < DTYPES) && ((unsigned)op < OPS)) ? dtypes[dtype].fn[op] : NULL;
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
