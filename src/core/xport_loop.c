/*
 * The loop transport: contexts of one process reach each other through queues in memory. It is the reference for the
 * transport contract (every rule of xport.h in its plainest form) and the place where tests inject faults.
 *
 * Owns: the process-wide registry of loop xports, and per xport its inbox, endpoints, regions and eventfd.
 * Invariants: a message is copied before the lock is taken and belongs to the inbox it is linked in; an endpoint names
 * its target by id and looks it up at each use, so a target may vanish at any moment; ids are never reused.
 * Locks: one process-wide mutex, `loop.lock`, guards the registry, every list in every xport and the faults. It is a
 * leaf below the engine locks of all contexts, and is never held while a callback runs or bytes are copied.
 */
#include "config.h"
#include "core/xport_loop.h"

#include "base/checksum.h"
#include "base/error.h"
#include "base/list.h"
#include "base/log.h"
#include "base/rand.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    LOOP_INLINE_BYTES = 8192,
    LOOP_FRAME_BYTES  = 1 << 20,
    LOOP_MAX_HDR      = 1024,
    LOOP_BURST        = 64 /* messages delivered by one progress call */
};

#define LOOP_ADDR_MAGIC UINT64_C(0x4b56434c4c4f4f50)
#define LOOP_MEM_MAGIC  UINT64_C(0x4b56434c4c4d454d)

typedef struct loop_xport {
    kvcl_xport_t      super;
    kvcl_xport_cbs_t  cbs;
    kvcl_list_t       link;   /* in loop.xports */
    kvcl_list_t       inbox;  /* loop_msg_t */
    kvcl_list_t       eps;    /* loop_ep_t, all that are open */
    kvcl_list_t       failed; /* loop_ep_t whose failure is to be told */
    kvcl_list_t       mems;   /* loop_mem_t */
    kvcl_xport_send_t *done_head;
    kvcl_xport_send_t **done_tail;
    uint64_t          id;
    uint64_t          rounds; /* progress calls so far */
    int               efd;
    bool              armed;
    bool              signaled; /* efd is readable */
    struct loop_addr {
        uint64_t magic;
        uint64_t uuid[2];
        uint64_t id;
        uint32_t pad;
        uint32_t check; /* over all before it */
    } addr;
} loop_xport_t;

typedef struct loop_ep {
    kvcl_xport_ep_t super;
    kvcl_list_t     link;        /* in xport->eps */
    kvcl_list_t     failed_link; /* in xport->failed, or alone */
    uint64_t        target;
    bool            broken;
} loop_ep_t;

typedef struct loop_msg {
    kvcl_list_t link;
    uint64_t    from;  /* xport to reply to, 0: none */
    uint64_t    after; /* deliver when the receiver's rounds reach it */
    size_t      hdr_len;
    size_t      len;
    uint64_t    bytes[]; /* header padded to 8, then payload */
} loop_msg_t;

typedef struct loop_mem {
    kvcl_xport_mem_t super;
    kvcl_list_t      link;
    uint64_t         id;
    char             *addr;
    size_t           len;
    size_t           mapped; /* bytes to munmap, 0: the caller's memory */
} loop_mem_t;

struct loop_packed {
    uint64_t magic;
    uint64_t xport;
    uint64_t mem;
    uint32_t pad;
    uint32_t check;
};

typedef struct loop_rmem {
    kvcl_xport_rmem_t super;
    char              *addr;
    uint64_t          size;
} loop_rmem_t;

typedef struct loop_reply {
    kvcl_xport_reply_t super;
    uint64_t           to;
} loop_reply_t;

static struct {
    pthread_mutex_t    lock;
    kvcl_list_t        xports;
    uint64_t           uuid[2];
    uint64_t           last_id; /* of xports and regions */
    pid_t              pid;     /* a forked child has another uuid and no xports */
    kvcl_loop_faults_t faults;
    kvcl_rand_t        rnd;
} loop = {.lock = PTHREAD_MUTEX_INITIALIZER, .xports = {&loop.xports, &loop.xports}};

void kvcl_loop_set_faults(const kvcl_loop_faults_t *faults)
{
    static const kvcl_loop_faults_t none;

    pthread_mutex_lock(&loop.lock);
    loop.faults = (faults != NULL) ? *faults : none;
    kvcl_rand_seed(&loop.rnd, loop.faults.reorder_seed);
    pthread_mutex_unlock(&loop.lock);
}

