/*
 * Checks KVCL_NET before UCX uses it: UCX skips an interface that is not usable, and would take another path or fail
 * much later.
 */
#include "config.h"
#include "ucx_glue/glue.h"
#include "base/error.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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

/* UCX names an RDMA port by device and port number. */
static bool is_rdma_port(const char *name)
{
    char path[128];

    snprintf(path, sizeof(path), "/sys/class/infiniband/%.*s", (int)strcspn(name, ":"), name);
    return access(path, F_OK) == 0;
}

static kvcl_status_t check_one(const struct ifaddrs *all, const char *name)
{
    seen_t seen = look(all, name);

    if (!seen.exists && ((strcmp(name, "all") == 0) || is_rdma_port(name))) {
        return KVCL_OK;
    }
    if (!seen.exists) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_NET: this host has no network interface \"%s\"", name);
    }
    if (!seen.up || !seen.carrier || !seen.address) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_NET: nothing can be sent over interface \"%s\": it %s", name,
                         !seen.up ? "is down" : !seen.carrier ? "has no carrier" : "has no address");
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_glue_net_check(const char *net)
{
    kvcl_status_t  status = KVCL_OK;
    struct ifaddrs *all   = NULL;
    char           name[64];
    const char     *at;
    unsigned       n = 0;
    size_t         len;

    for (at = net; *at != '\0'; at += len + (at[len] == ',')) {
        len = strcspn(at, ",");
        n  += (len > 0) ? 1 : 0;
    }
    if ((n > GLUE_NET_MAX) || (strlen(net) > GLUE_DEVICES_MAX / 2)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_NET names %u interfaces in %zu bytes: at most %d in %d bytes",
                         n, strlen(net), GLUE_NET_MAX, GLUE_DEVICES_MAX / 2);
    }
    if (getifaddrs(&all) != 0) {
        return KVCL_OK; /* UCX reports an error later */
    }
    for (at = net; (*at != '\0') && (status == KVCL_OK); at += (*at == ',') ? 1 : 0) {
        len = strcspn(at, ",");
        snprintf(name, sizeof(name), "%.*s", (int)len, at);
        status = (len > 0) ? check_one(all, name) : KVCL_OK;
        at    += len;
    }
    freeifaddrs(all);
    return status;
}
