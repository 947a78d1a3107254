/*
 * Members, and the processes that join them (joins.h): their messages, and the slots that they take.
 *
 * Invariant: a process is `next` of its slot from its first ASK until a view has it, it gives up, or another one with a
 * lower incarnation comes. Locks: the engine lock.
 */
#include "config.h"
#include "member/join/joins.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "core/comm.h"
#include "member/recover.h"

#include <string.h>

kvcl_peer_t *kvcl_joins_peer(const kvcl_member_room_t *room, uint32_t slot, const kvcl_view_t *view)
{
    const kvcl_member_rank_t *rank = &room->ranks[slot];

    if (room->parting == slot) {
        return rank->peer; /* it is told that it is excluded, even if another one has its slot */
    }
    return ((rank->next != NULL) && kvcl_view_has(view, slot, rank->next_incarnation)) ? rank->next : rank->peer;
}

uint64_t kvcl_joins_incarnation(const kvcl_member_room_t *room, uint32_t slot, const kvcl_peer_t *peer)
{
    const kvcl_member_rank_t *rank = &room->ranks[slot];

    return (rank->peer == peer) ? rank->incarnation : (rank->next == peer) ? rank->next_incarnation : 0;
}

static void post(kvcl_member_room_t *room, kvcl_peer_t *peer, kvcl_msg_join_t *out, const void *data, size_t len)
{
    out->msg.type = KVCL_MSG_JOIN;
    out->msg.op   = room->me;
    if ((peer->state != KVCL_PEER_READY) || (kvcl_peer_post(peer, &out->msg, sizeof(*out), data, len) != KVCL_OK)) {
        kvcl_log_debug("a message about joining is not sent to %s", peer->name);
    }
}

/* ---- the process of a slot ---- */

static void nothing(kvcl_peer_waiter_t *waiter, kvcl_status_t status)
{
    (void)waiter;
    (void)status; /* the peer's state is looked at with each tick */
}

void kvcl_member_know(kvcl_member_room_t *room, uint32_t slot, kvcl_peer_t *peer)
{
    kvcl_member_rank_t *rank = &room->ranks[slot];

    kvcl_assert_locked(room->ctx);
    if (rank->peer != NULL) {
        kvcl_peer_unwait(&rank->waiter);
    }
    rank->incarnation = kvcl_member_incarnation(peer->uuid);
    rank->waiter.fn   = nothing;
    rank->peer        = peer;
    rank->messages    = peer->messages;
    rank->view        = 0;
    rank->ended       = rank->suspected = rank->met = rank->near = rank->killed = false;
    kvcl_list_init(&rank->waiter.link);
    if (kvcl_peer_ready(peer, &rank->waiter) < 0) {
        kvcl_log_warn("rank %u cannot be met: %s", (unsigned)slot, kvcl_last_error());
    }
}

static void know_and_come(kvcl_member_room_t *room, uint32_t slot, kvcl_peer_t *peer)
{
    kvcl_member_know(room, slot, peer);
    kvcl_rank_slot_come(room->ctx, (int)slot, peer);
}

/* ---- ASK ---- */

static bool is_living(const kvcl_member_room_t *room, uint32_t slot)
{
    const kvcl_views_t *views = &room->views;

    return kvcl_rankset_has(&views->view.members, slot) && !kvcl_rankset_has(&views->detect.proven, slot) &&
           !kvcl_rankset_has(&views->detect.silent, slot) && !kvcl_rankset_has(&views->leaving, slot);
}

static bool gives_way(const kvcl_member_rank_t *rank, const kvcl_peer_t *to, uint64_t incarnation, uint64_t now_ns)
{
    return (rank->next == NULL) || (rank->next == to) || (rank->next->state == KVCL_PEER_FAILED) ||
           (now_ns - rank->next_ns >= KVCL_JOIN_STALE_NS) || (incarnation < rank->next_incarnation);
}

static kvcl_status_t admit(kvcl_member_room_t *room, uint32_t slot, kvcl_peer_t *peer, uint64_t incarnation,
                           uint64_t now_ns)
{
    kvcl_member_rank_t *rank = &room->ranks[slot];

    if ((slot == room->me) || is_living(room, slot) || !gives_way(rank, peer, incarnation, now_ns)) {
        return KVCL_ERR_BUSY;
    }
    if (rank->next != peer) {
        kvcl_log_info("%s asks to join as rank %u", peer->name, (unsigned)slot);
    }
    rank->next_ready       = rank->next_ready && (rank->next == peer);
    rank->next             = peer;
    rank->next_incarnation = incarnation;
    rank->next_ns          = now_ns;
    return KVCL_OK;
}

/* All members have met it. */
static void take_ready(kvcl_member_room_t *room, uint32_t slot)
{
    kvcl_member_rank_t *rank = &room->ranks[slot];
    kvcl_rankset_t     who   = {{0}};

    if (!rank->next_ready && room->ctx->config.join_waits) {
        kvcl_rankset_add(&who, slot);
        kvcl_member_event(room, KVCL_EVENT_WAITING, &who);
    }
    rank->next_ready = true;
}

