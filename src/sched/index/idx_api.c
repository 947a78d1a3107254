/*
 * The public calls of an index that take keys (kvcl_sched_index.h). Owns the index object. Locks: takes the index's.
 */
#include "config.h"

#include "sched/index/idx_match.h"

#include "base/error.h"
#include "base/rand.h"
#include "base/structs.h"
#include "handle/handle.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS_FIRST = 64, MAX_INSTANCES = 16384, MOST_INSTANCES = 1 << 20 };
#define MAX_BLOCKS  (UINT64_C(1) << 26)
#define MOST_BLOCKS (UINT64_C(1) << 30)
#define PREDICT_NS  UINT64_C(5000000000)

static kvcl_status_t params_take(const kvcl_sched_index_params_t *params, kvcl_sched_index_params_t *p)
{
    kvcl_status_t status = KVCL_OK;

    *p = (kvcl_sched_index_params_t)KVCL_SCHED_INDEX_PARAMS_INIT;
    if (params != NULL) {
        status = kvcl_struct_in(p, params, KVCL_UP_TO(kvcl_sched_index_params_t, predict_ns), sizeof(*p),
                                "kvcl_sched_index_params_t");
    }
    if (status != KVCL_OK) {
        return status;
    }
    p->max_instances = (p->max_instances == 0) ? MAX_INSTANCES : p->max_instances;
    p->max_blocks    = (p->max_blocks == 0) ? MAX_BLOCKS : p->max_blocks;
    p->predict_ns    = (p->predict_ns == 0) ? PREDICT_NS : p->predict_ns;
    if ((p->flags != 0) || (p->reserved != 0) || (p->max_instances > MOST_INSTANCES) || (p->max_blocks > MOST_BLOCKS)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_sched_index_create: flags 0x%llx, max_instances %u, max_blocks "
                         "%llu: at most 0, %d and %llu", (unsigned long long)p->flags, p->max_instances,
                         (unsigned long long)p->max_blocks, MOST_INSTANCES, (unsigned long long)MOST_BLOCKS);
    }
    return KVCL_OK;
}

static kvcl_status_t fill(kvcl_sched_index_h index)
{
    kvcl_idx_table_t *table;
    kvcl_idx_slots_t *slots;
    kvcl_status_t    status;

    index->block_end = 1;
    index->free_slot = UINT32_MAX;
    kvcl_idx_epoch_init(&index->epoch);
    kvcl_map_init(&index->slot_of);
    kvcl_map_init(&index->guesses.until);
    status = kvcl_random_bytes(&index->seed, sizeof(index->seed));
    status = (status == KVCL_OK) ? kvcl_random_bytes(&index->hash_seed, sizeof(index->hash_seed)) : status;
    if (status != KVCL_OK) {
        return status;
    }
    index->chunks    = calloc(KVCL_IDX_CHUNKS, sizeof(index->chunks[0]));
    index->slot_next = calloc(SLOTS_FIRST, sizeof(uint32_t));
    index->slot_uses = calloc(SLOTS_FIRST, sizeof(uint32_t));
    index->words     = calloc(SLOTS_FIRST, sizeof(uint32_t));
    table            = kvcl_idx_table_new(index, 0);
    slots            = kvcl_idx_alloc(index, sizeof(*slots) + SLOTS_FIRST * sizeof(slots->instance[0]));
    atomic_init(&index->table, table);
    atomic_init(&index->slots, slots);
    if (slots != NULL) {
        slots->cap = SLOTS_FIRST;
    }
    return ((index->chunks != NULL) && (index->slot_next != NULL) && (index->slot_uses != NULL) &&
            (index->words != NULL) && (table != NULL) && (slots != NULL))
               ? KVCL_OK
               : kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_sched_index_create: no memory");
}

kvcl_status_t kvcl_sched_index_create(const kvcl_sched_index_params_t *params, kvcl_sched_index_h *index_p)
{
    kvcl_sched_index_params_t p;
    kvcl_sched_index_h        index;
    kvcl_status_t             status = params_take(params, &p);

    if (index_p == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_sched_index_create: index_p is NULL");
    }
    if (status != KVCL_OK) {
        return status;
    }
    index = kvcl_object_alloc(KVCL_KIND_SCHED_INDEX, sizeof(*index));
    if (index == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_sched_index_create: no memory");
    }
    (void)pthread_mutex_init(&index->lock, NULL);
    index->max_instances = p.max_instances;
    index->max_blocks    = p.max_blocks;
    index->predict_ns    = p.predict_ns;
    status               = fill(index);
    if (status != KVCL_OK) {
        kvcl_sched_index_destroy(index);
        return status;
    }
    *index_p = index;
    return KVCL_OK;
}

