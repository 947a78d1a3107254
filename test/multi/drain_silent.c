/*
 * A rank drains its part of a store while another rank, a home of some of its blocks, is stopped.
 *   drain_silent   3 ranks; prints "ok CASE" or "WRONG CASE", exit 1 if one is wrong
 *
 * goes_on   the rank goes on once the drain has failed to move blocks: it succeeds, and other ranks have all blocks
 * stays     the rank stays stopped: the drain fails at its deadline, and names it
 */
#include "start_ranks.h"

#include "base/clock.h"

#include <kvcl/kvcl.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

enum { RANKS = 3, VICTIM = 2, KEYS = 200, BLOCK = 4096, OPS_MANY = 150 };
#define SHORT_NS (4 * KVCL_NS_PER_SEC)
#define LONG_NS  (90 * KVCL_NS_PER_SEC) /* less than ranks live */
#define LOOK_NS  (60 * KVCL_NS_PER_SEC)

typedef struct shared {
    _Atomic pid_t    victim;
    _Atomic unsigned ready;
    _Atomic bool     stopped, over;
} shared_t;

typedef struct drain {
    kvcl_context_h ctx;
    kvcl_store_h   store;
    uint64_t       timeout_ns, moved;
    kvcl_status_t  status;
    char           sentence[512];
    _Atomic bool   ended;
} drain_t;

static shared_t *s;

static kvcl_key_t key_of(unsigned i)
{
    kvcl_key_t key;

    kvcl_key_from_string((const char *)&i, sizeof(i), &key);
    return key;
}

static void put_all(kvcl_store_h store, kvcl_cache_h cache)
{
    static kvcl_key_t keys[KEYS];
    static uint32_t   ids[KEYS];
    kvcl_req_h        req;
    unsigned          i;

    for (i = 0; i < KEYS; ++i) {
        keys[i] = key_of(i);
        ids[i]  = i;
    }
    KVCL_TRY(kvcl_store_put(store, keys, KEYS, cache, ids, NULL, &req));
    KVCL_TRY(kvcl_req_wait(req, KVCL_WAIT_FOREVER));
}

static void *drain_it(void *arg)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    drain_t            *d     = arg;

    params.timeout_ns = d->timeout_ns;
    d->status         = kvcl_store_drain(d->store, &d->moved, &params);
    snprintf(d->sentence, sizeof(d->sentence), "%s", (d->status == KVCL_OK) ? "" : kvcl_last_error());
    d->ended = true;
    return NULL;
}

static uint64_t operations(kvcl_context_h ctx)
{
    kvcl_context_stats_t stats = KVCL_CONTEXT_STATS_INIT;

    KVCL_TRY(kvcl_context_stats(ctx, &stats));
    return stats.ops;
}

/* How many blocks are at other ranks. While this rank still takes the home for silent, it finds none of its keys: then
 * it looks again. Blocks that are lost are found at no time. */
static unsigned at_others(kvcl_store_h store)
{
    static kvcl_store_places_t places[KEYS];
    const uint64_t             until_ns = kvcl_deadline_after(LOOK_NS);
    kvcl_key_t                 keys[KEYS];
    unsigned                   found = 0, first = KEYS, i, j;

    for (i = 0; i < KEYS; ++i) {
        keys[i] = key_of(i);
    }
    while ((found < KEYS) && !kvcl_deadline_passed(until_ns)) {
        KVCL_TRY(kvcl_store_where(store, keys, KEYS, places, sizeof(places[0]), NULL));
        for (i = 0, found = 0; i < KEYS; ++i) {
            for (j = 0; (j < places[i].n) && (places[i].at[j].rank == 0); ++j) {
            }
            found += (j < places[i].n) ? 1 : 0;
        }
        if ((found < KEYS) && (first == KEYS)) {
            first = found;
            printf("at first %u blocks are found\n", found);
        }
        usleep(1000);
    }
    return found;
}

/* The rank that receives the blocks lists none while a home of some is silent. The rank waits until a drain that
 * made one try would have ended: some 50 operations are counted in that time, also those of timers. */
