/*
 * Owns the output: the figures computed from the measurements, as one JSON object or as a few lines.
 */
#include "config.h"
#include "tools/perf/perf.h"
#include "tools/perf/perf_asked.h"

#include "tools/json_out.h"
#include "tools/machine.h"

#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <string.h>

#define GIB ((double)(1u << 30))

typedef struct figures {
    double   gbps;
    double   ops_per_s;
    double   p50_us;
    double   p99_us;
    double   post_ns_per_run;
    double   cpu_s_per_gib;
    double   floor_gbps;
    double   floor_p50_us;
    double   floor_cpu;
    double   frames_gbps;
    double   frames_p50_us;
    double   frames_cpu;
    double   memcpy_gbps;
    double   memcpy_p50_us;
    double   memcpy_cpu;
    double   memcpy2_gbps;
    double   memcpy2_p50_us;
    double   memcpy2_cpu;
    double   ratio;
    double   beside_ratio; /* beside what a ratio is asked for; NAN: nothing is asked, or it was not measured */
    perf_asked_t asked;
    double   cold_ms;
    double   warm_ms;
    double   idle_p50_us;
    double   idle_p99_us;
    double   beside_gbps;
    double   dir_bytes;
    double   holder_bytes;
    unsigned floor_method;
    unsigned frames_method;
} figures_t;

/* NAN: not measured. */
static double lane_gbps(const perf_t *perf, const perf_lane_t *lane)
{
    return ((double)perf_floor_bytes(perf) * (double)lane->iters) / (double)lane->total_ns;
}

static double lane_cpu(const perf_t *perf, const perf_lane_t *lane)
{
    const double bytes = (double)perf_floor_bytes(perf) * (double)lane->cpu_iters;

    return ((double)lane->cpu_ns / 1e9) / (bytes / GIB);
}

static double lane_p50_us(const perf_lane_t *lane)
{
    return (lane->iters != 0) ? hist_quantile(&lane->ns, 0.5) / 1e3 : NAN;
}

/* The method with the smaller median; its index, or PERF_FLOORS if none was measured. */
static unsigned better(const perf_lane_t *lanes)
{
    unsigned best = PERF_FLOORS, i;

    for (i = 0; i < PERF_FLOORS; ++i) {
        if ((lanes[i].iters != 0) && ((best == PERF_FLOORS) || (hist_quantile(&lanes[i].ns, 0.5) <
                                                                hist_quantile(&lanes[best].ns, 0.5)))) {
            best = i;
        }
    }
    return best;
}

static void floor_figures(const perf_t *perf, figures_t *f)
{
    const perf_result_t *r = &perf->result;

    f->floor_method  = better(r->floor);
    f->frames_method = better(r->frames);
    f->floor_gbps = f->floor_p50_us = f->floor_cpu = f->frames_gbps = f->frames_cpu = f->memcpy_gbps = NAN;
    f->memcpy_cpu = f->memcpy2_gbps = f->frames_p50_us = f->memcpy_p50_us = f->memcpy2_p50_us = NAN;
    f->memcpy2_cpu = NAN;
    if (f->floor_method < PERF_FLOORS) {
        f->floor_p50_us = lane_p50_us(&r->floor[f->floor_method]);
        f->floor_gbps   = lane_gbps(perf, &r->floor[f->floor_method]);
        f->floor_cpu    = lane_cpu(perf, &r->floor[f->floor_method]);
    }
    if (f->frames_method < PERF_FLOORS) {
        f->frames_gbps   = lane_gbps(perf, &r->frames[f->frames_method]);
        f->frames_p50_us = lane_p50_us(&r->frames[f->frames_method]);
        f->frames_cpu    = lane_cpu(perf, &r->frames[f->frames_method]);
    }
    if (perf->test->bytes && (r->copy.iters != 0)) {
        f->memcpy_gbps    = lane_gbps(perf, &r->copy);
        f->memcpy_p50_us  = lane_p50_us(&r->copy);
        f->memcpy_cpu     = lane_cpu(perf, &r->copy);
        f->memcpy2_gbps   = lane_gbps(perf, &r->copy2);
        f->memcpy2_p50_us = lane_p50_us(&r->copy2);
        f->memcpy2_cpu    = lane_cpu(perf, &r->copy2);
    }
    /* With threads an operation moves only a share, so rates are compared, not times. */
    f->ratio = (perf->opt->threads == 1) ? f->floor_p50_us / f->p50_us : f->gbps / f->floor_gbps;
}

/* What is asked of this measurement, and the ratio reached. */
static void asked_figures(const perf_t *perf, figures_t *f)
{
    const double    other[] = {f->floor_p50_us, f->frames_p50_us, f->memcpy_p50_us, f->memcpy2_p50_us};
    const bool      mapped  = (strncmp(perf->result.path, "mapped", 6) == 0);
    const uint64_t  bytes   = perf_touched(perf) * perf->opt->unit;
    const uint64_t  all     = perf->opt->count * perf->opt->unit;
    const uint64_t  run     = (perf->n_runs > 0) ? all / perf->n_runs : all; /* adjacent blocks are one run */
    cpu_set_t       cores;
    bool            bound;

    bound    = (sched_getaffinity(0, sizeof(cores), &cores) == 0) && (CPU_COUNT(&cores) == 1);
    f->asked = perf_asked(perf->test->name, mapped, bound, run, bytes);
    f->beside_ratio = ((f->asked.ratio > 0) && (perf->opt->threads == 1)) ? other[f->asked.beside] / f->p50_us : NAN;
}

