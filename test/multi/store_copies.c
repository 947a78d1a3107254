/*
 * Several copies of each block: the number that a put reports, their presence, and continued eviction from full pools.
 */
#include "core/context.h"
#include "store_test.h"
#include <kvcl/kvcl_store_admin.h>

#include <pthread.h>
#include <stdatomic.h>

enum { KEYS = 40 };

static uint64_t put_flags; /* of all puts */
static uint64_t usual_hedge_ns;

static unsigned wanted(const world_t *w, unsigned replicas)
{
    return ((unsigned)w->size < replicas) ? (unsigned)w->size : replicas;
}

static uint64_t blocks_of_all(world_t *w, kvcl_store_h store)
{
    sync_all(w);
    return sum_of(w, stats_of(store).blocks);
}

static void put_mine(world_t *w, kvcl_store_h store, kvcl_cache_h cache, const char *what, unsigned replicas,
                     unsigned expected)
{
    kvcl_xfer_params_t p = KVCL_XFER_PARAMS_INIT;
    kvcl_key_t         keys[KEYS];
    uint32_t           ids[KEYS], i;
    uint8_t            copies[KEYS];
    kvcl_req_h         req;

    for (i = 0; i < KEYS; ++i) {
        keys[i] = key_of(what, (uint64_t)w->rank, i);
        ids[i]  = i;
        fill(cache, i, &keys[i]);
    }
    memset(copies, 0xee, sizeof(copies));
    p.flags    = put_flags;
    p.replicas = replicas;
    p.copies   = copies;
    CHECK(w, DO(kvcl_store_put(store, keys, KEYS, cache, ids, &p, &req)) == KVCL_OK, "put %s", what);
    for (i = 0; i < KEYS; ++i) {
        CHECK(w, copies[i] == expected, "%s %u: %u copies, not %u", what, i, copies[i], expected);
    }
}

static void get_all(world_t *w, kvcl_store_h store, kvcl_cache_h cache, const char *what)
{
    kvcl_status_t status[KEYS];
    kvcl_key_t    keys[KEYS];
    uint32_t      ids[KEYS], i;
    kvcl_req_h    req;
    int           r;

    for (r = 0; r < w->size; ++r) {
        for (i = 0; i < KEYS; ++i) {
            keys[i] = key_of(what, (uint64_t)r, i);
            ids[i]  = KEYS + i;
        }
        CHECK(w, DO(kvcl_store_get(store, keys, KEYS, cache, ids, status, NULL, &req)) == KVCL_OK, "get of %d's", r);
        for (i = 0; i < KEYS; ++i) {
            CHECK(w, (status[i] == KVCL_OK) && holds(cache, ids[i], &keys[i]), "%s %u of %d", what, i, r);
        }
    }
}

/* The hedge is long: a rank that is slow is not silent, so that copies can be counted. */
static kvcl_store_h open_with(world_t *w, unsigned replicas, uint64_t pool)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_store_h        store;

    usual_hedge_ns                = w->ctx->config.store_hedge_ns;
    w->ctx->config.store_hedge_ns = 10 * KVCL_NS_PER_SEC;

    params.dir_entries = 16384;
    params.dram_bytes  = pool * BLOCK;
    params.block_bytes = BLOCK;
    params.replicas    = replicas;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    return store;
}

static void close_with(world_t *w, kvcl_store_h store)
{
    kvcl_store_close(store);
    w->ctx->config.store_hedge_ns = usual_hedge_ns;
}

/* How many of the keys a rank holds, by its own list. */
static unsigned blocks_at(kvcl_store_h store, int rank, const kvcl_key_t *keys, size_t n_keys)
{
    kvcl_store_item_t items[KEYS];
    uint64_t          cursor = 0;
    unsigned          found  = 0;
    size_t            n, i, j;

    do {
        KVCL_TRY(kvcl_store_list(store, rank, &cursor, items, sizeof(*items), KEYS, &n, NULL, NULL));
        for (i = 0; i < n * n_keys; ++i) {
            j      = i % n_keys;
            found += kvcl_key_equal(&items[i / n_keys].key, &keys[j]) ? 1 : 0;
        }
    } while (cursor != 0);
    return found;
}

