/*
 * The room of doors (door.h): the connections of a context, the messages about them, and kvcl_context_disconnect.
 *
 * Owns: the list of connections, and which door is open. Invariants: a connection is in the list as long as its peer
 * may use it; a number whose side has left has no peer in its communicator. Locks: the engine lock; the room's fini
 * waits for the threads of its port and of its connects without it.
 */
#include "config.h"
#include "door/door.h"
#include "base/error.h"
#include "base/log.h"
#include "base/rand.h"
#include "handle/handle.h"
#include <kvcl/kvcl_comm.h>

#include <limits.h>
#include <stdlib.h>

kvcl_status_t kvcl_door_comm_make(kvcl_context_h ctx, int ranks, kvcl_comm_h *comm_p)
{
    kvcl_comm_h   comm;
    uint64_t      id;
    kvcl_status_t status = kvcl_random_bytes(&id, sizeof(id));

    status = (status == KVCL_OK) ? kvcl_comm_make(ctx, id | 2, 0, ranks, &comm) : status; /* as kvcl_comm_new_id */
    if (status != KVCL_OK) {
        return status;
    }
    comm->size       = 0;
    comm->inter      = true;
    comm->local_size = 1;
    comm->out_ids    = calloc((size_t)ranks, sizeof(*comm->out_ids));
    if (comm->out_ids == NULL) {
        kvcl_comm_free(comm);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a communicator of %d ranks", ranks);
    }
    *comm_p = comm;
    return KVCL_OK;
}

kvcl_status_t kvcl_door_conn_add(kvcl_comm_h comm, int rank, kvcl_peer_t *peer, uint64_t out_id)
{
    kvcl_door_conn_t *conn = calloc(1, sizeof(*conn));

    kvcl_assert_locked(comm->ctx);
    if (conn == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a connection");
    }
    *conn               = (kvcl_door_conn_t){.comm = comm, .rank = rank, .peer = peer};
    comm->peers[rank]   = peer;
    comm->out_ids[rank] = out_id;
    comm->size          = rank + 1; /* from here on other threads see it */
    kvcl_list_add_tail(&kvcl_door_room_of(comm->ctx)->conns, &conn->link);
    return KVCL_OK;
}

static void post(kvcl_peer_t *peer, kvcl_msg_door_t *out)
{
    out->msg.type = KVCL_MSG_DOOR;
    if ((peer->state != KVCL_PEER_READY) || (kvcl_peer_post(peer, &out->msg, sizeof(*out), NULL, 0) != KVCL_OK)) {
        kvcl_log_debug("%s is not reached: it learns nothing of a connection's end", peer->name);
    }
}

void kvcl_door_say_leave(kvcl_peer_t *peer, uint64_t id, int rank)
{
    kvcl_msg_door_t out = {.kind = KVCL_DOOR_LEAVE, .id = id, .rank = (uint32_t)rank};

    kvcl_assert_locked(peer->ctx);
    post(peer, &out);
}

static void forget(kvcl_door_conn_t *conn)
{
    kvcl_list_del(&conn->link);
    free(conn);
}

/* Lock held. The peer of a connection has left, or is told that this side does. */
static void end(kvcl_door_conn_t *conn, bool tell)
{
    kvcl_comm_h comm = conn->comm;

    kvcl_assert_locked(comm->ctx);
    if (tell) {
        kvcl_door_say_leave(conn->peer, comm->out_ids[conn->rank], comm->rank);
    }
    comm->peers[conn->rank] = NULL;
    forget(conn);
}

/* ---- messages ---- */

static kvcl_status_t admit(kvcl_door_room_t *room, kvcl_peer_t *peer, uint64_t id)
{
    kvcl_door_conn_t *conn;
    unsigned         n = 0;

    if (room->door == NULL) {
        return KVCL_ERR_NOT_FOUND;
    }
    kvcl_list_foreach (conn, &room->conns, kvcl_door_conn_t, link) {
        n += ((conn->peer == peer) && (conn->comm == room->door)) ? 1 : 0;
    }
    if (n >= KVCL_DOOR_PER_PEER) {
        return KVCL_ERR_BUSY;
    }
    return (room->door->size < KVCL_DOOR_RANKS) ? kvcl_door_conn_add(room->door, room->door->size, peer, id)
                                                : KVCL_ERR_NO_SPACE;
}

static void on_call(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_door_t *in)
{
    kvcl_door_room_t *room = kvcl_door_room_of(ctx);
    kvcl_msg_door_t  out   = {.msg = {.op = in->msg.op}, .kind = KVCL_DOOR_ANSWER};

    out.status = admit(room, peer, in->id);
    if (out.status == KVCL_OK) {
        out.id   = room->door->id;
        out.rank = (uint32_t)(room->door->size - 1);
        kvcl_log_debug("%s has connected, as number %u", peer->name, (unsigned)out.rank);
    }
    post(peer, &out);
    kvcl_engine_news(ctx);
}

