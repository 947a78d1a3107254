/*
 * Peers (peer.h): the table, connecting, sending, failing.
 */
#include "config.h"
#include "core/peer.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/error.h"
#include "base/log.h"
#include "base/rand.h"
#include "core/address.h"
#include "core/context.h"
#include "core/handshake.h"
#include "core/req.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KVCL_PEERS_MAX = 1 << 20, COOKIE_SECONDS = 30 };

static uint64_t uuid_key(const uint8_t uuid[16])
{
    uint64_t key;

    memcpy(&key, uuid, sizeof(key));
    return key;
}

static kvcl_peer_t *find(kvcl_context_h ctx, const uint8_t uuid[16])
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
    memcpy(peer->address, address, len);
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
    *peer_p = find(ctx, parsed.uuid);
    return (*peer_p != NULL) ? KVCL_OK : add(ctx, parsed.uuid, address, len, peer_p);
}

/* The first transport of mine that the peer's address names and that leads there: loop inside one process, then ucx. */
static kvcl_status_t make_ep(kvcl_peer_t *peer)
{
    kvcl_engine_t  *eng = &peer->ctx->engine;
    kvcl_status_t  status;
    kvcl_address_t parsed;
    unsigned       i, part;
    bool           tried = false;

    status = kvcl_address_unpack(peer->address, peer->address_len, &parsed);
    if (status != KVCL_OK) {
        return status;
    }
    for (i = 0; i < eng->n_xports; ++i) {
        kvcl_xport_t *xport = eng->xports[i];
        part = (xport->ops == &kvcl_xport_loop) ? KVCL_ADDRESS_LOOP : KVCL_ADDRESS_UCX;
        if (parsed.part[part].buf == NULL) {
            continue;
        }
        status = xport->ops->ep_create(xport, parsed.part[part].buf, parsed.part[part].len, &peer->ep);
        if (status == KVCL_OK) {
            peer->ep->arg = peer;
            peer->ops     = xport->ops;
            xport->ops->query(xport, &peer->attr);
            return KVCL_OK;
        }
        peer->ep = NULL;
        tried    = true;
    }
    return tried ? status : kvcl_fail(KVCL_ERR_UNREACHABLE, "no transport of KVCL_PATH=%s leads to %s",
                                      kvcl_path_name(peer->ctx->config.path), peer->name);
}

static void stamp(kvcl_msg_t *msg, uint8_t type)
{
    memset(msg, 0, sizeof(*msg));
    msg->magic   = KVCL_WIRE_MAGIC;
    msg->version = KVCL_WIRE_VERSION;
    msg->type    = type;
}

static kvcl_status_t send_handshake(kvcl_peer_t *peer, kvcl_hs_msg_t *hs, const void *data, size_t len)
{
    kvcl_iov_t iov = {data, len};

    return peer->ops->am_send(peer->ep, hs, sizeof(*hs), &iov, (len > 0) ? 1 : 0, KVCL_XPORT_REPLY, NULL);
}

static kvcl_status_t connect_peer(kvcl_peer_t *peer)
{
    kvcl_hs_msg_t hs;
    kvcl_status_t status = (peer->ep == NULL) ? make_ep(peer) : KVCL_OK;

    if (status != KVCL_OK) {
        return status;
    }
    status = kvcl_random_bytes(peer->nonce, sizeof(peer->nonce));
    if (status != KVCL_OK) {
        return status;
    }
    memset(&hs, 0, sizeof(hs));
    stamp(&hs.msg, KVCL_MSG_HELLO);
    memcpy(hs.ids.uuid_a, peer->ctx->uuid, 16);
    memcpy(hs.ids.uuid_b, peer->uuid, 16);
    memcpy(hs.ids.nonce_a, peer->nonce, 16);
    peer->state = KVCL_PEER_CONNECTING;
    return send_handshake(peer, &hs, NULL, 0);
}

