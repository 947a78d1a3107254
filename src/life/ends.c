/*
 * The ends of processes, for callers without a thread of their own: see ends.h.
 *
 * Owns: the listener, an epoll, and a pidfd for each watched process. A watcher connects to learn whose name it is, and
 * closes the connection; whoever listens takes such connections and closes them. Invariant: after an end, the next call
 * looks for another one.
 */
#include "config.h"
#include "life/ends.h"
#include "base/checksum.h"
#include "base/log.h"
#include "life/named.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ENDS_MAX = 256, LOOK_AT = 1024, TRIES = 3 };

typedef struct watch {
    int  pidfd;
    void *arg; /* NULL: the number is free */
} watch_t;

struct kvcl_ends {
    int      listener, epfd;
    unsigned n, weight; /* processes; the weight of the passes since the last look */
    watch_t  watches[ENDS_MAX];
};

static void make_name(const void *bytes, size_t len, uint8_t name[16])
{
    const uint64_t sums[2] = {kvcl_checksum(bytes, len), kvcl_checksum_seed(bytes, len, 1)};

    memcpy(name, sums, sizeof(sums));
}

kvcl_ends_t *kvcl_ends_open(const void *name, size_t len)
{
    kvcl_ends_t *ends = calloc(1, sizeof(*ends));
    uint8_t     own[16];

    if (ends == NULL) {
        return NULL;
    }
    make_name(name, len, own);
    ends->epfd     = epoll_create1(EPOLL_CLOEXEC);
    ends->listener = kvcl_named_listen(own);
    if ((ends->epfd < 0) || (ends->listener < 0)) {
        kvcl_log_info("others of this host do not see the end of this process at a unix socket: %m");
        kvcl_ends_close(ends);
        return NULL;
    }
    return ends;
}

void kvcl_ends_close(kvcl_ends_t *ends)
{
    uint32_t i;

    if (ends == NULL) {
        return;
    }
    for (i = 1; i <= ENDS_MAX; ++i) {
        if (ends->watches[i - 1].arg != NULL) {
            kvcl_ends_forget(ends, i);
        }
    }
    if (ends->listener >= 0) {
        close(ends->listener);
    }
    if (ends->epfd >= 0) {
        close(ends->epfd);
    }
    free(ends);
}

int kvcl_ends_fd(const kvcl_ends_t *ends)
{
    return (ends != NULL) ? ends->epfd : -1;
}

/* -1: the process has ended, or is not visible here. It may close a connection while the number of its process is read,
 * so there are several tries. */
static int open_process(const void *bytes, size_t len)
{
    uint8_t name[16];
    pid_t   pid;
    int     fd = 0, pidfd = -1, i;

    make_name(bytes, len, name);
    for (i = 0; (i < TRIES) && (fd >= 0) && (pidfd < 0); ++i) {
        fd    = kvcl_named_connect(name);
        pidfd = kvcl_named_pidfd(fd, &pid);
        if (fd >= 0) {
            close(fd);
        }
    }
    if (pidfd < 0) {
        kvcl_log_info("the end of a process of this host is not seen by the kernel's word");
    }
    return pidfd;
}

uint32_t kvcl_ends_watch(kvcl_ends_t *ends, const void *name, size_t len, void *arg)
{
    struct epoll_event ev = {.events = EPOLLIN};
    uint32_t           i  = 0;
    int                pidfd;

    if ((ends == NULL) || (ends->n == ENDS_MAX) || ((pidfd = open_process(name, len)) < 0)) {
        return 0;
    }
    while (ends->watches[i].arg != NULL) {
        ++i;
    }
    ev.data.u32 = i;
    if (epoll_ctl(ends->epfd, EPOLL_CTL_ADD, pidfd, &ev) != 0) {
        close(pidfd);
        return 0;
    }
    ends->watches[i] = (watch_t){.pidfd = pidfd, .arg = arg};
    ++ends->n;
    return i + 1;
}

/* A forked child has the descriptor too, so closing alone does not take it out of the epoll. */
void kvcl_ends_forget(kvcl_ends_t *ends, uint32_t number)
{
    if ((ends == NULL) || (number == 0)) {
        return;
    }
    (void)epoll_ctl(ends->epfd, EPOLL_CTL_DEL, ends->watches[number - 1].pidfd, NULL);
    close(ends->watches[number - 1].pidfd);
    ends->watches[number - 1].arg = NULL;
    --ends->n;
}

/* Connections of watchers, which wait for nothing any more. */
static void take_connections(const kvcl_ends_t *ends)
{
    int i, fd;

    for (i = 0; (i < ENDS_MAX) && ((fd = accept4(ends->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0); ++i) {
        close(fd);
    }
}

void *kvcl_ends_take(kvcl_ends_t *ends, unsigned weight)
{
    struct epoll_event ev;
    void               *arg;

    if ((ends == NULL) || (ends->n == 0)) {
        return NULL;
    }
    ends->weight += weight;
    if (ends->weight < LOOK_AT) {
        return NULL;
    }
    take_connections(ends);
    if (epoll_wait(ends->epfd, &ev, 1, 0) <= 0) {
        ends->weight = 0;
        return NULL;
    }
    arg = ends->watches[ev.data.u32].arg;
    kvcl_ends_forget(ends, ev.data.u32 + 1);
    return arg;
}
