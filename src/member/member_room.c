/*
 * The room of members in a context: its messages, the machine's messages and events, and what they cause (member.h).
 * Engine lock, except init, start and fini.
 */
#include "config.h"
#include "member/member.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "core/bundle.h"
#include "core/comm.h"
#include "member/join/joins.h"
#include "member/recover.h"
#include "member/revoke.h"
#include "sock/sock_port.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the machine's messages ---- */

static void send_message(void *arg, uint32_t to, const kvcl_view_msg_t *msg)
{
    kvcl_member_room_t *room = arg;
    const kvcl_view_t  *view = (msg->type == KVCL_VIEW_COMMIT) ? msg->view : &room->views.view;
    kvcl_peer_t        *peer = (to < room->n) ? kvcl_joins_peer(room, to, view) : NULL;
    kvcl_msg_view_t    out   = {.msg = {.type = KVCL_MSG_VIEW, .op = room->me}, .lease_ns = room->times.lease_ns};
    size_t             len;

    if ((peer == NULL) || (peer->state != KVCL_PEER_READY)) {
        return;
    }
    len = kvcl_view_msg_pack(msg, room->bytes, sizeof(room->bytes));
    if ((len == 0) || (kvcl_peer_post(peer, &out.msg, sizeof(out), room->bytes, len) != KVCL_OK)) {
        kvcl_log_debug("a message about views is not sent to %s", peer->name);
    }
}

static void on_message(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                       size_t len)
{
    kvcl_member_room_t *room = kvcl_member_room(ctx);
    kvcl_view_msg_t    in;
    uint64_t           incarnation;
    uint32_t           slot;

    if ((room == NULL) || (msg->op >= room->n) || (room->ranks[msg->op].peer == NULL)) {
        return; /* views are off here, or the rank is not known yet */
    }
    slot        = (uint32_t)msg->op;
    incarnation = kvcl_joins_incarnation(room, slot, peer);
    if (incarnation == 0) { /* a process that has joined in a view that this rank does not know yet is not answered */
        kvcl_log_debug("%s speaks for rank %u, whom this rank does not know as that", peer->name, (unsigned)slot);
        return;
    }
    room->ranks[slot].met = room->ranks[slot].met || (room->ranks[slot].peer == peer);
    if ((len == 0) || !room->started) {
        return;
    }
    if (kvcl_view_msg_unpack(data, len, slot, incarnation, room->n, &in, &room->heard_view) != KVCL_OK) {
        kvcl_am_malformed(ctx, peer, kvcl_last_error());
        return;
    }
    if ((room->ranks[slot].peer == peer) && (in.number > room->ranks[slot].view)) {
        room->ranks[slot].view = in.number;
    }
    kvcl_member_take_lease(room, slot, peer, msg, hdr_len);
    room->busy = true;
    kvcl_views_take(&room->views, &in, kvcl_now_ns());
    room->busy = false;
    kvcl_member_settle(room);
}

/* ---- the machine's events ---- */

static void set_suspected(kvcl_member_room_t *room, const kvcl_rankset_t *ranks, bool suspected)
{
    kvcl_member_rank_t *rank;
    uint32_t           slot;

    KVCL_RANKSET_EACH(ranks, slot) {
        rank = (slot < room->n) ? &room->ranks[slot] : NULL;
        if ((rank != NULL) && (rank->peer != NULL) && (rank->suspected != suspected)) {
            rank->suspected = suspected;
            rank->peer->suspicions += suspected ? 1 : -1u;
        }
    }
}

static void note_failed(kvcl_member_room_t *room, const kvcl_rankset_t *ranks)
{
    uint32_t slot;
    unsigned i;

    kvcl_rankset_join(&room->failed, ranks);
    KVCL_RANKSET_EACH(ranks, slot) {
        for (i = 0; (i < room->n_told) && (room->told[i] != slot); ++i) {
        }
        if (i == room->n_told) {
            room->told[room->n_told++] = slot;
        }
    }
}

