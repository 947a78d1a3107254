/*
 * Requests (req.h).
 */
#include "config.h"
#include "req/req.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "core/comm.h"
#include "core/context.h"
#include "handle/fork.h"
#include "handle/handle.h"
#include "req/callback.h"
#include "req/timeout.h"

#include <stdlib.h>

enum { WHAT_MAX = 256 }; /* of what a wait waited for */

static void init(kvcl_req_t *req, kvcl_context_h ctx, const kvcl_req_class_t *cls, kvcl_req_cb_t cb, void *cb_arg,
                 bool user, int state)
{
    req->ctx    = ctx;
    req->cls    = cls;
    req->slot   = NULL;
    req->id     = 0;
    req->with   = NULL;
    req->why.fmt  = NULL;
    req->why.text = NULL;
    req->worded   = false;
    req->cb     = cb;
    req->cb_arg = cb_arg;
    atomic_init(&req->state, state);
    atomic_init(&req->called, 0);
    /* Holders: the operation itself while in progress, the user, the callback. */
    atomic_init(&req->holders, (user ? 1 : 0) + ((cb != NULL) ? 1 : 0) + ((state == KVCL_INPROGRESS) ? 1 : 0));
    kvcl_heap_node_init(&req->timer);
    kvcl_list_init(&req->done_link);
    kvcl_list_init(&req->peer_link);
    kvcl_list_init(&req->live_link);
}

kvcl_status_t kvcl_req_start(kvcl_req_t *req, kvcl_context_h ctx, const kvcl_req_class_t *cls, uint64_t timeout_ns,
                             kvcl_req_cb_t cb, void *cb_arg, bool user)
{
    kvcl_engine_t *eng = &ctx->engine;
    uint64_t      now_ns = kvcl_now_ns(), deadline = kvcl_deadline_add(now_ns, kvcl_timeout(ctx, timeout_ns));

    kvcl_assert_locked(ctx);
    init(req, ctx, cls, cb, cb_arg, user, KVCL_INPROGRESS);
    req->timeout_ns = kvcl_timeout(ctx, timeout_ns);
    if (user && ((req->slot = kvcl_req_slot_get()) == NULL)) {
        return KVCL_ERR_NO_MEMORY;
    }
    req->timing = (kvcl_timing_t){.begun_ns = now_ns, .weight = 1};
    if (kvcl_heap_add(&eng->timers, &req->timer, deadline) != KVCL_OK) {
        if (user) {
            kvcl_req_slot_put(req->slot);
        }
        return KVCL_ERR_NO_MEMORY;
    }
    kvcl_list_add_tail(&eng->live, &req->live_link);
    if ((eng->poller_asleep && (deadline < eng->poller_wake_ns)) ||
        (eng->thread_asleep && !eng->polling && (deadline < eng->thread_wake_ns))) {
        kvcl_engine_kick(ctx);
    }
    return KVCL_OK;
}

kvcl_req_h kvcl_req_handle(kvcl_req_t *req)
{
    return kvcl_req_slot_handle(req->slot, req);
}

kvcl_status_t kvcl_req_publish(kvcl_req_t *req)
{
    kvcl_engine_t *eng = &req->ctx->engine;

    kvcl_assert_locked(req->ctx);
    req->id = ++eng->next_id;
    if (kvcl_map_put(&eng->ids, req->id, req) != KVCL_OK) {
        req->id = 0;
        return KVCL_ERR_NO_MEMORY;
    }
    return KVCL_OK;
}

void kvcl_req_unpublish(kvcl_req_t *req)
{
    kvcl_assert_locked(req->ctx);
    if (req->id != 0) {
        (void)kvcl_map_del(&req->ctx->engine.ids, req->id);
        req->id = 0;
    }
}

kvcl_req_t *kvcl_req_find(kvcl_context_h ctx, uint64_t id, const kvcl_req_class_t *cls)
{
    kvcl_req_t *req = kvcl_map_get(&ctx->engine.ids, id);

    return ((req != NULL) && (req->cls == cls)) ? req : NULL;
}

void kvcl_req_watch(kvcl_req_t *req, struct kvcl_peer *peer)
{
    kvcl_assert_locked(req->ctx);
    req->with = peer;
    kvcl_list_del(&req->peer_link);
    kvcl_list_add_tail(&peer->reqs, &req->peer_link);
}

