/*
 * kvcl_ep_index: a placement by expert.
 *
 * Pure but for one allocation; no lock.
 */
#include "ep/ep.h"

#include "base/error.h"

#include <stdlib.h>

/* The copies of each expert in one layer. */
static void count(const kvcl_ep_shape_t *s, const int32_t *placement, uint32_t *counts)
{
    uint32_t i;

    for (i = 0; i < s->experts; ++i) {
        counts[i] = 0;
    }
    for (i = 0; i < s->slots; ++i) {
        if ((placement[i] != KVCL_EP_NONE) && kvcl_ep_is_active(s, i / s->per_rank)) {
            ++counts[placement[i]];
        }
    }
}

static kvcl_status_t check_copies(const kvcl_ep_shape_t *s, const int32_t *placement, size_t copies_max,
                                  uint32_t *counts)
{
    uint32_t l, e;

    for (l = 0; l < s->layers; ++l) {
        count(s, &placement[(size_t)l * s->slots], counts);
        for (e = 0; e < s->experts; ++e) {
            if (counts[e] > copies_max) {
                return kvcl_fail(KVCL_ERR_TRUNCATED,
                                 "ep_index: layer %u: expert %u has %u copies, copies_max is %zu", l, e, counts[e],
                                 copies_max);
            }
        }
    }
    return KVCL_OK;
}

static void write_layer(const kvcl_ep_shape_t *s, const int32_t *placement, int32_t *copies, size_t copies_max,
                        uint32_t *counts)
{
    size_t   i;
    uint32_t slot;
    int32_t  e;

    for (i = 0; i < s->experts * copies_max; ++i) {
        copies[i] = KVCL_EP_NONE;
    }
    for (i = 0; i < s->experts; ++i) {
        counts[i] = 0;
    }
    for (slot = 0; slot < s->slots; ++slot) {
        e = placement[slot];
        if ((e != KVCL_EP_NONE) && kvcl_ep_is_active(s, slot / s->per_rank)) {
            copies[((size_t)e * copies_max) + counts[e]++] = (int32_t)slot;
        }
    }
}

kvcl_status_t kvcl_ep_index(const kvcl_ep_params_t *params, const int32_t *placement, int32_t *copies,
                            size_t copies_max, uint32_t *counts)
{
    kvcl_ep_shape_t s;
    kvcl_status_t   status = kvcl_ep_take(params, "ep_index", &s);
    uint32_t        *scratch, l;

    if (status == KVCL_OK) {
        status = kvcl_ep_placement_check(&s, placement, "ep_index", "placement");
    }
    if ((status == KVCL_OK) && (copies != NULL) && (copies_max > KVCL_EP_MAX_SLOTS)) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "ep_index: copies_max is %zu: at most %u are possible", copies_max,
                           KVCL_EP_MAX_SLOTS);
    }
    if (status != KVCL_OK) {
        return status;
    }
    scratch = malloc(s.experts * sizeof(*scratch));
    if (scratch == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ep_index: no memory for %u counts", s.experts);
    }
    status = (copies != NULL) ? check_copies(&s, placement, copies_max, scratch) : KVCL_OK;
    for (l = 0; (status == KVCL_OK) && (l < s.layers); ++l) {
        if (copies != NULL) {
            write_layer(&s, &placement[(size_t)l * s.slots], &copies[(size_t)l * s.experts * copies_max], copies_max,
                        scratch);
        }
        if (counts != NULL) {
            count(&s, &placement[(size_t)l * s.slots], &counts[(size_t)l * s.experts]);
        }
    }
    free(scratch);
    return status;
}
