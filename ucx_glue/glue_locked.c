/*
 * Checks whether this process may lock more memory for RDMA ports, where the kernel limits that: RLIMIT_MEMLOCK, unless
 * the process has the capability IPC_LOCK in the initial user namespace. Ordinary users are limited, and containers; a
 * rootless container has the capability in a namespace of its own, where it lifts no limit.
 *
 * UCX locks its queues when they are first used, after the port was opened. If they do not fit, UCX 1.13 does not
 * return from ucp_worker_create, or the port receives nothing. So PORT_BYTES are kept free for each port: a port is not
 * opened without them, and user memory that would use them is not registered but served (mem/region.c).
 *
 * Owns: the counts of this process. Locks: none; two threads at once may both pass where there is room for one.
 */
#include "config.h"
#include "ucx_glue/glue.h"

#include "base/error.h"

#include <linux/capability.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* UCX 1.13 locks 139 MiB over rc_verbs, with both of its workers. */
#define PORT_BYTES (UINT64_C(160) << 20)

static _Atomic uint64_t ports;      /* open now */
static _Atomic uint64_t registered; /* bytes of users */

static bool has_capability(void)
{
    struct __user_cap_header_struct header  = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct   caps[2] = {{0, 0, 0}};

    (void)syscall(SYS_capget, &header, caps);
    return (caps[0].effective & (1u << CAP_IPC_LOCK)) != 0;
}

/* Does the kernel let this process lock more than that? Addresses are locked, no memory is (MLOCK_ONFAULT). */
static bool locks_more(uint64_t limit)
{
    uint64_t page   = (uint64_t)sysconf(_SC_PAGESIZE);
    size_t   len    = (size_t)((limit / page + 1) * page);
    void     *range = mmap(NULL, len, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    bool     locked;

    if (range == MAP_FAILED) {
        return false;
    }
    locked = (mlock2(range, len, MLOCK_ONFAULT) == 0);
    (void)munmap(range, len);
    return locked;
}

/* For a process that has the capability. The kernel is asked once for each limit. */
static bool is_lifted(uint64_t limit)
{
    static _Atomic uint64_t known = UINT64_MAX; /* the last limit, and in bit 0 whether it is lifted */
    uint64_t                last  = atomic_load(&known);

    if (last >> 1 != limit) {
        last = (limit << 1) | locks_more(limit);
        atomic_store(&known, last);
    }
    return (last & 1) != 0;
}

static bool is_limited(uint64_t *limit_p)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};

    (void)getrlimit(RLIMIT_MEMLOCK, &limit);
    *limit_p = limit.rlim_cur;
    return (limit.rlim_cur != RLIM_INFINITY) && !(has_capability() && is_lifted(limit.rlim_cur));
}

uint64_t kvcl_glue_pinned_bytes(void)
{
    FILE               *file = fopen("/proc/self/status", "re");
    unsigned long long kib   = 0;
    char               line[128];

    while ((file != NULL) && (fgets(line, sizeof(line), file) != NULL)) {
        if (sscanf(line, "VmPin: %llu", &kib) == 1) {
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return (uint64_t)kib << 10;
}

/* May these bytes of users be locked, besides those locked already and those that n_ports ports need? */
static kvcl_status_t check(uint64_t n_ports, uint64_t bytes)
{
    uint64_t limit, pinned = 0, users = atomic_load(&registered), own;

    if (!is_limited(&limit)) {
        return KVCL_OK;
    }
    pinned = kvcl_glue_pinned_bytes();
    own    = (pinned > users) ? pinned - users : 0;
    own    = (own < n_ports * PORT_BYTES) ? n_ports * PORT_BYTES : own;
    if ((bytes <= limit) && (users <= limit - bytes) && (own <= limit - bytes - users)) {
        return KVCL_OK;
    }
    return kvcl_fail(KVCL_ERR_NO_MEMORY, "at most %llu KiB may be locked here, %llu are, and UCX needs up to %llu KiB",
                     (unsigned long long)limit >> 10, (unsigned long long)pinned >> 10, (unsigned long long)own >> 10);
}

kvcl_status_t kvcl_glue_lock_port(void)
{
    kvcl_status_t status = check(atomic_load(&ports) + 1, 0);

    ports += (status == KVCL_OK);
    return status;
}

void kvcl_glue_unlock_port(void)
{
    --ports;
}

kvcl_status_t kvcl_glue_lock_bytes(uint64_t bytes)
{
    kvcl_status_t status = check(atomic_load(&ports), bytes);

    registered += (status == KVCL_OK) ? bytes : 0;
    return status;
}

void kvcl_glue_unlock_bytes(uint64_t bytes)
{
    registered -= bytes;
}
