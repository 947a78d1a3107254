/*
 * Memory policies (mempolicy.h): the system calls, sets of nodes, and how they are worded. Owns nothing.
 */
#include "config.h"

#include "topo/mempolicy.h"

#include "base/error.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

_Static_assert((MPOL_DEFAULT == (int)KVCL_MEMPOLICY_DEFAULT) && (MPOL_PREFERRED == (int)KVCL_MEMPOLICY_PREFERRED) &&
               (MPOL_INTERLEAVE == (int)KVCL_MEMPOLICY_INTERLEAVE), "the kernel's numbers");

enum { MAXNODE = KVCL_NODES_MAX + 1 }; /* the kernel takes one off */

void kvcl_nodeset_and(kvcl_nodeset_t *set, const kvcl_nodeset_t *other)
{
    size_t i;

    for (i = 0; i < sizeof(set->words) / sizeof(set->words[0]); ++i) {
        set->words[i] &= other->words[i];
    }
}

size_t kvcl_nodeset_count(const kvcl_nodeset_t *set)
{
    size_t i, n = 0;

    for (i = 0; i < sizeof(set->words) / sizeof(set->words[0]); ++i) {
        n += (size_t)__builtin_popcountl(set->words[i]);
    }
    return n;
}

int kvcl_nodeset_first(const kvcl_nodeset_t *set)
{
    int node;

    for (node = 0; node < KVCL_NODES_MAX; ++node) {
        if (kvcl_nodeset_has(set, node)) {
            return node;
        }
    }
    return -1;
}

static kvcl_status_t request(int *mode_p, kvcl_nodeset_t *nodes, const void *addr, unsigned long flags)
{
    memset(nodes, 0, sizeof(*nodes));
    if (syscall(SYS_get_mempolicy, mode_p, nodes->words, (unsigned long)MAXNODE, addr, flags) != 0) {
        return kvcl_fail_errno(KVCL_ERR_UNSUPPORTED, errno, "get_mempolicy");
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_mempolicy_allowed(kvcl_nodeset_t *nodes)
{
    return request(NULL, nodes, NULL, MPOL_F_MEMS_ALLOWED);
}

kvcl_status_t kvcl_mempolicy_get(kvcl_mempolicy_t *policy)
{
    policy->mode = KVCL_MEMPOLICY_DEFAULT;
    return request(&policy->mode, &policy->nodes, NULL, 0);
}

kvcl_status_t kvcl_mempolicy_at(const void *addr, kvcl_mempolicy_t *policy)
{
    policy->mode = KVCL_MEMPOLICY_DEFAULT;
    return request(&policy->mode, &policy->nodes, addr, MPOL_F_ADDR);
}

kvcl_status_t kvcl_mempolicy_set(const kvcl_mempolicy_t *policy)
{
    if (syscall(SYS_set_mempolicy, policy->mode, policy->nodes.words, (unsigned long)MAXNODE) != 0) {
        return kvcl_fail_errno(KVCL_ERR_UNSUPPORTED, errno, "set_mempolicy");
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_mempolicy_range(void *addr, size_t len, const kvcl_mempolicy_t *policy)
{
    if (syscall(SYS_mbind, addr, len, policy->mode, policy->nodes.words, (unsigned long)MAXNODE, 0) != 0) {
        return kvcl_fail_errno(KVCL_ERR_UNSUPPORTED, errno, "mbind");
    }
    return KVCL_OK;
}

/* Appends "0-1,4" at buf + len, as snprintf; what does not fit is cut. */
static void put_nodes(const kvcl_nodeset_t *set, char *buf, size_t cap, size_t len)
{
    const char *separator = "";
    int        node, last, n;

    for (node = 0; node < KVCL_NODES_MAX; node = last + 1) {
        last = node;
        if (!kvcl_nodeset_has(set, node)) {
            continue;
        }
        while (kvcl_nodeset_has(set, last + 1)) {
            ++last;
        }
        n = (len >= cap) ? 0 :
            (last > node) ? snprintf(buf + len, cap - len, "%s%d-%d", separator, node, last) :
                            snprintf(buf + len, cap - len, "%s%d", separator, node);
        len += (n > 0) ? (size_t)n : 0;
        separator = ",";
    }
}

const char *kvcl_mempolicy_text(const kvcl_mempolicy_t *policy, char *buf, size_t cap)
{
    const char *many = (kvcl_nodeset_count(&policy->nodes) == 1) ? "" : "s";
    int        n;

    switch (policy->mode) {
    case KVCL_MEMPOLICY_DEFAULT:
        snprintf(buf, cap, "by first touch");
        return buf;
    case KVCL_MEMPOLICY_PREFERRED:
        n = snprintf(buf, cap, "on NUMA node%s ", many);
        break;
    case KVCL_MEMPOLICY_INTERLEAVE:
        n = snprintf(buf, cap, "interleaved over NUMA node%s ", many);
        break;
    default:
        n = snprintf(buf, cap, "by policy %d on NUMA node%s ", policy->mode, many);
        break;
    }
    put_nodes(&policy->nodes, buf, cap, (n > 0) ? (size_t)n : 0);
    return buf;
}
