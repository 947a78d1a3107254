/*
 * The loop transport: contexts of one process reach each other through queues in memory. It is the reference for the
 * transport contract (every rule of xport.h in its plainest form) and the place where tests inject faults.
 *
 * Owns: a context's transport, its address, its endpoints. Messages are in xport_loop_msg.c, memory in
 * xport_loop_mem.c, gets and puts in xport_loop_rma.c, the registry that leads from one context to another in
 * xport_loop_registry.c. Invariants: an endpoint names its target by id and looks it up at each use, so a target may be
 * closed at any time; ids are never reused. Locks: kvcl_loop.lock, see xport_loop_registry.c.
 */
#include "config.h"
#include "loop/xport_loop_impl.h"

#include "base/checksum.h"
#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LOOP_ADDR_MAGIC UINT64_C(0x4b56434c4c4f4f50)

/* Lock held, or the xport is not shared yet. A forked child must not answer to its parent's addresses. */
static kvcl_status_t join_registry(loop_xport_t *x)
{
    kvcl_status_t status;

    if (kvcl_loop.pid != getpid()) {
        status = kvcl_random_bytes(kvcl_loop.uuid, sizeof(kvcl_loop.uuid));
        if (status != KVCL_OK) {
            return status;
        }
        kvcl_loop.pid = getpid();
        kvcl_list_init(&kvcl_loop.xports);
    }
    x->id         = ++kvcl_loop.last_id;
    x->addr.magic = LOOP_ADDR_MAGIC;
    memcpy(x->addr.uuid, kvcl_loop.uuid, sizeof(kvcl_loop.uuid));
    x->addr.id    = x->id;
    x->addr.check = kvcl_check32(&x->addr, offsetof(struct loop_addr, check));
    kvcl_list_add_tail(&kvcl_loop.xports, &x->link);
    return KVCL_OK;
}

static kvcl_status_t loop_init(const kvcl_xport_params_t *params, kvcl_xport_t **xport_p)
{
    loop_xport_t  *x = kvcl_loop_alloc(sizeof(*x));
    kvcl_status_t status;

    if (x == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "loop: no memory for a context");
    }
    x->super.ops = &kvcl_xport_loop;
    x->cbs       = params->cbs;
    x->done_tail = &x->done_head;
    kvcl_list_init(&x->inbox);
    kvcl_list_init(&x->held);
    kvcl_list_init(&x->eps);
    kvcl_list_init(&x->failed);
    kvcl_list_init(&x->mems);
    kvcl_list_init(&x->stalled);
    x->efd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (x->efd < 0) {
        status = kvcl_fail_errno(KVCL_ERR_IO, errno, "loop: eventfd");
        goto err_free;
    }
    pthread_mutex_lock(&kvcl_loop.lock);
    status = join_registry(x);
    pthread_mutex_unlock(&kvcl_loop.lock);
    if (status != KVCL_OK) {
        goto err_close;
    }
    *xport_p = &x->super;
    return KVCL_OK;

err_close:
    close(x->efd);
err_free:
    free(x);
    return status;
}

/* Lock held: endpoints of others that lead to x are broken from now on. */
static void break_peers(const loop_xport_t *x)
{
    loop_xport_t *other;
    loop_ep_t    *ep;

    kvcl_list_foreach(other, &kvcl_loop.xports, loop_xport_t, link) {
        kvcl_list_foreach(ep, &other->eps, loop_ep_t, link) {
            if ((ep->target == x->id) && !ep->broken) {
                ep->broken = true;
                kvcl_list_add_tail(&other->failed, &ep->failed_link);
                kvcl_loop_wake(other);
            }
        }
    }
}

static void loop_fini(kvcl_xport_t *xport)
{
    loop_xport_t *x = kvcl_container_of(xport, loop_xport_t, super);
    kvcl_list_t  *link;

    pthread_mutex_lock(&kvcl_loop.lock);
    kvcl_list_del(&x->link);
    break_peers(x);
    pthread_mutex_unlock(&kvcl_loop.lock);
    kvcl_list_splice_tail(&x->inbox, &x->held);
    while ((link = kvcl_list_pop(&x->inbox)) != NULL) {
        free(kvcl_container_of(link, loop_msg_t, link));
    }
    if (!kvcl_list_is_empty(&x->eps) || !kvcl_list_is_empty(&x->mems) || (x->done_head != NULL)) {
        kvcl_log_warn("loop: a context is closed with endpoints, regions or sends still open");
    }
    close(x->efd);
    free(x);
}

