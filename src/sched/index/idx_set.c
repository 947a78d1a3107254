/*
 * Sets of holders (idx_set.h). Owns lists and bitmaps. A bitmap is taken where it is smaller than a list, and left when
 * the set is a quarter of that. Locks: the index's.
 */
#include "config.h"

#include "sched/index/idx_set.h"

enum { LIST_FIRST = 8, LIST_LEAST = 32 };

static uint32_t load(const _Atomic uint32_t *word)
{
    return atomic_load_explicit((_Atomic uint32_t *)word, memory_order_relaxed);
}

static uintptr_t more_of(const kvcl_idx_block_t *block)
{
    return atomic_load_explicit((_Atomic uintptr_t *)&block->more, memory_order_relaxed);
}

static kvcl_idx_row_t *row_of(const kvcl_idx_bits_t *bits, unsigned tier)
{
    return atomic_load_explicit((_Atomic(kvcl_idx_row_t *) *)&bits->row[tier], memory_order_relaxed);
}

static uint32_t slots_cap(kvcl_sched_index_h index)
{
    return atomic_load_explicit(&index->slots, memory_order_relaxed)->cap;
}

/* From so many holders on a bitmap is the smaller form. */
static uint32_t bits_from(kvcl_sched_index_h index)
{
    uint32_t n = slots_cap(index) / 32;

    return (n < LIST_LEAST) ? LIST_LEAST : n;
}

/* The word of a slot, or of a free place (slot UINT32_MAX); NULL. */
static _Atomic uint32_t *place_of(const kvcl_idx_block_t *block, uint32_t slot)
{
    const kvcl_idx_list_t  *list = kvcl_idx_as_list(more_of(block));
    const _Atomic uint32_t *words = (list != NULL) ? list->word : block->in;
    uint32_t               n = (list != NULL) ? load(&list->used) : KVCL_IDX_INLINE, i, word;

    for (i = 0; i < n; ++i) {
        word = load(&words[i]);
        if ((slot == UINT32_MAX) ? (word == 0) : ((word != 0) && (word >> 4 == slot))) {
            return (_Atomic uint32_t *)&words[i];
        }
    }
    return NULL;
}

static uint64_t row_word(const kvcl_idx_row_t *row, uint32_t slot)
{
    return atomic_load_explicit((_Atomic uint64_t *)&row->word[slot / 64], memory_order_relaxed);
}

static uint32_t bits_get(const kvcl_idx_bits_t *bits, uint32_t slot)
{
    uint32_t             mask = 0;
    const kvcl_idx_row_t *row;
    unsigned             tier;

    for (tier = 0; (slot / 64 < bits->words) && (tier < KVCL_IDX_TIERS); ++tier) {
        row = row_of(bits, tier);
        if ((row != NULL) && ((row_word(row, slot) >> (slot % 64)) & 1)) {
            mask |= 1u << tier;
        }
    }
    return mask;
}

uint32_t kvcl_idx_set_get(const kvcl_idx_block_t *block, uint32_t slot)
{
    const kvcl_idx_bits_t  *bits = kvcl_idx_as_bits(more_of(block));
    const _Atomic uint32_t *word;

    if (bits != NULL) {
        return bits_get(bits, slot);
    }
    word = place_of(block, slot);
    return (word != NULL) ? load(word) & 15 : 0;
}

/* All holders, slot << 4 | mask, into an array of as many as there are slots. @return how many. */
static uint32_t read_all(const kvcl_idx_block_t *block, uint32_t *words)
{
    const kvcl_idx_list_t  *list = kvcl_idx_as_list(more_of(block));
    const kvcl_idx_bits_t  *bits = kvcl_idx_as_bits(more_of(block));
    const _Atomic uint32_t *from = (list != NULL) ? list->word : block->in;
    uint32_t               n = (list != NULL) ? load(&list->used) : KVCL_IDX_INLINE, i, word, found = 0;

    for (i = 0; (bits == NULL) && (i < n); ++i) {
        word = load(&from[i]);
        if (word != 0) {
            words[found++] = word;
        }
    }
    for (i = 0; (bits != NULL) && (i < bits->words * 64); ++i) {
        word = bits_get(bits, i);
        if (word != 0) {
            words[found++] = i << 4 | word;
        }
    }
    return found;
}

