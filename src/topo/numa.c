/*
 * The choice of NUMA nodes (numa.h).
 */
#include "config.h"

#include "topo/numa.h"

#include <string.h>

const char *const kvcl_numa_mode_names[] = {"auto", "local", "interleave", "off", NULL};

bool kvcl_numa_applies(kvcl_numa_mode_t mode, const kvcl_nodeset_t *allowed, const kvcl_mempolicy_t *own,
                       const char **why_p)
{
    if (mode == KVCL_NUMA_OFF) {
        *why_p = "KVCL_NUMA is off";
        return false;
    }
    if ((mode == KVCL_NUMA_AUTO) && (own->mode != KVCL_MEMPOLICY_DEFAULT)) {
        *why_p = "the process was given a policy of its own";
        return false;
    }
    if ((mode == KVCL_NUMA_AUTO) && (kvcl_nodeset_count(allowed) < 2)) {
        *why_p = "there is one NUMA node";
        return false;
    }
    return true;
}

static void prefer(kvcl_mempolicy_t *policy, int node)
{
    memset(policy, 0, sizeof(*policy));
    policy->mode = KVCL_MEMPOLICY_PREFERRED;
    kvcl_nodeset_add(&policy->nodes, node);
}

static void interleave(kvcl_mempolicy_t *policy, const kvcl_nodeset_t *nodes)
{
    policy->mode  = KVCL_MEMPOLICY_INTERLEAVE;
    policy->nodes = *nodes;
}

bool kvcl_numa_choose(kvcl_numa_mode_t mode, const kvcl_topo_t *topo, const kvcl_nodeset_t *allowed,
                      kvcl_mempolicy_t *policy, const char **why_p)
{
    kvcl_nodeset_t bound, all;
    size_t         n;
    int            here;

    kvcl_topo_cpu_nodes(topo, &all);
    kvcl_nodeset_and(&all, allowed);
    topo->ops->bound_nodes(topo, &bound);
    kvcl_nodeset_and(&bound, allowed);
    n = kvcl_nodeset_count(&bound);
    if (n == 0) {
        *why_p = "no memory may be had on the NUMA nodes of the cpus that the process is bound to";
        return false;
    }
    if (mode == KVCL_NUMA_INTERLEAVE) {
        interleave(policy, (n > 1) ? &bound : &all);
        *why_p = "as KVCL_NUMA asks";
        return true;
    }
    if (n == 1) {
        prefer(policy, kvcl_nodeset_first(&bound));
        *why_p = "the process is bound to cpus of one node";
        return true;
    }
    if (mode == KVCL_NUMA_LOCAL) {
        here = kvcl_topo_here(topo, 0).numa;
        prefer(policy, kvcl_nodeset_has(&bound, here) ? here : kvcl_nodeset_first(&bound));
        *why_p = "as KVCL_NUMA asks";
        return true;
    }
    interleave(policy, &bound);
    *why_p = "the process may run on cpus of several nodes";
    return true;
}
