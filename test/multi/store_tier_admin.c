/*
 * Administration of a store whose blocks are in second tiers: keys removed while a start is still listing, or while the
 * disk is stopped; a drain of blocks that are only in the tier; a clear in steps.
 */
#include "../unit/tier_fault.h"
#include "base/checksum.h"
#include "store/cold/cold.h"
#include "store/admin/ops.h"
#include "store_test.h"
#include <kvcl/kvcl_store_admin.h>

enum { SMALL = 16, POOL = 96, KEYS = 64, BATCH = 8 };

/* Put n of this rank's keys, each batch when those before the last one are in the tier. */
static void put_mine(world_t *w, kvcl_store_h store, kvcl_cache_h cache, const char *what, uint32_t all)
{
    kvcl_key_t keys[BATCH];
    uint32_t   ids[BATCH], i, n;
    uint64_t   until;
    kvcl_req_h req;

    for (n = 0; n < all; n += BATCH) {
        for (i = 0; i < BATCH; ++i) {
            keys[i] = key_of(what, (uint64_t)w->rank, n + i);
            ids[i]  = i;
            fill(cache, i, &keys[i]);
        }
        CHECK(w, DO(kvcl_store_put(store, keys, BATCH, cache, ids, NULL, &req)) == KVCL_OK, "put");
        for (until = 0; (stats_of(store).nvme_blocks < n) && keep_waiting(&until);) {
        }
    }
}

static void names(const char *what, int rank, kvcl_key_t keys[KEYS])
{
    uint32_t i;

    for (i = 0; i < KEYS; ++i) {
        keys[i] = key_of(what, (uint64_t)rank, i);
    }
}

/* No rank has listed its tier's blocks when the keys are removed; then all of them do. */
void test_tier_removed_early(world_t *w)
{
    const char   *spec = tier_spec(w);
    kvcl_cache_h cache = make_cache(w, "tier", KEYS, false);
    kvcl_store_h store = open_with_pool(w, SMALL, spec);
    kvcl_key_t   keys[KEYS];
    uint8_t      present[KEYS];
    unsigned     left = 0, i;
    uint64_t     until = 0;
    bool         notified  = false;
    kvcl_req_h   req;

    put_mine(w, store, cache, "early", KEYS);
    sync_all(w);
    kvcl_store_close(store);
    atomic_store(&kvcl_cold_late, true);
    store = open_with_pool(w, SMALL, spec);
    CHECK(w, stats_of(store).nvme_blocks == KEYS, "%llu blocks found again",
          (unsigned long long)stats_of(store).nvme_blocks);
    sync_all(w);
    names("early", (w->rank + 1) % w->size, keys);
    CHECK(w, DO(kvcl_store_remove(store, keys, KEYS - 1, NULL, &req)) == KVCL_OK, "remove");
    sync_all(w);
    atomic_store(&kvcl_cold_late, false);
    while (!notified && keep_waiting(&until)) {
        kvcl_lock(w->ctx);
        for (i = 0, notified = true; i < (unsigned)w->size; ++i) {
            notified = notified && !store->ranks[i].listing;
        }
        kvcl_unlock(w->ctx);
    }
    CHECK(w, notified, "a rank does not say that all is listed");
    sync_all(w);
    CHECK(w, vanished(store, keys, KEYS - 1), "keys that were removed are listed");
    KVCL_TRY(kvcl_store_exists(store, keys, KEYS, present, NULL));
    for (i = 0; i < KEYS; ++i) {
        left += present[i];
    }
    CHECK(w, (left == 1) && present[KEYS - 1], "%u are left", left);
    CHECK(w, stats_of(store).nvme_blocks == 1, "%llu blocks are in the tier",
          (unsigned long long)stats_of(store).nvme_blocks);
    sync_all(w);
    kvcl_store_close(store);
    sync_all(w);
    tier_unlink();
    kvcl_cache_destroy(cache);
}

static unsigned held_by(kvcl_store_h store, int rank, const kvcl_key_t keys[KEYS])
{
    kvcl_store_item_t items[POOL];
    uint64_t          cursor = 0;
    unsigned          found  = 0;
    size_t            n, i, j;

    do {
        KVCL_TRY(kvcl_store_list(store, rank, &cursor, items, sizeof(*items), POOL, &n, NULL, NULL));
        for (i = 0; i < n; ++i) {
            for (j = 0; j < KEYS; ++j) {
                found += kvcl_key_equal(&items[i].key, &keys[j]) ? 1 : 0;
            }
        }
    } while (cursor != 0);
    return found;
}

