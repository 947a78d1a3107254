/*
 * Lanes (lane.h): the room, and the life of a lane.
 *
 * Owns: the lanes of a context, each with its stream. Invariants: a peer has at most one lane of each direction; a lane
 * that is lost has no stream any more, and stays in the list until the end of a pass. Locks: the engine lock.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "lane/lane_impl.h"

#include <stdlib.h>
#include <string.h>

enum { RETRY_S = 10 };

kvcl_lane_t *kvcl_lane_new(kvcl_peer_t *peer, kvcl_lane_kind_t kind, kvcl_xport_stream_t *stream)
{
    kvcl_lane_t *lane = calloc(1, sizeof(*lane));

    if (lane != NULL) {
        lane->kind   = kind;
        lane->stream = stream;
        lane->ctx    = peer->ctx;
        lane->peer   = peer;
        stream->arg  = lane;
        kvcl_list_init(&lane->notes);
        kvcl_list_add_tail(&kvcl_lane_room(peer->ctx)->lanes, &lane->link);
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
    if (lane->stream != NULL) {
        lane->stream->arg = NULL;
        lane->stream->xport->ops->stream_close(lane->stream);
    }
    lane->stream = NULL;
    lane->state  = KVCL_LANE_LOST;
    kvcl_lane_out_drop(lane);
    free(lane->payload);
    lane->payload = NULL;
}

/* The struct stays in its list until the end of a pass: the caller may refer to it. */
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
    kvcl_xport_stream_t *stream;

    kvcl_assert_locked(peer->ctx);
    if (peer->lane_in != NULL) {
        return peer->lane_in->state == KVCL_LANE_OPEN;
    }
    if ((peer->ops->stream_open == NULL) || (peer->ctx->config.lane_min == 0) ||
        !kvcl_deadline_passed(peer->lane_retry_ns)) {
        return false;
    }
    if (peer->ops->stream_open(peer->ep, &stream) != KVCL_OK) {
        kvcl_log_debug("%s: no lane: %s", peer->name, kvcl_last_error());
        peer->lane_retry_ns = kvcl_deadline_after(RETRY_S * KVCL_NS_PER_SEC);
        return false;
    }
    peer->lane_in = kvcl_lane_new(peer, KVCL_LANE_IN, stream);
    if (peer->lane_in == NULL) {
        peer->ops->stream_close(stream);
    }
    return false;
}

kvcl_lane_t *kvcl_lane_out(kvcl_peer_t *peer)
{
    kvcl_assert_locked(peer->ctx);
    return peer->lane_out;
}

/* The peer begins to pull by a lane. */
static void on_opened(kvcl_xport_ep_t *ep, kvcl_xport_stream_t *stream)
{
    kvcl_peer_t *peer = ep->arg;
    kvcl_lane_t *lane = NULL;

    if ((peer->lane_out != NULL) && (peer->state == KVCL_PEER_READY)) {
        kvcl_lane_lose(peer->lane_out, "the peer has made a new lane");
    }
    if ((peer->state == KVCL_PEER_READY) && (peer->ctx->config.lane_min != 0)) {
        lane = kvcl_lane_new(peer, KVCL_LANE_OUT, stream);
    }
    if (lane == NULL) {
        stream->xport->ops->stream_close(stream);
        return;
    }
    peer->lane_out = lane;
    lane->state    = KVCL_LANE_OPEN;
    kvcl_lane_set_ready(lane, stream->writable);
    kvcl_log_debug("%s pulls by a lane", peer->name);
}

/* ---- the room ---- */

static void on_event(kvcl_xport_stream_t *stream)
{
    kvcl_lane_t *lane = stream->arg;

    if ((lane->state == KVCL_LANE_OPENING) && stream->open) {
        lane->state = KVCL_LANE_OPEN;
        kvcl_log_debug("%s: this rank pulls by a lane", lane->peer->name);
    }
    if (lane->state == KVCL_LANE_OPEN) {
        kvcl_lane_set_ready(lane, (lane->kind == KVCL_LANE_IN) ? stream->readable : stream->writable);
    }
    if (stream->ended && ((lane->kind == KVCL_LANE_OUT) || !stream->readable)) {
        kvcl_lane_lose(lane, "closed by the peer");
    }
}

static unsigned room_poll(kvcl_context_h ctx, void *state)
{
    kvcl_lane_room_t *room = state;
    kvcl_lane_t      *lane;
    unsigned         n = 0;

    (void)ctx;
    kvcl_list_foreach (lane, &room->lanes, kvcl_lane_t, link) { /* none leaves the list meanwhile */
        if ((lane->state == KVCL_LANE_OPEN) && lane->ready) {
            n += (lane->kind == KVCL_LANE_IN) ? kvcl_lane_take(lane) : kvcl_lane_push(lane);
        }
    }
    if (room->any_lost) {
        kvcl_lane_bury(room);
    }
    return n;
}

/* A change of a stream is reported once only. */
static bool outstanding(kvcl_context_h ctx, void *state)
{
    (void)ctx;
    return ((kvcl_lane_room_t *)state)->readable != 0;
}

static kvcl_status_t room_init(kvcl_context_h ctx, void **state_p)
{
    static const kvcl_stream_user_t user = {on_opened, on_event};
    kvcl_lane_room_t                *room = calloc(1, sizeof(*room));

    if (room == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for lanes");
    }
    kvcl_list_init(&room->lanes);
    ctx->streams = &user;
    *state_p     = room;
    return KVCL_OK;
}

static void close_lane(kvcl_lane_t *lane)
{
    if (lane != NULL) {
        lane->state = KVCL_LANE_OPENING; /* no user needs the notification */
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
    ctx->streams = NULL;
    free(room);
}

const kvcl_room_t kvcl_room_lane = {
    .name         = "lane",
    .init         = room_init,
    .fini         = room_fini,
    .poll         = room_poll,
    .outstanding  = outstanding,
    .peer_failed  = peer_failed,
    .peer_reset   = peer_failed,
    .peer_closing = peer_failed,
};
