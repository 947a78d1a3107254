/*
 * Calls (call.h): the rounds and their end.
 *
 * Owns nothing but the calls it starts, which are linked into store->calls until they end. Engine lock held, except in
 * the functions that start and wait for a call.
 */
#include "config.h"
#include "store/home/call.h"
#include "base/clock.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>

static void discard(kvcl_call_t *call)
{
    if (call->free != NULL) {
        call->free(call);
    } else {
        free(call);
    }
}

static void release(kvcl_req_t *req)
{
    discard(kvcl_container_of(req, kvcl_call_t, req));
}

/* Starts rounds until one of them waits for answers. */
static void advance(kvcl_call_t *call)
{
    bool more;

    while (call->outstanding == 0) {
        call->outstanding = 1; /* a query that ends at once must not enter this function again */
        more              = (call->stopped == KVCL_OK) && call->next(call);
        --call->outstanding;
        if (!more) {
            kvcl_list_del(&call->link);
            --call->store->ops;
            kvcl_req_complete(&call->req, call->end(call));
            return;
        }
    }
}

static void stop(kvcl_req_t *req, kvcl_status_t status)
{
    kvcl_call_t *call = kvcl_container_of(req, kvcl_call_t, req);

    if (call->stopped == KVCL_OK) {
        call->stopped = status;
        ++call->outstanding;
        kvcl_rpcs_stop(&call->rpcs, status);
        if (call->halt != NULL) {
            call->halt(call);
        }
        kvcl_call_over(call);
    }
}

static void describe(const kvcl_req_t *req, char *buf, size_t cap)
{
    snprintf(buf, cap, "%s", kvcl_container_of(req, kvcl_call_t, req)->name);
}

static const kvcl_req_class_t call_class = {.name = "store-call", .stop = stop, .release = release,
                                            .describe = describe};

void kvcl_call_over(kvcl_call_t *call)
{
    if (--call->outstanding == 0) {
        advance(call);
    }
}

uint64_t kvcl_call_time_left(const kvcl_call_t *call)
{
    uint64_t left = kvcl_deadline_left(call->deadline_ns);

    return (left == UINT64_MAX) ? left : left + 1; /* 0 would select KVCL_TIMEOUT */
}

void kvcl_call_post(kvcl_call_t *call, kvcl_rpc_t *rpc, uint64_t timeout_ns, bool watched)
{
    uint64_t left = kvcl_call_time_left(call);

    ++call->outstanding;
    timeout_ns = ((timeout_ns != 0) && (timeout_ns < left)) ? timeout_ns : left;
    if (watched) {
        kvcl_rpc_post_watched(rpc, timeout_ns, &call->rpcs);
    } else {
        kvcl_rpc_post(rpc, timeout_ns, &call->rpcs);
    }
}

kvcl_status_t kvcl_call_start(kvcl_call_t *call, kvcl_store_h store, const char *name, const kvcl_xfer_params_t *p,
                              kvcl_req_h *req_p)
{
    kvcl_context_h ctx = store->ctx;
    kvcl_status_t  status = KVCL_ERR_SHUTDOWN;

    kvcl_list_init(&call->link);
    kvcl_list_init(&call->rpcs);
    call->store       = store;
    call->name        = name;
    call->deadline_ns = kvcl_deadline_after(kvcl_timeout(ctx, p->timeout_ns));
    kvcl_lock(ctx);
    if (!store->closing) {
        status = kvcl_req_post(&call->req, ctx, &call_class, p, req_p);
    }
    if (status == KVCL_OK) {
        ++store->ops;
        kvcl_list_add_tail(&store->calls, &call->link);
        advance(call);
    }
    kvcl_unlock(ctx);
    if (status != KVCL_OK) {
        discard(call);
        return kvcl_fail(status, (status == KVCL_ERR_SHUTDOWN) ? "%s: the store is being closed"
                                                               : "%s: no memory for a request", name);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_call_wait(kvcl_status_t posted, kvcl_req_h *req)
{
    return (posted == KVCL_OK) ? kvcl_req_wait(*req, KVCL_WAIT_FOREVER) : posted; /* the request has a deadline */
}

kvcl_status_t kvcl_call_run(kvcl_call_t *call, kvcl_store_h store, const char *name, const kvcl_xfer_params_t *p)
{
    kvcl_req_h    req;
    kvcl_status_t status = kvcl_call_start(call, store, name, p, &req);

    return kvcl_call_wait(status, &req);
}

void kvcl_calls_stop(kvcl_store_h store)
{
    kvcl_call_t *call, *next;

    kvcl_list_foreach_safe (call, next, &store->calls, kvcl_call_t, link) {
        stop(&call->req, KVCL_ERR_SHUTDOWN);
    }
}
