/*
 * Local caches (cache.h): creation over the engine's tensors or over memory that KVCL allocates. Destruction is in
 * cache_destroy.c, what a user reads of a cache in cache_access.c, peers' descriptions are in rcache.c.
 *
 * Owns: the caches of a context, with their regions and generation words. Invariants: a name is unique in a context;
 * an id is never used again, since a peer may still know the last cache that had one; a cache is freed when no peer is
 * served from it and no cache lies in its memory. Locks: the engine lock guards the list; creation and destruction
 * take it.
 */
#include "config.h"
#include "cache/cache.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/structs.h"
#include "handle/handle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t kvcl_cache_name_key(const char *name)
{
    return kvcl_checksum(name, strlen(name)) | (UINT64_C(1) << 63);
}

kvcl_cache_h kvcl_cache_by_id(kvcl_context_h ctx, uint32_t id)
{
    kvcl_cache_h cache;

    kvcl_assert_locked(ctx);
    kvcl_list_foreach (cache, kvcl_context_caches(ctx), struct kvcl_cache, link) {
        if ((cache->id == id) && !cache->closing) {
            return cache;
        }
    }
    return NULL;
}

kvcl_cache_h kvcl_cache_by_name(kvcl_context_h ctx, const char *name, size_t len)
{
    kvcl_cache_h cache;

    kvcl_list_foreach (cache, kvcl_context_caches(ctx), struct kvcl_cache, link) {
        if ((strlen(cache->name) == len) && (memcmp(cache->name, name, len) == 0) && !cache->closing) {
            return cache;
        }
    }
    return NULL;
}

/* Peers read and write all bytes of the layout: all must be the caller's memory. */
static kvcl_status_t check_bases(const kvcl_cache_params_t *p, const kvcl_shape_t *shape)
{
    uintptr_t end;
    uint32_t  i;

    if (p->n_bases != shape->n_bases) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_cache_create: n_bases is %u, the layout has %u bases",
                         p->n_bases, shape->n_bases);
    }
    if (p->base_bytes == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_cache_create: base_bytes is NULL: say how many bytes each of "
                         "the %u bases has", p->n_bases);
    }
    for (i = 0; i < p->n_bases; ++i) {
        if (p->bases[i] == NULL) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_cache_create: base %u is NULL", i);
        }
        if (p->base_bytes[i] < shape->base_bytes) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_cache_create: base %u has %zu bytes, the layout needs %llu",
                             i, p->base_bytes[i], (unsigned long long)shape->base_bytes);
        }
        if (__builtin_add_overflow((uintptr_t)p->bases[i], p->base_bytes[i], &end)) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_cache_create: base %u, %zu bytes at %p, wraps around", i,
                             p->base_bytes[i], p->bases[i]);
        }
    }
    return KVCL_OK;
}

/* Of the regions that have the blocks. */
static kvcl_mem_params_t mem_params(kvcl_cache_h cache)
{
    return (kvcl_mem_params_t){.size = sizeof(kvcl_mem_params_t), .flags = cache->writable ? 0 : KVCL_MEM_READ_ONLY};
}

/* The engine's own tensors, one region each. */
static kvcl_status_t use_bases(kvcl_cache_h cache, const kvcl_cache_params_t *p)
{
    const kvcl_mem_params_t params = mem_params(cache);
    kvcl_status_t status = check_bases(p, &cache->shape);
    uint32_t      i;

    for (i = 0; (i < cache->shape.n_bases) && (status == KVCL_OK); ++i) {
        status = kvcl_region_create_kind(cache->ctx, p->bases[i], cache->shape.base_bytes, p->kind, &params,
                                         &cache->regions[i]);
        if (status != KVCL_OK) {
            char why[KVCL_ERROR_MAX];
            snprintf(why, sizeof(why), "%s", kvcl_last_error());
            return kvcl_fail(status, "kvcl_cache_create: base %u: %s", i, why);
        }
        cache->bases[i]  = (uintptr_t)p->bases[i];
        cache->n_regions = i + 1;
        if (cache->regions[i]->copier != cache->regions[0]->copier) {
            status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_cache_create: base %u is memory of another kind or device "
                               "than base 0", i);
        }
    }
    cache->copier = (status == KVCL_OK) ? cache->regions[0]->copier : NULL;
    return status;
}

