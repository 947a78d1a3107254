/*
 * Peers (peer.h): the table, sessions, failing, leaving. The handshake is in peer_handshake.c, the choice of a path in
 * peer_pairs.c, the handling of a lost link in link/link.c, sending in peer_send.c.
 *
 * Owns: the peers of a context and their endpoints. Invariants: a peer is never removed before the context ends; a
 * failed one stays failed, and its waiters and requests end once. Locks: the engine lock.
 */
#include "config.h"
#include "core/peer.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "wire/address.h"
#include "core/bundle.h"
#include "core/context.h"
#include "req/req.h"
#include "weave/pieces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KVCL_PEERS_MAX = 1 << 20 };
#define ENDED_NS (2 * KVCL_NS_PER_SEC) /* time for the last reply, as to BYE, to be read */

static uint64_t uuid_key(const uint8_t uuid[16])
{
    uint64_t key;

    memcpy(&key, uuid, sizeof(key));
    return key;
}

kvcl_peer_t *kvcl_peer_by_uuid(kvcl_context_h ctx, const uint8_t uuid[16])
{
    kvcl_peer_t *peer = kvcl_map_get(&ctx->peers.by_uuid, uuid_key(uuid));

    return ((peer != NULL) && (memcmp(peer->uuid, uuid, 16) == 0)) ? peer : NULL;
}

static kvcl_status_t grow(kvcl_peers_t *peers)
{
    uint32_t    capacity = (peers->capacity == 0) ? 16 : peers->capacity * 2;
    kvcl_peer_t **v;

    if (peers->count < peers->capacity) {
        return KVCL_OK;
    }
    if (capacity > KVCL_PEERS_MAX) {
        return kvcl_fail(KVCL_ERR_NO_SPACE, "more than %d peers", KVCL_PEERS_MAX);
    }
    v = realloc(peers->v, capacity * sizeof(*v));
    if (v == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for %u peers", capacity);
    }
    peers->v        = v;
    peers->capacity = capacity;
    return KVCL_OK;
}

static kvcl_status_t add(kvcl_context_h ctx, const uint8_t uuid[16], const void *address, size_t len,
                         kvcl_peer_t **peer_p)
{
    kvcl_peers_t  *peers = &ctx->peers;
    kvcl_peer_t   *peer;
    kvcl_status_t status = grow(peers);

    if (status != KVCL_OK) {
        return status;
    }
    peer = calloc(1, sizeof(*peer));
    if ((peer == NULL) || ((peer->address = malloc(len)) == NULL) ||
        (kvcl_map_put(&peers->by_uuid, uuid_key(uuid), peer) != KVCL_OK)) {
        if (peer != NULL) {
            free(peer->address);
        }
        free(peer);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a peer");
    }
    kvcl_copy_bytes(peer->address, address, len);
    memcpy(peer->uuid, uuid, 16);
    peer->address_len = len;
    peer->ctx         = ctx;
    peer->index       = peers->count;
    peer->maps        = -1;
    kvcl_list_init(&peer->waiters);
    kvcl_list_init(&peer->reqs);
    kvcl_map_init(&peer->rcaches);
    kvcl_list_init(&peer->stale_rcaches);
    snprintf(peer->name, sizeof(peer->name), "peer %u (%02x%02x%02x%02x)", peer->index, uuid[0], uuid[1], uuid[2],
             uuid[3]);
    peers->v[peers->count++] = peer;
    *peer_p                  = peer;
    return KVCL_OK;
}

kvcl_status_t kvcl_peer_by_address(kvcl_context_h ctx, const void *address, size_t len, kvcl_peer_t **peer_p)
{
    kvcl_address_t parsed;
    kvcl_status_t  status;

    kvcl_assert_locked(ctx);
    status = kvcl_address_unpack(address, len, &parsed);
    if (status != KVCL_OK) {
        return status;
    }
    *peer_p = kvcl_peer_by_uuid(ctx, parsed.uuid);
    return (*peer_p != NULL) ? KVCL_OK : add(ctx, parsed.uuid, address, len, peer_p);
}

const char *kvcl_peer_why_unreachable(kvcl_peer_t *peer)
{
    kvcl_assert_locked(peer->ctx);
    return kvcl_sentence_read(&peer->why_unreachable);
}

static kvcl_status_t has_failed(kvcl_peer_t *peer)
{
    const char *why = kvcl_peer_why_unreachable(peer);

    return kvcl_fail(peer->why, (why != NULL) ? "%s: %s" : "%s has failed: %s", peer->name,
                     (why != NULL) ? why : kvcl_status_text(peer->why));
}

