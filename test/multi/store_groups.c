/*
 * The common prefix of a group of ranks: match_all over the store's communicator and over halves of it.
 */
#include "store_test.h"

enum { KEYS = 32 };

/* Publish the first n blocks of the next rank's slice of a prompt, so that each slice is held by another rank. */
static void publish_for_next(world_t *w, kvcl_store_h store, kvcl_cache_h cache, uint32_t n)
{
    int        next = (w->rank + 1) % w->size;
    uint32_t   ids[KEYS], i;
    kvcl_key_t keys[KEYS];
    kvcl_req_h req;

    for (i = 0; i < n; ++i) {
        keys[i] = key_of("slice", (uint64_t)next, i);
        ids[i]  = i;
        fill(cache, i, &keys[i]);
    }
    CHECK(w, DO(kvcl_store_publish(store, keys, n, cache, ids, NULL, &req)) == KVCL_OK, "publish");
}

/* Rank r has 8 + 5 r mod 17 blocks of its slice, so the minimum of a group follows from its ranks. */
static uint32_t run_of(int rank)
{
    return 8 + ((5u * (unsigned)rank) % 17);
}

static size_t least_of(const int *ranks, int n)
{
    size_t least = KEYS;
    int    i;

    for (i = 0; i < n; ++i) {
        least = (run_of(ranks[i]) < least) ? run_of(ranks[i]) : least;
    }
    return least;
}

void test_match_all(world_t *w)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_cache_h        cache  = make_cache(w, "groups", KEYS, false);
    kvcl_key_t          keys[KEYS];
    int                 all[64], half[64], n_half = 0, i;
    kvcl_comm_h         group;
    kvcl_store_h        store;
    size_t              hit = 99;

    params.dir_entries = 4096;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    for (i = 0; i < KEYS; ++i) {
        keys[i] = key_of("slice", (uint64_t)w->rank, (uint64_t)i);
    }
    for (i = 0; i < w->size; ++i) {
        all[i] = i;
        if (i % 2 == w->rank % 2) {
            half[n_half++] = i;
        }
    }
    publish_for_next(w, store, cache, run_of((w->rank + 1) % w->size));
    sync_all(w);
    CHECK(w, kvcl_store_match_all(store, NULL, keys, KEYS, &hit, NULL) == KVCL_OK, "match_all");
    CHECK(w, hit == least_of(all, w->size), "all have %zu, not %zu", hit, least_of(all, w->size));
    CHECK(w, kvcl_store_match_all(store, w->comm, keys, 3, &hit, NULL) == KVCL_OK, "match_all");
    CHECK(w, hit == 3, "of three keys all have %zu", hit);
    KVCL_TRY(kvcl_comm_create(w->comm, half, n_half, &group));
    CHECK(w, kvcl_store_match_all(store, group, keys, KEYS, &hit, NULL) == KVCL_OK, "match_all of a half");
    CHECK(w, hit == least_of(half, n_half), "the half has %zu, not %zu", hit, least_of(half, n_half));
    if (w->size > 1) { /* one rank's error is returned on every rank */
        kvcl_status_t status = kvcl_store_match_all(store, NULL, (w->rank == 1) ? NULL : keys, KEYS, &hit, NULL);
        CHECK(w, status == KVCL_ERR_INVALID_PARAM, "rank 1 gave no keys: %s", kvcl_status_text(status));
    }
    kvcl_comm_free(group);
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}
