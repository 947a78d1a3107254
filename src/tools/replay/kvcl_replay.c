/*
 * kvcl_replay: a serving cluster's KV-cache traffic from a trace, every byte verified. Owns the order of a run:
 * options, job, trace, plan, the check that all ranks have the same, the work, the summary, the exit status (0: all
 * bytes right; 1: wrong bytes, a failure or lost output; 2: bad options or a bad trace).
 */
#include "config.h"
#include "tools/clock.h"
#include "tools/pattern.h"
#include "tools/replay/death.h"
#include "tools/replay/generate.h"
#include "tools/replay/worker.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    EXIT_WRONG = 1,
    EXIT_USAGE = 2
};

/* The data that must be equal on all ranks. */
typedef struct agreement {
    uint64_t requests;
    uint64_t trace_hash;
    uint64_t block_bytes;
    uint64_t in_order;
    uint64_t window;
    uint64_t store;
    uint64_t replicas;
    uint64_t pool;   /* bytes, or a share of the blocks in millionths */
    uint64_t kill_rank;
    uint64_t kill_ns;
    uint64_t good;   /* the trace could be read */
    uint64_t salt;   /* may differ: rank 0's is used */
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

/* Collective. Rank 0 reports a difference. All ranks use its salt. */
static bool agree(const job_t *job, agreement_t *mine)
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
        } else if (memcmp(&all[i], &all[0], offsetof(agreement_t, salt)) != 0) {
            if (job->rank == 0) {
                job_complain(job, "rank %d has another trace or other options than rank 0", i);
            }
            good = false;
        }
    }
    mine->salt = good ? all[0].salt : 0;
    free(all);
    return good;
}

/* Keys of this run alone, so blocks of earlier runs in a tier's file are not hits. */
static uint64_t make_salt(const replay_options_t *opt)
{
    const uint64_t salt = clock_read(CLOCK_REALTIME) ^ ((uint64_t)getpid() << 48);

    return (opt->nvme == NULL) ? 0 : (salt != 0) ? salt : 1;
}

/* The most blocks of one broadcast: those that every pool can hold in addition to a request. */
static uint32_t hot_max(const replay_options_t *opt)
{
    const uint64_t blocks = opt->pool_bytes / opt->block_bytes;

    if (opt->store) {
        return 0; /* none: with KVCL_STORE_HOT the store copies hot blocks */
    }
    if ((opt->pool_bytes == REPLAY_POOL_UNLIMITED) || (blocks / 4 > WORKER_WINDOW_MAX)) {
        return WORKER_WINDOW_MAX;
    }
    return (uint32_t)(blocks / 4);
}

/* Whether the rank to be killed exists and another one survives. */
static bool check_kill(const job_t *job, const replay_options_t *opt)
{
    if ((opt->kill_rank == REPLAY_KILL_NONE) || ((job->size > 1) && (opt->kill_rank < job->size))) {
        return true;
    }
    if (job->rank == 0) {
        job_complain(job, "--kill: rank %d does not exist, or no rank would survive", opt->kill_rank);
    }
    return false;
}

static int work(const job_t *job, const replay_options_t *opt, const trace_t *trace, const plan_t *plan, uint64_t salt)
{
    worker_t            *worker = calloc(1, sizeof(*worker));
    tally_t             *sum    = calloc(1, sizeof(*sum));
    int                 result  = EXIT_WRONG;
    const kill_report_t *kill;

    if ((worker == NULL) || (sum == NULL)) {
        job_complain(job, "out of memory");
    } else if (worker_open(worker, job, opt, trace, plan, salt) && worker_run(worker) &&
               tally_gather(worker_left(worker), &worker->tally, sum)) {
        kill = death_report(worker->death);
        if (worker_left(worker)->rank == 0) {
            tally_print(job, opt, sum, kill, trace->skipped_lines);
        }
        result = ((sum->wrong == 0) && ((kill == NULL) || (kill->lost == 0))) ? EXIT_SUCCESS : EXIT_WRONG;
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
    mine.store       = opt->store ? 1 : 0;
    mine.replicas    = opt->replicas;
    mine.pool        = opt->store ? opt->pool_bytes + (uint64_t)(opt->pool_share * 1e6) : 0;
    mine.kill_rank   = (uint64_t)opt->kill_rank;
    mine.kill_ns     = opt->kill_ns;
    mine.salt        = make_salt(opt);
    if (agree(job, &mine) && check_kill(job, opt)) {
        if (plan_make(&plan, &trace, job->rank, job->size, hot_max(opt))) {
            result = work(job, opt, &trace, &plan, mine.salt);
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
        return cli_finish("kvcl_replay", EXIT_SUCCESS);
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
    return cli_finish("kvcl_replay", result);
}
