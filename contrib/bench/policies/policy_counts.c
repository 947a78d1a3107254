/*
 * Policies that count uses or record their times: LRU-2, LFU with dynamic aging, W-TinyLFU. Their records of evicted
 * blocks are kept for ever and exact, which favours them: the papers bound or sketch these records.
 */
#include "config.h"
#include "heap.h"
#include "pool.h"

#include <stdlib.h>

/* ---- LRU-2: evicts the block with the oldest last use but one; among blocks used once, the oldest use ---- */

typedef struct lru_2 {
    heap_t   heap;
    uint32_t *last;  /* by key: when it was used, 0: never */
    uint32_t *before;
    uint32_t now;
} lru_2_t;

static void lru_2_close(pool_t *pool)
{
    lru_2_t *lru = pool->own;

    if (lru != NULL) {
        heap_close(&lru->heap);
        free(lru->last);
        free(lru->before);
    }
    free(lru);
}

static bool lru_2_open(pool_t *pool)
{
    lru_2_t *lru = calloc(1, sizeof(*lru));

    pool->own = lru;
    if (lru == NULL) {
        return false;
    }
    lru->last   = calloc(pool->chains->n_keys, sizeof(*lru->last));
    lru->before = calloc(pool->chains->n_keys, sizeof(*lru->before));
    return heap_open(&lru->heap, pool->chains->n_keys) && (lru->last != NULL) && (lru->before != NULL);
}

static void lru_2_use(pool_t *pool, uint32_t key, uint32_t at)
{
    lru_2_t *lru = pool->own;

    (void)at;
    lru->before[key] = lru->last[key];
    lru->last[key]   = ++lru->now;
    heap_set(&lru->heap, key, ((uint64_t)lru->before[key] << 32) | lru->last[key]);
}

static void lru_2_add(pool_t *pool, uint32_t key, uint32_t at)
{
    lru_2_t *lru = pool->own;

    if (pool_is_full(pool)) {
        pool_drop(pool, heap_pop(&lru->heap));
    }
    pool_take(pool, key);
    lru_2_use(pool, key, at);
}

const policy_t policy_lru_2 = {
    .name = "lru-2", .paper = "O'Neil, O'Neil, Weikum: The LRU-K page replacement algorithm, SIGMOD'93",
    .open = lru_2_open, .close = lru_2_close, .use = lru_2_use, .add = lru_2_add};

/* ---- LFU-DA: uses while held, plus the count of the last evicted block as the age; the oldest of equals is evicted
 * ---- */

typedef struct lfu {
    heap_t   heap;
    uint32_t *uses;
    uint32_t age;
    uint32_t now;
} lfu_t;

static void lfu_close(pool_t *pool)
{
    lfu_t *lfu = pool->own;

    if (lfu != NULL) {
        heap_close(&lfu->heap);
        free(lfu->uses);
    }
    free(lfu);
}

static bool lfu_open(pool_t *pool)
{
    lfu_t *lfu = calloc(1, sizeof(*lfu));

    pool->own = lfu;
    if (lfu == NULL) {
        return false;
    }
    lfu->uses = calloc(pool->chains->n_keys, sizeof(*lfu->uses));
    return heap_open(&lfu->heap, pool->chains->n_keys) && (lfu->uses != NULL);
}

static void lfu_use(pool_t *pool, uint32_t key, uint32_t at)
{
    lfu_t *lfu = pool->own;

    (void)at;
    heap_set(&lfu->heap, key, ((uint64_t)(++lfu->uses[key] + lfu->age) << 32) | ++lfu->now);
}

static void lfu_add(pool_t *pool, uint32_t key, uint32_t at)
{
    lfu_t *lfu = pool->own;

    if (pool_is_full(pool)) {
        lfu->age = (uint32_t)(lfu->heap.rank[heap_top(&lfu->heap)] >> 32);
        pool_drop(pool, heap_pop(&lfu->heap));
    }
    lfu->uses[key] = 0;
    pool_take(pool, key);
    lfu_use(pool, key, at);
}

const policy_t policy_lfu_da = {
    .name  = "lfu-da",
    .paper = "Arlitt, Cherkasova, Dilley, Friedrich, Jin: Evaluating content management techniques, 2000",
    .open = lfu_open, .close = lfu_close, .use = lfu_use, .add = lfu_add};

