/*
 * The other ranks, as a drain finds them: their room, their silence, and the reason why blocks have not moved
 * (drain_ranks.c).
 */
#ifndef KVCL_STORE_GROW_DRAIN_RANKS_H
#define KVCL_STORE_GROW_DRAIN_RANKS_H

#include "store/copy/send.h"

/* A drain is a row of tries. A try walks all blocks; the fields below are of the present one, except where they say
 * otherwise. */
typedef struct kvcl_drain {
    kvcl_store_h           store;
    uint64_t               deadline_ns;
    uint64_t               moved;                /* in all tries */
    kvcl_send_t            batch;
    uint64_t               left;                 /* in this pass: blocks for which no rank has room */
    uint64_t               least;                /* what `left` was in the pass before */
    uint64_t               all_left, left_bytes; /* of all sizes; at least so many */
    bool                   missed;               /* in this pass some blocks did not arrive */
    bool                   any_missed;           /* in any pass */
    bool                   full;                 /* no rank has room for a block of the size being moved */
    int                    silent;               /* the first rank that did not answer, or take blocks; -1: none */
    kvcl_status_t          silent_status;
    unsigned               tries;                /* in all: those that have ended */
    const kvcl_shard_map_t *map;                 /* the shards' homes when the try began */
    uint8_t                *skip;                /* one byte a rank: it takes none */
    uint64_t               room[];               /* by rank: bytes of blocks of the size being moved that it could take
                                                  * without evicting */
} kvcl_drain_t;

/** NULL: no memory. The caller frees it. */
kvcl_drain_t *kvcl_drain_new(kvcl_store_h store, uint64_t deadline_ns);

/** No lock held. A try begins. */
void kvcl_drain_begin(kvcl_drain_t *drain);

/** No lock held; blocks. Queries how much room the other ranks have for blocks of this size, and whether they are
 * drained as well. If two ranks drain at once, at least one learns of the other, since each sets `draining` before it
 * queries. again: of a second size; ranks that did not answer, or are drained, are not queried any more. */
void kvcl_drain_query(kvcl_drain_t *drain, uint64_t bytes, bool again);

/** No lock held; blocks. Sends blocks of the batch to the rank with the most room, as many as it has room for: batch.n
 * is then their number, and 0 if it did not take them. KVCL_ERR_NO_SPACE: no rank has room. */
kvcl_status_t kvcl_drain_send(kvcl_drain_t *drain, uint64_t tenant, uint64_t bytes, uint16_t *to_p) KVCL_MUST_CHECK;

/** No lock held; blocks. After a try that has not moved all: waits until another one may move more. False: none can,
 * or the deadline has passed. */
bool kvcl_drain_again(kvcl_drain_t *drain, kvcl_status_t status);

/** No lock held. The status of a drain whose last try ended with this one, and its error sentence. */
kvcl_status_t kvcl_drain_failed(const kvcl_drain_t *drain, kvcl_status_t status);

#endif
