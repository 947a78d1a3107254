/*
 * A process that knows the job's secret and is no rank: a bare stream to a tcp transport, with any id, which sends any
 * bytes. It stands for a stolen or broken rank.
 */
#ifndef KVCL_TEST_TCP_ROGUE_H
#define KVCL_TEST_TCP_ROGUE_H

#include "xport_pair.h"
#include "base/rand.h"
#include "tcp/tcp.h"

#define ROGUE_NS (50 * KVCL_NS_PER_SEC)

static inline tcp_t *tcp_in(const side_t *side)
{
    return tcp_of(side->xport);
}

static inline tcp_ep_t *ep_in(const side_t *side)
{
    return kvcl_container_of(side->ep, tcp_ep_t, super);
}

/* Proven connections of the transport, and connections that it has begun. */
static inline unsigned conns_of(const side_t *side)
{
    tcp_conn_t *conn;
    unsigned   n = 0;

    kvcl_list_foreach (conn, &tcp_in(side)->conns, tcp_conn_t, link) {
        ++n;
    }
    return n;
}

static inline socklen_t door_of(const side_t *to, unsigned door, struct sockaddr_storage *ss)
{
    const tcp_where_t *at = &tcp_in(to)->own.at[door];

    return kvcl_net_sockaddr(at->family, at->addr, at->port, ss);
}

/* Begin to connect. */
static inline void rogue_begin(kvcl_sock_stream_t *stream, const side_t *to, unsigned door, const uint8_t id[16])
{
    static uint8_t          secret[32];
    kvcl_sock_side_t        side   = {.secret = secret, .wire = KVCL_SOCK_PLAIN, .cipher = kvcl_aead_preferred()};
    kvcl_sock_tuning_t      tuning = {0};
    struct sockaddr_storage ss;
    socklen_t               len = door_of(to, door, &ss);

    memcpy(secret, pair_secret, sizeof(secret));
    memcpy(side.id, id, sizeof(side.id));
    ck_assert_int_eq(kvcl_random_bytes(side.random, sizeof(side.random)), KVCL_OK);
    ck_assert_int_eq(kvcl_sock_connect(stream, (const struct sockaddr *)&ss, len, &side, tcp_in(to)->own.id,
                                       KVCL_SOCK_MESSAGES, &tuning), KVCL_OK);
}

/* One step of the handshake on its side. */
static inline kvcl_status_t rogue_step(kvcl_sock_stream_t *stream)
{
    stream->readable = stream->writable = true; /* in place of an epoll */
    return kvcl_sock_shake(stream);
}

static inline void rogue_open(kvcl_sock_stream_t *stream, const side_t *to, const uint8_t id[16])
{
    uint64_t      deadline = kvcl_deadline_after(ROGUE_NS);
    kvcl_status_t status;

    rogue_begin(stream, to, 0, id);
    while ((status = rogue_step(stream)) == KVCL_INPROGRESS) {
        (void)to->ops->progress(to->xport);
        ck_assert(!kvcl_deadline_passed(deadline));
    }
    ck_assert_msg(status == KVCL_OK, "%s", kvcl_last_error());
}

/* What the socket takes of the bytes. */
static inline size_t rogue_send(kvcl_sock_stream_t *stream, const void *bytes, size_t len)
{
    struct iovec iov = {(void *)bytes, len};
    ssize_t      n   = kvcl_sock_send(stream, &iov, 1);

    stream->writable = true;
    return (n > 0) ? (size_t)n : 0;
}

/* A frame with a header of 8 bytes and a payload of len, which follows it. */
static inline tcp_frame_t rogue_frame(uint32_t seq, uint32_t len, bool reply)
{
    return (tcp_frame_t){TCP_FRAME_MAGIC, seq, 8, reply ? KVCL_XPORT_REPLY : 0, len};
}

#endif
