/*
 * Experts on ranks: where the experts of a mixture-of-experts model are placed, what changes when ranks fail, and which
 * rank sends which weights to which.
 *
 * All functions are pure: arrays in, arrays out. They need no context, do no input or output, read no clock and keep no
 * pointer; each allocates its scratch memory once and frees it. The same input gives the same output on every machine,
 * so each rank computes the whole plan by itself and nothing is exchanged. All functions may be called from any thread
 * and from callbacks. Counts in the params must be the same in all calls about one model.
 *
 * Terms. A layer has experts, counted from 0, and slots. A slot holds the weights of one expert; an expert in several
 * slots has several copies. With S slots and R ranks, rank r has the slots [r*S/R, (r+1)*S/R); with H hosts, host h has
 * the ranks [h*R/H, (h+1)*R/H). These numbers never change: a rank that has failed keeps its slots, and the mask of
 * active ranks says that they do not count.
 *
 * A placement is an array int32_t [layers][slots]: the expert in each slot, or KVCL_EP_NONE.
 *
 * Each call reads the fields of the params that its comment names, besides size, flags, layers, experts, slots, ranks
 * and active, and checks all of them.
 */
#ifndef KVCL_EP_H
#define KVCL_EP_H

#include <kvcl/kvcl_status.h>

#include <stddef.h>
#include <stdint.h>

KVCL_BEGIN_DECLS

/* Limits; more is refused (KVCL_ERR_INVALID_PARAM). */
#define KVCL_EP_MAX_LAYERS 4096u
#define KVCL_EP_MAX_SLOTS  65536u /* of a layer; of experts too */
#define KVCL_EP_MAX_RANKS  4096u

/* No expert in this slot; no further copy; no slot that a move comes from. */
#define KVCL_EP_NONE (-1)

/* kvcl_ep_params_t.flags */
#define KVCL_EP_SPREAD UINT64_C(0x1) /* kvcl_ep_place: no expert twice on a rank */
#define KVCL_EP_HOLES  UINT64_C(0x2) /* kvcl_ep_repair: leave out experts that no slot is left for */

typedef struct kvcl_ep_params {
    size_t        size;      /* sizeof(kvcl_ep_params_t) */
    uint64_t      flags;     /* KVCL_EP_*; unknown bits are an error */
    uint32_t      layers;    /* 0 means 1 */
    uint32_t      experts;   /* of a layer: at least 1 */
    uint32_t      slots;     /* of a layer, on all ranks, active or not: a multiple of ranks */
    uint32_t      ranks;     /* at least 1 */
    uint32_t      hosts;     /* must divide ranks; 0 means 1 */
    uint32_t      groups;    /* groups of experts that are chosen together: must divide experts; 0 means 1 */
    uint32_t      min_ranks; /* each expert is on at least that many ranks; 0 means 1 */
    uint32_t      min_hosts; /* each expert is on at least that many hosts; 0 means 1 */
    const uint8_t *active;   /* [ranks]: 0 means that the rank takes no part; NULL: all take part */
} kvcl_ep_params_t;
#define KVCL_EP_PARAMS_INIT {sizeof(kvcl_ep_params_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL}

