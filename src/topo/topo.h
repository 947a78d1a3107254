/*
 * The machine a rank runs on: cores, NUMA nodes, packages, NICs and GPUs, and how near two things are.
 *
 * One plain model, filled once by a source: topo_hwloc.c (this machine, or an hwloc synthetic or XML
 * description), topo_text.c (a text, for tests). The queries (topo.c) read the model only; queries
 * that need the system go through three functions of the source.
 *
 * NUMA nodes and packages are named by the system's numbers, -1 is "unknown". The model is read-only
 * after open: any thread may query. No lock. Placement of memory: numa.h.
 */
#ifndef KVCL_TOPO_TOPO_H
#define KVCL_TOPO_TOPO_H

#include "topo/mempolicy.h"

#include <kvcl/kvcl_status.h>

#include <stddef.h>
#include <stdint.h>

typedef enum { KVCL_TOPO_NIC, KVCL_TOPO_GPU } kvcl_topo_device_kind_t;

/* The nearest first: comparing two with < is meaningful. */
#define KVCL_TOPO_DISTANCE_MAP(X)                                                                  \
    X(CORE, "core")                                                                                \
    X(NUMA, "numa")                                                                                \
    X(PACKAGE, "package")                                                                          \
    X(HOST, "host")                                                                                \
    X(REMOTE, "remote")

#define KVCL_TOPO_DISTANCE_ENUM(_name, _text) KVCL_TOPO_DISTANCE_##_name,
typedef enum { KVCL_TOPO_DISTANCE_MAP(KVCL_TOPO_DISTANCE_ENUM) } kvcl_topo_distance_t;
#undef KVCL_TOPO_DISTANCE_ENUM

enum { KVCL_TOPO_NAME_MAX = 48 };

/* A hardware thread. */
typedef struct kvcl_topo_cpu {
    int cpu;  /* of sched_getcpu() */
    int core; /* equal for the threads of one core; unique on the host */
    int numa;
    int package;
} kvcl_topo_cpu_t;

typedef struct kvcl_topo_node {
    int      numa;
    int      package; /* -1: spans several */
    uint64_t bytes;   /* 0: unknown */
} kvcl_topo_node_t;

typedef struct kvcl_topo_device {
    kvcl_topo_device_kind_t kind;
    int                     numa;
    int                     package;
    char                    name[KVCL_TOPO_NAME_MAX]; /* "mlx5_0", "eth0", "cuda0", or the PCI address */
    char                    what[KVCL_TOPO_NAME_MAX]; /* PCI address, or what the text says; may be "" */
} kvcl_topo_device_t;

typedef struct kvcl_topo kvcl_topo_t;

typedef struct kvcl_topo_ops {
    const char *name; /* "hwloc", "text" */
    /* The cpu the calling thread runs on, -1: unknown. */
    int (*current_cpu)(const kvcl_topo_t *topo);
    /* The NUMA node of the page at addr, -1: unknown or not touched yet. */
    int (*address_numa)(const kvcl_topo_t *topo, const void *addr);
    /* The nodes of the cpus that the process (any of its threads) is bound to; unknown: of all. */
    void (*bound_nodes)(const kvcl_topo_t *topo, kvcl_nodeset_t *nodes);
    void (*close)(kvcl_topo_t *topo);
} kvcl_topo_ops_t;

struct kvcl_topo {
    const kvcl_topo_ops_t *ops;
    void                  *source;  /* the source's own */
    kvcl_topo_cpu_t       *cpus;
    size_t                 ncpus;
    kvcl_topo_node_t      *nodes;
    size_t                 nnodes;
    kvcl_topo_device_t    *devices; /* in the source's order */
    size_t                 ndevices;
};

/* Where something is. A rank sends its place to others: host is any number that is equal on one host only. */
typedef struct kvcl_topo_place {
    uint64_t host;
    int32_t  package;
    int32_t  numa;
    int32_t  core;
} kvcl_topo_place_t;

/** This machine as hwloc sees it (the HWLOC_* variables work). Takes some 10 ms.
 *  @return KVCL_OK, KVCL_ERR_NO_MEMORY, KVCL_ERR_IO (hwloc failed). */
kvcl_status_t kvcl_topo_open_hwloc(kvcl_topo_t **topo_p) KVCL_MUST_CHECK;

/** A machine from hwloc's synthetic string ("pack:2 numa:1 core:4 pu:2"): tests of the hwloc source.
 *  @return as above, KVCL_ERR_INVALID_PARAM. */
kvcl_status_t kvcl_topo_open_synthetic(const char *text, kvcl_topo_t **topo_p) KVCL_MUST_CHECK;

/**
 * A machine from a text, one thing a line, "#" begins a comment, numbers are the system's:
 *     node 0 package 0 cpus 0-3 [mem 64G]      a NUMA node; every cpu a core of its own
 *     nic mlx5_0 node 0 [any word]             node -1: unknown
 *     gpu cuda0 node 0 [any word]
 *     here 2                                   the cpu that asks (default: the first)
 *     bound 0-1                                the cpus that the process is bound to (default: all)
 * Every address lies on here's node.
 * @return KVCL_OK, KVCL_ERR_NO_MEMORY, KVCL_ERR_INVALID_PARAM naming line and mistake.
 */
kvcl_status_t kvcl_topo_open_text(const char *text, kvcl_topo_t **topo_p) KVCL_MUST_CHECK;

/** NULL is allowed. */
void kvcl_topo_close(kvcl_topo_t *topo);

size_t kvcl_topo_cores(const kvcl_topo_t *topo);    /* not hardware threads; what this process may use */
size_t kvcl_topo_packages(const kvcl_topo_t *topo);

/** The place of the calling thread now; unknown parts are -1. */
kvcl_topo_place_t kvcl_topo_here(const kvcl_topo_t *topo, uint64_t host);

/** The nodes of all cpus. */
void kvcl_topo_cpu_nodes(const kvcl_topo_t *topo, kvcl_nodeset_t *nodes);

/** The NUMA node of memory, -1: unknown (also while the page was never touched). */
int kvcl_topo_address_numa(const kvcl_topo_t *topo, const void *addr);

/** The place of a device or of memory on a NUMA node, for kvcl_topo_distance. */
kvcl_topo_place_t kvcl_topo_device_place(const kvcl_topo_device_t *device, uint64_t host);
kvcl_topo_place_t kvcl_topo_node_place(const kvcl_topo_t *topo, int numa, uint64_t host);

/** How near two places are; an unknown part is never "the same". Pure. */
kvcl_topo_distance_t kvcl_topo_distance(const kvcl_topo_place_t *a, const kvcl_topo_place_t *b);
const char          *kvcl_topo_distance_name(kvcl_topo_distance_t distance);

/** The device of a kind nearest to a place, the first of equals; NULL if there is none. */
const kvcl_topo_device_t *kvcl_topo_nearest(const kvcl_topo_t *topo, kvcl_topo_device_kind_t kind,
                                            const kvcl_topo_place_t *place);

/** Write the tree for people, as snprintf: NUL-terminated and cut at @a cap.
 *  @return bytes the whole text has, without NUL. */
size_t kvcl_topo_describe(const kvcl_topo_t *topo, char *buf, size_t cap);

#endif
