/*
 * Sending: a message goes to the socket at once, in one system call, header and payload gathered; what the socket does
 * not take waits in the connection's queue (tcp_queue.c).
 *
 * Owns: nothing. Invariants: messages of a connection are sent in the order of the calls. The memory of a queue's
 * copies is bounded (TCP_QUEUE_MAX, TCP_REPLIES_MAX). A copied message that cannot be kept ends the connection, because
 * nobody would notice that it is lost: a peer that does not read fails, and costs this rank no more memory than that.
 * Locks: the engine lock.
 */
#include "config.h"
#include "tcp/tcp.h"
#include "base/error.h"
#include "weave/pieces.h"

#include <stdlib.h>
#include <string.h>

enum { PIECES = 24 /* of a message that is gathered on the stack */ };

static const char zeros[8];

static size_t pad(size_t len)
{
    return (8 - (len & 7)) & 7;
}

static void add(struct iovec *iov, unsigned *n, const void *buf, size_t len)
{
    if (len > 0) {
        iov[*n].iov_base = (void *)buf;
        iov[*n].iov_len  = len;
        ++*n;
    }
}

/* The pieces of a message: at most n_iov + 4. Returns their bytes. */
static size_t gather(struct iovec *out, unsigned *n_p, const tcp_frame_t *frame, const void *hdr,
                     const kvcl_iov_t *iov, size_t n_iov)
{
    unsigned n = 0;
    size_t   i;

    add(out, &n, frame, sizeof(*frame));
    add(out, &n, hdr, frame->hdr_len);
    add(out, &n, zeros, pad(frame->hdr_len));
    for (i = 0; i < n_iov; ++i) {
        add(out, &n, iov[i].buf, iov[i].len);
    }
    add(out, &n, zeros, pad(frame->len));
    *n_p = n;
    return sizeof(*frame) + frame->hdr_len + pad(frame->hdr_len) + frame->len + pad(frame->len);
}

/* A message would be lost. */
static kvcl_status_t overflow(tcp_conn_t *conn, const char *why)
{
    kvcl_status_t status = kvcl_fail(KVCL_ERR_RANK_FAILED, "tcp: %s: %zu bytes wait for the peer", why, conn->queued);

    kvcl_tcp_conn_fail(conn, KVCL_ERR_RANK_FAILED, why);
    return status;
}

/* Copy the pieces from `at` on, which have len bytes. */
static kvcl_status_t queue_copy(tcp_conn_t *conn, const struct iovec *iov, unsigned at, unsigned n, size_t len)
{
    size_t    room = sizeof(tcp_out_t) + len;
    tcp_out_t *out;
    char      *to;

    if (conn->queued + room > ((conn->ep != NULL) ? TCP_QUEUE_MAX : TCP_REPLIES_MAX)) {
        return overflow(conn, "it does not read");
    }
    out = malloc(room);
    if (out == NULL) {
        return overflow(conn, "no memory for a message");
    }
    out->send     = NULL;
    out->copied   = room;
    out->iov      = out->fixed;
    out->at       = 0;
    out->n        = 1;
    out->fixed[0] = (struct iovec){out->bytes, len};
    for (to = out->bytes; at < n; ++at) {
        kvcl_copy_bytes(to, iov[at].iov_base, iov[at].iov_len);
        to += iov[at].iov_len;
    }
    kvcl_tcp_queue_add(conn, out);
    return KVCL_OK;
}

/* Keep the pieces themselves, from byte `skip` on. */
static kvcl_status_t queue_pieces(tcp_conn_t *conn, const tcp_frame_t *frame, const void *hdr, const kvcl_iov_t *iov,
                                  size_t n_iov, size_t skip, kvcl_xport_send_t *send)
{
    tcp_t     *tcp = conn->tcp;
    tcp_out_t *out = kvcl_mpool_get(&tcp->gather);

    if (out == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "tcp: no memory for a message");
    }
    out->iov = (n_iov + 4 <= sizeof(out->fixed) / sizeof(out->fixed[0])) ? out->fixed
                                                                         : malloc((n_iov + 4) * sizeof(*out->iov));
    if (out->iov == NULL) {
        kvcl_mpool_put(&tcp->gather, out);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "tcp: no memory for a message of %zu pieces", n_iov);
    }
    out->send   = send;
    out->copied = 0;
    out->frame  = *frame;
    out->at     = 0;
    (void)gather(out->iov, &out->n, &out->frame, hdr, iov, n_iov);
    kvcl_tcp_pass(out->iov, &out->at, skip);
    kvcl_tcp_queue_add(conn, out);
    return KVCL_INPROGRESS;
}

static bool is_free(const tcp_conn_t *conn)
{
    return (conn->queue == NULL) && (conn->stream.state == KVCL_SOCK_OPEN) && conn->stream.writable &&
           !kvcl_sock_unsent(&conn->stream);
}

