/*
 * Lanes (lane.h): the room, its messages, and the life of a lane.
 */
#include "config.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/error.h"
#include "base/log.h"
#include "base/rand.h"
#include "lane/lane_impl.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { RETRY_S = 10, EVENTS = 32 };

kvcl_lane_t *kvcl_lane_new(kvcl_context_h ctx, kvcl_peer_t *peer, kvcl_lane_kind_t kind, int fd)
{
    kvcl_lane_t *lane = calloc(1, sizeof(*lane));

    if (lane != NULL) {
        lane->kind = kind;
        lane->fd   = fd;
        lane->ctx  = ctx;
        lane->peer = peer;
        kvcl_list_init(&lane->notes);
        kvcl_list_add_tail(&kvcl_lane_room(ctx)->lanes, &lane->link);
    }
    return lane;
}

void kvcl_lane_set_ready(kvcl_lane_t *lane, bool ready)
{
    kvcl_lane_room_t *room = kvcl_lane_room(lane->ctx);

    if (lane->kind == KVCL_LANE_IN) {
        room->readable += (unsigned)ready;
        room->readable -= (unsigned)lane->ready;
    }
    lane->ready = ready;
}

static void forget(kvcl_lane_t *lane)
{
    kvcl_lane_set_ready(lane, false);
    if (lane->peer->lane_in == lane) {
        lane->peer->lane_in = NULL;
    }
    if (lane->peer->lane_out == lane) {
        lane->peer->lane_out = NULL;
    }
    if (lane->fd >= 0) {
        kvcl_lane_hang_up(kvcl_lane_room(lane->ctx), lane->fd);
    }
    lane->fd    = -1;
    lane->state = KVCL_LANE_LOST;
    kvcl_lane_out_drop(lane);
    free(lane->payload);
    lane->payload = NULL;
}

/* The struct stays in its list until the end of a pass: the caller, or an event not handled yet, may refer to it. */
void kvcl_lane_lose(kvcl_lane_t *lane, const char *why)
{
    bool open = (lane->state == KVCL_LANE_OPEN);

    if (lane->state == KVCL_LANE_LOST) {
        return;
    }
    kvcl_log_debug("%s: the lane %s is closed: %s", lane->peer->name,
                   (lane->kind == KVCL_LANE_IN) ? "from it" : "to it", why);
    lane->peer->lane_retry_ns = kvcl_deadline_after(RETRY_S * KVCL_NS_PER_SEC);
    forget(lane);
    kvcl_lane_room(lane->ctx)->any_lost = true;
    if (open) {
        kvcl_lane_room(lane->ctx)->user->lost(lane->ctx, lane->peer, lane->kind == KVCL_LANE_IN);
    }
}

void kvcl_lane_bury(kvcl_lane_room_t *room)
{
    kvcl_lane_t *lane, *next;

    kvcl_list_foreach_safe (lane, next, &room->lanes, kvcl_lane_t, link) {
        if (lane->state == KVCL_LANE_LOST) {
            kvcl_list_del(&lane->link);
            free(lane);
        }
    }
    room->any_lost = false;
}

void kvcl_lane_register(kvcl_context_h ctx, const kvcl_lane_user_t *user)
{
    kvcl_lane_room(ctx)->user = user;
}

/* ---- establishing ---- */

bool kvcl_lane_in_ready(kvcl_peer_t *peer)
{
    kvcl_context_h   ctx   = peer->ctx;
    kvcl_lane_room_t *room = kvcl_lane_room(ctx);
    kvcl_msg_t       out   = {.type = KVCL_MSG_LANE_REQUEST};

    kvcl_assert_locked(ctx);
    if (peer->lane_in != NULL) {
        return peer->lane_in->state == KVCL_LANE_OPEN;
    }
    if ((room->epfd < 0) || !peer->ep->sockets || !kvcl_deadline_passed(peer->lane_retry_ns)) {
        return false;
    }
    peer->lane_in = kvcl_lane_new(ctx, peer, KVCL_LANE_IN, -1);
    if ((peer->lane_in != NULL) && (kvcl_peer_post(peer, &out, sizeof(out), NULL, 0) != KVCL_OK)) {
        kvcl_lane_lose(peer->lane_in, "the request cannot be sent");
    }
    return false;
}