static void side_figures(const perf_t *perf, figures_t *f)
{
    const perf_result_t *r = &perf->result;

    f->cold_ms = f->warm_ms = f->idle_p50_us = f->idle_p99_us = f->beside_gbps = NAN;
    f->dir_bytes    = (r->dir_bytes > 0) ? r->dir_bytes : NAN;
    f->holder_bytes = (r->dir_bytes > 0) ? r->holder_bytes : NAN;
    if (perf->opt->cold) {
        f->cold_ms = (double)r->cold_ns / 1e6;
        f->warm_ms = (double)r->warm_ns / 1e6;
    }
    if (perf->opt->beside != 0) {
        f->idle_p50_us = hist_quantile(&r->idle, 0.5) / 1e3;
        f->idle_p99_us = hist_quantile(&r->idle, 0.99) / 1e3;
        f->beside_gbps = perf_beside_gbps(perf);
    }
}

static void make_figures(const perf_t *perf, figures_t *f)
{
    const perf_result_t *r        = &perf->result;
    const double        bytes     = (double)r->blocks * (double)perf->opt->unit;
    const double        cpu_bytes = (double)r->cpu_blocks * (double)perf->opt->unit;
    const bool          by_runs   = perf->test->bytes && !perf_in_parts(perf);
    const double        each      = by_runs ? (double)perf->n_runs : (double)perf_touched(perf);
    const double        runs      = (each / (double)perf->opt->threads) * (double)r->posts;

    f->gbps            = perf->test->bytes ? bytes / (double)r->wall_ns : NAN;
    f->ops_per_s       = ((double)r->blocks * 1e9) / (double)r->wall_ns;
    f->p50_us          = hist_quantile(&r->ns, 0.5) / 1e3;
    f->p99_us          = hist_quantile(&r->ns, 0.99) / 1e3;
    f->post_ns_per_run = (double)r->post_ns / runs;
    f->cpu_s_per_gib   = perf->test->bytes ? ((double)r->cpu_ns / 1e9) / (cpu_bytes / GIB) : NAN;
    floor_figures(perf, f);
    asked_figures(perf, f);
    side_figures(perf, f);
}

static void print_json(const perf_t *perf, const figures_t *f)
{
    json_out_t json;

    json_begin(&json, stdout);
    json_string(&json, "test", perf->test->name);
    machine_json(&json);
    json_string(&json, "path", perf->result.path);
    if (perf->result.memory[0] != '\0') {
        json_string(&json, "memory", perf->result.memory);
    } else {
        json_null(&json, "memory");
    }
    json_count(&json, "native_bytes", perf->result.native_bytes);
    json_count(&json, "unit", perf->opt->unit);
    json_count(&json, "count", perf->opt->count);
    json_count(&json, "batch", (perf->opt->batch != 0) ? perf->opt->batch : perf->opt->count);
    json_real(&json, "gbps", f->gbps, 3);
    json_real(&json, "ops_per_s", f->ops_per_s, 0);
    json_real(&json, "p50_us", f->p50_us, 3);
    json_real(&json, "p99_us", f->p99_us, 3);
    json_real(&json, "post_ns_per_run", f->post_ns_per_run, 1);
    json_real(&json, "cpu_s_per_gib", f->cpu_s_per_gib, 4);
    json_real(&json, "floor_gbps", f->floor_gbps, 3);
    json_real(&json, "floor_p50_us", f->floor_p50_us, 3);
    json_real(&json, "floor_cpu_s_per_gib", f->floor_cpu, 4);
    json_real(&json, "frames_gbps", f->frames_gbps, 3);
    json_real(&json, "frames_p50_us", f->frames_p50_us, 3);
    json_real(&json, "frames_cpu_s_per_gib", f->frames_cpu, 4);
    json_real(&json, "memcpy_gbps", f->memcpy_gbps, 3);
    json_real(&json, "memcpy_p50_us", f->memcpy_p50_us, 3);
    json_real(&json, "memcpy_cpu_s_per_gib", f->memcpy_cpu, 4);
    json_real(&json, "memcpy2_gbps", f->memcpy2_gbps, 3);
    json_real(&json, "memcpy2_p50_us", f->memcpy2_p50_us, 3);
    json_real(&json, "memcpy2_cpu_s_per_gib", f->memcpy2_cpu, 4);
    json_real(&json, "ratio", f->ratio, 3);
    if (isfinite(f->beside_ratio)) {
        json_string(&json, "asked_beside", perf_beside_name(f->asked.beside));
    } else {
        json_null(&json, "asked_beside");
    }
    json_real(&json, "asked_ratio", isfinite(f->beside_ratio) ? f->asked.ratio : NAN, 3);
    json_real(&json, "reached_ratio", f->beside_ratio, 3);
    json_real(&json, "cold_ms", f->cold_ms, 3);
    json_real(&json, "warm_ms", f->warm_ms, 3);
    json_real(&json, "idle_p50_us", f->idle_p50_us, 3);
    json_real(&json, "idle_p99_us", f->idle_p99_us, 3);
    json_real(&json, "beside_gbps", f->beside_gbps, 3);
    json_real(&json, "dir_bytes_per_key", f->dir_bytes, 1);
    json_real(&json, "holder_bytes_per_key", f->holder_bytes, 1);
    json_count(&json, "wrong", perf->result.wrong);
    json_end(&json);
}

