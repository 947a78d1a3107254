/*
 * Gets and puts over the loop transport: a copy inside the call, or what tests inject in its place.
 *
 * Owns: the gets and puts that are stalled (stall_rma), each with its buffers. Invariants: like a network's, a stalled
 * get may write its buffer until it has completed, and never after; only rma_end and the close of the endpoint complete
 * it. A get of memory that was unregistered fails, with break_rma together with all that are in flight between the two
 * contexts. Locks: the engine lock for the stalled and the done list; kvcl_loop.lock while bytes are copied, so that
 * the region is not freed meanwhile, and for the marks that another context sets. See xport_loop_registry.c.
 */
#include "config.h"
#include "loop/xport_loop_impl.h"

#include "base/error.h"
#include "weave/copy_racy.h"

#include <stdlib.h>

typedef struct loop_stalled {
    kvcl_list_t       link;
    kvcl_xport_send_t *send;
    loop_ep_t         *ep;
    uint64_t          xport, mem; /* the owner's ids */
    void              *dst;       /* NULL: a flush */
    const void        *src;
    size_t            len;
} loop_stalled_t;

uint64_t kvcl_loop_breaks(void)
{
    uint64_t n;

    pthread_mutex_lock(&kvcl_loop.lock);
    n = kvcl_loop.breaks;
    pthread_mutex_unlock(&kvcl_loop.lock);
    return n;
}

/* The gets and puts in flight complete with status from the next progress. */
static void end_all(loop_xport_t *x, const loop_ep_t *ep, kvcl_status_t status)
{
    kvcl_xport_send_t *send;
    loop_stalled_t    *one, *next;

    for (send = x->done_head; send != NULL; send = send->next) {
        if (send->priv == ep) {
            send->status = status;
        }
    }
    kvcl_list_foreach_safe(one, next, &x->stalled, loop_stalled_t, link) {
        if (one->ep == ep) {
            kvcl_list_del(&one->link);
            (void)kvcl_loop_complete_later(x, one->ep, one->send, status);
            free(one);
        }
    }
}

/* Lock held: both directions between the two contexts share a connection. */
static void break_connection(loop_xport_t *x, loop_ep_t *ep)
{
    loop_xport_t *other = kvcl_loop_find(ep->target);
    loop_ep_t    *back;

    ++kvcl_loop.breaks;
    ep->rma_broken = x->broken = true;
    if (other == NULL) {
        return;
    }
    kvcl_list_foreach(back, &other->eps, loop_ep_t, link) {
        if (back->target == x->id) {
            back->rma_broken = true;
            other->broken    = true;
            kvcl_loop_wake(other);
        }
    }
}

static kvcl_status_t stall(const loop_rmem_t *rmem, void *dst, const void *src, size_t len, kvcl_xport_send_t *send)
{
    loop_xport_t   *x   = kvcl_container_of(rmem->super.ep->xport, loop_xport_t, super);
    loop_stalled_t *one = kvcl_loop_alloc(sizeof(*one));

    if (one == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "loop: no memory for a stalled get or put");
    }
    *one = (loop_stalled_t){.send = send, .ep = kvcl_container_of(rmem->super.ep, loop_ep_t, super),
                            .xport = rmem->xport, .mem = rmem->mem, .dst = dst, .src = src, .len = len};
    kvcl_list_add_tail(&x->stalled, &one->link);
    return KVCL_INPROGRESS;
}

/* get and put: copy now if the memory is still registered, as a network adapter would; complete now, or from progress
 * where a test requests that. */