static void take_event(void *arg, kvcl_views_event_t event, const kvcl_rankset_t *ranks)
{
    static const int types[] = {
        [KVCL_VIEWS_SUSPECT] = KVCL_EVENT_SUSPECT, [KVCL_VIEWS_ALIVE_AGAIN] = KVCL_EVENT_ALIVE_AGAIN,
        [KVCL_VIEWS_FAILED] = KVCL_EVENT_FAILED,   [KVCL_VIEWS_VIEW] = KVCL_EVENT_VIEW,
        [KVCL_VIEWS_EXCLUDED] = KVCL_EVENT_EXCLUDED, [KVCL_VIEWS_LEFT] = KVCL_EVENT_DRAINED,
    };
    kvcl_member_room_t *room = arg;

    kvcl_member_count(room, event, ranks);
    if ((event == KVCL_VIEWS_SUSPECT) || (event == KVCL_VIEWS_ALIVE_AGAIN)) {
        set_suspected(room, ranks, event == KVCL_VIEWS_SUSPECT);
    } else if ((event == KVCL_VIEWS_FAILED) || (event == KVCL_VIEWS_LEFT)) {
        note_failed(room, ranks);
    } else if (event == KVCL_VIEWS_EXCLUDED) {
        room->excluded = true;
    } else if (event == KVCL_VIEWS_VIEW) {
        kvcl_rankset_join(&room->joined, ranks);
        if (room->joining && !room->begun) {
            return; /* joiner.c tells of it */
        }
        if (!kvcl_rankset_is_empty(ranks)) {
            kvcl_member_event(room, KVCL_EVENT_JOINED, ranks);
        }
    }
    kvcl_member_event(room, types[event], (event == KVCL_VIEWS_VIEW) ? &room->views.view.members : ranks);
}

static const kvcl_views_ops_t views_ops = {.send = send_message, .event = take_event};

/* ---- what follows ---- */

/* The machine learns who has ended. */
static void tell_machine(kvcl_member_room_t *room, uint64_t now_ns)
{
    kvcl_rankset_t gone = room->gone;
    uint32_t       slot;

    memset(&room->gone, 0, sizeof(room->gone));
    KVCL_RANKSET_EACH(&gone, slot) {
        kvcl_views_proven(&room->views, slot, room->ranks[slot].incarnation, !room->ranks[slot].ended, now_ns);
    }
}

/* It may only be stopped: it reads the view without it when it goes on, if its endpoint is still open then. */
static void part_with(kvcl_member_room_t *room, uint32_t slot, uint64_t now_ns)
{
    kvcl_member_rank_t *rank = &room->ranks[slot];

    room->parting = slot;
    kvcl_views_send_view(&room->views, slot, now_ns);
    room->parting = KVCL_SLOT_NONE;
    kvcl_bundle_flush(rank->peer); /* a failed peer's bundle would not be sent */
    if (rank->peer->state != KVCL_PEER_FAILED) {
        kvcl_peer_fail(rank->peer, KVCL_ERR_RANK_FAILED);
        kvcl_list_del(&rank->peer->ended_link);
        if (rank->held != NULL) { /* the slot's process before that */
            kvcl_list_add_tail(&room->ctx->peers.ended, &rank->held->ended_link);
        }
        rank->held    = rank->peer;
        rank->held_ns = now_ns + KVCL_MEMBER_HOLD_NS;
    }
}

static void fail_peers(kvcl_member_room_t *room, uint64_t now_ns)
{
    kvcl_rankset_t failed = room->failed;
    uint32_t       slot;

    memset(&room->failed, 0, sizeof(room->failed));
    KVCL_RANKSET_EACH(&failed, slot) {
        if ((slot >= room->n) || (room->ranks[slot].peer == NULL)) {
            continue;
        }
        if (room->ranks[slot].ended || kvcl_rankset_has(&room->views.detect.proven, slot)) {
            kvcl_peer_fail(room->ranks[slot].peer, KVCL_ERR_RANK_FAILED);
        } else {
            part_with(room, slot, now_ns);
        }
    }
}

