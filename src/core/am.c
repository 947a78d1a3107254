/*
 * The entry of messages: each message of a transport is checked here (size, magic, version, authenticated sender)
 * before a room's handler receives it.
 */
#include "config.h"
#include "base/error.h"
#include "base/log.h"
#include "core/bundle.h"
#include "core/context.h"

#include <string.h>

void kvcl_am_malformed(kvcl_context_h ctx, kvcl_peer_t *peer, const char *what)
{
    ++ctx->stats.malformed;
    if ((ctx->stats.malformed & (ctx->stats.malformed - 1)) == 0) { /* 1, 2, 4, 8, ... */
        kvcl_log_warn("malformed message from %s dropped (%llu so far): %s",
                      (peer != NULL) ? peer->name : "an unknown sender", (unsigned long long)ctx->stats.malformed,
                      what);
    }
}

static bool is_handshake(const kvcl_msg_t *msg)
{
    return (msg->type >= KVCL_MSG_HELLO) && (msg->type <= KVCL_MSG_REFUSE);
}

/* A message of an authenticated peer. */
static void take(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                 size_t len)
{
    const kvcl_msg_handler_t *handler;

    ++peer->messages;
    if (msg->type == KVCL_MSG_BYE) {
        kvcl_peer_on_bye(peer, msg);
        return;
    }
    handler = &ctx->handlers[msg->type];
    if ((handler->fn == NULL) || (hdr_len < handler->min_hdr)) {
        kvcl_am_malformed(ctx, peer, "unknown type, or header too short");
        return;
    }
    if (peer->state == KVCL_PEER_FAILED) {
        return; /* too late */
    }
    handler->fn(ctx, peer, msg, hdr_len, data, len);
}

static void take_bundle(kvcl_context_h ctx, kvcl_peer_t *peer, const void *payload, size_t payload_len)
{
    uint64_t         hdr[KVCL_BUNDLE_HDR_MAX / sizeof(uint64_t)]; /* aligned, as handlers expect it */
    const kvcl_msg_t *msg = (const kvcl_msg_t *)(const void *)hdr;
    size_t           at = 0, hdr_len, len;
    const void       *data;
    kvcl_status_t    status;

    while ((status = kvcl_bundle_next(payload, payload_len, &at, hdr, &hdr_len, &data, &len)) == KVCL_OK) {
        if ((hdr_len < sizeof(*msg)) || (msg->magic != KVCL_WIRE_MAGIC) || (msg->version != KVCL_WIRE_VERSION) ||
            (msg->type > KVCL_MSG_LAST) || (msg->type == KVCL_MSG_BUNDLE) || is_handshake(msg) ||
            (kvcl_peer_check(ctx, msg) != peer)) {
            status = KVCL_ERR_PROTOCOL;
            break;
        }
        take(ctx, peer, msg, hdr_len, data, len);
    }
    if (status == KVCL_ERR_PROTOCOL) {
        kvcl_am_malformed(ctx, peer, "a bundle with invalid lengths or messages");
    }
}

void kvcl_am_recv(void *arg, const void *hdr, size_t hdr_len, const void *data, size_t len, kvcl_xport_reply_t *reply)
{
    kvcl_context_h             ctx  = arg;
    const kvcl_msg_t           *msg = hdr;
    kvcl_peer_t                *peer;

    if (ctx->closing) { /* the rooms may have been freed */
        return;
    }
    kvcl_assert_locked(ctx);
    if ((hdr_len < sizeof(*msg)) || (msg->magic != KVCL_WIRE_MAGIC) || (msg->type > KVCL_MSG_LAST)) {
        ++ctx->stats.strangers;
        return;
    }
    if (is_handshake(msg)) {
        kvcl_peer_handshake(ctx, msg, hdr_len, data, len, reply);
        return;
    }
    peer = (msg->version == KVCL_WIRE_VERSION) ? kvcl_peer_check(ctx, msg) : NULL;
    if (peer == NULL) {
        ++ctx->stats.strangers;
        kvcl_log_debug("message of type %u from an unauthenticated sender dropped", msg->type);
        return;
    }
    if ((peer->state == KVCL_PEER_CONNECTING) && peer->met && (peer->next_token != 0)) { /* it overtook WELCOME */
        kvcl_peer_set_ready(peer, peer->remote_index, peer->next_token);
    }
    if (msg->type == KVCL_MSG_BUNDLE) {
        take_bundle(ctx, peer, data, len);
    } else {
        take(ctx, peer, msg, hdr_len, data, len);
    }
}
