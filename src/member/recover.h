/*
 * Agreement within communicators: the machine of src/view/agree.h bound to the engine (member.h has the members).
 *
 * A communicator has a kvcl_recover_t from its first agreement, or the first message about one, on. The last
 * KVCL_RECOVER_PAST of communicators that were freed are kept: if a leader dies before it has told all what was
 * decided, the others ask those that know, which may have freed the communicator by then. All under the engine lock.
 *
 * Agreements and collectives of a communicator have one order (recover_order.c). A rank counts its collectives since
 * its last agreement, and tells the count with its next one; another rank that has called a collective in that place
 * says so, and all their calls end. A rank compares only while it is sure: since that agreement no operation of a
 * communicator has failed here, no rank of this one has failed or joined, and it was not revoked. Otherwise calls that
 * wait for each other end by their deadlines.
 */
#ifndef KVCL_MEMBER_RECOVER_H
#define KVCL_MEMBER_RECOVER_H

#include "core/comm.h"
#include "member/member.h"
#include "member/recover_wire.h"
#include "view/agree.h"

enum { KVCL_RECOVER_PAST = 16 };

/* Where a rank stands in the order of a communicator's calls. */
typedef struct kvcl_recover_place {
    uint64_t       epoch, seq; /* of its next collective */
    uint64_t       failed;     /* kvcl_req_failures() */
    kvcl_rankset_t living;
} kvcl_recover_place_t;

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
    kvcl_recover_place_t base;  /* after the last agreement */
    kvcl_recover_place_t here;  /* of this rank's call in the round under way, or of what it gave instead */
    uint64_t           first;   /* the first collective that is not called in its order, if that is decided */
    bool               lost;    /* the last agreement did not end here: nothing is compared before the next */
    uint64_t           unlike;  /* a round that was decided and not taken yet: calls differ; 0: none */
    kvcl_agree_value_t calls;   /* its value */
} kvcl_recover_t;

/** recover_calls.c: is it a communicator of this job, and has that views? No lock held. */
kvcl_status_t kvcl_recover_check(kvcl_comm_h comm, const char *call, kvcl_member_room_t **room_p) KVCL_MUST_CHECK;

/** NULL: no memory. */
kvcl_recover_t *kvcl_recover_of(kvcl_member_room_t *room, kvcl_comm_h comm);

/** The slot of a communicator's rank. */
static inline uint32_t kvcl_recover_slot(const struct kvcl_comm *comm, int rank)
{
    return (uint32_t)((comm->world != NULL) ? comm->world[rank] : rank);
}

/* ---- recover_order.c ---- */

/** The machine's question: has this rank called a collective there? */
bool kvcl_recover_called(void *arg, uint64_t at, kvcl_agree_name_t *name_p);
/** This rank calls, for the round that it awaits. @return its place; KVCL_AGREE_NOWHERE: it is not sure. */
uint64_t kvcl_recover_begin(kvcl_recover_t *recover);
/** Its call has ended: the next place counts from there. */
void kvcl_recover_end(kvcl_recover_t *recover);
/** The communicator is new, here and on all its ranks. */
void kvcl_recover_start(kvcl_recover_t *recover);
/** A round of different calls was decided: the collectives among them end. Not inside the machine. */
void kvcl_recover_take_unlike(kvcl_recover_t *recover);
/** The sentence of a call whose round was of different calls. @return KVCL_ERR_INVALID_PARAM */
kvcl_status_t kvcl_recover_unlike_fail(const kvcl_recover_t *recover, const char *call);
kvcl_agree_name_t kvcl_recover_name(uint32_t call); /* KVCL_RECOVER_AGREE, _SHRINK */

void kvcl_recover_on_message(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                             const void *data, size_t len);

#endif
