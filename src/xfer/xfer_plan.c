/*
 * Makes the plan of a get or put of blocks (prepare.h) from its arguments.
 */
#include "config.h"
#include "xfer/prepare.h"
#include "xfer/params.h"

kvcl_status_t kvcl_xfer_plan(kvcl_comm_h comm, int rank, kvcl_cache_h cache, kvcl_call_id_t call,
                             const kvcl_xfer_params_t *params, kvcl_xfer_params_t *out, kvcl_xfer_plan_t *plan)
{
    kvcl_status_t status = kvcl_xfer_begin(comm, rank, call, params, out, &plan->peer);

    if (status == KVCL_OK) {
        status = kvcl_handle_check(cache, KVCL_KIND_CACHE, kvcl_call_name(call));
    }
    if (status != KVCL_OK) {
        return status;
    }
    plan->ctx   = comm->ctx;
    plan->self  = kvcl_comm_self(comm, rank);
    plan->cache = cache;
    status      = kvcl_xfer_name(out, cache, kvcl_call_name(call), &plan->name);
    if (status == KVCL_OK) {
        plan->name_key = (plan->name == out->remote_cache) ? kvcl_cache_name_key(plan->name) : cache->name_key;
    }
    return status;
}
