/*
 * What a layout says about itself: sizes, one line for people, comparison with another.
 *
 * Owns: the sentences of kvcl_layout_describe and kvcl_layout_compatible. Validation is shape.c's:
 * every public function here first makes a shape on the stack.
 * Locks: none, all functions are pure; outputs are written on success only.
 */
#include "kv/shape.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Text appended to a buffer that may be too small: cut, always terminated. */
typedef struct text {
    char *buf;
    size_t cap;
    size_t len;
} text_t;

static void add(text_t *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(text_t *t, const char *fmt, ...)
{
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(t->buf + t->len, t->cap - t->len, fmt, args);
    va_end(args);
    if (n > 0) {
        t->len = ((size_t)n < t->cap - t->len) ? t->len + (size_t)n : t->cap - 1;
    }
}

static void add_stride(text_t *t, const char *name, uint64_t stride)
{
    if (stride != 0) {
        add(t, " %s %" PRIu64, name, stride);
    }
}

void kvcl_shape_describe(const kvcl_shape_t *s, char *buf, size_t cap)
{
    text_t t = {buf, cap, 0};

    if (cap == 0) {
        return;
    }
    if (kvcl_shape_is_opaque(s)) {
        add(&t, "%" PRIu64 " opaque blocks of %" PRIu64 " B", s->blocks, s->block_bytes);
    } else {
        add(&t, "%u layers x %s x %" PRIu64 " blocks x %u tokens x %u heads x %u x %u B", s->layers,
            (s->kv == 2) ? "K,V" : "1 plane", s->blocks, s->tokens, s->heads, s->head_dim, s->elem_bytes);
        add(&t, "; block %" PRIu64 " B", s->block_bytes);
    }
    add(&t, "; %u base%s%s of %" PRIu64 " B", s->n_bases, (s->n_bases == 1) ? "" : "s",
        (s->flags == KVCL_LAYOUT_PER_LAYER)   ? " (per layer)"
        : (s->flags == KVCL_LAYOUT_PER_PLANE) ? " (per plane)"
                                              : "",
        s->base_bytes);
    if ((s->layer_stride | s->kv_stride | s->block_stride | s->token_stride | s->head_stride) != 0) {
        add(&t, "; strides");
        add_stride(&t, "layer", s->layer_stride);
        add_stride(&t, "kv", s->kv_stride);
        add_stride(&t, "block", s->block_stride);
        add_stride(&t, "token", s->token_stride);
        add_stride(&t, "head", s->head_stride);
    }
}

kvcl_status_t kvcl_shape_compatible(const kvcl_shape_t *a, const kvcl_shape_t *b)
{
    const struct {
        const char *name;
        uint32_t a, b;
    } fields[] = {
        {"layers", a->layers, b->layers},
        {"kv", a->kv, b->kv},
        {"heads", a->heads, b->heads},
        {"head_dim", a->head_dim, b->head_dim},
        {"elem_bytes", a->elem_bytes, b->elem_bytes},
    };
    int opaque = kvcl_shape_is_opaque(a) || kvcl_shape_is_opaque(b);
    size_t i;

    if (opaque && (a->block_bytes == b->block_bytes)) {
        return KVCL_OK;
    }
    for (i = 0; i < sizeof(fields) / sizeof(fields[0]); ++i) {
        if ((fields[i].a != fields[i].b) && opaque) {
            return kvcl_fail(KVCL_ERR_BAD_LAYOUT,
                             "layouts differ: a block is %" PRIu64 " bytes on one side, %" PRIu64 " on the other",
                             a->block_bytes, b->block_bytes);
        }
        if (fields[i].a != fields[i].b) {
            return kvcl_fail(KVCL_ERR_BAD_LAYOUT, "layouts differ: %s is %u on one side, %u on the other",
                             fields[i].name, fields[i].a, fields[i].b);
        }
    }
    if (((a->tokens % b->tokens) != 0) && ((b->tokens % a->tokens) != 0)) {
        return kvcl_fail(KVCL_ERR_BAD_LAYOUT,
                         "layouts differ: tokens is %u on one side, %u on the other, and neither divides the other",
                         a->tokens, b->tokens);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_layout_block_bytes(const kvcl_layout_t *layout, size_t *bytes_p)
{
    kvcl_shape_t shape;
    kvcl_status_t status = kvcl_shape_init(&shape, layout);

    if (status == KVCL_OK) {
        *bytes_p = shape.block_bytes;
    }
    return status;
}

kvcl_status_t kvcl_layout_extent(const kvcl_layout_t *layout, size_t *n_bases_p, size_t *base_bytes_p)
{
    kvcl_shape_t shape;
    kvcl_status_t status = kvcl_shape_init(&shape, layout);

    if (status != KVCL_OK) {
        return status;
    }
    if (n_bases_p != NULL) {
        *n_bases_p = shape.n_bases;
    }
    if (base_bytes_p != NULL) {
        *base_bytes_p = shape.base_bytes;
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_layout_describe(const kvcl_layout_t *layout, char *buf, size_t cap)
{
    kvcl_shape_t shape;
    kvcl_status_t status;

    if ((buf == NULL) || (cap == 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "no buffer to describe a layout in");
    }
    buf[0] = '\0';
    status = kvcl_shape_init(&shape, layout);
    if (status == KVCL_OK) {
        kvcl_shape_describe(&shape, buf, cap);
    }
    return status;
}

kvcl_status_t kvcl_layout_hash(const kvcl_layout_t *layout, uint8_t hash[32])
{
    kvcl_shape_t shape;
    kvcl_status_t status = kvcl_shape_init(&shape, layout);

    if (status == KVCL_OK) {
        memcpy(hash, shape.hash, sizeof(shape.hash));
    }
    return status;
}

kvcl_status_t kvcl_layout_compatible(const kvcl_layout_t *a, const kvcl_layout_t *b)
{
    kvcl_shape_t shape_a, shape_b;
    kvcl_status_t status;

    if (((status = kvcl_shape_init(&shape_a, a)) != KVCL_OK) || ((status = kvcl_shape_init(&shape_b, b)) != KVCL_OK)) {
        return status;
    }
    return kvcl_shape_compatible(&shape_a, &shape_b);
}