kvcl_lane_t *kvcl_lane_out(kvcl_peer_t *peer)
{
    kvcl_assert_locked(peer->ctx);
    return peer->lane_out;
}

static void on_request(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                       size_t len)
{
    kvcl_lane_room_t   *room = kvcl_lane_room(ctx);
    kvcl_msg_lane_at_t out   = {.port = 0};

    (void)msg;
    (void)hdr_len;
    (void)data;
    (void)len;
    if ((room->epfd >= 0) && peer->ep->sockets && kvcl_lane_listen(ctx) &&
        (kvcl_random_bytes(peer->lane_key, sizeof(peer->lane_key)) == KVCL_OK)) {
        out                  = room->where;
        peer->lane_key_given = true;
        memcpy(out.key, peer->lane_key, sizeof(out.key));
    }
    out.msg = (kvcl_msg_t){.type = KVCL_MSG_LANE_AT};
    if (kvcl_peer_post(peer, &out.msg, sizeof(out), NULL, 0) != KVCL_OK) {
        kvcl_log_debug("%s has failed: LANE_AT is not sent", peer->name);
    }
}

static void on_at(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                  size_t len)
{
    const kvcl_msg_lane_at_t *in   = (const kvcl_msg_lane_at_t *)msg;
    kvcl_lane_t              *lane = peer->lane_in;

    (void)hdr_len;
    (void)data;
    (void)len;
    if ((lane == NULL) || (lane->state != KVCL_LANE_REQUESTED)) {
        kvcl_am_malformed(ctx, peer, "an address of a lane that was not requested");
        return;
    }
    if (in->port == 0) {
        kvcl_lane_lose(lane, "the peer offers no lanes");
        return;
    }
    memcpy(lane->key, in->key, sizeof(lane->key));
    lane->fd    = kvcl_lane_connect(in);
    lane->state = KVCL_LANE_CONNECTING;
    if ((lane->fd < 0) || !kvcl_lane_watch(kvcl_lane_room(ctx), lane->fd, &lane->kind)) {
        kvcl_lane_lose(lane, "cannot connect");
    }
}

/* ---- the room ---- */

static unsigned on_event(kvcl_context_h ctx, void *what, uint32_t events)
{
    kvcl_lane_t *lane = what;

    switch (*(kvcl_lane_kind_t *)what) {
    case KVCL_LANE_LISTENER:
        kvcl_lane_room(ctx)->knocked = true; /* later: it may dismiss guests that other events refer to */
        return 1;
    case KVCL_LANE_GUEST:
        kvcl_lane_guest_speaks(ctx, what);
        return 1;
    case KVCL_LANE_IN:
        if ((lane->state == KVCL_LANE_CONNECTING) && (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) &&
            !kvcl_lane_connected(lane)) {
            return 1;
        }
        if ((lane->state != KVCL_LANE_LOST) && (events & (EPOLLIN | EPOLLERR | EPOLLHUP | EPOLLRDHUP))) {
            lane->hup = lane->hup || (events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP));
            kvcl_lane_set_ready(lane, true);
        }
        return 0;
    default:
        if ((lane->state != KVCL_LANE_LOST) && (events & EPOLLOUT)) {
            kvcl_lane_set_ready(lane, true);
        }
        if (events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) {
            kvcl_lane_lose(lane, "closed by the peer");
        }
        return 1;
    }
}

