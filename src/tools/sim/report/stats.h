/*
 * What a run came to: numbers of its requests, made once it has ended. Owns its sorted arrays.
 */
#ifndef KVCL_TOOLS_SIM_STATS_H
#define KVCL_TOOLS_SIM_STATS_H

#include "tools/sim/sim.h"

#define STATS_LENGTHS 8u /* up to 2k, 4k, 8k, 16k, 32k, 64k, 128k tokens of prompt, and more */

/* Offered and good requests, and their tokens (prompt and output). */
typedef struct stats_share {
    uint64_t offered;
    uint64_t good;
    double   tokens;
    double   good_tokens;
} stats_share_t;

typedef struct sim_stats {
    uint64_t      n[SIM_LOST + 1];   /* by final state */
    stats_share_t all;
    stats_share_t classes[SIM_CLASSES];
    stats_share_t lengths[STATS_LENGTHS];
    stats_share_t longest;           /* the longest tenth of the prompts */
    double        span;              /* seconds, to the last end */
    double        *ttft;             /* sorted; of requests with a first token */
    size_t        n_ttft;
    double        *tbt;              /* sorted; of requests that ended with two tokens or more */
    size_t        n_tbt;
    double        ttft_mean;
    double        tbt_mean;
    double        prefill_mean;      /* seconds, of the requests that were prefilled */
    double        queue_mean;        /* seconds from arrival to the prefill's start */
    double        there;             /* shares of prefilled tokens: found at the instance, fetched */
    double        fetched;
    double        jain;              /* of the prefill seconds of the instances: 1 is even */
    double        correlation;       /* of prefill and decode load, over time; NAN: one of them is constant */
} sim_stats_t;

/* False: out of memory, after reporting. */
bool   stats_make(sim_stats_t *stats, const sim_t *sim);
void   stats_free(sim_stats_t *stats);

/* The value that a share q of the sorted values does not exceed; NAN without values. */
double stats_quantile(const double *values, size_t n, double q);

/* good / offered, 0 of none. */
double stats_good(const stats_share_t *share);

/* "up to 2k" and so on. */
const char *stats_length_name(unsigned i);

#endif
