/*
 * A get or put of blocks without its block ids: the arguments that are checked once (prepare.c, get.c, put.c).
 */
#ifndef KVCL_XFER_PREPARE_H
#define KVCL_XFER_PREPARE_H

#include "core/comm.h"
#include "cache/cache.h"
#include "xfer/params.h"
#include <kvcl/kvcl_xfer.h>

typedef struct kvcl_xfer_plan {
    kvcl_context_h ctx;
    kvcl_peer_t    *peer;
    kvcl_comm_self_t self;
    kvcl_cache_h   cache;
    const char     *name;    /* of the peer's cache */
    uint64_t       name_key;
} kvcl_xfer_plan_t;

/** No lock held. Completes the params, checks rank, cache and names, and fills the plan. */
kvcl_status_t kvcl_xfer_plan(kvcl_comm_h comm, int rank, kvcl_cache_h cache, kvcl_call_id_t call,
                             const kvcl_xfer_params_t *params, kvcl_xfer_params_t *out, kvcl_xfer_plan_t *plan)
    KVCL_MUST_CHECK;
/** No lock held. local and remote have been checked, as far as this side can; p is complete. */
kvcl_status_t kvcl_get_post(const kvcl_xfer_plan_t *plan, const kvcl_sel_t *remote, const kvcl_sel_t *local,
                            const kvcl_xfer_params_t *p, kvcl_req_h *req_p) KVCL_MUST_CHECK;
kvcl_status_t kvcl_put_post(const kvcl_xfer_plan_t *plan, const kvcl_sel_t *local, const kvcl_sel_t *remote,
                            const kvcl_xfer_params_t *p, kvcl_req_h *req_p) KVCL_MUST_CHECK;
/** Checks a put's signal: memory of that peer, writable, in range. */
kvcl_status_t kvcl_put_check_signal(const kvcl_xfer_params_t *p, const kvcl_peer_t *peer, const char *call)
    KVCL_MUST_CHECK;

#endif
