/*
 * Owns the output of a measurement with a pattern: each member, the slowest and the fastest one, and the sum, as one
 * JSON object or as a few lines.
 */
#include "config.h"
#include "tools/perf/flows/flows.h"

#include "tools/json_out.h"
#include "tools/machine.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define GIB ((double)(1u << 30))

/* NAN: not measured. */
typedef struct rates {
    double gbps;
    double messages_per_s;
    double p50_us;
    double p99_us;
    double memcpy_gbps;
} rates_t;

typedef struct sum {
    rates_t rates;
    double  cpu_s_per_gib;
    double  ratio; /* of the sums: KVCL's by memcpy's */
    int     n_members;
    int     slowest; /* ranks */
    int     fastest;
} sum_t;

static rates_t rates_of(const flows_t *flows, const flow_note_t *note)
{
    const double each     = (double)(flows->opt->count * flows->opt->unit);
    const double messages = (double)(note->iters * note->n_targets);
    const double copied   = (double)(note->copy_iters * note->n_targets);
    rates_t      rates;

    rates.gbps           = (messages * each) / (double)note->op_ns;
    rates.messages_per_s = (messages * 1e9) / (double)note->op_ns;
    rates.p50_us         = hist_quantile(&note->ns, 0.5) / 1e3;
    rates.p99_us         = hist_quantile(&note->ns, 0.99) / 1e3;
    rates.memcpy_gbps    = (copied * each) / (double)note->copy_op_ns;
    return rates;
}

/* The bytes of all members over the time from barrier to barrier, which includes the wait for the slowest one. */
static void add_up(const flows_t *flows, const flow_note_t *notes, sum_t *sum)
{
    const double each = (double)(flows->opt->count * flows->opt->unit);
    double       slow = INFINITY, fast = 0, messages = 0, wall = 0, copy_wall = 0, cpu = 0, gbps;
    hist_t       ns   = {0};
    int          i;

    memset(sum, 0, sizeof(*sum));
    for (i = 0; i < flows->job->size; ++i) {
        cpu += (double)notes[i].cpu_ns;
        wall      = fmax(wall, (double)notes[i].wall_ns);
        copy_wall = fmax(copy_wall, (double)notes[i].copy_wall_ns);
        if (notes[i].n_targets == 0) {
            continue;
        }
        ++sum->n_members;
        hist_merge(&ns, &notes[i].ns);
        messages += (double)(notes[i].iters * notes[i].n_targets);
        gbps         = rates_of(flows, &notes[i]).gbps;
        sum->slowest = (gbps < slow) ? i : sum->slowest;
        sum->fastest = (gbps > fast) ? i : sum->fastest;
        slow         = fmin(slow, gbps);
        fast         = fmax(fast, gbps);
    }
    sum->rates.gbps           = (messages * each) / wall;
    sum->rates.messages_per_s = (messages * 1e9) / wall;
    sum->rates.p50_us         = hist_quantile(&ns, 0.5) / 1e3;
    sum->rates.p99_us         = hist_quantile(&ns, 0.99) / 1e3;
    sum->rates.memcpy_gbps    = flows->opt->floor ? (messages * each) / copy_wall : NAN;
    sum->ratio                = sum->rates.gbps / sum->rates.memcpy_gbps;
    sum->cpu_s_per_gib        = (cpu / 1e9) / ((messages * each) / GIB);
}

static void json_rates(json_out_t *json, const rates_t *rates)
{
    json_real(json, "gbps", rates->gbps, 3);
    json_real(json, "messages_per_s", rates->messages_per_s, 0);
    json_real(json, "p50_us", rates->p50_us, 3);
    json_real(json, "p99_us", rates->p99_us, 3);
    json_real(json, "memcpy_gbps", rates->memcpy_gbps, 3);
}

static void json_member(json_out_t *json, const char *name, const flows_t *flows, const flow_note_t *notes, int rank)
{
    const rates_t rates = rates_of(flows, &notes[rank]);

    json_open(json, name, '{');
    json_count(json, "rank", (uint64_t)rank);
    json_count(json, "targets", notes[rank].n_targets);
    json_string(json, "path", notes[rank].path);
    json_rates(json, &rates);
    json_close(json, '}');
}

