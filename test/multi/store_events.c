/*
 * Following a store: a set of keys maintained from a snapshot and events equals the set of keys that a rank holds,
 * whatever happens meanwhile. A follower that is too late gets an error. A waiting follower is woken, also by a close.
 */
#include "store/store.h"
#include "store_test.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>

enum { UNIVERSE = 48, POOL = 16, RING = 64, STEPS = 300, LATE = 100 };

/* One follower's state of a rank. */
typedef struct follower {
    int        rank;
    uint64_t   seq;
    unsigned   snapshots, events, evicted;
    bool       has[UNIVERSE];
    kvcl_key_t keys[UNIVERSE];
} follower_t;

static unsigned index_of(const follower_t *f, const kvcl_key_t *key)
{
    unsigned i;

    for (i = 0; (i < UNIVERSE) && !kvcl_key_equal(&f->keys[i], key); ++i) {
    }
    return i;
}

/* List all blocks of a rank, in pages of a few. Fill has[], and return the number of the first page's newest event. */
static uint64_t list(world_t *w, kvcl_store_h store, const follower_t *f, bool *has)
{
    kvcl_store_item_t items[5];
    uint64_t          cursor = 0, seq, first = 0;
    bool              begun = false;
    size_t            n, i;
    unsigned          at;

    memset(has, 0, UNIVERSE * sizeof(*has));
    do {
        KVCL_TRY(kvcl_store_list(store, f->rank, &cursor, items, sizeof(*items), 5, &n, &seq, NULL));
        first = begun ? first : seq;
        begun = true;
        for (i = 0; i < n; ++i) {
            at = index_of(f, &items[i].key);
            CHECK(w, (at < UNIVERSE) && (items[i].bytes == BLOCK) && (items[i].tier == KVCL_STORE_TIER_DRAM),
                  "item %zu: key %u, %u bytes, tier %u", i, at, items[i].bytes, items[i].tier);
            has[(at < UNIVERSE) ? at : 0] = true;
        }
    } while (cursor != 0);
    return first;
}

static void apply(world_t *w, follower_t *f, const kvcl_store_event_t *event)
{
    unsigned at = index_of(f, &event->key);

    CHECK(w, event->seq == f->seq + 1, "event %llu after %llu", (unsigned long long)event->seq,
          (unsigned long long)f->seq);
    CHECK(w, (at < UNIVERSE) && (event->bytes == BLOCK) && (event->to_rank == -1), "event of key %u", at);
    f->seq = event->seq;
    ++f->events;
    f->evicted += (event->kind == KVCL_STORE_EVICTED) ? 1 : 0;
    if (at < UNIVERSE) {
        f->has[at] = (event->kind == KVCL_STORE_STORED);
    }
}

/* Read all available events, or take a snapshot if some are lost. */
static void catch_up(world_t *w, kvcl_store_h store, follower_t *f)
{
    kvcl_store_event_t events[7];
    kvcl_status_t      status;
    size_t             n = 0, i;

    do {
        status = kvcl_store_events(store, f->rank, f->seq, 0, events, sizeof(*events), 7, &n, NULL);
        if (status == KVCL_ERR_STALE) {
            f->seq = list(w, store, f, f->has);
            ++f->snapshots;
            n = 1;
            continue;
        }
        CHECK(w, status == KVCL_OK, "events: %s", kvcl_status_text(status));
        for (i = 0; (status == KVCL_OK) && (i < n); ++i) {
            apply(w, f, &events[i]);
        }
    } while ((status == KVCL_ERR_STALE) || ((status == KVCL_OK) && (n != 0)));
}

/* Make one change of this rank's blocks. */
static void change(world_t *w, kvcl_store_h store, kvcl_cache_h cache, kvcl_rand_t *rnd, const kvcl_key_t *keys)
{
    uint32_t   ids[4] = {0, 1, 2, 3}, at, n, i;
    kvcl_req_h req;

    n  = 1 + (uint32_t)(kvcl_rand_next(rnd) % 4);
    at = (uint32_t)(kvcl_rand_next(rnd) % (UNIVERSE - 4));
    if (kvcl_rand_next(rnd) % 5 == 0) {
        CHECK(w, DO(kvcl_store_remove(store, keys + at, n, NULL, &req)) == KVCL_OK, "remove");
        return;
    }
    for (i = 0; i < n; ++i) {
        fill(cache, i, &keys[at + i]);
    }
    CHECK(w, DO(kvcl_store_put(store, keys + at, n, cache, ids, NULL, &req)) == KVCL_OK, "put");
}

