/*
 * kvcl_ep_repair: the slots of failed ranks are given up, and each expert that has no copy left gets one slot.
 *
 * Ranks give slots in turn, from a ring. A rank that has no slot to give leaves the ring: it never has one again, since
 * copies only become fewer, and a restored expert has one copy. So a layer takes at most as many steps as it has lost
 * experts and ranks, each with a look at the slots of one rank.
 *
 * Pure but for one allocation; no lock.
 */
#include "ep/ep.h"

#include "base/error.h"

#include <stdlib.h>

typedef struct repair {
    const kvcl_ep_shape_t *s;
    int32_t               *placement; /* [layers][slots]: the result, until all of it is known */
    uint32_t              *counts;    /* of the layer: copies of each expert on active ranks */
    uint32_t              *ring;      /* ranks that may have a slot to give */
    size_t                restored, missing;
} repair_t;

/* The layer without the slots of ranks that are not active; counts. */
static void give_up(repair_t *r, const int32_t *old, int32_t *layer)
{
    uint32_t i;

    for (i = 0; i < r->s->experts; ++i) {
        r->counts[i] = 0;
    }
    for (i = 0; i < r->s->slots; ++i) {
        layer[i] = kvcl_ep_is_active(r->s, i / r->s->per_rank) ? old[i] : KVCL_EP_NONE;
        if (layer[i] != KVCL_EP_NONE) {
            ++r->counts[layer[i]];
        }
    }
}

/* A slot that the rank can give: an empty one, or that whose expert has the most copies, the highest of equals. */
static int32_t slot_of(const repair_t *r, const int32_t *layer, uint32_t rank, int empty)
{
    uint32_t first = rank * r->s->per_rank, slot, copies, most = 1;
    int32_t  best = KVCL_EP_NONE;

    for (slot = first; slot < first + r->s->per_rank; ++slot) {
        if (empty && (layer[slot] == KVCL_EP_NONE)) {
            return (int32_t)slot;
        }
        copies = (layer[slot] == KVCL_EP_NONE) ? 0 : r->counts[layer[slot]];
        if (!empty && (copies > 1) && (copies >= most)) {
            most = copies;
            best = (int32_t)slot;
        }
    }
    return best;
}

/* Give lost experts, from number *next_p on, slots of one kind. */
static void restore(repair_t *r, int32_t *layer, uint32_t *next_p, int empty)
{
    uint32_t n = 0, at = 0, rank, i;
    int32_t  slot;

    for (rank = 0; rank < r->s->ranks; ++rank) {
        r->ring[n] = rank;
        n += (uint32_t)kvcl_ep_is_active(r->s, rank);
    }
    for (; *next_p < r->s->experts; ++*next_p) {
        if (r->counts[*next_p] > 0) {
            continue;
        }
        slot = KVCL_EP_NONE;
        while ((n > 0) && ((slot = slot_of(r, layer, r->ring[at], empty)) == KVCL_EP_NONE)) {
            for (i = at + 1; i < n; ++i) {
                r->ring[i - 1] = r->ring[i];
            }
            --n;
            at = (at == n) ? 0 : at;
        }
        if (slot == KVCL_EP_NONE) {
            return;
        }
        if (layer[slot] != KVCL_EP_NONE) {
            --r->counts[layer[slot]];
        }
        layer[slot]        = (int32_t)*next_p;
        r->counts[*next_p] = 1;
        ++r->restored;
        at = (at + 1) % n;
    }
}

static void repair_layer(repair_t *r, const int32_t *old, int32_t *layer)
{
    uint32_t next = 0;

    give_up(r, old, layer);
    restore(r, layer, &next, 1);
    restore(r, layer, &next, 0);
    for (; next < r->s->experts; ++next) {
        r->missing += (r->counts[next] == 0);
    }
}

static kvcl_status_t check_room(const kvcl_ep_shape_t *s)
{
    uint32_t slots = s->n_active * s->per_rank;

    if (!s->holes && (slots < s->experts)) {
        return kvcl_fail(KVCL_ERR_NO_SPACE,
                         "ep_repair: %u active ranks have %u slots for %u experts: activate more ranks, or allow "
                         "KVCL_EP_HOLES", s->n_active, slots, s->experts);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_ep_repair(const kvcl_ep_params_t *params, const int32_t *old, int32_t *placement,
                             size_t *restored_p, size_t *missing_p)
{
    kvcl_ep_shape_t s;
    repair_t        r = {.s = &s};
    kvcl_status_t   status = kvcl_ep_take(params, "ep_repair", &s);
    size_t          n, i;
    uint32_t        l;

    if ((status == KVCL_OK) && (placement == NULL)) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "ep_repair: placement is NULL");
    }
    if ((status != KVCL_OK) || ((status = kvcl_ep_placement_check(&s, old, "ep_repair", "old")) != KVCL_OK) ||
        ((status = check_room(&s)) != KVCL_OK)) {
        return status;
    }
    n           = (size_t)s.layers * s.slots;
    r.placement = malloc((n * sizeof(*r.placement)) + (s.experts * sizeof(*r.counts)) + (s.ranks * sizeof(*r.ring)));
    if (r.placement == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ep_repair: no memory for %zu slots", n);
    }
    r.counts = (uint32_t *)(void *)(r.placement + n);
    r.ring   = r.counts + s.experts;
    for (l = 0; l < s.layers; ++l) {
        repair_layer(&r, &old[(size_t)l * s.slots], &r.placement[(size_t)l * s.slots]);
    }
    for (i = 0; i < n; ++i) {
        placement[i] = r.placement[i];
    }
    free(r.placement);
    if (restored_p != NULL) {
        *restored_p = r.restored;
    }
    if (missing_p != NULL) {
        *missing_p = r.missing;
    }
    return KVCL_OK;
}
