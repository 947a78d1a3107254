/*
 * A timer of an instance, for what is due later (glue_probe.c, glue_wait.c): it wakes a sleeping owner of the context.
 *
 * Owns: the timer's descriptor, which is in the instance's epoll. Invariant: the timer fires after the time that it was
 * set to, so that the thread it wakes finds that time passed. Locks: the engine lock.
 */
#include "config.h"
#include "ucx_glue/glue.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

kvcl_status_t kvcl_glue_timer_open(glue_t *g, glue_timer_t *timer)
{
    struct epoll_event event = {.events = EPOLLIN};

    timer->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if ((timer->fd < 0) || (epoll_ctl(g->epfd, EPOLL_CTL_ADD, timer->fd, &event) != 0)) {
        return kvcl_fail_errno(KVCL_ERR_IO, errno, "%s: no timer", g->super.ops->name);
    }
    return KVCL_OK;
}

void kvcl_glue_timer_close(glue_timer_t *timer)
{
    if (timer->fd >= 0) {
        close(timer->fd);
        timer->fd = -1;
    }
}

void kvcl_glue_timer_set(glue_timer_t *timer, uint64_t due_ns)
{
    uint64_t          at_ns = (due_ns == 0) ? 0 : due_ns + KVCL_NS_PER_MS;
    struct itimerspec at    = {.it_value = {.tv_sec  = (time_t)(at_ns / KVCL_NS_PER_SEC),
                                            .tv_nsec = (long)(at_ns % KVCL_NS_PER_SEC)}};

    timer->due_ns = due_ns;
    if (timer->fd >= 0) {
        (void)timerfd_settime(timer->fd, TFD_TIMER_ABSTIME, &at, NULL); /* also makes it unreadable */
    }
}
