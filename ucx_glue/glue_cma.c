/*
 * Reads of memory that another process of this host registered: the kernel copies it (process_vm_readv), without the
 * owner's processor. The address is the peer's word; the kernel checks it, and an address that the owner does not have
 * is an error. A process can be read by another of its user (ptrace access: not under Yama's ptrace_scope 1 and above,
 * where the owner serves the bytes by message).
 *
 * Owns: the queue of reads. Invariants: progress copies at most PASS bytes, so the engine lock is held for a short
 * time; near reads copy present pages only (glue_look.c); each system call also reads the process's cookie, so that the
 * bytes of another process with a reused id are never returned. Locks: the engine lock.
 */
#include "config.h"
#include "ucx_glue/glue.h"

#include "base/error.h"
#include "base/rand.h"
#include "weave/user_memory.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PIECES = 64, PASS = 1 << 20, LOOK_MIN = 4096 /* less is a word that the peer itself uses */ };

static uint64_t      own_cookie[2];
static kvcl_status_t own_status;

static void make_cookie(void)
{
    own_status = kvcl_random_bytes(own_cookie, sizeof(own_cookie));
}

kvcl_status_t kvcl_glue_cma_self(glue_process_t *self)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, make_cookie);
    *self = (glue_process_t){.pid = (int32_t)getpid(), .cookie_addr = (uintptr_t)own_cookie,
                             .cookie = {own_cookie[0], own_cookie[1]}};
    return own_status;
}

/* Read pieces; the cookie is the first. @return bytes of the pieces 1 to n-1, or -1 with errno. */
static ssize_t read_checked(const glue_process_t *process, struct iovec *to, struct iovec *from, size_t n)
{
    uint64_t cookie[2] = {0, 0};
    ssize_t  got;

    to[0]   = (struct iovec){cookie, sizeof(cookie)};
    from[0] = (struct iovec){(void *)(uintptr_t)process->cookie_addr, sizeof(cookie)};
    got     = process_vm_readv(process->pid, to, n, from, n, 0);
    if ((got >= 0) && ((got < (ssize_t)sizeof(cookie)) || (memcmp(cookie, process->cookie, sizeof(cookie)) != 0))) {
        errno = ESRCH;
        got   = -1;
    }
    return (got < 0) ? -1 : got - (ssize_t)sizeof(cookie);
}

bool kvcl_glue_cma_reaches(const glue_process_t *process)
{
    struct iovec to, from;

    return (process->pid > 0) && (read_checked(process, &to, &from, 1) == 0);
}

kvcl_status_t kvcl_glue_cma_get(const glue_read_t *what)
{
    glue_t      *g    = glue_of(what->ep->super.xport);
    glue_read_t *read = kvcl_mpool_get(&g->reads);

    if (read == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ucx: no memory for a read");
    }
    *read         = *what;
    *g->read_tail = read;
    g->read_tail  = &read->next;
    glue_begin_op(read->ep);
    return KVCL_INPROGRESS;
}

static void end_at(glue_t *g, glue_read_t **at, kvcl_status_t status)
{
    glue_read_t       *read = *at;
    kvcl_xport_send_t *send = read->send;

    *at = read->next;
    if (*at == NULL) {
        g->read_tail = at;
    }
    glue_end_op(read->ep);
    kvcl_mpool_put(&g->reads, read);
    kvcl_glue_complete(g, send, status);
}

static void end(glue_t *g, kvcl_status_t status)
{
    end_at(g, &g->read_head, status);
}

/* A completion may post, at the tail, and stop others. */
static unsigned end_stopped(glue_t *g)
{
    glue_read_t **at = &g->read_head;
    unsigned    n    = 0;

    g->reads_stopped = false;
    while (*at != NULL) {
        if ((*at)->stopped) {
            end_at(g, at, KVCL_ERR_CANCELED);
            ++n;
        } else {
            at = &(*at)->next;
        }
    }
    return n;
}

/* The pieces of one system call, from the reads at the head that name one process. None: the first of them is of an
 * absent page. */
