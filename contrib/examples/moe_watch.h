/*
 * What the process that has started the ranks of moe.c sees of them, and prints.
 */
#ifndef KVCL_EXAMPLE_MOE_WATCH_H
#define KVCL_EXAMPLE_MOE_WATCH_H

#include "moe_model.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

typedef struct plan {
    unsigned   ranks, steps, seconds; /* 0: no limit */
    int        kill;                  /* -1: none */
    const char *join;                 /* addresses at which one process joins; NULL: it starts all ranks */
} plan_t;

/* What a rank shows to the process that has started it. */
typedef struct shown {
    _Atomic int      has_address;
    char             address[280]; /* where processes join through it; set before has_address */
    _Atomic uint64_t steps, tokens, wrong, view, alive, ranks;
    _Atomic uint64_t lost_ppm;    /* the weight that tokens lacked, in millionths of a token */
    _Atomic uint64_t next_ns;     /* the first dispatch and combine after the kill have ended */
    _Atomic uint64_t restored_ns; /* the new map is active */
    _Atomic uint64_t restored;    /* experts that came back */
} shown_t;

/* Of all processes. */
typedef struct shared {
    _Atomic int      stop; /* the ranks are to end */
    _Atomic uint64_t killed_ns;
    shown_t          ranks[RANKS_MAX];
} shared_t;

uint64_t now_ns(void);

/** A line a second, until all processes have ended. @return how many have ended badly: ranks that are killed are no
 * failure. */
int watch(const pid_t *pids, const plan_t *plan, shared_t *shared);

/** What the death of a rank has cost the slowest of the others, and what all have done. */
void print_end(const shared_t *shared, const plan_t *plan);

#endif
