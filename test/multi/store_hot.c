/*
 * Hot blocks (run_store.sh sets KVCL_STORE_HOT=3): a rank holds a block that it has got three times from a remote rank,
 * and does not hold one that it has got twice.
 */
#include "store_test.h"

enum { POOL = 16, KEYS = 8, HOT = 4 };

static size_t listed(kvcl_store_h store, int rank)
{
    kvcl_store_item_t items[2 * POOL];
    uint64_t          cursor = 0;
    size_t            n      = 0;

    KVCL_TRY(kvcl_store_list(store, rank, &cursor, items, sizeof(*items), 2 * POOL, &n, NULL, NULL));
    return n;
}

void test_hot(world_t *w)
{
    const char          *set   = getenv("KVCL_STORE_HOT");
    kvcl_cache_h        cache  = make_cache(w, "hot", KEYS + 1, false);
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_key_t          keys[KEYS];
    uint32_t            ids[KEYS], i, round;
    uint64_t            until = 0;
    kvcl_store_h        store;
    kvcl_req_h          req;

    params.dir_entries = 4096;
    params.dram_bytes  = POOL * BLOCK;
    params.block_bytes = BLOCK;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    for (i = 0; i < KEYS; ++i) {
        keys[i] = key_of("hot", 0, i);
        ids[i]  = i;
        fill(cache, i, &keys[i]);
    }
    if (w->rank == 0) {
        CHECK(w, DO(kvcl_store_put(store, keys, KEYS, cache, ids, NULL, &req)) == KVCL_OK, "put");
    }
    sync_all(w);
    for (round = 0; round < 3; ++round) {
        for (i = 0; i < ((round < 2) ? KEYS : HOT); ++i) {
            uint32_t to = KEYS;
            CHECK(w, DO(kvcl_store_get(store, &keys[i], 1, cache, &to, NULL, NULL, &req)) == KVCL_OK, "get");
            CHECK(w, holds(cache, to, &keys[i]), "bytes");
        }
    }
    if ((set != NULL) && (strcmp(set, "3") == 0) && (w->rank != 0)) {
        while ((listed(store, w->rank) < HOT) && keep_waiting(&until)) {
        }
        CHECK(w, listed(store, w->rank) == HOT, "%zu copies here", listed(store, w->rank));
        for (i = 0; i < HOT; ++i) {
            uint32_t to = KEYS;
            CHECK(w, DO(kvcl_store_get(store, &keys[i], 1, cache, &to, NULL, NULL, &req)) == KVCL_OK, "get of a copy");
            CHECK(w, holds(cache, to, &keys[i]), "bytes of a copy");
        }
    } else if (w->rank != 0) {
        CHECK(w, listed(store, w->rank) == 0, "nobody asked for copies");
    }
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}