/* Memory that KVCL allocates: one region that holds the bases one after the other. */
static kvcl_status_t allocate(kvcl_cache_h cache)
{
    const kvcl_mem_params_t params = mem_params(cache);
    size_t        stride = (cache->shape.base_bytes + 4095) & ~(size_t)4095;
    size_t        total;
    kvcl_status_t status;
    uint32_t      i;

    if (__builtin_mul_overflow(stride, (size_t)cache->shape.n_bases, &total)) {
        return kvcl_fail(KVCL_ERR_BAD_LAYOUT, "the layout needs more memory than can be addressed");
    }
    status = kvcl_region_create(cache->ctx, NULL, total, &params, &cache->regions[0]);
    if (status != KVCL_OK) {
        return status;
    }
    cache->n_regions = 1;
    for (i = 0; i < cache->shape.n_bases; ++i) {
        cache->bases[i] = (uintptr_t)cache->regions[0]->addr + (i * stride);
    }
    return KVCL_OK;
}

/* The memory of another cache, whose first base has enough behind it. */
static kvcl_status_t share(kvcl_cache_h cache, kvcl_cache_h arena)
{
    if ((cache->shape.n_bases != 1) || (arena->n_regions != 1) || (arena->arena != NULL) ||
        (cache->shape.base_bytes > arena->regions[0]->len)) {
        return kvcl_fail(KVCL_ERR_BAD_LAYOUT, "cache \"%s\" does not lie in the memory of cache \"%s\"", cache->name,
                         arena->name);
    }
    cache->arena      = arena;
    cache->regions[0] = arena->regions[0];
    cache->n_regions  = 1;
    cache->bases[0]   = (uintptr_t)arena->regions[0]->addr;
    cache->copier     = arena->copier;
    return KVCL_OK;
}

void kvcl_cache_free(kvcl_cache_h cache)
{
    uint32_t i;

    for (i = 0; (cache->arena == NULL) && (i < cache->n_regions); ++i) {
        kvcl_region_destroy(cache->regions[i]);
    }
    if (cache->gens_region != NULL) {
        kvcl_region_destroy(cache->gens_region);
    }
    free(cache->regions);
    free(cache->bases);
    kvcl_object_free(cache);
}

/* Ids are never used again: a peer may still know the last cache that had one. */
static kvcl_status_t enlist(kvcl_cache_h cache)
{
    static _Atomic uint32_t last_id;
    kvcl_context_h          ctx    = cache->ctx;
    kvcl_status_t           status = KVCL_OK;
    unsigned                n      = 0;
    kvcl_cache_h            other;

    kvcl_lock(ctx);
    if (kvcl_cache_by_name(ctx, cache->name, strlen(cache->name)) != NULL) {
        status = kvcl_fail(KVCL_ERR_EXISTS, "kvcl_cache_create: this context has a cache named \"%s\" already",
                           cache->name);
    }
    kvcl_list_foreach (other, kvcl_context_caches(ctx), struct kvcl_cache, link) {
        ++n;
    }
    if ((status == KVCL_OK) && (n >= KVCL_CACHES_MAX)) {
        status = kvcl_fail(KVCL_ERR_NO_SPACE, "more than %d caches in a context", KVCL_CACHES_MAX);
    }
    if (status == KVCL_OK) {
        cache->id = atomic_fetch_add(&last_id, 1) + 1;
        kvcl_list_add_tail(kvcl_context_caches(ctx), &cache->link);
    }
    kvcl_unlock(ctx);
    return status;
}

