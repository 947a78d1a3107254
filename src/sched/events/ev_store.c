/*
 * Events and listings of a rank of a KVCL store. Owns nothing. Locks: takes the index's.
 */
#include "config.h"

#include "sched/index/idx.h"

#include "base/error.h"
#include "base/structs.h"
#include "handle/handle.h"

#include <string.h>

static kvcl_idx_source_t *store_of(kvcl_sched_index_h index, uint32_t source, kvcl_status_t *status)
{
    kvcl_idx_source_t *from = kvcl_idx_source(index, source);

    if (from == NULL) {
        *status = KVCL_ERR_NOT_FOUND;
    } else if (from->params.feed != KVCL_SCHED_FEED_STORE) {
        *status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "source \"%s\" is not a rank of a store", from->params.name);
        from    = NULL;
    }
    return from;
}

static uint32_t tier_mask(const kvcl_idx_source_t *source, uint32_t tier)
{
    return (tier <= KVCL_STORE_TIER_NVME) ? source->params.tiers & (1u << tier) : 0;
}

static void let_go(kvcl_sched_index_h index, kvcl_idx_source_t *source, const kvcl_key_t *key, uint32_t tiers)
{
    uint32_t id = kvcl_idx_find(index, key);

    if (id != KVCL_IDX_NO_BLOCK) {
        kvcl_idx_let_go(index, source, id, 0, tiers);
    }
}

static void apply(kvcl_sched_index_h index, kvcl_idx_source_t *source, const kvcl_store_event_t *event)
{
    uint32_t tiers = tier_mask(source, event->tier);

    if ((tiers == 0) && (event->kind != KVCL_STORE_SKIPPED)) {
        ++source->info.others;
        return;
    }
    switch (event->kind) {
    case KVCL_STORE_STORED:
        ++source->info.stored;
        (void)!kvcl_idx_hold(index, source, &event->key, KVCL_IDX_DEPTHS, 0, tiers);
        break;
    case KVCL_STORE_EVICTED:
    case KVCL_STORE_REMOVED:
    case KVCL_STORE_MOVED:
        ++source->info.removed;
        let_go(index, source, &event->key, tiers);
        break;
    case KVCL_STORE_DEMOTED:
    case KVCL_STORE_PROMOTED: /* between the pool and the disk; an engine's cache is another copy */
        (void)!kvcl_idx_hold(index, source, &event->key, KVCL_IDX_DEPTHS, 0, tiers);
        let_go(index, source, &event->key, ~tiers & ~(1u << KVCL_STORE_TIER_CACHE));
        break;
    case KVCL_STORE_SKIPPED:
        break;
    default:
        ++source->info.unknown;
        break;
    }
}

/* @return whether to apply the event. */
static bool number(kvcl_idx_source_t *source, const kvcl_store_event_t *event)
{
    bool skips = (source->params.flags & KVCL_SCHED_SOURCE_SKIPS) != 0;

    if (event->seq < source->next) {
        ++source->info.repeated;
        return false;
    }
    if ((event->seq > source->next) && !skips && (event->kind != KVCL_STORE_SKIPPED)) {
        ++source->info.gaps;
        source->info.lost += event->seq - source->next;
        source->lossy = true;
    }
    source->next = event->seq + 1;
    source->top  = source->next;
    return true;
}

kvcl_status_t kvcl_sched_index_store_events(kvcl_sched_index_h index, uint32_t source, const kvcl_store_event_t *events,
                                            size_t stride, size_t n, uint32_t *state_p)
{
    const char         *call  = "kvcl_sched_index_store_events";
    kvcl_status_t      status = kvcl_handle_check(index, KVCL_KIND_SCHED_INDEX, call);
    kvcl_idx_source_t  *from;
    kvcl_store_event_t event;
    size_t             i;

    if (status == KVCL_OK) {
        status = kvcl_stride_check(stride, KVCL_UP_TO(kvcl_store_event_t, to_rank), "kvcl_store_event_t", call);
    }
    if (status != KVCL_OK) {
        return status;
    }
    if ((events == NULL) && (n > 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: events is NULL", call);
    }
    (void)pthread_mutex_lock(&index->lock);
    from = store_of(index, source, &status);
    for (i = 0; (from != NULL) && (i < n); ++i) {
        memcpy(&event, (const char *)events + i * stride, sizeof(event));
        if (number(from, &event)) {
            apply(index, from, &event);
        }
    }
    if (from != NULL) {
        from->info.messages += (n > 0);
        if (state_p != NULL) {
            *state_p = kvcl_idx_state(from);
        }
    }
    (void)pthread_mutex_unlock(&index->lock);
    return status;
}

kvcl_status_t kvcl_sched_index_store_list(kvcl_sched_index_h index, uint32_t source, uint64_t flags,
                                          const kvcl_store_item_t *items, size_t stride, size_t n, uint64_t seq)
{
    const char        *call  = "kvcl_sched_index_store_list";
    kvcl_status_t     status = kvcl_handle_check(index, KVCL_KIND_SCHED_INDEX, call);
    kvcl_idx_source_t *from;
    kvcl_store_item_t item;
    uint32_t          tiers;
    size_t            i;

    if (status == KVCL_OK) {
        status = kvcl_stride_check(stride, KVCL_UP_TO(kvcl_store_item_t, slot), "kvcl_store_item_t", call);
    }
    if (status != KVCL_OK) {
        return status;
    }
    if (((items == NULL) && (n > 0)) || (flags > (KVCL_SCHED_LIST_BEGIN | KVCL_SCHED_LIST_END)) ||
        (seq == UINT64_MAX)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: items is NULL, flags 0x%llx or seq %llu are not possible", call,
                         (unsigned long long)flags, (unsigned long long)seq);
    }
    (void)pthread_mutex_lock(&index->lock);
    from = store_of(index, source, &status);
    if ((from != NULL) && ((flags & KVCL_SCHED_LIST_BEGIN) != 0)) {
        kvcl_idx_begin_anew(index, from);
        from->lossy       = true; /* until the last page */
        from->full_before = from->info.full;
    }
    for (i = 0; (from != NULL) && (i < n); ++i) {
        memcpy(&item, (const char *)items + i * stride, sizeof(item));
        tiers = tier_mask(from, item.tier);
        if (tiers != 0) {
            (void)!kvcl_idx_hold(index, from, &item.key, KVCL_IDX_DEPTHS, 0, tiers);
        } else {
            ++from->info.others;
        }
    }
    if ((from != NULL) && ((flags & KVCL_SCHED_LIST_END) != 0)) {
        from->next = from->top = seq + 1;
        from->lossy = (from->info.full != from->full_before);
    }
    (void)pthread_mutex_unlock(&index->lock);
    return status;
}
