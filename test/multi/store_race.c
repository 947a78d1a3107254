/*
 * Races: slots reused while peers read them, a cache that evicts under readers, several threads. A get may find no
 * block; it never returns another block's bytes.
 */
#include "store_test.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- one slot, reused at once after each withdraw, while the peers get its blocks ---- */

enum { REUSES = 10000, REUSE_SLOTS = 4 };

static void owner_reuses(world_t *w, kvcl_store_h store, kvcl_cache_h cache, kvcl_rand_t *rnd)
{
    kvcl_key_t key;
    kvcl_req_h req;
    uint32_t   id, i;

    for (i = 0; i < REUSES; ++i) {
        id  = i % REUSE_SLOTS;
        key = key_of("reuse", w->seed, i);
        CHECK(w, kvcl_store_withdraw(store, cache, &id, 1) == KVCL_OK, "withdraw");
        fill(cache, id, &key);
        CHECK(w, DO(kvcl_store_publish(store, &key, 1, cache, &id, NULL, &req)) == KVCL_OK, "publish");
        if (kvcl_rand_below(rnd, 64) == 0) {
            (void)kvcl_progress(w->ctx);
        }
    }
}

/* Follow the owner: get around the newest key known. */
static void reader_follows(world_t *w, kvcl_store_h store, kvcl_cache_h cache, kvcl_rand_t *rnd)
{
    uint32_t      newest = 0, at, got = 0, wrong = 0, tries = 0;
    kvcl_status_t status;
    kvcl_key_t    key;
    uint32_t      to = REUSE_SLOTS;
    kvcl_req_h    req;

    while ((newest + REUSE_SLOTS < REUSES) && (tries < 40 * REUSES)) {
        ++tries;
        at     = newest + (uint32_t)kvcl_rand_below(rnd, 8);
        at     = (at < REUSES) ? at : REUSES - 1;
        key    = key_of("reuse", w->seed, at);
        status = DO(kvcl_store_get(store, &key, 1, cache, &to, NULL, NULL, &req));
        if (status == KVCL_OK) {
            ++got;
            wrong += holds(cache, to, &key) ? 0 : 1;
            newest = (at > newest) ? at : newest;
        } else if (status == KVCL_ERR_NOT_FOUND) { /* the owner is ahead: jump */
            newest += (uint32_t)kvcl_rand_below(rnd, 3);
        } else {
            CHECK(w, false, "get: %s", kvcl_status_text(status));
            break;
        }
    }
    CHECK(w, wrong == 0, "%u of %u blocks had wrong bytes", wrong, got);
}

void test_reuse(world_t *w)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_cache_h        cache  = make_cache(w, "reuse", REUSE_SLOTS + 1, true);
    kvcl_store_stats_t  stats = KVCL_STORE_STATS_INIT;
    kvcl_store_h        store;
    kvcl_rand_t         rnd;

    kvcl_rand_seed(&rnd, w->seed + (uint64_t)w->rank);
    params.dir_entries = 4096;
    params.flags       = (w->seed % 2 != 0) ? KVCL_STORE_NO_CHECKSUM : 0; /* generations alone must suffice */
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    sync_all(w);
    if (w->rank == 0) {
        owner_reuses(w, store, cache, &rnd);
    } else {
        reader_follows(w, store, cache, &rnd);
    }
    sync_all(w);
    KVCL_TRY(kvcl_store_stats(store, &stats));
    CHECK(w, stats.corrupt == 0, "%llu copies had another checksum under an equal generation",
          (unsigned long long)stats.corrupt);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}

/* ---- every rank reads and fills a small cache that evicts all the time ---- */

enum { UNIVERSE = 96, SLOTS = 40, STEPS = 1500, CHAIN = 4 };

typedef struct worker {
    world_t          *w;
    kvcl_store_h     store;
    kvcl_cache_h     cache;
    kvcl_rand_t      rnd;
    uint32_t         hits, misses;
    _Atomic uint32_t *wrong;
} worker_t;

/* Verify the blocks got; make and publish missing ones. */
static void work_step(worker_t *k)
{
    kvcl_status_t status[CHAIN];
    kvcl_key_t    keys[CHAIN];
    uint32_t      ids[CHAIN], n = 1 + (uint32_t)kvcl_rand_below(&k->rnd, CHAIN), i;
    kvcl_status_t got;
    kvcl_req_h    req;

    got = kvcl_store_alloc(k->store, n, ids);
    if (got == KVCL_ERR_NO_SPACE) {
        return; /* other threads hold all of them */
    }
    CHECK(k->w, got == KVCL_OK, "alloc");
    for (i = 0; i < n; ++i) {
        keys[i] = key_of("evict", k->w->seed, kvcl_rand_below(&k->rnd, UNIVERSE));
    }
    got = DO(kvcl_store_get(k->store, keys, n, k->cache, ids, status, NULL, &req));
    CHECK(k->w, (got == KVCL_OK) || (got == KVCL_ERR_NOT_FOUND), "get: %s", kvcl_status_text(got));
    for (i = 0; i < n; ++i) {
        if (status[i] == KVCL_OK) {
            ++k->hits;
            if (!holds(k->cache, ids[i], &keys[i])) {
                atomic_fetch_add(k->wrong, 1);
            }
        } else {
            ++k->misses;
            fill(k->cache, ids[i], &keys[i]);
        }
    }
    got = DO(kvcl_store_publish(k->store, keys, n, k->cache, ids, NULL, &req));
    CHECK(k->w, got == KVCL_OK, "publish: %s", kvcl_status_text(got));
}

static void *work(void *arg)
{
    worker_t *k = arg;
    uint32_t step;

    for (step = 0; step < STEPS; ++step) {
        work_step(k);
    }
    return NULL;
}

static void evict(world_t *w, const char *name, unsigned n_threads)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_cache_h        cache  = make_cache(w, name, SLOTS, true);
    kvcl_store_stats_t  stats = KVCL_STORE_STATS_INIT;
    _Atomic uint32_t    wrong = 0;
    worker_t            workers[4];
    pthread_t           threads[4];
    kvcl_store_h        store;
    unsigned            t;

    params.dir_entries = 4096;
    params.cache       = cache;
    params.flags       = (w->seed % 2 != 0) ? KVCL_STORE_NO_CHECKSUM : 0;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    for (t = 0; t < n_threads; ++t) {
        workers[t] = (worker_t){.w = w, .store = store, .cache = cache, .wrong = &wrong};
        kvcl_rand_seed(&workers[t].rnd, w->seed + (uint64_t)w->rank + (1000 * t));
        if (t + 1 < n_threads) {
            pthread_create(&threads[t], NULL, work, &workers[t]);
        }
    }
    (void)work(&workers[n_threads - 1]);
    for (t = 0; t + 1 < n_threads; ++t) {
        pthread_join(threads[t], NULL);
    }
    KVCL_TRY(kvcl_store_stats(store, &stats));
    CHECK(w, wrong == 0, "%u blocks had wrong bytes", (unsigned)wrong);
    CHECK(w, (stats.corrupt == 0) && (stats.evicted > 0) && (stats.blocks <= SLOTS), "corrupt %llu, evicted %llu",
          (unsigned long long)stats.corrupt, (unsigned long long)stats.evicted);
    CHECK(w, stats.hits > 0, "no hit");
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}

void test_evict(world_t *w)
{
    evict(w, "evict", 1);
}

void test_threads(world_t *w)
{
    evict(w, "threads", 3);
}
