/*
 * Two processes and their device memory: rank 0 gets blocks from rank 1's caches and puts blocks into them, device and
 * host memory on either side, then puts blocks into a store and gets them back. Beside each table are its floors, of
 * the same number of bytes in one copy by the driver inside rank 0. Every byte that arrives is compared once for each
 * size. Prints rates (GB/s, the median of the rounds) and the time of one block (us).
 *   gpu_pair_bench [BYTES]   of one transfer; a power of two, at least 1 MiB
 */
#include "config.h"
#include "base/clock.h"
#include "test/unit/gpu.h"
#include <kvcl/kvcl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 7, LEAST = 4096, MOST = 1 << 20 };

typedef enum { DEVICE, PINNED, PAGES, MEMORIES } memory_t;

static const char *const names[MEMORIES] = {"device", "pinned", "pages"};

typedef struct bench {
    kvcl_context_h ctx;
    kvcl_comm_h    world;
    int            rank;
    unsigned       device;
    size_t         total;
    char           *memory[MEMORIES], *other; /* each total bytes; other: of the device */
    CUstream       stream;
} bench_t;

static void need(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "gpu_pair_bench: %s: %s\n", what, kvcl_last_error());
        exit(1);
    }
}

static void wait_for(kvcl_status_t posted, const kvcl_req_h *req, const char *what)
{
    need((posted == KVCL_OK) && (kvcl_req_wait(*req, KVCL_WAIT_FOREVER) == KVCL_OK), what);
}

static void sync_all(const bench_t *b)
{
    kvcl_req_h req = NULL;

    wait_for(kvcl_barrier(b->world, NULL, &req), &req, "kvcl_barrier");
}

/* total bytes of a seed, to be freed. */
static char *bytes_of(const bench_t *b, uint64_t seed)
{
    uint64_t *words = malloc(b->total), word = 88172645463325252u + seed;
    size_t   i;

    for (i = 0; i < b->total / 8; ++i) {
        word    ^= word << 13;
        word    ^= word >> 7;
        word    ^= word << 17;
        words[i] = word;
    }
    return (char *)words;
}

static void fill(const bench_t *b, memory_t memory, uint64_t seed)
{
    char *bytes = bytes_of(b, seed);

    if (memory == DEVICE) {
        gpu_write(b->device, b->memory[memory], bytes, b->total);
    } else {
        memcpy(b->memory[memory], bytes, b->total);
    }
    free(bytes);
}

/* Block at[i] of the memory is block of[i] of the seed's bytes. */
static void check(const bench_t *b, memory_t memory, uint64_t seed, size_t size, const uint32_t *at, const uint32_t *of)
{
    char   *want = bytes_of(b, seed), *got = malloc(b->total);
    size_t i;

    if (memory == DEVICE) {
        gpu_read(b->device, got, b->memory[memory], b->total);
    } else {
        memcpy(got, b->memory[memory], b->total);
    }
    for (i = 0; i < b->total / size; ++i) {
        if (memcmp(got + at[i] * size, want + of[i] * size, size) != 0) {
            fprintf(stderr, "gpu_pair_bench: block %zu of %zu bytes is wrong, in %s\n", i, size, names[memory]);
            exit(1);
        }
    }
    free(got);
    free(want);
}

static kvcl_cache_h cache_of(const bench_t *b, memory_t memory, size_t size)
{
    kvcl_layout_t       layout = KVCL_LAYOUT_BYTES(b->total / size, (uint32_t)size);
    kvcl_cache_params_t params = KVCL_CACHE_PARAMS_INIT;
    void                *base  = b->memory[memory];
    kvcl_cache_h        cache;

    params.flags      = KVCL_CACHE_WRITABLE;
    params.kind       = (memory == DEVICE) ? KVCL_MEM_CUDA : KVCL_MEM_HOST;
    params.n_bases    = 1;
    params.bases      = &base;
    params.base_bytes = &b->total;
    need(kvcl_cache_create(b->ctx, names[memory], &layout, &params, &cache) == KVCL_OK, "kvcl_cache_create");
    return cache;
}

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static double median(uint64_t *ns, int n)
{
    qsort(ns, (size_t)n, sizeof(*ns), compare);
    return (double)ns[n / 2];
}

/* ---- floors ---- */

static double floor_ns(const bench_t *b, void *dst, const void *src, size_t len)
{
    uint64_t ns[ROUNDS];
    int      i;

    for (i = -1; i < ROUNDS; ++i) {
        const uint64_t begin = kvcl_now_ns();

        gpu_copy(b->device, b->stream, dst, src, len);
        gpu_sync(b->device, b->stream);
        ns[(i < 0) ? 0 : i] = kvcl_now_ns() - begin;
    }
    return median(ns, ROUNDS);
}

