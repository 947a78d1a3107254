/*
 * Placing memory on NUMA nodes (mem_numa.h).
 */
#include "config.h"
#include "mem/mem_numa.h"
#include "base/error.h"
#include "base/log.h"
#include "base/units.h"

enum { TEXT = 160 };

int kvcl_mem_numa_init(kvcl_mem_numa_t *numa, kvcl_numa_mode_t mode)
{
    *numa = (kvcl_mem_numa_t){.mode = mode};
    return pthread_mutex_init(&numa->lock, NULL);
}

void kvcl_mem_numa_fini(kvcl_mem_numa_t *numa)
{
    kvcl_topo_close(numa->topo);
    pthread_mutex_destroy(&numa->lock);
}

/* NULL: the last error has the reason. */
static const kvcl_topo_t *topology(kvcl_mem_numa_t *numa)
{
    kvcl_topo_t *topo;

    pthread_mutex_lock(&numa->lock);
    if (!numa->read && (kvcl_topo_open_hwloc(&numa->topo) != KVCL_OK)) {
        numa->topo = NULL;
        kvcl_log_info("memory is not placed on NUMA nodes: %s", kvcl_last_error());
    }
    numa->read = true;
    topo       = numa->topo;
    pthread_mutex_unlock(&numa->lock);
    return topo;
}

/* The node that the caller names. */
static kvcl_status_t take_node(int node, const kvcl_nodeset_t *allowed, kvcl_placing_t *placing)
{
    if (!kvcl_nodeset_has(allowed, node)) {
        return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "there is no NUMA node %d on which this process may have memory", node);
    }
    placing->why         = "as kvcl_mem_params_t asks";
    placing->policy.mode = KVCL_MEMPOLICY_PREFERRED;
    kvcl_nodeset_add(&placing->policy.nodes, node);
    return KVCL_OK;
}

/* False: the kernel's default placement. */
static bool choose(kvcl_mem_numa_t *numa, const kvcl_nodeset_t *allowed, kvcl_placing_t *placing)
{
    const kvcl_topo_t *topo;

    if (!kvcl_numa_applies(numa->mode, allowed, &placing->before, &placing->why)) {
        kvcl_log_debug("memory by first touch: %s", placing->why);
        return false;
    }
    topo = topology(numa);
    if (topo == NULL) {
        return false;
    }
    if (!kvcl_numa_choose(numa->mode, topo, allowed, &placing->policy, &placing->why)) {
        kvcl_log_info("memory by first touch: %s", placing->why);
        return false;
    }
    return true;
}

static void cannot(const kvcl_placing_t *placing)
{
    kvcl_log_at(placing->level, "memory is not placed on NUMA nodes: %s", kvcl_last_error());
}

void kvcl_mem_numa_begin(kvcl_mem_numa_t *numa, const kvcl_mem_params_t *params, kvcl_placing_t *placing)
{
    bool           named = (params != NULL) && ((params->flags & KVCL_MEM_NUMA) != 0);
    kvcl_nodeset_t allowed;
    kvcl_status_t  status;

    *placing = (kvcl_placing_t){.on = false, .level = KVCL_LOG_DEBUG};
    if (named) {
        placing->level = KVCL_LOG_INFO;
    } else if (numa->mode == KVCL_NUMA_OFF) {
        return;
    } else if (numa->mode != KVCL_NUMA_AUTO) {
        placing->level = KVCL_LOG_WARN; /* the caller or the user requested it */
    }
    if (((status = kvcl_mempolicy_allowed(&allowed)) == KVCL_OK) &&
        ((status = kvcl_mempolicy_get(&placing->before)) == KVCL_OK)) {
        if (named) {
            status = take_node(params->numa_node, &allowed, placing);
        } else if (!choose(numa, &allowed, placing)) {
            return;
        }
    }
    if (status == KVCL_OK) {
        status = kvcl_mempolicy_set(&placing->policy);
    }
    placing->on = (status == KVCL_OK);
    if (!placing->on) {
        cannot(placing);
    }
}

void kvcl_mem_numa_end(kvcl_placing_t *placing, void *addr, size_t len)
{
    char text[TEXT], size[32];

    if (!placing->on) {
        return;
    }
    if ((addr != NULL) && (kvcl_mempolicy_range(addr, len, &placing->policy) != KVCL_OK)) {
        cannot(placing);
    } else if (addr != NULL) {
        kvcl_log_info("%s of memory %s: %s", kvcl_size_format(size, sizeof(size), len),
                      kvcl_mempolicy_text(&placing->policy, text, sizeof(text)), placing->why);
    }
    if (kvcl_mempolicy_set(&placing->before) != KVCL_OK) {
        kvcl_log_warn("a thread keeps its memory %s: %s", kvcl_mempolicy_text(&placing->policy, text, sizeof(text)),
                      kvcl_last_error());
    }
}
