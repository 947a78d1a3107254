/*
 * The store over several ranks: mpirun -n N store [--seed S] [TEST...]. Every block's bytes follow from its key, and
 * every block that arrives is compared with them.
 */
#include "cache/cache.h"
#include "store_test.h"

#include <pthread.h>

kvcl_key_t key_of(const char *what, uint64_t owner, uint64_t i)
{
    kvcl_key_t key;
    char       name[96];
    int        len = snprintf(name, sizeof(name), "%s/%llu/%llu", what, (unsigned long long)owner,
                              (unsigned long long)i);

    kvcl_key_from_string(name, (size_t)len, &key);
    return key;
}

static void expected(const kvcl_key_t *key, uint64_t *words)
{
    kvcl_rand_t rnd;
    uint64_t    seed;
    unsigned    i;

    memcpy(&seed, key->bytes + 8, sizeof(seed));
    kvcl_rand_seed(&rnd, seed);
    for (i = 0; i < BLOCK / sizeof(*words); ++i) {
        words[i] = kvcl_rand_next(&rnd);
    }
}

void fill(kvcl_cache_h cache, uint32_t block, const kvcl_key_t *key)
{
    uint64_t words[BLOCK / sizeof(uint64_t)];

    expected(key, words);
    KVCL_TRY(kvcl_cache_write_block(cache, block, words, sizeof(words)));
}

bool holds(kvcl_cache_h cache, uint32_t block, const kvcl_key_t *key)
{
    uint64_t want[BLOCK / sizeof(uint64_t)], got[BLOCK / sizeof(uint64_t)];

    expected(key, want);
    KVCL_TRY(kvcl_cache_read_block(cache, block, got, sizeof(got)));
    return memcmp(want, got, sizeof(want)) == 0;
}

kvcl_cache_h make_cache(world_t *w, const char *name, uint64_t blocks, bool structured)
{
    kvcl_layout_t opaque = KVCL_LAYOUT_BYTES(blocks, BLOCK);
    kvcl_layout_t layers = KVCL_LAYOUT_NHD(.flags = KVCL_LAYOUT_PER_LAYER, .layers = 2, .blocks = blocks, .tokens = 4,
                                           .heads = 4, .head_dim = 32, .elem_bytes = 2);
    kvcl_cache_h  cache;

    KVCL_TRY(kvcl_cache_create(w->ctx, name, structured ? &layers : &opaque, NULL, &cache));
    return cache;
}

kvcl_store_h open_with_pool(world_t *w, uint64_t pool, const char *nvme)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_store_h        store;

    params.dir_entries = 8192;
    params.dram_bytes  = pool * BLOCK;
    params.block_bytes = BLOCK;
    params.nvme        = nvme;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    return store;
}

bool keep_waiting(uint64_t *until_ns)
{
    *until_ns = (*until_ns != 0) ? *until_ns : kvcl_deadline_after(60 * KVCL_NS_PER_SEC);
    nap(KVCL_NS_PER_MS);
    return !kvcl_deadline_passed(*until_ns);
}

bool vanished(kvcl_store_h store, const kvcl_key_t *keys, size_t n)
{
    uint64_t until = 0;
    uint8_t  present[256];
    size_t   i, left;

    do {
        KVCL_TRY(kvcl_store_exists(store, keys, n, present, NULL));
        for (i = 0, left = 0; i < n; ++i) {
            left += present[i];
        }
    } while ((left != 0) && keep_waiting(&until));
    return left == 0;
}

/* ---- publish, match, exists, get, withdraw, remove ---- */

enum { EACH = 40 };

static void publish_mine(world_t *w, kvcl_store_h store, kvcl_cache_h cache, const char *what, kvcl_key_t *keys)
{
    uint32_t   ids[EACH], i;
    kvcl_req_h req;

    for (i = 0; i < EACH; ++i) {
        keys[i] = key_of(what, (uint64_t)w->rank, i);
        ids[i]  = i;
        fill(cache, i, &keys[i]);
    }
    CHECK(w, DO(kvcl_store_publish(store, keys, EACH, cache, ids, NULL, &req)) == KVCL_OK, "publish");
    CHECK(w, kvcl_store_publish(store, keys, 1, cache, ids, NULL, &req) == KVCL_ERR_BUSY, "published twice");
}