static void floors(const bench_t *b)
{
    static const struct {
        memory_t   to, from;
        const char *name;
    } rows[] = {{DEVICE, DEVICE, "inside the device"}, {PINNED, DEVICE, "device to pinned"},
                {PAGES, DEVICE, "device to pages"}, {DEVICE, PINNED, "pinned to device"},
                {DEVICE, PAGES, "pages to device"}};
    size_t i;

    printf("\none cuMemcpyAsync in one process, waited for\n%-18s %12s %12s %12s\n", "", "GB/s", "us, 4 KiB",
           "us, 64 KiB");
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        void *to = (rows[i].to == rows[i].from) ? b->other : b->memory[rows[i].to];

        printf("%-18s %12.2f %12.1f %12.1f\n", rows[i].name,
               (double)b->total / floor_ns(b, to, b->memory[rows[i].from], b->total),
               floor_ns(b, to, b->memory[rows[i].from], 4096) / 1e3,
               floor_ns(b, to, b->memory[rows[i].from], 65536) / 1e3);
    }
}

/* ---- gets and puts ---- */

typedef struct list {
    uint32_t *here, *there;
    size_t   n;
} list_t;

/* ns. */
static double transfer(const bench_t *b, bool put, kvcl_cache_h mine, const char *theirs, const list_t *list, size_t n,
                       int rounds)
{
    kvcl_sel_t         here   = {.blocks = list->here, .n_blocks = n}, there = {.blocks = list->there, .n_blocks = n};
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    uint64_t           ns[64];
    kvcl_req_h         req    = NULL;
    int                i;

    params.remote_cache = theirs;
    for (i = -1; i < rounds; ++i) {
        const uint64_t begin = kvcl_now_ns();

        if (put) {
            wait_for(kvcl_put(b->world, 1, mine, &here, &there, &params, &req), &req, "kvcl_put");
        } else {
            wait_for(kvcl_get(b->world, 1, mine, &there, &here, &params, &req), &req, "kvcl_get");
        }
        ns[(i < 0) ? 0 : i] = kvcl_now_ns() - begin;
    }
    return median(ns, rounds);
}

/* All blocks, in another order there than here: a permutation. */
static list_t list_of(size_t n)
{
    list_t list = {malloc(n * sizeof(uint32_t)), malloc(n * sizeof(uint32_t)), n};
    size_t i;

    for (i = 0; i < n; ++i) {
        list.here[i]  = (uint32_t)i;
        list.there[i] = (uint32_t)((i * 7919) % n);
    }
    return list;
}

static void pair(const bench_t *b, size_t size, memory_t here, memory_t there)
{
    kvcl_cache_h mine   = cache_of(b, here, size);
    kvcl_cache_h theirs = (here == there) ? mine : cache_of(b, there, size);
    list_t       list   = list_of(b->total / size);
    double       ns[4];

    fill(b, (b->rank == 0) ? here : there, 1 + (uint64_t)b->rank);
    sync_all(b);
    if (b->rank == 0) {
        ns[0] = transfer(b, false, mine, names[there], &list, list.n, ROUNDS);
        ns[2] = transfer(b, false, mine, names[there], &list, 1, 63);
        check(b, here, 2, size, list.here, list.there);
        fill(b, here, 3);
        ns[1] = transfer(b, true, mine, names[there], &list, list.n, ROUNDS);
        ns[3] = transfer(b, true, mine, names[there], &list, 1, 63);
        printf("%-8s %-8s %10zu %10.2f %10.2f %12.1f %12.1f\n", names[there], names[here], size,
               (double)b->total / ns[0], (double)b->total / ns[1], ns[2] / 1e3, ns[3] / 1e3);
        fflush(stdout);
    }
    sync_all(b);
    if (b->rank == 1) {
        check(b, there, 3, size, list.there, list.here);
    }
    if (theirs != mine) {
        kvcl_cache_destroy(theirs);
    }
    kvcl_cache_destroy(mine);
    free(list.here);
    free(list.there);
}

static void pairs(const bench_t *b)
{
    static const memory_t sides[][2] = {{DEVICE, DEVICE}, {PINNED, DEVICE}, {DEVICE, PINNED}, {PAGES, DEVICE},
                                        {DEVICE, PAGES}};
    char   path[256];
    size_t size, i;

    if (b->rank == 0) {
        need(kvcl_query_path(b->world, 1, path, sizeof(path)) == KVCL_OK, "kvcl_query_path");
        printf("\nbetween two processes, path %s\n%-8s %-8s %10s %10s %10s %12s %12s\n", path, "there", "here",
               "block", "get, GB/s", "put, GB/s", "get 1, us", "put 1, us");
    }
    for (i = 0; i < sizeof(sides) / sizeof(sides[0]); ++i) {
        for (size = LEAST; size <= MOST; size *= 4) {
            pair(b, size, sides[i][0], sides[i][1]);
        }
    }
}

