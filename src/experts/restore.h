/*
 * What kvcl_ep_restore and kvcl_ep_settle share: their checked arguments.
 */
#ifndef KVCL_EXPERTS_RESTORE_H
#define KVCL_EXPERTS_RESTORE_H

#include "ep/ep_sources.h"
#include <kvcl/kvcl_ep_restore.h>

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

#endif
