/*
 * A pool for blocks of several sizes, over ranks: while the arena's slabs change sizes under readers, a get returns a
 * key's bytes or a miss.
 */
#include "store_sized.h"

enum { KEYS = 400 };

const uint64_t sizes[SIZES] = {1528, 4096, LARGEST}; /* the second is block_bytes */

kvcl_store_params_t sized_params(uint64_t bytes)
{
    kvcl_store_params_t p = KVCL_STORE_PARAMS_INIT;

    p.dram_bytes    = bytes;
    p.block_bytes   = sizes[1];
    p.block_sizes   = sizes;
    p.n_block_sizes = SIZES;
    return p;
}

kvcl_cache_h make_sized(world_t *w, const char *name, unsigned s)
{
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(8, (uint32_t)sizes[s]);
    kvcl_cache_h  cache;
    char          full[64];

    snprintf(full, sizeof(full), "%s.%u", name, s);
    KVCL_TRY(kvcl_cache_create(w->ctx, full, &layout, NULL, &cache));
    return cache;
}

/* Every word identifies its key and position. */
static void bytes_of(const kvcl_key_t *key, unsigned s, uint64_t *words)
{
    uint64_t seed, i;

    memcpy(&seed, key->bytes, sizeof(seed));
    for (i = 0; i < sizes[s] / sizeof(*words); ++i) {
        words[i] = (seed * 31) + (i * 0x9e3779b97f4a7c15ull) + s;
    }
}

static void put_in(kvcl_cache_h cache, unsigned s, const kvcl_key_t *key)
{
    uint64_t words[LARGEST / sizeof(uint64_t)];

    bytes_of(key, s, words);
    KVCL_TRY(kvcl_cache_write_block(cache, 0, words, sizes[s]));
}

bool is_right(kvcl_cache_h cache, uint32_t block, unsigned s, const kvcl_key_t *key)
{
    uint64_t want[LARGEST / sizeof(uint64_t)], got[LARGEST / sizeof(uint64_t)];

    bytes_of(key, s, want);
    KVCL_TRY(kvcl_cache_read_block(cache, block, got, sizes[s]));
    return memcmp(want, got, sizes[s]) == 0;
}

unsigned size_of(const kvcl_key_t *key)
{
    return key->bytes[9] % SIZES;
}

kvcl_key_t key_at(uint64_t owner, unsigned s, uint64_t i)
{
    kvcl_key_t key = key_of("sized", owner, i);

    key.bytes[9] = (uint8_t)s;
    return key;
}

kvcl_status_t put_one(kvcl_store_h store, kvcl_cache_h cache, const kvcl_key_t *key, uint64_t replicas,
                      uint8_t *copies)
{
    kvcl_xfer_params_t p  = KVCL_XFER_PARAMS_INIT;
    uint32_t           id = 0;
    kvcl_req_h         req;

    p.replicas = replicas;
    p.copies   = copies;
    put_in(cache, size_of(key), key);
    return DO(kvcl_store_put(store, key, 1, cache, &id, &p, &req));
}

kvcl_status_t get_one(kvcl_store_h store, kvcl_cache_h cache, const kvcl_key_t *key)
{
    uint32_t   id = 1;
    kvcl_req_h req;

    return DO(kvcl_store_get(store, key, 1, cache, &id, NULL, NULL, &req));
}

