/*
 * Matching (p2p_match.h): sends that arrive meet recvs that were posted.
 *
 * Owns: the recvs posted and not matched, and the sends that no recv has matched, with their bytes. These are bounded,
 * for each peer and in all; where all peers together reach the bound, the peer that holds the most loses its latest
 * sends (KVCL_ERR_NO_SPACE at the sender), so a peer that floods takes no room from one that holds little.
 * Invariants: both lists are in the order of arrival, and no send of the one matches a recv of the other. Locks: the
 * engine lock.
 */
#include "config.h"
#include "p2p/p2p.h"
#include "p2p/p2p_match.h"
#include "base/log.h"
#include "core/comm.h"
#include "near/near.h"
#include "p2p/layers.h"
#include "weave/pieces.h"

#include <stdlib.h>

enum { ARRIVED_MAX = 256 << 20, ARRIVED_PEER_MAX = 64 << 20, ARRIVED_LEAST = 1024 };

typedef struct arrived {
    kvcl_list_t     link;
    kvcl_peer_t     *peer;
    kvcl_msg_send_t msg;
    size_t          len;
    unsigned char   bytes[];
} arrived_t;

void kvcl_p2p_send_done(kvcl_peer_t *peer, uint64_t op, kvcl_status_t status)
{
    kvcl_msg_done_t out = {.msg = {.type = KVCL_MSG_SEND_DONE, .op = op}, .status = status};

    if (kvcl_peer_post(peer, &out.msg, sizeof(out), NULL, 0) != KVCL_OK) {
        kvcl_log_debug("%s has failed: the end of its send is not sent", peer->name);
    }
}

static bool matches(const kvcl_posted_t *posted, const kvcl_msg_send_t *msg)
{
    return (posted->comm == msg->comm) && ((posted->tag == msg->tag) || (posted->tag == KVCL_ANY_TAG)) &&
           ((posted->source == KVCL_ANY_SOURCE) || (posted->source == msg->source));
}

/* Bytes that a send counts: its memory, and at least as many as the search for it is worth. */
static size_t cost_of(size_t len)
{
    size_t bytes = sizeof(arrived_t) + len;

    return (bytes > ARRIVED_LEAST) ? bytes : ARRIVED_LEAST;
}

static void drop(kvcl_p2p_state_t *p2p, arrived_t *arrived)
{
    kvcl_list_del(&arrived->link);
    p2p->arrived_bytes           -= cost_of(arrived->len);
    arrived->peer->arrived_bytes -= cost_of(arrived->len);
    free(arrived);
}

/* The sender learns it; logged for the first and at each doubling, since a peer can cause as many as it likes. */
static void refuse(kvcl_peer_t *peer, uint64_t op)
{
    uint64_t n = ++peer->ctx->stats.refused;

    if ((n & (n - 1)) == 0) {
        kvcl_log_warn("no room for a send of %s that no recv waits for: it fails (%llu sends and gets refused so far)",
                      peer->name, (unsigned long long)n);
    }
    kvcl_p2p_send_done(peer, op, KVCL_ERR_NO_SPACE);
}

/* Drops the latest sends of the peer that holds the most until the new one fits. False: that would be the new one's. */
static bool make_room(kvcl_context_h ctx, kvcl_peer_t *peer, size_t bytes)
{
    kvcl_p2p_state_t *p2p = kvcl_p2p_state(ctx);
    kvcl_list_t      *at;
    kvcl_peer_t      *most;
    arrived_t        *arrived;
    uint64_t         op;
    uint32_t         i;

    while (p2p->arrived_bytes + bytes > ARRIVED_MAX) {
        most = peer;
        for (i = 0; i < ctx->peers.count; ++i) {
            most = (ctx->peers.v[i]->arrived_bytes > most->arrived_bytes) ? ctx->peers.v[i] : most;
        }
        if (most->arrived_bytes < peer->arrived_bytes + bytes) {
            return false;
        }
        for (at = p2p->arrived.prev; kvcl_container_of(at, arrived_t, link)->peer != most; at = at->prev) {
        }
        arrived = kvcl_container_of(at, arrived_t, link);
        op      = arrived->msg.msg.op;
        drop(p2p, arrived);
        refuse(most, op);
    }
    return true;
}

static void keep(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_send_t *msg, const void *data, size_t len)
{
    kvcl_p2p_state_t *p2p  = kvcl_p2p_state(ctx);
    size_t           bytes = cost_of(len);
    arrived_t        *arrived;
    bool             room  = (bytes <= ARRIVED_PEER_MAX) && (peer->arrived_bytes <= ARRIVED_PEER_MAX - bytes) &&
                             make_room(ctx, peer, bytes);

    arrived = room ? malloc(sizeof(*arrived) + len) : NULL;
    if (arrived == NULL) {
        refuse(peer, msg->msg.op);
        return;
    }
    arrived->peer = peer;
    arrived->msg  = *msg;
    arrived->len  = len;
    kvcl_copy_bytes(arrived->bytes, data, len);
    p2p->arrived_bytes  += bytes;
    peer->arrived_bytes += bytes;
    kvcl_list_add_tail(&p2p->arrived, &arrived->link);
}

/* Has its sender failed, and another process the rank by now? A recv from that rank is for the other one's sends. */
static bool is_outdated(kvcl_context_h ctx, const arrived_t *arrived)
{
    const kvcl_peer_t *now;
    kvcl_comm_h       comm;

    if (arrived->peer->state != KVCL_PEER_FAILED) {
        return false;
    }
    kvcl_list_foreach (comm, &ctx->comms, struct kvcl_comm, link) {
        if ((comm->id == arrived->msg.comm) && (arrived->msg.source >= 0) && (arrived->msg.source < comm->size)) {
            now = atomic_load_explicit(&comm->peers[arrived->msg.source], memory_order_acquire);
            return (now != NULL) && (now != arrived->peer);
        }
    }
    return false;
}

