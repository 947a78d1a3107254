/*
 * Measures a store's second tier on one rank or several: the rate of puts into it, the number of dropped blocks, and
 * the rate of gets from it, all verified.
 *
 *   tier_store_bench SPEC BLOCK POOL_BLOCKS BLOCKS SECONDS [BATCH [MB_PER_SECOND]]
 *
 * SPEC is KVCL_STORE_NVME's. Rank 0 puts (at most MB_PER_SECOND, so that the disk can follow; 0: no limit), then the
 * last rank gets batches at random.
 */
#include <kvcl/kvcl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH_MAX = 256 };

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static kvcl_status_t wait_for(kvcl_req_h req)
{
    return kvcl_req_wait(req, KVCL_WAIT_FOREVER);
}

static void sync_all(kvcl_comm_h comm)
{
    kvcl_req_h req;

    KVCL_TRY(kvcl_barrier(comm, NULL, &req));
    KVCL_TRY(wait_for(req));
}

static void key_of(unsigned i, kvcl_key_t *key)
{
    char name[32];
    int  len = snprintf(name, sizeof(name), "bench/%u", i);

    kvcl_key_from_string(name, (size_t)len, key);
}

static void put_all(kvcl_store_h store, kvcl_cache_h cache, unsigned blocks, unsigned batch, uint64_t block,
                    double rate)
{
    kvcl_key_t         keys[BATCH_MAX];
    uint32_t           ids[BATCH_MAX], i, n;
    double             begin = now(), took;
    struct timespec    moment = {0, 200000};
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;
    kvcl_req_h         req;

    for (n = 0; n + batch <= blocks; n += batch) {
        for (i = 0; i < batch; ++i) {
            key_of(n + i, &keys[i]);
            ids[i] = i;
        }
        while ((rate > 0) && ((double)n * (double)block / 1e6 > rate * (now() - begin))) {
            nanosleep(&moment, NULL);
        }
        KVCL_TRY(kvcl_store_put(store, keys, batch, cache, ids, NULL, &req));
        KVCL_TRY(wait_for(req));
    }
    took = now() - begin;
    KVCL_TRY(kvcl_store_stats(store, &stats));
    printf("put %8.1f MB/s: %u blocks, %llu in the tier, %llu dropped\n", (double)n * (double)block / took / 1e6, n,
           (unsigned long long)stats.demoted, (unsigned long long)stats.dropped);
    fflush(stdout);
}

static void get_some(kvcl_store_h store, kvcl_cache_h cache, unsigned blocks, unsigned batch, uint64_t block,
                     double seconds)
{
    kvcl_status_t      status[BATCH_MAX];
    kvcl_key_t         keys[BATCH_MAX];
    uint32_t           ids[BATCH_MAX], i;
    uint64_t           found = 0, requested = 0;
    double             begin = now(), took;
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;
    kvcl_req_h         req;

    srandom(1);
    while ((took = now() - begin) < seconds) {
        for (i = 0; i < batch; ++i) {
            key_of((unsigned)random() % blocks, &keys[i]);
            ids[i] = i;
        }
        if (kvcl_store_get(store, keys, batch, cache, ids, status, NULL, &req) == KVCL_OK) {
            (void)!wait_for(req);
        }
        for (i = 0; i < batch; ++i) {
            found += status[i] == KVCL_OK;
        }
        requested += batch;
    }
    KVCL_TRY(kvcl_store_stats(store, &stats));
    printf("get %8.1f MB/s: %llu of %llu found, %llu in a tier, %llu wrong; %.0f us a batch of %u\n",
           (double)found * (double)block / took / 1e6, (unsigned long long)found, (unsigned long long)requested,
           (unsigned long long)stats.hits_nvme, (unsigned long long)stats.corrupt,
           took * 1e6 * batch / (double)requested, batch);
}

int main(int argc, char **argv)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    unsigned            blocks, batch;
    kvcl_context_h      ctx;
    kvcl_cache_h        cache;
    kvcl_store_h        store;
    kvcl_comm_h         comm;

    if (argc < 6) {
        fprintf(stderr, "usage: tier_store_bench SPEC BLOCK POOL_BLOCKS BLOCKS SECONDS [BATCH [MB_PER_SECOND]]\n");
        return 2;
    }
    params.nvme        = argv[1];
    params.block_bytes = strtoull(argv[2], NULL, 0);
    params.dram_bytes  = params.block_bytes * strtoull(argv[3], NULL, 0);
    blocks             = (unsigned)strtoul(argv[4], NULL, 0);
    batch              = (argc > 6) ? (unsigned)strtoul(argv[6], NULL, 0) : 16;
    batch              = (batch > BATCH_MAX) ? BATCH_MAX : batch;
    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &comm));
    {
        kvcl_layout_t layout = KVCL_LAYOUT_BYTES(batch, (uint32_t)params.block_bytes);
        KVCL_TRY(kvcl_cache_create(ctx, "bench", &layout, NULL, &cache));
    }
    KVCL_TRY(kvcl_store_open(comm, &params, &store));
    if (kvcl_comm_rank(comm) == 0) {
        put_all(store, cache, blocks, batch, params.block_bytes, (argc > 7) ? strtod(argv[7], NULL) : 0);
    }
    sync_all(comm);
    if (kvcl_comm_rank(comm) == kvcl_comm_size(comm) - 1) {
        get_some(store, cache, blocks, batch, params.block_bytes, strtod(argv[5], NULL));
    }
    sync_all(comm);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
    kvcl_finalize(ctx);
    return 0;
}
