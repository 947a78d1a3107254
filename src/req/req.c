/*
 * The life of a request (req.h): started, published, completed, canceled; and requests that are final at once.
 *
 * Owns: a request's state, its holders, its places in the engine's heap of deadlines, map of ids and list of live
 * requests. The waits are in req_wait.c, the layers in req_layers.c, the sentences in req_error.c, the release of a
 * request in req_drop.c.
 * Invariants: a request becomes final once; it is released by its last holder, so never while a thread can reach it
 * by a valid handle.
 * Locks: the engine lock, except for kvcl_req_instant() and the user's calls.
 */
#include "config.h"
#include "req/req.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "core/context.h"
#include "core/peer.h"
#include "handle/fork.h"
#include "handle/handle.h"
#include "req/callback.h"
#include "req/failures.h"
#include "req/queue.h"
#include "req/timeout.h"

static _Atomic uint64_t failures; /* failures.h */

static void init(kvcl_req_t *req, kvcl_context_h ctx, const kvcl_req_class_t *cls, kvcl_req_cb_t cb, void *cb_arg,
                 bool user, int state)
{
    req->ctx      = ctx;
    req->cls      = cls;
    req->slot     = NULL;
    req->id       = 0;
    req->comm     = 0;
    req->with     = NULL;
    req->why.fmt  = NULL;
    req->why.text = NULL;
    req->worded   = false;
    req->queue    = NULL;
    req->cb       = cb;
    req->cb_arg   = cb_arg;
    atomic_init(&req->state, state);
    atomic_init(&req->called, 0);
    /* Holders: the operation itself while in progress, the user, the callback. */
    atomic_init(&req->holders, (user ? 1 : 0) + ((cb != NULL) ? 1 : 0) + ((state == KVCL_INPROGRESS) ? 1 : 0));
    kvcl_heap_node_init(&req->timer);
    kvcl_list_init(&req->done_link);
    kvcl_list_init(&req->peer_link);
    kvcl_list_init(&req->live_link);
}

/* A thread that would sleep past this deadline wakes. */
static void wake_for(kvcl_context_h ctx, uint64_t deadline)
{
    kvcl_engine_t *eng = &ctx->engine;

    if ((eng->poller_asleep && (deadline < eng->poller_wake_ns)) ||
        (eng->thread_asleep && !eng->polling && (deadline < eng->thread_wake_ns))) {
        kvcl_engine_kick(ctx);
    }
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
    wake_for(ctx, deadline);
    return KVCL_OK;
}

kvcl_status_t kvcl_req_post(kvcl_req_t *req, kvcl_context_h ctx, const kvcl_req_class_t *cls,
                            const kvcl_xfer_params_t *p, kvcl_req_h *req_p)
{
    kvcl_status_t status;

    kvcl_assert_locked(ctx);
    status = kvcl_req_start(req, ctx, cls, p->timeout_ns, p->cb, p->cb_arg, req_p != NULL);
    if ((status == KVCL_OK) && (p->queue != NULL)) {
        kvcl_queue_join(req, p);
    }
    if ((status == KVCL_OK) && (req_p != NULL)) {
        *req_p = kvcl_req_handle(req);
    }
    return status;
}

