/*
 * Whether memory of this process can be accessed (user_memory.h).
 *
 * Owns nothing. msync(MS_ASYNC) has no effect but its check that every page is mapped. A process may copy within its
 * own memory by process_vm_readv, and the kernel answers EFAULT where a plain access would be a signal. Locks: none.
 */
#include "config.h"
#include "weave/user_memory.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

bool kvcl_is_mapped(const void *addr, size_t len)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), into = (uintptr_t)addr % page;

    return (len == 0) || (msync((void *)((uintptr_t)addr - into), len + into, MS_ASYNC) == 0) || (errno != ENOMEM);
}

/* addr is on the side that the kernel accesses as the process does: memory of a driver (pinned for a device) may not be
 * named on the other one. */
bool kvcl_is_writable(void *addr)
{
    char               byte  = 0;
    const struct iovec there = {addr, 1}, here = {&byte, 1};
    const pid_t        self  = getpid();

    return ((process_vm_writev(self, &there, 1, &here, 1, 0) == 1) &&
            (process_vm_readv(self, &there, 1, &here, 1, 0) == 1)) || (errno != EFAULT);
}

void kvcl_touch_pages(const void *addr, size_t len)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), end = (uintptr_t)addr + len;
    uintptr_t       at;

    for (at = (uintptr_t)addr; at < end; at = (at / page + 1) * page) {
        (void)*(const volatile char *)at;
    }
}
