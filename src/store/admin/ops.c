/*
 * Questions about a rank's own part (ops.h): asking and answering. The asking side owns nothing but what
 * stands on its stack: an ask ends once, by its deadline at the latest.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "store/admin/ops.h"

#include <stdlib.h>

bool kvcl_op_on_ask(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_ask_t *in, const void *data, size_t len)
{
    kvcl_op_out_t out = {.cap = KVCL_OP_ANSWER_MAX};
    kvcl_status_t status;

    out.buf = kvcl_home_scratch(store->ctx, out.cap);
    status  = (out.buf == NULL) ? KVCL_ERR_NO_MEMORY
                                : kvcl_store_room(store->ctx)->kinds[in->msg.flags].op(store, data, len, &out);
    if (status == KVCL_ERR_PROTOCOL) {
        return false;
    }
    kvcl_ask_answer(peer, in, status, out.n, out.buf, (status == KVCL_OK) ? out.len : 0);
    return true;
}

/* ---- asking ---- */

typedef struct call {
    kvcl_op_out_t *out;
    kvcl_context_h ctx;
    kvcl_status_t  status;
    bool           over;
} call_t;

static void on_answer(kvcl_ask_t *ask, kvcl_status_t status, const void *data, size_t len)
{
    call_t *call = ask->arg;

    call->status = status;
    if ((status == KVCL_OK) && (len > call->out->cap)) {
        call->status = KVCL_ERR_PROTOCOL;
    } else if (status == KVCL_OK) {
        if (len != 0) {
            memcpy(call->out->buf, data, len);
        }
        call->out->len = len;
    }
    call->over = true;
    kvcl_engine_notify(call->ctx);
}

static bool is_over(void *arg)
{
    return ((const call_t *)arg)->over;
}

/* The ask is on its way, or the call is over already. */
static void post(kvcl_store_h store, uint32_t rank, uint8_t kind, const void *in, size_t len, uint64_t timeout_ns,
                 call_t *call)
{
    kvcl_ask_t *ask = kvcl_ask_new(store, rank, kind, len);

    if (ask == NULL) {
        call->status = KVCL_ERR_NO_MEMORY;
        call->over   = true;
        return;
    }
    if (len != 0) {
        memcpy(ask->payload, in, len);
    }
    ask->len  = len;
    ask->n    = 1;
    ask->arg  = call;
    ask->done = on_answer;
    kvcl_ask_post(ask, timeout_ns, &store->op_asks);
}

/* Lock held. A question to one rank: over already, or on its way. */
static void begin(kvcl_store_h store, uint32_t rank, uint8_t kind, const void *in, size_t len, uint64_t timeout_ns,
                  call_t *call)
{
    if (store->closing) {
        call->status = KVCL_ERR_SHUTDOWN;
        call->over   = true;
    } else if (rank == store->me) {
        call->status = kvcl_store_room(store->ctx)->kinds[kind].op(store, in, len, call->out);
        call->over   = true;
    } else if (store->incarnations[rank] == 0) {
        call->status = KVCL_ERR_RANK_FAILED;
        call->over   = true;
    } else {
        post(store, rank, kind, in, len, timeout_ns, call);
    }
}

kvcl_status_t kvcl_op_call(kvcl_store_h store, int rank, uint8_t kind, const void *in, size_t len, uint64_t timeout_ns,
                           kvcl_op_out_t *out, const char *name)
{
    call_t        call = {.out = out, .ctx = store->ctx};
    kvcl_status_t status;

    if ((rank < 0) || ((uint32_t)rank >= store->n_ranks)) {
        return kvcl_fail(KVCL_ERR_UNKNOWN_RANK, "%s: rank %d of a store over %u", name, rank, store->n_ranks);
    }
    status = kvcl_store_hold(store);
    if (status != KVCL_OK) {
        return status;
    }
    kvcl_lock(store->ctx);
    begin(store, (uint32_t)rank, kind, in, len, timeout_ns, &call);
    kvcl_unlock(store->ctx);
    while (!kvcl_engine_wait(call.ctx, is_over, &call, kvcl_deadline_after(KVCL_NS_PER_SEC))) {
    }
    kvcl_store_let_go(store);
    if ((call.status == KVCL_ERR_NOT_FOUND) || (call.status == KVCL_ERR_RANK_FAILED)) {
        return kvcl_fail(KVCL_ERR_RANK_FAILED, "%s: rank %d no longer takes part in the store", name, rank);
    }
    return (call.status < 0) ? kvcl_fail(call.status, "%s: rank %d: %s", name, rank, kvcl_status_text(call.status))
                             : call.status;
}

/* ---- asking all ---- */

typedef struct call_all {
    call_t   *calls;
    uint32_t n;
} call_all_t;

static bool are_over(void *arg)
{
    const call_all_t *all = arg;
    uint32_t         i;

    for (i = 0; (i < all->n) && all->calls[i].over; ++i) {
    }
    return i == all->n;
}

kvcl_status_t kvcl_op_call_all(kvcl_store_h store, uint8_t kind, const void *in, size_t len, uint64_t timeout_ns,
                               kvcl_op_out_t *outs, kvcl_status_t *status)
{
    kvcl_context_h ctx   = store->ctx;
    call_t         *calls = calloc(store->n_ranks, sizeof(*calls));
    call_all_t     all    = {.calls = calls, .n = store->n_ranks};
    kvcl_status_t  held;
    uint32_t       i;

    if (calls == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory to ask %u ranks", store->n_ranks);
    }
    held = kvcl_store_hold(store);
    if (held != KVCL_OK) {
        free(calls);
        return held;
    }
    kvcl_lock(ctx);
    for (i = 0; i < all.n; ++i) { /* the others first: they answer while I answer myself */
        calls[i] = (call_t){.out = &outs[i], .ctx = ctx, .over = (status[i] != KVCL_OK), .status = status[i]};
        if (!calls[i].over && (i != store->me)) {
            begin(store, i, kind, in, len, timeout_ns, &calls[i]);
        }
    }
    if (!calls[store->me].over) {
        begin(store, store->me, kind, in, len, timeout_ns, &calls[store->me]);
    }
    kvcl_unlock(ctx);
    while (!kvcl_engine_wait(ctx, are_over, &all, kvcl_deadline_after(KVCL_NS_PER_SEC))) {
    }
    for (i = 0; i < all.n; ++i) {
        status[i] = (calls[i].status == KVCL_ERR_NOT_FOUND) ? KVCL_ERR_RANK_FAILED : calls[i].status;
    }
    kvcl_store_let_go(store);
    free(calls);
    return KVCL_OK;
}
