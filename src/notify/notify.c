/*
 * The notifier's side (notify.h): a request that begins with a get or a put, or with the wait for the peer's session
 * (kvcl_notify), then sends NOTIFY and ends with its answer.
 *
 * Owns: the request and a copy of the bytes. Invariant: NOTIFY is sent once, and only after the transfer has ended with
 * KVCL_OK. Locks: the engine lock, except the public call and the two entries from xfer.
 */
#include "config.h"
#include "notify/notify.h"
#include "base/error.h"
#include "core/comm.h"
#include "weave/pieces.h"
#include "xfer/describe.h"
#include "xfer/params.h"
#include "xfer/pull.h"
#include "xfer/put.h"
#include "xfer/xfer.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct notifying {
    kvcl_req_t         req;
    kvcl_peer_t        *peer;
    kvcl_req_t         *moving; /* the get or put in progress, or NULL */
    kvcl_peer_waiter_t waiter;  /* kvcl_notify: for the peer's session */
    kvcl_comm_self_t   self;
    size_t             len;
    unsigned char      bytes[];
} notifying_t;

static notifying_t *of(const kvcl_req_t *req)
{
    return kvcl_container_of((kvcl_req_t *)req, notifying_t, req);
}

static void stop(kvcl_req_t *req, kvcl_status_t status)
{
    notifying_t *op = of(req);

    if (op->moving != NULL) {
        op->moving->cls->stop(op->moving, status);
        return;
    }
    kvcl_peer_unwait(&op->waiter);
    kvcl_req_complete(req, status);
}

static void describe(const kvcl_req_t *req, char *buf, size_t cap)
{
    const notifying_t *op = of(req);
    char              who[48];

    if (op->moving != NULL) {
        op->moving->cls->describe(op->moving, buf, cap);
        return;
    }
    snprintf(buf, cap, "the notification of %zu bytes to %s, after its data", op->len,
             kvcl_describe_peer(op->peer, who, sizeof(who)));
}

static bool explain(const kvcl_req_t *req, kvcl_status_t status, char *buf, size_t cap)
{
    const notifying_t *op = of(req);
    char              who[48];

    if (op->moving != NULL) {
        return (op->moving->cls->explain != NULL) && op->moving->cls->explain(op->moving, status, buf, cap);
    }
    if (status != KVCL_ERR_NO_SPACE) {
        return false;
    }
    snprintf(buf, cap, "%s has as many notifications as it may hold: its program must take them with "
             "kvcl_notify_recv", kvcl_describe_peer(op->peer, who, sizeof(who)));
    return true;
}

static const kvcl_req_class_t notify_class = {.name = "notification", .stop = stop, .describe = describe,
                                              .explain = explain};

/* The peer has a session. */
static void tell(notifying_t *op)
{
    kvcl_msg_notify_t out    = {.msg = {.type = KVCL_MSG_NOTIFY}, .comm = op->self.id, .source = op->self.rank};
    kvcl_status_t     status = kvcl_req_publish(&op->req);

    kvcl_req_watch(&op->req, op->peer);
    if (status == KVCL_OK) {
        out.msg.op = op->req.id;
        status     = kvcl_peer_post(op->peer, &out.msg, sizeof(out), op->bytes, op->len);
    }
    if (status != KVCL_OK) {
        kvcl_req_complete(&op->req, status);
    }
}

void kvcl_notify_on_notified(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                             const void *data, size_t len)
{
    const kvcl_msg_done_t *in  = (const kvcl_msg_done_t *)msg;
    kvcl_req_t            *req = kvcl_req_find(ctx, msg->op, &notify_class);

    (void)hdr_len;
    (void)data;
    (void)len;
    if (req == NULL) {
        ++ctx->stats.late;
        return;
    }
    if ((of(req)->peer != peer) || (in->status > 0)) {
        kvcl_am_malformed(ctx, peer, "the answer to a notification of another rank");
        return;
    }
    kvcl_req_complete(req, (kvcl_status_t)in->status);
}

/* ---- after a transfer ---- */

static void moved(notifying_t *op, kvcl_status_t status)
{
    kvcl_req_t *transfer = op->moving;

    if (status != KVCL_OK) {
        if (status < 0) {
            kvcl_req_take_why(&op->req, transfer);
        }
        kvcl_req_complete(&op->req, status);
        return;
    }
    op->req.timing.bytes = transfer->timing.bytes;
    op->moving           = NULL;
    tell(op);
}

static void got(kvcl_pull_t *pull, kvcl_status_t status)
{
    moved(pull->arg, status);
}

static void has_put(kvcl_put_t *put, kvcl_status_t status)
{
    moved(put->arg, status);
}

/* No lock. NULL: no memory. */
static notifying_t *make(kvcl_peer_t *peer, kvcl_comm_self_t self, const void *bytes, size_t len)
{
    notifying_t *op = calloc(1, sizeof(*op) + len);

    if (op != NULL) {
        op->peer = peer;
        op->self = self;
        op->len  = len;
        kvcl_list_init(&op->waiter.link);
        if (len > 0) {
            kvcl_copy_bytes(op->bytes, bytes, len);
        }
    }
    return op;
}