/* Counts down to the event that *nth asks for: true exactly once. Lock held. */
static bool fault_hits(uint64_t *nth)
{
    return (*nth > 0) && (--*nth == 0);
}

static void *loop_alloc(size_t len)
{
    bool fail;

    pthread_mutex_lock(&loop.lock);
    fail = fault_hits(&loop.faults.fail_alloc_nth);
    pthread_mutex_unlock(&loop.lock);
    return fail ? NULL : calloc(1, len);
}

static loop_xport_t *find_xport(uint64_t id)
{
    loop_xport_t *x;

    kvcl_list_foreach(x, &loop.xports, loop_xport_t, link) {
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

    if (fault_hits(&loop.faults.drop_nth)) {
        free(msg);
        return;
    }
    msg->after = to->rounds + loop.faults.delay_progress;
    if (loop.faults.reorder_seed != 0) {
        for (skip = kvcl_rand_below(&loop.rnd, 8); (skip > 0) && (pos->prev != &to->inbox); --skip) {
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
    msg = loop_alloc(sizeof(*msg) + hdr_room + len);
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

    pthread_mutex_lock(&loop.lock);
    to = find_xport(target);
    if (to != NULL) {
        enqueue(to, msg);
    }
    pthread_mutex_unlock(&loop.lock);
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

    if (loop.pid != getpid()) {
        status = kvcl_random_bytes(loop.uuid, sizeof(loop.uuid));
        if (status != KVCL_OK) {
            return status;
        }
        loop.pid = getpid();
        kvcl_list_init(&loop.xports);
    }
    x->id         = ++loop.last_id;
    x->addr.magic = LOOP_ADDR_MAGIC;
    memcpy(x->addr.uuid, loop.uuid, sizeof(loop.uuid));
    x->addr.id    = x->id;
    x->addr.check = kvcl_check32(&x->addr, offsetof(struct loop_addr, check));
    kvcl_list_add_tail(&loop.xports, &x->link);
    return KVCL_OK;
}

static kvcl_status_t loop_init(const kvcl_xport_params_t *params, kvcl_xport_t **xport_p)
{
    loop_xport_t  *x = loop_alloc(sizeof(*x));
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
    pthread_mutex_lock(&loop.lock);
    status = join_registry(x);
    pthread_mutex_unlock(&loop.lock);
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

    kvcl_list_foreach(other, &loop.xports, loop_xport_t, link) {
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

    pthread_mutex_lock(&loop.lock);
    kvcl_list_del(&x->link);
    break_peers(x);
    pthread_mutex_unlock(&loop.lock);
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
    ep = loop_alloc(sizeof(*ep));
    if (ep == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "loop: no memory for an endpoint");
    }
    ep->super.xport       = xport;
    ep->super.frame_bytes = LOOP_FRAME_BYTES;
    ep->target            = addr.id;
    kvcl_list_init(&ep->failed_link);
    pthread_mutex_lock(&loop.lock);
    ep->broken = (memcmp(addr.uuid, loop.uuid, sizeof(loop.uuid)) != 0) || (find_xport(addr.id) == NULL);
    if (!ep->broken) {
        kvcl_list_add_tail(&x->eps, &ep->link);
    }
    pthread_mutex_unlock(&loop.lock);
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

    pthread_mutex_lock(&loop.lock);
    kvcl_list_del(&ep->link);
    kvcl_list_del(&ep->failed_link);
    pthread_mutex_unlock(&loop.lock);
    free(ep);
}

static void loop_ep_describe(kvcl_xport_ep_t *ep, char *buf, size_t cap)
{
    (void)ep;
    snprintf(buf, cap, "loop");
}

/* Only the owner's engine touches the done list, under the engine lock. */
static kvcl_status_t complete_later(loop_xport_t *x, kvcl_xport_send_t *send)
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
    return (loop.faults.async_sends || (len > LOOP_INLINE_BYTES)) ? complete_later(x, send) : KVCL_OK;
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

static kvcl_status_t add_mem(kvcl_xport_t *xport, void *addr, size_t len, size_t mapped, kvcl_xport_mem_t **mem_p)
{
    loop_xport_t *x   = kvcl_container_of(xport, loop_xport_t, super);
    loop_mem_t   *mem = loop_alloc(sizeof(*mem));

    if (mem == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "loop: no memory for a region");
    }
    mem->super.xport = xport;
    mem->addr        = addr;
    mem->len         = len;
    mem->mapped      = mapped;
    pthread_mutex_lock(&loop.lock);
    mem->id = ++loop.last_id;
    kvcl_list_add_tail(&x->mems, &mem->link);
    pthread_mutex_unlock(&loop.lock);
    *mem_p = &mem->super;
    return KVCL_OK;
}

static kvcl_status_t loop_mem_alloc(kvcl_xport_t *xport, size_t len, bool huge, void **addr_p,
                                    kvcl_xport_mem_t **mem_p)
{
    size_t        page   = (size_t)sysconf(_SC_PAGESIZE);
    size_t        mapped = (len + page - 1) & ~(page - 1);
    kvcl_status_t status;
    void          *addr;

    if ((len == 0) || (mapped < len)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "loop: cannot allocate %zu bytes", len);
    }
    addr = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (addr == MAP_FAILED) {
        return kvcl_fail_errno(KVCL_ERR_NO_MEMORY, errno, "loop: no memory for a region of %zu bytes", len);
    }
    if (huge) {
        (void)madvise(addr, mapped, MADV_HUGEPAGE);
    }
    status = add_mem(xport, addr, len, mapped, mem_p);
    if (status != KVCL_OK) {
        munmap(addr, mapped);
        return status;
    }
    *addr_p = addr;
    return KVCL_OK;
}

static kvcl_status_t loop_mem_register(kvcl_xport_t *xport, void *addr, size_t len, kvcl_xport_mem_t **mem_p)
{
    return add_mem(xport, addr, len, 0, mem_p);
}

static void loop_mem_free(kvcl_xport_mem_t *super)
{
    loop_mem_t *mem = kvcl_container_of(super, loop_mem_t, super);

    pthread_mutex_lock(&loop.lock);
    kvcl_list_del(&mem->link);
    pthread_mutex_unlock(&loop.lock);
    if (mem->mapped > 0) {
        munmap(mem->addr, mem->mapped);
    }
    free(mem);
}

static kvcl_status_t loop_mem_pack(kvcl_xport_mem_t *super, void *buf, size_t *len_p)
{
    loop_mem_t         *mem   = kvcl_container_of(super, loop_mem_t, super);
    loop_xport_t       *x     = kvcl_container_of(super->xport, loop_xport_t, super);
    struct loop_packed packed = {LOOP_MEM_MAGIC, x->id, mem->id, 0, 0};

    if (*len_p < sizeof(packed)) {
        return kvcl_fail(KVCL_ERR_NO_SPACE, "loop: %zu bytes for a packed region, not %zu", *len_p, sizeof(packed));
    }
    packed.check = kvcl_check32(&packed, offsetof(struct loop_packed, check));
    memcpy(buf, &packed, sizeof(packed));
    *len_p = sizeof(packed);
    return KVCL_OK;
}

/* Lock held: the living region that the packed bytes name, or NULL. */
static loop_mem_t *find_mem(uint64_t xport_id, uint64_t mem_id)
{
    loop_xport_t *x = find_xport(xport_id);
    loop_mem_t   *mem;

    if (x != NULL) {
        kvcl_list_foreach(mem, &x->mems, loop_mem_t, link) {
            if (mem->id == mem_id) {
                return mem;
            }
        }
    }
    return NULL;
}

static kvcl_status_t loop_rmem_open(kvcl_xport_ep_t *super, const void *buf, size_t len, uint64_t addr, uint64_t size,
                                    kvcl_xport_rmem_t **rmem_p, kvcl_xport_rmem_attr_t *attr)
{
    loop_ep_t          *ep = kvcl_container_of(super, loop_ep_t, super);
    struct loop_packed packed;
    loop_rmem_t        *rmem;
    loop_mem_t         *mem;
    bool               fits;

    if (len != sizeof(packed)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "loop: a packed region of %zu bytes, not %zu", len, sizeof(packed));
    }
    memcpy(&packed, buf, sizeof(packed));
    if ((packed.magic != LOOP_MEM_MAGIC) || (packed.xport != ep->target) ||
        (packed.check != kvcl_check32(&packed, offsetof(struct loop_packed, check)))) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "loop: malformed packed region");
    }
    pthread_mutex_lock(&loop.lock);
    mem  = find_mem(packed.xport, packed.mem);
    fits = (mem != NULL) && (addr >= (uintptr_t)mem->addr) && (addr - (uintptr_t)mem->addr <= mem->len) &&
           (size <= mem->len - (addr - (uintptr_t)mem->addr));
    pthread_mutex_unlock(&loop.lock);
    if (!fits) {
        return (mem == NULL) ? kvcl_fail(KVCL_ERR_NOT_REGISTERED, "loop: the region is gone") :
                               kvcl_fail(KVCL_ERR_PROTOCOL, "loop: the range is not inside its region");
    }
    rmem = loop_alloc(sizeof(*rmem));
    if (rmem == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "loop: no memory for a remote region");
    }
    rmem->super.ep = super;
    rmem->addr     = (char *)(uintptr_t)addr;
    rmem->size     = size;
    attr->map      = (loop.faults.no_map || loop.faults.no_rma) ? NULL : rmem->addr;
    attr->rma      = !loop.faults.no_rma;
    *rmem_p        = &rmem->super;
    return KVCL_OK;
}

