/*
 * Owns the set-ups of the published experiments (FAST'25 and arXiv 2407.00079, as contrib/doc/scheduling cites them)
 * and prints the published numbers beside those of this simulator. --trace names the folder of the published traces.
 */
#include "config.h"
#include "tools/sim/report/plot.h"
#include "tools/sim/study/studies.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PAPER_POOL     3000000u /* tokens of an instance */
#define PAPER_GLOBAL   "prefill=global:threshold=2"
#define PAPER_UNCACHED 2.62     /* mean TTFT without a cache in fig. 13, s */
#define GBIT           (1e9 / 8)
/* Schedule, transfer and load of the mean prompt take 0.3 s together on a real cluster (contrib/doc/scheduling);
 * transfer and load are simulated, and run beside the prefill or take 0.05 s of these. */
#define PAPER_OVERHEAD 0.25

typedef struct paper {
    const sim_options_t *opt;
    work_t              work;
    sim_config_t        config;
    sim_stats_t         stats;
    sim_t               sim;
} paper_t;

/* Load one of the traces, sped up; false after reporting. */
static bool open_trace(paper_t *paper, const sim_options_t *opt, const char *name, double speed)
{
    char path[4096];

    memset(paper, 0, sizeof(*paper));
    paper->opt = opt;
    work_init(&paper->work);
    if (snprintf(path, sizeof(path), "%s/%s_trace.jsonl", (opt->trace != NULL) ? opt->trace : ".", name) >=
        (int)sizeof(path)) {
        fprintf(stderr, "kvcl_sim: --trace: the path is too long\n");
        return false;
    }
    if (!work_load(&paper->work, path, (size_t)opt->requests) || !work_sessions(&paper->work)) {
        fprintf(stderr, "kvcl_sim: --paper needs --trace FOLDER, with %s_trace.jsonl in it\n", name);
        work_free(&paper->work);
        return false;
    }
    work_arrive(&paper->work, opt->arrivals, speed, 0, opt->config.seed);
    paper->config          = opt->config;
    paper->config.lru      = true;
    paper->config.overload = 0;
    paper->config.overhead = PAPER_OVERHEAD;
    paper->config.ttft     = 0;
    paper->config.ttft_own = 0;
    paper->config.tbt      = 0;
    paper->config.log      = NULL;
    if (opt->config.pool_tokens != 0) {
        paper->config.pool_tokens = PAPER_POOL;
    }
    return true;
}

static bool run(paper_t *paper, uint32_t prefill, uint32_t decode, const char *policy)
{
    stats_free(&paper->stats);
    sim_close(&paper->sim);
    paper->config.prefill = prefill;
    paper->config.decode  = decode;
    paper->config.policy  = policy;
    return study_run(&paper->sim, &paper->config, &paper->work, &paper->stats);
}

/* A panel of the picture, with one curve beside the published one. names: of the points. */
static plot_curve_t *one_curve(plot_t *plot, const char *title, const char *const *names, unsigned n,
                               const char *curve_name, const double *published)
{
    plot_panel_t *panel = plot_panel(plot, title, n);
    plot_curve_t *curve = plot_curve(panel, curve_name);
    unsigned     i;

    for (i = 0; i < n; ++i) {
        snprintf(panel->points[i], sizeof(panel->points[i]), "%s", names[i]);
        curve->paper[i] = published[i];
    }
    return curve;
}

/* Another curve of its panel. */
static plot_curve_t *next_curve(plot_t *plot, const char *curve_name, const double *published)
{
    plot_panel_t *panel = &plot->panels[plot->n_panels - 1];
    plot_curve_t *curve = plot_curve(panel, curve_name);

    if (published != NULL) {
        memcpy(curve->paper, published, panel->n_points * sizeof(*published));
    }
    return curve;
}

static bool picture(const sim_options_t *opt, const plot_t *plot)
{
    return (opt->svg == NULL) || plot_write(opt->svg, plot);
}

static void close_trace(paper_t *paper)
{
    stats_free(&paper->stats);
    sim_close(&paper->sim);
    work_free(&paper->work);
}

