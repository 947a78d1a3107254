/*
 * The life of connections: begun or accepted, opened by the handshake, served while they have work, ended.
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

    return (epoll_ctl(conn->tcp->epfd, EPOLL_CTL_ADD, conn->stream.fd, &ev) == 0)
               ? KVCL_OK : kvcl_fail_errno(KVCL_ERR_IO, errno, "tcp: cannot watch a connection");
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
            free(conn->in);
            free(conn);
        }
    }
}

/* ---- opening ---- */

/* The living endpoint of a proven id. */
static tcp_ep_t *ep_of(tcp_t *tcp, const uint8_t id[KVCL_SOCK_ID_LEN])
{
    tcp_ep_t *ep;

    kvcl_list_foreach (ep, &tcp->eps, tcp_ep_t, link) {
        if (!ep->broken && (memcmp(ep->addr.id, id, KVCL_SOCK_ID_LEN) == 0)) {
            return ep;
        }
    }
    return NULL;
}

/* May another connection of this kind be accepted from its id? The oldest that has never carried a message goes for it;
 * the one by which the endpoint sends does not count. */
static bool has_room(const tcp_conn_t *conn, const tcp_ep_t *ep)
{
    tcp_conn_t *other, *idle = NULL;
    unsigned   n = 0;

    kvcl_list_foreach (other, &conn->tcp->conns, tcp_conn_t, link) {
        if ((other == conn) || (other->stream.state != KVCL_SOCK_OPEN) || (other->is_stream != conn->is_stream) ||
            ((ep != NULL) && (ep->out == other)) ||
            (memcmp(other->stream.peer_id, conn->stream.peer_id, KVCL_SOCK_ID_LEN) != 0)) {
            continue;
        }
        ++n;
        idle = ((idle == NULL) && !other->is_stream && (other->seq_in == 0)) ? other : idle;
    }
    if ((n >= TCP_CONNS_OF_ID) && (idle != NULL)) {
        kvcl_tcp_conn_fail(idle, KVCL_ERR_PROTOCOL, "its rank has made others");
        return true;
    }
    return n < TCP_CONNS_OF_ID;
}

/* A stranger has proven the secret. */
static void welcome(tcp_conn_t *conn)
{
    tcp_t    *tcp = conn->tcp;
    tcp_ep_t *ep  = ep_of(tcp, conn->stream.peer_id);

    conn->stranger = false;
    --tcp->n_strangers;
    kvcl_list_del(&conn->link);
    kvcl_list_add_tail(&tcp->conns, &conn->link);
    conn->is_stream = (conn->stream.purpose == KVCL_SOCK_STREAM);
    if (!has_room(conn, ep) || (conn->is_stream && ((ep == NULL) || (tcp->cbs.stream == NULL)))) {
        kvcl_tcp_conn_fail(conn, KVCL_ERR_PROTOCOL, "its rank may open no other");
        return;
    }
    conn->ep = ep;
    if (ep == NULL) {
        kvcl_tcp_unused_bound(tcp, conn);
    } else if (!conn->is_stream) {
        kvcl_tcp_ep_offer(ep, conn);
    }
    if (conn->is_stream) {
        conn->held          = true;
        conn->user.open     = true;
        conn->user.writable = conn->user.readable = true;
        tcp->cbs.stream(tcp->cbs.arg, &ep->super, &conn->user);
    }
}

bool kvcl_tcp_conn_has_work(const tcp_conn_t *conn)
{
    return (conn->stream.readable && !conn->is_stream) ||
           ((conn->stream.state == KVCL_SOCK_OPEN) && conn->stream.writable &&
            ((conn->queue != NULL) || kvcl_sock_unsent(&conn->stream)));
}

/* What becomes of a stranger that claims to be the peer of an endpoint: it waits for the own attempt, is not needed, or
 * goes on. The claim is not proven, and nothing but this connection depends on it. */
