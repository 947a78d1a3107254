/*
 * kvcl_sched_index_match: which runs of a prompt's blocks instances hold.
 *
 * The walk goes over the blocks in order and keeps, for each slot, the tier and the first block of its run. While sets
 * of holders are small the runs are a list of slots (sparse); at a set that is a bitmap they become a bitmap for each
 * tier (dense), so that a block all instances hold costs a few words for 64 of them. A run ends where the slot lacks
 * the block or has it on another tier; then it becomes a hold.
 *
 * Owns scratch memory, one piece for each lane that readers have used at a time. Locks: none; the reader is counted in
 * (idx_epoch.h) from the first load of the index to the last.
 */
#include "config.h"

#include "sched/index/idx_match.h"

#include "base/error.h"
#include "handle/handle.h"

#include <stdlib.h>
#include <string.h>

enum { AHEAD = 8 }; /* keys whose words are on their way */

/* ---- scratch ---- */

static kvcl_match_scratch_t *scratch_new(uint32_t slots)
{
    size_t               words = slots / 64, bytes;
    kvcl_match_scratch_t *scratch;

    bytes   = sizeof(*scratch) + slots * (sizeof(kvcl_match_run_t) + 2 * sizeof(uint32_t)) +
              words * KVCL_IDX_TIERS * sizeof(uint64_t);
    scratch = calloc(1, bytes);
    if (scratch != NULL) {
        scratch->slots  = slots;
        scratch->tick   = 1;
        scratch->run    = (kvcl_match_run_t *)(scratch + 1);
        scratch->dense  = (uint64_t *)(scratch->run + slots);
        scratch->list   = (uint32_t *)(scratch->dense + words * KVCL_IDX_TIERS);
        scratch->next   = scratch->list + slots;
    }
    return scratch;
}

/* The lane's scratch if no other reader of the lane has it now. */
static kvcl_match_scratch_t *scratch_take(kvcl_idx_lane_t *lane, uint32_t slots)
{
    kvcl_match_scratch_t *scratch = atomic_exchange_explicit(&lane->scratch, NULL, memory_order_acquire);

    if ((scratch != NULL) && (scratch->slots < slots)) {
        free(scratch);
        scratch = NULL;
    }
    return (scratch != NULL) ? scratch : scratch_new(slots);
}

static void scratch_give(kvcl_idx_lane_t *lane, kvcl_match_scratch_t *scratch)
{
    free(atomic_exchange_explicit(&lane->scratch, scratch, memory_order_acq_rel));
}

void kvcl_idx_scratch_fini(kvcl_idx_epoch_t *epoch)
{
    unsigned i;

    for (i = 0; i < KVCL_IDX_LANES; ++i) {
        free(atomic_load_explicit(&epoch->lane[i].scratch, memory_order_relaxed));
    }
}

/* ---- the walk ---- */

/* The blocks of the keys, some ahead of the walk. */
static uint32_t look_up(kvcl_sched_index_h index, kvcl_idx_table_t *table, const kvcl_key_t *keys, size_t n, size_t at,
                        uint64_t *hashes)
{
    size_t i, from = (at == 0) ? 0 : at + AHEAD - 1, end = (at + AHEAD < n) ? at + AHEAD : n;

    for (i = from; i < end; ++i) {
        hashes[i % AHEAD] = kvcl_idx_hash(index, &keys[i]);
        kvcl_idx_prefetch(table, hashes[i % AHEAD]);
    }
    return kvcl_idx_lookup(index, table, hashes[at % AHEAD], &keys[at], NULL);
}

static void walk(kvcl_sched_index_h index, kvcl_match_t *match, const kvcl_key_t *keys, size_t n, bool all)
{
    kvcl_idx_table_t *table = atomic_load_explicit(&index->table, memory_order_acquire);
    uint64_t         hashes[AHEAD];
    kvcl_idx_block_t *block;
    uintptr_t        more;
    uint32_t         id;

    for (match->at = 0; match->at < n; ++match->at) {
        match->fresh = all || (match->at == 0);
        id           = look_up(index, table, keys, n, match->at, hashes);
        if (id == KVCL_IDX_NO_BLOCK) {
            kvcl_match_end_all(match);
        } else {
            block = kvcl_idx_block(index, id);
            more  = atomic_load_explicit(&block->more, memory_order_acquire);
            if ((more & 1) != 0) {
                kvcl_match_dense(match, kvcl_idx_as_bits(more));
            } else {
                kvcl_match_sparse(match, block, kvcl_idx_as_list(more));
            }
        }
        if (!all && !kvcl_match_any(match)) {
            return;
        }
    }
    kvcl_match_end_all(match);
}

kvcl_status_t kvcl_sched_index_match(kvcl_sched_index_h index, const kvcl_key_t *keys, size_t n, uint64_t flags,
                                     uint32_t least, kvcl_sched_hold_t *holds, size_t cap, size_t *n_p)
{
    kvcl_status_t    status = kvcl_handle_check(index, KVCL_KIND_SCHED_INDEX, "kvcl_sched_index_match");
    kvcl_match_t     match  = {.holds = holds, .cap = cap, .least = least};
    kvcl_idx_visit_t visit;

    if (status != KVCL_OK) {
        return status;
    }
    if (((keys == NULL) && (n > 0)) || ((holds == NULL) && (cap > 0)) || (n_p == NULL) || (n > UINT32_MAX) ||
        ((flags & ~(uint64_t)KVCL_SCHED_MATCH_ALL) != 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_sched_index_match: keys, holds or n_p is NULL, n is above 2^32, "
                         "or flags 0x%llx are not known", (unsigned long long)flags);
    }
    visit         = kvcl_idx_enter(&index->epoch);
    match.slots   = atomic_load_explicit(&index->slots, memory_order_acquire);
    match.scratch = scratch_take(visit.lane, match.slots->cap);
    if (match.scratch != NULL) {
        walk(index, &match, keys, n, (flags & KVCL_SCHED_MATCH_ALL) != 0);
        scratch_give(visit.lane, match.scratch);
    }
    kvcl_idx_leave(&visit);
    if (match.scratch == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a match");
    }
    *n_p = match.n;
    return KVCL_OK;
}
