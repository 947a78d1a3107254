/*
 * A rank of the nemesis (nemesis_rank.c), and how it begins: with the job, or as a process that joins it. One thread,
 * one that prints events, and, in a process that joins, one that opens the store.
 */
#ifndef KVCL_NEMESIS_RANK_H
#define KVCL_NEMESIS_RANK_H

#include "blocks.h"

#include <pthread.h>
#include <stdatomic.h>

/* Blocks of a life: few enough that no pool evicts any, also when few ranks are left. */
enum { PUTS_MAX = 4000, PUTS_EVERY = 4 };

enum { EXCLUDED = 3, ALONE = 4, REFUSED = 5, DECIDE_S = 90, ACTIVATE_S = 5, OPENS = 3 };
#define SECOND UINT64_C(1000000000)
#define POOL_BYTES (UINT64_C(256) << 20)

typedef struct rank {
    kvcl_context_h ctx;
    kvcl_comm_h    world, comm; /* comm: of those that are left */
    blocks_t       blocks;
    uint32_t       slot, life, acked;
    uint64_t       turns, steps, rnd;
    uint64_t       init_ns, open_ns; /* deadlines of the calls of a process that joins */
    bool           hold, held, quit;
    bool           grows, newcomer; /* processes may join; this is one */
    bool           again;    /* another call than the others': all agree again */
    bool           has_store;
    pthread_t      opener;   /* of a process that joins: it opens the store */
    int            n_opens;
    _Atomic bool   opened;   /* that has ended */
    kvcl_status_t  open_status;
    uint64_t       open_began_ns, replicas;
    pthread_t      events;  /* prints them */
    int            stop_fd; /* ends it */
    struct { uint32_t life, acked; } known[SLOTS]; /* what the others have put */
    char           line[256]; /* of the input, so far */
    size_t         len;
} rank_t;

/** Begins the job, or joins it: then rank->comm is NULL. Ends the process if it cannot. */
void rank_begin(rank_t *rank);

/** Whether the store is open here. A failed attempt is repeated, OPENS times; then the process ends. Prints once that
 * the rank is ready. */
bool rank_has_store(rank_t *rank);

/** All events that there are have been printed when it returns. */
void rank_stop_events(rank_t *rank);

void rank_print_tallies(const blocks_t *blocks);

/** It is no member any more, cannot know, or was refused. Does not return. */
void rank_end_as(rank_t *rank, int code);

/** Ends the process if this status says that the rank was excluded. */
void rank_end_if_out(rank_t *rank, kvcl_status_t status);

#endif