static size_t collect(const glue_t *g, struct iovec *to, struct iovec *from)
{
    const glue_process_t *process = g->read_head->process;
    const glue_read_t    *read;
    size_t               n = 1, bytes = 0, len;

    for (read = g->read_head; (read != NULL) && (n <= PIECES) && (bytes < PASS) && !read->ep->closed; ++n) {
        if (memcmp(read->process, process, sizeof(*process)) != 0) {
            break;
        }
        len = (read->len < PASS - bytes) ? read->len : PASS - bytes;
        if (read->near && (len >= LOOK_MIN) && !kvcl_glue_look(read->ep, process, read->from, len)) {
            break;
        }
        to[n]   = (struct iovec){read->to, len};
        from[n] = (struct iovec){(void *)(uintptr_t)read->from, len};
        bytes  += len;
        read    = (len == read->len) ? read->next : NULL;
    }
    return n;
}

/* Why the read at the head ended after left bytes of its piece, or with errno and none. */
static kvcl_status_t why(const glue_read_t *read, ssize_t left)
{
    if ((left < 0) && (errno != EFAULT)) {
        return (errno == ESRCH) ? KVCL_ERR_RANK_FAILED : KVCL_ERR_ACCESS;
    }
    return (read->near && !kvcl_is_writable(read->to + ((left < 0) ? 0 : left))) ? KVCL_ERR_INVALID_PARAM
                                                                                 : KVCL_ERR_ACCESS;
}

unsigned kvcl_glue_cma_progress(glue_t *g)
{
    struct iovec to[PIECES + 1], from[PIECES + 1];
    glue_ep_t    *ep = g->read_head->ep;
    size_t       n, i, len;
    ssize_t      left;

    if (g->reads_stopped) {
        return end_stopped(g);
    }
    if (ep->closed) {
        end(g, KVCL_ERR_CANCELED);
        return 1;
    }
    n = collect(g, to, from);
    if (n == 1) {
        end(g, KVCL_ERR_BUSY);
        return 1;
    }
    left           = read_checked(g->read_head->process, to, from, n);
    ep->unreadable = ep->unreadable || ((left < 0) && (errno != EFAULT) && (errno != EAGAIN) && (errno != ENOMEM));
    for (i = 1; i < n; ++i) { /* a completion may post, at the tail */
        len = to[i].iov_len;
        if ((left < 0) || ((size_t)left < len)) {
            end(g, why(g->read_head, left));
            return (unsigned)i; /* the later ones are tried again: a hole may end this one only */
        }
        left -= (ssize_t)len;
        g->read_head->to   += len;
        g->read_head->from += len;
        g->read_head->len  -= len;
        if (g->read_head->len == 0) {
            end(g, KVCL_OK);
        }
    }
    return (unsigned)(n - 1);
}

/* ---- memory without a description: near/near_ops.h ---- */

_Static_assert(sizeof(glue_process_t) == KVCL_NEAR_SELF, "what names a process in messages");

bool kvcl_glue_near_self(kvcl_xport_t *xport, void *buf)
{
    return glue_of(xport)->plan.cma && (kvcl_glue_cma_self(buf) == KVCL_OK);
}

bool kvcl_glue_near_reaches(const kvcl_xport_ep_t *super)
{
    const glue_ep_t *ep = kvcl_container_of((kvcl_xport_ep_t *)(uintptr_t)super, glue_ep_t, super);

    return ep->near && !ep->unreadable && !ep->closed && !ep->broken && glue_of(super->xport)->plan.cma;
}

kvcl_status_t kvcl_glue_near_get(kvcl_xport_ep_t *super, const void *self, uint64_t addr, void *buf, size_t len,
                                 kvcl_xport_send_t *send)
{
    const glue_process_t *process = self;

    if (!kvcl_glue_near_reaches(super) || (process->pid <= 0)) {
        return KVCL_ERR_UNSUPPORTED;
    }
    return kvcl_glue_cma_get(&(glue_read_t){.ep      = kvcl_container_of(super, glue_ep_t, super),
                                            .process = process,
                                            .from    = addr,
                                            .to      = buf,
                                            .len     = len,
                                            .send    = send,
                                            .near    = true});
}

void kvcl_glue_near_stop(kvcl_xport_ep_t *super, const kvcl_xport_send_t *send)
{
    glue_t      *g = glue_of(super->xport);
    glue_read_t *read;

    for (read = g->read_head; read != NULL; read = read->next) {
        if (read->send == send) {
            read->stopped    = true;
            g->reads_stopped = true;
        }
    }
}
