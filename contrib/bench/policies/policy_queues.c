/*
 * Policies of one or two queues: FIFO, LRU, SIEVE, SLRU, S3-FIFO, 2Q.
 */
#include "config.h"
#include "pool.h"

#include <stdlib.h>

/* ---- FIFO, LRU ---- */

enum { ONLY = 1 };

static void keep(pool_t *pool, uint32_t key, uint32_t at)
{
    (void)pool;
    (void)key;
    (void)at;
}

static void evict_tail(pool_t *pool, unsigned list)
{
    const uint32_t victim = pool->list[list].tail;

    pool_unlink(pool, victim);
    pool_drop(pool, victim);
}

static void fifo_add(pool_t *pool, uint32_t key, uint32_t at)
{
    (void)at;
    if (pool_is_full(pool)) {
        evict_tail(pool, ONLY);
    }
    pool_push(pool, ONLY, key);
    pool_take(pool, key);
}

static void lru_use(pool_t *pool, uint32_t key, uint32_t at)
{
    (void)at;
    pool_move(pool, ONLY, key);
}

const policy_t policy_fifo = {.name = "fifo", .paper = "first in, first out", .use = keep, .add = fifo_add};
const policy_t policy_lru  = {.name = "lru", .paper = "least recently used", .use = lru_use, .add = fifo_add};

/* ---- SIEVE: a hand moves from the tail to the head and clears one use; blocks it has passed keep their place ---- */

typedef struct sieve {
    uint32_t hand;
} sieve_t;

static bool sieve_open(pool_t *pool)
{
    sieve_t *sieve = malloc(sizeof(*sieve));

    if (sieve != NULL) {
        sieve->hand = POOL_NONE;
    }
    pool->own = sieve;
    return sieve != NULL;
}

static void free_own(pool_t *pool)
{
    free(pool->own);
}

static void sieve_use(pool_t *pool, uint32_t key, uint32_t at)
{
    (void)at;
    pool->mark[key] = 1;
}

static void sieve_add(pool_t *pool, uint32_t key, uint32_t at)
{
    sieve_t  *sieve = pool->own;
    uint32_t victim = sieve->hand;

    (void)at;
    if (pool_is_full(pool)) {
        victim = (victim == POOL_NONE) ? pool->list[ONLY].tail : victim;
        while (pool->mark[victim] != 0) {
            pool->mark[victim] = 0;
            victim = (pool->prev[victim] == POOL_NONE) ? pool->list[ONLY].tail : pool->prev[victim];
        }
        sieve->hand = pool->prev[victim];
        pool_unlink(pool, victim);
        pool_drop(pool, victim);
    }
    pool->mark[key] = 0;
    pool_push(pool, ONLY, key);
    pool_take(pool, key);
}

const policy_t policy_sieve = {
    .name = "sieve", .paper = "Zhang, Yang, Yue, Vigfusson, Rashmi: SIEVE is simpler than LRU, NSDI'24",
    .open = sieve_open, .close = free_own, .use = sieve_use, .add = sieve_add};

/* ---- SLRU: a block that is used again is protected, in at most 80% of the pool ---- */

enum { PROBATION = 1, PROTECTED = 2 };

static void slru_use(pool_t *pool, uint32_t key, uint32_t at)
{
    (void)at;
    pool_move(pool, PROTECTED, key);
    if (pool->list[PROTECTED].n > ((uint64_t)pool->capacity * 8) / 10) {
        pool_move(pool, PROBATION, pool->list[PROTECTED].tail);
    }
}

static void slru_add(pool_t *pool, uint32_t key, uint32_t at)
{
    (void)at;
    if (pool_is_full(pool)) {
        evict_tail(pool, (pool->list[PROBATION].n > 0) ? PROBATION : PROTECTED);
    }
    pool_push(pool, PROBATION, key);
    pool_take(pool, key);
}

const policy_t policy_slru = {
    .name = "slru", .paper = "Karedla, Love, Wherry: Caching strategies to improve disk system performance, 1994",
    .use = slru_use, .add = slru_add};

