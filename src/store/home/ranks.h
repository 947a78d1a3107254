/*
 * The ranks that take part in a store: their homes, suspicion, and the choice of ranks for copies (home/ranks.c).
 */
#ifndef KVCL_STORE_HOME_RANKS_H
#define KVCL_STORE_HOME_RANKS_H

#include "dir/moves.h"
#include "store/hello.h"
#include "store/store.h"

static inline const kvcl_shard_map_t *kvcl_store_shards(const struct kvcl_store *store)
{
    return &atomic_load_explicit(&((struct kvcl_store *)store)->map, memory_order_acquire)->shards;
}

/* The map from which shards move to this one; NULL: none do. */
static inline const kvcl_shard_map_t *kvcl_store_old(const kvcl_shard_map_t *map)
{
    return ((const kvcl_store_map_t *)map)->old;
}

/* All that count. */
static inline kvcl_moves_maps_t kvcl_store_maps(const kvcl_shard_map_t *map)
{
    const kvcl_store_map_t *at = (const kvcl_store_map_t *)map;

    return (kvcl_moves_maps_t){.map = map, .old = at->old, .also = at->also};
}

/* Are keys looked up by the map before? */
static inline bool kvcl_store_reads_old(const kvcl_shard_map_t *map)
{
    return (kvcl_store_old(map) != NULL) && !((const kvcl_store_map_t *)map)->switched;
}

/* Is a location with these flags listed at two homes, the home and the backup of its key? */
static inline bool kvcl_store_two_homes(const struct kvcl_store *store, unsigned flags)
{
    return (store->replicas > 1) || (kvcl_loc_copies(flags) > 1);
}

static inline bool kvcl_store_suspects(const struct kvcl_store *store, uint32_t rank)
{
    return atomic_load_explicit(&((struct kvcl_store *)store)->ranks[rank].avoided, memory_order_relaxed) != 0;
}
uint32_t      kvcl_store_home_now(const struct kvcl_store *store, const kvcl_shard_map_t *map, const kvcl_key_t *key);
/** The home of a key to query: its home or, while that is suspected, its backup if it has received all entries; while
 * its shard moves, a home of the map before. Any thread. */
static inline uint32_t kvcl_store_home(const struct kvcl_store *store, const kvcl_shard_map_t *map,
                                       const kvcl_key_t *key)
{
    uint32_t home = kvcl_shard_home(map, key);

    return __builtin_expect(kvcl_store_reads_old(map) || kvcl_store_suspects(store, home), 0)
               ? kvcl_store_home_now(store, map, key) : home;
}
/** Was the rank excluded with kvcl_store_exclude? Any thread. */
static inline bool kvcl_store_excludes(const struct kvcl_store *store, uint32_t rank)
{
    return (atomic_load_explicit(&((struct kvcl_store *)store)->ranks[rank].avoided, memory_order_relaxed) &
            KVCL_AVOID_EXCLUDED) != 0;
}
/** Has it been a home of the key since the opening, or since shards last moved? Any thread. */
bool          kvcl_store_has_all(const struct kvcl_store *store, const kvcl_key_t *key, uint32_t rank);
/** Lock held. The rank did not answer for a while: other ranks are preferred until it does. */
void          kvcl_store_suspect(kvcl_store_h store, uint32_t rank);
/** Makes a map of the ranks that take part. Lock held, or the store is not linked yet. */
kvcl_status_t kvcl_store_map_make(kvcl_store_h store) KVCL_MUST_CHECK;
/** Makes map, which is the store's from here on, the present one. Lock held. In view_maps.c. */
void          kvcl_store_map_set(kvcl_store_h store, kvcl_store_map_t *map);
void          kvcl_store_maps_free(kvcl_store_h store);
/** Has the rank, which may be this one, a pool with blocks of this size? Any thread. */
bool          kvcl_store_takes(const struct kvcl_store *store, uint32_t rank, uint64_t bytes);
/** What a rank has said of its part when it met this one: its pool, and whether its tier is listed. Lock held. */
void          kvcl_store_rank_meet(kvcl_store_h store, uint32_t rank, const kvcl_hello_t *hello);
/** Another process has the rank, and says this of its part: nothing that is known of the one before is right any more.
 * It takes part when kvcl_views_rank_comes() is called. False: reads of the old one are still in flight. Lock held. */
bool          kvcl_store_rank_renew(kvcl_store_h store, uint32_t rank, kvcl_peer_t *peer, const kvcl_hello_t *hello);
/** The rank no longer takes part: its copies do not count, and its shards fall to their backups. Lock held. */
void          kvcl_store_rank_failed(kvcl_store_h store, uint32_t rank);

#endif
