/*
 * The arithmetic of reductions: every type and operation against a reference in wider numbers, at lengths around the
 * width of the loops, in place of each operand; all 16-bit floats through the conversions. All of it for each set of
 * instructions that this processor has.
 */
#include "config.h"

#include "collectives/reduce.h"

#include "base/rand.h"

#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 200, OPS = KVCL_REDUCE_XOR + 1, DTYPES = KVCL_DTYPE_F64 + 1 };

static kvcl_rand_t rnd;

static bool is_float(kvcl_dtype_t dtype)
{
    return dtype >= KVCL_DTYPE_F16;
}

static bool is_signed(kvcl_dtype_t dtype)
{
    return (dtype == KVCL_DTYPE_I8) || (dtype == KVCL_DTYPE_I16) || (dtype == KVCL_DTYPE_I32) ||
           (dtype == KVCL_DTYPE_I64);
}

/* ---- the reference ---- */

/* Element i as the low bytes of a word. */
static uint64_t word_at(const void *from, kvcl_dtype_t dtype, size_t i)
{
    uint64_t word = 0;
    uint32_t n    = kvcl_dtype_bytes(dtype);

    memcpy(&word, (const char *)from + (i * n), n);
    return word;
}

static int64_t widen(uint64_t word, kvcl_dtype_t dtype)
{
    unsigned shift = 64 - (8 * kvcl_dtype_bytes(dtype));

    return (int64_t)(word << shift) >> shift;
}

static uint64_t reduced_integer(kvcl_dtype_t dtype, kvcl_reduce_t op, uint64_t a, uint64_t b)
{
    const bool less = is_signed(dtype) ? (widen(a, dtype) < widen(b, dtype)) : (a < b);

    switch (op) {
    case KVCL_REDUCE_SUM:
        return a + b;
    case KVCL_REDUCE_PROD:
        return a * b;
    case KVCL_REDUCE_MIN:
        return less ? a : b;
    case KVCL_REDUCE_MAX:
        return less ? b : a;
    case KVCL_REDUCE_AND:
        return a & b;
    case KVCL_REDUCE_OR:
        return a | b;
    default:
        return a ^ b;
    }
}

/* Field by field, unlike the library. */
static double value_of_16(uint16_t h, unsigned mantissa_bits)
{
    const unsigned exponent_bits = 15 - mantissa_bits, most = (1u << exponent_bits) - 1;
    const unsigned exponent = (h >> mantissa_bits) & most, mantissa = h & ((1u << mantissa_bits) - 1);
    const int      bias = (1 << (exponent_bits - 1)) - 1;
    double         x;

    if (exponent == most) {
        x = (mantissa == 0) ? (double)INFINITY : (double)NAN;
    } else {
        x = ldexp((double)mantissa + ((exponent == 0) ? 0.0 : (double)(1u << mantissa_bits)),
                  (int)((exponent == 0) ? 1 : exponent) - bias - (int)mantissa_bits);
    }
    return (h & 0x8000) ? -x : x;
}

static double value_at(const void *from, kvcl_dtype_t dtype, size_t i)
{
    switch (dtype) {
    case KVCL_DTYPE_F16:
        return value_of_16(((const uint16_t *)from)[i], 10);
    case KVCL_DTYPE_BF16:
        return value_of_16(((const uint16_t *)from)[i], 7);
    case KVCL_DTYPE_F32:
        return (double)((const float *)from)[i];
    default:
        return ((const double *)from)[i];
    }
}

static double reduced_float(kvcl_reduce_t op, double a, double b)
{
    if (isnan(a) || isnan(b)) {
        return (double)NAN;
    }
    switch (op) {
    case KVCL_REDUCE_SUM:
        return a + b;
    case KVCL_REDUCE_PROD:
        return a * b;
    case KVCL_REDUCE_MIN:
        return (b < a) ? b : a;
    default:
        return (b > a) ? b : a;
    }
}

/* Is `got` the number of 16 bits that is nearest to x, the even one of two? */
static bool is_nearest_16(uint16_t got, double x, unsigned mantissa_bits)
{
    const uint16_t infinity = (uint16_t)(((1u << (15 - mantissa_bits)) - 1) << mantissa_bits), size = got & 0x7fff;
    const double   limit = value_of_16((uint16_t)(infinity - 1), mantissa_bits);
    double         here, step, off;

    if (isnan(x)) {
        return isnan(value_of_16(got, mantissa_bits));
    }
    if (signbit(x) != ((got & 0x8000) != 0)) {
        return false;
    }
    x    = fabs(x);
    step = limit - value_of_16((uint16_t)(infinity - 2), mantissa_bits);
    if (size == infinity) {
        return x >= limit + (step / 2);
    }
    here = value_of_16(size, mantissa_bits);
    step = ((size + 1 == infinity) ? (limit + step) : value_of_16((uint16_t)(size + 1), mantissa_bits)) - here;
    off  = x - here;
    if (off >= 0) {
        return (off < step / 2) || ((off == step / 2) && (size % 2 == 0));
    }
    step = here - value_of_16((uint16_t)(size - 1), mantissa_bits);
    return (-off < step / 2) || ((-off == step / 2) && (size % 2 == 0));
}

