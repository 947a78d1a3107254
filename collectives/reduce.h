/*
 * The arithmetic of reductions: a function for each type and operation that has a meaning. Pure.
 *
 * Integers wrap. f16 and bf16 are added and multiplied as f32 and rounded to nearest even, once for each two operands.
 * Minimum and maximum of floats: a NaN wins, and of two equal values (-0 and 0) the first operand.
 */
#ifndef KVCL_COLLECTIVES_REDUCE_H
#define KVCL_COLLECTIVES_REDUCE_H

#include <kvcl/kvcl_coll.h>

#include <stddef.h>
#include <stdint.h>

/** out[i] = a[i] op b[i] of n elements, aligned as such; out may be a or b, and overlaps neither otherwise. */
typedef void (*kvcl_reduce_fn_t)(void *out, const void *a, const void *b, size_t n);

/** The last set of instructions that this processor has; 0 is that of every processor of its kind. */
unsigned         kvcl_reduce_best_set(void);
/** @param set  up to the best one; each gives the same bits, but for those of a NaN. @return NULL: no such type or
 *         operation, or a bitwise one of floats. */
kvcl_reduce_fn_t kvcl_reduce_find(unsigned set, kvcl_dtype_t dtype, kvcl_reduce_t op);

uint32_t    kvcl_dtype_bytes(kvcl_dtype_t dtype); /* 0: there is no such type */
const char *kvcl_dtype_name(kvcl_dtype_t dtype);  /* "f32" */
const char *kvcl_reduce_name(kvcl_reduce_t op);   /* "sum" */

#endif
