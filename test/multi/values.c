/*
 * Values over several ranks: mpirun -n N values [--seed S] [TEST...]. Each value's bytes follow from a number and are
 * compared whenever it arrives; sizes, extents and alignments are random, the memory is malloc's.
 */
#include "values_test.h"

/* ---- sizes ---- */

static const size_t edges[] = {0, 1, 7, B - HEAD - 1, B - HEAD, B - HEAD + 1, B - 1, B, B + 1, (2 * B) - HEAD,
                               (2 * B) - 1, 2 * B, (2 * B) + 1, (16 * B) - 1, 16 * B, (16 * B) + 1};
enum { EDGES = sizeof(edges) / sizeof(edges[0]), RANDOM = 8, SIZES = EDGES + RANDOM + 1 };

/* The size of value i, the same on all ranks. */
static size_t size_of(const world_t *w, unsigned i)
{
    uint64_t state = w->seed + i;

    if (i < EDGES) {
        return edges[i];
    }
    return (size_t)((i < EDGES + RANDOM) ? next(&state) % (2 * MIB) : (64 * MIB) + (next(&state) % (6 * MIB)));
}

static unsigned sizes_of(const world_t *w, int rank)
{
    return ((rank == 0) && (getenv("VALUES_SMALL") == NULL)) ? SIZES : (w->size > 4) ? EDGES : SIZES - 1;
}

static void put_sizes(world_t *w, kvcl_store_h store, bool again)
{
    unsigned           n = sizes_of(w, w->rank), i;
    memory_t           m[SIZES];
    kvcl_key_t         keys[SIZES];
    kvcl_value_t       values[SIZES];
    uint8_t            copies[SIZES];
    kvcl_xfer_params_t p = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req;

    p.copies = copies;
    memset(copies, 0xee, sizeof(copies));
    for (i = 0; i < n; ++i) {
        keys[i] = key_of(w, "size", w->rank, i);
        memory_make(w, &m[i], size_of(w, i), 1 + (unsigned)(next(&w->rnd) % 5));
        memory_set(&m[i], what_of(&keys[i], 0));
        values[i] = m[i].value;
    }
    CHECK(w, DO(kvcl_store_put_values(store, keys, n, values, &p, &req)) == KVCL_OK, "%s put", again ? "2nd" : "1st");
    for (i = 0; i < n; ++i) {
        CHECK(w, copies[i] == 1, "value %u has %u copies", i, copies[i]);
        memory_free(&m[i]);
    }
}

/* One call for all values of a rank, or one for each. */
static void get_sizes(world_t *w, kvcl_store_h store, int rank, bool batch)
{
    unsigned      n = sizes_of(w, rank), i;
    memory_t      m[SIZES];
    kvcl_key_t    keys[SIZES];
    kvcl_value_t  values[SIZES];
    kvcl_status_t status[SIZES];
    kvcl_req_h    req;

    for (i = 0; i < n; ++i) {
        keys[i] = key_of(w, "size", rank, i);
        memory_make(w, &m[i], size_of(w, i), batch ? 1 + (unsigned)(next(&w->rnd) % 5) : 1);
        values[i] = m[i].value;
        if (!batch) {
            status[i] = DO(kvcl_store_get_value(store, &keys[i], m[i].extents[0].addr, m[i].bytes, NULL, &req));
        }
    }
    if (batch) {
        CHECK(w, DO(kvcl_store_get_values(store, keys, n, values, status, NULL, &req)) == KVCL_OK, "get of %d's", rank);
    }
    for (i = 0; i < n; ++i) {
        CHECK(w, status[i] == KVCL_OK, "value %u of %d, %zu bytes: %s", i, rank, m[i].bytes,
              kvcl_status_text(status[i]));
        CHECK(w, (status[i] != KVCL_OK) || memory_is(&m[i], what_of(&keys[i], 0)), "value %u of %d, %zu bytes: WRONG",
              i, rank, m[i].bytes);
        memory_free(&m[i]);
    }
}

