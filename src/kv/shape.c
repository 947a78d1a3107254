/*
 * Validation and completion of layouts, and their hash.
 *
 * Owns: what makes a layout valid (see kvcl_layout.h); the canonical form of one. A user's layout and
 * a peer's bytes go the same way: unpack (shape_wire.c) builds a kvcl_layout_t and calls init.
 * Invariants: all arithmetic on untrusted numbers is overflow-checked and bounded by 2^63, so sums
 * and products of a valid shape's fields need no check again. Nothing is allocated whatever the
 * counts say. Output structs are written last, on success only.
 * Locks: none, all functions are pure.
 */
#include "kv/shape.h"

#include "base/crypto.h"
#include "base/error.h"
#include "base/structs.h"

#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(kvcl_layout_t) == 96, "public struct: grow it only by appending");
_Static_assert(sizeof(uintptr_t) == 8 && sizeof(size_t) == 8, "64-bit addresses are assumed");

#define SHAPE_MAX_BYTES ((uint64_t)INT64_MAX)

/* One dimension of the nest, as its validation needs it. */
typedef struct shape_dim {
    const char *name; /* the public field is <name>_stride */
    uint32_t id;      /* KVCL_DIM_* */
    uint64_t count;
    uint64_t *stride_p;
} shape_dim_t;

static kvcl_status_t too_large(const char *what)
{
    return kvcl_fail(KVCL_ERR_BAD_LAYOUT, "layout: %s is beyond 2^63 bytes", what);
}

/* *product_p *= factor, bounded. */
static int mul_bounded(uint64_t *product_p, uint64_t factor)
{
    return !__builtin_mul_overflow(*product_p, factor, product_p) && (*product_p <= SHAPE_MAX_BYTES);
}

static kvcl_status_t check_counts(const kvcl_layout_t *l)
{
    const struct {
        const char *name;
        uint64_t value;
        uint64_t max;
    } counts[] = {
        {"layers", l->layers, KVCL_LAYOUT_MAX_LAYERS},
        {"blocks", l->blocks, KVCL_LAYOUT_MAX_BLOCKS},
        {"tokens", l->tokens, UINT32_MAX},
        {"heads", l->heads, UINT32_MAX},
        {"head_dim", l->head_dim, UINT32_MAX},
        {"elem_bytes", l->elem_bytes, UINT32_MAX},
    };
    size_t i;

    for (i = 0; i < sizeof(counts) / sizeof(counts[0]); ++i) {
        if (counts[i].value == 0) {
            return kvcl_fail(KVCL_ERR_BAD_LAYOUT, "layout: %s is 0", counts[i].name);
        }
        if (counts[i].value > counts[i].max) {
            return kvcl_fail(KVCL_ERR_BAD_LAYOUT, "layout: %s is %llu, at most %llu", counts[i].name,
                             (unsigned long long)counts[i].value, (unsigned long long)counts[i].max);
        }
    }
    if (l->kv > 2) {
        return kvcl_fail(KVCL_ERR_BAD_LAYOUT, "layout: kv is %u, only 1 or 2 planes exist", l->kv);
    }
    return KVCL_OK;
}

static kvcl_status_t check_options(const kvcl_layout_t *l)
{
    const uint64_t known = KVCL_LAYOUT_PER_LAYER | KVCL_LAYOUT_PER_PLANE;

    if ((l->flags & ~known) != 0) {
        return kvcl_fail(KVCL_ERR_BAD_LAYOUT, "layout: flags has unknown bits 0x%llx",
                         (unsigned long long)(l->flags & ~known));
    }
    if (l->flags == known) {
        return kvcl_fail(KVCL_ERR_BAD_LAYOUT, "layout: flags has both KVCL_LAYOUT_PER_LAYER and _PER_PLANE");
    }
    if (l->order > KVCL_ORDER_HND) {
        return kvcl_fail(KVCL_ERR_BAD_LAYOUT, "layout: order is %u, no KVCL_ORDER_*", l->order);
    }
    if (l->reserved != 0) {
        return kvcl_fail(KVCL_ERR_BAD_LAYOUT, "layout: reserved is %u, not 0", l->reserved);
    }
    if ((l->flags != 0) && (l->layer_stride != 0)) {
        return kvcl_fail(KVCL_ERR_BAD_LAYOUT, "layout: layer_stride is %llu, but each layer has its own base",
                         (unsigned long long)l->layer_stride);
    }
    if (((l->flags & KVCL_LAYOUT_PER_PLANE) != 0) && (l->kv_stride != 0)) {
        return kvcl_fail(KVCL_ERR_BAD_LAYOUT, "layout: kv_stride is %llu, but each plane has its own base",
                         (unsigned long long)l->kv_stride);
    }
    return KVCL_OK;
}

