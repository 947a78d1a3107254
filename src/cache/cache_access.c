/*
 * What a user reads of a local cache and writes to it: its sizes, its bases, single blocks.
 *
 * Owns: nothing. Invariant: a block that is read or written lies inside the cache. Locks: none; the fields that are
 * read do not change while the cache exists.
 */
#include "config.h"
#include "cache/cache.h"
#include "base/error.h"
#include "handle/handle.h"

size_t kvcl_cache_block_bytes(kvcl_cache_h cache)
{
    kvcl_status_t status = kvcl_handle_check(cache, KVCL_KIND_CACHE, "kvcl_cache_block_bytes");

    return (status == KVCL_OK) ? cache->shape.block_bytes : 0;
}

uint64_t kvcl_cache_blocks(kvcl_cache_h cache)
{
    return (kvcl_handle_check(cache, KVCL_KIND_CACHE, "kvcl_cache_blocks") == KVCL_OK) ? cache->shape.blocks : 0;
}

kvcl_mem_kind_t kvcl_cache_kind(kvcl_cache_h cache)
{
    return (kvcl_handle_check(cache, KVCL_KIND_CACHE, "kvcl_cache_kind") == KVCL_OK) ? kvcl_copier_kind(cache->copier)
                                                                                       : KVCL_MEM_AUTO;
}

void *kvcl_cache_base(kvcl_cache_h cache, uint32_t base)
{
    if (kvcl_handle_check(cache, KVCL_KIND_CACHE, "kvcl_cache_base") != KVCL_OK) {
        return NULL;
    }
    return (base < cache->shape.n_bases) ? (void *)cache->bases[base] : NULL;
}

kvcl_status_t kvcl_cache_check_sel(kvcl_cache_h cache, const kvcl_sel_t *sel, const char *call)
{
    kvcl_status_t status = kvcl_sel_check(&cache->shape, sel);

    return (status == KVCL_OK) ? KVCL_OK
                               : kvcl_fail(status, "%s: cache \"%s\": %s", call, cache->name, kvcl_last_error());
}

static kvcl_status_t one_block(kvcl_cache_h cache, const uint32_t *block, const void *buf, size_t len,
                               const char *call, kvcl_stream_t *stream)
{
    kvcl_sel_t    sel = {.blocks = block, .n_blocks = 1};
    kvcl_side_t   side;
    kvcl_status_t status = kvcl_handle_check(cache, KVCL_KIND_CACHE, call);

    if (status != KVCL_OK) {
        return status;
    }
    if ((buf == NULL) || (len != cache->shape.block_bytes)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: a block of this cache has %zu bytes, the buffer %zu", call,
                         (size_t)cache->shape.block_bytes, (buf == NULL) ? (size_t)0 : len);
    }
    status = kvcl_cache_check_sel(cache, &sel, call);
    if (status == KVCL_OK) {
        side = kvcl_cache_side(cache, &sel);
        kvcl_stream_init(stream, &side, KVCL_STREAM_CANONICAL);
    }
    return status;
}

kvcl_status_t kvcl_cache_read_block(kvcl_cache_h cache, uint32_t block, void *buf, size_t len)
{
    kvcl_stream_t stream;
    kvcl_status_t status = one_block(cache, &block, buf, len, "kvcl_cache_read_block", &stream);

    if ((status == KVCL_OK) && (kvcl_stream_gather(&stream, buf, len) != len)) {
        status = KVCL_ERR_IO; /* with the device's sentence */
    }
    return status;
}

kvcl_status_t kvcl_cache_write_block(kvcl_cache_h cache, uint32_t block, const void *buf, size_t len)
{
    kvcl_stream_t stream;
    kvcl_status_t status = one_block(cache, &block, buf, len, "kvcl_cache_write_block", &stream);

    if ((status == KVCL_OK) && (kvcl_stream_scatter(&stream, buf, len) != len)) {
        status = KVCL_ERR_IO;
    }
    return status;
}
