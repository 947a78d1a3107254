/*
 * Owns a pool's slots, the table from blocks to slots (linear probing, backward-shift deletion, at most half full) and
 * the LRU list. Invariant: a block has at most one slot; slots in use and free ones are cap together.
 */
#include "config.h"
#include "tools/sim/pool.h"

#include "base/rand.h"

#include <stdlib.h>
#include <string.h>

#define NO_SLOT UINT32_MAX

static uint32_t hash_of(uint32_t block)
{
    return (block * UINT32_C(0x9e3779b1)) ^ (block >> 15);
}

/* The table's place of a block, or the empty one where it would be. */
static uint32_t place_of(const sim_pool_t *pool, uint32_t block)
{
    uint32_t at = hash_of(block) & pool->mask;

    while ((pool->table[at] != 0) && (pool->slots[pool->table[at] - 1].block != block)) {
        at = (at + 1) & pool->mask;
    }
    return at;
}

static void table_remove(sim_pool_t *pool, uint32_t block)
{
    uint32_t hole = place_of(pool, block), at = hole, home;

    pool->table[hole] = 0;
    for (;;) {
        at = (at + 1) & pool->mask;
        if (pool->table[at] == 0) {
            return;
        }
        home = hash_of(pool->slots[pool->table[at] - 1].block) & pool->mask;
        if (((at - home) & pool->mask) >= ((at - hole) & pool->mask)) {
            pool->table[hole] = pool->table[at];
            pool->table[at]   = 0;
            hole              = at;
        }
    }
}

static void list_add(sim_pool_t *pool, uint32_t slot)
{
    pool->slots[slot].prev = NO_SLOT;
    pool->slots[slot].next = pool->head;
    if (pool->head != NO_SLOT) {
        pool->slots[pool->head].prev = slot;
    } else {
        pool->tail = slot;
    }
    pool->head = slot;
}

static void list_remove(sim_pool_t *pool, uint32_t slot)
{
    const sim_pool_slot_t *entry = &pool->slots[slot];

    if (entry->prev != NO_SLOT) {
        pool->slots[entry->prev].next = entry->next;
    } else {
        pool->head = entry->next;
    }
    if (entry->next != NO_SLOT) {
        pool->slots[entry->next].prev = entry->prev;
    } else {
        pool->tail = entry->prev;
    }
}

static bool order_init(sim_pool_t *pool)
{
    const size_t bytes = kvcl_evict_bytes(pool->cap);

    pool->memory = pool->lru ? NULL : malloc(bytes);
    return pool->lru ||
           ((pool->memory != NULL) && (kvcl_evict_init(&pool->evict, pool->cap, pool->memory, bytes) == KVCL_OK));
}

static void all_free(sim_pool_t *pool)
{
    uint32_t i;

    for (i = 0; i < pool->cap; ++i) {
        pool->free[i] = pool->cap - 1 - i;
    }
    pool->n    = 0;
    pool->head = NO_SLOT;
    pool->tail = NO_SLOT;
}

bool sim_pool_init(sim_pool_t *pool, uint32_t cap, bool lru)
{
    uint32_t size = 16;

    memset(pool, 0, sizeof(*pool));
    while (size < cap * UINT64_C(2)) {
        size *= 2;
    }
    pool->cap   = cap;
    pool->lru   = lru;
    pool->mask  = size - 1;
    pool->slots = malloc(cap * sizeof(*pool->slots));
    pool->free  = malloc(cap * sizeof(*pool->free));
    pool->table = calloc(size, sizeof(*pool->table));
    if ((pool->slots == NULL) || (pool->free == NULL) || (pool->table == NULL) || !order_init(pool)) {
        sim_pool_free(pool);
        return false;
    }
    all_free(pool);
    return true;
}

void sim_pool_free(sim_pool_t *pool)
{
    free(pool->slots);
    free(pool->free);
    free(pool->table);
    free(pool->memory);
    memset(pool, 0, sizeof(*pool));
}

bool sim_pool_has(const sim_pool_t *pool, uint32_t block)
{
    return (pool->cap != 0) && (pool->table[place_of(pool, block)] != 0);
}

static void touch_slot(sim_pool_t *pool, uint32_t slot)
{
    if (pool->lru) {
        list_remove(pool, slot);
        list_add(pool, slot);
    } else {
        kvcl_evict_touch(&pool->evict, slot);
    }
}

void sim_pool_touch(sim_pool_t *pool, uint32_t block)
{
    const uint32_t slot = pool->table[place_of(pool, block)];

    if (slot != 0) {
        touch_slot(pool, slot - 1);
    }
}

/* Make a slot free. @return the block that was in it. */
static uint32_t evict_one(sim_pool_t *pool)
{
    uint32_t slot = pool->tail, block;

    if (pool->lru) {
        list_remove(pool, slot);
    } else if (kvcl_evict_victim(&pool->evict, &slot) != KVCL_OK) {
        abort(); /* nothing is pinned: a full pool has a victim */
    }
    block = pool->slots[slot].block;
    table_remove(pool, block);
    pool->free[pool->cap - pool->n] = slot;
    --pool->n;
    return block;
}

uint32_t sim_pool_insert(sim_pool_t *pool, uint32_t block)
{
    const uint32_t at      = place_of(pool, block);
    uint32_t       evicted = SIM_NO_BLOCK, slot;
    uint64_t       seed    = block;

    if (pool->table[at] != 0) {
        touch_slot(pool, pool->table[at] - 1);
        return SIM_NO_BLOCK;
    }
    if (pool->n == pool->cap) {
        evicted = evict_one(pool);
    }
    slot                            = pool->free[pool->cap - ++pool->n];
    pool->slots[slot].block         = block;
    pool->table[place_of(pool, block)] = slot + 1;
    if (pool->lru) {
        list_add(pool, slot);
    } else if (kvcl_evict_insert(&pool->evict, slot, kvcl_splitmix64(&seed)) != KVCL_OK) {
        abort(); /* the slot was free */
    }
    return evicted;
}

void sim_pool_clear(sim_pool_t *pool, void (*gone)(void *arg, uint32_t block), void *arg)
{
    while (pool->n != 0) {
        gone(arg, evict_one(pool));
    }
}
