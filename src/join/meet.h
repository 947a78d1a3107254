/*
 * The meeting of the rank 0s of two jobs for an inter-communicator: CONNECT and CONNECTED, root to root.
 *
 *   connecting                         accepting
 *   CONNECT REQUEST, its members ->    taken by a waiting accept, or held until an accept is called
 *                                <-    CONNECTED: status, id of the new communicator, its members
 *   CONNECT CONFIRM              ->    only now has the accept succeeded
 *   CONNECT WITHDRAW             ->    the connecting side has stopped (deadline, cancel)
 *
 * The connecting side has connected when it has sent CONFIRM. If the accept has ended by then (its deadline has passed
 * while CONFIRM was on its way, or unread, because the process was stopped), the next accept takes the connection.
 */
#ifndef KVCL_JOIN_MEET_H
#define KVCL_JOIN_MEET_H

#include "core/context.h"
#include "join/members.h"

/* The context's meetings: ctx->rooms[KVCL_ROOM_COMM]. */
typedef struct kvcl_meet_room {
    kvcl_list_t accepts; /* in order */
    kvcl_list_t held;    /* kvcl_held_request_t, in order: requests that no accept has taken */
    kvcl_list_t left;    /* the same, answered by accepts that have ended since */
} kvcl_meet_room_t;

/* Both block, no lock held; address NULL: accept. *remote is malloc'ed on KVCL_OK. */
kvcl_status_t kvcl_meet(kvcl_context_h ctx, const char *address, const kvcl_members_t *local, uint64_t timeout_ns,
                        kvcl_members_t *remote, uint64_t *id_p) KVCL_MUST_CHECK;

/* The room's share, see context.h. */
kvcl_status_t kvcl_meet_init(kvcl_context_h ctx, void **state_p) KVCL_MUST_CHECK;
void          kvcl_meet_fini(kvcl_context_h ctx, void *state);
void          kvcl_meet_peer_failed(kvcl_context_h ctx, void *state, kvcl_peer_t *peer);
void          kvcl_meet_on_connect(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                                   const void *data, size_t len);
void          kvcl_meet_on_connected(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                                     const void *data, size_t len);

typedef struct kvcl_msg_connect {
    kvcl_msg_t msg;    /* op: REQUEST, WITHDRAW, CONNECTED: the connecting side's; CONFIRM: the accepting side's */
    uint32_t   kind;   /* CONNECT: KVCL_CONNECT_* */
    int32_t    status; /* CONNECTED */
    uint64_t   id;     /* CONNECTED: of the communicator */
    uint64_t   answer; /* CONNECTED: the accepting side's op */
    uint32_t   n;      /* members in the payload */
    uint32_t   reserved;
} kvcl_msg_connect_t;
enum { KVCL_CONNECT_REQUEST = 1, KVCL_CONNECT_CONFIRM = 2, KVCL_CONNECT_WITHDRAW = 3 };

#endif
