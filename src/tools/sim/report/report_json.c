/*
 * Owns the JSON of a run. Times in seconds; a number that was not measured is null.
 */
#include "config.h"
#include "tools/sim/report/report.h"

#include <math.h>

static void put_times(json_out_t *json, const char *name, const double *values, size_t n, double mean, bool cdf)
{
    unsigned i;

    json_open(json, name, '{');
    json_count(json, "n", n);
    json_real(json, "mean", (n != 0) ? mean : NAN, 6);
    json_real(json, "p50", stats_quantile(values, n, 0.5), 6);
    json_real(json, "p90", stats_quantile(values, n, 0.9), 6);
    json_real(json, "p95", stats_quantile(values, n, 0.95), 6);
    json_real(json, "p99", stats_quantile(values, n, 0.99), 6);
    if (cdf) {
        json_open(json, "cdf", '[');
        for (i = 1; i <= 100; ++i) {
            json_real(json, NULL, stats_quantile(values, n, i / 100.0), 6);
        }
        json_close(json, ']');
    }
    json_close(json, '}');
}

static void put_share(json_out_t *json, const char *name, const stats_share_t *share)
{
    json_open(json, name, '{');
    json_count(json, "offered", share->offered);
    json_count(json, "good", share->good);
    json_real(json, "tokens", share->tokens, 0);
    json_real(json, "good_tokens", share->good_tokens, 0);
    json_close(json, '}');
}

static void put_reasons(json_out_t *json, const char *name, const uint64_t *reasons, uint64_t n)
{
    uint32_t i;

    json_open(json, name, '{');
    json_count(json, "n", n);
    for (i = 0; i < SIM_REASONS; ++i) {
        if (reasons[i] != 0) {
            json_count(json, kvcl_sched_reason_text(i), reasons[i]);
        }
    }
    json_close(json, '}');
}

static void put_moves(json_out_t *json, const sim_t *sim, const sim_stats_t *stats)
{
    const sim_totals_t *t = &sim->totals;

    json_real(json, "there_share", stats->there, 6);
    json_real(json, "fetched_share", stats->fetched, 6);
    json_real(json, "fetch_bytes", t->fetch_bytes, 0);
    json_real(json, "replica_bytes", t->replica_bytes, 0);
    json_real(json, "handover_bytes", t->handover_bytes, 0);
    json_count(json, "replicas", t->replicas);
    json_count(json, "evicted", t->evicted);
    json_count(json, "hit_tokens", t->there_tokens + t->fetch_tokens);
}

static void put_samples(json_out_t *json, const sim_t *sim)
{
    const sim_sample_t *s;
    uint32_t           i;

    json_open(json, "load", '[');
    for (i = 0; i < sim->n_samples; ++i) {
        s = &sim->samples[i];
        json_open(json, NULL, '[');
        json_real(json, NULL, s->at, 3);
        json_real(json, NULL, s->queue, 4);
        json_real(json, NULL, s->busy, 4);
        json_real(json, NULL, s->step, 6);
        json_real(json, NULL, s->running, 3);
        json_real(json, NULL, s->kv, 4);
        json_close(json, ']');
    }
    json_close(json, ']');
}

static void put_groups(json_out_t *json, const sim_stats_t *stats)
{
    uint32_t i;
    char     name[16];

    json_open(json, "lengths", '{');
    for (i = 0; i < STATS_LENGTHS; ++i) {
        put_share(json, stats_length_name(i), &stats->lengths[i]);
    }
    json_close(json, '}');
    put_share(json, "longest_tenth", &stats->longest);
    json_open(json, "classes", '{');
    for (i = 0; i < SIM_CLASSES; ++i) {
        if (stats->classes[i].offered != 0) {
            snprintf(name, sizeof(name), "%u", i);
            put_share(json, name, &stats->classes[i]);
        }
    }
    json_close(json, '}');
}

void report_json(json_out_t *json, const sim_t *sim, const sim_stats_t *stats, bool cdf)
{
    const sim_config_t *c = sim->config;

    json_string(json, "policy", c->policy);
    json_string(json, "model", kvcl_sched_model_name(c->model));
    json_count(json, "prefill", c->prefill);
    json_count(json, "decode", c->decode);
    json_count(json, "coupled", c->coupled);
    json_count(json, "seed", c->seed);
    json_count(json, "requests", stats->all.offered);
    json_real(json, "rate", work_rate(sim->work), 6);
    json_real(json, "seconds", stats->span, 6);
    json_bool(json, "overloaded", sim->overloaded);
    json_real(json, "rate_that_holds", sim->overloaded ? sim->holds_rate : NAN, 4);
    put_share(json, "goodput", &stats->all);
    put_groups(json, stats);
    put_reasons(json, "refused", sim->totals.reasons[0], stats->n[SIM_REFUSED]);
    put_reasons(json, "late", sim->totals.reasons[1], stats->n[SIM_LATE]);
    put_reasons(json, "wasted", sim->totals.reasons[2], stats->n[SIM_WASTED]);
    json_count(json, "lost", stats->n[SIM_LOST]);
    json_count(json, "decided_again", sim->totals.again);
    json_count(json, "waits", sim->totals.waits);
    json_count(json, "left_out", sim->totals.left_out);
    put_times(json, "ttft_s", stats->ttft, stats->n_ttft, stats->ttft_mean, cdf);
    put_times(json, "tbt_s", stats->tbt, stats->n_tbt, stats->tbt_mean, cdf);
    json_real(json, "prefill_s", stats->prefill_mean, 6);
    json_real(json, "queue_s", stats->queue_mean, 6);
    json_real(json, "prefill_total_s", sim->totals.prefill_s, 3);
    json_real(json, "wasted_s", sim->totals.wasted_s, 3);
    json_real(json, "jain", stats->jain, 6);
    json_real(json, "load_correlation", stats->correlation, 4);
    put_moves(json, sim, stats);
    put_samples(json, sim);
}