kvcl_status_t kvcl_peer_ready(kvcl_peer_t *peer, kvcl_peer_waiter_t *waiter)
{
    kvcl_status_t status;

    kvcl_assert_locked(peer->ctx);
    switch (peer->state) {
    case KVCL_PEER_READY:
        return KVCL_OK;
    case KVCL_PEER_FAILED:
        return has_failed(peer);
    case KVCL_PEER_NEW:
        status = kvcl_peer_greet(peer);
        if (status != KVCL_OK) {
            if (peer->ep == NULL) {
                kvcl_log_warn("%s", kvcl_last_error());
            }
            kvcl_peer_fail(peer, status);
            return (peer->ep == NULL) ? has_failed(peer) : status;
        }
        break;
    case KVCL_PEER_CONNECTING:
        break;
    }
    kvcl_list_add_tail(&peer->waiters, &waiter->link);
    return KVCL_INPROGRESS;
}

void kvcl_peer_unwait(kvcl_peer_waiter_t *waiter)
{
    kvcl_list_del(&waiter->link);
}

static void wake_waiters(kvcl_peer_t *peer, kvcl_status_t status)
{
    kvcl_list_t waiters, *link;

    kvcl_list_init(&waiters);
    kvcl_list_splice_tail(&waiters, &peer->waiters);
    while ((link = kvcl_list_pop(&waiters)) != NULL) {
        kvcl_peer_waiter_t *waiter = kvcl_container_of(link, kvcl_peer_waiter_t, link);
        waiter->fn(waiter, status);
    }
}

void kvcl_peer_set_ready(kvcl_peer_t *peer, uint32_t remote_index, uint64_t out_token)
{
    if (peer->state == KVCL_PEER_FAILED) {
        return;
    }
    peer->remote_index = remote_index;
    peer->out_token    = out_token;
    peer->state        = KVCL_PEER_READY;
    peer->met          = true;
    kvcl_links->over(peer);
    kvcl_log_debug("%s is ready", peer->name);
    wake_waiters(peer, KVCL_OK);
}

/* Its waiters and requests end with status. */
static void end_peer(kvcl_peer_t *peer, kvcl_status_t status)
{
    kvcl_context_h ctx = peer->ctx;
    kvcl_list_t    *link;
    unsigned       i;

    kvcl_assert_locked(ctx);
    if (peer->state == KVCL_PEER_FAILED) {
        return;
    }
    peer->state    = KVCL_PEER_FAILED;
    peer->why      = status;
    peer->ended_ns = kvcl_now_ns();
    kvcl_list_add_tail(&ctx->peers.ended, &peer->ended_link);
    kvcl_links->over(peer);
    atomic_store_explicit(&peer->direct, NULL, memory_order_release);
    wake_waiters(peer, status);
    while ((link = kvcl_list_pop(&peer->reqs)) != NULL) {
        kvcl_req_t *req = kvcl_container_of(link, kvcl_req_t, peer_link);
        req->cls->stop(req, status);
    }
    for (i = 0; i < ctx->n_rooms; ++i) {
        if (kvcl_rooms[i]->peer_failed != NULL) {
            kvcl_rooms[i]->peer_failed(ctx, ctx->rooms[i], peer);
        }
    }
}

void kvcl_peer_fail(kvcl_peer_t *peer, kvcl_status_t status)
{
    kvcl_assert_locked(peer->ctx);
    if (peer->state != KVCL_PEER_FAILED) {
        kvcl_log_info("%s: %s", peer->name, kvcl_status_text(status));
        end_peer(peer, status);
    }
}

void kvcl_peer_ep_failed(void *arg, kvcl_xport_ep_t *ep, kvcl_status_t status)
{
    kvcl_peer_t *peer = ep->arg;
    bool        known = (status == KVCL_ERR_AUTH) || (status == KVCL_ERR_VERSION) || (status == KVCL_ERR_STALE);

    (void)arg; /* the transport has logged the cause */
    ep->settled = true;
    if ((peer != NULL) && (peer->ep != ep)) {
        kvcl_peer_close_kept(peer, ep);
    } else if (peer != NULL) {
        kvcl_peer_try_next(peer, (peer->state == KVCL_PEER_READY) ? KVCL_ERR_RANK_FAILED
                                                                  : known ? status : KVCL_ERR_UNREACHABLE);
    }
}

