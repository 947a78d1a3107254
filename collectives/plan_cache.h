/*
 * The plans made lately, by (algorithm, shape): the same broadcast again costs no planning.
 *
 * Owns the plans. A plan that is lent out is not evicted; when all entries are lent out a plan is made
 * for one use, and so is that of a shape with parts. Least recently used goes first. Lock: the caller's (the
 * communicator's), for all calls.
 */
#ifndef KVCL_COLLECTIVES_PLAN_CACHE_H
#define KVCL_COLLECTIVES_PLAN_CACHE_H

#include "collectives/coll.h"

#include <kvcl/kvcl_status.h>

#include <stdint.h>

enum { KVCL_PLAN_CACHE_ENTRIES = 16 };

typedef struct kvcl_plan_entry {
    kvcl_plan_t            plan;
    kvcl_coll_shape_t      shape;
    const kvcl_coll_alg_t *alg; /* NULL: the entry is free */
    uint64_t               used_at;
    uint32_t               lent;
    int                    cached; /* lives in the cache's array */
} kvcl_plan_entry_t;

typedef struct kvcl_plan_cache {
    kvcl_plan_entry_t entries[KVCL_PLAN_CACHE_ENTRIES];
    uint64_t          tick;
    uint64_t          hits;
    uint64_t          misses;
} kvcl_plan_cache_t;

void kvcl_plan_cache_init(kvcl_plan_cache_t *cache);

/** All plans must have been put back. */
void kvcl_plan_cache_fini(kvcl_plan_cache_t *cache);

/** Borrow the plan, made if needed; *entry_p is put back with kvcl_plan_cache_put.
 *  @return as kvcl_coll_plan. */
kvcl_status_t kvcl_plan_cache_get(kvcl_plan_cache_t *cache, const kvcl_coll_alg_t *alg, const kvcl_coll_shape_t *shape,
                                  kvcl_plan_entry_t **entry_p) KVCL_MUST_CHECK;

void kvcl_plan_cache_put(kvcl_plan_cache_t *cache, kvcl_plan_entry_t *entry);

#endif
