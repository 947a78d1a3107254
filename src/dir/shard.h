/*
 * Which rank is home to a key: tag (16 bits) -> one of 4,096 virtual shards -> rendezvous hashing
 * over the live ranks of a view.
 *
 * Rendezvous (highest random weight) hashing: D. Thaler and C. Ravishankar, "Using Name-Based
 * Mappings to Increase Hit Rates", IEEE/ACM Transactions on Networking 6(1), 1998. Each rank has a
 * pseudo-random weight for each shard, the highest is home and the second is backup. So all ranks
 * compute the same map from the same list with no messages; a rank that leaves or fails moves only
 * its own shards (each to its backup), and one that joins takes 1/n of them.
 *
 * Owns: kvcl_shard_map_t, built once per view, read-only after that (any thread). The weights are a
 * wire contract: every rank of a job must compute the same.
 */
#ifndef KVCL_DIR_SHARD_H
#define KVCL_DIR_SHARD_H

#include "kvcl/kvcl_key.h"
#include "kvcl/kvcl_status.h"

#include <stdint.h>

enum { KVCL_SHARDS = 4096, KVCL_SHARD_SHIFT = 4 };
#define KVCL_SHARD_NO_RANK UINT32_MAX

typedef struct kvcl_shard_map {
    uint64_t view;                /* the number it was built for */
    uint32_t n_ranks;
    uint32_t home[KVCL_SHARDS];
    uint32_t backup[KVCL_SHARDS]; /* never the home; KVCL_SHARD_NO_RANK when alone */
} kvcl_shard_map_t;

/**
 * Build the map of view @a view from its @a n live rank ids, in any order. O(n * 4096).
 * @return KVCL_OK; KVCL_ERR_INVALID_PARAM: no rank, or KVCL_SHARD_NO_RANK among them.
 */
kvcl_status_t kvcl_shard_map_build(kvcl_shard_map_t *map, uint64_t view, const uint32_t *ranks,
                                   uint32_t n) KVCL_MUST_CHECK;

static inline uint32_t kvcl_shard_of(const kvcl_key_t *key)
{
    return (uint32_t)kvcl_key_tag(key) >> KVCL_SHARD_SHIFT;
}

static inline uint32_t kvcl_shard_home(const kvcl_shard_map_t *map, const kvcl_key_t *key)
{
    return map->home[kvcl_shard_of(key)];
}

static inline uint32_t kvcl_shard_backup(const kvcl_shard_map_t *map, const kvcl_key_t *key)
{
    return map->backup[kvcl_shard_of(key)];
}

#endif
