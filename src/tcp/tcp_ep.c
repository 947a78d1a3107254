/*
 * Endpoints: created, connected by one of the peer's addresses after the other, closed.
 *
 * Owns: tcp.eps, tcp.by_id. Invariants: an endpoint that is not broken has a connection by which it sends; what is sent
 * before that is open waits in its queue, which survives failed attempts, because nothing of it has been sent. A peer
 * that cannot be connected to may connect itself: the endpoint then uses that connection, and its queue moves there.
 * An endpoint fails once. Locks: the engine lock.
 */
#include "config.h"
#include "tcp/tcp.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/error.h"
#include "base/log.h"
#include "base/rand.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static kvcl_sock_wire_t asked_wire(const tcp_t *tcp, const tcp_where_t *where)
{
    if (tcp->wire == TCP_WIRE_AUTO) {
        return kvcl_net_is_loopback(where->family, where->addr) ? KVCL_SOCK_PLAIN : KVCL_SOCK_AEAD;
    }
    return (tcp->wire == TCP_WIRE_PLAIN) ? KVCL_SOCK_PLAIN : KVCL_SOCK_AEAD;
}

kvcl_status_t kvcl_tcp_ep_try(tcp_ep_t *ep, tcp_conn_t *conn, const tcp_where_t *where, kvcl_sock_purpose_t purpose)
{
    tcp_t                   *tcp = tcp_of(ep->super.xport);
    kvcl_sock_side_t        side = tcp->side;
    struct sockaddr_storage ss;
    socklen_t               len = kvcl_net_sockaddr(where->family, where->addr, where->port, &ss);
    kvcl_status_t           status = kvcl_random_bytes(side.random, sizeof(side.random));

    side.wire = asked_wire(tcp, where);
    if (status == KVCL_OK) {
        status = kvcl_sock_connect(&conn->stream, (const struct sockaddr *)&ss, len, &side, ep->addr.id,
                                   purpose, &tcp->tuning);
    }
    kvcl_wipe(side.random, sizeof(side.random)); /* its private key: the handshake has it */
    if ((status == KVCL_OK) && (kvcl_tcp_conn_watch(conn) != KVCL_OK)) {
        kvcl_sock_close(&conn->stream, tcp->epfd);
        status = KVCL_ERR_IO;
    }
    if (status == KVCL_OK) {
        conn->deadline_ns = kvcl_deadline_after(TCP_SHAKE_NS);
        kvcl_tcp_timer_at(tcp, conn->deadline_ns);
    }
    return status;
}

/* May the peer connect to this rank? */
static bool can_be_reached(const tcp_t *tcp, const tcp_addr_t *peer)
{
    bool     same_host = memcmp(tcp->own.host, peer->host, sizeof(peer->host)) == 0;
    unsigned i;

    for (i = 0; i < tcp->own.n; ++i) {
        if (same_host || !kvcl_net_is_loopback(tcp->own.at[i].family, tcp->own.at[i].addr)) {
            return true;
        }
    }
    return false;
}

/* Has each address refused? Then the peer has ended, or only it can connect; it has TCP_REFUSED_NS for that. */
static bool is_refused(tcp_ep_t *ep, uint64_t now)
{
    if ((ep->addr.n == 0) || (ep->refusals < ep->addr.n)) {
        return false;
    }
    ep->refused_ns = (ep->refused_ns != 0) ? ep->refused_ns : now;
    return !can_be_reached(tcp_of(ep->super.xport), &ep->addr) || (now - ep->refused_ns >= TCP_REFUSED_NS);
}

/* No address has led to the peer in this round: try again later, unless each refused, or it has lasted too long. */
static void wait_a_while(tcp_ep_t *ep, kvcl_status_t status)
{
    uint64_t now = kvcl_now_ns();

    if (is_refused(ep, now) || (now >= ep->deadline_ns)) {
        kvcl_log_info("tcp: no connection to a peer: %s", kvcl_status_text(status));
        kvcl_tcp_ep_fail(ep, KVCL_ERR_UNREACHABLE);
        return;
    }
    ep->at         = 0;
    ep->refusals   = 0;
    ep->retry_ns   = (ep->addr.n > 0) ? now + ep->backoff_ns : ep->deadline_ns;
    ep->backoff_ns = (ep->backoff_ns < TCP_BACKOFF_MAX / 2) ? ep->backoff_ns * 2 : TCP_BACKOFF_MAX;
    kvcl_tcp_timer_at(tcp_of(ep->super.xport), ep->retry_ns);
}

static void connect_next(tcp_ep_t *ep)
{
    kvcl_status_t status = KVCL_ERR_UNREACHABLE;

    ep->retry_ns = 0;
    while ((ep->at < ep->addr.n) && (kvcl_now_ns() < ep->deadline_ns)) {
        status = kvcl_tcp_ep_try(ep, ep->out, &ep->addr.at[ep->at], KVCL_SOCK_MESSAGES);
        if (status == KVCL_OK) {
            ep->stream_at = ep->at;
            return;
        }
        ep->refusals += (status == KVCL_ERR_UNREACHABLE) ? 1 : 0;
        ++ep->at;
    }
    wait_a_while(ep, status);
}