static bool fig9(const sim_options_t *opt)
{
    static const double tokens[] = {1e4, 1e5, 1e6, 2e6, 4e6, 5e6, 8e6, 1e7, 5e7, 0};
    static const double published[2][10] = {{.045, .073, .087, .120, .215, .247, .300, .326, .398, .401},
                                            {.000, .012, .146, .235, .380, .435, .545, .589, .658, .658}};
    static const char *const names[] = {"conversation", "synthetic"};
    static const char *const sizes[] = {"10k", "100k", "1M", "2M", "4M", "5M", "8M", "10M", "50M", "inf"};
    paper_t                  paper;
    plot_t                   plot;
    plot_curve_t             *curve;
    double                   ratio;
    unsigned                 t, i;

    plot_init(&plot, "Fig. 9: hit ratio of one LRU cache by its tokens, requests in sequence");
    printf("fig. 9: hit ratio of one LRU cache, requests in sequence; blocks of %u tokens\n"
           "trace           tokens  paper   here  difference\n", WORK_BLOCK_TOKENS);
    for (t = 0; t < 2; ++t) {
        if (!open_trace(&paper, opt, names[t], 1)) {
            return false;
        }
        curve = (t == 0) ? one_curve(&plot, "share of tokens found", sizes, 10, names[t], published[t])
                         : next_curve(&plot, names[t], published[t]);
        for (i = 0; i < 10; ++i) {
            ratio = study_lru_ratio(&paper.work, (uint64_t)tokens[i]);
            printf("%-12s %9.0f  %5.3f  %5.3f  %+.3f\n", names[t], tokens[i], published[t][i], ratio,
                   ratio - published[t][i]);
            curve->here[i] = ratio;
        }
        close_trace(&paper);
    }
    return picture(opt, &plot);
}

/* Mean seconds of a prefill without a cache. */
static double uncached(const paper_t *paper)
{
    double sum = 0;
    size_t k;

    for (k = 0; k < paper->work.n; ++k) {
        sum += kvcl_sched_model_prefill(paper->opt->config.model, paper->work.requests[k].input, 0).seconds;
    }
    return sum / (double)((paper->work.n != 0) ? paper->work.n : 1);
}

/* One trace: hits and seconds under both policies, and seconds without a cache (fig. 8). */
static bool fig10_trace(paper_t *paper, const char *name, plot_curve_t *hits, plot_curve_t *seconds)
{
    static const char *const policies[] = {"prefill=local", PAPER_GLOBAL};
    size_t                   k;
    unsigned                 i;

    for (k = 0; k < paper->work.n; ++k) {
        paper->work.requests[k].output = 1;
    }
    for (i = 0; i < 2; ++i) {
        if (!run(paper, 10, 1, policies[i])) {
            return false;
        }
        hits->here[i]    = 100 * (paper->stats.there + paper->stats.fetched);
        seconds->here[i] = paper->stats.prefill_mean;
        printf("%-12s  %-7s       %5.1f  %5.1f             %5.3f  %5.3f\n", name, (i == 0) ? "local" : "global",
               hits->paper[i], hits->here[i], seconds->paper[i], seconds->here[i]);
    }
    seconds->here[2] = uncached(paper);
    printf("%-12s  no cache        -      -             %5.3f  %5.3f  (fig. 8)\n", name, seconds->paper[2],
           seconds->here[2]);
    return true;
}

static bool fig10(const sim_options_t *opt)
{
    static const char *const names[]   = {"conversation", "synthetic"};
    static const char *const points[]  = {"local", "global", "no cache"};
    static const double      hits[][2] = {{16.9, 37.5}, {26.4, 62.2}};
    static const double      seconds[][3] = {{1.379, 1.051, 1.661}, {1.497, .783, 2.022}};
    paper_t                  paper;
    plot_t                   plot;
    plot_curve_t             *hit_curves[2], *time_curves[2];
    unsigned                 t;
    bool                     good = true;

    plot_init(&plot, "Fig. 10: ten prefill nodes of 3 M tokens, output of 1 token");
    hit_curves[0]  = one_curve(&plot, "tokens found, %", points, 2, names[0], hits[0]);
    hit_curves[1]  = next_curve(&plot, names[1], hits[1]);
    time_curves[0] = one_curve(&plot, "seconds of prefill a request", points, 3, names[0], seconds[0]);
    time_curves[1] = next_curve(&plot, names[1], seconds[1]);
    printf("fig. 10: ten prefill nodes of 3 M tokens, output of 1 token\n"
           "trace         policy   hits paper   here   prefill s paper   here\n");
    for (t = 0; good && (t < 2); ++t) {
        if (!open_trace(&paper, opt, names[t], opt->speed)) {
            return false;
        }
        good = fig10_trace(&paper, names[t], hit_curves[t], time_curves[t]);
        close_trace(&paper);
    }
    return good && picture(opt, &plot);
}

