/*
 * The queues of messages, or their rests, that wait for a socket.
 *
 * Owns: the queues, and the sends to report as done. Invariants: a part of a message is always first in the queue. A
 * send is reported from progress only. Locks: the engine lock.
 */
#include "config.h"
#include "tcp/tcp.h"
#include "base/error.h"

#include <errno.h>
#include <stdlib.h>

enum { BATCH = 64, TURN = 1 << 20 };

/* Advance by len bytes. */
void kvcl_tcp_pass(struct iovec *iov, unsigned *at, size_t len)
{
    while (len > 0) {
        if (len < iov[*at].iov_len) {
            iov[*at].iov_base = (char *)iov[*at].iov_base + len;
            iov[*at].iov_len -= len;
            return;
        }
        len -= iov[*at].iov_len;
        ++*at;
    }
}

void kvcl_tcp_queue_note(tcp_conn_t *conn)
{
    bool waits = !conn->dead && ((conn->queue != NULL) || kvcl_sock_unsent(&conn->stream));

    conn->tcp->waiting += (unsigned)waits;
    conn->tcp->waiting -= (unsigned)conn->waits;
    conn->waits         = waits;
    if (waits && !conn->stream.writable && (conn->stream.state == KVCL_SOCK_OPEN)) {
        kvcl_tcp_conn_widen(conn, true);
    }
}

void kvcl_tcp_queue_add(tcp_conn_t *conn, tcp_out_t *out)
{
    out->next        = NULL;
    *conn->queue_end = out;
    conn->queue_end  = &out->next;
    conn->queued    += out->copied;
    kvcl_tcp_queue_note(conn);
    if (conn->stream.writable && (conn->stream.state == KVCL_SOCK_OPEN)) {
        kvcl_tcp_conn_ready(conn);
    }
}

static void release(tcp_t *tcp, tcp_out_t *out)
{
    if (out->copied > 0) {
        free(out);
        return;
    }
    if (out->iov != out->fixed) {
        free(out->iov);
    }
    kvcl_mpool_put(&tcp->gather, out);
}

kvcl_status_t kvcl_tcp_broken(tcp_conn_t *conn)
{
    kvcl_status_t status = kvcl_fail_errno(KVCL_ERR_RANK_FAILED, errno, "tcp: the connection failed");

    kvcl_tcp_conn_fail(conn, KVCL_ERR_RANK_FAILED, kvcl_last_error());
    return status;
}

static void pop(tcp_conn_t *conn)
{
    tcp_out_t         *out  = conn->queue;
    kvcl_xport_send_t *send = out->send;

    conn->queue = out->next;
    if (conn->queue == NULL) {
        conn->queue_end = &conn->queue;
    }
    conn->queued -= out->copied;
    release(conn->tcp, out);
    if (send != NULL) {
        send->done(send, KVCL_OK); /* may end the connection */
    }
}

/* Pieces of the first messages. */
static unsigned batch(const tcp_conn_t *conn, struct iovec iov[BATCH])
{
    const tcp_out_t *out;
    unsigned        n = 0, i;

    for (out = conn->queue; out != NULL; out = out->next) {
        for (i = out->at; i < out->n; ++i) {
            if (n == BATCH) {
                return n;
            }
            iov[n++] = out->iov[i];
        }
    }
    return n;
}

/* len bytes of the queue have been sent. */
static unsigned sent(tcp_conn_t *conn, size_t len)
{
    tcp_out_t *out;
    unsigned  n = 0;
    size_t    part;

    while ((len > 0) && !conn->dead) {
        out = conn->queue;
        while ((len > 0) && (out->at < out->n)) {
            part = (len < out->iov[out->at].iov_len) ? len : out->iov[out->at].iov_len;
            kvcl_tcp_pass(out->iov, &out->at, part);
            len -= part;
        }
        if (out->at == out->n) {
            pop(conn);
            ++n;
        }
    }
    return n;
}

unsigned kvcl_tcp_push(tcp_conn_t *conn)
{
    struct iovec iov[BATCH];
    size_t       moved = 0;
    unsigned     n     = 0;
    ssize_t      len;

    if (kvcl_sock_flush(&conn->stream) < 0) {
        (void)kvcl_tcp_broken(conn);
        return 1;
    }
    while (!conn->dead && conn->stream.writable && (conn->queue != NULL) && (moved < TURN)) {
        len = kvcl_sock_send(&conn->stream, iov, batch(conn, iov));
        if (len < 0) {
            (void)kvcl_tcp_broken(conn);
            return n + 1;
        }
        moved += (size_t)len;
        n     += (len > 0) ? 1 : 0;
        n     += sent(conn, (size_t)len);
    }
    if (!conn->dead) {
        kvcl_tcp_queue_note(conn);
    }
    return n;
}

void kvcl_tcp_queue_move(tcp_conn_t *from, tcp_conn_t *to)
{
    to->queue       = from->queue;
    to->queue_end   = (from->queue != NULL) ? from->queue_end : &to->queue;
    to->queued      = from->queued;
    to->seq_out     = from->seq_out;
    from->queue     = NULL;
    from->queue_end = &from->queue;
    from->queued    = 0;
    kvcl_tcp_queue_note(from);
    kvcl_tcp_queue_note(to);
    kvcl_tcp_conn_ready(to);
}

void kvcl_tcp_queue_drop(tcp_conn_t *conn, kvcl_status_t status)
{
    tcp_t     *tcp = conn->tcp;
    tcp_out_t *out;

    while ((out = conn->queue) != NULL) {
        conn->queue = out->next;
        if (out->send != NULL) {
            out->send->status = status;
            out->send->next   = NULL;
            *tcp->done_tail   = out->send;
            tcp->done_tail    = &out->send->next;
        }
        release(tcp, out);
    }
    conn->queue_end = &conn->queue;
    conn->queued    = 0;
    kvcl_tcp_queue_note(conn);
}

unsigned kvcl_tcp_report_done(tcp_t *tcp)
{
    kvcl_xport_send_t *send = tcp->done_head, *next;
    unsigned          n;

    tcp->done_head = NULL;
    tcp->done_tail = &tcp->done_head;
    for (n = 0; send != NULL; ++n, send = next) {
        next = send->next;
        send->done(send, send->status);
    }
    return n;
}
