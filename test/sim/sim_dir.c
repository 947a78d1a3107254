/*
 * The directory's simulator: thousands of seeded clusters, every invariant checked at every step.
 *
 *   sim_dir [--seeds N] [--seed S] [--break NAME] [--verbose]
 *
 * Runs N seeds (10,000) from S on. Without --seed it runs those from 1 on, then the seeds that once broke an invariant.
 * The first seed that breaks an invariant is printed with the command that replays it, and the exit status is 1. That
 * is also the status under --break, where it is the right result.
 */
#include "config.h"

#include "sim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const break_names[BREAK_END] = {
    "nothing",       "no-gen-bump",       "publish-before-bytes", "late-remove-ignores-gen",
    "skip-gen-check", "compare-first",    "no-read-fence",        "no-write-fence",
    "stale-incarnation", "gens-with-bytes", "no-entry-check", "home-behind"};

/* Under home-behind each of these still breaks AckedIsFindable. */
static const uint64_t once_broken[] = {13519, 16426, 42546, 49587, 63639, 78742};

enum { N_ONCE_BROKEN = sizeof(once_broken) / sizeof(once_broken[0]) };

unsigned sim_below(sim_t *sim, unsigned n)
{
    return (unsigned)(((kvcl_rand_next(&sim->rnd) >> 32) * n) >> 32);
}

bool sim_chance(sim_t *sim, unsigned per_mille)
{
    return sim_below(sim, 1000) < per_mille;
}

void sim_log(sim_t *sim, const char *fmt, ...)
{
    va_list args;

    if (!sim->verbose) {
        return;
    }
    printf("%5" PRIu64 "  ", sim->step);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    putchar('\n');
}

/* Only the first violation of a seed counts. */
void sim_fail(sim_t *sim, const char *invariant, const char *fmt, ...)
{
    va_list args;

    if (sim->failed) {
        return;
    }
    sim->failed = true;
    printf("seed %" PRIu64 " step %" PRIu64 ": %s: ", sim->seed, sim->step, invariant);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\nreplay: sim_dir --seed %" PRIu64 " --seeds 1 --break %s --verbose\n", sim->seed,
           break_names[sim->broken]);
}

static void run_seed(sim_t *sim, uint64_t seed, sim_break_t broken, bool verbose)
{
    unsigned i;

    memset(sim, 0, offsetof(sim_t, counts)); /* the counts continue */
    sim->verbose = verbose;
    sim->broken  = broken;
    sim_start(sim, seed);
    for (i = 0; (i < SIM_STEPS) && !sim->failed; ++i) {
        sim_step(sim);
    }
    if (!sim->failed) {
        sim_quiet_end(sim);
    }
}

static uint64_t parse_number(const char *text)
{
    char    *end;
    uint64_t value;

    errno = 0;
    value = strtoull(text, &end, 10);
    if ((errno != 0) || (*end != '\0') || (*text < '0') || (*text > '9')) {
        fprintf(stderr, "sim_dir: '%s' is no number\n", text);
        exit(2);
    }
    return value;
}

static sim_break_t parse_break(const char *text)
{
    unsigned i;

    for (i = 0; i < BREAK_END; ++i) {
        if (strcmp(text, break_names[i]) == 0) {
            return (sim_break_t)i;
        }
    }
    fprintf(stderr, "sim_dir: --break '%s' is none of:", text);
    for (i = 0; i < BREAK_END; ++i) {
        fprintf(stderr, " %s", break_names[i]);
    }
    fputc('\n', stderr);
    exit(2);
}

static void summary(const sim_counts_t *c, uint64_t seeds)
{
    printf("%" PRIu64 " seeds, %" PRIu64 " steps: %" PRIu64 " one-sided and %" PRIu64 " served gets right, %" PRIu64
           " misses, %" PRIu64 " stale locations, %" PRIu64 " torn entries\n",
           seeds, c->steps, c->gets_ok, c->gets_served_ok, c->misses, c->stale, c->torn);
    printf("%" PRIu64 " publishes, %" PRIu64 " acknowledged, %" PRIu64 " withdrawn, %" PRIu64
           " while they were served, %" PRIu64 " findable checks\n",
           c->publishes, c->acks, c->withdrawals, c->serves_stale, c->checks);
    printf("%" PRIu64 " messages, %" PRIu64 " lost, %" PRIu64 " doubled; %" PRIu64 " crashes, %" PRIu64
           " restarts, %" PRIu64 " false suspicions, %" PRIu64 " views, %" PRIu64 " pauses, %" PRIu64
           " publishes to homes in an earlier view\n",
           c->sent, c->lost, c->doubled, c->crashes, c->restarts, c->suspicions, c->views, c->pauses, c->behind);
}

/* A simulator in which some event never happens proves nothing. */
static bool all_happened(const sim_counts_t *c)
{
    return (c->gets_ok > 0) && (c->gets_served_ok > 0) && (c->stale > 0) && (c->torn > 0) && (c->serves_stale > 0) &&
           (c->acks > 0) && (c->lost > 0) && (c->doubled > 0) && (c->restarts > 0) && (c->suspicions > 0) &&
           (c->pauses > 0) && (c->checks > 0) && (c->behind > 0);
}

int main(int argc, char **argv)
{
    static sim_t sim;
    uint64_t     first = 1, seeds = 10000, done = 0, n_old = N_ONCE_BROKEN;
    bool         verbose = false;
    sim_break_t  broken  = BREAK_NOTHING;
    int          i;

    for (i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--verbose") == 0) {
            verbose = true;
        } else if ((strcmp(argv[i], "--seed") == 0) && (i + 1 < argc)) {
            first = parse_number(argv[++i]);
            n_old = 0;
        } else if ((strcmp(argv[i], "--seeds") == 0) && (i + 1 < argc)) {
            seeds = parse_number(argv[++i]);
        } else if ((strcmp(argv[i], "--break") == 0) && (i + 1 < argc)) {
            broken = parse_break(argv[++i]);
        } else {
            fprintf(stderr, "usage: sim_dir [--seeds N] [--seed S] [--break NAME] [--verbose]\n");
            return 2;
        }
    }
    for (; (done < seeds + n_old) && !sim.failed; ++done) {
        run_seed(&sim, (done < seeds) ? first + done : once_broken[done - seeds], broken, verbose);
    }
    if (sim.failed) {
        return 1;
    }
    summary(&sim.counts, done);
    if ((seeds >= 1000) && !all_happened(&sim.counts)) {
        printf("something never happened\n");
        return 1;
    }
    return 0;
}
