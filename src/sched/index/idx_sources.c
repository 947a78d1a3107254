/*
 * The public calls about sources (kvcl_sched_index.h), and their params. Owns the array of sources. Locks: takes the
 * index's.
 */
#include "config.h"

#include "sched/index/idx.h"

#include "base/error.h"
#include "base/structs.h"
#include "handle/handle.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_BYTES = 255, MAX_SALT = 65536 };
#define MAX_BLOCKS (UINT64_C(1) << 24)

static void source_free(kvcl_sched_index_h index, kvcl_idx_source_t *source)
{
    kvcl_sched_source_params_t *p = &source->params;

    atomic_fetch_sub_explicit(&index->bytes, kvcl_idx_held_bytes(&source->held) + sizeof(*source),
                              memory_order_relaxed);
    kvcl_idx_held_fini(&source->held);
    free((void *)(uintptr_t)p->name);
    free((void *)(uintptr_t)p->salt);
    free((void *)(uintptr_t)p->model);
    free((void *)(uintptr_t)p->only_model);
    free((void *)(uintptr_t)p->only_tenant);
    free((void *)(uintptr_t)p->only_backend);
    free(source);
}

void kvcl_idx_sources_fini(kvcl_sched_index_h index)
{
    uint32_t i;

    for (i = 0; i < index->source_cap; ++i) {
        if (index->sources[i] != NULL) {
            source_free(index, index->sources[i]);
        }
    }
    free(index->sources);
}

static bool text_copy(const char **text)
{
    *text = (*text != NULL) ? strdup(*text) : NULL;
    return *text != NULL;
}

/* The source owns its params from here on. */
static kvcl_idx_source_t *source_new(const kvcl_sched_source_params_t *params)
{
    kvcl_idx_source_t          *source = calloc(1, sizeof(*source));
    kvcl_sched_source_params_t *p      = (source != NULL) ? &source->params : NULL;
    const char                 *was[5] = {params->name, params->model, params->only_model, params->only_tenant,
                                          params->only_backend};
    const char                 **texts[5];
    bool                       ok = (source != NULL);
    unsigned                   i;

    if (!ok) {
        return NULL;
    }
    *p       = *params;
    texts[0] = &p->name;
    texts[1] = &p->model;
    texts[2] = &p->only_model;
    texts[3] = &p->only_tenant;
    texts[4] = &p->only_backend;
    for (i = 0; i < 5; ++i) {
        ok = (text_copy(texts[i]) || (was[i] == NULL)) && ok;
    }
    p->salt = NULL;
    if (params->salt_len > 0) {
        p->salt = malloc(params->salt_len);
        ok      = ok && (p->salt != NULL);
        if (p->salt != NULL) {
            memcpy((void *)(uintptr_t)p->salt, params->salt, params->salt_len);
        }
    }
    if (!ok) {
        for (i = 0; i < 5; ++i) {
            free((void *)(uintptr_t)*texts[i]);
        }
        free((void *)(uintptr_t)p->salt);
        free(source);
        return NULL;
    }
    kvcl_key_root(p->salt, p->salt_len, p->model, &source->base);
    source->by_hash = (p->feed >= KVCL_SCHED_FEED_VLLM);
    return source;
}

static kvcl_status_t others_check(kvcl_sched_index_h index, const kvcl_sched_source_params_t *p)
{
    const kvcl_idx_source_t *other;
    uint32_t                i;

    for (i = 0; i < index->source_cap; ++i) {
        other = index->sources[i];
        if ((other != NULL) && (strcmp(other->params.name, p->name) == 0)) {
            return kvcl_fail(KVCL_ERR_EXISTS, "the index has a source \"%s\"", p->name);
        }
        if ((other != NULL) && (other->params.instance == p->instance) && ((other->params.tiers & p->tiers) != 0)) {
            return kvcl_fail(KVCL_ERR_EXISTS, "source \"%s\" speaks for tiers 0x%x of instance %u already: give each "
                             "source tiers of its own", other->params.name, other->params.tiers & p->tiers,
                             p->instance);
        }
    }
    return KVCL_OK;
}

