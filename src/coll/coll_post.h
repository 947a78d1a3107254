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

/* What a call looks at behind one of its buffers: bytes [from, to). */
typedef struct kvcl_coll_span {
    uint64_t from, to;
} kvcl_coll_span_t;

/** The two buffers of a checked call of plain bytes, at this rank; those of a broadcast are the same. */
void kvcl_coll_spans(const kvcl_coll_call_t *call, kvcl_coll_span_t *in, kvcl_coll_span_t *out);

/** coll_parts.c: the span of parts. */
kvcl_coll_span_t kvcl_coll_parts_span(const uint64_t *lens, const uint64_t *offs, int n);
/** offs of parts that lie one behind another. */
kvcl_status_t    kvcl_coll_parts_place(const kvcl_coll_call_t *call, const char *name, const uint64_t *lens,
                                       uint64_t *offs) KVCL_MUST_CHECK;
/** call->parts. spans: room for two of each rank. */
kvcl_status_t    kvcl_coll_parts_check(const kvcl_coll_call_t *call, kvcl_coll_span_t *spans) KVCL_MUST_CHECK;
/** The bytes of all parts of the side that has more. */
uint64_t         kvcl_coll_parts_bytes(const kvcl_coll_parts_t *parts, int n);

/** What performs calls with KVCL_ON_DEVICE: a room above this one. As kvcl_coll_post. */
typedef kvcl_status_t (*kvcl_coll_on_device_fn_t)(kvcl_coll_call_t *call, kvcl_req_h *req_p);

/**
 * Post a checked call; it takes a number in its communicator unless it fails. No lock held.
 * @return KVCL_OK, KVCL_ERR_NO_MEMORY, KVCL_ERR_UNKNOWN_RANK, errors of boot.
 */
kvcl_status_t kvcl_coll_post(kvcl_coll_call_t *call, kvcl_req_h *req_p) KVCL_MUST_CHECK;

#endif
