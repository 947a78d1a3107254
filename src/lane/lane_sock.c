/*
 * Lanes' sockets: listening, connecting, and the guests (accepted connections that are not authenticated yet). Engine
 * lock held.
 */
#include "config.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/log.h"
#include "boot/boot_sock.h"
#include "lane/lane_impl.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { GUEST_S = 5, UNSENT_BYTES = 256 * 1024 };

bool kvcl_lane_watch(kvcl_lane_room_t *room, int fd, void *kind)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = kind};

    return epoll_ctl(room->epfd, EPOLL_CTL_ADD, fd, &ev) == 0;
}

/* Shut down before closing: a forked child may hold the descriptor as well, and keep the connection open. */
void kvcl_lane_hang_up(kvcl_lane_room_t *room, int fd)
{
    (void)epoll_ctl(room->epfd, EPOLL_CTL_DEL, fd, NULL);
    (void)shutdown(fd, SHUT_RDWR);
    close(fd);
}

/* ---- listening: on the first interface of KVCL_NET that has an address ---- */

static bool describe(int fd, kvcl_msg_lane_at_t *where)
{
    struct sockaddr_storage   ss = {0};
    const struct sockaddr_in  *v4 = (const struct sockaddr_in *)(const void *)&ss;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)&ss;
    socklen_t                 len = sizeof(ss);

    if (getsockname(fd, (struct sockaddr *)&ss, &len) != 0) {
        return false;
    }
    if (ss.ss_family == AF_INET) {
        where->family = 4;
        where->port   = ntohs(v4->sin_port);
        memcpy(where->addr, &v4->sin_addr, 4);
        return true;
    }
    where->family = 6;
    where->port   = ntohs(v6->sin6_port);
    memcpy(where->addr, &v6->sin6_addr, 16);
    return !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr); /* a peer would need the interface as well */
}

static int listen_on(const char *name, kvcl_msg_lane_at_t *where)
{
    kvcl_boot_addr_t addr = {.count = 0};
    int              fd   = -1, err;

    if ((kvcl_boot_addr_bind_to(&addr, name) != KVCL_OK) || (kvcl_boot_sock_listen(&addr, &fd, &err) != KVCL_OK)) {
        return -1;
    }
    if (!describe(fd, where)) {
        close(fd);
        return -1;
    }
    return fd;
}

bool kvcl_lane_listen(kvcl_context_h ctx)
{
    kvcl_lane_room_t *room = kvcl_lane_room(ctx);
    const char       *at   = (ctx->config.net != NULL) ? ctx->config.net : "";
    char             name[64];
    size_t           len;

    while ((room->listen_fd < 0) && !room->cannot_listen && (*at != '\0')) {
        len = strcspn(at, ",");
        snprintf(name, sizeof(name), "%.*s", (int)len, at);
        at += len + (at[len] == ',');
        room->listen_fd = listen_on(name, &room->where);
    }
    if ((room->listen_fd >= 0) && !room->listening) {
        room->listening = kvcl_lane_watch(room, room->listen_fd, &room->kind);
    }
    if (room->listening || room->cannot_listen) {
        return room->listening;
    }
    room->cannot_listen = true;
    kvcl_log_info("no address to listen on for lanes (KVCL_NET=%s): large transfers over tcp use messages",
                  (ctx->config.net != NULL) ? ctx->config.net : "");
    return false;
}

static void tune(int fd)
{
    int unsent = UNSENT_BYTES;

    kvcl_boot_sock_tune(fd);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
}

/* ---- the puller's side ---- */

