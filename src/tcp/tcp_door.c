/*
 * The doors: listeners, the strangers that came in by them, who have not proven the secret yet, and those that have
 * proven it and that no endpoint uses yet.
 *
 * Owns: tcp.doors, tcp.strangers. Invariants: there are at most TCP_STRANGERS strangers, each with less than 4 KiB of
 * state and a deadline; when another connects, one is dismissed, at random, among those that have sent nothing valid if
 * these are half of them or more, so that held connections do not keep an honest rank out. A process that has proven
 * the secret may do so with any number of ids: there are at most TCP_UNUSED connections without an endpoint, each with
 * a deadline; the oldest is dismissed for another. Without a free descriptor a silent stranger is dismissed; if there
 * is none, accepting pauses until the timer. Locks: the engine lock.
 */
#include "config.h"
#include "tcp/tcp.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/rand.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#define FULL_NS (100 * KVCL_NS_PER_MS)

static kvcl_sock_wire_t wire_of(const tcp_t *tcp, const kvcl_net_addr_t *at)
{
    if (tcp->wire == TCP_WIRE_AUTO) {
        return at->loopback ? KVCL_SOCK_PLAIN : KVCL_SOCK_AEAD;
    }
    return (tcp->wire == TCP_WIRE_PLAIN) ? KVCL_SOCK_PLAIN : KVCL_SOCK_AEAD;
}

kvcl_status_t kvcl_tcp_doors_open(tcp_t *tcp, const char *net)
{
    kvcl_sock_listener_t listeners[KVCL_SOCK_LISTENERS];
    kvcl_status_t        status = kvcl_sock_listen(net, listeners, &tcp->n_doors);
    unsigned             i;

    for (i = 0; (status == KVCL_OK) && (i < tcp->n_doors); ++i) {
        tcp->doors[i].kind     = TCP_LISTENER;
        tcp->doors[i].listener = listeners[i];
        tcp->doors[i].side.wire = wire_of(tcp, &listeners[i].at);
        tcp->nets[i]           = listeners[i].at;
    }
    if ((status == KVCL_OK) && (tcp->n_doors == 0)) {
        kvcl_log_info("no interface of KVCL_NET=%s has an address: this rank accepts no TCP connection", net);
    }
    return status;
}

kvcl_status_t kvcl_tcp_doors_watch(tcp_t *tcp)
{
    struct epoll_event ev = {.events = EPOLLIN | (uint32_t)EPOLLET};
    unsigned           i;

    for (i = 0; i < tcp->n_doors; ++i) {
        kvcl_sock_wire_t wire = tcp->doors[i].side.wire;

        tcp->doors[i].side      = tcp->side;
        tcp->doors[i].side.wire = wire;
        ev.data.ptr             = &tcp->doors[i];
        if (epoll_ctl(tcp->epfd, EPOLL_CTL_ADD, tcp->doors[i].listener.fd, &ev) != 0) {
            return kvcl_fail_errno(KVCL_ERR_IO, errno, "tcp: cannot watch a listener");
        }
    }
    return KVCL_OK;
}

void kvcl_tcp_doors_close(tcp_t *tcp)
{
    unsigned i;

    for (i = 0; i < tcp->n_doors; ++i) {
        kvcl_sock_unlisten(&tcp->doors[i].listener, tcp->epfd);
    }
    tcp->n_doors = 0;
}

/* The stranger after `nth` others of its kind; NULL: there are fewer. */
static tcp_conn_t *pick(tcp_t *tcp, bool silent, uint64_t nth)
{
    tcp_conn_t *conn;

    kvcl_list_foreach (conn, &tcp->strangers, tcp_conn_t, link) {
        if ((!silent || !conn->stream.heard) && (nth-- == 0)) {
            return conn;
        }
    }
    return NULL;
}

static unsigned silent_ones(const tcp_t *tcp)
{
    tcp_conn_t *conn;
    unsigned   n = 0;

    kvcl_list_foreach (conn, &tcp->strangers, tcp_conn_t, link) {
        n += conn->stream.heard ? 0 : 1;
    }
    return n;
}

/* One of n strangers, silent ones or all. */
static void dismiss(tcp_t *tcp, bool silent, unsigned n, const char *why)
{
    uint64_t chance;

    if (kvcl_random_bytes(&chance, sizeof(chance)) != KVCL_OK) {
        chance = 0;
    }
    kvcl_tcp_conn_fail(pick(tcp, silent, chance % n), KVCL_ERR_AUTH, why);
}

static void make_room(tcp_t *tcp)
{
    unsigned silent;

    if (tcp->n_strangers < TCP_STRANGERS) {
        return;
    }
    silent = silent_ones(tcp);
    if (tcp->n_strangers - silent > TCP_STRANGERS / 2) {
        silent = 0; /* recorded first messages must not keep all others out */
    }
    dismiss(tcp, silent > 0, (silent > 0) ? silent : tcp->n_strangers, "others connected");
}

