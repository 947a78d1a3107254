/*
 * Pull: move a stream of bytes from a peer (blocks of its cache, its exported memory, or an offer) into local blocks or
 * a buffer. Every get, the receiving side of every put and send, every store get and collective is one.
 *
 * Steps: wait for the peer's session, wait for its cache's description, then one of
 *   copy     the remote memory is mapped in this process: slices of memcpy (copy.h)
 *   rma      native gets, a window of them, then of the generations
 *   served   PULL to the owner, which streams
 * and after the bytes the check of generations, where the caller requested it. Ends once, with on_done (if any) and the
 * completion of req; after that no byte of the destination changes.
 */
#ifndef KVCL_XFER_PULL_H
#define KVCL_XFER_PULL_H

#include "core/comm.h"
#include "cache/cache.h"
#include "req/req.h"
#include "xfer/copy.h"
#include "gate/gate.h"
#include "kv/pieces.h"
#include "native/rma_gens.h"
#include "xfer/xfer_wire.h"
#include <kvcl/kvcl_xfer.h>

typedef enum { KVCL_PULL_NEW, KVCL_PULL_PEER, KVCL_PULL_CACHE, KVCL_PULL_COPY, KVCL_PULL_RMA, KVCL_PULL_SERVED,
               KVCL_PULL_OVER } kvcl_pull_state_t;

typedef struct kvcl_pull kvcl_pull_t;
struct kvcl_pull {
    kvcl_req_t           req;
    kvcl_pull_state_t    state;
    kvcl_peer_t          *peer;
    /* The source: filled by the poster. */
    uint8_t              from;        /* KVCL_FROM_* */
    bool                 push;        /* reversed: local to remote; copy and rma only */
    bool                 background;  /* of the lower class */
    uint8_t              op;          /* kvcl_latency_op_t that it is recorded as; 0: none */
    bool                 need_direct; /* with push: end with KVCL_ERR_UNSUPPORTED rather than be served */
    char                 cache_name[KVCL_CACHE_NAME_MAX + 1]; /* FROM_CACHE: by name (name_key), or by id */
    uint64_t             name_key;
    uint32_t             cache_id;
    kvcl_sel_t           remote;      /* its blocks: owned copy, as is gens */
    uint32_t             *gens;       /* expected generation of each block, NULL: not checked */
    uint64_t             *sums;       /* FROM_CACHE, given by the poster: room for one a block; NULL: not wanted */
    bool                 summed;      /* in on_done: sums has the sum of each block's bytes at the destination */
    kvcl_rregion_t       *rregion;    /* FROM_REGION; alive until done */
    uint64_t             offset;
    uint64_t             offer;       /* FROM_OFFER; with FROM_CACHE: what to pull if the cache is not mapped here */
    uint64_t             range_from;  /* FROM_CACHE, FROM_OFFER: offset of the total bytes to move, the same in the
                                         remote and the local stream */
    bool                 ranged;
    bool                 guarded;     /* FROM_CACHE with an offer: after a mapped copy revoked is compared */
    uint64_t             revoked;     /* the owner's revocation count: if it differs then, the offer is pulled */
    /* The destination. */
    kvcl_cache_h         cache;       /* NULL: buf */
    kvcl_sel_t           local;       /* owned copy of blocks */
    void                 *buf;
    kvcl_pieces_t        *near;       /* in place of buf: addresses; NULL: none */
    kvcl_pieces_t        *far;        /* FROM_REGION, in place of offset: offsets in the region; NULL: none */
    bool                 owns_pieces; /* else they are the poster's, until on_done has returned */
    uint32_t             unit;        /* FROM_OFFER, in tokens: the unit of the stream; 0: the owner's own blocks */
    kvcl_copier_t        *buf_copier; /* of buf or near, where that is a registered device's */
    uint64_t             total;       /* bytes */
    kvcl_status_t        *status;     /* one a block of remote, given by the poster; NULL: none */
    void                 (*on_done)(kvcl_pull_t *pull, kvcl_status_t status); /* lock held */
    void                 *arg;        /* the poster's */
    kvcl_comm_self_t     self;        /* of a user's get: for its notification */
    /* Inside. */
    kvcl_rcache_t        *rcache;
    kvcl_stream_t        dst;         /* served */
    uint64_t             received;
    unsigned             uncredited;
    bool                 ended;       /* served: a successful end has arrived, before the last bytes */
    bool                 by_lane;     /* served, and its bytes may arrive by the peer's lane */
    bool                 quick;       /* counted in the peer's answers_due */
    bool                 any_failed;  /* a block's check failed */
    bool                 requested_again; /* the cache's description was stale, and was requested again */
    bool                 fresh;       /* the cache was described for this pull */
    bool                 lost;        /* rma: the link was lost; it begins again when its operations have ended */
    kvcl_gate_t          *gate;       /* owned; NULL: none to wait at */
    kvcl_peer_waiter_t   peer_waiter;
    kvcl_rcache_waiter_t rcache_waiter;
    kvcl_copy_t          copy;
    struct kvcl_rma_job  *rma;
    kvcl_rma_gens_t      far_gens;    /* rma, where the owner's generations are not mapped: read after the bytes */
};

