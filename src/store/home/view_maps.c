/*
 * The present map of a store, and the maps of one that follows views, in the steps of shards that move (dir/moves.h).
 * Owns nothing: a map is the store's once it is set, and does not change any more; one that is equal to an earlier one
 * is freed, and that one used. Engine lock held.
 */
#include "config.h"
#include "base/log.h"
#include "store/home/ranks.h"
#include "store/home/view_maps.h"

#include <stdlib.h>
#include <string.h>

static void use(kvcl_store_h store, kvcl_store_map_t *map)
{
    store->home.map = &map->shards;
    atomic_store_explicit(&store->map, map, memory_order_release);
}

void kvcl_store_map_set(kvcl_store_h store, kvcl_store_map_t *map)
{
    map->before = store->maps;
    store->maps = map;
    use(store, map);
}

static void discard(kvcl_store_map_t *map)
{
    free(map->old);
    free(map->also);
    free(map);
}

static bool are_equal(const kvcl_shard_map_t *a, const kvcl_shard_map_t *b)
{
    if ((a == NULL) || (b == NULL)) {
        return a == b;
    }
    return (a->view == b->view) && (a->n_ranks == b->n_ranks) && (memcmp(a->home, b->home, sizeof(a->home)) == 0) &&
           (memcmp(a->backup, b->backup, sizeof(a->backup)) == 0);
}

/* A map that was made before and is equal to this one; NULL: there is none. */
static kvcl_store_map_t *find_equal(const struct kvcl_store *store, const kvcl_store_map_t *map)
{
    kvcl_store_map_t *at = store->maps;

    while ((at != NULL) && ((at->switched != map->switched) || !are_equal(&at->shards, &map->shards) ||
                            !are_equal(at->old, map->old) || !are_equal(at->also, map->also))) {
        at = at->before;
    }
    return at;
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

/* NULL: no memory. */
static kvcl_store_map_t *make(kvcl_store_h store)
{
    kvcl_store_map_t *map   = calloc(1, sizeof(*map));
    uint32_t         *ranks = malloc(store->n_ranks * sizeof(*ranks)), n;

    n = (ranks != NULL) ? list_ranks(&store->views->moves, false, ranks) : 0;
    if ((map != NULL) && ((ranks == NULL) || (kvcl_shard_map_build(&map->shards, 1, ranks, n) != KVCL_OK))) {
        free(map);
        map = NULL;
    }
    free(ranks);
    return map;
}

/* A copy of a map, less the ranks that take no part any more. NULL: no memory, or there is none. */
static kvcl_shard_map_t *copy_of(const struct kvcl_store *store, const kvcl_shard_map_t *map)
{
    kvcl_shard_map_t *copy = (map != NULL) ? malloc(sizeof(*copy)) : NULL;
    uint32_t         i;

    if (copy != NULL) {
        *copy = *map;
        for (i = 0; i < store->n_ranks; ++i) {
            if (store->views->moves.ranks[i].incarnation == 0) {
                kvcl_moves_drop(copy, i);
            }
        }
    }
    return copy;
}

/* False: no memory. */
static bool set_maps(const struct kvcl_store *store, kvcl_store_map_t *map, kvcl_moves_maps_t maps)
{
    map->old  = copy_of(store, maps.old);
    map->also = copy_of(store, maps.also);
    if (((map->old != NULL) == (maps.old != NULL)) && ((map->also != NULL) == (maps.also != NULL))) {
        return true;
    }
    discard(map);
    return false;
}

kvcl_store_map_t *kvcl_view_map_move(kvcl_store_h store, bool grows)
{
    const kvcl_store_map_t *now = atomic_load(&store->map);
    kvcl_store_map_t       *map = make(store);

    if ((map == NULL) || !set_maps(store, map, kvcl_moves_next(kvcl_store_maps(&now->shards), now->switched, grows))) {
        kvcl_log_error("no memory for the shard maps of view %llu", (unsigned long long)store->views->view);
        return NULL;
    }
    return map;
}

void kvcl_view_map_set(kvcl_store_h store, kvcl_store_map_t *map)
{
    kvcl_store_map_t *known = find_equal(store, map);

    if (known == NULL) {
        kvcl_store_map_set(store, map);
    } else {
        discard(map);
        map = known;
        use(store, map);
    }
    kvcl_home_adopt(&store->home, &map->shards, map->old, (map->old != NULL) ? map->also : NULL, store->incarnations,
                    store->n_ranks);
    if ((map->old == NULL) || map->switched) {
        atomic_store(&store->settled, map);
    }
}

kvcl_store_map_t *kvcl_view_map_next(kvcl_store_h store, bool over)
{
    const kvcl_store_map_t *now = atomic_load(&store->map);
    kvcl_store_map_t       *map = malloc(sizeof(*map));
    kvcl_moves_maps_t      maps = kvcl_store_maps(&now->shards);

    if (over) { /* what a move after this one begins with; a rank that has come had no map before */
        maps.also = store->ranks[store->me].fresh ? NULL : (maps.also != NULL) ? maps.also : maps.old;
        maps.old  = NULL;
    }
    if (map != NULL) {
        *map          = *now;
        map->switched = !over;
    }
    if ((map == NULL) || !set_maps(store, map, maps)) {
        kvcl_log_error("no memory for a shard map: shards go on moving");
        return NULL;
    }
    return map;
}
