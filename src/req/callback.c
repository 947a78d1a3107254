/*
 * Callbacks of requests (callback.h).
 *
 * req->called moves NOT_YET -> RUNNING -> RETURNED. A queued callback is one whose done_link is in engine->callbacks;
 * it is dequeued under the engine lock, so one thread runs it. RETURNED is stored without the lock, and waiters are
 * woken under it: a waiter that checked before under the lock is woken, and one that checks later sees it.
 */
#include "config.h"
#include "req/callback.h"
#include "core/context.h"

enum { NOT_YET, RUNNING, RETURNED };

/* The callbacks that this thread runs, innermost first. */
typedef struct frame {
    const kvcl_req_t *req;
    struct frame     *outer;
} frame_t;

static _Thread_local frame_t *frames;

void kvcl_callback_queue(kvcl_context_h ctx, kvcl_req_t *req)
{
    kvcl_engine_t *eng = &ctx->engine;

    kvcl_assert_locked(ctx);
    if (req->cb == NULL) {
        return;
    }
    kvcl_list_add_tail(&eng->callbacks, &req->done_link);
    if (eng->pollers == 0) {
        kvcl_engine_kick(ctx);
    }
}

/* Lock held on entry and on return, not while the callback runs. The request is off the queue. */
static void call(kvcl_context_h ctx, kvcl_req_t *req)
{
    kvcl_engine_t *eng   = &ctx->engine;
    frame_t       frame  = {req, frames};
    kvcl_status_t status = (kvcl_status_t)atomic_load(&req->state);

    kvcl_assert_locked(ctx);
    atomic_store_explicit(&req->called, RUNNING, memory_order_relaxed);
    ++eng->calling;
    kvcl_unlock(ctx);
    if (status < 0) {
        kvcl_req_report_error(req);
    }
    frames = &frame;
    req->cb(req->cb_arg, status);
    frames = frame.outer;
    atomic_store_explicit(&req->called, RETURNED, memory_order_release);
    kvcl_req_drop(req);
    kvcl_lock(ctx);
    --eng->calling;
    kvcl_engine_news(ctx);
}

void kvcl_callbacks_run(kvcl_context_h ctx)
{
    kvcl_list_t *link;

    kvcl_assert_locked(ctx);
    while ((link = kvcl_list_pop(&ctx->engine.callbacks)) != NULL) {
        call(ctx, kvcl_container_of(link, kvcl_req_t, done_link));
    }
}

/* Any thread: the callback has returned, or the caller is inside it. */
static bool is_over(const kvcl_req_t *req)
{
    return (atomic_load_explicit(&((kvcl_req_t *)req)->called, memory_order_acquire) == RETURNED) ||
           ((frames != NULL) && (frames->req == req));
}

bool kvcl_callback_is_near(kvcl_req_t *req)
{
    return is_over(req) || !kvcl_list_is_empty(&req->done_link);
}

bool kvcl_callback_settle(kvcl_req_t *req)
{
    kvcl_context_h ctx = req->ctx;
    bool           over;

    if (is_over(req)) {
        return true;
    }
    kvcl_lock(ctx);
    if (!kvcl_list_is_empty(&req->done_link)) {
        kvcl_list_del(&req->done_link);
        call(ctx, req);
    }
    over = is_over(req);
    kvcl_unlock(ctx);
    return over;
}

bool kvcl_callback_inside(const struct kvcl_context *ctx)
{
    const frame_t *frame;

    for (frame = frames; frame != NULL; frame = frame->outer) {
        if (frame->req->ctx == ctx) {
            return true;
        }
    }
    return false;
}

bool kvcl_callback_is_outer(const kvcl_req_t *req)
{
    frame_t *frame = frames;

    for (frame = (frame != NULL) ? frame->outer : NULL; frame != NULL; frame = frame->outer) {
        if (frame->req == req) {
            return true;
        }
    }
    return false;
}
