/*
 * Owns the shape of a measurement: a verified warm-up, an estimate of the iterations in one second, then rounds that
 * alternate with the floor. Each round begins with an iteration that is not counted and wakes sleeping threads. With a
 * bulk transfer each round has two phases, the first without it.
 */
#include "config.h"
#include "tools/perf/perf.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS         10u
#define TARGET_NS      UINT64_C(1000000000)
#define ITERS_MIN      10u
#define ITERS_MAX      2000000u
#define VERIFIED_ITERS 20u
#define TIME_APART     64u /* phases of at least this many iterations time posting in separate iterations */
#define POST_EVERY     16u /* one separate iteration for this many */

typedef struct measure {
    perf_t       *perf;
    perf_slice_t *slices;
    size_t       n_slices;
    bool         idle; /* this phase is the one without the bulk transfer */
} measure_t;

/* The extra iterations of a phase: one that wakes sleepers, and those whose posting is timed where a clock read would
 * distort the time of an iteration. */
static uint64_t extra_iters(const perf_t *perf, uint64_t iters)
{
    return (perf->opt->verify ? 0 : 1) + ((iters >= TIME_APART) ? iters / POST_EVERY : 0);
}

static bool one(perf_slice_t *slice, bool time_post, bool count)
{
    perf_t   *perf = slice->perf;
    uint64_t start, took;
    bool     good;

    slice->time_post = time_post;
    if (perf->test->before != NULL) {
        perf->test->before(slice);
    }
    start = clock_ns();
    good  = perf->test->op(slice);
    took  = clock_ns() - start;
    if (count) {
        hist_add(&slice->ns, took);
        slice->op_ns += took;
    }
    return good;
}

static void *run_slice(void *arg)
{
    perf_slice_t *slice = arg;
    const bool   apart  = (slice->iters >= TIME_APART);
    uint64_t     i;

    slice->good = slice->perf->opt->verify || one(slice, false, false);
    for (i = 1; slice->good && (i <= slice->iters); ++i) {
        slice->good = one(slice, !apart, true);
        if (slice->good && apart && (i % POST_EVERY == 0)) {
            slice->good = one(slice, true, false);
        }
    }
    return NULL;
}

/* All slices at once, iters iterations each. */
static bool run_slices(measure_t *m, uint64_t iters)
{
    pthread_t *threads = calloc(m->n_slices, sizeof(*threads));
    size_t    started, i;
    bool      good = true;

    for (i = 0; i < m->n_slices; ++i) {
        m->slices[i].iters = iters;
    }
    for (started = 1; (threads != NULL) && (started < m->n_slices); ++started) {
        if (pthread_create(&threads[started], NULL, run_slice, &m->slices[started]) != 0) {
            break;
        }
    }
    run_slice(&m->slices[0]);
    for (i = 1; i < started; ++i) {
        if (threads != NULL) {
            pthread_join(threads[i], NULL);
        }
    }
    for (i = 0; i < m->n_slices; ++i) {
        good = good && (i < started) && m->slices[i].good;
    }
    free(threads);
    return good;
}

/* Add what the slices of one phase measured to the result, and empty them. */
static void collect(measure_t *m)
{
    perf_result_t *result = &m->perf->result;
    uint64_t      longest = 0;
    perf_slice_t  *slice;
    size_t        i;

    for (i = 0; i < m->n_slices; ++i) {
        slice = &m->slices[i];
        result->wrong += slice->wrong;
        hist_merge(m->idle ? &result->idle : &result->ns, &slice->ns);
        if (!m->idle) {
            longest = (slice->op_ns > longest) ? slice->op_ns : longest;
            result->iters += slice->iters;
            result->post_ns += slice->post_ns;
            result->posts += slice->posts;
        }
        memset(&slice->ns, 0, sizeof(slice->ns));
        slice->op_ns = slice->post_ns = slice->posts = slice->wrong = 0;
    }
    if (!m->idle) {
        result->wall_ns += longest;
        result->blocks += m->slices[0].iters * perf_touched(m->perf);
    }
}

static bool phase(measure_t *m, uint64_t iters)
{
    perf_t         *perf = m->perf;
    const uint64_t all   = iters + extra_iters(perf, iters);
    uint64_t       far_begin, far_end, near_begin, near;

    if (!perf_query_begin(perf, all, &far_begin)) {
        return false;
    }
    near_begin = clock_cpu_ns();
    if (!run_slices(m, iters)) {
        return false;
    }
    near = clock_cpu_ns() - near_begin;
    collect(m);
    if (!perf_query_end(perf, &far_end)) {
        return false;
    }
    if (!m->idle) {
        perf->result.cpu_ns += near + (far_end - far_begin);
        perf->result.cpu_blocks += all * perf_touched(perf);
    }
    return true;
}

