/*
 * Puts of blocks: listed, and copied by other ranks (copy/chain.c).
 */
#ifndef KVCL_STORE_COPY_CHAIN_H
#define KVCL_STORE_COPY_CHAIN_H

#include "store/store.h"

/** No lock. Lists blocks of a class of the local pool, and requests copies - 1 more of each from other ranks. item[i]:
 * the index of recs[i] in the caller's p->copies. timing: of the call that this request ends, or NULL: not timed. */
kvcl_status_t kvcl_chain_start(kvcl_owner_t *pool, const kvcl_store_rec_t *recs, const uint32_t *item, size_t n,
                               unsigned copies, const kvcl_timing_t *timing, const kvcl_xfer_params_t *p,
                               kvcl_req_h *req_p) KVCL_MUST_CHECK;

#endif
