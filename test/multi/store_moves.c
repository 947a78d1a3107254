/*
 * Blocks moved to other ranks: copies, moves, and a rank that is drained before it closes. A thread of every rank gets
 * all the time, and no get of a key that was put may fail.
 */
#include "store_test.h"

#include <pthread.h>
#include <stdatomic.h>

enum { POOL = 64, EACH = 12 };

static void put_mine(world_t *w, kvcl_store_h store, kvcl_cache_h cache, const char *what)
{
    kvcl_key_t keys[EACH];
    uint32_t   ids[EACH], i;
    kvcl_req_h req;

    for (i = 0; i < EACH; ++i) {
        keys[i] = key_of(what, (uint64_t)w->rank, i);
        ids[i]  = i;
        fill(cache, i, &keys[i]);
    }
    CHECK(w, DO(kvcl_store_put(store, keys, EACH, cache, ids, NULL, &req)) == KVCL_OK, "put");
}

/* A thread that gets all the time. */
typedef struct getter {
    world_t      *w;
    kvcl_store_h store;
    kvcl_cache_h cache; /* one block of it is the getter's */
    const char   *what;
    atomic_bool  stop;
    atomic_uint  gets, failed;
} getter_t;

static void *get_on(void *arg)
{
    getter_t    *g = arg;
    kvcl_rand_t rnd;
    uint32_t    id = EACH;
    kvcl_key_t  key;
    kvcl_req_h  req;

    kvcl_rand_seed(&rnd, g->w->seed);
    do {
        key = key_of(g->what, kvcl_rand_next(&rnd) % (uint64_t)g->w->size, kvcl_rand_next(&rnd) % EACH);
        ++g->gets;
        if ((DO(kvcl_store_get(g->store, &key, 1, g->cache, &id, NULL, NULL, &req)) != KVCL_OK) ||
            !holds(g->cache, id, &key)) {
            ++g->failed;
        }
    } while (!g->stop);
    return NULL;
}

/* How many keys of `what` rank r holds, by its own list. */
static unsigned held_by(world_t *w, kvcl_store_h store, int rank, const char *what)
{
    kvcl_store_item_t items[POOL];
    uint64_t          cursor = 0;
    unsigned          found  = 0;
    kvcl_key_t        key;
    size_t            n, i, j;

    do {
        KVCL_TRY(kvcl_store_list(store, rank, &cursor, items, sizeof(*items), POOL, &n, NULL, NULL));
        for (i = 0; i < n; ++i) {
            for (j = 0; j < (size_t)w->size * EACH; ++j) {
                key = key_of(what, j / EACH, j % EACH);
                found += kvcl_key_equal(&items[i].key, &key) ? 1 : 0;
            }
        }
    } while (cursor != 0);
    return found;
}

