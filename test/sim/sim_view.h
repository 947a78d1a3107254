/*
 * The world in which ranks decide their views, in one thread: sim_view.c and sim_view_each.c let things happen in it.
 *
 * Real: the machine of src/view, as it ships. Modelled: the network (messages are lost, delayed, overtaken and doubled;
 * links are cut, one way too), processes (killed, stopped, continued, started again in their slot or another one), the
 * kernel's word that one has ended, and clocks (each with its own start and rate). With a quarter of the seeds all tick
 * at the same times and beat when their clocks pass multiples of the time of a beat, as ranks of one host do.
 *
 * Invariants, after each event:
 *   OneView      two living members with the same number have the same view
 *   NextView     a member's next view has the next number, unless it had no lease
 *   OneOwner     no shard has two owners at one time
 *   NoLeaseLeft  whoever adopts a view: no living process that it excludes has a lease
 *   FailedFirst  a member that leaves a view without having asked was reported as failed before, and only once
 *   Kept         (stories) a rank to which nothing has happened stays a member
 *   Decided      (stories) a view follows before the world heals
 *   Together     healed for five seconds: if a quorum of the latest view lives, its members share it and nobody is
 *                missing; whoever wants to join has joined; an excluded rank that nobody has told counts no quorum
 */
#ifndef KVCL_TEST_SIM_VIEW_H
#define KVCL_TEST_SIM_VIEW_H

#include "base/rand.h"
#include "sim_queue.h"
#include "view/views.h"

#define MS UINT64_C(1000000)

enum { IS_CUT = 1, IS_HELD /* what is sent arrives once it is released */ };
enum { SLOTS = 64, PROCS = 96, SHARDS = 16, TICK_MS = 20, REST_MS = 50 };
enum { FEW_SLOTS = 6, FEW_PROCS = 10 }; /* of a world of so many ranks at most */

typedef struct proc {
    kvcl_views_t   views;
    bool           used, dead, paused;
    uint32_t       slot;
    unsigned       asks;
    uint64_t       incarnation, offset, rate; /* per mille */
    uint64_t       tick_at, resume_at, joins_at;
    kvcl_rankset_t failed;                    /* reported */
    kvcl_rankset_t members;                   /* of its view, when it was told of that */
    bool           proven[PROCS];             /* this process knows that the other one has ended */
    uint64_t       homes_id;                  /* a view */
    uint32_t       homes;                     /* the shards whose home this slot is in that view */
    uint32_t       owned;                     /* the shards that it owned at its last event: never less than now */
} proc_t;

/* Called before a message is sent to one process. False: it is lost. */
typedef bool (*sim_hook_t)(proc_t *from, proc_t *to, const kvcl_view_msg_t *msg);

/* For programs in which processes do more than decide their views. Both may be NULL. */
typedef struct sim_more {
    void (*event)(proc_t *p, kvcl_views_event_t event, const kvcl_rankset_t *ranks); /* inside the machine */
    void (*after)(proc_t *p); /* it has returned */
} sim_more_t;

typedef struct world {
    kvcl_rand_t        rnd;
    kvcl_views_times_t times;
    uint64_t           seed, now;
    uint64_t           loss, delay; /* per mille, ms */
    uint64_t           adopted;     /* views, of all */
    uint64_t           incarnations;
    unsigned           n_procs;
    unsigned           n_slots, most_procs; /* SLOTS and PROCS at most */
    unsigned           drift;       /* of clocks, per mille */
    bool               in_step;     /* processes tick together, and beat as ranks of one host do */
    bool               rests;       /* a process ticks less often while its view does not change */
    bool               failed, healed;
    kvcl_rankset_t     asked; /* slots whose rank was asked to leave, once */
    uint8_t            cut[PROCS][PROCS]; /* IS_CUT, IS_HELD */
    sim_hook_t         hook;
    sim_more_t         more;
    proc_t             procs[PROCS];
} world_t;

extern world_t sim;

unsigned sim_below(uint64_t n);
/** How long a message takes, drawn anew. */
uint64_t sim_travel(void);
/** The process's own clock, in ns. */
uint64_t sim_clock(const proc_t *p);

/** A job of n ranks, whose links do not fail yet. drift: of clocks, per mille at most. */
void sim_begin(uint64_t seed, unsigned n, unsigned drift, const kvcl_views_times_t *times);
/** The next event, at most until that time. It is the world's only clock: sim.now. */
void sim_step(uint64_t until_ns);
/** What is held arrives. */
void sim_release(void);
/** All that is cut, held or stopped goes on. */
void sim_heal(void);
void sim_check_together(void);

bool sim_lives(const proc_t *p);
bool sim_is_member(const proc_t *p);
/** A process that wants to join in this slot; nothing if there are too many. */
void sim_join(uint32_t slot);
/** KVCL_SLOT_NONE: none is free. */
uint32_t sim_free_slot(void);
/** The kernel says so, some time later. */
void sim_prove(unsigned to, unsigned dead, uint64_t after_ms);
void sim_pause(proc_t *p, uint64_t ms);
void sim_leave(proc_t *p, uint32_t slot);
void sim_warm(proc_t *p, bool warm);
/** What is said of a failure. */
void sim_broken(const char *invariant, const proc_t *p, const char *what);

/** sim_view_stories.c: a run in which certain things happen in a certain order. */
void sim_story(uint64_t seed);

#endif