/* Copies, a wrong size, a rank's own statistics, draining. */
void test_sizes(world_t *w)
{
    kvcl_store_params_t p = sized_params(2 << 20);
    kvcl_store_stats_t  stats = KVCL_STORE_STATS_INIT;
    kvcl_cache_h        caches[SIZES];
    kvcl_store_h        store;
    kvcl_status_t       status;
    uint64_t            moved;
    uint8_t             copies;
    unsigned            s;
    int                 r;

    KVCL_TRY(kvcl_store_open(w->comm, &p, &store));
    for (s = 0; s < SIZES; ++s) {
        kvcl_key_t key = key_at((uint64_t)w->rank, s, 1);
        caches[s] = make_sized(w, "sizes", s);
        status    = put_one(store, caches[s], &key, 2, &copies);
        CHECK(w, status == KVCL_OK, "a block of %llu bytes: %s", (unsigned long long)sizes[s],
              kvcl_status_text(status));
        CHECK(w, copies == ((w->size > 1) ? 2 : 1), "%u copies", copies);
    }
    sync_all(w);
    for (r = 0; r < w->size; ++r) {
        for (s = 0; s < SIZES; ++s) {
            kvcl_key_t key = key_at((uint64_t)r, s, 1);
            status = get_one(store, caches[s], &key);
            CHECK(w, (status == KVCL_OK) && is_right(caches[s], 1, s, &key), "rank %d's block of %llu bytes: %s", r,
                  (unsigned long long)sizes[s], kvcl_status_text(status));
            status = get_one(store, caches[(s + 1) % SIZES], &key);
            CHECK(w, status == KVCL_ERR_NOT_FOUND, "into blocks of another size: %s", kvcl_status_text(status));
        }
    }
    KVCL_TRY(kvcl_store_stats(store, &stats));
    CHECK(w, (stats.n_sizes == SIZES) && (stats.sizes[0].block_bytes == sizes[1]) && (stats.block_bytes == sizes[1]),
          "%llu sizes, the first %llu", (unsigned long long)stats.n_sizes,
          (unsigned long long)stats.sizes[0].block_bytes);
    for (s = 0; s < SIZES; ++s) {
        CHECK(w, (stats.sizes[s].published >= 1) && (stats.sizes[s].blocks >= stats.sizes[s].published), "size %u", s);
    }
    sync_all(w);
    if ((w->size > 1) && (w->rank == 0)) {
        status = kvcl_store_drain(store, &moved, NULL);
        CHECK(w, status == KVCL_OK, "drain: %s", kvcl_status_text(status));
    }
    sync_all(w);
    kvcl_store_close(store);
    for (s = 0; s < SIZES; ++s) {
        kvcl_cache_destroy(caches[s]);
    }
}

/* An old key of any rank: most likely its slab has been given, or is being given, to another size. */
static kvcl_key_t old_key(world_t *w, kvcl_rand_t *rnd, unsigned step, unsigned phase)
{
    unsigned at = (step > 700) ? step - 100 - (unsigned)(kvcl_rand_next(rnd) % 500) : 1;

    return key_at(kvcl_rand_next(rnd) % (uint64_t)w->size, (at / phase) % SIZES, at);
}

/* Check the pool after the churn. */
static void check_churned(world_t *w, kvcl_store_h store, uint64_t hits, uint64_t misses)
{
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;
    uint64_t           bytes = 0;
    unsigned           s;

    KVCL_TRY(kvcl_store_stats(store, &stats));
    for (s = 0; s < SIZES; ++s) {
        bytes += stats.sizes[s].published * stats.sizes[s].block_bytes;
    }
    CHECK(w, stats.corrupt == 0, "%llu copies had another checksum under an equal generation",
          (unsigned long long)stats.corrupt);
    CHECK(w, stats.pool_taken > 10, "%llu parts changed hands", (unsigned long long)stats.pool_taken);
    CHECK(w, bytes >= stats.pool_bytes * 95 / 100, "%llu bytes of %llu are used", (unsigned long long)bytes,
          (unsigned long long)stats.pool_bytes);
    if (w->rank == 0) {
        printf("sizes: %llu hits, %llu misses, %llu parts changed hands, %.1f%% of the pool used\n",
               (unsigned long long)hits, (unsigned long long)misses, (unsigned long long)stats.pool_taken,
               100.0 * (double)bytes / (double)stats.pool_bytes);
    }
}

