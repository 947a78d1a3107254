/*
 * A serve: one pull at its owner. Requests and messages are in serve.c, checks in serve_check.c, sending in
 * serve_send.c and serve_lane.c, the end in serve_end.c. Engine lock held everywhere.
 */
#ifndef KVCL_SERVE_SERVE_H
#define KVCL_SERVE_SERVE_H

#include "cache/cache.h"
#include "kv/pieces.h"
#include "mem/region.h"
#include "serve/serve_peer.h"
#include "xfer/offer.h"
#include "base/mpool.h"
#include "xfer/share.h"
#include "xfer/xfer.h"
#include "xfer/xfer_wire.h"

enum { KVCL_SERVE_TURN = 256 * 1024 }; /* bytes */

typedef struct kvcl_serve {
    kvcl_list_t        link;  /* kvcl_serve_state_t.serves or, while it waits, kvcl_serve_peer_t.waiting */
    kvcl_list_t        all;   /* kvcl_serve_state_t.all */
    size_t             held;  /* bytes of its memory */
    bool               waits; /* it has no turns yet */
    kvcl_context_h     ctx;
    kvcl_peer_t        *peer;
    uint64_t           op;    /* the puller's */
    kvcl_stream_t      stream;
    uint64_t           pos, total;
    size_t             frame;
    unsigned           credits;
    unsigned           in_flight;
    unsigned           turn;  /* its last one, see kvcl_serve_state_t.turn */
    kvcl_status_t      status;    /* not OK: it sends no more frames, then reports this */
    bool               background; /* of the lower class */
    bool               straight;  /* a frame was sent in place */
    bool               by_lane;   /* frames and end go by the peer's lane */
    bool               silent;    /* no further message is sent to the puller */
    kvcl_region_t      *region;   /* the memory held while it is read: region, cache or offer */
    kvcl_region_user_t user;  /* of the region or the cache */
    kvcl_cache_h       cache;
    kvcl_offer_t       *offer;
    uint32_t           *ids;  /* owned: n block ids, then n generations if has_gens */
    kvcl_pieces_t      *pieces; /* owned: of the region; NULL: none */
    size_t             n;
    bool               has_gens;
} kvcl_serve_t;

/** Checks the request; sets the stream and the memory to read. KVCL_ERR_*: refused. */
kvcl_status_t kvcl_serve_check(kvcl_serve_t *serve, const kvcl_msg_pull_t *in, const void *data, size_t len)
    KVCL_MUST_CHECK;

/* serve_end.c */
/** by 1: hold the memory that the serve reads; by -1: release it. */
void          kvcl_serve_hold(kvcl_serve_t *serve, int by);
/** Do the blocks still have the requested generations? each: one status per block, or NULL. @return whether all do. */
bool          kvcl_serve_gens_hold(const kvcl_serve_t *serve, int32_t *each);
/** PULL_DONE, with n statuses of blocks. */
void          kvcl_serve_answer(kvcl_peer_t *peer, uint64_t op, kvcl_status_t status, const int32_t *each, size_t n);
/** Sends the puller the serve's status, or that of each block. */
void          kvcl_serve_report_end(kvcl_serve_t *serve);
/** End it if no frame is in flight and all bytes were sent, or it failed. */
void          kvcl_serve_end_if_over(kvcl_serve_t *serve);
/** It sends no more, and ends with this status; silent: its puller is sent nothing. It may be freed on return. */
void          kvcl_serve_fail(kvcl_serve_t *serve, kvcl_status_t status, bool silent);
/** Free a serve that is in no queue and holds no memory. */
void          kvcl_serve_discard(kvcl_serve_t *serve);

/* serve_send.c */
/** A turn: short, so that small requests are received soon, between two turns. The serve may be freed on return.
 * @return frames sent. */
unsigned      kvcl_serve_advance(kvcl_serve_t *serve);
/** A short answer: gathered, checked and sent before return. @return false: too long. */
bool          kvcl_serve_answer_small(kvcl_serve_t *serve);

/* serve_lane.c */
bool          kvcl_serve_lane_wants(const kvcl_serve_t *serve);
unsigned      kvcl_serve_lane_turn(kvcl_serve_t *serve);
void          kvcl_serve_lane_stop(kvcl_serve_t *serve); /* no byte of it is read after that */
void          kvcl_serve_lane_end(kvcl_serve_t *serve, kvcl_status_t status, const int32_t *each, size_t n);

/* The room's state in a context. */
typedef struct kvcl_serve_state {
    kvcl_share_t share;
    kvcl_list_t  serves;     /* kvcl_serve_t, round robin */
    kvcl_list_t  all;        /* these, and those that wait */
    bool         activated;  /* one that waited has turns since the last poll */
    kvcl_list_t  *next;      /* inside a round: the next serve */
    unsigned     turn;       /* rounds so far */
    kvcl_mpool_t flights;    /* frames in flight with their bounce buffers */
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
bool     kvcl_serve_lane_outstanding(kvcl_context_h ctx); /* can a frame be sent now? */
#endif
