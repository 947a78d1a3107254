/*
 * A step of a mixture-of-experts layer over ranks, on CPU memory: dispatch gives each token to the ranks of the experts
 * that its router chose, combine brings the experts' outputs back and adds them with the router's weights. Shapes and
 * ids are those of DeepEP's low-latency mode. The terms slot and rank are those of kvcl_ep.h: an id names a slot, and
 * rank r has the slots [r*S/R, (r+1)*S/R).
 *
 * A rank that is dead or late does not stop the others. A rank that has not done its part of a call by the call's
 * deadline, or whose failure is known earlier, is skipped from then on; one that itself waits for others says so, and
 * then has a deadline more. Each call ends by its deadline or, where ranks say so, by three times that. The *active*
 * mask (1: takes part) says which ranks take part, as this rank knows it. The masks of two ranks may differ for a
 * while: a rank that skips another tells it, and is then skipped by it.
 *
 * The output lacks what skipped experts would have added: `lost` has the weight of it for each token, and nothing is
 * renormalised unless kvcl_ep_renormalise is called.
 *
 * A message belongs to one step of one activation. What arrives late is never taken for a later step.
 *
 * Threads: one call at a time for each handle, a second one fails with KVCL_ERR_BUSY; kvcl_ep_query and the memory of
 * kvcl_ep_mask may be read by any thread at any time. Calls may block, except those for which the opposite is said.
 * None may be called from a callback.
 */
#ifndef KVCL_EP_STEP_H
#define KVCL_EP_STEP_H

#include <kvcl/kvcl_coll.h>
#include <kvcl/kvcl_ep.h>

KVCL_BEGIN_DECLS

typedef struct kvcl_ep *kvcl_ep_h;

/* Limits; more is refused (KVCL_ERR_INVALID_PARAM). */
#define KVCL_EP_MAX_TOKENS 65536u
#define KVCL_EP_MAX_TOP_K  64u
#define KVCL_EP_MAX_HIDDEN 1048576u

/* Ids of a router that name no slot. */
#define KVCL_EP_ID_NONE INT64_C(-1) /* the token chose fewer experts: no output and no weight is missing */
#define KVCL_EP_ID_LOST INT64_C(-2) /* the chosen expert is in no slot: its weight counts as lost */

typedef struct kvcl_ep_open_params {
    size_t       size;             /* sizeof(kvcl_ep_open_params_t) */
    uint64_t     flags;            /* 0 */
    uint32_t     slots;            /* on all ranks: a multiple of the ranks of comm */
    uint32_t     max_tokens;       /* of a rank, in one dispatch */
    uint32_t     top_k;            /* ids of a token, at most */
    uint32_t     hidden;           /* elements of a token */
    kvcl_dtype_t dtype;            /* of an element: KVCL_DTYPE_BF16 or KVCL_DTYPE_F32 */
    uint32_t     first_steps;      /* the steps with the other deadline; 0 means 1 */
    uint64_t     timeout_ns;       /* the deadline of each dispatch and each combine; 0: KVCL_TIMEOUT.
                                      KVCL_WAIT_FOREVER is refused: no rank would ever be late */
    uint64_t     first_timeout_ns; /* of kvcl_ep_open, and of the first steps of an activation, in which ranks warm up;
                                      0: KVCL_TIMEOUT. KVCL_WAIT_FOREVER is refused, too */
} kvcl_ep_open_params_t;
#define KVCL_EP_OPEN_PARAMS_INIT {sizeof(kvcl_ep_open_params_t), 0, 0, 0, 0, 0, KVCL_DTYPE_BF16, 0, 0, 0}

/**
 * Collective over an intra-communicator, with equal params on all its ranks, all of which are active at first. The
 * handle has its own communicator, so tags are the caller's. Its memory: 2 * slots * max_tokens rows (a row is one
 * token: hidden elements), half of which are touched only as tokens arrive, and max_tokens * (1 + top_k) rows.
 * @return KVCL_OK; KVCL_ERR_INVALID_PARAM: a limit, slots that are no multiple of the ranks, or params that differ
 *         (names the rank and both); an inter-communicator, flags, KVCL_WAIT_FOREVER, a NULL pointer;
 *         KVCL_ERR_NO_MEMORY: on any rank, when it made its arrays; KVCL_ERR_TIMED_OUT: a rank did not call, or its own
 *         call was refused before the ranks met (a handle, an argument of the second list, no memory for the call);
 *         KVCL_ERR_RANK_FAILED, KVCL_ERR_UNREACHABLE.
 */
KVCL_API kvcl_status_t kvcl_ep_open(kvcl_comm_h comm, const kvcl_ep_open_params_t *params, kvcl_ep_h *ep_p)
    KVCL_MUST_CHECK;
/** Local. Ranks that go on without this one skip it at once. NULL is allowed. */
KVCL_API void kvcl_ep_close(kvcl_ep_h ep);

