/*
 * Messages: each is an eager UCP active message of one id; the receiver gets header and payload in one piece.
 *
 * Eager, because a rendezvous message would let an unauthenticated peer make this rank fetch memory, and needs more
 * round trips; a rendezvous message that arrives is refused and counted. A send without a completion object is copied
 * into a pooled buffer first, since UCX may have to queue it; the buffer returns to the pool when UCX has sent it. UCX
 * queues without a bound, so the memory of the copies is bounded here (GLUE_COPIES_MAX, GLUE_REPLIES_MAX): the endpoint
 * of a peer that does not read fails, as over tcp, and a reply to a stranger that does not read is dropped.
 * Completions are reported from progress only: those that UCX makes elsewhere (a forced close) wait in glue.done_head.
 */
#include "config.h"
#include "ucx_glue/glue.h"
#include "ucx_glue/glue_renew.h"

#include "base/error.h"
#include "base/log.h"
#include "weave/pieces.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((sizeof(kvcl_iov_t) == sizeof(ucp_dt_iov_t)) &&
                       (offsetof(kvcl_iov_t, len) == offsetof(ucp_dt_iov_t, length)),
               "an iov is UCX's iov");

/* A copied message; lives in the small or the large pool. */
typedef struct glue_copy {
    glue_t       *g;
    glue_ep_t    *ep;    /* NULL: a reply */
    ucp_ep_h     ucp_ep;
    kvcl_mpool_t *pool;
    char         bytes[] __attribute__((aligned(8))); /* header, padded to 8, then payload */
} glue_copy_t;

/* The pieces of a gathering send; UCX reads them until the send is done. */
typedef struct glue_gather {
    kvcl_xport_send_t *send;
    ucp_dt_iov_t      *iov; /* fixed, or malloc'ed when there are more */
    ucp_dt_iov_t      fixed[GLUE_IOV_MAX];
} glue_gather_t;

typedef struct glue_reply {
    kvcl_xport_reply_t super;
    ucp_ep_h           ucp_ep; /* NULL: the message was sent without KVCL_XPORT_REPLY */
} glue_reply_t;

static ucs_status_t on_message(void *arg, const void *hdr, size_t hdr_len, void *data, size_t len,
                               const ucp_am_recv_param_t *param)
{
    glue_t       *g    = arg;
    glue_reply_t reply = {.super = {&g->super}};
    uint64_t     aligned[GLUE_MAX_HDR / sizeof(uint64_t)];

    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) || (hdr_len > sizeof(aligned))) {
        ++g->refused;
        return (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) ? UCS_ERR_REJECTED : UCS_OK;
    }
    if (((uintptr_t)hdr & 7) != 0) {
        kvcl_copy_bytes(aligned, hdr, hdr_len);
        hdr = aligned;
    }
    if (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) {
        reply.ucp_ep = param->reply_ep;
    }
    g->cbs.recv(g->cbs.arg, hdr, hdr_len, data, len, &reply.super);
    return UCS_OK;
}

/* A probe is dropped: the sender's NIC already knows that it has arrived. */
static ucs_status_t on_probe(void *arg, const void *hdr, size_t hdr_len, void *data, size_t len,
                             const ucp_am_recv_param_t *param)
{
    glue_t *g = arg;

    (void)hdr;
    (void)data;
    g->refused += (hdr_len > 0) || (len > 0);
    return (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) ? UCS_ERR_REJECTED : UCS_OK;
}

kvcl_status_t kvcl_glue_am_handle(glue_t *g)
{
    ucp_am_handler_param_t param = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id    = GLUE_AM_ID,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb    = on_message,
        .arg   = g,
    };

    if (ucp_worker_set_am_recv_handler(g->am.worker, &param) != UCS_OK) {
        return kvcl_fail(KVCL_ERR_INTERNAL, "ucx: no handler of messages");
    }
    param.id = GLUE_PROBE_ID;
    param.cb = on_probe;
    return kvcl_glue_status(ucp_worker_set_am_recv_handler(g->am.worker, &param));
}

