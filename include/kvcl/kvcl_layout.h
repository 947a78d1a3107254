/*
 * Layouts and selections: the positions of the bytes of a paged KV cache, and subsets of them.
 *
 * Owns: kvcl_layout_t, what MPI calls a derived datatype, for block tables; kvcl_sel_t, a list of
 * blocks with a range of layers and heads. Both are plain values of the caller: nothing here
 * allocates, keeps a pointer or takes a lock. All functions may be called from any thread and from
 * callbacks. All offsets, strides and sizes are bytes.
 *
 * A cache is a table of elements [layer][K/V plane][block][token][head][dim]. A *block* is one page
 * over all layers, planes, tokens and heads. Element (l, p, b, t, h, d) lies at
 *
 *   base + l*layer_stride + p*kv_stride + b*block_stride + t*token_stride + h*head_stride + d*elem_bytes
 *
 * where base is one pointer for all, one per layer (KVCL_LAYOUT_PER_LAYER) or one per layer and
 * plane (KVCL_LAYOUT_PER_PLANE). Head vectors of head_dim elements are always contiguous.
 *
 * Canonical order: the bytes of a selection, taken block by block in list order, in a block by
 * layer, plane, token, head, dim. Bytes are sent, stored and checksummed in this order, and
 * it does not depend on strides: two caches of equal logical shape exchange blocks whatever their
 * layouts in memory.
 *
 * Hybrid models (full attention, sliding window, Mamba state) have groups of layers whose blocks
 * differ, and a block table for each group. Each group is a cache of its own, with its own layout;
 * groups that share a pool of pages are caches over the same bases, block_stride being the page. A
 * state of two arrays is two caches: the second's bases begin behind the first array, in each page.
 *
 * Blocks of different sizes: the two sides of a transfer may have blocks of different numbers of
 * tokens if one divides the other, say 16 and 64. Both lists are then rows of tokens, of equal
 * length; the last larger block may be filled in part (kvcl_sel_t.tokens). The canonical order of
 * such a transfer is that of the smaller blocks: a larger one counts as several small ones in a row.
 * In general it goes by *units* of as many tokens as divide both block sizes and the ends of both
 * tokens ranges (their greatest common divisor).
 */
#ifndef KVCL_LAYOUT_H
#define KVCL_LAYOUT_H

#include <kvcl/kvcl_status.h>

#include <stddef.h>
#include <stdint.h>

KVCL_BEGIN_DECLS

/* Limits that every layout holds, a user's or a peer's. */
#define KVCL_LAYOUT_MAX_LAYERS 4096u
#define KVCL_LAYOUT_MAX_BLOCKS UINT64_C(0xffffffff) /* block ids are 32 bits */

/* kvcl_layout_t.flags */
#define KVCL_LAYOUT_PER_LAYER UINT64_C(0x1) /* one base pointer per layer: [layers] */
#define KVCL_LAYOUT_PER_PLANE UINT64_C(0x2) /* one base per layer and plane, K0 V0 K1 V1 ...: [layers*kv] */

/* kvcl_layout_t.order: of the default strides inside a block. */
#define KVCL_ORDER_NHD 0u /* [token][head][dim]: token_stride > head_stride */
#define KVCL_ORDER_HND 1u /* [head][token][dim] */

/**
 * A layout. Fill it with kvcl_layout_nhd(), kvcl_layout_hnd() or kvcl_layout_opaque(), with the macros
 * KVCL_LAYOUT_NHD, KVCL_LAYOUT_HND or KVCL_LAYOUT_BYTES, or begin with KVCL_LAYOUT_INIT. Counts have no default but kv;
 * strides of 0 take the dense default.
 *
 * Dense default of a stride: the bytes spanned by everything inside it, in the memory order [layer]
 * [plane][block][token][head][dim] (NHD; HND: [head][token]). Set strides override and carry
 * outwards: with a padded block_stride alone, kv_stride becomes blocks * block_stride. The stride of
 * a dimension of count 1 is ignored. Strides must *nest*: sorted by size, each must be at least what
 * the smaller ones span, else two elements would share a byte or interleave, which is refused.
 *
 * Examples, one bf16 tensor per layer (KVCL_LAYOUT_PER_LAYER), D = head_dim * 2 bytes:
 *   [2][blocks][tokens][heads][D]   all defaults
 *   [blocks][2][tokens][heads][D]   .kv_stride = tokens*heads*D, .block_stride = twice that
 *   [blocks][heads][tokens][K,V][D] .kv_stride = D, .token_stride = 2*D, .head_stride = tokens*2*D,
 *                                   .block_stride = heads*tokens*2*D
 *   [blocks][tokens][latent]        .kv = 1, .heads = 1, .head_dim = 576 (MLA)
 */
