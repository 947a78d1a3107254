/*
 * Collectives over an intra-communicator. All ranks call the same collectives of one communicator in the same order.
 * Which algorithm runs is a readable table (KVCL_COLL_TABLE, kvcl_info --colls).
 *
 * If a rank fails, the others' requests complete with KVCL_ERR_RANK_FAILED or KVCL_ERR_TIMED_OUT, never hang. If the
 * connection of two ranks is lost and made again, requests that ran over it complete with KVCL_ERR_UNREACHABLE, or with
 * KVCL_ERR_TIMED_OUT on a rank that had not begun; the communicator remains usable.
 */
#ifndef KVCL_COLL_H
#define KVCL_COLL_H

#include <kvcl/kvcl_xfer.h>

KVCL_BEGIN_DECLS

/**
 * Give the root's selected blocks to every rank. Each rank names its own cache and block ids; the selections must
 * have the same shape and number of blocks on all ranks.
 */
KVCL_API kvcl_status_t kvcl_bcast(kvcl_comm_h comm, int root, kvcl_cache_h cache, const kvcl_sel_t *sel,
                                  const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/** Plain bytes: len must be equal on all ranks. */
KVCL_API kvcl_status_t kvcl_bcast_bytes(kvcl_comm_h comm, int root, void *buf, size_t len,
                                        const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/** Completes when every rank has called it. */
KVCL_API kvcl_status_t kvcl_barrier(kvcl_comm_h comm, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
    KVCL_MUST_CHECK;

/**
 * Every rank gets every rank's len bytes, in rank order, at out (size * len bytes). in may be out + rank * len. Meant
 * for small data: len at most 64 KiB, equal on all ranks.
 */
KVCL_API kvcl_status_t kvcl_allgather(kvcl_comm_h comm, const void *in, size_t len, void *out,
                                      const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

KVCL_END_DECLS

#endif
