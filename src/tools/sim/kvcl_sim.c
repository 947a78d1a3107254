/*
 * kvcl_sim: a cluster in a program, with the library's scheduler inside. Owns the order of a run: options, models,
 * work, the run, the report, the exit status (0: done; 1: a failure, or a replayed log that differs; 2: bad options or
 * input).
 */
#include "config.h"
#include "tools/sim/log/log.h"
#include "tools/sim/options.h"
#include "tools/sim/report/report.h"
#include "tools/sim/study/studies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    EXIT_FAILED = 1,
    EXIT_USAGE  = 2
};

static bool open_log(sim_options_t *opt)
{
    if (opt->log == NULL) {
        return true;
    }
    opt->config.log = fopen(opt->log, "w");
    if (opt->config.log == NULL) {
        fprintf(stderr, "kvcl_sim: --log %s: %s\n", opt->log, strerror(errno));
    }
    return opt->config.log != NULL;
}

static bool close_log(sim_options_t *opt)
{
    bool good = true;

    if (opt->config.log != NULL) {
        good = (ferror(opt->config.log) == 0);
        good = (fclose(opt->config.log) == 0) && good;
        opt->config.log = NULL;
        if (!good) {
            fprintf(stderr, "kvcl_sim: --log %s: it could not be written\n", opt->log);
        }
    }
    return good;
}

static bool report(const sim_options_t *opt, const sim_t *sim)
{
    sim_stats_t stats;
    json_out_t  json;
    bool        good = stats_make(&stats, sim);

    if (good && opt->json) {
        json_begin(&json, stdout);
        report_json(&json, sim, &stats, opt->cdf);
        json_end(&json);
    } else if (good) {
        report_print(stdout, sim, &stats, opt->cdf);
    }
    good = good && ((opt->svg == NULL) || report_svg(opt->svg, sim, &stats));
    stats_free(&stats);
    return good;
}

static int run_once(sim_options_t *opt, work_t *work)
{
    sim_t sim;
    bool  good = open_log(opt) && sim_open(&sim, &opt->config, work);

    if (!good && (opt->config.log == NULL) && (opt->log != NULL)) {
        return EXIT_FAILED;
    }
    good = good && sim_go(&sim) && report(opt, &sim);
    sim_close(&sim);
    good = close_log(opt) && good;
    return good ? EXIT_SUCCESS : EXIT_FAILED;
}

static int run_log(const char *path)
{
    log_result_t result;

    if (!log_replay(path, &result)) {
        return EXIT_USAGE;
    }
    printf("%llu calls, %llu answers, %llu different", (unsigned long long)result.calls,
           (unsigned long long)result.answers, (unsigned long long)result.different);
    if (result.different != 0) {
        printf(", the first in line %llu", (unsigned long long)result.first_line);
    }
    printf("\n");
    return (result.different == 0) ? EXIT_SUCCESS : EXIT_FAILED;
}

static int run(sim_options_t *opt)
{
    work_t work;
    int    result;

    if (opt->list) {
        report_policies(stdout);
        return EXIT_SUCCESS;
    }
    if (opt->replay_log != NULL) {
        return run_log(opt->replay_log);
    }
    if (!sim_options_models(opt)) {
        return EXIT_USAGE;
    }
    if (opt->fit != NULL) {
        return study_fit(opt) ? EXIT_SUCCESS : EXIT_USAGE;
    }
    if (opt->paper != NULL) {
        return study_paper(opt);
    }
    if (!sim_options_work(opt, &work)) {
        return EXIT_USAGE;
    }
    if (opt->sweep > 0) {
        result = study_sweep(opt, &work) ? EXIT_SUCCESS : EXIT_FAILED;
    } else if (opt->compare != NULL) {
        result = study_compare(opt, &work) ? EXIT_SUCCESS : EXIT_FAILED;
    } else {
        result = run_once(opt, &work);
    }
    work_free(&work);
    return result;
}

int main(int argc, char **argv)
{
    sim_options_t opt;
    int           result = EXIT_SUCCESS;

    switch (sim_options_parse(&opt, argc, argv)) {
    case CLI_DONE:
        break;
    case CLI_BAD:
        return EXIT_USAGE;
    case CLI_GO:
        result = run(&opt);
        sim_options_free(&opt);
        break;
    }
    return cli_finish("kvcl_sim", result);
}
