/*
 * What the simulator makes of a trace, and one run over it.
 */
#ifndef KVCL_BENCH_POLICIES_CHAINS_H
#define KVCL_BENCH_POLICIES_CHAINS_H

#include "pool.h"
#include "tools/replay/trace.h"

/* What a policy did with a trace. */
typedef struct outcome {
    uint64_t run_hits;   /* blocks of the longest leading run that was held, as kvcl_store_match counts */
    uint64_t block_hits; /* blocks that were held, wherever they stand */
    uint64_t evicted;
    uint64_t orphans;    /* of the evicted: had a child that was held */
} outcome_t;

bool chains_make(chains_t *chains, const trace_t *trace); /* false: out of memory; free it all the same */
void chains_free(chains_t *chains);

/* Each request: what is held is used, the end of its chain first; then the rest comes in, the end first. False: out of
 * memory. */
bool chains_run(const chains_t *chains, const policy_t *policy, uint32_t capacity, outcome_t *outcome);

#endif