static void query_sizes(world_t *w, kvcl_store_h store, int rank)
{
    unsigned      n = sizes_of(w, rank), i;
    kvcl_key_t    keys[SIZES];
    kvcl_status_t status[SIZES];
    uint64_t      bytes[SIZES];
    uint8_t       *buf = malloc(4 * MIB);
    kvcl_req_h    req;

    for (i = 0; i < n; ++i) {
        keys[i] = key_of(w, "size", rank, i);
    }
    CHECK(w, kvcl_store_value_sizes(store, keys, n, bytes, status, NULL) == KVCL_OK, "sizes");
    memset(bytes, 0xff, sizeof(bytes));
    CHECK(w, DO(kvcl_store_value_sizes_post(store, keys, n, bytes, status, NULL, &req)) == KVCL_OK, "sizes, posted");
    for (i = 0; i < n; ++i) {
        CHECK(w, bytes[i] == size_of(w, i), "value %u has %llu bytes, not %zu", i, (unsigned long long)bytes[i],
              size_of(w, i));
        if ((i % 3 == 0) && (size_of(w, i) < 3 * MIB)) { /* any other length is a miss */
            CHECK(w, DO(kvcl_store_get_value(store, &keys[i], buf, size_of(w, i) + 1, NULL, &req)) ==
                     KVCL_ERR_NOT_FOUND, "one byte more than %zu", size_of(w, i));
            CHECK(w, (size_of(w, i) == 0) || (DO(kvcl_store_get_value(store, &keys[i], buf, size_of(w, i) - 1, NULL,
                                                                     &req)) == KVCL_ERR_NOT_FOUND),
                  "one byte less than %zu", size_of(w, i));
            CHECK(w, DO(kvcl_store_get_value(store, &keys[i], buf, (size_of(w, i) == B) ? 2 * B : B, NULL, &req)) ==
                     KVCL_ERR_NOT_FOUND, "a block in place of %zu", size_of(w, i));
        }
    }
    keys[0] = key_of(w, "nowhere", 0, 0);
    CHECK(w, (kvcl_store_value_sizes(store, keys, 1, bytes, status, NULL) == KVCL_ERR_NOT_FOUND) && (bytes[0] == 0) &&
             (status[0] == KVCL_ERR_NOT_FOUND), "of nothing");
    CHECK(w, DO(kvcl_store_get_value(store, keys, buf, 10, NULL, &req)) == KVCL_ERR_NOT_FOUND, "nothing");
    free(buf);
}

static void test_sizes(world_t *w)
{
    kvcl_store_h       store = open_store(w, 3072, 0);
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;
    kvcl_key_t         keys[SIZES];
    uint64_t           before, after;
    kvcl_req_h         req;
    unsigned           i;
    int                r;

    put_sizes(w, store, false);
    sync_all(w);
    KVCL_TRY(kvcl_store_stats(store, &stats));
    before = sum_of(w, stats.published);
    put_sizes(w, store, true);
    KVCL_TRY(kvcl_store_stats(store, &stats));
    after = sum_of(w, stats.published);
    CHECK(w, before == after, "a second put published %llu blocks", (unsigned long long)(after - before));
    for (r = 0; r < w->size; ++r) {
        get_sizes(w, store, r, true);
        get_sizes(w, store, r, false);
    }
    query_sizes(w, store, (w->rank + 1) % w->size);
    sync_all(w);
    for (i = 0; i < sizes_of(w, w->rank); ++i) {
        keys[i] = key_of(w, "size", w->rank, i);
    }
    CHECK(w, DO(kvcl_store_remove_values_post(store, keys, sizes_of(w, w->rank), NULL, &req)) == KVCL_OK, "remove");
    sync_all(w);
    for (i = 0; i < 6000; ++i) { /* parts are removed in the background */
        KVCL_TRY(kvcl_store_stats(store, &stats));
        after = sum_of(w, stats.blocks);
        if (after == 0) {
            break;
        }
        nap(10000000);
    }
    CHECK(w, after == 0, "%llu blocks are left of what was removed", (unsigned long long)after);
    kvcl_store_close(store);
}

/* ---- values and blocks ---- */

