/*
 * kvcl_replay: a serving cluster's KV-cache traffic from a trace, every byte verified. Owns the order of a run:
 * options, job, trace, plan, the check that all ranks have the same, the work, the summary, the exit status (0: all
 * bytes right; 1: wrong bytes or a failure; 2: bad options or a bad trace).
 */
#include "config.h"
#include "tools/pattern.h"
#include "tools/replay/generate.h"
#include "tools/replay/worker.h"

#include <stdlib.h>
#include <string.h>

enum {
    EXIT_WRONG = 1,
    EXIT_USAGE = 2
};

/* What must be equal on all ranks for the run to make sense. */
typedef struct agreement {
    uint64_t requests;
    uint64_t trace_hash;
    uint64_t block_bytes;
    uint64_t in_order;
    uint64_t window;
    uint64_t good; /* the trace could be read */
} agreement_t;

static bool read_trace(const job_t *job, const replay_options_t *opt, trace_t *trace)
{
    if (opt->trace != NULL) {
        return trace_load(trace, opt->trace, opt->strict, (job->rank == 0) ? stderr : NULL);
    }
    if (!trace_generate(trace, opt->requests, opt->seed)) {
        job_complain(job, "out of memory");
        return false;
    }
    return true;
}

static uint64_t hash_trace(const trace_t *trace)
{
    uint64_t hash = trace->n_requests;
    size_t   i;

    for (i = 0; i < trace->n_ids; ++i) {
        hash = (hash ^ trace->ids[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    return hash;
}

/* Collective. Rank 0 says what differs. */
static bool agree(const job_t *job, const agreement_t *mine)
{
    agreement_t *all = calloc((size_t)job->size, sizeof(*all));
    bool        good = (all != NULL) && job_gather(job, mine, sizeof(*mine), all, JOB_TIMEOUT_NS);
    int         i;

    for (i = 0; good && (i < job->size); ++i) {
        if (all[i].good == 0) {
            if ((job->rank == 0) && (i != 0)) {
                job_complain(job, "rank %d cannot read the trace", i);
            }
            good = false;
        } else if (memcmp(&all[i], &all[0], sizeof(*all)) != 0) {
            if (job->rank == 0) {
                job_complain(job, "rank %d was given another trace or other options", i);
            }
            good = false;
        }
    }
    free(all);
    return good;
}

/* The most blocks of one broadcast: what every pool holds beside a request. */
static uint32_t hot_max(const replay_options_t *opt)
{
    const uint64_t blocks = opt->pool_bytes / opt->block_bytes;

    if ((opt->pool_bytes == REPLAY_POOL_UNLIMITED) || (blocks / 4 > WORKER_WINDOW_MAX)) {
        return WORKER_WINDOW_MAX;
    }
    return (uint32_t)(blocks / 4);
}

static int work(const job_t *job, const replay_options_t *opt, const trace_t *trace, const plan_t *plan)
{
    worker_t *worker = calloc(1, sizeof(*worker));
    tally_t  *sum    = calloc(1, sizeof(*sum));
    int      result  = EXIT_WRONG;

    if ((worker == NULL) || (sum == NULL)) {
        job_complain(job, "out of memory");
    } else if (worker_open(worker, job, opt, trace, plan) && worker_run(worker) &&
               tally_gather(job, &worker->tally, sum)) {
        if (job->rank == 0) {
            tally_print(job, opt, sum, trace->skipped_lines);
        }
        result = (sum->wrong == 0) ? EXIT_SUCCESS : EXIT_WRONG;
    }
    if (worker != NULL) {
        worker_close(worker);
    }
    free(worker);
    free(sum);
    return result;
}

static int replay(const job_t *job, const replay_options_t *opt)
{
    agreement_t mine;
    trace_t     trace;
    plan_t      plan;
    int         result = EXIT_USAGE;

    memset(&mine, 0, sizeof(mine));
    trace_init(&trace);
    mine.good        = read_trace(job, opt, &trace) ? 1 : 0;
    mine.requests    = trace.n_requests;
    mine.trace_hash  = hash_trace(&trace);
    mine.block_bytes = opt->block_bytes;
    mine.in_order    = opt->in_order ? 1 : 0;
    mine.window      = hot_max(opt);
    if (agree(job, &mine)) {
        if (plan_make(&plan, &trace, job->rank, job->size, hot_max(opt))) {
            result = work(job, opt, &trace, &plan);
            plan_free(&plan);
        } else {
            job_complain(job, "out of memory");
            result = EXIT_WRONG;
        }
    }
    trace_free(&trace);
    return result;
}

int main(int argc, char **argv)
{
    replay_options_t opt;
    job_t            job;
    int              result;

    switch (replay_options_parse(&opt, argc, argv)) {
    case CLI_DONE:
        return EXIT_SUCCESS;
    case CLI_BAD:
        return EXIT_USAGE;
    case CLI_GO:
        break;
    }
    if (!job_open(&job, "kvcl_replay")) {
        return EXIT_WRONG;
    }
    result = replay(&job, &opt);
    job_close(&job);
    return result;
}
