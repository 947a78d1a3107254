/*
 * Administration of a store: pins, quotas of tenants, waits for room, upserts, removal of all blocks of a tenant.
 */
#include "store_test.h"

enum { POOL = 16 };

static kvcl_store_h open_store(world_t *w, uint64_t replicas)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_store_h        store;

    params.dir_entries = 4096;
    params.dram_bytes  = POOL * BLOCK;
    params.block_bytes = BLOCK;
    params.replicas    = replicas;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    return store;
}

/* Put this rank's keys number first to first + n with params. */
static kvcl_status_t put(world_t *w, kvcl_store_h store, kvcl_cache_h cache, const char *what, uint32_t first,
                         uint32_t n, const kvcl_xfer_params_t *p)
{
    kvcl_key_t keys[POOL];
    uint32_t   ids[POOL], i;
    kvcl_req_h req;

    for (i = 0; i < n; ++i) {
        keys[i] = key_of(what, (uint64_t)w->rank, first + i);
        ids[i]  = i;
        fill(cache, i, &keys[i]);
    }
    return DO(kvcl_store_put(store, keys, n, cache, ids, p, &req));
}

static unsigned count_now(kvcl_store_h store, const char *what, int rank, uint32_t first, uint32_t n)
{
    kvcl_key_t key;
    uint8_t    present;
    unsigned   found = 0;
    uint32_t   i;

    for (i = 0; i < n; ++i) {
        key = key_of(what, (uint64_t)rank, first + i);
        KVCL_TRY(kvcl_store_exists(store, &key, 1, &present, NULL));
        found += present;
    }
    return found;
}

/* How many of a rank's keys are found. Wait until homes know of the removals: until at most `want` are found. */
static unsigned count(kvcl_store_h store, const char *what, int rank, uint32_t first, uint32_t n, unsigned want)
{
    uint64_t until = 0;
    unsigned found;

    while (((found = count_now(store, what, rank, first, n)) > want) && keep_waiting(&until)) {
    }
    return found;
}

/* ---- pins ---- */

static void pin_of(world_t *w, kvcl_store_h store, int rank, uint64_t ttl_ns, uint64_t flags)
{
    kvcl_key_t keys[4];
    uint8_t    copies[4];
    uint32_t   i;

    for (i = 0; i < 4; ++i) {
        keys[i] = key_of("pins", (uint64_t)rank, i);
    }
    CHECK(w, kvcl_store_pin(store, keys, 4, 77, ttl_ns, flags, copies, NULL) == KVCL_OK, "pin");
    CHECK(w, (copies[0] == 1) && (copies[3] == 1), "%u and %u copies", copies[0], copies[3]);
}

/* The limit of hard pins counts blocks, not holders; holders have a limit of their own. */
static void many_holders(world_t *w, kvcl_store_h store, kvcl_cache_h cache)
{
    const uint64_t minute = 60000000000u;
    kvcl_key_t     key    = key_of("many", (uint64_t)w->rank, 0);
    kvcl_status_t  status;
    uint64_t       holder;

    CHECK(w, put(w, store, cache, "many", 0, 1, NULL) == KVCL_OK, "put");
    for (holder = 1; holder <= 2 * POOL; ++holder) {
        CHECK(w, kvcl_store_pin(store, &key, 1, holder, minute, 0, NULL, NULL) == KVCL_OK, "holder %u",
              (unsigned)holder);
    }
    do {
        status = kvcl_store_pin(store, &key, 1, holder, minute, KVCL_PIN_SOFT, NULL, NULL);
    } while ((status == KVCL_OK) && (holder++ < 5000));
    CHECK(w, (status == KVCL_ERR_NO_SPACE) && (holder == 1025), "%u holders: %s", (unsigned)holder,
          kvcl_status_text(status));
    sync_all(w);
}

