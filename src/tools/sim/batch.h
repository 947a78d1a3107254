/*
 * A continuous batch of decoding requests, in closed form: between joins and ends, k steps of n requests with C tokens
 * of context take k base + slope (k C + n k (k - 1) / 2) seconds. A request that comes joins at the end of the step
 * that runs. Owned by its user; grows; time comes in.
 */
#ifndef KVCL_TOOLS_SIM_BATCH_H
#define KVCL_TOOLS_SIM_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sim_member {
    uint64_t end;     /* the number of the step after which it has all its tokens */
    uint32_t request;
    uint32_t tokens;  /* of its context, at step 0 of the batch: so that at step s it has tokens + s (wraps) */
} sim_member_t;

/* Steps of one length. */
typedef struct sim_span {
    uint64_t first;
    uint64_t steps;
    double   step_s;
} sim_span_t;

typedef struct sim_batch {
    double       at;       /* the end of step `step`, the beginning of the next */
    uint64_t     step;     /* steps done */
    uint32_t     n;        /* requests that run */
    double       context;  /* tokens of all */
    double       base;     /* seconds of a step */
    double       slope;    /* and for each token of context */
    sim_member_t *members; /* a heap by end */
    uint32_t     cap;
    sim_span_t   *spans;   /* what was done: of the oldest member on */
    size_t       n_spans;
    size_t       cap_spans;
    double       busy_s;   /* of all steps so far */
} sim_batch_t;

void sim_batch_init(sim_batch_t *batch);
void sim_batch_free(sim_batch_t *batch);

/* Seconds of the next k steps. */
double sim_batch_seconds(const sim_batch_t *batch, uint64_t k);

/* The least number of steps that end at `now` or later. */
uint64_t sim_batch_steps(const sim_batch_t *batch, double now);

/* Steps until the first request ends; 0 if none runs. */
uint64_t sim_batch_left(const sim_batch_t *batch);

/* Do k steps, at most sim_batch_left. False: out of memory. */
bool sim_batch_advance(sim_batch_t *batch, uint64_t k);

/* The batch stands still until `until`: the next token comes later by that. False: out of memory. */
bool sim_batch_stall(sim_batch_t *batch, double until);

/* A request with `context` tokens joins, to make `tokens` more (at least 1). An empty batch begins at `now`.
 * False: out of memory. The user sets base and slope afterwards. */
bool sim_batch_join(sim_batch_t *batch, double now, uint32_t request, uint32_t context, uint32_t tokens);

/* Take out a request that has all its tokens. False: none has. */
bool sim_batch_ended(sim_batch_t *batch, uint32_t *request_p);

/* The mean seconds of the longest tenth (at least one) of the last `steps` steps, the first of which came first_s later
 * than a step takes. *mean_p: of all of them. */
double sim_batch_longest(const sim_batch_t *batch, uint64_t steps, double first_s, double *mean_p);

#endif
