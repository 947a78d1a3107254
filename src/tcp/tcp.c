/*
 * The tcp transport's vtable and its progress. tcp.h describes its parts.
 *
 * Descriptors are edge-triggered: an event is taken from the epoll once, and kept in its connection until a read or a
 * write has found the end. Connections by which messages passed lately are read without waiting for an event, except by
 * calls that have read the epoll, which has the events of all. A caller that spins reads the epoll once in LOOK_TICKS,
 * one that calls now and then at each call; arm() reads it only while a connection is watched for room (tcp.wide): else
 * what it holds is to be done, and wakes the sleeper. Locks: the engine lock.
 */
#include "config.h"
#include "tcp/tcp.h"
#include "base/clock.h"

#include <sys/epoll.h>

enum { LOOK_TICKS = 4096 /* between two reads of the epoll: 1 to 2 us */ };

static kvcl_status_t tcp_secure(kvcl_xport_t *xport, const uint8_t *secret)
{
    tcp_of(xport)->side.secret = secret;
    return kvcl_tcp_doors_watch(tcp_of(xport));
}

static void tcp_query(kvcl_xport_t *xport, kvcl_xport_attr_t *attr)
{
    (void)xport;
    attr->name         = "tcp";
    attr->frame_bytes  = TCP_FRAME_BYTES;
    attr->inline_bytes = TCP_INLINE_BYTES;
    attr->max_hdr      = TCP_MAX_HDR;
}

static void tcp_address(kvcl_xport_t *xport, const void **buf_p, size_t *len_p)
{
    *buf_p = tcp_of(xport)->packed;
    *len_p = tcp_of(xport)->packed_len;
}

/* ---- progress ---- */

/* A connection that has nothing to send is watched for room no longer. */
static void narrow(tcp_conn_t *conn)
{
    if ((conn->stream.state == KVCL_SOCK_OPEN) && !conn->is_stream && !conn->waits) {
        kvcl_tcp_conn_widen(conn, false);
    }
}

/* Take the events from the epoll. resting: of connections that then rest. */
static void harvest(tcp_t *tcp, bool resting)
{
    struct epoll_event ev[TCP_EVENTS];
    int                n = epoll_wait(tcp->epfd, ev, TCP_EVENTS, 0), i;

    for (i = 0; i < n; ++i) {
        tcp_conn_t *conn = ev[i].data.ptr;

        switch (*(const tcp_kind_t *)ev[i].data.ptr) {
        case TCP_LISTENER:
            ((tcp_door_t *)ev[i].data.ptr)->knocked = true;
            break;
        case TCP_TIMER:
            tcp->timer_due = true;
            break;
        default:
            kvcl_sock_event(&conn->stream, ev[i].events);
            if ((conn->stream.state != KVCL_SOCK_OPEN) || conn->is_stream || kvcl_tcp_conn_has_work(conn)) {
                kvcl_tcp_conn_ready(conn); /* not for "writable" alone, which a hot connection's event leaves behind */
            }
            if (resting) {
                narrow(conn);
            }
            break;
        }
    }
}

static bool is_knocked(const tcp_t *tcp)
{
    unsigned i;

    for (i = 0; i < tcp->n_doors; ++i) {
        if (tcp->doors[i].knocked && !tcp->full) {
            return true;
        }
    }
    return false;
}

static void look_at_deadlines(tcp_t *tcp)
{
    uint64_t now = kvcl_now_ns(), next = UINT64_MAX;

    tcp->timer_due = false;
    tcp->timer_ns  = 0;
    tcp->full      = false;
    kvcl_tcp_strangers_expire(tcp, now, &next);
    kvcl_tcp_unused_expire(tcp, now, &next);
    kvcl_tcp_eps_retry(tcp, now, &next);
    kvcl_tcp_streams_expire(tcp, now, &next);
    if (next != UINT64_MAX) {
        kvcl_tcp_timer_at(tcp, next);
    }
}

/* A connection that is read in vain for long cools: its events are in the epoll. */
static void read_hot(tcp_t *tcp)
{
    tcp_conn_t *conn;
    unsigned   i;

    for (i = 0; i < TCP_HOT; ++i) {
        conn = tcp->hot[i];
        if ((conn == NULL) || (conn->stream.state != KVCL_SOCK_OPEN)) {
            continue;
        }
        if (++conn->vain > TCP_HOT_READS) {
            tcp->hot[i] = NULL;
            continue;
        }
        conn->stream.readable = true;
        kvcl_tcp_conn_ready(conn);
    }
}

static unsigned serve_ready(tcp_t *tcp)
{
    kvcl_list_t now, *link;
    unsigned    n = 0;

    kvcl_list_init(&now);
    kvcl_list_splice_tail(&now, &tcp->ready);
    while ((link = kvcl_list_pop(&now)) != NULL) {
        n += kvcl_tcp_conn_serve(kvcl_container_of(link, tcp_conn_t, ready_link));
    }
    return n;
}

