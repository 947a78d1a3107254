/*
 * Owns the comparison of policies and the search for the highest speed: between speeds that hold and do not, by halves,
 * to 1%.
 */
#include "config.h"
#include "tools/sim/report/report.h"
#include "tools/sim/study/studies.h"

#include <stdlib.h>
#include <string.h>

#define SPEED_MOST  64.0
#define SPEED_LEAST (1.0 / 64)
#define NEAR        1.01

bool study_run(sim_t *sim, const sim_config_t *config, work_t *work, sim_stats_t *stats)
{
    memset(stats, 0, sizeof(*stats));
    return sim_open(sim, config, work) && sim_go(sim) && stats_make(stats, sim);
}

static bool compare_one(const sim_options_t *opt, const sim_config_t *config, work_t *work, json_out_t *json)
{
    sim_t       sim;
    sim_stats_t stats;
    const bool  good = study_run(&sim, config, work, &stats);

    if (good && opt->json) {
        json_open(json, NULL, '{');
        report_json(json, &sim, &stats, opt->cdf);
        json_close(json, '}');
    } else if (good) {
        report_line(stdout, &sim, &stats);
        fflush(stdout);
    }
    stats_free(&stats);
    sim_close(&sim);
    return good;
}

bool study_compare(const sim_options_t *opt, work_t *work)
{
    sim_config_t config = opt->config;
    const char   *list  = opt->compare;
    json_out_t   json   = {stdout, 0};
    bool         good   = true;
    char         *policy;

    if (opt->json) {
        json_begin(&json, stdout);
        json_open(&json, "runs", '[');
    } else {
        report_head(stdout);
    }
    while (good && ((policy = sim_options_policy(&list)) != NULL)) {
        config.policy = policy;
        good          = compare_one(opt, &config, work, &json);
        free(policy);
    }
    if (opt->json) {
        json_close(&json, ']');
        json_end(&json);
    }
    return good;
}

/* Arrivals at another speed than they are now. */
static void change_speed(work_t *work, double from, double to)
{
    size_t i;

    for (i = 0; i < work->n; ++i) {
        work->requests[i].arrival *= from / to;
    }
}

/* What a speed came to; all 0 if it is overloaded. */
typedef struct outcome {
    double speed;
    double good;    /* shares of all offered */
    double tokens;
    double longest; /* of the longest tenth */
} outcome_t;

/* Whether a speed holds. False: a failure. */
static bool try_speed(const sim_config_t *config, work_t *work, double speed, outcome_t *outcome)
{
    sim_t       sim;
    sim_stats_t stats;
    const bool  good = study_run(&sim, config, work, &stats);

    *outcome = (outcome_t){.speed = speed};
    if (good && !sim.overloaded) {
        outcome->good    = stats_good(&stats.all);
        outcome->tokens  = (stats.all.tokens > 0) ? stats.all.good_tokens / stats.all.tokens : 0;
        outcome->longest = stats_good(&stats.longest);
    }
    stats_free(&stats);
    sim_close(&sim);
    return good;
}

/* The highest speed that holds; its speed is 0 if none does. False: a failure. */
static bool search(const sim_options_t *opt, const sim_config_t *config, work_t *work, outcome_t *best)
{
    double    low = 0, high = 0, speed = 1, at = 1;
    outcome_t outcome;
    bool      good = true;

    *best = (outcome_t){.speed = 0};
    while (((low == 0) && (speed >= SPEED_LEAST)) || ((high == 0) && (speed <= SPEED_MOST)) ||
           ((low > 0) && (high > low * NEAR))) {
        change_speed(work, at, speed);
        at   = speed;
        good = try_speed(config, work, speed, &outcome);
        if (!good) {
            break;
        }
        if (outcome.good >= opt->sweep) {
            low   = speed;
            *best = outcome;
        } else {
            high = speed;
        }
        if (((low == 0) && (speed < SPEED_LEAST)) || ((high == 0) && (speed > SPEED_MOST))) {
            break;
        }
        speed = (low == 0) ? speed / 2 : (high == 0) ? speed * 2 : (low + high) / 2;
    }
    change_speed(work, at, 1);
    return good;
}

static bool sweep_one(const sim_options_t *opt, const sim_config_t *config, work_t *work, json_out_t *json)
{
    const double own = work_rate(work);
    outcome_t    best;

    if (!search(opt, config, work, &best)) {
        return false;
    }
    if (!opt->json) {
        printf("%7.3f %10.2f %6.1f%% %7.1f%%  %s\n", best.speed * opt->speed, own * best.speed, 100 * best.good,
               100 * best.tokens, config->policy);
        fflush(stdout);
        return true;
    }
    json_open(json, NULL, '{');
    json_string(json, "policy", config->policy);
    json_real(json, "speed", best.speed * opt->speed, 4);
    json_real(json, "rate", own * best.speed, 4);
    json_real(json, "good", best.good, 6);
    json_real(json, "good_tokens", best.tokens, 6);
    json_real(json, "good_of_longest_tenth", best.longest, 6);
    json_close(json, '}');
    return true;
}

bool study_sweep(const sim_options_t *opt, work_t *work)
{
    sim_config_t config = opt->config;
    const char   *list  = opt->compare;
    json_out_t   json   = {stdout, 0};
    bool         good   = true;
    char         *policy;

    if (opt->json) {
        json_begin(&json, stdout);
        json_real(&json, "share", opt->sweep, 6);
        json_open(&json, "runs", '[');
    } else {
        printf("  speed requests/s   good   tokens  policy (highest speed with %.1f%% of the requests good)\n",
               100 * opt->sweep);
    }
    if (list == NULL) {
        good = sweep_one(opt, &config, work, &json);
    }
    while (good && (list != NULL) && ((policy = sim_options_policy(&list)) != NULL)) {
        config.policy = policy;
        good          = sweep_one(opt, &config, work, &json);
        free(policy);
    }
    if (opt->json) {
        json_close(&json, ']');
        json_end(&json);
    }
    return good;
}
