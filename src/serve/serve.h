/*
 * A serve: one pull at its owner. Requests and messages are in serve.c, checks in serve_check.c, sending in
 * serve_send.c and serve_lane.c, the end in serve_end.c. Engine lock held everywhere.
 */
#ifndef KVCL_SERVE_SERVE_H
#define KVCL_SERVE_SERVE_H

#include "cache/cache.h"
#include "mem/region.h"
#include "xfer/offer.h"
#include "base/mpool.h"
#include "xfer/share.h"
#include "xfer/xfer.h"
#include "xfer/xfer_wire.h"

enum { KVCL_SERVE_TURN = 256 * 1024 }; /* bytes */

typedef struct kvcl_serve {
    kvcl_list_t        link;
    kvcl_context_h     ctx;
    kvcl_peer_t        *peer;
    uint64_t           op;    /* the puller's */
    kvcl_stream_t      stream;
    uint64_t           pos, total;
    size_t             frame;
    unsigned           credits;
    unsigned           in_flight;
    unsigned           turn;  /* the last one it had, see kvcl_serve_state_t.turn */
    kvcl_status_t      status;    /* not OK: stop sending, then say so */
    bool               background; /* of the lower class */
    bool               straight;  /* a frame went from where its bytes lie */
    bool               by_lane;   /* frames and end go by the peer's lane */
    bool               silent;    /* the puller wants no further message */
    kvcl_region_t      *region;   /* what is counted as being read: one of three */
    kvcl_region_user_t user;  /* of the region */
    kvcl_cache_h       cache;
    kvcl_offer_t       *offer;
    uint32_t           *ids;  /* owned: n block ids, then n generations if has_gens */
    size_t             n;
    bool               has_gens;
} kvcl_serve_t;

/** Fill in what is asked for: stream, and what is read. KVCL_ERR_*: it may not have it. */
kvcl_status_t kvcl_serve_check(kvcl_serve_t *serve, const kvcl_msg_pull_t *in, const void *data, size_t len)
    KVCL_MUST_CHECK;

/* serve_end.c */
/** by 1: what the serve reads is counted and stays; by -1: no longer. */
void          kvcl_serve_hold(kvcl_serve_t *serve, int by);
/** Which blocks still have the generation that was requested (each: one status a block, or NULL). @return all have. */
bool          kvcl_serve_gens_hold(const kvcl_serve_t *serve, int32_t *each);
/** PULL_DONE, with n statuses of blocks. */
void          kvcl_serve_answer(kvcl_peer_t *peer, uint64_t op, kvcl_status_t status, const int32_t *each, size_t n);
/** The puller gets the serve's status, or that of each block. */
void          kvcl_serve_report_end(kvcl_serve_t *serve);
/** End it if nothing of it is under way and all was sent, or it failed. */
void          kvcl_serve_end_if_over(kvcl_serve_t *serve);
/** It sends no more, and ends with this status; silent: its puller is sent nothing. It may be freed on return. */
void          kvcl_serve_fail(kvcl_serve_t *serve, kvcl_status_t status, bool silent);
/** Free one that is in no queue and holds nothing. */
void          kvcl_serve_discard(kvcl_serve_t *serve);

/* serve_send.c */
/** A turn: short, so that the progress between two of them finds small requests soon. The serve may be freed on return.
 * @return frames sent. */
unsigned      kvcl_serve_advance(kvcl_serve_t *serve);
/** A short answer: gathered, checked and sent before return. @return false: it is too long for that. */
bool          kvcl_serve_answer_small(kvcl_serve_t *serve);

/* serve_lane.c */
bool          kvcl_serve_lane_wants(const kvcl_serve_t *serve);
unsigned      kvcl_serve_lane_turn(kvcl_serve_t *serve);
void          kvcl_serve_lane_stop(kvcl_serve_t *serve); /* nothing of it is read any more */
void          kvcl_serve_lane_end(kvcl_serve_t *serve, kvcl_status_t status, const int32_t *each, size_t n);

/* The room's state in a context. */
typedef struct kvcl_serve_state {
    kvcl_share_t share;
    kvcl_list_t  serves;     /* kvcl_serve_t, round robin */
    kvcl_list_t  *next;      /* inside a round: the next serve */
    unsigned     turn;       /* rounds so far */
    kvcl_mpool_t flights;    /* frames under way with their bounce buffers */
    bool         has_flights;
} kvcl_serve_state_t;

static inline kvcl_serve_state_t *kvcl_serve_state(kvcl_context_h ctx)
{
    return ctx->rooms[KVCL_ROOM_SERVE];
}

/* serve.c */
void     kvcl_serve_on_pull(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                            const void *data, size_t len);
void     kvcl_serve_on_credit(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                              const void *data, size_t len);
void     kvcl_serve_on_stop(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                            const void *data, size_t len);
void     kvcl_serve_abort(kvcl_context_h ctx, const struct kvcl_offer *offer);
void     kvcl_serve_peer_failed(kvcl_context_h ctx, kvcl_peer_t *peer);
void     kvcl_serve_lane_lost(kvcl_context_h ctx, kvcl_peer_t *peer);
void     kvcl_serve_fini(kvcl_context_h ctx);
/* serve_send.c */
unsigned kvcl_serve_poll(kvcl_context_h ctx);
/* serve_lane.c */
bool     kvcl_serve_lane_outstanding(kvcl_context_h ctx); /* could a frame leave now? */
#endif
