/*
 * The vtables of ucx and rdma, their open and close, and their progress. glue.h describes the sides and their files.
 *
 * Order in progress: completions kept from outside, both workers (UCX's callbacks), failures, closes. Only progress
 * calls back into the core. UCX notices the end of a process by one transport, while the last messages of the process
 * may lie in the queue of another one: a failure waits for a pass without events, but not for ever. The end of a
 * process that is reached by shared memory is the kernel's word (life/ends.h): UCX takes one that was killed for living
 * until its parent has waited for it. An instance is named by its first address; who reaches a later one (glue_renew.c)
 * does not see its end.
 */
#include "config.h"
#include "ucx_glue/glue.h"
#include "ucx_glue/glue_renew.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define FLUSH_NS (200 * KVCL_NS_PER_MS)

enum { UNREAD_MAX = 64 }; /* passes that a failure waits for what was sent before */

static kvcl_status_t open_epoll(glue_t *g)
{
    struct epoll_event event = {.events = EPOLLIN};

    g->epfd = epoll_create1(EPOLL_CLOEXEC);
    if ((g->epfd < 0) || (epoll_ctl(g->epfd, EPOLL_CTL_ADD, g->am.efd, &event) != 0) ||
        ((g->data.ctx != NULL) && (epoll_ctl(g->epfd, EPOLL_CTL_ADD, g->data.efd, &event) != 0))) {
        return kvcl_fail_errno(KVCL_ERR_IO, errno, "ucx: epoll");
    }
    return KVCL_OK;
}

/* The instance can do without. */
static void open_ends(glue_t *g)
{
    struct epoll_event event = {.events = EPOLLIN};

    g->ends = kvcl_glue_am_uses(&g->plan, "posix") ? kvcl_ends_open(g->am.addr, g->am.addr_len) : NULL;
    if ((g->ends != NULL) && (epoll_ctl(g->epfd, EPOLL_CTL_ADD, kvcl_ends_fd(g->ends), &event) != 0)) {
        kvcl_ends_close(g->ends);
        g->ends = NULL;
    }
}

/* Accepts a half-built object. */
static void destroy(glue_t *g)
{
    kvcl_ends_close(g->ends);
    if (g->epfd >= 0) {
        close(g->epfd);
    }
    kvcl_glue_timer_close(&g->probe_timer);
    kvcl_glue_wait_close(g);
    kvcl_glue_keys_close(g);
    kvcl_glue_side_close(&g->data);
    kvcl_glue_renew_fini(g);
    kvcl_glue_side_close(&g->am);
    if (g->counted) {
        kvcl_glue_unlock_port();
    }
    kvcl_glue_am_fini(g);
    (void)kvcl_mpool_fini(&g->reads);
    free(g->addr);
    free(g);
}

static kvcl_status_t open_all(glue_t *g, const kvcl_xport_params_t *params, bool rdma)
{
    kvcl_status_t status = rdma ? kvcl_glue_plan_rdma(params, &g->plan) : kvcl_glue_plan(params, &g->plan);

    if ((status == KVCL_OK) && rdma) {
        status     = kvcl_glue_lock_port();
        g->counted = (status == KVCL_OK);
    }
    if (status == KVCL_OK) {
        status = kvcl_glue_side_open(&g->am, UCP_FEATURE_AM, g->plan.am_tls, &g->plan);
    }
    if ((status == KVCL_OK) && (g->plan.data_tls[0] != '\0')) {
        status = kvcl_glue_side_open(&g->data, UCP_FEATURE_RMA, g->plan.data_tls, &g->plan);
    }
    if (status == KVCL_OK) {
        status = kvcl_glue_am_init(g);
    }
    if (status == KVCL_OK) {
        status = open_epoll(g);
    }
    if ((status == KVCL_OK) && (g->data.ctx != NULL)) {
        status = kvcl_glue_timer_open(g, &g->wait_timer);
    }
    if ((status == KVCL_OK) && rdma) {
        status = kvcl_glue_probe_open(g);
    }
    if ((status == KVCL_OK) && rdma) {
        status = kvcl_glue_keys_open(g);
    }
    if (status == KVCL_OK) {
        open_ends(g);
        status = kvcl_glue_make_address(g);
    }
    return status;
}

