/*
 * A port that answers questions (sock_port.h).
 *
 * Owns: the thread, its epoll, the listener and the visitors. Invariants: only the thread touches visitors; one is
 * freed by its own event or its deadline, or after all events of a batch, so no event of the batch names a freed one.
 * While the process has no descriptor or memory to accept, the listener is not watched: nothing spins. Locks: none.
 */
#include "config.h"
#include "sock/sock_port.h"
#include "base/error.h"
#include "base/list.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/thread.h"
#include "sock/sock_listen.h"
#include "sock/sock_stream.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { BATCH = 16 };
#define FULL_NS (100 * KVCL_NS_PER_MS)

typedef struct visitor {
    kvcl_list_t        link;
    kvcl_sock_stream_t stream;
    uint64_t           deadline_ns;
    size_t             asked; /* bytes of its question that are here */
    uint8_t            question[KVCL_SOCK_QUESTION_MAX];
    uint8_t            *answer; /* with its length in front; NULL: not asked for yet */
    size_t             len, given;
} visitor_t;

struct kvcl_sock_port {
    pthread_t            thread;
    bool                 has_thread;
    _Atomic bool         stop;
    int                  epfd;
    int                  wake_fd;
    kvcl_sock_listener_t listener;
    kvcl_sock_side_t     side;
    kvcl_list_t          visitors;
    unsigned             n_visitors;
    uint64_t             watch_ns; /* the listener is watched again then; KVCL_DEADLINE_NONE: it is watched */
    kvcl_sock_port_params_t params;
};

static void dismiss(kvcl_sock_port_t *port, visitor_t *visitor)
{
    kvcl_sock_close(&visitor->stream, port->epfd);
    kvcl_list_del(&visitor->link);
    --port->n_visitors;
    free(visitor->answer);
    free(visitor);
}

/* Read what is left of the question. KVCL_OK: all of it is here. */
static kvcl_status_t hear(const kvcl_sock_port_t *port, visitor_t *visitor)
{
    struct iovec iov;
    ssize_t      n;

    while (visitor->asked < port->params.question_len) {
        iov = (struct iovec){visitor->question + visitor->asked, port->params.question_len - visitor->asked};
        n   = kvcl_sock_recv(&visitor->stream, &iov, 1);
        if (n < 0) {
            return KVCL_ERR_UNREACHABLE;
        }
        if ((n == 0) && !visitor->stream.readable) {
            return KVCL_INPROGRESS;
        }
        visitor->asked += (size_t)n;
    }
    return KVCL_OK;
}

static kvcl_status_t find_answer(const kvcl_sock_port_t *port, visitor_t *visitor)
{
    uint32_t len32;
    size_t   len   = 0;
    void     *body = port->params.answer(port->params.arg, visitor->question, &len);

    if ((body != NULL) && (len > 0) && (len <= KVCL_SOCK_ANSWER_MAX)) {
        visitor->answer = malloc(sizeof(len32) + len);
    }
    if (visitor->answer != NULL) {
        len32 = (uint32_t)len;
        memcpy(visitor->answer, &len32, sizeof(len32));
        memcpy(visitor->answer + sizeof(len32), body, len);
        visitor->len = sizeof(len32) + len;
    }
    free(body);
    return (visitor->answer != NULL) ? KVCL_OK : KVCL_ERR_UNREACHABLE;
}

/* Give what the socket takes. KVCL_OK: it has everything. */
static kvcl_status_t give(visitor_t *visitor)
{
    struct iovec iov;
    ssize_t      n;
    int          flushed;

    while (visitor->given < visitor->len) {
        iov = (struct iovec){visitor->answer + visitor->given, visitor->len - visitor->given};
        n   = kvcl_sock_send(&visitor->stream, &iov, 1);
        if (n <= 0) {
            return (n == 0) ? KVCL_INPROGRESS : KVCL_ERR_UNREACHABLE;
        }
        visitor->given += (size_t)n;
    }
    flushed = kvcl_sock_flush(&visitor->stream);
    return (flushed == 1) ? KVCL_OK : (flushed == 0) ? KVCL_INPROGRESS : KVCL_ERR_UNREACHABLE;
}

