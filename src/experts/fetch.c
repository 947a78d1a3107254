/*
 * A get of weights that also tells the checksum of each block, taken in the pass that copies it, where both sides are
 * mapped. No lock is held, except in note_sums.
 */
#include "config.h"

#include "experts/restore.h"

#include "base/error.h"
#include "core/comm.h"
#include "xfer/params.h"
#include "xfer/prepare.h"
#include "xfer/pull.h"

#include <string.h>

/* Lock held. */
static void note_sums(kvcl_pull_t *pull, kvcl_status_t status)
{
    kvcl_ep_sums_t *sums = pull->arg;

    kvcl_assert_locked(pull->peer->ctx);
    sums->summed = (status == KVCL_OK) && pull->summed;
}

static kvcl_status_t post(const kvcl_xfer_plan_t *plan, const kvcl_sel_t *remote, const kvcl_sel_t *local,
                          const kvcl_xfer_params_t *p, kvcl_ep_sums_t *sums, kvcl_req_h *req_p)
{
    kvcl_pull_t *pull = kvcl_pull_new();

    if ((pull == NULL) || (kvcl_pull_set_remote(pull, remote) != KVCL_OK) ||
        (kvcl_pull_set_local(pull, plan->cache, local) != KVCL_OK)) {
        kvcl_pull_discard(pull);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ep_restore: no memory for a transfer");
    }
    pull->peer     = plan->peer;
    pull->self     = plan->self;
    pull->from     = KVCL_FROM_CACHE;
    strcpy(pull->cache_name, plan->name);
    pull->name_key = plan->name_key;
    pull->total    = kvcl_sel_bytes(&plan->cache->shape, local);
    pull->status   = p->status;
    pull->sums     = sums->sums;
    pull->on_done  = note_sums;
    pull->arg      = sums;
    return kvcl_get_begin(plan->ctx, pull, NULL, p, req_p);
}

kvcl_status_t kvcl_ep_fetch(kvcl_comm_h comm, int rank, kvcl_cache_h cache, const kvcl_sel_t *remote,
                            const kvcl_sel_t *local, const kvcl_xfer_params_t *params, kvcl_ep_sums_t *sums,
                            kvcl_req_h *req_p)
{
    kvcl_xfer_params_t p;
    kvcl_xfer_plan_t   plan;
    kvcl_status_t      status;

    sums->summed = false;
    if (kvcl_sel_bytes(&cache->shape, local) <= comm->ctx->config.inline_copy) {
        return kvcl_get(comm, rank, cache, remote, local, params, req_p); /* inside the call: the bytes are near */
    }
    status = kvcl_xfer_plan(comm, rank, cache, KVCL_CALL_GET, params, &p, &plan);
    if ((status != KVCL_OK) || ((status = kvcl_xfer_local(comm->ctx, cache, local, "ep_restore")) != KVCL_OK) ||
        ((status = kvcl_xfer_remote(remote, "ep_restore")) != KVCL_OK)) {
        return status;
    }
    return post(&plan, remote, local, &p, sums, req_p);
}