/* arena: a cache whose memory it shares, or NULL. */
static kvcl_status_t create(kvcl_context_h ctx, const char *name, const kvcl_layout_t *layout,
                            const kvcl_cache_params_t *params, kvcl_cache_h arena, kvcl_cache_h *cache_p)
{
    const kvcl_mem_params_t read_only = {.size = sizeof(read_only), .flags = KVCL_MEM_READ_ONLY};

    kvcl_cache_h  cache;
    kvcl_status_t status;
    kvcl_shape_t  shape;

    status = kvcl_shape_init(&shape, layout);
    if (status != KVCL_OK) {
        return status;
    }
    cache = kvcl_object_alloc(KVCL_KIND_CACHE, sizeof(*cache));
    if ((cache == NULL) || ((cache->bases = calloc(shape.n_bases, sizeof(*cache->bases))) == NULL) ||
        ((cache->regions = calloc(shape.n_bases, sizeof(void *))) == NULL)) {
        if (cache != NULL) {
            free(cache->bases);
        }
        kvcl_object_free(cache);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a cache");
    }
    cache->ctx   = ctx;
    cache->shape = shape;
    cache->writable = (params != NULL) && ((params->flags & KVCL_CACHE_WRITABLE) != 0);
    strcpy(cache->name, name);
    cache->name_key = kvcl_cache_name_key(name);
    kvcl_list_init(&cache->link);
    kvcl_list_init(&cache->users);
    if (arena != NULL) {
        status = share(cache, arena);
    } else {
        status = (params->bases != NULL) ? use_bases(cache, params) : allocate(cache);
    }
    if (status == KVCL_OK) {
        status = kvcl_region_create(ctx, NULL, shape.blocks * sizeof(uint32_t), &read_only, &cache->gens_region);
    }
    if (status == KVCL_OK) {
        cache->gens = cache->gens_region->addr;
        status      = enlist(cache);
    }
    if (status != KVCL_OK) {
        kvcl_cache_free(cache);
        return status;
    }
    *cache_p = cache;
    return KVCL_OK;
}

static kvcl_status_t check_params(const kvcl_cache_params_t *params, kvcl_cache_params_t *out)
{
    kvcl_status_t status = KVCL_OK;

    memset(out, 0, sizeof(*out));
    out->size = sizeof(*out);
    if (params != NULL) {
        status = kvcl_struct_in(out, params, KVCL_UP_TO(kvcl_cache_params_t, flags), sizeof(*out),
                                "kvcl_cache_params_t");
    }
    if ((params == NULL) || (status != KVCL_OK)) {
        return status;
    }
    if ((out->flags & ~(uint64_t)KVCL_CACHE_WRITABLE) != 0) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_cache_create: unknown flags 0x%llx",
                         (unsigned long long)out->flags);
    }
    if (out->bases != NULL) {
        return KVCL_OK;
    }
    if ((out->n_bases != 0) || (out->base_bytes != NULL)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_cache_create: n_bases or base_bytes is set, bases is NULL");
    }
    if ((out->kind != KVCL_MEM_HOST) && (out->kind != KVCL_MEM_AUTO)) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "kvcl_cache_create: the library allocates host memory only; memory of "
                         "kind %d is given as bases", (int)out->kind);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_cache_create(kvcl_context_h ctx, const char *name, const kvcl_layout_t *layout,
                                const kvcl_cache_params_t *params, kvcl_cache_h *cache_p)
{
    kvcl_cache_params_t own;
    kvcl_status_t       status;

    status = kvcl_handle_check(ctx, KVCL_KIND_CONTEXT, "kvcl_cache_create");
    if (status != KVCL_OK) {
        return status;
    }
    if ((name == NULL) || (layout == NULL) || (cache_p == NULL)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_cache_create: NULL argument");
    }
    if ((name[0] == '\0') || (strlen(name) > KVCL_CACHE_NAME_MAX)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_cache_create: a name has 1 to %d bytes, this one %zu",
                         KVCL_CACHE_NAME_MAX, strlen(name));
    }
    status = check_params(params, &own);
    return (status == KVCL_OK) ? create(ctx, name, layout, &own, NULL, cache_p) : status;
}

kvcl_status_t kvcl_cache_create_over(kvcl_cache_h arena, const char *name, const kvcl_layout_t *layout,
                                     kvcl_cache_h *cache_p)
{
    kvcl_status_t status = create(arena->ctx, name, layout, NULL, arena, cache_p);

    if (status == KVCL_OK) {
        kvcl_lock(arena->ctx);
        ++arena->n_over;
        kvcl_unlock(arena->ctx);
    }
    return status;
}
