/*
 * Lost links. Over some transports (xport_ops links) a failed endpoint means that its path has failed; the peer may be
 * alive. It is reached again over another pair (peer_pairs.c), as the same peer, in its next session. Without such a
 * pair the peer has failed.
 *
 * All operations of the old session end. A request begins again if its class can (again), all others end with
 * KVCL_ERR_UNREACHABLE, and rooms drop the state that they keep for the peer (peer_reset). The tokens of the old
 * session are void: its late messages are dropped as those of strangers. The other side does the same when its own
 * endpoint fails, or when a PROOF of a higher session arrives, whichever is first (peer.h).
 *
 * Owns: kvcl_peer_t.relink, from the loss of a link until the peer is ready or has failed. Invariants: a peer that no
 * pair reaches within two intervals of KVCL_KEEPALIVE (after heal.c: of KVCL_DEAD, if that is longer) has failed; once
 * this rank has sent BYE to the peer, or its context closes, a lost link is not replaced; after SESSIONS in a row, a
 * session begins at most every SESSION_NS, however often links fail or peers prove themselves. Locks: the engine lock.
 */
#include "config.h"
#include "core/peer.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "core/bundle.h"
#include "core/context.h"
#include "link/heal.h"
#include "req/req.h"

#include <stdlib.h>
#include <string.h>

enum { SESSIONS = 8 };
#define SESSION_NS (20 * KVCL_NS_PER_MS)

typedef struct kvcl_relink {
    kvcl_req_t  req;      /* its deadline: when the next pair is tried */
    kvcl_peer_t *peer;
    uint64_t    until_ns; /* the time at which the peer has failed */
    uint64_t    share_ns; /* the time that each pair has to answer */
    uint64_t    rest_ns;  /* the pause before the next round, if all pairs have failed at once */
    unsigned    pairs;
    unsigned    tries;    /* pairs tried in this round */
} kvcl_relink_t;

/* ---- how often ---- */

/* How long one more session has to wait. */
static uint64_t session_wait(const kvcl_peer_t *peer, uint64_t now)
{
    uint64_t free_ns = now + (SESSIONS * SESSION_NS);

    return (peer->sessions_ns > free_ns) ? peer->sessions_ns - free_ns : 0;
}

static void count_session(kvcl_peer_t *peer, uint64_t now)
{
    peer->sessions_ns = ((peer->sessions_ns > now) ? peer->sessions_ns : now) + SESSION_NS;
}

/* ---- the end of a session ---- */

static void end_requests(kvcl_peer_t *peer)
{
    kvcl_list_t reqs, *link;
    kvcl_req_t  *req;

    kvcl_list_init(&reqs);
    kvcl_list_splice_tail(&reqs, &peer->reqs); /* those that begin again watch the peer again */
    while ((link = kvcl_list_pop(&reqs)) != NULL) {
        req = kvcl_container_of(link, kvcl_req_t, peer_link);
        if ((req->cls->again == NULL) || !req->cls->again(req)) {
            req->cls->stop(req, KVCL_ERR_UNREACHABLE);
        }
    }
}

/* Messages by a handshake are dropped from now on, and none makes the peer ready. */
static void void_tokens(kvcl_peer_t *peer)
{
    peer->next_token = 0;
    memset(peer->in_tokens, 0, sizeof(peer->in_tokens));
}

/* READY -> CONNECTING, without an endpoint. */
static void end_session(kvcl_peer_t *peer)
{
    kvcl_context_h ctx = peer->ctx;
    unsigned       i;

    peer->state     = KVCL_PEER_CONNECTING;
    peer->out_token = 0;
    peer->unsent    = false;
    void_tokens(peer);
    memset(peer->nonce, 0, sizeof(peer->nonce)); /* a handshake that is half done is void */
    kvcl_bundle_flush(peer);                     /* drops the messages that wait */
    end_requests(peer);
    for (i = 0; i < ctx->n_rooms; ++i) {
        if (kvcl_rooms[i]->peer_reset != NULL) {
            kvcl_rooms[i]->peer_reset(ctx, ctx->rooms[i], peer);
        }
    }
    kvcl_peer_drop_ep(peer);
}

/* ---- the search for a pair ---- */

