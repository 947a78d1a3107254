#include "config.h"
#include "view/view.h"
#include "base/rand.h"

#include <string.h>

uint64_t kvcl_view_hash(const kvcl_view_t *view)
{
    uint64_t state = view->number, id = kvcl_splitmix64(&state);
    uint32_t slot;

    KVCL_RANKSET_EACH(&view->members, slot) {
        state = id ^ slot;
        id    = kvcl_splitmix64(&state) ^ view->incarnation[slot];
        id    = kvcl_splitmix64(&id);
    }
    return id;
}

void kvcl_view_first(kvcl_view_t *view, const uint64_t *incarnations, uint32_t n)
{
    uint32_t slot;

    memset(view, 0, sizeof(*view));
    view->number = 1;
    for (slot = 0; slot < n; ++slot) {
        kvcl_rankset_add(&view->members, slot);
        view->incarnation[slot] = incarnations[slot];
    }
    view->id = kvcl_view_hash(view);
}

void kvcl_view_apply(const kvcl_view_t *view, const kvcl_view_change_t *change, kvcl_view_t *next)
{
    uint32_t slot, i;

    *next         = *view;
    next->number += 1;
    KVCL_RANKSET_EACH(&change->gone, slot) {
        next->incarnation[slot] = 0;
    }
    kvcl_rankset_drop(&next->members, &change->gone);
    for (i = 0; i < change->n_joins; ++i) {
        kvcl_rankset_add(&next->members, change->joins[i].slot);
        next->incarnation[change->joins[i].slot] = change->joins[i].incarnation;
    }
    next->id = kvcl_view_hash(next);
}

bool kvcl_view_change_equal(const kvcl_view_change_t *a, const kvcl_view_change_t *b)
{
    uint32_t i;

    if ((a->n_joins != b->n_joins) || !kvcl_rankset_equal(&a->gone, &b->gone)) {
        return false;
    }
    for (i = 0; (i < a->n_joins) && (a->joins[i].slot == b->joins[i].slot) &&
                (a->joins[i].incarnation == b->joins[i].incarnation); ++i) {
    }
    return i == a->n_joins;
}

bool kvcl_view_change_is_empty(const kvcl_view_change_t *change)
{
    return (change->n_joins == 0) && kvcl_rankset_is_empty(&change->gone);
}

bool kvcl_view_has(const kvcl_view_t *view, uint32_t slot, uint64_t incarnation)
{
    return (slot < KVCL_SLOTS_MAX) && kvcl_rankset_has(&view->members, slot) &&
           (view->incarnation[slot] == incarnation);
}

bool kvcl_view_is_quorum(const kvcl_rankset_t *members, const kvcl_rankset_t *ranks)
{
    kvcl_rankset_t both = *ranks;
    unsigned       n, all = kvcl_rankset_count(members);

    kvcl_rankset_keep(&both, members);
    n = kvcl_rankset_count(&both);
    return (2 * n > all) || ((2 * n == all) && (all > 0) && kvcl_rankset_has(ranks, kvcl_rankset_next(members, 0)));
}