static void free_blocks(kvcl_sched_index_h index)
{
    uint32_t         id, at;
    kvcl_idx_block_t *block;

    for (id = 1; id < index->block_end; ++id) {
        block = kvcl_idx_block(index, id);
        if (kvcl_idx_find(index, &block->key) == id) {
            kvcl_idx_set_free(index, block);
        }
    }
    for (at = 0; at < KVCL_IDX_CHUNKS; ++at) {
        free(atomic_load_explicit(&index->chunks[at], memory_order_relaxed));
    }
}

void kvcl_sched_index_destroy(kvcl_sched_index_h index)
{
    if (!kvcl_handle_may_free(index, KVCL_KIND_SCHED_INDEX, "kvcl_sched_index_destroy")) {
        return;
    }
    kvcl_idx_reclaim(index, true);
    if (index->chunks != NULL) {
        free_blocks(index);
    }
    kvcl_idx_sources_fini(index);
    kvcl_idx_release(index, (kvcl_idx_mem_t *)atomic_load_explicit(&index->table, memory_order_relaxed));
    kvcl_idx_release(index, (kvcl_idx_mem_t *)index->growing);
    kvcl_idx_release(index, (kvcl_idx_mem_t *)atomic_load_explicit(&index->slots, memory_order_relaxed));
    kvcl_idx_guesses_fini(index);
    kvcl_idx_scratch_fini(&index->epoch);
    kvcl_map_fini(&index->slot_of);
    free(index->chunks);
    free(index->slot_next);
    free(index->slot_uses);
    free(index->words);
    free(index->tokens);
    free(index->text);
    (void)pthread_mutex_destroy(&index->lock);
    kvcl_object_free(index);
}

/* ---- keys ---- */

enum { AHEAD = 4 }; /* keys whose words are on their way */

static void ahead(kvcl_sched_index_h index, const kvcl_key_t *keys, size_t i, size_t n)
{
    if (i + AHEAD < n) {
        kvcl_idx_prefetch(atomic_load_explicit(&index->table, memory_order_relaxed),
                          kvcl_idx_hash(index, &keys[i + AHEAD]));
    }
}

static kvcl_status_t change_check(kvcl_sched_index_h index, uint32_t source, uint32_t tier, const kvcl_key_t *keys,
                                  size_t n, const char *call, kvcl_idx_source_t **source_p)
{
    *source_p = kvcl_idx_source(index, source);
    if (*source_p == NULL) {
        return KVCL_ERR_NOT_FOUND;
    }
    if ((tier > 31) || (((*source_p)->params.tiers >> tier) & 1) == 0) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: source %u does not speak for tier %u", call, source, tier);
    }
    if (((keys == NULL) && (n > 0)) || (*source_p)->by_hash) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: keys is NULL, or the source is an engine, whose blocks come with "
                         "its events", call);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_sched_index_add(kvcl_sched_index_h index, uint32_t source, uint32_t tier, const kvcl_key_t *keys,
                                   size_t n)
{
    kvcl_status_t     status = kvcl_handle_check(index, KVCL_KIND_SCHED_INDEX, "kvcl_sched_index_add"), one;
    kvcl_idx_coming_t coming[KVCL_IDX_COMING];
    kvcl_idx_source_t *from;
    size_t            i;

    if (status != KVCL_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&index->lock);
    status = change_check(index, source, tier, keys, n, "kvcl_sched_index_add", &from);
    if (status == KVCL_OK) {
        from->info.stored += n;
        for (i = 0; i < n; ++i) {
            kvcl_idx_coming(index, from, &coming[i % KVCL_IDX_COMING], &keys[i], KVCL_IDX_DEPTHS, 0);
            if ((i + 1 == n) || (i % KVCL_IDX_COMING == KVCL_IDX_COMING - 1)) {
                one    = kvcl_idx_hold_all(index, from, coming, i % KVCL_IDX_COMING + 1, 1u << tier);
                status = (one != KVCL_OK) ? one : status;
            }
        }
        if (status != KVCL_OK) {
            (void)kvcl_fail(status, "the index is full, or out of memory: not all of %zu blocks of source %u are in "
                            "it", n, source);
        }
    }
    (void)pthread_mutex_unlock(&index->lock);
    return status;
}

