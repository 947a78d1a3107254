/*
 * Maps (ep_map.h): a placement sorted by expert.
 *
 * Pure; no lock.
 */
#include "config.h"

#include "ep/ep_map.h"

#include "base/error.h"

#include <stdlib.h>

void kvcl_ep_map_fini(kvcl_ep_map_t *map)
{
    free(map->placement);
    free(map->begin);
    free(map->copies);
    *map = (kvcl_ep_map_t){0};
}

/* Counts, one entry further on; then sums. */
static kvcl_status_t count(kvcl_ep_map_t *map, const kvcl_ep_shape_t *shape, const char *call)
{
    const size_t n = (size_t)map->layers * map->slots, experts = (size_t)map->layers * map->experts;
    size_t       i;
    uint32_t     slot;

    for (i = 0; i < n; ++i) {
        slot = (uint32_t)(i % map->slots);
        if (map->placement[i] == KVCL_EP_NONE) {
            continue;
        }
        if (!kvcl_ep_is_active(shape, slot / shape->per_rank)) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: slot %u of layer %zu holds expert %d, and its rank %u is not "
                             "active", call, slot, i / map->slots, (int)map->placement[i], slot / shape->per_rank);
        }
        ++map->begin[((i / map->slots) * map->experts) + (size_t)map->placement[i] + 1];
    }
    for (i = 0; i < experts; ++i) {
        if ((map->begin[i + 1] == 0) && !shape->holes) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: expert %zu of layer %zu is in no slot: repair the placement, "
                             "or allow it (KVCL_EP_HOLES)", call, i % map->experts, i / map->experts);
        }
        map->begin[i + 1] += map->begin[i];
    }
    return KVCL_OK;
}

static void fill(kvcl_ep_map_t *map)
{
    const size_t n = (size_t)map->layers * map->slots, experts = (size_t)map->layers * map->experts;
    size_t       i, e;

    for (i = 0; i < n; ++i) { /* begin moves to the end of each expert, and back below */
        if (map->placement[i] != KVCL_EP_NONE) {
            e                              = ((i / map->slots) * map->experts) + (size_t)map->placement[i];
            map->copies[map->begin[e]++] = (uint32_t)(i % map->slots);
        }
    }
    for (e = experts; e > 0; --e) {
        map->begin[e] = map->begin[e - 1];
    }
    map->begin[0] = 0;
}

kvcl_status_t kvcl_ep_map_make(kvcl_ep_map_t *map, const kvcl_ep_shape_t *shape, const int32_t *placement,
                               const char *call)
{
    const size_t  n   = (size_t)shape->layers * shape->slots;
    kvcl_ep_map_t new = {.layers = shape->layers, .experts = shape->experts, .slots = shape->slots};
    kvcl_status_t status;
    size_t        i;

    new.placement = calloc(n, sizeof(*new.placement));
    new.begin     = calloc(((size_t)shape->layers * shape->experts) + 1, sizeof(*new.begin));
    new.copies    = calloc(n, sizeof(*new.copies));
    if ((new.placement == NULL) || (new.begin == NULL) || (new.copies == NULL)) {
        kvcl_ep_map_fini(&new);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for a map of %zu slots", call, n);
    }
    for (i = 0; i < n; ++i) {
        new.placement[i] = placement[i];
    }
    status = count(&new, shape, call);
    if (status != KVCL_OK) {
        kvcl_ep_map_fini(&new);
        return status;
    }
    fill(&new);
    kvcl_ep_map_fini(map);
    *map = new;
    return KVCL_OK;
}

int64_t kvcl_ep_map_choose(const kvcl_ep_map_t *map, uint32_t layer, uint32_t expert, uint32_t turn,
                           const int32_t *active, uint32_t per_rank)
{
    const size_t   e       = ((size_t)layer * map->experts) + expert;
    const uint32_t n       = map->begin[e + 1] - map->begin[e];
    const uint32_t *copies = map->copies + map->begin[e];
    uint32_t       i, slot;

    for (i = 0; i < n; ++i) {
        slot = copies[(turn + i) % n];
        if (active[slot / per_rank] != 0) {
            return slot;
        }
    }
    return -1;
}