static bool goes_on(tcp_conn_t *conn)
{
    const kvcl_sock_session_t *claim = kvcl_sock_claim(&conn->stream);
    tcp_t                     *tcp   = conn->tcp;
    tcp_ep_t                  *ep    = ep_of(tcp, claim->peer_id);
    uint64_t                  until;

    conn->parked = false;
    if ((ep == NULL) || ep->self || (ep->retry_ns != 0) || (ep->out->stream.state == KVCL_SOCK_OPEN) ||
        (claim->purpose != KVCL_SOCK_MESSAGES) || (memcmp(tcp->own.id, claim->peer_id, KVCL_SOCK_ID_LEN) > 0)) {
        return true;
    }
    until        = ep->out->deadline_ns - TCP_SHAKE_NS + TCP_PARK_NS;
    conn->parked = kvcl_now_ns() < until;
    if (conn->parked) {
        kvcl_tcp_timer_at(tcp, until);
    }
    return !conn->parked;
}

/* An attempt to connect has ended: those that waited for it go on, or are not needed. */
static void unpark(tcp_conn_t *own, bool open)
{
    tcp_t      *tcp = own->tcp;
    tcp_conn_t *conn, *tmp;

    kvcl_list_foreach_safe (conn, tmp, &tcp->strangers, tcp_conn_t, link) {
        if (conn->parked && open &&
            (memcmp(kvcl_sock_claim(&conn->stream)->peer_id, own->stream.peer_id, KVCL_SOCK_ID_LEN) == 0)) {
            kvcl_tcp_conn_kill(conn, KVCL_ERR_CANCELED);
        } else if (conn->parked) {
            kvcl_tcp_conn_ready(conn);
        }
    }
}

static kvcl_status_t shake_on(tcp_conn_t *conn)
{
    kvcl_status_t status = kvcl_sock_shake(&conn->stream);

    if ((status == KVCL_INPROGRESS) && conn->stream.pauses && conn->stream.heard && goes_on(conn)) {
        conn->stream.pauses = false;
        status              = kvcl_sock_shake(&conn->stream);
    }
    return status;
}

/* False: it is not open. */
static bool shake(tcp_conn_t *conn)
{
    kvcl_status_t status = shake_on(conn);

    if (status == KVCL_INPROGRESS) {
        return false;
    }
    if (!conn->stranger && !conn->is_stream) {
        unpark(conn, status == KVCL_OK);
    }
    if (status == KVCL_OK) {
        kvcl_log_debug("tcp: a connection is open (%s)", (conn->stream.wire == KVCL_SOCK_AEAD) ? "aead" : "plain");
        if (conn->stranger) {
            welcome(conn);
        }
        return !conn->dead;
    }
    if (conn->stranger || conn->is_stream) {
        kvcl_tcp_conn_fail(conn, status, kvcl_last_error());
    } else if (conn->ep->out != conn) {
        kvcl_tcp_conn_kill(conn, status); /* the endpoint has another one by now */
    } else {
        kvcl_tcp_ep_again(conn->ep, status);
    }
    return false;
}

/* Its user reads and writes; only a sealed record that the socket did not take is sent from here. */
static void serve_stream(tcp_conn_t *conn)
{
    if (conn->stream.writable && kvcl_sock_unsent(&conn->stream) && (kvcl_sock_flush(&conn->stream) < 0)) {
        kvcl_tcp_conn_fail(conn, KVCL_ERR_RANK_FAILED, strerror(errno));
        return;
    }
    conn->user.open     = true;
    conn->user.readable = conn->stream.readable;
    conn->user.writable = conn->stream.writable;
    conn->user.ended    = conn->stream.hup;
    if (conn->held) {
        conn->tcp->cbs.stream_event(conn->tcp->cbs.arg, &conn->user);
    }
}

unsigned kvcl_tcp_conn_serve(tcp_conn_t *conn)
{
    unsigned n = 0;

    if (conn->dead || (conn->stream.state == KVCL_SOCK_CLOSED)) {
        return 0;
    }
    if (conn->stream.state != KVCL_SOCK_OPEN) {
        if (!shake(conn)) {
            return 1;
        }
        ++n;
    }
    if (conn->is_stream) {
        serve_stream(conn);
        return 1;
    }
    if (conn->stream.writable && ((conn->queue != NULL) || kvcl_sock_unsent(&conn->stream))) {
        n += kvcl_tcp_push(conn);
    }
    if (!conn->dead && conn->stream.readable) {
        n += kvcl_tcp_take(conn);
    }
    if (!conn->dead && kvcl_tcp_conn_has_work(conn)) {
        kvcl_tcp_conn_ready(conn);
    }
    return n;
}