static void on_ask(kvcl_member_room_t *room, kvcl_peer_t *peer, const kvcl_msg_join_t *in)
{
    const uint32_t  slot        = (uint32_t)in->msg.op;
    const uint64_t  incarnation = kvcl_member_incarnation(peer->uuid), now_ns = kvcl_now_ns();
    kvcl_msg_join_t out         = {.kind = KVCL_JOIN_ANSWER};
    const bool      member      = kvcl_view_has(&room->views.view, slot, incarnation);

    if (room->views.state != KVCL_VIEWS_MEMBER) {
        return; /* it asks again, or others */
    }
    if (member && (room->ranks[slot].incarnation != incarnation)) {
        know_and_come(room, slot, peer); /* it had not asked for so long that nobody knew it when the view came */
    }
    out.status = member ? KVCL_OK : admit(room, slot, peer, incarnation, now_ns);
    out.view   = room->views.view.number;
    out.flags  = (room->ctx->config.join_waits && !member) ? KVCL_JOIN_WAITS : 0u;
    room->joins_refused += (out.status != KVCL_OK) ? 1 : 0;
    post(room, peer, &out, &room->views.view.members, sizeof(room->views.view.members));
    if (!member && (out.status == KVCL_OK) && (in->flags == KVCL_JOIN_READY)) {
        take_ready(room, slot);
        kvcl_member_deliver(room);
    }
    if (member || (room->ranks[slot].next_ready && (room->ranks[slot].next == peer) &&
                   (!room->ctx->config.join_waits || (room->ranks[slot].activated == incarnation)))) {
        room->busy = true;
        kvcl_views_join(&room->views, slot, incarnation, now_ns);
        room->busy = false;
        kvcl_member_settle(room);
    }
}

/* ---- WHO, IS ---- */

static void send_who(kvcl_member_room_t *room, uint32_t slot)
{
    kvcl_msg_join_t out = {.kind = KVCL_JOIN_WHO, .slot = slot};
    uint32_t        i, at;

    for (i = 0; i < room->n; ++i) { /* another one each time */
        at = (room->asked_last + 1 + i) % room->n;
        if ((at != slot) && (room->ranks[at].peer != NULL) && (room->ranks[at].peer->state == KVCL_PEER_READY)) {
            room->asked_last = at;
            post(room, room->ranks[at].peer, &out, NULL, 0);
            return;
        }
    }
}

static void on_who(kvcl_member_room_t *room, kvcl_peer_t *peer, const kvcl_msg_join_t *in)
{
    kvcl_msg_join_t   out  = {.kind = KVCL_JOIN_IS, .slot = in->slot};
    const kvcl_peer_t *who = room->ranks[in->slot].peer;

    if ((who != NULL) && (who->state != KVCL_PEER_FAILED)) {
        post(room, peer, &out, who->address, who->address_len);
    }
}

/* Does this rank lack the process that the slot has, in its view, or by what it was told? */
static bool is_wanted(const kvcl_member_room_t *room, uint32_t slot)
{
    const kvcl_member_rank_t *rank = &room->ranks[slot];

    if (slot == room->me) {
        return false;
    }
    if (room->views.state == KVCL_VIEWS_MEMBER) {
        return kvcl_rankset_has(&room->views.view.members, slot) &&
               ((rank->peer == NULL) || (rank->incarnation != room->views.view.incarnation[slot]));
    }
    return room->joining && kvcl_rankset_has(&room->members, slot) &&
           ((rank->peer == NULL) || (rank->peer->state == KVCL_PEER_FAILED));
}

/* May that rank have another address by now? The link to it was given up for another queue (link/heal.c), of this rank
 * or of that one; or this process joins, and does not reach it at the address that it was given. */
static bool is_searched(const kvcl_member_room_t *room, uint32_t slot)
{
    const kvcl_peer_t *peer = room->ranks[slot].peer;

    if ((slot == room->me) || (peer == NULL) || (peer->state != KVCL_PEER_CONNECTING)) {
        return false;
    }
    return (peer->anew && (peer->relink != NULL)) ||
           (room->joining && (room->views.state == KVCL_VIEWS_JOINING) && kvcl_rankset_has(&room->members, slot));
}

static void on_is(kvcl_member_room_t *room, const kvcl_msg_join_t *in, const void *data, size_t len)
{
    kvcl_address_t address;
    kvcl_peer_t    *peer;

    if (is_searched(room, in->slot)) {
        kvcl_links->try_at(room->ranks[in->slot].peer, data, len);
        return;
    }
    if (!is_wanted(room, in->slot) || (kvcl_address_unpack(data, len, &address) != KVCL_OK) ||
        ((room->views.state == KVCL_VIEWS_MEMBER) &&
         (kvcl_member_incarnation(address.uuid) != room->views.view.incarnation[in->slot]))) {
        return; /* of another view, or of nobody: a peer that is made stays for ever */
    }
    if ((kvcl_peer_by_address(room->ctx, data, len, &peer) == KVCL_OK) && (peer->state != KVCL_PEER_FAILED)) {
        know_and_come(room, in->slot, peer);
    }
}

