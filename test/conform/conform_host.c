/*
 * A process as on a host of its own, for tests of paths between hosts on one machine (cf_main's --rdma).
 *
 * Owns: the namespaces of the calling process. KVCL recognises a host by the boot identifier of its kernel, so ranks
 * that read different ones do not map each other's memory. UCX has read it when the library was loaded, and recognises
 * a host by the namespace of System V's objects too. The file with the identifier has no name once it is mounted.
 * The process may then lock any amount of memory by its limit and not by privilege, so that a case may set the limit.
 */
#include "conform.h"

#include <inttypes.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Before a device is opened: the kernel accepts requests only with the credentials of that moment. */
static bool limit_applies(void)
{
    struct __user_cap_header_struct header  = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct   caps[2] = {{0, 0, 0}};
    struct rlimit                   limit   = {RLIM_INFINITY, RLIM_INFINITY};

    if ((setrlimit(RLIMIT_MEMLOCK, &limit) != 0) || (syscall(SYS_capget, &header, caps) != 0)) {
        return false;
    }
    caps[0].effective &= ~(1u << CAP_IPC_LOCK);
    return syscall(SYS_capset, &header, caps) == 0;
}

bool cf_host_move(void)
{
    char name[] = "/tmp/kvcl-boot-XXXXXX";
    int  fd     = mkstemp(name);
    bool moved;

    if (fd < 0) {
        return false;
    }
    moved = (dprintf(fd, "%08x-0000-4000-8000-%012" PRIx64 "\n", (unsigned)getpid(),
                     kvcl_now_ns() & UINT64_C(0xffffffffffff)) > 0) &&
            (unshare(CLONE_NEWNS | CLONE_NEWIPC) == 0) && (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0) &&
            (mount(name, "/proc/sys/kernel/random/boot_id", NULL, MS_BIND, NULL) == 0);
    close(fd);
    (void)unlink(name);
    return moved && limit_applies();
}
