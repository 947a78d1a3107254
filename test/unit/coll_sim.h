/*
 * A whole collective in one process: N ranks with real buffers, executors, and a bag of
 * messages and pulls under way out of which a seeded generator draws the next event.
 *
 * What it watches: bytes are pulled only from where they have arrived; nothing is read of a buffer whose
 * owner was told it may reuse it, nothing is written to a buffer whose owner was told the end; no event is
 * refused; it ends; after success every rank has the right bytes and nothing is left in the bag.
 */
#ifndef KVCL_TEST_COLL_SIM_H
#define KVCL_TEST_COLL_SIM_H

#include "collectives/coll.h"
#include "collectives/exec.h"

#include <stdint.h>

typedef enum {
    SIM_NO_FAULT,
    SIM_PULL_FAILS, /* one pull ends with an error */
    SIM_CANCEL,     /* one rank calls kvcl_exec_fail */
    SIM_DEATH,      /* one rank stops; the others hear of it one by one */
    SIM_FAULTS
} sim_fault_t;

typedef struct sim_params {
    kvcl_coll_shape_t  shape; /* rank is ignored */
    kvcl_exec_limits_t limits;
    uint64_t           seed;
    int                in_order; /* events in the order they were made, not drawn */
    sim_fault_t        fault;
} sim_params_t;

typedef struct sim_result {
    uint64_t announces;    /* messages */
    uint64_t acks;
    uint64_t pulled_bytes;
    uint32_t rounds;       /* longest chain of messages each of which waited for the one before */
    uint32_t most_pulls;   /* under way at one rank */
    uint32_t succeeded;    /* ranks that ended with KVCL_OK */
    uint32_t failed;
} sim_result_t;

/** @return NULL, or what was wrong (static buffer). */
const char *sim_run(const kvcl_coll_alg_t *alg, const sim_params_t *params, sim_result_t *result);

/** TEST_SEED, or a new one; printed once. */
uint64_t sim_seed(void);

#endif
