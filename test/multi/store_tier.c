/*
 * Second tiers: pools that are far too small, on disks that are slow to fail. What was put is there, whatever was
 * evicted; after a restart, too; and what a spoilt file gives is a miss.
 */
#include "store/nvme.h"
#include "store_test.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

enum { POOL = 48, AHEAD = POOL / 2, BATCH = 8, KEYS = 160, TIER_MIB = 16 };

static char path[128]; /* of this rank's tier */

static void nap(void)
{
    struct timespec t = {0, 1000000};

    nanosleep(&t, NULL);
}

/* The same name for all ranks of a job, %r in it. */
static const char *spec_of(world_t *w)
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

static kvcl_store_h open_store(world_t *w, const char *spec)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_store_h        store;

    params.dir_entries = 8192;
    params.dram_bytes  = POOL * BLOCK;
    params.block_bytes = BLOCK;
    params.nvme        = spec;
    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    return store;
}

static kvcl_store_stats_t stats_of(kvcl_store_h store)
{
    kvcl_store_stats_t stats;

    kvcl_store_stats(store, &stats);
    return stats;
}

/* In batches, each when the tier has what the next may evict. */
static void put_mine(world_t *w, kvcl_store_h store, kvcl_cache_h cache, const char *what)
{
    kvcl_key_t keys[BATCH];
    uint32_t   ids[BATCH], i, n, tries;
    kvcl_req_h req;

    for (n = 0; n < KEYS; n += BATCH) {
        for (i = 0; i < BATCH; ++i) {
            keys[i] = key_of(what, (uint64_t)w->rank, n + i);
            ids[i]  = i;
            fill(cache, i, &keys[i]);
        }
        CHECK(w, DO(kvcl_store_put(store, keys, BATCH, cache, ids, NULL, &req)) == KVCL_OK, "put");
        for (tries = 0; (tries < 5000) && (n + BATCH > POOL - AHEAD) &&
                        (stats_of(store).demoted < n + BATCH - (POOL - AHEAD)); ++tries) {
            nap();
        }
    }
}

/* How many of all ranks' blocks come; those that do have their bytes. */
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

/* Until all ranks' keys are listed, at most some seconds. */
static bool listed(world_t *w, kvcl_store_h store, const char *what)
{
    kvcl_key_t keys[KEYS];
    size_t     hit = 0;
    unsigned   tries, i;
    int        r;

    for (r = 0; r < w->size; ++r) {
        for (i = 0; i < KEYS; ++i) {
            keys[i] = key_of(what, (uint64_t)r, i);
        }
        for (tries = 0, hit = 0; (tries < 5000) && (hit < KEYS); ++tries) {
            KVCL_TRY(kvcl_store_match(store, keys, KEYS, &hit));
            if (hit < KEYS) {
                nap();
            }
        }
        if (hit < KEYS) {
            return false;
        }
    }
    return true;
}

void test_tier(world_t *w)
{
    const char         *spec = spec_of(w);
    kvcl_cache_h       cache = make_cache(w, "tier", KEYS, true);
    kvcl_store_h       store = open_store(w, spec);
    unsigned           all   = KEYS * (unsigned)w->size, n;
    kvcl_store_stats_t stats;

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
    n = get_all(w, store, cache, "tier");
    stats = stats_of(store);
    CHECK(w, n == all, "the second time %u of %u blocks came; %llu dropped, %llu stale", n, all,
          (unsigned long long)stats.dropped, (unsigned long long)stats.stale);
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
    const char   *spec = spec_of(w);
    kvcl_cache_h cache = make_cache(w, "tier", KEYS, true);
    kvcl_store_h store = open_store(w, spec);
    unsigned     all   = KEYS * (unsigned)w->size, n;
    kvcl_key_t   keys[KEYS];
    kvcl_req_h   req;
    uint32_t     i;

    put_mine(w, store, cache, "restart");
    sync_all(w);
    kvcl_store_close(store);
    store = open_store(w, spec);
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
    for (i = 0; (i < 5000) && (stats_of(store).nvme_blocks != 0); ++i) {
        nap();
    }
    CHECK(w, stats_of(store).nvme_blocks == 0, "removed blocks are in the tier");
    sync_all(w);
    kvcl_store_close(store);
    store = open_store(w, spec);
    CHECK(w, stats_of(store).nvme_blocks == 0, "removed blocks came back");
    sync_all(w);
    kvcl_store_close(store);
    sync_all(w);
    unlink(path);
    kvcl_cache_destroy(cache);
}
