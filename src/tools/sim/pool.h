/*
 * The blocks that one instance holds in DRAM: a set of block numbers with a capacity, evicted by the library's own
 * order (policy/evict.h) or by LRU, which published experiments use. A pool owns its memory; insert and touch never
 * allocate.
 */
#ifndef KVCL_TOOLS_SIM_POOL_H
#define KVCL_TOOLS_SIM_POOL_H

#include "policy/evict.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_NO_BLOCK UINT32_MAX

typedef struct sim_pool_slot {
    uint32_t block;
    uint32_t prev; /* LRU: towards the youngest */
    uint32_t next;
} sim_pool_slot_t;

typedef struct sim_pool {
    uint32_t        cap;
    uint32_t        n;
    bool            lru;
    sim_pool_slot_t *slots;
    uint32_t        *free;    /* slots that hold nothing, cap - n of them */
    uint32_t        *table;   /* open addressing: slot + 1 by block */
    uint32_t        mask;
    uint32_t        head;     /* LRU: the youngest and the oldest slot */
    uint32_t        tail;
    kvcl_evict_t    evict;
    void            *memory;  /* of evict */
} sim_pool_t;

/* An empty pool of cap blocks, at least 1. False: out of memory; then the pool is zero. */
bool sim_pool_init(sim_pool_t *pool, uint32_t cap, bool lru);
void sim_pool_free(sim_pool_t *pool); /* zero is allowed */

bool sim_pool_has(const sim_pool_t *pool, uint32_t block);

/* The block was used. A block that is not there is ignored. */
void sim_pool_touch(sim_pool_t *pool, uint32_t block);

/* The block is put, or used if it is there. A chain is inserted and touched from its tail to its head.
 * @return the block that was evicted for it, or SIM_NO_BLOCK. */
uint32_t sim_pool_insert(sim_pool_t *pool, uint32_t block);

/* Empty it. For each block call gone(arg, block). */
void sim_pool_clear(sim_pool_t *pool, void (*gone)(void *arg, uint32_t block), void *arg);

#endif
