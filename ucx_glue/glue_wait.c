/*
 * Gets, puts and flushes that wait until their endpoint for data is connected (glue_data.c). UCX has not seen them: one
 * that is ended moves no byte, and the endpoint need not be closed for it. They wait at most WAIT_NS from the opening,
 * so that a peer that answers late, or never, is served by messages instead.
 *
 * Owns: the lists of what waits, and a timer for the end of that time (glue_timer.c). Invariants: an endpoint is in
 * glue.waiting while its list is not empty; what waits is counted in flight; it is posted in the order of the calls; it
 * completes from progress only. Locks: the engine lock.
 */
#include "config.h"
#include "ucx_glue/glue.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#define WAIT_NS (1 * KVCL_NS_PER_SEC)

typedef struct glue_wait {
    kvcl_list_t link; /* in glue_data.waiting */
    glue_op_t   op;
} glue_wait_t;

void kvcl_glue_wait_init(glue_t *g)
{
    g->wait_timer.fd = -1;
    kvcl_list_init(&g->waiting);
    kvcl_mpool_init(&g->waits, "operations that wait", sizeof(glue_wait_t), 64, 0);
}

void kvcl_glue_wait_close(glue_t *g)
{
    kvcl_glue_timer_close(&g->wait_timer);
    (void)kvcl_mpool_fini(&g->waits);
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
    glue_begin_op(ep);
    if ((g->wait_timer.due_ns == 0) || (ep->data.wait_ns < g->wait_timer.due_ns)) {
        kvcl_glue_timer_set(&g->wait_timer, ep->data.wait_ns);
    }
    return KVCL_INPROGRESS;
}

/* It waits no longer. */
static void take(glue_ep_t *ep, glue_wait_t *wait, glue_op_t *op)
{
    *op = wait->op;
    kvcl_list_del(&wait->link);
    kvcl_mpool_put(&glue_of(ep->super.xport)->waits, wait);
    glue_end_op(ep);
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
    uint64_t  due_ns = 0;
    unsigned  n      = 0;
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
            due_ns = ((due_ns == 0) || (ep->data.wait_ns < due_ns)) ? ep->data.wait_ns : due_ns;
            continue;
        }
        ++n;
    }
    if (due_ns != g->wait_timer.due_ns) {
        kvcl_glue_timer_set(&g->wait_timer, due_ns);
    }
    return n;
}
