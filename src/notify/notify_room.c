/*
 * The receiver's side of notifications (notify.h): the room's state and handlers, and kvcl_notify_recv.
 *
 * Locks: the engine lock; kvcl_notify_recv takes it.
 */
#include "config.h"
#include "notify/notify.h"
#include "base/error.h"
#include "base/log.h"
#include "base/structs.h"
#include "core/comm.h"
#include "handle/handle.h"
#include "req/timeout.h"
#include "weave/pieces.h"
#include "xfer/xfer.h"
#include "xfer/xfer_wire.h"
#include <kvcl/kvcl_xfer.h>

#include <stdlib.h>

/* Logged for the first and at each doubling, since a peer can cause as many as it likes. */
static void note_refusal(kvcl_peer_t *peer)
{
    uint64_t n = ++peer->ctx->stats.refused;

    if ((n & (n - 1)) == 0) {
        kvcl_log_warn("no room for a notification of %s: call kvcl_notify_recv to take those that are here (%llu "
                      "refused so far)", peer->name, (unsigned long long)n);
    }
}

static void on_notify(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                      size_t len)
{
    const kvcl_msg_notify_t *in  = (const kvcl_msg_notify_t *)msg;
    kvcl_msg_done_t         out  = {.msg = {.type = KVCL_MSG_NOTIFIED, .op = msg->op}};
    kvcl_status_t           status;

    (void)hdr_len;
    if ((len > KVCL_NOTIFY_MAX) || (in->source < 0)) {
        kvcl_am_malformed(ctx, peer, "a notification that is too long, or of no rank");
        return;
    }
    status = kvcl_inbox_keep(kvcl_notify_inbox(ctx), peer, in->comm, in->source, data, len);
    if (status == KVCL_OK) {
        kvcl_engine_news(ctx);
    } else {
        note_refusal(peer);
    }
    out.status = status;
    if (kvcl_peer_post(peer, &out.msg, sizeof(out), NULL, 0) != KVCL_OK) {
        kvcl_log_debug("%s has failed: NOTIFIED is not sent", peer->name);
    }
}

/* ---- taking them ---- */

typedef struct taking {
    kvcl_comm_h      comm;
    void             *buf;
    size_t           cap;
    kvcl_recv_info_t info;
    bool             over; /* one was found: a wait may ask again */
    bool             revoked;
} taking_t;

/* Has its sender failed, and does another process have that rank by now? The source would name the other process. */
static bool is_outdated(const struct kvcl_comm *comm, const kvcl_notice_t *notice)
{
    const kvcl_peer_t *now;

    if ((notice->peer->state != KVCL_PEER_FAILED) || (notice->source >= comm->size)) {
        return false;
    }
    now = atomic_load_explicit(&comm->peers[notice->source], memory_order_acquire);
    return (now != NULL) && (now != notice->peer);
}

/* Lock held. The first one that is to be taken, or NULL. */
static kvcl_notice_t *first_of(kvcl_inbox_t *inbox, const struct kvcl_comm *comm)
{
    kvcl_notice_t *notice;

    kvcl_assert_locked(comm->ctx);
    while (((notice = kvcl_inbox_first(inbox, comm->id)) != NULL) && is_outdated(comm, notice)) {
        kvcl_inbox_drop(inbox, notice);
    }
    return notice;
}

/* Lock held. There is one; it stays if it has no room in buf. */
static bool take(void *arg)
{
    taking_t      *taking = arg;
    kvcl_inbox_t  *inbox  = kvcl_notify_inbox(taking->comm->ctx);
    kvcl_notice_t *notice;

    kvcl_assert_locked(taking->comm->ctx);
    taking->revoked = atomic_load(&taking->comm->revoked);
    if (taking->revoked) {
        return true;
    }
    notice = taking->over ? NULL : first_of(inbox, taking->comm);
    if (notice == NULL) {
        return taking->over;
    }
    taking->over        = true;
    taking->info.source = notice->source;
    taking->info.bytes  = notice->len;
    if (notice->len <= taking->cap) {
        if (notice->len > 0) {
            kvcl_copy_bytes(taking->buf, notice->bytes, notice->len);
        }
        kvcl_inbox_drop(inbox, notice);
    }
    return true;
}