static void test_blocks(world_t *w)
{
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(2, B);
    kvcl_store_h  store  = open_store(w, 64, 0);
    uint8_t       *buf   = malloc(B);
    uint32_t      ids[2] = {0, 1};
    kvcl_key_t    keys[2], small;
    kvcl_cache_h  cache;
    kvcl_req_h    req;

    KVCL_TRY(kvcl_cache_create(w->ctx, "blocks", &layout, NULL, &cache));
    keys[0] = key_of(w, "block", w->rank, 0);
    keys[1] = key_of(w, "block", w->rank, 1);
    small   = key_of(w, "block", w->rank, 2);
    make_bytes(what_of(&keys[0], 0), buf, B);
    CHECK(w, DO(kvcl_store_put_value(store, &keys[0], buf, B, NULL, &req)) == KVCL_OK, "a value of a block");
    CHECK(w, DO(kvcl_store_get(store, keys, 1, cache, ids, NULL, NULL, &req)) == KVCL_OK, "is a block");
    CHECK(w, (kvcl_cache_read_block(cache, 0, buf, B) == KVCL_OK) && same_bytes(what_of(&keys[0], 0), buf, B), "WRONG");
    make_bytes(what_of(&keys[1], 0), buf, B);
    CHECK(w, kvcl_cache_write_block(cache, 1, buf, B) == KVCL_OK, "write");
    CHECK(w, DO(kvcl_store_put(store, &keys[1], 1, cache, &ids[1], NULL, &req)) == KVCL_OK, "a block");
    memset(buf, 0, B);
    CHECK(w, (DO(kvcl_store_get_value(store, &keys[1], buf, B, NULL, &req)) == KVCL_OK) &&
             same_bytes(what_of(&keys[1], 0), buf, B), "is a value of a block");
    CHECK(w, DO(kvcl_store_put_value(store, &small, buf, 100, NULL, &req)) == KVCL_OK, "a small value");
    CHECK(w, DO(kvcl_store_get(store, &small, 1, cache, ids, NULL, NULL, &req)) == KVCL_ERR_NOT_FOUND, "is no block");
    CHECK(w, DO(kvcl_store_upsert_values(store, keys, 1, &(kvcl_value_t){&(kvcl_extent_t){buf, 100}, 1}, NULL, &req)) ==
             KVCL_OK, "upsert by another size");
    CHECK(w, DO(kvcl_store_get(store, keys, 1, cache, ids, NULL, NULL, &req)) == KVCL_ERR_NOT_FOUND, "the block");
    CHECK(w, DO(kvcl_store_get_value(store, keys, buf, 100, NULL, &req)) == KVCL_OK, "the value in its place");
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
    free(buf);
}

/* ---- upserts during gets ---- */

enum { UPSERTS = 60, UP_BYTES = 5 * B + 1234 };

static void test_upsert(world_t *w)
{
    kvcl_store_h  store = open_store(w, 512, (w->size > 1) ? 2 : 0);
    kvcl_key_t    key   = key_of(w, "up", 0, 0);
    unsigned      hits = 0, misses = 0, i;
    kvcl_status_t status;
    kvcl_req_h    req;
    memory_t      m;
    uint64_t      version = 0;

    memory_make(w, &m, UP_BYTES, 3);
    if (w->rank == 0) {
        for (i = 0; i < UPSERTS; ++i) {
            memory_set(&m, i); /* its first word identifies it */
            CHECK(w, DO(kvcl_store_upsert_values(store, &key, 1, &m.value, NULL, &req)) == KVCL_OK, "upsert %u", i);
        }
        memory_set(&m, UPSERTS);
        CHECK(w, DO(kvcl_store_upsert_values(store, &key, 1, &m.value, NULL, &req)) == KVCL_OK, "the last upsert");
    }
    do {
        status = DO(kvcl_store_get_values(store, &key, 1, &m.value, NULL, NULL, &req));
        CHECK(w, (status == KVCL_OK) || (status == KVCL_ERR_NOT_FOUND), "%s", kvcl_status_text(status));
        misses += (status != KVCL_OK) ? 1 : 0;
        if (status == KVCL_OK) {
            ++hits;
            memory_flatten(&m);
            for (version = 0; (version <= UPSERTS) && !same_bytes(version, m.flat, 8); ++version) {
            }
            CHECK(w, (version <= UPSERTS) && same_bytes(version, m.flat, m.bytes), "MIXED bytes, version %llu",
                  (unsigned long long)version);
        }
    } while ((w->failed == 0) && ((status != KVCL_OK) || (version != UPSERTS)) && (misses < 10000000));
    CHECK(w, (w->failed != 0) || memory_is(&m, UPSERTS), "the last one");
    sync_all(w);
    if (w->rank == w->size - 1) {
        printf("upsert: %u hits, %u misses at rank %d\n", hits, misses, w->rank);
    }
    memory_free(&m);
    kvcl_store_close(store);
}

/* ---- full pools ---- */

