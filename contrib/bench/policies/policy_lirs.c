/*
 * LIRS: blocks with a short distance between their last two uses (LIR) are held; the others (HIR) pass through a short
 * queue Q. The stack S has LIR blocks, and HIR blocks, held or not, that are younger than the oldest LIR; its last
 * block is always LIR. Q takes a hundredth of the pool, as in the paper. The blocks of S that are not held are bounded
 * by three times the pool; the oldest are forgotten first.
 */
#include "config.h"
#include "pool.h"

#include <stdlib.h>

/* Lists of the pool: S, Q as the pool's own links; the stack's order needs a second pair of links. */
enum { S = 1, Q = 2, FORGOTTEN = 3 };
enum { NOT_IN_S = 0, LIR = 1, HIR = 2 }; /* mark: the block's state in S; an HIR block of Q may be out of S */

typedef struct lirs {
    uint32_t *prev, *after; /* links of Q and of the forgotten */
    uint8_t  *in;           /* 0, Q or FORGOTTEN */
    list_t   list[4];
    uint32_t n_lir;
    uint32_t lir_max;
} lirs_t;

static void side_push(lirs_t *lirs, unsigned list, uint32_t key)
{
    list_t *l = &lirs->list[list];

    lirs->in[key]    = (uint8_t)list;
    lirs->prev[key]  = POOL_NONE;
    lirs->after[key] = l->head;
    if (l->head == POOL_NONE) {
        l->tail = key;
    } else {
        lirs->prev[l->head] = key;
    }
    l->head = key;
    ++l->n;
}

static void side_unlink(lirs_t *lirs, uint32_t key)
{
    list_t *l = &lirs->list[lirs->in[key]];

    if (lirs->in[key] == 0) {
        return;
    }
    if (lirs->prev[key] == POOL_NONE) {
        l->head = lirs->after[key];
    } else {
        lirs->after[lirs->prev[key]] = lirs->after[key];
    }
    if (lirs->after[key] == POOL_NONE) {
        l->tail = lirs->prev[key];
    } else {
        lirs->prev[lirs->after[key]] = lirs->prev[key];
    }
    --l->n;
    lirs->in[key] = 0;
}

static void lirs_close(pool_t *pool)
{
    lirs_t *lirs = pool->own;

    if (lirs != NULL) {
        free(lirs->prev);
        free(lirs->after);
        free(lirs->in);
    }
    free(lirs);
}

static bool lirs_open(pool_t *pool)
{
    lirs_t   *lirs = calloc(1, sizeof(*lirs));
    unsigned i;

    pool->own = lirs;
    if (lirs == NULL) {
        return false;
    }
    for (i = 0; i < 4; ++i) {
        lirs->list[i] = (list_t){.head = POOL_NONE, .tail = POOL_NONE};
    }
    lirs->lir_max = pool->capacity - ((pool->capacity < 200) ? 2 : pool->capacity / 100);
    lirs->lir_max = (pool->capacity < 3) ? 1 : lirs->lir_max;
    lirs->prev    = calloc(pool->chains->n_keys, sizeof(*lirs->prev));
    lirs->after   = calloc(pool->chains->n_keys, sizeof(*lirs->after));
    lirs->in      = calloc(pool->chains->n_keys, sizeof(*lirs->in));
    return (lirs->prev != NULL) && (lirs->after != NULL) && (lirs->in != NULL);
}

static void leave_stack(pool_t *pool, uint32_t key)
{
    pool_unlink(pool, key);
    pool->mark[key] = NOT_IN_S;
}

/* Remove blocks from the end of S until its last is LIR. */
static void prune(pool_t *pool)
{
    lirs_t   *lirs = pool->own;
    uint32_t tail;

    while (((tail = pool->list[S].tail) != POOL_NONE) && (pool->mark[tail] != LIR)) {
        leave_stack(pool, tail);
        if (lirs->in[tail] == FORGOTTEN) {
            side_unlink(lirs, tail);
        }
    }
}

/* Make the last LIR block of S an HIR block while there are too many. */
static void shrink(pool_t *pool)
{
    lirs_t *lirs = pool->own;

    while (lirs->n_lir > lirs->lir_max) {
        const uint32_t tail = pool->list[S].tail;
        --lirs->n_lir;
        leave_stack(pool, tail);
        side_push(lirs, Q, tail);
        prune(pool);
    }
}

static void to_top(pool_t *pool, uint32_t key, uint8_t mark)
{
    if (pool->mark[key] != NOT_IN_S) {
        pool_unlink(pool, key);
    }
    pool->mark[key] = mark;
    pool_push(pool, S, key);
}

static void lirs_use(pool_t *pool, uint32_t key, uint32_t at)
{
    lirs_t *lirs = pool->own;

    (void)at;
    if (pool->mark[key] == LIR) {
        to_top(pool, key, LIR);
        prune(pool);
    } else if (pool->mark[key] == HIR) { /* its two last uses are closer than those of the oldest LIR */
        side_unlink(lirs, key);
        to_top(pool, key, LIR);
        ++lirs->n_lir;
        shrink(pool);
    } else {
        side_unlink(lirs, key);
        side_push(lirs, Q, key);
        to_top(pool, key, HIR);
    }
}

/* Evict the oldest of Q; S keeps its record. */
static void evict_one(pool_t *pool)
{
    lirs_t   *lirs = pool->own;
    uint32_t victim;

    if (lirs->list[Q].n == 0) { /* all are LIR */
        victim = pool->list[S].tail;
        leave_stack(pool, victim);
        --lirs->n_lir;
        prune(pool);
        pool_drop(pool, victim);
        return;
    }
    victim = lirs->list[Q].tail;
    side_unlink(lirs, victim);
    pool_drop(pool, victim);
    if (pool->mark[victim] == HIR) {
        side_push(lirs, FORGOTTEN, victim);
        if (lirs->list[FORGOTTEN].n > 3 * (uint64_t)pool->capacity) {
            victim = lirs->list[FORGOTTEN].tail;
            side_unlink(lirs, victim);
            leave_stack(pool, victim);
        }
    }
}

static void lirs_add(pool_t *pool, uint32_t key, uint32_t at)
{
    lirs_t *lirs = pool->own;
    bool   known;

    (void)at;
    if (pool_is_full(pool)) {
        evict_one(pool);
    }
    known = pool->mark[key] == HIR;
    side_unlink(lirs, key); /* it is not forgotten */
    pool_take(pool, key);
    if (known || (lirs->n_lir < lirs->lir_max)) {
        to_top(pool, key, LIR);
        ++lirs->n_lir;
        shrink(pool);
        return;
    }
    to_top(pool, key, HIR);
    side_push(lirs, Q, key);
}

const policy_t policy_lirs = {
    .name  = "lirs",
    .paper = "Jiang, Zhang: LIRS: an efficient low inter-reference recency set replacement policy, SIGMETRICS'02",
    .open = lirs_open, .close = lirs_close, .use = lirs_use, .add = lirs_add};
