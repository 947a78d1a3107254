/*
 * The events of a simulation: a binary heap by time; events of one time leave in the order in which they were added, so
 * a run is the same on each machine. Owned by its user; grows.
 */
#ifndef KVCL_TOOLS_SIM_EVENTS_H
#define KVCL_TOOLS_SIM_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sim_event {
    double   at;    /* seconds */
    uint64_t order; /* of adding */
    uint32_t kind;  /* its user's */
    uint32_t a;
    uint32_t b;
} sim_event_t;

typedef struct sim_events {
    sim_event_t *heap;
    size_t      n;
    size_t      cap;
    uint64_t    added;
} sim_events_t;

void sim_events_init(sim_events_t *events);
void sim_events_free(sim_events_t *events);

/* False: out of memory; nothing was added. */
bool sim_events_add(sim_events_t *events, double at, uint32_t kind, uint32_t a, uint32_t b);

/* The time of the next event; infinite if there is none. */
double sim_events_next(const sim_events_t *events);

/* Take the next event. False: there is none. */
bool sim_events_take(sim_events_t *events, sim_event_t *event);

#endif
