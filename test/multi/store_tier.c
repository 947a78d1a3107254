/*
 * Second tiers: pools that are far too small, on disks that fail or stop. A block that was put is found though it was
 * evicted, also after a restart. A corrupt file yields a miss.
 */
#include "../unit/tier_fault.h"
#include "base/log.h"
#include "store/cold/cold.h"
#include "store_test.h"
#include <kvcl/kvcl_store_admin.h>

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

enum { POOL = 48, AHEAD = POOL / 2, BATCH = 8, KEYS = 160, TIER_MIB = 16 };

static char path[128]; /* of this rank's tier */

const char *tier_spec(world_t *w)
{
    static char spec[160];
    const char  *dir = getenv("TMPDIR");
    uint64_t    all[64] = {0}, mine = (uint64_t)getpid();
    kvcl_req_h  req;

    KVCL_TRY(kvcl_allgather(w->comm, &mine, sizeof(mine), all, NULL, &req));
    KVCL_TRY(wait_for(req));
    dir = (dir != NULL) ? dir : "/tmp";
    snprintf(path, sizeof(path), "%s/kvcl-test-tier.%llu.%d", dir, (unsigned long long)all[0], w->rank);
    snprintf(spec, sizeof(spec), "%s/kvcl-test-tier.%llu.%%r:%dM", dir, (unsigned long long)all[0], TIER_MIB);
    return spec;
}

void tier_unlink(void)
{
    unlink(path);
}

/* Blocks of this rank's pool that are not in the tier. */
static uint32_t dirty(kvcl_store_h store)
{
    const kvcl_cold_class_t *cls = &store->cold->classes[0];
    uint32_t                n    = 0, i;

    kvcl_lock(store->ctx);
    for (i = 0; i < POOL; ++i) {
        n += (cls->pool->array[i].state == KVCL_SLOT_PUBLISHED) && (cls->clean[i] == KVCL_COLD_DIRTY);
    }
    kvcl_unlock(store->ctx);
    return n;
}

/* Put in batches, each when the tier has the blocks that the next may evict. */
static void put_mine(world_t *w, kvcl_store_h store, kvcl_cache_h cache, const char *what)
{
    kvcl_key_t keys[BATCH];
    uint32_t   ids[BATCH], i, n;
    uint64_t   until;
    kvcl_req_h req;

    for (n = 0; n < KEYS; n += BATCH) {
        for (i = 0; i < BATCH; ++i) {
            keys[i] = key_of(what, (uint64_t)w->rank, n + i);
            ids[i]  = i;
            fill(cache, i, &keys[i]);
        }
        CHECK(w, DO(kvcl_store_put(store, keys, BATCH, cache, ids, NULL, &req)) == KVCL_OK, "put");
        for (until = 0; (dirty(store) > POOL - AHEAD) && keep_waiting(&until);) {
        }
    }
}

/* How many blocks of all ranks are found; those have their bytes. */
static unsigned get_all(world_t *w, kvcl_store_h store, kvcl_cache_h cache, const char *what)
{
    kvcl_status_t status[KEYS];
    kvcl_key_t    keys[KEYS];
    uint32_t      ids[KEYS], i;
    unsigned      found = 0;
    kvcl_req_h    req;
    int           r;

    for (r = 0; r < w->size; ++r) {
        for (i = 0; i < KEYS; ++i) {
            keys[i] = key_of(what, (uint64_t)((r + w->rank) % w->size), i);
            ids[i]  = i;
        }
        (void)!DO(kvcl_store_get(store, keys, KEYS, cache, ids, status, NULL, &req));
        for (i = 0; i < KEYS; ++i) {
            found += (status[i] == KVCL_OK) ? 1 : 0;
            CHECK(w, (status[i] == KVCL_OK) ? holds(cache, ids[i], &keys[i]) : (status[i] == KVCL_ERR_NOT_FOUND),
                  "%s %u: %s", what, i, kvcl_status_text(status[i]));
        }
    }
    return found;
}