/* ---- S3-FIFO: small is a tenth of the pool; as many keys are remembered as main has ---- */

enum { SMALL = 1, MAIN = 2, GHOST = 3, USED_MAX = 3 };

static void s3_use(pool_t *pool, uint32_t key, uint32_t at)
{
    (void)at;
    pool->mark[key] = (uint8_t)((pool->mark[key] < USED_MAX) ? pool->mark[key] + 1 : USED_MAX);
}

static void s3_evict_main(pool_t *pool)
{
    uint32_t tail;

    while (pool->mark[tail = pool->list[MAIN].tail] > 0) {
        --pool->mark[tail];
        pool_move(pool, MAIN, tail);
    }
    evict_tail(pool, MAIN);
}

/* Evict at most one block, which is remembered. */
static void s3_evict_small(pool_t *pool, uint32_t main_max)
{
    uint32_t tail;

    while (pool_is_full(pool) && ((tail = pool->list[SMALL].tail) != POOL_NONE)) {
        if (pool->mark[tail] > 1) {
            pool->mark[tail] = 0;
            pool_move(pool, MAIN, tail);
            if (pool->list[MAIN].n > main_max) {
                s3_evict_main(pool);
            }
            continue;
        }
        evict_tail(pool, SMALL);
        pool_push(pool, GHOST, tail);
        if (pool->list[GHOST].n > main_max) {
            pool_unlink(pool, pool->list[GHOST].tail);
        }
    }
}

static void s3_add(pool_t *pool, uint32_t key, uint32_t at)
{
    const uint32_t small_max = (pool->capacity < 10) ? 1 : pool->capacity / 10;
    unsigned       list      = SMALL;

    (void)at;
    if (pool->where[key] == GHOST) {
        pool_unlink(pool, key);
        list = MAIN;
    }
    while (pool_is_full(pool)) {
        if ((pool->list[SMALL].n >= small_max) || (pool->list[MAIN].n == 0)) {
            s3_evict_small(pool, pool->capacity - small_max);
        } else {
            s3_evict_main(pool);
        }
    }
    pool->mark[key] = 0;
    pool_push(pool, list, key);
    pool_take(pool, key);
}

const policy_t policy_s3fifo = {
    .name  = "s3fifo",
    .paper = "Yang, Zhang, Qiu, Yue, Rashmi: FIFO queues are all you need for cache eviction, SOSP'23",
    .use = s3_use, .add = s3_add};

/* ---- 2Q: a FIFO of a quarter for new blocks, an LRU for blocks used while remembered (half as many) ---- */

enum { A1_IN = 1, AM = 2, A1_OUT = 3 };

static void two_q_use(pool_t *pool, uint32_t key, uint32_t at)
{
    (void)at;
    if (pool->where[key] == AM) {
        pool_move(pool, AM, key);
    }
}

static void two_q_add(pool_t *pool, uint32_t key, uint32_t at)
{
    const bool known = pool->where[key] == A1_OUT;
    uint32_t   tail;

    (void)at;
    if (known) {
        pool_unlink(pool, key);
    }
    if (pool_is_full(pool)) {
        if ((pool->list[A1_IN].n > pool->capacity / 4) || (pool->list[AM].n == 0)) {
            tail = pool->list[A1_IN].tail;
            evict_tail(pool, A1_IN);
            pool_push(pool, A1_OUT, tail);
            if (pool->list[A1_OUT].n > pool->capacity / 2) {
                pool_unlink(pool, pool->list[A1_OUT].tail);
            }
        } else {
            evict_tail(pool, AM);
        }
    }
    pool_push(pool, known ? AM : A1_IN, key);
    pool_take(pool, key);
}

const policy_t policy_two_q = {
    .name = "2q", .paper = "Johnson, Shasha: 2Q: a low overhead high performance buffer management, VLDB'94",
    .use = two_q_use, .add = two_q_add};
