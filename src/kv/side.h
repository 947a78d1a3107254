/*
 * A side: one end of a transfer, (shape, bases, selection), and the check of a selection.
 *
 * Owns: what makes a selection valid; everything behind it (stream.h, runs.h) trusts a checked side
 * and checks nothing again. Pure functions, no locks, nothing allocated.
 */
#ifndef KVCL_KV_SIDE_H
#define KVCL_KV_SIDE_H

#include "kv/shape.h"
#include "device/copier.h"

/* One side of a transfer. Everything pointed to stays the caller's and must outlive the streams. */
typedef struct kvcl_side {
    const kvcl_shape_t *shape;
    const uintptr_t *bases; /* [shape->n_bases]: addresses here or at a peer, or offsets */
    kvcl_sel_t sel;
    kvcl_copier_t *copier; /* of the memory behind the bases; NULL: the processor reaches it */
} kvcl_side_t;

/**
 * Check a side as given by a user or a peer: ids below shape->blocks, ranges inside the shape,
 * pointers there. About 1 ns an id.
 * @return KVCL_OK; KVCL_ERR_OUT_OF_RANGE naming index and value; KVCL_ERR_INVALID_PARAM.
 */
kvcl_status_t kvcl_side_check(const kvcl_side_t *side) KVCL_MUST_CHECK;

/** As kvcl_side_check, of the selection alone, before any bases are known. */
kvcl_status_t kvcl_sel_check(const kvcl_shape_t *shape, const kvcl_sel_t *sel) KVCL_MUST_CHECK;
/** Fields of a newer version that are set. what: begins the sentence. */
kvcl_status_t kvcl_sel_check_reserved(const kvcl_sel_t *sel, const char *what) KVCL_MUST_CHECK;

/* Tokens first, ..., end-1 of a block list, see kvcl_sel_t.tokens. */
typedef struct kvcl_span {
    uint64_t first;
    uint64_t end;
} kvcl_span_t;

/** Selected layers, heads, tokens, bytes of one whole block, bytes in all. The selection must have been checked. */
kvcl_range_t kvcl_sel_layers(const kvcl_shape_t *shape, const kvcl_sel_t *sel);
kvcl_range_t kvcl_sel_heads(const kvcl_shape_t *shape, const kvcl_sel_t *sel);
kvcl_span_t kvcl_sel_tokens(const kvcl_shape_t *shape, const kvcl_sel_t *sel);
uint64_t kvcl_sel_block_bytes(const kvcl_shape_t *shape, const kvcl_sel_t *sel);
uint64_t kvcl_sel_bytes(const kvcl_shape_t *shape, const kvcl_sel_t *sel);

/* What one token of a selection is, its strides apart: only equal ones can be copied into each other. Travels in
 * messages, as u32 each. */
typedef struct kvcl_token {
    uint32_t layers; /* selected; 0: none of this is known */
    uint32_t kv;
    uint32_t heads;  /* selected */
    uint32_t head_dim;
    uint32_t elem_bytes;
    uint32_t tokens; /* of a block, where that has to be equal as well; else 0 */
} kvcl_token_t;
_Static_assert(sizeof(kvcl_token_t) == 24, "wire format");

/** tokens is 0. */
kvcl_token_t kvcl_token_of(const kvcl_shape_t *shape, const kvcl_sel_t *sel);
/** The name of the first field that differs, and its value in both; NULL: they are equal. */
const char *kvcl_token_differs(const kvcl_token_t *a, const kvcl_token_t *b, uint32_t *in_a, uint32_t *in_b);

/** The largest number of tokens that divides a block and both ends of the range: all of a block without a range. */
uint32_t kvcl_sel_unit(const kvcl_shape_t *shape, const kvcl_sel_t *sel);

uint32_t kvcl_gcd(uint64_t a, uint32_t b); /* of b > 0; gcd(0, b) is b */

#endif
