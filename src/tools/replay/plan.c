/*
 * Owns the walk over a trace that numbers its prefix blocks (two blocks are the same only if their parents are) and
 * finds the hot ones: those requested by more than half of the ranks. Broadcasts are limited: a run of at least
 * HOT_MIN_BLOCKS, at most one in HOT_GAP requests, each block once.
 */
#include "config.h"
#include "tools/replay/plan.h"

#include "tools/replay/idmap.h"

#include <stdlib.h>
#include <string.h>

#define HOT_MIN_BLOCKS 8u
#define HOT_GAP        64u
#define NO_PARENT      UINT32_MAX

typedef struct node {
    uint32_t requesters; /* different ranks */
    bool     broadcast;
} node_t;

typedef struct walk {
    plan_t        *plan;
    const trace_t *trace;
    int           rank;
    int           size;
    uint32_t      hot_max;
    idmap_t       blocks;  /* (id, parent's number) */
    idmap_t       askings; /* (block's number, rank) */
    node_t        *nodes;  /* by block number: room for one per id of the trace */
    uint32_t      *numbers; /* of the request at hand */
    size_t        last_hot; /* request of the latest broadcast, or SIZE_MAX */
} walk_t;

/* Number the blocks of a request, and count their requesters and the existing ones. */
static bool visit(walk_t *walk, size_t index)
{
    const trace_request_t *request = &walk->trace->requests[index];
    const uint32_t        owner    = (uint32_t)(index % (size_t)walk->size);
    const bool            own      = (owner == (uint32_t)walk->rank);
    bool                  new_block, new_asking, run = true;
    uint32_t              i, parent = NO_PARENT;

    for (i = 0; i < request->n; ++i) {
        parent = idmap_number(&walk->blocks, walk->trace->ids[request->first + i], parent, &new_block);
        if ((parent == IDMAP_NONE) || (idmap_number(&walk->askings, parent, owner, &new_asking) == IDMAP_NONE)) {
            return false;
        }
        walk->numbers[i] = parent;
        run              = run && !new_block;
        walk->plan->hits += run ? 1u : 0u;
        walk->plan->own_first += (own && new_block) ? 1u : 0u;
        walk->plan->own_distinct += (own && new_asking) ? 1u : 0u;
        walk->nodes[parent].requesters += new_asking ? 1u : 0u;
    }
    return true;
}

static bool append_hot(plan_t *plan, const plan_hot_t *hot)
{
    plan_hot_t *grown;

    /* doubled whenever the count is a power of two */
    if ((plan->n_hot & (plan->n_hot - 1)) == 0) {
        grown = realloc(plan->hot, ((plan->n_hot != 0) ? plan->n_hot * 2 : 1) * sizeof(*grown));
        if (grown == NULL) {
            return false;
        }
        plan->hot = grown;
    }
    plan->hot[plan->n_hot++] = *hot;
    plan->hot_blocks += hot->end - hot->begin;
    return true;
}

/* If the request just visited begins with a hot run that was not broadcast yet, plan a broadcast. */
static bool find_hot(walk_t *walk, size_t index)
{
    const uint32_t n = walk->trace->requests[index].n;
    plan_hot_t     hot;
    uint32_t       begin = 0, end, i;

    if ((walk->hot_max < HOT_MIN_BLOCKS) || (walk->size < 2) ||
        ((walk->last_hot != SIZE_MAX) && (index - walk->last_hot < HOT_GAP))) {
        return true;
    }
    while ((begin < n) && walk->nodes[walk->numbers[begin]].broadcast) {
        ++begin;
    }
    for (end = begin; (end < n) && (end - begin < walk->hot_max) && !walk->nodes[walk->numbers[end]].broadcast &&
                      (walk->nodes[walk->numbers[end]].requesters * 2 > (uint32_t)walk->size);
         ++end) {
    }
    if (end - begin < HOT_MIN_BLOCKS) {
        return true;
    }
    for (i = begin; i < end; ++i) {
        walk->nodes[walk->numbers[i]].broadcast = true;
    }
    hot.before     = index + (size_t)walk->size;
    hot.request    = index;
    hot.begin      = begin;
    hot.end        = end;
    walk->last_hot = index;
    return append_hot(walk->plan, &hot);
}

static bool walk_all(walk_t *walk)
{
    size_t i;

    for (i = 0; i < walk->trace->n_requests; ++i) {
        if (!visit(walk, i) || !find_hot(walk, i)) {
            return false;
        }
    }
    walk->plan->distinct     = walk->blocks.n;
    walk->plan->all_distinct = walk->askings.n;
    return true;
}

bool plan_make(plan_t *plan, const trace_t *trace, int rank, int size, uint32_t hot_max)
{
    walk_t walk = {.plan = plan, .trace = trace, .rank = rank, .size = size, .hot_max = hot_max, .last_hot = SIZE_MAX};
    bool   good;

    memset(plan, 0, sizeof(*plan));
    idmap_init(&walk.blocks);
    idmap_init(&walk.askings);
    walk.nodes   = calloc(trace->n_ids + 1, sizeof(*walk.nodes));
    walk.numbers = calloc((size_t)trace->longest + 1, sizeof(*walk.numbers));
    good         = (walk.nodes != NULL) && (walk.numbers != NULL) && walk_all(&walk);
    idmap_free(&walk.blocks);
    idmap_free(&walk.askings);
    free(walk.nodes);
    free(walk.numbers);
    if (!good) {
        plan_free(plan);
    }
    return good;
}

void plan_free(plan_t *plan)
{
    free(plan->hot);
    memset(plan, 0, sizeof(*plan));
}
