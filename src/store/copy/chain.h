/*
 * Puts of blocks: listed, and copied by other ranks (copy/chain.c).
 */
#ifndef KVCL_STORE_COPY_CHAIN_H
#define KVCL_STORE_COPY_CHAIN_H

#include "store/store.h"

typedef struct kvcl_chain kvcl_chain_t;
typedef struct kvcl_chain_early kvcl_chain_early_t;

/* What fills the blocks before they are listed. */
typedef struct kvcl_chain_fill {
    /* Lock held; may be called more than once. Leads to kvcl_chain_filled() with this status, now or later. */
    void (*stop)(struct kvcl_chain_fill *fill, kvcl_status_t status);
    kvcl_chain_early_t *early; /* taken by kvcl_stays_take(), or NULL; the chain's once it is open */
} kvcl_chain_fill_t;

/** Lock held since the blocks were published, or they are pinned: the chain pins them, and drops the lock meanwhile.
 * Lists blocks of a class of the local pool, and requests copies - 1 more of each from other ranks. item[i]: the index
 * of recs[i] in the caller's p->copies. timing: of the call that this request ends, or NULL: not timed. */
kvcl_status_t kvcl_chain_start(kvcl_owner_t *pool, const kvcl_store_rec_t *recs, const uint32_t *item, size_t n,
                               unsigned copies, const kvcl_timing_t *timing, const kvcl_xfer_params_t *p,
                               kvcl_req_h *req_p) KVCL_MUST_CHECK;
/** Lock held. The same for n blocks that are yet to be filled. fill lives until kvcl_chain_filled(). */
kvcl_status_t kvcl_chain_open(kvcl_owner_t *pool, kvcl_chain_fill_t *fill, size_t n, unsigned copies,
                              const kvcl_timing_t *timing, const kvcl_xfer_params_t *p, kvcl_req_h *req_p,
                              kvcl_chain_t **chain_p) KVCL_MUST_CHECK;
/** Lock held; dropped meanwhile if status is KVCL_OK. The blocks are filled and published: lists and copies them, at
 * most as many as were announced. Other statuses end the put. */
void kvcl_chain_filled(kvcl_chain_t *chain, const kvcl_store_rec_t *recs, const uint32_t *item, size_t n,
                       kvcl_status_t status);
/** Lock held. No rank gets these blocks from here on: they are the caller's again. Frees early (may be NULL). */
void kvcl_chain_end_early(kvcl_chain_early_t *early);

#endif
