/*
 * Collecting requests: kvcl_req_test, and kvcl_req_wait for one, any, some or all of a set. Those that were posted with
 * a completion queue are collected in queue.c.
 *
 * Owns: nothing; a set is the caller's array of handles, and an entry that was collected becomes NULL.
 * Invariants: a handle is looked up again after each wait, since another thread may have collected it; a call returns
 * after the callbacks of the requests that it collected; a wait that times out collects no unfinished request.
 * Locks: none is held on entry; the conditions of a wait run under the engine lock.
 */
#include "config.h"
#include "base/hardening.h"
#include "req/req.h"
#include "base/error.h"
#include "core/context.h"
#include "handle/handle.h"
#include "req/callback.h"
#include "req/timeout.h"

#include <stdio.h>

/* notify: a failure's sentence becomes this thread's last error. */
static kvcl_status_t collect(kvcl_req_t *req, bool notify)
{
    kvcl_status_t status = (kvcl_status_t)atomic_load_explicit(&req->state, memory_order_acquire);

    if ((status < 0) && notify) {
        kvcl_req_report_error(req);
    }
    kvcl_req_slot_kill(req->slot);
    kvcl_req_drop(req);
    return status;
}

/* A request that its queue's drain collects. */
static kvcl_status_t refuse_queued(const char *call)
{
    return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: the request was posted with params.queue: kvcl_req_drain of that "
                     "queue collects it", call);
}

kvcl_status_t kvcl_req_test(kvcl_req_h handle)
{
    kvcl_req_t *req = kvcl_req_slot_find(handle);

    if (req == NULL) {
        return kvcl_req_slot_refuse(handle, "kvcl_req_test");
    }
    if (req->queue != NULL) {
        return refuse_queued("kvcl_req_test");
    }
    if (!kvcl_req_settle(req)) {
        (void)kvcl_engine_pass(req->ctx);
        if (!kvcl_req_settle(req)) {
            return KVCL_INPROGRESS;
        }
    }
    return collect(req, true);
}

/* The requests of a waiting call. */
typedef struct set {
    kvcl_req_h *reqs;
    size_t     n;
    size_t     at; /* any: the request that is over; all: the first that may not be over */
} set_t;

/* NULL: no request, or another thread collected it meanwhile, which collect_at() reports. */
static kvcl_req_t *req_at(const set_t *set, size_t i)
{
    return (set->reqs[i] != NULL) ? kvcl_req_slot_find(set->reqs[i]) : NULL;
}

static bool is_settled(const set_t *set, size_t i)
{
    kvcl_req_t *req = req_at(set, i);

    return (req == NULL) || kvcl_req_settle(req);
}

static kvcl_status_t collect_at(set_t *set, size_t i, bool notify, const char *call)
{
    kvcl_req_t    *req   = req_at(set, i);
    kvcl_status_t status = (req != NULL) ? collect(req, notify) : kvcl_req_slot_refuse(set->reqs[i], call);

    set->reqs[i] = NULL;
    return status;
}

static bool any_settled(set_t *set)
{
    for (set->at = 0; set->at < set->n; ++set->at) {
        if ((set->reqs[set->at] != NULL) && is_settled(set, set->at)) {
            return true;
        }
    }
    return false;
}

static bool all_settled(set_t *set)
{
    while ((set->at < set->n) && is_settled(set, set->at)) {
        ++set->at;
    }
    return set->at == set->n;
}

static bool any_near(void *arg)
{
    set_t      *set = arg;
    kvcl_req_t *req;
    size_t     i;

    for (i = 0; i < set->n; ++i) {
        req = req_at(set, i);
        if ((set->reqs[i] != NULL) && ((req == NULL) || kvcl_req_is_near(req))) {
            return true;
        }
    }
    return false;
}

static bool next_near(void *arg)
{
    set_t      *set = arg;
    kvcl_req_t *req = req_at(set, set->at);

    return (req == NULL) || kvcl_req_is_near(req);
}

