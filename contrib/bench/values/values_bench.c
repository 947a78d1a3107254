/*
 * Measures gets of one large value into plain memory, striped over several holders or not: mpirun -n HOLDERS+1
 * values_bench [MIB [BLOCK_KIB [SECONDS]]]. Rank 0 gets and has no pool; rank 1 puts. KVCL_STORE_STRIPE=0 keeps the
 * value on rank 1, KVCL_STORE_STRIPE_RANKS=HOLDERS stripes it.
 */
#include <kvcl/kvcl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { GETS_MAX = 1000 };

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static kvcl_status_t done(kvcl_status_t posted, kvcl_req_h *req)
{
    return (posted == KVCL_OK) ? kvcl_req_wait(*req, KVCL_WAIT_FOREVER) : posted;
}

static void sync_all(kvcl_comm_h comm)
{
    kvcl_req_h req;

    KVCL_TRY(done(kvcl_barrier(comm, NULL, &req), &req));
}

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static void get(kvcl_store_h store, const kvcl_key_t *key, uint8_t *buf, size_t bytes, double seconds)
{
    static double took[GETS_MAX];
    double        begun = now(), from;
    kvcl_req_h    req;
    unsigned      n = 0;

    /* Warm-up: maps caches and touches memory. */
    KVCL_TRY(done(kvcl_store_get_value(store, key, buf, bytes, NULL, &req), &req));
    while ((n < GETS_MAX) && ((n == 0) || (now() - begun < seconds))) {
        from = now();
        KVCL_TRY(done(kvcl_store_get_value(store, key, buf, bytes, NULL, &req), &req));
        took[n++] = now() - from;
    }
    qsort(took, n, sizeof(took[0]), compare);
    printf("get: %.2f GB/s by the median of %u, best %.2f\n", (double)bytes / took[n / 2] / 1e9, n,
           (double)bytes / took[0] / 1e9);
}

int main(int argc, char **argv)
{
    size_t              bytes  = (size_t)((argc > 1) ? strtoul(argv[1], NULL, 0) : 256) << 20, i;
    uint64_t            block  = (uint64_t)((argc > 2) ? strtoul(argv[2], NULL, 0) : 1024) << 10;
    double              secs   = (argc > 3) ? strtod(argv[3], NULL) : 3, from;
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    uint8_t             *buf   = malloc(bytes);
    kvcl_store_stats_t  stats = KVCL_STORE_STATS_INIT;
    kvcl_context_h      ctx;
    kvcl_store_h        store;
    kvcl_comm_h         comm;
    kvcl_key_t          key;
    kvcl_req_h          req;
    int                 rank;

    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &comm));
    rank               = kvcl_comm_rank(comm);
    params.block_bytes = block;
    params.dram_bytes  = (rank == 0) ? 0 : bytes + (bytes / 4) + (64 * block);
    params.block_bytes = (rank == 0) ? 0 : block;
    KVCL_TRY(kvcl_store_open(comm, &params, &store));
    kvcl_key_from_string("bench", 5, &key);
    if (rank == 1) {
        for (i = 0; i < bytes; ++i) {
            buf[i] = (uint8_t)(i * 31);
        }
        from = now();
        KVCL_TRY(done(kvcl_store_put_value(store, &key, buf, bytes, NULL, &req), &req));
        printf("put: %.2f GB/s\n", (double)bytes / (now() - from) / 1e9);
    }
    sync_all(comm);
    KVCL_TRY(kvcl_store_stats(store, &stats));
    printf("rank %d: %llu blocks\n", rank, (unsigned long long)stats.blocks);
    fflush(stdout);
    if (rank == 0) {
        memset(buf, 0, bytes);
        get(store, &key, buf, bytes, secs);
        for (i = 0; (i < bytes) && (buf[i] == (uint8_t)(i * 31)); ++i) {
        }
        if (i != bytes) {
            printf("WRONG byte %zu\n", i);
        }
    }
    sync_all(comm);
    kvcl_store_close(store);
    kvcl_finalize(ctx);
    free(buf);
    return 0;
}
