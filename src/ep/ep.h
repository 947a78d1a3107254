/*
 * What the functions of kvcl_ep.h share: the checked params (kvcl_ep_shape_t), exact loads, scratch memory.
 *
 * The load of a copy is load / copies, in multiples of 2^-64 and rounded down. Two such fractions differ by more than
 * that unless they are equal, since a layer has at most 2^16 slots; so comparisons of copies are exact. The loads of a
 * layer sum up to less than 2^64, so no sum of copies overflows.
 */
#ifndef KVCL_EP_EP_H
#define KVCL_EP_EP_H

#include "kvcl/kvcl_ep.h"

typedef unsigned __int128 kvcl_ep_load_t; /* in 2^-64 */

/* The params, checked: counts divide each other, 0 is replaced by its default, at least one rank is active. */
typedef struct kvcl_ep_shape {
    uint32_t      layers, experts, slots, ranks, hosts, groups;
    uint32_t      per_rank;  /* slots of a rank */
    uint32_t      per_host;  /* ranks of a host */
    uint32_t      n_active;  /* ranks */
    uint32_t      min_ranks; /* at least 1, as min_hosts */
    uint32_t      min_hosts;
    int           spread;
    int           holes;
    const uint8_t *active; /* NULL: all */
} kvcl_ep_shape_t;

/** Check the params. @a call: for the sentence, "ep_place". */
kvcl_status_t kvcl_ep_take(const kvcl_ep_params_t *params, const char *call, kvcl_ep_shape_t *shape) KVCL_MUST_CHECK;
/** Check that each slot of a placement names an expert or none. @a what: for the sentence, "old". */
kvcl_status_t kvcl_ep_placement_check(const kvcl_ep_shape_t *shape, const int32_t *placement, const char *call,
                                      const char *what) KVCL_MUST_CHECK;

static inline int kvcl_ep_is_active(const kvcl_ep_shape_t *shape, uint32_t rank)
{
    return (shape->active == NULL) || (shape->active[rank] != 0);
}

/** Of one of @a copies copies of an expert. */
static inline kvcl_ep_load_t kvcl_ep_share(uint64_t load, uint32_t copies)
{
    uint64_t whole = load / copies, rest = load % copies, high = (rest << 32) / copies;

    rest = (rest << 32) % copies;
    return ((kvcl_ep_load_t)whole << 64) | (high << 32) | ((rest << 32) / copies);
}

#endif