/* All must be alive and of one context: a wait progresses one context. *ctx_p: that context, NULL if there is none. */
static kvcl_status_t check_set(const set_t *set, const char *call, kvcl_context_h *ctx_p)
{
    kvcl_req_t *req;
    size_t     i;

    *ctx_p = NULL;
    for (i = 0; i < set->n; ++i) {
        req = req_at(set, i);
        if ((set->reqs[i] != NULL) && (req == NULL)) {
            return kvcl_req_slot_refuse(set->reqs[i], call);
        }
        if ((req != NULL) && (req->queue != NULL)) {
            return refuse_queued(call);
        }
        if ((req != NULL) && (*ctx_p != NULL) && (req->ctx != *ctx_p)) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: request %zu of %zu belongs to another context than those "
                             "before it; wait for the requests of each context in a separate call", call, i, set->n);
        }
        *ctx_p = ((*ctx_p == NULL) && (req != NULL)) ? req->ctx : *ctx_p;
    }
    return KVCL_OK;
}

/* A wait for a request whose callback this thread runs would not end. */
static kvcl_status_t check_outer(const set_t *set, const char *call)
{
    kvcl_req_t *req;
    size_t     i;

    for (i = 0; i < set->n; ++i) {
        req = req_at(set, i);
        if ((req != NULL) && kvcl_callback_is_outer(req)) {
            return kvcl_fail(KVCL_ERR_BUSY, "%s: this thread is in the callback of the request it would wait for",
                             call);
        }
    }
    return KVCL_OK;
}

/* "get with rank 3", "2 of 9 requests, the first: get with rank 3" */
static const char *what_is_left(const set_t *set, char *buf, size_t cap)
{
    kvcl_req_t *first = NULL, *req;
    char       what[KVCL_REQ_WHAT_MAX];
    size_t     left = 0, i;

    for (i = 0; i < set->n; ++i) {
        req = req_at(set, i);
        if ((req != NULL) && !kvcl_req_is_done(req)) {
            first = (first == NULL) ? req : first;
            ++left;
        }
    }
    if (first == NULL) {
        snprintf(buf, cap, "a callback to return");
    } else if (set->n == 1) {
        (void)kvcl_req_describe(first, buf, cap);
    } else {
        snprintf(buf, cap, "%zu of %zu requests, the first: %s", left, set->n,
                 kvcl_req_describe(first, what, sizeof(what)));
    }
    return buf;
}

/* Wait until all of the set are over, or one of them (set->at); runs callbacks.
 * @return KVCL_OK, KVCL_ERR_WAIT_TIMEOUT, KVCL_ERR_BUSY. */
static KVCL_UNGUARDED kvcl_status_t wait_set(set_t *set, kvcl_context_h ctx, bool all, uint64_t timeout_ns,
                                             const char *call)
{
    char          left[KVCL_REQ_WHAT_MAX + 64];
    uint64_t      deadline_ns;
    kvcl_status_t status;
    bool          near;

    if (all ? all_settled(set) : any_settled(set)) {
        return KVCL_OK;
    }
    status = check_outer(set, call);
    if (status != KVCL_OK) {
        return status;
    }
    deadline_ns = kvcl_wait_deadline(ctx, timeout_ns);
    do {
        near = (timeout_ns == 0) ? kvcl_wait_for(ctx, all ? next_near : any_near, set, 0)
                                 : kvcl_engine_wait(ctx, all ? next_near : any_near, set, deadline_ns);
        if (all ? all_settled(set) : any_settled(set)) {
            return KVCL_OK;
        }
    } while (near && (timeout_ns != 0));
    return kvcl_wait_ended(ctx, timeout_ns, call, what_is_left(set, left, sizeof(left)));
}