/* Copy the counts and strides; drop what makes no difference. */
static void take_fields(kvcl_shape_t *s, const kvcl_layout_t *l)
{
    memset(s, 0, sizeof(*s));
    s->flags = l->flags;
    s->layers = l->layers;
    s->kv = (l->kv == 0) ? 2 : l->kv;
    s->blocks = l->blocks;
    s->tokens = l->tokens;
    s->heads = l->heads;
    s->head_dim = l->head_dim;
    s->elem_bytes = l->elem_bytes;
    s->layer_stride = l->layer_stride;
    s->kv_stride = l->kv_stride;
    s->block_stride = l->block_stride;
    s->token_stride = l->token_stride;
    s->head_stride = l->head_stride;
    if ((s->flags == KVCL_LAYOUT_PER_PLANE) && (s->kv == 1)) {
        s->flags = KVCL_LAYOUT_PER_LAYER;
    }
    if ((s->flags == KVCL_LAYOUT_PER_LAYER) && (s->layers == 1)) {
        s->flags = 0;
    }
    s->n_bases = (s->flags == 0) ? 1 : s->layers;
    if (s->flags == KVCL_LAYOUT_PER_PLANE) {
        s->n_bases *= s->kv;
    }
}

/* The dimensions behind one base, innermost of the default order first. */
static void list_dims(kvcl_shape_t *s, uint32_t order, shape_dim_t dims[KVCL_DIMS])
{
    const shape_dim_t head = {"head", KVCL_DIM_HEAD, s->heads, &s->head_stride};
    const shape_dim_t token = {"token", KVCL_DIM_TOKEN, s->tokens, &s->token_stride};

    dims[0] = (order == KVCL_ORDER_NHD) ? head : token;
    dims[1] = (order == KVCL_ORDER_NHD) ? token : head;
    dims[2] = (shape_dim_t){"block", KVCL_DIM_BLOCK, s->blocks, &s->block_stride};
    dims[3] = (shape_dim_t){"kv", KVCL_DIM_KV, (s->flags == KVCL_LAYOUT_PER_PLANE) ? 1 : s->kv, &s->kv_stride};
    dims[4] = (shape_dim_t){"layer", KVCL_DIM_LAYER, (s->flags == 0) ? s->layers : 1, &s->layer_stride};
}

/* Defaults are what the dimensions inside reach; strides that are never stepped become 0. */
static kvcl_status_t fill_strides(shape_dim_t dims[KVCL_DIMS], uint64_t head_bytes)
{
    uint64_t extent = head_bytes;
    uint64_t reach;
    int i;

    for (i = 0; i < KVCL_DIMS; ++i) {
        if (dims[i].count == 1) {
            *dims[i].stride_p = 0;
            continue;
        }
        if (*dims[i].stride_p == 0) {
            *dims[i].stride_p = extent;
        }
        reach = *dims[i].stride_p;
        if (!mul_bounded(&reach, dims[i].count)) {
            return kvcl_fail(KVCL_ERR_BAD_LAYOUT, "layout: %s_stride %llu times %llu is beyond 2^63 bytes",
                             dims[i].name, (unsigned long long)*dims[i].stride_p, (unsigned long long)dims[i].count);
        }
        extent = (reach > extent) ? reach : extent;
    }
    return KVCL_OK;
}

static void sort_dims(shape_dim_t dims[KVCL_DIMS])
{
    shape_dim_t dim;
    int i, j;

    for (i = 1; i < KVCL_DIMS; ++i) {
        dim = dims[i];
        for (j = i; (j > 0) && (*dims[j - 1].stride_p > *dim.stride_p); --j) {
            dims[j] = dims[j - 1];
        }
        dims[j] = dim;
    }
}

