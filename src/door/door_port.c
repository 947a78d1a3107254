/*
 * The port of a door (door_port.h).
 *
 * Owns: the thread, its epoll, the listener and the visitors. Invariants: only the thread touches visitors; one is
 * freed by its own event or its deadline, or after all events of a batch, so no event of the batch names a freed one.
 * While the process has no descriptor or memory to accept, the listener is not watched: nothing spins. Locks: none.
 */
#include "config.h"
#include "door/door_port.h"
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

const uint8_t kvcl_door_id[KVCL_SOCK_ID_LEN] = "kvcl door";

typedef struct visitor {
    kvcl_list_t        link;
    kvcl_sock_stream_t stream;
    uint64_t           deadline_ns;
    size_t             given; /* bytes of the port's gift */
} visitor_t;

struct kvcl_door_port {
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
    size_t               len;
    uint8_t              gift[];   /* the length of the address, and the address */
};

static void dismiss(kvcl_door_port_t *port, visitor_t *visitor)
{
    kvcl_sock_close(&visitor->stream, port->epfd);
    kvcl_list_del(&visitor->link);
    --port->n_visitors;
    free(visitor);
}

/* Give what the socket takes. KVCL_OK: it has everything. */
static kvcl_status_t give(const kvcl_door_port_t *port, visitor_t *visitor)
{
    struct iovec iov;
    ssize_t      n;
    int          flushed;

    while (visitor->given < port->len) {
        iov = (struct iovec){(void *)(uintptr_t)(port->gift + visitor->given), port->len - visitor->given};
        n   = kvcl_sock_send(&visitor->stream, &iov, 1);
        if (n <= 0) {
            return (n == 0) ? KVCL_INPROGRESS : KVCL_ERR_UNREACHABLE;
        }
        visitor->given += (size_t)n;
    }
    flushed = kvcl_sock_flush(&visitor->stream);
    return (flushed == 1) ? KVCL_OK : (flushed == 0) ? KVCL_INPROGRESS : KVCL_ERR_UNREACHABLE;
}

static void attend(kvcl_door_port_t *port, visitor_t *visitor)
{
    kvcl_status_t status = (visitor->stream.state == KVCL_SOCK_OPEN) ? KVCL_OK : kvcl_sock_shake(&visitor->stream);

    if (status == KVCL_OK) {
        status = give(port, visitor);
    } else if (status < 0) {
        kvcl_log_debug("a connection to the door is refused: %s", kvcl_last_error());
    }
    if (status != KVCL_INPROGRESS) {
        dismiss(port, visitor);
    }
}

static void watch_listener(kvcl_door_port_t *port, bool on)
{
    struct epoll_event ev = {.events = on ? EPOLLIN : 0, .data.ptr = port};

    port->watch_ns = on ? KVCL_DEADLINE_NONE : kvcl_deadline_after(FULL_NS);
    (void)epoll_ctl(port->epfd, EPOLL_CTL_MOD, port->listener.fd, &ev);
}

/* One of those that have sent nothing valid, if they are half of all or more. */
static void make_room(kvcl_door_port_t *port)
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

static void admit(kvcl_door_port_t *port, int fd)
{
    const kvcl_sock_tuning_t tuning   = {0};
    visitor_t                *visitor = calloc(1, sizeof(*visitor));
    struct epoll_event       ev       = {.events = (uint32_t)KVCL_SOCK_EVENTS, .data.ptr = visitor};

    if (visitor == NULL) {
        close(fd);
        return;
    }
    if (port->n_visitors >= KVCL_DOOR_VISITORS) {
        make_room(port);
    }
    kvcl_sock_adopt(&visitor->stream, fd, &port->side, &tuning);
    visitor->deadline_ns = kvcl_deadline_after(KVCL_DOOR_SHAKE_NS);
    kvcl_list_add_tail(&port->visitors, &visitor->link);
    ++port->n_visitors;
    if (epoll_ctl(port->epfd, EPOLL_CTL_ADD, fd, &ev) != 0) {
        dismiss(port, visitor);
        return;
    }
    visitor->stream.readable = true; /* its first message is mostly there already */
    attend(port, visitor);
}

static void accept_some(kvcl_door_port_t *port)
{
    int i, fd = 0;

    for (i = 0; (i < BATCH) && (fd >= 0); ++i) {
        fd = kvcl_sock_accept(&port->listener);
        if (fd >= 0) {
            admit(port, fd);
        }
    }
    if (fd == -2) {
        kvcl_log_debug("a connection to the door cannot be accepted now: %m");
        watch_listener(port, false);
    }
}

/* @return when to look again. */
static uint64_t expire(kvcl_door_port_t *port, uint64_t now)
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
    kvcl_door_port_t   *port = arg;
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

static kvcl_status_t start(kvcl_door_port_t *port)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = port};
    int                err;

    port->epfd    = epoll_create1(EPOLL_CLOEXEC);
    port->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if ((port->epfd < 0) || (port->wake_fd < 0) ||
        (epoll_ctl(port->epfd, EPOLL_CTL_ADD, port->listener.fd, &ev) != 0) ||
        (ev.data.ptr = NULL, epoll_ctl(port->epfd, EPOLL_CTL_ADD, port->wake_fd, &ev) != 0)) {
        return kvcl_fail_errno(KVCL_ERR_IO, errno, "cannot watch a door");
    }
    err              = kvcl_thread_start(&port->thread, "kvcl-door", serve, port);
    port->has_thread = (err == 0);
    return (err == 0) ? KVCL_OK : kvcl_fail_errno(KVCL_ERR_NO_MEMORY, err, "no thread for a door");
}

kvcl_status_t kvcl_door_port_open(const char *at, const uint8_t *secret, const void *address, size_t len,
                                  char where[KVCL_HOSTPORT_MAX], kvcl_door_port_t **port_p)
{
    const uint32_t   len32 = (uint32_t)len;
    kvcl_door_port_t *port = calloc(1, sizeof(*port) + sizeof(len32) + len);
    kvcl_status_t    status;

    if (port == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a door");
    }
    port->epfd = port->wake_fd = port->listener.fd = -1;
    port->watch_ns = KVCL_DEADLINE_NONE;
    port->len      = sizeof(len32) + len;
    port->side     = (kvcl_sock_side_t){.secret = secret, .wire = KVCL_SOCK_AEAD, .cipher = kvcl_aead_preferred()};
    memcpy(port->side.id, kvcl_door_id, sizeof(kvcl_door_id));
    memcpy(port->gift, &len32, sizeof(len32));
    memcpy(port->gift + sizeof(len32), address, len);
    kvcl_list_init(&port->visitors);
    status = kvcl_hostport_listen(at, "kvcl_context_listen", &port->listener.fd, where);
    if (status == KVCL_OK) {
        status = start(port);
    }
    if (status != KVCL_OK) {
        kvcl_door_port_close(port);
        return status;
    }
    *port_p = port;
    return KVCL_OK;
}

void kvcl_door_port_stop(kvcl_door_port_t *port)
{
    if (port != NULL) {
        atomic_store(&port->stop, true);
        (void)eventfd_write(port->wake_fd, 1);
    }
}

void kvcl_door_port_close(kvcl_door_port_t *port)
{
    if (port == NULL) {
        return;
    }
    if (port->has_thread) {
        kvcl_door_port_stop(port);
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