void kvcl_req_complete(kvcl_req_t *req, kvcl_status_t status)
{
    kvcl_context_h ctx = req->ctx;
    kvcl_engine_t  *eng = &ctx->engine;

    kvcl_assert_locked(ctx);
    kvcl_heap_del(&eng->timers, &req->timer);
    kvcl_req_unpublish(req);
    kvcl_list_del(&req->peer_link);
    kvcl_list_del(&req->live_link);
    ++ctx->stats.ops;
    if (status < 0) {
        kvcl_req_word(req, status);
    }
    if ((status == KVCL_OK) && (req->timing.op != KVCL_LATENCY_NONE)) {
        kvcl_timing_record(&ctx->latency, &req->timing);
    }
    /* Final before any thread is notified, so that a notified thread sees it; the operation's hold keeps it until the
     * drop. */
    atomic_store_explicit(&req->state, status, memory_order_release);
    kvcl_engine_completed(ctx, req);
    kvcl_req_drop(req);
}

void kvcl_req_drop(kvcl_req_t *req)
{
    kvcl_req_slot_t *slot = req->slot;

    if (atomic_fetch_sub_explicit(&req->holders, 1, memory_order_acq_rel) != 1) {
        return;
    }
    kvcl_sentence_free(&req->why);
    if (req->cls->release != NULL) {
        req->cls->release(req);
    } else {
        free(req);
    }
    if (slot != NULL) {
        kvcl_req_slot_put(slot);
    }
}

static void stop_instant(kvcl_req_t *req, kvcl_status_t status)
{
    (void)req;
    (void)status; /* it has finished */
}

static void release_instant(kvcl_req_t *req)
{
    (void)req; /* it lies in its slot */
}

static const kvcl_req_class_t instant_class = {.name = "instant", .stop = stop_instant, .release = release_instant};
_Static_assert(sizeof(kvcl_req_t) <= KVCL_REQ_SLOT_ROOM, "a request fits into a slot");

kvcl_status_t kvcl_req_instant(kvcl_context_h ctx, kvcl_status_t final, kvcl_req_cb_t cb, void *cb_arg,
                               kvcl_req_h *req_p)
{
    kvcl_req_slot_t *slot;
    kvcl_req_t      *req;

    atomic_fetch_add_explicit(&ctx->instant_ops, 1, memory_order_relaxed);
    if ((cb == NULL) && (req_p == NULL)) {
        return KVCL_OK;
    }
    slot = kvcl_req_slot_get();
    if (slot == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a request");
    }
    req = (kvcl_req_t *)(void *)slot->room;
    init(req, ctx, &instant_class, cb, cb_arg, req_p != NULL, final);
    req->slot = slot;
    if (final < 0) {
        kvcl_req_keep_sentence(req);
    }
    if (req_p != NULL) {
        *req_p = kvcl_req_handle(req);
    }
    if ((cb != NULL) || (atomic_load_explicit(&ctx->engine.user_fd, memory_order_relaxed) >= 0)) {
        kvcl_lock(ctx);
        kvcl_engine_completed(ctx, req);
        kvcl_unlock(ctx);
    }
    return KVCL_OK;
}

/* tell: a failure's sentence becomes this thread's last error. */
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

kvcl_status_t kvcl_req_test(kvcl_req_h handle)
{
    kvcl_req_t *req = kvcl_req_slot_find(handle);

    if (req == NULL) {
        return kvcl_req_slot_refuse(handle, "kvcl_req_test");
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
    size_t     at; /* any: the one that is over; all: the first that may not be */
} set_t;

/* NULL: none; or it was collected by another thread meanwhile, which collect_at() says. */
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

/* All must be alive and of one context: a wait moves one context. *ctx_p: that context, NULL if there is none. */
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
        if ((req != NULL) && (*ctx_p != NULL) && (req->ctx != *ctx_p)) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: request %zu of %zu belongs to another context than those "
                             "before it; wait for the requests of each context in a call of their own", call, i,
                             set->n);
        }
        *ctx_p = ((*ctx_p == NULL) && (req != NULL)) ? req->ctx : *ctx_p;
    }
    return KVCL_OK;
}