/* ---- a store ---- */

/* Batches of 64 blocks at most: an engine's step. */
static void store_row(const bench_t *b, kvcl_store_h store, size_t size, memory_t memory)
{
    const size_t n     = b->total / size, batch = (n < 64) ? n : 64;
    kvcl_cache_h cache = cache_of(b, memory, size);
    kvcl_key_t   *keys = malloc(n * sizeof(*keys));
    list_t       list  = list_of(n);
    uint64_t     begin, ns[2];
    kvcl_req_h   req   = NULL;
    char         name[64];
    size_t       i;

    fill(b, memory, 7);
    for (i = 0; i < n; ++i) {
        int len = snprintf(name, sizeof(name), "gpu/%s/%zu/%zu", names[memory], size, i);

        kvcl_key_from_string(name, (size_t)len, &keys[i]);
    }
    begin = kvcl_now_ns();
    for (i = 0; i < n; i += batch) {
        wait_for(kvcl_store_put(store, keys + i, batch, cache, list.here + i, NULL, &req), &req, "kvcl_store_put");
    }
    ns[0] = kvcl_now_ns() - begin;
    fill(b, memory, 8);
    begin = kvcl_now_ns();
    for (i = 0; i < n; i += batch) {
        wait_for(kvcl_store_get(store, keys + i, batch, cache, list.here + i, NULL, NULL, &req), &req,
                 "kvcl_store_get");
    }
    ns[1] = kvcl_now_ns() - begin;
    check(b, memory, 7, size, list.here, list.here);
    printf("%-8s %10zu %10.2f %10.2f\n", names[memory], size, (double)b->total / (double)ns[0],
           (double)b->total / (double)ns[1]);
    fflush(stdout);
    kvcl_cache_destroy(cache);
    free(list.here);
    free(list.there);
    free(keys);
}

static void stores(const bench_t *b)
{
    size_t size;

    if (b->rank == 0) {
        printf("\nblocks put into a store of both ranks and got back, batches of 64\n%-8s %10s %10s %10s\n", "memory",
               "block", "put, GB/s", "get, GB/s");
    }
    for (size = 65536; size <= MOST; size *= 4) {
        kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
        kvcl_store_h        store;
        memory_t            memory;

        params.block_bytes = size;
        params.dram_bytes  = 4 * b->total;
        need(kvcl_store_open(b->world, &params, &store) == KVCL_OK, "kvcl_store_open");
        for (memory = DEVICE; (memory < MEMORIES) && (b->rank == 0); ++memory) {
            store_row(b, store, size, memory);
        }
        sync_all(b);
        kvcl_store_close(store);
    }
}

int main(int argc, char **argv)
{
    const char *why = gpu_open(true);
    bench_t    b    = {.total = (argc > 1) ? strtoull(argv[1], NULL, 10) : (size_t)256 << 20};
    char       name[128];

    if (why != NULL) {
        printf("SKIP: no GPU here: %s\n", why);
        return 77;
    }
    if ((b.total < MOST) || ((b.total & (b.total - 1)) != 0)) {
        fprintf(stderr, "gpu_pair_bench: BYTES is a power of two, at least 1 MiB\n");
        return 2;
    }
    need(kvcl_init(NULL, &b.ctx) == KVCL_OK, "kvcl_init");
    need(kvcl_comm_world(b.ctx, &b.world) == KVCL_OK, "kvcl_comm_world");
    b.rank = kvcl_comm_rank(b.world);
    if (kvcl_comm_size(b.world) != 2) {
        fprintf(stderr, "gpu_pair_bench: two ranks, not %d\n", kvcl_comm_size(b.world));
        return 2;
    }
    b.device         = (unsigned)b.rank % gpu_count();
    b.stream         = gpu_stream(b.device);
    b.memory[DEVICE] = gpu_malloc(b.device, b.total);
    b.other          = gpu_malloc(b.device, b.total);
    b.memory[PINNED] = gpu_pinned(b.device, b.total);
    b.memory[PAGES]  = malloc(b.total);
    fill(&b, PAGES, 5);
    fill(&b, DEVICE, 6);
    if (b.rank == 0) {
        gpu_name(b.device, name, sizeof(name));
        printf("%s; %zu MiB a transfer\n", name, b.total >> 20);
        floors(&b);
    }
    pairs(&b);
    stores(&b);
    kvcl_finalize(b.ctx);
    free(b.memory[PAGES]);
    gpu_pinned_free(b.device, b.memory[PINNED]);
    gpu_free(b.device, b.other);
    gpu_free(b.device, b.memory[DEVICE]);
    gpu_stream_end(b.device, b.stream);
    return 0;
}
