/*
 * One call of a collective on its way from the public function (coll_calls.c), which checks it, to the operation that
 * runs it (coll_post.c).
 */
#ifndef KVCL_COLL_POST_H
#define KVCL_COLL_POST_H

#include "collectives/coll.h"
#include "collectives/reduce.h"
#include "core/comm.h"
#include "xfer/params.h"

/* The arguments of a call; zero where it has none. */
typedef struct kvcl_coll_call {
    const char         *name;
    kvcl_call_id_t     call;
    kvcl_coll_kind_t   kind;
    kvcl_comm_h        comm;
    int                root;
    void               *buf;      /* bcast: the bytes; else what the result goes to */
    const void         *in;
    kvcl_cache_h       cache;
    const kvcl_sel_t   *sel;
    uint64_t           len;       /* as kvcl_coll_shape_t.len */
    const kvcl_coll_parts_t *parts; /* of an alltoallv: read during the call */
    uint32_t           elem;      /* as there, and so is reduction */
    uint32_t           reduction;
    kvcl_reduce_fn_t   reduce;
    kvcl_xfer_params_t params;
} kvcl_coll_call_t;

/**
 * Post a checked call; it takes a number in its communicator unless it fails. No lock held.
 * @return KVCL_OK, KVCL_ERR_NO_MEMORY, KVCL_ERR_UNKNOWN_RANK, errors of boot.
 */
kvcl_status_t kvcl_coll_post(kvcl_coll_call_t *call, kvcl_req_h *req_p) KVCL_MUST_CHECK;

#endif
