/*
 * Small blocks that travel with the answer to a lookup (store/get/fetch.h). Over TCP, once the holder's cache is known,
 * a get of blocks whose home is their holder is one round trip. The blocks are correct in caches of other layouts,
 * absent when withdrawn, and refused where a pull of them would be. Concurrent gets share messages.
 */
#include "core/context.h"
#include "store/home/ranks.h"
#include "store/store.h"
#include "store_test.h"

#include <stdlib.h>

enum { EACH = 32 };

static kvcl_cache_h make_other(world_t *w)
{
    kvcl_layout_t layers = KVCL_LAYOUT_NHD(.flags = KVCL_LAYOUT_PER_LAYER, .layers = 4, .blocks = EACH, .tokens = 4,
                                           .heads = 2, .head_dim = 32, .elem_bytes = 2);
    kvcl_cache_h  cache;

    KVCL_TRY(kvcl_cache_create(w->ctx, "brought-other", &layers, NULL, &cache));
    return cache;
}

static uint64_t brought(kvcl_store_h store)
{
    uint64_t n;

    kvcl_lock(store->ctx);
    n = store->n_brought;
    kvcl_unlock(store->ctx);
    return n;
}

/* Get all of them, one per get or in one call. Return the number of blocks that travelled with answers. */
static uint64_t get_all(world_t *w, kvcl_store_h store, kvcl_cache_h to, const kvcl_key_t *keys, bool single,
                        kvcl_status_t want)
{
    uint64_t      before = brought(store);
    kvcl_status_t status[EACH];
    uint32_t      ids[EACH], i;
    kvcl_req_h    req;

    for (i = 0; i < EACH; ++i) {
        ids[i] = EACH - 1 - i;
    }
    for (i = 0; single && (i < EACH); ++i) {
        (void)DO(kvcl_store_get(store, &keys[i], 1, to, &ids[i], &status[i], NULL, &req));
    }
    if (!single) {
        (void)DO(kvcl_store_get(store, keys, EACH, to, ids, status, NULL, &req));
    }
    for (i = 0; i < EACH; ++i) {
        CHECK(w, status[i] == want, "block %u: %s, not %s", i, kvcl_status_text(status[i]), kvcl_status_text(want));
        CHECK(w, (want != KVCL_OK) || holds(to, ids[i], &keys[i]), "block %u has other bytes", i);
    }
    return brought(store) - before;
}

/* Get all of them, one per get, all in flight at once. Return the number of bundles of messages sent for it. */
static uint64_t get_at_once(world_t *w, kvcl_store_h store, kvcl_cache_h to, const kvcl_key_t *keys)
{
    kvcl_req_h reqs[EACH];
    uint64_t   bundles;
    uint32_t   ids[EACH], i;

    kvcl_lock(store->ctx);
    bundles = store->ctx->peers.n_bundles;
    kvcl_unlock(store->ctx);
    for (i = 0; i < EACH; ++i) {
        ids[i] = i;
        KVCL_TRY(kvcl_store_get(store, &keys[i], 1, to, &ids[i], NULL, NULL, &reqs[i]));
    }
    CHECK(w, kvcl_req_wait_all(reqs, EACH, KVCL_WAIT_FOREVER) == KVCL_OK, "gets at once");
    for (i = 0; i < EACH; ++i) {
        CHECK(w, holds(to, ids[i], &keys[i]), "block %u has other bytes", i);
    }
    kvcl_lock(store->ctx);
    bundles = store->ctx->peers.n_bundles - bundles;
    kvcl_unlock(store->ctx);
    return bundles;
}

/* The number of the neighbour's blocks whose home is the neighbour, too. */
static uint64_t at_home(kvcl_store_h store, const kvcl_key_t *keys, uint32_t rank)
{
    uint64_t n = 0;
    unsigned i;

    for (i = 0; i < EACH; ++i) {
        n += (kvcl_shard_home(kvcl_store_shards(store), &keys[i]) == rank) ? 1 : 0;
    }
    return n;
}

void test_brought(world_t *w)
{
    const char          *path  = getenv("KVCL_PATH");
    bool                far    = (path != NULL) && (strcmp(path, "tcp") == 0) && (w->size > 1);
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_cache_h        cache  = make_cache(w, "brought", EACH, true);
    kvcl_cache_h        opaque = make_cache(w, "brought-opaque", EACH, false);
    kvcl_cache_h        alike  = make_cache(w, "brought-alike", EACH, true);
    kvcl_cache_h        other  = make_other(w);
    uint32_t            next   = (uint32_t)((w->rank + 1) % w->size), ids[EACH], i;
    kvcl_key_t          mine[EACH], theirs[EACH];
    kvcl_store_h        store;
    kvcl_req_h          req;
    uint64_t            n;

    params.dir_entries = 4096;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    for (i = 0; i < EACH; ++i) {
        ids[i]    = i;
        mine[i]   = key_of("brought", (uint64_t)w->rank, i);
        theirs[i] = key_of("brought", next, i);
        fill(cache, i, &mine[i]);
    }
    CHECK(w, DO(kvcl_store_publish(store, mine, EACH, cache, ids, NULL, &req)) == KVCL_OK, "publish");
    sync_all(w);
    (void)get_all(w, store, opaque, theirs, false, KVCL_OK); /* fetches the description of the neighbour's cache */
    n = far ? at_home(store, theirs, next) : 0;
    CHECK(w, get_all(w, store, opaque, theirs, true, KVCL_OK) == n, "not %llu came along", (unsigned long long)n);
    CHECK(w, get_all(w, store, alike, theirs, false, KVCL_OK) == n, "not %llu came along", (unsigned long long)n);
    for (i = 0, n = 0; (i < 20) && (n == 0); ++i) { /* on a busy machine each may be answered before the next */
        n = get_at_once(w, store, opaque, theirs);
    }
    CHECK(w, (n != 0) == far, "%llu bundles of messages", (unsigned long long)n);
    CHECK(w, get_all(w, store, other, theirs, true, KVCL_ERR_BAD_LAYOUT) == 0, "into another layout");
    sync_all(w);
    CHECK(w, kvcl_store_withdraw(store, cache, ids, EACH) == KVCL_OK, "withdraw");
    sync_all(w);
    CHECK(w, get_all(w, store, opaque, theirs, true, KVCL_ERR_NOT_FOUND) == 0, "withdrawn blocks came along");
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
    kvcl_cache_destroy(opaque);
    kvcl_cache_destroy(alike);
    kvcl_cache_destroy(other);
}