/* A free place in the array. */
static kvcl_status_t place_of(kvcl_sched_index_h index, uint32_t *at_p)
{
    uint32_t          cap = (index->source_cap == 0) ? 16 : index->source_cap * 2;
    kvcl_idx_source_t **larger;

    if (index->n_sources < index->source_cap) {
        for (*at_p = 0; index->sources[*at_p] != NULL; ++*at_p) {
        }
        return KVCL_OK;
    }
    larger = realloc(index->sources, cap * sizeof(*larger));
    if (larger == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for one more source");
    }
    memset(larger + index->source_cap, 0, (cap - index->source_cap) * sizeof(*larger));
    *at_p             = index->source_cap;
    index->sources    = larger;
    index->source_cap = cap;
    return KVCL_OK;
}

kvcl_status_t kvcl_idx_source_add(kvcl_sched_index_h index, const kvcl_sched_source_params_t *params,
                                  uint32_t *source_p)
{
    kvcl_status_t     status = others_check(index, params);
    kvcl_idx_source_t *source;

    status = (status == KVCL_OK) ? place_of(index, source_p) : status;
    if (status != KVCL_OK) {
        return status;
    }
    source = source_new(params);
    if (source == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for one more source");
    }
    atomic_fetch_add_explicit(&index->bytes, sizeof(*source), memory_order_relaxed);
    status = kvcl_idx_slot_take(index, params->instance, &source->slot);
    if (status != KVCL_OK) {
        source_free(index, source);
        return status;
    }
    kvcl_idx_begin_anew(index, source);
    index->sources[*source_p] = source;
    ++index->n_sources;
    return KVCL_OK;
}

void kvcl_idx_source_forget(kvcl_sched_index_h index, uint32_t at)
{
    kvcl_idx_source_t *source = index->sources[at];

    kvcl_idx_let_all_go(index, source, source->params.tiers);
    kvcl_idx_slot_leave(index, source->slot);
    index->sources[at] = NULL;
    --index->n_sources;
    source_free(index, source);
}

static kvcl_status_t params_take(const kvcl_sched_source_params_t *params, kvcl_sched_source_params_t *p)
{
    const uint64_t flags = KVCL_SCHED_SOURCE_DP_RANK | KVCL_SCHED_SOURCE_SKIPS;
    size_t         len;
    kvcl_status_t  status;

    *p     = (kvcl_sched_source_params_t)KVCL_SCHED_SOURCE_PARAMS_INIT;
    status = kvcl_struct_in(p, params, KVCL_UP_TO(kvcl_sched_source_params_t, max_blocks), sizeof(*p),
                            "kvcl_sched_source_params_t");
    if (status != KVCL_OK) {
        return status;
    }
    len           = (p->name != NULL) ? strlen(p->name) : 0;
    p->tiers      = (p->tiers == 0) ? KVCL_IDX_REAL : p->tiers;
    p->max_blocks = (p->max_blocks == 0) ? MAX_BLOCKS : p->max_blocks;
    if ((len == 0) || (len > NAME_MAX_BYTES)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "a source needs a name of 1 to %d bytes, not %zu", NAME_MAX_BYTES,
                         len);
    }
    if ((p->feed > KVCL_SCHED_FEED_MOONCAKE) || (p->tiers > KVCL_IDX_REAL) || ((p->flags & ~flags) != 0) ||
        (p->reserved != 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "source \"%s\": feed %u, tiers 0x%x, flags 0x%llx: at most %d, 0x%x "
                         "and 0x%llx", p->name, p->feed, p->tiers, (unsigned long long)p->flags,
                         KVCL_SCHED_FEED_MOONCAKE, KVCL_IDX_REAL, (unsigned long long)flags);
    }
    if ((p->salt_len > MAX_SALT) || ((p->salt == NULL) && (p->salt_len > 0))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "source \"%s\": a salt of %zu bytes: NULL, or more than %d", p->name,
                         p->salt_len, MAX_SALT);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_sched_index_source(kvcl_sched_index_h index, const kvcl_sched_source_params_t *params,
                                      uint32_t *source_p)
{
    kvcl_status_t              status = kvcl_handle_check(index, KVCL_KIND_SCHED_INDEX, "kvcl_sched_index_source");
    kvcl_sched_source_params_t p;

    if (status != KVCL_OK) {
        return status;
    }
    if ((params == NULL) || (source_p == NULL)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_sched_index_source: params or source_p is NULL");
    }
    status = params_take(params, &p);
    if (status == KVCL_OK) {
        (void)pthread_mutex_lock(&index->lock);
        status = kvcl_idx_source_add(index, &p, source_p);
        (void)pthread_mutex_unlock(&index->lock);
    }
    return status;
}

