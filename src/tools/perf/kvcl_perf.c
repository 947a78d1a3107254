/*
 * kvcl_perf: the cost of one operation, compared with raw UCX and memcpy. Owns the order of a run: options, job, roles,
 * set-up, measurement, report, exit status (0: all bytes right; 1: wrong bytes or a failure; 2: bad options).
 */
#include "config.h"
#include "tools/perf/flows/flows.h"
#include "tools/perf/perf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_USAGE 2

static void set_roles(perf_t *perf)
{
    perf->self      = (perf->job->size == 1);
    perf->peer      = perf->self ? 0 : 1;
    perf->initiator = (perf->job->rank == 0);
    perf->target    = (perf->job->rank == perf->peer);
}

/* All ranks, in the same order: it contains collective calls. */
static bool set_up(perf_t *perf)
{
    const int towards = perf->initiator ? perf->peer : 0;

    if (!job_ok(perf->job, kvcl_query_path(perf->job->world, towards, perf->result.path, sizeof(perf->result.path)),
                "kvcl_query_path")) {
        return false;
    }
    if (!perf_blocks_open(perf) || (perf->test->store && !perf_store_open(perf))) {
        return false;
    }
    if (perf->opt->floor && (perf->initiator || perf->target) && !perf_floor_open(perf)) {
        return false;
    }
    if ((perf->opt->beside != 0) && (perf->initiator || perf->target) && !perf_beside_open(perf)) {
        return false;
    }
    return job_barrier(perf->job, PERF_TIMEOUT_NS);
}

static bool run(perf_t *perf)
{
    if (perf->test->drive != NULL) {
        return perf->test->drive(perf);
    }
    if (perf->initiator) {
        return perf_measure(perf);
    }
    return !perf->target || perf_target(perf);
}

static void look(void *arg, const kvcl_memory_info_t *info)
{
    perf_t *perf = arg;

    if ((strcmp(info->what, "cache") == 0) && (info->bytes == perf->opt->unit * perf->opt->count)) {
        memory_text(info, perf->result.memory, sizeof(perf->result.memory));
    }
}

/* Initiator: what was decided about the target's blocks, where it needed their description. */
static bool read_decision(perf_t *perf)
{
    kvcl_context_stats_t stats = KVCL_CONTEXT_STATS_INIT;

    if (!job_ok(perf->job, kvcl_query_memory(perf->job->world, perf->peer, look, perf), "kvcl_query_memory") ||
        !job_ok(perf->job, kvcl_context_stats(perf->job->ctx, &stats), "kvcl_context_stats")) {
        return false;
    }
    perf->result.native_bytes = stats.bytes_native;
    return true;
}

static int measure(perf_t *perf)
{
    int result = EXIT_FAILURE;

    /* The last barrier keeps memory and directory alive while any rank may still use them. */
    if (set_up(perf) && run(perf) && ((perf->job->rank != 0) || read_decision(perf)) &&
        job_barrier(perf->job, PERF_TIMEOUT_NS)) {
        if (perf->job->rank == 0) {
            perf_report(perf);
        }
        result = (perf->result.wrong == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    if (perf->opt->floor) {
        perf_floor_close(perf);
    }
    perf_beside_close(perf);
    perf_blocks_close(perf);
    return result;
}

static int measure_one(const job_t *job, const perf_options_t *opt, const perf_test_t *test)
{
    perf_t   *perf;
    uint64_t wrong;
    int      result;

    if (opt->pattern != FLOW_NONE) {
        return (flows_measure(job, opt, test, &wrong) && (wrong == 0)) ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    perf = calloc(1, sizeof(*perf));
    if (perf == NULL) {
        job_complain(job, "out of memory");
        return EXIT_FAILURE;
    }
    perf->job  = job;
    perf->opt  = opt;
    perf->test = test;
    set_roles(perf);
    result = measure(perf);
    free(perf);
    return result;
}

/* One measurement, or one for each size of a sweep. All ranks, in the same order. */
static int measure_all(const job_t *job, const perf_options_t *opt, const perf_test_t *test)
{
    const size_t   n      = (opt->sweep.n > 0) ? opt->sweep.n : 1;
    int            result = EXIT_SUCCESS, one;
    perf_options_t each;
    size_t         i;

    for (i = 0; i < n; ++i) {
        each   = perf_options_at(opt, test, i);
        one    = measure_one(job, &each, test);
        result = (one != EXIT_SUCCESS) ? one : result;
    }
    return result;
}

/* Rank 0 alone says why not. */
static bool ranks_suffice(const job_t *job, const perf_options_t *opt)
{
    const char *needs = (opt->pattern != FLOW_NONE) ? flow_kind_refuses(opt->pattern, job->size) : NULL;

    if ((needs != NULL) && (job->rank == 0)) {
        job_complain(job, "--pattern %s needs %s, and the job has %d: start as many with mpirun -n, srun -n or "
                     "KVCL_SIZE", flow_kind_name(opt->pattern), needs, job->size);
    }
    return needs == NULL;
}

int main(int argc, char **argv)
{
    const perf_test_t *test = NULL;
    perf_options_t    opt;
    job_t             job;
    int               result;

    switch (perf_options_parse(&opt, argc, argv, &test)) {
    case CLI_DONE:
        return cli_finish("kvcl_perf", EXIT_SUCCESS);
    case CLI_BAD:
        return EXIT_USAGE;
    case CLI_GO:
        break;
    }
    if (test->alone != NULL) {
        return cli_finish("kvcl_perf", test->alone(&opt));
    }
    if (!job_open(&job, "kvcl_perf")) {
        return EXIT_FAILURE;
    }
    result = ranks_suffice(&job, &opt) ? measure_all(&job, &opt, test) : EXIT_USAGE;
    job_close(&job);
    return cli_finish("kvcl_perf", result);
}