void test_copies(world_t *w)
{
    kvcl_cache_h cache = make_cache(w, "copies", 2 * KEYS, true);
    kvcl_store_h store = open_with(w, (w->rank == 0) ? 2 : 0, 64 * KEYS); /* the largest counts */
    unsigned     two = wanted(w, 2), three = wanted(w, 3), four = wanted(w, 4);
    uint64_t     ranks = (uint64_t)w->size, blocks;
    kvcl_key_t   keys[KEYS];
    kvcl_req_h   req;
    uint32_t     i;

    put_mine(w, store, cache, "two", 0, two);
    blocks = blocks_of_all(w, store);
    CHECK(w, blocks == KEYS * ranks * two, "%llu blocks", (unsigned long long)blocks);
    put_mine(w, store, cache, "two", 0, two); /* again: nothing */
    CHECK(w, blocks_of_all(w, store) == KEYS * ranks * two, "a second put made copies");
    get_all(w, store, cache, "two");
    put_mine(w, store, cache, "one", 1, 1);
    put_mine(w, store, cache, "three", 3, three);
    blocks = blocks_of_all(w, store);
    CHECK(w, blocks == KEYS * ranks * (two + 1 + three), "%llu blocks", (unsigned long long)blocks);
    put_mine(w, store, cache, "four", 2, two);
    put_mine(w, store, cache, "four", 4, four); /* more copies of present blocks */
    sync_all(w);
    get_all(w, store, cache, "one");
    get_all(w, store, cache, "three");
    get_all(w, store, cache, "four");
    sync_all(w);
    for (i = 0; i < KEYS; ++i) {
        keys[i] = key_of("three", (uint64_t)w->rank, i);
    }
    CHECK(w, DO(kvcl_store_remove(store, keys, KEYS, NULL, &req)) == KVCL_OK, "remove");
    CHECK(w, vanished(store, keys, KEYS), "removed keys are listed");
    sync_all(w);
    get_all(w, store, cache, "two");
    sync_all(w);
    close_with(w, store);
    kvcl_cache_destroy(cache);
}

/* Pools that hold less than the blocks put: copies evict each other, and every put still makes all its copies. */
void test_copies_full(world_t *w)
{
    enum { ROUNDS = 6 };
    kvcl_cache_h  cache = make_cache(w, "pushing", 2 * KEYS, false);
    kvcl_store_h  store = open_with(w, 2, 3 * KEYS);
    kvcl_status_t status[KEYS];
    kvcl_key_t    keys[KEYS];
    uint32_t      ids[KEYS], i, round, hits = 0;
    char          what[32];
    kvcl_req_h    req;

    for (round = 0; round < ROUNDS; ++round) {
        snprintf(what, sizeof(what), "pushing%u", round);
        put_mine(w, store, cache, what, 0, wanted(w, 2));
        sync_all(w); /* the other rank's blocks stay until the puts of the next round evict them */
        for (i = 0; i < KEYS; ++i) {
            keys[i] = key_of(what, (uint64_t)((w->rank + 1) % w->size), i);
            ids[i]  = KEYS + i;
        }
        (void)!DO(kvcl_store_get(store, keys, KEYS, cache, ids, status, NULL, &req));
        for (i = 0; i < KEYS; ++i) {
            hits += (status[i] == KVCL_OK) ? 1 : 0;
            CHECK(w, (status[i] == KVCL_OK) ? holds(cache, ids[i], &keys[i]) : (status[i] == KVCL_ERR_NOT_FOUND),
                  "block %u: %s", i, kvcl_status_text(status[i]));
        }
    }
    CHECK(w, blocks_of_all(w, store) <= 3u * KEYS * (uint64_t)w->size, "more blocks than there is room for");
    CHECK(w, sum_of(w, hits) > 0, "no hit at all");
    sync_all(w);
    close_with(w, store);
    kvcl_cache_destroy(cache);
}

/* Copies made for another rank's put while this rank's own puts evict. Its other blocks have just been used, so the new
 * copies are the next victims; none is evicted before the other rank's put has counted it. */