kvcl_status_t kvcl_sched_index_find(kvcl_sched_index_h index, const char *name, uint32_t *source_p)
{
    kvcl_status_t status = kvcl_handle_check(index, KVCL_KIND_SCHED_INDEX, "kvcl_sched_index_find");
    uint32_t      i;

    if (status != KVCL_OK) {
        return status;
    }
    if ((name == NULL) || (source_p == NULL)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_sched_index_find: name or source_p is NULL");
    }
    status = KVCL_ERR_NOT_FOUND;
    (void)pthread_mutex_lock(&index->lock);
    for (i = 0; i < index->source_cap; ++i) {
        if ((index->sources[i] != NULL) && (strcmp(index->sources[i]->params.name, name) == 0)) {
            *source_p = i;
            status    = KVCL_OK;
        }
    }
    (void)pthread_mutex_unlock(&index->lock);
    return (status == KVCL_OK) ? status : kvcl_fail(status, "the index has no source \"%s\"", name);
}

kvcl_status_t kvcl_sched_index_forget(kvcl_sched_index_h index, uint32_t source)
{
    kvcl_status_t status = kvcl_handle_check(index, KVCL_KIND_SCHED_INDEX, "kvcl_sched_index_forget");

    if (status == KVCL_OK) {
        (void)pthread_mutex_lock(&index->lock);
        if (kvcl_idx_source(index, source) == NULL) {
            status = KVCL_ERR_NOT_FOUND;
        } else {
            kvcl_idx_source_forget(index, source);
        }
        (void)pthread_mutex_unlock(&index->lock);
    }
    return status;
}

kvcl_status_t kvcl_sched_index_clear(kvcl_sched_index_h index, uint32_t source)
{
    kvcl_status_t     status = kvcl_handle_check(index, KVCL_KIND_SCHED_INDEX, "kvcl_sched_index_clear");
    kvcl_idx_source_t *from;

    if (status == KVCL_OK) {
        (void)pthread_mutex_lock(&index->lock);
        from = kvcl_idx_source(index, source);
        if (from == NULL) {
            status = KVCL_ERR_NOT_FOUND;
        } else {
            kvcl_idx_begin_anew(index, from);
        }
        (void)pthread_mutex_unlock(&index->lock);
    }
    return status;
}

kvcl_status_t kvcl_sched_index_info(kvcl_sched_index_h index, uint32_t source, kvcl_sched_source_info_t *info_p)
{
    kvcl_status_t            status = kvcl_handle_check(index, KVCL_KIND_SCHED_INDEX, "kvcl_sched_index_info");
    kvcl_sched_source_info_t info;
    kvcl_idx_source_t        *from;

    if (status == KVCL_OK) {
        status = kvcl_struct_out_check(info_p, KVCL_UP_TO(kvcl_sched_source_info_t, full), "kvcl_sched_source_info_t",
                                       "kvcl_sched_index_info");
    }
    if (status != KVCL_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&index->lock);
    from = kvcl_idx_source(index, source);
    if (from != NULL) {
        info          = from->info;
        info.instance = from->params.instance;
        info.state    = kvcl_idx_state(from);
        info.next     = from->next;
        info.blocks   = from->held.n;
    }
    (void)pthread_mutex_unlock(&index->lock);
    if (from == NULL) {
        return KVCL_ERR_NOT_FOUND;
    }
    kvcl_struct_out(info_p, &info, sizeof(info));
    return KVCL_OK;
}
