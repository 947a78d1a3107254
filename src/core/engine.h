/*
 * The engine: one lock per context, one progress thread, and how threads wait.
 *
 * The lock guards everything in the context but the bytes themselves and instant requests. Lock order: an engine lock
 * is never taken while another context's is held; base/log's and a transport's own inner locks come after it. No
 * callback of the user and no boot call runs with it held.
 *
 * Who polls: a thread that waits polls the transports itself (so that a wake-up costs one thread, not two) and the
 * progress thread parks; when the last waiter leaves, it arms the transports and the progress thread's epoll again.
 * A thread spins at most config.spin_ns after the last event, and not where that was in vain (base/spin.h), then sleeps
 * in the kernel; a waiting thread also spins during a short copy by a peer (kvcl_engine_expect). The progress thread
 * does not spin where it would take the only core from the application.
 */
#ifndef KVCL_CORE_ENGINE_H
#define KVCL_CORE_ENGINE_H

#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
#include "base/spin.h"
#include "core/xport.h"
#include "wire/address.h"
#include <pthread.h>
#include <stdatomic.h>

struct kvcl_context;
struct kvcl_request;

enum { KVCL_ENGINE_XPORTS = 3 + KVCL_RDMA_PORTS, KVCL_ENGINE_FDS = KVCL_ENGINE_XPORTS };

typedef struct kvcl_engine {
    pthread_mutex_t lock;
    pthread_cond_t  cond;          /* followers: something completed, or the poller left */
    pthread_t       thread;
    bool            has_thread;
    bool            stopping;
    bool            thread_asleep; /* in epoll_wait */
    bool            fds_armed;     /* the thread's epoll listens to the transports */
    uint64_t        thread_wake_ns; /* when the sleeping thread, or poller, wakes by itself */
    uint64_t        poller_wake_ns;
    unsigned        pollers;       /* application threads inside engine_wait */
    bool            polling;       /* one of them polls */
    unsigned        followers;     /* the others, on cond */
    bool            rested;        /* the rooms were not polled in the last pass */
    int             epfd;          /* the thread's */
    int             wake_fd;       /* eventfd: wakes the thread */
    int             poller_fd;     /* eventfd: wakes the application thread that polls */
    bool            poller_asleep;
    _Atomic int     user_fd;       /* eventfd for the user, -1 until requested */
    bool            user_loop;     /* no progress thread: the user sleeps on epfd, and user_fd is wake_fd */
    int             timer_fd;      /* of such a user: the next deadline */
    _Atomic int     wanted;        /* threads about to take the lock */
    kvcl_spin_t     thread_spin, waiter_spin;
    uint64_t        expect_ns;     /* a waiting thread that may spin does so until then, see kvcl_engine_expect */
    bool            one_core;      /* the progress thread and the application share it: the thread does not spin */
    kvcl_xport_t    *xports[KVCL_ENGINE_XPORTS];
    unsigned        n_xports;
    int             fds[KVCL_ENGINE_FDS]; /* sleepers listen to these: the transports' */
    unsigned        n_fds;
    kvcl_heap_t     timers;
    kvcl_list_t     callbacks;     /* finished requests whose callback is to run */
    unsigned        calling;       /* threads that are in a callback */
    kvcl_list_t     live;          /* requests in progress */
    kvcl_map_t      ids;
    uint64_t        next_id;
    uint64_t        completed;     /* requests completed so far */
} kvcl_engine_t;

kvcl_status_t kvcl_engine_init(struct kvcl_context *ctx) KVCL_MUST_CHECK;
/** After the transports are in engine.xports: start the progress thread, if wanted. */
kvcl_status_t kvcl_engine_start(struct kvcl_context *ctx, bool thread) KVCL_MUST_CHECK;
void          *kvcl_engine_thread(void *ctx); /* the progress thread's function, for engine_start.c */
void          kvcl_engine_stop(struct kvcl_context *ctx); /* joins the thread */
void          kvcl_engine_fini(struct kvcl_context *ctx);

