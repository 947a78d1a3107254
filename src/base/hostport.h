/*
 * "host:port" as users write it: the text, its addresses, a listening socket. The host is a name, a numeric IPv4
 * address, or a numeric IPv6 address in brackets. No state, no lock.
 */
#ifndef KVCL_BASE_HOSTPORT_H
#define KVCL_BASE_HOSTPORT_H

#include <kvcl/kvcl_status.h>

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { KVCL_HOST_MAX = 256, KVCL_HOSTPORT_MAX = KVCL_HOST_MAX + 16, KVCL_HOSTPORT_ADDRS = 8 };

typedef struct kvcl_hostport {
    char     host[KVCL_HOST_MAX]; /* without brackets */
    uint16_t port;
} kvcl_hostport_t;

typedef struct kvcl_hostport_addrs {
    size_t                  n;
    struct sockaddr_storage at[KVCL_HOSTPORT_ADDRS];
    socklen_t               len[KVCL_HOSTPORT_ADDRS];
} kvcl_hostport_addrs_t;

/** Pure. what: the setting or the call, for the sentence. port_min: 0 or 1. @return KVCL_OK, KVCL_ERR_INVALID_PARAM. */
kvcl_status_t kvcl_hostport_parse(const char *text, const char *what, unsigned port_min,
                                  kvcl_hostport_t *hostport) KVCL_MUST_CHECK;

/** The text, as kvcl_hostport_parse() reads it. @return at. */
const char *kvcl_hostport_print(const kvcl_hostport_t *hostport, char at[KVCL_HOSTPORT_MAX]);

/**
 * The addresses of a host, KVCL_HOSTPORT_ADDRS at most. A name blocks for as long as the system's resolver does.
 * @return KVCL_OK, KVCL_ERR_UNREACHABLE (no such name).
 */
kvcl_status_t kvcl_hostport_resolve(const kvcl_hostport_t *hostport, const char *what,
                                    kvcl_hostport_addrs_t *addrs) KVCL_MUST_CHECK;

/**
 * Listen on the first of its addresses that is this host's; port 0: a free one.
 * @param [out] fd_p  non-blocking, close-on-exec; the caller's.
 * @param [out] at    the same host with the port that is listened on, KVCL_HOSTPORT_MAX bytes.
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM, KVCL_ERR_UNREACHABLE (no such name, or no address of this host),
 *         KVCL_ERR_BUSY (the port is taken), KVCL_ERR_IO.
 */
kvcl_status_t kvcl_hostport_listen(const char *text, const char *what, int *fd_p,
                                   char at[KVCL_HOSTPORT_MAX]) KVCL_MUST_CHECK;

#endif
