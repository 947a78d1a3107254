/*
 * Chooses the NUMA nodes for large memory; mem/mem_numa.h applies the choice.
 *
 * Pure, except that it queries the topology's source for this process's binding and current cpu. No lock.
 */
#ifndef KVCL_TOPO_NUMA_H
#define KVCL_TOPO_NUMA_H

#include "topo/mempolicy.h"
#include "topo/topo.h"

typedef enum { KVCL_NUMA_AUTO, KVCL_NUMA_LOCAL, KVCL_NUMA_INTERLEAVE, KVCL_NUMA_OFF } kvcl_numa_mode_t;

extern const char *const kvcl_numa_mode_names[]; /* "auto", "local", "interleave", "off", NULL */

/**
 * Whether there is anything to choose, which is known without the topology: not with KVCL_NUMA_OFF; with KVCL_NUMA_AUTO
 * neither where memory may be had on one node only, nor if the thread has a policy of its own (numactl).
 * @param allowed  where memory may be had
 * @param own      the policy that the thread has
 * @param why_p    if false: why, a few static words
 */
bool kvcl_numa_applies(kvcl_numa_mode_t mode, const kvcl_nodeset_t *allowed, const kvcl_mempolicy_t *own,
                       const char **why_p);

/**
 * AUTO        the node of the cpus that the process is bound to; page by page over their nodes if they have several
 * LOCAL       the node of those cpus; if they have several, that of the current cpu
 * INTERLEAVE  page by page over the nodes of those cpus; if they have one, over all nodes with cpus
 * A node is preferred: when it is full, others are used. Nodes without cpus (far memory) are not chosen.
 * @param why_p  a few static words
 * @return true and *policy; false: none of these nodes is allowed.
 */
bool kvcl_numa_choose(kvcl_numa_mode_t mode, const kvcl_topo_t *topo, const kvcl_nodeset_t *allowed,
                      kvcl_mempolicy_t *policy, const char **why_p);

#endif