/* Descriptors are edge-triggered, so no event needs another system call; the last edge is kept in lane->ready. */
static unsigned room_poll(kvcl_context_h ctx, void *state)
{
    kvcl_lane_room_t   *room = state;
    struct epoll_event events[EVENTS];
    kvcl_lane_t        *lane;
    unsigned           n = 0;
    int                i, got;

    if ((room->epfd < 0) || ((room->listen_fd < 0) && kvcl_list_is_empty(&room->lanes))) {
        return 0;
    }
    got = epoll_wait(room->epfd, events, EVENTS, 0);
    for (i = 0; i < got; ++i) {
        n += on_event(ctx, events[i].data.ptr, events[i].events);
    }
    if (room->knocked) {
        kvcl_lane_accept(ctx);
    }
    kvcl_list_foreach (lane, &room->lanes, kvcl_lane_t, link) { /* none leaves the list meanwhile */
        if ((lane->state == KVCL_LANE_OPEN) && lane->ready) {
            n += (lane->kind == KVCL_LANE_IN) ? kvcl_lane_take(lane) : kvcl_lane_push(lane);
        }
    }
    if (room->n_guests != 0) {
        kvcl_lane_guests_expire(ctx, false);
    }
    if (room->any_lost) {
        kvcl_lane_bury(room);
    }
    return n;
}

/* An edge-triggered event is reported once only. */
static bool outstanding(kvcl_context_h ctx, void *state)
{
    (void)ctx;
    return ((kvcl_lane_room_t *)state)->readable != 0;
}

static kvcl_status_t room_init(kvcl_context_h ctx, void **state_p)
{
    kvcl_lane_room_t *room = calloc(1, sizeof(*room));

    if (room == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for lanes");
    }
    kvcl_list_init(&room->lanes);
    room->kind      = KVCL_LANE_LISTENER;
    room->listen_fd = -1;
    room->epfd      = -1;
    *state_p        = room;
    if ((ctx->config.wire != KVCL_WIRE_UCX) || (ctx->config.lane_min == 0) || (ctx->config.path == KVCL_PATH_SHM) || (ctx->config.path == KVCL_PATH_LOOP)) {
        return KVCL_OK;
    }
    room->epfd = epoll_create1(EPOLL_CLOEXEC);
    if (room->epfd < 0) {
        kvcl_log_warn("no descriptor for lanes (%m): large transfers over tcp use messages");
        return KVCL_OK;
    }
    kvcl_engine_watch(ctx, room->epfd);
    return KVCL_OK;
}

static void close_lane(kvcl_lane_t *lane)
{
    if (lane != NULL) {
        lane->state = KVCL_LANE_CONNECTING; /* no user needs the notification */
        kvcl_lane_lose(lane, "the peer has failed");
    }
}

static void peer_failed(kvcl_context_h ctx, void *state, kvcl_peer_t *peer)
{
    (void)ctx;
    (void)state;
    close_lane(peer->lane_in);
    close_lane(peer->lane_out);
}

static void room_fini(kvcl_context_h ctx, void *state)
{
    kvcl_lane_room_t *room = state;
    kvcl_lane_t      *lane;

    kvcl_list_foreach (lane, &room->lanes, kvcl_lane_t, link) {
        forget(lane);
    }
    kvcl_lane_bury(room);
    kvcl_lane_guests_expire(ctx, true);
    if (room->listen_fd >= 0) {
        close(room->listen_fd);
    }
    if (room->epfd >= 0) {
        close(room->epfd);
    }
    free(room);
}

static const kvcl_msg_handler_t handlers[] = {
    {KVCL_MSG_LANE_REQUEST, sizeof(kvcl_msg_t), on_request},
    {KVCL_MSG_LANE_AT, sizeof(kvcl_msg_lane_at_t), on_at},
    {0, 0, NULL},
};

extern const kvcl_room_t kvcl_room_lane;
const kvcl_room_t kvcl_room_lane = {
    .name         = "lane",
    .handlers     = handlers,
    .init         = room_init,
    .fini         = room_fini,
    .poll         = room_poll,
    .outstanding  = outstanding,
    .peer_failed  = peer_failed,
    .peer_closing = peer_failed,
};