void test_copies_counted(world_t *w)
{
    enum { USED = 2 * KEYS, POOL = USED + KEYS, ROUNDS = 200, PART = 20, TURNS = 8 };
    kvcl_cache_h  cache = make_cache(w, "counted", 4 * KEYS, false);
    kvcl_store_h  store = open_with(w, 1, POOL);
    kvcl_status_t status[USED];
    kvcl_key_t    keys[USED];
    uint32_t      ids[USED], i, round;
    char          what[32];
    kvcl_req_h    req;

    for (i = 0; i < USED; ++i) {
        keys[i] = key_of("used", (uint64_t)w->rank, i);
        ids[i]  = USED + i;
        fill(cache, ids[i], &keys[i]);
    }
    CHECK(w, DO(kvcl_store_put(store, keys, USED, cache, ids, NULL, &req)) == KVCL_OK, "put of used blocks");
    for (round = 0; round < ROUNDS; ++round) {
        if (round % PART == 0) {
            sync_all(w);
        }
        if (w->rank == 0) {
            snprintf(what, sizeof(what), "counted%u", round);
            put_mine(w, store, cache, what, 2, wanted(w, 2));
        }
        for (i = 0; (w->rank != 0) && (i < TURNS); ++i) {
            kvcl_key_t own = key_of("own", (uint64_t)w->rank, (round * TURNS) + i);
            (void)!DO(kvcl_store_get(store, keys, USED, cache, ids, status, NULL, &req));
            fill(cache, 0, &own);
            CHECK(w, DO(kvcl_store_put(store, &own, 1, cache, (const uint32_t[]){0}, NULL, &req)) == KVCL_OK, "put");
        }
    }
    sync_all(w);
    close_with(w, store);
    kvcl_cache_destroy(cache);
}

/* ---- two threads of a rank, whose pool has room for one put only ---- */

typedef struct rival {
    kvcl_store_h store;
    kvcl_cache_h cache;
    _Atomic bool stop;
    unsigned     n, put; /* puts in all; of them, those that were put */
} rival_t;

/* Puts that evict all that is not pinned. They fail while the other thread's blocks are filled, or pinned. */
static void *evict_all(void *arg)
{
    rival_t    *rival = arg;
    kvcl_key_t keys[KEYS];
    uint32_t   ids[KEYS], i;
    kvcl_req_h req;

    for (rival->n = 0; !atomic_load(&rival->stop); ++rival->n) {
        for (i = 0; i < KEYS; ++i) {
            keys[i] = key_of("rival", rival->n, i);
            ids[i]  = KEYS + i;
        }
        rival->put += (DO(kvcl_store_put(rival->store, keys, KEYS, rival->cache, ids, NULL, &req)) == KVCL_OK) ? 1 : 0;
    }
    return NULL;
}

/* The same as put_mine, of values of one block each. */
static void put_values(world_t *w, kvcl_store_h store, const char *what, unsigned replicas, unsigned expected)
{
    static uint8_t     bytes[BLOCK];
    kvcl_extent_t      extent = {.addr = bytes, .bytes = sizeof(bytes)};
    kvcl_xfer_params_t p      = KVCL_XFER_PARAMS_INIT;
    kvcl_value_t       values[KEYS];
    kvcl_key_t         keys[KEYS];
    uint8_t            copies[KEYS];
    uint32_t           i;
    kvcl_req_h         req;

    for (i = 0; i < KEYS; ++i) {
        keys[i]   = key_of(what, (uint64_t)w->rank, i);
        values[i] = (kvcl_value_t){.extents = &extent, .n_extents = 1};
    }
    p.flags    = put_flags;
    p.replicas = replicas;
    p.copies   = copies;
    CHECK(w, DO(kvcl_store_put_values(store, keys, KEYS, values, &p, &req)) == KVCL_OK, "put of values %s", what);
    for (i = 0; i < KEYS; ++i) {
        CHECK(w, copies[i] == expected, "value %s %u: %u copies, not %u", what, i, copies[i], expected);
    }
}

/* Puts with two copies, of blocks and of values in turn. */
static void put_rounds(world_t *w, kvcl_store_h store, kvcl_cache_h cache, unsigned first, unsigned end)
{
    char     what[32];
    unsigned round;

    for (round = first; round < end; ++round) {
        snprintf(what, sizeof(what), "threads%u", round);
        if (round % 2 == 0) {
            put_mine(w, store, cache, what, 2, wanted(w, 2));
        } else {
            put_values(w, store, what, 2, wanted(w, 2));
        }
    }
}

