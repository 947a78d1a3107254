/*
 * Slots: small numbers for instances, as long as they have a source. Owns the arrays of slots. A slot that is left is
 * given to another instance when no reader can have seen it. Locks: the index's.
 */
#include "config.h"

#include "sched/index/idx.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static kvcl_status_t grow(void **array_p, size_t cap, size_t bytes)
{
    void *larger = realloc(*array_p, cap * bytes);

    if (larger == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for %zu instances", cap);
    }
    *array_p = larger;
    return KVCL_OK;
}

/* Arrays of twice as many slots. What fails leaves larger arrays, which is harmless. */
static kvcl_status_t slots_grow(kvcl_sched_index_h index)
{
    kvcl_idx_slots_t *slots = atomic_load_explicit(&index->slots, memory_order_relaxed), *larger;
    uint32_t         cap = slots->cap * 2, i;

    if ((grow((void **)&index->slot_next, cap, sizeof(uint32_t)) != KVCL_OK) ||
        (grow((void **)&index->slot_uses, cap, sizeof(uint32_t)) != KVCL_OK) ||
        (grow((void **)&index->words, cap, sizeof(uint32_t)) != KVCL_OK)) {
        return KVCL_ERR_NO_MEMORY;
    }
    larger = kvcl_idx_alloc(index, sizeof(*larger) + cap * sizeof(larger->instance[0]));
    if (larger == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for %u instances", cap);
    }
    larger->cap = cap;
    for (i = 0; i < slots->cap; ++i) {
        atomic_store_explicit(&larger->instance[i],
                              atomic_load_explicit(&slots->instance[i], memory_order_relaxed), memory_order_relaxed);
    }
    atomic_store_explicit(&index->slots, larger, memory_order_release);
    kvcl_idx_retire(index, &slots->mem);
    return KVCL_OK;
}

static kvcl_status_t slot_new(kvcl_sched_index_h index, uint32_t *slot_p)
{
    kvcl_status_t status = KVCL_OK;

    if (index->instances >= index->max_instances) {
        return kvcl_fail(KVCL_ERR_NO_SPACE, "the index has its %u instances (max_instances)", index->max_instances);
    }
    if (index->free_slot == UINT32_MAX) {
        kvcl_idx_reclaim(index, true);
    }
    if (index->free_slot != UINT32_MAX) {
        *slot_p          = index->free_slot;
        index->free_slot = index->slot_next[*slot_p];
        return KVCL_OK;
    }
    if (index->slot_end == atomic_load_explicit(&index->slots, memory_order_relaxed)->cap) {
        status = slots_grow(index);
    }
    if (status == KVCL_OK) {
        *slot_p = index->slot_end++;
    }
    return status;
}

kvcl_status_t kvcl_idx_slot_take(kvcl_sched_index_h index, uint32_t instance, uint32_t *slot_p)
{
    uintptr_t     known = (uintptr_t)kvcl_map_get(&index->slot_of, instance);
    kvcl_status_t status;

    if (known != 0) {
        *slot_p = (uint32_t)(known - 1);
        ++index->slot_uses[*slot_p];
        return KVCL_OK;
    }
    if (kvcl_map_reserve(&index->slot_of, kvcl_map_count(&index->slot_of) + 1) != KVCL_OK) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for one more instance");
    }
    status = slot_new(index, slot_p);
    if (status == KVCL_OK) {
        (void)!kvcl_map_put(&index->slot_of, instance, (void *)((uintptr_t)*slot_p + 1));
        index->slot_uses[*slot_p] = 1;
        atomic_store_explicit(&atomic_load_explicit(&index->slots, memory_order_relaxed)->instance[*slot_p], instance,
                              memory_order_relaxed);
        ++index->instances;
    }
    return status;
}

void kvcl_idx_slot_leave(kvcl_sched_index_h index, uint32_t slot)
{
    kvcl_idx_slots_t *slots = atomic_load_explicit(&index->slots, memory_order_relaxed);
    kvcl_idx_limbo_t *limbo;

    if (--index->slot_uses[slot] != 0) {
        return;
    }
    kvcl_idx_guesses_drop(index, slot);
    (void)kvcl_map_del(&index->slot_of, atomic_load_explicit(&slots->instance[slot], memory_order_relaxed));
    limbo                  = kvcl_idx_limbo(&index->epoch);
    index->slot_next[slot] = limbo->slot;
    limbo->slot            = slot;
    ++limbo->n;
    --index->instances;
}
