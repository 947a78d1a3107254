/*
 * kvcl_query_latency: each successful call is counted once, with its kind and the path of its bytes. Calls completed
 * inside their posts are counted by sampling; failed calls are not counted.
 */
#include "conform.h"

#include "base/latency.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4096, BLOCKS = 8, PUTS = 24, CALLS = 10 * KVCL_LATENCY_EVERY };

/* The series to look for, and its values. */
typedef struct seen {
    cf_t       *cf;
    const char *op, *path;
    uint64_t   count, sum_ns, all;
} seen_t;

static void look(void *arg, const kvcl_latency_info_t *info)
{
    seen_t   *seen = arg;
    cf_t     *cf   = seen->cf;
    uint64_t count = 0, least = 0, below = 0;
    size_t   i;

    CF_CHECK(cf, info->size == sizeof(*info));
    CF_CHECK(cf, (info->n_buckets > 1) && (info->bounds_ns[info->n_buckets - 1] == UINT64_MAX));
    for (i = 0; i < info->n_buckets; ++i) {
        CF_CHECK(cf, info->bounds_ns[i] > below);
        least += info->counts[i] * below;
        count += info->counts[i];
        below  = info->bounds_ns[i];
    }
    CF_CHECK(cf, (count == info->count) && (count > 0) && (info->sum_ns >= least));
    if (strcmp(info->op, seen->op) == 0) {
        seen->all += count;
        if (strcmp(info->path, seen->path) == 0) {
            seen->count  = count;
            seen->sum_ns = info->sum_ns;
        }
    }
}

static seen_t counted(cf_t *cf, const char *op, const char *path)
{
    seen_t seen = {.cf = cf, .op = op, .path = path};

    CF_OK(cf, kvcl_query_latency(cf->ctx, look, &seen));
    return seen;
}

/* The path to a peer's memory in this run, mapped where possible. */
static const char *near_path(const cf_t *cf, bool ours)
{
    if (cf->native) {
        return "native";
    }
    if (strcmp(cf->path, "loop") == 0) {
        return "loop";
    }
    return ((strcmp(cf->path, "shm") == 0) && ours) ? "mapped" : "served";
}

/* n more calls of op on this path, and on no other; sampled: the count may be off by two sampling periods. */
static void grew(cf_t *cf, const char *op, const char *path, const seen_t *before, uint64_t n, bool sampled)
{
    seen_t   now  = counted(cf, op, path);
    uint64_t more = now.count - before->count, slack = sampled ? 2 * KVCL_LATENCY_EVERY : 0;

    if ((more + slack < n) || (more > n + slack) || (now.all - before->all != more) ||
        (now.sum_ns <= before->sum_ns)) {
        fprintf(stderr, "%s, %s: %llu more of %llu, %llu on all paths\n", op, path, (unsigned long long)more,
                (unsigned long long)n, (unsigned long long)(now.all - before->all));
        CF_CHECK(cf, !"counted");
    }
}

/* A peer's own memory is read natively over shared memory where UCX can (cma, from 1.16 on), else served. One get
 * determines the path, and all others must take the same one. */
static const char *path_of_gets(cf_t *cf, cf_cache_t *cache, const kvcl_sel_t *from, const kvcl_sel_t *to, bool ours)
{
    seen_t     native = counted(cf, "get", "native");
    kvcl_req_h req;

    if ((strcmp(cf->path, "shm") != 0) || ours) {
        return near_path(cf, ours);
    }
    CF_OK(cf, kvcl_get(cf->world, (cf->rank + 1) % cf->size, cache->h, from, to, NULL, &req));
    CF_OK(cf, cf_end(cf, req));
    return (counted(cf, "get", "native").count > native.count) ? "native" : "served";
}

static void transfers(cf_t *cf)
{
    kvcl_layout_t layout = KVCL_LAYOUT_BYTES(BLOCKS, BLOCK);
    uint32_t      a = 1, b = 2, wrong = BLOCKS;
    kvcl_sel_t    from = cf_sel(&a, 1), to = cf_sel(&b, 1), bad = cf_sel(&wrong, 1);
    int           next = (cf->rank + 1) % cf->size;
    const char    *path, *got;
    kvcl_req_h    req;
    seen_t        gets, puts;
    unsigned      kind, i;
    bool          sampled;

    for (kind = 0; kind < 2; ++kind) {
        cf_cache_t cache = cf_cache(cf, (kind == 0) ? "ours" : "malloced", &layout, kind == 0);
        cf_fence(cf);
        path    = near_path(cf, kind == 0);
        got     = path_of_gets(cf, &cache, &from, &to, kind == 0);
        sampled = (strcmp(path, "loop") == 0) || (strcmp(path, "mapped") == 0);
        gets    = counted(cf, "get", got);
        puts    = counted(cf, "put", path);
        for (i = 0; i < CALLS; ++i) {
            CF_OK(cf, kvcl_get(cf->world, next, cache.h, &from, &to, NULL, &req));
            CF_OK(cf, cf_end(cf, req));
            CF_OK(cf, kvcl_put(cf->world, next, cache.h, &to, &from, NULL, &req));
            CF_OK(cf, cf_end(cf, req));
        }
        grew(cf, "get", got, &gets, CALLS, sampled);
        grew(cf, "put", path, &puts, CALLS, sampled);
        gets = counted(cf, "get", got);
        for (i = 0; i < CALLS; ++i) {
            CF_OK(cf, kvcl_get(cf->world, next, cache.h, &bad, &to, NULL, &req));
            CF_IS(cf, cf_end(cf, req), KVCL_ERR_OUT_OF_RANGE);
        }
        CF_CHECK(cf, counted(cf, "get", got).all == gets.all);
        cf_fence(cf);
        cf_cache_end(&cache);
    }
}