/* Sends HELLO over the next pair that accepts it. */
static void try_pairs(kvcl_relink_t *relink)
{
    kvcl_peer_t *peer = relink->peer;
    uint64_t    next_ns;

    kvcl_peer_drop_ep(peer);
    void_tokens(peer);
    for (; relink->tries < relink->pairs; ++relink->tries) {
        if (kvcl_peer_next_ep(peer) == KVCL_OK) {
            ++peer->session;
            if (kvcl_peer_hello(peer) == KVCL_OK) {
                break;
            }
            kvcl_peer_drop_ep(peer);
        }
    }
    next_ns       = kvcl_deadline_after((relink->tries < relink->pairs) ? relink->share_ns : relink->rest_ns);
    relink->tries = (relink->tries < relink->pairs) ? relink->tries + 1 : 0;
    if (!kvcl_req_stop_again(&relink->req, (next_ns < relink->until_ns) ? next_ns : relink->until_ns)) {
        kvcl_peer_fail(peer, KVCL_ERR_RANK_FAILED);
    }
}

/* The deadline has passed: the next pair is tried. Any other status: the context closes. */
static void on_time(kvcl_req_t *req, kvcl_status_t status)
{
    kvcl_relink_t *relink = kvcl_container_of(req, kvcl_relink_t, req);

    if (status != KVCL_ERR_TIMED_OUT) {
        kvcl_peer_fail(relink->peer, status);
    } else if (kvcl_deadline_passed(relink->until_ns)) {
        kvcl_peer_fail(relink->peer, KVCL_ERR_RANK_FAILED);
    } else {
        relink->tries = (relink->tries < relink->pairs) ? relink->tries : 0;
        try_pairs(relink);
    }
}

static const kvcl_req_class_t relink_class = {.name = "relink", .stop = on_time};

/* How long a peer is searched. One of this host, which may only be stopped, is a member until KVCL_DEAD is over. */
static uint64_t search_ns(const kvcl_peer_t *peer)
{
    const kvcl_config_t *config = &peer->ctx->config;

    return 2 * ((peer->anew && (config->dead_ns > config->keepalive_ns)) ? config->dead_ns : config->keepalive_ns);
}

/* The peer is CONNECTING and has no endpoint. */
static void search(kvcl_peer_t *peer)
{
    kvcl_context_h ctx     = peer->ctx;
    uint64_t       now     = kvcl_now_ns(), wait_ns = session_wait(peer, now), all_ns = search_ns(peer);
    unsigned       pairs   = kvcl_peer_pairs_left(peer, true), good = kvcl_peer_pairs_left(peer, false);
    kvcl_relink_t  *relink = calloc(1, sizeof(*relink));

    count_session(peer, now);
    if ((relink == NULL) || (pairs == 0) || (peer->session > UINT32_MAX / 2) ||
        (kvcl_req_start(&relink->req, ctx, &relink_class, all_ns, NULL, NULL, false) != KVCL_OK)) {
        free(relink);
        kvcl_peer_fail(peer, KVCL_ERR_RANK_FAILED);
        return;
    }
    relink->peer     = peer;
    relink->pairs    = pairs;
    relink->share_ns = peer->anew ? all_ns /* one endpoint: it must not be closed while UCX connects it */
                                  : all_ns / (((good > 0) ? good : pairs) + 1); /* the first may be tried twice */
    relink->rest_ns  = all_ns / 16;
    relink->until_ns = now + wait_ns + all_ns;
    peer->relink      = relink;
    peer->round_tried = 0;
    if (wait_ns == 0) {
        try_pairs(relink);
    } else if (!kvcl_req_stop_again(&relink->req, now + wait_ns)) {
        kvcl_peer_fail(peer, KVCL_ERR_RANK_FAILED);
    }
}

/* The pair works: its handshake gets a share of its own, and half of the time that is left, where that is more. */
static void answered(kvcl_peer_t *peer)
{
    kvcl_relink_t *relink = peer->relink;
    uint64_t      now     = kvcl_now_ns(), left_ns, more_ns;

    if (relink == NULL) {
        return;
    }
    left_ns = (relink->until_ns > now) ? relink->until_ns - now : 0;
    more_ns = (left_ns / 2 > relink->share_ns) ? left_ns / 2 : relink->share_ns;
    if (!kvcl_req_stop_again(&relink->req, now + ((more_ns < left_ns) ? more_ns : left_ns))) {
        kvcl_peer_fail(peer, KVCL_ERR_RANK_FAILED);
    }
}

static void over(kvcl_peer_t *peer)
{
    kvcl_relink_t *relink = peer->relink;
    char          path[128];

    peer->relink = NULL;
    if (relink == NULL) {
        return;
    }
    if (peer->state == KVCL_PEER_READY) {
        peer->ops->ep_describe(peer->ep, path, sizeof(path));
        kvcl_log_info("%s: it is reached again over %s", peer->name, path);
    } else {
        kvcl_log_info("%s: it is not reached again", peer->name);
    }
    kvcl_req_complete(&relink->req, KVCL_OK);
}

