/*
 * kvcl_stream_done: a request that only waits at a gate (gate.h).
 */
#include "config.h"
#include "base/error.h"
#include "req/req.h"
#include "gate/gate.h"
#include "xfer/params.h"

#include <stdlib.h>

typedef struct wait {
    kvcl_req_t         req;
    kvcl_gate_t        *gate;
    kvcl_peer_waiter_t waiter;
} wait_t;

static void wait_stop(kvcl_req_t *req, kvcl_status_t status)
{
    wait_t *wait = kvcl_container_of(req, wait_t, req);

    kvcl_peer_unwait(&wait->waiter);
    kvcl_req_complete(req, status);
}

static void wait_release(kvcl_req_t *req)
{
    wait_t *wait = kvcl_container_of(req, wait_t, req);

    kvcl_gate_free(wait->gate);
    free(wait);
}

static const kvcl_req_class_t wait_class = {.name = "kvcl_stream_done", .stop = wait_stop, .release = wait_release};

static void wait_over(kvcl_peer_waiter_t *waiter, kvcl_status_t status)
{
    kvcl_req_complete(&kvcl_container_of(waiter, wait_t, waiter)->req, status);
}

/* No lock held; takes the gate. */
static kvcl_status_t post(kvcl_context_h ctx, kvcl_gate_t *gate, const kvcl_xfer_params_t *p, kvcl_req_h *req_p)
{
    wait_t        *wait  = calloc(1, sizeof(*wait));
    kvcl_status_t status = KVCL_ERR_NO_MEMORY;

    if (wait == NULL) {
        kvcl_gate_free(gate);
        return kvcl_fail(status, "kvcl_stream_done: no memory");
    }
    wait->gate      = gate;
    wait->waiter.fn = wait_over;
    kvcl_list_init(&wait->waiter.link);
    kvcl_lock(ctx);
    status = kvcl_req_post(&wait->req, ctx, &wait_class, p, req_p);
    if ((status == KVCL_OK) && (kvcl_gate_pass(gate, NULL, &wait->waiter) != KVCL_INPROGRESS)) {
        kvcl_req_complete(&wait->req, KVCL_OK);
    }
    kvcl_unlock(ctx);
    if (status != KVCL_OK) {
        wait_release(&wait->req);
        return kvcl_fail(status, "kvcl_stream_done: no memory");
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_stream_done(kvcl_context_h ctx, void *stream, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    static const char  call[] = "kvcl_stream_done";
    kvcl_xfer_params_t p;
    kvcl_gate_t        *gate;
    kvcl_status_t      status = kvcl_xfer_params(params, KVCL_CALL_STREAM_DONE, &p);

    if ((status != KVCL_OK) || ((status = kvcl_handle_check(ctx, KVCL_KIND_CONTEXT, call)) != KVCL_OK)) {
        return status;
    }
    if (stream == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: the stream is NULL", call);
    }
    status = kvcl_gate_make(ctx, stream, call, &gate);
    if (status != KVCL_OK) {
        return status;
    }
    return (gate == NULL) ? kvcl_req_instant(ctx, KVCL_OK, 0, &p, req_p) : post(ctx, gate, &p, req_p);
}
