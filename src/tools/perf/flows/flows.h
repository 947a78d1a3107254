/*
 * A measurement with a pattern: many ranks move blocks at the same time. A flow is what one rank, the initiator, moves
 * from or to one target. A rank may be both, towards several ranks; one that initiates is a member of the report.
 *
 * Each rank has two caches, if any flow needs them: "from" holds the count blocks that all its flows read, "into" has a
 * region of count blocks for each rank whose bytes arrive here, so that no flow overwrites another's. Block i of rank r
 * in iteration k holds the pattern of (r, i, k).
 *
 * Files: flow_kind.c which ranks move with which; flows_open.c caches, orders, keys, bytes; flows_ops.c one iteration
 * of each test; flows_measure.c the rounds and the memcpy beside them; flows_report.c the output. All functions but the
 * report's run on all ranks together. One thread a rank.
 */
#ifndef KVCL_TOOLS_PERF_FLOWS_FLOWS_H
#define KVCL_TOOLS_PERF_FLOWS_FLOWS_H

#include "tools/perf/perf.h"

typedef struct flows flows_t;

/* A test's part in patterns: perf_test_t.flow. */
typedef struct flow_op {
    bool reads; /* bytes arrive at the initiator; otherwise at the target */
    bool keys;  /* the targets' blocks are got by keys */
    bool (*once)(flows_t *flows); /* one iteration of this rank: post to all targets, then wait */
} flow_op_t;

/* What a rank measured: a plain value, sent to rank 0. */
typedef struct flow_note {
    char     path[192];     /* to its first target; empty: initiates nothing */
    uint64_t n_targets;
    uint64_t iters;
    uint64_t op_ns;         /* in operations */
    uint64_t wall_ns;       /* of the rounds, from barrier to barrier: of ranks that initiate nothing, too */
    uint64_t cpu_ns;        /* of all threads in that time */
    uint64_t wrong;
    uint64_t copy_iters;    /* --floor */
    uint64_t copy_op_ns;
    uint64_t copy_wall_ns;
    hist_t   ns;
} flow_note_t;

struct flows {
    const job_t          *job;
    const perf_options_t *opt;
    const perf_test_t    *test;
    int                  *targets;    /* in rising order */
    size_t               n_targets;
    int                  *initiators; /* towards this rank; in rising order */
    size_t               n_initiators;
    kvcl_cache_h         from;
    kvcl_cache_h         into;
    uint8_t              *from_base;
    uint8_t              *into_base;
    uint32_t             *from_ids;   /* the order of the blocks */
    uint32_t             *into_ids;   /* region after region, as many as a rank may have */
    kvcl_req_h           *reqs;       /* of an iteration: one for each initiator, then for each target */
    kvcl_store_h         store;
    kvcl_key_t           *keys;       /* of rank r: at r * count */
    uint8_t              *copy;       /* --floor: as many regions as targets */
    uint64_t             iter;
    flow_note_t          note;
};

/* The ranks whose bytes arrive here, the first in the first region. */
static inline const int *flows_arrivals(const flows_t *flows, size_t *n_p)
{
    *n_p = flows->test->flow->reads ? flows->n_targets : flows->n_initiators;
    return flows->test->flow->reads ? flows->targets : flows->initiators;
}

extern const flow_op_t flow_get;
extern const flow_op_t flow_put;
extern const flow_op_t flow_send;
extern const flow_op_t flow_store_get;

/* All that return bool: false after the error was printed. */
bool flows_open(flows_t *flows);
void flows_close(flows_t *flows);
/* New bytes for iteration flows->iter, and their keys. */
bool flows_renew(flows_t *flows);
/* Blocks in this rank's regions that do not hold the bytes of iteration flows->iter. */
uint64_t flows_check(const flows_t *flows);

/* A whole measurement. @return whether it ended, with *wrong_p blocks of all ranks. */
bool flows_measure(const job_t *job, const perf_options_t *opt, const perf_test_t *test, uint64_t *wrong_p);

/* Rank 0: notes of all ranks. */
void flows_report(const flows_t *flows, const flow_note_t *notes, uint64_t wrong);

#endif