static void log_loss(kvcl_peer_t *peer)
{
    char path[128];

    peer->ops->ep_describe(peer->ep, path, sizeof(path));
    kvcl_log_at(peer->ctx->peers.lost_links++ == 0 ? KVCL_LOG_WARN : KVCL_LOG_INFO,
                "%s: its connection over %s is lost: trying the next path", peer->name, path);
}

static bool lost(kvcl_peer_t *peer)
{
    kvcl_assert_locked(peer->ctx);
    if ((peer->state == KVCL_PEER_CONNECTING) && (peer->relink != NULL)) {
        try_pairs(peer->relink);
        return true;
    }
    if ((peer->state != KVCL_PEER_READY) || !kvcl_peer_has_link(peer)) {
        return false;
    }
    log_loss(peer);
    end_session(peer);
    if (peer->state == KVCL_PEER_CONNECTING) {
        search(peer);
    }
    return true;
}

/* ---- the other side has lost the link ---- */

/* From the first pair on, over an address that may be another one. */
static void search_again(kvcl_peer_t *peer)
{
    peer->round_tried   = 0;
    peer->relink->tries = 0;
    try_pairs(peer->relink);
}

void kvcl_link_anew(kvcl_peer_t *peer, const void *address, size_t len)
{
    kvcl_assert_locked(peer->ctx);
    if (peer->parting || (peer->ep == NULL)) {
        return;
    }
    peer->anew = true;
    if (peer->relink == NULL) { /* READY, or in its first handshake */
        log_loss(peer);
        end_session(peer);
    }
    if ((peer->state == KVCL_PEER_CONNECTING) && (kvcl_link_take_address(peer, address, len) != KVCL_OK)) {
        kvcl_peer_fail(peer, KVCL_ERR_RANK_FAILED);
    }
    if ((peer->state == KVCL_PEER_CONNECTING) && (peer->relink != NULL)) {
        search_again(peer);
    } else if (peer->state == KVCL_PEER_CONNECTING) {
        search(peer);
    }
}

static void try_at(kvcl_peer_t *peer, const void *address, size_t len)
{
    kvcl_assert_locked(peer->ctx);
    if ((peer->state != KVCL_PEER_CONNECTING) || !kvcl_link_is_news(peer, address, len)) {
        return;
    }
    if (peer->relink == NULL) { /* its first handshake */
        kvcl_link_anew(peer, address, len);
        return;
    }
    if (kvcl_link_take_address(peer, address, len) != KVCL_OK) {
        kvcl_log_debug("%s", kvcl_last_error());
        return;
    }
    search_again(peer);
}

static bool session_may(kvcl_peer_t *peer, uint32_t session)
{
    kvcl_assert_locked(peer->ctx);
    if ((peer->state != KVCL_PEER_READY) || (session == peer->session)) {
        return true;
    }
    return (session > peer->session) && !peer->parting && (session_wait(peer, kvcl_now_ns()) == 0);
}

static kvcl_status_t take_session(kvcl_peer_t *peer, kvcl_xport_t *xport, unsigned part, uint32_t session,
                                  const void *address, size_t len)
{
    bool          higher = (session > peer->session), behind = (peer->state == KVCL_PEER_READY) && higher;
    kvcl_status_t status = behind ? kvcl_peer_check_pair(peer, xport, part) : KVCL_OK;

    if (status != KVCL_OK) {
        return status;
    }
    if (behind) {
        kvcl_log_info("%s has lost its connection and made another", peer->name);
        ++peer->ctx->peers.lost_links;
        count_session(peer, kvcl_now_ns());
        if ((peer->ep->xport == xport) && (peer->part == part)) {
            peer->ep->settled = false; /* over RDMA it is kept, and used again at once */
        }
        end_session(peer);
    }
    if (peer->state == KVCL_PEER_FAILED) { /* by what ended with the session */
        return kvcl_fail(KVCL_ERR_RANK_FAILED, "%s has failed", peer->name);
    }
    peer->session = higher ? session : peer->session;
    if (peer->state != KVCL_PEER_READY) {
        status = kvcl_link_take_address(peer, address, len);
    }
    if (status == KVCL_OK) { /* with a higher session it has given others up */
        status = kvcl_peer_make_ep_back(peer, xport, part, !higher);
    }
    if (behind && (status != KVCL_OK)) {
        peer->anew = peer->anew || (part == KVCL_ADDRESS_UCX); /* by the other queue: it is opened again later */
        search(peer);
    }
    return status;
}

extern const kvcl_link_ops_t kvcl_link_ops;
const kvcl_link_ops_t kvcl_link_ops = {.lost = lost, .over = over, .answered = answered, .session_may = session_may,
                                       .take_session = take_session, .is_deaf = kvcl_link_is_deaf,
                                       .heal = kvcl_link_heal, .try_at = try_at,
                                       .forget = kvcl_link_forget};