KVCL_UNGUARDED kvcl_status_t kvcl_req_wait(kvcl_req_h handle, uint64_t timeout_ns)
{
    set_t         set  = {&handle, 1, 0};
    kvcl_req_t    *req = kvcl_req_slot_find(handle);
    kvcl_status_t status;

    if (req == NULL) {
        return kvcl_req_slot_refuse(handle, "kvcl_req_wait");
    }
    if (req->queue != NULL) {
        return refuse_queued("kvcl_req_wait");
    }
    status = wait_set(&set, req->ctx, true, timeout_ns, "kvcl_req_wait");
    return (status == KVCL_OK) ? collect_at(&set, 0, true, "kvcl_req_wait") : status;
}

kvcl_status_t kvcl_req_wait_any(kvcl_req_h *reqs, size_t n, uint64_t timeout_ns, size_t *index_p)
{
    set_t          set = {reqs, n, 0};
    kvcl_context_h ctx;
    kvcl_status_t  status;

    if ((index_p == NULL) || ((reqs == NULL) && (n != 0))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_req_wait_any: NULL argument");
    }
    status = check_set(&set, "kvcl_req_wait_any", &ctx);
    if (status != KVCL_OK) {
        return status;
    }
    if (ctx == NULL) {
        *index_p = n;
        return KVCL_OK;
    }
    status = wait_set(&set, ctx, false, timeout_ns, "kvcl_req_wait_any");
    if (status != KVCL_OK) {
        return status;
    }
    *index_p = set.at;
    return collect_at(&set, set.at, true, "kvcl_req_wait_any");
}

/* Collect all of a set that are over. *count_p: how many; the error of the first that failed, or KVCL_OK. */
static kvcl_status_t collect_over(set_t *set, size_t *indices, kvcl_status_t *statuses, size_t *count_p,
                                  const char *call)
{
    kvcl_status_t first = KVCL_OK, status;
    size_t        i;

    *count_p = 0;
    for (i = 0; i < set->n; ++i) {
        if ((set->reqs[i] == NULL) || !is_settled(set, i)) {
            continue;
        }
        status = collect_at(set, i, first == KVCL_OK, call);
        first  = ((first == KVCL_OK) && (status < 0)) ? status : first;
        if (indices != NULL) {
            indices[*count_p] = i;
        }
        if (statuses != NULL) {
            statuses[*count_p] = status;
        }
        ++*count_p;
    }
    return first;
}

kvcl_status_t kvcl_req_wait_some(kvcl_req_h *reqs, size_t n, uint64_t timeout_ns, size_t *indices,
                                 kvcl_status_t *statuses, size_t *count_p)
{
    set_t          set = {reqs, n, 0};
    kvcl_context_h ctx;
    kvcl_status_t  status;

    if ((count_p == NULL) || (((reqs == NULL) || (indices == NULL)) && (n != 0))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_req_wait_some: NULL argument");
    }
    status = check_set(&set, "kvcl_req_wait_some", &ctx);
    if (status != KVCL_OK) {
        return status;
    }
    if (ctx == NULL) {
        *count_p = 0;
        return KVCL_OK;
    }
    status = wait_set(&set, ctx, false, timeout_ns, "kvcl_req_wait_some");
    return (status == KVCL_OK) ? collect_over(&set, indices, statuses, count_p, "kvcl_req_wait_some") : status;
}

kvcl_status_t kvcl_req_wait_all(kvcl_req_h *reqs, size_t n, uint64_t timeout_ns)
{
    set_t          set   = {reqs, n, 0};
    kvcl_status_t  first = KVCL_OK, waited, status;
    kvcl_context_h ctx;
    size_t         count;

    if ((reqs == NULL) && (n != 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_req_wait_all: reqs is NULL");
    }
    status = check_set(&set, "kvcl_req_wait_all", &ctx);
    if ((status != KVCL_OK) || (ctx == NULL)) {
        return status;
    }
    waited = wait_set(&set, ctx, true, timeout_ns, "kvcl_req_wait_all");
    if (waited != KVCL_ERR_BUSY) {
        first = collect_over(&set, NULL, NULL, &count, "kvcl_req_wait_all");
    }
    return (first != KVCL_OK) ? first : waited;
}
