/*
 * Bytes that differ from those stored: a pool of one block that every put rewrites while others read it
 * (STORE_CYCLES=10000000 for the long run), and bits that flip in a holder's memory, in a get of one block and in one
 * that is larger than the caches. A get returns the right bytes or finds no block.
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

/* ---- flipped bits in a large get ---- */

enum { MANY = 320, MANY_WORDS = 8192, MANY_BYTES = MANY_WORDS * 8, MANY_FLIPS = 9 };

static void many_words(const kvcl_key_t *key, uint64_t *words)
{
    kvcl_rand_t rnd;
    uint64_t    seed;
    size_t      i;

    memcpy(&seed, key->bytes + 8, sizeof(seed));
    kvcl_rand_seed(&rnd, seed);
    for (i = 0; i < MANY_WORDS; ++i) {
        words[i] = kvcl_rand_next(&rnd);
    }
}

static kvcl_cache_h make_many(world_t *w, const char *name, bool structured)
{
    kvcl_layout_t opaque = KVCL_LAYOUT_BYTES(2 * MANY, MANY_BYTES);
    kvcl_layout_t layers = KVCL_LAYOUT_NHD(.flags = KVCL_LAYOUT_PER_LAYER, .layers = 2, .blocks = 2 * MANY,
                                           .tokens = 16, .heads = 8, .head_dim = 64, .elem_bytes = 2);
    kvcl_cache_h  cache;

    KVCL_TRY(kvcl_cache_create(w->ctx, name, structured ? &layers : &opaque, NULL, &cache));
    return cache;
}

/* Blocks 0 to MANY - 1 are published; `flipped` are those that have one bit changed afterwards. */
static void publish_many(world_t *w, kvcl_store_h store, kvcl_cache_h cache, const char *what, const bool *flipped)
{
    static uint64_t words[MANY_WORDS];
    kvcl_key_t      keys[MANY];
    uint32_t        ids[MANY], i;
    kvcl_req_h      req;

    for (i = 0; i < MANY; ++i) {
        keys[i] = key_of(what, (uint64_t)w->rank, i);
        ids[i]  = i;
        many_words(&keys[i], words);
        KVCL_TRY(kvcl_cache_write_block(cache, i, words, sizeof(words)));
    }
    CHECK(w, DO(kvcl_store_publish(store, keys, MANY, cache, ids, NULL, &req)) == KVCL_OK, "publish");
    for (i = 0; i < MANY; ++i) {
        if (flipped[i]) {
            many_words(&keys[i], words);
            words[(i * 31) % MANY_WORDS] ^= UINT64_C(1) << (i % 64);
            KVCL_TRY(kvcl_cache_write_block(cache, i, words, sizeof(words)));
        }
    }
}

/* All blocks of the previous rank in one call. */
static void get_many(world_t *w, kvcl_store_h store, kvcl_cache_h cache, const char *what, const bool *flipped)
{
    static uint64_t words[MANY_WORDS], got[MANY_WORDS];
    const uint64_t  from = (uint64_t)((w->rank + w->size - 1) % w->size);
    kvcl_status_t   status[MANY], all;
    kvcl_key_t      keys[MANY];
    uint32_t        ids[MANY], i;
    kvcl_req_h      req;

    for (i = 0; i < MANY; ++i) {
        keys[i] = key_of(what, from, i);
        ids[i]  = (2 * MANY) - 1 - ((i * 7) % MANY);
    }
    all = DO(kvcl_store_get(store, keys, MANY, cache, ids, status, NULL, &req));
    CHECK(w, all == KVCL_ERR_NOT_FOUND, "%s", kvcl_status_text(all));
    for (i = 0; i < MANY; ++i) {
        if (flipped[i]) {
            CHECK(w, status[i] == KVCL_ERR_NOT_FOUND, "block %u has a flipped bit: %s", i, kvcl_status_text(status[i]));
            continue;
        }
        many_words(&keys[i], words);
        KVCL_TRY(kvcl_cache_read_block(cache, ids[i], got, sizeof(got)));
        CHECK(w, (status[i] == KVCL_OK) && (memcmp(words, got, sizeof(got)) == 0), "block %u: %s", i,
              kvcl_status_text(status[i]));
    }
}

static void many_flips(world_t *w, bool structured)
{
    const char          *what  = structured ? "many-layers" : "many-bytes";
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_cache_h        cache  = make_many(w, what, structured);
    kvcl_store_stats_t  stats  = KVCL_STORE_STATS_INIT;
    bool                flipped[MANY] = {false};
    kvcl_store_h        store;
    kvcl_rand_t         rnd;
    int                 i;

    kvcl_rand_seed(&rnd, w->seed); /* the same blocks everywhere */
    for (i = 0; i < MANY_FLIPS; ++i) {
        flipped[(i == 0) ? 0 : (i == 1) ? MANY - 1 : kvcl_rand_below(&rnd, MANY)] = true;
    }
    params.dir_entries = 8192;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    publish_many(w, store, cache, what, flipped);
    sync_all(w);
    get_many(w, store, cache, what, flipped);
    KVCL_TRY(kvcl_store_stats(store, &stats));
    CHECK(w, stats.corrupt >= 2, "%llu refused", (unsigned long long)stats.corrupt);
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
}

void test_many_flips(world_t *w)
{
    many_flips(w, false);
    many_flips(w, true);
}