/* Wait until all ranks' keys are listed. */
static bool listed(world_t *w, kvcl_store_h store, const char *what)
{
    kvcl_key_t keys[KEYS];
    size_t     hit = 0;
    uint64_t   until;
    unsigned   i;
    int        r;

    for (r = 0; r < w->size; ++r) {
        for (i = 0; i < KEYS; ++i) {
            keys[i] = key_of(what, (uint64_t)r, i);
        }
        until = 0;
        do {
            KVCL_TRY(kvcl_store_match(store, keys, KEYS, &hit, NULL));
        } while ((hit < KEYS) && keep_waiting(&until));
        if (hit < KEYS) {
            kvcl_store_stats_t stats = stats_of(store);
            CHECK(w, false, "%s: %zu of %d keys of rank %d are listed; my tier: %llu blocks, %llu bad", what, hit, KEYS,
                  r,
                  (unsigned long long)stats.nvme_blocks, (unsigned long long)stats.nvme_bad);
            return false;
        }
    }
    return true;
}

/* Wait until the blocks of this rank's tier are listed. */
static void wait_for_mine(world_t *w, kvcl_store_h store, const char *what)
{
    kvcl_key_t keys[KEYS];
    uint8_t    present[KEYS];
    uint64_t   n = 0, until = 0;
    unsigned   i;

    for (i = 0; i < KEYS; ++i) {
        keys[i] = key_of(what, (uint64_t)w->rank, i);
    }
    while (((n == 0) || (n < stats_of(store).nvme_blocks)) && keep_waiting(&until)) {
        KVCL_TRY(kvcl_store_exists(store, keys, KEYS, present, NULL));
        for (i = 0, n = 0; i < KEYS; ++i) {
            n += present[i];
        }
    }
}

void test_tier(world_t *w)
{
    const char         *spec = tier_spec(w);
    kvcl_cache_h       cache = make_cache(w, "tier", KEYS, true);
    kvcl_store_h       store = open_with_pool(w, POOL, spec);
    unsigned           all   = KEYS * (unsigned)w->size, n;
    uint64_t           until = 0;
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;

    put_mine(w, store, cache, "tier");
    sync_all(w);
    stats = stats_of(store);
    CHECK(w, (stats.demoted >= KEYS - POOL) && (stats.dropped == 0) && (stats.nvme_state == KVCL_STORE_NVME_ON),
          "%llu demoted, %llu dropped", (unsigned long long)stats.demoted, (unsigned long long)stats.dropped);
    CHECK(w, listed(w, store, "tier"), "not all is listed");
    n = get_all(w, store, cache, "tier");
    CHECK(w, n == all, "%u of %u blocks came", n, all);
    stats = stats_of(store);
    CHECK(w, (stats.hits == all) && (stats.hits_nvme + stats.hits_dram == stats.hits) &&
                 (stats.hits_nvme >= (unsigned)w->size * (KEYS - POOL) / 4),
          "%llu hits, %llu of them from tiers", (unsigned long long)stats.hits, (unsigned long long)stats.hits_nvme);
    do { /* a block returns to the pool when the thread has made room for it */
        n = get_all(w, store, cache, "tier");
        stats = stats_of(store);
        CHECK(w, n == all, "the second time %u of %u blocks came; %llu dropped, %llu stale", n, all,
              (unsigned long long)stats.dropped, (unsigned long long)stats.stale);
    } while ((stats.promoted == 0) && keep_waiting(&until));
    sync_all(w);
    CHECK(w, (stats.promoted > 0) && (stats.corrupt == 0) && (stats.nvme_bad == 0), "%llu promoted, %llu corrupt",
          (unsigned long long)stats.promoted, (unsigned long long)stats.corrupt);
    sync_all(w);
    kvcl_store_close(store);
    sync_all(w);
    unlink(path);
    kvcl_cache_destroy(cache);
}