static void on_leave(kvcl_context_h ctx, const kvcl_peer_t *peer, const kvcl_msg_door_t *in)
{
    kvcl_door_conn_t *conn, *next;

    kvcl_list_foreach_safe (conn, next, &kvcl_door_room_of(ctx)->conns, kvcl_door_conn_t, link) {
        if ((conn->peer == peer) && (conn->comm->id == in->id) && ((uint32_t)conn->rank == in->rank)) {
            end(conn, false);
            kvcl_engine_news(ctx);
            return;
        }
    }
    ++ctx->stats.late; /* both sides have left at the same time */
}

static void on_door(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                    size_t len)
{
    const kvcl_msg_door_t *in = (const kvcl_msg_door_t *)msg;

    (void)hdr_len;
    (void)data;
    (void)len;
    switch (in->kind) {
    case KVCL_DOOR_CALL:
        on_call(ctx, peer, in);
        break;
    case KVCL_DOOR_ANSWER:
        kvcl_door_on_answer(ctx, peer, in);
        break;
    case KVCL_DOOR_LEAVE:
        on_leave(ctx, peer, in);
        break;
    default:
        kvcl_am_malformed(ctx, peer, "an unknown kind of message to a door");
        break;
    }
}

/* ---- leaving ---- */

/* The communicators keep the failed peer: its status is that of every later operation. */
static void peer_failed(kvcl_context_h ctx, void *state, kvcl_peer_t *peer)
{
    kvcl_door_room_t *room = state;
    kvcl_door_conn_t *conn, *next;

    kvcl_list_foreach_safe (conn, next, &room->conns, kvcl_door_conn_t, link) {
        if (conn->peer == peer) {
            forget(conn);
            kvcl_engine_news(ctx);
        }
    }
}

static void comm_freed(kvcl_context_h ctx, void *state, kvcl_comm_h comm)
{
    kvcl_door_room_t *room = state;
    kvcl_door_conn_t *conn, *next;

    (void)ctx;
    if (!comm->inter) {
        return;
    }
    kvcl_door_abandon(room, comm);
    kvcl_list_foreach_safe (conn, next, &room->conns, kvcl_door_conn_t, link) {
        if (conn->comm == comm) {
            end(conn, true);
        }
    }
    if (room->door == comm) {
        room->door = NULL;
        kvcl_sock_port_stop(room->port);
    }
}

kvcl_status_t kvcl_context_disconnect(kvcl_comm_h comm, int rank)
{
    static const char call[] = "kvcl_context_disconnect";
    kvcl_status_t     status = kvcl_comm_check(comm, rank, call);
    kvcl_door_conn_t  *conn, *next;

    if (status != KVCL_OK) {
        return status;
    }
    if (comm->out_ids == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: the communicator is neither of kvcl_context_listen nor of "
                         "kvcl_context_connect", call);
    }
    kvcl_lock(comm->ctx);
    kvcl_list_foreach_safe (conn, next, &kvcl_door_room_of(comm->ctx)->conns, kvcl_door_conn_t, link) {
        if ((conn->comm == comm) && (conn->rank == rank)) {
            end(conn, true);
            break;
        }
    }
    kvcl_unlock(comm->ctx);
    return KVCL_OK;
}

/* ---- the room ---- */

static kvcl_status_t room_init(kvcl_context_h ctx, void **state_p)
{
    kvcl_door_room_t *room = calloc(1, sizeof(*room));

    if (room == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for connections");
    }
    kvcl_list_init(&room->conns);
    kvcl_list_init(&room->calling);
    kvcl_door_askers_init(&room->askers, ctx);
    *state_p = room;
    return KVCL_OK;
}

static void room_fini(kvcl_context_h ctx, void *state)
{
    kvcl_door_room_t *room = state;

    (void)ctx;
    kvcl_sock_port_close(room->port);
    kvcl_door_askers_fini(&room->askers);
    while (!kvcl_list_is_empty(&room->conns)) {
        forget(kvcl_list_head(&room->conns, kvcl_door_conn_t, link));
    }
    free(room);
}

static const kvcl_msg_handler_t handlers[] = {
    {KVCL_MSG_DOOR, sizeof(kvcl_msg_door_t), on_door},
    {0, 0, NULL},
};

const kvcl_room_t kvcl_room_door = {
    .name        = "door",
    .handlers    = handlers,
    .init        = room_init,
    .fini        = room_fini,
    .peer_failed = peer_failed,
    .comm_freed  = comm_freed,
};