kvcl_status_t kvcl_glue_am_init(glue_t *g)
{
    kvcl_mpool_init(&g->small, "ucx small sends", sizeof(glue_copy_t) + GLUE_SMALL_BYTES, 64, 0);
    kvcl_mpool_init(&g->large, "ucx sends", sizeof(glue_copy_t) + GLUE_MAX_HDR + GLUE_INLINE_BYTES, 64, 16);
    kvcl_mpool_init(&g->gather, "ucx gathering sends", sizeof(glue_gather_t), 64, 0);
    kvcl_map_init(&g->replies);
    return kvcl_glue_am_handle(g);
}

void kvcl_glue_am_fini(glue_t *g)
{
    (void)kvcl_mpool_fini(&g->small);
    (void)kvcl_mpool_fini(&g->large);
    (void)kvcl_mpool_fini(&g->gather);
    kvcl_map_fini(&g->replies);
}

void kvcl_glue_complete_later(glue_t *g, kvcl_xport_send_t *send, kvcl_status_t status)
{
    send->status  = status;
    send->next    = NULL;
    *g->done_tail = send;
    g->done_tail  = &send->next;
}

/* Notify the caller now if called inside progress, else at the next progress. */
void kvcl_glue_complete(glue_t *g, kvcl_xport_send_t *send, kvcl_status_t status)
{
    if (g->direct) {
        send->done(send, status);
        return;
    }
    kvcl_glue_complete_later(g, send, status);
}

unsigned kvcl_glue_am_progress(glue_t *g)
{
    kvcl_xport_send_t *send = g->done_head;
    kvcl_xport_send_t *next;
    unsigned          n;

    g->done_head = NULL;
    g->done_tail = &g->done_head;
    for (n = 0; send != NULL; ++n, send = next) {
        next = send->next;
        send->done(send, send->status);
    }
    return n;
}

void kvcl_glue_send_done(void *request, ucs_status_t status, void *user_data)
{
    kvcl_xport_send_t *send = user_data;
    glue_ep_t         *ep   = send->priv;

    ucp_request_free(request);
    glue_end_op(ep);
    kvcl_glue_complete(glue_of(ep->super.xport), send, kvcl_glue_status(status));
}

static void gather_done(void *request, ucs_status_t status, void *user_data)
{
    glue_gather_t     *gather = user_data;
    kvcl_xport_send_t *send   = gather->send;
    glue_ep_t         *ep     = send->priv;

    if (gather->iov != gather->fixed) {
        free(gather->iov);
    }
    kvcl_mpool_put(&glue_of(ep->super.xport)->gather, gather);
    kvcl_glue_send_done(request, status, send);
}

/* The memory of the replies that UCX holds for a sender. */
static size_t replied(const glue_t *g, ucp_ep_h ucp_ep)
{
    return (size_t)(uintptr_t)kvcl_map_get(&g->replies, (uintptr_t)ucp_ep);
}

/* May a message of this size wait for its receiver? If not, an endpoint fails: nobody would notice a lost message. */
static kvcl_status_t check_room(glue_t *g, glue_ep_t *ep, ucp_ep_h ucp_ep, size_t bytes)
{
    size_t held = (ep != NULL) ? ep->copied : replied(g, ucp_ep);

    if (bytes + held <= ((ep != NULL) ? (size_t)GLUE_COPIES_MAX : (size_t)GLUE_REPLIES_MAX)) {
        return (ep != NULL) ? KVCL_OK : kvcl_map_reserve(&g->replies, kvcl_map_count(&g->replies) + 1);
    }
    if (ep != NULL) {
        glue_break_ep(ep);
    }
    return kvcl_fail(KVCL_ERR_RANK_FAILED, "%s: it does not read: %zu bytes wait for the peer", g->super.ops->name,
                     held);
}