/* Rest of a message after `sent` of its bytes. */
static kvcl_status_t keep_rest(tcp_conn_t *conn, const tcp_frame_t *frame, const void *hdr, const kvcl_iov_t *iov,
                               size_t n_iov, size_t sent, size_t len, kvcl_xport_send_t *send)
{
    struct iovec  pieces[PIECES], *all = pieces;
    kvcl_status_t status;
    unsigned      n, at = 0;

    if (send != NULL) {
        return queue_pieces(conn, frame, hdr, iov, n_iov, sent, send);
    }
    if ((n_iov + 4 > PIECES) && ((all = malloc((n_iov + 4) * sizeof(*all))) == NULL)) {
        return overflow(conn, "no memory for a message");
    }
    (void)gather(all, &n, frame, hdr, iov, n_iov);
    kvcl_tcp_pass(all, &at, sent);
    status = queue_copy(conn, all, at, n, len - sent);
    if (all != pieces) {
        free(all);
    }
    return status;
}

static kvcl_status_t send_on(tcp_conn_t *conn, const void *hdr, size_t hdr_len, const kvcl_iov_t *iov, size_t n_iov,
                             unsigned flags, size_t payload, kvcl_xport_send_t *send)
{
    tcp_frame_t   frame = {TCP_FRAME_MAGIC, conn->seq_out, (uint16_t)hdr_len, (uint16_t)flags, (uint32_t)payload};
    size_t        len   = sizeof(frame) + hdr_len + pad(hdr_len) + payload + pad(payload);
    struct iovec  pieces[PIECES];
    kvcl_status_t status;
    ssize_t       sent = 0;
    unsigned      n;

    if (is_free(conn) && (n_iov + 4 <= PIECES)) {
        (void)gather(pieces, &n, &frame, hdr, iov, n_iov);
        sent = kvcl_sock_send(&conn->stream, pieces, n);
        if (sent < 0) {
            return kvcl_tcp_broken(conn);
        }
    }
    if ((size_t)sent == len) {
        ++conn->seq_out;
        kvcl_tcp_queue_note(conn);
        return KVCL_OK;
    }
    status = keep_rest(conn, &frame, hdr, iov, n_iov, (size_t)sent, len, send);
    if (status >= 0) {
        ++conn->seq_out;
    } else if (sent > 0) { /* a part of the message is on its way: the peer could not find the next one */
        kvcl_tcp_conn_fail(conn, KVCL_ERR_RANK_FAILED, "no memory for the rest of a message");
    }
    return status;
}

kvcl_status_t kvcl_tcp_am_send(kvcl_xport_ep_t *super, const void *hdr, size_t hdr_len, const kvcl_iov_t *iov,
                               size_t n_iov, unsigned flags, kvcl_xport_send_t *send)
{
    tcp_ep_t *ep     = kvcl_container_of(super, tcp_ep_t, super);
    size_t   max     = (send != NULL) ? TCP_MSG_MAX : TCP_INLINE_BYTES;
    size_t   payload = 0, i;

    if (ep->broken) {
        return kvcl_fail(ep->why, "tcp: the endpoint has failed");
    }
    for (i = 0; i < n_iov; ++i) {
        payload += iov[i].len;
    }
    if ((hdr_len > TCP_MAX_HDR) || (payload > max)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "tcp: a message of %zu and %zu bytes, at most %d and %zu", hdr_len,
                         payload, TCP_MAX_HDR, max);
    }
    if (ep->self) {
        return kvcl_tcp_self_send(tcp_of(super->xport), hdr, hdr_len, iov, n_iov, payload, flags);
    }
    kvcl_tcp_conn_hot(ep->out);
    return send_on(ep->out, hdr, hdr_len, iov, n_iov, flags & KVCL_XPORT_REPLY, payload, send);
}

/* By the endpoint's own connection, if there is an endpoint: no later message may overtake the reply. */
kvcl_status_t kvcl_tcp_reply(kvcl_xport_reply_t *opaque, const void *hdr, size_t hdr_len)
{
    tcp_reply_t *reply = kvcl_container_of(opaque, tcp_reply_t, super);
    tcp_conn_t  *conn  = reply->conn;

    if ((conn == NULL) && !reply->self) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "tcp: the message was sent without a reply path");
    }
    if (hdr_len > TCP_MAX_HDR) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "tcp: a header of %zu bytes, at most %d", hdr_len, TCP_MAX_HDR);
    }
    if (reply->self) {
        return kvcl_tcp_self_send(tcp_of(opaque->xport), hdr, hdr_len, NULL, 0, 0, 0);
    }
    if (conn->dead) {
        return kvcl_fail(KVCL_ERR_RANK_FAILED, "tcp: the connection has failed");
    }
    conn = (conn->ep != NULL) ? conn->ep->out : conn;
    return send_on(conn, hdr, hdr_len, NULL, 0, 0, 0, NULL);
}
