/*
 * Tenants' handles over several ranks: blocks and values that one rank puts for a tenant are the tenant's on every rank
 * with the same secret, in gets, lists and the statistics of all ranks, and of no other handle. In the second test one
 * rank has a pool, into which the others put.
 */
#include "store_test.h"
#include <kvcl/kvcl_store_admin.h>
#include <kvcl/kvcl_store_events.h>
#include <kvcl/kvcl_store_value.h>

#include <stdlib.h>

enum { KEYS = 40, NUMBER = 5, LONG = 70000 };

typedef struct tenants {
    kvcl_store_h store, a, b; /* b: another secret */
    kvcl_key_t   keys[KEYS];
} tenants_t;

static void open_tenants(kvcl_store_h store, tenants_t *t)
{
    static const char secrets[2][32] = {"secret of the first tenant", "secret of the second tenant"};
    uint64_t          i;

    t->store = store;
    KVCL_TRY(kvcl_store_tenant(store, NUMBER, secrets[0], sizeof(secrets[0]), &t->a));
    KVCL_TRY(kvcl_store_tenant(store, NUMBER + 1, secrets[1], sizeof(secrets[1]), &t->b));
    for (i = 0; i < KEYS; ++i) {
        t->keys[i] = key_of("tenant", 0, i);
    }
}

static size_t got(world_t *w, kvcl_store_h by, kvcl_cache_h cache, const tenants_t *t)
{
    uint32_t   id = 0, i;
    size_t     n  = 0;
    kvcl_req_h req;

    for (i = 0; i < KEYS; ++i) {
        if (DO(kvcl_store_get(by, &t->keys[i], 1, cache, &id, NULL, NULL, &req)) == KVCL_OK) {
            CHECK(w, holds(cache, id, &t->keys[i]), "bytes of block %u", i);
            ++n;
        }
    }
    return n;
}

/* Blocks that a rank lists, and how many have keys of t. */
static size_t listed(kvcl_store_h by, int rank, const tenants_t *t, size_t *known_p)
{
    kvcl_store_item_t items[16];
    uint64_t          cursor = 0;
    size_t            all = 0, n, i, k;

    do {
        KVCL_TRY(kvcl_store_list(by, rank, &cursor, items, sizeof(items[0]), 16, &n, NULL, NULL));
        for (i = 0; i < n; ++i) {
            for (k = 0; (k < KEYS) && !kvcl_key_equal(&items[i].key, &t->keys[k]); ++k) {
            }
            *known_p += (k < KEYS) ? 1 : 0;
        }
        all += n;
    } while (cursor != 0);
    return all;
}

/* Every rank checks what exists: each of the keys in `copies` copies. */
static void check_everywhere(world_t *w, kvcl_cache_h cache, const tenants_t *t, size_t copies)
{
    kvcl_store_stats_t *stats  = calloc((size_t)w->size, sizeof(*stats));
    kvcl_status_t      *status = calloc((size_t)w->size, sizeof(*status));
    size_t             known = 0, foreign = 0, all = 0, n = 99;
    uint64_t           blocks[2] = {0, 0};
    int                rank;

    CHECK(w, got(w, t->a, cache, t) == KEYS, "gets by the tenant");
    CHECK(w, got(w, t->b, cache, t) == 0, "gets by another tenant");
    CHECK(w, got(w, t->store, cache, t) == 0, "gets by the store's handle");
    KVCL_TRY(kvcl_store_match_all(t->a, NULL, t->keys, KEYS, &n, NULL));
    CHECK(w, n == KEYS, "match_all by the tenant: %zu", n);
    KVCL_TRY(kvcl_store_match_all(t->b, NULL, t->keys, KEYS, &n, NULL));
    CHECK(w, n == 0, "match_all by another tenant: %zu", n);
    for (rank = 0; rank < w->size; ++rank) {
        all += listed(t->a, rank, t, &known);
        CHECK(w, listed(t->b, rank, t, &foreign) == 0, "rank %d lists blocks to another tenant", rank);
        (void)listed(t->store, rank, t, &foreign);
    }
    CHECK(w, (all == copies * KEYS) && (known == all), "%zu blocks are listed, %zu known", all, known);
    CHECK(w, foreign == 0, "%zu keys of the tenant are listed to others", foreign);
    KVCL_TRY(kvcl_store_all_stats(t->a, (size_t)w->size, stats, sizeof(*stats), status, NULL));
    for (rank = 0; rank < w->size; ++rank) {
        blocks[0] += stats[rank].blocks;
    }
    KVCL_TRY(kvcl_store_all_stats(t->b, (size_t)w->size, stats, sizeof(*stats), status, NULL));
    for (rank = 0; rank < w->size; ++rank) {
        blocks[1] += stats[rank].blocks;
    }
    CHECK(w, (blocks[0] == copies * KEYS) && (blocks[1] == 0), "statistics count %llu and %llu blocks",
          (unsigned long long)blocks[0], (unsigned long long)blocks[1]);
    free(stats);
    free(status);
}

