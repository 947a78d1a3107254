/*
 * Packing and unpacking the message of agreements (recover_wire.h). Pure. Invariant: what unpack accepts has a type and
 * a call that exist; slots and words in it are anything.
 */
#include "config.h"
#include "member/recover_wire.h"

#include <string.h>

void kvcl_recover_pack(const kvcl_agree_msg_t *msg, uint64_t comm, kvcl_msg_agree_t *out)
{
    out->comm     = comm;
    out->round    = msg->round;
    out->view     = msg->view;
    out->accepted = msg->accepted;
    out->flags    = msg->value.flags;
    out->type     = msg->type;
    out->call     = msg->value.call;
    out->at       = msg->at;
    out->unlike   = msg->value.unlike;
    memcpy(out->names, msg->value.names, sizeof(out->names));
}

bool kvcl_recover_unpack(const kvcl_msg_agree_t *in, size_t hdr_len, const void *data, size_t len,
                         kvcl_agree_msg_t *msg)
{
    memset(msg, 0, sizeof(*msg));
    msg->at = KVCL_AGREE_NOWHERE;
    if ((hdr_len < offsetof(kvcl_msg_agree_t, at)) || (len != 2 * sizeof(kvcl_rankset_t)) ||
        (in->type < KVCL_AGREE_GIVE) || (in->type > KVCL_AGREE_NEXT) || (in->call > KVCL_RECOVER_SHRINK) ||
        (in->msg.op >= KVCL_SLOTS_MAX)) {
        return false;
    }
    msg->type        = (kvcl_agree_type_t)in->type;
    msg->from        = (uint32_t)in->msg.op;
    msg->round       = in->round;
    msg->view        = in->view;
    msg->accepted    = in->accepted;
    msg->value.call  = in->call;
    msg->value.flags = in->flags;
    memcpy(&msg->value.acked, data, sizeof(kvcl_rankset_t));
    memcpy(&msg->value.members, (const char *)data + sizeof(kvcl_rankset_t), sizeof(kvcl_rankset_t));
    if (hdr_len >= sizeof(*in)) {
        msg->at           = in->at;
        msg->value.unlike = ((in->unlike != 0) && (in->call == KVCL_AGREE_CALL_MIXED)) ? 1 : 0;
        memcpy(msg->value.names, in->names, sizeof(msg->value.names));
    }
    return true;
}