bool kvcl_req_stop_again(kvcl_req_t *req, uint64_t at_ns)
{
    kvcl_engine_t *eng = &req->ctx->engine;

    kvcl_assert_locked(req->ctx);
    kvcl_heap_del(&eng->timers, &req->timer); /* none if its deadline has passed */
    if (kvcl_heap_add(&eng->timers, &req->timer, at_ns) != KVCL_OK) {
        return false;
    }
    wake_for(req->ctx, at_ns);
    return true;
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

void kvcl_req_bind(kvcl_req_t *req, uint64_t comm)
{
    kvcl_context_h ctx = req->ctx;

    kvcl_assert_locked(ctx);
    req->comm = comm;
    if ((comm != 0) && (ctx->is_revoked != NULL) && ctx->is_revoked(ctx, comm)) {
        ctx->revoked_late = true; /* the room of members stops it with its next poll: its poster is still at work */
        kvcl_engine_kick(ctx);
    }
}

/* Stopping one may end others of them. */
void kvcl_req_stop_bound(kvcl_context_h ctx, uint64_t comm, kvcl_status_t status)
{
    kvcl_list_t *live = &ctx->engine.live, bound, *link;
    kvcl_req_t  *req, *next;

    kvcl_assert_locked(ctx);
    kvcl_list_init(&bound);
    kvcl_list_foreach_safe (req, next, live, kvcl_req_t, live_link) {
        if (req->comm == comm) {
            kvcl_list_del(&req->live_link);
            kvcl_list_add_tail(&bound, &req->live_link);
        }
    }
    while ((link = kvcl_list_pop(&bound)) != NULL) {
        req = kvcl_container_of(link, kvcl_req_t, live_link);
        kvcl_list_add_tail(live, &req->live_link);
        req->cls->stop(req, status);
    }
}

void kvcl_req_count_failure(void)
{
    atomic_fetch_add_explicit(&failures, 1, memory_order_relaxed);
}

uint64_t kvcl_req_failures(void)
{
    return atomic_load_explicit(&failures, memory_order_relaxed);
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
        if (req->comm != 0) {
            kvcl_req_count_failure();
        }
    }
    if ((status == KVCL_OK) && (req->timing.op != KVCL_LATENCY_NONE)) {
        kvcl_timing_record(&ctx->latency, &req->timing);
    }
    /* Final before any thread is notified, so that a notified thread sees it; the operation's hold keeps it until the
     * drop. */
    atomic_store_explicit(&req->state, status, memory_order_release);
    if (req->queue != NULL) {
        kvcl_queue_put(req);
    }
    kvcl_engine_completed(ctx, req);
    kvcl_req_drop(req);
}

static void stop_instant(kvcl_req_t *req, kvcl_status_t status)
{
    (void)req;
    (void)status; /* it has finished */
}

static void release_instant(kvcl_req_t *req)
{
    (void)req; /* part of its slot */
}

static const kvcl_req_class_t instant_class = {.name = "instant", .stop = stop_instant, .release = release_instant};
_Static_assert(sizeof(kvcl_req_t) <= KVCL_REQ_SLOT_ROOM, "a request fits into a slot");

kvcl_status_t kvcl_req_instant(kvcl_context_h ctx, kvcl_status_t final, uint64_t bytes, const kvcl_xfer_params_t *p,
                               kvcl_req_h *req_p)
{
    kvcl_req_slot_t *slot;
    kvcl_req_t      *req;

    atomic_fetch_add_explicit(&ctx->instant_ops, 1, memory_order_relaxed);
    if (!kvcl_req_is_awaited(p, req_p)) {
        return KVCL_OK;
    }
    slot = kvcl_req_slot_get();
    if (slot == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a request");
    }
    req = (kvcl_req_t *)(void *)slot->room;
    init(req, ctx, &instant_class, p->cb, p->cb_arg, (req_p != NULL) || (p->queue != NULL), final);
    req->slot = slot;
    if (final < 0) {
        kvcl_req_keep_sentence(req);
    }
    if (req_p != NULL) {
        *req_p = kvcl_req_handle(req);
    }
    if (p->queue != NULL) {
        kvcl_queue_join(req, p);
        req->timing.bytes = bytes;
        atomic_fetch_add_explicit(&req->holders, 1, memory_order_relaxed); /* this call, until the engine is told */
        kvcl_queue_put(req);
    }
    if ((p->cb != NULL) || (atomic_load_explicit(&ctx->engine.user_fd, memory_order_relaxed) >= 0)) {
        kvcl_lock(ctx);
        kvcl_engine_completed(ctx, req);
        kvcl_unlock(ctx);
    }
    if (p->queue != NULL) {
        kvcl_req_drop(req);
    }
    return KVCL_OK;
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