void test_pins(world_t *w)
{
    const uint64_t     minute = 60000000000u;
    kvcl_cache_h       cache  = make_cache(w, "pins", POOL, false);
    kvcl_store_h       store  = open_store(w, 1);
    int                next   = (w->rank + 1) % w->size;
    kvcl_xfer_params_t p      = KVCL_XFER_PARAMS_INIT;
    kvcl_key_t         keys[4], nowhere = key_of("nowhere", 1, 1);
    kvcl_req_h         req;
    uint64_t           begun;
    uint32_t           i, round;

    CHECK(w, put(w, store, cache, "pins", 0, 8, NULL) == KVCL_OK, "put");
    sync_all(w);
    pin_of(w, store, next, minute, 0);
    CHECK(w, kvcl_store_pin(store, &nowhere, 1, 77, minute, 0, NULL, NULL) == KVCL_ERR_NOT_FOUND, "pin of nothing");
    CHECK(w, kvcl_store_pin(store, &nowhere, 1, 77, 0, 0, NULL, NULL) == KVCL_ERR_INVALID_PARAM, "no time");
    sync_all(w);
    for (round = 0; round < 6; ++round) { /* enough to replace the whole pool, in any order of eviction */
        CHECK(w, put(w, store, cache, "pins", 100 + (round * 12), 12, NULL) == KVCL_OK, "put in round %u", round);
    }
    sync_all(w);
    CHECK(w, count(store, "pins", next, 0, 4, 4) == 4, "pinned blocks of rank %d are gone", next);
    CHECK(w, count(store, "pins", next, 4, 4, 0) == 0, "blocks of rank %d that are not pinned are there", next);
    CHECK(w, put(w, store, cache, "pins", 200, 13, NULL) == KVCL_ERR_NO_SPACE, "13 beside 4 of 16");
    p.flags      = KVCL_PUT_WAIT;
    p.timeout_ns = 50000000;
    begun        = kvcl_now_ns();
    CHECK(w, put(w, store, cache, "pins", 200, 13, &p) == KVCL_ERR_NO_SPACE, "nobody makes room");
    CHECK(w, kvcl_now_ns() - begun >= 50000000, "it did not wait");
    sync_all(w);
    pin_of(w, store, next, 200000000, 0); /* renewed, for less */
    p.timeout_ns = 20000000000u;
    CHECK(w, put(w, store, cache, "pins", 200, 13, &p) == KVCL_OK, "the pins have expired");
    sync_all(w);
    /* Soft pins are overridden, but only if nothing else can be evicted. */
    for (i = 0; i < 4; ++i) {
        keys[i] = key_of("soft", (uint64_t)next, i);
    }
    CHECK(w, put(w, store, cache, "soft", 0, 8, NULL) == KVCL_OK, "put");
    sync_all(w);
    CHECK(w, kvcl_store_pin(store, keys, 4, 5, minute, KVCL_PIN_SOFT, NULL, NULL) == KVCL_OK, "soft pins");
    sync_all(w);
    for (round = 0; round < 6; ++round) {
        CHECK(w, put(w, store, cache, "soft", 100 + (round * 12), 12, NULL) == KVCL_OK, "put in round %u", round);
    }
    sync_all(w);
    CHECK(w, count(store, "soft", next, 0, 4, 4) == 4, "soft pins gave way too early");
    sync_all(w);
    CHECK(w, put(w, store, cache, "soft", 200, 14, NULL) == KVCL_OK, "14 of 16, two soft pins give way");
    sync_all(w);
    CHECK(w, count(store, "soft", next, 0, 4, 2) == 2, "%u soft pins are left", count_now(store, "soft", next, 0, 4));
    sync_all(w);
    CHECK(w, kvcl_store_unpin(store, keys, 4, 5, NULL) == KVCL_OK, "unpin");
    many_holders(w, store, cache);
    CHECK(w, DO(kvcl_store_remove(store, keys, 4, NULL, &req)) == KVCL_OK, "remove");
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}

/* ---- tenants ---- */

static void quotas(world_t *w, kvcl_store_h store, kvcl_cache_h cache)
{
    kvcl_xfer_params_t seven = KVCL_XFER_PARAMS_INIT, nine = KVCL_XFER_PARAMS_INIT;
    uint32_t           i;

    seven.tenant = 7;
    nine.tenant  = 9;
    if (w->rank == 0) {
        CHECK(w, kvcl_store_quota(store, -1, 7, (6 * BLOCK) + 5, NULL) == KVCL_OK, "quota");
        CHECK(w, kvcl_store_quota(store, -1, 0, 1, NULL) == KVCL_ERR_INVALID_PARAM, "of nobody");
        CHECK(w, kvcl_store_quota(store, w->size, 7, 1, NULL) == KVCL_ERR_UNKNOWN_RANK, "rank");
    }
    sync_all(w);
    for (i = 0; i < 10; ++i) {
        CHECK(w, put(w, store, cache, "seven", i, 1, &seven) == KVCL_OK, "put of tenant 7");
    }
    CHECK(w, count(store, "seven", w->rank, 0, 4, 0) == 0, "beyond the quota");
    CHECK(w, count(store, "seven", w->rank, 4, 6, 6) == 6, "within the quota");
    CHECK(w, put(w, store, cache, "seven", 20, 7, &seven) == KVCL_ERR_NO_SPACE, "seven of six");
    for (i = 0; i < 3; ++i) {
        CHECK(w, put(w, store, cache, "nine", i * 10, 10, &nine) == KVCL_OK, "put of tenant 9");
    }
    CHECK(w, put(w, store, cache, "seven", 10, 6, &seven) == KVCL_OK, "all its own once more");
    CHECK(w, count(store, "nine", w->rank, 20, 10, 10) == 10, "tenant 7 has pushed tenant 9 out");
    sync_all(w);
    if (w->rank == w->size - 1) {
        CHECK(w, kvcl_store_quota(store, -1, 7, 2 * BLOCK, NULL) == KVCL_OK, "a lower quota");
    }
    sync_all(w);
    CHECK(w, put(w, store, cache, "nobody", 0, 4, NULL) == KVCL_OK, "put of nobody");
    CHECK(w, count(store, "seven", w->rank, 10, 6, 2) == 2, "tenant 7 has %u",
          count_now(store, "seven", w->rank, 10, 6));
    CHECK(w, count(store, "nine", w->rank, 20, 10, 10) == 10, "tenant 9 had to pay for tenant 7");
    sync_all(w);
}

