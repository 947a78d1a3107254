/*
 * Pool of objects of one size, grown a chunk at a time and never shrunk before fini.
 *
 * Owns: its chunks. An object got from it belongs to the caller until put. Contents of an object
 * are undefined at get. fini warns, naming the pool and how many objects are still out.
 * Not thread-safe: the caller's lock protects it.
 */
#ifndef KVCL_BASE_MPOOL_H
#define KVCL_BASE_MPOOL_H

#include <kvcl/kvcl_status.h>

#include <stddef.h>

typedef struct kvcl_mpool_elem  kvcl_mpool_elem_t;
typedef struct kvcl_mpool_chunk kvcl_mpool_chunk_t;

typedef struct kvcl_mpool {
    const char         *name; /* a string that outlives the pool */
    size_t              size; /* of one object, rounded up to align */
    size_t              align;
    size_t              chunk; /* objects per chunk */
    kvcl_mpool_elem_t  *free_list;
    kvcl_mpool_chunk_t *chunks;
    size_t              in_use;
    size_t              total;
} kvcl_mpool_t;

/** Allocates nothing. @a align: a power of two or 0 for the default; @a chunk: 0 means 64. */
void kvcl_mpool_init(kvcl_mpool_t *mp, const char *name, size_t size, size_t align, size_t chunk);

/** Frees every chunk, also those with objects still out. Returns how many were out. */
size_t kvcl_mpool_fini(kvcl_mpool_t *mp);

kvcl_status_t kvcl_mpool_grow(kvcl_mpool_t *mp) KVCL_MUST_CHECK;

struct kvcl_mpool_elem {
    kvcl_mpool_elem_t *next;
};

/** An object, or NULL when memory is out. */
static inline void *kvcl_mpool_get(kvcl_mpool_t *mp)
{
    kvcl_mpool_elem_t *elem = mp->free_list;

    if (__builtin_expect(elem == NULL, 0)) {
        if (kvcl_mpool_grow(mp) != KVCL_OK) {
            return NULL;
        }
        elem = mp->free_list;
    }
    mp->free_list = elem->next;
    ++mp->in_use;
    return elem;
}

static inline void kvcl_mpool_put(kvcl_mpool_t *mp, void *obj)
{
    kvcl_mpool_elem_t *elem = (kvcl_mpool_elem_t *)obj;

    elem->next    = mp->free_list;
    mp->free_list = elem;
    --mp->in_use;
}

#endif
