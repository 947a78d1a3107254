/*
 * The memory of the active mask (mask.h), kvcl_ep_mask and kvcl_ep_query.
 *
 * Invariant: a reader that finds the same even generation before and after has read one state. No lock.
 */
#include "config.h"

#include "experts/step.h"

#include "base/error.h"
#include "base/fence.h"
#include "base/structs.h"
#include "handle/handle.h"

#include <stdlib.h>

kvcl_status_t kvcl_ep_masks_init(kvcl_ep_masks_t *masks, uint32_t ranks)
{
    masks->mask = calloc(1, sizeof(*masks->mask));
    masks->why  = calloc(ranks, sizeof(*masks->why));
    if ((masks->mask == NULL) || (masks->why == NULL)) {
        kvcl_ep_masks_fini(masks);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ep_open: no memory for a mask of %u ranks", ranks);
    }
    masks->mask->ranks = ranks;
    return KVCL_OK;
}

void kvcl_ep_masks_fini(kvcl_ep_masks_t *masks)
{
    free(masks->mask);
    free(masks->why);
    *masks = (kvcl_ep_masks_t){0};
}

#define STORE(_to, _value) __atomic_store_n(&(_to), (_value), __ATOMIC_RELAXED)
#define LOAD(_from)        __atomic_load_n(&(_from), __ATOMIC_RELAXED)

void kvcl_ep_masks_show(kvcl_ep_masks_t *masks, const kvcl_ep_turn_t *turn, const kvcl_ep_map_t *map)
{
    kvcl_ep_mask_t *mask      = masks->mask;
    const uint64_t generation = LOAD(mask->generation);
    uint32_t       r, n       = 0;
    bool           changed    = (mask->number != turn->number) || (mask->placement != map->placement);

    STORE(mask->generation, generation + 1);
    kvcl_fence(memory_order_release);
    for (r = 0; r < turn->ranks; ++r) {
        changed = changed || ((mask->active[r] != 0) != kvcl_ep_turn_active(turn, r));
        STORE(mask->active[r], kvcl_ep_turn_active(turn, r) ? 1 : 0);
        STORE(masks->why[r], (int32_t)turn->peers[r].why);
        n += kvcl_ep_turn_active(turn, r);
    }
    STORE(mask->n_active, n);
    STORE(mask->changes, mask->changes + changed);
    STORE(mask->number, turn->number);
    STORE(mask->step, turn->step);
    STORE(mask->layers, map->layers);
    STORE(mask->experts, map->experts);
    STORE(mask->placement, (const int32_t *)map->placement);
    __atomic_store_n(&mask->generation, generation + 2, __ATOMIC_RELEASE);
}

const kvcl_ep_mask_t *kvcl_ep_mask(kvcl_ep_h ep)
{
    return (kvcl_handle_check(ep, KVCL_KIND_EP, "kvcl_ep_mask") == KVCL_OK) ? ep->masks.mask : NULL;
}

/* False: it changed meanwhile. */
static bool read_once(const kvcl_ep_masks_t *masks, kvcl_ep_state_t *state, int32_t *active, kvcl_status_t *why)
{
    const kvcl_ep_mask_t *mask = masks->mask;
    uint32_t             r;

    state->generation = __atomic_load_n(&mask->generation, __ATOMIC_ACQUIRE);
    state->number     = LOAD(mask->number);
    state->step       = LOAD(mask->step);
    state->ranks      = mask->ranks;
    state->n_active   = LOAD(mask->n_active);
    state->changes    = LOAD(mask->changes);
    for (r = 0; r < mask->ranks; ++r) {
        if (active != NULL) {
            active[r] = LOAD(mask->active[r]);
        }
        if (why != NULL) {
            why[r] = (kvcl_status_t)LOAD(masks->why[r]);
        }
    }
    kvcl_fence(memory_order_acquire);
    return ((state->generation & 1) == 0) && (LOAD(mask->generation) == state->generation);
}

kvcl_status_t kvcl_ep_query(kvcl_ep_h ep, kvcl_ep_state_t *state, int32_t *active, kvcl_status_t *why)
{
    kvcl_ep_state_t out    = KVCL_EP_STATE_INIT;
    kvcl_status_t   status = kvcl_handle_check(ep, KVCL_KIND_EP, "kvcl_ep_query");

    if (status == KVCL_OK) {
        status = kvcl_struct_out_check(state, KVCL_UP_TO(kvcl_ep_state_t, changes), "kvcl_ep_state_t",
                                       "kvcl_ep_query");
    }
    if (status != KVCL_OK) {
        return status;
    }
    while (!read_once(&ep->masks, &out, active, why)) { /* a writer takes nanoseconds */
    }
    kvcl_struct_out(state, &out, sizeof(out));
    return KVCL_OK;
}
