/*
 * Probes of rdma's idle endpoints: an empty message to each, every KVCL_KEEPALIVE. The NIC of a live host acknowledges
 * it, whether or not the process runs; that of a dead process or host does not, and UCX then reports the failure of the
 * endpoint. UCX's own keepalive cannot be used (glue_plan.c).
 *
 * Owns: a timer that wakes a sleeping owner of the context. Invariants: the timer runs only while there are endpoints;
 * an endpoint has at most one probe that UCX has not sent. Locks: the engine lock.
 */
#include "config.h"
#include "ucx_glue/glue.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

kvcl_status_t kvcl_glue_probe_open(glue_t *g)
{
    struct epoll_event event = {.events = EPOLLIN};

    if (g->plan.keepalive_ns == 0) {
        return KVCL_OK;
    }
    g->probe_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if ((g->probe_fd < 0) || (epoll_ctl(g->epfd, EPOLL_CTL_ADD, g->probe_fd, &event) != 0)) {
        return kvcl_fail_errno(KVCL_ERR_IO, errno, "rdma: no timer");
    }
    return KVCL_OK;
}

void kvcl_glue_probe_close(glue_t *g)
{
    if (g->probe_fd >= 0) {
        close(g->probe_fd);
        g->probe_fd = -1;
    }
}

/* The timer fires after the probe is due, so that the thread it wakes finds it due. 0: stop. */
static void set_timer(glue_t *g, uint64_t ns)
{
    uint64_t          after = (ns == 0) ? 0 : ns + KVCL_NS_PER_MS;
    struct itimerspec at    = {.it_value = {.tv_sec  = (time_t)(after / KVCL_NS_PER_SEC),
                                            .tv_nsec = (long)(after % KVCL_NS_PER_SEC)}};

    g->probe_ns = (ns == 0) ? 0 : kvcl_now_ns() + ns;
    (void)timerfd_settime(g->probe_fd, 0, &at, NULL); /* also makes it unreadable */
}

void kvcl_glue_probe_begin(glue_t *g)
{
    if ((g->probe_fd >= 0) && (g->probe_ns == 0)) {
        set_timer(g, g->plan.keepalive_ns);
    }
}

/* user_data outlives the request: an endpoint is not freed while it has operations in flight. */
static void on_sent(void *request, ucs_status_t status, void *user_data)
{
    glue_ep_t *ep = user_data;

    (void)status; /* UCX reports a failure to the endpoint's handler */
    ucp_request_free(request);
    ep->probing = false;
    --ep->inflight;
}

static void probe(glue_ep_t *ep)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .flags        = UCP_AM_SEND_FLAG_EAGER,
        .cb           = {.send = on_sent},
        .user_data    = ep,
    };

    if (UCS_PTR_IS_PTR(ucp_am_send_nbx(ep->am, GLUE_PROBE_ID, NULL, 0, NULL, 0, &param))) {
        ep->probing = true;
        ++ep->inflight;
    }
}

void kvcl_glue_probe(glue_t *g)
{
    glue_ep_t *ep;

    if (kvcl_now_ns() < g->probe_ns) {
        return;
    }
    kvcl_list_foreach(ep, &g->eps, glue_ep_t, link) {
        if (!ep->closed && !ep->broken && !ep->probing) {
            probe(ep);
        }
    }
    set_timer(g, kvcl_list_is_empty(&g->eps) ? 0 : g->plan.keepalive_ns);
}