kvcl_peer_t *kvcl_peer_check(kvcl_context_h ctx, const kvcl_msg_t *msg)
{
    kvcl_peer_t *peer;

    if (msg->peer >= ctx->peers.count) {
        return NULL;
    }
    peer = ctx->peers.v[msg->peer];
    if ((msg->token == 0) || ((msg->token != peer->in_tokens[0]) && (msg->token != peer->in_tokens[1]))) {
        return NULL;
    }
    return peer;
}

void kvcl_peers_goodbye(kvcl_context_h ctx)
{
    kvcl_msg_t msg = {.type = KVCL_MSG_BYE};
    uint32_t   i;

    kvcl_assert_locked(ctx);
    ctx->peers.bye = true;
    for (i = 0; i < ctx->peers.count; ++i) {
        if (ctx->peers.v[i]->state == KVCL_PEER_READY) {
            ctx->peers.v[i]->parting = (kvcl_peer_post(ctx->peers.v[i], &msg, sizeof(msg), NULL, 0) == KVCL_OK);
        }
    }
}

bool kvcl_peers_parted(kvcl_context_h ctx)
{
    uint32_t i;

    kvcl_assert_locked(ctx);
    for (i = 0; i < ctx->peers.count; ++i) {
        if (ctx->peers.v[i]->parting && (ctx->peers.v[i]->state == KVCL_PEER_READY)) {
            return false;
        }
    }
    return true;
}

/* A peer that leaves waits for the reply: closing the connection earlier would lose bytes that were not read yet. */
void kvcl_peer_on_bye(kvcl_peer_t *peer, const kvcl_msg_t *msg)
{
    kvcl_msg_t answer = {.type = KVCL_MSG_BYE, .flags = 1};

    if (msg->flags == 1) {
        peer->parting = false;
        kvcl_engine_notify(peer->ctx);
        return;
    }
    if ((peer->state == KVCL_PEER_READY) && (kvcl_peer_post(peer, &answer, sizeof(answer), NULL, 0) != KVCL_OK)) {
        kvcl_log_debug("%s has failed: its BYE is not answered", peer->name);
    }
    kvcl_bundle_flush(peer); /* a failed peer's bundle would not be sent */
    if (peer->state != KVCL_PEER_FAILED) {
        kvcl_log_debug("%s has left", peer->name);
        peer->left = true;
        end_peer(peer, KVCL_ERR_RANK_FAILED);
    }
}

/* Nobody reads what is sent to a peer that has ended, not even keep-alive messages: they would fill its queue in shared
 * memory while its process lives, and a transport with messages that wait cannot sleep. */
unsigned kvcl_peers_poll(kvcl_context_h ctx, uint64_t now_ns)
{
    kvcl_peer_t *peer;
    unsigned    n = 0;

    kvcl_assert_locked(ctx);
    while (!kvcl_list_is_empty(&ctx->peers.ended)) {
        peer = kvcl_list_head(&ctx->peers.ended, kvcl_peer_t, ended_link);
        if (now_ns < peer->ended_ns + ENDED_NS) {
            break;
        }
        kvcl_list_del(&peer->ended_link);
        kvcl_peer_drop_ep(peer);
        kvcl_peer_close_kept(peer, NULL);
        ++n;
    }
    return n;
}

void kvcl_peers_close(kvcl_context_h ctx)
{
    uint32_t i;
    unsigned r;

    kvcl_assert_locked(ctx);
    for (i = 0; i < ctx->peers.count; ++i) {
        kvcl_peer_t *peer = ctx->peers.v[i];
        end_peer(peer, KVCL_ERR_CANCELED);
        for (r = 0; r < ctx->n_rooms; ++r) {
            if (kvcl_rooms[r]->peer_closing != NULL) {
                kvcl_rooms[r]->peer_closing(ctx, ctx->rooms[r], peer);
            }
        }
        kvcl_peer_drop_ep(peer);
        kvcl_peer_close_kept(peer, NULL);
    }
}

void kvcl_peers_fini(kvcl_context_h ctx)
{
    uint32_t i;

    for (i = 0; i < ctx->peers.count; ++i) {
        kvcl_map_fini(&ctx->peers.v[i]->rcaches);
        free(ctx->peers.v[i]->bundle); /* not sent */
        kvcl_links->forget(ctx->peers.v[i]);
        free(ctx->peers.v[i]->address);
        kvcl_sentence_free(&ctx->peers.v[i]->why_unreachable);
        free(ctx->peers.v[i]);
    }
    kvcl_bundles_fini(ctx);
    free(ctx->peers.v);
    kvcl_map_fini(&ctx->peers.by_uuid);
}
