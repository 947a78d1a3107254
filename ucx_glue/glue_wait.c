/*
 * Gets, puts and flushes that wait until their endpoint for data is connected (glue_data.c). UCX has not seen them: one
 * that is ended moves no byte, and the endpoint need not be closed for it. They wait at most WAIT_NS from the opening,
 * so that a peer that answers late, or never, is served by messages instead.
 *
 * Owns: the lists of what waits, and a timer that wakes a sleeping owner of the context at the end of that time.
 * Invariants: an endpoint is in glue.waiting while its list is not empty; what waits is counted in flight; it is posted
 * in the order of the calls; it completes from progress only. Locks: the engine lock.
 */
#include "config.h"
#include "ucx_glue/glue.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define WAIT_NS (1 * KVCL_NS_PER_SEC)

typedef struct glue_wait {
    kvcl_list_t link; /* in glue_data.waiting */
    glue_op_t   op;
} glue_wait_t;

void kvcl_glue_wait_init(glue_t *g)
{
    g->wait_fd = -1;
    kvcl_list_init(&g->waiting);
    kvcl_mpool_init(&g->waits, "operations that wait", sizeof(glue_wait_t), 64, 0);
}

kvcl_status_t kvcl_glue_wait_open(glue_t *g)
{
    struct epoll_event event = {.events = EPOLLIN};

    g->wait_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if ((g->wait_fd < 0) || (epoll_ctl(g->epfd, EPOLL_CTL_ADD, g->wait_fd, &event) != 0)) {
        return kvcl_fail_errno(KVCL_ERR_IO, errno, "ucx: no timer");
    }
    return KVCL_OK;
}

void kvcl_glue_wait_close(glue_t *g)
{
    if (g->wait_fd >= 0) {
        close(g->wait_fd);
        g->wait_fd = -1;
    }
    (void)kvcl_mpool_fini(&g->waits);
}

/* It fires after that time, so that the thread it wakes finds it passed. 0: stop. */
static void set_timer(glue_t *g, uint64_t at_ns)
{
    uint64_t          now   = kvcl_now_ns();
    uint64_t          after = (at_ns == 0) ? 0 : (at_ns > now) ? at_ns - now + KVCL_NS_PER_MS : KVCL_NS_PER_MS;
    struct itimerspec at    = {.it_value = {.tv_sec  = (time_t)(after / KVCL_NS_PER_SEC),
                                            .tv_nsec = (long)(after % KVCL_NS_PER_SEC)}};

    g->wait_ns = at_ns;
    if (g->wait_fd >= 0) {
        (void)timerfd_settime(g->wait_fd, 0, &at, NULL); /* also makes it unreadable */
    }
}

void kvcl_glue_wait_begin(glue_ep_t *ep)
{
    ep->data.wait_ns = kvcl_deadline_after(WAIT_NS);
}

kvcl_status_t kvcl_glue_wait(glue_ep_t *ep, const glue_op_t *op)
{
    glue_t      *g = glue_of(ep->super.xport);
    glue_wait_t *wait;

    if (kvcl_deadline_passed(ep->data.wait_ns)) {
        return kvcl_fail(KVCL_ERR_UNREACHABLE, "ucx: the connection for data is not made yet");
    }
    wait = kvcl_mpool_get(&g->waits);
    if (wait == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ucx: no memory for an operation that waits");
    }
    wait->op = *op;
    if (kvcl_list_is_empty(&ep->data.waiting)) {
        kvcl_list_add_tail(&g->waiting, &ep->data.wait_link);
    }
    kvcl_list_add_tail(&ep->data.waiting, &wait->link);
    ++ep->inflight;
    ++g->inflight;
    if ((g->wait_ns == 0) || (ep->data.wait_ns < g->wait_ns)) {
        set_timer(g, ep->data.wait_ns);
    }
    return KVCL_INPROGRESS;
}

/* It waits no longer. */
static void take(glue_ep_t *ep, glue_wait_t *wait, glue_op_t *op)
{
    glue_t *g = glue_of(ep->super.xport);

    *op = wait->op;
    kvcl_list_del(&wait->link);
    kvcl_mpool_put(&g->waits, wait);
    --ep->inflight;
    --g->inflight;
}

void kvcl_glue_wait_end(glue_ep_t *ep, const kvcl_xport_rmem_t *rmem, kvcl_status_t status)
{
    glue_wait_t *wait, *next;
    glue_op_t   op;

    kvcl_list_foreach_safe (wait, next, &ep->data.waiting, glue_wait_t, link) {
        if ((rmem == NULL) || (wait->op.rmem == rmem)) {
            take(ep, wait, &op);
            kvcl_glue_complete_later(glue_of(ep->super.xport), op.send, status);
        }
    }
    if (kvcl_list_is_empty(&ep->data.waiting)) {
        kvcl_list_del(&ep->data.wait_link);
    }
}

/* The endpoint is connected. If it is closed meanwhile and opened again, the rest waits again. */
static void start(glue_ep_t *ep)
{
    glue_t        *g = glue_of(ep->super.xport);
    kvcl_list_t   ready;
    kvcl_status_t status;
    glue_op_t     op;

    kvcl_list_init(&ready);
    kvcl_list_splice_tail(&ready, &ep->data.waiting);
    kvcl_list_del(&ep->data.wait_link);
    while (!kvcl_list_is_empty(&ready)) {
        take(ep, kvcl_list_head(&ready, glue_wait_t, link), &op);
        status = kvcl_glue_rma(&op);
        if (status != KVCL_INPROGRESS) {
            kvcl_glue_complete_later(g, op.send, status);
        }
    }
}

unsigned kvcl_glue_wait_progress(glue_t *g)
{
    uint64_t  at_ns = 0;
    unsigned  n     = 0;
    glue_ep_t *ep, *next;

    kvcl_list_foreach_safe (ep, next, &g->waiting, glue_ep_t, data.wait_link) {
        if (ep->closed) {
            kvcl_glue_wait_end(ep, NULL, KVCL_ERR_CANCELED);
        } else if (ep->data.failed) {
            kvcl_glue_wait_end(ep, NULL, KVCL_ERR_UNREACHABLE);
        } else if (!ep->data.opening) {
            start(ep);
        } else if (kvcl_deadline_passed(ep->data.wait_ns)) {
            kvcl_log_debug("ucx: a connection for data is not made yet: messages carry the bytes");
            kvcl_glue_wait_end(ep, NULL, KVCL_ERR_UNREACHABLE);
        } else {
            at_ns = ((at_ns == 0) || (ep->data.wait_ns < at_ns)) ? ep->data.wait_ns : at_ns;
            continue;
        }
        ++n;
    }
    if (at_ns != g->wait_ns) {
        set_timer(g, at_ns);
    }
    return n;
}
