/*
 * Listening sockets, one for each interface that KVCL_NET names and that has an address. One thread at a time.
 */
#ifndef KVCL_SOCK_SOCK_LISTEN_H
#define KVCL_SOCK_SOCK_LISTEN_H

#include "base/net.h"

enum { KVCL_SOCK_LISTENERS = 8 };

typedef struct kvcl_sock_listener {
    int             fd;    /* -1: closed */
    uint16_t        port;  /* host order */
    kvcl_net_addr_t at;
} kvcl_sock_listener_t;

/**
 * Listen on a free port of each interface, of KVCL_SOCK_LISTENERS at most: a warning reports that there are more. An
 * interface without an address (the port of an RDMA device) gets no listener. An address that the interface does not
 * have now is skipped with a warning; if no other is left, the call fails.
 * @return KVCL_OK, *n_p of them (0 is no error); KVCL_ERR_IO: none is left open.
 */
kvcl_status_t kvcl_sock_listen(const char *names, kvcl_sock_listener_t listeners[KVCL_SOCK_LISTENERS],
                               unsigned *n_p) KVCL_MUST_CHECK;
/** epfd: an epoll that watches it, or -1. */
void          kvcl_sock_unlisten(kvcl_sock_listener_t *listener, int epfd);

/** @return a descriptor; -1: none waits; -2: it failed, for want of a descriptor or memory: try again later. */
int           kvcl_sock_accept(const kvcl_sock_listener_t *listener);

#endif
