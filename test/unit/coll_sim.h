/*
 * A whole collective in one process: N ranks with real buffers, executors, and a bag of messages and pulls in flight,
 * from which a seeded generator draws the next event.
 *
 * Reductions add bytes, or with `odd` compute what no change of operands or order leaves as it is. The lower rank's
 * bytes are the first operand, as in src/coll/coll_pull.c.
 *
 * Checks: bytes are pulled only from where they have arrived. A buffer is not read after its owner was notified that it
 * may reuse it, and not written after its owner was notified of the end. No event is refused. The collective ends;
 * after success every rank has the right bytes and the bag is empty.
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
    SIM_DEATH,      /* one rank stops; the others are notified one by one */
    SIM_FAULTS
} sim_fault_t;

typedef struct sim_params {
    kvcl_coll_shape_t  shape; /* rank is ignored */
    kvcl_exec_limits_t limits;
    uint64_t           seed;
    int                no_acks;  /* announcements carry their bytes, as in src/coll/coll_post.c (has_no_acks) */
    int                in_order; /* events in the order of their creation, not drawn */
    int                odd;      /* reduce by an operation whose result depends on each order: all ranks must agree */
    sim_fault_t        fault;
} sim_params_t;

typedef struct sim_result {
    uint64_t announces;    /* messages */
    uint64_t acks;
    uint64_t pulled_bytes;
    uint32_t rounds;       /* longest chain of messages, each of which waited for the previous one */
    uint32_t most_pulls;   /* in flight at one rank */
    uint32_t succeeded;    /* ranks that ended with KVCL_OK */
    uint32_t failed;
} sim_result_t;

/** @return NULL, or the failure (static buffer). */
const char *sim_run(const kvcl_coll_alg_t *alg, const sim_params_t *params, sim_result_t *result);

/** TEST_SEED, or a new seed; printed once. */
uint64_t sim_seed(void);

#endif