/* The connection has sent no message, and neither has ep->out. */
static void use(tcp_ep_t *ep, tcp_conn_t *conn)
{
    tcp_conn_t *old = ep->out;

    kvcl_log_debug("tcp: a peer has connected, which this rank could not");
    kvcl_tcp_queue_move(old, conn);
    ep->out      = conn;
    ep->retry_ns = 0;
    kvcl_tcp_conn_kill(old, KVCL_ERR_CANCELED);
}

/* While this side's own handshake goes on, the peer may be about to use that connection, so it is not ended here; the
 * messages of this side go by the one that is open now. */
void kvcl_tcp_ep_offer(tcp_ep_t *ep, tcp_conn_t *conn)
{
    if (ep->out->stream.state == KVCL_SOCK_SHAKING) {
        kvcl_tcp_queue_move(ep->out, conn);
        ep->out = conn;
        return;
    }
    if ((ep->out->stream.state == KVCL_SOCK_CONNECTING) || (ep->out->stream.state == KVCL_SOCK_CLOSED)) {
        use(ep, conn);
    }
}

/* A connection that the peer has made; NULL: none. */
static tcp_conn_t *from_peer(const tcp_ep_t *ep)
{
    tcp_conn_t *conn;

    kvcl_list_foreach (conn, &tcp_of(ep->super.xport)->conns, tcp_conn_t, link) {
        if ((conn->ep == ep) && (conn != ep->out) && !conn->is_stream && (conn->stream.state == KVCL_SOCK_OPEN) &&
            (conn->seq_out == 0) && (conn->queue == NULL)) {
            return conn;
        }
    }
    return NULL;
}

void kvcl_tcp_ep_again(tcp_ep_t *ep, kvcl_status_t status)
{
    const kvcl_xport_cbs_t *cbs = &tcp_of(ep->super.xport)->cbs;
    tcp_conn_t             *out = ep->out, *other = from_peer(ep);

    kvcl_log_debug("tcp: an attempt to connect failed: %s",
                   (status == KVCL_ERR_TIMED_OUT) ? "the peer does not answer" : kvcl_last_error());
    ep->refusals += (out->stream.state == KVCL_SOCK_CONNECTING) && (status == KVCL_ERR_UNREACHABLE) ? 1 : 0;
    kvcl_sock_close(&out->stream, tcp_of(ep->super.xport)->epfd);
    if (other != NULL) {
        use(ep, other);
        return;
    }
    if ((status == KVCL_ERR_AUTH) && (cbs->stranger != NULL)) {
        kvcl_log_warn("tcp: the peer at the other end does not know the job's secret");
        cbs->stranger(cbs->arg);
    }
    if ((status == KVCL_ERR_AUTH) || (status == KVCL_ERR_VERSION) || (status == KVCL_ERR_STALE)) {
        kvcl_tcp_ep_fail(ep, status);
        return;
    }
    ++ep->at;
    connect_next(ep);
}

void kvcl_tcp_eps_retry(tcp_t *tcp, uint64_t now, uint64_t *next_p)
{
    tcp_ep_t *ep, *tmp;
    uint64_t due;

    kvcl_list_foreach_safe (ep, tmp, &tcp->eps, tcp_ep_t, link) {
        if (ep->broken || ep->self || (ep->out->stream.state == KVCL_SOCK_OPEN)) {
            continue;
        }
        due = (ep->retry_ns != 0) ? ep->retry_ns : ep->out->deadline_ns;
        if (now < due) {
            *next_p = (due < *next_p) ? due : *next_p;
        } else if (ep->retry_ns != 0) {
            connect_next(ep);
        } else {
            kvcl_tcp_ep_again(ep, KVCL_ERR_TIMED_OUT);
        }
    }
}

/* ---- by id ---- */

static uint64_t id_key(const uint8_t id[KVCL_SOCK_ID_LEN])
{
    uint64_t key;

    memcpy(&key, id, sizeof(key));
    return key;
}

tcp_ep_t *kvcl_tcp_ep_of(const tcp_t *tcp, const uint8_t id[KVCL_SOCK_ID_LEN])
{
    tcp_ep_t *ep = kvcl_map_get(&tcp->by_id, id_key(id));

    while ((ep != NULL) && (ep->broken || (memcmp(ep->addr.id, id, KVCL_SOCK_ID_LEN) != 0))) {
        ep = ep->alike;
    }
    return ep;
}

static kvcl_status_t add_by_id(tcp_t *tcp, tcp_ep_t *ep)
{
    tcp_ep_t *first = kvcl_map_get(&tcp->by_id, id_key(ep->addr.id));

    if (first == NULL) {
        return kvcl_map_put(&tcp->by_id, id_key(ep->addr.id), ep);
    }
    ep->alike    = first->alike;
    first->alike = ep;
    return KVCL_OK;
}

