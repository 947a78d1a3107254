/*
 * The loop transport: contexts of one process reach each other through queues in memory. It is the reference for the
 * transport contract (every rule of xport.h in its plainest form) and the place where tests inject faults.
 *
 * Owns: the process-wide registry of loop xports, and per xport its inbox, endpoints, regions and eventfd.
 * Invariants: a message is copied before the lock is taken and belongs to the inbox it is linked in; an endpoint names
 * its target by id and looks it up at each use, so a target may vanish at any moment; ids are never reused.
 * Locks: one process-wide mutex, kvcl_loop.lock, guards the registry, every list in every xport and the faults. It is a
 * leaf below the engine locks of all contexts, and is never held while a callback runs or bytes are copied.
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

typedef struct loop_reply {
    kvcl_xport_reply_t super;
    uint64_t           to;
} loop_reply_t;

loop_registry_t kvcl_loop = {.lock = PTHREAD_MUTEX_INITIALIZER, .xports = {&kvcl_loop.xports, &kvcl_loop.xports}};

void kvcl_loop_set_faults(const kvcl_loop_faults_t *faults)
{
    static const kvcl_loop_faults_t none;

    pthread_mutex_lock(&kvcl_loop.lock);
    kvcl_loop.faults = (faults != NULL) ? *faults : none;
    kvcl_rand_seed(&kvcl_loop.rnd, kvcl_loop.faults.reorder_seed);
    pthread_mutex_unlock(&kvcl_loop.lock);
}

/* Counts down to the event that *nth asks for: true exactly once. Lock held. */
static bool fault_hits(uint64_t *nth)
{
    return (*nth > 0) && (--*nth == 0);
}

void *kvcl_loop_alloc(size_t len)
{
    bool fail;

    pthread_mutex_lock(&kvcl_loop.lock);
    fail = fault_hits(&kvcl_loop.faults.fail_alloc_nth);
    pthread_mutex_unlock(&kvcl_loop.lock);
    return fail ? NULL : calloc(1, len);
}

loop_xport_t *kvcl_loop_find(uint64_t id)
{
    loop_xport_t *x;

    kvcl_list_foreach(x, &kvcl_loop.xports, loop_xport_t, link) {
        if (x->id == id) {
            return x;
        }
    }
    return NULL;
}

/* Lock held. */
static void wake(loop_xport_t *x)
{
    uint64_t one = 1;

    if (x->armed) {
        x->armed    = false;
        x->signaled = true;
        if (write(x->efd, &one, sizeof(one)) < 0) {
            kvcl_log_error("loop: eventfd write failed: %s", strerror(errno));
        }
    }
}

/* Lock held. Takes the message. */
static void enqueue(loop_xport_t *to, loop_msg_t *msg)
{
    kvcl_list_t *pos = &to->inbox;
    uint64_t    skip;

    if (fault_hits(&kvcl_loop.faults.drop_nth)) {
        free(msg);
        return;
    }
    msg->after = to->rounds + kvcl_loop.faults.delay_progress;
    if (kvcl_loop.faults.reorder_seed != 0) {
        for (skip = kvcl_rand_below(&kvcl_loop.rnd, 8); (skip > 0) && (pos->prev != &to->inbox); --skip) {
            pos = pos->prev;
        }
    }
    kvcl_list_insert_before(pos, &msg->link);
    wake(to);
}

static loop_msg_t *make_msg(const void *hdr, size_t hdr_len, const kvcl_iov_t *iov, size_t n_iov)
{
    size_t     hdr_room = (hdr_len + 7) & ~(size_t)7;
    size_t     len      = 0;
    loop_msg_t *msg;
    char       *at;
    size_t     i;

    for (i = 0; i < n_iov; ++i) {
        len += iov[i].len;
    }
    msg = kvcl_loop_alloc(sizeof(*msg) + hdr_room + len);
    if (msg == NULL) {
        return NULL;
    }
    msg->hdr_len = hdr_len;
    msg->len     = len;
    at           = (char *)msg->bytes;
    if (hdr_len > 0) {
        memcpy(at, hdr, hdr_len);
    }
    at += hdr_room;
    for (i = 0; i < n_iov; ++i) {
        if (iov[i].len > 0) {
            memcpy(at, iov[i].buf, iov[i].len);
        }
        at += iov[i].len;
    }
    return msg;
}

