/*
 * A simulated pool of blocks, shared by all policies. Keys are small numbers (the order of their first use in the
 * trace), so lists, marks and held blocks are plain arrays indexed by key.
 *
 * A policy admits blocks (pool_take) and evicts them (pool_drop). The pool counts: it refuses to exceed its capacity,
 * and records each block that is evicted while a successor in its chain is still held ("orphans"). The pool owns its
 * arrays; `own` is the policy's. One thread.
 */
#ifndef KVCL_BENCH_POLICIES_POOL_H
#define KVCL_BENCH_POLICIES_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POOL_NONE UINT32_MAX

/* A trace of numbered keys, and the arrays derived from it. */
typedef struct chains {
    uint32_t *ids;         /* ids of all requests, one after the other */
    uint32_t *first;       /* index of each request's first id, and one more */
    uint32_t *parent;      /* parent of each key in its chain, POOL_NONE for a first one */
    uint32_t *next;        /* for each id: the next request that names the same key, POOL_NONE: none */
    uint32_t n_ids, n_requests, n_keys;
    uint32_t longest;      /* blocks of the longest request */
} chains_t;

enum { LISTS_MAX = 6 };

typedef struct list {
    uint32_t head; /* youngest */
    uint32_t tail;
    uint32_t n;
} list_t;

struct policy;

typedef struct pool {
    const struct policy *policy;
    const chains_t      *chains;
    uint32_t            capacity;
    uint32_t            used;
    uint64_t            evicted;
    uint64_t            orphans;
    bool                *held;      /* by key, as all arrays here */
    uint32_t            *children;  /* number of held successors */
    uint32_t            *prev, *after;
    uint8_t             *where;     /* list that contains it, 0: none */
    uint8_t             *mark;      /* the policy's */
    list_t              list[LISTS_MAX];
    void                *own;
} pool_t;

typedef struct policy {
    const char *name;
    const char *paper; /* its source */
    bool       offline;
    bool       (*open)(pool_t *pool); /* NULL: nothing to do; false: out of memory */
    void       (*close)(pool_t *pool);
    /* A held block is used; `at` is its place in chains->ids. */
    void       (*use)(pool_t *pool, uint32_t key, uint32_t at);
    /* A block that is not held is inserted (an offline policy may refuse it). */
    void       (*add)(pool_t *pool, uint32_t key, uint32_t at);
    void       (*room)(pool_t *pool, uint32_t n); /* n adds follow; or NULL */
    unsigned   uses; /* reports of a hit, as the store makes with a match and a get. 0: one */
} policy_t;

pool_t *pool_open(const policy_t *policy, const chains_t *chains, uint32_t capacity); /* NULL: out of memory */
void    pool_close(pool_t *pool);

void    pool_take(pool_t *pool, uint32_t key);
void    pool_drop(pool_t *pool, uint32_t key);

static inline bool pool_is_full(const pool_t *pool)
{
    return pool->used >= pool->capacity;
}

/* Lists 1..LISTS_MAX-1, a key in at most one. */
void pool_push(pool_t *pool, unsigned list, uint32_t key);
void pool_unlink(pool_t *pool, uint32_t key);

static inline void pool_move(pool_t *pool, unsigned list, uint32_t key)
{
    pool_unlink(pool, key);
    pool_push(pool, list, key);
}

/* The policies that main() runs. The library's own is first, offline ones are last. */
extern const policy_t *const policies[];
extern const size_t          n_policies;

extern const policy_t policy_kvcl, policy_lru, policy_fifo, policy_sieve, policy_slru, policy_s3fifo, policy_two_q,
    policy_arc, policy_lirs, policy_lru_2, policy_lfu_da, policy_wtinylfu, policy_wtinylfu_20, policy_belady;

#endif
