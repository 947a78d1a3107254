/*
 * The network interfaces of this host that a list such as KVCL_NET names (its RDMA ports: topo/net_parse.h), and their
 * addresses. No state, no lock; each call reads the kernel's present list.
 */
#ifndef KVCL_BASE_NET_H
#define KVCL_BASE_NET_H

#include <kvcl/kvcl_status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { KVCL_NET_MAX = 32 /* names */, KVCL_NET_BYTES = 512 /* of the list */, KVCL_NET_NAME = 16 };

typedef struct kvcl_net_addr {
    char    name[KVCL_NET_NAME]; /* of the interface */
    uint8_t family;              /* 4 or 6 */
    uint8_t prefix;              /* bits of the subnet */
    bool    loopback;
    uint8_t addr[16];            /* network order; 4 or 16 bytes */
} kvcl_net_addr_t;

/**
 * Check names of interfaces: each exists, is up and has a carrier and an address, or is "all".
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM.
 */
kvcl_status_t kvcl_net_check(const char *names) KVCL_MUST_CHECK;

/**
 * One address of each interface named, at most max: its first IPv4 address, otherwise its first IPv6 address that is
 * not link-local. "all" names every interface that is up. *more_p: there are others.
 * @return KVCL_OK, *n_p of them; KVCL_ERR_IO.
 */
kvcl_status_t kvcl_net_addrs(const char *names, kvcl_net_addr_t *addrs, size_t max, size_t *n_p,
                             bool *more_p) KVCL_MUST_CHECK;

/** The socket address of an address and a port (host order). @return its length. */
socklen_t kvcl_net_sockaddr(uint8_t family, const uint8_t addr[16], uint16_t port, struct sockaddr_storage *ss);

/** The port (host order) of the address that a socket of IPv4 or IPv6 is bound to. @return 0: none. */
uint16_t kvcl_net_port(int fd);

/** Is this address in the subnet of that one? */
bool kvcl_net_same_subnet(const kvcl_net_addr_t *own, uint8_t family, const uint8_t addr[16]);

/** 127.0.0.0/8 or ::1. */
bool kvcl_net_is_loopback(uint8_t family, const uint8_t addr[16]);

#endif
