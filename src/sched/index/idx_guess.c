/*
 * Predicted blocks and their life time. Owns the ring of predictions. Every prediction lives equally long, so the ring
 * is in the order of their ends; one that was renewed has a later entry, and the map says which entry counts. Locks:
 * the index's.
 */
#include "config.h"

#include "sched/index/idx_set.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CAP = 256 };

static uint64_t name_of(uint32_t block, uint32_t slot)
{
    return (uint64_t)block << 32 | slot;
}

static kvcl_idx_guess_t *at(const kvcl_idx_guesses_t *all, size_t i)
{
    return &all->ring[(all->first + i) & (all->cap - 1)];
}

static kvcl_status_t room(kvcl_idx_guesses_t *all)
{
    kvcl_idx_guesses_t larger = *all;
    size_t             i;

    if (kvcl_map_reserve(&all->until, kvcl_map_count(&all->until) + 1) != KVCL_OK) {
        return KVCL_ERR_NO_MEMORY;
    }
    if (all->n < all->cap) {
        return KVCL_OK;
    }
    larger.cap  = (all->cap == 0) ? FIRST_CAP : 2 * all->cap;
    larger.ring = malloc(larger.cap * sizeof(*larger.ring));
    if (larger.ring == NULL) {
        return KVCL_ERR_NO_MEMORY;
    }
    for (i = 0; i < all->n; ++i) {
        larger.ring[i] = *at(all, i);
    }
    free(all->ring);
    all->ring  = larger.ring;
    all->cap   = larger.cap;
    all->first = 0;
    return KVCL_OK;
}

kvcl_status_t kvcl_idx_guess(kvcl_sched_index_h index, uint32_t slot, const kvcl_key_t *key, uint64_t now_ns)
{
    kvcl_idx_guesses_t *all = &index->guesses;
    kvcl_idx_block_t   *block;
    uint64_t           until = now_ns + index->predict_ns;
    uint32_t           id, old;
    kvcl_status_t      status = room(all);

    status = (status == KVCL_OK) ? kvcl_idx_make(index, key, kvcl_idx_hash(index, key), KVCL_IDX_DEPTHS, &id)
                                 : status;
    if (status != KVCL_OK) {
        return status;
    }
    block  = kvcl_idx_block(index, id);
    old    = kvcl_idx_set_get(block, slot);
    status = kvcl_idx_set_put(index, block, slot, old, old | 1u << KVCL_IDX_PREDICTED);
    if (status != KVCL_OK) {
        kvcl_idx_drop_empty(index, id);
        return status;
    }
    until = (until < now_ns) ? UINT64_MAX - 1 : until;
    *at(all, all->n++) = (kvcl_idx_guess_t){until, id, slot};
    (void)!kvcl_map_put(&all->until, name_of(id, slot), (void *)(uintptr_t)(until + 1));
    return KVCL_OK;
}

static void end(kvcl_sched_index_h index, uint32_t id, uint32_t slot)
{
    kvcl_idx_block_t *block = kvcl_idx_block(index, id);
    const uint32_t   old    = kvcl_idx_set_get(block, slot);

    (void)kvcl_map_del(&index->guesses.until, name_of(id, slot));
    (void)!kvcl_idx_set_put(index, block, slot, old, old & KVCL_IDX_REAL);
    kvcl_idx_drop_empty(index, id);
}

void kvcl_idx_guesses_end(kvcl_sched_index_h index, uint64_t now_ns)
{
    kvcl_idx_guesses_t *all = &index->guesses;
    kvcl_idx_guess_t   guess;

    while ((all->n > 0) && (at(all, 0)->until_ns <= now_ns)) {
        guess = *at(all, 0);
        ++all->first;
        --all->n;
        if ((uintptr_t)kvcl_map_get(&all->until, name_of(guess.block, guess.slot)) == guess.until_ns + 1) {
            end(index, guess.block, guess.slot);
        }
    }
}

void kvcl_idx_guesses_drop(kvcl_sched_index_h index, uint32_t slot)
{
    kvcl_idx_guesses_t *all = &index->guesses;
    kvcl_idx_guess_t   guess;
    size_t             i, n = all->n;

    all->n = 0;
    for (i = 0; i < n; ++i) {
        guess = *at(all, i);
        if (guess.slot != slot) {
            *at(all, all->n++) = guess;
        } else if (kvcl_map_get(&all->until, name_of(guess.block, slot)) != NULL) {
            end(index, guess.block, slot);
        }
    }
}

void kvcl_idx_guesses_fini(kvcl_sched_index_h index)
{
    free(index->guesses.ring);
    kvcl_map_fini(&index->guesses.until);
}
