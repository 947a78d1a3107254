/*
 * The handshake, both sides: the effect on peers of the steps listed in peer.h. All under the engine lock.
 */
#include "config.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/error.h"
#include "base/log.h"
#include "base/rand.h"
#include "wire/address.h"
#include "core/context.h"
#include "wire/handshake.h"

#include <string.h>

enum { COOKIE_SECONDS = 30 };

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

/* Tokens of an earlier try are void: its pair may deliver late, or in one direction only. */
kvcl_status_t kvcl_peer_hello(kvcl_peer_t *peer)
{
    kvcl_hs_msg_t hs;
    kvcl_status_t status = kvcl_hs_nonce(peer->nonce);

    if (status != KVCL_OK) {
        return status;
    }
    memset(&hs, 0, sizeof(hs));
    stamp(&hs.msg, KVCL_MSG_HELLO);
    memcpy(hs.ids.uuid_a, peer->ctx->uuid, 16);
    memcpy(hs.ids.uuid_b, peer->uuid, 16);
    memcpy(hs.ids.nonce_a, peer->nonce, 16);
    hs.part = peer->ep->xport->part;
    memset(peer->in_tokens, 0, sizeof(peer->in_tokens));
    peer->next_token = 0;
    peer->state      = KVCL_PEER_CONNECTING;
    return send_handshake(peer, &hs, NULL, 0);
}

kvcl_status_t kvcl_peer_greet(kvcl_peer_t *peer)
{
    kvcl_status_t status;

    for (;;) {
        status = (peer->ep == NULL) ? kvcl_peer_make_ep(peer) : KVCL_OK;
        if (status != KVCL_OK) {
            return status;
        }
        status = kvcl_peer_hello(peer);
        if ((status == KVCL_OK) || !peer->ops->links) {
            return status;
        }
        kvcl_peer_drop_ep(peer);
        ++peer->session;
    }
}

void kvcl_peer_try_next(kvcl_peer_t *peer, kvcl_status_t status)
{
    kvcl_peers_t *peers = &peer->ctx->peers;
    char         path[128];

    kvcl_assert_locked(peer->ctx);
    if (kvcl_links->lost(peer)) {
        return;
    }
    if (!peer->ops->links || (peer->state != KVCL_PEER_CONNECTING)) {
        kvcl_peer_fail(peer, status);
        return;
    }
    peer->ops->ep_describe(peer->ep, path, sizeof(path));
    kvcl_log_at(peers->lost_links++ == 0 ? KVCL_LOG_WARN : KVCL_LOG_INFO,
                "%s does not answer over %s, on its port %u: trying the next path", peer->name, path,
                peer->part - KVCL_ADDRESS_RDMA);
    kvcl_peer_drop_ep(peer);
    ++peer->session;
    if (kvcl_peer_greet(peer) != KVCL_OK) {
        kvcl_log_warn("%s", kvcl_last_error());
        kvcl_peer_fail(peer, KVCL_ERR_UNREACHABLE);
    }
}

static void accept_token(kvcl_peer_t *peer, uint64_t token)
{
    if ((peer->in_tokens[0] != token) && (peer->in_tokens[1] != token)) {
        peer->in_tokens[1] = peer->in_tokens[0];
        peer->in_tokens[0] = token;
    }
}

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
    kvcl_hs_mac(ctx->secret, "B", &out.ids, 0, 0, 0, NULL, 0, out.mac);
    (void)kvcl_xport_reply(reply, &out, sizeof(out));
}

/* The peer that this rank sent HELLO with this nonce, or NULL. */
static kvcl_peer_t *greeted(kvcl_context_h ctx, const kvcl_hs_msg_t *in)
{
    static const uint8_t none[16];
    kvcl_peer_t          *peer = kvcl_peer_by_uuid(ctx, in->ids.uuid_b);

    if ((peer == NULL) || (peer->ep == NULL) || (peer->state == KVCL_PEER_FAILED) ||
        (memcmp(in->ids.uuid_a, ctx->uuid, 16) != 0) || (memcmp(peer->nonce, none, 16) == 0) ||
        (memcmp(in->ids.nonce_a, peer->nonce, 16) != 0)) {
        return NULL;
    }
    return peer;
}