/* What a dispatch brought. All pointers are the handle's: valid until its next dispatch or its end. */
typedef struct kvcl_ep_batch {
    size_t         size;    /* sizeof(kvcl_ep_batch_t): set it before the call */
    uint64_t       step;    /* of this activation, from 1 */
    uint32_t       experts; /* local slots: S/R */
    uint32_t       rows;    /* room of each: ranks * max_tokens */
    const void     *x;      /* [experts][rows][hidden]: the tokens for each local slot, counts[e] from its first row
                               on */
    void           *y;      /* the same shape: where the experts may write their outputs, row for row */
    const uint32_t *counts; /* [experts] */
    const int64_t  *ranges; /* [experts][ranks]: first row << 32 | rows, of each rank's tokens for the slot: in the
                               order of the tokens there. Ranks are in any order */
} kvcl_ep_batch_t;
#define KVCL_EP_BATCH_INIT {sizeof(kvcl_ep_batch_t), 0, 0, 0, NULL, NULL, NULL, NULL}

/**
 * Begin a step: give each token to the slots that it chose. Every active rank takes part, with 0 tokens too. A step is
 * one dispatch and one combine, in turn. Rows of a rank that failed on the way count, and are zero.
 * @param x       [n_tokens][hidden]; the caller's again on return.
 * @param ids     [n_tokens][top_k]: slots, no slot twice for a token; KVCL_EP_ID_NONE, KVCL_EP_ID_LOST. Copied.
 * @param top_k   at most that of the params.
 * @param [out] batch  filled on KVCL_OK; NULL: not wanted.
 * @return KVCL_OK, also where ranks were skipped (kvcl_ep_query). Nothing was sent, and the call may be repeated, with:
 *         KVCL_ERR_OUT_OF_RANGE: an id (names the token and its place), n_tokens or top_k above the params;
 *         KVCL_ERR_INVALID_PARAM: a slot twice (names both places), a pointer is NULL, or a combine is due.
 */
KVCL_API kvcl_status_t kvcl_ep_dispatch(kvcl_ep_h ep, const void *x, const int64_t *ids, uint32_t n_tokens,
                                        uint32_t top_k, kvcl_ep_batch_t *batch) KVCL_MUST_CHECK;

/* What a combine lacks. */
typedef struct kvcl_ep_result {
    size_t   size;        /* sizeof(kvcl_ep_result_t): set it before the call */
    uint64_t step;
    uint32_t tokens_lost; /* that lack the output of at least one chosen expert */
    uint32_t tokens_all;  /* of these, that lack all: their output is 0 */
    uint32_t active;      /* ranks, this one too */
} kvcl_ep_result_t;
#define KVCL_EP_RESULT_INIT {sizeof(kvcl_ep_result_t), 0, 0, 0, 0}

/**
 * End the step: out[t] = 0 + w[t][0]*y_0 + w[t][1]*y_1 + ..., in this order, products and sums in f32, rounded once to
 * dtype (to nearest even). So the result depends on no other rank's speed. A NaN or an infinity is a value like others.
 * @param y        [experts][rows][hidden], the outputs, in the places of kvcl_ep_batch_t.x; NULL: they are in its y,
 *                 which saves a copy.
 * @param weights  [n_tokens][top_k] of the dispatch.
 * @param [out] out   [n_tokens][hidden].
 * @param [out] lost  [n_tokens]: the sum of the weights, in the same order, whose outputs are missing; exactly 0 where
 *                    none is. NULL: not wanted.
 * @param [out] result  NULL: not wanted.
 * @return KVCL_OK, also where ranks were skipped; KVCL_ERR_INVALID_PARAM: no dispatch before it, or a pointer is NULL.
 */
KVCL_API kvcl_status_t kvcl_ep_combine(kvcl_ep_h ep, const void *y, const float *weights, void *out, float *lost,
                                       kvcl_ep_result_t *result) KVCL_MUST_CHECK;

/**
 * Scale the outputs of tokens that lack an expert by (all weights) / (weights that remain), in f32: for routers whose
 * weights have a constant sum. The only call that renormalises. Tokens without loss are not touched. Pure; any thread.
 * @param ids, weights  [n_tokens][top_k], as given to dispatch and combine.
 * @param lost          [n_tokens] of combine.
 * @param [out] hopeless  [n_tokens]: 1: all that remains weighs 0 (0/0): the output was left as it is, and the caller
 *                        decides. NULL: not wanted.
 * @param [out] n_hopeless_p  how many. NULL: not wanted.
 * @return KVCL_OK; KVCL_ERR_INVALID_PARAM: a pointer is NULL, dtype.
 */
KVCL_API kvcl_status_t kvcl_ep_renormalise(void *out, kvcl_dtype_t dtype, uint32_t n_tokens, uint32_t hidden,
                                           const int64_t *ids, const float *weights, uint32_t top_k, const float *lost,
                                           uint8_t *hopeless, uint32_t *n_hopeless_p) KVCL_MUST_CHECK;