typedef struct kvcl_layout {
    size_t size;           /* sizeof(kvcl_layout_t); later versions append */
    uint64_t flags;        /* KVCL_LAYOUT_*; unknown bits are an error */
    uint32_t layers;       /* 1..KVCL_LAYOUT_MAX_LAYERS */
    uint32_t kv;           /* planes: 2 (K and V; 0 means 2) or 1 (joined, or latent) */
    uint64_t blocks;       /* 1..KVCL_LAYOUT_MAX_BLOCKS */
    uint32_t tokens;       /* of one block */
    uint32_t heads;        /* KV heads of this rank */
    uint32_t head_dim;     /* elements of one head vector */
    uint32_t elem_bytes;   /* 2 for bf16, 1 for fp8 */
    uint32_t order;        /* KVCL_ORDER_*: of the default strides only */
    uint32_t reserved;     /* 0 */
    uint64_t layer_stride; /* bytes; must be 0 with a base per layer or plane */
    uint64_t kv_stride;    /* bytes; must be 0 with a base per plane */
    uint64_t block_stride; /* bytes; 0 = dense, as the two below */
    uint64_t token_stride;
    uint64_t head_stride;
} kvcl_layout_t;
#define KVCL_LAYOUT_INIT {sizeof(kvcl_layout_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/**
 * A layout with the default strides of [token][head][dim] (nhd) or [head][token][dim] (hnd), for C and C++. flags, kv
 * and strides are 0 and can be set afterwards.
 */
static inline kvcl_layout_t kvcl_layout_nhd(uint32_t layers, uint64_t blocks, uint32_t tokens, uint32_t heads,
                                            uint32_t head_dim, uint32_t elem_bytes)
{
    kvcl_layout_t layout = KVCL_LAYOUT_INIT;

    layout.layers     = layers;
    layout.blocks     = blocks;
    layout.tokens     = tokens;
    layout.heads      = heads;
    layout.head_dim   = head_dim;
    layout.elem_bytes = elem_bytes;
    return layout;
}

static inline kvcl_layout_t kvcl_layout_hnd(uint32_t layers, uint64_t blocks, uint32_t tokens, uint32_t heads,
                                            uint32_t head_dim, uint32_t elem_bytes)
{
    kvcl_layout_t layout = kvcl_layout_nhd(layers, blocks, tokens, heads, head_dim, elem_bytes);

    layout.order = KVCL_ORDER_HND;
    return layout;
}

/** n_blocks contiguous opaque blocks of block_bytes (at most 4 GiB - 1) each. An opaque block is
 * compatible with any block of the same number of bytes, whose canonical bytes it then holds. */
static inline kvcl_layout_t kvcl_layout_opaque(uint64_t n_blocks, uint32_t block_bytes)
{
    kvcl_layout_t layout = kvcl_layout_nhd(1, n_blocks, 1, 1, block_bytes, 1);

    layout.kv = 1;
    return layout;
}

/*
 * The same with designated fields, in any order in C, in the order of the struct in C++20:
 *   kvcl_layout_t l = KVCL_LAYOUT_NHD(.layers = 32, .blocks = 4096, .tokens = 16, .heads = 8,
 *                                     .head_dim = 128, .elem_bytes = 2);
 * C++17 has no designated fields: use the functions above. KVCL_LAYOUT_BYTES works in C, C++17 and C++20. In C++20
 * KVCL_LAYOUT_NHD and KVCL_LAYOUT_HND are for functions' bodies; outside of them, again, use the functions above.
 */
#ifndef __cplusplus
#define KVCL_LAYOUT_NHD(...) ((kvcl_layout_t){.size = sizeof(kvcl_layout_t), .order = KVCL_ORDER_NHD, __VA_ARGS__})
#define KVCL_LAYOUT_HND(...) ((kvcl_layout_t){.size = sizeof(kvcl_layout_t), .order = KVCL_ORDER_HND, __VA_ARGS__})
#define KVCL_LAYOUT_BYTES(_n_blocks, _block_bytes)                                                                     \
    ((kvcl_layout_t){.size = sizeof(kvcl_layout_t),                                                                    \
                     .layers = 1,                                                                                      \
                     .kv = 1,                                                                                          \
                     .blocks = (_n_blocks),                                                                            \
                     .tokens = 1,                                                                                      \
                     .heads = 1,                                                                                       \
                     .head_dim = (_block_bytes),                                                                       \
                     .elem_bytes = 1})
#else
#define KVCL_LAYOUT_BYTES(_n_blocks, _block_bytes) kvcl_layout_opaque((_n_blocks), (_block_bytes))
#if __cplusplus >= 202002L
#define KVCL_LAYOUT_ORDERED(_order, ...)                                                                               \
    ([&]() -> kvcl_layout_t {                                                                                          \
        _Pragma("GCC diagnostic push")                                                                                 \
        _Pragma("GCC diagnostic ignored \"-Wmissing-field-initializers\"")                                             \
        kvcl_layout_t kvcl_layout_made_ = {.size = sizeof(kvcl_layout_t), __VA_ARGS__};                                \
        _Pragma("GCC diagnostic pop")                                                                                  \
        kvcl_layout_made_.order = (_order);                                                                            \
        return kvcl_layout_made_;                                                                                      \
    }())
#define KVCL_LAYOUT_NHD(...) KVCL_LAYOUT_ORDERED(KVCL_ORDER_NHD, __VA_ARGS__)
#define KVCL_LAYOUT_HND(...) KVCL_LAYOUT_ORDERED(KVCL_ORDER_HND, __VA_ARGS__)
#endif
#endif