static void fence(kvcl_member_room_t *room)
{
    uint32_t slot;

    room->fenced = true;
    if (room->left) {
        kvcl_log_info("rank %u has left the job", (unsigned)room->me);
    } else {
        kvcl_log_error("the other ranks have excluded this one, rank %u, after %llu ms of silence or because one of "
                       "them has deactivated it: its operations end with KVCL_ERR_STALE; end this process, or start "
                       "its context again", (unsigned)room->me,
                       (unsigned long long)(room->times.detect.dead_ns / KVCL_NS_PER_MS));
    }
    for (slot = 0; slot < room->n; ++slot) {
        if (room->ranks[slot].peer != NULL) {
            kvcl_bundle_flush(room->ranks[slot].peer); /* what it says of itself last */
            kvcl_peer_fail(room->ranks[slot].peer, KVCL_ERR_STALE);
        }
    }
}

void kvcl_member_settle(kvcl_member_room_t *room)
{
    uint64_t now_ns;

    kvcl_assert_locked(room->ctx);
    if (room->busy || !room->started) {
        return;
    }
    room->busy = true;
    now_ns     = kvcl_now_ns();
    while (!kvcl_rankset_is_empty(&room->gone) || !kvcl_rankset_is_empty(&room->failed)) {
        tell_machine(room, now_ns);
        fail_peers(room, now_ns);
    }
    if (room->excluded && !room->fenced) {
        fence(room);
    }
    if (room->told_view != room->views.view.number) {
        kvcl_joins_take_view(room);
        kvcl_member_recover_views(room);
    }
    room->busy = false;
    kvcl_member_deliver(room);
}

void kvcl_member_start_machine(kvcl_member_room_t *room, uint64_t now_ns)
{
    uint64_t incarnations[KVCL_SLOTS_MAX];
    uint32_t slot;

    kvcl_assert_locked(room->ctx);
    if (room->joining) {
        kvcl_views_init(&room->views, room->me, room->ranks[room->me].incarnation, NULL, &room->times, &views_ops, room,
                        now_ns);
        room->started = true;
        kvcl_views_warm(&room->views, room->warm, now_ns);
        return;
    }
    for (slot = 0; slot < room->n_first; ++slot) {
        incarnations[slot] = room->ranks[slot].incarnation;
    }
    kvcl_view_first(&room->heard_view, incarnations, room->n_first);
    kvcl_views_init(&room->views, room->me, room->ranks[room->me].incarnation, &room->heard_view, &room->times,
                    &views_ops, room, now_ns);
    room->started = true;
    kvcl_views_warm(&room->views, room->warm, now_ns);
    kvcl_log_debug("rank %u: all ranks have met, view 1", (unsigned)room->me);
}

/* ---- the room ---- */

static void room_fini(kvcl_context_h ctx, void *state)
{
    kvcl_member_room_t *room = state;

    if (room != NULL) {
        kvcl_sock_port_close(room->port);
        kvcl_member_thread_stop(room);
        ctx->is_revoked = NULL;
        kvcl_member_recover_free(room, NULL);
        kvcl_ended_close(room->ended);
        kvcl_ask_close(&room->ask);
        kvcl_life_close(room->life);
        if (room->event_fd >= 0) {
            close(room->event_fd);
        }
        free(room->ranks);
        free(room);
    }
}