static kvcl_status_t rma(const loop_rmem_t *rmem, uint64_t offset, void *dst, const void *src, size_t len,
                         kvcl_xport_send_t *send)
{
    loop_xport_t       *x = kvcl_container_of(rmem->super.ep->xport, loop_xport_t, super);
    loop_ep_t          *ep = kvcl_container_of(rmem->super.ep, loop_ep_t, super);
    kvcl_loop_faults_t faults;
    bool               gone;

    if ((offset > rmem->size) || (len > rmem->size - offset)) {
        return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "loop: %zu bytes at %llu of a region of %llu", len,
                         (unsigned long long)offset, (unsigned long long)rmem->size);
    }
    pthread_mutex_lock(&kvcl_loop.lock);
    faults = kvcl_loop.faults;
    gone   = (kvcl_loop_find_mem(rmem->xport, rmem->mem) == NULL);
    if (!gone && !faults.stall_rma) {
        kvcl_copy_racy(dst, src, len);
    }
    if (gone && faults.break_rma) {
        break_connection(x, ep);
    }
    pthread_mutex_unlock(&kvcl_loop.lock);
    if (gone && faults.break_rma && (send != NULL)) {
        return kvcl_loop_complete_later(x, ep, send, KVCL_ERR_RANK_FAILED);
    }
    if (gone) {
        return kvcl_fail(KVCL_ERR_NOT_REGISTERED, "loop: the region is gone");
    }
    if (faults.stall_rma && (send != NULL)) {
        return stall(rmem, dst, src, len, send);
    }
    return (faults.async_sends && (send != NULL)) ? kvcl_loop_complete_later(x, ep, send, KVCL_OK) : KVCL_OK;
}

kvcl_status_t kvcl_loop_get(kvcl_xport_rmem_t *super, uint64_t offset, void *buf, size_t len,
                            kvcl_xport_send_t *send)
{
    loop_rmem_t *rmem = kvcl_container_of(super, loop_rmem_t, super);

    return rma(rmem, offset, buf, rmem->addr + offset, len, send);
}

kvcl_status_t kvcl_loop_put(kvcl_xport_rmem_t *super, uint64_t offset, const void *buf, size_t len,
                            kvcl_xport_send_t *send)
{
    loop_rmem_t *rmem = kvcl_container_of(super, loop_rmem_t, super);

    return rma(rmem, offset, rmem->addr + offset, buf, len, send);
}

kvcl_status_t kvcl_loop_flush(kvcl_xport_rmem_t *super, kvcl_xport_send_t *send)
{
    loop_xport_t       *x = kvcl_container_of(super->ep->xport, loop_xport_t, super);
    kvcl_loop_faults_t faults;

    pthread_mutex_lock(&kvcl_loop.lock);
    faults = kvcl_loop.faults;
    pthread_mutex_unlock(&kvcl_loop.lock);
    if (faults.stall_rma && (send != NULL)) {
        return stall(kvcl_container_of(super, loop_rmem_t, super), NULL, NULL, 0, send);
    }
    return (faults.async_sends && (send != NULL)) ?
                   kvcl_loop_complete_later(x, kvcl_container_of(super->ep, loop_ep_t, super), send, KVCL_OK) : KVCL_OK;
}

void kvcl_loop_rma_end(kvcl_xport_ep_t *super)
{
    loop_ep_t *ep = kvcl_container_of(super, loop_ep_t, super);

    end_all(kvcl_container_of(super->xport, loop_xport_t, super), ep, KVCL_ERR_CANCELED);
}

void kvcl_loop_rma_forget(loop_ep_t *ep)
{
    loop_xport_t      *x = kvcl_container_of(ep->super.xport, loop_xport_t, super);
    kvcl_xport_send_t *send;

    end_all(x, ep, KVCL_ERR_CANCELED);
    for (send = x->done_head; send != NULL; send = send->next) {
        send->priv = (send->priv == ep) ? NULL : send->priv;
    }
}

/* A network may write the bytes of a get at any time until it has completed. */
void kvcl_loop_rma_progress(loop_xport_t *x)
{
    loop_stalled_t *one;
    loop_ep_t      *ep;

    pthread_mutex_lock(&kvcl_loop.lock);
    if (x->broken) {
        x->broken = false;
        kvcl_list_foreach(ep, &x->eps, loop_ep_t, link) {
            if (ep->rma_broken) {
                ep->rma_broken = false;
                end_all(x, ep, KVCL_ERR_RANK_FAILED);
            }
        }
    }
    kvcl_list_foreach(one, &x->stalled, loop_stalled_t, link) {
        if ((one->dst != NULL) && (kvcl_loop_find_mem(one->xport, one->mem) != NULL)) {
            kvcl_copy_racy(one->dst, one->src, one->len);
        }
    }
    pthread_mutex_unlock(&kvcl_loop.lock);
}
