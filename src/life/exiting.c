/*
 * Whether a process ends: the flags of its threads in /proc (life.h). A thread that is exiting never returns to its own
 * code, nor to a system call of its own, so it writes to no memory any more that others can read. What a device has
 * accepted from it before may go on until its descriptor is closed.
 *
 * Source: proc_pid_stat(5), field 9; PF_EXITING of Linux's include/linux/sched.h.
 */
#include "config.h"
#include "life/life.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { EXITING = 0x4, STAT_MAX = 1024 };

/* Field 9 of a line; its second field is a name in parentheses, of any bytes. False: the line has another form. */
static bool read_flags(const char *line, unsigned *flags_p)
{
    const char *end = strrchr(line, ')');

    return (end != NULL) && (sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %u", flags_p) == 1);
}

/* A thread that no longer exists counts as exiting. */
static bool is_thread_exiting(int folder, const char *name)
{
    char     path[64], line[STAT_MAX];
    unsigned flags = 0;
    ssize_t  len;
    int      fd;

    if (snprintf(path, sizeof(path), "%s/stat", name) >= (int)sizeof(path)) {
        return false;
    }
    fd = openat(folder, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT;
    }
    len = read(fd, line, sizeof(line) - 1);
    if (len < 0) {
        len = (errno == ESRCH) ? 0 : -1;
        close(fd);
        return len == 0;
    }
    close(fd);
    line[len] = '\0';
    return read_flags(line, &flags) && ((flags & EXITING) != 0);
}

/* Is /proc that of this process's own namespace? Otherwise its numbers are other processes'. */
static bool is_own_proc(void)
{
    char          self[32], pid[32];
    const ssize_t len = readlink("/proc/self", self, sizeof(self) - 1);

    snprintf(pid, sizeof(pid), "%ld", (long)getpid());
    if (len > 0) {
        self[len] = '\0';
    }
    return (len > 0) && (strcmp(self, pid) == 0);
}

bool kvcl_life_is_exiting(pid_t pid)
{
    bool          exiting = true, some = false;
    struct dirent *entry;
    char          path[64];
    DIR           *folder;

    snprintf(path, sizeof(path), "/proc/%ld/task", (long)pid);
    folder = is_own_proc() ? opendir(path) : NULL;
    if (folder == NULL) {
        return false;
    }
    do {
        errno = 0;
        entry = readdir(folder);
        if ((entry != NULL) && isdigit((unsigned char)entry->d_name[0])) {
            some    = true;
            exiting = is_thread_exiting(dirfd(folder), entry->d_name);
        } else if (entry == NULL) {
            exiting = (errno == 0);
        }
    } while (exiting && (entry != NULL));
    closedir(folder);
    return exiting && some;
}
