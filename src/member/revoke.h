/*
 * Revoked communicators: the machine of src/view/revokes.h bound to the engine (member.h has the members). All under
 * the engine lock.
 */
#ifndef KVCL_MEMBER_REVOKE_H
#define KVCL_MEMBER_REVOKE_H

#include "core/comm.h"
#include "member/member.h"

/* The members' set of slots follows, as it lies. */
typedef struct kvcl_msg_revoke {
    kvcl_msg_t msg; /* op: the sender's slot */
    uint64_t   comm;
} kvcl_msg_revoke_t;
_Static_assert(sizeof(kvcl_msg_revoke_t) == 40, "wire format");

void kvcl_revoke_init(kvcl_member_room_t *room);

void kvcl_revoke_on_message(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                            const void *data, size_t len);

/** A room's view: a process that has joined gets the revocations of before. */
void kvcl_revoke_on_view(kvcl_context_h ctx, void *state, const kvcl_view_t *view, const kvcl_rankset_t *joined);

/** Requests of revoked communicators that were begun a moment ago. @return how many communicators have ended some. */
unsigned kvcl_revoke_late(kvcl_member_room_t *room);

#endif
