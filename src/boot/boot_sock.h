/*
 * Sockets of a tcp meeting: where it is, listening, connecting, and reading and writing with a deadline.
 * Descriptors belong to the caller; all are non-blocking and close-on-exec. No state, no lock.
 */
#ifndef KVCL_BOOT_SOCK_H
#define KVCL_BOOT_SOCK_H

#include <kvcl/kvcl_status.h>

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { KVCL_BOOT_ADDRS_MAX = 8, KVCL_BOOT_HOST_MAX = 256 };

typedef struct kvcl_boot_addr {
    char                    url[KVCL_BOOT_HOST_MAX + 16]; /* as given, for sentences */
    int                     count;
    int                     loopback; /* all of the addresses are */
    struct sockaddr_storage addrs[KVCL_BOOT_ADDRS_MAX];
    socklen_t               lens[KVCL_BOOT_ADDRS_MAX];
} kvcl_boot_addr_t;

/** Resolve "tcp://host:port" ("tcp://[::1]:port"). @return KVCL_OK, INVALID_PARAM, UNREACHABLE. */
kvcl_status_t kvcl_boot_addr_resolve(const char *url, kvcl_boot_addr_t *addr) KVCL_MUST_CHECK;

/**
 * Replace the addresses by that of an interface ("eth0") or by a numeric address of this host, keeping the
 * port: where to listen when the name in the URL is not this host's own.
 */
kvcl_status_t kvcl_boot_addr_bind_to(kvcl_boot_addr_t *addr, const char *interface) KVCL_MUST_CHECK;

/**
 * Listen on the first address that is this host's.
 * @return KVCL_OK, KVCL_ERR_BUSY (someone serves there), KVCL_ERR_UNREACHABLE (not an address of this host),
 *         KVCL_ERR_IO; *err_p is the errno for the caller's sentence.
 */
kvcl_status_t kvcl_boot_sock_listen(const kvcl_boot_addr_t *addr, int *fd_p, int *err_p) KVCL_MUST_CHECK;

/** Try each address once, until the deadline. @return KVCL_OK, KVCL_ERR_UNREACHABLE (*err_p: errno). */
kvcl_status_t kvcl_boot_sock_connect(const kvcl_boot_addr_t *addr, uint64_t deadline_ns, int *fd_p, int *err_p)
        KVCL_MUST_CHECK;

/** Non-blocking, close-on-exec, no delay, keep-alive, for a descriptor that accept gave. */
void kvcl_boot_sock_tune(int fd);

/* All bytes or an error: KVCL_ERR_TIMED_OUT, KVCL_ERR_UNREACHABLE (the other side has closed), KVCL_ERR_IO. */
kvcl_status_t kvcl_boot_sock_send(int fd, const void *buf, size_t len, uint64_t deadline_ns) KVCL_MUST_CHECK;
kvcl_status_t kvcl_boot_sock_recv(int fd, void *buf, size_t len, uint64_t deadline_ns) KVCL_MUST_CHECK;

#endif