static void get_from(world_t *w, kvcl_store_h store, kvcl_cache_h cache, const char *what, int rank, uint32_t to)
{
    kvcl_status_t status[EACH];
    kvcl_key_t    keys[EACH];
    uint32_t      ids[EACH], i;
    uint8_t       present[EACH];
    size_t        hit = 0;
    kvcl_req_h    req;

    for (i = 0; i < EACH; ++i) {
        keys[i] = key_of(what, (uint64_t)rank, i);
        ids[i]  = to + i;
    }
    CHECK(w, (kvcl_store_match(store, keys, EACH, &hit, NULL) == KVCL_OK) && (hit == EACH), "matched %zu of rank %d",
          hit,
          rank);
    CHECK(w, kvcl_store_exists(store, keys, EACH, present, NULL) == KVCL_OK, "exists");
    for (i = 0; i < EACH; ++i) {
        CHECK(w, present[i] == 1, "key %u of rank %d", i, rank);
    }
    CHECK(w, DO(kvcl_store_get(store, keys, EACH, cache, ids, status, NULL, &req)) == KVCL_OK, "get from %d", rank);
    for (i = 0; i < EACH; ++i) {
        CHECK(w, (status[i] == KVCL_OK) && holds(cache, ids[i], &keys[i]), "block %u of rank %d: %s", i, rank,
              kvcl_status_text(status[i]));
    }
    keys[EACH / 2] = key_of("nowhere", 0, 0);
    CHECK(w, (kvcl_store_match(store, keys, EACH, &hit, NULL) == KVCL_OK) && (hit == EACH / 2), "matched %zu", hit);
    CHECK(w, DO(kvcl_store_get(store, keys, EACH, cache, ids, status, NULL, &req)) == KVCL_ERR_NOT_FOUND, "a hole");
    CHECK(w, (status[EACH / 2] == KVCL_ERR_NOT_FOUND) && (status[0] == KVCL_OK), "statuses");
}

static void basics(world_t *w, bool structured)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    const char          *what  = structured ? "layers" : "bytes";
    kvcl_cache_h        cache  = make_cache(w, what, 2 * EACH, structured);
    kvcl_key_t          keys[EACH], other[EACH];
    kvcl_store_stats_t  stats = KVCL_STORE_STATS_INIT;
    uint32_t            ids[EACH], i, id;
    kvcl_store_h        store;
    kvcl_req_h          req;
    int                 r;

    params.dir_entries = 4096;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    publish_mine(w, store, cache, what, keys);
    sync_all(w);
    for (r = 0; r < 2 * w->size; ++r) { /* the second round has all descriptions */
        get_from(w, store, cache, what, r % w->size, EACH);
    }
    CHECK(w, (kvcl_store_pin_local(store, &keys[3], &id) == KVCL_OK) && (id == 3), "pin_local");
    kvcl_store_unpin_local(store, id);
    sync_all(w);
    for (i = 0; i < EACH; ++i) {
        ids[i]   = i;
        other[i] = key_of(what, (uint64_t)((w->rank + 1) % w->size), i);
    }
    CHECK(w, kvcl_store_withdraw(store, cache, ids, EACH / 2) == KVCL_OK, "withdraw");
    CHECK(w, kvcl_store_pin_local(store, &keys[3], &id) == KVCL_ERR_NOT_FOUND, "pin of a withdrawn block");
    sync_all(w);
    for (i = 0; i < EACH; ++i) {
        ids[i] = EACH + i;
    }
    CHECK(w, DO(kvcl_store_get(store, other, EACH / 2, cache, ids, NULL, NULL, &req)) == KVCL_ERR_NOT_FOUND, "get");
    CHECK(w, vanished(store, other, EACH / 2), "withdrawn keys are still listed");
    sync_all(w);
    CHECK(w, DO(kvcl_store_remove(store, other, EACH, NULL, &req)) == KVCL_OK, "remove");
    sync_all(w);
    CHECK(w, vanished(store, keys, EACH), "removed keys are still listed");
    KVCL_TRY(kvcl_store_stats(store, &stats));
    CHECK(w, (stats.blocks == 0) && (stats.published == EACH) && (stats.corrupt == 0), "stats: %llu blocks, %llu ever",
          (unsigned long long)stats.blocks, (unsigned long long)stats.published);
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}

static void test_bytes(world_t *w)
{
    basics(w, false);
}

static void test_layers(world_t *w)
{
    basics(w, true);
}

