/*
 * The interfaces of KVCL_NET (net.h). Names are checked before a transport is opened: UCX skips an interface that is
 * not usable, and would take another path or fail much later.
 */
#include "config.h"
#include "base/net.h"
#include "base/error.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

typedef struct seen {
    bool exists, up, carrier, address;
} seen_t;

static seen_t look(const struct ifaddrs *all, const char *name)
{
    const struct ifaddrs *at;
    seen_t               seen = {0};

    for (at = all; at != NULL; at = at->ifa_next) {
        if (strcmp(at->ifa_name, name) == 0) {
            seen.exists  = true;
            seen.up      = seen.up || ((at->ifa_flags & IFF_UP) != 0);
            seen.carrier = seen.carrier || ((at->ifa_flags & IFF_RUNNING) != 0);
            seen.address = seen.address || ((at->ifa_addr != NULL) && ((at->ifa_addr->sa_family == AF_INET) ||
                                                                       (at->ifa_addr->sa_family == AF_INET6)));
        }
    }
    return seen;
}

/* "lo, eth0" */
static void list_names(const struct ifaddrs *all, char *text, size_t cap)
{
    const struct ifaddrs *at, *before;

    text[0] = '\0';
    for (at = all; at != NULL; at = at->ifa_next) {
        for (before = all; (before != at) && (strcmp(before->ifa_name, at->ifa_name) != 0); before = before->ifa_next) {
        }
        if (before == at) {
            snprintf(text + strlen(text), cap - strlen(text), "%s%s", (text[0] != '\0') ? ", " : "", at->ifa_name);
        }
    }
}

static kvcl_status_t check_one(const struct ifaddrs *all, const char *name)
{
    seen_t seen = look(all, name);
    char   names[512];

    if (!seen.exists && (strcmp(name, "all") == 0)) {
        return KVCL_OK;
    }
    if (!seen.exists) {
        list_names(all, names, sizeof(names));
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_NET: this host has no network interface or RDMA device \"%s\"; "
                         "its interfaces: %s", name, names);
    }
    if (!seen.up || !seen.carrier || !seen.address) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_NET: nothing can be sent over interface \"%s\": it %s", name,
                         !seen.up ? "is down" : !seen.carrier ? "has no carrier" : "has no address");
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_net_check(const char *names)
{
    kvcl_status_t  status = KVCL_OK;
    struct ifaddrs *all   = NULL;
    char           name[64];
    const char     *at;
    unsigned       n = 0;
    size_t         len;

    for (at = names; *at != '\0'; at += len + (at[len] == ',')) {
        len = strcspn(at, ",");
        n  += (len > 0) ? 1 : 0;
    }
    if ((n > KVCL_NET_MAX) || (strlen(names) > KVCL_NET_BYTES)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_NET names %u interfaces in %zu bytes: at most %d in %d bytes",
                         n, strlen(names), KVCL_NET_MAX, KVCL_NET_BYTES);
    }
    if (getifaddrs(&all) != 0) {
        return KVCL_OK; /* UCX reports an error later */
    }
    for (at = names; (*at != '\0') && (status == KVCL_OK); at += (*at == ',') ? 1 : 0) {
        len = strcspn(at, ",");
        snprintf(name, sizeof(name), "%.*s", (int)len, at);
        status = (len > 0) ? check_one(all, name) : KVCL_OK;
        at    += len;
    }
    freeifaddrs(all);
    return status;
}

/* ---- addresses ---- */

static bool is_named(const char *names, const char *name)
{
    const char *at;
    size_t     len;

    for (at = names; *at != '\0'; at += len + (at[len] == ',')) {
        len = strcspn(at, ",");
        if (((len == strlen(name)) && (strncmp(at, name, len) == 0)) || ((len == 3) && (strncmp(at, "all", 3) == 0))) {
            return true;
        }
    }
    return false;
}

static uint8_t bits(const uint8_t *mask, size_t len)
{
    uint8_t n = 0;
    size_t  i;

    for (i = 0; i < len; ++i) {
        n = (uint8_t)(n + __builtin_popcount(mask[i]));
    }
    return n;
}

