/*
 * The engine's lock, and the wake-up of sleepers: the progress thread, the thread that polls, the threads that follow
 * it, and the user's eventfd (engine.h). The lowest part of the engine: it moves nothing and completes nothing.
 *
 * Invariant: the thread that unlocks wakes a sleeper if a transport or a room has left work that no descriptor reports.
 * An eventfd stays readable until its sleeper has drained it, so no wake-up is lost.
 */
#include "config.h"
#include "base/log.h"
#include "core/context.h"

#include <stdlib.h>
#include <unistd.h>

void kvcl_lock(kvcl_context_h ctx)
{
    atomic_fetch_add_explicit(&ctx->engine.wanted, 1, memory_order_relaxed);
    pthread_mutex_lock(&ctx->engine.lock);
    atomic_fetch_sub_explicit(&ctx->engine.wanted, 1, memory_order_relaxed);
}

bool kvcl_trylock(kvcl_context_h ctx)
{
    return pthread_mutex_trylock(&ctx->engine.lock) == 0;
}

#if KVCL_ENABLE_DEBUG
void kvcl_assert_locked_in(kvcl_context_h ctx, const char *function)
{
    if (pthread_mutex_trylock(&ctx->engine.lock) == 0) {
        kvcl_log_error("%s() is called without the engine lock", function);
        abort();
    }
}
#endif

static void signal_fd(int fd)
{
    uint64_t one = 1;

    if ((fd >= 0) && (write(fd, &one, sizeof(one)) < 0)) {
        kvcl_log_trace("eventfd %d is full: %m", fd); /* readable all the same */
    }
}

static void wake_poller(kvcl_engine_t *eng)
{
    if (eng->poller_asleep) {
        eng->poller_asleep = false;
        signal_fd(eng->poller_fd);
    }
}

void kvcl_engine_kick(kvcl_context_h ctx)
{
    kvcl_engine_t *eng = &ctx->engine;

    kvcl_assert_locked(ctx);
    wake_poller(eng);
    if (eng->thread_asleep) {
        eng->thread_asleep = false;
        signal_fd(eng->wake_fd);
    }
}

void kvcl_engine_rouse(kvcl_context_h ctx)
{
    kvcl_assert_locked(ctx);
    signal_fd(ctx->engine.wake_fd);
}

bool kvcl_engine_outstanding(kvcl_context_h ctx)
{
    kvcl_engine_t *eng = &ctx->engine;
    unsigned      i;

    kvcl_assert_locked(ctx);
    for (i = 0; i < eng->n_xports; ++i) {
        kvcl_xport_t *xport = eng->xports[i];
        if ((xport->ops->outstanding != NULL) && xport->ops->outstanding(xport)) {
            return true;
        }
    }
    for (i = 0; i < ctx->n_rooms; ++i) {
        if ((kvcl_rooms[i]->outstanding != NULL) && kvcl_rooms[i]->outstanding(ctx, ctx->rooms[i])) {
            return true;
        }
    }
    return false;
}

void kvcl_unlock(kvcl_context_h ctx)
{
    kvcl_engine_t *eng = &ctx->engine;

    if ((eng->polling ? eng->poller_asleep : eng->thread_asleep) && kvcl_engine_outstanding(ctx)) {
        kvcl_engine_kick(ctx);
    }
    pthread_mutex_unlock(&eng->lock);
}

void kvcl_unlock_quietly(kvcl_context_h ctx)
{
    pthread_mutex_unlock(&ctx->engine.lock);
}

void kvcl_relock(kvcl_context_h ctx)
{
    pthread_mutex_lock(&ctx->engine.lock);
}

void kvcl_engine_notify(kvcl_context_h ctx)
{
    kvcl_assert_locked(ctx);
    wake_poller(&ctx->engine);
    if (ctx->engine.followers != 0) {
        pthread_cond_broadcast(&ctx->engine.cond);
    }
}

void kvcl_engine_news(kvcl_context_h ctx)
{
    kvcl_assert_locked(ctx);
    kvcl_engine_notify(ctx);
    if (atomic_load_explicit(&ctx->engine.user_fd, memory_order_relaxed) >= 0) {
        signal_fd(ctx->engine.user_fd);
    }
}

/* The thread that holds the lock may have polled already and be about to sleep: a written descriptor keeps it awake. */
void kvcl_engine_nudge(kvcl_context_h ctx)
{
    kvcl_engine_t *eng = &ctx->engine;

    if (!kvcl_trylock(ctx)) {
        signal_fd(eng->poller_fd);
        signal_fd(eng->wake_fd);
        return;
    }
    if (eng->polling) {
        wake_poller(eng);
    } else if (eng->thread_asleep) {
        eng->thread_asleep = false;
        signal_fd(eng->wake_fd);
    }
    pthread_mutex_unlock(&eng->lock);
}
