/*
 * The plan cache: sixteen entries, searched from the start.
 */
#include "config.h"

#include "collectives/plan_cache.h"

#include "base/error.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

void kvcl_plan_cache_init(kvcl_plan_cache_t *cache)
{
    memset(cache, 0, sizeof(*cache));
}

static void entry_clear(kvcl_plan_entry_t *entry)
{
    if (entry->alg != NULL) {
        kvcl_plan_fini(&entry->plan);
        entry->alg = NULL;
    }
}

void kvcl_plan_cache_fini(kvcl_plan_cache_t *cache)
{
    size_t i;

    for (i = 0; i < KVCL_PLAN_CACHE_ENTRIES; ++i) {
        if (cache->entries[i].lent > 0) {
            kvcl_log_warn("the plan of a %s is still lent out %u times", cache->entries[i].alg->name,
                          cache->entries[i].lent);
        }
        entry_clear(&cache->entries[i]);
    }
}

static int shape_is_equal(const kvcl_coll_shape_t *a, const kvcl_coll_shape_t *b)
{
    return (a->rank == b->rank) && (a->size == b->size) && (a->root == b->root) && (a->path == b->path) &&
           (a->len == b->len) && (a->chunk == b->chunk) && (a->elem == b->elem) && (a->reduction == b->reduction);
}

/* The entry that has the plan, else the one to make it in: free, oldest, or NULL if all are lent out. */
static kvcl_plan_entry_t *find(kvcl_plan_cache_t *cache, const kvcl_coll_alg_t *alg, const kvcl_coll_shape_t *shape,
                               int *hit_p)
{
    kvcl_plan_entry_t *best = NULL;
    size_t             i;

    *hit_p = 0;
    for (i = 0; i < KVCL_PLAN_CACHE_ENTRIES; ++i) {
        kvcl_plan_entry_t *entry = &cache->entries[i];

        if ((entry->alg == alg) && shape_is_equal(&entry->shape, shape)) {
            *hit_p = 1;
            return entry;
        }
        if ((entry->lent == 0) && ((best == NULL) || (entry->used_at < best->used_at))) {
            best = entry; /* a free one has used_at 0 */
        }
    }
    return best;
}

static kvcl_status_t make(kvcl_plan_cache_t *cache, kvcl_plan_entry_t *entry, const kvcl_coll_alg_t *alg,
                          const kvcl_coll_shape_t *shape, kvcl_plan_entry_t **entry_p)
{
    kvcl_plan_t   plan;
    kvcl_status_t status = kvcl_coll_plan(alg, shape, &plan);

    if (status != KVCL_OK) {
        return status;
    }
    ++cache->misses;
    if (entry != NULL) {
        entry_clear(entry);
        entry->cached = 1;
    } else {
        entry = calloc(1, sizeof(*entry));
        if (entry == NULL) {
            kvcl_plan_fini(&plan);
            return kvcl_fail(KVCL_ERR_NO_MEMORY, "out of memory for a plan");
        }
    }
    entry->plan  = plan;
    entry->alg   = alg;
    entry->shape = *shape;
    entry->shape.parts = NULL; /* the caller's */
    *entry_p     = entry;
    return KVCL_OK;
}

kvcl_status_t kvcl_plan_cache_get(kvcl_plan_cache_t *cache, const kvcl_coll_alg_t *alg, const kvcl_coll_shape_t *shape,
                                  kvcl_plan_entry_t **entry_p)
{
    int                hit;
    kvcl_plan_entry_t *entry = find(cache, alg, shape, &hit);

    if (shape->parts != NULL) {
        entry = NULL;
        hit   = 0;
    }
    if (hit) {
        ++cache->hits;
    } else {
        kvcl_status_t status = make(cache, entry, alg, shape, &entry);

        if (status != KVCL_OK) {
            return status;
        }
    }
    entry->used_at = ++cache->tick;
    ++entry->lent;
    *entry_p = entry;
    return KVCL_OK;
}

void kvcl_plan_cache_put(kvcl_plan_cache_t *cache, kvcl_plan_entry_t *entry)
{
    (void)cache;
    --entry->lent;
    if (!entry->cached) {
        entry_clear(entry);
        free(entry);
    }
}
