/*
 * Ranks are stopped while the copies of a put are fetched. It must not succeed with the one copy of its own rank.
 *   put_stopped    3 ranks; prints "ok CASE ..." or "WRONG CASE ...", exit 1 if it is wrong
 *
 * self     the rank that puts, until it is excluded: all its peers have failed when it goes on. The put fails
 * others   the two others, until it suspects both, but no view excludes them. The put waits, and makes all copies
 */
#include "start_ranks.h"

#include <kvcl/kvcl.h>

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

enum { RANKS = 3, BLOCKS = 64, BLOCK = 4 << 20, LONG_MS = 60000, TRIES = 5 };
enum { HEDGE_MS = 100, SILENT_MS = 12 * HEDGE_MS }; /* its store suspects a rank after five hedges */

typedef struct shared {
    _Atomic pid_t pids[RANKS];
    _Atomic bool  excluded;    /* rank 1 has a view without rank 0 */
    _Atomic bool  suspected;   /* rank 0 has suspected both others */
    _Atomic bool  open;        /* the put had not ended when its rank was stopped */
    _Atomic int   status, few; /* of the put; how many blocks it says it has made in one copy */
} shared_t;

static shared_t *s;

/* Until this rank suspects both. KVCL_SUSPECT is more than twice what its store waits for a silent rank. */
static void stop_others(kvcl_context_h ctx)
{
    kvcl_event_t event            = KVCL_EVENT_INIT;
    bool         suspected[RANKS] = {false};
    int          i;

    kill(s->pids[1], SIGSTOP);
    kill(s->pids[2], SIGSTOP);
    while (!suspected[1] || !suspected[2]) { /* the alarm of each process bounds it */
        if (kvcl_event_next(ctx, &event) != KVCL_OK) {
            usleep(1000);
            continue;
        }
        for (i = 1; i < RANKS; ++i) {
            suspected[i] = (kvcl_event_has(&event, i) && (event.type == KVCL_EVENT_SUSPECT)) ||
                           (suspected[i] && !(kvcl_event_has(&event, i) && (event.type == KVCL_EVENT_ALIVE_AGAIN)));
        }
    }
    s->suspected = true;
    kill(s->pids[1], SIGCONT);
    kill(s->pids[2], SIGCONT);
}

static void put_and_stop(kvcl_context_h ctx, kvcl_store_h store, kvcl_cache_h cache, bool others)
{
    static kvcl_key_t          keys[BLOCKS];
    static uint32_t            ids[BLOCKS];
    static uint8_t             copies[BLOCKS];
    static kvcl_store_places_t places[BLOCKS];
    kvcl_xfer_params_t         params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h                 req;
    int                        listed, i;

    for (i = 0; i < BLOCKS; ++i) {
        kvcl_key_from_string((const char *)&i, sizeof(i), &keys[i]);
        ids[i] = (uint32_t)i;
    }
    params.copies     = copies;
    params.timeout_ns = 120ull * 1000000000; /* sanitizers are slow */
    KVCL_TRY(kvcl_store_put(store, keys, BLOCKS, cache, ids, &params, &req));
    do {
        KVCL_TRY(kvcl_store_where(store, keys, BLOCKS, places, sizeof(places[0]), NULL));
        for (listed = i = 0; i < BLOCKS; ++i) {
            listed += (places[i].n != 0) ? 1 : 0;
        }
    } while (listed < BLOCKS);
    s->open = (kvcl_req_test(req) == KVCL_INPROGRESS);
    if (others) {
        stop_others(ctx);
    } else {
        raise(SIGSTOP);
    }
    s->status = kvcl_req_wait(req, KVCL_WAIT_FOREVER);
    for (i = 0; i < BLOCKS; ++i) {
        s->few += (copies[i] < 2) ? 1 : 0;
    }
}

static int live(const void *arg, int rank)
{
    kvcl_layout_t       layout = KVCL_LAYOUT_BYTES(BLOCKS, BLOCK);
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_context_h      ctx;
    kvcl_comm_h         world;
    kvcl_cache_h        cache;
    kvcl_store_h        store;

    s->pids[rank]      = getpid();
    params.dram_bytes  = 2ull * BLOCKS * BLOCK;
    params.block_bytes = BLOCK;
    params.replicas    = 2;
    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &world));
    KVCL_TRY(kvcl_cache_create(ctx, "c", &layout, NULL, &cache));
    KVCL_TRY(kvcl_store_open(world, &params, &store));
    if (rank == 0) {
        put_and_stop(ctx, store, cache, *(const bool *)arg);
    }
    while (s->status == KVCL_INPROGRESS) {
        s->excluded = s->excluded || ((rank == 1) && (kvcl_comm_view(world) > 1));
        usleep(1000);
    }
    return 0;
}

static bool run(bool others)
{
    pid_t pids[RANKS];
    int   i, status;
    bool  right;

    memset(s, 0, sizeof(*s));
    s->status = KVCL_INPROGRESS;
    start_ranks(RANKS, live, &others, pids);
    right = others || ((waitpid(pids[0], &status, WUNTRACED) == pids[0]) && WIFSTOPPED(status));
    for (i = 0; (i < LONG_MS) && right && !others && !s->excluded; ++i) {
        usleep(1000);
    }
    kill(pids[0], SIGCONT);
    for (i = 0; i < RANKS; ++i) {
        right = rank_ends_well(pids[i]) && right;
    }
    right = right && (s->excluded != others) && (s->suspected == others) &&
            (((s->status == KVCL_OK) && (s->few == 0)) || (!others && (s->status == KVCL_ERR_STALE)));
    printf("%s %s: the put was %s; it ends with %s, %d of %d blocks in one copy\n", right ? "ok" : "WRONG",
           others ? "others" : "self", s->open ? "under way" : "over", kvcl_status_name((kvcl_status_t)s->status),
           s->few, BLOCKS);
    return right;
}

int main(void)
{
    char text[16];
    bool right = true;
    int  n, i;

    s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    snprintf(text, sizeof(text), "%dms", HEDGE_MS);
    setenv("KVCL_STORE_HEDGE", text, 1);
    snprintf(text, sizeof(text), "%dms", SILENT_MS);
    setenv("KVCL_SUSPECT", text, 1);
    setenv("KVCL_PATH", "tcp", 1); /* the bytes are sent by the rank that puts */
    for (n = 0; n < 2; ++n) {
        set_views((n == 0) ? STOPPED_MS : PATIENT_MS);
        s->open = false;
        for (i = 0; (i < TRIES) && right && !s->open; ++i) {
            right = run(n == 1);
        }
        if (!s->open) {
            printf("WRONG: the put was over each time\n");
            right = false;
        }
    }
    return right ? 0 : 1;
}