static void print_json(const flows_t *flows, const flow_note_t *notes, const sum_t *sum, uint64_t wrong)
{
    json_out_t json;
    int        i;

    json_begin(&json, stdout);
    json_string(&json, "test", flows->test->name);
    json_string(&json, "pattern", flow_kind_name(flows->opt->pattern));
    machine_json(&json);
    json_count(&json, "ranks", (uint64_t)flows->job->size);
    json_count(&json, "unit", flows->opt->unit);
    json_count(&json, "count", flows->opt->count);
    json_count(&json, "iters", notes[0].iters);
    json_rates(&json, &sum->rates);
    json_real(&json, "memcpy_ratio", sum->ratio, 3);
    json_real(&json, "cpu_s_per_gib", sum->cpu_s_per_gib, 4);
    json_member(&json, "slowest", flows, notes, sum->slowest);
    json_member(&json, "fastest", flows, notes, sum->fastest);
    json_open(&json, "members", '[');
    for (i = 0; i < flows->job->size; ++i) {
        if (notes[i].n_targets > 0) {
            json_member(&json, NULL, flows, notes, i);
        }
    }
    json_close(&json, ']');
    json_count(&json, "wrong", wrong);
    json_end(&json);
}

static void text_rates(const rates_t *rates)
{
    printf("%.3f GB/s, %.0f messages/s, p50 %.3f us, p99 %.3f us", rates->gbps, rates->messages_per_s, rates->p50_us,
           rates->p99_us);
}

static void print_text(const flows_t *flows, const flow_note_t *notes, const sum_t *sum, uint64_t wrong)
{
    const perf_options_t *opt = flows->opt;
    rates_t              rates;
    char                 name[32];
    int                  i;

    printf("kvcl_perf %s, %s: %d ranks, %" PRIu64 " x %" PRIu64 " bytes a message, %s order, %" PRIu64 " iteration%s\n",
           flows->test->name, flow_kind_name(opt->pattern), flows->job->size, opt->count, opt->unit,
           opt->random ? "random" : "sequential", notes[0].iters, (notes[0].iters == 1) ? "" : "s");
    for (i = 0; i < flows->job->size; ++i) {
        if (notes[i].n_targets == 0) {
            continue;
        }
        rates = rates_of(flows, &notes[i]);
        snprintf(name, sizeof(name), "rank %d", i);
        printf("  %-12s ", name);
        text_rates(&rates);
        printf(", %s\n", notes[i].path);
    }
    printf("  %-12s rank %d, %.3f GB/s\n", "slowest", sum->slowest, rates_of(flows, &notes[sum->slowest]).gbps);
    printf("  %-12s rank %d, %.3f GB/s\n", "fastest", sum->fastest, rates_of(flows, &notes[sum->fastest]).gbps);
    printf("  %-12s ", "sum");
    text_rates(&sum->rates);
    printf(" an iteration\n  %-12s %.4f s a GiB, all processes\n", "processor", sum->cpu_s_per_gib);
    if (isfinite(sum->rates.memcpy_gbps)) {
        printf("  %-12s %.3f GB/s, local, by %d process%s at once\n", "memcpy", sum->rates.memcpy_gbps, sum->n_members,
               (sum->n_members == 1) ? "" : "es");
        printf("  %-12s %.3f of memcpy\n", "ratio", sum->ratio);
    }
    printf("  %-12s %" PRIu64 "%s\n", "wrong", wrong,
           opt->verify ? "" : " (the first iteration was checked; --verify checks all)");
    fflush(stdout);
}

void flows_report(const flows_t *flows, const flow_note_t *notes, uint64_t wrong)
{
    sum_t sum;

    add_up(flows, notes, &sum);
    if (flows->opt->json) {
        print_json(flows, notes, &sum, wrong);
    } else {
        print_text(flows, notes, &sum, wrong);
    }
}
