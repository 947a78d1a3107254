/*
 * Sending to a peer: a message's common fields, copies of bytes that outlive the call, and messages that may wait.
 *
 * Owns: a posted message whose bytes the transport does not copy. Invariants: messages of a peer are sent in the order
 * of their calls, those that wait in a bundle (bundle.h) before a later one; none is sent before the peer is ready.
 * Locks: the engine lock.
 */
#include "config.h"
#include "core/peer.h"
#include "base/error.h"
#include "core/bundle.h"
#include "core/context.h"
#include "weave/pieces.h"

#include <stdlib.h>
#include <string.h>

bool kvcl_peer_has_link(const kvcl_peer_t *peer)
{
    return (peer->ops->links || ((peer->ep != NULL) && peer->ep->lost)) && !peer->parting && !peer->ctx->closing &&
           (kvcl_peer_pairs_left(peer, true) > 0);
}

/* The peer is not ready. */
static kvcl_status_t refusal(const kvcl_peer_t *peer)
{
    return (peer->met && (peer->state == KVCL_PEER_CONNECTING)) ? KVCL_ERR_UNREACHABLE : KVCL_ERR_RANK_FAILED;
}

static void fill_header(const kvcl_peer_t *peer, kvcl_msg_t *msg)
{
    msg->magic     = KVCL_WIRE_MAGIC;
    msg->version   = KVCL_WIRE_VERSION;
    msg->reserved  = 0;
    msg->reserved2 = 0;
    msg->peer      = peer->remote_index;
    msg->token     = peer->out_token;
}

kvcl_status_t kvcl_peer_send_now(kvcl_peer_t *peer, kvcl_msg_t *msg, size_t hdr_len, const kvcl_iov_t *iov,
                                 size_t n_iov, unsigned flags, kvcl_xport_send_t *send)
{
    kvcl_status_t status;

    if (peer->state != KVCL_PEER_READY) {
        return refusal(peer);
    }
    fill_header(peer, msg);
    status = peer->ops->am_send(peer->ep, msg, hdr_len, iov, n_iov, flags, send);
    if ((status < 0) && (status != KVCL_ERR_NO_MEMORY) && (status != KVCL_ERR_INVALID_PARAM)) {
        kvcl_bundle_refused(peer); /* the endpoint has failed; the transport reports that later */
        status = kvcl_peer_has_link(peer) ? KVCL_ERR_UNREACHABLE : status;
    }
    return status;
}

kvcl_status_t kvcl_peer_send(kvcl_peer_t *peer, kvcl_msg_t *msg, size_t hdr_len, const kvcl_iov_t *iov, size_t n_iov,
                             unsigned flags, kvcl_xport_send_t *send)
{
    kvcl_assert_locked(peer->ctx);
    kvcl_bundle_flush(peer);
    return kvcl_peer_send_now(peer, msg, hdr_len, iov, n_iov, flags, send);
}

/* A send whose bytes are an owned copy. */
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

static kvcl_status_t post(kvcl_peer_t *peer, kvcl_msg_t *msg, size_t hdr_len, const void *data, size_t len, bool soon)
{
    kvcl_iov_t    iov = {data, len};
    kvcl_status_t status;
    posted_t      *posted;
    size_t        hdr_room = (hdr_len + 15) & ~(size_t)15;

    kvcl_assert_locked(peer->ctx);
    if (peer->state != KVCL_PEER_READY) {
        return refusal(peer);
    }
    if (len <= peer->attr.inline_bytes) {
        fill_header(peer, msg);
        if (kvcl_bundle_add(peer, msg, hdr_len, data, len, soon)) {
            return KVCL_OK;
        }
        return kvcl_peer_send_now(peer, msg, hdr_len, &iov, (len > 0) ? 1 : 0, 0, NULL);
    }
    posted = malloc(sizeof(*posted) + hdr_room + len);
    if (posted == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a message of %zu bytes", len);
    }
    posted->send.done = posted_done;
    kvcl_copy_bytes(posted->bytes, msg, hdr_len);
    kvcl_copy_bytes(posted->bytes + hdr_room, data, len);
    iov.buf = posted->bytes + hdr_room;
    status  = kvcl_peer_send(peer, (kvcl_msg_t *)posted->bytes, hdr_len, &iov, 1, 0, &posted->send);
    if (status != KVCL_INPROGRESS) {
        free(posted);
    }
    return (status == KVCL_INPROGRESS) ? KVCL_OK : status;
}

kvcl_status_t kvcl_peer_post(kvcl_peer_t *peer, kvcl_msg_t *msg, size_t hdr_len, const void *data, size_t len)
{
    return post(peer, msg, hdr_len, data, len, false);
}

kvcl_status_t kvcl_peer_post_soon(kvcl_peer_t *peer, kvcl_msg_t *msg, size_t hdr_len, const void *data, size_t len)
{
    return post(peer, msg, hdr_len, data, len, true);
}

void kvcl_peer_queried(kvcl_peer_t *peer)
{
    kvcl_assert_locked(peer->ctx);
    ++peer->answers_due;
}

void kvcl_peer_answered(kvcl_peer_t *peer)
{
    --peer->answers_due;
    if (!peer->ctx->peers.bundling) { /* no answer is awaited that would flush the bundle */
        kvcl_bundle_flush(peer);
    }
}
