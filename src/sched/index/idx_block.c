/*
 * Blocks of the index, and its memory. Owns the chunks of blocks, the list of free ones, and the count of bytes. Locks:
 * the index's, except for what idx.h and idx_table.h give to readers.
 *
 * A block is retired as a whole: its key stays as it is until no reader can reach it.
 */
#include "config.h"

#include "sched/index/idx_set.h"
#include "sched/index/idx_table.h"

#include "base/checksum.h"

#include <stdlib.h>
#include <sys/mman.h>

enum {
    LARGE_BYTES  = 4 << 20,
    RECLAIM_FROM = 256, /* pieces retired before a writer looks at the counters */
    RECLAIM_EACH = 64   /* calls before it does */
};

/* Random places of a large table are read: pages of 2 MiB spare most walks of the page table. A wish; calloc's memory
 * of this size is untouched yet. */
static void large_pages(void *mem, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    const uintptr_t page = 4096, first = ((uintptr_t)mem + page - 1) / page * page;

    if (bytes >= LARGE_BYTES) {
        (void)madvise((void *)first, (uintptr_t)mem + bytes - first, MADV_HUGEPAGE);
    }
#else
    (void)mem;
    (void)bytes;
#endif
}

void *kvcl_idx_alloc(kvcl_sched_index_h index, size_t bytes)
{
    kvcl_idx_mem_t *mem = calloc(1, bytes);

    if (mem != NULL) {
        large_pages(mem, bytes);
        mem->bytes = bytes;
        atomic_fetch_add_explicit(&index->bytes, bytes, memory_order_relaxed);
    }
    return mem;
}

void kvcl_idx_release(kvcl_sched_index_h index, kvcl_idx_mem_t *mem)
{
    if (mem != NULL) {
        atomic_fetch_sub_explicit(&index->bytes, mem->bytes, memory_order_relaxed);
        free(mem);
    }
}

void kvcl_idx_retire(kvcl_sched_index_h index, kvcl_idx_mem_t *mem)
{
    kvcl_idx_limbo_t *limbo = kvcl_idx_limbo(&index->epoch);

    mem->next  = limbo->mem;
    limbo->mem = mem;
    ++limbo->n;
}

static void use_again(kvcl_sched_index_h index, const kvcl_idx_limbo_t *limbo)
{
    kvcl_idx_mem_t   *mem, *next;
    kvcl_idx_block_t *block;
    uint32_t         id, other;

    for (mem = limbo->mem; mem != NULL; mem = next) {
        next = mem->next;
        kvcl_idx_release(index, mem);
    }
    for (id = limbo->block; id != KVCL_IDX_NO_BLOCK; id = other) {
        block              = kvcl_idx_block(index, id);
        other              = block->count_depth;
        block->count_depth = index->free_block;
        index->free_block  = id;
    }
    for (id = limbo->slot; id != UINT32_MAX; id = other) {
        other                = index->slot_next[id];
        index->slot_next[id] = index->free_slot;
        index->free_slot     = id;
    }
}

void kvcl_idx_reclaim(kvcl_sched_index_h index, bool all)
{
    kvcl_idx_limbo_t limbo;
    unsigned         turn;

    if (!all && ((++index->reclaims % RECLAIM_EACH) != 0)) {
        return;
    }
    for (turn = 0; turn < 2; ++turn) { /* the second epoch gives what the first had retired */
        if (index->epoch.limbo[0].n + index->epoch.limbo[1].n < (all ? 1 : RECLAIM_FROM)) {
            return;
        }
        if (!kvcl_idx_epoch_next(&index->epoch, &limbo)) {
            return;
        }
        use_again(index, &limbo);
    }
}

/* ---- blocks ---- */

uint64_t kvcl_idx_hash(const struct kvcl_sched_index *index, const kvcl_key_t *key)
{
    return kvcl_checksum_seed(key->bytes, sizeof(key->bytes), index->seed);
}

uint32_t kvcl_idx_find(kvcl_sched_index_h index, const kvcl_key_t *key)
{
    return kvcl_idx_lookup(index, atomic_load_explicit(&index->table, memory_order_relaxed),
                           kvcl_idx_hash(index, key), key, NULL);
}

