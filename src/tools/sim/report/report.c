/*
 * Owns the tables.
 */
#include "config.h"
#include "tools/sim/report/report.h"

#include <inttypes.h>
#include <math.h>

static void print_times(FILE *file, const char *name, const double *values, size_t n, double mean, double unit,
                        const char *unit_name)
{
    if (n == 0) {
        fprintf(file, "%-10s none\n", name);
        return;
    }
    fprintf(file, "%-10s mean %.2f  p50 %.2f  p90 %.2f  p95 %.2f  p99 %.2f  max %.2f %s\n", name, mean * unit,
            stats_quantile(values, n, 0.5) * unit, stats_quantile(values, n, 0.9) * unit,
            stats_quantile(values, n, 0.95) * unit, stats_quantile(values, n, 0.99) * unit, values[n - 1] * unit,
            unit_name);
}

static void print_reasons(FILE *file, const char *when, const uint64_t *reasons, uint64_t n)
{
    uint32_t i;

    if (n == 0) {
        return;
    }
    fprintf(file, "%-10s %" PRIu64 " requests", when, n);
    for (i = 0; i < SIM_REASONS; ++i) {
        if (reasons[i] != 0) {
            fprintf(file, "; %" PRIu64 ": %s", reasons[i], kvcl_sched_reason_text(i));
        }
    }
    fprintf(file, "\n");
}

static void print_share(FILE *file, const char *name, const stats_share_t *share)
{
    if (share->offered != 0) {
        fprintf(file, "  %-12s %8" PRIu64 " requests, good %6.2f%%; tokens %6.2f%%\n", name, share->offered,
                100 * stats_good(share), 100 * share->good_tokens / share->tokens);
    }
}

static void print_shares(FILE *file, const sim_stats_t *stats)
{
    char     name[32];
    uint32_t i;

    fprintf(file, "by length of the prompt\n");
    for (i = 0; i < STATS_LENGTHS; ++i) {
        print_share(file, stats_length_name(i), &stats->lengths[i]);
    }
    print_share(file, "long. tenth", &stats->longest);
    if (stats->classes[0].offered != stats->all.offered) {
        fprintf(file, "by class\n");
        for (i = 0; i < SIM_CLASSES; ++i) {
            snprintf(name, sizeof(name), "%u", i);
            print_share(file, name, &stats->classes[i]);
        }
    }
}

static void print_cdf(FILE *file, const sim_stats_t *stats)
{
    unsigned i;

    fprintf(file, "share   TTFT s    TBT ms\n");
    for (i = 1; i <= 100; ++i) {
        fprintf(file, "%4u%% %9.3f %9.2f\n", i, stats_quantile(stats->ttft, stats->n_ttft, i / 100.0),
                1e3 * stats_quantile(stats->tbt, stats->n_tbt, i / 100.0));
    }
}

static void print_blocks(FILE *file, const sim_t *sim, const sim_stats_t *stats)
{
    const sim_totals_t *t = &sim->totals;

    fprintf(file, "tokens     there %.1f%%  fetched %.1f%%  computed %.1f%% of those prefilled\n", 100 * stats->there,
            100 * stats->fetched, 100 * (1 - stats->there - stats->fetched));
    fprintf(file, "moved      fetched %.1f GB  copied %.1f GB  to decode %.1f GB; %" PRIu64 " blocks more in pools, %"
            PRIu64 " evicted\n", t->fetch_bytes / 1e9, t->replica_bytes / 1e9, t->handover_bytes / 1e9, t->replicas,
            t->evicted);
}