/* False: an address of another family, or one that a peer cannot use without the interface's name. */
static bool read_addr(const struct ifaddrs *ifa, kvcl_net_addr_t *out)
{
    const void *addr = ifa->ifa_addr, *mask = ifa->ifa_netmask;

    memset(out, 0, sizeof(*out));
    snprintf(out->name, sizeof(out->name), "%.15s", ifa->ifa_name);
    out->loopback = (ifa->ifa_flags & IFF_LOOPBACK) != 0;
    if (ifa->ifa_addr->sa_family == AF_INET) {
        out->family = 4;
        memcpy(out->addr, &((const struct sockaddr_in *)addr)->sin_addr, 4);
        out->prefix = (mask != NULL) ? bits((const uint8_t *)&((const struct sockaddr_in *)mask)->sin_addr, 4) : 32;
        return true;
    }
    if (ifa->ifa_addr->sa_family != AF_INET6) {
        return false;
    }
    out->family = 6;
    memcpy(out->addr, &((const struct sockaddr_in6 *)addr)->sin6_addr, 16);
    out->prefix = (mask != NULL) ? bits((const uint8_t *)&((const struct sockaddr_in6 *)mask)->sin6_addr, 16) : 128;
    return !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)addr)->sin6_addr);
}

kvcl_status_t kvcl_net_addrs(const char *names, kvcl_net_addr_t *addrs, size_t max, size_t *n_p, bool *more_p)
{
    struct ifaddrs  *all = NULL, *ifa;
    kvcl_net_addr_t one;
    size_t          n = 0, i;

    *more_p = false;
    if (getifaddrs(&all) != 0) {
        return kvcl_fail_errno(KVCL_ERR_IO, errno, "KVCL_NET: cannot read the network interfaces");
    }
    for (ifa = all; ifa != NULL; ifa = ifa->ifa_next) {
        if ((ifa->ifa_addr == NULL) || !(ifa->ifa_flags & IFF_UP) || !is_named(names, ifa->ifa_name) ||
            !read_addr(ifa, &one)) {
            continue;
        }
        for (i = 0; (i < n) && (strcmp(addrs[i].name, one.name) != 0); ++i) {
        }
        if ((i < n) && ((addrs[i].family == 4) || (one.family == 6))) {
            continue;
        }
        if (i == max) {
            *more_p = true;
            continue;
        }
        n       += (i == n) ? 1 : 0;
        addrs[i] = one;
    }
    freeifaddrs(all);
    *n_p = n;
    return KVCL_OK;
}

socklen_t kvcl_net_sockaddr(uint8_t family, const uint8_t addr[16], uint16_t port, struct sockaddr_storage *ss)
{
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)ss;
    struct sockaddr_in  *v4 = (struct sockaddr_in *)(void *)ss;

    memset(ss, 0, sizeof(*ss));
    if (family == 4) {
        v4->sin_family = AF_INET;
        v4->sin_port   = htons(port);
        memcpy(&v4->sin_addr, addr, 4);
        return sizeof(*v4);
    }
    v6->sin6_family = AF_INET6;
    v6->sin6_port   = htons(port);
    memcpy(&v6->sin6_addr, addr, 16);
    return sizeof(*v6);
}

uint16_t kvcl_net_port(int fd)
{
    struct sockaddr_storage ss  = {0};
    socklen_t               len = sizeof(ss);

    if (getsockname(fd, (struct sockaddr *)&ss, &len) != 0) {
        return 0;
    }
    switch (ss.ss_family) {
    case AF_INET:
        return ntohs(((const struct sockaddr_in *)(const void *)&ss)->sin_port);
    case AF_INET6:
        return ntohs(((const struct sockaddr_in6 *)(const void *)&ss)->sin6_port);
    default:
        return 0;
    }
}

bool kvcl_net_same_subnet(const kvcl_net_addr_t *own, uint8_t family, const uint8_t addr[16])
{
    unsigned whole = own->prefix / 8u, rest = own->prefix % 8u;

    return (own->family == family) && (memcmp(own->addr, addr, whole) == 0) &&
           ((rest == 0) || (((own->addr[whole] ^ addr[whole]) >> (8 - rest)) == 0));
}

bool kvcl_net_is_loopback(uint8_t family, const uint8_t addr[16])
{
    return (family == 4) ? (addr[0] == 127) : (memcmp(addr, &in6addr_loopback, 16) == 0);
}
