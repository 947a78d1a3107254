/*
 * Growth and end of a pool; get and put are inline in mpool.h. A chunk is one aligned allocation: its
 * header, padded to the alignment, then the objects.
 */
#include "config.h"
#include "base/mpool.h"
#include "base/error.h"
#include "base/log.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct kvcl_mpool_chunk {
    kvcl_mpool_chunk_t *next;
};

static size_t round_up(size_t n, size_t align)
{
    return (n + align - 1) & ~(align - 1);
}

void kvcl_mpool_init(kvcl_mpool_t *mp, const char *name, size_t size, size_t align, size_t chunk)
{
    memset(mp, 0, sizeof(*mp));
    mp->name  = name;
    mp->align = (align < _Alignof(max_align_t)) ? _Alignof(max_align_t) : align;
    mp->size  = round_up((size == 0) ? 1 : size, mp->align);
    mp->chunk = (chunk == 0) ? 64 : chunk;
}

kvcl_status_t kvcl_mpool_grow(kvcl_mpool_t *mp)
{
    size_t              head = round_up(sizeof(kvcl_mpool_chunk_t), mp->align);
    kvcl_mpool_chunk_t *chunk;
    kvcl_mpool_elem_t  *elem;
    size_t              i;

    if (mp->chunk > (SIZE_MAX / 2 - head) / mp->size) {
        chunk = NULL;
    } else {
        chunk = (kvcl_mpool_chunk_t *)aligned_alloc(mp->align, head + mp->chunk * mp->size);
    }
    if (chunk == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for %zu more objects of pool %s", mp->chunk, mp->name);
    }
    chunk->next = mp->chunks;
    mp->chunks  = chunk;
    for (i = mp->chunk; i > 0; --i) { /* so that they are handed out by growing address */
        elem          = (kvcl_mpool_elem_t *)(void *)((char *)chunk + head + (i - 1) * mp->size);
        elem->next    = mp->free_list;
        mp->free_list = elem;
    }
    mp->total += mp->chunk;
    return KVCL_OK;
}

size_t kvcl_mpool_fini(kvcl_mpool_t *mp)
{
    size_t              leaked = mp->in_use;
    kvcl_mpool_chunk_t *chunk;

    if (leaked > 0) {
        kvcl_log_warn("pool %s: %zu of %zu objects were not returned", mp->name, leaked, mp->total);
    }
    while ((chunk = mp->chunks) != NULL) {
        mp->chunks = chunk->next;
        free(chunk);
    }
    mp->free_list = NULL;
    mp->in_use    = 0;
    mp->total     = 0;
    return leaked;
}