/* ---- the pool ---- */

static void test_pool(world_t *w)
{
    enum { POOL = 48, KEYS = 40, ROUNDS = 5 };
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_cache_h        cache  = make_cache(w, "put", 2 * KEYS, true);
    kvcl_key_t          keys[KEYS];
    kvcl_store_stats_t  stats = KVCL_STORE_STATS_INIT;
    kvcl_status_t       status[KEYS];
    uint32_t            ids[KEYS], i, round, found = 0;
    kvcl_store_h        store;
    kvcl_req_h          req;

    params.dir_entries = 4096;
    params.dram_bytes  = POOL * BLOCK;
    params.block_bytes = BLOCK;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    for (round = 0; round < ROUNDS; ++round) {
        for (i = 0; i < KEYS; ++i) {
            keys[i] = key_of("pool", (uint64_t)w->rank, (round * KEYS) + i);
            ids[i]  = i;
            fill(cache, i, &keys[i]);
        }
        CHECK(w, DO(kvcl_store_put(store, keys, KEYS, cache, ids, NULL, &req)) == KVCL_OK, "put");
        CHECK(w, DO(kvcl_store_put(store, keys, KEYS, cache, ids, NULL, &req)) == KVCL_OK, "second put");
        KVCL_TRY(kvcl_store_stats(store, &stats));
        CHECK(w, stats.published == (round + 1ull) * KEYS, "a second put published: %llu",
              (unsigned long long)stats.published);
        sync_all(w);
        for (i = 0; i < KEYS; ++i) {
            keys[i] = key_of("pool", (uint64_t)((w->rank + 1) % w->size), (round * KEYS) + i);
            ids[i]  = KEYS + i;
        }
        (void)!DO(kvcl_store_get(store, keys, KEYS, cache, ids, status, NULL, &req));
        for (i = 0; i < KEYS; ++i) {
            found += (status[i] == KVCL_OK) ? 1 : 0;
            CHECK(w, (status[i] == KVCL_OK) ? holds(cache, ids[i], &keys[i]) : (status[i] == KVCL_ERR_NOT_FOUND),
                  "block %u: %s", i, kvcl_status_text(status[i]));
        }
        sync_all(w);
    }
    CHECK(w, found == ROUNDS * KEYS, "%u of %d found", found, ROUNDS * KEYS);
    KVCL_TRY(kvcl_store_stats(store, &stats));
    CHECK(w, (stats.blocks <= POOL) && (stats.evicted == stats.published - stats.blocks), "%llu blocks, %llu evicted",
          (unsigned long long)stats.blocks, (unsigned long long)stats.evicted);
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}

/* ---- a prefix for every rank ---- */

static void test_bcast(world_t *w)
{
    enum { KEYS = 24 };
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_cache_h        cache  = make_cache(w, "bcast", 3 * KEYS, true);
    kvcl_key_t          keys[KEYS];
    uint32_t            ids[KEYS], i, n = 0, id;
    kvcl_store_h        store;
    kvcl_req_h          req;

    params.dir_entries = 4096;
    params.cache       = cache;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    for (i = 0; i < KEYS; ++i) {
        keys[i] = key_of("hot", 0, i);
    }
    CHECK(w, kvcl_store_alloc(store, KEYS, ids) == KVCL_OK, "alloc");
    CHECK(w, DO(kvcl_store_bcast(store, keys, KEYS, cache, ids, NULL, &req)) == KVCL_ERR_NOT_FOUND, "nobody has it");
    sync_all(w);
    for (i = 0; i < KEYS; ++i) { /* distributed over the ranks, more to the last */
        if ((int)(i % (unsigned)(w->size + 1)) == w->rank || ((w->rank == w->size - 1) && (i % 2 == 1))) {
            CHECK(w, kvcl_store_alloc(store, 1, &id) == KVCL_OK, "alloc");
            fill(cache, id, &keys[i]);
            CHECK(w, DO(kvcl_store_publish(store, &keys[i], 1, cache, &id, NULL, &req)) == KVCL_OK, "publish");
            ++n;
        } else if ((w->rank == 0) && ((int)(i % (unsigned)(w->size + 1)) == w->size)) {
            CHECK(w, kvcl_store_alloc(store, 1, &id) == KVCL_OK, "alloc");
            fill(cache, id, &keys[i]);
            CHECK(w, DO(kvcl_store_publish(store, &keys[i], 1, cache, &id, NULL, &req)) == KVCL_OK, "publish");
        }
    }
    sync_all(w);
    CHECK(w, DO(kvcl_store_bcast(store, keys, KEYS, cache, ids, NULL, &req)) == KVCL_OK, "bcast (I had %u)", n);
    for (i = 0; i < KEYS; ++i) {
        CHECK(w, holds(cache, ids[i], &keys[i]), "block %u", i);
        CHECK(w, kvcl_store_pin_local(store, &keys[i], &id) == KVCL_OK, "block %u is not published here", i);
        kvcl_store_unpin_local(store, id);
    }
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}