/* Silent strangers do not hold the last descriptors. False: there is none. */
static bool free_descriptor(tcp_t *tcp)
{
    unsigned silent = silent_ones(tcp);

    if (silent > 0) {
        dismiss(tcp, true, silent, "another needs its descriptor");
    }
    return silent > 0;
}

static void admit(tcp_t *tcp, const tcp_door_t *door, int fd)
{
    tcp_conn_t *conn;

    make_room(tcp);
    conn = kvcl_tcp_conn_new(tcp);
    if (conn == NULL) {
        close(fd);
        return;
    }
    kvcl_sock_adopt(&conn->stream, fd, &door->side, &tcp->tuning);
    conn->stranger      = true;
    conn->stream.pauses = true;
    conn->deadline_ns   = kvcl_deadline_after(TCP_SHAKE_NS);
    kvcl_list_del(&conn->link);
    kvcl_list_add_tail(&tcp->strangers, &conn->link);
    ++tcp->n_strangers;
    kvcl_tcp_timer_at(tcp, conn->deadline_ns);
    if (kvcl_tcp_conn_watch(conn) != KVCL_OK) {
        kvcl_tcp_conn_fail(conn, KVCL_ERR_IO, "it cannot be watched");
        return;
    }
    conn->stream.readable = true; /* its HELLO is mostly there already */
    kvcl_tcp_conn_ready(conn);
}

unsigned kvcl_tcp_doors_accept(tcp_t *tcp)
{
    unsigned n = 0, i, end;
    int      fd;

    for (i = 0; i < tcp->n_doors; ++i) { /* strangers at one of them keep no rank out at another */
        end = n + TCP_ACCEPTS;
        while (tcp->doors[i].knocked && (n < end) && !tcp->full) {
            fd = kvcl_sock_accept(&tcp->doors[i].listener);
            if (fd >= 0) {
                admit(tcp, &tcp->doors[i], fd);
                ++n;
            } else if (fd == -1) {
                tcp->doors[i].knocked = false;
            } else if (free_descriptor(tcp)) {
                ++n;
            } else {
                tcp->full = true;
                kvcl_tcp_timer_at(tcp, kvcl_deadline_after(FULL_NS));
                kvcl_log_debug("tcp: a connection cannot be accepted now: %m");
            }
        }
    }
    return n;
}

void kvcl_tcp_strangers_expire(tcp_t *tcp, uint64_t now, uint64_t *next_p)
{
    tcp_conn_t *conn, *tmp;

    kvcl_list_foreach_safe (conn, tmp, &tcp->strangers, tcp_conn_t, link) {
        if (now >= conn->deadline_ns) {
            kvcl_tcp_conn_fail(conn, KVCL_ERR_AUTH, "it did not prove the secret in time");
        } else if (conn->parked) { /* looked at again now, which sets the timer */
            kvcl_tcp_conn_ready(conn);
        }
        if (!conn->dead && (conn->deadline_ns < *next_p)) {
            *next_p = conn->deadline_ns;
        }
    }
}

static bool is_unused(const tcp_conn_t *conn)
{
    return (conn->ep == NULL) && (conn->stream.state == KVCL_SOCK_OPEN);
}

void kvcl_tcp_unused_bound(tcp_t *tcp, tcp_conn_t *conn)
{
    tcp_conn_t *other, *oldest = NULL;
    unsigned   n = 0;

    conn->deadline_ns = kvcl_deadline_after(TCP_CONNECT_NS);
    kvcl_tcp_timer_at(tcp, conn->deadline_ns);
    kvcl_list_foreach (other, &tcp->conns, tcp_conn_t, link) {
        if (is_unused(other)) {
            oldest = (oldest != NULL) ? oldest : other;
            ++n;
        }
    }
    if (n > TCP_UNUSED) {
        kvcl_tcp_conn_fail(oldest, KVCL_ERR_PROTOCOL, "others connected");
    }
}

void kvcl_tcp_unused_expire(tcp_t *tcp, uint64_t now, uint64_t *next_p)
{
    tcp_conn_t *conn, *tmp;

    kvcl_list_foreach_safe (conn, tmp, &tcp->conns, tcp_conn_t, link) {
        if (!is_unused(conn)) {
            continue;
        }
        if (now >= conn->deadline_ns) {
            kvcl_tcp_conn_fail(conn, KVCL_ERR_PROTOCOL, "no endpoint uses it");
        } else if (conn->deadline_ns < *next_p) {
            *next_p = conn->deadline_ns;
        }
    }
}
