/*
 * A cache: a paged KV cache. A layout (kvcl_layout.h) committed over memory, with a name by which peers find it and a
 * generation word for each block by which they notice reuse.
 */
#ifndef KVCL_CACHE_H
#define KVCL_CACHE_H

#include <kvcl/kvcl_layout.h>
#include <kvcl/kvcl_mem.h>

KVCL_BEGIN_DECLS

typedef struct kvcl_cache *kvcl_cache_h;

enum {
    KVCL_CACHE_WRITABLE = 1u << 0 /* peers may kvcl_put into it. Without it a put ends with KVCL_ERR_ACCESS, and where
                                     the library allocated the memory, the kernel refuses every writable mapping by
                                     another process */
};

/* The memory of a cache. Read during kvcl_cache_create only, as are its arrays. */
typedef struct kvcl_cache_params {
    size_t          size;        /* sizeof(kvcl_cache_params_t) */
    uint64_t        flags;       /* KVCL_CACHE_WRITABLE */
    kvcl_mem_kind_t kind;        /* the kind of the bases: all of one kind, and all of one device */
    uint32_t        n_bases;     /* entries of bases and of base_bytes, from kvcl_layout_extent */
    void *const     *bases;      /* the engine's own tensors: one pointer, or one per layer with KVCL_LAYOUT_PER_LAYER;
                                    the memory must outlive the cache. NULL: the library allocates host memory that
                                    peers on this host map (the fast way there) */
    const size_t    *base_bytes; /* how many bytes the caller has from each base on. Needed with bases: peers read and
                                    write wherever the layout says, so each must be at least what kvcl_layout_extent
                                    says */
} kvcl_cache_params_t;
#define KVCL_CACHE_PARAMS_INIT {sizeof(kvcl_cache_params_t), 0, KVCL_MEM_HOST, 0, NULL, NULL}

/**
 * Commit a layout over memory. Several caches may use the same memory, as for the groups of a hybrid model.
 * @param name    at most 63 bytes, unique in this context; peers address the cache of the same name.
 * @param params  the memory; NULL: the library allocates it, and peers only read it.
 * @return KVCL_OK, KVCL_ERR_BAD_LAYOUT (the field is named), KVCL_ERR_EXISTS (name taken), KVCL_ERR_NO_MEMORY,
 *         KVCL_ERR_INVALID_PARAM (among others: a base is shorter than the layout needs, wraps around, is not mapped,
 *         or is longer than the device's allocation that it lies in; the sentence has the base and both numbers),
 *         KVCL_ERR_UNSUPPORTED (KVCL_MEM_CUDA: not built in, no driver or device here, or without bases).
 */
KVCL_API kvcl_status_t kvcl_cache_create(kvcl_context_h ctx, const char *name, const kvcl_layout_t *layout,
                                         const kvcl_cache_params_t *params, kvcl_cache_h *cache_p) KVCL_MUST_CHECK;

/**
 * Destroy a cache. Its operations must have completed, and its blocks must be withdrawn from stores. NULL is allowed.
 * Transfers that send its blocks to peers have 2 s to finish; then they end with KVCL_ERR_NOT_REGISTERED and a warning
 * names the peers. The cache is *not* destroyed in two cases:
 *   A store still uses it. Nothing changes.
 *   The network still reads its bytes 5 s later (a stopped peer), or the revocation fails as that of kvcl_mem_revoke()
 *   may. Peers begin no further transfer of it.
 * Then the log and kvcl_last_error() name the cache and the reason, the memory must not be freed, and the call may be
 * repeated. Once the cache is destroyed, the promise of kvcl_mem_revoke() (kvcl_mem.h) holds for its memory. Blocks.
 */
KVCL_API void kvcl_cache_destroy(kvcl_cache_h cache);

/** Bytes of one block over all layers. */
KVCL_API size_t   kvcl_cache_block_bytes(kvcl_cache_h cache);
KVCL_API uint64_t kvcl_cache_blocks(kvcl_cache_h cache);

/** The kind of the bases, as detected; never KVCL_MEM_AUTO. */
KVCL_API kvcl_mem_kind_t kvcl_cache_kind(kvcl_cache_h cache);

/** A base pointer: base is 0, or the layer with KVCL_LAYOUT_PER_LAYER. NULL if out of range. */
KVCL_API void *kvcl_cache_base(kvcl_cache_h cache, uint32_t base);

/**
 * Copy one block's bytes in canonical order (layer, K/V, token, head, dim) out of or into the cache; buf is host
 * memory.
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM, KVCL_ERR_OUT_OF_RANGE, KVCL_ERR_IO (device memory: the driver failed).
 */
KVCL_API kvcl_status_t kvcl_cache_read_block(kvcl_cache_h cache, uint32_t block, void *buf, size_t len)
    KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_cache_write_block(kvcl_cache_h cache, uint32_t block, const void *buf, size_t len)
    KVCL_MUST_CHECK;

KVCL_END_DECLS

#endif
