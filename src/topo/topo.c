/*
 * Queries on the model and its printed tree. Pure but for the calls through the source's ops.
 */
#include "config.h"

#include "topo/topo.h"

#include "base/units.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DISTANCE_NAME(_name, _text) _text,
static const char *const distance_names[] = {KVCL_TOPO_DISTANCE_MAP(DISTANCE_NAME)};
#undef DISTANCE_NAME

void kvcl_topo_close(kvcl_topo_t *topo)
{
    if (topo == NULL) {
        return;
    }
    topo->ops->close(topo);
    free(topo->cpus);
    free(topo->nodes);
    free(topo->devices);
    free(topo);
}

/* How many cpus are the first with their core (or package). */
static size_t count_distinct(const kvcl_topo_t *topo, size_t member)
{
    size_t i, j, n = 0;

    for (i = 0; i < topo->ncpus; ++i) {
        int value = *(const int *)(const void *)((const char *)&topo->cpus[i] + member);

        for (j = 0; j < i; ++j) {
            if (*(const int *)(const void *)((const char *)&topo->cpus[j] + member) == value) {
                break;
            }
        }
        n += (j == i);
    }
    return n;
}

size_t kvcl_topo_cores(const kvcl_topo_t *topo)
{
    return count_distinct(topo, offsetof(kvcl_topo_cpu_t, core));
}

size_t kvcl_topo_packages(const kvcl_topo_t *topo)
{
    return count_distinct(topo, offsetof(kvcl_topo_cpu_t, package));
}

static const kvcl_topo_node_t *find_node(const kvcl_topo_t *topo, int numa)
{
    size_t i;

    for (i = 0; i < topo->nnodes; ++i) {
        if (topo->nodes[i].numa == numa) {
            return &topo->nodes[i];
        }
    }
    return NULL;
}

kvcl_topo_place_t kvcl_topo_here(const kvcl_topo_t *topo, uint64_t host)
{
    kvcl_topo_place_t place = {.host = host, .package = -1, .numa = -1, .core = -1};
    int               cpu   = topo->ops->current_cpu(topo);
    size_t            i;

    for (i = 0; i < topo->ncpus; ++i) {
        if ((cpu >= 0) && (topo->cpus[i].cpu == cpu)) {
            place.package = topo->cpus[i].package;
            place.numa    = topo->cpus[i].numa;
            place.core    = topo->cpus[i].core;
        }
    }
    return place;
}

void kvcl_topo_cpu_nodes(const kvcl_topo_t *topo, kvcl_nodeset_t *nodes)
{
    size_t i;

    memset(nodes, 0, sizeof(*nodes));
    for (i = 0; i < topo->ncpus; ++i) {
        kvcl_nodeset_add(nodes, topo->cpus[i].numa);
    }
}

int kvcl_topo_address_numa(const kvcl_topo_t *topo, const void *addr)
{
    return topo->ops->address_numa(topo, addr);
}

kvcl_topo_place_t kvcl_topo_device_place(const kvcl_topo_device_t *device, uint64_t host)
{
    return (kvcl_topo_place_t){.host = host, .package = device->package, .numa = device->numa, .core = -1};
}

kvcl_topo_place_t kvcl_topo_node_place(const kvcl_topo_t *topo, int numa, uint64_t host)
{
    const kvcl_topo_node_t *node = find_node(topo, numa);

    return (kvcl_topo_place_t){
        .host    = host,
        .package = (node == NULL) ? -1 : node->package,
        .numa    = (node == NULL) ? -1 : numa,
        .core    = -1,
    };
}

static int is_same(int32_t a, int32_t b)
{
    return (a == b) && (a >= 0);
}

kvcl_topo_distance_t kvcl_topo_distance(const kvcl_topo_place_t *a, const kvcl_topo_place_t *b)
{
    if (a->host != b->host) {
        return KVCL_TOPO_DISTANCE_REMOTE;
    }
    if (is_same(a->core, b->core)) {
        return KVCL_TOPO_DISTANCE_CORE;
    }
    if (is_same(a->numa, b->numa)) {
        return KVCL_TOPO_DISTANCE_NUMA;
    }
    return is_same(a->package, b->package) ? KVCL_TOPO_DISTANCE_PACKAGE : KVCL_TOPO_DISTANCE_HOST;
}

const char *kvcl_topo_distance_name(kvcl_topo_distance_t distance)
{
    return ((unsigned)distance <= KVCL_TOPO_DISTANCE_REMOTE) ? distance_names[distance] : "unknown";
}