static void attend(kvcl_sock_port_t *port, visitor_t *visitor)
{
    kvcl_status_t status = (visitor->stream.state == KVCL_SOCK_OPEN) ? KVCL_OK : kvcl_sock_shake(&visitor->stream);

    if (status < 0) {
        kvcl_log_debug("a connection to %s is refused: %s", port->params.what, kvcl_last_error());
    }
    if ((status == KVCL_OK) && (visitor->answer == NULL)) {
        status = hear(port, visitor);
        status = (status == KVCL_OK) ? find_answer(port, visitor) : status;
    }
    status = (status == KVCL_OK) ? give(visitor) : status;
    if (status != KVCL_INPROGRESS) {
        dismiss(port, visitor);
    }
}

static void watch_listener(kvcl_sock_port_t *port, bool on)
{
    struct epoll_event ev = {.events = on ? EPOLLIN : 0, .data.ptr = port};

    port->watch_ns = on ? KVCL_DEADLINE_NONE : kvcl_deadline_after(FULL_NS);
    (void)epoll_ctl(port->epfd, EPOLL_CTL_MOD, port->listener.fd, &ev);
}

/* One of those that have sent nothing valid, if they are half of all or more. */
static void make_room(kvcl_sock_port_t *port)
{
    visitor_t *visitor;
    unsigned  silent = 0, left;
    uint64_t  chance = 0;

    kvcl_list_foreach (visitor, &port->visitors, visitor_t, link) {
        silent += visitor->stream.heard ? 0 : 1;
    }
    if (silent < port->n_visitors / 2) {
        silent = 0;
    }
    if (kvcl_random_bytes(&chance, sizeof(chance)) != KVCL_OK) {
        chance = 0;
    }
    left = (unsigned)(chance % ((silent > 0) ? silent : port->n_visitors));
    kvcl_list_foreach (visitor, &port->visitors, visitor_t, link) {
        if (((silent == 0) || !visitor->stream.heard) && (left-- == 0)) {
            dismiss(port, visitor);
            return;
        }
    }
}

static void admit(kvcl_sock_port_t *port, int fd)
{
    const kvcl_sock_tuning_t tuning   = {0};
    visitor_t                *visitor = calloc(1, sizeof(*visitor));
    struct epoll_event       ev       = {.events = (uint32_t)KVCL_SOCK_EVENTS, .data.ptr = visitor};

    if (visitor == NULL) {
        close(fd);
        return;
    }
    if (port->n_visitors >= KVCL_SOCK_VISITORS) {
        make_room(port);
    }
    kvcl_sock_adopt(&visitor->stream, fd, &port->side, &tuning);
    visitor->deadline_ns = kvcl_deadline_after(KVCL_SOCK_SHAKE_NS);
    kvcl_list_add_tail(&port->visitors, &visitor->link);
    ++port->n_visitors;
    if (epoll_ctl(port->epfd, EPOLL_CTL_ADD, fd, &ev) != 0) {
        dismiss(port, visitor);
        return;
    }
    visitor->stream.readable = true; /* its first message is mostly there already */
    attend(port, visitor);
}

static void accept_some(kvcl_sock_port_t *port)
{
    int i, fd = 0;

    for (i = 0; (i < BATCH) && (fd >= 0); ++i) {
        fd = kvcl_sock_accept(&port->listener);
        if (fd >= 0) {
            admit(port, fd);
        }
    }
    if (fd == -2) {
        kvcl_log_debug("a connection to %s cannot be accepted now: %m", port->params.what);
        watch_listener(port, false);
    }
}

/* @return when to look again. */
static uint64_t expire(kvcl_sock_port_t *port, uint64_t now)
{
    uint64_t  next;
    visitor_t *visitor, *tmp;

    if (now >= port->watch_ns) {
        watch_listener(port, true);
    }
    next = port->watch_ns;
    kvcl_list_foreach_safe (visitor, tmp, &port->visitors, visitor_t, link) {
        if (now >= visitor->deadline_ns) {
            dismiss(port, visitor);
        } else if (visitor->deadline_ns < next) {
            next = visitor->deadline_ns;
        }
    }
    return next;
}

