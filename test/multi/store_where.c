/*
 * kvcl_store_where: the ranks and tiers of copies, as the puts and withdrawals of all ranks make them.
 */
#include "store_test.h"

#include <kvcl/kvcl_store_events.h>

enum { EACH = 20, POOL = 256 };

static void list_keys(const world_t *w, const char *what, kvcl_key_t *keys)
{
    int r, i;

    for (r = 0; r < w->size; ++r) {
        for (i = 0; i < EACH; ++i) {
            keys[(r * EACH) + i] = key_of(what, (uint64_t)r, (uint64_t)i);
        }
    }
}

/* Both forms give the same. */
static void locate(world_t *w, kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_store_places_t *places)
{
    kvcl_store_places_t *again = malloc(n * sizeof(*again));
    kvcl_req_h          req;

    memset(places, 0xee, n * sizeof(*places));
    memset(again, 0x11, n * sizeof(*again));
    CHECK(w, kvcl_store_where(store, keys, n, places, sizeof(*places), NULL) == KVCL_OK, "where");
    CHECK(w, DO(kvcl_store_where_post(store, keys, n, again, sizeof(*again), NULL, &req)) == KVCL_OK, "where_post");
    CHECK(w, memcmp(places, again, n * sizeof(*again)) == 0, "the two forms differ");
    free(again);
}

/* An excluded rank's copies are said to be suspect; its own table is not read. */
static void excluded(world_t *w, kvcl_store_h store, const kvcl_key_t *keys, kvcl_store_places_t *places)
{
    const int other = (w->rank + 1) % w->size;
    int       i, found = 0;

    CHECK(w, kvcl_store_exclude(store, other, 1) == KVCL_OK, "exclude");
    locate(w, store, keys, (size_t)w->size * EACH, places);
    for (i = 0; i < w->size * EACH; ++i) {
        CHECK(w, (places[i].n == 0) ||
                     (places[i].at[0].state == ((i / EACH == other) ? KVCL_RANK_SUSPECT : KVCL_RANK_ALIVE)),
              "key %d has state %u", i, places[i].at[0].state);
        found += ((places[i].n != 0) && (i / EACH == other)) ? 1 : 0;
    }
    CHECK(w, found != 0, "no home but the excluded rank");
    CHECK(w, kvcl_store_exclude(store, other, 0) == KVCL_OK, "include");
}

/* Blocks of each rank, published in place: one copy each, on the rank that published it. */
static void published(world_t *w, kvcl_store_h store, kvcl_cache_h cache)
{
    kvcl_key_t          *keys   = malloc(sizeof(*keys) * (size_t)w->size * EACH);
    kvcl_store_places_t *places = malloc(sizeof(*places) * (size_t)w->size * EACH);
    const kvcl_key_t    nowhere = key_of("nowhere", 0, 0);
    uint32_t            ids[EACH], i;
    kvcl_req_h          req;
    int                 r;

    list_keys(w, "published", keys);
    for (i = 0; i < EACH; ++i) {
        ids[i] = i;
        fill(cache, i, &keys[((uint32_t)w->rank * EACH) + i]);
    }
    CHECK(w, DO(kvcl_store_publish(store, &keys[w->rank * EACH], EACH, cache, ids, NULL, &req)) == KVCL_OK, "publish");
    sync_all(w);
    locate(w, store, keys, (size_t)w->size * EACH, places);
    for (r = 0; r < w->size; ++r) {
        for (i = 0; i < EACH; ++i) {
            const kvcl_store_places_t *p = &places[((uint32_t)r * EACH) + i];
            CHECK(w, (p->n == 1) && (p->reserved == 0) && (p->at[0].rank == r) &&
                         (p->at[0].tier == KVCL_STORE_TIER_CACHE) && (p->at[0].state == KVCL_RANK_ALIVE) &&
                         (p->at[0].bytes == BLOCK) && (p->at[1].bytes == 0),
                  "key %u of rank %d: %u copies, the first of rank %d, tier %u, %u bytes", i, r, p->n, p->at[0].rank,
                  p->at[0].tier, (unsigned)p->at[0].bytes);
        }
    }
    locate(w, store, &nowhere, 1, places);
    CHECK(w, (places[0].n == 0) && (places[0].at[0].bytes == 0), "%u copies of no block", places[0].n);
    CHECK(w, kvcl_store_where(store, keys, 0, NULL, sizeof(*places), NULL) == KVCL_OK, "no keys");
    sync_all(w);
    if (w->size > 1) {
        excluded(w, store, keys, places);
    }
    sync_all(w);
    CHECK(w, kvcl_store_withdraw(store, cache, ids, EACH) == KVCL_OK, "withdraw");
    CHECK(w, vanished(store, &keys[w->rank * EACH], EACH), "still listed");
    locate(w, store, &keys[w->rank * EACH], EACH, places);
    for (i = 0; i < EACH; ++i) {
        CHECK(w, places[i].n == 0, "key %u: %u copies of a withdrawn block", i, places[i].n);
    }
    sync_all(w);
    free(keys);
    free(places);
}

