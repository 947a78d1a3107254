/*
 * Receiving: bytes are read into one scratch buffer of the transport; messages that are whole there are delivered in
 * place. The beginning of another one moves to its connection's own buffer, once; the rest of it is read there, and
 * what follows it into the scratch buffer, by the same call.
 *
 * Owns: tcp.scratch, and the beginnings. Invariants: frames are padded to 8 bytes, and the scratch buffer always begins
 * with a frame, so headers are aligned. The buffer of a beginning grows with the bytes that have arrived, to IN_GROWTH
 * times as many: a claimed length alone takes no memory, and the work for each byte is bounded however the bytes are
 * cut. A frame that KVCL does not send, or out of sequence, ends the connection. Locks: the engine lock.
 */
#include "config.h"
#include "tcp/tcp.h"
#include "base/error.h"
#include "weave/pieces.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { IN_MIN = 4096, IN_GROWTH = 16, IN_KEPT = 256 << 10, LAST_READS = 256 };

static size_t padded(size_t len)
{
    return (len + 7) & ~(size_t)7;
}

/* The bytes of the frame at buf; 0: it is none that KVCL sends. */
static size_t frame_bytes(const tcp_conn_t *conn, const uint8_t *buf)
{
    tcp_frame_t frame;

    memcpy(&frame, buf, sizeof(frame));
    if ((frame.magic != TCP_FRAME_MAGIC) || (frame.seq != conn->seq_in) || (frame.hdr_len > TCP_MAX_HDR) ||
        ((frame.flags & ~(unsigned)KVCL_XPORT_REPLY) != 0) ||
        (frame.len > ((conn->ep != NULL) ? TCP_MSG_MAX : TCP_UNUSED_MSG))) {
        return 0;
    }
    return sizeof(frame) + padded(frame.hdr_len) + padded(frame.len);
}

/* A whole frame. The callback may end the connection. */
static void deliver(tcp_conn_t *conn, const uint8_t *buf)
{
    tcp_t       *tcp  = conn->tcp;
    tcp_reply_t reply = {.super = {&tcp->super}};
    tcp_frame_t frame;

    memcpy(&frame, buf, sizeof(frame));
    ++conn->seq_in;
    reply.conn = (frame.flags & KVCL_XPORT_REPLY) ? conn : NULL;
    tcp->cbs.recv(tcp->cbs.arg, buf + sizeof(frame), frame.hdr_len, buf + sizeof(frame) + padded(frame.hdr_len),
                  frame.len, &reply.super);
}

/* Room for more than len bytes of a frame; need: all of it, 0: not known yet. */
static bool grow(tcp_conn_t *conn, size_t len, size_t need)
{
    size_t  cap = (IN_GROWTH * len < IN_MIN) ? IN_MIN : IN_GROWTH * len;
    uint8_t *in;

    cap = ((need > 0) && (need < cap)) ? need : cap;
    if ((conn->in_cap >= cap) || (conn->in_cap >= 2 * len)) {
        return true;
    }
    in = realloc(conn->in, cap);
    if (in == NULL) {
        kvcl_tcp_conn_fail(conn, KVCL_ERR_RANK_FAILED, "no memory for a message that arrives");
        return false;
    }
    conn->in     = in;
    conn->in_cap = cap;
    return true;
}

/* Keep the beginning of a frame for the next read. */
static void keep(tcp_conn_t *conn, const uint8_t *buf, size_t len, size_t need)
{
    if (grow(conn, len, need)) {
        kvcl_copy_bytes(conn->in, buf, len);
        conn->in_len  = len;
        conn->in_need = need;
    }
}

