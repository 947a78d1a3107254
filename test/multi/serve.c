/*
 * A worker beside kvcl_serve (run_serve.sh): puts blocks, moves them to rank 0, says so, and gets them all until rank 0
 * has gone and for a while after: none may fail.
 */
#include <kvcl/kvcl.h>

#include <string.h>
#include <time.h>

enum { BLOCK = 4096, KEYS = 48, GONE_ROUNDS = 20 };

static uint8_t byte_of(unsigned key, unsigned i)
{
    return (uint8_t)((key * 31u) + (i * 7u) + (i >> 8));
}

static kvcl_status_t finish(kvcl_status_t posted, kvcl_req_h *req)
{
    kvcl_status_t status = posted;

    while ((posted == KVCL_OK) && ((status = kvcl_req_wait(*req, 0)) == KVCL_INPROGRESS)) {
    }
    return status;
}

/* Fails the test, or not. */
static unsigned get_all(kvcl_store_h store, kvcl_cache_h cache, const kvcl_key_t *keys)
{
    uint32_t   id = KEYS;
    uint8_t    bytes[BLOCK];
    unsigned   failed = 0, key, i;
    kvcl_req_h req;

    for (key = 0; key < KEYS; ++key) {
        kvcl_status_t status = finish(kvcl_store_get(store, &keys[key], 1, cache, &id, NULL, NULL, &req), &req);
        if (status != KVCL_OK) {
            fprintf(stderr, "key %u: %s\n", key, kvcl_status_text(status));
            ++failed;
            continue;
        }
        KVCL_TRY(kvcl_cache_read_block(cache, id, bytes, sizeof(bytes)));
        for (i = 0; (i < BLOCK) && (bytes[i] == byte_of(key, i)); ++i) {
        }
        failed += (i < BLOCK) ? 1 : 0;
    }
    return failed;
}

int main(void)
{
    kvcl_layout_t       layout = KVCL_LAYOUT_BYTES(KEYS + 1, BLOCK);
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_xfer_params_t  single = KVCL_XFER_PARAMS_INIT;
    struct timespec     nap    = {0, 20000000};
    kvcl_context_h      ctx;
    kvcl_comm_h         world;
    kvcl_cache_h        cache;
    kvcl_store_h        store;
    kvcl_store_stats_t  stats;
    kvcl_key_t          keys[KEYS];
    uint32_t            ids[KEYS];
    uint8_t             bytes[BLOCK];
    unsigned            failed = 0, rounds = 0, gone = 0, key, i;
    kvcl_req_h          req;

    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &world));
    KVCL_TRY(kvcl_cache_create(ctx, "worker", &layout, NULL, KVCL_MEM_HOST, &cache));
    params.dram_bytes  = KEYS * BLOCK;
    params.block_bytes = BLOCK;
    params.dir_entries = 65536;
    KVCL_TRY(kvcl_store_open(world, &params, &store));
    for (key = 0; key < KEYS; ++key) {
        for (i = 0; i < BLOCK; ++i) {
            bytes[i] = byte_of(key, i);
        }
        KVCL_TRY(kvcl_cache_write_block(cache, key, bytes, sizeof(bytes)));
        kvcl_key_from_bytes("serve", 5, &key, sizeof(key), &keys[key]);
        ids[key] = key;
    }
    single.replicas = 1; /* nothing but the drain keeps them */
    KVCL_TRY(finish(kvcl_store_put(store, keys, KEYS, cache, ids, &single, &req), &req));
    KVCL_TRY(kvcl_store_copy(store, keys, KEYS, 0, KVCL_STORE_MOVE, NULL));
    kvcl_store_stats(store, &stats);
    printf("moved %llu blocks to rank 0\n", (unsigned long long)stats.moved);
    fflush(stdout);
    while (gone < GONE_ROUNDS) {
        failed += get_all(store, cache, keys);
        ++rounds;
        gone += (kvcl_store_rank_stats(store, 0, &stats) == KVCL_ERR_RANK_FAILED) ? 1 : 0;
        nanosleep(&nap, NULL);
    }
    printf("%u rounds of %d gets, %u failed\n", rounds, KEYS, failed);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
    kvcl_finalize(ctx);
    return (failed == 0) ? 0 : 1;
}
