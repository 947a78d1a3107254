/*
 * One query to each other rank of a store, all at once, and their answers (rounds.c).
 */
#ifndef KVCL_STORE_GROW_ROUNDS_H
#define KVCL_STORE_GROW_ROUNDS_H

#include "store/grow/part.h"

typedef struct kvcl_rounds_rank {
    bool          over;   /* it is not asked again */
    bool          asked;  /* in this round */
    kvcl_status_t status; /* its last answer */
    kvcl_part_t   part;   /* KVCL_OK: what it has said */
} kvcl_rounds_rank_t;

typedef struct kvcl_rounds {
    kvcl_store_h       store;
    uint64_t           deadline_ns;
    unsigned           outstanding;
    kvcl_rounds_rank_t *ranks; /* store->n_ranks */
} kvcl_rounds_t;

/** No lock held. KVCL_ERR_NO_MEMORY. */
kvcl_status_t kvcl_rounds_open(kvcl_rounds_t *rounds, kvcl_store_h store, uint64_t deadline_ns) KVCL_MUST_CHECK;
void          kvcl_rounds_close(kvcl_rounds_t *rounds);

/** No lock held. Asks each rank of this rank's view that is not over, and waits for all answers. part: of TAKE; NULL:
 * ASK. Returns how many were asked: 0 once the store is being closed, which ends a round at once. */
unsigned kvcl_rounds_ask(kvcl_rounds_t *rounds, const kvcl_part_t *part);

/** No lock held. A pause before the next round, no longer than the deadline. False: the deadline has passed. */
bool kvcl_rounds_pause(kvcl_rounds_t *rounds);

/** No lock held. Until no shard moves, as this rank knows it. False: not before the deadline. */
bool kvcl_rounds_wait_settled(kvcl_store_h store, uint64_t deadline_ns);

#endif
