/*
 * A map: a placement, and by expert the slots that hold it. Pure.
 */
#ifndef KVCL_EP_EP_MAP_H
#define KVCL_EP_EP_MAP_H

#include "ep/ep.h"

/* Zeroed: none. */
typedef struct kvcl_ep_map {
    uint32_t layers, experts, slots;
    int32_t  *placement; /* [layers][slots] */
    uint32_t *begin;     /* [layers * experts + 1]: the first copy of each expert, in copies */
    uint32_t *copies;    /* slots, ascending for each expert */
} kvcl_ep_map_t;

/**
 * Copy a placement that was checked.
 * @return KVCL_OK; KVCL_ERR_INVALID_PARAM: an expert is in no slot, and the params allow no holes, or a slot of a rank
 *         that is not active holds one (names both); KVCL_ERR_NO_MEMORY. Then *map is kept.
 */
kvcl_status_t kvcl_ep_map_make(kvcl_ep_map_t *map, const kvcl_ep_shape_t *shape, const int32_t *placement,
                               const char *call) KVCL_MUST_CHECK;
void          kvcl_ep_map_fini(kvcl_ep_map_t *map);
/** A slot of an expert on a rank that is active, the copies in turn by @a turn; -1: none. @a per_rank: slots. */
int64_t       kvcl_ep_map_choose(const kvcl_ep_map_t *map, uint32_t layer, uint32_t expert, uint32_t turn,
                                 const int32_t *active, uint32_t per_rank);

#endif