kvcl_status_t kvcl_peer_ready(kvcl_peer_t *peer, kvcl_peer_waiter_t *waiter)
{
    kvcl_status_t status;

    kvcl_assert_locked(peer->ctx);
    switch (peer->state) {
    case KVCL_PEER_READY:
        return KVCL_OK;
    case KVCL_PEER_FAILED:
        return kvcl_fail(peer->why, "%s is gone: %s", peer->name, kvcl_status_text(peer->why));
    case KVCL_PEER_NEW:
        status = connect_peer(peer);
        if (status != KVCL_OK) {
            kvcl_peer_fail(peer, status);
            return status;
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

static void set_ready(kvcl_peer_t *peer, uint32_t remote_index, uint64_t out_token)
{
    if (peer->state == KVCL_PEER_FAILED) {
        return;
    }
    peer->remote_index = remote_index;
    peer->out_token    = out_token;
    peer->state        = KVCL_PEER_READY;
    kvcl_log_debug("%s is ready", peer->name);
    wake_waiters(peer, KVCL_OK);
}

static void accept_token(kvcl_peer_t *peer, uint64_t token)
{
    if ((peer->in_tokens[0] != token) && (peer->in_tokens[1] != token)) {
        peer->in_tokens[1] = peer->in_tokens[0];
        peer->in_tokens[0] = token;
    }
}

void kvcl_peer_fail(kvcl_peer_t *peer, kvcl_status_t status)
{
    kvcl_context_h ctx = peer->ctx;
    kvcl_list_t    *link;
    unsigned       i;

    kvcl_assert_locked(ctx);
    if (peer->state == KVCL_PEER_FAILED) {
        return;
    }
    kvcl_log_info("%s: %s", peer->name, kvcl_status_text(status));
    peer->state = KVCL_PEER_FAILED;
    peer->why   = status;
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

void kvcl_peer_ep_failed(void *arg, kvcl_xport_ep_t *ep, kvcl_status_t status)
{
    (void)arg;
    (void)status; /* how it died is the transport's log; to its users it is dead */
    if (ep->arg != NULL) {
        kvcl_peer_t *peer = ep->arg;
        kvcl_peer_fail(peer, (peer->state == KVCL_PEER_READY) ? KVCL_ERR_RANK_FAILED : KVCL_ERR_UNREACHABLE);
    }
}

kvcl_status_t kvcl_peer_send(kvcl_peer_t *peer, kvcl_msg_t *msg, size_t hdr_len, const kvcl_iov_t *iov, size_t n_iov,
                             kvcl_xport_send_t *send)
{
    kvcl_assert_locked(peer->ctx);
    if (peer->state != KVCL_PEER_READY) {
        return KVCL_ERR_RANK_FAILED;
    }
    msg->magic     = KVCL_WIRE_MAGIC;
    msg->version   = KVCL_WIRE_VERSION;
    msg->reserved  = 0;
    msg->reserved2 = 0;
    msg->peer      = peer->remote_index;
    msg->token     = peer->out_token;
    return peer->ops->am_send(peer->ep, msg, hdr_len, iov, n_iov, 0, send);
}

/* A send whose bytes are our own copy. */
typedef struct posted {
    kvcl_xport_send_t send;
    size_t            hdr_len;
    unsigned char     bytes[] __attribute__((aligned(16)));
} posted_t;

static void posted_done(kvcl_xport_send_t *send, kvcl_status_t status)
{
    (void)status; /* if it failed, so has the endpoint */
    free(kvcl_container_of(send, posted_t, send));
}

kvcl_status_t kvcl_peer_post(kvcl_peer_t *peer, kvcl_msg_t *msg, size_t hdr_len, const void *data, size_t len)
{
    kvcl_iov_t    iov = {data, len};
    kvcl_status_t status;
    posted_t      *posted;
    size_t        hdr_room = (hdr_len + 15) & ~(size_t)15;

    if (len <= peer->attr.inline_bytes) {
        return kvcl_peer_send(peer, msg, hdr_len, &iov, (len > 0) ? 1 : 0, NULL);
    }
    posted = malloc(sizeof(*posted) + hdr_room + len);
    if (posted == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a message of %zu bytes", len);
    }
    posted->send.done = posted_done;
    memcpy(posted->bytes, msg, hdr_len);
    memcpy(posted->bytes + hdr_room, data, len);
    iov.buf = posted->bytes + hdr_room;
    status  = kvcl_peer_send(peer, (kvcl_msg_t *)posted->bytes, hdr_len, &iov, 1, &posted->send);
    if (status != KVCL_INPROGRESS) {
        free(posted);
    }
    return (status == KVCL_INPROGRESS) ? KVCL_OK : status;
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

/* ---- handshake, both sides (the steps are drawn in peer.h) ---- */

static void refuse(const kvcl_hs_msg_t *in, kvcl_status_t why, kvcl_xport_reply_t *reply)
{
    kvcl_hs_msg_t out;

    memset(&out, 0, sizeof(out));
    stamp(&out.msg, KVCL_MSG_REFUSE);
    out.ids   = in->ids;
    out.index = (uint32_t)why;
    (void)kvcl_xport_reply(reply, &out, sizeof(out));
}

static void on_hello(kvcl_context_h ctx, const kvcl_hs_msg_t *in, kvcl_xport_reply_t *reply)
{
    kvcl_hs_msg_t out = *in;

    if (memcmp(in->ids.uuid_b, ctx->uuid, 16) != 0) {
        refuse(in, KVCL_ERR_STALE, reply);
        return;
    }
    stamp(&out.msg, KVCL_MSG_CHALLENGE);
    out.window = (uint32_t)(kvcl_now_ns() / (COOKIE_SECONDS * KVCL_NS_PER_SEC));
    kvcl_hs_cookie(ctx->cookie, &out.ids, out.window, out.ids.nonce_b);
    kvcl_hs_mac(ctx->secret, "B", &out.ids, 0, NULL, 0, out.mac);
    (void)kvcl_xport_reply(reply, &out, sizeof(out));
}

/* The peer that I greeted with this nonce, or NULL. */
static kvcl_peer_t *greeted(kvcl_context_h ctx, const kvcl_hs_msg_t *in)
{
    kvcl_peer_t *peer = find(ctx, in->ids.uuid_b);

    if ((peer == NULL) || (peer->ep == NULL) || (peer->state == KVCL_PEER_FAILED) ||
        (memcmp(in->ids.uuid_a, ctx->uuid, 16) != 0) || (memcmp(in->ids.nonce_a, peer->nonce, 16) != 0)) {
        return NULL;
    }
    return peer;
}

static void on_challenge(kvcl_context_h ctx, const kvcl_hs_msg_t *in)
{
    kvcl_peer_t   *peer = greeted(ctx, in);
    kvcl_hs_msg_t out   = *in;
    uint8_t       mac[32];

    kvcl_hs_mac(ctx->secret, "B", &in->ids, 0, NULL, 0, mac);
    if ((peer == NULL) || !kvcl_ct_equal(mac, in->mac, 32)) {
        ++ctx->stats.strangers;
        if (peer != NULL) {
            kvcl_log_warn("%s does not know the job's secret", peer->name);
            kvcl_peer_fail(peer, KVCL_ERR_AUTH);
        }
        return;
    }
    accept_token(peer, kvcl_hs_token(ctx->secret, &in->ids, false));
    stamp(&out.msg, KVCL_MSG_PROOF);
    out.index = peer->index;
    kvcl_hs_mac(ctx->secret, "A", &out.ids, out.index, ctx->address, ctx->address_len, out.mac);
    if (send_handshake(peer, &out, ctx->address, ctx->address_len) != KVCL_OK) {
        kvcl_peer_fail(peer, KVCL_ERR_UNREACHABLE);
    }
}

static bool cookie_is_mine(kvcl_context_h ctx, const kvcl_hs_msg_t *in)
{
    uint32_t now = (uint32_t)(kvcl_now_ns() / (COOKIE_SECONDS * KVCL_NS_PER_SEC));
    uint8_t  nonce[16];

    if ((in->window != now) && (in->window + 1 != now)) {
        return false;
    }
    kvcl_hs_cookie(ctx->cookie, &in->ids, in->window, nonce);
    return kvcl_ct_equal(nonce, in->ids.nonce_b, 16);
}

static void on_proof(kvcl_context_h ctx, const kvcl_hs_msg_t *in, const void *data, size_t len,
                     kvcl_xport_reply_t *reply)
{
    kvcl_hs_msg_t out = *in;
    kvcl_peer_t   *peer;
    uint8_t       mac[32];

    kvcl_hs_mac(ctx->secret, "A", &in->ids, in->index, data, len, mac);
    if ((memcmp(in->ids.uuid_b, ctx->uuid, 16) != 0) || !cookie_is_mine(ctx, in) ||
        !kvcl_ct_equal(mac, in->mac, 32)) {
        ++ctx->stats.strangers;
        refuse(in, KVCL_ERR_AUTH, reply);
        return;
    }
    if ((kvcl_peer_by_address(ctx, data, len, &peer) != KVCL_OK) || (memcmp(peer->uuid, in->ids.uuid_a, 16) != 0) ||
        (peer->state == KVCL_PEER_FAILED) || ((peer->ep == NULL) && (make_ep(peer) != KVCL_OK))) {
        kvcl_log_warn("a peer proved the secret but cannot be used: %s", kvcl_last_error());
        refuse(in, KVCL_ERR_UNREACHABLE, reply);
        return;
    }
    accept_token(peer, kvcl_hs_token(ctx->secret, &in->ids, true));
    stamp(&out.msg, KVCL_MSG_WELCOME);
    out.index = peer->index;
    kvcl_hs_mac(ctx->secret, "W", &out.ids, out.index, NULL, 0, out.mac);
    (void)kvcl_xport_reply(reply, &out, sizeof(out));
    set_ready(peer, in->index, kvcl_hs_token(ctx->secret, &in->ids, false));
}

static void on_welcome(kvcl_context_h ctx, const kvcl_hs_msg_t *in)
{
    kvcl_peer_t *peer = greeted(ctx, in);
    uint8_t     mac[32];

    kvcl_hs_mac(ctx->secret, "W", &in->ids, in->index, NULL, 0, mac);
    if ((peer == NULL) || !kvcl_ct_equal(mac, in->mac, 32)) {
        ++ctx->stats.strangers;
        return;
    }
    set_ready(peer, in->index, kvcl_hs_token(ctx->secret, &in->ids, true));
}

/* Unproven, so believed only about a handshake of mine that is still open. */
static void on_refuse(kvcl_context_h ctx, const kvcl_hs_msg_t *in)
{
    kvcl_peer_t   *peer = greeted(ctx, in);
    kvcl_status_t why   = (kvcl_status_t)(int32_t)in->index;

    if ((peer == NULL) || (peer->state != KVCL_PEER_CONNECTING)) {
        return;
    }
    if (why == KVCL_ERR_VERSION) {
        kvcl_log_warn("%s speaks wire version %u, this library speaks %u", peer->name, in->msg.version,
                      (unsigned)KVCL_WIRE_VERSION);
    }
    kvcl_peer_fail(peer, (why == KVCL_ERR_VERSION) || (why == KVCL_ERR_AUTH) || (why == KVCL_ERR_STALE)
                             ? why : KVCL_ERR_UNREACHABLE);
}

void kvcl_peer_handshake(kvcl_context_h ctx, const kvcl_msg_t *msg, size_t hdr_len, const void *data, size_t len,
                         kvcl_xport_reply_t *reply)
{
    const kvcl_hs_msg_t *in = (const kvcl_hs_msg_t *)msg;

    if (hdr_len < sizeof(*in)) {
        ++ctx->stats.strangers;
        return;
    }
    if (msg->version != KVCL_WIRE_VERSION) {
        ++ctx->stats.strangers;
        if (msg->type == KVCL_MSG_REFUSE) {
            on_refuse(ctx, in);
        } else {
            refuse(in, KVCL_ERR_VERSION, reply);
        }
        return;
    }
    switch (msg->type) {
    case KVCL_MSG_HELLO:
        on_hello(ctx, in, reply);
        break;
    case KVCL_MSG_CHALLENGE:
        on_challenge(ctx, in);
        break;
    case KVCL_MSG_PROOF:
        on_proof(ctx, in, data, len, reply);
        break;
    case KVCL_MSG_WELCOME:
        on_welcome(ctx, in);
        break;
    default:
        on_refuse(ctx, in);
        break;
    }
}

void kvcl_peers_goodbye(kvcl_context_h ctx)
{
    kvcl_msg_t msg = {.type = KVCL_MSG_BYE};
    uint32_t   i;

    for (i = 0; i < ctx->peers.count; ++i) {
        if (ctx->peers.v[i]->state == KVCL_PEER_READY) {
            if (kvcl_peer_post(ctx->peers.v[i], &msg, sizeof(msg), NULL, 0) != KVCL_OK) {
                kvcl_log_debug("%s cannot be told that I leave", ctx->peers.v[i]->name);
            }
        }
    }
}

void kvcl_peers_close(kvcl_context_h ctx)
{
    uint32_t i;
    unsigned r;

    for (i = 0; i < ctx->peers.count; ++i) {
        kvcl_peer_t *peer = ctx->peers.v[i];
        kvcl_peer_fail(peer, KVCL_ERR_CANCELED);
        for (r = 0; r < ctx->n_rooms; ++r) {
            if (kvcl_rooms[r]->peer_closing != NULL) {
                kvcl_rooms[r]->peer_closing(ctx, ctx->rooms[r], peer);
            }
        }
        if (peer->ep != NULL) {
            peer->ep->arg = NULL;
            peer->ops->ep_close(peer->ep);
            peer->ep = NULL;
        }
    }
}

void kvcl_peers_fini(kvcl_context_h ctx)
{
    uint32_t i;

    for (i = 0; i < ctx->peers.count; ++i) {
        kvcl_map_fini(&ctx->peers.v[i]->rcaches);
        free(ctx->peers.v[i]->address);
        free(ctx->peers.v[i]);
    }
    free(ctx->peers.v);
    kvcl_map_fini(&ctx->peers.by_uuid);
}
