/*
 * Shards that move from one map to the next, while gets, puts and removals go on.
 *
 * Two maps count while shards move: `old`, the last one in which everything was at its place, less the ranks that have
 * gone since; and `map`, that of the ranks which take part now. There may be a third one, `also`: see below.
 *   - A record is listed at its homes in all of them, and a key is removed from these.
 *   - A key is looked up at its old home, or else its old backup, if one of them is left, since these have all of its
 *     records; or else at its home in `map`.
 *   - Each owner walks its blocks and lists those whose homes in `map` are not their homes in `old`. When these have
 *     answered, it tells all ranks that it has LISTED.
 *   - A rank that has LISTED from all ranks looks keys up by `map`, and tells all ranks that it has SWITCHED. It still
 *     lists and removes by all of them, since others look up by `old`.
 *   - A rank that has SWITCHED from all ranks uses `map` alone, and drops the entries that it does not give this rank.
 *
 * If a rank goes meanwhile, each rank begins anew. One that has not switched keeps its `old`: a second failure only
 * repeats the walk. One that has switched takes its `map` for `old`. Others, which have not switched, still look up by
 * the `old` before, so it lists by that too, as `also`. They need not list by its new `old`: of the homes of a map,
 * those that are left are homes in every later map without the ranks that have gone. So each rank lists where any looks
 * up. A rank that had settled has the `old` before for `also` as well: others that had not may list at it by that map.
 *
 * A rank that comes has no block, and looks nothing up before its first move is over; so it needs no `old`. One that is
 * to leave stays among the ranks, with no shard in `map`: it answers by `old` until all have switched. Both count only
 * from a time on at which some rank uses one map alone. Then `old` is the same map for all, but for ranks that have
 * gone: one in which a rank alone has switched, and others not, would be two. All have switched by then, so `also` is
 * forgotten.
 *
 * So a record that was acknowledged is found as long as its owner and one of its homes live. If all of its homes die
 * before new ones have it, lookups miss it until its owner has listed it there; it is not lost. Ranks may learn at
 * different times that another one takes part: a step counts only for the same set of ranks, by its id.
 *
 * Owns: nothing; the arrays are the caller's. Pure. Lock: the caller's.
 */
#ifndef KVCL_DIR_MOVES_H
#define KVCL_DIR_MOVES_H

#include "dir/shard.h"

#include <stdbool.h>

typedef enum { KVCL_MOVES_LISTED = 0, KVCL_MOVES_SWITCHED = 1, KVCL_MOVES_STEPS } kvcl_moves_step_t;

enum { KVCL_MOVES_HOMES = 6 }; /* of a record, at most, while its shard moves */

typedef struct kvcl_moves_rank {
    uint16_t incarnation;            /* of its part of the directory; 0: it takes no part */
    bool     leaves;                 /* it is to have no shards */
    uint64_t said[KVCL_MOVES_STEPS]; /* the last set for which it has made the step; 0: none */
} kvcl_moves_rank_t;

typedef struct kvcl_moves {
    kvcl_moves_rank_t *ranks;  /* n_ranks */
    uint32_t          n_ranks;
    uint64_t          id;      /* of the set of ranks; never 0 */
} kvcl_moves_t;

/** The set of ranks has changed. */
void kvcl_moves_begin(kvcl_moves_t *moves);

/** A rank, this one too, says that it has made the step for the set with this id. LISTED comes before SWITCHED. */
void kvcl_moves_say(kvcl_moves_t *moves, uint32_t rank, uint64_t id, kvcl_moves_step_t step);

/** Have all ranks that take part made the step for the present set? */
bool kvcl_moves_all(const kvcl_moves_t *moves, kvcl_moves_step_t step);

/** *@a old without a rank: its shards are kept by their other home alone. */
void kvcl_moves_drop(kvcl_shard_map_t *old, uint32_t rank);

/** The maps of a rank. */
typedef struct kvcl_moves_maps {
    const kvcl_shard_map_t *map;
    const kvcl_shard_map_t *old;  /* NULL: no shard moves; `also` is then what a move begins with */
    const kvcl_shard_map_t *also; /* may be NULL */
} kvcl_moves_maps_t;

/** What a move begins with, `map` left out, before ranks are dropped from copies. switched: this rank has switched;
 * grows: a rank comes or is to leave, and some rank had settled. */
kvcl_moves_maps_t kvcl_moves_next(kvcl_moves_maps_t now, bool switched, bool grows);

/** The homes of a record in all maps, each once, while shards move. two: it has two homes in each. Unused places hold
 * KVCL_SHARD_NO_RANK. */
void kvcl_moves_homes(kvcl_moves_maps_t maps, const kvcl_key_t *key, bool two, uint32_t homes[KVCL_MOVES_HOMES]);

/** Is this home in `map` to be told of a record that was listed by @a old? two: it has two homes in each map. */
static inline bool kvcl_moves_is_new(const kvcl_shard_map_t *old, const kvcl_key_t *key, bool two, uint32_t home)
{
    return (home != KVCL_SHARD_NO_RANK) && (kvcl_shard_home(old, key) != home) &&
           (!two || (kvcl_shard_backup(old, key) != home));
}

/** The rank to ask for a key before this rank has switched. two: keys have two homes. */
static inline uint32_t kvcl_moves_reader(const kvcl_shard_map_t *map, const kvcl_shard_map_t *old,
                                         const kvcl_key_t *key, bool two)
{
    uint32_t home = kvcl_shard_home(old, key);

    if ((home == KVCL_SHARD_NO_RANK) && two) {
        home = kvcl_shard_backup(old, key);
    }
    return (home != KVCL_SHARD_NO_RANK) ? home : kvcl_shard_home(map, key);
}

#endif
