/*
 * The simulator's form of a trace, and one run over it.
 */
#ifndef KVCL_BENCH_POLICIES_CHAINS_H
#define KVCL_BENCH_POLICIES_CHAINS_H

#include "pool.h"
#include "tools/replay/trace.h"

/* The results of a policy on a trace. */
typedef struct outcome {
    uint64_t run_hits;   /* blocks of the longest leading run that was held, as kvcl_store_match counts */
    uint64_t block_hits; /* blocks that were held, at any position */
    uint64_t evicted;
    uint64_t orphans;    /* evicted blocks that had a held child */
} outcome_t;

bool chains_make(chains_t *chains, const trace_t *trace); /* false: out of memory; free it all the same */
void chains_free(chains_t *chains);

/* Run all requests. The held blocks of a request are used, the end of its chain first; then the others are inserted,
 * the end first. False: out of memory. */
bool chains_run(const chains_t *chains, const policy_t *policy, uint32_t capacity, outcome_t *outcome);

#endif