static void test_full(world_t *w)
{
    enum { POOL = 80, RUN = 64 };
    kvcl_store_h       store = open_store(w, POOL, 0);
    uint8_t            *buf  = malloc(100 * B), *got = malloc(100 * B);
    kvcl_xfer_params_t p     = KVCL_XFER_PARAMS_INIT;
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;
    kvcl_key_t         key, keys[64];
    kvcl_status_t      status;
    kvcl_req_h         req;
    struct timespec    from, to;
    size_t             n;
    unsigned           i;

    for (i = 0; i < 30; ++i) { /* each evicts others, none its own parts */
        size_t bytes = (size_t)(next(&w->rnd) % (20 * B));
        key = key_of(w, "full", w->rank, i);
        make_bytes(what_of(&key, 0), buf, bytes);
        CHECK(w, DO(kvcl_store_put_value(store, &key, buf, bytes, NULL, &req)) == KVCL_OK, "put of %zu", bytes);
        CHECK(w, (DO(kvcl_store_get_value(store, &key, got, bytes, NULL, &req)) == KVCL_OK) &&
                 same_bytes(what_of(&key, 0), got, bytes), "get of %zu after its put", bytes);
    }
    key = key_of(w, "large", w->rank, 0);
    make_bytes(what_of(&key, 0), buf, 100 * B);
    CHECK(w, DO(kvcl_store_put_value(store, &key, buf, 100 * B, NULL, &req)) == KVCL_ERR_NO_SPACE,
          "more than the pool");
    CHECK(w, DO(kvcl_store_get_value(store, &key, got, 100 * B, NULL, &req)) == KVCL_ERR_NOT_FOUND, "is not there");
    for (i = 0; i < 6000; ++i) {
        KVCL_TRY(kvcl_store_stats(store, &stats));
        if (stats.blocks <= POOL - RUN) {
            break;
        }
        nap(10000000);
    }
    CHECK(w, stats.blocks <= POOL - RUN, "%llu blocks: some are left of a put that failed",
          (unsigned long long)stats.blocks);
    p.flags      = KVCL_PUT_WAIT;
    p.timeout_ns = 300000000;
    clock_gettime(CLOCK_MONOTONIC, &from);
    status = DO(kvcl_store_put_value(store, &key, buf, 100 * B, &p, &req));
    clock_gettime(CLOCK_MONOTONIC, &to);
    CHECK(w, (status == KVCL_ERR_NO_SPACE) || (status == KVCL_ERR_TIMED_OUT), "waited: %s", kvcl_status_text(status));
    CHECK(w, to.tv_sec - from.tv_sec < 20, "the deadline was 0.3 s");
    key = key_of(w, "pinned", w->rank, 0);
    CHECK(w, DO(kvcl_store_put_value(store, &key, buf, 9 * B, NULL, &req)) == KVCL_OK, "put");
    CHECK(w, (kvcl_store_value_keys(store, &key, keys, 64, &n, NULL) == KVCL_OK) && (n == 10), "%zu keys", n);
    CHECK(w, kvcl_store_value_keys(store, &key, keys, 5, &n, NULL) == KVCL_ERR_NO_SPACE, "room for 5");
    CHECK(w, kvcl_store_pin(store, keys, n, 1, 60000000000u, 0, NULL, NULL) == KVCL_OK, "pin");
    for (i = 0; i < 30; ++i) {
        kvcl_key_t other = key_of(w, "other", w->rank, i);
        CHECK(w, DO(kvcl_store_put_value(store, &other, buf, 10 * B, NULL, &req)) == KVCL_OK, "put beside pins");
    }
    CHECK(w, DO(kvcl_store_get_value(store, &key, got, 9 * B, NULL, &req)) == KVCL_OK, "pinned");
    sync_all(w);
    kvcl_store_close(store);
    free(buf);
    free(got);
}

/* ---- spread over ranks ---- */

