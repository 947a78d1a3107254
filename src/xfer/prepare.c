/*
 * Prepared transfers: a plan (prepare.h) with the layers and heads of both sides, kept for many postings.
 *
 * Immutable after kvcl_xfer_prepare, so any number of threads may post it. A posting checks only its block ids; the
 * remote ids are checked against the description of the peer's cache, as for every transfer.
 */
#include "config.h"
#include "xfer/prepare.h"
#include "base/error.h"
#include "xfer/params.h"

#include <string.h>

struct kvcl_xfer {
    kvcl_xfer_plan_t   plan;
    kvcl_xfer_dir_t    dir;
    kvcl_sel_t         local; /* without blocks, as remote: a posting adds its own */
    kvcl_sel_t         remote;
    kvcl_xfer_params_t params;
    char               name[KVCL_CACHE_NAME_MAX + 1];
};

kvcl_status_t kvcl_xfer_prepare(kvcl_comm_h comm, int rank, kvcl_xfer_dir_t dir, kvcl_cache_h cache,
                                const kvcl_sel_t *local, const kvcl_sel_t *remote, const kvcl_xfer_params_t *params,
                                kvcl_xfer_h *xfer_p)
{
    static const char  call[] = "kvcl_xfer_prepare";
    kvcl_xfer_params_t p;
    kvcl_xfer_plan_t   plan;
    kvcl_sel_t         mine;
    kvcl_xfer_h        xfer;
    kvcl_status_t      status;

    if ((local == NULL) || (remote == NULL) || (xfer_p == NULL)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: a selection is NULL, or xfer_p", call);
    }
    if ((dir != KVCL_XFER_GET) && (dir != KVCL_XFER_PUT)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: direction %d is neither get nor put", call, (int)dir);
    }
    status = kvcl_xfer_plan(comm, rank, cache, KVCL_CALL_XFER_PREPARE, params, &p, &plan);
    if ((status == KVCL_OK) && (dir == KVCL_XFER_GET) && (p.signal_mem != NULL)) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: params.signal_mem is for KVCL_XFER_PUT; leave it 0", call);
    }
    mine = (kvcl_sel_t){.layers = local->layers, .heads = local->heads}; /* tokens are those of a list */
    if ((status != KVCL_OK) || ((status = kvcl_xfer_local(plan.ctx, cache, &mine, call)) != KVCL_OK) ||
        ((status = kvcl_put_check_signal(&p, plan.peer, call)) != KVCL_OK)) {
        return status;
    }
    xfer = kvcl_object_alloc(KVCL_KIND_XFER, sizeof(*xfer));
    if (xfer == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory", call);
    }
    strcpy(xfer->name, plan.name);
    xfer->plan                = plan;
    xfer->plan.name           = xfer->name;
    xfer->dir                 = dir;
    xfer->local               = *local;
    xfer->local.blocks        = NULL;
    xfer->local.n_blocks      = 0;
    xfer->remote              = *remote;
    xfer->remote.blocks       = NULL;
    xfer->remote.n_blocks     = 0;
    xfer->params              = p;
    xfer->params.remote_cache = NULL;
    *xfer_p                   = xfer;
    return KVCL_OK;
}

/* Overrides the prepared params with those of a posting. */
static kvcl_status_t lay_over(const kvcl_xfer_params_t *params, kvcl_xfer_params_t *p)
{
    kvcl_xfer_params_t own;
    kvcl_status_t      status = kvcl_xfer_params(params, KVCL_CALL_XFER_POST, &own);

    if (status != KVCL_OK) {
        return status;
    }
    p->cb           = own.cb;
    p->cb_arg       = own.cb_arg;
    p->queue        = own.queue;
    p->status       = own.status;
    p->stream       = own.stream;
    p->notify       = own.notify;
    p->notify_bytes = own.notify_bytes;
    p->timeout_ns   = (own.timeout_ns != 0) ? own.timeout_ns : p->timeout_ns;
    return KVCL_OK;
}

kvcl_status_t kvcl_xfer_post(kvcl_xfer_h xfer, const uint32_t *local_blocks, size_t n_local,
                             const uint32_t *remote_blocks, size_t n_remote, const kvcl_xfer_params_t *params,
                             kvcl_req_h *req_p)
{
    kvcl_xfer_params_t p;
    kvcl_sel_t         local, remote;
    kvcl_status_t      status = kvcl_handle_check(xfer, KVCL_KIND_XFER, "kvcl_xfer_post");

    if ((status != KVCL_OK) ||
        ((status = kvcl_handle_check(xfer->plan.cache, KVCL_KIND_CACHE, "kvcl_xfer_post")) != KVCL_OK)) {
        return status;
    }
    if (((local_blocks == NULL) && (n_local != 0)) || ((remote_blocks == NULL) && (n_remote != 0))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_xfer_post: a list of blocks is NULL");
    }
    p               = xfer->params;
    local           = xfer->local;
    remote          = xfer->remote;
    local.blocks    = local_blocks;
    remote.blocks   = remote_blocks;
    local.n_blocks  = n_local;
    remote.n_blocks = n_remote;
    if (params != NULL) {
        status = lay_over(params, &p);
    }
    if (status == KVCL_OK) {
        status = kvcl_cache_check_sel(xfer->plan.cache, &local, "kvcl_xfer_post");
    }
    if (status != KVCL_OK) {
        return status;
    }
    return (xfer->dir == KVCL_XFER_PUT) ? kvcl_put_post(&xfer->plan, &local, &remote, &p, req_p)
                                        : kvcl_get_post(&xfer->plan, &remote, &local, &p, req_p);
}

void kvcl_xfer_free(kvcl_xfer_h xfer)
{
    kvcl_object_free(kvcl_handle_may_free(xfer, KVCL_KIND_XFER, "kvcl_xfer_free") ? xfer : NULL);
}