int kvcl_lane_connect(const kvcl_msg_lane_at_t *at)
{
    struct sockaddr_in  v4 = {.sin_family = AF_INET, .sin_port = htons(at->port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(at->port)};
    int                 fd, rc;

    if ((at->family != 4) && (at->family != 6)) {
        return -1;
    }
    fd = socket((at->family == 4) ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    memcpy(&v4.sin_addr, at->addr, sizeof(v4.sin_addr));
    memcpy(&v6.sin6_addr, at->addr, sizeof(v6.sin6_addr));
    tune(fd);
    rc = (at->family == 4) ? connect(fd, (const struct sockaddr *)&v4, sizeof(v4))
                           : connect(fd, (const struct sockaddr *)&v6, sizeof(v6));
    if ((rc != 0) && (errno != EINPROGRESS)) {
        close(fd);
        return -1;
    }
    return fd;
}

bool kvcl_lane_connected(kvcl_lane_t *lane)
{
    kvcl_lane_hello_t hello = {.magic = KVCL_LANE_MAGIC, .version = KVCL_WIRE_VERSION,
                               .peer = lane->peer->remote_index};
    socklen_t         len   = sizeof(int);
    int               err   = 0;

    memcpy(hello.key, lane->key, sizeof(hello.key));
    if ((getsockopt(lane->fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0) || (err != 0)) {
        kvcl_lane_lose(lane, strerror(err));
        return false;
    }
    if (send(lane->fd, &hello, sizeof(hello), MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof(hello)) {
        kvcl_lane_lose(lane, "the key cannot be sent");
        return false;
    }
    lane->state = KVCL_LANE_OPEN;
    kvcl_log_debug("%s: this rank pulls by a lane", lane->peer->name);
    return true;
}

/* ---- the owner's side: a connection is a guest until its first 32 bytes have authenticated it ---- */

static void dismiss(kvcl_lane_room_t *room, unsigned i)
{
    kvcl_lane_hang_up(room, room->guests[i]->fd);
    free(room->guests[i]);
    room->guests[i] = room->guests[--room->n_guests];
}

void kvcl_lane_guests_expire(kvcl_context_h ctx, bool all)
{
    kvcl_lane_room_t *room = kvcl_lane_room(ctx);
    unsigned         i = 0;

    while (i < room->n_guests) {
        if (all || kvcl_deadline_passed(room->guests[i]->deadline_ns)) {
            dismiss(room, i);
        } else {
            ++i;
        }
    }
}

/* At the limit: dismiss the oldest guest. */
static void make_room(kvcl_lane_room_t *room)
{
    unsigned i, oldest = 0;

    for (i = 1; i < room->n_guests; ++i) {
        if (room->guests[i]->deadline_ns < room->guests[oldest]->deadline_ns) {
            oldest = i;
        }
    }
    if (room->n_guests == KVCL_LANE_GUESTS) {
        dismiss(room, oldest);
    }
}

static void admit(kvcl_context_h ctx, int fd)
{
    kvcl_lane_room_t  *room  = kvcl_lane_room(ctx);
    kvcl_lane_guest_t *guest = calloc(1, sizeof(*guest));

    make_room(room);
    tune(fd);
    if (guest == NULL) {
        close(fd);
        return;
    }
    guest->kind        = KVCL_LANE_GUEST;
    guest->fd          = fd;
    guest->deadline_ns = kvcl_deadline_after(GUEST_S * KVCL_NS_PER_SEC);
    if (!kvcl_lane_watch(room, fd, &guest->kind)) {
        close(fd);
        free(guest);
        return;
    }
    room->guests[room->n_guests++] = guest;
}

/* Accept a bounded number of connections per pass. Without a free descriptor they wait for the next pass. */
void kvcl_lane_accept(kvcl_context_h ctx)
{
    kvcl_lane_room_t *room = kvcl_lane_room(ctx);
    int              fd, i;

    for (i = 0; i < KVCL_LANE_GUESTS; ++i) {
        fd = accept4(room->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            admit(ctx, fd);
        } else if (errno == EAGAIN) {
            room->knocked = false;
            return;
        } else if ((errno != ECONNABORTED) && (errno != EPROTO) && (errno != EINTR)) {
            kvcl_log_debug("a lane cannot be accepted now: %s", strerror(errno));
            return;
        }
    }
}

static kvcl_peer_t *proven(kvcl_context_h ctx, const kvcl_lane_hello_t *hello)
{
    kvcl_peer_t *peer = (hello->peer < ctx->peers.count) ? ctx->peers.v[hello->peer] : NULL;

    if ((hello->magic != KVCL_LANE_MAGIC) || (hello->version != KVCL_WIRE_VERSION) || (peer == NULL) ||
        (peer->state != KVCL_PEER_READY) || !peer->lane_key_given ||
        !kvcl_ct_equal(hello->key, peer->lane_key, sizeof(hello->key))) {
        return NULL;
    }
    peer->lane_key_given = false;
    return peer;
}

static void become_lane(kvcl_context_h ctx, kvcl_peer_t *peer, int fd)
{
    kvcl_lane_room_t *room = kvcl_lane_room(ctx);
    kvcl_lane_t      *lane;

    if (peer->lane_out != NULL) {
        kvcl_lane_lose(peer->lane_out, "the peer has made a new lane");
    }
    lane = kvcl_lane_new(ctx, peer, KVCL_LANE_OUT, fd);
    if (lane == NULL) {
        close(fd);
        return;
    }
    peer->lane_out = lane;
    lane->state    = KVCL_LANE_OPEN;
    (void)epoll_ctl(room->epfd, EPOLL_CTL_DEL, fd, NULL);
    if (!kvcl_lane_watch(room, fd, &lane->kind)) {
        kvcl_lane_lose(lane, "cannot watch its descriptor");
        return;
    }
    kvcl_lane_set_ready(lane, true);
    kvcl_log_debug("%s pulls by a lane", peer->name);
}

void kvcl_lane_guest_speaks(kvcl_context_h ctx, kvcl_lane_guest_t *guest)
{
    kvcl_lane_room_t *room = kvcl_lane_room(ctx);
    kvcl_peer_t      *peer = NULL;
    unsigned         i = 0;
    ssize_t          n;

    do {
        n = recv(guest->fd, (char *)&guest->hello + guest->got, sizeof(guest->hello) - guest->got, MSG_DONTWAIT);
    } while ((n < 0) && (errno == EINTR));
    if ((n < 0) && (errno == EAGAIN)) {
        return;
    }
    guest->got += (n > 0) ? (uint32_t)n : 0;
    if ((n > 0) && (guest->got < sizeof(guest->hello))) {
        return; /* the rest is another edge */
    }
    while (room->guests[i] != guest) {
        ++i;
    }
    if (n > 0) {
        peer = proven(ctx, &guest->hello);
        ctx->stats.strangers += (peer == NULL);
    }
    if (peer == NULL) {
        dismiss(room, i);
        return;
    }
    room->guests[i] = room->guests[--room->n_guests];
    become_lane(ctx, peer, guest->fd);
    free(guest);
}