/* UCX holds the copy: check_room() has made room for it. */
static void hold(const glue_copy_t *copy)
{
    size_t held = replied(copy->g, copy->ucp_ep) + copy->pool->size;

    if (copy->ep != NULL) {
        glue_begin_op(copy->ep);
        copy->ep->copied += copy->pool->size;
    } else if (kvcl_map_put(&copy->g->replies, (uintptr_t)copy->ucp_ep, (void *)(uintptr_t)held) != KVCL_OK) {
        kvcl_log_debug("ucx: a reply is not counted");
    }
}

static void release(const glue_copy_t *copy)
{
    size_t held = replied(copy->g, copy->ucp_ep);

    if (copy->ep != NULL) {
        glue_end_op(copy->ep);
        copy->ep->copied -= copy->pool->size;
    } else if (held > copy->pool->size) { /* makes no new element: cannot fail */
        (void)!kvcl_map_put(&copy->g->replies, (uintptr_t)copy->ucp_ep, (void *)(uintptr_t)(held - copy->pool->size));
    } else {
        (void)kvcl_map_del(&copy->g->replies, (uintptr_t)copy->ucp_ep);
    }
}

static void copy_done(void *request, ucs_status_t status, void *user_data)
{
    glue_copy_t *copy = user_data;

    (void)status;
    if (request != NULL) {
        ucp_request_free(request);
    }
    release(copy);
    kvcl_mpool_put(copy->pool, copy);
}

kvcl_status_t kvcl_glue_posted(glue_ep_t *ep, ucs_status_ptr_t ptr, const char *what)
{
    if (ptr == NULL) {
        return KVCL_OK;
    }
    if (UCS_PTR_IS_ERR(ptr)) {
        return kvcl_fail(kvcl_glue_status(UCS_PTR_STATUS(ptr)), "ucx: %s: %s", what,
                         ucs_status_string(UCS_PTR_STATUS(ptr)));
    }
    glue_begin_op(ep);
    return KVCL_INPROGRESS;
}

static size_t iov_len(const kvcl_iov_t *iov, size_t n_iov)
{
    size_t len = 0;
    size_t i;

    for (i = 0; i < n_iov; ++i) {
        len += iov[i].len;
    }
    return len;
}

static ucp_request_param_t am_param(unsigned flags, ucp_send_nbx_callback_t done, void *user_data)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .flags        = UCP_AM_SEND_FLAG_EAGER | ((flags & KVCL_XPORT_REPLY) ? UCP_AM_SEND_FLAG_REPLY : 0),
        .cb           = {.send = done},
        .user_data    = user_data,
    };

    return param;
}

/* ep is NULL for a reply: it has no endpoint that could fail. */
static kvcl_status_t send_copy(glue_t *g, glue_ep_t *ep, ucp_ep_h ucp_ep, const void *hdr, size_t hdr_len,
                               const kvcl_iov_t *iov, size_t n_iov, unsigned flags)
{
    size_t              room = (hdr_len + 7) & ~(size_t)7;
    size_t              len  = iov_len(iov, n_iov);
    kvcl_mpool_t        *pool = (room + len <= GLUE_SMALL_BYTES) ? &g->small : &g->large;
    glue_copy_t         *copy;
    ucp_request_param_t param;
    ucs_status_ptr_t    ptr;
    char                *at;
    kvcl_status_t       status;
    size_t              i;

    if (len > GLUE_INLINE_BYTES) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "ucx: a copying send of %zu bytes, at most %d", len,
                         GLUE_INLINE_BYTES);
    }
    status = check_room(g, ep, ucp_ep, pool->size);
    if (status != KVCL_OK) {
        return status;
    }
    copy = kvcl_mpool_get(pool);
    if (copy == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ucx: no memory for a message");
    }
    *copy = (glue_copy_t){.g = g, .ep = ep, .ucp_ep = ucp_ep, .pool = pool};
    kvcl_copy_bytes(copy->bytes, hdr, hdr_len);
    for (i = 0, at = copy->bytes + room; i < n_iov; at += iov[i].len, ++i) {
        kvcl_copy_bytes(at, iov[i].buf, iov[i].len);
    }
    param = am_param(flags, copy_done, copy);
    ptr   = ucp_am_send_nbx(ucp_ep, GLUE_AM_ID, copy->bytes, hdr_len, copy->bytes + room, len, &param);
    if (UCS_PTR_IS_PTR(ptr)) {
        hold(copy);
        return KVCL_OK;
    }
    kvcl_mpool_put(pool, copy);
    return (ptr == NULL) ? KVCL_OK :
                           kvcl_fail(kvcl_glue_status(UCS_PTR_STATUS(ptr)), "ucx: send: %s",
                                     ucs_status_string(UCS_PTR_STATUS(ptr)));
}

