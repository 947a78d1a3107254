/*
 * Resharding: which rank reads which heads and layers from which rank, between tensor-parallel groups of m and n ranks.
 *
 * A plan is a list of steps, each a pair of selections (kvcl_sel_t.heads and .layers) for one kvcl_get, kvcl_put, or
 * kvcl_send and kvcl_recv; block ids are the caller's. Plans are pure values: every rank computes its own part, all
 * parts fit each other, and nothing is exchanged. Nothing here allocates, keeps a pointer or takes a lock. All
 * functions may be called from any thread and from callbacks.
 *
 * The placement of heads (that of vLLM and SGLang). A model has H KV heads; t ranks hold them:
 *
 *   H >= t: H must be a multiple of t. Rank r has heads [r*H/t, (r+1)*H/t).
 *   H <  t: t must be a multiple of H. Each head is on t/H ranks: rank r has head r / (t/H).
 *
 * MLA's latent is H = 1: all ranks hold it. Other pairs (H, t) are refused, as the engines refuse them. With pipeline
 * stages each stage has its own t ranks and a range of layers; the index of a rank in its group is stage * t + r.
 * A rank's cache holds its own heads and layers only, counted from 0: the ranges in a step are such local ones.
 *
 * The source of a replicated head is the nearest to the destination of the ranks that hold it. Among equally near ones
 * the choice rotates, so that the load is even: with R = max(1, m/H) holders that are ranks [k*R, (k+1)*R) of their
 * stage, the destination of index d begins at rank k*R + d % R. Without distances that rank is the source; in the first
 * stage it is the rank of the same index wherever that rank holds the head.
 *
 * Each rank of the destination gets each of its bytes once: the bytes of its steps are those of its own blocks.
 */
#ifndef KVCL_RESHARD_H
#define KVCL_RESHARD_H

#include <kvcl/kvcl_layout.h>

KVCL_BEGIN_DECLS

/* The most ranks of one group, tp * pp; more are refused (KVCL_ERR_INVALID_PARAM). */
#define KVCL_RESHARD_MAX_RANKS 4096u

/* One group of ranks that hold a model's KV cache together. Fixed for ever, since kvcl_reshard_params_t holds two: 32
 * bytes; further fields take the place of the reserved ones. */
typedef struct kvcl_reshard_group {
    uint32_t       tp;            /* tensor-parallel ranks of one stage: at least 1 */
    uint32_t       pp;            /* pipeline stages; 0 means 1 */
    const uint32_t *stage_layers; /* [pp]: the layers of each stage, at least 1, together all of the model's; NULL: as
                                     many in each, and one more in the first (layers % pp) stages */
    uint64_t       reserved[2];   /* 0 */
} kvcl_reshard_group_t;

typedef struct kvcl_reshard_params {
    size_t               size;        /* sizeof(kvcl_reshard_params_t) */
    uint64_t             flags;       /* must be 0 */
    uint32_t             layers;      /* of the model: 1..KVCL_LAYOUT_MAX_LAYERS */
    uint32_t             heads;       /* KV heads of the model; 1 for MLA */
    kvcl_reshard_group_t source;
    kvcl_reshard_group_t destination;
    const uint32_t       *distances;  /* [destination ranks][source ranks]: any unit, less is nearer; looked at where a
                                         head is held by several. NULL: all alike */
} kvcl_reshard_params_t;
#define KVCL_RESHARD_PARAMS_INIT \
    {sizeof(kvcl_reshard_params_t), 0, 0, 0, {0, 0, NULL, {0, 0}}, {0, 0, NULL, {0, 0}}, NULL}

/* These heads and layers of the source's cache become those of the destination's. Both indices are in their group. */
typedef struct kvcl_reshard_step {
    uint32_t     source;
    uint32_t     destination;
    kvcl_range_t source_layers;
    kvcl_range_t source_heads;
    kvcl_range_t destination_layers;
    kvcl_range_t destination_heads;
} kvcl_reshard_step_t;

/* The most steps that the plan of one rank can have: as many as the *other* group has ranks. The arguments are tp and
 * pp of the source for kvcl_reshard_plan, of the destination for kvcl_reshard_plan_source:
 *   kvcl_reshard_step_t steps[KVCL_RESHARD_STEPS_MAX(4, 1)];
 * With a smaller array the call returns KVCL_ERR_TRUNCATED and the number of steps. */
#define KVCL_RESHARD_STEPS_MAX(_tp, _pp) ((size_t)(_tp) * (((_pp) == 0) ? 1u : (size_t)(_pp)))

/**
 * The heads and layers that the rank @a index of a group has in its cache: the counts of its layout's heads and layers
 * (end - first), and their indices in the model. @a layers: of the model, @a heads: KV heads of the model.
 * @param [out] layers_p, heads_p   either may be NULL.
 * @return KVCL_OK; KVCL_ERR_INVALID_PARAM: a count is 0 or beyond its limit, the ranks can hold no equal share of the
 *         heads, stage_layers do not sum up to the layers; KVCL_ERR_OUT_OF_RANGE: no such rank in the group.
 */
KVCL_API kvcl_status_t kvcl_reshard_share(const kvcl_reshard_group_t *group, uint32_t layers, uint32_t heads,
                                          uint32_t index, kvcl_range_t *layers_p, kvcl_range_t *heads_p)
    KVCL_MUST_CHECK;

/**
 * The steps that fetch all heads and layers of destination rank @a index, by source stage and head. For each it posts
 *   kvcl_get(comm, rank of step.source, cache, &remote, &local, ...)
 * with remote.heads = step.source_heads, local.heads = step.destination_heads, layers alike.
 * @param [in] stride   sizeof(kvcl_reshard_step_t).
 * @param [out] steps   room for cap; NULL is allowed with cap 0, to learn the number.
 * @param [out] n_p     the number of steps, also with KVCL_ERR_TRUNCATED.
 * @return KVCL_OK; KVCL_ERR_TRUNCATED: more than cap, only *n_p was written; otherwise as
 *         kvcl_reshard_share.
 */
KVCL_API kvcl_status_t kvcl_reshard_plan(const kvcl_reshard_params_t *params, uint32_t index,
                                         kvcl_reshard_step_t *steps, size_t stride, size_t cap, size_t *n_p)
    KVCL_MUST_CHECK;

/**
 * The same plan from the other side: the steps of all destinations that take from the source rank @a index, by
 * destination. A source that is not the nearest holder of anything has none. For kvcl_put and kvcl_send.
 */
KVCL_API kvcl_status_t kvcl_reshard_plan_source(const kvcl_reshard_params_t *params, uint32_t index,
                                                kvcl_reshard_step_t *steps, size_t stride, size_t cap, size_t *n_p)
    KVCL_MUST_CHECK;

KVCL_END_DECLS

#endif