/* ---- limits and errors ---- */

static void test_full(world_t *w)
{
    enum { KEYS = 600 };
    kvcl_store_params_t  params = KVCL_STORE_PARAMS_INIT;
    kvcl_cache_h         cache  = make_cache(w, "full", KEYS + 1, false);
    static kvcl_key_t    keys[KEYS];
    static kvcl_status_t each[KEYS];
    static uint8_t       present[KEYS];
    static uint32_t      ids[KEYS];
    kvcl_xfer_params_t   p = KVCL_XFER_PARAMS_INIT;
    uint32_t             i, to = KEYS, listed = 0;
    kvcl_store_h         store;
    kvcl_req_h           req;

    params.dir_entries = 64;
    p.status           = each;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    for (i = 0; i < KEYS; ++i) {
        keys[i] = key_of("full", (uint64_t)w->rank, i);
        ids[i]  = i;
        fill(cache, i, &keys[i]);
    }
    CHECK(w, DO(kvcl_store_publish(store, keys, KEYS, cache, ids, &p, &req)) == KVCL_ERR_NO_SPACE, "publish");
    CHECK(w, kvcl_store_exists(store, keys, KEYS, present, NULL) == KVCL_OK, "exists");
    for (i = 0; i < KEYS; ++i) {
        CHECK(w, present[i] == (each[i] == KVCL_OK), "key %u: present %u, status %s", i, present[i],
              kvcl_status_text(each[i]));
        listed += present[i];
        if (present[i] && (i % 8 == 0)) {
            CHECK(w, DO(kvcl_store_get(store, &keys[i], 1, cache, &to, NULL, NULL, &req)) == KVCL_OK, "get");
            CHECK(w, holds(cache, to, &keys[i]), "bytes");
        }
    }
    CHECK(w, listed <= 64u * (unsigned)w->size, "%u are listed", listed);
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}

/* A location has 16 bits for the cache number. */
static void publish_numbered(world_t *w, kvcl_store_h store, uint32_t number)
{
    kvcl_cache_h cache = make_cache(w, "numbered", 1, false);
    kvcl_key_t   key   = key_of("numbered", (uint64_t)w->rank, 0);
    uint32_t     id    = cache->id, block = 0;
    kvcl_req_h   req;

    cache->id = number;
    CHECK(w, kvcl_store_publish(store, &key, 1, cache, &block, NULL, &req) == KVCL_ERR_UNSUPPORTED, "a 65,536th cache");
    cache->id = id;
    kvcl_cache_destroy(cache);
}