/* Every rank puts, in changing mixes, far more than its arena has, and reads recent and old keys of all ranks. */
void test_sizes_churn(world_t *w)
{
    enum { STEPS = 4000, PHASE = 500, LATELY = 24 };
    kvcl_store_params_t p = sized_params(4 << 20);
    kvcl_cache_h        caches[SIZES];
    kvcl_store_h        store;
    kvcl_status_t       status;
    kvcl_rand_t         rnd;
    uint64_t            hits = 0, misses = 0;
    unsigned            step, s, wrong = 0, failed = 0;
    kvcl_key_t          key;

    kvcl_rand_seed(&rnd, w->seed + (uint64_t)w->rank);
    p.flags = (w->seed % 2 != 0) ? KVCL_STORE_NO_CHECKSUM : 0; /* generations alone must suffice */
    KVCL_TRY(kvcl_store_open(w->comm, &p, &store));
    for (s = 0; s < SIZES; ++s) {
        caches[s] = make_sized(w, "churn", s);
    }
    sync_all(w);
    for (step = 1; step <= STEPS; ++step) {
        s      = (kvcl_rand_next(&rnd) % 4 != 0) ? (step / PHASE) % SIZES : (unsigned)(kvcl_rand_next(&rnd) % SIZES);
        key    = key_at((uint64_t)w->rank, s, step);
        status = put_one(store, caches[s], &key, 1 + (kvcl_rand_next(&rnd) % 8 == 0), NULL);
        failed += (status != KVCL_OK) ? 1 : 0;
        s   = (unsigned)(kvcl_rand_next(&rnd) % SIZES);
        key = key_at(kvcl_rand_next(&rnd) % (uint64_t)w->size, s, step - (kvcl_rand_next(&rnd) % LATELY));
        key = (step % 2 == 0) ? old_key(w, &rnd, step, PHASE) : key;
        s   = size_of(&key);
        status = get_one(store, caches[s], &key);
        if (status == KVCL_OK) {
            ++hits;
            wrong += is_right(caches[s], 1, s, &key) ? 0 : 1;
        } else {
            ++misses;
        }
        if (step % 500 == 0) {
            CHECK(w, pool_holds(store), "step %u: the pool contradicts itself", step);
        }
    }
    CHECK(w, wrong == 0, "%u gets of %llu had wrong bytes", wrong, (unsigned long long)hits);
    CHECK(w, failed < STEPS / 50, "%u puts failed", failed); /* all blocks of a size were just being filled */
    CHECK(w, hits > STEPS / 20, "%llu hits", (unsigned long long)hits);
    check_churned(w, store, hits, misses);
    sync_all(w);
    kvcl_store_close(store);
    for (s = 0; s < SIZES; ++s) {
        kvcl_cache_destroy(caches[s]);
    }
}

/* More blocks of a size than the arena can ever have: nothing is evicted for them. */
static void put_too_many(world_t *w, kvcl_store_h store, kvcl_cache_h cache)
{
    enum { MANY = (1 << 20) / LARGEST + 1 };
    kvcl_xfer_params_t p = KVCL_XFER_PARAMS_INIT;
    kvcl_store_stats_t before = KVCL_STORE_STATS_INIT, after = KVCL_STORE_STATS_INIT;
    kvcl_key_t         keys[MANY];
    uint32_t           ids[MANY] = {0};
    kvcl_status_t      status;
    kvcl_req_h         req;
    unsigned           i;

    for (i = 0; i < MANY; ++i) {
        keys[i] = key_at((uint64_t)w->rank + 2000, 2, i);
    }
    p.flags      = KVCL_PUT_WAIT;
    p.timeout_ns = 600ull * 1000000000;
    KVCL_TRY(kvcl_store_stats(store, &before));
    status = DO(kvcl_store_put(store, keys, MANY, cache, ids, &p, &req));
    KVCL_TRY(kvcl_store_stats(store, &after));
    CHECK(w, status == KVCL_ERR_NO_SPACE, "%d at once: %s", MANY, kvcl_status_text(status));
    CHECK(w, after.evicted == before.evicted, "%llu evicted in vain",
          (unsigned long long)(after.evicted - before.evicted));
}

