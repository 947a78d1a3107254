/*
 * One pass of the engine (engine.h): the transports, the rooms, the deadlines.
 *
 * Owns: whether the rooms rested in the last pass. Where messages have completed a request, the rooms rest for one pass
 * of a thread that polls in a loop: the thread that waits for the request does not wait for a slice of a large transfer
 * as well. Invariants: the rooms never rest twice in a row; the messages of a pass in which they rested may have
 * brought them work, so no thread sleeps, and the last waiter does not leave, before they were polled. Locks: the
 * engine lock.
 */
#include "config.h"
#include "core/engine.h"
#include "base/clock.h"
#include "core/bundle.h"
#include "core/context.h"
#include "req/callback.h"
#include "req/req.h"

static unsigned expire(kvcl_context_h ctx, uint64_t now)
{
    kvcl_engine_t *eng = &ctx->engine;
    kvcl_req_t    *req;
    unsigned      n = 0;

    while (kvcl_heap_min_key(&eng->timers) <= now) {
        req = kvcl_container_of(kvcl_heap_min(&eng->timers), kvcl_req_t, timer);
        kvcl_heap_del(&eng->timers, &req->timer);
        req->cls->stop(req, KVCL_ERR_TIMED_OUT);
        ++n;
    }
    return n;
}

static unsigned poll_xports(kvcl_context_h ctx)
{
    kvcl_engine_t *eng = &ctx->engine;
    unsigned      n    = 0, i;

    kvcl_assert_locked(ctx);
    kvcl_bundles_begin(ctx);
    for (i = 0; i < eng->n_xports; ++i) {
        n += eng->xports[i]->ops->progress(eng->xports[i]);
    }
    kvcl_bundles_end(ctx);
    return n;
}

/* Lock held (room work may drop it meanwhile). */
static unsigned poll_rooms(kvcl_context_h ctx, uint64_t now)
{
    unsigned n = 0, i;

    kvcl_assert_locked(ctx);
    for (i = 0; i < ctx->n_rooms; ++i) {
        if (kvcl_rooms[i]->poll != NULL) {
            n += kvcl_rooms[i]->poll(ctx, ctx->rooms[i]);
        }
        if (kvcl_rooms[i]->work != NULL) {
            n += kvcl_rooms[i]->work(ctx, ctx->rooms[i]) ? 1 : 0;
        }
    }
    return n + kvcl_peers_poll(ctx, now) + expire(ctx, now);
}

unsigned kvcl_engine_poll_once(kvcl_context_h ctx, uint64_t now)
{
    unsigned n = poll_xports(ctx);

    ctx->engine.rested = false;
    return n + poll_rooms(ctx, now);
}

void kvcl_engine_poll_messages(kvcl_context_h ctx, bool all)
{
    const bool theirs = ctx->engine.polling || (ctx->engine.thread_asleep && ctx->engine.fds_armed);
    unsigned   most   = all ? 64 : theirs ? 0 : 1; /* a peer that goes on sending does not keep the lock here */

    for (; (most != 0) && (poll_xports(ctx) != 0); --most) {
    }
}

unsigned kvcl_engine_poll_briefly(kvcl_context_h ctx, uint64_t now)
{
    kvcl_engine_t *eng   = &ctx->engine;
    uint64_t      before = eng->completed;
    unsigned      n;

    if (eng->rested) {
        return kvcl_engine_poll_once(ctx, now);
    }
    n           = poll_xports(ctx);
    eng->rested = (eng->completed != before);
    return n + (eng->rested ? 1 : poll_rooms(ctx, now));
}

void kvcl_engine_end_rest(kvcl_context_h ctx)
{
    kvcl_engine_t *eng = &ctx->engine;

    if (eng->rested && !eng->polling && (eng->followers == 0)) {
        eng->rested = false;
        (void)poll_rooms(ctx, kvcl_now_ns());
        kvcl_callbacks_run(ctx);
    }
}