/* No thread evicts the blocks of a put that another thread has published and whose copies are not counted yet. */
void test_copies_threads(world_t *w)
{
    enum { ROUNDS = 1000, PART = 50 }; /* the other ranks wait for a part: with a barrier's deadline */
    kvcl_cache_h cache = make_cache(w, "threads", 2 * KEYS, false);
    kvcl_store_h store = open_with(w, 1, (w->rank == 0) ? KEYS + 4 : 64 * KEYS);
    rival_t      rival = {.store = store, .cache = cache};
    pthread_t    thread;
    unsigned     first;

    sync_all(w);
    if (w->rank == 0) {
        put_flags = KVCL_PUT_WAIT;
        CHECK(w, pthread_create(&thread, NULL, evict_all, &rival) == 0, "a thread");
    }
    for (first = 0; first < ROUNDS; first += PART) {
        if (w->rank == 0) {
            put_rounds(w, store, cache, first, first + PART);
        }
        sync_all(w);
    }
    if (w->rank == 0) {
        atomic_store(&rival.stop, true);
        pthread_join(thread, NULL);
        put_flags = 0;
        CHECK(w, rival.put != 0, "none of %u puts of the other thread succeeded", rival.n);
    }
    sync_all(w);
    close_with(w, store);
    kvcl_cache_destroy(cache);
}

/* Puts that are canceled at any time, and whose blocks change at once: what other ranks have copied by then has the
 * bytes of its key. The next put takes the same blocks. */
static void cancel_some(world_t *w)
{
    enum { ROUNDS = 60 };
    kvcl_xfer_params_t p     = KVCL_XFER_PARAMS_INIT;
    kvcl_cache_h       cache = make_cache(w, "canceled", 2 * KEYS, false);
    kvcl_store_h       store = open_with(w, 1, 16 * KEYS);
    uint8_t            other[BLOCK];
    kvcl_status_t      status[KEYS];
    kvcl_key_t         keys[KEYS];
    uint32_t           ids[KEYS], i, round;
    kvcl_rand_t        rnd;
    kvcl_req_h         req;

    kvcl_rand_seed(&rnd, w->seed + (uint64_t)w->rank);
    memset(other, 0xee, sizeof(other));
    p.flags = put_flags;
    for (round = 0; round < ROUNDS; ++round) {
        for (i = 0; i < KEYS; ++i) {
            keys[i] = key_of("canceled", (uint64_t)w->rank, (round * KEYS) + i);
            ids[i]  = i;
            fill(cache, i, &keys[i]);
        }
        p.replicas = 2 + kvcl_rand_below(&rnd, 3);
        KVCL_TRY(kvcl_store_put(store, keys, KEYS, cache, ids, &p, &req));
        nap(kvcl_rand_below(&rnd, 1000000));
        kvcl_req_cancel(req);
        (void)!wait_for(req);
        for (i = 0; i < KEYS; ++i) {
            KVCL_TRY(kvcl_cache_write_block(cache, i, other, sizeof(other)));
            ids[i] = KEYS + i;
        }
        (void)!DO(kvcl_store_get(store, keys, KEYS, cache, ids, status, NULL, &req));
        for (i = 0; i < KEYS; ++i) {
            CHECK(w, (status[i] == KVCL_OK) ? holds(cache, ids[i], &keys[i]) : (status[i] == KVCL_ERR_NOT_FOUND),
                  "round %u, block %u: %s", round, i, kvcl_status_text(status[i]));
        }
    }
    sync_all(w);
    close_with(w, store);
    kvcl_cache_destroy(cache);
}

/* The same with KVCL_PUT_STAYS: other ranks fetch the caller's blocks, which the next put takes again. */
void test_copies_stay(world_t *w)
{
    uint64_t usual = w->ctx->config.inline_copy;

    w->ctx->config.inline_copy = (uint64_t)2 * BLOCK;
    put_flags                  = KVCL_PUT_STAYS;
    test_copies(w);
    test_copies_full(w);
    cancel_some(w);
    put_flags                  = 0;
    w->ctx->config.inline_copy = usual;
}

/* One rank of a put's chain has no room. A rank of the chain that has made its copy does not treat the chain as
 * complete, and makes more copies when it puts the key once there is room. */
