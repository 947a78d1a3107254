/*
 * The start and the end of an engine (engine.h): its descriptors, tables and thread.
 *
 * Owns: the engine's descriptors, but for those that eventloop.c makes for the user. Invariants: descriptors are
 * watched before the thread starts; the thread has ended before anything is freed. Locks: none is held on entry.
 */
#include "config.h"
#include "core/engine.h"
#include "base/clock.h"
#include "base/error.h"
#include "core/context.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

kvcl_status_t kvcl_engine_init(kvcl_context_h ctx)
{
    kvcl_engine_t      *eng = &ctx->engine;
    pthread_condattr_t attr;

    eng->epfd = eng->wake_fd = eng->poller_fd = -1;
    eng->user_fd = eng->timer_fd = -1;
    pthread_mutex_init(&eng->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&eng->cond, &attr);
    pthread_condattr_destroy(&attr);
    kvcl_heap_init(&eng->timers);
    kvcl_map_init(&eng->ids);
    kvcl_list_init(&eng->callbacks);
    kvcl_list_init(&eng->live);
    eng->epfd      = epoll_create1(EPOLL_CLOEXEC);
    eng->wake_fd   = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    eng->poller_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if ((eng->epfd < 0) || (eng->wake_fd < 0) || (eng->poller_fd < 0)) {
        return kvcl_fail_errno(KVCL_ERR_IO, errno, "cannot make the engine's descriptors");
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_engine_start(kvcl_context_h ctx, bool thread)
{
    kvcl_engine_t      *eng = &ctx->engine;
    struct epoll_event ev   = {.events = EPOLLIN, .data.fd = eng->wake_fd};
    unsigned           i;
    int                err, fd;

    epoll_ctl(eng->epfd, EPOLL_CTL_ADD, eng->wake_fd, &ev);
    for (i = 0; i < eng->n_xports; ++i) {
        fd = eng->xports[i]->ops->event_fd(eng->xports[i]);
        if (fd >= 0) {
            eng->fds[eng->n_fds++] = fd;
        }
    }
    for (i = 0; i < eng->n_fds; ++i) {
        ev.events  = 0;
        ev.data.fd = eng->fds[i];
        if (epoll_ctl(eng->epfd, EPOLL_CTL_ADD, ev.data.fd, &ev) != 0) {
            return kvcl_fail_errno(KVCL_ERR_IO, errno, "cannot watch the descriptors of the transports");
        }
    }
    if (!thread) {
        return KVCL_OK;
    }
    eng->has_thread = true;
    err = pthread_create(&eng->thread, NULL, kvcl_engine_thread, ctx);
    if (err != 0) {
        eng->has_thread = false;
        return kvcl_fail_errno(KVCL_ERR_NO_MEMORY, err, "cannot start the progress thread");
    }
    pthread_setname_np(eng->thread, "kvcl-progress");
    return KVCL_OK;
}

void kvcl_engine_stop(kvcl_context_h ctx)
{
    kvcl_engine_t *eng = &ctx->engine;

    if (!eng->has_thread) {
        return;
    }
    pthread_mutex_lock(&eng->lock);
    eng->stopping = true;
    kvcl_engine_rouse(ctx);
    pthread_mutex_unlock(&eng->lock);
    pthread_join(eng->thread, NULL);
    eng->has_thread = false;
}

void kvcl_engine_fini(kvcl_context_h ctx)
{
    kvcl_engine_t *eng = &ctx->engine;
    int           fds[] = {eng->epfd, eng->wake_fd, eng->poller_fd, eng->timer_fd, eng->user_fd};
    unsigned      i;

    for (i = 0; i < (eng->user_loop ? 4u : 5u); ++i) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    kvcl_heap_fini(&eng->timers);
    kvcl_map_fini(&eng->ids);
    pthread_cond_destroy(&eng->cond);
    pthread_mutex_destroy(&eng->lock);
}
