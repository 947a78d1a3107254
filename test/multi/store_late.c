/*
 * Changes of a key while its bytes are in flight, and ranks that do not reply. Copies of a key that was removed or
 * replaced meanwhile do not reappear. Queries to all ranks wait for the silent ones once.
 */
#include "store/home/ranks.h"
#include "store/store.h"
#include "store_test.h"
#include <kvcl/kvcl_store_admin.h>

enum { POOL = 64, KEYS = 8, ROUNDS = 150 };

/* The first keys of this name whose home is rank 0. */
static void keys_of_home_0(kvcl_store_h store, const char *what, uint64_t round, kvcl_key_t keys[KEYS])
{
    uint64_t i, n;

    for (i = 0, n = 0; n < KEYS; ++i) {
        keys[n] = key_of(what, round, i);
        n += (kvcl_shard_home(kvcl_store_shards(store), &keys[n]) == 0) ? 1 : 0;
    }
}

static void put(world_t *w, kvcl_store_h store, kvcl_cache_h cache, const kvcl_key_t *keys, int byte, bool upsert)
{
    uint8_t    bytes[BLOCK];
    uint32_t   ids[KEYS], i;
    kvcl_req_h req;

    memset(bytes, byte, sizeof(bytes));
    for (i = 0; i < KEYS; ++i) {
        ids[i] = i;
        KVCL_TRY(kvcl_cache_write_block(cache, i, bytes, sizeof(bytes)));
    }
    CHECK(w, DO(upsert ? kvcl_store_upsert(store, keys, KEYS, cache, ids, NULL, &req)
                       : kvcl_store_put(store, keys, KEYS, cache, ids, NULL, &req)) == KVCL_OK, "put of %d", byte);
}

/* The first byte of a key's block; -1: absent. */
static int byte_of(kvcl_store_h store, kvcl_cache_h cache, const kvcl_key_t *key)
{
    uint32_t   id = KEYS;
    uint8_t    bytes[BLOCK];
    kvcl_req_h req;

    if (DO(kvcl_store_get(store, key, 1, cache, &id, NULL, NULL, &req)) != KVCL_OK) {
        return -1;
    }
    KVCL_TRY(kvcl_cache_read_block(cache, id, bytes, sizeof(bytes)));
    return bytes[0];
}

/* The last rank removes keys of rank 0, which is stopped, and copies them at once: it finds and fetches them, and its
 * listing arrives after the removal. Where rank 0's memory is not mapped nothing can be fetched then. */
void test_late_copy(world_t *w)
{
    kvcl_cache_h cache = make_cache(w, "late", KEYS + 1, false);
    kvcl_store_h store = open_with_pool(w, POOL, NULL);
    int          last  = w->size - 1;
    kvcl_key_t   keys[KEYS];
    uint8_t      made[KEYS];
    kvcl_req_h   removed;

    keys_of_home_0(store, "late", 0, keys);
    if (w->rank == 0) {
        put(w, store, cache, keys, 1, false);
    }
    sync_all(w);
    CHECK(w, byte_of(store, cache, &keys[0]) == 1, "warming up");
    CHECK(w, byte_of(store, cache, &keys[0]) == 1, "warm");
    sync_all(w);
    if ((w->rank == 0) && (last != 0)) {
        kvcl_lock(w->ctx);
        nap(300 * KVCL_NS_PER_MS);
        kvcl_unlock(w->ctx);
    }
    if (w->rank == last) {
        nap(100 * KVCL_NS_PER_MS);
        KVCL_TRY(kvcl_store_remove(store, keys, KEYS, NULL, &removed));
        (void)!kvcl_store_copy(store, keys, KEYS, last, 0, made, NULL);
        CHECK(w, wait_for(removed) == KVCL_OK, "remove");
    }
    sync_all(w);
    CHECK(w, vanished(store, keys, KEYS), "a copy of what was removed is there");
    sync_all(w);
    if (w->rank == last) { /* nor is it in the pool, where a put would treat it as done */
        put(w, store, cache, keys, 2, false);
        CHECK(w, byte_of(store, cache, &keys[0]) == 2, "%d after a put of 2", byte_of(store, cache, &keys[0]));
    }
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}

