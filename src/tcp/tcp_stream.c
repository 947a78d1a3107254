/*
 * Streams beside an endpoint's messages, each by a connection of its own (xport.h, stream_open).
 *
 * Owns: nothing: a stream is a part of its connection, which is freed once both the transport and the user have ended
 * it. Invariants: the end of a stream is not the end of its endpoint. Locks: the engine lock.
 */
#include "config.h"
#include "tcp/tcp.h"
#include "base/error.h"

#include <errno.h>

static tcp_conn_t *conn_of(kvcl_xport_stream_t *stream)
{
    return kvcl_container_of(stream, tcp_conn_t, user);
}

/* By the address that leads to the peer, as far as is known; after a failure by the next one. */
kvcl_status_t kvcl_tcp_stream_open(kvcl_xport_ep_t *super, kvcl_xport_stream_t **stream_p)
{
    tcp_ep_t      *ep  = kvcl_container_of(super, tcp_ep_t, super);
    tcp_t         *tcp = tcp_of(super->xport);
    kvcl_status_t status;
    tcp_conn_t    *conn;

    if (ep->broken || ep->self || (ep->addr.n == 0)) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "tcp: no stream leads to this peer");
    }
    conn = kvcl_tcp_conn_new(tcp);
    if (conn == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "tcp: no memory for a stream");
    }
    conn->is_stream = true;
    status = kvcl_tcp_ep_try(ep, conn, &ep->addr.at[ep->stream_at % ep->addr.n], KVCL_SOCK_STREAM);
    ep->stream_at = (status == KVCL_OK) ? ep->stream_at : ep->stream_at + 1;
    if (status != KVCL_OK) {
        kvcl_tcp_conn_kill(conn, status);
        return status;
    }
    conn->ep   = ep;
    conn->held = true;
    *stream_p  = &conn->user;
    return KVCL_OK;
}

static void copy_state(tcp_conn_t *conn)
{
    conn->user.readable = conn->stream.readable;
    conn->user.writable = conn->stream.writable;
}

ssize_t kvcl_tcp_stream_send(kvcl_xport_stream_t *stream, const struct iovec *iov, size_t n)
{
    tcp_conn_t *conn = conn_of(stream);
    ssize_t    sent;

    if (conn->dead || !stream->open) {
        errno = ENOTCONN;
        return -1;
    }
    sent = kvcl_sock_send(&conn->stream, iov, n);
    copy_state(conn);
    return sent;
}

ssize_t kvcl_tcp_stream_recv(kvcl_xport_stream_t *stream, const struct iovec *iov, size_t n)
{
    tcp_conn_t *conn = conn_of(stream);
    ssize_t    got;

    if (conn->dead || !stream->open) {
        errno = ENOTCONN;
        return -1;
    }
    got = kvcl_sock_recv(&conn->stream, iov, n);
    copy_state(conn);
    return got;
}

void kvcl_tcp_stream_close(kvcl_xport_stream_t *stream)
{
    tcp_conn_t *conn = conn_of(stream);

    conn->held = false;
    kvcl_tcp_conn_kill(conn, KVCL_ERR_CANCELED);
}

/* One that is late, or NULL. */
static tcp_conn_t *late(tcp_t *tcp, uint64_t now, uint64_t *next_p)
{
    tcp_conn_t *conn;

    kvcl_list_foreach (conn, &tcp->conns, tcp_conn_t, link) {
        if ((conn->is_stream || ((conn->ep != NULL) && (conn->ep->out != conn))) &&
            (conn->stream.state != KVCL_SOCK_OPEN)) {
            if (now >= conn->deadline_ns) {
                return conn;
            }
            *next_p = (conn->deadline_ns < *next_p) ? conn->deadline_ns : *next_p;
        }
    }
    return NULL;
}

/* The user that is notified may end any connection, so each search begins at the front. */
void kvcl_tcp_streams_expire(tcp_t *tcp, uint64_t now, uint64_t *next_p)
{
    tcp_conn_t *conn;

    while ((conn = late(tcp, now, next_p)) != NULL) {
        kvcl_tcp_conn_fail(conn, KVCL_ERR_TIMED_OUT, "it did not become open in time");
    }
}
