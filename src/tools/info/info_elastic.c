/*
 * kvcl_info --elastic: what this host can prove of the end of processes, which KVCL_VIEWS builds upon, and the settings
 * of views. Owns nothing; each capability is tried, not deduced from a version.
 */
#include "config.h"
#include "tools/info/info.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static const char *try_pidfd(void)
{
    const int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

    if (fd < 0) {
        return strerror(errno);
    }
    close(fd);
    return NULL;
}

static const char *try_unix(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const int          fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const char         *why = NULL;
    socklen_t          len = offsetof(struct sockaddr_un, sun_path) + 1;

    len += (socklen_t)snprintf(at.sun_path + 1, sizeof(at.sun_path) - 1, "kvcl-info-%ld", (long)getpid());
    if ((fd < 0) || (bind(fd, (struct sockaddr *)&at, len) != 0) || (listen(fd, 1) != 0)) {
        why = strerror(errno);
    }
    if (fd >= 0) {
        close(fd);
    }
    return why;
}

/* With no futex at all the kernel that has it answers EINVAL. */
static const char *try_futex_waitv(void)
{
    enum { FUTEX_WAITV = 449 };

    return ((syscall(FUTEX_WAITV, NULL, 0, 0, NULL, 0) == 0) || (errno == EINVAL)) ? NULL : strerror(errno);
}

void info_elastic(elastic_fn_t fn, void *arg)
{
    fn(arg, "unix socket", try_unix(), "a process of this host that ends is known at once");
    fn(arg, "pidfd", try_pidfd(), "the same where a child still holds its socket; needed by KVCL_FENCE=kill");
    fn(arg, "futex_waitv", try_futex_waitv(),
       "the same before it has freed its memory, which takes long with many GiB");
}

typedef struct chosen {
    void (*fn)(void *arg, const kvcl_setting_info_t *info);
    void *arg;
} chosen_t;

static void choose(void *arg, const kvcl_setting_info_t *info)
{
    static const char *const names[] = {"KVCL_VIEWS", "KVCL_BEAT", "KVCL_SUSPECT", "KVCL_DEAD", "KVCL_LEASE",
                                        "KVCL_WARM",  "KVCL_SLOTS", "KVCL_FENCE",  "KVCL_JOIN", "KVCL_JOIN_AT"};
    const chosen_t           *chosen = arg;
    size_t                   i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        if (strcmp(info->name, names[i]) == 0) {
            chosen->fn(chosen->arg, info);
        }
    }
}

bool info_elastic_settings(const job_t *job, void (*fn)(void *arg, const kvcl_setting_info_t *info), void *arg)
{
    chosen_t chosen = {fn, arg};

    return job_ok(job, kvcl_query_settings(choose, &chosen), "settings of views");
}
