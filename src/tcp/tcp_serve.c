/*
 * A connection at work: the handshake opens it, a proven stranger gets its endpoint, and the socket is served while it
 * can be read or written.
 *
 * Owns nothing. Invariant: a connection that ended inside a call here is not touched afterwards, but for its `dead`.
 * Locks: the engine lock.
 */
#include "config.h"
#include "tcp/tcp.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <string.h>

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
    tcp_ep_t *ep  = kvcl_tcp_ep_of(tcp, conn->stream.peer_id);

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
    tcp_ep_t                  *ep    = kvcl_tcp_ep_of(tcp, claim->peer_id);
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
