/*
 * Memory policies as the kernel has them: on which NUMA nodes the pages of a thread, or of a range of addresses, are
 * taken when they are first touched.
 *
 * Plain system calls, since a thread must get back exactly what it had (hwloc's words for policies are fewer than the
 * kernel's). The filter of a container may refuse each of them: KVCL_ERR_UNSUPPORTED, and nothing has changed.
 * Any thread; a thread's policy is its own, and inherited by threads it starts. No lock.
 */
#ifndef KVCL_TOPO_MEMPOLICY_H
#define KVCL_TOPO_MEMPOLICY_H

#include <kvcl/kvcl_status.h>

#include <stdbool.h>
#include <stddef.h>

enum { KVCL_NODES_MAX = 1024, KVCL_NODES_WORD = 8 * sizeof(unsigned long) };

/* Nodes by the system's numbers. */
typedef struct kvcl_nodeset {
    unsigned long words[KVCL_NODES_MAX / KVCL_NODES_WORD];
} kvcl_nodeset_t;

/* The kernel's numbers. Others are kept as they are. */
enum {
    KVCL_MEMPOLICY_DEFAULT    = 0, /* first touch: the node of the thread that touches a page */
    KVCL_MEMPOLICY_PREFERRED  = 1, /* one node, others when it is full */
    KVCL_MEMPOLICY_INTERLEAVE = 3  /* page by page over the nodes */
};

typedef struct kvcl_mempolicy {
    int            mode; /* KVCL_MEMPOLICY_*, with the kernel's flags */
    kvcl_nodeset_t nodes;
} kvcl_mempolicy_t;

static inline bool kvcl_nodeset_has(const kvcl_nodeset_t *set, int node)
{
    return (node >= 0) && (node < KVCL_NODES_MAX) &&
           (((set->words[node / KVCL_NODES_WORD] >> (node % KVCL_NODES_WORD)) & 1) != 0);
}

/** Numbers that no node can have are left out. */
static inline void kvcl_nodeset_add(kvcl_nodeset_t *set, int node)
{
    if ((node >= 0) && (node < KVCL_NODES_MAX)) {
        set->words[node / KVCL_NODES_WORD] |= 1ul << (node % KVCL_NODES_WORD);
    }
}

void   kvcl_nodeset_and(kvcl_nodeset_t *set, const kvcl_nodeset_t *other);
size_t kvcl_nodeset_count(const kvcl_nodeset_t *set);
/** -1: none. */
int    kvcl_nodeset_first(const kvcl_nodeset_t *set);

/** The nodes this process may have memory on (cgroup). */
kvcl_status_t kvcl_mempolicy_allowed(kvcl_nodeset_t *nodes) KVCL_MUST_CHECK;
/** Of the calling thread. */
kvcl_status_t kvcl_mempolicy_get(kvcl_mempolicy_t *policy) KVCL_MUST_CHECK;
kvcl_status_t kvcl_mempolicy_set(const kvcl_mempolicy_t *policy) KVCL_MUST_CHECK;
/** Of the range that addr lies in; KVCL_MEMPOLICY_DEFAULT: the thread that touches a page decides, by its own. */
kvcl_status_t kvcl_mempolicy_at(const void *addr, kvcl_mempolicy_t *policy) KVCL_MUST_CHECK;
/** For pages of [addr, addr + len) not touched yet; those that are there stay where they are. addr: of a page. */
kvcl_status_t kvcl_mempolicy_range(void *addr, size_t len, const kvcl_mempolicy_t *policy) KVCL_MUST_CHECK;

/** "on NUMA node 1", "interleaved over NUMA nodes 0-1,4", "by first touch"; cut at cap, always NUL-terminated.
 *  @return buf. */
const char *kvcl_mempolicy_text(const kvcl_mempolicy_t *policy, char *buf, size_t cap);

#endif
