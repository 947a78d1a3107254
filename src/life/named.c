/*
 * Processes of this host by name: see named.h.
 */
#include "config.h"
#include "life/named.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 4096 };

/* An abstract name: it needs no file, and ends with its process. */
static socklen_t name_of(const uint8_t name[16], struct sockaddr_un *at)
{
    int i, len;

    memset(at, 0, sizeof(*at));
    at->sun_family = AF_UNIX;
    len            = snprintf(at->sun_path + 1, sizeof(at->sun_path) - 1, "kvcl-view-");
    for (i = 0; i < 16; ++i) {
        len += snprintf(at->sun_path + 1 + len, 3, "%02x", name[i]);
    }
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

/* @return -1; errno stays. */
static int give_up(int fd)
{
    const int err = errno;

    if (fd >= 0) {
        close(fd);
    }
    errno = err;
    return -1;
}

int kvcl_named_listen(const uint8_t name[16])
{
    struct sockaddr_un at;
    const socklen_t    len = name_of(name, &at);
    const int          fd  = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    return ((fd >= 0) && (bind(fd, (struct sockaddr *)&at, len) == 0) && (listen(fd, BACKLOG) == 0)) ? fd : give_up(fd);
}

bool kvcl_named_is_own(int fd)
{
    struct ucred who;
    socklen_t    len = sizeof(who);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) != 0) {
        return false;
    }
    errno = EPERM; /* for the sentence about another user's process */
    return who.uid == geteuid();
}

int kvcl_named_connect(const uint8_t name[16])
{
    struct sockaddr_un at;
    const socklen_t    len = name_of(name, &at);
    const int          fd  = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    return ((fd >= 0) && (connect(fd, (struct sockaddr *)&at, len) == 0) && kvcl_named_is_own(fd)) ? fd : give_up(fd);
}

bool kvcl_named_is_over(int fd)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};

    return (fd >= 0) && (poll(&pfd, 1, 0) > 0);
}

int kvcl_named_pidfd(int fd, pid_t *pid_p)
{
    struct ucred who;
    socklen_t    len = sizeof(who);
    int          pidfd;

    if ((getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) != 0) || (who.pid <= 0)) {
        return -1;
    }
    pidfd = (int)syscall(SYS_pidfd_open, who.pid, 0);
    if ((pidfd >= 0) && kvcl_named_is_over(fd)) { /* the number may be another process's by now */
        close(pidfd);
        return -1;
    }
    *pid_p = who.pid;
    return pidfd;
}
