/*
 * Shards that move (moves.h). Pure; lock: the caller's.
 */
#include "config.h"

#include "dir/moves.h"

#include "base/rand.h"

void kvcl_moves_begin(kvcl_moves_t *moves)
{
    uint64_t state, id = 0;
    uint32_t i;

    for (i = 0; i < moves->n_ranks; ++i) {
        if (moves->ranks[i].incarnation != 0) {
            state = id ^ (((uint64_t)i << 17) | (moves->ranks[i].leaves ? 1u << 16 : 0u) | moves->ranks[i].incarnation);
            id    = kvcl_splitmix64(&state);
        }
    }
    moves->id = (id != 0) ? id : 1;
}

void kvcl_moves_say(kvcl_moves_t *moves, uint32_t rank, uint64_t id, kvcl_moves_step_t step)
{
    moves->ranks[rank].said[step] = id;
    if (step == KVCL_MOVES_SWITCHED) { /* the message of the step before may still be on its way */
        moves->ranks[rank].said[KVCL_MOVES_LISTED] = id;
    }
}

bool kvcl_moves_all(const kvcl_moves_t *moves, kvcl_moves_step_t step)
{
    uint32_t i;

    for (i = 0; i < moves->n_ranks; ++i) {
        if ((moves->ranks[i].incarnation != 0) && (moves->ranks[i].said[step] != moves->id)) {
            return false;
        }
    }
    return true;
}

void kvcl_moves_drop(kvcl_shard_map_t *old, uint32_t rank)
{
    uint32_t i;

    for (i = 0; i < KVCL_SHARDS; ++i) {
        old->home[i]   = (old->home[i] == rank) ? KVCL_SHARD_NO_RANK : old->home[i];
        old->backup[i] = (old->backup[i] == rank) ? KVCL_SHARD_NO_RANK : old->backup[i];
    }
}

static void add(uint32_t *homes, unsigned *n, uint32_t rank)
{
    unsigned i;

    for (i = 0; (i < *n) && (homes[i] != rank); ++i) {
    }
    if ((i == *n) && (rank != KVCL_SHARD_NO_RANK)) {
        homes[(*n)++] = rank;
    }
}

void kvcl_moves_homes(const kvcl_shard_map_t *map, const kvcl_shard_map_t *old, const kvcl_key_t *key, bool two,
                      uint32_t homes[KVCL_MOVES_HOMES])
{
    unsigned n = 0;

    add(homes, &n, kvcl_shard_home(map, key));
    if (two) {
        add(homes, &n, kvcl_shard_backup(map, key));
    }
    add(homes, &n, kvcl_shard_home(old, key));
    if (two) {
        add(homes, &n, kvcl_shard_backup(old, key));
    }
    while (n < KVCL_MOVES_HOMES) {
        homes[n++] = KVCL_SHARD_NO_RANK;
    }
}
