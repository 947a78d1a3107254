/*
 * Hot blocks: this rank keeps, in its pool, copies of blocks that it gets from other ranks often.
 *
 * Gets are counted in a sketch: two rows of small counters, in which each key has one counter a row; its count is the
 * smaller of the two. All counters are halved from time to time, so blocks that were hot once are forgotten. A count
 * that is too high, by collision, costs one needless copy. The copy is an ordinary one: every rank finds it, and it is
 * evicted like any other. Lock: the engine's.
 */
#include "config.h"
#include "store/copy/copy_jobs.h"
#include "store/copy/hot.h"
#include "store/get/get.h"
#include "store/pool/pool.h"

#include <stdlib.h>

enum { CELLS = 4096, BATCH = 64, AGE_AFTER = CELLS * 8 };

struct kvcl_hot {
    uint8_t  rows[2][CELLS];
    uint32_t counted; /* since the last halving */
};

kvcl_status_t kvcl_hot_open(kvcl_store_h store)
{
    if ((store->pool == NULL) || (store->ctx->config.store_hot == 0)) {
        return KVCL_OK;
    }
    store->hot = calloc(1, sizeof(*store->hot));
    return (store->hot != NULL) ? KVCL_OK : KVCL_ERR_NO_MEMORY;
}

static void halve(struct kvcl_hot *hot)
{
    unsigned row, i;

    for (row = 0; row < 2; ++row) {
        for (i = 0; i < CELLS; ++i) {
            hot->rows[row][i] /= 2;
        }
    }
    hot->counted = 0;
}

/* Count one get of a key and report whether the key is hot; if so, its count restarts at zero. */
static bool is_hot(struct kvcl_hot *hot, const kvcl_key_t *key, unsigned limit)
{
    uint8_t  *cells[2];
    uint32_t at;
    unsigned row, least = UINT8_MAX;

    for (row = 0; row < 2; ++row) {
        memcpy(&at, key->bytes + 8 + (row * sizeof(at)), sizeof(at));
        cells[row]   = &hot->rows[row][at % CELLS];
        *cells[row] += (*cells[row] < UINT8_MAX) ? 1 : 0;
        least        = (*cells[row] < least) ? *cells[row] : least;
    }
    if (++hot->counted == AGE_AFTER) {
        halve(hot);
    }
    if (least < limit) {
        return false;
    }
    *cells[0] = (uint8_t)(*cells[0] - least);
    *cells[1] = (uint8_t)(*cells[1] - least);
    return true;
}

/* Is it another rank's block, and not in mapped memory? */
static bool is_afar(const struct kvcl_store *store, const kvcl_dir_loc_t *loc)
{
    unsigned i;

    if (loc->rank == store->me) {
        return false;
    }
    for (i = 0; i < KVCL_STORE_RCACHES; ++i) {
        const kvcl_rcache_t *rcache = atomic_load_explicit(&((struct kvcl_store *)(uintptr_t)store)->ranks[loc->rank].
                                                           rcaches[i], memory_order_acquire);
        if ((rcache != NULL) && (rcache->id == loc->cache)) {
            return false;
        }
    }
    return true;
}

static void keep(kvcl_store_h store, const kvcl_store_rec_t *recs, uint32_t n)
{
    kvcl_copy_head_t head = {.copies = 1};

    if ((n != 0) && (kvcl_copy_here(store, &head, recs, NULL, n, NULL) != KVCL_OK)) {
        return; /* too much is in flight, or pinned: they may become hot again */
    }
}

void kvcl_hot_got(kvcl_get_t *get)
{
    kvcl_store_h     store = get->store;
    kvcl_store_rec_t recs[BATCH];
    uint32_t         n = 0;
    size_t           i;

    kvcl_assert_locked(store->ctx);
    if ((store->hot == NULL) || store->closing || store->draining) {
        return;
    }
    for (i = 0; (i < get->n) && (n < BATCH); ++i) {
        const kvcl_get_item_t *item = &get->items[i];
        const kvcl_dir_loc_t  *loc  = kvcl_get_loc(item);
        if ((item->why == KVCL_OK) && !item->from_tier && (kvcl_pool_for(store, loc->len) != NULL) &&
            is_afar(store, loc) && is_hot(store->hot, &item->key, (unsigned)store->ctx->config.store_hot)) {
            recs[n++] = (kvcl_store_rec_t){.key = item->key, .loc = *loc};
        }
    }
    keep(store, recs, n);
}
