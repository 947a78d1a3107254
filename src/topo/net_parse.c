/*
 * Reads KVCL_NET (net_parse.h): which of its names are network interfaces, and which RDMA ports it names or brings.
 *
 * Invariant: a port is in the result only if it is active and has the GID whose index is noted, or is of InfiniBand.
 * Everything about RDMA is read from files below the root given, so a test makes a tree of its own. No state, no lock.
 */
#include "config.h"
#include "topo/net_parse.h"
#include "base/error.h"
#include "base/net.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(((int)KVCL_NET_LIST == (int)KVCL_NET_BYTES) && ((int)KVCL_NET_IFNAME == (int)KVCL_NET_NAME),
               "one kind of name");

enum { PATH_BYTES = 512, GIDS_MAX = 1024 };

/* The port that is examined. */
typedef struct port {
    const char *root;
    char       dev[KVCL_NET_DEVICE];
    unsigned   number;
} port_t;

static bool __attribute__((format(printf, 3, 4))) read_line(char *line, size_t cap, const char *fmt, ...)
{
    char    path[PATH_BYTES];
    FILE    *file;
    va_list ap;
    bool    got;

    va_start(ap, fmt);
    vsnprintf(path, sizeof(path), fmt, ap);
    va_end(ap);
    file = fopen(path, "re");
    got  = (file != NULL) && (fgets(line, (int)cap, file) != NULL);
    if (file != NULL) {
        fclose(file);
    }
    line[got ? strcspn(line, "\n") : 0] = '\0';
    return got;
}

static bool __attribute__((format(printf, 1, 2))) exists(const char *fmt, ...)
{
    char    path[PATH_BYTES];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(path, sizeof(path), fmt, ap);
    va_end(ap);
    return access(path, F_OK) == 0;
}

static bool read_port(const port_t *port, const char *what, char *line, size_t cap)
{
    return read_line(line, cap, "%s/class/infiniband/%s/ports/%u/%s", port->root, port->dev, port->number, what);
}

/* state: what the kernel says, "4: ACTIVE". */
static bool is_active(const port_t *port, char state[32])
{
    return read_port(port, "state", state, 32) && (strstr(state, ": ACTIVE") != NULL);
}

static bool is_roce(const port_t *port)
{
    char layer[32];

    return read_port(port, "link_layer", layer, sizeof(layer)) && (strcmp(layer, "Ethernet") == 0);
}

/* The rank of a GID among those of its port: 0 for none; RoCE v2 before v1, routable before link-local, IPv4 before
 * IPv6. */
static unsigned rate_gid(const port_t *port, unsigned index)
{
    char gid[64], type[32], what[48];

    snprintf(what, sizeof(what), "gids/%u", index);
    if (!read_port(port, what, gid, sizeof(gid)) || (gid[strspn(gid, "0:")] == '\0')) {
        return 0;
    }
    snprintf(what, sizeof(what), "gid_attrs/types/%u", index);
    if (!read_port(port, what, type, sizeof(type)) || (strcmp(type, "RoCE v2") != 0)) {
        return 1;
    }
    return (strncmp(gid, "0000:0000:0000:0000:0000:ffff:", 30) == 0) ? 4 : (strncmp(gid, "fe80:", 5) != 0) ? 3 : 2;
}

/* The best GID of a RoCE port, on one interface or (NULL) on any: its index, or -1; its interface to ndev. */
static int find_gid(const port_t *port, const char *on, char ndev[KVCL_NET_IFNAME])
{
    char     what[48], name[64];
    unsigned i, rate, best = 0;
    int      index = -1;

    for (i = 0; i < GIDS_MAX; ++i) {
        snprintf(what, sizeof(what), "gids/%u", i);
        if (!exists("%s/class/infiniband/%s/ports/%u/%s", port->root, port->dev, port->number, what)) {
            break;
        }
        snprintf(what, sizeof(what), "gid_attrs/ndevs/%u", i);
        if (!read_port(port, what, name, sizeof(name)) || ((on != NULL) && (strcmp(name, on) != 0))) {
            continue;
        }
        rate = rate_gid(port, i);
        if (rate > best) {
            best  = rate;
            index = (int)i;
            snprintf(ndev, KVCL_NET_IFNAME, "%.15s", name);
        }
    }
    return index;
}

/* ---- all ports of a host ---- */

typedef struct walk {
    const char *on;         /* only RoCE ports with a GID of this interface; NULL: all ports */
    kvcl_net_t *net;        /* the ports are appended to it; NULL: to text */
    char       *text;       /* the names are appended to it */
    size_t     cap;
} walk_t;

static void add_port(kvcl_net_t *net, const kvcl_net_port_t *port)
{
    size_t i;

    for (i = 0; (i < net->n_ports) && (strcmp(net->ports[i].name, port->name) != 0); ++i) {
    }
    if (i < net->n_ports) { /* a GID that the list names has precedence */
        net->ports[i].by_name |= port->by_name;
        net->ports[i]          = (port->by_gid && !net->ports[i].by_gid) ? *port : net->ports[i];
    } else if (i < KVCL_NET_PORTS) {
        net->ports[net->n_ports++] = *port;
    }
}