/* Tenant 7 may have two blocks; a put of three waits until the quota is raised. */
static void raised(world_t *w, kvcl_store_h store, kvcl_cache_h cache)
{
    kvcl_xfer_params_t seven = KVCL_XFER_PARAMS_INIT;
    uint64_t           begun = kvcl_now_ns();

    if (w->rank == 1) {
        seven.tenant     = 7;
        seven.flags      = KVCL_PUT_WAIT;
        seven.timeout_ns = 60000000000u;
        CHECK(w, put(w, store, cache, "raised", 0, 3, &seven) == KVCL_OK, "put");
        CHECK(w, kvcl_now_ns() - begun < 30000000000u, "the quota was raised, and it waited on");
    } else if (w->rank == 0) {
        nap(100000000);
        CHECK(w, kvcl_store_quota(store, -1, 7, 3 * BLOCK, NULL) == KVCL_OK, "a higher quota");
    }
    sync_all(w);
}

void test_tenants(world_t *w)
{
    kvcl_cache_h      cache = make_cache(w, "tenants", POOL, false);
    kvcl_store_h      store = open_store(w, 1);
    kvcl_store_item_t items[POOL];
    uint64_t          cursor = 0, removed = 0;
    size_t            n = 0, i, of_nine = 0;

    quotas(w, store, cache);
    CHECK(w, (kvcl_store_list(store, w->rank, &cursor, items, sizeof(*items), POOL, &n, NULL, NULL) == KVCL_OK) &&
          (n == POOL),
          "%zu listed",
          n);
    for (i = 0; i < n; ++i) {
        of_nine += (items[i].tenant == 9) ? 1 : 0;
    }
    CHECK(w, of_nine == 10, "%zu are listed as tenant 9's", of_nine);
    sync_all(w);
    if (w->rank == 0) {
        CHECK(w, kvcl_store_clear(store, 9, &removed, NULL) == KVCL_OK, "clear");
        CHECK(w, removed == 10u * (unsigned)w->size, "%llu of tenant 9", (unsigned long long)removed);
    }
    sync_all(w);
    CHECK(w, count(store, "nine", w->rank, 20, 10, 0) == 0, "tenant 9 has something left");
    CHECK(w, count(store, "nobody", w->rank, 0, 4, 4) == 4, "others have nothing left");
    sync_all(w);
    if (w->rank == 0) {
        CHECK(w, kvcl_store_clear(store, 0, &removed, NULL) == KVCL_OK, "clear all");
        CHECK(w, removed == 6u * (unsigned)w->size, "%llu in all", (unsigned long long)removed);
    }
    sync_all(w);
    CHECK(w, count(store, "nobody", w->rank, 0, 4, 0) == 0, "something is left");
    sync_all(w);
    raised(w, store, cache);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}

/* ---- upserts ---- */

void test_upsert(world_t *w)
{
    enum { ROUNDS = 12 };
    kvcl_cache_h cache = make_cache(w, "upsert", 2, false);
    kvcl_store_h store = open_store(w, (w->size > 1) ? 2 : 1);
    kvcl_key_t   key = key_of("upsert", 0, 0), bytes;
    uint32_t     id = 0, to = 1, round;
    kvcl_req_h   req;

    for (round = 0; round < ROUNDS; ++round) {
        bytes = key_of("content", 0, round);
        if (w->rank == (int)(round % (unsigned)w->size)) {
            fill(cache, 0, &bytes);
            CHECK(w, DO(kvcl_store_upsert(store, &key, 1, cache, &id, NULL, &req)) == KVCL_OK, "upsert");
        }
        sync_all(w);
        CHECK(w, DO(kvcl_store_get(store, &key, 1, cache, &to, NULL, NULL, &req)) == KVCL_OK, "get in round %u", round);
        CHECK(w, holds(cache, to, &bytes), "old bytes in round %u", round);
        sync_all(w);
    }
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}