static void test_errors(world_t *w)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_cache_h        cache  = make_cache(w, "errors", 8, false);
    kvcl_key_t          key    = key_of("errors", (uint64_t)w->rank, 0);
    uint32_t            ids[9] = {0}, bad = 8;
    kvcl_store_h        store;
    kvcl_req_h          req;
    size_t              hit;

    params.flags = 0x100;
    CHECK(w, kvcl_store_open(w->comm, &params, &store) == KVCL_ERR_INVALID_PARAM, "flags");
    params.flags      = 0;
    params.dram_bytes = 4096;
    CHECK(w, kvcl_store_open(w->comm, &params, &store) == KVCL_ERR_INVALID_PARAM, "no block_bytes");
    params.dram_bytes  = 0;
    params.dir_entries = 1024;
    params.cache       = cache;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    CHECK(w, kvcl_store_match(store, NULL, 1, &hit, NULL) == KVCL_ERR_INVALID_PARAM, "NULL keys");
    CHECK(w, (kvcl_store_match(store, NULL, 0, &hit, NULL) == KVCL_OK) && (hit == 0), "no keys");
    CHECK(w, kvcl_store_get(store, &key, 1, cache, &bad, NULL, NULL, &req) == KVCL_ERR_OUT_OF_RANGE, "id");
    CHECK(w, kvcl_store_publish(store, &key, 1, cache, &bad, NULL, &req) == KVCL_ERR_OUT_OF_RANGE, "id");
    CHECK(w, kvcl_store_publish(store, &key, 1, cache, ids, NULL, &req) == KVCL_ERR_INVALID_PARAM, "not allocated");
    CHECK(w, kvcl_store_put(store, &key, 1, cache, ids, NULL, &req) == KVCL_ERR_UNSUPPORTED, "no pool");
    CHECK(w, kvcl_store_alloc(store, 9, ids) == KVCL_ERR_NO_SPACE, "nine of eight");
    CHECK(w, kvcl_store_alloc(store, 8, ids) == KVCL_OK, "alloc");
    CHECK(w, kvcl_store_alloc(store, 1, &bad) == KVCL_ERR_NO_SPACE, "none left");
    CHECK(w, DO(kvcl_store_publish(store, &key, 1, cache, ids, NULL, &req)) == KVCL_OK, "publish");
    CHECK(w, kvcl_store_pin_local(store, &key, &bad) == KVCL_OK, "pin");
    CHECK(w, kvcl_store_alloc(store, 1, &bad) == KVCL_ERR_NO_SPACE, "the only published block is pinned");
    kvcl_store_unpin_local(store, ids[0]);
    CHECK(w, kvcl_store_free(store, ids, 8) == KVCL_ERR_BUSY, "one of them is published");
    CHECK(w, (kvcl_store_alloc(store, 1, &bad) == KVCL_OK) && (bad == ids[0]), "the unpinned block is evicted");
    CHECK(w, kvcl_store_free(store, ids, 8) == KVCL_OK, "free");
    publish_numbered(w, store, UINT16_MAX + 1);
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}

static const struct {
    const char *name;
    void       (*run)(world_t *w);
} tests[] = {
    {"parts", test_parts},     {"parts_layers", test_parts_layers}, {"parts_rounds", test_parts_rounds},
    {"where", test_where},     {"where_tier", test_where_tier},
    {"bytes", test_bytes},     {"layers", test_layers}, {"errors", test_errors},   {"pool", test_pool},
    {"bcast", test_bcast},     {"full", test_full},     {"reuse", test_reuse},     {"evict", test_evict},
    {"threads", test_threads}, {"hostile", test_hostile}, {"copies", test_copies}, {"copies_full", test_copies_full},
    {"copies_counted", test_copies_counted}, {"copies_threads", test_copies_threads},
    {"copies_stay", test_copies_stay}, {"events", test_events}, {"followers", test_followers},
    {"close_waiters", test_close_waiters}, {"match_all", test_match_all},
    {"tier", test_tier},       {"tier_restart", test_tier_restart},
    {"tier_upsert", test_tier_upsert}, {"tier_faults", test_tier_faults}, {"tier_errors", test_tier_errors},
    {"pins", test_pins},       {"tenants", test_tenants}, {"upsert", test_upsert},
    {"upsert_unlisted", test_upsert_unlisted}, {"upsert_refused", test_upsert_refused},
    {"put_unlisted", test_put_unlisted}, {"moves", test_moves}, {"move_unlisted", test_move_unlisted},
    {"drain", test_drain}, {"drain_two", test_drain_two}, {"copies_short", test_copies_short},
    {"tier_removed_early", test_tier_removed_early}, {"tier_close", test_tier_close}, {"tier_drain", test_tier_drain},
    {"tier_clear", test_tier_clear}, {"tier_still", test_tier_still}, {"tier_staged", test_tier_staged},
    {"tier_sizes", test_tier_sizes}, {"tier_sizes_restart", test_tier_sizes_restart},
    {"tier_sizes_other", test_tier_sizes_other}, {"tier_sizes_twice", test_tier_sizes_twice},
    {"tier_sizes_leaving", test_tier_sizes_leaving}, {"tier_sizes_replaced", test_tier_sizes_replaced},
    {"tier_sizes_drain", test_tier_sizes_drain}, {"tier_sizes_churn", test_tier_sizes_churn},
    {"late_copy", test_late_copy}, {"late_upsert", test_late_upsert}, {"silent_ranks", test_silent_ranks},
    {"one_slot", test_one_slot}, {"flips", test_flips}, {"many_flips", test_many_flips},
    {"wire_frames", test_wire_frames}, {"wire_messages", test_wire_messages}, {"wire_memory", test_wire_memory},
    {"wire_spoilt", test_wire_corrupt}, {"wire_values", test_wire_values},
    {"churn", test_churn}, {"sizes", test_sizes}, {"sizes_churn", test_sizes_churn},
    {"sizes_bounds", test_sizes_bounds}, {"sizes_errors", test_sizes_errors}, {"brought", test_brought},
    {"slabs_pinned", test_slabs_pinned}, {"slabs_emptied", test_slabs_emptied}, {"slabs_least", test_slabs_least},
    {"slabs_waiter", test_slabs_waiter}, {"slabs_drain", test_slabs_drain}, {"slabs_late_use", test_slabs_late_use},
    {"slabs_repair", test_slabs_repair}, {"slabs_places", test_slabs_places},
    {"hot", test_hot}, {"uses", test_uses},
    {"tenant_handles", test_tenant_handles}, {"tenant_far", test_tenant_far},
};