/** A zeroed pull, to be filled; kvcl_pull_start owns it from success on, kvcl_pull_discard frees it before. */
kvcl_pull_t  *kvcl_pull_new(void);
void          kvcl_pull_discard(kvcl_pull_t *pull);
/** Own copies of block lists. */
kvcl_status_t kvcl_pull_set_remote(kvcl_pull_t *pull, const kvcl_sel_t *sel) KVCL_MUST_CHECK;
kvcl_status_t kvcl_pull_set_local(kvcl_pull_t *pull, kvcl_cache_h cache, const kvcl_sel_t *sel) KVCL_MUST_CHECK;

/**
 * Lock held. Start a user's get: the request is the user's, as kvcl_req_post() makes it.
 * @return KVCL_OK: it ends later, or has ended inside this call (on_done too); or an error: nothing was done, the pull
 *         is still the caller's.
 */
kvcl_status_t kvcl_pull_post(kvcl_context_h ctx, kvcl_pull_t *pull, const kvcl_xfer_params_t *p, kvcl_req_h *req_p)
    KVCL_MUST_CHECK;
/** The same for a part of the operation behind on_done: no user has the request; the pull is freed after on_done. */
static inline kvcl_status_t kvcl_pull_start(kvcl_context_h ctx, kvcl_pull_t *pull, uint64_t timeout_ns)
{
    const kvcl_xfer_params_t p = {.size = sizeof(p), .timeout_ns = timeout_ns};

    kvcl_assert_locked(ctx);
    return kvcl_pull_post(ctx, pull, &p, NULL);
}
/** Lock not held: a get of the user's, with its notification. Takes the pull, and the gate (NULL: none), always. */
kvcl_status_t kvcl_get_begin(kvcl_context_h ctx, kvcl_pull_t *pull, kvcl_gate_t *gate, const kvcl_xfer_params_t *p,
                             kvcl_req_h *req_p) KVCL_MUST_CHECK;
/** Lock held: end it with status, now or when its operations in flight have ended. */
void          kvcl_pull_stop(kvcl_pull_t *pull, kvcl_status_t status);

/* Between the files of a pull. Engine lock held. */
kvcl_pull_t *kvcl_pull_find(kvcl_context_h ctx, uint64_t op);
kvcl_pull_t *kvcl_pull_of(kvcl_req_t *req); /* NULL: it is another kind of request */
void         kvcl_pull_finish(kvcl_pull_t *pull, kvcl_status_t status);
void         kvcl_pull_all_here(kvcl_pull_t *pull);
void         kvcl_pull_fail_block(kvcl_pull_t *pull, size_t i, kvcl_status_t status);
/** The link to the peer was lost. False: it cannot begin again. */
bool         kvcl_pull_again(kvcl_pull_t *pull);
void         kvcl_pull_begin_again(kvcl_pull_t *pull); /* its bytes so far do not count */
void         kvcl_pull_step(kvcl_pull_t *pull);        /* from the wait for the peer's session on */
/** The peer's cache is not the one that it described: begin again, once. False: that was done already. */
bool         kvcl_pull_try_again(kvcl_pull_t *pull);

/* pull_ends.c */
/** The peer's cache is described: do the selections match? The error sentence has the sizes. */
kvcl_status_t kvcl_pull_check(kvcl_pull_t *pull) KVCL_MUST_CHECK;
/** Pair the runs of local and remote; remote addresses are mapped ones, or the owner's. */
kvcl_status_t kvcl_pull_runs(kvcl_pull_t *pull, kvcl_runs_t *runs) KVCL_MUST_CHECK;
/** As kvcl_pull_runs() for pull->copy, the remote cache mapped; with sums, if they are wanted and one pass suffices. */
kvcl_status_t kvcl_pull_copy_runs(kvcl_pull_t *pull) KVCL_MUST_CHECK;
void          kvcl_pull_local_stream(const kvcl_pull_t *pull, uint32_t order, uint32_t unit, kvcl_stream_t *stream);

/** All bytes are here. A block whose generation is another one by now has failed with KVCL_ERR_STALE. */
void          kvcl_pull_check_gens(kvcl_pull_t *pull);

/* pull_served.c */
/** Let the owner serve it. */
void kvcl_pull_request(kvcl_pull_t *pull);

/* Native gets and puts of a pull that is not mapped (rma.c). Lock held; ends with kvcl_pull_bytes_done(). */
bool          kvcl_rma_same_kind(const kvcl_pull_t *pull);
/** KVCL_ERR_UNSUPPORTED, without a sentence: let the owner serve it. */
kvcl_status_t kvcl_rma_start(kvcl_pull_t *pull, const kvcl_runs_t *runs) KVCL_MUST_CHECK;
void          kvcl_rma_stop(kvcl_pull_t *pull, kvcl_status_t status);
bool          kvcl_rma_stopped(const kvcl_pull_t *pull);
/** The region whose control word says whether the pull's bytes are still valid at the owner. */
kvcl_rregion_t *kvcl_pull_witness(kvcl_pull_t *pull);
/** live: the witness was still valid after the last byte. */
void          kvcl_pull_bytes_done(kvcl_pull_t *pull, kvcl_status_t status, bool live);
/** A native get or put failed: let the owner serve it, which also reports the reason. */
void          kvcl_pull_rma_failed(kvcl_pull_t *pull, kvcl_status_t status);

void kvcl_pull_on_data(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                       size_t len);
void kvcl_pull_on_done(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                       size_t len);

#endif
