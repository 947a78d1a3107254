/*
 * The two steps of kvcl_ep_moves: the sources of the moves (ep_moves.c), and their rounds (ep_rounds.c).
 *
 * No lock.
 */
#ifndef KVCL_EP_EP_MOVES_H
#define KVCL_EP_EP_MOVES_H

#include "ep/ep_heap.h"

typedef struct kvcl_ep_pair {
    uint32_t a, b;  /* ranks, a < b */
    uint32_t n;     /* moves between them */
    uint32_t round;
} kvcl_ep_pair_t;

/* Scratch for n moves. */
typedef struct kvcl_ep_schedule {
    kvcl_ep_move_t *moves;
    size_t         n;
    kvcl_ep_item_t *items; /* [n] */
    kvcl_ep_pair_t *pairs; /* [n] */
    uint64_t       *busy;  /* [ranks][words]: a bit for each round in which the rank has a peer */
    uint32_t       words;  /* 2 * ranks bits: more rounds are never needed */
} kvcl_ep_schedule_t;

/** Whether another rank is needed. */
static inline int kvcl_ep_has_peer(const kvcl_ep_move_t *move)
{
    return (move->kind == KVCL_EP_FROM_HOST) || (move->kind == KVCL_EP_FROM_OTHER);
}

/** Fill the rounds of the moves, and put the moves' numbers into schedule->items in the order of the result.
 *  @return the number of rounds. */
uint32_t kvcl_ep_rounds(const kvcl_ep_shape_t *shape, kvcl_ep_schedule_t *schedule);

#endif
