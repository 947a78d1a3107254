/*
 * The params of kvcl_ep.h, checked once for all calls: sizes of other versions, limits, counts that must divide each
 * other, active ranks; and the entries of a placement that a caller gives.
 *
 * Pure; no lock.
 */
#include "ep/ep.h"

#include "base/error.h"
#include "base/structs.h"

static uint32_t or_one(uint32_t count)
{
    return (count == 0) ? 1 : count;
}

static kvcl_status_t check_limits(const kvcl_ep_shape_t *s, const char *call)
{
    if (s->layers > KVCL_EP_MAX_LAYERS) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %u layers: at most %u are possible", call, s->layers,
                         KVCL_EP_MAX_LAYERS);
    }
    if ((s->experts == 0) || (s->experts > KVCL_EP_MAX_SLOTS)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %u experts: 1 to %u are possible", call, s->experts,
                         KVCL_EP_MAX_SLOTS);
    }
    if ((s->ranks == 0) || (s->ranks > KVCL_EP_MAX_RANKS)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %u ranks: 1 to %u are possible", call, s->ranks,
                         KVCL_EP_MAX_RANKS);
    }
    if ((s->slots == 0) || (s->slots > KVCL_EP_MAX_SLOTS)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %u slots: 1 to %u are possible", call, s->slots,
                         KVCL_EP_MAX_SLOTS);
    }
    return KVCL_OK;
}

static kvcl_status_t check_divides(const kvcl_ep_shape_t *s, const char *call)
{
    uint32_t above = s->slots - (s->slots % s->ranks) + s->ranks;

    if (s->slots % s->ranks != 0) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM,
                         "%s: %u slots are no multiple of %u ranks: give %u slots, or another multiple", call, s->slots,
                         s->ranks, above);
    }
    if (s->ranks % s->hosts != 0) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %u hosts do not divide %u ranks: each host must have as many",
                         call, s->hosts, s->ranks);
    }
    if (s->experts % s->groups != 0) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %u groups do not divide %u experts: each group must have as many",
                         call, s->groups, s->experts);
    }
    return KVCL_OK;
}

static kvcl_status_t count_active(kvcl_ep_shape_t *s, const char *call)
{
    uint32_t r;

    for (r = 0; r < s->ranks; ++r) {
        s->n_active += (uint32_t)kvcl_ep_is_active(s, r);
    }
    if (s->n_active == 0) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: none of the %u ranks is active", call, s->ranks);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_ep_take(const kvcl_ep_params_t *params, const char *call, kvcl_ep_shape_t *shape)
{
    const uint64_t   known = KVCL_EP_SPREAD | KVCL_EP_HOLES;
    kvcl_ep_params_t p     = KVCL_EP_PARAMS_INIT;
    kvcl_status_t    status;

    if (params == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: params is NULL", call);
    }
    status = kvcl_struct_in(&p, params, KVCL_UP_TO(kvcl_ep_params_t, active), sizeof(p), "kvcl_ep_params_t");
    if (status != KVCL_OK) {
        return status;
    }
    if ((p.flags & ~known) != 0) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: unknown flags 0x%llx", call,
                         (unsigned long long)(p.flags & ~known));
    }
    *shape = (kvcl_ep_shape_t){.layers = or_one(p.layers), .experts = p.experts, .slots = p.slots, .ranks = p.ranks,
                               .hosts = or_one(p.hosts), .groups = or_one(p.groups), .min_ranks = or_one(p.min_ranks),
                               .min_hosts = or_one(p.min_hosts), .holes = (p.flags & KVCL_EP_HOLES) != 0,
                               .active = p.active};
    shape->spread = ((p.flags & KVCL_EP_SPREAD) != 0) || (shape->min_ranks > 1) || (shape->min_hosts > 1);
    if (((status = check_limits(shape, call)) != KVCL_OK) || ((status = check_divides(shape, call)) != KVCL_OK)) {
        return status;
    }
    shape->per_rank = shape->slots / shape->ranks;
    shape->per_host = shape->ranks / shape->hosts;
    return count_active(shape, call);
}

kvcl_status_t kvcl_ep_placement_check(const kvcl_ep_shape_t *shape, const int32_t *placement, const char *call,
                                      const char *what)
{
    size_t n = (size_t)shape->layers * shape->slots, i;

    if (placement == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %s is NULL", call, what);
    }
    for (i = 0; i < n; ++i) {
        if ((placement[i] < KVCL_EP_NONE) || (placement[i] >= (int32_t)shape->experts)) {
            return kvcl_fail(KVCL_ERR_OUT_OF_RANGE,
                             "%s: %s has expert %d in slot %zu of layer %zu: there are 0 to %u, or KVCL_EP_NONE", call,
                             what, (int)placement[i], i % shape->slots, i / shape->slots, shape->experts - 1);
        }
    }
    return KVCL_OK;
}