/* ---- W-TinyLFU: a window in LRU order, followed by an SLRU that admits only a block used more often than the one it
 * would displace. Counts stop at 15 and are halved after ten uses per block of the pool. ---- */

enum { WINDOW = 1, PROBATION = 2, PROTECTED = 3, COUNT_MAX = 15 };

typedef struct tiny {
    uint8_t  *count;
    uint64_t counted;
    uint32_t window_max;
    uint32_t protected_max;
} tiny_t;

static void tiny_close(pool_t *pool)
{
    tiny_t *tiny = pool->own;

    if (tiny != NULL) {
        free(tiny->count);
    }
    free(tiny);
}

static bool tiny_open_with(pool_t *pool, unsigned window_percent)
{
    tiny_t *tiny = calloc(1, sizeof(*tiny));

    pool->own = tiny;
    if (tiny == NULL) {
        return false;
    }
    tiny->window_max    = (uint32_t)(((uint64_t)pool->capacity * window_percent) / 100);
    tiny->window_max    = (tiny->window_max == 0) ? 1 : tiny->window_max;
    tiny->protected_max = (uint32_t)(((uint64_t)(pool->capacity - tiny->window_max) * 8) / 10);
    tiny->count         = calloc(pool->chains->n_keys, sizeof(*tiny->count));
    return tiny->count != NULL;
}

static bool tiny_open(pool_t *pool)
{
    return tiny_open_with(pool, 1);
}

static bool tiny_20_open(pool_t *pool)
{
    return tiny_open_with(pool, 20);
}

static void count(pool_t *pool, uint32_t key)
{
    tiny_t   *tiny = pool->own;
    uint32_t i;

    tiny->count[key] = (uint8_t)((tiny->count[key] < COUNT_MAX) ? tiny->count[key] + 1 : COUNT_MAX);
    if (++tiny->counted < (uint64_t)pool->capacity * 10) {
        return;
    }
    for (i = 0; i < pool->chains->n_keys; ++i) {
        tiny->count[i] /= 2;
    }
    tiny->counted /= 2;
}

static void tiny_use(pool_t *pool, uint32_t key, uint32_t at)
{
    tiny_t *tiny = pool->own;

    (void)at;
    count(pool, key);
    pool_move(pool, (pool->where[key] == WINDOW) ? WINDOW : PROTECTED, key);
    if (pool->list[PROTECTED].n > tiny->protected_max) {
        pool_move(pool, PROBATION, pool->list[PROTECTED].tail);
    }
}

static void tiny_evict(pool_t *pool)
{
    tiny_t         *tiny = pool->own;
    const uint32_t comes = (pool->list[WINDOW].n >= tiny->window_max) ? pool->list[WINDOW].tail : POOL_NONE;
    uint32_t       goes  = pool->list[PROBATION].tail;

    goes = (goes == POOL_NONE) ? pool->list[PROTECTED].tail : goes;
    if ((comes != POOL_NONE) && ((goes == POOL_NONE) || (tiny->count[comes] <= tiny->count[goes]))) {
        goes = comes;
    } else if (comes != POOL_NONE) {
        pool_move(pool, PROBATION, comes);
    }
    pool_unlink(pool, goes);
    pool_drop(pool, goes);
}

static void tiny_add(pool_t *pool, uint32_t key, uint32_t at)
{
    tiny_t *tiny = pool->own;

    (void)at;
    count(pool, key);
    if (pool_is_full(pool)) {
        tiny_evict(pool);
    } else if (pool->list[WINDOW].n >= tiny->window_max) {
        pool_move(pool, PROBATION, pool->list[WINDOW].tail);
    }
    pool_push(pool, WINDOW, key);
    pool_take(pool, key);
}

const policy_t policy_wtinylfu = {
    .name  = "wtinylfu",
    .paper = "Einziger, Friedman, Manes: TinyLFU: a highly efficient cache admission policy, ToS 2017",
    .open = tiny_open, .close = tiny_close, .use = tiny_use, .add = tiny_add};
const policy_t policy_wtinylfu_20 = {
    .name = "wtinylfu20", .paper = "the same with a window of 20% in place of 1%",
    .open = tiny_20_open, .close = tiny_close, .use = tiny_use, .add = tiny_add};
