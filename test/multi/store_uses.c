/*
 * A block that other ranks get counts as used at its owner: rank 0 holds a full pool, rank 1 gets the older half of it,
 * then rank 0 puts more. Blocks that rank 1 got are not evicted.
 */
#include "store_test.h"

/* Notes of uses are sent at the end of a get, if there are 64 or more; MANY are more than one message has. */
enum { POOL = 128, USED = 64, MORE = 24, MANY = 1100 };

static void put_some(world_t *w, kvcl_store_h store, kvcl_cache_h cache, const kvcl_key_t *keys, unsigned n)
{
    uint32_t   id = 0;
    unsigned   i;
    kvcl_req_h req;

    for (i = 0; i < n; ++i) {
        fill(cache, id, &keys[i]);
        CHECK(w, DO(kvcl_store_put(store, &keys[i], 1, cache, &id, NULL, &req)) == KVCL_OK, "put");
    }
}

static void get_each(world_t *w, kvcl_store_h store, kvcl_cache_h cache, const kvcl_key_t *keys)
{
    uint32_t   id = 0;
    unsigned   i;
    kvcl_req_h req;

    for (i = 0; i < USED; ++i) {
        CHECK(w, DO(kvcl_store_get(store, &keys[i], 1, cache, &id, NULL, NULL, &req)) == KVCL_OK, "get");
        CHECK(w, holds(cache, id, &keys[i]), "bytes");
    }
}

static void get_together(world_t *w, kvcl_store_h store, kvcl_cache_h cache, const kvcl_key_t *keys)
{
    static kvcl_key_t all[MANY];
    static uint32_t   ids[MANY];
    unsigned          i;
    kvcl_req_h        req;

    for (i = 0; i < MANY; ++i) {
        all[i] = keys[i % USED];
        ids[i] = i;
    }
    CHECK(w, DO(kvcl_store_get(store, all, MANY, cache, ids, NULL, NULL, &req)) == KVCL_OK, "get");
    for (i = 0; i < MANY; ++i) {
        CHECK(w, holds(cache, i, &all[i]), "bytes");
    }
}

static void got_blocks_stay(world_t *w, bool together)
{
    kvcl_cache_h        cache  = make_cache(w, "uses", MANY, false);
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_key_t          keys[POOL + MORE];
    uint8_t             present[USED];
    unsigned            i, left = 0;
    kvcl_store_stats_t  stats = KVCL_STORE_STATS_INIT;
    kvcl_store_h        store;

    params.dir_entries = 4096;
    params.dram_bytes  = POOL * BLOCK;
    params.block_bytes = BLOCK;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    for (i = 0; i < POOL + MORE; ++i) {
        keys[i] = key_of("uses", together, i);
    }
    if (w->rank == 0) {
        put_some(w, store, cache, keys, POOL);
    }
    sync_all(w);
    if (w->rank == 1) {
        (together ? get_together : get_each)(w, store, cache, keys);
    }
    if (w->rank == 1) { /* a note of uses has no reply, but a message after it has */
        CHECK(w, kvcl_store_rank_stats(store, 0, &stats, NULL) == KVCL_OK, "stats of rank 0");
    }
    sync_all(w);
    if (w->rank == 0) {
        put_some(w, store, cache, keys + POOL, MORE);
        KVCL_TRY(kvcl_store_exists(store, keys, USED, present, NULL));
        for (i = 0; i < USED; ++i) {
            left += present[i];
        }
        CHECK(w, (w->size == 1) || (left == USED), "%u of %d blocks that another rank got are left", left, USED);
    }
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}

void test_uses(world_t *w)
{
    got_blocks_stay(w, false);
    got_blocks_stay(w, true);
}
