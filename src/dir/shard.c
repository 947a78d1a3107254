/*
 * Rendezvous hashing of 4,096 shards over the ranks of a view (shard.h names the paper).
 *
 * The weight of (rank, shard) is two rounds of splitmix64's finalizer over the pair; a tie goes to
 * the lower rank id, so the map does not depend on the order of the list. Owns nothing; no lock.
 */
#include "config.h"

#include "dir/shard.h"

#include "base/error.h"

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t weight(uint32_t rank, uint32_t shard)
{
    return mix(mix(rank + UINT64_C(0x9e3779b97f4a7c15)) ^ ((uint64_t)shard << 32 | shard));
}

/* Does (wa, a) stand before (wb, b)? */
static int is_higher(uint64_t wa, uint32_t a, uint64_t wb, uint32_t b)
{
    return (b == KVCL_SHARD_NO_RANK) || (wa > wb) || ((wa == wb) && (a < b));
}

static void place(kvcl_shard_map_t *map, uint32_t shard, const uint32_t *ranks, uint32_t n)
{
    uint32_t best = KVCL_SHARD_NO_RANK, second = KVCL_SHARD_NO_RANK;
    uint64_t best_weight = 0, second_weight = 0, w;
    uint32_t i;

    for (i = 0; i < n; ++i) {
        w = weight(ranks[i], shard);
        if (ranks[i] == best) {
            continue; /* named twice */
        }
        if (is_higher(w, ranks[i], best_weight, best)) {
            second        = best;
            second_weight = best_weight;
            best          = ranks[i];
            best_weight   = w;
        } else if (is_higher(w, ranks[i], second_weight, second)) {
            second        = ranks[i];
            second_weight = w;
        }
    }
    map->home[shard]   = best;
    map->backup[shard] = second;
}

kvcl_status_t kvcl_shard_map_build(kvcl_shard_map_t *map, uint64_t view, const uint32_t *ranks,
                                   uint32_t n)
{
    uint32_t i;

    if ((ranks == NULL) || (n == 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "a shard map needs at least one rank");
    }
    for (i = 0; i < n; ++i) {
        if (ranks[i] == KVCL_SHARD_NO_RANK) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "rank %u of the view is no rank id", i);
        }
    }
    map->view    = view;
    map->n_ranks = n;
    for (i = 0; i < KVCL_SHARDS; ++i) {
        place(map, i, ranks, n);
    }
    return KVCL_OK;
}
