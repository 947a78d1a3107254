/*
 * One rank of a replay: its cache, its store, and the work for a request. The worker owns both and its scratch arrays;
 * trace, plan, options and job are borrowed. One thread; with --kill a second one (watch.h).
 *
 * Without --store the cache is the store's own and its blocks are published in place. With --store the store has a
 * pool, and the cache is scratch memory: blocks are fetched into it, or computed in it and put.
 */
#ifndef KVCL_TOOLS_REPLAY_WORKER_H
#define KVCL_TOOLS_REPLAY_WORKER_H

#include "tools/job.h"
#include "tools/replay/options.h"
#include "tools/replay/plan.h"
#include "tools/replay/tally.h"
#include "tools/replay/trace.h"

#include <pthread.h>

typedef struct death death_t; /* death.h */

#define WORKER_POOL_MIN    4u   /* blocks */
#define WORKER_ENTRIES_MIN 4096u
#define WORKER_WINDOW_MAX  256u /* blocks that one call fetches or publishes */

/* A block that a request holds until it has been verified. */
typedef struct worker_held {
    uint32_t id;
    uint32_t key;    /* index in worker_t.keys */
    bool     pinned; /* held by this rank's store; otherwise fetched, to be freed */
} worker_held_t;

typedef struct worker {
    const job_t            *job;
    const replay_options_t *opt;
    const trace_t          *trace;
    const plan_t           *plan;
    kvcl_cache_h           cache;
    kvcl_store_h           store;
    uint8_t                *base;       /* of the cache's block 0 */
    uint32_t               window;      /* blocks at a time: at most half of the pool */
    uint64_t               timeout_ns;  /* of one operation */
    uint64_t               start_ns;
    size_t                 request;     /* current, for messages */
    size_t                 next_hot;    /* first broadcast of the plan not done yet */
    kvcl_key_t             root;
    kvcl_key_t             *keys;       /* of the current request: room for the longest */
    uint32_t               *tokens;     /* two for each id of the current request */
    kvcl_key_t             *part_keys;  /* window entries, as in the three below */
    uint32_t               *part_ids;
    kvcl_status_t          *part_status;
    worker_held_t          *held;
    size_t                 n_held;
    uint8_t                *copies;     /* of a put, window entries */
    pthread_mutex_t        get_lock;    /* with --store: held over a get and the reads of statistics around it */
    death_t                *death;      /* of --kill, or NULL */
    uint64_t               baton[2];    /* in order: the number of the request that may start; out and in */
    kvcl_req_h             baton_req;   /* the latest one sent, or NULL */
    tally_t                tally;
} worker_t;

/* The number of blocks of one rank's pool, and of entries of its part of the directory. With --store the pool is the
 * store's, and the worker has window blocks in addition. */
typedef struct worker_room {
    uint64_t blocks;
    uint64_t dir_entries;
    uint32_t window;
} worker_room_t;

/* Pure: false with a sentence in error if the pool cannot hold what the replay needs. */
bool worker_size_pool(const replay_options_t *opt, const trace_t *trace, const plan_t *plan, int size,
                      worker_room_t *room, char *error, size_t cap);

/* Of both: false with a sentence. */
bool worker_pool_fits(const replay_options_t *opt, uint64_t blocks, char *error, size_t cap);
bool worker_room_fits(const replay_options_t *opt, uint64_t blocks, char *error, size_t cap);

/* The same with --store (worker_store.c). */
bool worker_size_store(const replay_options_t *opt, const trace_t *trace, const plan_t *plan, int size,
                       worker_room_t *room, char *error, size_t cap);

/* The keys of a request's first n blocks. Equal ids after equal ids give equal keys, on any rank. */
kvcl_status_t worker_keys(const trace_t *trace, const trace_request_t *request, uint32_t n, const kvcl_key_t *root,
                          uint32_t *tokens, kvcl_key_t *keys);

/* All below: false after the error was printed; the run then ends for this rank. Collective. salt: of all keys. */
bool worker_open(worker_t *worker, const job_t *job, const replay_options_t *opt, const trace_t *trace,
                 const plan_t *plan, uint64_t salt);
bool worker_run(worker_t *worker);
/* The remaining ranks after a run: the job's, unless one was killed. */
const job_t *worker_left(const worker_t *worker);
void worker_close(worker_t *worker);

/* Of the parts, worker_*.c: */
bool worker_serve_request(worker_t *worker, size_t index);
bool worker_serve_from_store(worker_t *worker, size_t index);
/* Perform the broadcasts planned before this request. */
bool worker_broadcasts(worker_t *worker, size_t before);
/* In order: wait until request index may start; let the next one start. */
bool worker_take_turn(worker_t *worker, size_t index);
bool worker_pass_turn(worker_t *worker, size_t index);
/* Wait until the turn last passed has been taken. */
bool worker_passed_turn(worker_t *worker);
/* The number of leading keys that exist. */
bool worker_match(worker_t *worker, uint32_t n, size_t *hit_p);
/* With --kill: whether this failed because a rank is failing. The work continues without it. */
bool worker_bears(const worker_t *worker, kvcl_status_t status);
/* Compare a block's bytes with those derived from its key; counts and reports wrong ones. */
void worker_verify(worker_t *worker, const kvcl_key_t *key, uint32_t id);
/* Verify and release the blocks that the request holds. */
bool worker_release(worker_t *worker);
/* Wait for a posted operation; never returns KVCL_INPROGRESS. */
kvcl_status_t worker_finish(worker_t *worker, kvcl_status_t posted, kvcl_req_h req);

#endif
