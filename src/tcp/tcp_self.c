/*
 * Messages to this instance itself, where no other transport leads here: copied into a list, delivered by progress.
 *
 * Owns: tcp.selves. Invariants: their memory is bounded by TCP_SELF_MAX. Locks: the engine lock.
 */
#include "config.h"
#include "tcp/tcp.h"
#include "base/error.h"
#include "weave/pieces.h"

#include <stdlib.h>
#include <string.h>

typedef struct tcp_self {
    kvcl_list_t link;
    bool        may_reply;
    size_t      hdr_len, room, len; /* room: of the header, padded */
    char        bytes[] __attribute__((aligned(8)));
} tcp_self_t;

kvcl_status_t kvcl_tcp_self_send(tcp_t *tcp, const void *hdr, size_t hdr_len, const kvcl_iov_t *iov, size_t n_iov,
                                 size_t payload, unsigned flags)
{
    size_t     room = (hdr_len + 7) & ~(size_t)7, i;
    size_t     all  = sizeof(tcp_self_t) + room + payload;
    tcp_self_t *msg = (tcp->self_bytes + all <= TCP_SELF_MAX) ? malloc(all) : NULL;
    char       *at;

    if (msg == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "tcp: no memory for a message to this rank itself");
    }
    msg->may_reply = (flags & KVCL_XPORT_REPLY) != 0;
    msg->hdr_len   = hdr_len;
    msg->room      = room;
    msg->len       = payload;
    kvcl_copy_bytes(msg->bytes, hdr, hdr_len);
    for (i = 0, at = msg->bytes + room; i < n_iov; at += iov[i].len, ++i) {
        kvcl_copy_bytes(at, iov[i].buf, iov[i].len);
    }
    tcp->self_bytes += all;
    kvcl_list_add_tail(&tcp->selves, &msg->link);
    return KVCL_OK;
}

static tcp_self_t *next(tcp_t *tcp, kvcl_list_t *from)
{
    kvcl_list_t *link = kvcl_list_pop(from);
    tcp_self_t  *msg;

    if (link == NULL) {
        return NULL;
    }
    msg              = kvcl_container_of(link, tcp_self_t, link);
    tcp->self_bytes -= sizeof(*msg) + msg->room + msg->len;
    return msg;
}

/* Those sent so far; later ones, which these may cause, wait for the next call. */
unsigned kvcl_tcp_self_deliver(tcp_t *tcp)
{
    tcp_reply_t reply = {.super = {&tcp->super}};
    kvcl_list_t now;
    tcp_self_t  *msg;
    unsigned    n;

    kvcl_list_init(&now);
    kvcl_list_splice_tail(&now, &tcp->selves);
    for (n = 0; (msg = next(tcp, &now)) != NULL; ++n) {
        reply.self = msg->may_reply;
        tcp->cbs.recv(tcp->cbs.arg, msg->bytes, msg->hdr_len, msg->bytes + msg->room, msg->len, &reply.super);
        free(msg);
    }
    return n;
}

void kvcl_tcp_self_drop(tcp_t *tcp)
{
    tcp_self_t *msg;

    while ((msg = next(tcp, &tcp->selves)) != NULL) {
        free(msg);
    }
}
