/*
 * The plan of a replay: it depends only on the trace and the number of ranks, so all ranks compute the same one. It
 * identifies equal prefix blocks, counts the hits of a replay in order and the memory that a rank needs, and chooses
 * the hot prefixes and the time of their broadcasts. Pure.
 */
#ifndef KVCL_TOOLS_REPLAY_PLAN_H
#define KVCL_TOOLS_REPLAY_PLAN_H

#include "tools/replay/trace.h"

/*
 * A broadcast: blocks begin..end-1 of a request, by all ranks, before each begins its first request of number "before"
 * or later. They were requested at least a round earlier, so in order they have been published.
 */
typedef struct plan_hot {
    size_t   before;
    size_t   request;
    uint32_t begin;
    uint32_t end;
} plan_hot_t;

typedef struct plan {
    uint64_t   distinct;       /* prefix blocks: equal including all blocks before them */
    uint64_t   hits;           /* blocks that exist when requests run in order without eviction */
    uint64_t   own_first;      /* blocks that this rank computes in that case */
    uint64_t   own_distinct;   /* blocks that this rank requests: without eviction it never computes more */
    uint64_t   all_distinct;   /* the sum of own_distinct over the ranks */
    plan_hot_t *hot;           /* in order of before */
    size_t     n_hot;
    uint64_t   hot_blocks;     /* of all broadcasts */
} plan_t;

/**
 * @param hot_max  the most blocks one broadcast may have; 0: no broadcasts.
 * @return false when out of memory; *plan is then empty. Otherwise plan_free() frees it.
 */
bool plan_make(plan_t *plan, const trace_t *trace, int rank, int size, uint32_t hot_max);
void plan_free(plan_t *plan);

#endif