static void loop_rmem_close(kvcl_xport_rmem_t *super)
{
    free(kvcl_container_of(super, loop_rmem_t, super));
}

/* The one rule of get and put: copy now; tell now, or from progress where a test wants it so. */
static kvcl_status_t rma(loop_rmem_t *rmem, uint64_t offset, void *dst, const void *src, size_t len,
                         kvcl_xport_send_t *send)
{
    loop_xport_t *x = kvcl_container_of(rmem->super.ep->xport, loop_xport_t, super);

    if ((offset > rmem->size) || (len > rmem->size - offset)) {
        return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "loop: %zu bytes at %llu of a region of %llu", len,
                         (unsigned long long)offset, (unsigned long long)rmem->size);
    }
    memcpy(dst, src, len);
    return (loop.faults.async_sends && (send != NULL)) ? complete_later(x, send) : KVCL_OK;
}

static kvcl_status_t loop_get(kvcl_xport_rmem_t *super, uint64_t offset, void *buf, size_t len,
                              kvcl_xport_send_t *send)
{
    loop_rmem_t *rmem = kvcl_container_of(super, loop_rmem_t, super);

    return rma(rmem, offset, buf, rmem->addr + offset, len, send);
}

static kvcl_status_t loop_put(kvcl_xport_rmem_t *super, uint64_t offset, const void *buf, size_t len,
                              kvcl_xport_send_t *send)
{
    loop_rmem_t *rmem = kvcl_container_of(super, loop_rmem_t, super);

    return rma(rmem, offset, rmem->addr + offset, buf, len, send);
}