/* A chunk's blocks are written when they are made (kvcl_idx_make): what it contains until then is not read. */
static kvcl_status_t chunk_room(kvcl_sched_index_h index, uint32_t id)
{
    const size_t     bytes = (size_t)KVCL_IDX_CHUNK * sizeof(kvcl_idx_block_t);
    uint32_t         at    = id >> KVCL_IDX_CHUNK_SHIFT;
    kvcl_idx_block_t *chunk;

    if ((at >= KVCL_IDX_CHUNKS) || (index->blocks >= index->max_blocks)) {
        return KVCL_ERR_NO_SPACE;
    }
    if (atomic_load_explicit(&index->chunks[at], memory_order_relaxed) != NULL) {
        return KVCL_OK;
    }
    chunk = aligned_alloc(bytes, bytes);
    if (chunk == NULL) {
        return KVCL_ERR_NO_MEMORY;
    }
#ifdef MADV_HUGEPAGE
    (void)madvise(chunk, bytes, MADV_HUGEPAGE);
#endif
    atomic_fetch_add_explicit(&index->bytes, bytes, memory_order_relaxed);
    atomic_store_explicit(&index->chunks[at], chunk, memory_order_release);
    return KVCL_OK;
}

static kvcl_status_t block_new(kvcl_sched_index_h index, uint32_t *id_p)
{
    kvcl_status_t status;

    if (index->free_block == KVCL_IDX_NO_BLOCK) {
        kvcl_idx_reclaim(index, false);
    }
    if (index->free_block != KVCL_IDX_NO_BLOCK) {
        if (index->blocks >= index->max_blocks) {
            return KVCL_ERR_NO_SPACE;
        }
        *id_p             = index->free_block;
        index->free_block = kvcl_idx_block(index, *id_p)->count_depth;
        return KVCL_OK;
    }
    status = chunk_room(index, index->block_end);
    if (status == KVCL_OK) {
        *id_p = index->block_end++;
    }
    return status;
}

static void depth_set(kvcl_idx_block_t *block, uint32_t depth)
{
    if (depth < KVCL_IDX_DEPTHS) {
        block->count_depth = kvcl_idx_count(block) * KVCL_IDX_DEPTHS + depth;
    }
}

kvcl_status_t kvcl_idx_make(kvcl_sched_index_h index, const kvcl_key_t *key, uint64_t hash, uint32_t depth,
                            uint32_t *id_p)
{
    kvcl_idx_block_t *block;
    kvcl_status_t    status;
    unsigned         i;

    *id_p = kvcl_idx_lookup(index, atomic_load_explicit(&index->table, memory_order_relaxed), hash, key, NULL);
    if (*id_p != KVCL_IDX_NO_BLOCK) {
        depth_set(kvcl_idx_block(index, *id_p), depth);
        return KVCL_OK;
    }
    status = kvcl_idx_table_room(index);
    status = (status == KVCL_OK) ? block_new(index, id_p) : status;
    if (status != KVCL_OK) {
        return status;
    }
    block              = kvcl_idx_block(index, *id_p);
    block->key         = *key;
    block->count_depth = 0;
    atomic_store_explicit(&block->more, 0, memory_order_relaxed);
    for (i = 0; i < KVCL_IDX_INLINE; ++i) {
        atomic_store_explicit(&block->in[i], 0, memory_order_relaxed);
    }
    depth_set(block, depth);
    kvcl_idx_table_put(index, hash, *id_p);
    ++index->blocks;
    return KVCL_OK;
}

void kvcl_idx_drop_empty(kvcl_sched_index_h index, uint32_t id)
{
    kvcl_idx_block_t *block = kvcl_idx_block(index, id);
    kvcl_idx_limbo_t *limbo;

    if (kvcl_idx_count(block) != 0) {
        return;
    }
    kvcl_idx_table_del(index, kvcl_idx_hash(index, &block->key), id);
    kvcl_idx_set_fini(index, block);
    limbo              = kvcl_idx_limbo(&index->epoch);
    block->count_depth = limbo->block;
    limbo->block       = id;
    ++limbo->n;
    --index->blocks;
    kvcl_idx_reclaim(index, false);
}
