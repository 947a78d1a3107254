/*
 * The end of processes of this host: see ended.h.
 *
 * Owns: for each rank a connection and a pidfd, with an epoll; the listener and the connections of those that watch
 * this process, with another epoll, for which no thread wakes: anybody of this host can connect. Invariants: a rank is
 * reported once, and both of its descriptors are closed then; a connection of a process of this user is closed here
 * only once its other end is, since it would see that as the end of this process.
 */
#include "config.h"
#include "member/ended.h"
#include "base/error.h"
#include "base/log.h"
#include "life/life.h"
#include "life/named.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LOOKS = 256, AT_ONCE = 64, MORE_GUESTS = 64 };

typedef struct watch {
    int      fd, pidfd; /* -1: none */
    pid_t    pid;       /* of pidfd */
    unsigned looks;     /* left, since a sign of its end */
} watch_t;

struct kvcl_ended {
    int      listener, epfd;
    int      door_fd;   /* the epoll of the listener and the guests */
    uint32_t n, n_guests, max_guests;
    int      *guests;   /* connections of those that watch this process */
    watch_t  watches[]; /* by rank */
};

static bool look_at(int epfd, int fd, epoll_data_t what)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP, .data = what};

    return epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev) == 0;
}

kvcl_status_t kvcl_ended_open(const uint8_t uuid[16], uint32_t n, kvcl_ended_t **ended_p)
{
    kvcl_ended_t  *ended = malloc(sizeof(*ended) + (n * sizeof(ended->watches[0])));
    kvcl_status_t status;
    uint32_t      i;

    if ((ended == NULL) || ((ended->guests = calloc((2 * (size_t)n) + MORE_GUESTS, sizeof(*ended->guests))) == NULL)) {
        free(ended);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory to watch %u ranks", (unsigned)n);
    }
    ended->n          = n;
    ended->n_guests   = 0;
    ended->max_guests = (2 * n) + MORE_GUESTS; /* for a while those that have ended are among them */
    ended->epfd       = epoll_create1(EPOLL_CLOEXEC);
    ended->door_fd    = epoll_create1(EPOLL_CLOEXEC);
    ended->listener   = kvcl_named_listen(uuid);
    for (i = 0; i < n; ++i) {
        ended->watches[i] = (watch_t){.fd = -1, .pidfd = -1};
    }
    if ((ended->epfd < 0) || (ended->door_fd < 0) || (ended->listener < 0) ||
        !look_at(ended->door_fd, ended->listener, (epoll_data_t){.fd = ended->listener})) {
        status = kvcl_fail_errno(KVCL_ERR_IO, errno, "cannot listen at a unix socket, by whose end other ranks would "
                                 "see that of this one");
        kvcl_ended_close(ended);
        return status;
    }
    *ended_p = ended;
    return KVCL_OK;
}

/* A child that this process has forked keeps its descriptors open, so closing alone does not take one out of the
 * epoll. */
static void stop_looking(int epfd, int *fd)
{
    if (*fd >= 0) {
        (void)epoll_ctl(epfd, EPOLL_CTL_DEL, *fd, NULL); /* it need not be there */
        close(*fd);
        *fd = -1;
    }
}

static void stop_watching(const kvcl_ended_t *ended, watch_t *watch)
{
    stop_looking(ended->epfd, &watch->fd);
    stop_looking(ended->epfd, &watch->pidfd);
    watch->looks = 0;
}

