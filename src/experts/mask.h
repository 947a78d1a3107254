/*
 * The memory of the active mask (kvcl_ep_mask_t), and why ranks are skipped: written by the thread of a call, read by
 * any thread. All words are atomic; generation is odd while they change.
 */
#ifndef KVCL_EXPERTS_MASK_H
#define KVCL_EXPERTS_MASK_H

#include "ep/ep_map.h"
#include "ep/ep_turn.h"
#include <kvcl/kvcl_ep_step.h>

typedef struct kvcl_ep_masks {
    kvcl_ep_mask_t *mask; /* owned, as why */
    int32_t        *why;  /* [ranks] */
} kvcl_ep_masks_t;

kvcl_status_t kvcl_ep_masks_init(kvcl_ep_masks_t *masks, uint32_t ranks) KVCL_MUST_CHECK;
void          kvcl_ep_masks_fini(kvcl_ep_masks_t *masks);
/** Show what the machine knows now, and the map. */
void          kvcl_ep_masks_show(kvcl_ep_masks_t *masks, const kvcl_ep_turn_t *turn, const kvcl_ep_map_t *map);

#endif
