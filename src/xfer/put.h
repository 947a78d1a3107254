/*
 * A put: a request of the putting side, whose calls are in put.c and whose steps are in put_run.c.
 *
 * It tries to write directly (a reversed pull: mapped copy or native RMA). Where the peer's memory cannot be reached,
 * it announces itself with PUT and either carries the bytes (eager) or offers them; the owner pulls. The signal is
 * always added by the owner, on a message that follows the bytes, so that its waiters wake.
 */
#ifndef KVCL_XFER_PUT_H
#define KVCL_XFER_PUT_H

#include "cache/cache.h"
#include "mem/rmem.h"
#include "req/req.h"
#include "gate/gate.h"
#include "xfer/offer.h"
#include "xfer/pull.h"
#include <kvcl/kvcl_xfer.h>

typedef struct kvcl_put {
    kvcl_req_t     req;
    kvcl_peer_t    *peer;
    kvcl_pull_t    *direct;    /* the reversed pull in progress, or NULL */
    kvcl_offer_t   offer;
    bool           offered;
    kvcl_status_t  final;      /* its status, while the offer closes */
    kvcl_cache_h   cache;      /* NULL: bytes */
    kvcl_sel_t     local;      /* owned blocks, as remote's */
    kvcl_sel_t     remote;
    char           name[KVCL_CACHE_NAME_MAX + 1];
    uint64_t       name_key;
    bool           requested_again;
    bool           background;
    kvcl_rmem_h    rmem;
    uint64_t       offset;
    const void     *buf;
    kvcl_pieces_t  *near, *far; /* owned: in place of buf and offset; NULL: none */
    kvcl_copier_t  *copier;    /* of near */
    uint64_t       total;
    kvcl_rmem_h    signal_mem; /* alive until completion, as all handles */
    uint64_t       signal_offset, signal_add;
    kvcl_status_t  *status;
    size_t         n_status;
    kvcl_comm_self_t self;      /* for its notification */
    void           (*on_done)(struct kvcl_put *put, kvcl_status_t status); /* lock held; NULL: none */
    void           *arg;
} kvcl_put_t;

/**
 * No lock held. Starts a put whose peer, ends and total the caller has filled in; takes it, and the gate (NULL: none),
 * also on failure. @return KVCL_OK, KVCL_ERR_NO_MEMORY.
 */
kvcl_status_t kvcl_put_begin(kvcl_context_h ctx, kvcl_put_t *put, kvcl_gate_t *gate, const kvcl_xfer_params_t *p,
                             kvcl_req_h *req_p) KVCL_MUST_CHECK;
/** Lock held: the put that kvcl_put_begin prepared; p, req_p: as kvcl_req_post. On failure it is the caller's. */
kvcl_status_t kvcl_put_start(kvcl_context_h ctx, kvcl_put_t *put, const kvcl_xfer_params_t *p, kvcl_req_h *req_p)
    KVCL_MUST_CHECK;
/** Frees a put that was not started. */
void          kvcl_put_discard(kvcl_put_t *put);

#endif
