/*
 * The requests that run (follow.h). The map has room for all of them from the beginning, so that no call allocates; an
 * entry of the map is the index of the request, plus one.
 */
#include "config.h"
#include "sched/follow.h"
#include "base/error.h"

#include <stdlib.h>

kvcl_status_t kvcl_follow_init(kvcl_follow_t *follow, uint32_t max)
{
    kvcl_map_init(&follow->by_id);
    follow->n   = 0;
    follow->max = max;
    follow->at  = calloc(max, sizeof(*follow->at));
    if (follow->at == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory to follow %u requests", (unsigned)max);
    }
    return kvcl_map_reserve(&follow->by_id, max);
}

void kvcl_follow_fini(kvcl_follow_t *follow)
{
    kvcl_map_fini(&follow->by_id);
    free(follow->at);
}

kvcl_followed_t *kvcl_follow_find(kvcl_follow_t *follow, uint64_t id)
{
    const uintptr_t at = (uintptr_t)kvcl_map_get(&follow->by_id, id);

    return (at == 0) ? NULL : &follow->at[at - 1];
}

void kvcl_follow_add(kvcl_follow_t *follow, const kvcl_followed_t *request)
{
    kvcl_followed_t *known = kvcl_follow_find(follow, request->id);

    if (known != NULL) {
        *known = *request;
    } else if ((request->id != 0) && (follow->n < follow->max) &&
               (kvcl_map_put(&follow->by_id, request->id, (void *)(uintptr_t)(follow->n + 1)) == KVCL_OK)) {
        follow->at[follow->n++] = *request;
    }
}

/* The last request takes the place of one that leaves. */
static void remove_at(kvcl_follow_t *follow, uint32_t i)
{
    (void)kvcl_map_del(&follow->by_id, follow->at[i].id);
    --follow->n;
    if (i < follow->n) {
        follow->at[i] = follow->at[follow->n];
        if (kvcl_map_put(&follow->by_id, follow->at[i].id, (void *)(uintptr_t)(i + 1)) != KVCL_OK) {
            --follow->n; /* cannot be: the id has a slot already */
        }
    }
}

void kvcl_follow_remove(kvcl_follow_t *follow, uint64_t id)
{
    const uintptr_t at = (uintptr_t)kvcl_map_get(&follow->by_id, id);

    if (at != 0) {
        remove_at(follow, (uint32_t)(at - 1));
    }
}

void kvcl_follow_gone(kvcl_follow_t *follow, uint32_t inst)
{
    kvcl_followed_t *r;
    uint32_t        i = 0;

    while (i < follow->n) {
        r = &follow->at[i];
        if (r->decodes ? (r->decode == inst) : (r->prefill == inst)) {
            remove_at(follow, i);
            continue;
        }
        r->decode = (r->decode == inst) ? KVCL_SCHED_NONE : r->decode;
        ++i;
    }
}

kvcl_forecast_t kvcl_follow_forecast(const kvcl_follow_t *follow, uint32_t decode, double then_s, double decode_s,
                                     double step_s)
{
    kvcl_forecast_t       forecast = {0, 0};
    const kvcl_followed_t *r;
    double                took;
    uint32_t              i;

    for (i = 0; i < follow->n; ++i) {
        r    = &follow->at[i];
        took = then_s - r->start_s;
        if (((decode != KVCL_SCHED_NONE) && (r->decode != decode)) || (took < 0) ||
            (took > ((decode_s > 0) ? decode_s : r->output * step_s))) {
            continue;
        }
        forecast.batch   += 1;
        forecast.context += r->tokens + ((step_s > 0) ? took / step_s : r->output / 2);
    }
    return forecast;
}