static bool is_right(const void *out, kvcl_dtype_t dtype, kvcl_reduce_t op, const void *a, const void *b, size_t i)
{
    const double x = is_float(dtype) ? value_at(a, dtype, i) : 0, y = is_float(dtype) ? value_at(b, dtype, i) : 0;
    const double want = reduced_float(op, x, y);
    const uint64_t bits = UINT64_MAX >> (64 - (8 * kvcl_dtype_bytes(dtype)));

    switch (dtype) {
    case KVCL_DTYPE_F16: /* the f32 between is exact for sums and products of f16 */
        return is_nearest_16(((const uint16_t *)out)[i], want, 10);
    case KVCL_DTYPE_BF16: /* rounded to f32 first */
        return is_nearest_16(((const uint16_t *)out)[i], (double)(float)want, 7);
    case KVCL_DTYPE_F32:
        return isnan(want) ? isnan(((const float *)out)[i]) : (((const float *)out)[i] == (float)want);
    case KVCL_DTYPE_F64:
        return isnan(want) ? isnan(((const double *)out)[i]) : (((const double *)out)[i] == want);
    default:
        return word_at(out, dtype, i) ==
               (reduced_integer(dtype, op, word_at(a, dtype, i), word_at(b, dtype, i)) & bits);
    }
}

/* ---- tests ---- */

static void fill(void *to, size_t len)
{
    uint64_t word;
    size_t   i;

    for (i = 0; i < len; ++i) {
        word               = kvcl_rand_next(&rnd);
        ((uint8_t *)to)[i] = (uint8_t)word;
    }
}

START_TEST(every_type_and_operation_is_right_at_every_length)
{
    static union { uint8_t bytes[MOST * 8]; double aligned; } a, b, out;
    const kvcl_dtype_t dtype = (kvcl_dtype_t)(_i % DTYPES);
    const unsigned     set   = (unsigned)(_i / DTYPES);
    const uint32_t     width = kvcl_dtype_bytes(dtype);
    unsigned           op;
    size_t             n, i, place;

    for (op = 0; op < OPS; ++op) {
        kvcl_reduce_fn_t fn = kvcl_reduce_find(set, dtype, (kvcl_reduce_t)op);

        ck_assert_int_eq(fn == NULL, is_float(dtype) && (op >= KVCL_REDUCE_AND));
        for (n = 0; (fn != NULL) && (n < MOST); n = (n < 70) ? (n + 1) : (n + 57)) {
            for (place = 0; place < 3; ++place) {
                fill(&a, sizeof(a));
                fill(&b, sizeof(b));
                memset(&out, 0xee, sizeof(out));
                if (place > 0) {
                    memcpy(&out, (place == 1) ? &a : &b, n * width);
                }
                fn(&out, (place == 1) ? &out : &a, (place == 2) ? &out : &b, n);
                for (i = 0; i < n; ++i) {
                    ck_assert_msg(is_right(&out, dtype, (kvcl_reduce_t)op, &a, &b, i),
                                  "%s of %s by set %u is wrong at %zu of %zu", kvcl_reduce_name((kvcl_reduce_t)op),
                                  kvcl_dtype_name(dtype), set, i, n);
                }
                ck_assert_uint_eq(out.bytes[n * width], 0xee);
            }
        }
    }
}
END_TEST

/* x + 0 and x * 1 of every 16-bit float, and their neighbours' sums. */
START_TEST(every_16_bit_float_survives)
{
    static uint16_t    in[65536], other[65536], out[65536];
    const kvcl_dtype_t dtype = (_i % 2 == 0) ? KVCL_DTYPE_F16 : KVCL_DTYPE_BF16;
    unsigned           i, turn;

    for (turn = 0; turn < 3; ++turn) {
        for (i = 0; i < 65536; ++i) {
            in[i]    = (uint16_t)i;
            other[i] = (uint16_t)((turn == 0) ? 0x8000 : ((turn == 1) ? (i ^ 1) : kvcl_rand_next(&rnd)));
        }
        kvcl_reduce_find((unsigned)_i / 2, dtype, KVCL_REDUCE_SUM)(out, in, other, 65536);
        for (i = 0; i < 65536; ++i) {
            ck_assert_msg((turn == 0) ? ((out[i] == i) || isnan(value_at(in, dtype, i)))
                                      : is_right(out, dtype, KVCL_REDUCE_SUM, in, other, i),
                          "%x + %x = %x", i, other[i], out[i]);
        }
    }
}
END_TEST

START_TEST(unknown_types_and_operations_have_no_function)
{
    ck_assert_ptr_null(kvcl_reduce_find(0, (kvcl_dtype_t)DTYPES, KVCL_REDUCE_SUM));
    ck_assert_ptr_null(kvcl_reduce_find(0, (kvcl_dtype_t)-1, KVCL_REDUCE_SUM));
    ck_assert_ptr_null(kvcl_reduce_find(0, KVCL_DTYPE_U8, (kvcl_reduce_t)OPS));
    ck_assert_uint_eq(kvcl_dtype_bytes((kvcl_dtype_t)DTYPES), 0);
}
END_TEST

int main(void)
{
    Suite      *suite = suite_create("collectives: reductions");
    TCase      *tcase = tcase_create("all");
    const char *text  = getenv("TEST_SEED");
    uint64_t   seed   = (text != NULL) ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
    const int  sets   = 1 + (int)kvcl_reduce_best_set();
    SRunner    *runner;
    int        failed;

    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    fflush(stdout);
    kvcl_rand_seed(&rnd, seed);
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, every_type_and_operation_is_right_at_every_length, 0, DTYPES * sets);
    tcase_add_loop_test(tcase, every_16_bit_float_survives, 0, 2 * sets);
    tcase_add_test(tcase, unknown_types_and_operations_have_no_function);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
