/*
 * Processes of a job that may be killed and may join: they are forked by the test, and do what it tells them to by
 * memory that all share.
 *
 * A test defines nothing of its own in them: it starts them (start), gives them tasks (all_do, one_does), and looks at
 * what they were told. A step that fails sets the sentence that finish() prints, and returns false.
 */
#ifndef KVCL_TEST_PROCS_H
#define KVCL_TEST_PROCS_H

#include <kvcl/kvcl.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

enum { SLOTS = 8, PROCS = 512, EVENTS = 256, LONG_S = 60, NO_RANK = -1 };

/* HOLE: see hole.h. GREET: send what nobody waits for, with the tag of TALK, and a notification. DEVICE: sums by
 * src/devcoll, of host memory. */
typedef enum { NOTHING, BARRIER, TALK, GREET, AGREE, DEVICE, SIZES, ACTIVATE, SYNC, WAITS, HOLE, END } what_t;

/* What a process does and is told. */
typedef struct proc {
    _Atomic int   ready;  /* its kvcl_init() has returned */
    _Atomic int   status; /* what that returned */
    _Atomic int   rank;
    char          sentence[256];
    char          address[64]; /* to join at */
    _Atomic int   n;
    kvcl_event_t  events[EVENTS];
    _Atomic int   asked, done; /* the number of the last task */
    what_t        what;
    uint64_t      among;  /* bits: ranks of the task */
    uint64_t      dropped; /* ACTIVATE, SYNC: bits, of the result; WAITS: ranks whose processes wait */
    _Atomic int   result; /* a status */
    long          sizes[3]; /* SIZES: KiB resident, descriptors, threads */
} proc_t;

typedef struct shared {
    proc_t procs[PROCS];
} shared_t;

extern shared_t *shared;
extern int      size, n_procs; /* ranks at the start; processes so far */
extern pid_t    pids[PROCS];
extern int      in_slot[SLOTS]; /* the process of each slot; -1: none */

/** Before anything else. */
bool     open_shared(int ranks);
bool     fail(const char *what, int of);
bool     wait_for(_Atomic int *flag, int value);

/** The first ranks of a job of so many slots; waits until each is told of them all. */
bool     start(int slots);
/** The processes end; killed, if what was done was not right. @return whether all was right. */
bool     end_all(bool right);
/** The same; prints whether all was right, and @a times, or why not. */
bool     finish(const char *name, bool right, const char *times);
void     kill_rank(int rank);

/** @return the number of a process that joins through these addresses, as this rank. */
int      join_at(const char *addresses, int rank);
/** It has joined: it has its slot. */
bool     has_joined(int proc);

/** The ranks that are there. */
uint64_t bits_of(void);
/** The last view of this process, or of all, has exactly these ranks. */
bool     sees(int proc, uint64_t among);
bool     all_see(uint64_t among);
/** How many events of this type the process was told that have this rank. */
int      times_told(int proc, int type, int rank);

/** All ranks that are there do this, and it succeeds. */
bool     all_do(what_t what);
bool     all_work(void);
/** This process does this with these ranks. @return its status; KVCL_ERR_TIMED_OUT: it does not end. */
int      one_does(int proc, what_t what, uint64_t among);

#endif