static bool fig15(const sim_options_t *opt)
{
    static const double ttft[] = {5.74, 1.71, 1.30, 1.19, 1.12, 1.11, 1.14};
    static const double tbt[]  = {31.5, 31.8, 32.9, 35.0, 38.2, 44.2, 58.3};
    static const double good_share[] = {77.7, 97.2, 99.1, 99.0, 99.2, 98.4, 86.1};
    static const char *const splits[] = {"5P11D", "6P10D", "7P9D", "8P8D", "9P7D", "10P6D", "11P5D"};
    paper_t             paper;
    plot_t              plot;
    plot_curve_t        *curves[3];
    uint32_t            p;
    bool                good = true;

    if (!open_trace(&paper, opt, "synthetic", opt->speed)) {
        return false;
    }
    paper.config.ttft = 10;
    paper.config.tbt  = 0.1;
    plot_init(&plot, "Fig. 15: split of 16 nodes, synthetic trace");
    curves[0] = one_curve(&plot, "mean TTFT, s", splits, 7, "TTFT", ttft);
    curves[1] = one_curve(&plot, "mean TBT, ms", splits, 7, "TBT", tbt);
    curves[2] = one_curve(&plot, "requests within TTFT 10 s and TBT 100 ms, %", splits, 7, "effective", good_share);
    printf("fig. 15: split of 16 nodes, synthetic; TTFT up to 10 s, TBT up to 100 ms\n"
           "split     TTFT s paper  here   ratio   TBT ms paper  here   effective %% paper  here\n");
    for (p = 5; good && (p <= 11); ++p) {
        good = run(&paper, p, 16 - p, PAPER_GLOBAL);
        printf("%2uP%2uD          %5.2f %5.2f   %5.2f          %5.1f %5.1f             %5.1f %5.1f\n", p, 16 - p,
               ttft[p - 5], paper.stats.ttft_mean, paper.stats.ttft_mean / ttft[p - 5], tbt[p - 5],
               1e3 * paper.stats.tbt_mean, good_share[p - 5], 100 * stats_good(&paper.stats.all));
        curves[0]->here[p - 5] = paper.stats.ttft_mean;
        curves[1]->here[p - 5] = 1e3 * paper.stats.tbt_mean;
        curves[2]->here[p - 5] = 100 * stats_good(&paper.stats.all);
    }
    close_trace(&paper);
    return good && picture(opt, &plot);
}

static bool fig5(const sim_options_t *opt)
{
    static const char *const policies[]  = {PAPER_GLOBAL, "prefill=local", "prefill=load", "prefill=random"};
    static const char *const names[]     = {"global", "local", "load", "random"};
    static const double      published[] = {3.07, 3.58, 5.27, 19.65};
    paper_t                  paper;
    double                   mean[4] = {0, 0, 0, 0};
    plot_t                   plot;
    plot_curve_t             *curve;
    char                     split[16];
    uint32_t                 p, i;
    bool                     good = true;

    if (!open_trace(&paper, opt, "conversation", opt->speed)) {
        return false;
    }
    plot_init(&plot, "Fig. 5: mean TTFT of 16 nodes by policy, conversation trace; the paper gives no split");
    (void)one_curve(&plot, "mean TTFT, s", names, 4, "unknown split", published);
    printf("fig. 5: mean TTFT (s) of 16 nodes by policy; the paper gives no split\nsplit  ");
    for (i = 0; i < 4; ++i) {
        printf(" %8s", names[i]);
    }
    printf("   over global\npaper  ");
    for (i = 0; i < 4; ++i) {
        printf(" %8.2f", published[i]);
    }
    printf("   1.17 1.72 6.40\n");
    for (p = 6; good && (p <= 8); ++p) {
        printf("%uP%2uD  ", p, 16 - p);
        snprintf(split, sizeof(split), "%uP%uD", p, 16 - p);
        curve = next_curve(&plot, split, NULL);
        for (i = 0; good && (i < 4); ++i) {
            good    = run(&paper, p, 16 - p, policies[i]);
            mean[i] = paper.stats.ttft_mean;
            curve->here[i] = mean[i];
            printf(" %8.2f", mean[i]);
            fflush(stdout);
        }
        printf("   %.2f %.2f %.2f\n", mean[1] / mean[0], mean[2] / mean[0], mean[3] / mean[0]);
    }
    close_trace(&paper);
    return good && picture(opt, &plot);
}