/* Before any other transfer: the first iteration describes and maps, the second does not. */
static bool cold(measure_t *m)
{
    perf_t   *perf = m->perf;
    uint64_t *into[2] = {&perf->result.cold_ns, &perf->result.warm_ns};
    uint64_t unused, start;
    size_t   i;

    if (!perf_query_begin(perf, 2, &unused)) {
        return false;
    }
    for (i = 0; i < 2; ++i) {
        start = clock_ns();
        if (!one(&m->slices[0], false, false)) {
            return false;
        }
        *into[i] = clock_ns() - start;
    }
    return perf_query_end(perf, &unused);
}

/* New bytes if they are verified, a phase without the bulk transfer if requested, the counted phase, the floor. */
static bool one_round(measure_t *m, uint64_t iters)
{
    perf_t               *perf = m->perf;
    const perf_options_t *opt  = perf->opt;

    if (opt->verify && !perf_query_renew(perf)) {
        return false;
    }
    if (opt->beside != 0) {
        m->idle = true;
        if (!phase(m, iters) || !perf_beside_start(perf)) {
            return false;
        }
        m->idle = false;
    }
    return phase(m, iters) && ((opt->beside == 0) || perf_beside_stop(perf)) &&
           (!opt->verify || perf_query_check(perf)) && (!opt->floor || perf_floor_round(perf, iters));
}

uint64_t perf_iters(const perf_options_t *opt, uint64_t each_ns)
{
    const uint64_t most = opt->verify ? VERIFIED_ITERS : ITERS_MAX;
    uint64_t       iters = TARGET_NS / each_ns;

    iters = (iters < ITERS_MIN) ? ITERS_MIN : ((iters > most) ? most : iters);
    return (opt->iters != 0) ? opt->iters : iters;
}

/* The number of iterations in about TARGET_NS, after a warm-up whose bytes are checked. */
static bool calibrate(measure_t *m, uint64_t *iters_p)
{
    perf_t *perf = m->perf;

    if (!perf_query_renew(perf) || !phase(m, 1) || !perf_query_check(perf) || !phase(m, 3)) {
        return false;
    }
    *iters_p = perf_iters(perf->opt, (perf->result.wall_ns / 4) + 1);
    return true;
}

static void forget(perf_result_t *result)
{
    const uint64_t wrong = result->wrong, cold_ns = result->cold_ns, warm_ns = result->warm_ns;
    char           path[sizeof(result->path)];

    memcpy(path, result->path, sizeof(path));
    memset(result, 0, sizeof(*result));
    memcpy(result->path, path, sizeof(path));
    result->wrong   = wrong;
    result->cold_ns = cold_ns;
    result->warm_ns = warm_ns;
}

static bool rounds(measure_t *m)
{
    perf_t   *perf = m->perf;
    uint64_t total, each, done;

    if ((perf->opt->cold && !cold(m)) || !calibrate(m, &total)) {
        return false;
    }
    forget(&perf->result);
    each = perf->opt->verify ? 1 : (total + ROUNDS - 1) / ROUNDS;
    for (done = 0; done < total; done += each) {
        each = (total - done < each) ? total - done : each;
        if (!one_round(m, each)) {
            return false;
        }
    }
    return true;
}

static bool make_slices(measure_t *m)
{
    const size_t count   = (size_t)m->perf->opt->count;
    const size_t threads = (size_t)m->perf->opt->threads;
    perf_slice_t *slice;
    size_t       i;

    m->slices   = calloc(threads, sizeof(*m->slices));
    m->n_slices = (m->slices != NULL) ? threads : 0;
    for (i = 0; i < m->n_slices; ++i) {
        slice          = &m->slices[i];
        slice->perf    = m->perf;
        slice->index   = (unsigned)i;
        slice->first   = (count * i) / threads;
        slice->n       = ((count * (i + 1)) / threads) - slice->first;
        slice->status  = calloc(slice->n, sizeof(*slice->status));
        slice->present = calloc(slice->n, 1);
        slice->reqs    = calloc(slice->n, sizeof(*slice->reqs));
        if ((slice->status == NULL) || (slice->reqs == NULL) || (slice->present == NULL)) {
            return false;
        }
    }
    return m->slices != NULL;
}

bool perf_measure(perf_t *perf)
{
    measure_t m    = {perf, NULL, 0, false};
    bool      good = make_slices(&m);
    size_t    i;

    if (!good) {
        job_complain(perf->job, "out of memory");
    }
    good = good && rounds(&m);
    for (i = 0; i < m.n_slices; ++i) {
        free(m.slices[i].status);
        free(m.slices[i].reqs);
        free(m.slices[i].present);
    }
    free(m.slices);
    return good && perf_query_quit(perf);
}
