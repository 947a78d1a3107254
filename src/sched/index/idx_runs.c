/*
 * The runs of a match (idx_match.h): how a block's holders carry on, end and begin runs. Pure but for loads of the set.
 *
 * Invariants: while sparse, list has each slot with a run once, its run has the tick of the block before, and all bits
 * are 0. While dense, a slot has at most one bit, and the tier of its run is the row of that bit.
 */
#include "config.h"

#include "sched/index/idx_match.h"

static inline uint32_t best_tier(uint32_t mask)
{
    return (uint32_t)__builtin_ctz(mask);
}

static inline void emit(kvcl_match_t *match, uint32_t slot, uint32_t first, uint32_t tier)
{
    kvcl_sched_hold_t *hold;
    uint32_t          end = (uint32_t)match->at;
    size_t            at  = match->n;

    if (end < match->least) {
        return;
    }
    ++match->n;
    if (at >= match->cap) { /* those that ended before give way */
        if (match->cap == 0) {
            return;
        }
        at %= match->cap;
    }
    hold         = &match->holds[at];
    hold->inst   = atomic_load_explicit(&match->slots->instance[slot], memory_order_relaxed);
    hold->first  = first;
    hold->blocks = end - first;
    hold->tier   = (uint16_t)((tier == KVCL_IDX_PREDICTED) ? 0 : tier);
    hold->flags  = (uint16_t)((tier == KVCL_IDX_PREDICTED) ? KVCL_SCHED_PENDING : 0);
}

static void end_word(kvcl_match_t *match, uint32_t word, uint64_t bits, uint32_t tier)
{
    const kvcl_match_run_t *run = &match->scratch->run[word * 64];

    for (; bits != 0; bits &= bits - 1) {
        uint32_t bit = (uint32_t)__builtin_ctzll(bits);

        emit(match, word * 64 + bit, run[bit].first, tier);
    }
}

static uint64_t *row(const kvcl_match_t *match, uint32_t tier)
{
    return &match->scratch->dense[(size_t)tier * (match->scratch->slots / 64)];
}

bool kvcl_match_any(const kvcl_match_t *match)
{
    uint32_t word, tier;

    if (!match->is_dense) {
        return match->n_list != 0;
    }
    for (tier = 0; tier < KVCL_IDX_TIERS; ++tier) {
        for (word = 0; word < match->words; ++word) {
            if (row(match, tier)[word] != 0) {
                return true;
            }
        }
    }
    return false;
}

/* ---- sparse ---- */

static void end_list(kvcl_match_t *match, uint64_t alive)
{
    const kvcl_match_run_t *run;
    uint32_t               i;

    for (i = 0; i < match->n_list; ++i) {
        run = &match->scratch->run[match->scratch->list[i]];
        if (run->tick != alive) {
            emit(match, match->scratch->list[i], run->first, run->tier);
        }
    }
}

/* All dense runs become runs of the block before, so that sparse code carries them on; n_list slots. */
static void to_sparse(kvcl_match_t *match, const _Atomic uint32_t *words, uint32_t n)
{
    kvcl_match_scratch_t *s = match->scratch;
    uint32_t             i, slot, tier, word;

    match->n_list = 0;
    for (i = 0; i < n; ++i) { /* those that the set has stay in the list; all others end here */
        word = atomic_load_explicit((_Atomic uint32_t *)&words[i], memory_order_relaxed);
        slot = word >> 4;
        for (tier = 0; (word != 0) && (slot / 64 < match->words) && (tier < KVCL_IDX_TIERS); ++tier) {
            if ((row(match, tier)[slot / 64] >> (slot % 64)) & 1) {
                row(match, tier)[slot / 64] &= ~(UINT64_C(1) << (slot % 64));
                s->run[slot].tick        = s->tick;
                s->run[slot].tier        = tier;
                s->list[match->n_list++] = slot;
            }
        }
    }
    for (tier = 0; tier < KVCL_IDX_TIERS; ++tier) {
        for (i = 0; i < match->words; ++i) {
            end_word(match, i, row(match, tier)[i], tier);
            row(match, tier)[i] = 0;
        }
    }
    match->is_dense = false;
}

