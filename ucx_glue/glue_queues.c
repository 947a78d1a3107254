/*
 * Where UCX keeps the queues of shared memory: files of about 4 MiB a context, mode 0600, unlinked at once, which peers
 * open through /proc/PID/fd. So any directory does, and each rank may have another one. Without room in /dev/shm (a
 * container with a small one, a read-only one, none) UCX 1.13 fails and UCX 1.22 silently has no shared memory.
 *
 * Owns: nothing. Pure but for the look at the file systems. UCX_POSIX_DIR of the user's environment overrides it.
 */
#include "config.h"
#include "ucx_glue/glue.h"

#include "base/log.h"
#include "base/settings.h"

#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#define ROOM (UINT64_C(24) << 20) /* UCX 1.22 wants 16 MiB free; and the queues of this context */

/* May queues be kept in dir? */
static bool suits(const char *dir, bool in_memory)
{
    struct statfs fs;

    return (dir != NULL) && (dir[0] == '/') && (access(dir, W_OK | X_OK) == 0) && (statfs(dir, &fs) == 0) &&
           (!in_memory || (fs.f_type == TMPFS_MAGIC)) && ((uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize >= ROOM);
}

const char *kvcl_glue_queue_dir(void)
{
    const char *const dirs[] = {getenv("XDG_RUNTIME_DIR"), "/run", "/tmp", "/dev", "/var/tmp"};
    size_t            i;
    int               in_memory;

    if ((kvcl_settings_getenv(NULL, "UCX_POSIX_DIR") != NULL) || suits("/dev/shm", true)) {
        return NULL;
    }
    for (in_memory = 1; in_memory >= 0; --in_memory) {
        for (i = 0; i < sizeof(dirs) / sizeof(dirs[0]); ++i) {
            if (suits(dirs[i], in_memory != 0)) {
                kvcl_log_info("/dev/shm has no room: the queues between ranks of this host are files in %s", dirs[i]);
                return dirs[i];
            }
        }
    }
    kvcl_log_warn("no writable directory has %llu MiB free for the queues between ranks of this host: mount a larger "
                  "/dev/shm, or name a directory in UCX_POSIX_DIR", (unsigned long long)(ROOM >> 20));
    return NULL;
}
