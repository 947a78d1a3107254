/*
 * A shape is a layout that was checked and completed: every stride filled in, every size known.
 *
 * Owns: validation of layouts, a user's (kvcl_shape_init) and a peer's (kvcl_shape_unpack) by the
 * same code; the packed form; the canonical hash. Only these two make a kvcl_shape_t, so its holders
 * need not check it again.
 * Invariants: no product below overflows 63 bits; elements do not overlap; strides of dimensions of
 * count 1 are 0, and flags that make no difference are dropped (a base per layer of a single layer),
 * so that equal placement means equal fields.
 * A shape holds no pointer and no memory: it may be copied by assignment. Immutable after init, so
 * any number of threads may read it. No locks.
 */
#ifndef KVCL_KV_SHAPE_H
#define KVCL_KV_SHAPE_H

#include "kvcl/kvcl_layout.h"

/* Dimensions, in their natural nesting. An *order* of dimensions is five of them as hex digits, the
 * outermost first: 0x35421 is block, layer, plane, token, head. */
enum { KVCL_DIM_HEAD = 1, KVCL_DIM_TOKEN = 2, KVCL_DIM_BLOCK = 3, KVCL_DIM_KV = 4, KVCL_DIM_LAYER = 5 };
enum { KVCL_DIMS = 5 };

/* A hybrid model (layer groups of different sizes) has several caches, so several shapes, one for each group. */
typedef struct kvcl_shape {
    uint64_t flags; /* KVCL_LAYOUT_PER_* */
    uint32_t layers;
    uint32_t kv; /* 1 or 2 */
    uint64_t blocks;
    uint32_t tokens;
    uint32_t heads;
    uint32_t head_dim;
    uint32_t elem_bytes;
    uint64_t layer_stride; /* 0 with a base per layer or plane */
    uint64_t kv_stride;    /* 0 with a base per plane */
    uint64_t block_stride;
    uint64_t token_stride;
    uint64_t head_stride;
    /* derived */
    uint64_t head_bytes;  /* head_dim * elem_bytes, the smallest run */
    uint64_t block_bytes; /* of one whole block, without padding */
    uint64_t base_bytes;  /* that must lie behind each base */
    uint32_t n_bases;     /* 1, layers, or layers * kv */
    uint32_t order;       /* of the dimensions in memory, see KVCL_DIM_* */
    uint8_t hash[32];     /* SHA-256 of the packed form */
} kvcl_shape_t;

enum {
    KVCL_SHAPE_WIRE_VERSION = 1,
    KVCL_SHAPE_WIRE_BYTES = 88 /* exact size of the packed form of this version */
};

/**
 * Check @a layout and complete it. Pure, no allocation.
 * @return KVCL_OK; KVCL_ERR_BAD_LAYOUT naming the field and its value, KVCL_ERR_INVALID_PARAM for
 *         NULL or an unknown size field. On error *shape is unchanged.
 */
kvcl_status_t kvcl_shape_init(kvcl_shape_t *shape, const kvcl_layout_t *layout) KVCL_MUST_CHECK;

/** A shape of opaque blocks: one run each. */
static inline int kvcl_shape_is_opaque(const kvcl_shape_t *s)
{
    return (s->layers == 1) && (s->kv == 1) && (s->tokens == 1) && (s->heads == 1);
}

/** As kvcl_layout_compatible, kvcl_layout_describe. */
kvcl_status_t kvcl_shape_compatible(const kvcl_shape_t *a, const kvcl_shape_t *b) KVCL_MUST_CHECK;
void kvcl_shape_describe(const kvcl_shape_t *shape, char *buf, size_t cap);

/**
 * Wire form, little-endian, KVCL_SHAPE_WIRE_BYTES: u16 version, u16 length of all, u32 flags,
 * u32 layers, kv, tokens, heads, head_dim, elem_bytes, u64 blocks, u64 strides of layer, kv, block,
 * token, head, u64 reserved 0. Derived fields never travel.
 */
void kvcl_shape_pack(const kvcl_shape_t *shape, uint8_t buf[KVCL_SHAPE_WIRE_BYTES]);

/**
 * Decode hostile bytes: @a len must be exactly the value of the length field and of this version
 * has; the values then pass the same checks as a user's layout.
 * @return KVCL_OK; KVCL_ERR_VERSION, KVCL_ERR_PROTOCOL (length, reserved bits),
 *         KVCL_ERR_BAD_LAYOUT. On error *shape is untouched.
 */
kvcl_status_t kvcl_shape_unpack(kvcl_shape_t *shape, const void *buf, size_t len) KVCL_MUST_CHECK;

#endif
