/*
 * kvcl_ep_activate and kvcl_ep_choose: the map of a handle, replaced together with the mask (kvcl_ep_step.h).
 *
 * Invariant: the map that the mask points to stays as it is until the activation after the next; a call that fails has
 * changed nothing. No lock is held.
 */
#include "config.h"

#include "experts/step.h"

#include "base/error.h"

#include <string.h>

static kvcl_status_t check(const struct kvcl_ep *ep, uint64_t number, const kvcl_ep_shape_t *shape)
{
    if (ep->turn.phase != KVCL_EP_IDLE) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "ep_activate: step %llu has no combine yet",
                         (unsigned long long)ep->turn.step);
    }
    if (number <= ep->turn.number) {
        return kvcl_fail(KVCL_ERR_STALE, "ep_activate: number %llu: the handle has %llu already: numbers rise",
                         (unsigned long long)number, (unsigned long long)ep->turn.number);
    }
    if ((shape->slots != ep->dims.slots) || (shape->ranks != ep->dims.ranks)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "ep_activate: %u slots on %u ranks: the handle has %u on %u",
                         shape->slots, shape->ranks, ep->dims.slots, ep->dims.ranks);
    }
    if (!kvcl_ep_is_active(shape, ep->dims.self)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "ep_activate: this rank, %u, is not active: close the handle instead",
                         ep->dims.self);
    }
    return KVCL_OK;
}

static kvcl_status_t activate(kvcl_ep_h ep, uint64_t number, const kvcl_ep_params_t *params, const int32_t *placement)
{
    const unsigned  next = ep->map ^ 1u;
    kvcl_ep_shape_t shape;
    kvcl_status_t   status = kvcl_ep_take(params, "ep_activate", &shape);

    if ((status != KVCL_OK) || ((status = check(ep, number, &shape)) != KVCL_OK)) {
        return status;
    }
    if (placement != NULL) {
        status = kvcl_ep_placement_check(&shape, placement, "ep_activate", "placement");
        if (status == KVCL_OK) {
            status = kvcl_ep_map_make(&ep->maps[next], &shape, placement, "ep_activate");
        }
    }
    if (status != KVCL_OK) {
        return status;
    }
    ep->map = (placement != NULL) ? next : ep->map;
    kvcl_ep_msgs_stop(ep, false);
    kvcl_ep_turn_activate(&ep->turn, number, shape.active);
    kvcl_ep_msgs_listen(ep);
    kvcl_ep_masks_show(&ep->masks, &ep->turn, &ep->maps[ep->map]);
    return KVCL_OK;
}

kvcl_status_t kvcl_ep_activate(kvcl_ep_h ep, uint64_t number, const kvcl_ep_params_t *params, const int32_t *placement)
{
    kvcl_status_t status = kvcl_ep_enter(ep, "kvcl_ep_activate");

    if (status == KVCL_OK) {
        status = activate(ep, number, params, placement);
        kvcl_ep_leave(ep);
    }
    return status;
}

static kvcl_status_t choose(const struct kvcl_ep *ep, uint32_t layer, const int64_t *experts, uint32_t n_tokens,
                            uint32_t top_k, int64_t *ids)
{
    const kvcl_ep_map_t *map = &ep->maps[ep->map];
    const size_t        n    = (size_t)n_tokens * top_k;
    size_t              i;

    if ((n != 0) && ((experts == NULL) || (ids == NULL))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "ep_choose: %s is NULL", (experts == NULL) ? "experts" : "ids");
    }
    if (layer >= map->layers) {
        return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "ep_choose: layer %u: the map has %u (0: none was activated)", layer,
                         map->layers);
    }
    for (i = 0; i < n; ++i) {
        if ((experts[i] < KVCL_EP_ID_LOST) || (experts[i] >= (int64_t)map->experts)) {
            return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "ep_choose: expert %lld at place %zu of token %zu: there are 0 to "
                             "%u, and KVCL_EP_ID_NONE or KVCL_EP_ID_LOST", (long long)experts[i], i % top_k, i / top_k,
                             map->experts - 1);
        }
    }
    for (i = 0; i < n; ++i) {
        if (experts[i] < 0) {
            ids[i] = experts[i];
            continue;
        }
        ids[i] = kvcl_ep_map_choose(map, layer, (uint32_t)experts[i], (uint32_t)(i / top_k) + ep->dims.self,
                                    ep->masks.mask->active, ep->dims.local);
        ids[i] = (ids[i] < 0) ? KVCL_EP_ID_LOST : ids[i];
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_ep_choose(kvcl_ep_h ep, uint32_t layer, const int64_t *experts, uint32_t n_tokens, uint32_t top_k,
                             int64_t *ids)
{
    kvcl_status_t status = kvcl_ep_enter(ep, "kvcl_ep_choose");

    if (status == KVCL_OK) {
        status = choose(ep, layer, experts, n_tokens, top_k, ids);
        kvcl_ep_leave(ep);
    }
    return status;
}
