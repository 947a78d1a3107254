/*
 * Processes that join: both sides (member.h has the room).
 *
 * A process that joins has asked a member's port for a slot and for the members' addresses (enter/join_wire.h). It
 * makes a session with each member, and then asks each of them, again and again:
 *
 *   joining                                member
 *   ASK: its slot               ->
 *                               <-         ANSWER: KVCL_OK, KVCL_ERR_BUSY (a living rank has the slot, or another
 *                                          process joins in it), the member's view and its members
 *   ASK, READY: all members have answered KVCL_OK
 *                               ->         views.h: kvcl_views_join(), which goes to the leader
 *                               <-         COMMIT, with the view that has it
 *
 * With KVCL_JOIN_WAITS a member takes the last step only for a process that a call of its own program has named
 * (activate.c); the process goes on asking, so that the step is repeated, and kvcl_init returns meanwhile.
 *
 * So each member has met it before a view has it. It begins when all members of its view are in that view: then each of
 * them knows what its messages are. Members that have not met each other, as two that join at once, ask others for the
 * address: WHO, answered by IS. So do two ranks that have both got another queue (link/heal.c), and a process that
 * joins while a member gets one.
 *
 * Of two processes that join in one slot the one with the lower incarnation stays. A slot's next process waits beside
 * the present one (kvcl_member_rank_t.next) until a view has it. All under the engine lock.
 */
#ifndef KVCL_MEMBER_JOIN_JOINS_H
#define KVCL_MEMBER_JOIN_JOINS_H

#include "member/member.h"

enum { KVCL_JOIN_ASK = 1, KVCL_JOIN_ANSWER, KVCL_JOIN_WHO, KVCL_JOIN_IS }; /* kinds */
enum { KVCL_JOIN_READY = 1, KVCL_JOIN_WAITS = 2 }; /* flags: of ASK; of ANSWER: a call must name it (activate.c) */

#define KVCL_JOIN_AGAIN_NS (20 * KVCL_NS_PER_MS)  /* until ASK and WHO are sent again */
#define KVCL_JOIN_IDLE_NS  (200 * KVCL_NS_PER_MS) /* the same, while it waits for kvcl_comm_activate */
#define KVCL_JOIN_STALE_NS (2 * KVCL_NS_PER_SEC)  /* after which a process that no longer asks has given up */

/* ANSWER: the set of members follows, as it lies; IS: the packed address. */
typedef struct kvcl_msg_join {
    kvcl_msg_t msg;         /* op: the sender's slot */
    uint32_t   kind;
    int32_t    status;      /* ANSWER */
    uint64_t   view;        /* ANSWER: the sender's view */
    uint32_t   slot;        /* WHO, IS */
    uint32_t   flags;       /* ASK, ANSWER */
    uint64_t   reserved;
} kvcl_msg_join_t;
_Static_assert(sizeof(kvcl_msg_join_t) == 64, "wire format");

/** The room's port, if KVCL_JOIN_AT names one. No lock held. */
kvcl_status_t kvcl_joins_open(kvcl_member_room_t *room) KVCL_MUST_CHECK;

void kvcl_joins_on_message(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                           const void *data, size_t len);

/** Lock held. Asks for members that this rank has not met, forgets processes that have given up. */
void kvcl_joins_tick(kvcl_member_room_t *room, uint64_t now_ns);

/** Lock held. A view has come: who has joined by it takes its slot, here and in the communicators. */
void kvcl_joins_take_view(kvcl_member_room_t *room);

/** The peer that a message of the machine goes to, in that view: of the slot's process, or of the next. The engine lock
 * guards it. */
kvcl_peer_t *kvcl_joins_peer(const kvcl_member_room_t *room, uint32_t slot, const kvcl_view_t *view);

/** Of a peer that says that it is that slot: its incarnation; 0: it is not. The engine lock guards it. */
uint64_t kvcl_joins_incarnation(const kvcl_member_room_t *room, uint32_t slot, const kvcl_peer_t *peer);

/* ---- joiner.c: the side that joins ---- */

/** Lock held. */
void kvcl_joiner_tick(kvcl_member_room_t *room, uint64_t now_ns);
void kvcl_joiner_on_answer(kvcl_member_room_t *room, uint32_t slot, const kvcl_msg_join_t *in,
                           const kvcl_rankset_t *members);

/** No lock held. The times of views: job, where this process joins it, which become its settings; NULL: the settings.
 * KVCL_ERR_INVALID_PARAM. */
kvcl_status_t kvcl_joiner_take_times(kvcl_member_room_t *room, kvcl_config_t *config, const uint64_t *job)
    KVCL_MUST_CHECK;

/** Lock held. Has this process joined, or will it never? room */
bool          kvcl_joiner_is_over(void *room);
/** Lock held. Why it is no member. */
kvcl_status_t kvcl_joiner_failed(const kvcl_member_room_t *room) KVCL_MUST_CHECK;

/** No lock held. Until this process is a member, or waits for kvcl_comm_activate; the boot's deadline for joining. */
kvcl_status_t kvcl_joiner_wait(kvcl_member_room_t *room) KVCL_MUST_CHECK;

#endif