/**
 * Place the experts so that the ranks are loaded evenly: the algorithm of DeepSeek's EPLB. An expert of high load gets
 * several copies, which share its load equally. Ties go to the lowest index everywhere, so the result is exact; where
 * no loads tie it is that of EPLB's rebalance_experts.
 *
 * Where groups is a multiple of hosts, all ranks are active and min_hosts is at most 1, the placement is hierarchical:
 * groups are placed on hosts, then the experts of a host on its ranks. Otherwise it is global: all experts on all
 * active ranks, as one group. Slots of ranks that are not active get KVCL_EP_NONE.
 *
 * KVCL_EP_SPREAD keeps the copies of an expert on different ranks; an expert then has at most one copy per rank.
 * min_ranks and min_hosts give each expert that many copies first, and the loads determine the others. min_ranks > 1
 * and min_hosts > 1 include KVCL_EP_SPREAD. min_hosts > 1 first divides the copies among the hosts, then those of a
 * host among its ranks.
 *
 * Reads flags, hosts, groups, min_ranks and min_hosts too.
 * @param [in] loads       [layers][experts]: the tokens, or any measure, of each expert; 0 is allowed. The sum of a
 *                         layer must be below 2^64.
 * @param [out] placement  [layers][slots]; EPLB's phy2log. Every expert is in it. Untouched on failure.
 * @return KVCL_OK;
 *         KVCL_ERR_INVALID_PARAM: counts that do not divide each other or exceed the limits, no active rank, a sum of
 *         loads of 2^64 or more (names the layer and the expert), more slots on a rank than experts with spread;
 *         KVCL_ERR_NO_SPACE: the active ranks have fewer slots than experts times the copies that each needs, or there
 *         are fewer active ranks than min_ranks or hosts than min_hosts, or hosts of different numbers of active ranks
 *         cannot hold min_hosts and min_ranks copies of each expert; with the numbers;
 *         KVCL_ERR_NO_MEMORY.
 */
KVCL_API kvcl_status_t kvcl_ep_place(const kvcl_ep_params_t *params, const uint64_t *loads, int32_t *placement)
    KVCL_MUST_CHECK;

/* The most copies that an expert has in a placement that holds every expert. */
#define KVCL_EP_COPIES_MAX(_experts, _slots) ((size_t)(_slots) - (size_t)(_experts) + 1)

/**
 * The same placement by expert: in which slots each is. Copies on ranks that are not active do not count.
 * @param [in] placement   [layers][slots].
 * @param [out] copies     [layers][experts][copies_max]: the slots of each expert, ascending, then KVCL_EP_NONE; EPLB's
 *                         log2phy. NULL: not wanted. Untouched on failure.
 * @param [in] copies_max  at least the copies of any expert; KVCL_EP_COPIES_MAX suffices.
 * @param [out] counts     [layers][experts]: the copies of each expert; EPLB's logcnt. NULL: not wanted. Untouched on
 *                         failure.
 * @return KVCL_OK; KVCL_ERR_INVALID_PARAM: as kvcl_ep_place; KVCL_ERR_OUT_OF_RANGE: a slot names no expert (names the
 *         layer and the slot); KVCL_ERR_TRUNCATED: an expert has more than copies_max copies (names both numbers);
 *         KVCL_ERR_NO_MEMORY.
 */
KVCL_API kvcl_status_t kvcl_ep_index(const kvcl_ep_params_t *params, const int32_t *placement, int32_t *copies,
                                     size_t copies_max, uint32_t *counts) KVCL_MUST_CHECK;

/**
 * Repair a placement after ranks have failed, with the least change: each expert whose copies are all lost gets one
 * slot, and no other weights move. Slots of ranks that are not active become KVCL_EP_NONE. The loads may be uneven
 * afterwards: compute a new placement with kvcl_ep_place in the background.
 *
 * Lost experts are taken in ascending order. They get the empty slots of active ranks first, the lowest of a rank; then
 * slots of experts that keep another copy: of a rank the slot whose expert has the most copies, the highest among
 * equals. For both, the active ranks give slots in turn, and rank 0 begins in each layer. A layer that has lost no
 * expert keeps its slots.
 *
 * @param [in] old          [layers][slots]: the placement before. A rank that joined again holds nothing: its slots are
 *                          KVCL_EP_NONE.
 * @param [out] placement   [layers][slots]; may be old itself. Untouched on failure.
 * @param [out] restored_p  the number of slots that get a lost expert, over all layers; NULL: not wanted.
 * @param [out] missing_p   with KVCL_EP_HOLES, the number of experts that are in no slot, over all layers; otherwise 0.
 *                          NULL: not wanted.
 * @return KVCL_OK; KVCL_ERR_INVALID_PARAM and KVCL_ERR_OUT_OF_RANGE: as kvcl_ep_index; KVCL_ERR_NO_SPACE: without
 *         KVCL_EP_HOLES, a layer has fewer slots on active ranks than experts (names both); KVCL_ERR_NO_MEMORY.
 */