const kvcl_topo_device_t *kvcl_topo_nearest(const kvcl_topo_t *topo, kvcl_topo_device_kind_t kind,
                                            const kvcl_topo_place_t *place)
{
    const kvcl_topo_device_t *best          = NULL;
    kvcl_topo_distance_t      best_distance = KVCL_TOPO_DISTANCE_REMOTE;
    size_t                    i;

    for (i = 0; i < topo->ndevices; ++i) {
        kvcl_topo_place_t    other    = kvcl_topo_device_place(&topo->devices[i], place->host);
        kvcl_topo_distance_t distance = kvcl_topo_distance(place, &other);

        if ((topo->devices[i].kind == kind) && (distance < best_distance)) {
            best          = &topo->devices[i];
            best_distance = distance;
        }
    }
    return best;
}

/* Text that grows past its buffer without harm: as snprintf, piece by piece. */
typedef struct text {
    char  *buf;
    size_t cap;
    size_t len;
} text_t;

static void put(text_t *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(text_t *text, const char *fmt, ...)
{
    size_t  room = (text->len < text->cap) ? (text->cap - text->len) : 0;
    va_list args;
    int     n;

    va_start(args, fmt);
    n = vsnprintf((room > 0) ? (text->buf + text->len) : NULL, room, fmt, args);
    va_end(args);
    text->len += (n > 0) ? (size_t)n : 0;
}

/* "1 core", "2 cores". */
static void put_count(text_t *text, size_t n, const char *what, const char *end)
{
    put(text, "%zu %s%s%s", n, what, (n == 1) ? "" : "s", end);
}

/* The cpus of a node as ranges: "0-3,8-11". */
static void put_cpus(text_t *text, const kvcl_topo_t *topo, int numa)
{
    const char *separator = "";
    size_t      i, last;

    for (i = 0; i < topo->ncpus; i = last + 1) {
        last = i;
        if (topo->cpus[i].numa != numa) {
            continue;
        }
        while ((last + 1 < topo->ncpus) && (topo->cpus[last + 1].numa == numa) &&
               (topo->cpus[last + 1].cpu == topo->cpus[last].cpu + 1)) {
            ++last;
        }
        put(text, "%s%d", separator, topo->cpus[i].cpu);
        if (last > i) {
            put(text, "-%d", topo->cpus[last].cpu);
        }
        separator = ",";
    }
}

static void put_devices(text_t *text, const kvcl_topo_t *topo, int numa)
{
    size_t i;

    for (i = 0; i < topo->ndevices; ++i) {
        const kvcl_topo_device_t *device = &topo->devices[i];

        if (device->numa == numa) {
            put(text, "    %s %s%s%s%s\n", (device->kind == KVCL_TOPO_NIC) ? "nic" : "gpu", device->name,
                (device->what[0] != '\0') ? " (" : "", device->what, (device->what[0] != '\0') ? ")" : "");
        }
    }
}

static void put_package(text_t *text, const kvcl_topo_t *topo, int package)
{
    char   size[32];
    size_t i;

    for (i = 0; i < topo->nnodes; ++i) {
        const kvcl_topo_node_t *node = &topo->nodes[i];

        if (node->package != package) {
            continue;
        }
        put(text, "  NUMA node %d: cpus ", node->numa);
        put_cpus(text, topo, node->numa);
        put(text, ", %s\n",
            (node->bytes == 0) ? "memory unknown" : kvcl_size_format(size, sizeof(size), node->bytes));
        put_devices(text, topo, node->numa);
    }
}

static int has_unknown_devices(const kvcl_topo_t *topo)
{
    size_t i;

    for (i = 0; i < topo->ndevices; ++i) {
        if (find_node(topo, topo->devices[i].numa) == NULL) {
            return 1;
        }
    }
    return 0;
}

size_t kvcl_topo_describe(const kvcl_topo_t *topo, char *buf, size_t cap)
{
    text_t text = {.buf = buf, .cap = cap};
    size_t i, j;

    put_count(&text, kvcl_topo_packages(topo), "package", ", ");
    put_count(&text, topo->nnodes, "NUMA node", ", ");
    put_count(&text, kvcl_topo_cores(topo), "core", ", ");
    put_count(&text, topo->ncpus, "hardware thread", "");
    put(&text, " (from %s)\n", topo->ops->name);
    for (i = 0; i < topo->nnodes; ++i) {
        for (j = 0; (j < i) && (topo->nodes[j].package != topo->nodes[i].package); ++j) {
        }
        if (j == i) {
            if (topo->nodes[i].package >= 0) {
                put(&text, "package %d\n", topo->nodes[i].package);
            } else {
                put(&text, "package unknown\n");
            }
            put_package(&text, topo, topo->nodes[i].package);
        }
    }
    if (has_unknown_devices(topo)) {
        put(&text, "NUMA node unknown\n");
        put_devices(&text, topo, -1);
    }
    return text.len;
}
