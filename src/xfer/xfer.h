/*
 * The transfer room's state in a context.
 */
#ifndef KVCL_XFER_XFER_H
#define KVCL_XFER_XFER_H

#include "core/context.h"
#include "native/rma_table.h"
#include "xfer/share.h"
#include <kvcl/kvcl_xfer.h>

struct kvcl_lane_user;
struct kvcl_offer;
struct kvcl_stream;

/* The calls of the serving room for this one. Lock held. */
typedef struct kvcl_xfer_server {
    /** Stops all reads of this offer; the last to end calls its idle(). */
    void (*abort)(kvcl_context_h ctx, const struct kvcl_offer *offer);
    /** The lane by which this peer pulls has failed. */
    void (*lane_lost)(kvcl_context_h ctx, kvcl_peer_t *peer);
} kvcl_xfer_server_t;

struct kvcl_pull;
struct kvcl_put;

/* The calls of the notifying room: prepared transfers, which they take, also on failure. No lock held. */
typedef struct kvcl_xfer_notifier {
    kvcl_status_t (*get)(kvcl_context_h ctx, struct kvcl_pull *pull, const kvcl_xfer_params_t *p, kvcl_req_h *req_p);
    kvcl_status_t (*put)(kvcl_context_h ctx, struct kvcl_put *put, const kvcl_xfer_params_t *p, kvcl_req_h *req_p);
} kvcl_xfer_notifier_t;

typedef struct kvcl_xfer_state {
    kvcl_list_t              copies[2];  /* kvcl_copy_t; [1]: background */
    kvcl_share_t             copy_share;
    kvcl_list_t              rmas;       /* kvcl_rma_job_t */
    kvcl_rma_table_t         rma_table;  /* the transfers that are served instead; constant */
    kvcl_map_t               offers;
    uint64_t                 next_offer;
    const kvcl_xfer_server_t *server;    /* src/serve */
    const kvcl_xfer_notifier_t *notifier; /* src/notify */
} kvcl_xfer_state_t;

static inline kvcl_xfer_state_t *kvcl_xfer_state(kvcl_context_h ctx)
{
    return ctx->rooms[KVCL_ROOM_XFER];
}

/* rma.c */
unsigned kvcl_rma_poll(kvcl_context_h ctx);
/* put_run.c, put_take.c */
void     kvcl_put_on_put(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                         size_t len);
void     kvcl_put_on_done(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                          const void *data, size_t len);
void     kvcl_put_on_signal(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                            const void *data, size_t len);
/* pull_served.c */
/** Are a stream's pieces large enough for a lane? */
bool     kvcl_pull_lane_suits(kvcl_context_h ctx, const struct kvcl_stream *stream);
/* Handles the frames of lanes. */
extern const struct kvcl_lane_user kvcl_pull_lane_user;

#endif