/* Indices first, first+1, ..., end-1. {0, 0} means all of them. Fixed for ever: 8 bytes, inside other structs. */
typedef struct kvcl_range {
    uint32_t first;
    uint32_t end;
} kvcl_range_t;

/**
 * A selection of bytes of a cache: these blocks, in this order, and these layers and heads of each
 * block. Zero ranges mean all. The caller owns blocks; calls that post an operation copy it, so it
 * may be freed when they return. An id may appear twice where bytes are read; where they are
 * written the result is then undefined. n_blocks of 0 selects nothing and is not an error.
 *
 * tokens counts along the list: with layout.tokens of T, token t is token t % T of block
 * blocks[t / T]. So {0, 112} of two blocks of 64 tokens is the first of them and 48 tokens of the
 * other, which equals seven blocks of 16. Bytes of a block outside the range are neither read nor
 * written. Collectives and the store, except kvcl_store_get_part, take whole blocks only, and refuse
 * a range of tokens; so does a transfer between opaque blocks and others.
 *
 * The struct is fixed for ever, at 56 bytes and without a size, since programs write it in place: {.blocks = ids,
 * .n_blocks = 3}. Further fields take the place of the reserved ones, which must be 0: zero what is not initialized.
 */
typedef struct kvcl_sel {
    const uint32_t *blocks; /* ids, each < layout.blocks; may be NULL if n_blocks is 0 */
    size_t n_blocks;
    kvcl_range_t layers;
    kvcl_range_t heads;
    kvcl_range_t tokens; /* of the list, n_blocks * layout.tokens long */
    uint64_t reserved[2]; /* 0 */
} kvcl_sel_t;

/** Whole blocks. For C++17, which has no {.blocks = ids, .n_blocks = 3}; the ranges can be set afterwards. */
static inline kvcl_sel_t kvcl_sel_of(const uint32_t *blocks, size_t n_blocks)
{
    kvcl_sel_t sel = {blocks, n_blocks, {0, 0}, {0, 0}, {0, 0}, {0, 0}};

    return sel;
}

/**
 * Bytes of one block: layers * kv * tokens * heads * head_dim * elem_bytes. Padding between strides
 * does not count.
 * @return KVCL_OK; KVCL_ERR_BAD_LAYOUT, naming the field, for a zero count, an unknown flag, more
 *         than the limits, a size beyond 2^63, or strides that do not nest. Then *bytes_p is kept.
 */
KVCL_API kvcl_status_t kvcl_layout_block_bytes(const kvcl_layout_t *layout, size_t *bytes_p) KVCL_MUST_CHECK;

/**
 * The number of base pointers of the layout, and the bytes that each of them must provide (the same
 * for all), up to the last byte of the last block. Either pointer may be NULL.
 * @return as kvcl_layout_block_bytes.
 */
KVCL_API kvcl_status_t kvcl_layout_extent(const kvcl_layout_t *layout, size_t *n_bases_p,
                                          size_t *base_bytes_p) KVCL_MUST_CHECK;

/**
 * One line for people: counts, bases, bytes of a block, strides. Always terminated, cut at @a cap
 * (KVCL_LAYOUT_DESCRIBE_MAX holds any). An invalid layout is an error and leaves "" in @a buf.
 * @return as kvcl_layout_block_bytes; KVCL_ERR_INVALID_PARAM if cap is 0.
 */
#define KVCL_LAYOUT_DESCRIBE_MAX 384
KVCL_API kvcl_status_t kvcl_layout_describe(const kvcl_layout_t *layout, char *buf, size_t cap) KVCL_MUST_CHECK;

/**
 * 32 bytes that are equal for layouts with every byte at the same place, whether by defaults or by
 * equal explicit strides, and on every machine; other layouts differ.
 * Formula: SHA-256 of the packed form that peers exchange.
 */
KVCL_API kvcl_status_t kvcl_layout_hash(const kvcl_layout_t *layout, uint8_t hash[32]) KVCL_MUST_CHECK;

/**
 * Whether whole blocks of @a a and @a b are compatible: equal layers, planes, heads, head_dim and
 * elem_bytes, and one token count divides the other; or one side is opaque (KVCL_LAYOUT_BYTES)
 * with equal block size. Strides, bases, order and the number of blocks may differ. The store and
 * collectives also require equal token counts.
 * @return KVCL_OK; KVCL_ERR_BAD_LAYOUT, and kvcl_last_error() names what differs and both values.
 */
KVCL_API kvcl_status_t kvcl_layout_compatible(const kvcl_layout_t *a, const kvcl_layout_t *b) KVCL_MUST_CHECK;

/**
 * Sort the two lists of a transfer together, by the ids of @a blocks: memory on that side is then walked upwards, and
 * neighbours on both sides move as one run. For whole lists of blocks of equal size, whose order means nothing to the
 * caller (status entries follow the sorted order). In place, allocates nothing, n log n steps.
 */
KVCL_API void kvcl_blocks_sort(uint32_t *blocks, uint32_t *others, size_t n);

KVCL_END_DECLS

#endif
