/*
 * The packed form of a shape: what peers exchange once per cache, and what its hash covers.
 *
 * Owns: the wire format described in shape.h; a change of it is a new KVCL_SHAPE_WIRE_VERSION.
 * Invariants: pack of an unpacked shape gives the same bytes if they were canonical; unpack reads
 * nothing behind len, allocates nothing and accepts nothing that kvcl_shape_init refuses.
 * Locks: none, pure functions.
 */
#include "kv/shape.h"

#include "base/error.h"
#include "base/wirebuf.h"

void kvcl_shape_pack(const kvcl_shape_t *s, uint8_t buf[KVCL_SHAPE_WIRE_BYTES])
{
    kvcl_wr_t wr;

    kvcl_wr_init(&wr, buf, KVCL_SHAPE_WIRE_BYTES);
    /* u16 version, u16 length (as one: gcc 12 sees an overflow in two u16 here that is none) */
    kvcl_wr_u32(&wr, KVCL_SHAPE_WIRE_VERSION | ((uint32_t)KVCL_SHAPE_WIRE_BYTES << 16));
    kvcl_wr_u32(&wr, (uint32_t)s->flags);
    kvcl_wr_u32(&wr, s->layers);
    kvcl_wr_u32(&wr, s->kv);
    kvcl_wr_u32(&wr, s->tokens);
    kvcl_wr_u32(&wr, s->heads);
    kvcl_wr_u32(&wr, s->head_dim);
    kvcl_wr_u32(&wr, s->elem_bytes);
    kvcl_wr_u64(&wr, s->blocks);
    kvcl_wr_u64(&wr, s->layer_stride);
    kvcl_wr_u64(&wr, s->kv_stride);
    kvcl_wr_u64(&wr, s->block_stride);
    kvcl_wr_u64(&wr, s->token_stride);
    kvcl_wr_u64(&wr, s->head_stride);
    kvcl_wr_u64(&wr, 0);
}

kvcl_status_t kvcl_shape_unpack(kvcl_shape_t *shape, const void *buf, size_t len)
{
    kvcl_layout_t l = {.size = sizeof(kvcl_layout_t)};
    kvcl_rd_t rd;
    uint16_t version, length;
    uint64_t reserved;

    kvcl_rd_init(&rd, buf, len);
    version = kvcl_rd_u16(&rd);
    length = kvcl_rd_u16(&rd);
    if (kvcl_rd_ok(&rd) && (version != KVCL_SHAPE_WIRE_VERSION)) {
        return kvcl_fail(KVCL_ERR_VERSION, "layout of wire version %u, this library has %d", version,
                         KVCL_SHAPE_WIRE_VERSION);
    }
    l.flags = kvcl_rd_u32(&rd);
    l.layers = kvcl_rd_u32(&rd);
    l.kv = kvcl_rd_u32(&rd);
    l.tokens = kvcl_rd_u32(&rd);
    l.heads = kvcl_rd_u32(&rd);
    l.head_dim = kvcl_rd_u32(&rd);
    l.elem_bytes = kvcl_rd_u32(&rd);
    l.blocks = kvcl_rd_u64(&rd);
    l.layer_stride = kvcl_rd_u64(&rd);
    l.kv_stride = kvcl_rd_u64(&rd);
    l.block_stride = kvcl_rd_u64(&rd);
    l.token_stride = kvcl_rd_u64(&rd);
    l.head_stride = kvcl_rd_u64(&rd);
    reserved = kvcl_rd_u64(&rd);
    if (!kvcl_rd_done(&rd) || (length != KVCL_SHAPE_WIRE_BYTES) || (reserved != 0)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "packed layout of %zu bytes is malformed", len);
    }
    return kvcl_shape_init(shape, &l);
}
