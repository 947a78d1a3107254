/*
 * Caches, memory and their expected bytes, for the cases (conform.h).
 */
#include "conform.h"

#include <stdlib.h>
#include <string.h>

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

cf_cache_t cf_cache(cf_t *cf, const char *name, const kvcl_layout_t *layout, bool ours)
{
    cf_cache_t cache = {NULL, NULL, 0};
    size_t     base_bytes, i;

    if (!ours) {
        CF_OK(cf, kvcl_layout_extent(layout, &cache.n_bases, &base_bytes));
        cache.bases = calloc(cache.n_bases, sizeof(*cache.bases));
        for (i = 0; i < cache.n_bases; ++i) {
            cache.bases[i] = calloc(1, base_bytes);
        }
    }
    CF_OK(cf, kvcl_cache_create(cf->ctx, name, layout, cache.bases, KVCL_MEM_HOST, &cache.h));
    return cache;
}

void cf_cache_end(cf_cache_t *cache)
{
    size_t i;

    kvcl_cache_destroy(cache->h);
    for (i = 0; i < cache->n_bases; ++i) {
        free(cache->bases[i]);
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
        mem.malloced = calloc(1, len);
        CF_OK(cf, kvcl_mem_register(cf->ctx, mem.malloced, len, KVCL_MEM_HOST, NULL, &mem.mine));
    }
    mem.addr = kvcl_mem_addr(mem.mine);
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
    free(mem->malloced);
}