/**
 * Replace the map and the mask together, under one number: between two steps, on all ranks that are to be active, with
 * the same number, params and placement, which they have agreed on. Local: no message is sent; messages of other
 * numbers are not read. Steps are counted from 1 again, and the first ones have the longer deadline. Until then the old
 * map and mask serve. Ranks that were skipped take part again where the params say so, if they activate the same.
 * @param number     more than the last one; a handle begins with 0, without a map.
 * @param params     layers, experts, slots, ranks and active are read, and KVCL_EP_HOLES.
 * @param placement  [layers][slots]; copied. NULL: the map stays.
 * @return KVCL_OK; KVCL_ERR_STALE: the number does not rise; KVCL_ERR_INVALID_PARAM: params (as kvcl_ep_place), other
 *         slots or ranks than the handle's, this rank is not active, a slot of a rank that is not active holds an
 *         expert, an expert is in no slot (without KVCL_EP_HOLES), or a combine is due; KVCL_ERR_OUT_OF_RANGE: a slot
 *         names no expert; KVCL_ERR_NO_MEMORY. Then the old map and mask stay.
 */
KVCL_API kvcl_status_t kvcl_ep_activate(kvcl_ep_h ep, uint64_t number, const kvcl_ep_params_t *params,
                                        const int32_t *placement) KVCL_MUST_CHECK;

/**
 * The slots of chosen experts, for kvcl_ep_dispatch: an expert with several copies on active ranks gets them in turn,
 * token by token; without one its id becomes KVCL_EP_ID_LOST. Local; does not block.
 * @param experts  [n_tokens][top_k]: experts of the map's layer; KVCL_EP_ID_NONE and KVCL_EP_ID_LOST stay.
 * @param [out] ids  [n_tokens][top_k]; may be experts itself. Untouched on failure.
 * @return KVCL_OK; KVCL_ERR_OUT_OF_RANGE: the layer, or an expert (names the token and its place);
 *         KVCL_ERR_INVALID_PARAM.
 */
KVCL_API kvcl_status_t kvcl_ep_choose(kvcl_ep_h ep, uint32_t layer, const int64_t *experts, uint32_t n_tokens,
                                      uint32_t top_k, int64_t *ids) KVCL_MUST_CHECK;

/*
 * The mask and the map as plain memory, for a kernel or a framework: fixed for ever. To read it consistently: read
 * generation (acquire) until it is even, read the rest with relaxed atomic loads, then an acquire fence, then
 * generation again; repeat if it has changed.
 */
typedef struct kvcl_ep_mask {
    uint64_t generation; /* of the content: odd while it changes, as it does in each step */
    uint64_t changes;    /* while it is unchanged, so are active, number and map */
    uint64_t number;     /* of the activation */
    uint64_t step;       /* the last one begun */
    uint32_t ranks;
    uint32_t n_active;
    uint32_t layers;     /* of the map; 0: none was activated */
    uint32_t experts;    /* the same */
    const int32_t *placement; /* [layers][slots]; its memory stays as it is until the activation after the next, or
                                 kvcl_ep_close */
    int32_t  active[KVCL_EP_MAX_RANKS]; /* 1: takes part; 0: is skipped, or beyond ranks */
} kvcl_ep_mask_t;

/** The memory of the mask: the handle's, at one address until kvcl_ep_close. NULL: not a handle. Any thread. */
KVCL_API const kvcl_ep_mask_t *kvcl_ep_mask(kvcl_ep_h ep);

/* One consistent reading of the mask, and why a rank is skipped. */
typedef struct kvcl_ep_state {
    size_t   size; /* sizeof(kvcl_ep_state_t): set it before the call */
    uint64_t generation;
    uint64_t number;
    uint64_t step;
    uint32_t ranks;
    uint32_t n_active;
    uint64_t changes;
} kvcl_ep_state_t;
#define KVCL_EP_STATE_INIT {sizeof(kvcl_ep_state_t), 0, 0, 0, 0, 0, 0}

/**
 * @param [out] active  [ranks]; NULL: not wanted.
 * @param [out] why     [ranks]: KVCL_OK: active. KVCL_ERR_RANK_FAILED: it is dead. KVCL_ERR_UNREACHABLE: its link was
 *                      lost. KVCL_ERR_TIMED_OUT: it was late. KVCL_ERR_STALE: it skips this rank, or has closed its
 *                      handle. KVCL_ERR_PROTOCOL: it sent what no rank of this version sends. NULL: not wanted.
 * Any thread; does not block.
 * @return KVCL_OK; KVCL_ERR_INVALID_PARAM, KVCL_ERR_DEAD_HANDLE.
 */
KVCL_API kvcl_status_t kvcl_ep_query(kvcl_ep_h ep, kvcl_ep_state_t *state, int32_t *active, kvcl_status_t *why)
    KVCL_MUST_CHECK;

KVCL_END_DECLS

#endif
