/*
 * Sockets of a tcp meeting, see boot_sock.h. Nothing here is shared between threads.
 */
#include "config.h"
#include "boot/boot_sock.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hostport.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <fcntl.h>

/* ---------------------------------------------------------------- addresses */

static int is_loopback(const struct sockaddr *sa)
{
    if (sa->sa_family == AF_INET) {
        return (ntohl(((const struct sockaddr_in *)(const void *)sa)->sin_addr.s_addr) >> 24) == 127;
    }
    return (sa->sa_family == AF_INET6) &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr);
}

static void add_addr(kvcl_boot_addr_t *addr, const struct sockaddr *sa, socklen_t len)
{
    if (addr->count < KVCL_BOOT_ADDRS_MAX) {
        memcpy(&addr->addrs[addr->count], sa, len);
        addr->lens[addr->count] = len;
        addr->loopback          = addr->loopback && is_loopback(sa);
        ++addr->count;
    }
}

kvcl_status_t kvcl_boot_addr_resolve(const char *url, kvcl_boot_addr_t *addr)
{
    kvcl_hostport_addrs_t found;
    kvcl_hostport_t       hostport;
    kvcl_status_t         status;
    size_t                i;

    memset(addr, 0, sizeof(*addr));
    addr->loopback = 1;
    if ((strncmp(url, "tcp://", 6) != 0) ||
        (kvcl_hostport_parse(url + 6, "KVCL_RENDEZVOUS", 1, &hostport) != KVCL_OK)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_RENDEZVOUS=%s: expected tcp://host:port, port 1 to 65535", url);
    }
    snprintf(addr->url, sizeof(addr->url), "%s", url);
    status = kvcl_hostport_resolve(&hostport, "KVCL_RENDEZVOUS", &found);
    for (i = 0; (status == KVCL_OK) && (i < found.n); ++i) {
        add_addr(addr, (const struct sockaddr *)&found.at[i], found.len[i]);
    }
    return status;
}

static void set_port(struct sockaddr_storage *ss, in_port_t port)
{
    if (ss->ss_family == AF_INET) {
        ((struct sockaddr_in *)(void *)ss)->sin_port = port;
    } else {
        ((struct sockaddr_in6 *)(void *)ss)->sin6_port = port;
    }
}

static in_port_t get_port(const struct sockaddr_storage *ss)
{
    return (ss->ss_family == AF_INET) ? ((const struct sockaddr_in *)(const void *)ss)->sin_port
                                      : ((const struct sockaddr_in6 *)(const void *)ss)->sin6_port;
}

static void add_interface(kvcl_boot_addr_t *addr, const char *name)
{
    struct ifaddrs *all = NULL;
    struct ifaddrs *ifa;

    if (getifaddrs(&all) != 0) {
        return;
    }
    for (ifa = all; ifa != NULL; ifa = ifa->ifa_next) {
        if ((ifa->ifa_addr == NULL) || (strcmp(ifa->ifa_name, name) != 0)) {
            continue;
        }
        if (ifa->ifa_addr->sa_family == AF_INET) {
            add_addr(addr, ifa->ifa_addr, sizeof(struct sockaddr_in));
        } else if (ifa->ifa_addr->sa_family == AF_INET6) {
            add_addr(addr, ifa->ifa_addr, sizeof(struct sockaddr_in6));
        }
    }
    freeifaddrs(all);
}

kvcl_status_t kvcl_boot_addr_bind_to(kvcl_boot_addr_t *addr, const char *interface)
{
    struct addrinfo  hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    struct addrinfo *found = NULL;
    in_port_t        port  = get_port(&addr->addrs[0]);
    int              i;

    addr->count    = 0;
    addr->loopback = 1;
    if (getaddrinfo(interface, NULL, &hints, &found) == 0) {
        add_addr(addr, found->ai_addr, found->ai_addrlen);
        freeaddrinfo(found);
    } else {
        add_interface(addr, interface);
    }
    for (i = 0; i < addr->count; ++i) {
        set_port(&addr->addrs[i], port);
    }
    return (addr->count > 0) ? KVCL_OK
                             : kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s is neither an interface of this host with an "
                                         "address nor a numeric address", interface);
}

/* ---------------------------------------------------------------- sockets */

void kvcl_boot_sock_tune(int fd)
{
    int one = 1;

    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
}

