/*
 * A context in the user's event loop: the descriptor, and arming it.
 *
 * With a progress thread the descriptor is an eventfd that counts completions. Without one it is the engine's epoll, on
 * which the progress thread would sleep: it has the transports' descriptors, the eventfd that wakes a sleeper (which
 * then counts completions as well) and a timer for the next deadline. The engine treats a user who sleeps on it as the
 * sleeping thread (engine->thread_asleep), so each event that wakes the one wakes the other. All under the engine lock.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "core/context.h"
#include "handle/handle.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Lock held. */
static kvcl_status_t open_fd(kvcl_context_h ctx)
{
    kvcl_engine_t      *eng = &ctx->engine;
    struct epoll_event ev   = {.events = EPOLLIN};

    kvcl_assert_locked(ctx);
    if (eng->has_thread) {
        eng->user_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        return (eng->user_fd >= 0) ? KVCL_OK : kvcl_fail_errno(KVCL_ERR_IO, errno, "cannot make an eventfd");
    }
    eng->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    ev.data.fd    = eng->timer_fd;
    if ((eng->timer_fd < 0) || (epoll_ctl(eng->epfd, EPOLL_CTL_ADD, eng->timer_fd, &ev) != 0)) {
        return kvcl_fail_errno(KVCL_ERR_IO, errno, "cannot make a timer");
    }
    eng->user_loop = true;
    eng->user_fd   = eng->wake_fd;
    return KVCL_OK;
}

kvcl_status_t kvcl_context_eventfd(kvcl_context_h ctx, int *fd_p)
{
    kvcl_status_t status = kvcl_handle_check(ctx, KVCL_KIND_CONTEXT, "kvcl_context_eventfd");

    if (status != KVCL_OK) {
        return status;
    }
    if (fd_p == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_context_eventfd: fd_p is NULL");
    }
    kvcl_lock(ctx);
    if (ctx->engine.user_fd < 0) {
        status = open_fd(ctx);
    }
    if (status == KVCL_OK) {
        *fd_p = ctx->engine.user_loop ? ctx->engine.epfd : ctx->engine.user_fd;
    }
    kvcl_unlock(ctx);
    return status;
}

/* Lock held. Was the descriptor signalled since the last call? */
static bool was_notified(kvcl_context_h ctx)
{
    uint64_t count;

    kvcl_assert_locked(ctx);
    return read(ctx->engine.user_fd, &count, sizeof(count)) == (ssize_t)sizeof(count);
}

static kvcl_status_t set_timer(const kvcl_engine_t *eng)
{
    struct itimerspec at = {{0, 0}, {0, 0}}; /* zero: none */

    if (eng->thread_wake_ns != KVCL_DEADLINE_NONE) {
        at.it_value.tv_sec  = (time_t)(eng->thread_wake_ns / KVCL_NS_PER_SEC);
        at.it_value.tv_nsec = (long)(eng->thread_wake_ns % KVCL_NS_PER_SEC);
    }
    return (timerfd_settime(eng->timer_fd, TFD_TIMER_ABSTIME, &at, NULL) == 0)
               ? KVCL_OK : kvcl_fail_errno(KVCL_ERR_IO, errno, "cannot set a timer");
}

kvcl_status_t kvcl_context_arm(kvcl_context_h ctx)
{
    kvcl_engine_t *eng   = &ctx->engine;
    kvcl_status_t status = kvcl_handle_check(ctx, KVCL_KIND_CONTEXT, "kvcl_context_arm");
    bool          moved;

    if (status != KVCL_OK) {
        return status;
    }
    kvcl_lock(ctx);
    if (eng->user_fd < 0) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_context_arm: get the descriptor first, with "
                           "kvcl_context_eventfd");
    } else {
        moved  = eng->user_loop && !kvcl_engine_arm(ctx);
        moved  = was_notified(ctx) || moved;
        status = moved ? KVCL_INPROGRESS : (eng->user_loop ? set_timer(eng) : KVCL_OK);
    }
    pthread_mutex_unlock(&eng->lock); /* not kvcl_unlock, which would wake the sleeper just armed */
    return status;
}