static kvcl_status_t loop_flush(kvcl_xport_rmem_t *super, kvcl_xport_send_t *send)
{
    loop_xport_t *x = kvcl_container_of(super->ep->xport, loop_xport_t, super);

    return (loop.faults.async_sends && (send != NULL)) ? complete_later(x, send) : KVCL_OK;
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

    pthread_mutex_lock(&loop.lock);
    link = kvcl_list_first(&x->inbox);
    if (link != NULL) {
        msg = kvcl_container_of(link, loop_msg_t, link);
        if (msg->after > x->rounds) {
            msg = NULL;
        } else {
            kvcl_list_del(link);
        }
    }
    pthread_mutex_unlock(&loop.lock);
    return msg;
}

static unsigned deliver_failed(loop_xport_t *x)
{
    kvcl_list_t *link;
    unsigned    n = 0;

    for (;;) {
        pthread_mutex_lock(&loop.lock);
        link = kvcl_list_pop(&x->failed);
        pthread_mutex_unlock(&loop.lock);
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

    pthread_mutex_lock(&loop.lock);
    ++x->rounds;
    pthread_mutex_unlock(&loop.lock);
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

    pthread_mutex_lock(&loop.lock);
    if (x->signaled) {
        (void)!read(x->efd, &count, sizeof(count));
        x->signaled = false;
    }
    x->armed = kvcl_list_is_empty(&x->inbox) && kvcl_list_is_empty(&x->failed) && (x->done_head == NULL);
    pthread_mutex_unlock(&loop.lock);
    return x->armed ? KVCL_OK : KVCL_ERR_BUSY;
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
    .mem_alloc = loop_mem_alloc,
    .mem_register = loop_mem_register,
    .mem_free = loop_mem_free,
    .mem_pack = loop_mem_pack,
    .rmem_open = loop_rmem_open,
    .rmem_close = loop_rmem_close,
    .get = loop_get,
    .put = loop_put,
    .flush = loop_flush,
    .outstanding = loop_outstanding,
    .progress = loop_progress,
    .event_fd = loop_event_fd,
    .arm = loop_arm
};
