/*
 * The pool's arrays, lists and counts (pool.h). A policy that breaks the rules ends the program, since its figures
 * would mean nothing.
 */
#include "config.h"
#include "pool.h"

#include <stdio.h>
#include <stdlib.h>

const policy_t *const policies[] = {
    &policy_kvcl, &policy_lru,  &policy_fifo,  &policy_sieve,  &policy_slru,     &policy_s3fifo,     &policy_two_q,
    &policy_arc,  &policy_lirs, &policy_lru_2, &policy_lfu_da, &policy_wtinylfu, &policy_wtinylfu_20, &policy_belady};
const size_t          n_policies = sizeof(policies) / sizeof(policies[0]);

static void broken(const pool_t *pool, const char *what, uint32_t key)
{
    fprintf(stderr, "policies: %s %s %u\n", pool->policy->name, what, key);
    abort();
}

pool_t *pool_open(const policy_t *policy, const chains_t *chains, uint32_t capacity)
{
    pool_t   *pool = calloc(1, sizeof(*pool));
    size_t   n     = chains->n_keys;
    unsigned i;

    if (pool == NULL) {
        return NULL;
    }
    pool->policy   = policy;
    pool->chains   = chains;
    pool->capacity = capacity;
    pool->held     = calloc(n, sizeof(*pool->held));
    pool->children = calloc(n, sizeof(*pool->children));
    pool->prev     = calloc(n, sizeof(*pool->prev));
    pool->after    = calloc(n, sizeof(*pool->after));
    pool->where    = calloc(n, sizeof(*pool->where));
    pool->mark     = calloc(n, sizeof(*pool->mark));
    for (i = 0; i < LISTS_MAX; ++i) {
        pool->list[i] = (list_t){.head = POOL_NONE, .tail = POOL_NONE};
    }
    if ((pool->held == NULL) || (pool->children == NULL) || (pool->prev == NULL) || (pool->after == NULL) ||
        (pool->where == NULL) || (pool->mark == NULL) || ((policy->open != NULL) && !policy->open(pool))) {
        pool_close(pool);
        return NULL;
    }
    return pool;
}

void pool_close(pool_t *pool)
{
    if (pool == NULL) {
        return;
    }
    if (pool->policy->close != NULL) {
        pool->policy->close(pool);
    }
    free(pool->held);
    free(pool->children);
    free(pool->prev);
    free(pool->after);
    free(pool->where);
    free(pool->mark);
    free(pool);
}

void pool_take(pool_t *pool, uint32_t key)
{
    const uint32_t parent = pool->chains->parent[key];

    if (pool->held[key] || (pool->used == pool->capacity)) {
        broken(pool, pool->held[key] ? "takes a block twice:" : "holds too many blocks with", key);
    }
    pool->held[key] = true;
    ++pool->used;
    if (parent != POOL_NONE) {
        ++pool->children[parent];
    }
}

void pool_drop(pool_t *pool, uint32_t key)
{
    const uint32_t parent = pool->chains->parent[key];

    if (!pool->held[key]) {
        broken(pool, "drops a block that it does not hold:", key);
    }
    pool->held[key] = false;
    --pool->used;
    ++pool->evicted;
    pool->orphans += (pool->children[key] != 0) ? 1 : 0;
    if (parent != POOL_NONE) {
        --pool->children[parent];
    }
}

void pool_push(pool_t *pool, unsigned list, uint32_t key)
{
    list_t *l = &pool->list[list];

    pool->where[key] = (uint8_t)list;
    pool->prev[key]  = POOL_NONE;
    pool->after[key] = l->head;
    if (l->head == POOL_NONE) {
        l->tail = key;
    } else {
        pool->prev[l->head] = key;
    }
    l->head = key;
    ++l->n;
}

void pool_unlink(pool_t *pool, uint32_t key)
{
    list_t *l = &pool->list[pool->where[key]];

    if (pool->prev[key] == POOL_NONE) {
        l->head = pool->after[key];
    } else {
        pool->after[pool->prev[key]] = pool->after[key];
    }
    if (pool->after[key] == POOL_NONE) {
        l->tail = pool->prev[key];
    } else {
        pool->prev[pool->after[key]] = pool->prev[key];
    }
    --l->n;
    pool->where[key] = 0;
}