void test_tier_restart(world_t *w)
{
    const char   *spec = tier_spec(w);
    kvcl_cache_h cache = make_cache(w, "tier", KEYS, true);
    kvcl_store_h store = open_with_pool(w, POOL, spec);
    unsigned     all   = KEYS * (unsigned)w->size, n;
    kvcl_key_t   keys[KEYS];
    uint64_t     until = 0;
    kvcl_req_h   req;
    uint32_t     i;

    put_mine(w, store, cache, "restart");
    for (i = 0; i < BATCH; ++i) {
        keys[i] = key_of("restart", (uint64_t)w->rank, KEYS - 1 - i);
    }
    CHECK(w, kvcl_store_pin(store, keys, BATCH, 1, 60000000000u, 0, NULL, NULL) == KVCL_OK,
          "pin"); /* these are written to the tier as well */
    sync_all(w);
    kvcl_store_close(store);
    store = open_with_pool(w, POOL, spec);
    CHECK(w, stats_of(store).nvme_blocks == KEYS, "%llu blocks found again",
          (unsigned long long)stats_of(store).nvme_blocks);
    CHECK(w, listed(w, store, "restart"), "not all is listed again");
    n = get_all(w, store, cache, "restart");
    CHECK(w, n == all, "%u of %u blocks came", n, all);
    CHECK(w, stats_of(store).hits_nvme > 0, "none out of tiers");
    sync_all(w);
    for (i = 0; i < KEYS; ++i) {
        keys[i] = key_of("restart", (uint64_t)((w->rank + 1) % w->size), i);
    }
    CHECK(w, DO(kvcl_store_remove(store, keys, KEYS, NULL, &req)) == KVCL_OK, "remove");
    CHECK(w, vanished(store, keys, KEYS), "removed keys are still listed");
    while ((stats_of(store).nvme_blocks != 0) && keep_waiting(&until)) {
    }
    CHECK(w, stats_of(store).nvme_blocks == 0, "removed blocks are in the tier");
    sync_all(w);
    kvcl_store_close(store);
    store = open_with_pool(w, POOL, spec);
    CHECK(w, stats_of(store).nvme_blocks == 0, "removed blocks came back");
    sync_all(w);
    kvcl_store_close(store);
    sync_all(w);
    unlink(path);
    kvcl_cache_destroy(cache);
}

/* A store is closed while its thread is in the middle of a pass: the whole pool is in the tier nevertheless. */
void test_tier_close(world_t *w)
{
    enum { CYCLES = 12, SOME = AHEAD + BATCH }; /* each opening begins a new segment of the file */
    const char   *spec = tier_spec(w);
    kvcl_cache_h cache = make_cache(w, "tier", SOME, false);
    kvcl_store_h store;
    kvcl_key_t   keys[SOME];
    uint32_t     ids[SOME], n, i;
    kvcl_req_h   req;

    for (n = 0; n < CYCLES; ++n) {
        store = open_with_pool(w, POOL, spec);
        CHECK(w, stats_of(store).nvme_blocks == (uint64_t)n * SOME, "%llu of %u blocks are in the tier",
              (unsigned long long)stats_of(store).nvme_blocks, n * SOME);
        for (i = 0; i < SOME; ++i) {
            keys[i] = key_of("close", (uint64_t)w->rank, (n * SOME) + i);
            ids[i]  = i;
            fill(cache, i, &keys[i]);
        }
        CHECK(w, DO(kvcl_store_put(store, keys, SOME, cache, ids, NULL, &req)) == KVCL_OK, "put");
        for (i = 0; (i < 100000) && (dirty(store) > AHEAD); ++i) {
            sched_yield();
        }
        for (i = 0; i < 100 * n; ++i) {
            sched_yield(); /* the thread has finished its work before a close, and looks for more */
        }
        kvcl_store_close(store);
    }
    sync_all(w);
    unlink(path);
    kvcl_cache_destroy(cache);
}