static void test_stripes(world_t *w)
{
    enum { BYTES = (24 * MIB) + 777 };
    kvcl_store_h       store = open_store(w, 2048, 0);
    uint8_t            *buf  = malloc(BYTES);
    kvcl_xfer_params_t p     = KVCL_XFER_PARAMS_INIT;
    kvcl_key_t         key, all;
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;
    kvcl_req_h         req;
    uint64_t           blocks, holders;
    unsigned           i;

    p.tenant = 7;
    all      = key_of(w, "stripes", 0, 0);
    if (w->rank == 0) {
        make_bytes(what_of(&all, 0), buf, BYTES);
        CHECK(w, DO(kvcl_store_put_value(store, &all, buf, BYTES, &p, &req)) == KVCL_OK, "put");
    }
    sync_all(w);
    KVCL_TRY(kvcl_store_stats(store, &stats));
    blocks  = sum_of(w, stats.blocks);
    holders = sum_of(w, (stats.blocks > 1) ? 1 : 0);
    /* more where a rank took its parts so slowly that they were kept at rank 0 as well */
    CHECK(w, (blocks >= (BYTES / B) + 2) && (blocks <= 2 * ((BYTES / B) + 2)), "%llu blocks",
          (unsigned long long)blocks);
    CHECK(w, holders == (uint64_t)((w->size < 4) ? w->size : 4), "%llu ranks hold parts", (unsigned long long)holders);
    for (i = 0; i < 3; ++i) {
        memset(buf, 0, BYTES);
        CHECK(w, DO(kvcl_store_get_value(store, &all, buf, BYTES, NULL, &req)) == KVCL_OK, "get");
        CHECK(w, same_bytes(what_of(&all, 0), buf, BYTES), "WRONG");
    }
    sync_all(w);
    key = key_of(w, "mine", w->rank, 0); /* all at once, two copies of each */
    make_bytes(what_of(&key, 0), buf, BYTES);
    p.replicas = 2;
    CHECK(w, DO(kvcl_store_put_value(store, &key, buf, BYTES, &p, &req)) == KVCL_OK, "put of all");
    sync_all(w);
    key = key_of(w, "mine", (w->rank + 1) % w->size, 0);
    CHECK(w, (DO(kvcl_store_get_value(store, &key, buf, BYTES, NULL, &req)) == KVCL_OK) &&
             same_bytes(what_of(&key, 0), buf, BYTES), "the neighbour's");
    sync_all(w);
    if (w->rank == 0) {
        CHECK(w, kvcl_store_clear(store, 7, NULL, NULL) == KVCL_OK, "clear of a tenant");
    }
    sync_all(w);
    KVCL_TRY(kvcl_store_stats(store, &stats));
    blocks = sum_of(w, stats.blocks);
    CHECK(w, blocks == 0, "%llu blocks are somebody else's", (unsigned long long)blocks);
    free(buf);
    kvcl_store_close(store);
}

/* ---- put again after the loss of a part ---- */

/* The rest of an older put of the same value, on any rank, is no copy of the new one, and hides it from no rank. */
static void test_again(world_t *w)
{
    enum { BYTES = (5 * B) + 99, KEYS = 8 };
    kvcl_store_h       store = open_store(w, 512, 0);
    uint8_t            buf[BYTES];
    kvcl_key_t         key   = key_of(w, "again", 0, 0), keys[KEYS];
    kvcl_xfer_params_t p     = KVCL_XFER_PARAMS_INIT;
    uint8_t            copies;
    kvcl_req_h         req;
    size_t             n;
    int                r;

    p.replicas = (w->size > 1) ? 2 : 1;
    p.copies   = &copies;
    make_bytes(what_of(&key, 0), buf, BYTES);
    for (r = 0; r <= w->size; ++r) {
        if (w->rank == r % w->size) {
            CHECK(w, DO(kvcl_store_put_value(store, &key, buf, BYTES, &p, &req)) == KVCL_OK, "put %d", r);
            CHECK(w, copies == p.replicas, "%u copies", copies);
        }
        sync_all(w);
        memset(buf, 0, BYTES);
        CHECK(w, DO(kvcl_store_get_value(store, &key, buf, BYTES, NULL, &req)) == KVCL_OK, "get after put %d", r);
        CHECK(w, same_bytes(what_of(&key, 0), buf, BYTES), "WRONG");
        make_bytes(what_of(&key, 0), buf, BYTES);
        sync_all(w);
        if (w->rank == r % w->size) {
            CHECK(w, kvcl_store_value_keys(store, &key, keys, KEYS, &n, NULL) == KVCL_OK, "keys");
            CHECK(w, DO(kvcl_store_remove(store, &keys[2], 1, NULL, &req)) == KVCL_OK, "a part is lost");
        }
        sync_all(w);
    }
    kvcl_store_close(store);
}

/* ---- canceled in flight ---- */