kvcl_status_t kvcl_sched_index_remove(kvcl_sched_index_h index, uint32_t source, uint32_t tier, const kvcl_key_t *keys,
                                      size_t n)
{
    kvcl_status_t     status = kvcl_handle_check(index, KVCL_KIND_SCHED_INDEX, "kvcl_sched_index_remove");
    kvcl_idx_source_t *from;
    uint32_t          id;
    size_t            i;

    if (status != KVCL_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&index->lock);
    status = change_check(index, source, tier, keys, n, "kvcl_sched_index_remove", &from);
    for (i = 0; (status == KVCL_OK) && (i < n); ++i) {
        ++from->info.removed;
        ahead(index, keys, i, n);
        id = kvcl_idx_find(index, &keys[i]);
        if (id != KVCL_IDX_NO_BLOCK) {
            kvcl_idx_let_go(index, from, id, 0, 1u << tier);
        }
    }
    (void)pthread_mutex_unlock(&index->lock);
    return status;
}

kvcl_status_t kvcl_sched_index_predict(kvcl_sched_index_h index, uint32_t instance, const kvcl_key_t *keys, size_t n,
                                       uint64_t now_ns)
{
    kvcl_status_t status = kvcl_handle_check(index, KVCL_KIND_SCHED_INDEX, "kvcl_sched_index_predict"), one;
    uintptr_t     slot;
    size_t        i;

    if (status != KVCL_OK) {
        return status;
    }
    if ((keys == NULL) && (n > 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_sched_index_predict: keys is NULL");
    }
    (void)pthread_mutex_lock(&index->lock);
    kvcl_idx_guesses_end(index, now_ns);
    slot = (uintptr_t)kvcl_map_get(&index->slot_of, instance);
    if (slot == 0) {
        status = kvcl_fail(KVCL_ERR_NOT_FOUND, "instance %u has no source in the index", instance);
    }
    for (i = 0; (slot != 0) && (i < n); ++i) {
        one    = kvcl_idx_guess(index, (uint32_t)(slot - 1), &keys[i], now_ns);
        status = (one != KVCL_OK) ? kvcl_fail(one, "the index is full, or out of memory: not all of %zu blocks are "
                                              "predicted", n) : status;
    }
    (void)pthread_mutex_unlock(&index->lock);
    return status;
}

kvcl_status_t kvcl_sched_index_expire(kvcl_sched_index_h index, uint64_t now_ns)
{
    kvcl_status_t status = kvcl_handle_check(index, KVCL_KIND_SCHED_INDEX, "kvcl_sched_index_expire");

    if (status == KVCL_OK) {
        (void)pthread_mutex_lock(&index->lock);
        kvcl_idx_guesses_end(index, now_ns);
        (void)pthread_mutex_unlock(&index->lock);
    }
    return status;
}

kvcl_status_t kvcl_sched_index_stats(kvcl_sched_index_h index, kvcl_sched_index_stats_t *stats_p)
{
    kvcl_sched_index_stats_t s      = KVCL_SCHED_INDEX_STATS_INIT;
    kvcl_status_t            status = kvcl_handle_check(index, KVCL_KIND_SCHED_INDEX, "kvcl_sched_index_stats");
    uint32_t                 i;

    if (status == KVCL_OK) {
        status = kvcl_struct_out_check(stats_p, KVCL_UP_TO(kvcl_sched_index_stats_t, retired),
                                       "kvcl_sched_index_stats_t", "kvcl_sched_index_stats");
    }
    if (status != KVCL_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&index->lock);
    kvcl_idx_reclaim(index, true);
    s.instances = index->instances;
    s.sources   = index->n_sources;
    for (i = 0; i < index->source_cap; ++i) {
        s.degraded += (index->sources[i] != NULL) && (kvcl_idx_state(index->sources[i]) == KVCL_SCHED_DEGRADED);
    }
    s.blocks    = index->blocks;
    s.holders   = index->holders;
    s.predicted = kvcl_map_count(&index->guesses.until);
    s.bytes     = atomic_load_explicit(&index->bytes, memory_order_relaxed);
    s.retired   = index->epoch.limbo[0].n + index->epoch.limbo[1].n;
    (void)pthread_mutex_unlock(&index->lock);
    kvcl_struct_out(stats_p, &s, sizeof(s));
    return KVCL_OK;
}
