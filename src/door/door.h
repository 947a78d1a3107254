/*
 * Doors: contexts that others connect to without a call of this side's program. A context that listens has one door, a
 * communicator between jobs whose ranks are those that have connected, in the order in which they came. The side that
 * connects gets a communicator of its own with one rank, the door's context.
 *
 *   connecting                          listening
 *   CALL, its communicator's id ->
 *                               <-      ANSWER: status, the door's id, and the number of the connecting side there
 *   LEAVE                       <->     either side disconnects
 *
 * A connect is a request (door_connect.c). By "host:port" it first asks there for the context's address, in a thread of
 * its own (door_asker.h), so that no caller waits for a resolver or a network.
 *
 * The two communicators have different ids, so a context may connect to one door several times, or to its own: a
 * message carries the receiver's id (kvcl_comm_t.out_ids) and the sender's number there. Numbers are not used again. A
 * number that has left has no peer in comm->peers. Answers that nobody waits for any more are answered by LEAVE.
 *
 * A door may have a port (sock_port.h): whoever connects there and proves the job's secret gets the context's address.
 * Everything after that is a session between two contexts as any other (core/peer.h).
 */
#ifndef KVCL_DOOR_DOOR_H
#define KVCL_DOOR_DOOR_H

#include "core/comm.h"
#include "core/context.h"
#include "door/door_asker.h"
#include "sock/sock_port.h"

enum {
    KVCL_DOOR_RANKS    = 1 << 18, /* numbers of a door, ever */
    KVCL_DOOR_PER_PEER = 64       /* connections at a time */
};

/* The id of all doors' ports: nobody knows one's own before it connects. */
extern const uint8_t kvcl_door_id[KVCL_SOCK_ID_LEN];

enum { KVCL_DOOR_CALL = 1, KVCL_DOOR_ANSWER = 2, KVCL_DOOR_LEAVE = 3 };

typedef struct kvcl_msg_door {
    kvcl_msg_t msg;    /* op: CALL, ANSWER: the connecting side's */
    uint32_t   kind;   /* KVCL_DOOR_* */
    int32_t    status; /* ANSWER */
    uint64_t   id;     /* CALL, ANSWER: of the sender's communicator; LEAVE: of the receiver's */
    uint32_t   rank;   /* ANSWER: the receiver's number; LEAVE: the sender's */
    uint32_t   reserved;
} kvcl_msg_door_t;
_Static_assert(sizeof(kvcl_msg_door_t) == 56, "wire format");

/* A connection, on either side, until one side leaves or the peer fails. */
typedef struct kvcl_door_conn {
    kvcl_list_t link; /* kvcl_door_room_t.conns */
    kvcl_comm_h comm;
    int         rank; /* of the peer, in comm */
    kvcl_peer_t *peer;
} kvcl_door_conn_t;

typedef struct kvcl_door_room {
    kvcl_comm_h      door;  /* NULL: the context does not listen */
    kvcl_sock_port_t *port; /* of the door, or of one that was closed: joined by the next listen, or with the room */
    kvcl_list_t      conns;
    kvcl_list_t      calling; /* connects in progress (door_connect.c) */
    kvcl_door_askers_t askers;
} kvcl_door_room_t;

static inline kvcl_door_room_t *kvcl_door_room_of(kvcl_context_h ctx)
{
    return ctx->rooms[KVCL_ROOM_DOOR];
}

/** Lock held. The peer has this number in comm from now on. @return KVCL_OK, KVCL_ERR_NO_MEMORY. */
kvcl_status_t kvcl_door_conn_add(kvcl_comm_h comm, int rank, kvcl_peer_t *peer, uint64_t out_id) KVCL_MUST_CHECK;

/** Lock held. Tell a peer, if it is there, that this side has left its communicator id, where it is rank. */
void kvcl_door_say_leave(kvcl_peer_t *peer, uint64_t id, int rank);

/** A communicator between jobs with room for that many ranks, whose id is random; its size is 0. */
kvcl_status_t kvcl_door_comm_make(kvcl_context_h ctx, int ranks, kvcl_comm_h *comm_p) KVCL_MUST_CHECK;

/* door_connect.c: lock held, the answer to a CALL. */
void kvcl_door_on_answer(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_door_t *in);
/* door_connect.c: lock held. The communicator is freed: a connect that would fill it ends. */
void kvcl_door_abandon(kvcl_door_room_t *room, kvcl_comm_h comm);

#endif