static void waiting(world_t *w, kvcl_store_h store, kvcl_cache_h cache, follower_t *f)
{
    kvcl_key_t         late = key_of("late", (uint64_t)w->rank, 0), theirs = key_of("late", (uint64_t)f->rank, 0);
    kvcl_store_event_t event;
    uint32_t           id = 0;
    size_t             n = 9;
    kvcl_req_h         req;

    CHECK(w, (kvcl_store_events(store, f->rank, f->seq, 20000000, &event, sizeof(event), 1, &n, NULL) == KVCL_OK) &&
          (n == 0),
          "nothing happens, and %zu came", n);
    sync_all(w);
    if (w->rank % 2 == 0) { /* even ranks put, the others wait; on a single rank none waits */
        nap(50000000);
        fill(cache, 0, &late);
        CHECK(w, DO(kvcl_store_put(store, &late, 1, cache, &id, NULL, &req)) == KVCL_OK, "put");
    }
    if (f->rank % 2 == 0) {
        do { /* an eviction for room may precede it */
            CHECK(w, (kvcl_store_events(store, f->rank, f->seq, 20000000000u, &event, sizeof(event), 1, &n,
                                        NULL) == KVCL_OK) && (n == 1),
                  "waited for rank %d", f->rank);
            f->seq = event.seq;
        } while ((n == 1) && (event.kind == KVCL_STORE_EVICTED));
        CHECK(w, (event.kind == KVCL_STORE_STORED) && kvcl_key_equal(&event.key, &theirs), "another event");
    }
}

static void errors(world_t *w, kvcl_store_h store, follower_t *f)
{
    kvcl_store_event_t event;
    kvcl_store_item_t  item;
    uint64_t           cursor = 5;
    size_t             n;

    CHECK(w, kvcl_store_events(store, f->rank, 1ull << 40, 0, &event, sizeof(event), 1, &n, NULL) == KVCL_ERR_STALE,
          "of the future");
    CHECK(w, kvcl_store_events(store, f->rank, 0, 0, &event, sizeof(event), 1, &n, NULL) == KVCL_ERR_STALE,
          "of long ago");
    CHECK(w, kvcl_store_events(store, w->size, 0, 0, &event, sizeof(event), 1, &n, NULL) == KVCL_ERR_UNKNOWN_RANK,
          "rank %d", w->size);
    CHECK(w, kvcl_store_events(store, 0, 0, 0, &event, sizeof(event), 0, &n, NULL) == KVCL_ERR_INVALID_PARAM,
          "no room");
    CHECK(w, kvcl_store_list(store, -1, &cursor, &item, sizeof(item), 1, &n, NULL, NULL) == KVCL_ERR_UNKNOWN_RANK,
          "rank -1");
    CHECK(w, kvcl_store_list(store, f->rank, &cursor, &item, sizeof(item), 1, &n, NULL, NULL) == KVCL_ERR_INVALID_PARAM,
          "cursor 5");
}

void test_events(world_t *w)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_cache_h        cache  = make_cache(w, "events", 4, false);
    static follower_t   f;
    kvcl_key_t          mine[UNIVERSE];
    bool                has[UNIVERSE];
    kvcl_rand_t         rnd;
    kvcl_store_h        store;
    unsigned            i;

    params.dir_entries = 4096;
    params.dram_bytes  = POOL * BLOCK;
    params.block_bytes = BLOCK;
    params.events      = RING;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    memset(&f, 0, sizeof(f));
    f.rank = (w->rank + 1) % w->size;
    for (i = 0; i < UNIVERSE; ++i) {
        mine[i]   = key_of("events", (uint64_t)w->rank, i);
        f.keys[i] = key_of("events", (uint64_t)f.rank, i);
    }
    kvcl_rand_seed(&rnd, w->seed + (uint64_t)w->rank);
    for (i = 0; i < STEPS; ++i) {
        change(w, store, cache, &rnd, mine);
        if ((i >= LATE) && (i % 8 == 0)) { /* no rank is far ahead, and the changes continue meanwhile */
            sync_all(w);
            catch_up(w, store, &f);
        }
    }
    sync_all(w);
    sync_all(w); /* withdrawals that were sent to other ranks have arrived */
    catch_up(w, store, &f);
    (void)list(w, store, &f, has);
    for (i = 0; i < UNIVERSE; ++i) {
        CHECK(w, f.has[i] == has[i], "key %u: followed %d, listed %d (%u events, %u snapshots)", i, f.has[i], has[i],
              f.events, f.snapshots);
    }
    CHECK(w, (f.events > STEPS / 2) && (f.evicted != 0) && (f.snapshots != 0),
          "%u events, %u of evictions, %u snapshots",
          f.events, f.evicted, f.snapshots);
    errors(w, store, &f);
    sync_all(w);
    waiting(w, store, cache, &f);
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}

/* ---- too many followers ---- */

