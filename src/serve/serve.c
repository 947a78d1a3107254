/*
 * Serving: the owner's side of a pull, from its request to its end: the handlers of peers' messages and failures.
 *
 * serve_peer.c bounds what a peer may request, serve_check.c decides whether the peer may have the bytes, serve_send.c
 * sends them, serve_end.c ends a serve. While a serve reads memory, its region, cache or offer counts it and cannot be
 * freed. Locks: the engine lock, everywhere.
 */
#include "config.h"
#include "cache/cache.h"
#include "lane/lane.h"
#include "xfer/offer.h"
#include "serve/serve.h"

#include <stdlib.h>

static void revoked(kvcl_region_user_t *user)
{
    kvcl_serve_fail(kvcl_container_of(user, kvcl_serve_t, user), KVCL_ERR_ACCESS, false);
}

static void cache_closing(kvcl_region_user_t *user)
{
    kvcl_serve_fail(kvcl_container_of(user, kvcl_serve_t, user), KVCL_ERR_NOT_REGISTERED, false);
}

void kvcl_serve_on_pull(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                        size_t len)
{
    const kvcl_msg_pull_t *in    = (const kvcl_msg_pull_t *)msg;
    const size_t          held   = sizeof(kvcl_serve_t) + len;
    kvcl_serve_t          *serve = NULL;
    kvcl_status_t         status;

    (void)hdr_len;
    if ((kvcl_serve_peer(peer) != NULL) && !kvcl_serve_peer_may(peer, held)) {
        kvcl_serve_answer(peer, msg->op, KVCL_ERR_NO_SPACE, NULL, 0);
        return;
    }
    serve = (peer->serves != NULL) ? calloc(1, sizeof(*serve)) : NULL;
    if (serve == NULL) {
        kvcl_serve_answer(peer, msg->op, KVCL_ERR_NO_MEMORY, NULL, 0);
        return;
    }
    kvcl_list_init(&serve->link);
    serve->held         = held;
    serve->ctx          = ctx;
    serve->peer         = peer;
    serve->user.peer    = peer;
    serve->op           = msg->op;
    serve->total        = in->len;
    serve->frame        = kvcl_context_frame(ctx, peer);
    serve->background   = (msg->flags & KVCL_PULL_BACKGROUND) != 0;
    serve->credits      = ((in->window == 0) || (in->window > 1024)) ? 1 : in->window;
    status              = kvcl_serve_check(serve, in, data, len);
    serve->user.revoked = (serve->cache != NULL) ? cache_closing : revoked;
    if (status != KVCL_OK) {
        if (status == KVCL_ERR_PROTOCOL) {
            kvcl_am_malformed(ctx, peer, "a pull with an invalid source, blocks or length");
        }
        kvcl_serve_answer(peer, msg->op, status, NULL, 0);
        kvcl_serve_discard(serve);
        return;
    }
    if (kvcl_serve_answer_small(serve)) {
        kvcl_serve_discard(serve);
        return;
    }
    serve->by_lane = (msg->flags & KVCL_PULL_LANE) && (kvcl_lane_out(peer) != NULL) &&
                     kvcl_pull_lane_suits(ctx, &serve->stream);
    kvcl_serve_hold(serve, 1);
    kvcl_serve_peer_enter(serve);
    if (!serve->background && !serve->waits) {
        (void)kvcl_serve_advance(serve);
    }
}

/* One that takes turns. */
static kvcl_serve_t *find(kvcl_context_h ctx, const kvcl_peer_t *peer, uint64_t op)
{
    kvcl_serve_t *serve;

    kvcl_list_foreach (serve, &kvcl_serve_state(ctx)->serves, kvcl_serve_t, link) {
        if ((serve->peer == peer) && (serve->op == op)) {
            return serve;
        }
    }
    return NULL;
}

static kvcl_serve_t *find_waiting(const kvcl_peer_t *peer, uint64_t op)
{
    kvcl_serve_t *serve;

    if (peer->serves != NULL) {
        kvcl_list_foreach (serve, &peer->serves->waiting, kvcl_serve_t, link) {
            if (serve->op == op) {
                return serve;
            }
        }
    }
    return NULL;
}

void kvcl_serve_on_credit(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                          const void *data, size_t len)
{
    kvcl_serve_t *serve = find(ctx, peer, msg->op);

    (void)hdr_len;
    (void)data;
    (void)len;
    if (serve != NULL) { /* else all bytes have been sent */
        uint32_t frames = ((const kvcl_msg_credit_t *)msg)->frames;
        serve->credits += (frames > 1024) ? 1024 : frames;
        serve->credits  = (serve->credits > 1024) ? 1024 : serve->credits;
    }
}

void kvcl_serve_on_stop(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                        const void *data, size_t len)
{
    kvcl_serve_t *serve = find(ctx, peer, msg->op);

    (void)hdr_len;
    (void)data;
    (void)len;
    serve = (serve != NULL) ? serve : find_waiting(peer, msg->op);
    if (serve != NULL) {
        kvcl_serve_fail(serve, KVCL_ERR_CANCELED, true);
    }
}

/* The end of one may end others: the search starts from the first each time. */
static kvcl_serve_t *first_alive(kvcl_context_h ctx, const kvcl_peer_t *peer, const kvcl_offer_t *offer, bool lane_only)
{
    kvcl_serve_t *serve;

    kvcl_list_foreach (serve, &kvcl_serve_state(ctx)->all, kvcl_serve_t, all) {
        if ((serve->status == KVCL_OK) && ((peer == NULL) || (serve->peer == peer)) &&
            ((offer == NULL) || (serve->offer == offer)) && (serve->by_lane || !lane_only)) {
            return serve;
        }
    }
    return NULL;
}

void kvcl_serve_abort(kvcl_context_h ctx, const kvcl_offer_t *offer)
{
    kvcl_serve_t *serve;

    while ((serve = first_alive(ctx, NULL, offer, false)) != NULL) {
        kvcl_serve_fail(serve, KVCL_ERR_CANCELED, false);
    }
}

static void fail_all(kvcl_context_h ctx, const kvcl_peer_t *peer, bool lane_only)
{
    kvcl_serve_t *serve;

    while ((serve = first_alive(ctx, peer, NULL, lane_only)) != NULL) {
        kvcl_serve_fail(serve, KVCL_ERR_RANK_FAILED, true);
    }
}

void kvcl_serve_peer_failed(kvcl_context_h ctx, kvcl_peer_t *peer)
{
    fail_all(ctx, peer, false);
}

/* The puller requests the bytes again, or has all of them. */
void kvcl_serve_lane_lost(kvcl_context_h ctx, kvcl_peer_t *peer)
{
    fail_all(ctx, peer, true);
}

void kvcl_serve_fini(kvcl_context_h ctx)
{
    kvcl_serve_state_t *state = kvcl_serve_state(ctx);
    kvcl_list_t        *link;

    while ((link = kvcl_list_pop(&state->all)) != NULL) {
        kvcl_serve_t *serve = kvcl_container_of(link, kvcl_serve_t, all);
        kvcl_list_del(&serve->link);
        kvcl_serve_hold(serve, -1);
        kvcl_serve_discard(serve); /* the transport's sends have ended with its endpoints */
    }
    if (state->has_flights) {
        (void)kvcl_mpool_fini(&state->flights);
    }
    kvcl_serve_peers_fini(ctx);
}
