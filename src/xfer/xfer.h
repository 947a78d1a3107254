/*
 * The transfer room's state in a context.
 */
#ifndef KVCL_XFER_XFER_H
#define KVCL_XFER_XFER_H

#include "base/mpool.h"
#include "core/context.h"
#include "xfer/rma_table.h"
#include "xfer/share.h"

struct kvcl_lane_user;
struct kvcl_offer;
struct kvcl_stream;

typedef struct kvcl_xfer_state {
    kvcl_list_t  copies[2];  /* kvcl_copy_t; [1]: background */
    kvcl_share_t copy_share;
    kvcl_share_t serve_share;
    kvcl_list_t  serves;     /* kvcl_serve_t, round robin */
    kvcl_list_t  *next_serve; /* inside a round: who is next */
    unsigned     turn;       /* rounds so far */
    kvcl_list_t  rmas;       /* kvcl_rma_job_t */
    kvcl_rma_table_t rma_table; /* which of them are served instead; constant */
    kvcl_mpool_t flights;    /* frames under way with their bounce buffers */
    bool         has_flights;
    kvcl_map_t   offers;
    uint64_t     next_offer;
    void         (*abort_serves)(kvcl_context_h ctx, const struct kvcl_offer *offer); /* who reads it is stopped */
    kvcl_list_t  gates;      /* kvcl_gate_t with an operation that waits; gate.c's lock */
    _Atomic bool gates_over; /* one of them, since the last poll */
} kvcl_xfer_state_t;

static inline kvcl_xfer_state_t *kvcl_xfer_state(kvcl_context_h ctx)
{
    return ctx->rooms[KVCL_ROOM_XFER];
}

/* serve.c */
void     kvcl_serve_on_pull(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                            const void *data, size_t len);
void     kvcl_serve_on_credit(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                              const void *data, size_t len);
void     kvcl_serve_on_stop(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                            const void *data, size_t len);
unsigned kvcl_serve_poll(kvcl_context_h ctx);
void     kvcl_serve_abort(kvcl_context_h ctx, const struct kvcl_offer *offer);
void     kvcl_serve_peer_failed(kvcl_context_h ctx, kvcl_peer_t *peer);
void     kvcl_serve_lane_lost(kvcl_context_h ctx, kvcl_peer_t *peer);
void     kvcl_serve_fini(kvcl_context_h ctx);
/* serve_lane.c */
/* Are its pieces large enough for a lane? */
bool     kvcl_serve_lane_suits(kvcl_context_h ctx, const struct kvcl_stream *stream);
bool     kvcl_serve_lane_outstanding(kvcl_context_h ctx); /* could a frame leave now? */
/* rma.c */
unsigned kvcl_rma_poll(kvcl_context_h ctx);
/* put.c, put_take.c */
void     kvcl_put_on_put(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                         size_t len);
void     kvcl_put_on_done(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                          const void *data, size_t len);
void     kvcl_put_on_signal(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                            const void *data, size_t len);
/* pull_served.c: what comes by lanes is for pulls */
extern const struct kvcl_lane_user kvcl_pull_lane_user;

#endif