/* The same, of a HELLO over an endpoint that was set aside for another one, while that one has no answer either. */
static kvcl_peer_t *greeted_before(kvcl_context_h ctx, const kvcl_hs_msg_t *in)
{
    static const uint8_t none[16];
    kvcl_peer_t          *peer = kvcl_peer_by_uuid(ctx, in->ids.uuid_b);

    return ((peer != NULL) && (peer->state == KVCL_PEER_CONNECTING) && (peer->next_token == 0) &&
            (memcmp(in->ids.uuid_a, ctx->uuid, 16) == 0) && (memcmp(in->ids.nonce_a, none, 16) != 0) &&
            kvcl_peer_is_kept(peer, in->ids.nonce_a)) ? peer : NULL;
}

static void on_challenge(kvcl_context_h ctx, const kvcl_hs_msg_t *in)
{
    kvcl_peer_t   *present = greeted(ctx, in), *peer = (present != NULL) ? present : greeted_before(ctx, in);
    kvcl_hs_msg_t out      = *in;
    uint8_t       mac[32];

    kvcl_hs_mac(ctx->secret, "B", &in->ids, 0, 0, 0, NULL, 0, mac);
    if ((peer == NULL) || !kvcl_ct_equal(mac, in->mac, 32)) {
        ++ctx->stats.strangers;
        if ((peer != NULL) && (peer->state == KVCL_PEER_CONNECTING)) {
            kvcl_log_warn("%s does not know the job's secret", peer->name);
            kvcl_peer_fail(peer, KVCL_ERR_AUTH);
        }
        return;
    }
    if ((present == NULL) && (kvcl_peer_take_back(peer, in->ids.nonce_a) != KVCL_OK)) {
        return;
    }
    peer->ep->settled = true;
    kvcl_links->answered(peer);
    accept_token(peer, kvcl_hs_token(ctx->secret, &in->ids, false));
    peer->next_token = kvcl_hs_token(ctx->secret, &in->ids, true);
    stamp(&out.msg, KVCL_MSG_PROOF);
    out.index   = peer->index;
    out.part    = peer->ep->xport->part;
    out.session = peer->session;
    kvcl_hs_mac(ctx->secret, "A", &out.ids, out.index, out.part, out.session, ctx->address, ctx->address_len, out.mac);
    if (send_handshake(peer, &out, ctx->address, ctx->address_len) != KVCL_OK) {
        kvcl_peer_try_next(peer, KVCL_ERR_UNREACHABLE);
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

/* The authenticated peer, with an endpoint. */
static kvcl_status_t prover(kvcl_context_h ctx, const kvcl_hs_msg_t *in, const void *data, size_t len,
                            kvcl_xport_t *xport, kvcl_peer_t **peer_p)
{
    kvcl_address_t address;
    kvcl_status_t  status = kvcl_address_unpack(data, len, &address);

    if ((status == KVCL_OK) && (memcmp(address.uuid, in->ids.uuid_a, 16) != 0)) {
        status = kvcl_fail(KVCL_ERR_PROTOCOL, "its address is another context's");
    }
    if (status == KVCL_OK) {
        status = kvcl_peer_by_address(ctx, data, len, peer_p);
    }
    if ((status == KVCL_OK) && ((*peer_p)->state == KVCL_PEER_FAILED)) {
        status = kvcl_fail((*peer_p)->why, "%s has failed", (*peer_p)->name);
    }
    return (status == KVCL_OK) ? kvcl_links->take_session(*peer_p, xport, in->part, in->session, data, len)
                               : status;
}

static void on_proof(kvcl_context_h ctx, const kvcl_hs_msg_t *in, const void *data, size_t len,
                     kvcl_xport_reply_t *reply)
{
    kvcl_hs_msg_t out = *in;
    kvcl_peer_t   *peer;
    uint8_t       mac[32];

    kvcl_hs_mac(ctx->secret, "A", &in->ids, in->index, in->part, in->session, data, len, mac);
    if ((memcmp(in->ids.uuid_b, ctx->uuid, 16) != 0) || !cookie_is_mine(ctx, in) ||
        !kvcl_ct_equal(mac, in->mac, 32)) {
        ++ctx->stats.strangers;
        refuse(in, KVCL_ERR_AUTH, reply);
        return;
    }
    peer = kvcl_peer_by_uuid(ctx, in->ids.uuid_a);
    if ((peer != NULL) &&
        ((kvcl_hs_nonce_order(in->ids.nonce_a) <= peer->proven) || !kvcl_links->session_may(peer, in->session))) {
        ++ctx->stats.strangers;
        return;
    }
    if (prover(ctx, in, data, len, reply->xport, &peer) != KVCL_OK) {
        kvcl_log_warn("an authenticated peer cannot be used: %s", kvcl_last_error());
        refuse(in, KVCL_ERR_UNREACHABLE, reply);
        return;
    }
    peer->proven = kvcl_hs_nonce_order(in->ids.nonce_a);
    accept_token(peer, kvcl_hs_token(ctx->secret, &in->ids, true));
    stamp(&out.msg, KVCL_MSG_WELCOME);
    out.index   = peer->index;
    out.part    = 0;
    out.session = peer->session;
    kvcl_hs_mac(ctx->secret, "W", &out.ids, out.index, 0, out.session, NULL, 0, out.mac);
    (void)kvcl_xport_reply(reply, &out, sizeof(out));
    kvcl_peer_set_ready(peer, in->index, kvcl_hs_token(ctx->secret, &in->ids, false));
}

static void on_welcome(kvcl_context_h ctx, const kvcl_hs_msg_t *in)
{
    kvcl_peer_t *peer = greeted(ctx, in);
    uint8_t     mac[32];

    kvcl_hs_mac(ctx->secret, "W", &in->ids, in->index, 0, in->session, NULL, 0, mac);
    if ((peer == NULL) || !kvcl_ct_equal(mac, in->mac, 32)) {
        ++ctx->stats.strangers;
        return;
    }
    peer->session = (in->session > peer->session) ? in->session : peer->session;
    kvcl_peer_set_ready(peer, in->index, kvcl_hs_token(ctx->secret, &in->ids, true));
}

/* Not authenticated: it counts only for a handshake that this rank began and that is still open. */
static void on_refuse(kvcl_context_h ctx, const kvcl_hs_msg_t *in)
{
    kvcl_peer_t   *peer = greeted(ctx, in);
    kvcl_status_t why   = (kvcl_status_t)(int32_t)in->index;

    if ((peer == NULL) || (peer->state != KVCL_PEER_CONNECTING)) {
        ctx->stats.strangers += (peer == NULL) && (in->msg.version == KVCL_WIRE_VERSION); /* else counted already */
        return;
    }
    if (why == KVCL_ERR_VERSION) {
        kvcl_log_warn("%s has wire version %u, this library has %u", peer->name, in->msg.version,
                      (unsigned)KVCL_WIRE_VERSION);
    }
    if (peer->met && (why == KVCL_ERR_STALE)) { /* another process listens at its address */
        kvcl_peer_fail(peer, KVCL_ERR_RANK_FAILED);
        return;
    }
    if (peer->met || (why == KVCL_ERR_UNREACHABLE)) { /* it cannot answer over this pair */
        kvcl_peer_try_next(peer, peer->met ? KVCL_ERR_RANK_FAILED : KVCL_ERR_UNREACHABLE);
        return;
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