/* ---- forms ---- */

/* kvcl_idx_retire, or kvcl_idx_release. */
typedef void (*drop_t)(kvcl_sched_index_h index, kvcl_idx_mem_t *mem);

static void bits_drop(kvcl_sched_index_h index, kvcl_idx_bits_t *bits, drop_t drop)
{
    kvcl_idx_row_t *row;
    unsigned       tier;

    for (tier = 0; tier < KVCL_IDX_TIERS; ++tier) {
        row = row_of(bits, tier);
        if (row != NULL) {
            drop(index, &row->mem);
        }
    }
    drop(index, &bits->mem);
}

static void form_drop(kvcl_sched_index_h index, uintptr_t more, drop_t drop)
{
    if (kvcl_idx_as_bits(more) != NULL) {
        bits_drop(index, kvcl_idx_as_bits(more), drop);
    } else if (kvcl_idx_as_list(more) != NULL) {
        drop(index, &kvcl_idx_as_list(more)->mem);
    }
}

/* The bits of one slot become those of mask. */
static kvcl_status_t bits_put(kvcl_sched_index_h index, kvcl_idx_bits_t *bits, uint32_t slot, uint32_t mask)
{
    uint64_t       bit = UINT64_C(1) << (slot % 64), old;
    kvcl_idx_row_t *row;
    unsigned       tier, pass;

    for (tier = 0; tier < KVCL_IDX_TIERS; ++tier) { /* first what may fail */
        if (((mask >> tier) & 1) && (row_of(bits, tier) == NULL)) {
            row = kvcl_idx_alloc(index, sizeof(*row) + (size_t)bits->words * sizeof(row->word[0]));
            if (row == NULL) {
                return KVCL_ERR_NO_MEMORY;
            }
            atomic_store_explicit(&bits->row[tier], row, memory_order_release);
        }
    }
    for (pass = 0; pass < 2; ++pass) { /* first what is set: a reader shall not miss a block that changes its tier */
        for (tier = 0; tier < KVCL_IDX_TIERS; ++tier) {
            row = row_of(bits, tier);
            if ((row != NULL) && ((((mask >> tier) & 1) == 0) == (pass == 1))) {
                old = row_word(row, slot);
                old = (pass == 0) ? (old | bit) : (old & ~bit);
                atomic_store_explicit(&row->word[slot / 64], old, memory_order_release);
            }
        }
    }
    return KVCL_OK;
}

static uintptr_t list_of(kvcl_sched_index_h index, const uint32_t *words, uint32_t n)
{
    kvcl_idx_list_t *list;
    uint32_t        cap = LIST_FIRST, i;

    while (cap < n + n / 4 + 1) {
        cap += cap / 2;
    }
    list = kvcl_idx_alloc(index, sizeof(*list) + (size_t)cap * sizeof(list->word[0]));
    if (list == NULL) {
        return 0;
    }
    list->cap = cap;
    for (i = 0; i < n; ++i) {
        atomic_store_explicit(&list->word[i], words[i], memory_order_relaxed);
    }
    atomic_store_explicit(&list->used, n, memory_order_relaxed);
    return (uintptr_t)list;
}

static uintptr_t bits_of(kvcl_sched_index_h index, const uint32_t *words, uint32_t n)
{
    kvcl_idx_bits_t *bits = kvcl_idx_alloc(index, sizeof(*bits));
    uint32_t        i;

    if (bits == NULL) {
        return 0;
    }
    bits->words = slots_cap(index) / 64;
    for (i = 0; i < n; ++i) {
        if (bits_put(index, bits, words[i] >> 4, words[i] & 15) != KVCL_OK) {
            bits_drop(index, bits, kvcl_idx_release);
            return 0;
        }
    }
    return (uintptr_t)bits | 1;
}