static void put_keys(world_t *w, kvcl_store_h by, kvcl_cache_h cache, const tenants_t *t, uint64_t copies)
{
    kvcl_xfer_params_t p = KVCL_XFER_PARAMS_INIT;
    uint32_t           id = 0, i;
    kvcl_req_h         req;

    p.replicas = copies;
    for (i = 0; i < KEYS; ++i) {
        fill(cache, id, &t->keys[i]);
        CHECK(w, DO(kvcl_store_put(by, &t->keys[i], 1, cache, &id, &p, &req)) == KVCL_OK, "put of block %u: %s", i,
              kvcl_last_error());
    }
}

/* A value with parts: put by one rank, got by all, and by its tenant alone. */
static void check_value(world_t *w, const tenants_t *t, int putter)
{
    static char   value[LONG], back[LONG];
    kvcl_key_t    key = key_of("a tenant's value", 0, 0);
    kvcl_status_t status;
    kvcl_req_h    req;

    memset(value, 0x33, sizeof(value));
    memset(back, 0, sizeof(back));
    if (w->rank == putter) {
        CHECK(w, DO(kvcl_store_put_value(t->a, &key, value, LONG, NULL, &req)) == KVCL_OK, "put of a value: %s",
              kvcl_last_error());
    }
    sync_all(w);
    status = DO(kvcl_store_get_value(t->a, &key, back, LONG, NULL, &req));
    CHECK(w, (status == KVCL_OK) && (memcmp(value, back, LONG) == 0), "get of a value: %s", kvcl_last_error());
    CHECK(w, DO(kvcl_store_get_value(t->b, &key, back, LONG, NULL, &req)) == KVCL_ERR_NOT_FOUND, "by another tenant");
    CHECK(w, DO(kvcl_store_get_value(t->store, &key, back, LONG, NULL, &req)) == KVCL_ERR_NOT_FOUND, "by the store");
    sync_all(w);
    if (w->rank == w->size - 1) {
        CHECK(w, kvcl_store_remove_values(t->a, &key, 1, NULL) == KVCL_OK, "removal of a value");
    }
    sync_all(w);
    CHECK(w, DO(kvcl_store_get_value(t->a, &key, back, LONG, NULL, &req)) == KVCL_ERR_NOT_FOUND, "a removed value");
    sync_all(w);
}

static void finish(world_t *w, tenants_t *t, kvcl_cache_h cache)
{
    uint64_t removed = 99;

    if (w->rank == w->size - 1) {
        CHECK(w, kvcl_store_clear(t->b, 0, &removed, NULL) == KVCL_OK, "clear by another tenant");
        CHECK(w, removed == 0, "another tenant removed %llu blocks", (unsigned long long)removed);
        CHECK(w, kvcl_store_clear(t->a, NUMBER, &removed, NULL) == KVCL_OK, "clear");
        CHECK(w, removed >= KEYS, "the tenant removed %llu blocks", (unsigned long long)removed);
    }
    sync_all(w);
    CHECK(w, got(w, t->a, cache, t) == 0, "gets after a clear");
    sync_all(w);
    kvcl_store_close(t->a);
    kvcl_store_close(t->store); /* ends t->b as well */
    kvcl_cache_destroy(cache);
}

void test_tenant_handles(world_t *w)
{
    kvcl_cache_h cache  = make_cache(w, "tenant handles", 1, false);
    uint64_t     copies = (w->size > 1) ? 2 : 1;
    tenants_t    t;

    open_tenants(open_with_pool(w, 512, NULL), &t);
    sync_all(w);
    if (w->rank == 0) {
        put_keys(w, t.a, cache, &t, copies);
    }
    sync_all(w);
    check_everywhere(w, cache, &t, copies);
    sync_all(w);
    check_value(w, &t, 0);
    finish(w, &t, cache);
}

void test_tenant_far(world_t *w)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_cache_h        cache  = make_cache(w, "tenants far", 1, false);
    kvcl_store_h        store;
    tenants_t           t;

    params.dir_entries = 8192;
    params.dram_bytes  = (w->rank == 0) ? 512 * BLOCK : 0;
    params.block_bytes = (w->rank == 0) ? BLOCK : 0;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    open_tenants(store, &t);
    sync_all(w);
    if (w->rank == w->size - 1) {
        put_keys(w, t.a, cache, &t, 1);
    }
    sync_all(w);
    check_everywhere(w, cache, &t, 1);
    sync_all(w);
    check_value(w, &t, w->size - 1);
    finish(w, &t, cache);
}