static void print_floors(const perf_t *perf, const figures_t *f)
{
    if (isfinite(f->floor_p50_us)) {
        printf("  %-12s %.3f GB/s, p50 %.3f us, %.4f s a GiB: %s\n", "raw UCX", f->floor_gbps, f->floor_p50_us,
               f->floor_cpu, kvcl_floor_method_name(perf->floor, f->floor_method));
        printf("  %-12s %.3f of raw UCX\n", "ratio", f->ratio);
    }
    if (isfinite(f->frames_gbps)) {
        printf("  %-12s %.3f GB/s, %.4f s a GiB: %s, 1 MiB each, in order\n", "raw frames", f->frames_gbps,
               f->frames_cpu, kvcl_floor_method_name(perf->floor, f->frames_method));
    }
    if (isfinite(f->memcpy_gbps)) {
        printf("  %-12s %.3f GB/s, %.4f s a GiB, local\n", "memcpy", f->memcpy_gbps, f->memcpy_cpu);
    }
    if (isfinite(f->memcpy2_gbps)) {
        printf("  %-12s %.3f GB/s, %.4f s a GiB, local, by two threads\n", "memcpy", f->memcpy2_gbps, f->memcpy2_cpu);
    }
}

static void print_asked(const figures_t *f)
{
    if (isfinite(f->beside_ratio)) {
        printf("  %-12s %.3f times as fast as %s; asked: %.2f\n",
               (f->beside_ratio < f->asked.ratio) ? "short" : "reached", f->beside_ratio,
               perf_beside_name(f->asked.beside), f->asked.ratio);
    }
}

static void print_sides(const perf_t *perf, const figures_t *f)
{
    if (perf->opt->cold) {
        printf("  %-12s %.3f ms, the second iteration %.3f ms\n", "cold", f->cold_ms, f->warm_ms);
    }
    if (perf->opt->beside != 0) {
        printf("  %-12s p50 %.3f us, p99 %.3f us without the bulk transfer, which reached %.3f GB/s\n", "idle",
               f->idle_p50_us, f->idle_p99_us, f->beside_gbps);
    }
}

static void print_memory(const figures_t *f)
{
    if (isfinite(f->dir_bytes)) {
        printf("  %-12s %.1f bytes a key in the directory, %.1f at the holder of the block\n", "memory", f->dir_bytes,
               f->holder_bytes);
    }
}

static void print_text(const perf_t *perf, const figures_t *f)
{
    const perf_options_t *opt = perf->opt;

    printf("kvcl_perf %s: %s, %" PRIu64 " x %" PRIu64 " bytes, %s order, %zu run%s, %" PRIu64 " iteration%s, %" PRIu64
           " thread%s\n",
           perf->test->name, perf->result.path, opt->count, opt->unit, opt->random ? "random" : "sequential",
           perf->n_runs, (perf->n_runs == 1) ? "" : "s", perf->result.iters, (perf->result.iters == 1) ? "" : "s",
           opt->threads, (opt->threads == 1) ? "" : "s");
    if (perf->result.memory[0] != '\0') {
        printf("  %-12s %s; %" PRIu64 " bytes moved natively\n", "blocks", perf->result.memory,
               perf->result.native_bytes);
    }
    if (perf->test->bytes) {
        printf("  %-12s %.3f GB/s, %.0f blocks/s\n", "speed", f->gbps, f->ops_per_s);
    } else {
        printf("  %-12s %.0f keys/s\n", "speed", f->ops_per_s);
    }
    printf("  %-12s p50 %.3f us, p99 %.3f us an iteration\n", "time", f->p50_us, f->p99_us);
    if (isfinite(f->post_ns_per_run)) {
        printf("  %-12s %.1f ns a run\n", "posting", f->post_ns_per_run);
    }
    if (perf->test->bytes) {
        printf("  %-12s %.4f s a GiB, all processes\n", "processor", f->cpu_s_per_gib);
    }
    print_floors(perf, f);
    print_asked(f);
    print_sides(perf, f);
    print_memory(f);
    printf("  %-12s %" PRIu64 "%s\n", "wrong", perf->result.wrong,
           opt->verify ? "" : " (the first iteration was checked; --verify checks all)");
    fflush(stdout);
}

void perf_report(const perf_t *perf)
{
    figures_t f = {0};

    make_figures(perf, &f);
    if (perf->opt->json) {
        print_json(perf, &f);
    } else {
        print_text(perf, &f);
    }
}
