/*
 * The broadcast test, which all ranks run together: rank 0 is the root, an iteration's time is that of the slowest rank
 * from a barrier to the last byte. Rank 0 collects times, CPU times and wrong blocks after each iteration.
 */
#include "config.h"
#include "tools/perf/perf.h"

#include <stdlib.h>

#define ITERS_DEFAULT 20u
#define WARM_UPS      2u

typedef struct bcast_note {
    uint64_t took_ns;
    uint64_t post_ns;
    uint64_t cpu_ns;
    uint64_t wrong;
} bcast_note_t;

static bool once(perf_t *perf, bool check, bcast_note_t *note)
{
    const kvcl_sel_t   sel    = {.blocks = perf->near_ids, .n_blocks = (size_t)perf->opt->count};
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req    = NULL;
    kvcl_status_t      status;
    uint64_t           start, cpu;

    if (check && (perf->job->rank == 0)) {
        perf_fill(perf, perf->near_base, perf->near_ids);
    }
    if (!job_barrier(perf->job, PERF_TIMEOUT_NS)) {
        return false;
    }
    params.timeout_ns = PERF_TIMEOUT_NS;
    cpu               = clock_cpu_ns();
    start             = clock_ns();
    status            = kvcl_bcast(perf->job->world, 0, perf->near, &sel, &params, &req);
    note->post_ns     = clock_ns() - start;
    status            = (status == KVCL_OK) ? job_finish(req, PERF_TIMEOUT_NS) : status;
    note->took_ns     = clock_ns() - start;
    note->cpu_ns      = clock_cpu_ns() - cpu;
    note->wrong       = check ? perf_check(perf, perf->near_base, perf->near_ids) : 0;
    return job_ok(perf->job, status, "kvcl_bcast");
}

/* Every rank gets the notes of all ranks; rank 0 adds them up. */
static bool collect(perf_t *perf, const bcast_note_t *mine, bcast_note_t *all, bool count)
{
    perf_result_t *result = &perf->result;
    uint64_t      longest = 0;
    int           i;

    if (!job_gather(perf->job, mine, sizeof(*mine), all, PERF_TIMEOUT_NS)) {
        return false;
    }
    for (i = 0; i < perf->job->size; ++i) {
        longest = (all[i].took_ns > longest) ? all[i].took_ns : longest;
        result->wrong += all[i].wrong;
        result->cpu_ns += count ? all[i].cpu_ns : 0;
    }
    if (count) {
        hist_add(&result->ns, longest);
        result->wall_ns += longest;
        result->post_ns += all[0].post_ns;
        ++result->posts;
        ++result->iters;
        result->blocks += perf->opt->count;
        result->cpu_blocks += perf->opt->count;
    }
    return true;
}

bool perf_bcast(perf_t *perf)
{
    const uint64_t total = WARM_UPS + ((perf->opt->iters != 0) ? perf->opt->iters : ITERS_DEFAULT);
    bcast_note_t   *all  = calloc((size_t)perf->job->size, sizeof(*all));
    bcast_note_t   mine;
    bool           good = (all != NULL);
    uint64_t       i;

    for (i = 0; good && (i < total); ++i) {
        perf->iter = i + 1;
        good       = once(perf, perf->opt->verify || (i == 0), &mine) && collect(perf, &mine, all, i >= WARM_UPS) &&
               (!perf->opt->floor || (perf->job->rank != 0) || (i < WARM_UPS) || perf_floor_round(perf, 1));
    }
    free(all);
    return good;
}