/* Publish the set in the form that suits n + 1 holders. */
static kvcl_status_t reform(kvcl_sched_index_h index, kvcl_idx_block_t *block)
{
    uintptr_t old = more_of(block), more;
    uint32_t  n   = read_all(block, index->words);

    more = (n + 1 >= bits_from(index)) ? bits_of(index, index->words, n) : list_of(index, index->words, n);
    if (more == 0) {
        return KVCL_ERR_NO_MEMORY;
    }
    atomic_store_explicit(&block->more, more, memory_order_release);
    form_drop(index, old, kvcl_idx_retire);
    return KVCL_OK;
}

/* A slot that is not there yet. */
static kvcl_status_t add(kvcl_sched_index_h index, kvcl_idx_block_t *block, uint32_t slot, uint32_t mask)
{
    kvcl_idx_bits_t  *bits = kvcl_idx_as_bits(more_of(block));
    kvcl_idx_list_t  *list = kvcl_idx_as_list(more_of(block));
    _Atomic uint32_t *word = (bits == NULL) ? place_of(block, UINT32_MAX) : NULL;
    bool             fits  = (bits != NULL) ? (slot / 64 < bits->words) : (word != NULL);

    if (!fits && (list != NULL) && (load(&list->used) < list->cap)) {
        atomic_store_explicit(&list->word[load(&list->used)], slot << 4 | mask, memory_order_relaxed);
        atomic_store_explicit(&list->used, load(&list->used) + 1, memory_order_release);
        return KVCL_OK;
    }
    if (!fits) {
        return (reform(index, block) == KVCL_OK) ? add(index, block, slot, mask) : KVCL_ERR_NO_MEMORY;
    }
    if (bits != NULL) {
        return bits_put(index, bits, slot, mask);
    }
    atomic_store_explicit(word, slot << 4 | mask, memory_order_release);
    return KVCL_OK;
}

kvcl_status_t kvcl_idx_set_put(kvcl_sched_index_h index, kvcl_idx_block_t *block, uint32_t slot, uint32_t old,
                               uint32_t mask)
{
    kvcl_idx_bits_t  *bits = kvcl_idx_as_bits(more_of(block));
    _Atomic uint32_t *word;
    kvcl_status_t    status;

    if (old == mask) {
        return KVCL_OK;
    }
    if (old == 0) {
        status = add(index, block, slot, mask);
        if (status != KVCL_OK) {
            return status;
        }
        block->count_depth += KVCL_IDX_DEPTHS;
        ++index->holders;
        return KVCL_OK;
    }
    if (bits != NULL) {
        status = bits_put(index, bits, slot, mask);
        if (status != KVCL_OK) {
            return status;
        }
    } else {
        word = place_of(block, slot);
        atomic_store_explicit(word, (mask != 0) ? (slot << 4 | mask) : 0, memory_order_release);
    }
    if (mask == 0) {
        block->count_depth -= KVCL_IDX_DEPTHS;
        --index->holders;
        if ((bits != NULL) && (kvcl_idx_count(block) < bits_from(index) / 4) && (kvcl_idx_count(block) > 0)) {
            (void)reform(index, block); /* without memory it stays as it is */
        }
    }
    return KVCL_OK;
}

void kvcl_idx_set_fini(kvcl_sched_index_h index, kvcl_idx_block_t *block)
{
    form_drop(index, more_of(block), kvcl_idx_retire);
}

void kvcl_idx_set_free(kvcl_sched_index_h index, kvcl_idx_block_t *block)
{
    form_drop(index, more_of(block), kvcl_idx_release);
}
