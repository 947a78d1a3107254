/*
 * The tests of collectives, which all ranks run together: an iteration's time is that of the slowest rank from a
 * barrier to the last byte. Rank 0, the root of a broadcast, collects times, CPU times and wrong blocks after each
 * iteration.
 *
 * An all-reduce is of plain bytes, by the maximum, which leaves the blocks as they are where all ranks fill them alike.
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

typedef kvcl_status_t (*post_fn_t)(perf_t *perf, const kvcl_xfer_params_t *params, kvcl_req_h *req_p);

static kvcl_status_t post_bcast(perf_t *perf, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    const kvcl_sel_t sel = {.blocks = perf->near_ids, .n_blocks = (size_t)perf->opt->count};

    return kvcl_bcast(perf->job->world, 0, perf->near, &sel, params, req_p);
}

static kvcl_status_t post_allreduce(perf_t *perf, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    const size_t bytes = (size_t)(perf->opt->count * perf->opt->unit);

    return kvcl_allreduce(perf->job->world, perf->near_base, perf->near_base, bytes / sizeof(int32_t), KVCL_DTYPE_I32,
                          KVCL_REDUCE_MAX, params, req_p);
}

static bool once(perf_t *perf, post_fn_t post, bool check, bcast_note_t *note)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req    = NULL;
    kvcl_status_t      status;
    uint64_t           start, cpu;

    if (check && ((perf->job->rank == 0) || (post == post_allreduce))) {
        perf_fill(perf, perf->near_base, perf->near_ids);
    }
    if (!job_barrier(perf->job, PERF_TIMEOUT_NS)) {
        return false;
    }
    params.timeout_ns = PERF_TIMEOUT_NS;
    cpu               = clock_cpu_ns();
    start             = clock_ns();
    status            = post(perf, &params, &req);
    note->post_ns     = clock_ns() - start;
    status            = (status == KVCL_OK) ? job_finish(req, PERF_TIMEOUT_NS) : status;
    note->took_ns     = clock_ns() - start;
    note->cpu_ns      = clock_cpu_ns() - cpu;
    note->wrong       = check ? perf_check(perf, perf->near_base, perf->near_ids) : 0;
    return job_ok(perf->job, status, perf->test->name);
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

static bool drive(perf_t *perf, post_fn_t post)
{
    const uint64_t total = WARM_UPS + ((perf->opt->iters != 0) ? perf->opt->iters : ITERS_DEFAULT);
    bcast_note_t   *all  = calloc((size_t)perf->job->size, sizeof(*all));
    bcast_note_t   mine;
    bool           good = (all != NULL);
    uint64_t       i;

    for (i = 0; good && (i < total); ++i) {
        perf->iter = i + 1;
        good       = once(perf, post, perf->opt->verify || (i == 0), &mine) &&
               collect(perf, &mine, all, i >= WARM_UPS) &&
               (!perf->opt->floor || (perf->job->rank != 0) || (i < WARM_UPS) || perf_floor_round(perf, 1));
    }
    free(all);
    return good;
}

bool perf_bcast(perf_t *perf)
{
    return drive(perf, post_bcast);
}

bool perf_allreduce(perf_t *perf)
{
    return drive(perf, post_allreduce);
}
