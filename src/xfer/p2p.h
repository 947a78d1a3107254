/*
 * Two-sided send and recv, matched by (communicator, source, tag): what both sides share.
 *
 * A send announces itself with SEND, which carries the bytes when they are few, or says where they lie (a cache's
 * blocks, for a receiver that maps it) and offers them. The receiver, once matched, copies or pulls, then answers
 * SEND_DONE: the send completes when the receiver has the bytes, or with the receiver's error. Sends that find no recv
 * wait in arrival order, bounded in bytes; a sender that gives up takes its announcement back with SEND_STOP.
 *
 * All under the engine lock.
 */
#ifndef KVCL_XFER_P2P_H
#define KVCL_XFER_P2P_H

#include "base/checksum.h"
#include "cache/cache.h"
#include "xfer/xfer_wire.h"

/* What a token is, whatever its strides: only equal ones can be sent into each other. */
static inline uint64_t kvcl_logical_shape(kvcl_cache_h cache, const kvcl_sel_t *sel)
{
    kvcl_range_t layers = kvcl_sel_layers(&cache->shape, sel);
    kvcl_range_t heads  = kvcl_sel_heads(&cache->shape, sel);
    uint32_t     what[] = {layers.end - layers.first, cache->shape.kv, heads.end - heads.first, cache->shape.head_dim,
                           cache->shape.elem_bytes};

    return kvcl_checksum(what, sizeof(what)) | 1;
}

/* The unit of tokens by which a matched send and the recv's selection both go; 0: plain bytes on one side, which fill
 * the other's blocks as they come. */
static inline uint32_t kvcl_send_unit(const kvcl_msg_send_t *msg, kvcl_cache_h cache, const kvcl_sel_t *sel)
{
    if ((cache == NULL) || (msg->logical == 0)) {
        return 0;
    }
    return kvcl_gcd(msg->unit, kvcl_sel_unit(&cache->shape, sel));
}

/** An own copy of a selection's block list. */
kvcl_status_t kvcl_own_sel(kvcl_sel_t *to, const kvcl_sel_t *sel) KVCL_MUST_CHECK;

#endif
