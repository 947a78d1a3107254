/*
 * Ranks that decide their views while faults come at random, in one thread; the world and its invariants: sim_view.h.
 *
 *   sim_view [--seeds N] [--seed S]
 *
 * Every fourth seed is a story (sim_view_stories.c): faults in an order that a rule was made for. In the others the
 * faults come for five seconds, then everything heals. Default: 1,000 seeds, TEST_RING=night: 100,000; then 4 of jobs
 * of 7 to 64 ranks, at night 40. Seeds from 2^20 on are such jobs.
 * TEST_TIMEOUT: 1800
 */
#include "config.h"

#include "sim_args.h"
#include "sim_view.h"

#include <inttypes.h>

enum { FAULTS_MS = 5000, END_MS = 11000, LARGE = 1 << 20 };

static uint64_t cut_until, fault_at;

static void kill_one(proc_t *p)
{
    unsigned i, percent = (sim_below(3) == 0) ? 0 : 30 + sim_below(71);

    p->dead = true;
    for (i = 0; i < sim.n_procs; ++i) {
        if (sim_lives(&sim.procs[i]) && (sim_below(100) < percent)) {
            sim_prove(i, (unsigned)(p - sim.procs), 1 + sim_below(60));
        }
    }
}

static void cut_some(void)
{
    const bool few  = (sim.n_procs <= FEW_PROCS);
    unsigned   i, j, how = sim_below(3);
    uint64_t   side = few ? sim_below(1u << sim.n_procs) : kvcl_rand_next(&sim.rnd); /* a bit for each, or for two */
    unsigned   a = sim_below(sim.n_procs), b = sim_below(sim.n_procs);

    for (i = 0; i < sim.n_procs; ++i) {
        for (j = 0; j < sim.n_procs; ++j) {
            bool is = (how == 0) ? (((side >> (i % 64)) ^ (side >> (j % 64))) & 1) != 0
                      : (how == 1) ? (i == a) && (j != a) : ((i == a) && (j == b)) || ((i == b) && (j == a));

            sim.cut[i][j] = is ? IS_CUT : 0;
        }
    }
    cut_until = sim.now + (100 + sim_below(2500)) * MS;
}

static void fault(void)
{
    proc_t *p = &sim.procs[sim_below(sim.n_procs)];

    fault_at = sim.now + (1 + sim_below(1200)) * MS;
    switch (sim_below(9)) {
    case 0:
    case 1:
        if (sim_lives(p)) {
            kill_one(p);
        }
        break;
    case 2:
    case 3:
        if (sim_lives(p)) {
            sim_pause(p, 50 + sim_below(2500));
        }
        break;
    case 4:
        cut_some();
        break;
    case 5:
        if (sim_is_member(p)) {
            sim_warm(p, (p->views.phase % 2) == 0);
        }
        break;
    case 6:
    case 7:
        sim_join(sim_free_slot());
        break;
    default:
        if (sim_is_member(p)) {
            sim_leave(p, (sim_below(2) == 0) ? p->slot : sim.procs[sim_below(sim.n_procs)].slot);
        }
        break;
    }
}

static unsigned ranks_of(uint64_t seed)
{
    uint64_t state = seed;

    return (seed < LARGE) ? 1 + (unsigned)(seed % 5) : 7 + (unsigned)(kvcl_splitmix64(&state) % 58);
}

static void run(uint64_t seed)
{
    kvcl_views_times_t times = KVCL_VIEWS_TIMES;

    times.detect.warm_ns = 3000 * MS; /* less than the time after which all must be well again */
    sim_begin(seed, ranks_of(seed), 50, &times);
    sim.loss  = (sim_below(2) == 0) ? 0 : sim_below(250);
    sim.delay = (sim_below(3) == 0) ? 400 : 10;
    cut_until = 0;
    fault_at  = (200 + sim_below(800)) * MS;
    while ((sim.now < END_MS * MS) && !sim.failed) {
        sim_step(END_MS * MS);
        if (!sim.healed && (sim.now >= FAULTS_MS * MS)) {
            sim_heal();
        } else if (!sim.healed && (sim.now >= fault_at)) {
            fault();
        }
        if ((cut_until != 0) && (sim.now >= cut_until)) {
            memset(sim.cut, 0, sizeof(sim.cut));
        }
    }
    if (!sim.failed) {
        sim_check_together();
    }
}

static uint64_t n_adopted;

static bool passes(uint64_t first, uint64_t seeds)
{
    uint64_t seed;

    for (seed = first; seed < first + seeds; ++seed) {
        if ((seed % 4 == 0) && (seed < LARGE)) {
            sim_story(seed);
        } else {
            run(seed);
        }
        n_adopted += sim.adopted;
        if (sim.failed) {
            printf("replay: sim_view --seed %" PRIu64 " --seeds 1\n0 passed, 1 failed, 0 skipped\n", seed);
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    static const char *const nothing[] = {"nothing"};
    const char              *ring      = getenv("TEST_RING");
    const bool              night      = (ring != NULL) && (strcmp(ring, "night") == 0);
    sim_args_t              args       = {.first = 1, .seeds = night ? 100000 : 1000};

    if (!sim_args_take(&args, argc, argv, "sim_view", nothing, 1)) {
        return 2;
    }
    if (!passes(args.first, args.seeds) || ((argc == 1) && !passes(LARGE, night ? 40 : 4))) {
        return 1;
    }
    printf("%" PRIu64 " seeds, views adopted: %" PRIu64 "\n1 passed, 0 failed, 0 skipped\n", args.seeds, n_adopted);
    return 0;
}
