/*
 * The engine at work (engine.h): the progress thread, waiting. The passes are in engine_pass.c.
 *
 * Owns: who polls. Invariants: one thread polls at a time; a thread that sleeps has armed the transports first, or
 * another thread polls; the last waiter hands polling back. How the engine starts and ends is in engine_start.c.
 * Locks: the engine lock, released in yield_lock(), while a thread sleeps, and in callbacks.
 */
#include "config.h"
#include "core/engine.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "core/bundle.h"
#include "core/context.h"
#include "handle/handle.h"
#include "req/callback.h"
#include "req/req.h"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <unistd.h>

static void drain_fd(int fd)
{
    uint64_t count;

    if (read(fd, &count, sizeof(count)) < 0) {
        return; /* no signal arrived */
    }
}

void kvcl_engine_completed(kvcl_context_h ctx, kvcl_req_t *req)
{
    kvcl_engine_t *eng = &ctx->engine;

    kvcl_assert_locked(ctx);
    ++eng->completed;
    kvcl_callback_queue(ctx, req);
    if ((req->cb != NULL) && eng->has_thread) {
        kvcl_engine_notify(ctx); /* users are notified when it can be collected: when the callback has returned */
    } else {
        kvcl_engine_news(ctx);
    }
}

static bool arm_xports(kvcl_engine_t *eng)
{
    unsigned i;

    for (i = 0; i < eng->n_xports; ++i) {
        if (eng->xports[i]->ops->arm(eng->xports[i]) != KVCL_OK) {
            return false;
        }
    }
    return true;
}

/* Whether a thread sleeps on epfd while none waits inside the library. */
static bool has_sleeper(const kvcl_engine_t *eng)
{
    return eng->has_thread || eng->user_loop;
}

/* Add the transports to the progress thread's epoll, or remove them: while another thread polls, the sleeper must not
 * wake for their events. */
static void set_thread_fds(kvcl_engine_t *eng, bool on)
{
    struct epoll_event ev = {.events = on ? EPOLLIN : 0};
    unsigned i;

    if (!has_sleeper(eng) || (eng->fds_armed == on)) {
        return;
    }
    for (i = 0; i < eng->n_fds; ++i) {
        ev.data.fd = eng->fds[i];
        epoll_ctl(eng->epfd, EPOLL_CTL_MOD, eng->fds[i], &ev);
    }
    eng->fds_armed = on;
}

/* Sleepers wake once a second, so that a usual deadline (many seconds away) wakes no thread when it is set. */
static uint64_t sleep_until(uint64_t until_ns)
{
    uint64_t soon = kvcl_deadline_after(KVCL_NS_PER_SEC);

    return (until_ns < soon) ? until_ns : soon;
}

static void thread_sleep(kvcl_context_h ctx, uint64_t until_ns)
{
    kvcl_engine_t      *eng = &ctx->engine;
    struct epoll_event ev[4];
    int                n, i;

    eng->thread_asleep  = true;
    eng->thread_wake_ns = sleep_until(until_ns);
    until_ns            = eng->thread_wake_ns;
    pthread_mutex_unlock(&eng->lock);
    n = epoll_wait(eng->epfd, ev, 4, kvcl_deadline_poll_ms(until_ns));
    pthread_mutex_lock(&eng->lock);
    eng->thread_asleep = false;
    for (i = 0; i < n; ++i) {
        if (ev[i].data.fd == eng->wake_fd) {
            drain_fd(eng->wake_fd);
        } /* the transports' descriptors stay: this thread polls them until they are quiet */
    }
}

/* Give other threads the lock while this one spins: a mutex is not fair by itself. */
static void yield_lock(kvcl_engine_t *eng, bool naps)
{
    pthread_mutex_unlock(&eng->lock);
    if (naps) {
        (void)usleep(KVCL_SPIN_NAP_US);
    } else if (atomic_load_explicit(&eng->wanted, memory_order_relaxed) != 0) {
        sched_yield();
    } else {
        kvcl_relax();
    }
    pthread_mutex_lock(&eng->lock);
}

