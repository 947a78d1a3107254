/*
 * Lookups of a store in tables that the network reads: cases of conform_fence (CF_BY_GET).
 */
#include "conform_native.h"
#include "store/home/ranks.h"
#include "store/store.h"

#include <stdlib.h>
#include <string.h>

/* Blocks too large for a home to send with the answer to a lookup. */
enum { SLOTS = 64, BYTES = 300000, FEW = 4 };

typedef struct scene {
    cf_cache_t   cache;
    kvcl_store_h store;
    kvcl_key_t   mine[SLOTS], far[SLOTS]; /* published by this rank; of the other rank, which is their home */
    size_t       n_far;
} scene_t;

static kvcl_key_t key_of(cf_t *cf, const char *what, int rank, uint64_t i)
{
    char       name[96];
    kvcl_key_t key;

    snprintf(name, sizeof(name), "%s %llx %d %llu", what, (unsigned long long)cf_same(cf), rank, (unsigned long long)i);
    kvcl_key_from_string(name, strlen(name), &key);
    return key;
}

/* Both ranks publish all their slots but the last. */
static void set_up(cf_t *cf, scene_t *s)
{
    kvcl_layout_t       layout = KVCL_LAYOUT_BYTES(SLOTS, BYTES);
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    uint32_t            ids[SLOTS], i;
    kvcl_key_t          key;
    kvcl_req_h          req;

    s->cache           = cf_cache(cf, "listed", &layout, true);
    params.dir_entries = 4096;
    params.flags       = KVCL_STORE_NO_CHECKSUM;
    CF_OK(cf, kvcl_store_open(cf->world, &params, &s->store));
    s->n_far = 0;
    for (i = 0; i < SLOTS - 1; ++i) {
        ids[i]     = i;
        s->mine[i] = key_of(cf, "a key", cf->rank, i);
        key        = key_of(cf, "a key", 1 - cf->rank, i);
        if (kvcl_shard_home(kvcl_store_shards(s->store), &key) != (uint32_t)cf->rank) {
            s->far[s->n_far++] = key;
        }
    }
    CF_CHECK(cf, s->n_far > 2 * FEW);
    CF_OK(cf, kvcl_store_publish(s->store, s->mine, SLOTS - 1, s->cache.h, ids, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    cf_fence(cf);
}

/* The first query of a home finds out how its table can be read. */
static void learn(cf_t *cf, scene_t *s)
{
    size_t hit;
    int    state;

    do {
        CF_OK(cf, kvcl_store_match(s->store, s->far, 1, &hit, NULL));
        CF_CHECK(cf, hit == 1);
        cf_sleep_us(cf, 100);
        (void)kvcl_progress(cf->ctx);
        state = atomic_load(&s->store->ranks[1 - cf->rank].view_state);
    } while ((state == KVCL_VIEW_UNKNOWN) || (state == KVCL_VIEW_REQUESTED) || (state == KVCL_VIEW_READING));
    CF_CHECK(cf, state == KVCL_VIEW_NATIVE);
}

static void tear_down(scene_t *s)
{
    kvcl_store_close(s->store);
    cf_cache_end(&s->cache);
}

/* Few keys are read in the home's table, and the home is not queried; of many keys, it is. Absent keys are absent. */
void cf_lookups_native(cf_t *cf)
{
    uint8_t    present[2 * FEW];
    kvcl_key_t keys[2 * FEW];
    uint64_t   queried, native, served;
    scene_t    s;
    size_t     hit, i;

    set_up(cf, &s);
    learn(cf, &s);
    native = cf_calls(cf, "store_match", "native");
    served = cf_calls(cf, "store_match", "served");
    cf_fence(cf);
    queried = s.store->home.n_looked_up;
    cf_fence(cf);
    CF_OK(cf, kvcl_store_match(s.store, s.far, FEW, &hit, NULL));
    CF_CHECK(cf, hit == FEW);
    CF_CHECK(cf, cf_calls(cf, "store_match", "native") == native + 1);
    CF_CHECK(cf, cf_calls(cf, "store_match", "served") == served);
    for (i = 0; i < (size_t)2 * FEW; ++i) {
        keys[i] = (i & 1) ? s.far[i] : key_of(cf, "absent", cf->rank, i);
    }
    CF_OK(cf, kvcl_store_exists(s.store, keys, (size_t)2 * FEW - 1, present, NULL));
    for (i = 0; i < (size_t)2 * FEW - 1; ++i) {
        CF_CHECK(cf, present[i] == (i & 1));
    }
    cf_fence(cf);
    CF_CHECK(cf, s.store->home.n_looked_up == queried);
    cf_fence(cf);
    CF_OK(cf, kvcl_store_match(s.store, s.far, s.n_far, &hit, NULL));
    CF_CHECK(cf, hit == s.n_far);
    CF_CHECK(cf, cf_calls(cf, "store_match", "native") == native + 1);
    CF_CHECK(cf, cf_calls(cf, "store_match", "served") == served + 1);
    cf_fence(cf);
    CF_CHECK(cf, s.store->home.n_looked_up > queried);
    cf_fence(cf);
    tear_down(&s);
}

/* A get finds its blocks so, too. */
void cf_gets_look_natively(cf_t *cf)
{
    uint32_t   id = SLOTS - 1, i;
    uint64_t   queried, native, served;
    scene_t    s;
    kvcl_req_h req;

    set_up(cf, &s);
    learn(cf, &s);
    native = cf_calls(cf, "store_get", "native");
    served = cf_calls(cf, "store_get", "served");
    cf_fence(cf);
    queried = s.store->home.n_looked_up;
    cf_fence(cf);
    for (i = 0; i < FEW; ++i) {
        CF_OK(cf, kvcl_store_get(s.store, &s.far[i], 1, s.cache.h, &id, NULL, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
    }
    CF_CHECK(cf, cf_calls(cf, "store_get", "native") == native + FEW);
    CF_CHECK(cf, cf_calls(cf, "store_get", "served") == served);
    cf_fence(cf);
    CF_CHECK(cf, s.store->home.n_looked_up == queried);
    cf_fence(cf);
    tear_down(&s);
}

/* Rank 1 publishes and withdraws a key all the time. A key that stays is never absent. */
void cf_lookups_beside_writes(cf_t *cf)
{
    enum { ROUNDS = 2000 };
    _Atomic uint64_t *over = cf_word(cf, 0);
    uint32_t         id    = 0, i;
    uint8_t          present[2];
    kvcl_key_t       keys[2];
    scene_t          s;
    kvcl_req_h       req;

    atomic_store(over, 0);
    set_up(cf, &s);
    learn(cf, &s);
    cf_fence(cf);
    for (i = 0; (cf->rank == 1) && (i < ROUNDS); ++i) {
        CF_OK(cf, kvcl_store_withdraw(s.store, s.cache.h, &id, 1));
        CF_OK(cf, kvcl_store_publish(s.store, &s.mine[0], 1, s.cache.h, &id, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
    }
    atomic_fetch_add(over, (cf->rank == 1));
    while ((cf->rank == 0) && (atomic_load(over) == 0)) {
        keys[0] = key_of(cf, "a key", 1, 0);
        keys[1] = s.far[1];
        CF_OK(cf, kvcl_store_exists(s.store, keys, 2, present, NULL));
        CF_CHECK(cf, (present[0] <= 1) && (present[1] == 1));
    }
    cf_fence(cf);
    tear_down(&s);
}

/* Rank 1 closes its store. Rank 0's lookups find its keys absent, and no rank fails. */
void cf_lookups_of_a_closed_store(cf_t *cf)
{
    cf_cache_t   other;
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(8, BYTES);
    scene_t      s;
    size_t       hit = 1;
    unsigned     i;

    set_up(cf, &s);
    learn(cf, &s);
    cf_fence(cf);
    if (cf->rank == 1) {
        kvcl_store_close(s.store);
    }
    cf_fence(cf);
    for (i = 0; (cf->rank == 0) && (i < 3); ++i) {
        CF_OK(cf, kvcl_store_match(s.store, s.far, FEW, &hit, NULL));
        CF_CHECK(cf, hit == 0);
    }
    cf_fence(cf);
    if (cf->rank == 0) {
        kvcl_store_close(s.store);
    }
    cf_cache_end(&s.cache);
    other = cf_cache(cf, "after", &layout, true); /* the ranks still reach each other */
    cf_cache_end(&other);
}

/* The network moves no bytes: a lookup ends by its deadline, and closing the store does not wait for the reads. */
void cf_lookups_stalled(cf_t *cf)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    scene_t            s;
    size_t             hit;

    params.timeout_ns = 20 * KVCL_NS_PER_MS;
    set_up(cf, &s);
    learn(cf, &s);
    cf_fence(cf);
    if (cf->rank == 0) {
        cf_stall(cf, true);
        CF_IS(cf, kvcl_store_match(s.store, s.far, FEW, &hit, &params), KVCL_ERR_TIMED_OUT);
        kvcl_store_close(s.store);
        cf_stall(cf, false);
    }
    cf_fence(cf);
    if (cf->rank == 1) {
        kvcl_store_close(s.store);
    }
    cf_cache_end(&s.cache);
}