/* Waiting for the request whose callback this thread is in would not end. */
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
    char       what[WHAT_MAX];
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
static kvcl_status_t wait_set(set_t *set, kvcl_context_h ctx, bool all, uint64_t timeout_ns, const char *call)
{
    char          left[WHAT_MAX + 64];
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

kvcl_status_t kvcl_req_wait(kvcl_req_h handle, uint64_t timeout_ns)
{
    set_t         set  = {&handle, 1, 0};
    kvcl_req_t    *req = kvcl_req_slot_find(handle);
    kvcl_status_t status;

    if (req == NULL) {
        return kvcl_req_slot_refuse(handle, "kvcl_req_wait");
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

kvcl_status_t kvcl_req_wait_all(kvcl_req_h *reqs, size_t n, uint64_t timeout_ns)
{
    set_t          set   = {reqs, n, 0};
    kvcl_status_t  first = KVCL_OK, waited, status;
    kvcl_context_h ctx;
    size_t         i;

    if ((reqs == NULL) && (n != 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_req_wait_all: reqs is NULL");
    }
    status = check_set(&set, "kvcl_req_wait_all", &ctx);
    if ((status != KVCL_OK) || (ctx == NULL)) {
        return status;
    }
    waited = wait_set(&set, ctx, true, timeout_ns, "kvcl_req_wait_all");
    for (i = 0; (i < n) && (waited != KVCL_ERR_BUSY); ++i) {
        if ((reqs[i] != NULL) && is_settled(&set, i)) {
            status = collect_at(&set, i, first == KVCL_OK, "kvcl_req_wait_all");
            first  = ((first == KVCL_OK) && (status < 0)) ? status : first;
        }
    }
    return (first != KVCL_OK) ? first : waited;
}

/* ---- layers ---- */

kvcl_status_t kvcl_req_layer_ready(kvcl_req_h handle, uint32_t layer)
{
    kvcl_req_t    *req = kvcl_req_slot_find(handle);
    kvcl_status_t status;

    if (req == NULL) {
        return kvcl_req_slot_refuse(handle, "kvcl_req_layer_ready");
    }
    if (req->cls->layer_ready == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_req_layer_ready: the request is no send with KVCL_LAYERWISE");
    }
    status = (kvcl_status_t)atomic_load_explicit(&req->state, memory_order_acquire);
    if (status < 0) {
        kvcl_req_report_error(req);
        return status;
    }
    return req->cls->layer_ready(req, layer);
}

static kvcl_status_t layer_state(const kvcl_req_t *req, uint32_t layer)
{
    return (req->cls->layer_state != NULL)
               ? req->cls->layer_state(req, layer)
               : (kvcl_status_t)atomic_load_explicit(&((kvcl_req_t *)req)->state, memory_order_acquire);
}

static kvcl_status_t layer_end(kvcl_req_t *req, uint32_t layer, const char *call, kvcl_status_t status)
{
    if (status == KVCL_ERR_OUT_OF_RANGE) {
        return kvcl_fail(status, "%s: layer %u is not among those selected", call, layer);
    }
    if (status < 0) {
        kvcl_req_report_error(req);
    }
    return status;
}

kvcl_status_t kvcl_req_layer_test(kvcl_req_h handle, uint32_t layer)
{
    kvcl_req_t    *req = kvcl_req_slot_find(handle);
    kvcl_status_t status;

    if (req == NULL) {
        return kvcl_req_slot_refuse(handle, "kvcl_req_layer_test");
    }
    status = layer_state(req, layer);
    if (status == KVCL_INPROGRESS) {
        (void)kvcl_engine_pass(req->ctx);
        status = layer_state(req, layer);
    }
    return layer_end(req, layer, "kvcl_req_layer_test", status);
}

typedef struct one_layer {
    const kvcl_req_t *req;
    uint32_t         layer;
} one_layer_t;

static bool layer_here(void *arg)
{
    return layer_state(((one_layer_t *)arg)->req, ((one_layer_t *)arg)->layer) != KVCL_INPROGRESS;
}

kvcl_status_t kvcl_req_layer_wait(kvcl_req_h handle, uint32_t layer, uint64_t timeout_ns)
{
    kvcl_req_t  *req = kvcl_req_slot_find(handle);
    one_layer_t one  = {req, layer};
    char        what[WHAT_MAX + 32], who[WHAT_MAX];

    if (req == NULL) {
        return kvcl_req_slot_refuse(handle, "kvcl_req_layer_wait");
    }
    if (!layer_here(&one) && !kvcl_wait_for(req->ctx, layer_here, &one, timeout_ns)) {
        snprintf(what, sizeof(what), "layer %u of: %s", layer, kvcl_req_describe(req, who, sizeof(who)));
        return kvcl_wait_ended(req->ctx, timeout_ns, "kvcl_req_layer_wait", what);
    }
    return layer_end(req, layer, "kvcl_req_layer_wait", layer_state(req, layer));
}

void kvcl_req_cancel(kvcl_req_h handle)
{
    kvcl_req_t *req = kvcl_req_slot_find(handle);

    if ((handle != NULL) && (req == NULL)) {
        (void)kvcl_req_slot_refuse(handle, "kvcl_req_cancel");
        if (!kvcl_is_forked()) {
            kvcl_log_error("%s", kvcl_last_error());
        }
    }
    if ((req == NULL) || kvcl_req_is_done(req)) {
        return;
    }
    kvcl_lock(req->ctx);
    if (!kvcl_req_is_done(req)) {
        req->cls->stop(req, KVCL_ERR_CANCELED);
    }
    kvcl_unlock(req->ctx);
}
