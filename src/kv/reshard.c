/*
 * Reshard plans (kvcl_reshard.h): which source gives what to which destination.
 *
 * Owns: the rule by which ranks hold heads (share_of) and the choice among those that hold the same (giver). A plan is
 * never kept: step_between answers for one pair of ranks, and a rank's plan is that question asked of all ranks of the
 * other side, so what a destination expects and what a source gives cannot differ. A pair has at most one step, because
 * a rank's heads and layers are one range each.
 * Locks: none, all functions are pure; outputs are written on success only, but for the number of steps.
 */
#include "kvcl/kvcl_reshard.h"

#include "base/error.h"
#include "base/structs.h"
#include "conf/conf.h"

#include <string.h>

static uint32_t stages(const kvcl_reshard_group_t *group)
{
    return (group->pp == 0) ? 1 : group->pp;
}

static uint32_t ranks(const kvcl_reshard_group_t *group)
{
    return group->tp * stages(group);
}

/* Ranks of a stage that hold the same heads. */
static uint32_t holders(const kvcl_reshard_group_t *group, uint32_t heads)
{
    return (group->tp > heads) ? group->tp / heads : 1;
}

static kvcl_status_t check_stages(const kvcl_reshard_group_t *group, uint32_t layers, const char *what)
{
    uint64_t sum = 0;
    uint32_t i;

    if (stages(group) > layers) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "reshard: the %s has %u stages for %u layers", what, stages(group),
                         layers);
    }
    for (i = 0; (group->stage_layers != NULL) && (i < stages(group)); ++i) {
        if (group->stage_layers[i] == 0) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "reshard: stage %u of the %s has no layer", i, what);
        }
        sum += group->stage_layers[i];
    }
    if ((group->stage_layers != NULL) && (sum != layers)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "reshard: the stages of the %s have %llu layers, the model %u", what,
                         (unsigned long long)sum, layers);
    }
    return KVCL_OK;
}

static kvcl_status_t check_group(const kvcl_reshard_group_t *group, uint32_t layers, uint32_t heads, const char *what)
{
    if ((group->reserved[0] | group->reserved[1]) != 0) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "reshard: %s.reserved is not 0: zero the struct first", what);
    }
    if ((group->tp == 0) || (group->tp > KVCL_RESHARD_MAX_RANKS) || (stages(group) > KVCL_RESHARD_MAX_RANKS) ||
        (ranks(group) > KVCL_RESHARD_MAX_RANKS)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "reshard: the %s has %u x %u ranks: 1 to %u are possible", what,
                         group->tp, stages(group), KVCL_RESHARD_MAX_RANKS);
    }
    if ((layers == 0) || (layers > KVCL_LAYOUT_MAX_LAYERS) || (heads == 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "reshard: a model of %u layers (1 to %u) and %u heads (1 or more)",
                         layers, KVCL_LAYOUT_MAX_LAYERS, heads);
    }
    if ((heads % group->tp != 0) && (group->tp % heads != 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM,
                         "reshard: %u KV heads on %u ranks of the %s: one must divide the other", heads, group->tp,
                         what);
    }
    return check_stages(group, layers, what);
}

/* The caller's params, of any version, as the current one. */
static kvcl_status_t take(const kvcl_reshard_params_t *params, kvcl_reshard_params_t *p)
{
    kvcl_status_t status;

    if (params == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "reshard: params is NULL");
    }
    memset(p, 0, sizeof(*p));
    status = kvcl_struct_in(p, params, KVCL_UP_TO(kvcl_reshard_params_t, destination), sizeof(*p),
                            "kvcl_reshard_params_t");
    if (status != KVCL_OK) {
        return status;
    }
    if (p->flags != 0) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "reshard: unknown flags 0x%llx", (unsigned long long)p->flags);
    }
    status = check_group(&p->source, p->layers, p->heads, "source");
    return (status == KVCL_OK) ? check_group(&p->destination, p->layers, p->heads, "destination") : status;
}

static kvcl_status_t check_index(const kvcl_reshard_group_t *group, uint32_t index, const char *what)
{
    if (index >= ranks(group)) {
        return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "reshard: rank %u of a %s of %u", index, what, ranks(group));
    }
    return KVCL_OK;
}

static kvcl_range_t layers_of(const kvcl_reshard_group_t *group, uint32_t layers, uint32_t stage)
{
    uint32_t each = layers / stages(group), more = layers % stages(group);
    kvcl_range_t range = {0, 0};
    uint32_t i;

    if (group->stage_layers == NULL) {
        range.first = (stage * each) + ((stage < more) ? stage : more);
        range.end = range.first + each + (stage < more);
        return range;
    }
    for (i = 0; i < stage; ++i) {
        range.first += group->stage_layers[i];
    }
    range.end = range.first + group->stage_layers[stage];
    return range;
}

/* What of the model the rank holds. */
static void share_of(const kvcl_reshard_group_t *group, uint32_t layers, uint32_t heads, uint32_t index,
                     kvcl_range_t *layers_p, kvcl_range_t *heads_p)
{
    uint32_t each = (heads > group->tp) ? heads / group->tp : 1;

    *layers_p = layers_of(group, layers, index / group->tp);
    heads_p->first = (index % group->tp) / holders(group, heads) * each;
    heads_p->end = heads_p->first + each;
}