/* All four locations that the directory has for a key are taken, so a put's copy of it is listed nowhere. An upsert
 * removes that copy too. */
void test_upsert_unlisted(world_t *w)
{
    enum { LISTED = 4 };
    kvcl_cache_h cache = make_cache(w, "unlisted", LISTED + 2, false);
    kvcl_store_h store = open_store(w, 1);
    kvcl_key_t   key   = key_of("unlisted", 0, 0), other = key_of("unlisted", 0, 1), keys[LISTED];
    uint32_t     ids[LISTED], id = LISTED, to = LISTED + 1, i;
    int          round;
    kvcl_req_h   req;

    for (round = 0; round < 2; ++round) { /* the copy that is not listed: this one, the last rank's */
        if (w->rank == 0) {
            for (i = 0; i < LISTED; ++i) {
                keys[i] = key;
                ids[i]  = i;
                fill(cache, i, &key);
            }
            CHECK(w, DO(kvcl_store_publish(store, keys, LISTED, cache, ids, NULL, &req)) == KVCL_OK, "publish");
        }
        sync_all(w);
        if (w->rank == ((round == 0) ? 0 : w->size - 1)) {
            fill(cache, id, &key);
            CHECK(w, DO(kvcl_store_put(store, &key, 1, cache, &id, NULL, &req)) == KVCL_OK, "put");
        }
        sync_all(w);
        if (w->rank == 0) {
            fill(cache, id, &other);
            CHECK(w, DO(kvcl_store_upsert(store, &key, 1, cache, &id, NULL, &req)) == KVCL_OK, "upsert");
        }
        sync_all(w);
        CHECK(w, DO(kvcl_store_get(store, &key, 1, cache, &to, NULL, NULL, &req)) == KVCL_OK, "get in round %d", round);
        CHECK(w, holds(cache, to, &other), "old bytes in round %d", round);
        sync_all(w);
        CHECK(w, (w->rank != 0) || (DO(kvcl_store_remove(store, &key, 1, NULL, &req)) == KVCL_OK), "remove");
        CHECK(w, vanished(store, &key, 1), "a removed key is listed");
        sync_all(w);
    }
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}

/* A refused upsert has removed nothing. */
void test_upsert_refused(world_t *w)
{
    kvcl_cache_h       cache = make_cache(w, "refused", POOL + 2, false);
    kvcl_store_h       store = open_store(w, 1);
    kvcl_xfer_params_t p     = KVCL_XFER_PARAMS_INIT;
    kvcl_key_t         keys[POOL + 1];
    uint32_t           ids[POOL + 1], to = POOL + 1, i;
    kvcl_req_h         req;

    for (i = 0; i <= POOL; ++i) {
        keys[i] = key_of("refused", (uint64_t)w->rank, i);
        ids[i]  = i;
        fill(cache, i, &keys[i]);
    }
    CHECK(w, DO(kvcl_store_put(store, keys, 1, cache, ids, NULL, &req)) == KVCL_OK, "put");
    p.replicas = 5;
    CHECK(w, DO(kvcl_store_upsert(store, keys, 1, cache, ids, &p, &req)) == KVCL_ERR_INVALID_PARAM, "replicas");
    i = POOL + 2;
    CHECK(w, DO(kvcl_store_upsert(store, keys, 1, cache, &i, NULL, &req)) == KVCL_ERR_OUT_OF_RANGE, "block number");
    CHECK(w, DO(kvcl_store_upsert(store, keys, POOL + 1, cache, ids, NULL, &req)) == KVCL_ERR_NO_SPACE,
          "more than the pool holds");
    CHECK(w, (DO(kvcl_store_get(store, keys, 1, cache, &to, NULL, NULL, &req)) == KVCL_OK) &&
             holds(cache, to, &keys[0]), "a refused upsert took the block away");
    CHECK(w, (DO(kvcl_store_upsert(store, keys, POOL, cache, ids, NULL, &req)) == KVCL_OK), "as many as fit");
    CHECK(w, (DO(kvcl_store_get(store, keys, 1, cache, &to, NULL, NULL, &req)) == KVCL_OK) &&
             holds(cache, to, &keys[0]), "get");
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}
