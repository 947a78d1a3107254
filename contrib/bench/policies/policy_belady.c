/*
 * Belady's MIN, which reads the trace ahead: it evicts the block whose next use is latest, and does not admit a block
 * that it would evict at once. Among blocks that one request uses next, it evicts the deepest of the chain first. No
 * policy has more block hits; none has more hits in leading runs than MIN has block hits.
 */
#include "config.h"
#include "heap.h"
#include "pool.h"

#include <stdlib.h>

typedef struct belady {
    heap_t heap;
} belady_t;

static void belady_close(pool_t *pool)
{
    belady_t *belady = pool->own;

    if (belady != NULL) {
        heap_close(&belady->heap);
    }
    free(belady);
}

static bool belady_open(pool_t *pool)
{
    belady_t *belady = calloc(1, sizeof(*belady));

    pool->own = belady;
    return (belady != NULL) && heap_open(&belady->heap, pool->chains->n_keys);
}

/* The top of the heap is the latest next use. `use` and `add` are called tail first: the deepest of a request first. */
static uint64_t rank_of(const pool_t *pool, uint32_t at)
{
    return ((uint64_t)(POOL_NONE - pool->chains->next[at]) << 32) | (POOL_NONE - at);
}

static void belady_use(pool_t *pool, uint32_t key, uint32_t at)
{
    belady_t *belady = pool->own;

    heap_set(&belady->heap, key, rank_of(pool, at));
}

static void belady_add(pool_t *pool, uint32_t key, uint32_t at)
{
    belady_t       *belady = pool->own;
    const uint64_t rank    = rank_of(pool, at);

    if (pool_is_full(pool)) {
        if (rank <= belady->heap.rank[heap_top(&belady->heap)]) {
            return;
        }
        pool_drop(pool, heap_pop(&belady->heap));
    }
    pool_take(pool, key);
    heap_set(&belady->heap, key, rank);
}

const policy_t policy_belady = {
    .name = "belady", .paper = "Belady: A study of replacement algorithms for a virtual-storage computer, 1966",
    .offline = true, .open = belady_open, .close = belady_close, .use = belady_use, .add = belady_add};
