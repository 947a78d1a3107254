/*
 * Offers: local bytes that one peer (or, for a collective, several) may pull by the offer's request id: the sending
 * side of puts, sends and collectives where the receiver cannot map this rank's memory.
 *
 * An offer belongs to a request of its owner's class, whose id finds it. While serves > 0 the transport reads its
 * buffers: the owner completes only after kvcl_offer_close() has called idle. Engine lock held in all functions.
 */
#ifndef KVCL_XFER_OFFER_H
#define KVCL_XFER_OFFER_H

#include "kv/runs.h"
#include "req/req.h"

typedef struct kvcl_offer kvcl_offer_t;
struct kvcl_offer {
    uint64_t         id;      /* 0: closed */
    kvcl_stream_t    stream;  /* canonical, at position 0; its block list lives as long as the offer */
    kvcl_side_t      side;    /* the side of stream, for pulls in other units; no shape: the stream's unit only */
    const char       *plain;  /* the stream's bytes, in host memory of the user's; NULL: another kind of memory */
    struct kvcl_peer *peer;   /* the peer that may pull; NULL: any authenticated peer */
    unsigned         serves;
    void             (*idle)(kvcl_offer_t *offer); /* lock held: closed, and all reads have ended */
};

kvcl_status_t kvcl_offer_open(struct kvcl_context *ctx, kvcl_offer_t *offer) KVCL_MUST_CHECK;
/** No read in flight: remove it, without idle(). */
void          kvcl_offer_withdraw(struct kvcl_context *ctx, kvcl_offer_t *offer);
/** Stop serving; idle() is called now or later. */
void          kvcl_offer_close(struct kvcl_context *ctx, kvcl_offer_t *offer);
kvcl_offer_t *kvcl_offer_find(struct kvcl_context *ctx, uint64_t id, const struct kvcl_peer *peer);

#endif