/* Of the ranks that hold the same as @a source, the one that gives it to @a destination. */
static uint32_t giver(const kvcl_reshard_params_t *p, uint32_t source, uint32_t destination)
{
    uint32_t n = holders(&p->source, p->heads);
    uint32_t first = source - ((source % p->source.tp) % n); /* tp is a multiple of n */
    const uint32_t *distances = p->distances;
    uint32_t best = first + (destination % n), i, at;

    if (distances != NULL) {
        distances += (size_t)destination * ranks(&p->source);
    }
    for (i = 1; (distances != NULL) && (i < n); ++i) {
        at = first + ((destination + i) % n);
        best = (distances[at] < distances[best]) ? at : best;
    }
    return best;
}

/* Where a and b overlap, counted from the beginning of each. */
static int overlap(kvcl_range_t a, kvcl_range_t b, kvcl_range_t *in_a_p, kvcl_range_t *in_b_p)
{
    uint32_t first = (a.first > b.first) ? a.first : b.first;
    uint32_t end = (a.end < b.end) ? a.end : b.end;

    if (first >= end) {
        return 0;
    }
    *in_a_p = (kvcl_range_t){first - a.first, end - a.first};
    *in_b_p = (kvcl_range_t){first - b.first, end - b.first};
    return 1;
}

static int step_between(const kvcl_reshard_params_t *p, uint32_t source, uint32_t destination,
                        kvcl_reshard_step_t *step)
{
    kvcl_range_t source_layers, source_heads, layers, heads;

    share_of(&p->source, p->layers, p->heads, source, &source_layers, &source_heads);
    share_of(&p->destination, p->layers, p->heads, destination, &layers, &heads);
    step->source = source;
    step->destination = destination;
    return overlap(source_layers, layers, &step->source_layers, &step->destination_layers) &&
           overlap(source_heads, heads, &step->source_heads, &step->destination_heads) &&
           (giver(p, source, destination) == source);
}

kvcl_status_t kvcl_reshard_share(const kvcl_reshard_group_t *group, uint32_t layers, uint32_t heads, uint32_t index,
                                 kvcl_range_t *layers_p, kvcl_range_t *heads_p)
{
    kvcl_range_t own_layers, own_heads;
    kvcl_status_t status;

    if (group == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "reshard: the group is NULL");
    }
    if (((status = check_group(group, layers, heads, "group")) != KVCL_OK) ||
        ((status = check_index(group, index, "group")) != KVCL_OK)) {
        return status;
    }
    share_of(group, layers, heads, index, &own_layers, &own_heads);
    if (layers_p != NULL) {
        *layers_p = own_layers;
    }
    if (heads_p != NULL) {
        *heads_p = own_heads;
    }
    return KVCL_OK;
}

/* The steps of @a index with all ranks of the other side: fill those that there is room for, count all. */
static size_t list(const kvcl_reshard_params_t *p, uint32_t index, int of_source, kvcl_reshard_step_t *steps,
                   size_t stride, size_t cap)
{
    uint32_t others = ranks(of_source ? &p->destination : &p->source), i;
    kvcl_reshard_step_t step;
    size_t n = 0;

    for (i = 0; i < others; ++i) {
        if (step_between(p, of_source ? index : i, of_source ? i : index, &step)) {
            if (n < cap) {
                kvcl_struct_out_at(steps, n, stride, &step, sizeof(step));
            }
            ++n;
        }
    }
    return n;
}

static kvcl_status_t plan(const kvcl_reshard_params_t *params, uint32_t index, int of_source,
                          kvcl_reshard_step_t *steps, size_t stride, size_t cap, size_t *n_p)
{
    kvcl_reshard_params_t p;
    kvcl_status_t status = take(params, &p);
    size_t n;

    if ((status == KVCL_OK) && ((n_p == NULL) || ((steps == NULL) && (cap > 0)))) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "reshard: steps or n_p is NULL");
    }
    if (status == KVCL_OK) {
        status = kvcl_stride_check(stride, KVCL_UP_TO(kvcl_reshard_step_t, destination_heads), "kvcl_reshard_step_t",
                                   "reshard");
    }
    if (status == KVCL_OK) {
        status = of_source ? check_index(&p.source, index, "source")
                           : check_index(&p.destination, index, "destination");
    }
    if (status != KVCL_OK) {
        return status;
    }
    n = list(&p, index, of_source, NULL, 0, 0);
    *n_p = n;
    if (n > cap) {
        return kvcl_fail(KVCL_ERR_TRUNCATED, "reshard: %zu steps, there is room for %zu", n, cap);
    }
    (void)list(&p, index, of_source, steps, stride, cap);
    return KVCL_OK;
}

kvcl_status_t kvcl_reshard_plan(const kvcl_reshard_params_t *params, uint32_t index, kvcl_reshard_step_t *steps,
                                size_t stride, size_t cap, size_t *n_p)
{
    return plan(params, index, 0, steps, stride, cap, n_p);
}

kvcl_status_t kvcl_reshard_plan_source(const kvcl_reshard_params_t *params, uint32_t index, kvcl_reshard_step_t *steps,
                                       size_t stride, size_t cap, size_t *n_p)
{
    return plan(params, index, 1, steps, stride, cap, n_p);
}