/* Smallest stride first, each must clear what the ones before span; yields the span of all. */
static kvcl_status_t check_nest(shape_dim_t dims[KVCL_DIMS], uint64_t head_bytes, uint64_t *span_p)
{
    const char *inner = "head vector";
    uint64_t span = head_bytes;
    int i;

    sort_dims(dims);
    for (i = 0; i < KVCL_DIMS; ++i) {
        if (dims[i].count == 1) {
            continue;
        }
        if (*dims[i].stride_p < span) {
            return kvcl_fail(KVCL_ERR_BAD_LAYOUT,
                             "layout: %s_stride is %llu, but the %s inside it spans %llu bytes: "
                             "elements would overlap",
                             dims[i].name, (unsigned long long)*dims[i].stride_p, inner, (unsigned long long)span);
        }
        if (__builtin_add_overflow(span, *dims[i].stride_p * (dims[i].count - 1), &span) || (span > SHAPE_MAX_BYTES)) {
            return too_large("the memory behind one base");
        }
        inner = dims[i].name;
    }
    *span_p = span;
    return KVCL_OK;
}

/* Dimensions behind a base by stride, then those that are not stepped or step from base to base. */
static uint32_t memory_order(const shape_dim_t sorted[KVCL_DIMS])
{
    static const uint32_t natural[] = {KVCL_DIM_HEAD, KVCL_DIM_TOKEN, KVCL_DIM_BLOCK, KVCL_DIM_KV, KVCL_DIM_LAYER};
    uint32_t order = 0, seen = 0, n = 0;
    int i;

    for (i = 0; i < KVCL_DIMS; ++i) {
        if (sorted[i].count > 1) {
            order |= sorted[i].id << (4 * n++);
            seen |= 1u << sorted[i].id;
        }
    }
    for (i = 0; i < KVCL_DIMS; ++i) {
        if ((seen & (1u << natural[i])) == 0) {
            order |= natural[i] << (4 * n++);
        }
    }
    return order;
}

static kvcl_status_t fill_sizes(kvcl_shape_t *s)
{
    uint64_t total;

    s->block_bytes = s->head_bytes;
    if (!mul_bounded(&s->block_bytes, s->heads) || !mul_bounded(&s->block_bytes, s->tokens) ||
        !mul_bounded(&s->block_bytes, s->kv) || !mul_bounded(&s->block_bytes, s->layers)) {
        return too_large("one block (layers * kv * tokens * heads * head_dim * elem_bytes)");
    }
    total = s->block_bytes;
    if (!mul_bounded(&total, s->blocks)) {
        return too_large("blocks times the bytes of a block");
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_shape_init(kvcl_shape_t *shape, const kvcl_layout_t *layout)
{
    shape_dim_t dims[KVCL_DIMS];
    uint8_t packed[KVCL_SHAPE_WIRE_BYTES];
    kvcl_layout_t l = KVCL_LAYOUT_INIT;
    kvcl_shape_t s;
    kvcl_status_t status;

    if ((shape == NULL) || (layout == NULL)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "layout is NULL");
    }
    status = kvcl_struct_in(&l, layout, KVCL_UP_TO(kvcl_layout_t, reserved), sizeof(l), "kvcl_layout_t");
    if ((status != KVCL_OK) || ((status = check_counts(&l)) != KVCL_OK) || ((status = check_options(&l)) != KVCL_OK)) {
        return status;
    }
    take_fields(&s, &l);
    s.head_bytes = s.head_dim;
    if (!mul_bounded(&s.head_bytes, s.elem_bytes)) {
        return too_large("head_dim * elem_bytes");
    }
    list_dims(&s, l.order, dims);
    if (((status = fill_sizes(&s)) != KVCL_OK) || ((status = fill_strides(dims, s.head_bytes)) != KVCL_OK) ||
        ((status = check_nest(dims, s.head_bytes, &s.base_bytes)) != KVCL_OK)) {
        return status;
    }
    s.order = memory_order(dims); /* check_nest sorted them */
    kvcl_shape_pack(&s, packed);
    kvcl_sha256(packed, sizeof(packed), s.hash);
    *shape = s;
    return KVCL_OK;
}
