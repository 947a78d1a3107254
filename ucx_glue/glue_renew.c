/*
 * Another queue for messages. The queue in shared memory of a worker belongs to its reader; all processes of the host
 * write it. A writer takes its entry first and marks it as complete last. If it is killed between the two, the reader
 * waits for that entry for ever: ucp_worker_progress finds nothing, and ucp_worker_arm refuses to sleep, since entries
 * were taken. That pair shows it.
 *
 * The remedy is another worker of the same context, which has a queue and an address of its own. The worker before
 * stays: UCX frees closed endpoints in its progress only, and a writer that was stopped may write its entry later.
 *
 * Owns: glue.deaf. Invariants: their endpoints are closed by the core at once; their descriptors are not waited for.
 * An instance that listens for peers of other hosts is not renewed. Locks: the engine lock.
 */
#include "config.h"
#include "ucx_glue/glue.h"
#include "ucx_glue/glue_renew.h"

#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

bool kvcl_glue_is_deaf(kvcl_xport_t *xport)
{
    return ucp_worker_arm(glue_of(xport)->am.worker) == UCS_ERR_BUSY;
}

/* Open the worker of g->am, which has a context only, and the address with it. On failure it may be half open. */
static kvcl_status_t open_queue(glue_t *g)
{
    struct epoll_event event = {.events = EPOLLIN};
    ucs_status_t       ucs   = kvcl_glue_side_open_worker(&g->am);
    kvcl_status_t      status;

    if (ucs != UCS_OK) {
        return kvcl_fail(kvcl_glue_status(ucs), "ucx: no other queue: %s", ucs_status_string(ucs));
    }
    status = kvcl_glue_am_handle(g);
    if ((status == KVCL_OK) && (epoll_ctl(g->epfd, EPOLL_CTL_ADD, g->am.efd, &event) != 0)) {
        status = kvcl_fail_errno(KVCL_ERR_IO, errno, "ucx: epoll");
    }
    return (status == KVCL_OK) ? kvcl_glue_make_address(g) : status;
}

kvcl_status_t kvcl_glue_renew(kvcl_xport_t *xport)
{
    glue_t        *g   = glue_of(xport);
    glue_side_t   old  = g->am;
    void          *was = g->addr;
    kvcl_status_t status;

    if (g->plan.listens || (g->n_deaf == GLUE_RENEWALS)) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, g->plan.listens ? "ucx: it listens on %s"
                                                               : "ucx: it has got other queues too often (%s)",
                         g->plan.listens ? g->plan.devices : g->plan.am_tls);
    }
    g->am  = (glue_side_t){.ctx = old.ctx, .features = old.features};
    status = open_queue(g);
    if (status != KVCL_OK) {
        g->am.ctx = NULL; /* the old one's */
        kvcl_glue_side_close(&g->am);
        g->am = old;
        return status;
    }
    (void)epoll_ctl(g->epfd, EPOLL_CTL_DEL, old.efd, NULL);
    free(was);
    old.ctx              = NULL;
    g->deaf[g->n_deaf++] = old;
    return KVCL_OK;
}

unsigned kvcl_glue_renew_progress(glue_t *g)
{
    unsigned n = 0, i;

    for (i = 0; i < g->n_deaf; ++i) {
        n += ucp_worker_progress(g->deaf[i].worker);
    }
    return n;
}

void kvcl_glue_renew_fini(glue_t *g)
{
    while (g->n_deaf > 0) {
        kvcl_glue_side_close(&g->deaf[--g->n_deaf]);
    }
}
