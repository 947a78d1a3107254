/*
 * Callbacks of requests: which thread runs them, and when a request may be collected.
 *
 * A final request with a callback is queued (engine->callbacks). A thread that progresses the context runs the queue
 * with no lock held; a thread that collects a request runs its callback if no thread has begun it. A request is over
 * when it is final and its callback has returned: test and wait collect it only then, so that the callback's argument
 * may be freed once they have. Inside its own callback a request counts as over, so that it can be collected there.
 *
 * A request without a callback has no cost here.
 */
#ifndef KVCL_REQ_CALLBACK_H
#define KVCL_REQ_CALLBACK_H

#include "core/engine.h"
#include "req/req.h"

/** Lock held: queue the callback of a request that became final; does nothing for a request without one. */
void kvcl_callback_queue(struct kvcl_context *ctx, kvcl_req_t *req);

/** Lock held on entry and on return, not in between: run all queued callbacks. */
void kvcl_callbacks_run(struct kvcl_context *ctx);

bool kvcl_callback_settle(kvcl_req_t *req);     /* use kvcl_req_settle */
bool kvcl_callback_is_near(kvcl_req_t *req);    /* use kvcl_req_is_near */

/**
 * No lock. Is the request final, and has its callback returned? Runs the callback if it is queued.
 */
static inline bool kvcl_req_settle(kvcl_req_t *req)
{
    return kvcl_req_is_done(req) && ((req->cb == NULL) || kvcl_callback_settle(req));
}

/** Lock held: would kvcl_req_settle() return true, or find the callback queued? */
static inline bool kvcl_req_is_near(kvcl_req_t *req)
{
    kvcl_assert_locked(req->ctx);
    return kvcl_req_is_done(req) && ((req->cb == NULL) || kvcl_callback_is_near(req));
}

/** Does this thread run a callback of the context? A call that stops the context, or waits for all of it, must not. */
bool kvcl_callback_inside(const struct kvcl_context *ctx);

/** Does this thread run the request's callback, and in it another request's callback? Waiting for it would not end. */
bool kvcl_callback_is_outer(const kvcl_req_t *req);

#endif