void report_print(FILE *file, const sim_t *sim, const sim_stats_t *stats, bool cdf)
{
    const sim_config_t *c = sim->config;

    fprintf(file, "policy     %s\ncluster    %u prefill", c->policy, c->prefill);
    if (c->group > 1) {
        fprintf(file, " of %u nodes", c->group);
    }
    fprintf(file, ", %u decode", c->decode);
    if (c->coupled != 0) {
        fprintf(file, ", %u for both", c->coupled);
    }
    fprintf(file, "; %s\n", kvcl_sched_model_name(c->model));
    fprintf(file, "offered    %" PRIu64 " requests in %.0f s, %.2f a second\n", stats->all.offered, stats->span,
            work_rate(sim->work));
    if (sim->overloaded) {
        fprintf(file,
                "OVERLOADED after %.0f s: the queue grows without bound; about %.2f requests a second would hold\n",
                sim->now, sim->holds_rate);
    }
    fprintf(file, "good       %.2f%% of the requests, %.2f%% of the tokens; %.2f requests and %.0f tokens a second\n",
            100 * stats_good(&stats->all), 100 * stats->all.good_tokens / fmax(stats->all.tokens, 1),
            (double)stats->all.good / fmax(stats->span, 1e-9), stats->all.good_tokens / fmax(stats->span, 1e-9));
    print_reasons(file, "refused", sim->totals.reasons[0], stats->n[SIM_REFUSED]);
    print_reasons(file, "late", sim->totals.reasons[1], stats->n[SIM_LATE]);
    print_reasons(file, "wasted", sim->totals.reasons[2], stats->n[SIM_WASTED]);
    if (stats->n[SIM_LOST] + sim->totals.again != 0) {
        fprintf(file, "lost       %" PRIu64 " requests with an instance; %" PRIu64 " decided again\n",
                stats->n[SIM_LOST], sim->totals.again);
    }
    if (sim->totals.left_out != 0) {
        fprintf(file, "left out   %" PRIu64 " times an instance whose loads were contradictory, in %" PRIu64
                " decisions\n", sim->totals.left_out, sim->totals.decisions);
    }
    print_times(file, "TTFT", stats->ttft, stats->n_ttft, stats->ttft_mean, 1, "s");
    print_times(file, "TBT", stats->tbt, stats->n_tbt, stats->tbt_mean, 1e3, "ms");
    fprintf(file, "prefill    %.3f s a request, %.2f s before it; %.0f s in all, %.0f s wasted; evenness (Jain) %.3f\n",
            stats->prefill_mean, stats->queue_mean, sim->totals.prefill_s, sim->totals.wasted_s, stats->jain);
    print_blocks(file, sim, stats);
    if (!isnan(stats->correlation)) {
        fprintf(file, "load       prefill and decode load over time correlate by %.2f\n", stats->correlation);
    }
    print_shares(file, stats);
    if (cdf) {
        print_cdf(file, stats);
    }
}

void report_head(FILE *file)
{
    fprintf(file, "  good  tokens  longest  refused  wasted s   TTFT s: mean    p50    p99  TBT ms: mean    p99  "
            "there  fetched  moved GB  policy\n");
}

void report_line(FILE *file, const sim_t *sim, const sim_stats_t *stats)
{
    const uint64_t refused = stats->n[SIM_REFUSED] + stats->n[SIM_LATE] + stats->n[SIM_WASTED];

    fprintf(file, "%5.1f%% %6.1f%%  %6.1f%%  %7" PRIu64 "  %8.0f  %13.2f %6.2f %6.1f  %12.1f %6.1f  %4.1f%%   %5.1f%%"
            "  %8.0f  %s%s\n", 100 * stats_good(&stats->all), 100 * stats->all.good_tokens / fmax(stats->all.tokens, 1),
            100 * stats_good(&stats->longest), refused, sim->totals.wasted_s, stats->ttft_mean,
            stats_quantile(stats->ttft, stats->n_ttft, 0.5), stats_quantile(stats->ttft, stats->n_ttft, 0.99),
            1e3 * stats->tbt_mean, 1e3 * stats_quantile(stats->tbt, stats->n_tbt, 0.99), 100 * stats->there,
            100 * stats->fetched, (sim->totals.fetch_bytes + sim->totals.replica_bytes) / 1e9, sim->config->policy,
            sim->overloaded ? "  OVERLOADED" : "");
}

void report_policies(FILE *file)
{
    const char *name, *kind, *desc, *source;
    size_t     i;

    for (i = 0; kvcl_sched_policies(i, &name, &kind, &desc, &source) == KVCL_OK; ++i) {
        fprintf(file, "%-8s %-12s %s [%s]\n", kind, name, desc, source);
    }
}
