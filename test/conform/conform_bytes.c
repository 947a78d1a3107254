/*
 * Caches, memory and their expected bytes, for the cases (conform.h).
 */
#include "conform.h"

#include <stdlib.h>
#include <string.h>

enum { COUNTERS_MAX = 64 }; /* memory for signals, which is always the host's */

#if KVCL_HAVE_CUDA
#include "test/unit/fake_cuda.h"

/* See cf_cache(). */
static bool by_device(const cf_t *cf)
{
    const char *env = getenv("CF_DEVICE");

    if ((env == NULL) || (((unsigned)atoi(env) >> (cf->rank % 2)) & 1) == 0) {
        return false;
    }
    fake_cuda_start();
    return true;
}
#else
static bool by_device(const cf_t *cf)
{
    (void)cf;
    return false;
}
static void *fake_cuda_malloc(int device, size_t len)
{
    return (device == 0) ? calloc(1, len) : NULL;
}
static void *fake_cuda_bytes(void *ptr)
{
    return ptr;
}
static void fake_cuda_free(void *ptr)
{
    free(ptr);
}
#endif

void *cf_see(kvcl_cache_h cache, uint32_t base)
{
    void *addr = kvcl_cache_base(cache, base);

    return (kvcl_cache_kind(cache) == KVCL_MEM_CUDA) ? fake_cuda_bytes(addr) : addr;
}

void cf_bytes(uint64_t seed, uint32_t block, void *buf, size_t len)
{
    uint64_t state = seed ^ ((uint64_t)block * UINT64_C(0x9e3779b97f4a7c15)), word;
    char     *at   = buf;

    for (; len >= 8; len -= 8, at += 8) {
        word = kvcl_splitmix64(&state);
        memcpy(at, &word, 8);
    }
    word = kvcl_splitmix64(&state);
    memcpy(at, &word, len);
}

bool cf_bytes_are(uint64_t seed, uint32_t block, const void *buf, size_t len)
{
    uint64_t   state = seed ^ ((uint64_t)block * UINT64_C(0x9e3779b97f4a7c15)), word;
    const char *at   = buf;

    for (; len >= 8; len -= 8, at += 8) {
        word = kvcl_splitmix64(&state);
        if (memcmp(at, &word, 8) != 0) {
            return false;
        }
    }
    word = kvcl_splitmix64(&state);
    return memcmp(at, &word, len) == 0;
}

kvcl_status_t cf_over(cf_t *cf, const char *name, const kvcl_layout_t *layout, void *const *bases, kvcl_mem_kind_t kind,
                      kvcl_cache_h *cache_p)
{
    kvcl_cache_params_t params = {.size = sizeof(params), .flags = KVCL_CACHE_WRITABLE};
    size_t              n, bytes, i, *lengths;
    kvcl_status_t       status;

    if (bases == NULL) {
        return kvcl_cache_create(cf->ctx, name, layout, &params, cache_p);
    }
    CF_OK(cf, kvcl_layout_extent(layout, &n, &bytes));
    lengths = calloc(n, sizeof(*lengths));
    CF_CHECK(cf, lengths != NULL);
    for (i = 0; i < n; ++i) {
        lengths[i] = bytes;
    }
    params.kind       = kind;
    params.bases      = bases;
    params.n_bases    = (uint32_t)n;
    params.base_bytes = lengths;
    status = kvcl_cache_create(cf->ctx, name, layout, &params, cache_p);
    free(lengths);
    return status;
}

