/*
 * The layers of a request: marking one ready to be sent, testing and waiting for one that arrives.
 *
 * Owns: nothing. The layers belong to the request's class (kvcl_req_class_t.layer_ready, layer_state).
 * Invariant: a layer that has arrived stays so; in a request without layers each layer has the request's state.
 * Locks: none is held on entry.
 */
#include "config.h"
#include "req/req.h"
#include "base/error.h"
#include "core/context.h"
#include "handle/handle.h"
#include "req/timeout.h"

#include <stdio.h>

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

typedef struct layer_wait {
    const kvcl_req_t *req;
    uint32_t         layer;
} layer_wait_t;

static bool layer_arrived(void *arg)
{
    return layer_state(((layer_wait_t *)arg)->req, ((layer_wait_t *)arg)->layer) != KVCL_INPROGRESS;
}

kvcl_status_t kvcl_req_layer_wait(kvcl_req_h handle, uint32_t layer, uint64_t timeout_ns)
{
    kvcl_req_t   *req = kvcl_req_slot_find(handle);
    layer_wait_t wait = {req, layer};
    char         what[KVCL_REQ_WHAT_MAX + 32], name[KVCL_REQ_WHAT_MAX];

    if (req == NULL) {
        return kvcl_req_slot_refuse(handle, "kvcl_req_layer_wait");
    }
    if (!layer_arrived(&wait) && !kvcl_wait_for(req->ctx, layer_arrived, &wait, timeout_ns)) {
        snprintf(what, sizeof(what), "layer %u of: %s", layer, kvcl_req_describe(req, name, sizeof(name)));
        return kvcl_wait_ended(req->ctx, timeout_ns, "kvcl_req_layer_wait", what);
    }
    return layer_end(req, layer, "kvcl_req_layer_wait", layer_state(req, layer));
}