static bool fig13(const sim_options_t *opt)
{
    static const double gbit[]      = {24, 40, 80, 100, 160, 320, 400};
    static const double published[] = {5.09, 2.40, 1.73, 1.60, 1.41, 1.24, 1.25, NAN};
    static const char *const names[] = {"24", "40", "80", "100", "160", "320", "400 Gb/s", "no cache"};
    paper_t             paper;
    plot_t              plot;
    plot_curve_t        *curve, *without;
    unsigned            i;
    bool                good = true;

    if (!open_trace(&paper, opt, "synthetic", opt->speed)) {
        return false;
    }
    plot_init(&plot, "Fig. 13: mean TTFT by bandwidth, synthetic trace");
    curve             = one_curve(&plot, "mean TTFT, s", names, 8, "with a cache", published);
    without           = next_curve(&plot, "without a cache", NULL); /* no bandwidth: a point of its own */
    without->paper[7] = PAPER_UNCACHED;
    printf("fig. 13: mean TTFT (s) by bandwidth, synthetic, 8P+8D (the paper gives no split)\n"
           "Gb/s        paper  here\n");
    for (i = 0; good && (i < 7); ++i) {
        paper.config.nic = gbit[i] * GBIT;
        good             = run(&paper, 8, 8, "prefill=global:threshold=1");
        printf("%-10.0f  %5.2f %5.2f\n", gbit[i], published[i], paper.stats.ttft_mean);
        fflush(stdout);
        curve->here[i] = paper.stats.ttft_mean;
    }
    paper.config.nic = 1e15;
    paper.config.pool_tokens = WORK_BLOCK_TOKENS;
    good                     = good && run(&paper, 13, 8, "prefill=load");
    printf("no cache    %5.2f %5.2f  (13P+8D: 8 cannot hold it)\n", PAPER_UNCACHED, paper.stats.ttft_mean);
    without->here[7] = paper.stats.ttft_mean;
    close_trace(&paper);
    return good && picture(opt, &plot);
}

static bool table3(const sim_options_t *opt)
{
    static const char *const admits[]    = {"baseline", "er", "erp"};
    static const double      speeds[]    = {2, 2.5}, ttfts[] = {5, 10, 30};
    static const uint32_t    splits[]    = {6, 8};
    char                     policy[128];
    paper_t                  paper;
    unsigned                 s, t, k, i;
    bool                     good = true;

    printf("table 3: requests refused, prefill seconds wasted, correlation of prefill and decode load; conversation\n"
           "(paper: 23,608 requests at 2x, 8P+8D: 4183, 3771, 3589; its trace and limits are not published)\n"
           "speed split TTFT TBT        baseline                    er                   erp\n");
    for (s = 0; good && (s < 2); ++s) {
        if (!open_trace(&paper, opt, "conversation", speeds[s])) {
            return false;
        }
        for (k = 0; k < 2; ++k) {
            for (t = 0; good && (t < 3); ++t) {
                paper.config.ttft = ttfts[t];
                paper.config.tbt  = 0.03;
                printf("%4.1fx %uP%2uD %3.0f s 30 ms", speeds[s], splits[k], 16 - splits[k], ttfts[t]);
                for (i = 0; good && (i < 3); ++i) {
                    snprintf(policy, sizeof(policy), "%s,admit=%s", PAPER_GLOBAL, admits[i]);
                    good = run(&paper, splits[k], 16 - splits[k], policy);
                    printf("  %6llu %7.0f s %+5.2f", (unsigned long long)(paper.stats.n[SIM_REFUSED] +
                           paper.stats.n[SIM_LATE] + paper.stats.n[SIM_WASTED]), paper.sim.totals.wasted_s,
                           paper.stats.correlation);
                    fflush(stdout);
                }
                printf("\n");
            }
        }
        close_trace(&paper);
    }
    return good;
}

typedef struct paper_name {
    const char *name;
    bool       (*go)(const sim_options_t *opt);
} paper_name_t;

int study_paper(const sim_options_t *opt)
{
    static const paper_name_t names[] = {{"fig5", fig5}, {"fig9", fig9}, {"fig10", fig10}, {"fig13", fig13},
                                         {"fig15", fig15}, {"table3", table3}};
    size_t                    i;

    if ((opt->svg != NULL) && (strcmp(opt->paper, "table3") == 0)) {
        fprintf(stderr, "kvcl_sim: --svg: table3 has no curves; take a figure\n");
        return 2;
    }
    for (i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        if (strcmp(opt->paper, names[i].name) == 0) {
            return names[i].go(opt) ? 0 : 1;
        }
    }
    fprintf(stderr, "kvcl_sim: --paper: \"%s\" is not fig5, fig9, fig10, fig13, fig15 or table3\n", opt->paper);
    return 2;
}