void kvcl_joins_on_message(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                           const void *data, size_t len)
{
    const kvcl_msg_join_t *in   = (const kvcl_msg_join_t *)msg;
    kvcl_member_room_t    *room = kvcl_member_room(ctx);
    kvcl_rankset_t        members;

    (void)hdr_len;
    if ((room == NULL) || !room->started || room->excluded) {
        return;
    }
    if ((msg->op >= room->n) || (in->slot >= room->n) || (in->flags > KVCL_JOIN_WAITS) ||
        (len != ((in->kind == KVCL_JOIN_ANSWER) ? sizeof(members) : (in->kind == KVCL_JOIN_IS) ? len : 0))) {
        kvcl_am_malformed(ctx, peer, "a message about joining that no process sends");
        return;
    }
    if (in->kind == KVCL_JOIN_ASK) {
        on_ask(room, peer, in);
    } else if (kvcl_joins_incarnation(room, (uint32_t)msg->op, peer) == 0) {
        kvcl_log_debug("%s speaks for rank %u, whom this rank does not know as that", peer->name, (unsigned)msg->op);
    } else if (in->kind == KVCL_JOIN_ANSWER) {
        memcpy(&members, data, sizeof(members));
        if (kvcl_rankset_next(&members, room->n) != KVCL_SLOT_NONE) {
            kvcl_am_malformed(ctx, peer, "members in slots that the job does not have");
            return;
        }
        kvcl_joiner_on_answer(room, (uint32_t)msg->op, in, &members);
    } else if (in->kind == KVCL_JOIN_WHO) {
        on_who(room, peer, in);
    } else if (in->kind == KVCL_JOIN_IS) {
        on_is(room, in, data, len);
    } else {
        kvcl_am_malformed(ctx, peer, "an unknown kind of message about joining");
    }
}

void kvcl_joins_tick(kvcl_member_room_t *room, uint64_t now_ns)
{
    kvcl_member_rank_t *rank;
    uint32_t           slot;
    const bool         ask = now_ns - room->who_ns >= KVCL_JOIN_AGAIN_NS;

    kvcl_assert_locked(room->ctx);
    room->who_ns = ask ? now_ns : room->who_ns;
    for (slot = 0; slot < room->n; ++slot) {
        rank = &room->ranks[slot];
        if ((rank->next != NULL) && ((rank->next->state == KVCL_PEER_FAILED) ||
                                     (now_ns - rank->next_ns >= KVCL_JOIN_STALE_NS))) {
            kvcl_views_unjoin(&room->views, slot, rank->next_incarnation);
            rank->next = NULL;
        }
        if (ask && (is_wanted(room, slot) || is_searched(room, slot))) {
            send_who(room, slot);
        }
    }
}

/* ---- a view ---- */

/* A slot's new process: the one that has asked here, or one that others have met. */
static void take_slot(kvcl_member_room_t *room, uint32_t slot)
{
    kvcl_member_rank_t *rank       = &room->ranks[slot];
    const uint64_t     incarnation = room->views.view.incarnation[slot];

    if ((rank->peer != NULL) && (rank->incarnation == incarnation)) {
        return; /* this process has joined, and knew it */
    }
    kvcl_member_recover_joined(room, slot);
    kvcl_rankset_del(&room->gone, slot);
    if ((rank->next != NULL) && (rank->next_incarnation == incarnation)) {
        know_and_come(room, slot, rank->next);
        rank->next = NULL;
    } else {
        send_who(room, slot);
    }
}

void kvcl_joins_take_view(kvcl_member_room_t *room)
{
    bool           renewed[KVCL_SLOTS_MAX] = {false};
    kvcl_rankset_t joined = room->joined;
    kvcl_context_h ctx    = room->ctx;
    uint32_t       slot;
    unsigned       i;

    kvcl_assert_locked(ctx);
    memset(&room->joined, 0, sizeof(room->joined));
    room->told_view = room->views.view.number;
    KVCL_RANKSET_EACH(&joined, slot) {
        renewed[slot] = true;
        if (slot != room->me) {
            take_slot(room, slot);
        } else {
            kvcl_rank_slot_come(ctx, (int)slot, NULL);
        }
    }
    kvcl_rank_slots_view(ctx, room->views.view.incarnation, renewed);
    for (i = 0; i < ctx->n_rooms; ++i) {
        if (kvcl_rooms[i]->view != NULL) {
            kvcl_rooms[i]->view(ctx, ctx->rooms[i], &room->views.view, &joined);
        }
    }
}
