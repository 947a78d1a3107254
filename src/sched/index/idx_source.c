/*
 * Sources and the blocks they hold. Owns the array of sources, their params and their tables.
 *
 * Invariant: a source's table has one entry for each block in whose set its slot has one of its tiers, and no other. So
 * a number in the table is that of a living block. Locks: the index's.
 */
#include "config.h"

#include "sched/index/idx_set.h"
#include "sched/index/idx_table.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

kvcl_idx_source_t *kvcl_idx_source(kvcl_sched_index_h index, uint32_t source)
{
    if ((source >= index->source_cap) || (index->sources[source] == NULL)) {
        (void)kvcl_fail(KVCL_ERR_NOT_FOUND, "the index has no source %u", source);
        return NULL;
    }
    return index->sources[source];
}

static bool is_full(kvcl_idx_source_t *source)
{
    return source->held.n >= source->params.max_blocks;
}

/* A block that the source did not hold; old: its slot's tiers by others. */
static kvcl_status_t hold_new(kvcl_sched_index_h index, kvcl_idx_source_t *source, uint32_t id, uint64_t hash,
                              uint32_t old, uint32_t mask)
{
    uint64_t      before = kvcl_idx_held_bytes(&source->held), bytes;
    kvcl_status_t status = is_full(source) ? KVCL_ERR_NO_SPACE : kvcl_idx_held_room(&source->held, source->by_hash);

    bytes = kvcl_idx_held_bytes(&source->held) - before;
    if (bytes != 0) {
        atomic_fetch_add_explicit(&index->bytes, bytes, memory_order_relaxed);
    }
    if (status == KVCL_OK) {
        status = kvcl_idx_set_put(index, kvcl_idx_block(index, id), source->slot, old, mask);
    }
    if (status == KVCL_OK) {
        kvcl_idx_held_put(&source->held, hash, id);
    }
    return status;
}

static kvcl_status_t hold(kvcl_sched_index_h index, kvcl_idx_source_t *source, const kvcl_idx_coming_t *block,
                          uint32_t tiers)
{
    uint32_t      id, mask, known;
    kvcl_status_t status;

    known = source->by_hash ? kvcl_idx_held_find(&source->held, block->hash) : KVCL_IDX_NO_BLOCK;
    if ((known != KVCL_IDX_NO_BLOCK) && !kvcl_key_equal(&kvcl_idx_block(index, known)->key, &block->key)) {
        /* the hash means another block now */
        kvcl_idx_let_go(index, source, known, block->hash, source->params.tiers);
    }
    status = kvcl_idx_make(index, &block->key, block->key_hash, block->depth, &id);
    if (status == KVCL_OK) {
        mask = kvcl_idx_set_get(kvcl_idx_block(index, id), source->slot);
        if ((mask & source->params.tiers) == 0) {
            status = hold_new(index, source, id, block->hash, mask, mask | tiers);
        } else {
            status = kvcl_idx_set_put(index, kvcl_idx_block(index, id), source->slot, mask, mask | tiers);
        }
        kvcl_idx_drop_empty(index, id);
    }
    if (status != KVCL_OK) {
        ++source->info.full;
        source->lossy = true;
    }
    return status;
}

kvcl_status_t kvcl_idx_hold(kvcl_sched_index_h index, kvcl_idx_source_t *source, const kvcl_key_t *key, uint32_t depth,
                            uint64_t hash, uint32_t tiers)
{
    const kvcl_idx_coming_t block = {*key, kvcl_idx_hash(index, key), hash, depth};

    return hold(index, source, &block, tiers);
}

void kvcl_idx_coming(kvcl_sched_index_h index, const kvcl_idx_source_t *source, kvcl_idx_coming_t *block,
                     const kvcl_key_t *key, uint32_t depth, uint64_t hash)
{
    *block = (kvcl_idx_coming_t){*key, kvcl_idx_hash(index, key), hash, depth};
    kvcl_idx_prefetch(atomic_load_explicit(&index->table, memory_order_relaxed), block->key_hash);
    if (source->by_hash) {
        kvcl_idx_held_prefetch(&source->held, hash);
    }
}

kvcl_status_t kvcl_idx_hold_all(kvcl_sched_index_h index, kvcl_idx_source_t *source, const kvcl_idx_coming_t *blocks,
                                size_t n, uint32_t tiers)
{
    kvcl_idx_table_t *table = atomic_load_explicit(&index->table, memory_order_relaxed);
    kvcl_status_t    status = KVCL_OK, one;
    uint32_t         id;
    size_t           i;

    for (i = 0; i < n; ++i) {
        id = kvcl_idx_peek(table, blocks[i].key_hash);
        if (id != KVCL_IDX_NO_BLOCK) {
            __builtin_prefetch(kvcl_idx_block(index, id), 1);
        }
    }
    for (i = 0; i < n; ++i) {
        one    = hold(index, source, &blocks[i], tiers);
        status = (one != KVCL_OK) ? one : status;
    }
    return status;
}

void kvcl_idx_let_go(kvcl_sched_index_h index, kvcl_idx_source_t *source, uint32_t id, uint64_t hash, uint32_t tiers)
{
    kvcl_idx_block_t *block = kvcl_idx_block(index, id);
    uint32_t         old    = kvcl_idx_set_get(block, source->slot);
    uint32_t         mask   = old & ~(tiers & source->params.tiers);

    if (mask == old) {
        return;
    }
    (void)!kvcl_idx_set_put(index, block, source->slot, old, mask);
    if ((mask & source->params.tiers) == 0) {
        kvcl_idx_held_del(&source->held, hash, id);
    }
    kvcl_idx_drop_empty(index, id);
}

void kvcl_idx_let_all_go(kvcl_sched_index_h index, kvcl_idx_source_t *source, uint32_t tiers)
{
    uint64_t         it = 0, hash;
    uint32_t         id, old, mask;
    kvcl_idx_held_t  held = source->held;
    kvcl_idx_block_t *block;

    if ((tiers & source->params.tiers) == 0) {
        return;
    }
    /* The table is made anew from what stays: a removal from it would move entries past the walk. */
    atomic_fetch_sub_explicit(&index->bytes, kvcl_idx_held_bytes(&held), memory_order_relaxed);
    memset(&source->held, 0, sizeof(source->held));
    while (kvcl_idx_held_next(&held, &it, &hash, &id)) {
        block = kvcl_idx_block(index, id);
        old   = kvcl_idx_set_get(block, source->slot);
        mask  = old & ~(tiers & source->params.tiers);
        if (((mask & source->params.tiers) != 0) &&
            (kvcl_idx_held_room(&source->held, source->by_hash) == KVCL_OK)) {
            kvcl_idx_held_put(&source->held, hash, id);
        } else {
            mask &= ~source->params.tiers;
        }
        (void)!kvcl_idx_set_put(index, block, source->slot, old, mask);
        kvcl_idx_drop_empty(index, id);
    }
    kvcl_idx_held_fini(&held);
    atomic_fetch_add_explicit(&index->bytes, kvcl_idx_held_bytes(&source->held), memory_order_relaxed);
}

void kvcl_idx_begin_anew(kvcl_sched_index_h index, kvcl_idx_source_t *source)
{
    kvcl_idx_let_all_go(index, source, source->params.tiers);
    source->next  = (source->params.feed == KVCL_SCHED_FEED_STORE) ? 1 : 0;
    source->top   = source->next;
    source->lossy = false;
    memset(source->event_id, 0, sizeof(source->event_id));
}