/* The last rank has a small pool and a tier; when it is drained the others have all of its blocks. */
void test_tier_drain(world_t *w)
{
    const char    *spec = tier_spec(w);
    kvcl_cache_h  cache = make_cache(w, "tier", KEYS, false);
    int           last  = w->size - 1, r;
    kvcl_store_h  store = open_with_pool(w, (w->rank == last) ? SMALL : POOL, (w->rank == last) ? spec : "");
    uint64_t      moved = 0;
    unsigned      held  = 0;
    kvcl_status_t status;
    kvcl_key_t    keys[KEYS];

    names("drained", last, keys);
    if (w->rank == last) {
        put_mine(w, store, cache, "drained", KEYS);
        status = kvcl_store_drain(store, &moved, NULL);
        CHECK(w, status == ((last != 0) ? KVCL_OK : KVCL_ERR_NO_SPACE), "drain: %s", kvcl_status_text(status));
        CHECK(w, moved == ((last != 0) ? KEYS : 0), "%llu blocks moved", (unsigned long long)moved);
        CHECK(w, (last == 0) || (stats_of(store).nvme_blocks == 0), "%llu blocks are still in the tier",
              (unsigned long long)stats_of(store).nvme_blocks);
    }
    sync_all(w);
    for (r = 0; (r < last) && (w->rank == 0); ++r) {
        held += held_by(store, r, keys);
    }
    CHECK(w, (w->rank != 0) || (held == ((last != 0) ? KEYS : 0)), "the others hold %u", held);
    sync_all(w);
    kvcl_store_close(store);
    sync_all(w);
    tier_unlink();
    kvcl_cache_destroy(cache);
}

/* A rank forgets a bounded part of its tier at a time, and finally all of it. */
void test_tier_clear(world_t *w)
{
    enum { MANY = 5000, BYTES = 64, STEP = 1100 };
    const char    *spec = tier_spec(w);
    kvcl_store_h  store = open_with_pool(w, SMALL, spec);
    uint64_t      request[2] = {0, 0}, answer[2] = {0, 0}, before, after, until = 0;
    uint8_t       bytes[BYTES];
    kvcl_op_out_t out = {.buf = (uint8_t *)answer, .cap = sizeof(answer)};
    kvcl_status_t status;
    kvcl_key_t    key;
    unsigned      steps = 0, i;

    memset(bytes, 7, sizeof(bytes));
    for (i = 0; i < MANY; ++i) {
        key = key_of("many", (uint64_t)w->rank, i);
        do {
            status = kvcl_tier_append(store->cold->tier, key.bytes, kvcl_checksum(bytes, BYTES), bytes, BYTES, NULL,
                                      NULL, NULL);
        } while (status == KVCL_ERR_BUSY);
        KVCL_TRY(status);
    }
    after = stats_of(store).nvme_blocks;
    CHECK(w, after == MANY, "%llu blocks", (unsigned long long)after);
    do {
        before = after;
        kvcl_lock(w->ctx);
        status = kvcl_op_clear(store, request, sizeof(request), &out);
        kvcl_unlock(w->ctx);
        after = stats_of(store).nvme_blocks;
        CHECK(w, (status == KVCL_OK) && (before - after <= STEP), "%llu blocks in one step",
              (unsigned long long)(before - after));
        CHECK(w, (answer[0] == 0) || (answer[0] > request[1]), "the cursor goes back");
        request[1] = answer[0];
    } while ((answer[0] != 0) && (++steps < MANY));
    while ((stats_of(store).nvme_blocks != 0) && keep_waiting(&until)) { /* blocks the disk could not forget at once */
    }
    CHECK(w, stats_of(store).nvme_blocks == 0, "%llu blocks are left in %u steps",
          (unsigned long long)stats_of(store).nvme_blocks, steps);
    sync_all(w);
    kvcl_store_close(store);
    sync_all(w);
    tier_unlink();
}

/* A block removed from the tier is absent, though its bytes may still be in staging memory. */
void test_tier_staged(world_t *w)
{
    const char   *spec = tier_spec(w);
    kvcl_cache_h cache = make_cache(w, "tier", 2, false);
    kvcl_store_h store = open_with_pool(w, SMALL, spec);
    kvcl_key_t   key   = key_of("staged", (uint64_t)w->rank, 0);
    uint32_t     id    = 0;
    uint64_t     until = 0;
    uint8_t      present;
    kvcl_req_h   req;

    fill(cache, id, &key);
    CHECK(w, DO(kvcl_store_put(store, &key, 1, cache, &id, NULL, &req)) == KVCL_OK, "put");
    sync_all(w);
    kvcl_store_close(store);
    store = open_with_pool(w, SMALL, spec);
    do {
        KVCL_TRY(kvcl_store_exists(store, &key, 1, &present, NULL));
    } while (!present && keep_waiting(&until));
    id = 1;
    CHECK(w, DO(kvcl_store_get(store, &key, 1, cache, &id, NULL, NULL, &req)) == KVCL_OK, "get");
    CHECK(w, kvcl_tier_drop(store->cold->tier, key.bytes) == KVCL_OK, "drop"); /* and no home is notified */
    CHECK(w, DO(kvcl_store_get(store, &key, 1, cache, &id, NULL, NULL, &req)) == KVCL_ERR_NOT_FOUND, "it is there");
    sync_all(w);
    kvcl_store_close(store);
    sync_all(w);
    tier_unlink();
    kvcl_cache_destroy(cache);
}

