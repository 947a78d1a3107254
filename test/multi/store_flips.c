/*
 * Bytes that differ from those stored: a pool of one block that every put rewrites while others read it
 * (STORE_CYCLES=10000000 for the long run), and bits that flip in a holder's memory. A get returns the right bytes or
 * finds no block.
 */
#include "store_test.h"

/* ---- one slot ---- */

static uint32_t cycles(void)
{
    const char *text = getenv("STORE_CYCLES");

    return (text != NULL) ? (uint32_t)strtoul(text, NULL, 0) : 10000;
}

static void put_all(world_t *w, kvcl_store_h store, kvcl_cache_h cache)
{
    const uint32_t n = cycles(), mine = 0;
    kvcl_status_t  status = KVCL_OK;
    kvcl_key_t     key;
    kvcl_req_h     req;
    uint32_t       i;

    for (i = 0; (i < n) && (status == KVCL_OK); ++i) {
        key = key_of("slot", w->seed, i);
        fill(cache, mine, &key);
        status = DO(kvcl_store_put(store, &key, 1, cache, &mine, NULL, &req));
    }
    CHECK(w, status == KVCL_OK, "put %u: %s", i, kvcl_status_text(status));
    key = key_of("slot", w->seed, n);
    fill(cache, mine, &key);
    CHECK(w, DO(kvcl_store_put(store, &key, 1, cache, &mine, NULL, &req)) == KVCL_OK, "the last put");
}

/* Get the pool's current block: search around the newest key that was found, doubling the range where none was. */
static void get_until_last(world_t *w, kvcl_store_h store, kvcl_cache_h cache)
{
    const uint32_t n = cycles(), mine = 0;
    uint64_t       newest = 0, reach = 1, at, got = 0, wrong = 0;
    kvcl_status_t  status;
    kvcl_rand_t    rnd;
    kvcl_key_t     key;
    kvcl_req_h     req;

    kvcl_rand_seed(&rnd, w->seed + (uint64_t)w->rank);
    while (newest < n) {
        at     = newest + kvcl_rand_below(&rnd, reach);
        at     = (at < n) ? at : n;
        key    = key_of("slot", w->seed, at);
        status = DO(kvcl_store_get(store, &key, 1, cache, &mine, NULL, NULL, &req));
        if (status == KVCL_OK) {
            ++got;
            wrong += holds(cache, mine, &key) ? 0 : 1;
            newest = at;
            reach  = 2;
        } else if (status == KVCL_ERR_NOT_FOUND) {
            reach = (reach < n) ? reach * 2 : 2;
        } else {
            CHECK(w, false, "get: %s", kvcl_status_text(status));
            return;
        }
    }
    CHECK(w, (wrong == 0) && (got > 0), "%llu of %llu blocks had wrong bytes", (unsigned long long)wrong,
          (unsigned long long)got);
}

void test_one_slot(world_t *w)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_cache_h        cache  = make_cache(w, "slot", 1, false);
    kvcl_store_stats_t  stats = KVCL_STORE_STATS_INIT;
    kvcl_store_h        store;

    params.dir_entries = 4096;
    params.dram_bytes  = (w->rank == 0) ? BLOCK : 0;
    params.block_bytes = (w->rank == 0) ? BLOCK : 0;
    params.flags       = (w->seed % 2 != 0) ? KVCL_STORE_NO_CHECKSUM : 0; /* generations alone must suffice */
    params.nvme        = "";
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    sync_all(w);
    if (w->rank == 0) {
        put_all(w, store, cache);
    } else {
        get_until_last(w, store, cache);
    }
    sync_all(w);
    KVCL_TRY(kvcl_store_stats(store, &stats));
    CHECK(w, stats.corrupt == 0, "%llu copies had another checksum under an equal generation",
          (unsigned long long)stats.corrupt);
    CHECK(w, (w->rank != 0) || (stats.evicted == cycles()), "%llu evicted", (unsigned long long)stats.evicted);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}

/* ---- flipped bits ---- */

enum { FLIPS = 64 };

/* Get from the previous rank, which has one block: one bit has flipped since it was published, or none (bit < 0). */
static void get_turn(world_t *w, kvcl_store_h store, kvcl_cache_h cache, const kvcl_key_t *key, int bit)
{
    const uint32_t to = 1;
    kvcl_status_t  status;
    kvcl_req_h     req;

    sync_all(w);
    status = DO(kvcl_store_get(store, key, 1, cache, &to, NULL, NULL, &req));
    if (bit < 0) {
        CHECK(w, (status == KVCL_OK) && holds(cache, to, key), "%s", kvcl_status_text(status));
    } else {
        CHECK(w, status == KVCL_ERR_NOT_FOUND, "bit %d: %s", bit, kvcl_status_text(status));
    }
    sync_all(w);
}

static void flip(kvcl_cache_h cache, uint32_t block, int bit)
{
    uint8_t bytes[BLOCK];

    KVCL_TRY(kvcl_cache_read_block(cache, block, bytes, sizeof(bytes)));
    bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    KVCL_TRY(kvcl_cache_write_block(cache, block, bytes, sizeof(bytes)));
}

void test_flips(world_t *w)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_cache_h        cache  = make_cache(w, "flips", 2, true);
    kvcl_key_t          key    = key_of("flips", w->seed, (uint64_t)w->rank);
    kvcl_key_t          other  = key_of("flips", w->seed, (uint64_t)((w->rank + w->size - 1) % w->size));
    const uint32_t      mine   = 0;
    kvcl_store_stats_t  stats = KVCL_STORE_STATS_INIT;
    kvcl_store_h        store;
    kvcl_rand_t         rnd;
    kvcl_req_h          req;
    int                 bit, i;

    kvcl_rand_seed(&rnd, w->seed); /* the same bits everywhere */
    params.dir_entries = 4096;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    for (i = 0; i < FLIPS; ++i) {
        bit = (i == 0) ? 0 : (i == 1) ? (BLOCK * 8) - 1 : (int)kvcl_rand_below(&rnd, BLOCK * 8);
        fill(cache, mine, &key);
        CHECK(w, DO(kvcl_store_publish(store, &key, 1, cache, &mine, NULL, &req)) == KVCL_OK, "publish");
        get_turn(w, store, cache, &other, -1);
        flip(cache, mine, bit);
        get_turn(w, store, cache, &other, bit);
        KVCL_TRY(kvcl_store_withdraw(store, cache, &mine, 1));
    }
    KVCL_TRY(kvcl_store_stats(store, &stats));
    CHECK(w, stats.corrupt >= FLIPS, "%llu refused", (unsigned long long)stats.corrupt);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}