static void close_one(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

void kvcl_ended_close(kvcl_ended_t *ended)
{
    uint32_t i;

    if (ended == NULL) {
        return;
    }
    for (i = 0; i < ended->n; ++i) {
        stop_watching(ended, &ended->watches[i]);
    }
    for (i = 0; i < ended->n_guests; ++i) {
        close(ended->guests[i]);
    }
    free(ended->guests);
    close_one(ended->listener);
    close_one(ended->door_fd);
    close_one(ended->epfd);
    free(ended);
}

/* This guest has ended, or says something: then it does not watch. */
static void dismiss(kvcl_ended_t *ended, int fd)
{
    uint32_t i;

    for (i = 0; (i < ended->n_guests) && (ended->guests[i] != fd); ++i) {
    }
    if (i < ended->n_guests) {
        ended->guests[i] = ended->guests[--ended->n_guests];
        stop_looking(ended->door_fd, &fd);
    }
}

static void accept_some(kvcl_ended_t *ended)
{
    int fd, i;

    for (i = 0; (i < AT_ONCE) && (ended->n_guests < ended->max_guests); ++i) {
        fd = accept4(ended->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            break;
        }
        if (kvcl_named_is_own(fd)) {
            ended->guests[ended->n_guests++] = fd;
            (void)look_at(ended->door_fd, fd, (epoll_data_t){.fd = fd}); /* if that fails, it keeps its place */
        } else {
            close(fd);
        }
    }
}

/* A connection that nobody accepts stays in the listener's queue when its other end is closed, and a full queue takes
 * no more. */
void kvcl_ended_admit(kvcl_ended_t *ended)
{
    struct epoll_event ev[AT_ONCE];
    int                i, n = epoll_wait(ended->door_fd, ev, AT_ONCE, 0);
    bool               knocked = false;

    for (i = 0; i < n; ++i) {
        if (ev[i].data.fd == ended->listener) {
            knocked = true;
        } else {
            dismiss(ended, ev[i].data.fd);
        }
    }
    if (knocked) {
        accept_some(ended);
    }
}

bool kvcl_ended_watch(kvcl_ended_t *ended, uint32_t rank, const uint8_t uuid[16])
{
    watch_t *watch = &ended->watches[rank];

    watch->fd = kvcl_named_connect(uuid);
    if ((watch->fd < 0) || !look_at(ended->epfd, watch->fd, (epoll_data_t){.u32 = rank})) {
        kvcl_log_info("the end of rank %u is not seen at a unix socket: %m; its silence counts", (unsigned)rank);
        stop_watching(ended, watch);
        return false;
    }
    watch->pidfd = kvcl_named_pidfd(watch->fd, &watch->pid);
    if ((watch->pidfd >= 0) && !look_at(ended->epfd, watch->pidfd, (epoll_data_t){.u32 = rank})) {
        stop_looking(ended->epfd, &watch->pidfd);
    }
    return true;
}

/* The descriptor was opened while the process held the socket that is named after the rank's uuid. */
bool kvcl_ended_kill(const kvcl_ended_t *ended, uint32_t rank)
{
    const watch_t *watch = &ended->watches[rank];

    return (watch->fd >= 0) && (watch->pidfd >= 0) &&
           (syscall(SYS_pidfd_send_signal, watch->pidfd, SIGKILL, NULL, 0) == 0);
}

void kvcl_ended_forget(kvcl_ended_t *ended, uint32_t rank)
{
    stop_watching(ended, &ended->watches[rank]);
}

int kvcl_ended_fd(const kvcl_ended_t *ended)
{
    return ended->epfd;
}

void kvcl_ended_sign(kvcl_ended_t *ended, uint32_t rank)
{
    ended->watches[rank].looks = (ended->watches[rank].pidfd >= 0) ? LOOKS : 0;
}

bool kvcl_ended_is_unsure(const kvcl_ended_t *ended)
{
    uint32_t rank;

    for (rank = 0; (rank < ended->n) && (ended->watches[rank].looks == 0); ++rank) {
    }
    return rank < ended->n;
}

/* One whose threads are all exiting. While its pidfd says that it has not ended, its number is no other process's. */
static uint32_t take_exiting(kvcl_ended_t *ended)
{
    uint32_t rank;

    for (rank = 0; rank < ended->n; ++rank) {
        watch_t *watch = &ended->watches[rank];

        if (watch->looks == 0) {
            continue;
        }
        --watch->looks;
        if (kvcl_life_is_exiting(watch->pid) && !kvcl_named_is_over(watch->pidfd)) {
            stop_watching(ended, watch);
            return rank;
        }
    }
    return KVCL_ENDED_NONE;
}

uint32_t kvcl_ended_take(kvcl_ended_t *ended)
{
    struct epoll_event ev;
    uint32_t           rank = take_exiting(ended);

    if (rank != KVCL_ENDED_NONE) {
        return rank;
    }
    while (epoll_wait(ended->epfd, &ev, 1, 0) > 0) {
        rank = ev.data.u32;
        if (kvcl_named_is_over(ended->watches[rank].fd) || kvcl_named_is_over(ended->watches[rank].pidfd)) {
            stop_watching(ended, &ended->watches[rank]);
            return rank;
        }
    }
    return KVCL_ENDED_NONE;
}
