/*
 * Plain memory of values: walking extents, and memory seen as a cache's blocks (value.h). No locks; nothing allocated.
 */
#include "config.h"
#include "value/value.h"
#include "weave/pieces.h"

bool kvcl_value_bytes(const kvcl_value_t *value, uint64_t *bytes_p)
{
    uint64_t sum = 0;
    size_t   i;

    if ((value->extents == NULL) && (value->n_extents != 0)) {
        return false;
    }
    for (i = 0; i < value->n_extents; ++i) {
        const kvcl_extent_t *extent = &value->extents[i];
        if (((extent->addr == NULL) && (extent->bytes != 0)) || (extent->bytes > (uint64_t)INT64_MAX - sum)) {
            return false;
        }
        sum += extent->bytes;
    }
    *bytes_p = sum;
    return true;
}

/* The bytes from the position to the end of their extent, at most `most`; not 0 while any are left. */
static uint8_t *bytes_at(kvcl_value_at_t *at, uint64_t most, size_t *len_p)
{
    while (at->offset == at->value->extents[at->extent].bytes) {
        ++at->extent;
        at->offset = 0;
    }
    *len_p = at->value->extents[at->extent].bytes - at->offset;
    *len_p = (*len_p < most) ? *len_p : (size_t)most;
    return (uint8_t *)at->value->extents[at->extent].addr + at->offset;
}

void kvcl_value_read(kvcl_value_at_t *at, void *to, uint64_t bytes, kvcl_sum_t *sum)
{
    uint8_t *out = to, *from;
    size_t  len;

    for (; bytes != 0; bytes -= len) {
        from = bytes_at(at, bytes, &len);
        if (sum != NULL) {
            kvcl_sum_copy(sum, out, from, len);
        } else {
            kvcl_copy_bytes(out, from, len);
        }
        out += len;
        at->offset += len;
    }
}

void kvcl_value_write(kvcl_value_at_t *at, const void *from, uint64_t bytes)
{
    const uint8_t *in = from;
    uint8_t       *to;
    size_t        len;

    for (; bytes != 0; bytes -= len) {
        to = bytes_at(at, bytes, &len);
        kvcl_copy_bytes(to, in, len);
        in += len;
        at->offset += len;
    }
}

void kvcl_value_skip(kvcl_value_at_t *at, uint64_t bytes)
{
    size_t len;

    for (; bytes != 0; bytes -= len) {
        (void)bytes_at(at, bytes, &len);
        at->offset += len;
    }
}

void *kvcl_value_piece(kvcl_value_at_t *at, uint64_t bytes)
{
    uint8_t *piece;
    size_t  len;

    if (bytes == 0) {
        return NULL;
    }
    piece = bytes_at(at, bytes, &len);
    if (len != bytes) {
        return NULL;
    }
    at->offset += len;
    return piece;
}

/* ---- views ---- */

kvcl_status_t kvcl_view_shape(uint64_t block_bytes, kvcl_shape_t *shape)
{
    uint64_t      most   = (UINT64_C(1) << 62) / block_bytes;
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES((most < KVCL_LAYOUT_MAX_BLOCKS) ? most : KVCL_LAYOUT_MAX_BLOCKS,
                                             (uint32_t)block_bytes);

    return kvcl_shape_init(shape, &layout);
}

bool kvcl_view_at(kvcl_view_t *view, kvcl_context_h ctx, const kvcl_shape_t *shape, const void *addr)
{
    uint64_t at = (uintptr_t)addr, span = shape->blocks * shape->block_bytes, rest = at % shape->block_bytes;

    if (at < 2 * shape->block_bytes) {
        return false; /* the base would be NULL */
    }
    memset(view, 0, sizeof(*view));
    /* The base has addr's remainder, is not NULL, and lies at most a span below addr. */
    view->base            = (at - rest > span) ? at - ((span / 2 / shape->block_bytes) * shape->block_bytes)
                                               : rest + shape->block_bytes;
    view->cache.ctx       = ctx;
    view->cache.shape     = *shape;
    view->cache.bases     = &view->base;
    memcpy(view->cache.name, "plain memory", sizeof("plain memory"));
    return true;
}

bool kvcl_view_id(const kvcl_view_t *view, const void *addr, uint32_t *id_p)
{
    uint64_t at = (uintptr_t)addr, each = view->cache.shape.block_bytes, id;

    if ((at < view->base) || ((at - view->base) % each != 0)) {
        return false;
    }
    id = (at - view->base) / each;
    *id_p = (uint32_t)id;
    return id < view->cache.shape.blocks;
}
