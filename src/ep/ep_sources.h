/*
 * Where the weights of a move may come from, one source after the other. Pure.
 */
#ifndef KVCL_EP_EP_SOURCES_H
#define KVCL_EP_EP_SOURCES_H

#include "ep/ep.h"

/* kvcl_ep_source: no slot. */
#define KVCL_EP_SOURCE_STORE (-1)
#define KVCL_EP_SOURCE_NONE  (-2)

/**
 * The source of try 0, 1, ...: the planned one, then the other copies on active ranks in ascending order of slots, then
 * the store. @a old: the expert of each slot, of the move's layer.
 * @return a slot, or KVCL_EP_SOURCE_*. Behind the last one: KVCL_EP_SOURCE_NONE.
 */
int32_t kvcl_ep_source(const kvcl_ep_shape_t *shape, const int32_t *old, const kvcl_ep_move_t *move, uint32_t try);

/** Check moves that a caller gives, in the params' ranges. @a call: for the sentence. */
kvcl_status_t kvcl_ep_moves_check(const kvcl_ep_shape_t *shape, const kvcl_ep_move_t *moves, size_t stride, size_t n,
                                  const char *call) KVCL_MUST_CHECK;

static inline const kvcl_ep_move_t *kvcl_ep_move_at(const kvcl_ep_move_t *moves, size_t stride, size_t i)
{
    return (const kvcl_ep_move_t *)((const char *)moves + (i * stride));
}

#endif