void *kvcl_engine_thread(void *arg)
{
    kvcl_context_h ctx  = arg;
    kvcl_engine_t  *eng = &ctx->engine;
    uint64_t       last = kvcl_now_ns(), now;
    unsigned       n, i;

    pthread_mutex_lock(&eng->lock);
    while (!eng->stopping) {
        now = kvcl_now_ns();
        if (eng->polling) { /* an application thread polls; help it copy, otherwise stay away */
            n = 0;
            for (i = 0; i < ctx->n_rooms; ++i) {
                if (kvcl_rooms[i]->work != NULL) {
                    n += kvcl_rooms[i]->work(ctx, ctx->rooms[i]) ? 1 : 0;
                }
            }
            if ((n == 0) && eng->polling) {
                set_thread_fds(eng, false);
                thread_sleep(ctx, KVCL_DEADLINE_NONE);
                last = kvcl_now_ns();
            }
            continue;
        }
        n = kvcl_engine_poll_briefly(ctx, now);
        kvcl_callbacks_run(ctx);
        if (n != 0) {
            last = now;
            kvcl_spin_found(&eng->thread_spin);
            yield_lock(eng, false);
        } else if (!eng->one_core && kvcl_spin_more(&eng->thread_spin, now - last)) {
            yield_lock(eng, false);
        } else if (!eng->polling && arm_xports(eng)) {
            kvcl_spin_slept(&eng->thread_spin);
            set_thread_fds(eng, true);
            thread_sleep(ctx, kvcl_heap_min_key(&eng->timers));
            last = kvcl_now_ns();
        } else {
            yield_lock(eng, kvcl_spin_naps(&eng->thread_spin)); /* the transports could not be armed */
        }
    }
    pthread_mutex_unlock(&eng->lock);
    return NULL;
}

void kvcl_engine_expect(kvcl_context_h ctx, uint64_t bytes)
{
    const uint64_t most_ns = 2 * KVCL_NS_PER_MS, bytes_per_ns = 8;
    uint64_t       copy_ns = bytes / bytes_per_ns, until_ns;

    kvcl_assert_locked(ctx);
    until_ns = (copy_ns < most_ns) ? kvcl_now_ns() + copy_ns : 0;
    if (ctx->engine.expect_ns < until_ns) {
        ctx->engine.expect_ns = until_ns;
    }
}

/* The polling application thread sleeps on the transports' descriptors themselves. */
static void poller_sleep(kvcl_context_h ctx, uint64_t until_ns)
{
    kvcl_engine_t *eng = &ctx->engine;
    struct pollfd fds[KVCL_ENGINE_FDS + 1];
    unsigned      i;

    for (i = 0; i < eng->n_fds; ++i) {
        fds[i].fd     = eng->fds[i];
        fds[i].events = POLLIN;
    }
    fds[i].fd           = eng->poller_fd;
    fds[i].events       = POLLIN;
    fds[i].revents      = 0;
    eng->poller_asleep  = true;
    eng->poller_wake_ns = sleep_until(until_ns);
    until_ns            = eng->poller_wake_ns;
    pthread_mutex_unlock(&eng->lock);
    (void)poll(fds, eng->n_fds + 1, kvcl_deadline_poll_ms(until_ns));
    pthread_mutex_lock(&eng->lock);
    eng->poller_asleep = false;
    if (fds[eng->n_fds].revents != 0) {
        drain_fd(eng->poller_fd);
    }
}

static void poller_loop(kvcl_context_h ctx, bool (*done)(void *arg), void *arg, uint64_t deadline_ns)
{
    kvcl_engine_t *eng = &ctx->engine;
    uint64_t      last = kvcl_now_ns(), now, until;

    eng->polling = true;
    if (eng->thread_asleep || eng->user_loop) { /* a thread that is awake removes them before it sleeps */
        set_thread_fds(eng, false);
    }
    while (!done(arg)) {
        now = kvcl_now_ns();
        if (now >= deadline_ns) {
            break;
        }
        if ((kvcl_engine_poll_briefly(ctx, now) != 0) || !kvcl_list_is_empty(&eng->callbacks)) {
            last = now; /* callbacks alone: another thread's call completed something */
            kvcl_spin_found(&eng->waiter_spin);
            kvcl_callbacks_run(ctx);
            yield_lock(eng, false);
        } else if (kvcl_spin_more(&eng->waiter_spin, (now < eng->expect_ns) ? 0 : now - last)) {
            yield_lock(eng, false);
        } else if (arm_xports(eng)) {
            kvcl_spin_slept(&eng->waiter_spin);
            until = kvcl_heap_min_key(&eng->timers);
            poller_sleep(ctx, (until < deadline_ns) ? until : deadline_ns);
            last = kvcl_now_ns() - eng->waiter_spin.most_ns; /* after a sleep: no spin until the next event */
        } else {
            yield_lock(eng, kvcl_spin_naps(&eng->waiter_spin));
        }
    }
    kvcl_spin_found(&eng->waiter_spin);
    eng->polling = false;
    kvcl_callbacks_run(ctx);
}

