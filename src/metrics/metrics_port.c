/*
 * The port of KVCL_METRICS (metrics_port.h).
 *
 * Owns: the thread, the listener, the visitors and the text. Invariants: only the thread touches visitors and texts; a
 * text lives as long as the port or a visitor holds it. While the process has no descriptor to accept, the listener is
 * not watched: nothing spins. Locks: none.
 */
#include "config.h"
#include "metrics/metrics_port.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

enum { HEAD_MAX = 256, WAKE = 0, LISTENER = 1, FIRST = 2 };
#define FULL_NS (100 * KVCL_NS_PER_MS)

typedef struct text {
    unsigned holders;
    uint64_t made_ns;
    size_t   len;
    char     *bytes;
} text_t;

typedef struct visitor {
    int      fd;
    uint64_t deadline_ns;
    size_t   got;     /* bytes of the request */
    bool     replies; /* the request has been read */
    char     head[HEAD_MAX]; /* of the reply */
    size_t   head_len, sent; /* sent: of the head and the text */
    text_t   *text;   /* the reply's; NULL: it has none */
    char     request[KVCL_METRICS_REQUEST + 1];
} visitor_t;

struct kvcl_metrics_port {
    pthread_t            thread;
    bool                 has_thread;
    _Atomic bool         stop;
    int                  fd, wake_fd;
    uint64_t             watch_ns; /* the listener is watched again then; KVCL_DEADLINE_NONE: it is watched */
    kvcl_metrics_write_t write;
    void                 *arg;
    text_t               *latest; /* NULL: none was made */
    unsigned             n;
    visitor_t            *visitors[KVCL_METRICS_VISITORS]; /* n, the oldest first */
};

/* ---- the text ---- */

static void drop(text_t *text)
{
    if ((text != NULL) && (--text->holders == 0)) {
        free(text->bytes);
        free(text);
    }
}

/* The latest text, made anew if it is old; NULL: no memory. */
static text_t *take_text(kvcl_metrics_port_t *port)
{
    const uint64_t now = kvcl_now_ns();
    text_t         *text;
    FILE           *file;

    if ((port->latest != NULL) && (now - port->latest->made_ns < KVCL_METRICS_FRESH_NS)) {
        ++port->latest->holders;
        return port->latest;
    }
    text = calloc(1, sizeof(*text));
    file = (text != NULL) ? open_memstream(&text->bytes, &text->len) : NULL;
    if (file == NULL) {
        free(text);
        return NULL;
    }
    port->write(port->arg, file);
    if (fclose(file) != 0) {
        free(text->bytes);
        free(text);
        return NULL;
    }
    drop(port->latest);
    port->latest  = text;
    text->made_ns = now;
    text->holders = 2; /* the port and the visitor */
    return text;
}

/* ---- a visitor ---- */

