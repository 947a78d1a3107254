/*
 * What follows from a trace and a number of ranks before anything runs, and is the same on all ranks because it depends
 * on nothing else: which blocks are the same prefix block, what a replay in order hits, how much memory a rank needs,
 * and which prefixes become hot and are broadcast when. Pure.
 */
#ifndef KVCL_TOOLS_REPLAY_PLAN_H
#define KVCL_TOOLS_REPLAY_PLAN_H

#include "tools/replay/trace.h"

/*
 * A broadcast: blocks begin..end-1 of a request, by all ranks, before each goes on to its first request of number
 * "before" or later. They were asked for at least a round earlier, so that in order they have been published.
 */
typedef struct plan_hot {
    size_t   before;
    size_t   request;
    uint32_t begin;
    uint32_t end;
} plan_hot_t;

typedef struct plan {
    uint64_t   distinct;       /* prefix blocks: equal with everything before them */
    uint64_t   hits;           /* blocks that are there when requests run in order and nothing is evicted */
    uint64_t   own_first;      /* blocks that this rank computes then */
    uint64_t   own_distinct;   /* blocks that this rank asks for: more it never computes unless it evicts */
    uint64_t   all_distinct;   /* the sum of own_distinct over the ranks */
    plan_hot_t *hot;           /* in order of before */
    size_t     n_hot;
    uint64_t   hot_blocks;     /* of all broadcasts */
} plan_t;

/**
 * @param hot_max  the most blocks one broadcast may have; 0: no broadcasts.
 * @return false when out of memory; *plan is then empty. Else freed by plan_free().
 */
bool plan_make(plan_t *plan, const trace_t *trace, int rank, int size, uint32_t hot_max);
void plan_free(plan_t *plan);

#endif
