/*
 * The table of keys (idx_table.h). Owns its growth.
 *
 * Invariant while index->growing: a block whose word in the old table lies before index->moved is in both tables, the
 * others are in the old one only. So a removal looks at both, and the move meets each live word once.
 */
#include "config.h"

#include "sched/index/idx_table.h"

enum { FIRST_CAP = 1024, MOVE = 16 };

static bool is_full(const kvcl_idx_table_t *table, uint64_t words)
{
    return words > table->cap / 10 * 7;
}

kvcl_idx_table_t *kvcl_idx_table_new(kvcl_sched_index_h index, uint64_t live)
{
    uint64_t         cap = live / 4 * 7; /* 4/7 full, until it is 7/10 full: a walk to a free word passes few others */
    kvcl_idx_table_t *table;

    cap   = (cap < FIRST_CAP) ? FIRST_CAP : cap;
    table = kvcl_idx_alloc(index, sizeof(*table) + cap * sizeof(table->word[0]));
    if (table != NULL) {
        table->cap = cap;
    }
    return table;
}

static uint64_t free_at(const kvcl_idx_table_t *table, uint64_t hash, uint64_t *old_p)
{
    uint64_t at = kvcl_idx_start(table->cap, hash), word;

    for (;;) {
        word = atomic_load_explicit((_Atomic uint64_t *)&table->word[at], memory_order_relaxed);
        if ((word == 0) || ((uint32_t)word == KVCL_IDX_TOMB)) {
            *old_p = word;
            return at;
        }
        at = (at + 1 == table->cap) ? 0 : at + 1;
    }
}

static uint64_t put(kvcl_idx_table_t *table, uint64_t hash, uint32_t id)
{
    uint64_t old, at = free_at(table, hash, &old);

    table->used += (old == 0);
    ++table->live;
    atomic_store_explicit(&table->word[at], kvcl_idx_word(hash, id), memory_order_release);
    return at;
}

static bool find(const kvcl_idx_table_t *table, uint64_t hash, uint32_t id, uint64_t *at_p)
{
    uint64_t at = kvcl_idx_start(table->cap, hash), wanted = kvcl_idx_word(hash, id), word, n;

    for (n = 0; n < table->cap; ++n) {
        word = atomic_load_explicit((_Atomic uint64_t *)&table->word[at], memory_order_relaxed);
        if (word == wanted) {
            *at_p = at;
            return true;
        }
        if (word == 0) {
            return false;
        }
        at = (at + 1 == table->cap) ? 0 : at + 1;
    }
    return false;
}

static void del(kvcl_idx_table_t *table, uint64_t at)
{
    uint64_t next = (at + 1 == table->cap) ? 0 : at + 1, word;

    --table->live;
    if (atomic_load_explicit(&table->word[next], memory_order_relaxed) != 0) {
        atomic_store_explicit(&table->word[at], KVCL_IDX_TOMB, memory_order_release);
        return;
    }
    do { /* no walk goes on behind this word: it is free, as are the tombstones before it */
        atomic_store_explicit(&table->word[at], 0, memory_order_release);
        --table->used;
        at   = (at == 0) ? table->cap - 1 : at - 1;
        word = atomic_load_explicit(&table->word[at], memory_order_relaxed);
    } while ((uint32_t)word == KVCL_IDX_TOMB);
}

/* Move some words; after the last one the new table is the table. */
static void move_some(kvcl_sched_index_h index, kvcl_idx_table_t *table, uint64_t n)
{
    uint64_t word;

    for (; (n > 0) && (index->moved < table->cap); --n) {
        word = atomic_load_explicit(&table->word[index->moved++], memory_order_relaxed);
        if ((word != 0) && ((uint32_t)word != KVCL_IDX_TOMB)) {
            (void)put(index->growing, word, (uint32_t)word);
        }
    }
    if (index->moved == table->cap) {
        atomic_store_explicit(&index->table, index->growing, memory_order_release);
        index->growing = NULL;
        kvcl_idx_retire(index, &table->mem);
    }
}

kvcl_status_t kvcl_idx_table_room(kvcl_sched_index_h index)
{
    kvcl_idx_table_t *table = atomic_load_explicit(&index->table, memory_order_relaxed);

    if ((index->growing == NULL) && is_full(table, table->used + 1)) {
        index->growing = kvcl_idx_table_new(index, table->live + table->cap / 8);
        index->moved   = 0;
    }
    if (index->growing != NULL) {
        move_some(index, table, MOVE);
    } else if (table->used + 2 > table->cap / 16 * 15) {
        return KVCL_ERR_NO_MEMORY;
    }
    return KVCL_OK;
}

void kvcl_idx_table_put(kvcl_sched_index_h index, uint64_t hash, uint32_t id)
{
    uint64_t at = put(atomic_load_explicit(&index->table, memory_order_relaxed), hash, id);

    if ((index->growing != NULL) && (at < index->moved)) {
        (void)put(index->growing, hash, id);
    }
}

void kvcl_idx_table_del(kvcl_sched_index_h index, uint64_t hash, uint32_t id)
{
    kvcl_idx_table_t *table = atomic_load_explicit(&index->table, memory_order_relaxed);
    uint64_t         at;

    if (find(table, hash, id, &at)) {
        del(table, at);
    }
    if ((index->growing != NULL) && find(index->growing, hash, id, &at)) {
        del(index->growing, at);
    }
}
