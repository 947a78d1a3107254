/*
 * ARC: two LRU lists, of blocks seen once and of blocks seen more often, each with the keys that were evicted from it.
 * A hit among those keys moves the border between the two lists. Names are the paper's.
 */
#include "config.h"
#include "pool.h"

#include <stdlib.h>

enum { T1 = 1, T2 = 2, B1 = 3, B2 = 4 };

typedef struct arc {
    uint32_t p; /* target length of T1 */
} arc_t;

static bool arc_open(pool_t *pool)
{
    pool->own = calloc(1, sizeof(arc_t));
    return pool->own != NULL;
}

static void arc_close(pool_t *pool)
{
    free(pool->own);
}

static void arc_use(pool_t *pool, uint32_t key, uint32_t at)
{
    (void)at;
    pool_move(pool, T2, key);
}

static void demote(pool_t *pool, unsigned from, unsigned to)
{
    const uint32_t key = pool->list[from].tail;

    pool_move(pool, to, key);
    pool_drop(pool, key);
}

/* REPLACE */
static void replace(pool_t *pool, bool in_b2)
{
    const arc_t    *arc = pool->own;
    const uint32_t t1   = pool->list[T1].n;

    if (!pool_is_full(pool)) {
        return;
    }
    if ((t1 > 0) && ((t1 > arc->p) || (in_b2 && (t1 == arc->p)) || (pool->list[T2].n == 0))) {
        demote(pool, T1, B1);
    } else {
        demote(pool, T2, B2);
    }
}

/* A hit among the evicted keys moves p by the ratio of the two lists of evicted keys. */
static void adapt(pool_t *pool, bool in_b1)
{
    arc_t          *arc = pool->own;
    const uint32_t b1 = pool->list[B1].n, b2 = pool->list[B2].n, c = pool->capacity;
    uint32_t       step;

    if (in_b1) {
        step   = (b1 >= b2) ? 1 : b2 / b1;
        arc->p = (c - arc->p < step) ? c : arc->p + step;
    } else {
        step   = (b2 >= b1) ? 1 : b1 / b2;
        arc->p = (arc->p < step) ? 0 : arc->p - step;
    }
}

/* Case IV: neither held nor remembered. */
static void make_room(pool_t *pool)
{
    const uint32_t l1 = pool->list[T1].n + pool->list[B1].n, all = l1 + pool->list[T2].n + pool->list[B2].n;

    if (l1 >= pool->capacity) {
        if (pool->list[T1].n < pool->capacity) {
            pool_unlink(pool, pool->list[B1].tail);
            replace(pool, false);
        } else {
            const uint32_t victim = pool->list[T1].tail;
            pool_unlink(pool, victim);
            pool_drop(pool, victim);
        }
        return;
    }
    if ((all >= 2 * pool->capacity) && (pool->list[B2].n > 0)) {
        pool_unlink(pool, pool->list[B2].tail);
    }
    replace(pool, false);
}

static void arc_add(pool_t *pool, uint32_t key, uint32_t at)
{
    const unsigned where = pool->where[key];

    (void)at;
    if ((where == B1) || (where == B2)) {
        adapt(pool, where == B1);
        pool_unlink(pool, key);
        replace(pool, where == B2);
    } else {
        make_room(pool);
    }
    pool_push(pool, (where == 0) ? T1 : T2, key);
    pool_take(pool, key);
}

const policy_t policy_arc = {.name  = "arc",
                             .paper = "Megiddo, Modha: ARC: a self-tuning, low overhead replacement cache, FAST'03",
                             .open  = arc_open, .close = arc_close, .use = arc_use, .add = arc_add};