static kvcl_status_t post(uint64_t target, loop_msg_t *msg)
{
    loop_xport_t *to;

    pthread_mutex_lock(&kvcl_loop.lock);
    to = kvcl_loop_find(target);
    if (to != NULL) {
        enqueue(to, msg);
    }
    pthread_mutex_unlock(&kvcl_loop.lock);
    if (to == NULL) {
        free(msg);
        return kvcl_fail(KVCL_ERR_RANK_FAILED, "loop: the peer's context is gone");
    }
    return KVCL_OK;
}

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
    kvcl_list_init(&x->eps);
    kvcl_list_init(&x->failed);
    kvcl_list_init(&x->mems);
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
                wake(other);
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
        return kvcl_fail(KVCL_ERR_UNREACHABLE, "loop: the address is not of a living context of this process");
    }
    *ep_p = &ep->super;
    return KVCL_OK;
}

static void loop_ep_close(kvcl_xport_ep_t *super)
{
    loop_ep_t *ep = kvcl_container_of(super, loop_ep_t, super);

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

/* Only the owner's engine touches the done list, under the engine lock. */
kvcl_status_t kvcl_loop_complete_later(loop_xport_t *x, kvcl_xport_send_t *send)
{
    send->status  = KVCL_OK;
    send->next    = NULL;
    *x->done_tail = send;
    x->done_tail  = &send->next;
    return KVCL_INPROGRESS;
}

static kvcl_status_t loop_am_send(kvcl_xport_ep_t *super, const void *hdr, size_t hdr_len, const kvcl_iov_t *iov,
                                  size_t n_iov, unsigned flags, kvcl_xport_send_t *send)
{
    loop_ep_t     *ep = kvcl_container_of(super, loop_ep_t, super);
    loop_xport_t  *x  = kvcl_container_of(super->xport, loop_xport_t, super);
    loop_msg_t    *msg;
    size_t        len;
    kvcl_status_t status;

    if (hdr_len > LOOP_MAX_HDR) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "loop: a header of %zu bytes, at most %d", hdr_len, LOOP_MAX_HDR);
    }
    msg = make_msg(hdr, hdr_len, iov, n_iov);
    if (msg == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "loop: no memory for a message");
    }
    len = msg->len;
    if ((send == NULL) && (len > LOOP_INLINE_BYTES)) {
        free(msg);
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "loop: a copying send of %zu bytes, at most %d", len,
                         LOOP_INLINE_BYTES);
    }
    msg->from = (flags & KVCL_XPORT_REPLY) ? x->id : 0;
    status    = post(ep->target, msg);
    if ((status != KVCL_OK) || (send == NULL)) {
        return status;
    }
    return (kvcl_loop.faults.async_sends || (len > LOOP_INLINE_BYTES)) ? kvcl_loop_complete_later(x, send) : KVCL_OK;
}

static kvcl_status_t loop_reply(kvcl_xport_reply_t *reply, const void *hdr, size_t hdr_len)
{
    loop_reply_t *to = kvcl_container_of(reply, loop_reply_t, super);
    loop_msg_t   *msg;

    if (to->to == 0) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "loop: the message was sent without a way back");
    }
    msg = (hdr_len <= LOOP_MAX_HDR) ? make_msg(hdr, hdr_len, NULL, 0) : NULL;
    return (msg == NULL) ? kvcl_fail(KVCL_ERR_NO_MEMORY, "loop: no memory for a reply") : post(to->to, msg);
}

static unsigned deliver_done(loop_xport_t *x)
{
    kvcl_xport_send_t *send = x->done_head;
    kvcl_xport_send_t *next;
    unsigned          n;

    x->done_head = NULL;
    x->done_tail = &x->done_head;
    for (n = 0; send != NULL; ++n, send = next) {
        next = send->next;
        send->done(send, send->status);
    }
    return n;
}