void test_copies_short(world_t *w)
{
    enum { ROOM = 16, PINNED = 14, SOME = 8 };
    const uint64_t     minute = 60000000000u;
    kvcl_cache_h       cache  = make_cache(w, "short", 2 * KEYS, false);
    kvcl_store_h       store  = open_with(w, 1, ROOM);
    kvcl_xfer_params_t p      = KVCL_XFER_PARAMS_INIT;
    int                last   = w->size - 1;
    kvcl_key_t         keys[SOME], mine[PINNED];
    uint8_t            copies[PINNED];
    uint32_t           ids[PINNED], i;
    kvcl_status_t      status;
    kvcl_req_h         req;

    p.replicas = (uint64_t)w->size;
    p.copies   = copies;
    for (i = 0; i < PINNED; ++i) {
        mine[i] = key_of("pinned", 0, i);
        ids[i]  = i;
        fill(cache, i, &mine[i]);
    }
    if ((w->rank == last) && (last > 1)) {
        CHECK(w, DO(kvcl_store_put(store, mine, PINNED, cache, ids, NULL, &req)) == KVCL_OK, "put");
        CHECK(w, kvcl_store_pin(store, mine, PINNED, 9, minute, 0, NULL, NULL) == KVCL_OK, "pin");
    }
    sync_all(w);
    for (i = 0; i < SOME; ++i) {
        keys[i] = key_of("short", 0, i);
        fill(cache, i, &keys[i]);
    }
    if ((w->rank == 0) && (last > 1) && (last < 4)) {
        status = DO(kvcl_store_put(store, keys, SOME, cache, ids, &p, &req));
        CHECK(w, (status == KVCL_ERR_NO_SPACE) && (copies[0] == w->size - 1), "put: %s, %u copies",
              kvcl_status_text(status), copies[0]);
    }
    sync_all(w);
    if ((w->rank == last) && (last > 1)) {
        CHECK(w, kvcl_store_unpin(store, mine, PINNED, 9, NULL) == KVCL_OK, "unpin");
    }
    sync_all(w);
    for (i = 1; i < (uint32_t)last; ++i) {
        if ((w->rank == (int)i) && (last < 4)) {
            status = DO(kvcl_store_put(store, keys, SOME, cache, ids, &p, &req));
            CHECK(w, (status == KVCL_OK) && (copies[0] == w->size), "put by rank %u: %s, %u copies", i,
                  kvcl_status_text(status), copies[0]);
            CHECK(w, blocks_at(store, last, keys, SOME) == SOME, "the last rank holds %u",
                  blocks_at(store, last, keys, SOME));
        }
        sync_all(w);
    }
    close_with(w, store);
    kvcl_cache_destroy(cache);
}

/* A full directory: a copy that it does not list is not kept either, so it can be put again once there is room. */
void test_put_unlisted(world_t *w)
{
    enum { MANY = 300 };
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_xfer_params_t  p      = KVCL_XFER_PARAMS_INIT;
    kvcl_cache_h        cache  = make_cache(w, "unlisted", MANY, false);
    static kvcl_key_t   keys[MANY], gone[MANY];
    static uint8_t      present[MANY], copies[MANY];
    static uint32_t     ids[MANY];
    uint32_t            listed = 0, i, last = MANY;
    kvcl_store_stats_t  stats = KVCL_STORE_STATS_INIT;
    kvcl_store_h        store;
    kvcl_req_h          req;

    params.dir_entries = 64;
    params.dram_bytes  = 2 * MANY * BLOCK;
    params.block_bytes = BLOCK;
    p.copies           = copies;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    for (i = 0; i < MANY; ++i) {
        keys[i] = key_of("unlisted", (uint64_t)w->rank, i);
        ids[i]  = i;
        fill(cache, i, &keys[i]);
    }
    CHECK(w, DO(kvcl_store_put(store, keys, MANY, cache, ids, &p, &req)) == KVCL_ERR_NO_SPACE, "put");
    CHECK(w, kvcl_store_exists(store, keys, MANY, present, NULL) == KVCL_OK, "exists");
    for (i = 0; i < MANY; ++i) {
        CHECK(w, present[i] == copies[i], "key %u: listed %u, copies %u", i, present[i], copies[i]);
        last = present[i] ? last : i;
        if (present[i]) {
            gone[listed++] = keys[i];
        }
    }
    KVCL_TRY(kvcl_store_stats(store, &stats));
    CHECK(w, stats.pool_published == listed, "%llu blocks are kept, %u are listed",
          (unsigned long long)stats.pool_published, listed);
    sync_all(w);
    CHECK(w, DO(kvcl_store_remove(store, gone, listed, NULL, &req)) == KVCL_OK, "remove");
    sync_all(w);
    CHECK(w, (last < MANY) && (DO(kvcl_store_put(store, &keys[last], 1, cache, &ids[last], NULL, &req)) == KVCL_OK),
          "put again");
    CHECK(w, (kvcl_store_exists(store, &keys[last], 1, present, NULL) == KVCL_OK) && present[0], "put, and not listed");
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}
