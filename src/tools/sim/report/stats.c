/*
 * Owns the sums over the requests of a run.
 */
#include "config.h"
#include "tools/sim/report/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *stats_length_name(unsigned i)
{
    static const char *const names[STATS_LENGTHS] = {"up to 2k", "2k-4k", "4k-8k", "8k-16k", "16k-32k", "32k-64k",
                                                     "64k-128k", "over 128k"};

    return names[i];
}

static unsigned length_of(uint32_t tokens)
{
    unsigned i = 0;

    while ((i + 1 < STATS_LENGTHS) && (tokens > (2048u << i))) {
        ++i;
    }
    return i;
}

double stats_quantile(const double *values, size_t n, double q)
{
    const double at = q * (double)n;
    size_t       i  = (size_t)ceil(at);

    if (n == 0) {
        return NAN;
    }
    i = (i > 0) ? i - 1 : 0;
    return values[(i < n) ? i : n - 1];
}

double stats_good(const stats_share_t *share)
{
    return (share->offered != 0) ? (double)share->good / (double)share->offered : 0;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int by_size(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static void share_add(stats_share_t *share, const work_request_t *work, bool good)
{
    const double tokens = (double)work->input + work->output;

    ++share->offered;
    share->tokens += tokens;
    if (good) {
        ++share->good;
        share->good_tokens += tokens;
    }
}

/* The shortest prompt of the longest tenth. */
static uint32_t long_from(const work_t *work)
{
    uint32_t *lengths = malloc((work->n + 1) * sizeof(*lengths));
    uint32_t from     = UINT32_MAX;
    size_t   i;

    if (lengths != NULL) {
        for (i = 0; i < work->n; ++i) {
            lengths[i] = work->requests[i].input;
        }
        qsort(lengths, work->n, sizeof(*lengths), by_size);
        from = (work->n != 0) ? lengths[work->n - 1 - (work->n / 10)] : 0;
    }
    free(lengths);
    return from;
}

static void add_request(sim_stats_t *stats, const sim_t *sim, uint32_t i, uint32_t long_tokens)
{
    const work_request_t *work = &sim->work->requests[i];
    const sim_run_t      *r    = &sim->runs[i];
    const bool           good  = sim_good(sim, i);

    ++stats->n[r->state];
    share_add(&stats->all, work, good);
    share_add(&stats->classes[work->klass], work, good);
    share_add(&stats->lengths[length_of(work->input)], work, good);
    if (work->input > long_tokens) {
        share_add(&stats->longest, work, good);
    }
    if (r->prefilled > 0) {
        stats->prefill_mean += r->seconds * sim->config->group;
        stats->queue_mean += r->start - r->arrival;
    }
    if (r->first > 0) {
        stats->ttft[stats->n_ttft++] = r->first - r->arrival;
        stats->ttft_mean += r->first - r->arrival;
    }
    if ((r->state == SIM_DONE) && (work->output > 1)) {
        stats->tbt[stats->n_tbt++] = r->tbt;
        stats->tbt_mean += r->tbt;
    }
}

static double jain(const sim_t *sim)
{
    double   sum = 0, squares = 0;
    uint32_t i, n = 0;

    for (i = 0; i < sim->n_insts; ++i) {
        if ((sim->insts[i].role & KVCL_SCHED_PREFILL) != 0) {
            sum += sim->insts[i].prefill_s;
            squares += sim->insts[i].prefill_s * sim->insts[i].prefill_s;
            ++n;
        }
    }
    return (squares > 0) ? (sum * sum) / (n * squares) : 1;
}

/* Of the queue's seconds and the requests that decode, while requests arrive. */
static double correlation(const sim_t *sim)
{
    const uint32_t n = (sim->n_samples < SIM_SAMPLES - 40) ? sim->n_samples : SIM_SAMPLES - 40;
    double         x = 0, y = 0, xx = 0, yy = 0, xy = 0, dx, dy;
    uint32_t       i;

    for (i = 0; i < n; ++i) {
        x += sim->samples[i].queue / n;
        y += sim->samples[i].running / n;
    }
    for (i = 0; i < n; ++i) {
        dx = sim->samples[i].queue - x;
        dy = sim->samples[i].running - y;
        xx += dx * dx;
        yy += dy * dy;
        xy += dx * dy;
    }
    return ((xx > 0) && (yy > 0)) ? xy / sqrt(xx * yy) : NAN;
}

bool stats_make(sim_stats_t *stats, const sim_t *sim)
{
    const uint32_t long_tokens = long_from(sim->work);
    uint64_t       prefilled   = 0;
    uint32_t       i;

    memset(stats, 0, sizeof(*stats));
    stats->ttft = malloc((sim->work->n + 1) * sizeof(double));
    stats->tbt  = malloc((sim->work->n + 1) * sizeof(double));
    if ((stats->ttft == NULL) || (stats->tbt == NULL)) {
        fprintf(stderr, "kvcl_sim: out of memory\n");
        stats_free(stats);
        return false;
    }
    for (i = 0; i < sim->work->n; ++i) {
        add_request(stats, sim, i, long_tokens);
        prefilled += (sim->runs[i].prefilled > 0) ? 1 : 0;
    }
    qsort(stats->ttft, stats->n_ttft, sizeof(double), by_value);
    qsort(stats->tbt, stats->n_tbt, sizeof(double), by_value);
    stats->ttft_mean /= (stats->n_ttft != 0) ? (double)stats->n_ttft : 1;
    stats->tbt_mean /= (stats->n_tbt != 0) ? (double)stats->n_tbt : 1;
    stats->prefill_mean /= (prefilled != 0) ? (double)prefilled : 1;
    stats->queue_mean /= (prefilled != 0) ? (double)prefilled : 1;
    if (sim->totals.input_tokens != 0) {
        stats->there   = (double)sim->totals.there_tokens / (double)sim->totals.input_tokens;
        stats->fetched = (double)sim->totals.fetch_tokens / (double)sim->totals.input_tokens;
    }
    stats->span        = sim->now;
    stats->jain        = jain(sim);
    stats->correlation = correlation(sim);
    return true;
}

void stats_free(sim_stats_t *stats)
{
    free(stats->ttft);
    free(stats->tbt);
    memset(stats, 0, sizeof(*stats));
}