/* The next message that may be delivered now, unlinked, or NULL. */
static loop_msg_t *next_msg(loop_xport_t *x)
{
    loop_msg_t  *msg = NULL;
    kvcl_list_t *link;

    pthread_mutex_lock(&kvcl_loop.lock);
    link = kvcl_list_first(&x->inbox);
    if (link != NULL) {
        msg = kvcl_container_of(link, loop_msg_t, link);
        if (msg->after > x->rounds) {
            msg = NULL;
        } else {
            kvcl_list_del(link);
        }
    }
    pthread_mutex_unlock(&kvcl_loop.lock);
    return msg;
}

static unsigned deliver_failed(loop_xport_t *x)
{
    kvcl_list_t *link;
    unsigned    n = 0;

    for (;;) {
        pthread_mutex_lock(&kvcl_loop.lock);
        link = kvcl_list_pop(&x->failed);
        pthread_mutex_unlock(&kvcl_loop.lock);
        if (link == NULL) {
            return n;
        }
        x->cbs.ep_failed(x->cbs.arg, &kvcl_container_of(link, loop_ep_t, failed_link)->super, KVCL_ERR_RANK_FAILED);
        ++n;
    }
}

static unsigned loop_progress(kvcl_xport_t *xport)
{
    loop_xport_t *x = kvcl_container_of(xport, loop_xport_t, super);
    unsigned     n  = deliver_done(x);
    loop_reply_t reply;
    loop_msg_t   *msg;
    char         *bytes;
    int          i;

    pthread_mutex_lock(&kvcl_loop.lock);
    ++x->rounds;
    pthread_mutex_unlock(&kvcl_loop.lock);
    for (i = 0; (i < LOOP_BURST) && ((msg = next_msg(x)) != NULL); ++i, ++n) {
        reply    = (loop_reply_t){.super = {xport}, .to = msg->from};
        bytes    = (char *)msg->bytes;
        x->cbs.recv(x->cbs.arg, bytes, msg->hdr_len, bytes + ((msg->hdr_len + 7) & ~(size_t)7), msg->len,
                    &reply.super);
        free(msg);
    }
    return n + deliver_failed(x);
}

static int loop_event_fd(kvcl_xport_t *xport)
{
    return kvcl_container_of(xport, loop_xport_t, super)->efd;
}

static kvcl_status_t loop_arm(kvcl_xport_t *xport)
{
    loop_xport_t *x = kvcl_container_of(xport, loop_xport_t, super);
    uint64_t     count;
    bool         armed;

    pthread_mutex_lock(&kvcl_loop.lock);
    if (x->signaled) {
        (void)!read(x->efd, &count, sizeof(count));
        x->signaled = false;
    }
    armed    = kvcl_list_is_empty(&x->inbox) && kvcl_list_is_empty(&x->failed) && (x->done_head == NULL);
    x->armed = armed;
    pthread_mutex_unlock(&kvcl_loop.lock);
    return armed ? KVCL_OK : KVCL_ERR_BUSY;
}

static bool loop_outstanding(kvcl_xport_t *xport)
{
    return kvcl_container_of(xport, loop_xport_t, super)->done_head != NULL;
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
    .am_send = loop_am_send,
    .reply = loop_reply,
    .mem_alloc = kvcl_loop_mem_alloc,
    .mem_register = kvcl_loop_mem_register,
    .mem_register_device = kvcl_loop_mem_register_device,
    .mem_free = kvcl_loop_mem_free,
    .mem_pack = kvcl_loop_mem_pack,
    .rmem_open = kvcl_loop_rmem_open,
    .rmem_close = kvcl_loop_rmem_close,
    .get = kvcl_loop_get,
    .put = kvcl_loop_put,
    .flush = kvcl_loop_flush,
    .outstanding = loop_outstanding,
    .progress = loop_progress,
    .event_fd = loop_event_fd,
    .arm = loop_arm
};
