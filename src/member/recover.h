/*
 * Agreement within communicators: the machine of src/view/agree.h bound to the engine (member.h has the members).
 *
 * A communicator has a kvcl_recover_t from its first agreement, or the first message about one, on. The last
 * KVCL_RECOVER_PAST of communicators that were freed are kept: if a leader dies before it has told all what was
 * decided, the others ask those that know, which may have freed the communicator by then. All under the engine lock.
 */
#ifndef KVCL_MEMBER_RECOVER_H
#define KVCL_MEMBER_RECOVER_H

#include "core/comm.h"
#include "member/member.h"
#include "view/agree.h"

enum { KVCL_RECOVER_PAST = 16 };

typedef struct kvcl_recover {
    kvcl_list_t        link; /* room->recovers; in the order of their first use, or of their end */
    kvcl_member_room_t *room;
    kvcl_comm_h        comm; /* NULL: it was freed */
    uint64_t           past_id; /* freed: its id, which is its name in messages */
    kvcl_agree_t       agree;
    int                n_acked; /* failures that the user has acknowledged */
    bool               busy;    /* a call waits for: */
    uint64_t           awaited; /* this round */
    bool               done;
    kvcl_agree_value_t value;   /* done: what was decided */
} kvcl_recover_t;

enum { KVCL_RECOVER_AGREE = 1, KVCL_RECOVER_SHRINK = 2 }; /* calls */

/* The fixed part; the two sets of the value follow, acked and members, as they lie. */
typedef struct kvcl_msg_agree {
    kvcl_msg_t msg;  /* op: the sender's slot */
    uint64_t   comm;
    uint64_t   round, view, accepted, flags;
    uint32_t   type; /* kvcl_agree_type_t */
    uint32_t   call;
} kvcl_msg_agree_t;
_Static_assert(sizeof(kvcl_msg_agree_t) == 80, "wire format");

/** recover_calls.c: is it a communicator of this job, and has that views? No lock held. */
kvcl_status_t kvcl_recover_check(kvcl_comm_h comm, const char *call, kvcl_member_room_t **room_p) KVCL_MUST_CHECK;

/** NULL: no memory. */
kvcl_recover_t *kvcl_recover_of(kvcl_member_room_t *room, kvcl_comm_h comm);

/** The slot of a communicator's rank. */
static inline uint32_t kvcl_recover_slot(const struct kvcl_comm *comm, int rank)
{
    return (uint32_t)((comm->world != NULL) ? comm->world[rank] : rank);
}

void kvcl_recover_on_message(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                             const void *data, size_t len);

#endif
