/*
 * A worker used with kvcl_serve (run_serve.sh). It puts blocks, moves them to rank 0, puts larger ones, which go to
 * rank 1 (rank 0 has no blocks of this size), and reports that. Then it gets them all until rank 0 has left and for a
 * while after; none may fail.
 */
#include <kvcl/kvcl.h>

#include <string.h>
#include <time.h>

enum { BLOCK = 4096, KEYS = 48, LARGE = 3 * BLOCK, LARGE_KEYS = 8, GONE_ROUNDS = 20 };

static uint8_t byte_of(unsigned key, unsigned i)
{
    return (uint8_t)((key * 31u) + (i * 7u) + (i >> 8));
}

static kvcl_status_t finish(kvcl_status_t posted, kvcl_req_h *req)
{
    return (posted == KVCL_OK) ? kvcl_req_wait(*req, KVCL_WAIT_FOREVER) : posted;
}

/* Blocks of one size: a cache with one more block than keys, the destination of gets. */
typedef struct kind {
    const char   *name;
    uint32_t     bytes;
    unsigned     n;
    kvcl_cache_h cache;
    kvcl_key_t   keys[KEYS];
} kind_t;

/* Return the number of failed gets. */
static unsigned get_all(kvcl_store_h store, const kind_t *kind)
{
    uint32_t   id = kind->n;
    uint8_t    bytes[LARGE];
    unsigned   failed = 0, key, i;
    kvcl_req_h req;

    for (key = 0; key < kind->n; ++key) {
        kvcl_status_t status = finish(kvcl_store_get(store, &kind->keys[key], 1, kind->cache, &id, NULL, NULL, &req),
                                      &req);
        if (status != KVCL_OK) {
            fprintf(stderr, "%s %u: %s\n", kind->name, key, kvcl_status_text(status));
            ++failed;
            continue;
        }
        KVCL_TRY(kvcl_cache_read_block(kind->cache, id, bytes, kind->bytes));
        for (i = 0; (i < kind->bytes) && (bytes[i] == byte_of(key, i)); ++i) {
        }
        failed += (i < kind->bytes) ? 1 : 0;
    }
    return failed;
}

static void put_all(kvcl_context_h ctx, kvcl_store_h store, kind_t *kind)
{
    kvcl_layout_t      layout = KVCL_LAYOUT_BYTES(kind->n + 1, kind->bytes);
    kvcl_xfer_params_t single = KVCL_XFER_PARAMS_INIT;
    uint32_t           ids[KEYS];
    uint8_t            bytes[LARGE];
    unsigned           key, i;
    kvcl_req_h         req;

    KVCL_TRY(kvcl_cache_create(ctx, kind->name, &layout, NULL, &kind->cache));
    for (key = 0; key < kind->n; ++key) {
        for (i = 0; i < kind->bytes; ++i) {
            bytes[i] = byte_of(key, i);
        }
        KVCL_TRY(kvcl_cache_write_block(kind->cache, key, bytes, kind->bytes));
        kvcl_key_from_bytes(kind->name, strlen(kind->name), &key, sizeof(key), &kind->keys[key]);
        ids[key] = key;
    }
    single.replicas = 1; /* only the drain keeps them */
    KVCL_TRY(finish(kvcl_store_put(store, kind->keys, kind->n, kind->cache, ids, &single, &req), &req));
}

int main(void)
{
    const uint64_t      large  = LARGE;
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kind_t              kinds[] = {{.name = "key", .bytes = BLOCK, .n = KEYS},
                                   {.name = "large key", .bytes = LARGE, .n = LARGE_KEYS}};
    struct timespec     nap    = {0, 20000000};
    kvcl_context_h      ctx;
    kvcl_comm_h         world;
    kvcl_store_h        store;
    kvcl_store_stats_t  stats = KVCL_STORE_STATS_INIT;
    unsigned            failed = 0, rounds = 0, gone = 0;
    uint64_t            moved;
    kvcl_status_t       status;

    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &world));
    params.dram_bytes    = (uint64_t)2 * KEYS * BLOCK;
    params.block_bytes   = BLOCK;
    params.block_sizes   = &large;
    params.n_block_sizes = 1;
    params.dir_entries   = 65536;
    KVCL_TRY(kvcl_store_open(world, &params, &store));
    put_all(ctx, store, &kinds[0]);
    KVCL_TRY(kvcl_store_copy(store, kinds[0].keys, KEYS, 0, KVCL_STORE_MOVE, NULL, NULL));
    put_all(ctx, store, &kinds[1]);
    status = kvcl_store_copy(store, kinds[1].keys, LARGE_KEYS, 0, KVCL_STORE_MOVE, NULL, NULL);
    failed += (status == KVCL_OK) ? 1 : 0; /* the rank has no blocks of this size */
    KVCL_TRY(kvcl_store_copy(store, kinds[1].keys, LARGE_KEYS, 1, KVCL_STORE_MOVE, NULL, NULL));
    KVCL_TRY(kvcl_store_stats(store, &stats));
    moved = stats.moved;
    KVCL_TRY(kvcl_store_rank_stats(store, 0, &stats, NULL));
    printf("moved %llu blocks to rank 0, then %llu to rank 1\n", (unsigned long long)stats.pool_published,
           (unsigned long long)(moved - stats.pool_published));
    fflush(stdout);
    while (gone < GONE_ROUNDS) {
        failed += get_all(store, &kinds[0]) + get_all(store, &kinds[1]);
        ++rounds;
        gone += (kvcl_store_rank_stats(store, 0, &stats, NULL) == KVCL_ERR_RANK_FAILED) ? 1 : 0;
        nanosleep(&nap, NULL);
    }
    printf("%u rounds of %d gets, %u failed\n", rounds, KEYS + LARGE_KEYS, failed);
    kvcl_store_close(store);
    kvcl_cache_destroy(kinds[0].cache);
    kvcl_cache_destroy(kinds[1].cache);
    kvcl_finalize(ctx);
    return (failed == 0) ? 0 : 1;
}