static void test_cancel(world_t *w)
{
    enum { BYTES = 16 * MIB };
    kvcl_store_h       store = open_store(w, 512, 0);
    uint8_t            *buf  = malloc(BYTES);
    kvcl_key_t         key   = key_of(w, "cancel", w->rank, 0);
    kvcl_xfer_params_t p     = KVCL_XFER_PARAMS_INIT;
    kvcl_status_t      status;
    kvcl_req_h         req;
    unsigned           i, ended = 0;
    size_t             at;

    make_bytes(what_of(&key, 0), buf, BYTES);
    CHECK(w, DO(kvcl_store_put_value(store, &key, buf, BYTES, NULL, &req)) == KVCL_OK, "put");
    sync_all(w);
    key = key_of(w, "cancel", (w->rank + 1) % w->size, 0);
    for (i = 0; i < 20; ++i) {
        p.timeout_ns = ((i % 2) != 0) ? 1 + (next(&w->rnd) % 3000000) : 0;
        CHECK(w, kvcl_store_get_value(store, &key, buf, BYTES, &p, &req) == KVCL_OK, "post");
        if (p.timeout_ns == 0) {
            nap(next(&w->rnd) % 2000000);
            kvcl_req_cancel(req);
        }
        status = wait_for(req);
        CHECK(w, (status == KVCL_OK) || (status == KVCL_ERR_CANCELED) || (status == KVCL_ERR_TIMED_OUT), "%s",
              kvcl_status_text(status));
        ended += (status != KVCL_OK) ? 1 : 0;
        memset(buf, 0xa5, BYTES);
        nap(5000000);
        for (at = 0; (at < BYTES) && (buf[at] == 0xa5); ++at) {
        }
        CHECK(w, at == BYTES, "byte %zu was written after the end", at);
    }
    CHECK(w, (DO(kvcl_store_get_value(store, &key, buf, BYTES, NULL, &req)) == KVCL_OK) &&
             same_bytes(what_of(&key, 0), buf, BYTES), "get after all of that");
    sync_all(w);
    if (w->rank == 0) {
        printf("cancel: %u of 20 ended early\n", ended);
    }
    free(buf);
    kvcl_store_close(store);
}

/* ---- */

static const struct {
    const char *name;
    void       (*run)(world_t *w);
} tests[] = {{"sizes", test_sizes}, {"blocks", test_blocks}, {"upsert", test_upsert}, {"full", test_full},
             {"stripes", test_stripes}, {"again", test_again}, {"cancel", test_cancel}};

int main(int argc, char **argv)
{
    world_t  w = {.seed = (uint64_t)time(NULL)};
    unsigned before, bad = 0, passed = 0, t;
    int      i, named = 0;

    for (i = 1; i + 1 < argc; ++i) {
        if (strcmp(argv[i], "--seed") == 0) {
            w.seed = strtoull(argv[++i], NULL, 0);
            argv[i] = NULL;
        }
    }
    KVCL_TRY(kvcl_init(NULL, &w.ctx));
    KVCL_TRY(kvcl_comm_world(w.ctx, &w.comm));
    w.rank = kvcl_comm_rank(w.comm);
    w.size = kvcl_comm_size(w.comm);
    for (t = 0; t < sizeof(tests) / sizeof(tests[0]); ++t) {
        bool wanted = false;
        for (i = 1, named = 0; i < argc; ++i) {
            if ((argv[i] != NULL) && (strcmp(argv[i], "--seed") != 0)) {
                ++named;
                wanted = wanted || (strcmp(argv[i], tests[t].name) == 0);
            }
        }
        if (!wanted && (named != 0)) {
            continue;
        }
        w.rnd  = w.seed + (uint64_t)w.rank + (1000 * t);
        before = w.failed;
        tests[t].run(&w);
        sync_all(&w);
        bad    += (w.failed != before) ? 1 : 0;
        passed += (w.failed == before) ? 1 : 0;
        if (w.failed != before) {
            fprintf(stderr, "rank %d: test %s failed (TEST_SEED=%llu)\n", w.rank, tests[t].name,
                    (unsigned long long)w.seed);
        }
    }
    if (w.rank == 0) {
        printf("%u passed, %u failed, 0 skipped\n", passed, bad);
    }
    sync_all(&w);
    kvcl_finalize(w.ctx);
    return (bad == 0) ? 0 : 1;
}
