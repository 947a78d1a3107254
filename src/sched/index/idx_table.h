/*
 * Key to block: open addressing with linear probing over words of the upper 32 bits of the key's hash and the block's
 * number. A word's walk begins where these bits say, so a larger table is filled from the words alone, in their order.
 *
 * Readers walk a table while the writer changes it, one word at a time. A word that is removed becomes a tombstone, or
 * free if the next one is free, so no other word moves. A table that is 7/10 full is replaced: each later change moves
 * some words into the new one, readers use the old one until all are moved. Writers: the index's lock.
 */
#ifndef KVCL_SCHED_INDEX_IDX_TABLE_H
#define KVCL_SCHED_INDEX_IDX_TABLE_H

#include "sched/index/idx.h"

#define KVCL_IDX_TOMB UINT32_MAX

struct kvcl_idx_table {
    kvcl_idx_mem_t   mem;
    uint64_t         cap;
    uint64_t         used; /* writer's: words that are not 0 */
    uint64_t         live; /* writer's */
    _Atomic uint64_t word[];
};

/* cap is below 2^32: an index has at most KVCL_IDX_CHUNKS x KVCL_IDX_CHUNK blocks, and a word has 32 bits of a hash. */
static inline uint64_t kvcl_idx_start(uint64_t cap, uint64_t hash)
{
    return ((hash >> 32) * cap) >> 32;
}

static inline uint64_t kvcl_idx_word(uint64_t hash, uint32_t id)
{
    return (hash & ~(uint64_t)UINT32_MAX) | id;
}

static inline void kvcl_idx_prefetch(const kvcl_idx_table_t *table, uint64_t hash)
{
    __builtin_prefetch((const void *)&table->word[kvcl_idx_start(table->cap, hash)]);
}

/* A guess at the block, by the first words alone; 0: none. */
static inline uint32_t kvcl_idx_peek(const kvcl_idx_table_t *table, uint64_t hash)
{
    uint64_t at = kvcl_idx_start(table->cap, hash), word, n;

    for (n = 0; (n < 8) && (at + n < table->cap); ++n) {
        word = atomic_load_explicit((_Atomic uint64_t *)&table->word[at + n], memory_order_relaxed);
        if ((word == 0) || ((word >> 32) == (hash >> 32))) {
            return ((uint32_t)word == KVCL_IDX_TOMB) ? 0 : (uint32_t)word;
        }
    }
    return 0;
}

/** Readers and the writer. *at_p (may be NULL): the word's place. @return the block's number; 0: it is not there. */
static inline uint32_t kvcl_idx_lookup(kvcl_sched_index_h index, kvcl_idx_table_t *table, uint64_t hash,
                                       const kvcl_key_t *key, uint64_t *at_p)
{
    uint64_t at = kvcl_idx_start(table->cap, hash), word, n;
    uint32_t id;

    for (n = 0; n < table->cap; ++n) {
        word = atomic_load_explicit(&table->word[at], memory_order_acquire);
        if (word == 0) {
            return KVCL_IDX_NO_BLOCK;
        }
        id = (uint32_t)word;
        if (((word >> 32) == (hash >> 32)) && (id != KVCL_IDX_TOMB) &&
            kvcl_key_equal(&kvcl_idx_block(index, id)->key, key)) {
            if (at_p != NULL) {
                *at_p = at;
            }
            return id;
        }
        at = (at + 1 == table->cap) ? 0 : at + 1;
    }
    return KVCL_IDX_NO_BLOCK;
}

/** A table of its first size. NULL: no memory. */
kvcl_idx_table_t *kvcl_idx_table_new(kvcl_sched_index_h index, uint64_t live);
/** Before an insertion. @return KVCL_OK; KVCL_ERR_NO_MEMORY: the table is full and cannot grow. */
kvcl_status_t kvcl_idx_table_room(kvcl_sched_index_h index) KVCL_MUST_CHECK;
/** Insert a block whose key is not there. */
void          kvcl_idx_table_put(kvcl_sched_index_h index, uint64_t hash, uint32_t id);
void          kvcl_idx_table_del(kvcl_sched_index_h index, uint64_t hash, uint32_t id);

#endif