/* A hard pin holds its block while other sizes need the whole arena; a quota counts bytes of all sizes. */
void test_sizes_bounds(world_t *w)
{
    kvcl_store_params_t p = sized_params(1 << 20);
    kvcl_xfer_params_t  x = KVCL_XFER_PARAMS_INIT;
    kvcl_store_stats_t  stats = KVCL_STORE_STATS_INIT;
    kvcl_cache_h        caches[SIZES];
    kvcl_key_t          pinned, key;
    kvcl_store_h        store;
    kvcl_status_t       status;
    kvcl_req_h          req;
    uint64_t            bytes = 0;
    uint32_t            id = 0;
    unsigned            s, i;

    KVCL_TRY(kvcl_store_open(w->comm, &p, &store));
    for (s = 0; s < SIZES; ++s) {
        caches[s] = make_sized(w, "bounds", s);
    }
    pinned = key_at((uint64_t)w->rank, 0, 0);
    KVCL_TRY(put_one(store, caches[0], &pinned, 1, NULL));
    KVCL_TRY(kvcl_store_pin(store, &pinned, 1, 7, 600ull * 1000000000, 0, NULL, NULL));
    for (i = 1; i < KEYS; ++i) {
        key = key_at((uint64_t)w->rank, 2, i);
        CHECK(w, put_one(store, caches[2], &key, 1, NULL) == KVCL_OK, "put %u", i);
    }
    status = get_one(store, caches[0], &pinned);
    CHECK(w, (status == KVCL_OK) && is_right(caches[0], 1, 0, &pinned), "%s", kvcl_status_text(status));
    sync_all(w);
    put_too_many(w, store, caches[2]);
    sync_all(w);
    KVCL_TRY(kvcl_store_quota(store, w->rank, 5, 100000, NULL));
    x.tenant = 5;
    for (i = 0; i < 300; ++i) {
        s   = i % SIZES;
        key = key_at((uint64_t)w->rank + 1000, s, i);
        put_in(caches[s], s, &key);
        status = DO(kvcl_store_put(store, &key, 1, caches[s], &id, &x, &req));
        CHECK(w, status == KVCL_OK, "a tenant's put %u: %s", i, kvcl_status_text(status));
    }
    for (i = 0; i < 300; ++i) {
        key = key_at((uint64_t)w->rank + 1000, i % SIZES, i);
        bytes += (get_one(store, caches[i % SIZES], &key) == KVCL_OK) ? sizes[i % SIZES] : 0;
    }
    CHECK(w, (bytes > 50000) && (bytes <= 100000), "the tenant has %llu bytes of 100000", (unsigned long long)bytes);
    KVCL_TRY(kvcl_store_stats(store, &stats));
    CHECK(w, stats.pinned == 1, "%llu pinned", (unsigned long long)stats.pinned);
    sync_all(w);
    kvcl_store_close(store);
    for (s = 0; s < SIZES; ++s) {
        kvcl_cache_destroy(caches[s]);
    }
}

static void refuse(world_t *w, uint64_t bytes, const uint64_t *list, uint64_t n, uint64_t block, const char *what)
{
    kvcl_store_params_t p = KVCL_STORE_PARAMS_INIT;
    kvcl_store_h        store;
    kvcl_status_t       status;

    p.dram_bytes    = bytes;
    p.block_bytes   = block;
    p.block_sizes   = list;
    p.n_block_sizes = n;
    status = kvcl_store_open(w->comm, &p, &store);
    CHECK(w, status == KVCL_ERR_INVALID_PARAM, "%s: %s", what, kvcl_status_text(status));
    if (status == KVCL_OK) {
        kvcl_store_close(store);
    }
}

void test_sizes_errors(world_t *w)
{
    static const uint64_t zero[2] = {4096, 0}, nine[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, two[2] = {4096, 8192};

    refuse(w, 1 << 20, zero, 2, 0, "a size of 0");
    refuse(w, 1 << 20, nine, 9, 0, "nine sizes");
    refuse(w, 1 << 20, NULL, 2, 0, "no list");
    refuse(w, 8 * 8192 - 1, two, 2, 0, "a pool too small");
    refuse(w, 1 << 20, two, 0, 0, "no size");
}