static unsigned report_failed(tcp_t *tcp)
{
    kvcl_list_t *link;
    unsigned    n = 0;

    while ((link = kvcl_list_pop(&tcp->failed)) != NULL) {
        tcp_ep_t *ep = kvcl_container_of(link, tcp_ep_t, failed_link);

        tcp->cbs.ep_failed(tcp->cbs.arg, &ep->super, ep->why);
        ++n;
    }
    return n;
}

/* Some clock that costs nothing. */
static uint64_t ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return kvcl_now_ns() * 2;
#endif
}

/* Not at each call of a spinning caller: a poll for shared memory costs next to nothing here. By time, not by calls: a
 * handshake must not take dozens of calls of a program that calls once in a while. */
static bool reads_epoll(tcp_t *tcp)
{
    uint64_t now = ticks();

    if (!tcp->armed && (now - tcp->looked < LOOK_TICKS)) {
        return false;
    }
    tcp->armed  = false;
    tcp->looked = now;
    return true;
}

static unsigned tcp_progress(kvcl_xport_t *xport)
{
    tcp_t    *tcp = tcp_of(xport);
    unsigned n    = 0;

    if (tcp->inside) {
        return 0;
    }
    tcp->inside = true;
    if (tcp->done_head != NULL) {
        n += kvcl_tcp_report_done(tcp);
    }
    if (reads_epoll(tcp)) {
        harvest(tcp, false);
    } else {
        read_hot(tcp);
    }
    n += serve_ready(tcp);
    if (!kvcl_list_is_empty(&tcp->selves)) {
        n += kvcl_tcp_self_deliver(tcp);
    }
    if (is_knocked(tcp)) {
        n += kvcl_tcp_doors_accept(tcp);
    }
    if (tcp->timer_due) {
        look_at_deadlines(tcp);
    }
    if (!kvcl_list_is_empty(&tcp->failed)) {
        n += report_failed(tcp);
    }
    if (!kvcl_list_is_empty(&tcp->dead)) {
        kvcl_tcp_conns_bury(tcp);
    }
    tcp->inside = false;
    return n;
}

static int tcp_event_fd(kvcl_xport_t *xport)
{
    return tcp_of(xport)->epfd;
}

static bool has_work(const tcp_t *tcp)
{
    return (tcp->done_head != NULL) || !kvcl_list_is_empty(&tcp->failed) || !kvcl_list_is_empty(&tcp->ready) ||
           !kvcl_list_is_empty(&tcp->selves) || tcp->timer_due || is_knocked(tcp);
}

static kvcl_status_t tcp_arm(kvcl_xport_t *xport)
{
    tcp_t    *tcp = tcp_of(xport);
    unsigned i;

    if (!has_work(tcp) && (tcp->wide != 0)) { /* otherwise the epoll has events only if there is something to do */
        harvest(tcp, true);
        for (i = 0; i < TCP_HOT; ++i) {
            if (tcp->hot[i] != NULL) {
                narrow(tcp->hot[i]);
            }
        }
    }
    tcp->armed = !has_work(tcp);
    return tcp->armed ? KVCL_OK : KVCL_ERR_BUSY;
}

/* Sends, and what they caused. Strangers, and events that any caller finds, are not among them. */
static bool tcp_outstanding(kvcl_xport_t *xport)
{
    const tcp_t *tcp = tcp_of(xport);

    return (tcp->waiting != 0) || (tcp->done_head != NULL) || !kvcl_list_is_empty(&tcp->failed) ||
           !kvcl_list_is_empty(&tcp->selves);
}

static bool tcp_closing(kvcl_xport_t *xport)
{
    return tcp_of(xport)->done_head != NULL;
}

const kvcl_xport_ops_t kvcl_xport_tcp = {
    .size          = sizeof(kvcl_xport_ops_t),
    .name          = "tcp",
    .messages_only = true,
    .init          = kvcl_tcp_init,
    .fini          = kvcl_tcp_fini,
    .query         = tcp_query,
    .address       = tcp_address,
    .secure        = tcp_secure,
    .ep_create     = kvcl_tcp_ep_create,
    .ep_close      = kvcl_tcp_ep_close,
    .ep_describe   = kvcl_tcp_ep_describe,
    .am_send       = kvcl_tcp_am_send,
    .reply         = kvcl_tcp_reply,
    .stream_open   = kvcl_tcp_stream_open,
    .stream_send   = kvcl_tcp_stream_send,
    .stream_recv   = kvcl_tcp_stream_recv,
    .stream_close  = kvcl_tcp_stream_close,
    .mem_register  = kvcl_tcp_mem_register,
    .mem_free      = kvcl_tcp_mem_free,
    .mem_pack      = kvcl_tcp_mem_pack,
    .rmem_open     = kvcl_tcp_rmem_open,
    .rmem_close    = kvcl_tcp_rmem_close,
    .outstanding   = tcp_outstanding,
    .progress      = tcp_progress,
    .event_fd      = tcp_event_fd,
    .arm           = tcp_arm,
    .closing       = tcp_closing,
};
