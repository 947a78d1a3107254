/*
 * Files that killed processes have left (life.h): UCX makes the queue of a process in shared memory as a file, gives it
 * its pages, and unlinks it. A process that is killed before that leaves it.
 *
 * Owns: nothing. Invariant: a file that any process has open, or has mapped, stays: a write lease is given only if no
 * other opening of the file for writing is left, and UCX opens it so. A file is visible before its maker counts as an
 * opening of it, so a file that was changed a moment ago stays. The signal of a lease that ends is one that is ignored
 * by default: the usual one would end this process.
 *
 * Source: fcntl(2), F_SETLEASE, F_SETSIG; UCX's src/uct/sm/mm/posix/mm_posix.c (names).
 */
#include "config.h"
#include "life/life.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { YOUNG_S = 2, NAMES_MAX = 20000 /* of a folder, which others may fill */ };

static bool is_leftover(int fd)
{
    struct timespec now;
    struct stat     st;

    return (fstat(fd, &st) == 0) && S_ISREG(st.st_mode) && (st.st_uid == geteuid()) &&
           (clock_gettime(CLOCK_REALTIME, &now) == 0) && (now.tv_sec - st.st_mtim.tv_sec > YOUNG_S) &&
           (fcntl(fd, F_SETSIG, SIGURG) == 0) && (fcntl(fd, F_SETLEASE, F_WRLCK) == 0);
}

unsigned kvcl_life_clean(const char *path)
{
    static const char prefix[] = "ucx_shm_posix_";
    DIR               *folder  = opendir(path);
    struct dirent     *entry;
    unsigned          n = 0, names = 0;
    int               fd;

    while ((folder != NULL) && (names++ < NAMES_MAX) && ((entry = readdir(folder)) != NULL)) {
        if (strncmp(entry->d_name, prefix, sizeof(prefix) - 1) != 0) {
            continue;
        }
        fd = openat(dirfd(folder), entry->d_name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0) {
            n += (is_leftover(fd) && (unlinkat(dirfd(folder), entry->d_name, 0) == 0)) ? 1 : 0;
            close(fd); /* ends the lease */
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return n;
}