kvcl_status_t kvcl_boot_sock_listen(const kvcl_boot_addr_t *addr, int *fd_p, int *err_p)
{
    int one = 1;
    int fd, i;

    *err_p = EADDRNOTAVAIL;
    for (i = 0; i < addr->count; ++i) {
        fd = socket(addr->addrs[i].ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0) {
            *err_p = errno;
            continue;
        }
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        if ((bind(fd, (const struct sockaddr *)&addr->addrs[i], addr->lens[i]) == 0) && (listen(fd, SOMAXCONN) == 0)) {
            *fd_p = fd;
            return KVCL_OK;
        }
        *err_p = errno;
        close(fd);
        if (*err_p == EADDRINUSE) {
            return KVCL_ERR_BUSY;
        }
        if ((*err_p != EADDRNOTAVAIL) && (*err_p != EAFNOSUPPORT)) {
            return KVCL_ERR_IO;
        }
    }
    return KVCL_ERR_UNREACHABLE;
}

/* Wait for events; 0, or an errno. */
static int wait_fd(int fd, short events, uint64_t deadline_ns)
{
    struct pollfd pfd = {.fd = fd, .events = events};
    int           n;

    do {
        n = poll(&pfd, 1, kvcl_deadline_poll_ms(deadline_ns));
    } while (((n < 0) && (errno == EINTR)) || ((n == 0) && !kvcl_deadline_passed(deadline_ns)));
    return (n > 0) ? 0 : (n == 0) ? ETIMEDOUT : errno;
}

/* 0, or an errno. */
static int connect_one(const struct sockaddr *sa, socklen_t len, uint64_t deadline_ns, int *fd_p)
{
    socklen_t err_len = sizeof(int);
    int       err     = 0;
    int       fd      = socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return errno;
    }
    if (connect(fd, sa, len) != 0) {
        err = errno;
        if ((err == EINPROGRESS) || (err == EINTR)) {
            err = wait_fd(fd, POLLOUT, deadline_ns);
            if ((err == 0) && (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &err_len) != 0)) {
                err = errno;
            }
        }
    }
    if (err != 0) {
        close(fd);
        return err;
    }
    kvcl_boot_sock_tune(fd);
    *fd_p = fd;
    return 0;
}

/* On loopback, connecting to a free ephemeral port can succeed by meeting itself. */
static int is_self_connected(int fd)
{
    struct sockaddr_storage own  = {0};
    struct sockaddr_storage peer = {0};
    socklen_t               own_len = sizeof(own), peer_len = sizeof(peer);

    return (getsockname(fd, (struct sockaddr *)&own, &own_len) == 0) &&
           (getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0) && (own_len == peer_len) &&
           (memcmp(&own, &peer, own_len) == 0);
}

kvcl_status_t kvcl_boot_sock_connect(const kvcl_boot_addr_t *addr, uint64_t deadline_ns, int *fd_p, int *err_p)
{
    int i;

    *err_p = EADDRNOTAVAIL;
    for (i = 0; i < addr->count; ++i) {
        *err_p = connect_one((const struct sockaddr *)&addr->addrs[i], addr->lens[i], deadline_ns, fd_p);
        if (*err_p == 0) {
            if (!is_self_connected(*fd_p)) {
                return KVCL_OK;
            }
            close(*fd_p);
            *err_p = ECONNREFUSED;
        }
    }
    return KVCL_ERR_UNREACHABLE;
}

static kvcl_status_t io_failed(int err, const char *what)
{
    kvcl_status_t status = ((err == EPIPE) || (err == ECONNRESET)) ? KVCL_ERR_UNREACHABLE : KVCL_ERR_IO;

    return kvcl_fail_errno((err == ETIMEDOUT) ? KVCL_ERR_TIMED_OUT : status, err, "%s the rendezvous", what);
}

kvcl_status_t kvcl_boot_sock_send(int fd, const void *buf, size_t len, uint64_t deadline_ns)
{
    const char *pos = (const char *)buf;
    ssize_t     n;
    int         err;

    while (len > 0) {
        n = send(fd, pos, len, MSG_NOSIGNAL);
        if (n >= 0) {
            pos += n;
            len -= (size_t)n;
            continue;
        }
        err = (errno == EAGAIN) ? wait_fd(fd, POLLOUT, deadline_ns) : errno;
        if ((err != 0) && (err != EINTR)) {
            return io_failed(err, "sending to");
        }
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_boot_sock_recv(int fd, void *buf, size_t len, uint64_t deadline_ns)
{
    char   *pos = (char *)buf;
    ssize_t n;
    int     err;

    while (len > 0) {
        n = recv(fd, pos, len, 0);
        if (n > 0) {
            pos += n;
            len -= (size_t)n;
            continue;
        }
        if (n == 0) {
            return kvcl_fail(KVCL_ERR_UNREACHABLE, "the rendezvous closed the connection");
        }
        err = (errno == EAGAIN) ? wait_fd(fd, POLLIN, deadline_ns) : errno;
        if ((err != 0) && (err != EINTR)) {
            return io_failed(err, "waiting for");
        }
    }
    return KVCL_OK;
}