static bool wanted(const char *name, char **argv, int argc)
{
    int i, names = 0;

    for (i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--seed") == 0) {
            ++i;
        } else if (strcmp(argv[i], name) == 0) {
            return true;
        } else {
            ++names;
        }
    }
    return names == 0;
}

/* Some tests need a certain number of ranks. On others they neither pass nor fail; this function reports that. */
static bool fits(const world_t *w, const char *name)
{
    static const struct {
        const char *name;
        int        ranks;
    } only[] = {{"slabs_repair", 4}, {"slabs_places", 2}};
    size_t i;

    for (i = 0; i < sizeof(only) / sizeof(only[0]); ++i) {
        if ((strcmp(only[i].name, name) == 0) && (only[i].ranks != w->size)) {
            if (w->rank == 0) {
                printf("not run: %s is for %d ranks, these are %d\n", name, only[i].ranks, w->size);
            }
            return false;
        }
    }
    return true;
}

static unsigned run_tests(world_t *w, char **argv, int argc)
{
    unsigned before, bad = 0, passed = 0;
    uint64_t begun;
    size_t   i;

    for (i = 0; i < sizeof(tests) / sizeof(tests[0]); ++i) {
        if (!wanted(tests[i].name, argv, argc) || !fits(w, tests[i].name)) {
            continue;
        }
        before = w->failed;
        begun  = kvcl_now_ns();
        tests[i].run(w);
        sync_all(w);
        if (w->rank == 0) {
            printf("%s: %.1f s\n", tests[i].name, (double)(kvcl_now_ns() - begun) * 1e-9);
        }
        bad    += (w->failed != before) ? 1 : 0;
        passed += (w->failed == before) ? 1 : 0;
        if (w->failed != before) {
            fprintf(stderr, "rank %d: test %s failed (TEST_SEED=%llu)\n", w->rank, tests[i].name,
                    (unsigned long long)w->seed);
        }
    }
    if (w->rank == 0) {
        printf("%u passed, %u failed, 0 skipped\n", passed, bad);
    }
    return bad;
}

int main(int argc, char **argv)
{
    world_t    w   = {.seed = (uint64_t)time(NULL)};
    unsigned   bad = 0;
    kvcl_req_h req;
    int        i;

    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* so that a killed rank has printed its completed steps */
    for (i = 1; i + 1 < argc; ++i) {
        if (strcmp(argv[i], "--seed") == 0) {
            w.seed = strtoull(argv[i + 1], NULL, 0);
        }
    }
    KVCL_TRY(kvcl_init(NULL, &w.ctx));
    KVCL_TRY(kvcl_comm_world(w.ctx, &w.comm));
    w.rank = kvcl_comm_rank(w.comm);
    w.size = kvcl_comm_size(w.comm);
    if (w.rank == 0) {
        printf("seed %llu\n", (unsigned long long)w.seed);
    }
    if ((argc > 1) && (strcmp(argv[1], "bench") == 0)) {
        bench(&w);
    } else {
        bad = run_tests(&w, argv, argc);
    }
    (void)!do_wait(kvcl_barrier(w.comm, NULL, &req), &req); /* a rank that is done may finalize before the others are */
    kvcl_finalize(w.ctx);
    return (bad == 0) ? 0 : 1;
}
