/*
 * Listening sockets (sock_listen.h). Owns: their descriptors. Locks: none.
 */
#include "config.h"
#include "sock/sock_listen.h"
#include "sock/sock_near.h"
#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* KVCL_ERR_UNREACHABLE: the interface does not have the address now, or IPv6 still looks for its duplicates. */
static kvcl_status_t listen_at(kvcl_sock_listener_t *listener)
{
    kvcl_status_t           status;
    struct sockaddr_storage ss;
    socklen_t               len = kvcl_net_sockaddr(listener->at.family, listener->at.addr, 0, &ss);

    listener->fd = socket(ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener->fd >= 0) {
        kvcl_sock_near_begin(listener->fd); /* what it accepts begins alike */
    }
    if ((listener->fd >= 0) && (bind(listener->fd, (const struct sockaddr *)&ss, len) == 0) &&
        (listen(listener->fd, SOMAXCONN) == 0)) {
        listener->port = kvcl_net_port(listener->fd);
        return KVCL_OK;
    }
    status = kvcl_fail_errno((errno == EADDRNOTAVAIL) ? KVCL_ERR_UNREACHABLE : KVCL_ERR_IO, errno,
                             "KVCL_NET: cannot listen on interface \"%s\"", listener->at.name);
    kvcl_sock_unlisten(listener, -1);
    return status;
}

kvcl_status_t kvcl_sock_listen(const char *names, kvcl_sock_listener_t listeners[KVCL_SOCK_LISTENERS], unsigned *n_p)
{
    kvcl_net_addr_t addrs[KVCL_SOCK_LISTENERS];
    size_t          n = 0, i;
    unsigned        open   = 0;
    bool            more   = false;
    kvcl_status_t   status = kvcl_net_addrs(names, addrs, KVCL_SOCK_LISTENERS, &n, &more), skipped = KVCL_OK;

    for (i = 0; (i < n) && (status == KVCL_OK); ++i) {
        listeners[open] = (kvcl_sock_listener_t){.fd = -1, .at = addrs[i]};
        status          = listen_at(&listeners[open]);
        if (status == KVCL_ERR_UNREACHABLE) {
            kvcl_log_warn("%s; this rank does not accept connections there", kvcl_last_error());
            skipped = KVCL_ERR_IO;
            status  = KVCL_OK;
        } else if (status == KVCL_OK) {
            ++open;
        }
    }
    status = ((status == KVCL_OK) && (open == 0)) ? skipped : status;
    while ((status != KVCL_OK) && (open > 0)) {
        kvcl_sock_unlisten(&listeners[--open], -1);
    }
    if ((status == KVCL_OK) && more) {
        kvcl_log_warn("KVCL_NET=%s: more than %d interfaces have an address; this rank accepts connections on the "
                      "first %d: name those that lead to its peers", names, KVCL_SOCK_LISTENERS, KVCL_SOCK_LISTENERS);
    }
    *n_p = open;
    return status;
}

/* Shut down first: a forked child may hold the descriptor, and would keep the port open. */
void kvcl_sock_unlisten(kvcl_sock_listener_t *listener, int epfd)
{
    if (listener->fd >= 0) {
        if (epfd >= 0) {
            (void)epoll_ctl(epfd, EPOLL_CTL_DEL, listener->fd, NULL);
        }
        (void)shutdown(listener->fd, SHUT_RDWR);
        close(listener->fd);
    }
    listener->fd = -1;
}

int kvcl_sock_accept(const kvcl_sock_listener_t *listener)
{
    int fd;

    do {
        fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    } while ((fd < 0) && ((errno == EINTR) || (errno == ECONNABORTED) || (errno == EPROTO)));
    if (fd >= 0) {
        return fd;
    }
    return (errno == EAGAIN) ? -1 : -2;
}