static kvcl_status_t room_init(kvcl_context_h ctx, void **state_p)
{
    const uint32_t     n = (uint32_t)ctx->slots.n;
    kvcl_member_room_t *room;
    kvcl_status_t      status;

    if (!ctx->config.views) {
        return KVCL_OK;
    }
    if (n > KVCL_SLOTS_MAX) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_VIEWS: a job of %u ranks, at most %d can have views",
                         (unsigned)n, KVCL_SLOTS_MAX);
    }
    room = calloc(1, sizeof(*room));
    if ((room == NULL) || ((room->ranks = calloc(n, sizeof(*room->ranks))) == NULL)) {
        free(room);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for the views of %u ranks", (unsigned)n);
    }
    kvcl_list_init(&room->recovers);
    room->ctx     = ctx;
    room->n       = n;
    room->n_first = (uint32_t)ctx->boot->size;
    room->me      = (uint32_t)ctx->boot->rank;
    room->parting = KVCL_SLOT_NONE;
    room->joining = (ctx->boot->join_times_ns != NULL);
    room->wake_fd = room->event_fd = room->ask.fd = room->ask.page_fd = -1;
    kvcl_revoke_init(room);
    status        = kvcl_joiner_take_times(room, &ctx->config, ctx->boot->join_times_ns);
    status        = (status == KVCL_OK) ? kvcl_ended_open(ctx->uuid, n, &room->ended) : status;
    status        = (status == KVCL_OK) ? kvcl_ask_open(ctx->uuid, &room->ask) : status;
    if (status != KVCL_OK) {
        room_fini(ctx, room);
        return status;
    }
    if (kvcl_life_open(n, &room->life) != KVCL_OK) {
        kvcl_log_info("the end of a process is seen only when it has freed its memory: %s", kvcl_last_error());
    }
    *state_p = room;
    return KVCL_OK;
}

static kvcl_status_t room_start(kvcl_context_h ctx, void *state)
{
    kvcl_member_room_t *room = state;
    kvcl_status_t      status;

    if (room == NULL) {
        return (ctx->config.join_at == NULL)
                   ? KVCL_OK
                   : kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_JOIN_AT: nobody can join a job without views: set "
                               "KVCL_VIEWS=yes as well, on all ranks");
    }
    status = kvcl_joins_open(room);
    status = (status == KVCL_OK) ? kvcl_member_thread_start(room) : status;
    return ((status == KVCL_OK) && room->joining) ? kvcl_joiner_wait(room) : status;
}

/* A rank that has left has ended as a member. Of one whose endpoint failed nothing is proven by that. */
static void peer_failed(kvcl_context_h ctx, void *state, kvcl_peer_t *peer)
{
    kvcl_member_room_t *room = state;
    uint32_t           slot;

    (void)ctx;
    for (slot = 0; (room != NULL) && peer->left && (slot < room->n); ++slot) {
        if (room->ranks[slot].peer == peer) {
            kvcl_rankset_add(&room->gone, slot);
            kvcl_member_settle(room);
        }
    }
}

/* What it was sent may be lost. */
static void peer_reset(kvcl_context_h ctx, void *state, kvcl_peer_t *peer)
{
    kvcl_member_room_t *room = state;
    uint32_t           slot;

    (void)ctx;
    for (slot = 0; (room != NULL) && (slot < room->n); ++slot) {
        if (room->ranks[slot].peer == peer) {
            kvcl_revokes_lost(&room->revokes, slot);
        }
    }
}

static unsigned room_poll(kvcl_context_h ctx, void *state)
{
    (void)ctx;
    return (state != NULL) ? kvcl_revoke_late(state) : 0;
}

static void comm_freed(kvcl_context_h ctx, void *state, struct kvcl_comm *comm)
{
    (void)ctx;
    if (state != NULL) {
        kvcl_member_recover_free(state, comm);
    }
}

static const kvcl_msg_handler_t handlers[] = {
    {KVCL_MSG_VIEW, sizeof(kvcl_msg_t), on_message},
    {KVCL_MSG_AGREE, offsetof(kvcl_msg_agree_t, at), kvcl_recover_on_message},
    {KVCL_MSG_REVOKE, sizeof(kvcl_msg_revoke_t), kvcl_revoke_on_message},
    {KVCL_MSG_JOIN, sizeof(kvcl_msg_join_t), kvcl_joins_on_message},
    {0, 0, NULL},
};

const kvcl_room_t kvcl_room_member = {
    .name        = "member",
    .handlers    = handlers,
    .init        = room_init,
    .start       = room_start,
    .fini        = room_fini,
    .poll        = room_poll,
    .peer_failed = peer_failed,
    .peer_reset  = peer_reset,
    .view        = kvcl_revoke_on_view,
    .comm_freed  = comm_freed,
};
