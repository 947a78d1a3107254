/*
 * The names of KVCL_NET: network interfaces and RDMA ports. No state, no lock; each call reads the kernel's list.
 */
#ifndef KVCL_TOPO_NET_PARSE_H
#define KVCL_TOPO_NET_PARSE_H

#include <kvcl/kvcl_status.h>

#include <stdbool.h>
#include <stddef.h>

enum { KVCL_NET_LIST = 512 /* bytes of names */, KVCL_NET_IFNAME = 16, KVCL_NET_DEVICE = 64, KVCL_NET_PORTS = 16 };

/* A port of an RDMA device. */
typedef struct kvcl_net_port {
    char name[KVCL_NET_DEVICE + 4]; /* "mlx5_0:1" */
    char ndev[KVCL_NET_IFNAME];     /* interface of the GID; "": InfiniBand, or the GID was given by its index */
    int  gid;                       /* index; -1: InfiniBand */
    bool by_name;                   /* the list has the device or port, not only its interface or "all" */
    bool by_gid;                    /* the list has the index */
} kvcl_net_port_t;

typedef struct kvcl_net {
    char            interfaces[KVCL_NET_LIST + 1]; /* those of the list, comma separated, "all" too; "": none */
    kvcl_net_port_t ports[KVCL_NET_PORTS];          /* in the list's order, each once; further ones are left out */
    size_t          n_ports;
} kvcl_net_t;

/**
 * Read a list of names (NULL: none). A name is an interface, which brings the RoCE port that has a GID of it, if that
 * port can be used; DEVICE or DEVICE:PORT or DEVICE:PORT/GID, an RDMA device or port; or "all". A port is used by its
 * best GID (RoCE v2 and IPv4 first) where none is given. An unknown name is read as an interface, which
 * kvcl_net_check_interfaces() then refuses. Spaces around a name do not count. root: where sysfs is mounted, "/sys".
 * @return KVCL_OK; KVCL_ERR_INVALID_PARAM: a device or port does not exist, is not active or has no GID (the sentence
 *         lists the ports that can be used), or the list is too long.
 */
kvcl_status_t kvcl_net_parse(const char *names, const char *root, kvcl_net_t *net) KVCL_MUST_CHECK;
/**
 * Are the interfaces of a list usable (kvcl_net_check())?
 * @return KVCL_OK; KVCL_ERR_INVALID_PARAM: the sentence lists the interfaces that exist and the ports that can be used.
 */
kvcl_status_t kvcl_net_check_interfaces(const kvcl_net_t *net, const char *root) KVCL_MUST_CHECK;

/** KVCL_ERR_INVALID_PARAM: RDMA is required, and the list (NULL: none) yields no port. The sentence lists the ports
 * that can be used. */
kvcl_status_t kvcl_net_no_port(const char *names, const char *root) KVCL_MUST_CHECK;

#endif
