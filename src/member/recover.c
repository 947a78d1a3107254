/*
 * Agreement within communicators (recover.h): their state, messages, views. Locks: the engine lock.
 */
#include "config.h"
#include "member/recover.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

static void send_message(void *arg, uint32_t to, const kvcl_agree_msg_t *msg)
{
    const kvcl_recover_t     *recover = arg;
    const kvcl_member_room_t *room    = recover->room;
    kvcl_peer_t              *peer    = room->ranks[to].peer;
    const kvcl_rankset_t     sets[2]  = {msg->value.acked, msg->value.members};
    kvcl_msg_agree_t         out      = {.msg = {.type = KVCL_MSG_AGREE, .op = room->me}};

    kvcl_recover_pack(msg, (recover->comm != NULL) ? recover->comm->id : recover->past_id, &out);
    if ((peer != NULL) && (peer->state == KVCL_PEER_READY) &&
        (kvcl_peer_post(peer, &out.msg, sizeof(out), sets, sizeof(sets)) != KVCL_OK)) {
        kvcl_log_debug("a message of an agreement is not sent to %s", peer->name);
    }
}

static void take_decision(void *arg, uint64_t round, const kvcl_agree_value_t *value)
{
    kvcl_recover_t *recover = arg;

    if (value->unlike != 0) {
        recover->unlike = round;
        recover->calls  = *value;
    }
    if (recover->busy && ((round == recover->awaited) || (recover->awaited == 0))) {
        recover->value = *value;
        recover->done    = true;
        recover->awaited = round; /* a rank that has joined learns it late */
        kvcl_engine_notify(recover->room->ctx);
    }
}

static const kvcl_agree_ops_t agree_ops = {
    .send = send_message, .decided = take_decision, .called = kvcl_recover_called};

static kvcl_recover_t *make(kvcl_member_room_t *room, kvcl_comm_h comm)
{
    kvcl_recover_t *recover = calloc(1, sizeof(*recover));
    kvcl_rankset_t group    = {{0}};
    int            i;

    if (recover == NULL) {
        return NULL;
    }
    for (i = 0; i < comm->size; ++i) {
        kvcl_rankset_add(&group, kvcl_recover_slot(comm, i));
    }
    recover->room = room;
    recover->comm = comm;
    kvcl_agree_init(&recover->agree, room->me, &group, &agree_ops, recover);
    if (room->joining && (comm == comm->ctx->world)) {
        kvcl_agree_join(&recover->agree);
    }
    kvcl_recover_start(recover);
    recover->base.failed = recover->base.epoch = recover->base.seq = 0; /* nothing is known of before, but this */
    if (room->started) {
        kvcl_agree_view(&recover->agree, room->views.view.number, &room->views.view.members);
    }
    kvcl_list_add_tail(&room->recovers, &recover->link);
    return recover;
}

kvcl_recover_t *kvcl_recover_of(kvcl_member_room_t *room, kvcl_comm_h comm)
{
    kvcl_recover_t *recover;

    kvcl_assert_locked(room->ctx);
    kvcl_list_foreach (recover, &room->recovers, kvcl_recover_t, link) {
        if (recover->comm == comm) {
            return recover;
        }
    }
    return make(room, comm);
}

/* Is the failure that was told as number at among those that the user has acknowledged? */
static bool has_acked(const kvcl_member_room_t *room, const kvcl_recover_t *recover, unsigned at)
{
    int      before = 0;
    unsigned i;

    for (i = 0; i < at; ++i) {
        before += kvcl_rankset_has(&recover->agree.group, room->told[i]) ? 1 : 0;
    }
    return kvcl_rankset_has(&recover->agree.group, room->told[at]) && (before < recover->n_acked);
}

void kvcl_member_recover_views(kvcl_member_room_t *room)
{
    kvcl_recover_t *recover;

    kvcl_assert_locked(room->ctx);
    kvcl_list_foreach (recover, &room->recovers, kvcl_recover_t, link) {
        kvcl_agree_view(&recover->agree, room->views.view.number, &room->views.view.members);
        kvcl_recover_take_unlike(recover);
    }
}

void kvcl_member_recover_again(kvcl_member_room_t *room)
{
    kvcl_recover_t *recover;

    kvcl_assert_locked(room->ctx);
    kvcl_list_foreach (recover, &room->recovers, kvcl_recover_t, link) {
        if (recover->comm != NULL) { /* else it only answers */
            kvcl_agree_again(&recover->agree);
            kvcl_recover_take_unlike(recover);
        }
    }
}