/* Rank 0 upserts keys repeatedly while the last rank copies them. */
void test_late_upsert(world_t *w)
{
    kvcl_cache_h cache = make_cache(w, "late", KEYS + 1, false);
    kvcl_store_h store = open_with_pool(w, POOL, NULL);
    int          last  = w->size - 1, round, byte;
    kvcl_key_t   keys[KEYS];
    uint8_t      made[KEYS];
    kvcl_rand_t  rnd;
    uint32_t     i;

    kvcl_rand_seed(&rnd, w->seed + (uint64_t)w->rank);
    keys_of_home_0(store, "replaced", 0, keys);
    if (w->rank == 0) {
        put(w, store, cache, keys, 0, false);
    }
    for (round = 1; round < ROUNDS; ++round) {
        sync_all(w);
        nap(kvcl_rand_below(&rnd, 200000));
        if (w->rank == 0) {
            put(w, store, cache, keys, round, true);
        }
        if ((w->rank == last) && (last != 0)) {
            (void)!kvcl_store_copy(store, keys, KEYS, last, 0, made, NULL);
        }
        sync_all(w);
        for (i = 0; i < KEYS; ++i) {
            byte = byte_of(store, cache, &keys[i]);
            CHECK(w, byte == round, "round %d, key %u: %d", round, i, byte);
        }
    }
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}

/* ---- ranks that do not reply ---- */

static const uint64_t limit = 400 * KVCL_NS_PER_MS;

/* Rank 0, while the others are stopped: whether an upsert and a query for statistics waited for them once each. */
static bool query_silent(world_t *w, kvcl_store_h store, kvcl_cache_h cache, const kvcl_key_t *keys, char *how,
                         size_t room)
{
    uint64_t           begun = kvcl_now_ns(), upsert_ns, stats_ns;
    kvcl_store_stats_t stats[64];
    kvcl_status_t      status[64];
    unsigned           silent = 0;
    int                i;

    put(w, store, cache, keys, 1, true); /* the keys' home is here, so nothing else waits */
    upsert_ns = kvcl_now_ns() - begun;
    begun     = kvcl_now_ns();
    CHECK(w, kvcl_store_all_stats(store, (size_t)w->size, stats, sizeof(stats[0]), status, NULL) == KVCL_OK,
          "statistics");
    stats_ns  = kvcl_now_ns() - begun;
    for (i = 0; i < w->size; ++i) {
        silent += (status[i] == KVCL_ERR_TIMED_OUT) ? 1 : 0;
        CHECK(w, (status[i] == KVCL_OK) || (stats[i].pool_blocks == 0), "numbers of a silent rank");
    }
    snprintf(how, room, "%u ranks silent, upsert %llu ms, statistics %llu ms", silent,
             (unsigned long long)(upsert_ns / KVCL_NS_PER_MS), (unsigned long long)(stats_ns / KVCL_NS_PER_MS));
    return (silent == (unsigned)w->size - 1) && (upsert_ns < (2 * limit) - (limit / 4)) &&
           (stats_ns < (2 * limit) - (limit / 4));
}

/* All ranks but the first are stopped. An upsert, and a query for statistics, each cost one timeout in total, not one
 * per rank. On a busy machine several attempts may be needed to measure that. */
void test_silent_ranks(world_t *w)
{
    enum { ATTEMPTS = 8 };
    kvcl_cache_h       cache = make_cache(w, "silent", KEYS + 1, false);
    kvcl_store_h       store = open_with_pool(w, POOL, NULL);
    uint64_t           usual = w->ctx->config.timeout_ns, once = 0;
    char               how[128] = "";
    kvcl_key_t         keys[KEYS];
    kvcl_store_stats_t stats[64];
    kvcl_status_t      status[64];
    kvcl_req_h         req;
    int                i, attempt;

    keys_of_home_0(store, "silent", 0, keys);
    CHECK(w, kvcl_store_all_stats(store, (size_t)w->size, stats, sizeof(stats[0]), status, NULL) == KVCL_OK,
          "statistics");
    for (i = 0; i < w->size; ++i) {
        CHECK(w, (status[i] == KVCL_OK) && (stats[i].pool_blocks == POOL), "rank %d: %d", i, status[i]);
    }
    CHECK(w, kvcl_store_all_stats(store, (size_t)w->size + 1, stats, sizeof(stats[0]), status,
                                  NULL) == KVCL_ERR_INVALID_PARAM, "too many");
    for (attempt = 0; (attempt < ATTEMPTS) && (once == 0); ++attempt) {
        sync_all(w);
        if (w->rank != 0) {
            kvcl_lock(w->ctx);
            nap(4 * limit);
            kvcl_unlock(w->ctx);
        } else {
            nap(limit / 4);
            w->ctx->config.timeout_ns = limit;
            once                      = query_silent(w, store, cache, keys, how, sizeof(how)) ? 1 : 0;
            w->ctx->config.timeout_ns = usual;
        }
        CHECK(w, DO(kvcl_bcast_bytes(w->comm, 0, &once, sizeof(once), NULL, &req)) == KVCL_OK, "bcast");
    }
    CHECK(w, once == 1, "%s", how);
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}