/* Deliver the frames of the scratch buffer. Returns their number. */
static unsigned parse(tcp_conn_t *conn, const uint8_t *buf, size_t len)
{
    unsigned n = 0;
    size_t   need;

    conn->in_len = conn->in_need = 0;
    for (;;) {
        need = 0;
        if (len >= sizeof(tcp_frame_t)) {
            need = frame_bytes(conn, buf);
            if (need == 0) {
                kvcl_tcp_conn_fail(conn, KVCL_ERR_RANK_FAILED, "a frame that KVCL does not send");
                return n + 1;
            }
        }
        if ((need == 0) || (need > len)) {
            break;
        }
        deliver(conn, buf);
        ++n;
        if (conn->dead) {
            return n;
        }
        buf += need;
        len -= need;
    }
    if (len > 0) {
        keep(conn, buf, len, need);
    }
    return n;
}

/* The end of the frame that began in conn->in, and what followed it, in the scratch buffer. */
static unsigned take_rest(tcp_conn_t *conn, size_t got, size_t rest_in)
{
    size_t part = (got < rest_in) ? got : rest_in;

    conn->in_len += part;
    got          -= part;
    if (conn->in_len < conn->in_need) {
        return 1;
    }
    deliver(conn, conn->in);
    if (conn->dead) {
        return 1;
    }
    conn->in_len = conn->in_need = 0;
    if (conn->in_cap > IN_KEPT) {
        free(conn->in);
        conn->in     = NULL;
        conn->in_cap = 0;
    }
    return 1 + parse(conn, conn->tcp->scratch, got);
}

/* Another connection of the endpoint that may have bytes. */
static tcp_conn_t *unread(const tcp_conn_t *conn)
{
    tcp_conn_t *other;

    kvcl_list_foreach (other, &conn->tcp->conns, tcp_conn_t, link) {
        if ((other != conn) && (other->ep == conn->ep) && !other->is_stream && other->stream.readable) {
            return other;
        }
    }
    return NULL;
}

/* The endpoint ends with this connection: what its peer has sent by others comes first. */
static void read_others(tcp_conn_t *conn)
{
    tcp_conn_t *other;
    unsigned   reads;

    kvcl_list_foreach (other, &conn->tcp->conns, tcp_conn_t, link) {
        if ((other->ep == conn->ep) && !other->is_stream && (other->stream.state == KVCL_SOCK_OPEN)) {
            other->stream.readable = true;
        }
    }
    for (reads = 0; (reads < LAST_READS) && !conn->dead && ((other = unread(conn)) != NULL); ++reads) {
        (void)kvcl_tcp_take(other);
    }
}

static unsigned ended(tcp_conn_t *conn)
{
    int err = errno;

    if ((conn->ep != NULL) && (conn->ep->out == conn)) {
        read_others(conn);
        errno = err;
    }
    kvcl_tcp_conn_fail(conn, KVCL_ERR_RANK_FAILED,
                       (errno == 0) ? "closed by the peer" : (errno == EBADMSG) ? "its bytes were changed on the way"
                                                                                : strerror(errno));
    return 1;
}

unsigned kvcl_tcp_take(tcp_conn_t *conn)
{
    uint8_t      *scratch = conn->tcp->scratch;
    bool         begun    = conn->in_need > 0;
    size_t       want     = 0;
    struct iovec iov[2];
    unsigned     n = 1;
    ssize_t      got;

    if (begun) {
        if (!grow(conn, conn->in_len, conn->in_need)) {
            return 1;
        }
        want   = ((conn->in_cap < conn->in_need) ? conn->in_cap : conn->in_need) - conn->in_len;
        iov[0] = (struct iovec){conn->in + conn->in_len, want};
        iov[1] = (struct iovec){scratch, TCP_SCRATCH};
        n      = (conn->in_cap >= conn->in_need) ? 2 : 1;
    } else { /* in_len: of less than a frame's head */
        iov[0] = (struct iovec){scratch + conn->in_len, TCP_SCRATCH - conn->in_len};
    }
    got = kvcl_sock_recv(&conn->stream, iov, n);
    if (got <= 0) {
        return (got == 0) ? 0 : ended(conn);
    }
    kvcl_tcp_conn_hot(conn);
    if (begun) {
        return take_rest(conn, (size_t)got, want);
    }
    kvcl_copy_bytes(scratch, conn->in, conn->in_len);
    return parse(conn, scratch, conn->in_len + (size_t)got);
}
