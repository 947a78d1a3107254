/*
 * The ring of events (events.h). Owns its array. Invariant: event number s lies at s & (room - 1) while
 * newest - s < room. Lock: the caller's.
 */
#include "config.h"
#include "policy/events.h"

#include <stdlib.h>
#include <string.h>

kvcl_status_t kvcl_events_init(kvcl_events_t *events, uint64_t n)
{
    uint64_t room = 1;

    while (room < n) {
        room *= 2;
    }
    memset(events, 0, sizeof(*events));
    events->ring = calloc(room, sizeof(*events->ring)); /* pages that are never written cost nothing */
    events->room = room;
    return (events->ring != NULL) ? KVCL_OK : KVCL_ERR_NO_MEMORY;
}

void kvcl_events_fini(kvcl_events_t *events)
{
    free(events->ring);
    memset(events, 0, sizeof(*events));
}

void kvcl_events_add(kvcl_events_t *events, const kvcl_store_event_t *event)
{
    kvcl_store_event_t *at;

    ++events->newest;
    if (events->ring != NULL) {
        at      = &events->ring[events->newest & (events->room - 1)];
        *at     = *event;
        at->seq = events->newest;
    }
}

kvcl_status_t kvcl_events_read(const kvcl_events_t *events, uint64_t since, kvcl_store_event_t *out, size_t cap,
                               size_t *n_p)
{
    uint64_t left, i;

    *n_p = 0;
    if (events->ring == NULL) {
        return KVCL_ERR_UNSUPPORTED;
    }
    if ((since > events->newest) || (events->newest - since > events->room)) {
        return KVCL_ERR_STALE;
    }
    left = events->newest - since;
    left = (left < cap) ? left : cap;
    for (i = 0; i < left; ++i) {
        out[i] = events->ring[(since + 1 + i) & (events->room - 1)];
    }
    *n_p = (size_t)left;
    return KVCL_OK;
}