static bool goes_on(drain_t *d)
{
    const uint64_t before = operations(d->ctx);
    unsigned       found;
    pthread_t      thread;
    bool           right;

    d->timeout_ns = LONG_NS;
    pthread_create(&thread, NULL, drain_it, d);
    while (!d->ended && (operations(d->ctx) <= before + OPS_MANY)) {
        usleep(1000);
    }
    kill(s->victim, SIGCONT);
    pthread_join(thread, NULL);
    found = at_others(d->store);
    right = (d->status == KVCL_OK) && (found == KEYS);
    printf("%s goes_on: %s, %llu blocks have moved, %u of %d are at other ranks%s%s\n", right ? "ok" : "WRONG",
           kvcl_status_name(d->status), (unsigned long long)d->moved, found, KEYS, (d->sentence[0] != 0) ? ": " : "",
           d->sentence);
    fflush(stdout);
    return right;
}

static bool stays(drain_t *d)
{
    uint64_t ns = kvcl_now_ns();
    bool     right;

    d->timeout_ns = SHORT_NS;
    (void)drain_it(d);
    ns    = kvcl_now_ns() - ns;
    right = (d->status == KVCL_ERR_TIMED_OUT) && (ns >= SHORT_NS) &&
            (strstr(d->sentence, "rank 2 does not answer") != NULL);
    printf("%s stays: %s after %.1f s: %s\n", right ? "ok" : "WRONG", kvcl_status_name(d->status), (double)ns / 1e9,
           d->sentence);
    fflush(stdout);
    kill(s->victim, SIGCONT);
    return right;
}

static int live(const void *arg, int rank)
{
    bool (*const what)(drain_t *) = *(bool (*const *)(drain_t *))arg;
    kvcl_layout_t       layout    = KVCL_LAYOUT_BYTES(KEYS, BLOCK);
    kvcl_store_params_t params    = KVCL_STORE_PARAMS_INIT;
    drain_t             d         = {.moved = 0};
    bool                right     = true;
    kvcl_comm_h         world;
    kvcl_cache_h        cache;

    params.dir_entries = 16384;
    params.dram_bytes  = 2ull * KEYS * BLOCK;
    params.block_bytes = BLOCK;
    params.replicas    = 1;
    KVCL_TRY(kvcl_init(NULL, &d.ctx));
    KVCL_TRY(kvcl_comm_world(d.ctx, &world));
    KVCL_TRY(kvcl_cache_create(d.ctx, "c", &layout, NULL, &cache));
    KVCL_TRY(kvcl_store_open(world, &params, &d.store));
    if (rank == 0) {
        put_all(d.store, cache);
    } else if (rank == VICTIM) {
        s->victim = getpid();
    }
    ++s->ready;
    while ((rank == 0) && !s->stopped) {
        usleep(1000);
    }
    if (rank == 0) {
        right   = what(&d);
        s->over = true;
    }
    while (!s->over) {
        usleep(1000);
    }
    kvcl_store_close(d.store);
    kvcl_cache_destroy(cache);
    kvcl_finalize(d.ctx);
    return right ? 0 : 1;
}

/* Some threads of a process may run on for a while after the signal. */
static void stop_victim(const pid_t *pids)
{
    int status;

    while (s->ready < RANKS) { /* if a rank has failed, the alarm ends the wait */
        usleep(1000);
    }
    kill(pids[VICTIM], SIGSTOP);
    (void)waitpid(pids[VICTIM], &status, WUNTRACED);
    s->stopped = true;
}

int main(void)
{
    bool (*const cases[])(drain_t *) = {goes_on, stays};
    bool     right = true;
    pid_t    pids[RANKS];
    unsigned i;
    int      rank;

    alarm(2 * RANK_LIVES_S);
    s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        s->ready   = 0;
        s->stopped = s->over = false;
        start_ranks(RANKS, live, &cases[i], pids);
        stop_victim(pids);
        for (rank = 0; rank < RANKS; ++rank) {
            right = rank_ends_well(pids[rank]) && right;
        }
    }
    return right ? 0 : 1;
}