/* ---- upserts ---- */

static void put_bytes(world_t *w, kvcl_store_h store, kvcl_cache_h cache, const kvcl_key_t *key, int byte, bool upsert)
{
    uint8_t    bytes[BLOCK];
    uint32_t   id = 0;
    kvcl_req_h req;

    memset(bytes, byte, sizeof(bytes));
    KVCL_TRY(kvcl_cache_write_block(cache, id, bytes, sizeof(bytes)));
    CHECK(w, DO(upsert ? kvcl_store_upsert(store, key, 1, cache, &id, NULL, &req)
                       : kvcl_store_put(store, key, 1, cache, &id, NULL, &req)) == KVCL_OK, "put of %d", byte);
}

static void expect_bytes(world_t *w, kvcl_store_h store, kvcl_cache_h cache, const kvcl_key_t *key, int byte)
{
    uint8_t    bytes[BLOCK], want[BLOCK];
    uint32_t   id = 1;
    kvcl_req_h req;

    memset(want, byte, sizeof(want));
    CHECK(w, DO(kvcl_store_get(store, key, 1, cache, &id, NULL, NULL, &req)) == KVCL_OK, "get of %d", byte);
    KVCL_TRY(kvcl_cache_read_block(cache, id, bytes, sizeof(bytes)));
    CHECK(w, memcmp(bytes, want, sizeof(want)) == 0, "%d instead of %d", bytes[0], byte);
}

/* A key's bytes are replaced while the old ones are in the tier, or being written to it: the old ones do not
 * reappear. */
void test_tier_upsert(world_t *w)
{
    const char   *spec = tier_spec(w);
    kvcl_cache_h cache = make_cache(w, "tier", KEYS, false);
    kvcl_store_h store = open_with_pool(w, POOL, spec);
    kvcl_key_t   key   = key_of("upsert", (uint64_t)w->rank, 0);
    int          i;

    put_bytes(w, store, cache, &key, 1, false);
    put_mine(w, store, cache, "others");
    expect_bytes(w, store, cache, &key, 1);
    for (i = 2; i < 40; ++i) { /* the pool is full: each is written to the tier at once */
        put_bytes(w, store, cache, &key, i, true);
        expect_bytes(w, store, cache, &key, i);
    }
    put_mine(w, store, cache, "more");
    expect_bytes(w, store, cache, &key, i - 1);
    CHECK(w, (stats_of(store).corrupt == 0) && (stats_of(store).dropped == 0), "%llu corrupt, %llu dropped",
          (unsigned long long)stats_of(store).corrupt, (unsigned long long)stats_of(store).dropped);
    sync_all(w);
    kvcl_store_close(store);
    store = open_with_pool(w, POOL, spec);
    CHECK(w, listed(w, store, "more"), "not all is listed again");
    expect_bytes(w, store, cache, &key, i - 1);
    sync_all(w);
    kvcl_store_close(store);
    sync_all(w);
    unlink(path);
    kvcl_cache_destroy(cache);
}

/* ---- disks that fail ---- */

static _Atomic unsigned n_warned;

static void on_log(void *arg, kvcl_log_level_t level, const char *text)
{
    (void)arg;
    if ((level <= KVCL_LOG_WARN) && (strncmp(text, "tier ", 5) == 0)) {
        ++n_warned;
    }
}

static void set_faults(fault_kind_t kind, unsigned reads, unsigned writes)
{
    fault.kind[KVCL_TIO_READ]   = (int)kind;
    fault.kind[KVCL_TIO_WRITE]  = (int)kind;
    fault.every[KVCL_TIO_READ]  = reads;
    fault.every[KVCL_TIO_WRITE] = writes;
}

/* On all ranks before one goes on: a read of a disk that does not fail yet keeps the block in memory. */
static void all_set_faults(world_t *w, fault_kind_t kind, unsigned reads)
{
    sync_all(w);
    set_faults(kind, reads, 0);
    sync_all(w);
}

