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

kvcl_moves_maps_t kvcl_moves_next(kvcl_moves_maps_t now, bool switched, bool grows)
{
    kvcl_moves_maps_t next = {.old = now.old, .also = now.also};

    if ((now.old == NULL) || switched) {
        next.old  = now.map;
        next.also = (now.also != NULL) ? now.also : now.old;
    }
    if (grows) {
        next.also = NULL;
    }
    return next;
}

void kvcl_moves_homes(kvcl_moves_maps_t maps, const kvcl_key_t *key, bool two, uint32_t homes[KVCL_MOVES_HOMES])
{
    const kvcl_shard_map_t *each[] = {maps.map, maps.old, maps.also};
    unsigned               n       = 0, i;

    for (i = 0; i < sizeof(each) / sizeof(each[0]); ++i) {
        if (each[i] != NULL) {
            add(homes, &n, kvcl_shard_home(each[i], key));
        }
        if ((each[i] != NULL) && two) {
            add(homes, &n, kvcl_shard_backup(each[i], key));
        }
    }
    while (n < KVCL_MOVES_HOMES) {
        homes[n++] = KVCL_SHARD_NO_RANK;
    }
}
