/*
 * Owns the heap's array. Invariant: no element is before its parent, by (at, order).
 */
#include "config.h"
#include "tools/sim/events.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_EVENTS 256u

static bool is_before(const sim_event_t *a, const sim_event_t *b)
{
    return (a->at < b->at) || ((a->at == b->at) && (a->order < b->order));
}

void sim_events_init(sim_events_t *events)
{
    memset(events, 0, sizeof(*events));
}

void sim_events_free(sim_events_t *events)
{
    free(events->heap);
    sim_events_init(events);
}

bool sim_events_add(sim_events_t *events, double at, uint32_t kind, uint32_t a, uint32_t b)
{
    const sim_event_t added = {at, events->added, kind, a, b};
    sim_event_t       *heap;
    size_t            i, parent;

    if (events->n == events->cap) {
        i    = (events->cap != 0) ? events->cap * 2 : FIRST_EVENTS;
        heap = realloc(events->heap, i * sizeof(*heap));
        if (heap == NULL) {
            return false;
        }
        events->heap = heap;
        events->cap  = i;
    }
    ++events->added;
    for (i = events->n++; i > 0; i = parent) {
        parent = (i - 1) / 2;
        if (!is_before(&added, &events->heap[parent])) {
            break;
        }
        events->heap[i] = events->heap[parent];
    }
    events->heap[i] = added;
    return true;
}

double sim_events_next(const sim_events_t *events)
{
    return (events->n != 0) ? events->heap[0].at : INFINITY;
}

bool sim_events_take(sim_events_t *events, sim_event_t *event)
{
    sim_event_t *heap = events->heap, last;
    size_t      i, child;

    if (events->n == 0) {
        return false;
    }
    *event = heap[0];
    last   = heap[--events->n];
    for (i = 0; (child = (2 * i) + 1) < events->n; i = child) {
        if ((child + 1 < events->n) && is_before(&heap[child + 1], &heap[child])) {
            ++child;
        }
        if (!is_before(&heap[child], &last)) {
            break;
        }
        heap[i] = heap[child];
    }
    heap[i] = last;
    return true;
}
