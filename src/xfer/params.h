/*
 * Checking and completing kvcl_xfer_params_t, and the checks that all posting calls share.
 */
#ifndef KVCL_XFER_PARAMS_H
#define KVCL_XFER_PARAMS_H

#include "handle/handle.h"
#include "core/comm.h"
#include "cache/cache.h"
#include <kvcl/kvcl_xfer.h>

/* The calls that take kvcl_xfer_params_t. */
typedef enum kvcl_call_id {
    KVCL_CALL_GET,
    KVCL_CALL_PUT,
    KVCL_CALL_XFER_PREPARE,
    KVCL_CALL_XFER_POST,
    KVCL_CALL_GET_BYTES,
    KVCL_CALL_PUT_BYTES,
    KVCL_CALL_GET_VEC,
    KVCL_CALL_PUT_VEC,
    KVCL_CALL_NOTIFY,
    KVCL_CALL_SEND,
    KVCL_CALL_SEND_BYTES,
    KVCL_CALL_RECV,
    KVCL_CALL_RECV_BYTES,
    KVCL_CALL_STREAM_DONE,
    KVCL_CALL_CONTEXT_CONNECT,
    KVCL_CALL_BCAST,
    KVCL_CALL_BCAST_BYTES,
    KVCL_CALL_BARRIER,
    KVCL_CALL_ALLGATHER,
    KVCL_CALL_ALLREDUCE,
    KVCL_CALL_REDUCE_SCATTER,
    KVCL_CALL_ALLTOALL, KVCL_CALL_ALLTOALLV,
    KVCL_CALL_GATHER,
    KVCL_CALL_SCATTER,
    KVCL_CALL_STORE_GET, KVCL_CALL_STORE_GET_PART,
    KVCL_CALL_STORE_PUT,
    KVCL_CALL_STORE_UPSERT,
    KVCL_CALL_STORE_PUBLISH,
    KVCL_CALL_STORE_REMOVE,
    KVCL_CALL_STORE_BCAST,
    KVCL_CALL_STORE_GET_VALUES,
    KVCL_CALL_STORE_PUT_VALUES,
    KVCL_CALL_STORE_UPSERT_VALUES,
    KVCL_CALL_STORE_VALUE_SIZES,
    KVCL_CALL_STORE_VALUE_KEYS,
    KVCL_CALL_STORE_REMOVE_VALUES,
    KVCL_CALL_STORE_MATCH,
    KVCL_CALL_STORE_EXISTS,
    KVCL_CALL_STORE_WHERE,
    KVCL_CALL_STORE_MATCH_ALL,
    KVCL_CALL_STORE_PIN,
    KVCL_CALL_STORE_UNPIN,
    KVCL_CALL_STORE_QUOTA,
    KVCL_CALL_STORE_CLEAR,
    KVCL_CALL_STORE_COPY,
    KVCL_CALL_STORE_DRAIN,
    KVCL_CALL_STORE_RANK_STATS,
    KVCL_CALL_STORE_ALL_STATS,
    KVCL_CALL_STORE_LIST,
    KVCL_CALL_STORE_EVENTS,
    KVCL_CALLS
} kvcl_call_id_t;

const char *kvcl_call_name(kvcl_call_id_t call);

/** The params of a caller who gives none; for calls too short to fill in a copy. */
extern const kvcl_xfer_params_t kvcl_xfer_defaults;

/** The first step of every posting call: completes the params, checks communicator and rank, resolves the peer. */
kvcl_status_t kvcl_xfer_begin(kvcl_comm_h comm, int rank, kvcl_call_id_t call, const kvcl_xfer_params_t *params,
                              kvcl_xfer_params_t *out, kvcl_peer_t **peer_p) KVCL_MUST_CHECK;
/** Completes the params; flags and fields of other calls are refused by name. */
kvcl_status_t kvcl_xfer_params(const kvcl_xfer_params_t *params, kvcl_call_id_t call, kvcl_xfer_params_t *out)
    KVCL_MUST_CHECK;
/** The same for the blocking form of a call: cb and cb_arg are refused as well. */
kvcl_status_t kvcl_xfer_params_waits(const kvcl_xfer_params_t *params, kvcl_call_id_t call, kvcl_xfer_params_t *out)
    KVCL_MUST_CHECK;
/** Only the check: would kvcl_xfer_params_waits accept them? */
kvcl_status_t kvcl_xfer_params_of_wait(const kvcl_xfer_params_t *params, kvcl_call_id_t call) KVCL_MUST_CHECK;
/** Checks a remote selection, as far as this side can. */
kvcl_status_t kvcl_xfer_remote(const kvcl_sel_t *sel, const char *call) KVCL_MUST_CHECK;
/** The name of the peer's cache: params.remote_cache, or the local cache's. */
kvcl_status_t kvcl_xfer_name(const kvcl_xfer_params_t *params, kvcl_cache_h cache, const char *call,
                             const char **name_p) KVCL_MUST_CHECK;
/** Checks a local selection: cache and sel not NULL, of this context, in range. */
kvcl_status_t kvcl_xfer_local(kvcl_context_h ctx, kvcl_cache_h cache, const kvcl_sel_t *sel, const char *call)
    KVCL_MUST_CHECK;

/** Copies a selection with its block list; the caller frees to->blocks. */
kvcl_status_t kvcl_own_sel(kvcl_sel_t *to, const kvcl_sel_t *sel) KVCL_MUST_CHECK;

#endif