kvcl_status_t kvcl_notify_recv(kvcl_comm_h comm, void *buf, size_t cap, kvcl_recv_info_t *info, uint64_t timeout_ns)
{
    static const char call[]  = "kvcl_notify_recv";
    taking_t          taking  = {.comm = comm, .buf = buf, .cap = cap, .info = {.size = sizeof(kvcl_recv_info_t)}};
    kvcl_status_t     status  = kvcl_comm_check_any(comm, KVCL_ANY_SOURCE, call);

    if (status != KVCL_OK) {
        return status;
    }
    if ((buf == NULL) && (cap != 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: buf is NULL", call);
    }
    if (info != NULL) {
        status = kvcl_struct_out_check(info, KVCL_UP_TO(kvcl_recv_info_t, bytes), "kvcl_recv_info_t", call);
        if (status != KVCL_OK) {
            return status;
        }
    }
    if (timeout_ns == KVCL_WAIT_FOREVER) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: KVCL_WAIT_FOREVER: a notification has no deadline that would end "
                         "the wait; give a time, or KVCL_WAIT_DEFAULT", call);
    }
    if (!kvcl_wait_for(comm->ctx, take, &taking, timeout_ns)) {
        return kvcl_wait_ended(comm->ctx, timeout_ns, call, "a notification");
    }
    if (taking.revoked) {
        return kvcl_comm_check_any(comm, KVCL_ANY_SOURCE, call);
    }
    if (info != NULL) {
        kvcl_struct_out(info, &taking.info, sizeof(taking.info));
    }
    if (taking.info.bytes > cap) {
        return kvcl_fail(KVCL_ERR_TRUNCATED, "%s: the next notification has %llu bytes, there is room for %zu; "
                           "KVCL_NOTIFY_MAX bytes hold any", call, (unsigned long long)taking.info.bytes, cap);
    }
    return KVCL_OK;
}

/* ---- the room ---- */

static kvcl_status_t room_init(kvcl_context_h ctx, void **state_p)
{
    kvcl_inbox_t *inbox = calloc(1, sizeof(*inbox));

    if (inbox == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for notifications");
    }
    kvcl_list_init(&inbox->all);
    kvcl_xfer_state(ctx)->notifier = &kvcl_notifier;
    *state_p = inbox;
    return KVCL_OK;
}

static void drop_all(kvcl_inbox_t *inbox, const kvcl_comm_h comm)
{
    kvcl_notice_t *notice, *next;

    kvcl_list_foreach_safe (notice, next, &inbox->all, kvcl_notice_t, link) {
        if ((comm == NULL) || (notice->comm == comm->id)) {
            kvcl_inbox_drop(inbox, notice);
        }
    }
}

static void room_fini(kvcl_context_h ctx, void *state)
{
    (void)ctx;
    drop_all(state, NULL);
    free(state);
}

static void comm_freed(kvcl_context_h ctx, void *state, kvcl_comm_h comm)
{
    (void)ctx;
    drop_all(state, comm);
}

static const kvcl_msg_handler_t handlers[] = {
    {KVCL_MSG_NOTIFY, sizeof(kvcl_msg_notify_t), on_notify},
    {KVCL_MSG_NOTIFIED, sizeof(kvcl_msg_done_t), kvcl_notify_on_notified},
    {0, 0, NULL},
};

const kvcl_room_t kvcl_room_notify = {
    .name       = "notify",
    .handlers   = handlers,
    .init       = room_init,
    .fini       = room_fini,
    .comm_freed = comm_freed,
};