static void *serve(void *arg)
{
    kvcl_sock_port_t   *port = arg;
    struct epoll_event ev[BATCH];
    bool               knocked;
    int                i, n;

    while (!atomic_load(&port->stop)) {
        n = epoll_wait(port->epfd, ev, BATCH, kvcl_deadline_poll_ms(expire(port, kvcl_now_ns())));
        knocked = false;
        for (i = 0; i < n; ++i) {
            if (ev[i].data.ptr == port) {
                knocked = true;
            } else if (ev[i].data.ptr != NULL) { /* NULL: woken to stop */
                visitor_t *visitor = ev[i].data.ptr;

                kvcl_sock_event(&visitor->stream, ev[i].events);
                attend(port, visitor);
            }
        }
        if (knocked) {
            accept_some(port);
        }
    }
    kvcl_sock_unlisten(&port->listener, port->epfd);
    while (!kvcl_list_is_empty(&port->visitors)) {
        dismiss(port, kvcl_list_head(&port->visitors, visitor_t, link));
    }
    return NULL;
}

static kvcl_status_t start(kvcl_sock_port_t *port)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = port};
    int                err;

    port->epfd    = epoll_create1(EPOLL_CLOEXEC);
    port->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if ((port->epfd < 0) || (port->wake_fd < 0) ||
        (epoll_ctl(port->epfd, EPOLL_CTL_ADD, port->listener.fd, &ev) != 0) ||
        (ev.data.ptr = NULL, epoll_ctl(port->epfd, EPOLL_CTL_ADD, port->wake_fd, &ev) != 0)) {
        return kvcl_fail_errno(KVCL_ERR_IO, errno, "cannot watch a port");
    }
    err              = kvcl_thread_start(&port->thread, "kvcl-port", serve, port);
    port->has_thread = (err == 0);
    return (err == 0) ? KVCL_OK : kvcl_fail_errno(KVCL_ERR_NO_MEMORY, err, "no thread for a port");
}

kvcl_status_t kvcl_sock_port_open(const kvcl_sock_port_params_t *params, char where[KVCL_HOSTPORT_MAX],
                                  kvcl_sock_port_t **port_p)
{
    kvcl_sock_port_t *port = calloc(1, sizeof(*port));
    kvcl_status_t    status;

    if (port == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a port");
    }
    port->epfd = port->wake_fd = port->listener.fd = -1;
    port->watch_ns = KVCL_DEADLINE_NONE;
    port->params   = *params;
    port->side     = (kvcl_sock_side_t){.secret = params->secret, .wire = KVCL_SOCK_AEAD,
                                        .cipher = kvcl_aead_preferred()};
    memcpy(port->side.id, params->id, sizeof(port->side.id));
    kvcl_list_init(&port->visitors);
    status = kvcl_hostport_listen(params->at, params->what, &port->listener.fd, where);
    if (status == KVCL_OK) {
        status = start(port);
    }
    if (status != KVCL_OK) {
        kvcl_sock_port_close(port);
        return status;
    }
    *port_p = port;
    return KVCL_OK;
}

void kvcl_sock_port_stop(kvcl_sock_port_t *port)
{
    if (port != NULL) {
        atomic_store(&port->stop, true);
        (void)eventfd_write(port->wake_fd, 1);
    }
}

void kvcl_sock_port_close(kvcl_sock_port_t *port)
{
    if (port == NULL) {
        return;
    }
    if (port->has_thread) {
        kvcl_sock_port_stop(port);
        pthread_join(port->thread, NULL);
    }
    kvcl_sock_unlisten(&port->listener, -1);
    if (port->epfd >= 0) {
        close(port->epfd);
    }
    if (port->wake_fd >= 0) {
        close(port->wake_fd);
    }
    free(port);
}