/* The last waiter gives polling back to the thread: re-armed where it sleeps, or woken. */
static void hand_back(kvcl_context_h ctx)
{
    kvcl_engine_t *eng = &ctx->engine;

    if (eng->followers != 0) {
        pthread_cond_broadcast(&eng->cond);
        return;
    }
    if (!has_sleeper(eng)) {
        return;
    }
    if (eng->thread_asleep && !kvcl_engine_outstanding(ctx) && arm_xports(eng)) {
        set_thread_fds(eng, true);
        if (kvcl_heap_min_key(&eng->timers) >= eng->thread_wake_ns) {
            return;
        }
    }
    kvcl_engine_kick(ctx);
}

bool kvcl_engine_wait(kvcl_context_h ctx, bool (*done)(void *arg), void *arg, uint64_t deadline_ns)
{
    kvcl_engine_t   *eng = &ctx->engine;
    struct timespec ts;
    bool            ok;

    kvcl_lock(ctx);
    ++eng->pollers;
    while (!(ok = done(arg)) && (kvcl_now_ns() < deadline_ns)) {
        if (!eng->polling) {
            poller_loop(ctx, done, arg, deadline_ns);
        } else if (eng->poller_asleep && kvcl_bundles_flush(ctx)) {
            if (kvcl_engine_outstanding(ctx)) {
                kvcl_engine_kick(ctx);
            } /* messages that could not be sent may have ended the requests waited for */
        } else {
            ++eng->followers;
            ts.tv_sec  = (time_t)(deadline_ns / KVCL_NS_PER_SEC);
            ts.tv_nsec = (long)(deadline_ns % KVCL_NS_PER_SEC);
            if (deadline_ns / KVCL_NS_PER_SEC > 1u << 31) {
                ts.tv_sec = 1u << 31;
            }
            pthread_cond_timedwait(&eng->cond, &eng->lock, &ts);
            --eng->followers;
        }
    }
    --eng->pollers;
    kvcl_engine_end_rest(ctx);
    (void)kvcl_bundles_flush(ctx);
    if (eng->polling) {
        kvcl_unlock(ctx);
        return ok;
    }
    hand_back(ctx);
    pthread_mutex_unlock(&eng->lock);
    return ok;
}

unsigned kvcl_engine_pass(kvcl_context_h ctx)
{
    kvcl_engine_t *eng = &ctx->engine;
    uint64_t      before;

    if (pthread_mutex_trylock(&eng->lock) != 0) {
        return 0; /* another thread progresses the context */
    }
    before = eng->completed;
    if (!eng->polling) {
        (void)kvcl_engine_poll_once(ctx, kvcl_now_ns());
        kvcl_callbacks_run(ctx);
    }
    before = eng->completed - before;
    if (!eng->polling && has_sleeper(eng) && eng->thread_asleep && eng->fds_armed && !arm_xports(eng)) {
        kvcl_engine_kick(ctx);
    }
    kvcl_unlock(ctx);
    return (unsigned)before;
}

bool kvcl_engine_arm(kvcl_context_h ctx)
{
    kvcl_engine_t *eng  = &ctx->engine;
    bool          moved;

    eng->thread_asleep = false;
    moved = !eng->polling && (kvcl_engine_poll_once(ctx, kvcl_now_ns()) != 0);
    moved = moved || !kvcl_list_is_empty(&eng->callbacks);
    kvcl_callbacks_run(ctx);
    if (moved || (!eng->polling && !arm_xports(eng))) {
        return false;
    }
    set_thread_fds(eng, !eng->polling);
    eng->thread_asleep  = true;
    eng->thread_wake_ns = kvcl_heap_min_key(&eng->timers);
    return true;
}

unsigned kvcl_progress(kvcl_context_h ctx)
{
    return (kvcl_handle_check(ctx, KVCL_KIND_CONTEXT, "kvcl_progress") == KVCL_OK) ? kvcl_engine_pass(ctx) : 0;
}