static kvcl_status_t open_instance(const kvcl_xport_ops_t *ops, const kvcl_xport_params_t *params,
                                   kvcl_xport_t **xport_p)
{
    glue_t        *g = calloc(1, sizeof(*g));
    kvcl_status_t status;

    if (g == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ucx: no memory for a context");
    }
    g->super.ops      = ops;
    g->cbs            = params->cbs;
    g->epfd           = -1;
    g->probe_timer.fd = -1;
    g->done_tail      = &g->done_head;
    g->read_tail      = &g->read_head;
    kvcl_mpool_init(&g->reads, "reads of other processes", sizeof(glue_read_t), 64, 0);
    kvcl_glue_wait_init(g);
    kvcl_list_init(&g->eps);
    kvcl_list_init(&g->failed);
    kvcl_list_init(&g->closing);
    kvcl_list_init(&g->ending);
    kvcl_list_init(&g->aside);
    kvcl_glue_log_opening();
    status = open_all(g, params, ops == &kvcl_xport_rdma);
    kvcl_glue_log_opened();
    if (status != KVCL_OK) {
        destroy(g);
        kvcl_glue_log_closed();
        return status;
    }
    *xport_p = &g->super;
    return KVCL_OK;
}

static kvcl_status_t ucx_init(const kvcl_xport_params_t *params, kvcl_xport_t **xport_p)
{
    return open_instance(&kvcl_xport_ucx, params, xport_p);
}

static kvcl_status_t rdma_init(const kvcl_xport_params_t *params, kvcl_xport_t **xport_p)
{
    return open_instance(&kvcl_xport_rdma, params, xport_p);
}

/* @return whether a process has ended: its endpoint's failure is reported by one of the next passes. */
static bool look_for_ends(glue_t *g, unsigned weight)
{
    glue_ep_t *ep = kvcl_ends_take(g->ends, weight);

    if (ep != NULL) {
        kvcl_log_debug("ucx: a process of this host has ended");
        ep->end = 0;
        glue_break_ep(ep);
    }
    return ep != NULL;
}

static unsigned glue_progress(kvcl_xport_t *xport)
{
    glue_t   *g     = glue_of(xport);
    bool     broken = !kvcl_list_is_empty(&g->failed);
    unsigned n = 0, events;

    g->direct = true;
    if (g->done_head != NULL) {
        n += kvcl_glue_am_progress(g);
    }
    events = ucp_worker_progress(g->am.worker);
    if (g->data.worker != NULL) {
        events += ucp_worker_progress(g->data.worker);
    }
    g->unread = (broken && (events != 0)) ? g->unread + 1 : 0;
    n        += events;
    if (g->n_deaf != 0) {
        n += kvcl_glue_renew_progress(g);
    }
    if (g->read_head != NULL) {
        n += kvcl_glue_cma_progress(g);
    }
    g->direct = false;
    if (g->probe_timer.due_ns != 0) {
        kvcl_glue_probe(g);
    }
    (void)look_for_ends(g, 1);
    return n + kvcl_glue_ep_progress(g, broken && ((events == 0) || (g->unread > UNREAD_MAX)));
}

/*
 * Flush UCX's replies to peers' wireup requests, which it sends over internal endpoints. Destroying a worker while such
 * a reply waits for its connection aborts the process (1.13 asserts in ucp_request_send_state_ff).
 * @return whether all replies were sent.
 */
static bool flush_answers(glue_t *g)
{
    ucp_request_param_t param    = {.op_attr_mask = 0};
    uint64_t            deadline = kvcl_deadline_after(FLUSH_NS);
    void                *request;
    bool                done;

    if (!kvcl_glue_list_has(g->plan.am_tls, "tcp") && !g->plan.rdma) { /* shared memory has no connection */
        return true;
    }
    request = ucp_worker_flush_nbx(g->am.worker, &param);
    if (!UCS_PTR_IS_PTR(request)) {
        return true;
    }
    while ((ucp_request_check_status(request) == UCS_INPROGRESS) && !kvcl_deadline_passed(deadline)) {
        (void)glue_progress(&g->super);
    }
    done = (ucp_request_check_status(request) != UCS_INPROGRESS);
    ucp_request_free(request);
    return done;
}

/* A reply to a slow or stopped peer is not sent yet: the worker stays, unused, until the process ends. */
static void keep(glue_t *g)
{
    static _Atomic(glue_t *) first; /* reachable for leak checkers; never freed */

    kvcl_log_debug("ucx: a peer does not read a wireup reply; the worker is kept");
    kvcl_ends_close(g->ends);
    close(g->epfd);
    kvcl_glue_timer_close(&g->probe_timer);
    kvcl_glue_wait_close(g);
    kvcl_glue_keys_close(g);
    kvcl_glue_side_close(&g->data);
    g->kept = atomic_exchange(&first, g);
}