/* The disk refuses every write from now on, full or broken: puts continue, gets return right bytes, one warning is
 * logged. */
static void refuse_writes(world_t *w, const char *spec, kvcl_cache_h cache, fault_kind_t kind)
{
    kvcl_store_h       store  = open_with_pool(w, POOL, spec);
    unsigned           warned, n;
    kvcl_key_t         key;
    uint32_t           id = 0;
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;
    kvcl_req_h         req;
    unsigned           i;

    warned = n_warned;
    set_faults(kind, 0, 1);
    for (i = 0; i < 4 * KEYS; ++i) { /* all of the staging memory, and more */
        key = key_of("refused", (uint64_t)w->rank, i);
        fill(cache, id, &key);
        CHECK(w, DO(kvcl_store_put(store, &key, 1, cache, &id, NULL, &req)) == KVCL_OK, "put %u", i);
    }
    sync_all(w);
    n = get_all(w, store, cache, "refused");
    sync_all(w);
    kvcl_store_close(store); /* flushes: here at the latest it fails */
    CHECK(w, n_warned == warned + 1, "%u warnings", n_warned - warned);
    set_faults(FAULT_NONE, 0, 0);
    store = open_with_pool(w, POOL, spec);
    n     = get_all(w, store, cache, "refused"); /* the blocks that are left */
    stats = stats_of(store);
    CHECK(w, (stats.corrupt == 0) && (stats.nvme_state == KVCL_STORE_NVME_ON), "%u found, %llu corrupt", n,
          (unsigned long long)stats.corrupt);
    sync_all(w);
    kvcl_store_close(store);
    sync_all(w);
    unlink(path);
    sync_all(w);
}

/* Reads that sometimes fail cost some blocks. When all fail the tier is off, and gets end all the same. */
static void refuse_reads(world_t *w, const char *spec, kvcl_cache_h cache, fault_kind_t kind)
{
    kvcl_store_h store = open_with_pool(w, POOL, spec);
    unsigned     all   = KEYS * (unsigned)w->size, n;

    put_mine(w, store, cache, "unread");
    sync_all(w);
    kvcl_store_close(store);
    store = open_with_pool(w, POOL, spec);
    CHECK(w, listed(w, store, "unread"), "not all is listed again");
    all_set_faults(w, kind, 7);
    n = get_all(w, store, cache, "unread");
    CHECK(w, (n > 0) && (n < all), "%u of %u came over a disk that refuses every 7th read", n, all);
    sync_all(w);
    kvcl_store_close(store); /* and staged blocks are released */
    set_faults(FAULT_NONE, 0, 0);
    store = open_with_pool(w, POOL, spec);
    wait_for_mine(w, store, "unread");
    all_set_faults(w, kind, 1);
    (void)get_all(w, store, cache, "unread");
    sync_all(w);
    CHECK(w, stats_of(store).nvme_state == ((kind == FAULT_LIE) ? KVCL_STORE_NVME_ON : KVCL_STORE_NVME_OFF),
          "state %llu", (unsigned long long)stats_of(store).nvme_state);
    sync_all(w);
    kvcl_store_close(store);
    set_faults(FAULT_NONE, 0, 0);
    sync_all(w);
    unlink(path);
    sync_all(w);
}