void kvcl_member_recover_joined(kvcl_member_room_t *room, uint32_t slot)
{
    kvcl_recover_t *recover;
    unsigned       at;

    kvcl_assert_locked(room->ctx);
    for (at = 0; (at < room->n_told) && (room->told[at] != slot); ++at) {
    }
    if (at == room->n_told) {
        return;
    }
    kvcl_list_foreach (recover, &room->recovers, kvcl_recover_t, link) {
        recover->n_acked -= has_acked(room, recover, at) ? 1 : 0;
    }
    room->n_told -= 1;
    memmove(&room->told[at], &room->told[at + 1], (room->n_told - at) * sizeof(room->told[0])); /* the rest */
}

static void forget(kvcl_recover_t *recover)
{
    kvcl_list_del(&recover->link);
    free(recover);
}

/* Its communicator is freed. Others may ask it for what it has given or decided, if it has; a call that waits ends. */
static void make_past(kvcl_member_room_t *room, kvcl_recover_t *recover)
{
    recover->past_id = recover->comm->id;
    recover->comm    = NULL;
    if (recover->busy) {
        kvcl_engine_notify(room->ctx);
    } else if (recover->agree.round == 0) {
        forget(recover);
        return;
    }
    kvcl_list_del(&recover->link);
    kvcl_list_add_tail(&room->recovers, &recover->link);
}

void kvcl_member_recover_free(kvcl_member_room_t *room, const struct kvcl_comm *comm)
{
    kvcl_recover_t *recover, *next, *oldest = NULL;
    unsigned       n = 0;

    kvcl_list_foreach_safe (recover, next, &room->recovers, kvcl_recover_t, link) {
        if (comm == NULL) {
            forget(recover);
        } else if (recover->comm == comm) {
            make_past(room, recover);
        }
    }
    kvcl_list_foreach (recover, &room->recovers, kvcl_recover_t, link) {
        if ((recover->comm == NULL) && !recover->busy) {
            oldest = (n++ == 0) ? recover : oldest;
        }
    }
    if (n > KVCL_RECOVER_PAST) {
        forget(oldest);
    }
}

/* ---- messages ---- */

/* The agreements of a communicator that was freed. */
static kvcl_recover_t *find_past(kvcl_member_room_t *room, uint64_t id)
{
    kvcl_recover_t *recover;

    kvcl_list_foreach (recover, &room->recovers, kvcl_recover_t, link) {
        if ((recover->comm == NULL) && (recover->past_id == id)) {
            return recover;
        }
    }
    return NULL;
}

/* One that this rank has not made yet is none: the sender says it again. */
static kvcl_comm_h find_comm(kvcl_context_h ctx, uint64_t id)
{
    kvcl_comm_h comm;

    kvcl_assert_locked(ctx);
    kvcl_list_foreach (comm, &ctx->comms, struct kvcl_comm, link) {
        if ((comm->id == id) && !comm->inter && ((comm->world != NULL) || (comm == ctx->world))) {
            return comm;
        }
    }
    return NULL;
}

void kvcl_recover_on_message(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                             const void *data, size_t len)
{
    const kvcl_msg_agree_t *in   = (const kvcl_msg_agree_t *)msg;
    kvcl_member_room_t     *room = kvcl_member_room(ctx);
    kvcl_recover_t         *recover;
    kvcl_agree_msg_t       taken;
    kvcl_comm_h            comm;

    if ((room == NULL) || (msg->op >= room->n) || (room->ranks[msg->op].peer == NULL)) {
        return; /* views are off here, or the rank is not known yet */
    }
    if ((room->ranks[msg->op].peer != peer) || !kvcl_recover_unpack(in, hdr_len, data, len, &taken)) {
        kvcl_am_malformed(ctx, peer, "a message of an agreement that no rank sends");
        return;
    }
    comm    = find_comm(ctx, in->comm);
    recover = (comm != NULL) ? kvcl_recover_of(room, comm) : find_past(room, in->comm);
    if (recover == NULL) {
        return;
    }
    kvcl_agree_take(&recover->agree, &taken);
    kvcl_recover_take_unlike(recover);
}
