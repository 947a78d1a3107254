/*
 * What the calls of contrib/bench/py/bench_calls.py cost from C, for comparison with Python: one of two ranks over
 * shared memory, calls_bench SECONDS. Rank 0 prints the medians in microseconds, as JSON.
 */
#include <kvcl/kvcl.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BLOCK = 4096, BLOCKS = 1024, KEYS = 512, LEAST = 100, MOST = 1 << 22 };

typedef struct bench {
    kvcl_comm_h  world;
    kvcl_cache_h cache;
    kvcl_store_h store;
    kvcl_key_t   keys[KEYS];
    uint32_t     order[BLOCKS], into[BLOCKS];
} bench_t;

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void finish(kvcl_status_t posted, kvcl_req_h *req)
{
    KVCL_TRY((posted == KVCL_OK) ? kvcl_req_wait(*req, KVCL_WAIT_FOREVER) : posted);
}

static void sync_all(const bench_t *b)
{
    kvcl_req_h req;

    finish(kvcl_barrier(b->world, NULL, &req), &req);
}

static void get(const bench_t *b, const uint32_t *there, const uint32_t *here, size_t n)
{
    const kvcl_sel_t remote = {.blocks = there, .n_blocks = n}, local = {.blocks = here, .n_blocks = n};
    kvcl_req_h       req;

    finish(kvcl_get(b->world, 1, b->cache, &remote, &local, NULL, &req), &req);
}

static void get_one(const bench_t *b)
{
    static const uint32_t there = 3, here = 5;

    get(b, &there, &here, 1);
}

static void get_many(const bench_t *b)
{
    get(b, b->order, b->into, BLOCKS);
}

static void match(const bench_t *b)
{
    size_t hit;

    KVCL_TRY(kvcl_store_match(b->store, b->keys, KEYS, &hit, NULL));
    if (hit != KEYS) {
        fprintf(stderr, "calls_bench: %zu of %d keys match\n", hit, KEYS);
        exit(1);
    }
}

static int compare(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* The median of single calls, for about so long. */
static double median_us(const bench_t *b, void (*call)(const bench_t *b), double seconds)
{
    const uint64_t until = now_ns() + (uint64_t)(seconds * 1e9);
    uint32_t       *took = malloc(MOST * sizeof(*took)); /* ns */
    uint64_t       begin = now_ns();
    size_t         n     = 0;
    double         median;

    if (took == NULL) {
        exit(1);
    }
    while ((n < MOST) && ((begin < until) || (n < LEAST))) {
        begin = now_ns();
        call(b);
        took[n++] = (uint32_t)(now_ns() - begin);
    }
    qsort(took, n, sizeof(*took), compare);
    median = took[n / 2] / 1e3;
    free(took);
    return median;
}

static void make_lists(bench_t *b)
{
    uint32_t i, j, kept;
    char     name[32];

    for (i = 0; i < KEYS; ++i) {
        kvcl_key_from_string(name, (size_t)snprintf(name, sizeof(name), "key %u", (unsigned)i), &b->keys[i]);
    }
    for (i = 0; i < BLOCKS; ++i) {
        b->order[i] = i;
        b->into[i]  = BLOCKS + i;
    }
    srand(1);
    for (i = BLOCKS - 1; i > 0; --i) {
        j           = (uint32_t)rand() % (i + 1);
        kept        = b->order[i];
        b->order[i] = b->order[j];
        b->order[j] = kept;
    }
}

/* Each rank puts every other key. */
static void put_keys(const bench_t *b)
{
    kvcl_key_t keys[KEYS];
    uint32_t   ids[KEYS], n = 0;
    kvcl_req_h req;
    int        i;

    for (i = kvcl_comm_rank(b->world); i < KEYS; i += kvcl_comm_size(b->world)) {
        keys[n]  = b->keys[i];
        ids[n++] = (uint32_t)i;
    }
    finish(kvcl_store_put(b->store, keys, n, b->cache, ids, NULL, &req), &req);
}

int main(int argc, char **argv)
{
    const kvcl_layout_t         layout  = KVCL_LAYOUT_BYTES(2 * BLOCKS, BLOCK);
    const kvcl_store_params_t   memory  = {.size = sizeof(memory), .dram_bytes = 2 * KEYS * BLOCK,
                                           .block_bytes = BLOCK};
    const double                seconds = (argc > 1) ? atof(argv[1]) : 0.5;
    kvcl_context_h              ctx;
    static bench_t              b;

    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &b.world));
    KVCL_TRY(kvcl_cache_create(ctx, "calls", &layout, NULL, &b.cache));
    KVCL_TRY(kvcl_store_open(b.world, &memory, &b.store));
    make_lists(&b);
    put_keys(&b);
    sync_all(&b);
    if (kvcl_comm_rank(b.world) == 0) {
        printf("{\"a get of 4 KiB\": %.3f, ", median_us(&b, get_one, seconds));
        printf("\"a get of 1,024 blocks\": %.3f, ", median_us(&b, get_many, seconds));
        printf("\"a match of 512 keys\": %.3f}\n", median_us(&b, match, seconds));
    }
    sync_all(&b);
    kvcl_store_close(b.store);
    kvcl_cache_destroy(b.cache);
    kvcl_finalize(ctx);
    return 0;
}