cf_cache_t cf_cache(cf_t *cf, const char *name, const kvcl_layout_t *layout, bool ours)
{
    cf_cache_t cache = {.device = !ours && by_device(cf)};
    size_t     base_bytes, i;

    if (!ours) {
        CF_OK(cf, kvcl_layout_extent(layout, &cache.n_bases, &base_bytes));
        cache.bases = calloc(cache.n_bases, sizeof(*cache.bases));
        for (i = 0; i < cache.n_bases; ++i) {
            cache.bases[i] = cache.device ? fake_cuda_malloc(0, base_bytes) : calloc(1, base_bytes);
        }
    }
    CF_OK(cf, cf_over(cf, name, layout, cache.bases, KVCL_MEM_AUTO, &cache.h));
    CF_CHECK(cf, kvcl_cache_kind(cache.h) == (cache.device ? KVCL_MEM_CUDA : KVCL_MEM_HOST));
    return cache;
}

void cf_cache_end(cf_cache_t *cache)
{
    size_t i;

    kvcl_cache_destroy(cache->h);
    for (i = 0; i < cache->n_bases; ++i) {
        if (cache->device) {
            fake_cuda_free(cache->bases[i]);
        } else {
            free(cache->bases[i]);
        }
    }
    free(cache->bases);
}

void cf_fill(cf_t *cf, kvcl_cache_h cache, uint64_t seed)
{
    size_t   len = kvcl_cache_block_bytes(cache);
    uint32_t b, n = (uint32_t)kvcl_cache_blocks(cache);
    char     *buf = malloc(len);

    for (b = 0; b < n; ++b) {
        cf_bytes(seed, b, buf, len);
        CF_OK(cf, kvcl_cache_write_block(cache, b, buf, len));
    }
    free(buf);
}

void cf_block_is(cf_t *cf, kvcl_cache_h cache, uint32_t block, uint64_t seed, uint32_t as_block)
{
    size_t len  = kvcl_cache_block_bytes(cache);
    char   *buf = malloc(len);

    CF_OK(cf, kvcl_cache_read_block(cache, block, buf, len));
    CF_CHECK(cf, cf_bytes_are(seed, as_block, buf, len));
    free(buf);
}

cf_mem_t cf_mem(cf_t *cf, size_t len, bool ours, unsigned rights)
{
    cf_mem_t   mem = {0};
    char       desc[1024];
    size_t     desc_len = sizeof(desc);
    const void *blob;
    int        i;

    if (ours) {
        CF_OK(cf, kvcl_mem_alloc(cf->ctx, len, NULL, &mem.mine));
    } else {
        mem.device   = (len > COUNTERS_MAX) && by_device(cf);
        mem.malloced = mem.device ? fake_cuda_malloc(0, len) : calloc(1, len);
        CF_OK(cf, kvcl_mem_register(cf->ctx, mem.malloced, len, mem.device ? KVCL_MEM_CUDA : KVCL_MEM_HOST, NULL,
                                    &mem.mine));
    }
    CF_CHECK(cf, kvcl_mem_kind_of(mem.mine) == (mem.device ? KVCL_MEM_CUDA : KVCL_MEM_HOST));
    mem.addr = mem.device ? fake_cuda_bytes(mem.malloced) : kvcl_mem_addr(mem.mine);
    CF_CHECK(cf, kvcl_mem_len(mem.mine) == len);
    CF_OK(cf, kvcl_mem_export(mem.mine, rights, desc, &desc_len));
    cf_give(cf, desc, desc_len);
    cf_fence(cf);
    for (i = 0; i < cf->size; ++i) {
        blob = cf_blob(cf, i, &desc_len);
        CF_OK(cf, kvcl_rmem_import(cf->world, i, blob, desc_len, &mem.of[i]));
        CF_CHECK(cf, kvcl_rmem_len(mem.of[i]) == len);
    }
    cf_fence(cf);
    return mem;
}

void cf_mem_end(cf_t *cf, cf_mem_t *mem)
{
    int i;

    cf_fence(cf);
    for (i = 0; i < cf->size; ++i) {
        kvcl_rmem_free(mem->of[i]);
    }
    kvcl_mem_free(mem->mine);
    if (mem->device) {
        fake_cuda_free(mem->malloced);
    } else {
        free(mem->malloced);
    }
}
