/*
 * kvcl_put: the call, and the puts that are copied inside it (those of plain memory: vec/vec.c). The others run in
 * put_run.c; the owner's side is put_take.c.
 *
 * Owns: a put until kvcl_put_begin() takes it. Invariant: a call that fails has written nothing and frees its
 * allocations. Locks: none is held on entry.
 */
#include "config.h"
#include "xfer/put.h"
#include "base/error.h"
#include "mem/rmem.h"
#include "xfer/direct.h"
#include "xfer/params.h"
#include "xfer/prepare.h"

#include <stdlib.h>
#include <string.h>

kvcl_status_t kvcl_put_check_signal(const kvcl_xfer_params_t *p, const kvcl_peer_t *peer, const char *call)
{
    kvcl_status_t status;

    if (p->signal_mem == NULL) {
        return KVCL_OK;
    }
    status = kvcl_rmem_check(p->signal_mem, p->signal_offset, "", 8, KVCL_WRITE, call);
    if ((status == KVCL_OK) && ((p->signal_mem->peer != peer) || ((p->signal_offset % 8) != 0))) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: the signal's memory is another peer's, or its offset %llu is "
                           "not a multiple of 8", call, (unsigned long long)p->signal_offset);
    }
    return status;
}

KVCL_UNGUARDED kvcl_status_t kvcl_put_post(const kvcl_xfer_plan_t *plan, const kvcl_sel_t *local,
                                           const kvcl_sel_t *remote, const kvcl_xfer_params_t *p, kvcl_req_h *req_p)
{
    uint64_t      total   = kvcl_sel_bytes(&plan->cache->shape, local);
    kvcl_rcache_t *rcache = NULL;
    kvcl_gate_t   *gate;
    kvcl_status_t status  = kvcl_gate_make(plan->ctx, p->stream, "kvcl_put", &gate);
    kvcl_put_t    *put;

    if (status != KVCL_OK) {
        return status;
    }
    if ((p->signal_mem == NULL) && (gate == NULL) && (p->notify == NULL)) {
        rcache = kvcl_direct_rcache(plan->ctx, plan->peer, plan->name_key, total);
    }
    if ((rcache != NULL) && rcache->writable) {
        return kvcl_direct_post(plan, local, rcache, remote, true, p, req_p);
    }
    put = calloc(1, sizeof(*put));
    if ((put == NULL) || (kvcl_own_sel(&put->local, local) != KVCL_OK) ||
        (kvcl_own_sel(&put->remote, remote) != KVCL_OK)) {
        if (put != NULL) {
            kvcl_put_discard(put);
        }
        kvcl_gate_free(gate);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_put: no memory for a transfer");
    }
    put->peer     = plan->peer;
    put->self     = plan->self;
    put->cache    = plan->cache;
    strcpy(put->name, plan->name);
    put->name_key = plan->name_key;
    put->total    = total;
    put->status   = p->status;
    put->n_status = remote->n_blocks;
    return kvcl_put_begin(plan->ctx, put, gate, p, req_p);
}

KVCL_UNGUARDED kvcl_status_t kvcl_put(kvcl_comm_h comm, int rank, kvcl_cache_h cache, const kvcl_sel_t *local,
                       const kvcl_sel_t *remote, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_xfer_params_t p;
    kvcl_xfer_plan_t   plan;
    kvcl_status_t      status = kvcl_xfer_plan(comm, rank, cache, KVCL_CALL_PUT, params, &p, &plan);

    if (status == KVCL_OK) {
        status = kvcl_xfer_remote(remote, "kvcl_put");
    }
    if ((status != KVCL_OK) || ((status = kvcl_xfer_local(comm->ctx, cache, local, "kvcl_put")) != KVCL_OK) ||
        ((status = kvcl_put_check_signal(&p, plan.peer, "kvcl_put")) != KVCL_OK)) {
        return status;
    }
    return kvcl_put_post(&plan, local, remote, &p, req_p);
}