void test_moves(world_t *w)
{
    kvcl_cache_h       cache = make_cache(w, "moves", EACH + 1, false);
    kvcl_store_h       store = open_with_pool(w, POOL, NULL);
    getter_t           getter = {.w = w, .store = store, .cache = cache, .what = "moves"};
    kvcl_key_t         keys[EACH + 1];
    uint8_t            made[EACH + 1];
    kvcl_store_event_t event;
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;
    uint64_t           seq;
    int                last = w->size - 1, round, i;
    pthread_t          thread;
    size_t             n;

    put_mine(w, store, cache, "moves");
    sync_all(w);
    pthread_create(&thread, NULL, get_on, &getter);
    for (i = 0; i < EACH; ++i) {
        keys[i] = key_of("moves", 0, (uint64_t)i);
    }
    keys[EACH] = key_of("nowhere", 0, 0);
    KVCL_TRY(kvcl_store_rank_stats(store, 0, &stats, NULL));
    seq = stats.events;
    sync_all(w);
    if (w->rank == last / 2) { /* a rank that moves the blocks of rank 0 */
        CHECK(w, kvcl_store_copy(store, keys, EACH + 1, last, 0, made, NULL) == KVCL_ERR_NOT_FOUND, "copy");
        CHECK(w, (made[0] == 1) && (made[EACH - 1] == 1) && (made[EACH] == 0), "what was made");
        CHECK(w, held_by(w, store, last, "moves") == ((last != 0) ? 2 * EACH : EACH), "the last rank holds %u",
              held_by(w, store, last, "moves"));
        for (round = 0; round < 5; ++round) {
            CHECK(w, kvcl_store_copy(store, keys, EACH, (last + round) % w->size, KVCL_STORE_MOVE, made,
                                     NULL) == KVCL_OK,
                  "move in round %d: %u", round, made[0]);
        }
        CHECK(w, held_by(w, store, (last + 4) % w->size, "moves") >= EACH, "not where it was moved to");
        CHECK(w, kvcl_store_copy(store, keys, 1, w->size, 0, NULL, NULL) == KVCL_ERR_UNKNOWN_RANK, "rank");
        CHECK(w, kvcl_store_copy(store, keys, 1, 0, 2, NULL, NULL) == KVCL_ERR_INVALID_PARAM, "flags");
        if (last != 0) {
            CHECK(w, (kvcl_store_events(store, 0, seq, 0, &event, sizeof(event), 1, &n, NULL) == KVCL_OK) && (n == 1) &&
                     (event.kind == KVCL_STORE_MOVED) && (event.to_rank == last), "event %u to %d", event.kind,
                  event.to_rank);
        }
    }
    sync_all(w);
    getter.stop = true;
    pthread_join(thread, NULL);
    CHECK(w, (getter.failed == 0) && (getter.gets != 0), "%u of %u gets failed", getter.failed, getter.gets);
    CHECK(w, kvcl_store_rank_stats(store, w->size, &stats, NULL) == KVCL_ERR_UNKNOWN_RANK, "rank");
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}

void test_drain(world_t *w)
{
    kvcl_cache_h       cache  = make_cache(w, "drain", EACH + 1, false);
    kvcl_store_h       store  = open_with_pool(w, POOL, NULL);
    getter_t           getter = {.w = w, .store = store, .cache = cache, .what = "drain"};
    int                leaver = w->size - 1;
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;
    uint64_t           moved = 99;
    kvcl_status_t      status;
    pthread_t          thread;

    put_mine(w, store, cache, "drain");
    sync_all(w);
    pthread_create(&thread, NULL, get_on, &getter);
    if (w->rank == leaver) {
        status = kvcl_store_drain(store, &moved, NULL);
        CHECK(w, status == ((w->size > 1) ? KVCL_OK : KVCL_ERR_NO_SPACE), "drain: %s", kvcl_status_text(status));
        CHECK(w, moved == ((w->size > 1) ? EACH : 0), "%llu blocks moved", (unsigned long long)moved);
        KVCL_TRY(kvcl_store_stats(store, &stats));
        CHECK(w, (stats.moved == moved) && (stats.draining == 1) && (stats.pool_published == EACH - moved), "stats");
    }
    sync_all(w);
    if (w->rank != leaver) {
        CHECK(w, held_by(w, store, leaver, "drain") == 0, "the drained rank holds something");
        CHECK(w, (kvcl_store_rank_stats(store, leaver, &stats, NULL) == KVCL_OK) && (stats.draining == 1), "stats");
    }
    sync_all(w);
    getter.stop = true;
    pthread_join(thread, NULL);
    CHECK(w, (getter.failed == 0) && (getter.gets != 0), "%u of %u gets failed", getter.failed, getter.gets);
    sync_all(w);
    if (w->rank == leaver) {
        kvcl_store_close(store);
    }
    sync_all(w);
    if ((w->rank != leaver) && (w->rank == 0)) { /* with one replica its entries are lost; its blocks are not */
        unsigned held = 0;
        int      r;
        for (r = 0; r < leaver; ++r) {
            held += held_by(w, store, r, "drain");
        }
        CHECK(w, held == (unsigned)w->size * EACH, "%u blocks are left", held);
    }
    sync_all(w);
    if (w->rank != leaver) {
        kvcl_store_close(store);
    }
    kvcl_cache_destroy(cache);
}