static void reply(visitor_t *visitor, const char *status, text_t *text, bool with_body, const char *type)
{
    visitor->replies  = true;
    visitor->text     = with_body ? text : NULL;
    visitor->head_len = (size_t)snprintf(visitor->head, sizeof(visitor->head),
                                         "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                                         "Connection: close\r\n\r\n", status, type, (text != NULL) ? text->len : 0);
    if (!with_body) {
        drop(text);
    }
}

/* The method is followed by the path and a space, or by "?" and what a client likes. */
static bool asks(const char *request, const char *method)
{
    static const char path[] = " /metrics";
    const size_t      len    = strlen(method);

    return (strncmp(request, method, len) == 0) && (strncmp(request + len, path, sizeof(path) - 1) == 0) &&
           (strchr(" ?", request[len + sizeof(path) - 1]) != NULL) && (request[len + sizeof(path) - 1] != '\0');
}

/* The request has its empty line: only the first line matters. */
static void answer(kvcl_metrics_port_t *port, visitor_t *visitor)
{
    const bool get = asks(visitor->request, "GET"), head = asks(visitor->request, "HEAD");
    text_t     *text;

    if (get || head) {
        text = take_text(port);
        reply(visitor, (text != NULL) ? "200 OK" : "503 Service Unavailable", text, get,
              "text/plain; version=0.0.4; charset=utf-8");
    } else if ((strncmp(visitor->request, "GET ", 4) == 0) || (strncmp(visitor->request, "HEAD ", 5) == 0)) {
        reply(visitor, "404 Not Found", NULL, true, "text/plain");
    } else {
        reply(visitor, "405 Method Not Allowed", NULL, true, "text/plain");
    }
}

/* False: the visitor is over. */
static bool read_some(kvcl_metrics_port_t *port, visitor_t *visitor)
{
    const ssize_t n = recv(visitor->fd, visitor->request + visitor->got, KVCL_METRICS_REQUEST - visitor->got,
                           MSG_DONTWAIT);

    if (n <= 0) {
        return (n < 0) && ((errno == EAGAIN) || (errno == EINTR));
    }
    visitor->got                  += (size_t)n;
    visitor->request[visitor->got] = '\0'; /* what follows a zero byte is not looked at */
    if ((strstr(visitor->request, "\r\n\r\n") != NULL) || (strstr(visitor->request, "\n\n") != NULL)) {
        answer(port, visitor);
    } else if (visitor->got == KVCL_METRICS_REQUEST) {
        reply(visitor, "431 Request Header Fields Too Large", NULL, true, "text/plain");
    }
    return true;
}

static bool write_some(visitor_t *visitor)
{
    const size_t  body = (visitor->text != NULL) ? visitor->text->len : 0;
    const size_t  from = (visitor->sent > visitor->head_len) ? visitor->sent - visitor->head_len : 0;
    struct iovec  iov[2];
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
    ssize_t       n;

    iov[0] = (struct iovec){visitor->head + visitor->sent, visitor->head_len - visitor->sent};
    if (visitor->sent >= visitor->head_len) {
        iov[0] = (struct iovec){visitor->head, 0};
    }
    iov[1] = (struct iovec){(body != 0) ? visitor->text->bytes + from : NULL, body - from};
    n      = sendmsg(visitor->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) {
        return (errno == EAGAIN) || (errno == EINTR);
    }
    visitor->sent += (size_t)n;
    return visitor->sent < visitor->head_len + body;
}

static bool attend(kvcl_metrics_port_t *port, visitor_t *visitor)
{
    return (visitor->replies || read_some(port, visitor)) && (!visitor->replies || write_some(visitor));
}

/* ---- the thread ---- */

static void dismiss(kvcl_metrics_port_t *port, unsigned i)
{
    visitor_t *visitor = port->visitors[i];

    close(visitor->fd);
    drop(visitor->text);
    free(visitor);
    --port->n;
    memmove(&port->visitors[i], &port->visitors[i + 1], (port->n - i) * sizeof(port->visitors[0]));
}

static void accept_one(kvcl_metrics_port_t *port)
{
    visitor_t *visitor;
    const int fd = accept4(port->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd < 0) {
        if ((errno == EMFILE) || (errno == ENFILE) || (errno == ENOBUFS) || (errno == ENOMEM)) {
            port->watch_ns = kvcl_deadline_after(FULL_NS);
        }
        return;
    }
    visitor = calloc(1, sizeof(*visitor));
    if (visitor == NULL) {
        close(fd);
        return;
    }
    if (port->n == KVCL_METRICS_VISITORS) {
        dismiss(port, 0);
    }
    visitor->fd                = fd;
    visitor->deadline_ns       = kvcl_deadline_after(KVCL_METRICS_NS);
    port->visitors[port->n++] = visitor;
    if (!attend(port, visitor)) { /* its request is mostly there already */
        dismiss(port, port->n - 1);
    }
}

/* Ends those that are late. Returns when to look again. */
static uint64_t expire(kvcl_metrics_port_t *port)
{
    const uint64_t now = kvcl_now_ns();

    port->watch_ns = (now >= port->watch_ns) ? KVCL_DEADLINE_NONE : port->watch_ns;
    while ((port->n != 0) && (port->visitors[0]->deadline_ns <= now)) {
        dismiss(port, 0);
    }
    return ((port->n != 0) && (port->visitors[0]->deadline_ns < port->watch_ns)) ? port->visitors[0]->deadline_ns
                                                                                 : port->watch_ns;
}

static void *serve(void *arg)
{
    kvcl_metrics_port_t *port = arg;
    struct pollfd       fds[FIRST + KVCL_METRICS_VISITORS];
    uint64_t            next;
    unsigned            i, n;

    while (!atomic_load(&port->stop)) {
        next          = expire(port);
        n             = port->n;
        fds[WAKE]     = (struct pollfd){.fd = port->wake_fd, .events = POLLIN};
        fds[LISTENER] = (struct pollfd){.fd = (port->watch_ns == KVCL_DEADLINE_NONE) ? port->fd : -1,
                                        .events = POLLIN};
        for (i = 0; i < n; ++i) {
            fds[FIRST + i] = (struct pollfd){.fd     = port->visitors[i]->fd,
                                             .events = port->visitors[i]->replies ? POLLOUT : POLLIN};
        }
        if (poll(fds, FIRST + n, kvcl_deadline_poll_ms(next)) <= 0) {
            continue;
        }
        for (i = n; i-- > 0;) { /* from the last one: a dismissal moves only those behind it */
            if ((fds[FIRST + i].revents != 0) && !attend(port, port->visitors[i])) {
                dismiss(port, i);
            }
        }
        if (fds[LISTENER].revents != 0) {
            accept_one(port);
        }
    }
    while (port->n != 0) {
        dismiss(port, port->n - 1);
    }
    return NULL;
}

static kvcl_status_t start(kvcl_metrics_port_t *port)
{
    int err;

    port->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (port->wake_fd < 0) {
        return kvcl_fail_errno(KVCL_ERR_IO, errno, "no eventfd for KVCL_METRICS");
    }
    err              = kvcl_thread_start(&port->thread, "kvcl-metrics", serve, port);
    port->has_thread = (err == 0);
    return (err == 0) ? KVCL_OK : kvcl_fail_errno(KVCL_ERR_NO_MEMORY, err, "no thread for KVCL_METRICS");
}

kvcl_status_t kvcl_metrics_port_open(const char *at, const char *what, kvcl_metrics_write_t write, void *arg,
                                     char where[KVCL_HOSTPORT_MAX], kvcl_metrics_port_t **port_p)
{
    kvcl_metrics_port_t *port = calloc(1, sizeof(*port));
    kvcl_status_t       status;

    if (port == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for KVCL_METRICS");
    }
    port->fd = port->wake_fd = -1;
    port->watch_ns = KVCL_DEADLINE_NONE;
    port->write    = write;
    port->arg      = arg;
    status         = kvcl_hostport_listen(at, what, &port->fd, where);
    status         = (status == KVCL_OK) ? start(port) : status;
    if (status != KVCL_OK) {
        kvcl_metrics_port_close(port);
        return status;
    }
    *port_p = port;
    return KVCL_OK;
}

void kvcl_metrics_port_close(kvcl_metrics_port_t *port)
{
    if (port == NULL) {
        return;
    }
    if (port->has_thread) {
        atomic_store(&port->stop, true);
        (void)eventfd_write(port->wake_fd, 1);
        pthread_join(port->thread, NULL);
    }
    if (port->fd >= 0) {
        close(port->fd);
    }
    if (port->wake_fd >= 0) {
        close(port->wake_fd);
    }
    drop(port->latest);
    free(port);
}
