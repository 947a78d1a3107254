/*
 * The beginning and the end of connections, and the lists in which they are. How they are opened and served is in
 * tcp_serve.c.
 *
 * Owns: tcp.conns, tcp.ready, tcp.hot, tcp.dead and the timer. Invariants: a connection is in one of tcp.strangers,
 * .conns and .dead; one that has ended stays allocated until progress() is over, since events and callers may refer to
 * it. The end of the connection by which an endpoint sends is the end of the endpoint; that of another one is not: the
 * peer whose connection it was notices, and then ends them all, but a process that has stolen the secret may have made
 * it. Locks: the engine lock.
 */
#include "config.h"
#include "tcp/tcp.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

void kvcl_tcp_timer_at(tcp_t *tcp, uint64_t ns)
{
    struct itimerspec at = {.it_value = {(time_t)(ns / KVCL_NS_PER_SEC), (long)(ns % KVCL_NS_PER_SEC)}};

    if ((tcp->timer_ns == 0) || (ns < tcp->timer_ns)) {
        tcp->timer_ns = ns;
        (void)timerfd_settime(tcp->timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
    }
}

tcp_conn_t *kvcl_tcp_conn_new(tcp_t *tcp)
{
    tcp_conn_t *conn = calloc(1, sizeof(*conn));

    if (conn != NULL) {
        conn->kind      = TCP_CONN;
        conn->tcp       = tcp;
        conn->stream.fd = -1;
        conn->user.xport = &tcp->super;
        conn->queue_end = &conn->queue;
        kvcl_list_init(&conn->ready_link);
        kvcl_list_add_tail(&tcp->conns, &conn->link);
    }
    return conn;
}

kvcl_status_t kvcl_tcp_conn_watch(tcp_conn_t *conn)
{
    struct epoll_event ev = {.events = (uint32_t)KVCL_SOCK_EVENTS, .data.ptr = conn};

    if (epoll_ctl(conn->tcp->epfd, EPOLL_CTL_ADD, conn->stream.fd, &ev) != 0) {
        return kvcl_fail_errno(KVCL_ERR_IO, errno, "tcp: cannot watch a connection");
    }
    conn->tcp->wide += conn->wide ? 0 : 1; /* it may have been watched in an attempt before */
    conn->wide       = true;
    return KVCL_OK;
}

void kvcl_tcp_conn_widen(tcp_conn_t *conn, bool wide)
{
    uint32_t           events = (uint32_t)KVCL_SOCK_EVENTS & ~(wide ? 0u : (uint32_t)EPOLLOUT);
    struct epoll_event ev     = {.events = events, .data.ptr = conn};

    if ((conn->wide != wide) && (epoll_ctl(conn->tcp->epfd, EPOLL_CTL_MOD, conn->stream.fd, &ev) == 0)) {
        conn->wide = wide;
        if (wide) {
            ++conn->tcp->wide;
        } else {
            --conn->tcp->wide;
        }
    }
}

void kvcl_tcp_conn_ready(tcp_conn_t *conn)
{
    if (kvcl_list_is_empty(&conn->ready_link) && !conn->dead) {
        kvcl_list_add_tail(&conn->tcp->ready, &conn->ready_link);
    }
}

void kvcl_tcp_conn_hot(tcp_conn_t *conn)
{
    tcp_t    *tcp = conn->tcp;
    unsigned i;

    conn->vain = 0;
    if (tcp->hot[0] == conn) {
        return;
    }
    for (i = 1; (i < TCP_HOT - 1) && (tcp->hot[i] != conn); ++i) {
    }
    for (; i > 0; --i) {
        tcp->hot[i] = tcp->hot[i - 1];
    }
    tcp->hot[0] = conn;
}

/* ---- ends ---- */

static void cool(tcp_conn_t *conn)
{
    unsigned i;

    for (i = 0; i < TCP_HOT; ++i) {
        if (conn->tcp->hot[i] == conn) {
            conn->tcp->hot[i] = NULL;
        }
    }
}

void kvcl_tcp_conn_kill(tcp_conn_t *conn, kvcl_status_t status)
{
    if (conn->dead) {
        return;
    }
    conn->dead = true;
    conn->tcp->n_strangers -= conn->stranger ? 1 : 0;
    conn->tcp->wide        -= conn->wide ? 1 : 0;
    conn->wide              = false;
    if ((conn->ep != NULL) && (conn->ep->out == conn)) {
        conn->ep->out = NULL;
    }
    conn->ep = NULL;
    cool(conn);
    kvcl_tcp_queue_drop(conn, status);
    kvcl_sock_close(&conn->stream, conn->tcp->epfd);
    kvcl_list_del(&conn->ready_link);
    kvcl_list_del(&conn->link);
    kvcl_list_add_tail(&conn->tcp->dead, &conn->link);
}

void kvcl_tcp_ep_fail(tcp_ep_t *ep, kvcl_status_t status)
{
    tcp_t      *tcp = tcp_of(ep->super.xport);
    tcp_conn_t *conn, *tmp;

    if (ep->broken) {
        return;
    }
    ep->broken = true;
    ep->why    = status;
    kvcl_list_foreach_safe (conn, tmp, &tcp->conns, tcp_conn_t, link) {
        if (conn->ep == ep) {
            kvcl_tcp_conn_kill(conn, KVCL_ERR_RANK_FAILED);
        }
    }
    kvcl_list_add_tail(&tcp->failed, &ep->failed_link);
}

void kvcl_tcp_conn_fail(tcp_conn_t *conn, kvcl_status_t status, const char *why)
{
    if (conn->dead) {
        return;
    }
    kvcl_log_debug("tcp: a connection %s has ended: %s", conn->stranger ? "of a stranger" : "of a peer", why);
    if (conn->stranger && (conn->tcp->cbs.stranger != NULL)) {
        conn->tcp->cbs.stranger(conn->tcp->cbs.arg);
    }
    if ((conn->ep != NULL) && conn->is_stream) {
        conn->ep->stream_at += conn->user.open ? 0 : 1; /* the next one by another address */
    } else if ((conn->ep != NULL) && (conn->ep->out == conn)) {
        kvcl_tcp_ep_fail(conn->ep, status);
    }
    kvcl_tcp_conn_kill(conn, status);
    if (conn->held) {
        conn->user.ended    = true;
        conn->user.readable = conn->user.writable = false;
        conn->tcp->cbs.stream_event(conn->tcp->cbs.arg, &conn->user);
    }
}

void kvcl_tcp_conns_bury(tcp_t *tcp)
{
    tcp_conn_t *conn, *tmp;

    kvcl_list_foreach_safe (conn, tmp, &tcp->dead, tcp_conn_t, link) {
        if (!conn->held) {
            kvcl_list_del(&conn->link);
            if ((conn->in != NULL) && (conn->stream.wire == KVCL_SOCK_AEAD)) {
                kvcl_wipe(conn->in, conn->in_cap);
            }
            free(conn->in);
            free(conn);
        }
    }
}