/* Two ranks hold the same blocks and both leave: a third rank has them then, after a few queries. */
void test_drain_two(world_t *w)
{
    kvcl_cache_h         cache = make_cache(w, "drain two", EACH + 1, false);
    kvcl_store_h         store = open_with_pool(w, POOL, NULL);
    kvcl_context_stats_t before = KVCL_CONTEXT_STATS_INIT, after = KVCL_CONTEXT_STATS_INIT;
    kvcl_key_t           keys[EACH];
    uint64_t             moved = 99;
    unsigned             held  = 0;
    int                  r;

    if (w->rank == 0) {
        put_mine(w, store, cache, "two");
        for (r = 0; r < EACH; ++r) {
            keys[r] = key_of("two", 0, (uint64_t)r);
        }
        CHECK(w, (w->size < 2) || (kvcl_store_copy(store, keys, EACH, 1, 0, NULL, NULL) == KVCL_OK), "copy");
        CHECK(w, (w->size < 2) || ((kvcl_store_drain(store, &moved, NULL) == KVCL_OK) && (moved == 0)),
              "rank 1 has them: %llu moved", (unsigned long long)moved);
    }
    sync_all(w);
    if (w->rank == 1) {
        KVCL_TRY(kvcl_context_stats(w->ctx, &before));
        CHECK(w, kvcl_store_drain(store, &moved, NULL) == ((w->size > 2) ? KVCL_OK : KVCL_ERR_NO_SPACE), "drain");
        KVCL_TRY(kvcl_context_stats(w->ctx, &after));
        CHECK(w, moved == ((w->size > 2) ? EACH : 0), "%llu moved", (unsigned long long)moved);
        CHECK(w, after.ops - before.ops < (4u * (unsigned)w->size) + 4, "%llu questions",
              (unsigned long long)(after.ops - before.ops));
    }
    sync_all(w);
    for (r = 2; r < w->size; ++r) {
        held += held_by(w, store, r, "two");
    }
    CHECK(w, (w->size <= 2) || (held == EACH), "%u are left when both have gone", held);
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}

/* A copy that the directory has no room for does not cause the other copies to be dropped. A rank that holds the only
 * copy of a block makes more copies when it puts it. */
void test_move_unlisted(world_t *w)
{
    enum { LISTED = 4 };
    kvcl_cache_h       cache = make_cache(w, "nowhere", EACH + 1, false);
    kvcl_store_h       store = open_with_pool(w, POOL, NULL);
    kvcl_xfer_params_t p     = KVCL_XFER_PARAMS_INIT;
    kvcl_key_t         keys[LISTED], key = key_of("nowhere", 0, 0), two = key_of("nowhere", 0, 1);
    uint32_t           ids[LISTED], to = EACH, i;
    int                last = w->size - 1;
    uint8_t            copies = 0, made;
    kvcl_status_t      status;
    kvcl_req_h         req;

    p.replicas = 2;
    p.copies   = &copies;
    for (i = 0; i < LISTED; ++i) {
        keys[i] = key;
        ids[i]  = i;
        fill(cache, i, &key);
    }
    if (w->rank == 0) {
        CHECK(w, DO(kvcl_store_publish(store, keys, LISTED, cache, ids, NULL, &req)) == KVCL_OK, "publish");
        for (i = 0; (i < 2) && (last != 0); ++i) { /* the second time it has the block */
            status = kvcl_store_copy(store, &key, 1, last, KVCL_STORE_MOVE, &made, NULL);
            CHECK(w, status == KVCL_ERR_NO_SPACE, "move %u: %s", i, kvcl_status_text(status));
        }
    }
    sync_all(w);
    CHECK(w, (DO(kvcl_store_get(store, &key, 1, cache, &to, NULL, NULL, &req)) == KVCL_OK) && holds(cache, to, &key),
          "a key that did not move");
    sync_all(w);
    fill(cache, LISTED, &two);
    i = LISTED;
    if (w->rank == 0) {
        CHECK(w, DO(kvcl_store_put(store, &two, 1, cache, &i, &p, &req)) == KVCL_OK, "put");
        CHECK(w, kvcl_store_copy(store, &two, 1, last, KVCL_STORE_MOVE, NULL, NULL) == KVCL_OK, "move");
    }
    sync_all(w);
    if (w->rank == last) {
        CHECK(w, DO(kvcl_store_put(store, &two, 1, cache, &i, &p, &req)) == KVCL_OK, "put of what is here");
        CHECK(w, copies == ((last != 0) ? 2 : 1), "%u copies", copies);
    }
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}