KVCL_API kvcl_status_t kvcl_ep_repair(const kvcl_ep_params_t *params, const int32_t *old, int32_t *placement,
                                      size_t *restored_p, size_t *missing_p) KVCL_MUST_CHECK;

/* kvcl_ep_move_t.kind: where the weights come from, nearest first. */
typedef enum kvcl_ep_from {
    KVCL_EP_FROM_RANK  = 0, /* a slot of the same rank */
    KVCL_EP_FROM_MOVE  = 1, /* a slot of the same rank that receives them by another move of this list */
    KVCL_EP_FROM_HOST  = 2, /* another rank of the same host */
    KVCL_EP_FROM_OTHER = 3, /* a rank of another host */
    KVCL_EP_FROM_STORE = 4  /* no active rank has them: the caller gets them from the store, by its key of the expert */
} kvcl_ep_from_t;

/* The weights of an expert for one slot. */
typedef struct kvcl_ep_move {
    uint32_t layer;
    uint32_t expert;
    int32_t  source;      /* the slot that they come from; KVCL_EP_NONE: the store */
    uint32_t destination; /* the slot that gets them */
    uint32_t kind;        /* kvcl_ep_from_t */
    uint32_t round;       /* from 0; in one round each rank exchanges weights with at most one other rank */
} kvcl_ep_move_t;

/**
 * The moves that turn the old placement into the new one: one for each slot that gets another expert. Slots that keep
 * their expert, and slots that become empty, need none. The rank of a slot is slot / (slots / ranks).
 *
 * The source is the nearest: the same rank, the same host, another host, the store; among equally near ranks the one
 * that has the fewest moves to send so far. A rank gets the weights of an expert of a layer once, and copies them
 * itself where it has several slots for them. Ranks that are not active send nothing.
 *
 * The moves of two ranks with each other, in both directions, have the same round; in a round each rank takes part in
 * the moves of one such pair at most. Moves within a rank and from the store, which need no peer, have round 0, except
 * KVCL_EP_FROM_MOVE, which has that of the move before it. The list is in the order of rounds.
 *
 * A source names a slot of the old placement. A slot may be the source of one move and the destination of another, in
 * any order: put received weights aside, and into their slots when all moves have ended. Only a source of
 * KVCL_EP_FROM_MOVE is the destination of an earlier move.
 *
 * Reads hosts too.
 * @param [in] old        [layers][slots]: what the ranks hold. Slots of ranks that are not active are ignored.
 * @param [in] placement  [layers][slots]: what they are to hold; slots of ranks that are not active must be
 *                        KVCL_EP_NONE.
 * @param [out] moves     room for cap; NULL is allowed with cap 0, to learn the number.
 * @param [in] stride     sizeof(kvcl_ep_move_t).
 * @param [out] n_p       the number of moves, also with KVCL_ERR_TRUNCATED.
 * @param [out] rounds_p  the number of rounds: 0 if no rank needs another. NULL: not wanted.
 * @return KVCL_OK; KVCL_ERR_TRUNCATED: more than cap, only *n_p was written; KVCL_ERR_INVALID_PARAM: as kvcl_ep_place,
 *         or a rank that is not active is to hold an expert; KVCL_ERR_OUT_OF_RANGE: a slot names no expert (names the
 *         layer and the slot); KVCL_ERR_NO_MEMORY.
 */
KVCL_API kvcl_status_t kvcl_ep_moves(const kvcl_ep_params_t *params, const int32_t *old, const int32_t *placement,
                                     kvcl_ep_move_t *moves, size_t stride, size_t cap, size_t *n_p, uint32_t *rounds_p)
    KVCL_MUST_CHECK;

KVCL_END_DECLS

#endif
