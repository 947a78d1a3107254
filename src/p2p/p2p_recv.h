/*
 * A recv: the request of the receiving side (p2p_recv.c), and the bytes of the matched send (p2p_take.c). Engine lock
 * held.
 */
#ifndef KVCL_P2P_P2P_RECV_H
#define KVCL_P2P_P2P_RECV_H

#include "cache/cache.h"
#include "near/near.h"
#include "p2p/layers.h"
#include "p2p/p2p_match.h"
#include "req/req.h"
#include "gate/gate.h"
#include "xfer/pull.h"

typedef struct kvcl_p2p_recv {
    kvcl_req_t         req;
    kvcl_posted_t      posted;  /* source and tag that it matches */
    kvcl_gate_t        *gate;
    kvcl_peer_waiter_t waiter;  /* at the gate */
    kvcl_cache_h       cache;   /* NULL: buf */
    kvcl_sel_t         sel;     /* owned blocks */
    void               *buf;
    uint64_t           cap;     /* bytes of the selection, or room at buf */
    kvcl_recv_info_t   *info;
    kvcl_peer_t        *from;   /* of the source; NULL: any */
    kvcl_peer_t        *peer;   /* of the matched send, or NULL */
    kvcl_pull_t        *pull;
    kvcl_near_read_t   near;    /* of the sender's own memory */
    kvcl_status_t      stopped; /* while it is busy: the status to end with */
    kvcl_msg_send_t    msg;     /* of the matched send */
    kvcl_layers_in_t   *_Atomic layers; /* of a layer-wise send, owned; NULL: not one, or not matched */
} kvcl_p2p_recv_t;

/** A matched send: copy it, or begin to pull it. The recv ends now or later; data is read before return. */
void kvcl_p2p_recv_take(kvcl_p2p_recv_t *recv, kvcl_peer_t *peer, const kvcl_msg_send_t *msg, const void *data,
                        size_t len);
/** End the recv; a matched send is sent the status. */
void kvcl_p2p_recv_finish(kvcl_p2p_recv_t *recv, kvcl_status_t status);

#endif