void test_followers(world_t *w)
{
    enum { MOST = 256 };
    kvcl_store_params_t  params = KVCL_STORE_PARAMS_INIT;
    kvcl_context_stats_t before = KVCL_CONTEXT_STATS_INIT, after = KVCL_CONTEXT_STATS_INIT;
    kvcl_store_event_t   event;
    kvcl_store_h         store;
    size_t               n = 9;
    int                  next = (w->rank + 1) % w->size;

    params.dir_entries = 64;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    kvcl_lock(w->ctx);
    store->n_followers += MOST;
    kvcl_unlock(w->ctx);
    sync_all(w);
    KVCL_TRY(kvcl_context_stats(w->ctx, &before));
    CHECK(w, (kvcl_store_events(store, next, 0, 200000000, &event, sizeof(event), 1, &n, NULL) == KVCL_OK) && (n == 0),
          "%zu events",
          n);
    KVCL_TRY(kvcl_context_stats(w->ctx, &after));
    CHECK(w, after.ops - before.ops < 20, "%llu questions", (unsigned long long)(after.ops - before.ops));
    sync_all(w);
    kvcl_lock(w->ctx);
    store->n_followers -= MOST;
    kvcl_unlock(w->ctx);
    kvcl_store_close(store);
}

/* ---- a store is closed while threads wait in it ---- */

typedef struct waiter {
    world_t      *w;
    kvcl_store_h store;
    kvcl_cache_h cache;
    int          rank; /* -1: it puts, and there is no room */
    atomic_bool  ready;
    pthread_t    thread;
} waiter_t;

static void *wait_on(void *arg)
{
    waiter_t           *waiter = arg;
    kvcl_xfer_params_t p = KVCL_XFER_PARAMS_INIT;
    kvcl_key_t         key = key_of("no room", (uint64_t)waiter->w->rank, 0);
    kvcl_store_event_t event;
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;
    uint32_t           id = 0;
    size_t             n;
    kvcl_req_h         req;

    if (waiter->rank < 0) {
        p.flags      = KVCL_PUT_WAIT;
        p.timeout_ns = 60000000000u;
        atomic_store(&waiter->ready, true);
        if (kvcl_store_put(waiter->store, &key, 1, waiter->cache, &id, &p, &req) == KVCL_OK) {
            return waiter; /* there was room */
        }
    } else if (kvcl_store_rank_stats(waiter->store, waiter->rank, &stats, NULL) == KVCL_OK) {
        atomic_store(&waiter->ready, true);
        (void)!kvcl_store_events(waiter->store, waiter->rank, stats.events, 60000000000u, &event, sizeof(event), 1, &n,
                                 NULL);
    }
    return NULL;
}

/* Start the waiter, and return once it is in its call: a call after the close would find no store. */
static void start_waiter(waiter_t *waiter)
{
    kvcl_store_h store = waiter->store;
    uint64_t     until = 0;
    unsigned     before;
    bool         inside;

    kvcl_lock(store->ctx);
    before = store->ops;
    kvcl_unlock(store->ctx);
    pthread_create(&waiter->thread, NULL, wait_on, waiter);
    do {
        kvcl_lock(store->ctx);
        inside = atomic_load(&waiter->ready) &&
                 ((waiter->rank < 0) ? (store->n_room_waiters != 0) : (store->ops > before));
        kvcl_unlock(store->ctx);
    } while (!inside && keep_waiting(&until));
    CHECK(waiter->w, inside, "waiter of rank %d does not wait", waiter->rank);
}

void test_close_waiters(world_t *w)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_cache_h        cache  = make_cache(w, "waiters", 1, false);
    struct timespec     begun, ended;
    waiter_t            waiters[3];
    kvcl_key_t          keys[2];
    uint32_t            id = 0;
    kvcl_store_h        store;
    kvcl_req_h          req;
    void                *bad;
    int                 turn, i;

    params.dir_entries = 64;
    params.dram_bytes  = 2 * BLOCK;
    params.block_bytes = BLOCK;
    (void)mallopt(M_PERTURB, 0x5a); /* an access to the freed store is detected */
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    for (i = 0; i < 2; ++i) {
        keys[i] = key_of("pinned", (uint64_t)w->rank, (uint64_t)i);
        CHECK(w, DO(kvcl_store_put(store, &keys[i], 1, cache, &id, NULL, &req)) == KVCL_OK, "put");
    }
    CHECK(w, kvcl_store_pin(store, keys, 2, 1, 60000000000u, 0, NULL, NULL) == KVCL_OK, "all of the pool");
    for (i = 0; i < 3; ++i) {
        waiters[i] = (waiter_t){.w = w, .store = store, .cache = cache,
                                .rank = (i == 0) ? -1 : (w->rank + i - 1) % w->size};
        start_waiter(&waiters[i]);
    }
    for (turn = 0; turn < 2; ++turn) { /* some follow a rank whose store is still open */
        sync_all(w);
        if (w->rank % 2 == turn) {
            clock_gettime(CLOCK_MONOTONIC, &begun);
            kvcl_store_close(store);
            clock_gettime(CLOCK_MONOTONIC, &ended);
            CHECK(w, ended.tv_sec - begun.tv_sec < 30, "closing took %ld s", (long)(ended.tv_sec - begun.tv_sec));
            for (i = 0; i < 3; ++i) {
                pthread_join(waiters[i].thread, &bad);
                CHECK(w, bad == NULL, "waiter %d", i);
            }
        }
    }
    (void)mallopt(M_PERTURB, 0);
    sync_all(w);
    kvcl_cache_destroy(cache);
}