static void bytes(cf_t *cf)
{
    cf_mem_t    mem     = cf_mem(cf, BLOCK, true, KVCL_READ_WRITE);
    int         next    = (cf->rank + 1) % cf->size;
    const char  *path   = near_path(cf, true);
    bool        sampled = (strcmp(path, "loop") == 0) || (strcmp(path, "mapped") == 0);
    seen_t      gets    = counted(cf, "get", path), puts = counted(cf, "put", path);
    char        buf[64] = {0};
    kvcl_req_h  req;
    unsigned    i;

    for (i = 0; i < CALLS; ++i) {
        CF_OK(cf, kvcl_get_bytes(mem.of[next], 64, buf, sizeof(buf), NULL, &req));
        CF_OK(cf, cf_end(cf, req));
        CF_OK(cf, kvcl_put_bytes(mem.of[next], 128, buf, sizeof(buf), NULL, &req));
        CF_OK(cf, cf_end(cf, req));
    }
    grew(cf, "get", path, &gets, CALLS, sampled);
    grew(cf, "put", path, &puts, CALLS, sampled);
    cf_fence(cf);
    cf_mem_end(cf, &mem);
}

/* Each rank puts blocks of its own and gets all blocks: the farthest path is among those counted. */
static void store(cf_t *cf)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_layout_t       layout = KVCL_LAYOUT_BYTES(BLOCKS, BLOCK);
    cf_cache_t          cache  = cf_cache(cf, "engine", &layout, true);
    const char          *path  = near_path(cf, true);
    const char          *far   = (strcmp(path, "native") == 0) ? "served" : path; /* homes reply to lookups */
    kvcl_key_t          keys[PUTS * CF_RANKS_MAX];
    size_t              n = (size_t)(PUTS * cf->size), hit;
    uint64_t            calls;
    uint32_t            id = 3, i;
    kvcl_store_h        store;
    kvcl_status_t       status;
    kvcl_req_h          req;
    seen_t              puts, gets, matches;

    for (i = 0; i < n; ++i) { /* the ranks take turns, so that one rank's blocks are remote to the other */
        uint64_t name[3] = {cf_same(cf), i, 7};
        kvcl_key_from_string(name, sizeof(name), &keys[i]);
    }
    params.dram_bytes  = 2 * PUTS * BLOCK;
    params.block_bytes = BLOCK;
    CF_OK(cf, kvcl_store_open(cf->world, &params, &store));
    puts = counted(cf, "store_put", far);
    for (i = (uint32_t)cf->rank; i < n; i += (uint32_t)cf->size) {
        CF_OK(cf, kvcl_store_put(store, &keys[i], 1, cache.h, &id, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
    }
    CF_CHECK(cf, counted(cf, "store_put", far).all - puts.all == PUTS);
    cf_fence(cf);
    gets    = counted(cf, "store_get", far);
    matches = counted(cf, "store_match", far);
    calls   = gets.all + matches.all;
    for (i = 0; i < 4 * KVCL_LATENCY_EVERY; ++i) { /* with this number of keys, some homes are other ranks */
        CF_OK(cf, kvcl_store_match(store, keys, n, &hit, NULL));
        CF_CHECK(cf, hit == n);
        CF_OK(cf, kvcl_store_get(store, &keys[i % n], 1, cache.h, &id, &status, NULL, &req));
        CF_OK(cf, cf_end(cf, req));
    }
    if (strcmp(path, "native") == 0) { /* lookups are read natively once the first one has been answered */
        CF_CHECK(cf, counted(cf, "store_get", far).all + counted(cf, "store_match", far).all > calls);
    } else {
        CF_CHECK(cf, counted(cf, "store_get", far).count > gets.count);
        CF_CHECK(cf, counted(cf, "store_match", far).count > matches.count);
    }
    gets = counted(cf, "store_get", far);
    kvcl_key_from_string("nobody has it", 13, &keys[0]);
    for (i = 0; i < 2 * KVCL_LATENCY_EVERY; ++i) {
        CF_OK(cf, kvcl_store_get(store, &keys[0], 1, cache.h, &id, &status, NULL, &req));
        CF_IS(cf, cf_end(cf, req), KVCL_ERR_NOT_FOUND);
    }
    CF_CHECK(cf, counted(cf, "store_get", far).all == gets.all);
    cf_fence(cf);
    kvcl_store_close(store);
    cf_cache_end(&cache);
}

static void refused(cf_t *cf)
{
    CF_IS(cf, kvcl_query_latency(NULL, look, cf), KVCL_ERR_INVALID_PARAM);
    CF_CHECK(cf, strstr(kvcl_last_error(), "the context is NULL") != NULL);
    CF_IS(cf, kvcl_query_latency(cf->ctx, NULL, cf), KVCL_ERR_INVALID_PARAM);
    CF_CHECK(cf, strstr(kvcl_last_error(), "cb is NULL") != NULL);
}

static const cf_case_t cases[] = {
    {"transfers", transfers, 0},
    {"bytes", bytes, 0},
    {"store", store, 0},
    {"refused", refused, 0},
    {NULL, NULL, 0},
};

int main(int argc, char **argv)
{
    static const cf_config_t configs[] = {
        {"loop", false, 2, 0},
        {"loop", false, 2, CF_NATIVE},
        {"shm", true, 2, 0},
        {"shm", true, 2, KVCL_INIT_NO_THREAD},
        {"tcp", true, 2, 0},
        {NULL, false, 0, 0},
    };

    return cf_main(argc, argv, configs, cases);
}