/** Lock held. A peer of this host will copy this many bytes out of mapped memory, and report that. A waiting thread
 * spins for about as long, unless that is more than 2 ms: waking it costs as much as a copy of half a MiB. */
void kvcl_engine_expect(struct kvcl_context *ctx, uint64_t bytes);

void kvcl_lock(struct kvcl_context *ctx);
/** kvcl_lock if that needs no waiting. @return whether it did. */
bool kvcl_trylock(struct kvcl_context *ctx) KVCL_MUST_CHECK;
/** Unlock, and wake the progress thread if there is work that no other thread will do. */
void kvcl_unlock(struct kvcl_context *ctx);
/** Unlock where no work for the progress thread was begun: wakes no thread. */
void kvcl_unlock_quietly(struct kvcl_context *ctx);
/** Lock again, in a room's work that unlocked quietly to copy bytes: the polling thread does not yield to it. */
void kvcl_relock(struct kvcl_context *ctx);
/** First line of functions that need the lock: test/check_locks.sh. Costs nothing but in debug builds. */
#if KVCL_ENABLE_DEBUG
void kvcl_assert_locked_in(struct kvcl_context *ctx, const char *function);
#define kvcl_assert_locked(_ctx) kvcl_assert_locked_in(_ctx, __func__)
#else
static inline void kvcl_assert_locked(struct kvcl_context *ctx)
{
    (void)ctx;
}
#endif

/** Lock held. Make the progress thread run soon (an earlier deadline, a waiting copy). */
void kvcl_engine_kick(struct kvcl_context *ctx);
/** Lock held: has a transport or a room work that was not finished inside a post and that only polling advances? */
bool kvcl_engine_outstanding(struct kvcl_context *ctx);
/** Lock held: the progress thread does not sleep, even if it has polled already and is about to. */
void kvcl_engine_rouse(struct kvcl_context *ctx);
/** Lock held: a condition of a kvcl_engine_wait, other than a request, may have become true. */
void kvcl_engine_notify(struct kvcl_context *ctx);
/** Lock held: the same, for conditions that users wait for by the context's eventfd. */
void kvcl_engine_news(struct kvcl_context *ctx);
/** Any thread, no lock, never waits. Request a poll soon. No effect while no thread progresses the context. */
void kvcl_engine_nudge(struct kvcl_context *ctx);
/** Lock held: a request became final. */
void kvcl_engine_completed(struct kvcl_context *ctx, struct kvcl_request *req);

/**
 * Wait until done(arg) or the deadline; runs callbacks. No lock held; done is called with the lock held.
 * @return whether done.
 */
bool kvcl_engine_wait(struct kvcl_context *ctx, bool (*done)(void *arg), void *arg, uint64_t deadline_ns);

/**
 * The progress thread's steps before it sleeps, for a user who sleeps on epfd (eventloop.c): one pass over transports
 * and rooms, then arm. Lock held on entry and on return, not in between. @return whether no work is left.
 */
bool kvcl_engine_arm(struct kvcl_context *ctx);

/* engine_pass.c: lock held, but room work may drop it meanwhile; returns the number of events */
unsigned kvcl_engine_poll_once(struct kvcl_context *ctx, uint64_t now);
/** The same for a thread that calls it in a loop, and sleeps only after 0: messages first, the rooms perhaps later. */
unsigned kvcl_engine_poll_briefly(struct kvcl_context *ctx, uint64_t now);
/** Take messages if no thread does (the progress thread is in a callback, or there is none); all: all there are. */
void     kvcl_engine_poll_messages(struct kvcl_context *ctx, bool all);
/** A thread that waited leaves: poll the rooms if they rested in the last pass and nobody else polls. */
void     kvcl_engine_end_rest(struct kvcl_context *ctx);

/** One pass over transports and rooms; no lock held. @return the number of requests that completed meanwhile. */
unsigned kvcl_engine_pass(struct kvcl_context *ctx);

#endif
