/*
 * What kvcl_ep_restore and kvcl_ep_settle share: their checked arguments.
 */
#ifndef KVCL_EXPERTS_RESTORE_H
#define KVCL_EXPERTS_RESTORE_H

#include "ep/ep_sources.h"
#include <kvcl/kvcl_ep_restore.h>
#include <kvcl/kvcl_xfer.h>

#include <stdbool.h>

typedef struct kvcl_ep_restore {
    kvcl_ep_shape_t      shape;
    kvcl_ep_weights_t    w;           /* timeouts filled in */
    const int32_t        *old;
    const kvcl_ep_move_t *moves;
    size_t               stride, n;
    uint32_t             self;
    uint32_t             first_spare; /* block */
    size_t               spare;       /* blocks */
} kvcl_ep_restore_t;

/** Check everything. @a old: NULL: not needed (kvcl_ep_settle). */
kvcl_status_t kvcl_ep_restore_take(const kvcl_ep_params_t *params, const kvcl_ep_weights_t *weights,
                                   const int32_t *old, const kvcl_ep_move_t *moves, size_t stride, size_t n,
                                   const char *call, kvcl_ep_restore_t *r) KVCL_MUST_CHECK;

static inline bool kvcl_ep_restore_is_mine(const kvcl_ep_restore_t *r, const kvcl_ep_move_t *move)
{
    return (move->destination / r->shape.per_rank) == r->self;
}

/* fetch.c: the sums of the blocks of a get. The caller's, until the request has ended. */
typedef struct kvcl_ep_sums {
    uint64_t *sums;  /* room for one a block: kvcl_ep_weights_sum() of it */
    bool     summed; /* when the request has ended well: they are there; otherwise the caller sums */
} kvcl_ep_sums_t;

/** kvcl_get(), with sums. */
kvcl_status_t kvcl_ep_fetch(kvcl_comm_h comm, int rank, kvcl_cache_h cache, const kvcl_sel_t *remote,
                            const kvcl_sel_t *local, const kvcl_xfer_params_t *params, kvcl_ep_sums_t *sums,
                            kvcl_req_h *req_p) KVCL_MUST_CHECK;

#endif