/* Of a key that this rank put, or another one: on two ranks, in their pools; this rank's own copy is the first. */
static void check_put(world_t *w, const kvcl_store_places_t *p, uint32_t key)
{
    const unsigned two = (w->size > 1) ? 2 : 1;
    bool           by  = false;
    uint32_t       j;

    CHECK(w, p->n == two, "key %u: %u copies", key, p->n);
    for (j = 0; j < p->n; ++j) {
        CHECK(w, (p->at[j].rank >= 0) && (p->at[j].rank < w->size) && (p->at[j].tier == KVCL_STORE_TIER_DRAM),
              "key %u: rank %d, tier %u", key, p->at[j].rank, p->at[j].tier);
        CHECK(w, (j == 0) || (p->at[j].rank != p->at[0].rank), "key %u: twice at rank %d", key, p->at[j].rank);
        CHECK(w, (j == 0) || (p->at[j].rank != w->rank), "key %u: this rank's copy is not the first", key);
        by = by || (p->at[j].rank == (int)(key / EACH));
    }
    CHECK(w, by, "key %u is not at the rank that put it", key);
}

static void put(world_t *w, kvcl_store_h store, kvcl_cache_h cache)
{
    kvcl_key_t          *keys   = malloc(sizeof(*keys) * (size_t)w->size * EACH);
    kvcl_store_places_t *places = malloc(sizeof(*places) * (size_t)w->size * EACH);
    kvcl_xfer_params_t  params  = KVCL_XFER_PARAMS_INIT;
    uint32_t            ids[EACH], i;
    kvcl_req_h          req;

    list_keys(w, "put", keys);
    for (i = 0; i < EACH; ++i) {
        ids[i] = i;
        fill(cache, i, &keys[((uint32_t)w->rank * EACH) + i]);
    }
    params.replicas = 2;
    CHECK(w, DO(kvcl_store_put(store, &keys[w->rank * EACH], EACH, cache, ids, &params, &req)) == KVCL_OK, "put");
    sync_all(w);
    locate(w, store, keys, (size_t)w->size * EACH, places);
    for (i = 0; i < (uint32_t)w->size * EACH; ++i) {
        check_put(w, &places[i], i);
    }
    sync_all(w);
    free(keys);
    free(places);
}

void test_where(world_t *w)
{
    kvcl_cache_h cache = make_cache(w, "where", EACH, false);
    kvcl_store_h store = open_with_pool(w, POOL, "");

    published(w, store, cache);
    put(w, store, cache);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}

/* A block that is in the pool and in the second tier has two places of one rank. */
void test_where_tier(world_t *w)
{
    enum { KEYS = 24 };
    kvcl_cache_h        cache = make_cache(w, "where_tier", KEYS, false);
    kvcl_store_h        store = open_with_pool(w, 32, tier_spec(w));
    kvcl_store_places_t places[KEYS];
    kvcl_key_t          keys[KEYS];
    uint32_t            ids[KEYS], i, n;
    uint64_t            until = 0;
    kvcl_req_h          req;

    for (i = 0; i < KEYS; ++i) {
        keys[i] = key_of("tiers", (uint64_t)w->rank, i);
        ids[i]  = i;
        fill(cache, i, &keys[i]);
    }
    CHECK(w, DO(kvcl_store_put(store, keys, KEYS, cache, ids, NULL, &req)) == KVCL_OK, "put");
    do { /* half of the pool becomes clean */
        CHECK(w, kvcl_store_where(store, keys, KEYS, places, sizeof(places[0]), NULL) == KVCL_OK, "where");
        for (i = 0, n = 0; i < KEYS; ++i) {
            CHECK(w, (places[i].n >= 1) && (places[i].n <= 2) && (places[i].at[0].rank == w->rank),
                  "key %u: %u copies", i, places[i].n);
            if (places[i].n == 2) {
                CHECK(w, (places[i].at[1].rank == w->rank) && (places[i].at[0].tier != places[i].at[1].tier) &&
                             (places[i].at[0].tier + places[i].at[1].tier ==
                              KVCL_STORE_TIER_DRAM + KVCL_STORE_TIER_NVME),
                      "key %u: tiers %u and %u", i, places[i].at[0].tier, places[i].at[1].tier);
                ++n;
            }
        }
    } while ((n == 0) && keep_waiting(&until));
    CHECK(w, n != 0, "no block is listed in the second tier");
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
    tier_unlink();
}