static kvcl_status_t send_gather(glue_ep_t *ep, const void *hdr, size_t hdr_len, const kvcl_iov_t *iov, size_t n_iov,
                                 unsigned flags, kvcl_xport_send_t *send)
{
    glue_t              *g      = glue_of(ep->super.xport);
    glue_gather_t       *gather = kvcl_mpool_get(&g->gather);
    ucp_request_param_t param;
    kvcl_status_t       status;

    if (gather == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ucx: no memory for a message");
    }
    gather->send = send;
    gather->iov  = (n_iov <= GLUE_IOV_MAX) ? gather->fixed : malloc(n_iov * sizeof(*gather->iov));
    if (gather->iov == NULL) {
        kvcl_mpool_put(&g->gather, gather);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ucx: no memory for a message of %zu pieces", n_iov);
    }
    memcpy(gather->iov, iov, n_iov * sizeof(*iov));
    param = am_param(flags, gather_done, gather);
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype      = ucp_dt_make_iov();
    status = kvcl_glue_posted(
            ep, ucp_am_send_nbx(ep->am, GLUE_AM_ID, hdr, hdr_len, gather->iov, n_iov, &param), "send");
    if (status != KVCL_INPROGRESS) {
        if (gather->iov != gather->fixed) {
            free(gather->iov);
        }
        kvcl_mpool_put(&g->gather, gather);
    }
    return status;
}

kvcl_status_t kvcl_glue_am_send(kvcl_xport_ep_t *super, const void *hdr, size_t hdr_len, const kvcl_iov_t *iov,
                                size_t n_iov, unsigned flags, kvcl_xport_send_t *send)
{
    glue_ep_t           *ep = kvcl_container_of(super, glue_ep_t, super);
    ucp_request_param_t param;

    if (ep->broken || ep->closed) {
        return kvcl_fail(KVCL_ERR_RANK_FAILED, "ucx: the endpoint failed or is closed");
    }
    if (hdr_len > GLUE_MAX_HDR) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "ucx: a header of %zu bytes, at most %d", hdr_len, GLUE_MAX_HDR);
    }
    if (send == NULL) {
        return send_copy(glue_of(super->xport), ep, ep->am, hdr, hdr_len, iov, n_iov, flags);
    }
    send->priv = ep;
    if (n_iov > 1) {
        return send_gather(ep, hdr, hdr_len, iov, n_iov, flags, send);
    }
    param = am_param(flags, kvcl_glue_send_done, send);
    return kvcl_glue_posted(ep,
                            ucp_am_send_nbx(ep->am, GLUE_AM_ID, hdr, hdr_len, (n_iov > 0) ? iov->buf : NULL,
                                            (n_iov > 0) ? iov->len : 0, &param),
                            "send");
}

kvcl_status_t kvcl_glue_reply(kvcl_xport_reply_t *opaque, const void *hdr, size_t hdr_len)
{
    glue_reply_t *reply = kvcl_container_of(opaque, glue_reply_t, super);

    if (reply->ucp_ep == NULL) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "ucx: the message was sent without a reply path");
    }
    if (hdr_len > GLUE_MAX_HDR) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "ucx: a header of %zu bytes, at most %d", hdr_len, GLUE_MAX_HDR);
    }
    return send_copy(kvcl_container_of(opaque->xport, glue_t, super), NULL, reply->ucp_ep, hdr, hdr_len, NULL, 0, 0);
}
