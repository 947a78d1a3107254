/*
 * Carrying out the moves of kvcl_ep_moves (kvcl_ep.h): the weights of experts are fetched from other ranks' caches and
 * from a store, verified, and put into their slots when the whole map is complete. Until then the old map serves.
 *
 *   kvcl_ep_repair, kvcl_ep_moves    every rank computes the same plan
 *   kvcl_ep_restore                  every rank fetches what it is to hold, into spare blocks
 *   (all ranks have returned: a barrier, or an agreement)
 *   kvcl_ep_settle                   every rank copies it into its slots
 *   kvcl_ep_activate                 every rank replaces map and mask (kvcl_ep_step.h)
 *
 * The weights of a rank lie in a cache that has the same name and layout on all ranks: block layer * (S/R) + s is slot
 * s of this rank in that layer, and the blocks behind those of all layers are spare.
 *
 * Threads: any; both calls block, and may not be called from a callback. Nobody changes the blocks of weights
 * meanwhile: a slot that another rank may still fetch from is written by kvcl_ep_settle alone.
 */
#ifndef KVCL_EP_RESTORE_H
#define KVCL_EP_RESTORE_H

#include <kvcl/kvcl_ep.h>
#include <kvcl/kvcl_store.h>

KVCL_BEGIN_DECLS

/* Where weights are. */
typedef struct kvcl_ep_weights {
    size_t           size;       /* sizeof(kvcl_ep_weights_t) */
    uint64_t         flags;      /* 0 */
    kvcl_comm_h      comm;       /* its ranks are those of the params */
    kvcl_cache_h     cache;      /* this rank's, in host memory */
    const uint64_t   *sums;      /* [layers][experts]: kvcl_ep_weights_sum of the right weights */
    kvcl_store_h     store;      /* NULL: none. It has blocks of the size of the cache's blocks */
    const kvcl_key_t *keys;      /* [layers][experts]: in the store; NULL without one */
    uint64_t         timeout_ns; /* of a call; 0: KVCL_TIMEOUT. KVCL_WAIT_FOREVER is refused, here and in try_ns: no
                                    source would ever be given up */
    uint64_t         try_ns;     /* how long one source may take for what it was asked for at once, before another one
                                    is tried; 0: a quarter of timeout_ns */
} kvcl_ep_weights_t;
#define KVCL_EP_WEIGHTS_INIT {sizeof(kvcl_ep_weights_t), 0, NULL, NULL, NULL, NULL, NULL, 0, 0}

/** The checksum of a block of weights (XXH3-64 of its bytes in canonical order): equal for equal weights, whatever the
 * strides. A rank computes it once, when it has loaded its experts. Host memory. Any thread; reads the block once.
 * @return KVCL_OK, KVCL_ERR_OUT_OF_RANGE (block), KVCL_ERR_INVALID_PARAM, KVCL_ERR_UNSUPPORTED (device memory). */
KVCL_API kvcl_status_t kvcl_ep_weights_sum(kvcl_cache_h cache, uint32_t block, uint64_t *sum_p) KVCL_MUST_CHECK;

/* kvcl_ep_restore, blocks: no block. */
#define KVCL_EP_BLOCK_OTHER   UINT32_MAX       /* the move is another rank's */
#define KVCL_EP_BLOCK_MISSING (UINT32_MAX - 1) /* no source had the right weights */

/**
 * Fetch the weights that this rank's slots get, each into a spare block, in the rounds of the plan: of each source rank
 * all blocks of a round at once. Each block is compared with its sum. Where a source fails, is silent or has other
 * bytes, the expert's next copy in @a old on an active rank is tried, in ascending order of slots, then the store. A
 * rank that has failed or was silent is not asked again. What no source has is missing: the other moves are carried out
 * all the same.
 *
 * Local, except that it reads other ranks' caches: ranks need not call it at the same time.
 * @param params      layers, experts, slots, ranks and active are read. Ranks that have failed must not be active.
 * @param old, moves  those of kvcl_ep_moves; moves of all ranks, or this rank's alone.
 * @param stride      sizeof(kvcl_ep_move_t)
 * @param [out] blocks     [n]: the block that has the weights of each move, or KVCL_EP_BLOCK_*. Moves from a slot that
 *                         itself receives (KVCL_EP_FROM_MOVE) share that move's block.
 * @param [out] missing_p  how many of this rank's moves are missing; NULL: not wanted.
 * @return KVCL_OK: all are there; KVCL_ERR_NOT_FOUND: some are missing (names the first, its layer and its expert).
 *         Nothing was fetched with KVCL_ERR_NO_SPACE: too few spare blocks (names both numbers);
 *         KVCL_ERR_INVALID_PARAM, KVCL_ERR_OUT_OF_RANGE: params, old or a move (as kvcl_ep_moves); KVCL_ERR_NO_MEMORY;
 *         KVCL_ERR_INVALID_PARAM, KVCL_ERR_DEAD_HANDLE: a handle in weights, the store's too; KVCL_ERR_INVALID_PARAM:
 *         another field of it; KVCL_ERR_UNSUPPORTED: the cache is device memory.
 */
KVCL_API kvcl_status_t kvcl_ep_restore(const kvcl_ep_params_t *params, const kvcl_ep_weights_t *weights,
                                       const int32_t *old, const kvcl_ep_move_t *moves, size_t stride, size_t n,
                                       uint32_t *blocks, size_t *missing_p) KVCL_MUST_CHECK;

/**
 * Copy what kvcl_ep_restore fetched into the slots. Only when no rank fetches any more. Slots of missing moves keep
 * what they had: they do not hold their expert. Local.
 * @return KVCL_OK; KVCL_ERR_INVALID_PARAM, KVCL_ERR_OUT_OF_RANGE, KVCL_ERR_DEAD_HANDLE (weights are checked as by
 *         kvcl_ep_restore, the store's handle too), KVCL_ERR_UNSUPPORTED (device memory), KVCL_ERR_NO_MEMORY;
 *         KVCL_ERR_TIMED_OUT.
 */
KVCL_API kvcl_status_t kvcl_ep_settle(const kvcl_ep_params_t *params, const kvcl_ep_weights_t *weights,
                                      const kvcl_ep_move_t *moves, size_t stride, size_t n, const uint32_t *blocks)
    KVCL_MUST_CHECK;

KVCL_END_DECLS

#endif
