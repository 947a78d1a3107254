/*
 * Sources of moves (ep_sources.h).
 *
 * Pure; no lock.
 */
#include "config.h"

#include "ep/ep_sources.h"

#include "base/error.h"
#include "base/structs.h"

static int has_it(const kvcl_ep_shape_t *shape, const int32_t *old, const kvcl_ep_move_t *move, uint32_t slot)
{
    return (old[slot] == (int32_t)move->expert) && kvcl_ep_is_active(shape, slot / shape->per_rank);
}

int32_t kvcl_ep_source(const kvcl_ep_shape_t *shape, const int32_t *old, const kvcl_ep_move_t *move, uint32_t try)
{
    const int planned = (move->source >= 0) && has_it(shape, old, move, (uint32_t)move->source);
    uint32_t  slot;

    if (planned && (try-- == 0)) {
        return move->source;
    }
    for (slot = 0; slot < shape->slots; ++slot) {
        if (has_it(shape, old, move, slot) && !(planned && ((int32_t)slot == move->source)) && (try-- == 0)) {
            return (int32_t)slot;
        }
    }
    return (try == 0) ? KVCL_EP_SOURCE_STORE : KVCL_EP_SOURCE_NONE;
}

kvcl_status_t kvcl_ep_moves_check(const kvcl_ep_shape_t *shape, const kvcl_ep_move_t *moves, size_t stride, size_t n,
                                  const char *call)
{
    kvcl_status_t        status = kvcl_stride_check(stride, sizeof(kvcl_ep_move_t), "kvcl_ep_move_t", call);
    const kvcl_ep_move_t *move;
    size_t               i;

    if ((status == KVCL_OK) && (moves == NULL) && (n != 0)) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: moves is NULL", call);
    }
    for (i = 0; (status == KVCL_OK) && (i < n); ++i) {
        move = kvcl_ep_move_at(moves, stride, i);
        if ((move->layer >= shape->layers) || (move->expert >= shape->experts) ||
            (move->destination >= shape->slots) || (move->source < KVCL_EP_NONE) ||
            (move->source >= (int32_t)shape->slots) || (move->kind > KVCL_EP_FROM_STORE)) {
            status = kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "%s: move %zu (expert %u of layer %u, from slot %d to slot %u, "
                               "kind %u) is not one of %u layers of %u experts in %u slots", call, i, move->expert,
                               move->layer, (int)move->source, move->destination, move->kind, shape->layers,
                               shape->experts, shape->slots);
        }
    }
    return status;
}
