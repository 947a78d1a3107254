/*
 * The library's own order, src/policy/evict.c, called as a store calls it: each hit counts as a match and a get, and a
 * put makes room for all its new blocks before it inserts the first.
 */
#include "config.h"
#include "pool.h"

#include "base/rand.h"
#include "policy/evict.h"

#include <stdlib.h>

typedef struct own {
    kvcl_evict_t evict;
    void         *mem;
    uint32_t     *slot_of; /* by key */
    uint32_t     *key_of;  /* by slot */
    uint32_t     *free;    /* free slots: capacity - used of them */
} own_t;

static void own_close(pool_t *pool)
{
    own_t *own = pool->own;

    if (own != NULL) {
        free(own->mem);
        free(own->slot_of);
        free(own->key_of);
        free(own->free);
    }
    free(own);
}

static bool own_open(pool_t *pool)
{
    const size_t bytes = kvcl_evict_bytes(pool->capacity);
    own_t        *own  = calloc(1, sizeof(*own));
    uint32_t     i;

    pool->own = own;
    if (own == NULL) {
        return false;
    }
    own->mem     = malloc(bytes);
    own->slot_of = calloc(pool->chains->n_keys, sizeof(*own->slot_of));
    own->key_of  = calloc(pool->capacity, sizeof(*own->key_of));
    own->free    = calloc(pool->capacity, sizeof(*own->free));
    if ((own->mem == NULL) || (own->slot_of == NULL) || (own->key_of == NULL) || (own->free == NULL)) {
        return false;
    }
    for (i = 0; i < pool->capacity; ++i) {
        own->free[i] = i;
    }
    return kvcl_evict_init(&own->evict, pool->capacity, own->mem, bytes) == KVCL_OK;
}

static void own_use(pool_t *pool, uint32_t key, uint32_t at)
{
    own_t *own = pool->own;

    (void)at;
    kvcl_evict_touch(&own->evict, own->slot_of[key]);
}

static void own_room(pool_t *pool, uint32_t n)
{
    own_t    *own = pool->own;
    uint32_t slot;

    while ((pool->capacity - pool->used < n) && (kvcl_evict_victim(&own->evict, &slot) == KVCL_OK)) {
        pool_drop(pool, own->key_of[slot]);
        own->free[pool->capacity - pool->used - 1] = slot;
    }
}

static void own_add(pool_t *pool, uint32_t key, uint32_t at)
{
    own_t    *own = pool->own;
    uint64_t hash = key;
    uint32_t slot;

    (void)at;
    own_room(pool, 1); /* a request longer than the pool */
    slot = own->free[pool->capacity - pool->used - 1];
    own->slot_of[key] = slot;
    own->key_of[slot] = key;
    pool_take(pool, key);
    if (kvcl_evict_insert(&own->evict, slot, kvcl_splitmix64(&hash)) != KVCL_OK) {
        abort();
    }
}

const policy_t policy_kvcl = {.name = "kvcl", .paper = "src/policy/evict.c", .open = own_open, .close = own_close,
                              .use = own_use, .add = own_add, .room = own_room, .uses = 2};
