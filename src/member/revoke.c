/*
 * kvcl_comm_revoke, kvcl_comm_is_revoked (kvcl_recover.h), and the messages of revocations (revoke.h).
 *
 * Owns: room->revokes. Invariants: a communicator's flag is set before its requests are stopped, so that none begins
 * afterwards but those whose posting call is past its check; these are stopped by the room's next poll. A
 * revocation is sent to a rank only when its first message about views has come: before, that rank would drop it as a
 * stranger's. Locks: the engine lock; kvcl_comm_is_revoked takes none.
 */
#include "config.h"
#include "member/revoke.h"
#include "base/error.h"
#include "base/log.h"
#include "handle/handle.h"
#include "member/recover.h"
#include "req/req.h"
#include <kvcl/kvcl_recover.h>

static bool tell(void *arg, uint32_t to, uint64_t comm, const kvcl_rankset_t *members)
{
    const kvcl_member_room_t *room = arg;
    const kvcl_member_rank_t *rank = &room->ranks[to];
    kvcl_msg_revoke_t        out   = {.msg = {.type = KVCL_MSG_REVOKE, .op = room->me}, .comm = comm};

    if (rank->ended || ((rank->peer != NULL) && (rank->peer->state == KVCL_PEER_FAILED))) {
        return true;
    }
    return rank->met && (rank->peer != NULL) && (rank->peer->state == KVCL_PEER_READY) &&
           (kvcl_peer_post(rank->peer, &out.msg, sizeof(out), members, sizeof(*members)) == KVCL_OK);
}

static const kvcl_revokes_ops_t revokes_ops = {.tell = tell};

static bool is_revoked(kvcl_context_h ctx, uint64_t comm)
{
    const kvcl_member_room_t *room = kvcl_member_room(ctx);

    return (room != NULL) && kvcl_revokes_has(&room->revokes, comm);
}

void kvcl_revoke_init(kvcl_member_room_t *room)
{
    kvcl_revokes_init(&room->revokes, room->me, &revokes_ops, room);
    room->ctx->is_revoked = is_revoked;
}

/* All its operations end, also those that wait without a request. */
static void take(kvcl_member_room_t *room, uint64_t id, const kvcl_rankset_t *members, uint32_t from)
{
    kvcl_context_h ctx  = room->ctx;
    bool           news = false;
    kvcl_comm_h    comm;

    kvcl_assert_locked(ctx);
    kvcl_list_foreach (comm, &ctx->comms, struct kvcl_comm, link) {
        if ((comm->id == id) && !comm->inter) {
            news = !atomic_exchange(&comm->revoked, true) || news;
        }
    }
    if (kvcl_revokes_take(&room->revokes, id, members, from) || news) { /* news alone: it was forgotten */
        kvcl_log_info("communicator %llx is revoked", (unsigned long long)id);
        kvcl_req_stop_bound(ctx, id, KVCL_ERR_REVOKED);
        kvcl_engine_news(ctx);
    }
}

void kvcl_revoke_on_message(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                            const void *data, size_t len)
{
    const kvcl_msg_revoke_t *in   = (const kvcl_msg_revoke_t *)msg;
    kvcl_member_room_t      *room = kvcl_member_room(ctx);
    kvcl_rankset_t          members;

    (void)hdr_len;
    if ((room == NULL) || (msg->op >= room->n) || (room->ranks[msg->op].peer == NULL)) {
        return; /* views are off here, or the rank is not known yet */
    }
    if ((room->ranks[msg->op].peer != peer) || (in->comm == 0) ||
        !kvcl_revokes_unpack(data, len, room->n, (uint32_t)msg->op, room->me, &members)) {
        kvcl_am_malformed(ctx, peer, "a revocation that no rank sends");
        return;
    }
    take(room, in->comm, &members, (uint32_t)msg->op);
}

void kvcl_revoke_on_view(kvcl_context_h ctx, void *state, const kvcl_view_t *view, const kvcl_rankset_t *joined)
{
    kvcl_member_room_t *room = state;
    uint32_t           slot;

    kvcl_assert_locked(ctx);
    (void)view;
    KVCL_RANKSET_EACH(joined, slot) {
        kvcl_revokes_lost(&room->revokes, slot);
    }
}

unsigned kvcl_revoke_late(kvcl_member_room_t *room)
{
    kvcl_context_h ctx = room->ctx;
    kvcl_comm_h    comm;
    unsigned       n = 0;

    kvcl_assert_locked(ctx);
    if (!ctx->revoked_late) {
        return 0;
    }
    ctx->revoked_late = false;
    kvcl_list_foreach (comm, &ctx->comms, struct kvcl_comm, link) {
        if (atomic_load(&comm->revoked)) {
            kvcl_req_stop_bound(ctx, comm->id, KVCL_ERR_REVOKED);
            ++n;
        }
    }
    return n;
}

/* ---- calls ---- */

kvcl_status_t kvcl_comm_revoke(kvcl_comm_h comm)
{
    static const char  call[] = "kvcl_comm_revoke";
    kvcl_member_room_t *room;
    kvcl_status_t      status  = kvcl_recover_check(comm, call, &room);
    kvcl_rankset_t     members = {{0}};
    int                i;

    if (status != KVCL_OK) {
        return status;
    }
    for (i = 0; i < comm->size; ++i) {
        kvcl_rankset_add(&members, kvcl_recover_slot(comm, i));
    }
    kvcl_lock(comm->ctx);
    take(room, comm->id, &members, KVCL_SLOT_NONE);
    kvcl_unlock(comm->ctx);
    return KVCL_OK;
}

kvcl_status_t kvcl_comm_is_revoked(kvcl_comm_h comm, int *revoked_p)
{
    static const char call[] = "kvcl_comm_is_revoked";
    kvcl_status_t     status = kvcl_handle_check(comm, KVCL_KIND_COMM, call);

    if (status != KVCL_OK) {
        return status;
    }
    if (revoked_p == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: revoked_p is NULL", call);
    }
    *revoked_p = atomic_load(&comm->revoked) ? 1 : 0;
    return KVCL_OK;
}
