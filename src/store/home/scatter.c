/*
 * Scattering items over ranks: keys and records to their homes, or items to given ranks. A stable counting sort.
 *
 * A scatter owns one allocation. Any thread; the only shared state is the shard map, which is read once.
 */
#include "config.h"
#include "base/error.h"
#include "dir/moves.h"
#include "store/home/ranks.h"
#include "store/store.h"

#include <stdlib.h>

/* Room for n ranks' starts, for per * n items in order, and for more values, all of them 0. */
static kvcl_status_t allocate(uint32_t n_ranks, unsigned per, size_t n, size_t more, kvcl_scatter_t *scatter)
{
    scatter->starts = calloc((size_t)n_ranks + 1 + (per * n) + more, sizeof(*scatter->starts));
    if (scatter->starts == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory to assign %zu keys to %u ranks", n, n_ranks);
    }
    scatter->order = scatter->starts + n_ranks + 1;
    return KVCL_OK;
}

/* KVCL_SHARD_NO_RANK becomes n_ranks: items of no rank come last, without a branch that is often mispredicted. */
static inline uint32_t bucket_of(uint32_t rank, uint32_t n_ranks)
{
    return (rank < n_ranks) ? rank : n_ranks;
}

/* to has per ranks of each item. */
static inline void sort(uint32_t n_ranks, const uint32_t *to, unsigned per, size_t n, kvcl_scatter_t *scatter)
{
    uint32_t *at = scatter->starts;
    size_t   i, j;

    for (i = 0; i < per * n; ++i) {
        ++at[bucket_of(to[i], n_ranks)];
    }
    for (i = 1; i <= n_ranks; ++i) {
        at[i] += at[i - 1];
    }
    for (i = n; i-- > 0;) { /* backwards: each start ends where its items begin */
        for (j = per; j-- > 0;) {
            scatter->order[--at[bucket_of(to[(per * i) + j], n_ranks)]] = (uint32_t)i;
        }
    }
}

kvcl_status_t kvcl_scatter_to(uint32_t n_ranks, const uint32_t *to, unsigned per, size_t n, kvcl_scatter_t *scatter)
{
    kvcl_status_t status = allocate(n_ranks, per, n, 0, scatter);

    if (status == KVCL_OK) {
        sort(n_ranks, to, per, n, scatter);
    }
    return status;
}

/* Which homes of an item receive it. */
typedef enum { TO_ONE, TO_BOTH, TO_ALL_OF_RECORD } to_t;

/* Writes the item's homes: one, or up to two, or up to six while shards move; a record has two in a map if its flags
 * or the store say so. A caller's keys may lie at any address, so only records are read as records. */
static inline void homes_of(kvcl_store_h store, const kvcl_shard_map_t *map, const void *item, to_t to,
                            uint32_t *homes)
{
    const kvcl_key_t *key = item; /* a record begins with its key */
    bool             two  = store->replicas > 1;

    if (to == TO_ONE) {
        homes[0] = kvcl_store_home(store, map, key);
        return;
    }
    if (to == TO_ALL_OF_RECORD) {
        two = kvcl_store_two_homes(store, ((const kvcl_store_rec_t *)item)->loc.flags);
    }
    if (kvcl_store_old(map) != NULL) {
        kvcl_moves_homes(kvcl_store_maps(map), key, two, homes);
        return;
    }
    homes[0] = kvcl_shard_home(map, key);
    homes[1] = two ? kvcl_shard_backup(map, key) : KVCL_SHARD_NO_RANK;
}

/* skip, with TO_ONE only: items whose byte is not 0 are left out. */
static kvcl_status_t scatter_items(kvcl_store_h store, const char *items, size_t stride, size_t n, const uint8_t *skip,
                                   to_t to, kvcl_scatter_t *scatter)
{
    const kvcl_shard_map_t *map = kvcl_store_shards(store);
    const unsigned         per  = (to == TO_ONE) ? 1 : (kvcl_store_old(map) == NULL) ? 2 : KVCL_MOVES_HOMES;
    uint32_t               *homes; /* kept: which ranks are suspected may change between two passes */
    kvcl_status_t          status;
    size_t                 i;

    scatter->starts = NULL;
    if (n > (UINT32_MAX - 1) / KVCL_MOVES_HOMES) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%zu keys are too many for one call: pass at most %u", n,
                         (UINT32_MAX - 1) / KVCL_MOVES_HOMES);
    }
    status = allocate(store->n_ranks, per, n, per * n, scatter);
    if (status != KVCL_OK) {
        return status;
    }
    homes = scatter->order + (per * n);
    for (i = 0; i < n; ++i) {
        homes_of(store, map, items + (i * stride), to, &homes[per * i]);
    }
    for (i = 0; (skip != NULL) && (i < n); ++i) {
        homes[i] |= (skip[i] != 0) ? KVCL_SHARD_NO_RANK : 0;
    }
    sort(store->n_ranks, homes, per, n, scatter);
    return KVCL_OK;
}

kvcl_status_t kvcl_scatter_keys(kvcl_store_h store, const void *keys, size_t stride, size_t n, const uint8_t *skip,
                                kvcl_scatter_t *scatter)
{
    return scatter_items(store, keys, stride, n, skip, TO_ONE, scatter);
}

kvcl_status_t kvcl_scatter_both(kvcl_store_h store, const void *keys, size_t stride, size_t n, kvcl_scatter_t *scatter)
{
    return scatter_items(store, keys, stride, n, NULL, TO_BOTH, scatter);
}

kvcl_status_t kvcl_scatter_recs(kvcl_store_h store, const kvcl_store_rec_t *recs, size_t n, kvcl_scatter_t *scatter)
{
    return scatter_items(store, (const char *)recs, sizeof(*recs), n, NULL, TO_ALL_OF_RECORD, scatter);
}

void kvcl_scatter_free(kvcl_scatter_t *scatter)
{
    free(scatter->starts);
    scatter->starts = NULL;
}