/* Lock held. bound: to its communicator; a transfer with imported memory is not. */
static kvcl_status_t begin(kvcl_context_h ctx, notifying_t *op, bool bound, const kvcl_xfer_params_t *p,
                           kvcl_req_h *req_p)
{
    kvcl_status_t status;

    kvcl_assert_locked(ctx);
    status = kvcl_req_post(&op->req, ctx, &notify_class, p, req_p);
    if (status == KVCL_OK) {
        op->req.with = op->peer;
        kvcl_req_bind(&op->req, bound ? op->self.id : 0);
    }
    return status;
}

/* The transfer has no deadline: the request's stops it. */
static kvcl_status_t get(kvcl_context_h ctx, kvcl_pull_t *pull, const kvcl_xfer_params_t *p, kvcl_req_h *req_p)
{
    notifying_t   *op = make(pull->peer, pull->self, p->notify, p->notify_bytes);
    kvcl_status_t status = KVCL_ERR_NO_MEMORY;

    kvcl_lock(ctx);
    if ((op != NULL) && ((status = begin(ctx, op, pull->from == KVCL_FROM_CACHE, p, req_p)) == KVCL_OK)) {
        pull->on_done = got;
        pull->arg     = op;
        op->moving    = &pull->req;
        if (kvcl_pull_start(ctx, pull, UINT64_MAX) != KVCL_OK) {
            op->moving = NULL;
            kvcl_pull_discard(pull);
            kvcl_req_complete(&op->req, KVCL_ERR_NO_MEMORY);
        }
        kvcl_unlock(ctx);
        return KVCL_OK;
    }
    kvcl_unlock(ctx);
    free(op);
    kvcl_pull_discard(pull);
    return kvcl_fail(status, "no memory for a transfer");
}

static kvcl_status_t put(kvcl_context_h ctx, kvcl_put_t *put, const kvcl_xfer_params_t *p, kvcl_req_h *req_p)
{
    const kvcl_xfer_params_t part = {.size = sizeof(part), .timeout_ns = UINT64_MAX};
    notifying_t              *op    = make(put->peer, put->self, p->notify, p->notify_bytes);
    kvcl_status_t            status = KVCL_ERR_NO_MEMORY;

    kvcl_lock(ctx);
    if ((op != NULL) && ((status = begin(ctx, op, put->cache != NULL, p, req_p)) == KVCL_OK)) {
        put->on_done = has_put;
        put->arg     = op;
        op->moving   = &put->req;
        if (kvcl_put_start(ctx, put, &part, NULL) != KVCL_OK) {
            op->moving = NULL;
            kvcl_put_discard(put);
            kvcl_req_complete(&op->req, KVCL_ERR_NO_MEMORY);
        }
        kvcl_unlock(ctx);
        return KVCL_OK;
    }
    kvcl_unlock(ctx);
    free(op);
    kvcl_put_discard(put);
    return kvcl_fail(status, "no memory for a put");
}

const kvcl_xfer_notifier_t kvcl_notifier = {.get = get, .put = put};

/* ---- alone ---- */

static void is_ready(kvcl_peer_waiter_t *waiter, kvcl_status_t status)
{
    notifying_t *op = kvcl_container_of(waiter, notifying_t, waiter);

    if (status == KVCL_OK) {
        tell(op);
    } else {
        kvcl_req_complete(&op->req, status);
    }
}

KVCL_UNGUARDED kvcl_status_t kvcl_notify(kvcl_comm_h comm, int rank, const void *bytes, size_t len,
                                         const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    static const char  call[] = "kvcl_notify";
    kvcl_xfer_params_t p;
    kvcl_peer_t        *peer;
    kvcl_status_t      status = kvcl_xfer_begin(comm, rank, KVCL_CALL_NOTIFY, params, &p, &peer);
    notifying_t        *op;

    if (status != KVCL_OK) {
        return status;
    }
    if (((bytes == NULL) && (len != 0)) || (len > KVCL_NOTIFY_MAX)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %zu bytes %s", call, len,
                         (bytes == NULL) ? "at NULL" : "are more than KVCL_NOTIFY_MAX");
    }
    op = make(peer, kvcl_comm_self(comm, rank), bytes, len);
    if (op == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory", call);
    }
    op->waiter.fn = is_ready;
    kvcl_lock(comm->ctx);
    status = begin(comm->ctx, op, true, &p, req_p);
    if (status == KVCL_OK) {
        kvcl_status_t ready = kvcl_peer_ready(peer, &op->waiter);
        if (ready != KVCL_INPROGRESS) {
            is_ready(&op->waiter, ready);
        }
    }
    kvcl_unlock(comm->ctx);
    if (status != KVCL_OK) {
        free(op);
        return kvcl_fail(status, "%s: no memory", call);
    }
    return KVCL_OK;
}
