/*
 * Quick numbers of the store for use during development (kvcl_perf measures for the record): store bench.
 */
#include "store_test.h"

enum { BENCH_KEYS = 16384, BENCH_GETS = 20000 };

static void bench_match(kvcl_store_h store, const kvcl_key_t *keys, size_t batch)
{
    uint64_t begin = kvcl_now_ns(), done = 0, ns;
    size_t   hit, i;

    for (i = 0; kvcl_now_ns() - begin < KVCL_NS_PER_SEC; i = (i + batch) % (BENCH_KEYS - batch)) {
        KVCL_TRY(kvcl_store_match(store, keys + i, batch, &hit, NULL));
        done += hit;
    }
    ns = kvcl_now_ns() - begin;
    printf("match, batches of %5zu: %.3f M keys/s\n", batch, (double)done * 1e3 / (double)ns);
}

static void bench_get(kvcl_store_h store, kvcl_cache_h cache, const kvcl_key_t *keys)
{
    uint64_t   begin = kvcl_now_ns();
    uint32_t   to    = BENCH_KEYS, i;
    kvcl_req_h req;

    for (i = 0; i < BENCH_GETS; ++i) {
        KVCL_TRY(do_wait(kvcl_store_get(store, &keys[i % BENCH_KEYS], 1, cache, &to, NULL, NULL, &req), &req));
    }
    printf("get of 4 KiB: %.3f us\n", (double)(kvcl_now_ns() - begin) / 1e3 / BENCH_GETS);
}

void bench(world_t *w)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_cache_h        cache  = make_cache(w, "bench", BENCH_KEYS + 1, false);
    kvcl_key_t          *keys  = malloc(BENCH_KEYS * sizeof(*keys));
    uint32_t            *ids   = malloc(BENCH_KEYS * sizeof(*ids)), i;
    kvcl_store_h        store;
    kvcl_req_h          req;

    KVCL_TRY(kvcl_store_open(w->comm, &params, &store));
    for (i = 0; i < BENCH_KEYS; ++i) {
        keys[i] = key_of("bench", 0, i);
        ids[i]  = i;
    }
    if (w->rank == w->size - 1) {
        uint64_t begin = kvcl_now_ns();
        KVCL_TRY(do_wait(kvcl_store_publish(store, keys, BENCH_KEYS, cache, ids, NULL, &req), &req));
        printf("publish: %.3f us a block\n", (double)(kvcl_now_ns() - begin) / 1e3 / BENCH_KEYS);
    }
    sync_all(w);
    if (w->rank == 0) {
        bench_match(store, keys, 1);
        bench_match(store, keys, 64);
        bench_match(store, keys, 1024);
        bench_match(store, keys, 8192);
        bench_get(store, cache, keys);
    }
    sync_all(w);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
    free(keys);
    free(ids);
}