void kvcl_match_sparse(kvcl_match_t *match, kvcl_idx_block_t *block, kvcl_idx_list_t *list)
{
    kvcl_match_scratch_t   *s    = match->scratch;
    const _Atomic uint32_t *from = (list != NULL) ? list->word : block->in;
    uint32_t               n = KVCL_IDX_INLINE, n_next = 0, i, word, slot, tier, *swap;
    kvcl_match_run_t       *run;

    if (list != NULL) {
        n = atomic_load_explicit(&list->used, memory_order_acquire);
    }
    if (match->is_dense) {
        to_sparse(match, from, n);
    }
    for (i = 0; i < n; ++i) {
        word = atomic_load_explicit((_Atomic uint32_t *)&from[i], memory_order_relaxed);
        slot = word >> 4;
        if (((word & 15) == 0) || (slot >= s->slots)) {
            continue;
        }
        run  = &s->run[slot];
        tier = best_tier(word & 15);
        if (run->tick == s->tick) {
            if (run->tier != tier) {
                emit(match, slot, run->first, run->tier);
                run->first = (uint32_t)match->at;
                run->tier  = tier;
            }
        } else if (match->fresh && (run->tick != s->tick + 1)) {
            run->first = (uint32_t)match->at;
            run->tier  = tier;
        } else {
            continue;
        }
        run->tick         = s->tick + 1;
        s->next[n_next++] = slot;
    }
    end_list(match, s->tick + 1);
    swap          = s->list;
    s->list       = s->next;
    s->next       = swap;
    match->n_list = n_next;
    ++s->tick;
}

/* ---- dense ---- */

static void to_dense(kvcl_match_t *match, uint32_t words)
{
    kvcl_match_scratch_t *s = match->scratch;
    uint32_t             i, slot;

    match->words = words;
    for (i = 0; i < match->n_list; ++i) {
        slot = s->list[i];
        if (slot / 64 >= match->words) {
            match->words = slot / 64 + 1;
        }
        row(match, s->run[slot].tier)[slot / 64] |= UINT64_C(1) << (slot % 64);
    }
    match->n_list   = 0;
    match->is_dense = true;
}

static inline uint64_t load_word(const kvcl_idx_row_t *from, uint32_t word)
{
    return (from == NULL) ? 0 : atomic_load_explicit((_Atomic uint64_t *)&from->word[word], memory_order_relaxed);
}

static void begin_word(kvcl_match_t *match, uint32_t word, uint64_t bits)
{
    kvcl_match_run_t *run = &match->scratch->run[word * 64];

    for (; bits != 0; bits &= bits - 1) {
        run[__builtin_ctzll(bits)].first = (uint32_t)match->at;
    }
}

/* One word of each row: what the runs were, and what they are now. Ends come before begins: a slot may do both. */
static void dense_word(kvcl_match_t *match, uint32_t word, const uint64_t set[KVCL_IDX_TIERS])
{
    uint64_t was[KVCL_IDX_TIERS], now[KVCL_IDX_TIERS], left = 0;
    uint32_t tier;

    for (tier = 0; tier < KVCL_IDX_TIERS; ++tier) {
        was[tier] = row(match, tier)[word];
        left |= was[tier];
    }
    left = match->fresh ? ~UINT64_C(0) : left;
    for (tier = 0; tier < KVCL_IDX_TIERS; ++tier) {
        now[tier] = set[tier] & left;
        left &= ~now[tier];
        if (was[tier] != now[tier]) {
            end_word(match, word, was[tier] & ~now[tier], tier);
            row(match, tier)[word] = now[tier];
        }
    }
    for (tier = 0; tier < KVCL_IDX_TIERS; ++tier) {
        begin_word(match, word, now[tier] & ~was[tier]);
    }
}

void kvcl_match_dense(kvcl_match_t *match, const kvcl_idx_bits_t *bits)
{
    uint32_t             most = match->scratch->slots / 64, words = (bits->words < most) ? bits->words : most;
    const kvcl_idx_row_t *from[KVCL_IDX_TIERS];
    uint64_t             set[KVCL_IDX_TIERS];
    uint32_t             tier, i;

    if (!match->is_dense) {
        to_dense(match, words);
    }
    match->words = (match->words < words) ? words : match->words;
    for (tier = 0; tier < KVCL_IDX_TIERS; ++tier) {
        from[tier] = atomic_load_explicit((_Atomic(kvcl_idx_row_t *) *)&bits->row[tier], memory_order_acquire);
    }
    for (i = 0; i < match->words; ++i) {
        for (tier = 0; tier < KVCL_IDX_TIERS; ++tier) {
            set[tier] = (i < words) ? load_word(from[tier], i) : 0;
        }
        dense_word(match, i, set);
    }
    ++match->scratch->tick;
}

void kvcl_match_end_all(kvcl_match_t *match)
{
    if (match->is_dense) {
        to_sparse(match, NULL, 0);
    }
    end_list(match, match->scratch->tick + 1);
    match->n_list = 0;
    ++match->scratch->tick;
}