static void glue_fini(kvcl_xport_t *xport)
{
    glue_t   *g       = glue_of(xport);
    uint64_t deadline = kvcl_deadline_after(KVCL_NS_PER_SEC);
    bool     answered;

    g->leaving = true; /* no peer needs this side's endpoints any more */
    kvcl_list_splice_tail(&g->closing, &g->aside);
    while (((g->done_head != NULL) || (g->linger > 0) || !kvcl_list_is_empty(&g->closing)) &&
           !kvcl_deadline_passed(deadline)) {
        (void)glue_progress(xport);
    }
    answered = flush_answers(g);
    if (!kvcl_list_is_empty(&g->eps)) {
        kvcl_log_warn("ucx: a context is closed with endpoints still open");
    }
    if (g->refused > 0) {
        kvcl_log_warn("ucx: %llu malformed messages were refused", (unsigned long long)g->refused);
    }
    if (answered) {
        destroy(g);
    } else {
        keep(g);
    }
    kvcl_glue_log_closed();
}

static void glue_query(kvcl_xport_t *xport, kvcl_xport_attr_t *attr)
{
    attr->name         = xport->ops->name;
    attr->frame_bytes  = GLUE_FRAME_MAX;
    attr->inline_bytes = GLUE_INLINE_BYTES;
    attr->max_hdr      = GLUE_MAX_HDR;
}

static void glue_address(kvcl_xport_t *xport, const void **buf_p, size_t *len_p)
{
    *buf_p = glue_of(xport)->addr;
    *len_p = glue_of(xport)->addr_len;
}

static int glue_event_fd(kvcl_xport_t *xport)
{
    return glue_of(xport)->epfd;
}

static kvcl_status_t glue_arm(kvcl_xport_t *xport)
{
    glue_t       *g = glue_of(xport);
    ucs_status_t ucs;

    if ((g->done_head != NULL) || (g->read_head != NULL) || (g->linger > 0) || !kvcl_list_is_empty(&g->failed) ||
        !kvcl_list_is_empty(&g->ending) || look_for_ends(g, KVCL_ENDS_SLEEP)) {
        return KVCL_ERR_BUSY;
    }
    ucs = ucp_worker_arm(g->am.worker);
    if ((ucs == UCS_OK) && (g->data.worker != NULL)) {
        ucs = ucp_worker_arm(g->data.worker);
    }
    return kvcl_glue_status(ucs);
}

static bool glue_outstanding(kvcl_xport_t *xport)
{
    glue_t *g = glue_of(xport);

    return (g->inflight != 0) || (g->done_head != NULL);
}

static bool glue_closing(kvcl_xport_t *xport)
{
    return !kvcl_list_is_empty(&glue_of(xport)->closing);
}

static const kvcl_near_ops_t near_ops = {
    .self = kvcl_glue_near_self, .reaches = kvcl_glue_near_reaches, .get = kvcl_glue_near_get,
    .stop = kvcl_glue_near_stop};

/* What both transports have. */
#define GLUE_OPS                                                              \
    .fini                = glue_fini,                                         \
    .query               = glue_query,                                        \
    .address             = glue_address,                                      \
    .ep_create           = kvcl_glue_ep_create,                               \
    .ep_close            = kvcl_glue_ep_close,                                \
    .ep_describe         = kvcl_glue_ep_describe,                             \
    .am_send             = kvcl_glue_am_send,                                 \
    .reply               = kvcl_glue_reply,                                   \
    .mem_register        = kvcl_glue_mem_register,                            \
    .mem_register_device = kvcl_glue_mem_register_device,                     \
    .mem_free            = kvcl_glue_mem_free,                                \
    .mem_fence           = kvcl_glue_mem_fence,                               \
    .mem_pack            = kvcl_glue_mem_pack,                                \
    .rmem_open           = kvcl_glue_rmem_open,                               \
    .rmem_close          = kvcl_glue_rmem_close,                              \
    .get                 = kvcl_glue_get,                                     \
    .put                 = kvcl_glue_put,                                     \
    .flush               = kvcl_glue_flush,                                   \
    .rma_end             = kvcl_glue_data_end,                                \
    .outstanding         = glue_outstanding,                                  \
    .progress            = glue_progress,                                     \
    .event_fd            = glue_event_fd,                                     \
    .arm                 = glue_arm,                                          \
    .closing             = glue_closing

const kvcl_xport_ops_t kvcl_xport_ucx = {
    .size = sizeof(kvcl_xport_ops_t),
    .name = "ucx",
    .near = &near_ops,
    .init = ucx_init,
    .is_deaf = kvcl_glue_is_deaf,
    .renew = kvcl_glue_renew,
    GLUE_OPS
};

const kvcl_xport_ops_t kvcl_xport_rdma = {
    .size  = sizeof(kvcl_xport_ops_t),
    .name  = "rdma",
    .links = true,
    .init  = rdma_init,
    GLUE_OPS
};