/* ---- a disk that stops ---- */

/* Fill the tier until it has no room for another request. */
static void fill_tier(kvcl_store_h store)
{
    static uint8_t bytes[BLOCK];
    kvcl_key_t     key;
    uint64_t       n = 0, i;
    size_t         len;

    for (len = BLOCK; len >= 64; len /= 8) {
        do {
            key = key_of("filling", 0, n++);
        } while (kvcl_tier_append(store->cold->tier, key.bytes, kvcl_checksum(bytes, len), bytes, len, NULL, NULL,
                                  NULL) == KVCL_OK);
    }
    for (i = 0; i < n; ++i) {
        key = key_of("filling", 0, i);
        if (kvcl_tier_drop(store->cold->tier, key.bytes) == KVCL_ERR_BUSY) {
            return;
        }
    }
}

static size_t drops(kvcl_store_h store)
{
    size_t n;

    pthread_mutex_lock(&store->cold->lock);
    n = store->cold->n_drops;
    pthread_mutex_unlock(&store->cold->lock);
    return n;
}

/* Does a key wait to leave the tier? The store's thread takes all that do out of the list while it tries again. */
static bool some_drop_waits(kvcl_store_h store)
{
    uint64_t until = 0;

    while (drops(store) == 0) {
        if (!keep_waiting(&until)) {
            return false;
        }
    }
    return true;
}

/* The state of the pool's block of a key on its path to the tier; -1: it is not in the pool. */
static int state_of(kvcl_store_h store, const kvcl_key_t *key)
{
    const kvcl_cold_class_t *cls = &store->cold->classes[0];
    kvcl_owner_node_t       *node;
    int                     state;

    kvcl_lock(store->ctx);
    node  = kvcl_owner_find(store, key, cls->pool);
    state = (node != NULL) ? cls->clean[kvcl_owner_slot(node)] : -1;
    kvcl_unlock(store->ctx);
    return state;
}

/* A key waits to be removed from the tier, and is put again meanwhile. The old bytes still in the tier do not count for
 * the new block, since they will be removed. */
void test_tier_still(world_t *w)
{
    const char      *spec = tier_spec(w);
    kvcl_cache_h    cache = make_cache(w, "tier", KEYS, false);
    kvcl_key_t      key   = key_of("still", (uint64_t)w->rank, 0);
    uint32_t        id    = 0, turn;
    uint64_t        until = 0;
    kvcl_tier_loc_t at;
    kvcl_store_h    store;
    kvcl_req_h      req;

    fault.below  = &kvcl_tio_threads;
    kvcl_cold_io = &fault_ops;
    store        = open_with_pool(w, SMALL, spec);
    fill(cache, id, &key);
    CHECK(w, DO(kvcl_store_put(store, &key, 1, cache, &id, NULL, &req)) == KVCL_OK, "put");
    do {
        kvcl_cold_wake(store->cold);
    } while ((state_of(store, &key) != KVCL_COLD_CLEAN) && keep_waiting(&until));
    CHECK(w, kvcl_tier_find(store->cold->tier, key.bytes, &at) == KVCL_OK, "not in the tier");
    sync_all(w);
    fault_still(true);
    fill_tier(store);
    CHECK(w, DO(kvcl_store_remove(store, &key, 1, NULL, &req)) == KVCL_OK, "remove");
    CHECK(w, some_drop_waits(store), "no key waits to leave the tier");
    fill(cache, id, &key);
    CHECK(w, DO(kvcl_store_put(store, &key, 1, cache, &id, NULL, &req)) == KVCL_OK, "put again");
    for (turn = 0, until = 0; (turn < 100) && keep_waiting(&until); ++turn) {
        kvcl_cold_wake(store->cold);
    }
    CHECK(w, some_drop_waits(store) && (state_of(store, &key) == KVCL_COLD_DIRTY), "%d while it waits to leave",
          state_of(store, &key));
    fault_still(false);
    until = 0;
    do {
        kvcl_cold_wake(store->cold);
    } while (((drops(store) != 0) || (state_of(store, &key) != KVCL_COLD_CLEAN)) && keep_waiting(&until));
    CHECK(w, state_of(store, &key) == KVCL_COLD_CLEAN, "%d in the end", state_of(store, &key));
    CHECK(w, kvcl_tier_find(store->cold->tier, key.bytes, &at) == KVCL_OK, "the new block is not in the tier");
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cold_io = NULL;
    sync_all(w);
    tier_unlink();
    kvcl_cache_destroy(cache);
}
