/*
 * The message of agreements, AGREE (wire/wire.h), as src/view/agree.h has it. Pure; what comes from peers may hold
 * anything.
 */
#ifndef KVCL_MEMBER_RECOVER_WIRE_H
#define KVCL_MEMBER_RECOVER_WIRE_H

#include "view/agree.h"
#include "wire/wire.h"

#include <stddef.h>

enum { KVCL_RECOVER_AGREE = 1, KVCL_RECOVER_SHRINK = 2 }; /* calls */

/* The fixed part; the two sets of the value follow, acked and members, as they lie. A header may end before at: then
 * the place and the name of the call are not known. */
typedef struct kvcl_msg_agree {
    kvcl_msg_t        msg;  /* op: the sender's slot */
    uint64_t          comm;
    uint64_t          round, view, accepted, flags;
    uint32_t          type; /* kvcl_agree_type_t */
    uint32_t          call;
    uint64_t          at;
    uint64_t          unlike; /* 0 or 1 */
    kvcl_agree_name_t names[2]; /* their words: a kvcl_coll_called_t (coll/coll_wire.h) */
} kvcl_msg_agree_t;
_Static_assert(sizeof(kvcl_msg_agree_t) == 160, "wire format");

/** All but msg.msg, which the caller fills, and the payload. */
void kvcl_recover_pack(const kvcl_agree_msg_t *msg, uint64_t comm, kvcl_msg_agree_t *out);

/**
 * Of a message whose header has hdr_len bytes, at least those before at, and of its payload.
 * @return false: no rank sends it.
 */
bool kvcl_recover_unpack(const kvcl_msg_agree_t *in, size_t hdr_len, const void *data, size_t len,
                         kvcl_agree_msg_t *msg);

#endif
