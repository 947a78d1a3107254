/*
 * Owns the shape of a measurement with a pattern: a verified warm-up, an estimate of the iterations in one second, on
 * which all ranks agree, then rounds. A round runs from a barrier to a barrier; all ranks do the same number of
 * iterations in it, and a rank that has done its own waits. So the sum of all ranks is a rate of the slowest, never one
 * of ranks that ran one after the other. With --floor each round is followed by one of memcpy in as many processes.
 */
#include "config.h"
#include "tools/perf/flows/flows.h"

#include <stdlib.h>
#include <string.h>

#define ROUNDS   10u
#define WARM_UPS 3u

static bool barrier(const flows_t *flows)
{
    return job_barrier(flows->job, PERF_TIMEOUT_NS);
}

static bool iterate(flows_t *flows, uint64_t iters)
{
    flow_note_t *note = &flows->note;
    uint64_t    start, took, i;

    for (i = 0; i < iters; ++i) {
        start = clock_ns();
        if (!flows->test->flow->once(flows)) {
            return false;
        }
        took = clock_ns() - start;
        if (flows->n_targets > 0) {
            hist_add(&note->ns, took);
            note->op_ns += took;
        }
    }
    note->iters += iters;
    return true;
}

/* One iteration that is not counted wakes sleepers, unless the bytes of each one are checked. */
static bool run_round(flows_t *flows, uint64_t iters, bool check)
{
    flow_note_t *note = &flows->note;
    uint64_t    start, cpu;

    if (check) {
        ++flows->iter;
    }
    if (check ? !flows_renew(flows) : !flows->test->flow->once(flows)) {
        return false;
    }
    if (!barrier(flows)) {
        return false;
    }
    start = clock_ns();
    cpu   = clock_cpu_ns();
    if (!iterate(flows, iters) || !barrier(flows)) {
        return false;
    }
    note->wall_ns += clock_ns() - start;
    note->cpu_ns += clock_cpu_ns() - cpu; /* a target serves until here */
    note->wrong += check ? flows_check(flows) : 0;
    return true;
}

/* The runs of a flow, as the library moves them: blocks adjacent on both sides are one. place: the target's. */
static void copy_flow(const flows_t *flows, size_t place)
{
    const bool     reads = flows->test->flow->reads;
    const uint64_t unit  = flows->opt->unit, count = flows->opt->count;
    const uint32_t *from = flows->from_ids, *into = flows->into_ids; /* of the first region */
    uint8_t        *copy = flows->copy + (place * count * unit);
    uint8_t        *mine = reads ? flows->into_base + (place * count * unit) : flows->from_base;
    uint64_t       i, n;

    for (i = 0; i < count; i += n) {
        for (n = 1; (i + n < count) && (from[i + n] == from[i] + n) && (into[i + n] == into[i] + n); ++n) {
        }
        if (reads) {
            memcpy(mine + (into[i] * unit), copy + (from[i] * unit), (size_t)(n * unit));
        } else {
            memcpy(copy + (into[i] * unit), mine + (from[i] * unit), (size_t)(n * unit));
        }
    }
}

static bool copy_round(flows_t *flows, uint64_t iters)
{
    flow_note_t *note = &flows->note;
    uint64_t    begin = 0, start, i;
    size_t      k;

    for (i = 0; i <= iters; ++i) {
        if (i == 1) { /* the first iteration is not counted */
            if (!barrier(flows)) {
                return false;
            }
            begin = clock_ns();
        }
        start = clock_ns();
        for (k = 0; k < flows->n_targets; ++k) {
            copy_flow(flows, k);
        }
        note->copy_op_ns += (i > 0) ? clock_ns() - start : 0;
    }
    if (!barrier(flows)) {
        return false;
    }
    note->copy_wall_ns += clock_ns() - begin;
    note->copy_iters += iters;
    return true;
}

/* What was measured so far does not count, but wrong bytes do. */
static void forget(flows_t *flows)
{
    const uint64_t wrong = flows->note.wrong;

    memset(&flows->note, 0, sizeof(flows->note));
    flows->note.wrong     = wrong;
    flows->note.n_targets = flows->n_targets;
}

/* All ranks do the same number of iterations: that of the slowest. The first one touches pages. */
static bool calibrate(flows_t *flows, uint64_t *iters_p)
{
    uint64_t *all    = calloc((size_t)flows->job->size, sizeof(*all));
    uint64_t longest = 0;
    bool     good    = (all != NULL) && run_round(flows, 1, true);
    int      i;

    forget(flows);
    good = good && run_round(flows, WARM_UPS, false) &&
           job_gather(flows->job, &flows->note.wall_ns, sizeof(*all), all, PERF_TIMEOUT_NS);
    for (i = 0; good && (i < flows->job->size); ++i) {
        longest = (all[i] > longest) ? all[i] : longest;
    }
    free(all);
    forget(flows);
    *iters_p = perf_iters(flows->opt, (longest / WARM_UPS) + 1);
    return good;
}

static bool rounds(flows_t *flows)
{
    const bool verify = flows->opt->verify;
    uint64_t   total, each, done;

    if (!calibrate(flows, &total)) {
        return false;
    }
    if ((flows->n_targets > 0) &&
        !job_ok(flows->job, kvcl_query_path(flows->job->world, flows->targets[0], flows->note.path,
                                            sizeof(flows->note.path)), "kvcl_query_path")) {
        return false;
    }
    each = verify ? 1 : (total + ROUNDS - 1) / ROUNDS;
    for (done = 0; done < total; done += each) {
        each = (total - done < each) ? total - done : each;
        if (!run_round(flows, each, verify) || (flows->opt->floor && !copy_round(flows, each))) {
            return false;
        }
    }
    return true;
}

/* Every rank gets the notes of all. */
static bool gather(flows_t *flows, uint64_t *wrong_p)
{
    flow_note_t *notes = calloc((size_t)flows->job->size, sizeof(*notes));
    bool        good;
    int         i;

    good = (notes != NULL) && job_gather(flows->job, &flows->note, sizeof(*notes), notes, PERF_TIMEOUT_NS);
    for (i = 0; good && (i < flows->job->size); ++i) {
        *wrong_p += notes[i].wrong;
    }
    if (good && (flows->job->rank == 0)) {
        flows_report(flows, notes, *wrong_p);
    }
    free(notes);
    return good;
}

bool flows_measure(const job_t *job, const perf_options_t *opt, const perf_test_t *test, uint64_t *wrong_p)
{
    flows_t *flows = calloc(1, sizeof(*flows));
    bool    good;

    *wrong_p = 0;
    if (flows == NULL) {
        job_complain(job, "out of memory");
        return false;
    }
    flows->job  = job;
    flows->opt  = opt;
    flows->test = test;
    /* The gathering ends with a barrier's effect: no rank frees memory that another one still uses. */
    good = flows_open(flows) && rounds(flows) && gather(flows, wrong_p);
    flows_close(flows);
    free(flows);
    return good;
}
