/*
 * Two-sided send and recv, matched by (communicator, source, tag): what both sides share.
 *
 * A send announces itself with SEND, which carries the bytes when they are few; otherwise it offers them, and names a
 * cache's blocks for a receiver that maps the cache. The receiver, once matched, copies or pulls, then answers
 * SEND_DONE: the send completes when the receiver has the bytes, or with the receiver's error. Sends without a matching
 * recv wait in arrival order, bounded in bytes; a sender that stops withdraws its announcement with SEND_STOP.
 *
 * All under the engine lock.
 */
#ifndef KVCL_P2P_P2P_H
#define KVCL_P2P_P2P_H

#include "cache/cache.h"
#include "xfer/xfer_wire.h"

/* The unit, in tokens, in which a matched send and the recv's selection both traverse their blocks; 0: one side is
 * plain bytes, which fill the other's blocks in order. */
static inline uint32_t kvcl_send_unit(const kvcl_msg_send_t *msg, kvcl_cache_h cache, const kvcl_sel_t *sel)
{
    if ((cache == NULL) || (msg->token.layers == 0)) {
        return 0;
    }
    return kvcl_gcd(msg->unit, kvcl_sel_unit(&cache->shape, sel));
}

/* The room's state in a context. */
typedef struct kvcl_p2p_state {
    kvcl_list_t  recvs;      /* posted, unmatched */
    kvcl_list_t  arrived;    /* sends without a matching recv */
    size_t       arrived_bytes;
    kvcl_list_t  layers_out, layers_in; /* layer-wise sends and recvs in progress */
    _Atomic bool layers_marked; /* of any send, since the last poll */
} kvcl_p2p_state_t;

static inline kvcl_p2p_state_t *kvcl_p2p_state(kvcl_context_h ctx)
{
    return ctx->rooms[KVCL_ROOM_P2P];
}

/* p2p_match.c, p2p_recv.c, p2p_send.c */
void     kvcl_p2p_on_send(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                          const void *data, size_t len);
void     kvcl_p2p_on_done(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                          const void *data, size_t len);
void     kvcl_p2p_on_stop(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                          const void *data, size_t len);
void     kvcl_p2p_on_layers_want(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                                 const void *data, size_t len);
void     kvcl_p2p_on_layers(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                            const void *data, size_t len);
void     kvcl_p2p_peer_failed(kvcl_context_h ctx, kvcl_peer_t *peer);
/** Its link was lost, and its sends have ended there. */
void     kvcl_p2p_peer_reset(kvcl_context_h ctx, kvcl_peer_t *peer);
void     kvcl_p2p_fini(kvcl_context_h ctx);

#endif
