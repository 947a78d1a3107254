/*
 * Notifications: a few bytes for a peer, after the bytes of a get or put (params.notify), or alone.
 *
 * NOTIFY is sent when the transfer has ended well: the bytes of a get are here, those of a put are visible to the peer.
 * The peer keeps it in its inbox (inbox.h) until its program takes it, and answers NOTIFIED; then the request ends. So
 * the order holds on every path, also where the peer's processor takes no part in the transfer.
 *
 * All under the engine lock.
 */
#ifndef KVCL_NOTIFY_NOTIFY_H
#define KVCL_NOTIFY_NOTIFY_H

#include "core/context.h"
#include "notify/inbox.h"
#include "wire/wire.h"

typedef struct kvcl_msg_notify { /* payload: its bytes, at most KVCL_NOTIFY_MAX */
    kvcl_msg_t msg;    /* op: the notifier's */
    uint64_t   comm;
    int32_t    source; /* the sender's rank in comm */
    uint32_t   reserved;
} kvcl_msg_notify_t;
_Static_assert(sizeof(kvcl_msg_notify_t) == 48, "wire format");

static inline kvcl_inbox_t *kvcl_notify_inbox(kvcl_context_h ctx)
{
    return ctx->rooms[KVCL_ROOM_NOTIFY];
}

/* notify.c */
void kvcl_notify_on_notified(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                             const void *data, size_t len);
struct kvcl_xfer_notifier;
extern const struct kvcl_xfer_notifier kvcl_notifier;

#endif