/* Appends the port if it can be used. */
static void visit(const port_t *port, const walk_t *walk)
{
    kvcl_net_port_t found = {.gid = -1};
    char            state[32];
    size_t          used;
    bool            roce = is_roce(port);

    if (!is_active(port, state) || ((walk->on != NULL) && !roce)) {
        return;
    }
    if (roce) {
        found.gid = find_gid(port, walk->on, found.ndev);
    }
    if (roce ? (found.gid < 0) : (rate_gid(port, 0) == 0)) {
        return;
    }
    snprintf(found.name, sizeof(found.name), "%s:%u", port->dev, port->number);
    if (walk->net != NULL) {
        add_port(walk->net, &found);
        return;
    }
    used = strlen(walk->text);
    snprintf(walk->text + used, walk->cap - used, "%s%s%s%s%s", (used > 0) ? ", " : "", found.name, roce ? " (" : "",
             found.ndev, roce ? ")" : "");
}

static int not_hidden(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void walk_ports(const char *root, const char *dev, const walk_t *walk)
{
    struct dirent **ports;
    char          path[PATH_BYTES];
    port_t        port = {.root = root};
    int           n, i;

    snprintf(port.dev, sizeof(port.dev), "%.*s", KVCL_NET_DEVICE - 1, dev);
    snprintf(path, sizeof(path), "%s/class/infiniband/%s/ports", root, port.dev);
    n = scandir(path, &ports, not_hidden, versionsort);
    for (i = 0; i < n; ++i) {
        port.number = (unsigned)strtoul(ports[i]->d_name, NULL, 10);
        visit(&port, walk);
        free(ports[i]);
    }
    if (n >= 0) {
        free(ports);
    }
}

static void walk_devices(const char *root, const walk_t *walk)
{
    struct dirent **devs;
    char          path[PATH_BYTES];
    int           n, i;

    snprintf(path, sizeof(path), "%s/class/infiniband", root);
    n = scandir(path, &devs, not_hidden, versionsort);
    for (i = 0; i < n; ++i) {
        walk_ports(root, devs[i]->d_name, walk);
        free(devs[i]);
    }
    if (n >= 0) {
        free(devs);
    }
}

static void list_ports(const char *root, char *text, size_t cap)
{
    walk_t walk = {.text = text, .cap = cap};

    text[0] = '\0';
    walk_devices(root, &walk);
}

/* ---- one name ---- */

#define NO_PORT "\"%s\" is no port: write DEVICE:PORT or DEVICE:PORT/GID, for example mlx5_0:1/3"

static kvcl_status_t __attribute__((format(printf, 2, 3))) refuse(const char *root, const char *fmt, ...)
{
    char    what[256], ports[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    list_ports(root, ports, sizeof(ports));
    return kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_NET: %s; RDMA ports of this host that can be used: %s", what,
                     (ports[0] != '\0') ? ports : "none");
}

/* DEV:PORT, DEV:PORT/GID. */
static kvcl_status_t take_port(const char *root, const char *name, const char *number, kvcl_net_t *net)
{
    kvcl_net_port_t found = {.gid = -1, .by_name = true};
    port_t          port  = {.root = root};
    char            state[32], *end;
    unsigned long   value;

    snprintf(port.dev, sizeof(port.dev), "%.*s", (int)(number - 1 - name), name);
    value = ((number[-1] == ':') && (*number >= '0') && (*number <= '9')) ? strtoul(number, &end, 10) : 0;
    if ((value == 0) || (value > 255) || ((*end != '\0') && (*end != '/'))) {
        return refuse(root, NO_PORT, name);
    }
    port.number = (unsigned)value;
    snprintf(found.name, sizeof(found.name), "%s:%u", port.dev, port.number);
    if (!exists("%s/class/infiniband/%s/ports/%u", root, port.dev, port.number)) {
        return refuse(root, "RDMA device \"%s\" has no port %u", port.dev, port.number);
    }
    if (!is_active(&port, state)) {
        return refuse(root, "port %s is not active (%s): bring up its link%s", found.name, state,
                      is_roce(&port) ? " and its interface" : "; a subnet manager must run on its fabric");
    }
    if (*end == '/') {
        number    = end + 1;
        value     = ((*number >= '0') && (*number <= '9')) ? strtoul(number, &end, 10) : GIDS_MAX;
        found.gid = (int)value;
        found.by_gid = true;
        if ((value >= GIDS_MAX) || (*end != '\0') || (rate_gid(&port, (unsigned)value) == 0)) {
            return refuse(root, "port %s has no GID of index \"%s\" (/sys/class/infiniband/%s/ports/%u/gids lists "
                          "them)", found.name, number, port.dev, port.number);
        }
    } else if (is_roce(&port)) {
        found.gid = find_gid(&port, NULL, found.ndev);
    }
    if ((is_roce(&port) && (found.gid < 0)) || (!is_roce(&port) && (rate_gid(&port, 0) == 0))) {
        return refuse(root, "port %s has no GID: give its interface an address", found.name);
    }
    add_port(net, &found);
    return KVCL_OK;
}

static kvcl_status_t take_device(const char *root, const char *name, kvcl_net_t *net)
{
    kvcl_net_t found = {.n_ports = 0};
    walk_t     walk  = {.net = &found};
    size_t     i;

    walk_ports(root, name, &walk);
    if (found.n_ports == 0) {
        return refuse(root, "no port of RDMA device \"%s\" is active and has a GID", name);
    }
    for (i = 0; i < found.n_ports; ++i) {
        found.ports[i].by_name = true;
        add_port(net, &found.ports[i]);
    }
    return KVCL_OK;
}

static void take_interface(const char *name, kvcl_net_t *net)
{
    size_t used = strlen(net->interfaces);

    snprintf(net->interfaces + used, sizeof(net->interfaces) - used, "%s%s", (used > 0) ? "," : "", name);
}

static kvcl_status_t take(const char *root, const char *name, kvcl_net_t *net)
{
    walk_t walk = {.on = (strcmp(name, "all") == 0) ? NULL : name, .net = net};
    size_t dev  = strcspn(name, ":/");

    if ((walk.on == NULL) || ((strchr(name, '/') == NULL) && exists("%s/class/net/%s", root, name))) {
        take_interface(name, net);
        walk_devices(root, &walk);
        return KVCL_OK;
    }
    if ((dev > 0) && (dev < KVCL_NET_DEVICE) && (name[0] != '.') &&
        exists("%s/class/infiniband/%.*s", root, (int)dev, name)) {
        return (name[dev] == '\0') ? take_device(root, name, net) : take_port(root, name, name + dev + 1, net);
    }
    if (dev == 0) {
        return refuse(root, NO_PORT, name);
    }
    if ((name[dev] != '\0') && !((name[dev] == ':') && exists("%s/class/net/%.*s", root, (int)dev, name))) {
        return refuse(root, "this host has no RDMA device \"%.*s\"", (int)dev, name);
    }
    take_interface(name, net); /* kvcl_net_check_interfaces() refuses a name that is no interface */
    return KVCL_OK;
}

/* Without the spaces around it. */
static void copy_name(char name[KVCL_NET_LIST + 1], const char *at, size_t len)
{
    size_t before = strspn(at, " ");

    before = (before < len) ? before : len;
    for (; (len > before) && (at[len - 1] == ' '); --len) {
    }
    snprintf(name, KVCL_NET_LIST + 1, "%.*s", (int)(len - before), at + before);
}

kvcl_status_t kvcl_net_parse(const char *names, const char *root, kvcl_net_t *net)
{
    kvcl_status_t status = KVCL_OK;
    const char    *at;
    char          name[KVCL_NET_LIST + 1];
    size_t        len;

    memset(net, 0, sizeof(*net));
    if (names == NULL) {
        return KVCL_OK;
    }
    if (strlen(names) > KVCL_NET_LIST) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_NET has %zu bytes: at most %d", strlen(names), KVCL_NET_LIST);
    }
    for (at = names; (*at != '\0') && (status == KVCL_OK); at += len + (at[len] == ',')) {
        len = strcspn(at, ",");
        copy_name(name, at, len);
        status = (name[0] != '\0') ? take(root, name, net) : KVCL_OK;
    }
    return status;
}

kvcl_status_t kvcl_net_check_interfaces(const kvcl_net_t *net, const char *root)
{
    kvcl_status_t status = kvcl_net_check(net->interfaces);
    char          why[KVCL_ERROR_MAX / 2], ports[512];

    if (status == KVCL_OK) {
        return KVCL_OK;
    }
    list_ports(root, ports, sizeof(ports));
    if (ports[0] == '\0') {
        return status;
    }
    snprintf(why, sizeof(why), "%s", kvcl_last_error());
    return kvcl_fail(status, "%s; RDMA ports of this host that can be used: %s", why, ports);
}

kvcl_status_t kvcl_net_no_port(const char *names, const char *root)
{
    char what[KVCL_NET_LIST + 64] = "", ports[512];

    if (names != NULL) {
        snprintf(what, sizeof(what), " (\"%s\" names none)", names);
    }
    list_ports(root, ports, sizeof(ports));
    return kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_PATH=rdma needs KVCL_NET to name an RDMA port, for example "
                     "mlx5_0:1, or the interface of one (RoCE)%s; RDMA ports of this host that can be used: %s", what,
                     (ports[0] != '\0') ? ports : "none");
}