/* Flip a bit of each of this rank's first n blocks, in the file. */
static unsigned flip(world_t *w, kvcl_cache_h cache, const char *what, unsigned n)
{
    enum { BYTES = TIER_MIB << 20 };
    uint8_t     *file = malloc(BYTES), block[BLOCK], *at;
    int         fd    = open(path, O_RDWR);
    unsigned    i, done = 0;
    kvcl_rand_t rnd;
    kvcl_key_t  key;
    ssize_t     len = (fd >= 0) ? pread(fd, file, BYTES, 0) : -1;

    kvcl_rand_seed(&rnd, w->seed + (uint64_t)w->rank);
    for (i = 0; (len > 0) && (i < n); ++i) {
        key = key_of(what, (uint64_t)w->rank, i);
        fill(cache, 0, &key);
        KVCL_TRY(kvcl_cache_read_block(cache, 0, block, sizeof(block)));
        at = memmem(file, (size_t)len, block, sizeof(block));
        if (at != NULL) {
            off_t   off  = (at - file) + (off_t)kvcl_rand_below(&rnd, BLOCK);
            uint8_t byte = (uint8_t)(file[off] ^ (1u << kvcl_rand_below(&rnd, 8)));
            done += (pwrite(fd, &byte, 1, off) == 1) ? 1 : 0;
        }
    }
    (void)close(fd);
    free(file);
    return done;
}

static void flip_bits(world_t *w, const char *spec, kvcl_cache_h cache)
{
    enum { FLIPPED = KEYS / 4 };
    kvcl_store_h       store = open_with_pool(w, POOL, spec);
    unsigned           all   = KEYS * (unsigned)w->size, n;
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;

    put_mine(w, store, cache, "flipped");
    sync_all(w);
    kvcl_store_close(store);
    n = flip(w, cache, "flipped", FLIPPED);
    CHECK(w, n == FLIPPED, "flipped %u", n);
    store = open_with_pool(w, POOL, spec);
    CHECK(w, listed(w, store, "flipped"), "not all is listed again");
    sync_all(w);
    n = get_all(w, store, cache, "flipped");
    CHECK(w, n == all - (FLIPPED * (unsigned)w->size), "%u of %u came, %d of each rank's were spoilt", n, all, FLIPPED);
    sync_all(w);
    stats = stats_of(store);
    CHECK(w, (stats.nvme_bad >= FLIPPED) && (stats.corrupt == 0), "%llu bad, %llu corrupt",
          (unsigned long long)stats.nvme_bad, (unsigned long long)stats.corrupt);
    sync_all(w);
    kvcl_store_close(store);
    sync_all(w);
    unlink(path);
}

void test_tier_faults(world_t *w)
{
    const char   *spec = tier_spec(w);
    kvcl_cache_h cache = make_cache(w, "tier", KEYS, false);

    fault.below  = &kvcl_tio_threads;
    kvcl_cold_io = &fault_ops;
    kvcl_log_set_handler(on_log, NULL);
    refuse_writes(w, spec, cache, FAULT_ENOSPC);
    refuse_writes(w, spec, cache, FAULT_EIO);
    refuse_reads(w, spec, cache, FAULT_EIO);
    refuse_reads(w, spec, cache, FAULT_LIE);
    flip_bits(w, spec, cache);
    kvcl_log_set_handler(NULL, NULL);
    kvcl_cold_io = NULL;
    kvcl_cache_destroy(cache);
}

void test_tier_errors(world_t *w)
{
    static const char *const bad[] = {"nonsense", "/tmp/:1G", "/tmp/kvcl-test-tier:0", "/tmp/kvcl-test-tier:1x",
                                      "/nowhere/at/all:64M", "/tmp:64M"};
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_store_h        store;
    size_t              i;

    params.dir_entries = 1024;
    params.nvme        = "/tmp/kvcl-test-tier:64M";
    CHECK(w, kvcl_store_open(w->comm, &params, &store) == KVCL_ERR_INVALID_PARAM, "a tier without a pool");
    params.dram_bytes  = POOL * BLOCK;
    params.block_bytes = BLOCK;
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        params.nvme = bad[i];
        CHECK(w, kvcl_store_open(w->comm, &params, &store) < 0, "%s was taken", bad[i]);
        CHECK(w, strlen(kvcl_last_error()) > 20, "%s", bad[i]);
    }
    params.nvme = "";
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    CHECK(w, stats_of(store).nvme_state == KVCL_STORE_NVME_NONE, "a tier that nobody asked for");
    kvcl_store_close(store);
}