static void loop_query(kvcl_xport_t *xport, kvcl_xport_attr_t *attr)
{
    (void)xport;
    attr->name         = "loop";
    attr->frame_bytes  = LOOP_FRAME_BYTES;
    attr->inline_bytes = LOOP_INLINE_BYTES;
    attr->max_hdr      = LOOP_MAX_HDR;
}

static void loop_address(kvcl_xport_t *xport, const void **buf_p, size_t *len_p)
{
    loop_xport_t *x = kvcl_container_of(xport, loop_xport_t, super);

    *buf_p = &x->addr;
    *len_p = sizeof(x->addr);
}

static kvcl_status_t loop_ep_create(kvcl_xport_t *xport, const void *buf, size_t len, kvcl_xport_ep_t **ep_p)
{
    loop_xport_t     *x = kvcl_container_of(xport, loop_xport_t, super);
    struct loop_addr addr;
    loop_ep_t        *ep;

    if (len != sizeof(addr)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "loop: an address of %zu bytes, not %zu", len, sizeof(addr));
    }
    memcpy(&addr, buf, sizeof(addr));
    if ((addr.magic != LOOP_ADDR_MAGIC) || (addr.check != kvcl_check32(&addr, offsetof(struct loop_addr, check)))) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "loop: malformed address");
    }
    ep = kvcl_loop_alloc(sizeof(*ep));
    if (ep == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "loop: no memory for an endpoint");
    }
    ep->super.xport       = xport;
    ep->super.frame_bytes = LOOP_FRAME_BYTES;
    ep->target            = addr.id;
    kvcl_list_init(&ep->failed_link);
    pthread_mutex_lock(&kvcl_loop.lock);
    ep->broken = (memcmp(addr.uuid, kvcl_loop.uuid, sizeof(kvcl_loop.uuid)) != 0) || (kvcl_loop_find(addr.id) == NULL);
    if (!ep->broken) {
        kvcl_list_add_tail(&x->eps, &ep->link);
    }
    pthread_mutex_unlock(&kvcl_loop.lock);
    if (ep->broken) {
        free(ep);
        return kvcl_fail(KVCL_ERR_UNREACHABLE, "loop: the address is not of an open context of this process");
    }
    *ep_p = &ep->super;
    return KVCL_OK;
}

static void loop_ep_close(kvcl_xport_ep_t *super)
{
    loop_ep_t *ep = kvcl_container_of(super, loop_ep_t, super);

    kvcl_loop_rma_forget(ep);
    pthread_mutex_lock(&kvcl_loop.lock);
    kvcl_list_del(&ep->link);
    kvcl_list_del(&ep->failed_link);
    pthread_mutex_unlock(&kvcl_loop.lock);
    free(ep);
}

static void loop_ep_describe(kvcl_xport_ep_t *ep, char *buf, size_t cap)
{
    (void)ep;
    snprintf(buf, cap, "loop");
}

static int loop_event_fd(kvcl_xport_t *xport)
{
    return kvcl_container_of(xport, loop_xport_t, super)->efd;
}

const kvcl_xport_ops_t kvcl_xport_loop = {
    .size = sizeof(kvcl_xport_ops_t),
    .name = "loop",
    .init = loop_init,
    .fini = loop_fini,
    .query = loop_query,
    .address = loop_address,
    .ep_create = loop_ep_create,
    .ep_close = loop_ep_close,
    .ep_describe = loop_ep_describe,
    .am_send = kvcl_loop_am_send,
    .reply = kvcl_loop_reply,
    .mem_register = kvcl_loop_mem_register,
    .mem_register_device = kvcl_loop_mem_register_device,
    .mem_free = kvcl_loop_mem_free,
    .mem_fence = kvcl_loop_mem_fence,
    .mem_pack = kvcl_loop_mem_pack,
    .rmem_open = kvcl_loop_rmem_open,
    .rmem_close = kvcl_loop_rmem_close,
    .get = kvcl_loop_get,
    .put = kvcl_loop_put,
    .flush = kvcl_loop_flush,
    .rma_end = kvcl_loop_rma_end,
    .outstanding = kvcl_loop_outstanding,
    .progress = kvcl_loop_progress,
    .event_fd = loop_event_fd,
    .arm = kvcl_loop_arm
};