bool kvcl_match_arrived(kvcl_context_h ctx, kvcl_posted_t *posted)
{
    kvcl_p2p_state_t *p2p = kvcl_p2p_state(ctx);
    arrived_t        *arrived, *next;

    kvcl_list_foreach_safe (arrived, next, &p2p->arrived, arrived_t, link) {
        if (matches(posted, &arrived->msg) && is_outdated(ctx, arrived)) {
            drop(p2p, arrived);
        } else if (matches(posted, &arrived->msg)) {
            kvcl_list_del(&arrived->link);
            posted->matched(posted, arrived->peer, &arrived->msg, arrived->bytes, arrived->len);
            drop(p2p, arrived);
            return true;
        }
    }
    return false;
}

const kvcl_msg_send_t *kvcl_match_look(kvcl_context_h ctx, const kvcl_posted_t *posted)
{
    arrived_t *arrived;

    kvcl_assert_locked(ctx);
    kvcl_list_foreach (arrived, &kvcl_p2p_state(ctx)->arrived, arrived_t, link) {
        if (matches(posted, &arrived->msg) && !is_outdated(ctx, arrived)) {
            return &arrived->msg;
        }
    }
    return NULL;
}

void kvcl_match_post(kvcl_context_h ctx, kvcl_posted_t *posted)
{
    kvcl_list_add_tail(&kvcl_p2p_state(ctx)->recvs, &posted->link);
}

/* A payload of len bytes is of one kind, which the flags say, and whole. */
static bool fits(const kvcl_msg_send_t *in, size_t len)
{
    switch (in->msg.flags & (KVCL_SEND_EAGER | KVCL_SEND_CACHE | KVCL_SEND_LAYERS | KVCL_SEND_NEAR)) {
    case KVCL_SEND_EAGER:
        return len == in->len;
    case KVCL_SEND_CACHE:
    case KVCL_SEND_CACHE | KVCL_SEND_LAYERS:
        return (in->cache != 0) && (in->n_blocks > 0) && (in->n_blocks <= len / sizeof(uint32_t)) &&
               (len == in->n_blocks * sizeof(uint32_t));
    case KVCL_SEND_NEAR:
        return len == sizeof(kvcl_near_wire_t);
    case KVCL_SEND_LAYERS:
    case 0:
        return len == 0;
    default:
        return false;
    }
}

void kvcl_p2p_on_send(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                      size_t len)
{
    const kvcl_msg_send_t *in = (const kvcl_msg_send_t *)msg;
    kvcl_posted_t         *posted;

    (void)hdr_len;
    if (!fits(in, len)) {
        kvcl_am_malformed(ctx, peer, "a send whose payload does not fit its header");
        return;
    }
    kvcl_list_foreach (posted, &kvcl_p2p_state(ctx)->recvs, kvcl_posted_t, link) {
        if (matches(posted, in)) {
            kvcl_list_del(&posted->link);
            posted->matched(posted, peer, in, data, len);
            return;
        }
    }
    keep(ctx, peer, in, data, len);
}

/* The sender has stopped. A matched recv fails by its pull, whose offer is closed, or by
 * the count of revocations (near/near.h); a layer-wise recv may have none. */
void kvcl_p2p_on_stop(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                      size_t len)
{
    kvcl_p2p_state_t *p2p = kvcl_p2p_state(ctx);
    kvcl_layers_in_t *layers = kvcl_layers_in_find(ctx, peer, msg->op);
    arrived_t        *arrived, *next;

    (void)hdr_len;
    (void)data;
    (void)len;
    if (layers != NULL) {
        kvcl_layers_in_stop(layers, KVCL_ERR_CANCELED);
        return;
    }
    kvcl_list_foreach_safe (arrived, next, &p2p->arrived, arrived_t, link) {
        if ((arrived->peer == peer) && (arrived->msg.msg.op == msg->op)) {
            drop(p2p, arrived);
        }
    }
}

static void drop_of(kvcl_context_h ctx, const kvcl_peer_t *peer, bool eager)
{
    kvcl_p2p_state_t *p2p = kvcl_p2p_state(ctx);
    arrived_t        *arrived, *next;

    kvcl_list_foreach_safe (arrived, next, &p2p->arrived, arrived_t, link) {
        if ((arrived->peer == peer) && (eager || ((arrived->msg.msg.flags & KVCL_SEND_EAGER) == 0))) {
            drop(p2p, arrived);
        }
    }
}

/* Eager sends of a failed peer stay, until another process has its rank: their bytes have arrived. Sends whose bytes
 * must be pulled are dropped. */
void kvcl_p2p_peer_failed(kvcl_context_h ctx, kvcl_peer_t *peer)
{
    drop_of(ctx, peer, false);
}

/* All are dropped: their requests have ended at the sender, which may send them again. */
void kvcl_p2p_peer_reset(kvcl_context_h ctx, kvcl_peer_t *peer)
{
    drop_of(ctx, peer, true);
}

void kvcl_p2p_fini(kvcl_context_h ctx)
{
    kvcl_p2p_state_t *p2p = kvcl_p2p_state(ctx);
    arrived_t        *arrived, *next;

    kvcl_list_foreach_safe (arrived, next, &p2p->arrived, arrived_t, link) {
        drop(p2p, arrived);
    }
}
