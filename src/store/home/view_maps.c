/*
 * The present map of a store, and the maps of one that follows views, in the steps of shards that move (dir/moves.h).
 * Owns nothing: a map is the store's once it is set. Engine lock held.
 */
#include "config.h"
#include "base/log.h"
#include "store/home/ranks.h"
#include "store/home/view_maps.h"

#include <stdlib.h>

void kvcl_store_map_set(kvcl_store_h store, kvcl_store_map_t *map)
{
    map->before     = atomic_load_explicit(&store->map, memory_order_relaxed);
    store->home.map = &map->shards;
    atomic_store_explicit(&store->map, map, memory_order_release);
}

/* The ranks that are to have shards. If all leave, each keeps its own until it has gone. */
static uint32_t list_ranks(const kvcl_moves_t *moves, bool leavers, uint32_t *ranks)
{
    uint32_t n = 0, i;

    for (i = 0; i < moves->n_ranks; ++i) {
        if ((moves->ranks[i].incarnation != 0) && (leavers || !moves->ranks[i].leaves)) {
            ranks[n++] = i;
        }
    }
    return ((n != 0) || leavers) ? n : list_ranks(moves, true, ranks);
}

kvcl_store_map_t *kvcl_view_map_make(kvcl_store_h store)
{
    const kvcl_store_views_t *views = store->views;
    kvcl_store_map_t         *map   = calloc(1, sizeof(*map));
    uint32_t                 *ranks = malloc(store->n_ranks * sizeof(*ranks)), n;

    n = (ranks != NULL) ? list_ranks(&views->moves, false, ranks) : 0;
    if ((map != NULL) && ((ranks == NULL) || (kvcl_shard_map_build(&map->shards, 1, ranks, n) != KVCL_OK))) {
        free(map);
        map = NULL;
    }
    free(ranks);
    if (map == NULL) {
        kvcl_log_error("no memory for the shard map of view %llu", (unsigned long long)views->view);
    }
    return map;
}

kvcl_shard_map_t *kvcl_view_map_old(kvcl_store_h store)
{
    const kvcl_store_map_t *now = atomic_load(&store->map);
    kvcl_shard_map_t       *old = malloc(sizeof(*old));
    uint32_t               i;

    if (old == NULL) {
        return NULL;
    }
    *old = ((now->old != NULL) && !now->switched) ? *now->old : now->shards;
    for (i = 0; i < store->n_ranks; ++i) {
        if (store->views->moves.ranks[i].incarnation == 0) {
            kvcl_moves_drop(old, i);
        }
    }
    return old;
}

void kvcl_view_map_set(kvcl_store_h store, kvcl_store_map_t *map)
{
    kvcl_store_map_set(store, map);
    kvcl_home_adopt(&store->home, &map->shards, map->old, store->incarnations, store->n_ranks);
    if ((map->old == NULL) || map->switched) {
        atomic_store(&store->settled, map);
    }
}

kvcl_store_map_t *kvcl_view_map_next(kvcl_store_h store, bool over)
{
    const kvcl_store_map_t *now = atomic_load(&store->map);
    kvcl_store_map_t       *map = malloc(sizeof(*map));

    if (map == NULL) {
        kvcl_log_error("no memory for a shard map: shards go on moving");
        return NULL;
    }
    *map          = *now;
    map->switched = !over;
    map->old      = over ? NULL : malloc(sizeof(*map->old));
    if (map->old != NULL) {
        *map->old = *now->old;
    }
    return map;
}