static void drop_by_id(tcp_t *tcp, tcp_ep_t *ep)
{
    tcp_ep_t *at = kvcl_map_get(&tcp->by_id, id_key(ep->addr.id));

    if ((at == ep) && (ep->alike == NULL)) {
        (void)kvcl_map_del(&tcp->by_id, id_key(ep->addr.id));
    } else if (at == ep) {
        (void)!kvcl_map_put(&tcp->by_id, id_key(ep->addr.id), ep->alike); /* it replaces: nothing is allocated */
    } else {
        while (at->alike != ep) {
            at = at->alike;
        }
        at->alike = ep->alike;
    }
}

/* ---- the vtable ---- */

/* The endpoint has all accepted connections of its id. Returns the first; NULL: there is none. */
static tcp_conn_t *take_accepted(tcp_t *tcp, tcp_ep_t *ep)
{
    tcp_conn_t *conn, *first = NULL;

    kvcl_list_foreach (conn, &tcp->conns, tcp_conn_t, link) {
        if ((conn->ep == NULL) && (conn->stream.state == KVCL_SOCK_OPEN) && !conn->is_stream &&
            (memcmp(conn->stream.peer_id, ep->addr.id, KVCL_SOCK_ID_LEN) == 0)) {
            conn->ep = ep;
            first    = (first != NULL) ? first : conn;
        }
    }
    return first;
}

/* In no list but tcp.by_id. NULL: there is no memory. */
static tcp_ep_t *make(tcp_t *tcp, const tcp_addr_t *addr)
{
    tcp_ep_t *ep = calloc(1, sizeof(*ep));

    if (ep == NULL) {
        return NULL;
    }
    ep->super.xport       = &tcp->super;
    ep->super.frame_bytes = TCP_FRAME_BYTES;
    ep->super.sockets     = true;
    ep->addr              = *addr;
    ep->backoff_ns        = TCP_BACKOFF_NS;
    ep->deadline_ns       = kvcl_deadline_after(TCP_CONNECT_NS);
    ep->self              = (memcmp(addr->id, tcp->own.id, sizeof(addr->id)) == 0);
    kvcl_list_init(&ep->failed_link);
    if (add_by_id(tcp, ep) != KVCL_OK) {
        free(ep);
        return NULL;
    }
    return ep;
}

kvcl_status_t kvcl_tcp_ep_create(kvcl_xport_t *xport, const void *addr, size_t len, kvcl_xport_ep_t **ep_p)
{
    tcp_t         *tcp = tcp_of(xport);
    tcp_addr_t    parsed;
    kvcl_status_t status = kvcl_tcp_addr_unpack(addr, len, &parsed);
    bool          connects;
    tcp_ep_t      *ep;

    if (status != KVCL_OK) {
        return status;
    }
    kvcl_tcp_addr_sort(&parsed, &tcp->own, tcp->nets, tcp->n_doors);
    ep = make(tcp, &parsed);
    if (ep == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "tcp: no memory for an endpoint");
    }
    ep->out  = take_accepted(tcp, ep);
    connects = (ep->out == NULL) && !ep->self;
    if (connects && (parsed.n == 0) && !can_be_reached(tcp, &parsed)) {
        status = kvcl_fail(KVCL_ERR_UNREACHABLE, "tcp: the peer listens on no interface that leads there from this "
                           "host; name one in KVCL_NET there");
    } else if (connects && ((ep->out = kvcl_tcp_conn_new(tcp)) == NULL)) {
        status = kvcl_fail(KVCL_ERR_NO_MEMORY, "tcp: no memory for a connection");
    }
    if (status != KVCL_OK) {
        drop_by_id(tcp, ep);
        free(ep);
        return status;
    }
    kvcl_list_add_tail(&tcp->eps, &ep->link);
    if (connects) {
        ep->out->ep = ep;
        connect_next(ep);
    }
    *ep_p = &ep->super;
    return KVCL_OK;
}

void kvcl_tcp_ep_close(kvcl_xport_ep_t *super)
{
    tcp_ep_t   *ep  = kvcl_container_of(super, tcp_ep_t, super);
    tcp_t      *tcp = tcp_of(super->xport);
    tcp_conn_t *conn, *tmp;

    kvcl_list_foreach_safe (conn, tmp, &tcp->conns, tcp_conn_t, link) {
        if (conn->ep == ep) {
            kvcl_tcp_conn_kill(conn, KVCL_ERR_CANCELED);
        }
    }
    kvcl_list_del(&ep->failed_link);
    kvcl_list_del(&ep->link);
    drop_by_id(tcp, ep);
    free(ep);
}

void kvcl_tcp_ep_describe(kvcl_xport_ep_t *super, char *buf, size_t cap)
{
    const tcp_ep_t   *ep  = kvcl_container_of(super, tcp_ep_t, super);
    const tcp_conn_t *out = ep->out;
    const char       *wire = "";

    if ((out != NULL) && (out->stream.state == KVCL_SOCK_OPEN)) {
        wire = (out->stream.wire == KVCL_SOCK_AEAD) ? " aead" : " plain";
    }
    snprintf(buf, cap, "%s%s", tcp_of(super->xport)->text, wire);
}
