/*
 * The room of collectives in a context: its state, its message, and its reaction when a peer fails or a communicator
 * is freed. Engine lock, except init and fini.
 */
#include "config.h"
#include "base/error.h"
#include "base/log.h"
#include "coll/coll_run.h"

#include <stddef.h>
#include <stdlib.h>

static kvcl_status_t room_init(kvcl_context_h ctx, void **state_p)
{
    kvcl_coll_room_t *room = calloc(1, sizeof(*room));
    kvcl_status_t    status;

    if (room == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for collectives");
    }
    status = kvcl_coll_table_parse(ctx->config.coll_table, &room->table);
    if (status != KVCL_OK) {
        free(room);
        return kvcl_fail(status, "KVCL_COLL_TABLE: %s", kvcl_last_error());
    }
    kvcl_map_init(&room->comms);
    kvcl_list_init(&room->running);
    kvcl_list_init(&room->landed);
    kvcl_list_init(&room->early);
    *state_p = room;
    return KVCL_OK;
}

static void room_fini(kvcl_context_h ctx, void *state)
{
    kvcl_coll_room_t *room = state;
    uint64_t         key;
    void             *value;
    size_t           it;

    kvcl_coll_forget(ctx, NULL, 0);
    kvcl_map_foreach(&room->comms, it, key, value) {
        kvcl_coll_comm_t *cc = value;

        kvcl_plan_cache_fini(&cc->plans);
        kvcl_coll_stage_free(&cc->stage, cc->size);
        free(cc);
    }
    kvcl_map_fini(&room->comms);
    free(room);
}

static unsigned room_poll(kvcl_context_h ctx, void *state)
{
    (void)state;
    return kvcl_coll_poll(ctx);
}

/* The entry of this peer in a running collective where it is not marked failed yet, or NULL. */
static kvcl_coll_peer_t *find_gone(kvcl_coll_room_t *room, const kvcl_peer_t *peer)
{
    kvcl_coll_op_t *op;
    uint32_t       i;

    kvcl_list_foreach (op, &room->running, kvcl_coll_op_t, link) {
        for (i = 0; i < op->plan->plan.npeers; ++i) {
            if ((op->peers[i].peer == peer) && !op->peers[i].gone) {
                return &op->peers[i];
            }
        }
    }
    return NULL;
}

static void fail_all(kvcl_context_h ctx, void *state, kvcl_peer_t *peer, kvcl_status_t status)
{
    kvcl_coll_peer_t *gone;

    kvcl_coll_forget(ctx, peer, 0);
    while ((gone = find_gone(state, peer)) != NULL) { /* from the start: a collective that ends may end others */
        kvcl_coll_op_t *op = gone->op;

        kvcl_coll_peer_failed(gone, status);
        kvcl_coll_advance(op);
    }
}

static void room_peer_failed(kvcl_context_h ctx, void *state, kvcl_peer_t *peer)
{
    fail_all(ctx, state, peer, peer->why);
}

static void room_peer_reset(kvcl_context_h ctx, void *state, kvcl_peer_t *peer)
{
    fail_all(ctx, state, peer, KVCL_ERR_UNREACHABLE);
}

static void room_comm_freed(kvcl_context_h ctx, void *state, kvcl_comm_h comm)
{
    kvcl_coll_comm_t *cc = kvcl_map_get(&((kvcl_coll_room_t *)state)->comms, kvcl_comm_coll_id(comm));

    if (cc == NULL) {
        return;
    }
    cc->comm = NULL;
    if ((cc->running != 0) || !kvcl_list_is_empty(&cc->waiting)) {
        kvcl_log_warn("a communicator is freed while %u of its collectives are in flight", cc->running);
    }
    kvcl_coll_comm_release(ctx, cc);
}

/* One whose communicator's collectives are numbered anew, with its plans and its stage, or NULL. */
static kvcl_coll_comm_t *find_old(kvcl_coll_room_t *room)
{
    kvcl_coll_comm_t *cc;
    uint64_t         key;
    size_t           it;
    void             *value;

    kvcl_map_foreach(&room->comms, it, key, value) {
        cc = value;
        if ((cc->comm != NULL) && (cc->id != kvcl_comm_coll_id(cc->comm))) {
            return cc;
        }
    }
    return NULL;
}

static void room_view(kvcl_context_h ctx, void *state, const struct kvcl_view *view,
                      const struct kvcl_rankset *joined)
{
    kvcl_coll_comm_t *old;

    (void)view;
    (void)joined;
    while ((old = find_old(state)) != NULL) {
        old->comm = NULL;
        kvcl_coll_comm_release(ctx, old);
    }
}

static const kvcl_msg_handler_t handlers[] = {
    {KVCL_MSG_COLL, offsetof(kvcl_msg_coll_t, called), kvcl_coll_on_message},
    {0, 0, NULL},
};

const kvcl_room_t kvcl_room_coll = {
    .name        = "coll",
    .handlers    = handlers,
    .init        = room_init,
    .fini        = room_fini,
    .poll        = room_poll,
    .peer_failed = room_peer_failed,
    .peer_reset  = room_peer_reset,
    .view        = room_view,
    .comm_freed  = room_comm_freed,
};
