/*
 * Whole jobs while faults come; the world and its invariants: sim_job.h.
 *
 *   sim_job [--seeds N] [--seed S] [--break NAME]
 *
 * By default first each case of jobs of 2 and 3 ranks (TEST_RING=night: of 4, too): at message i a rank ends, with
 * proof or without, or stops for a short or a long while, or the link of that message is cut one way. Every second
 * message at the gate. Then 500 seeds (night: 6,000): each fourth is any case of 2 to 4 ranks. The others are jobs of 2
 * to 6 ranks, each sixty-fourth of 7 to 64, in which ranks end, stop and join, links are cut, messages are late, lost
 * and come twice, and clocks drift, for two and a half seconds; then all heals. Seeds from 2^32 on are cases.
 * TEST_TIMEOUT: 1800
 */
#include "config.h"

#include "sim_args.h"
#include "sim_job.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { KILL_PROVEN, KILL_SILENTLY, STOP_SHORT, STOP_LONG, CUT, FAULTS };
enum { RANKS_MAX = 4, INDICES = 2048, HEAL_MS = 2500, LAST_MS = 8000, LONG_MS = 1600, SHORT_MS = 400 };
enum { FIRST_MS = 250 /* all have leases */, BUSY_MS = 350, NO_MORE_MS = 400 };

#define CASES (UINT64_C(1) << 32)

static const char *const break_names[JOB_BREAK_END] = {"nothing", "old-view", "any-comm", "no-revoke", "deaf-exec",
                                                       "own-map", "view-map", "trust-all", "no-mask", "old-rows"};
/* After a fault: what follows has ended. */
static const uint64_t calm_ms[FAULTS] = {2200, 3600, 2000, 4500, 5000};

typedef struct which {
    unsigned n, fault, victim, index;
} which_t;

static which_t  now;
static bool     has_happened;
static unsigned n_messages;
static uint64_t end_at, heal_at;

/* ---- faults at random ---- */

static void cut_some(void)
{
    const unsigned a = sim_below(sim.n_procs), b = sim_below(sim.n_procs), how = sim_below(4);
    unsigned       i;

    for (i = 0; i < sim.n_procs; ++i) {
        if ((i != a) && ((how < 2) || (i == b))) { /* one rank's links, or one link */
            sim.cut[a][i] = IS_CUT;
            sim.cut[i][a] = (how % 2 == 0) ? IS_CUT : 0;
        }
    }
}

static void fault(void)
{
    proc_t *p = &sim.procs[sim_below(sim.n_procs)];

    switch (sim_below(8)) {
    case 0:
    case 1:
        if (sim_lives(p)) {
            p->dead = true;
            job_prove(p, (sim_below(3) == 0) ? 0 : 30 + sim_below(71), 60);
        }
        break;
    case 2:
    case 3:
        if (sim_lives(p)) {
            sim_pause(p, 50 + sim_below(1800));
        }
        break;
    case 4:
    case 5:
        cut_some();
        break;
    case 6:
        memset(sim.cut, 0, sizeof(sim.cut));
        break;
    default:
        sim_join(sim_free_slot());
        break;
    }
}

static void run_random(uint64_t seed)
{
    uint64_t state = seed, draw = kvcl_splitmix64(&state), fault_at;

    job_run_begin(seed, (seed % 64 == 63) ? 7 + (unsigned)(draw % 58) : 2 + (unsigned)(draw % 5), 50);
    sim.loss          = (sim_below(2) == 0) ? 0 : sim_below(150);
    sim.delay         = (sim_below(3) == 0) ? 100 : 10;
    job_one_fault     = false;
    job_calm_at       = ((sim.n_procs <= FEW_SLOTS) ? HEAL_MS / 2 : 100) * MS;
    store_client_ends = (HEAL_MS - 300) * MS;
    fault_at          = (20 + sim_below(600)) * MS;
    while ((sim.now < LAST_MS * MS) && !sim.failed) {
        job_run_step(((fault_at < HEAL_MS * MS) && !sim.healed) ? fault_at : sim.healed ? LAST_MS * MS : HEAL_MS * MS);
        if (!sim.healed && (sim.now >= HEAL_MS * MS)) {
            sim_heal();
        } else if (!sim.healed && (sim.now >= fault_at)) {
            fault_at = sim.now + (1 + sim_below(700)) * MS;
            fault();
        }
    }
    if (!sim.failed) {
        job_check_end();
    }
}

/* ---- a fault at each message ---- */

static bool decode(uint64_t number)
{
    now.index  = (unsigned)(number % INDICES);
    now.victim = (unsigned)(number / INDICES % RANKS_MAX);
    now.fault  = (unsigned)(number / INDICES / RANKS_MAX % FAULTS);
    now.n      = 2 + (unsigned)(number / INDICES / RANKS_MAX / FAULTS % (RANKS_MAX - 1));
    return now.victim < ((now.fault == CUT) ? 1 : now.n);
}

static void happens(unsigned from, unsigned to)
{
    proc_t *victim = &sim.procs[now.victim];

    has_happened = true;
    end_at       = sim.now + (calm_ms[now.fault] * MS);
    heal_at      = sim.now + (LONG_MS * MS);
    if (now.fault == CUT) {
        sim.cut[from][to] = IS_CUT;
    } else if (now.fault >= STOP_SHORT) {
        sim_pause(victim, (now.fault == STOP_SHORT) ? SHORT_MS : LONG_MS);
    } else {
        victim->dead = true;
        if (now.fault == KILL_PROVEN) {
            job_prove(victim, 100, 20);
        }
    }
}

static void on_post(unsigned from, unsigned to)
{
    if (!has_happened && (sim.now >= FIRST_MS * MS) && (n_messages++ == now.index)) {
        happens(from, to);
    }
}

static bool on_view_message(proc_t *from, proc_t *to, const kvcl_view_msg_t *msg)
{
    if (msg->type != KVCL_VIEW_BEAT) {
        on_post(index_of(from), index_of(to));
    }
    return true;
}

/* False: there are fewer messages. */
static bool run_case(uint64_t seed)
{
    if (!decode(seed - CASES)) {
        return false;
    }
    job_run_begin(seed, now.n, 20);
    sim.delay         = 5;
    sim.hook          = on_view_message;
    job_on_send       = on_post;
    store_on_post     = on_post;
    job_one_fault     = true;
    job_calm_at       = BUSY_MS * MS;
    store_client_ends = BUSY_MS * MS;
    has_happened      = false;
    n_messages        = 0;
    end_at            = NO_MORE_MS * MS;
    heal_at           = UINT64_MAX;
    while ((sim.now < end_at) && !sim.failed) {
        job_run_step((sim.now < heal_at) && (heal_at < end_at) ? heal_at : end_at);
        if ((sim.now >= heal_at) && !sim.healed) {
            sim_heal();
        }
    }
    if (has_happened && !sim.failed) {
        job_check_end();
    }
    return has_happened;
}

/* One of the first messages in one of the cases. */
static uint64_t any_case(uint64_t seed)
{
    uint64_t state = seed, draw = kvcl_splitmix64(&state);

    return CASES + ((draw >> 32) % ((RANKS_MAX - 1) * RANKS_MAX * FAULTS) * INDICES) + (draw % (INDICES / 8));
}

/* ---- all ---- */

static uint64_t n_runs, n_views;

static bool passes(uint64_t seed, bool *more_p)
{
    bool more = true;

    if (seed >= CASES) {
        more = run_case(seed);
    } else if (seed % 4 == 0) {
        run_case(any_case(seed));
    } else {
        run_random(seed);
    }
    n_runs  += more;
    n_views += sim.adopted;
    if (more_p != NULL) {
        *more_p = more;
    }
    if (sim.failed) {
        printf("replay: sim_job --seed %" PRIu64 " --seeds 1 --break %s\n0 passed, 1 failed, 0 skipped\n", sim.seed,
               break_names[job_broken]);
    }
    return !sim.failed;
}

static bool pass_cases(unsigned most, unsigned every)
{
    const uint64_t end = CASES + ((uint64_t)(most - 1) * INDICES * RANKS_MAX * FAULTS);
    uint64_t       seed;
    bool           more;

    for (seed = CASES; seed < end; seed += every) {
        if (!passes(seed, &more)) {
            return false;
        }
        if (!more) {
            seed = (seed | (INDICES - 1)) + 1 - every;
        }
    }
    return true;
}

static bool pass_seeds(uint64_t first, uint64_t n)
{
    uint64_t seed;

    for (seed = first; seed < first + n; ++seed) {
        if (!passes(seed, NULL)) {
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    const char *ring  = getenv("TEST_RING");
    const bool night  = (ring != NULL) && (strcmp(ring, "night") == 0);
    sim_args_t args   = {.first = 0, .seeds = 0};
    bool       all_of = false;

    if (!sim_args_take(&args, argc, argv, "sim_job", break_names, JOB_BREAK_END)) {
        return 2;
    }
    job_broken = (job_break_t)args.broken;
    all_of     = (args.first == 0) && (args.seeds == 0);
    if (all_of ? !(pass_cases(night ? RANKS_MAX : RANKS_MAX - 1, night ? 1 : 2) && pass_seeds(1, night ? 6000 : 500))
               : !pass_seeds((args.first == 0) ? 1 : args.first, (args.seeds == 0) ? 1 : args.seeds)) {
        return 1;
    }
    printf("%" PRIu64 " runs: %" PRIu64 " views, %" PRIu64 " agreements, %" PRIu64 " operations ended well, %" PRIu64
           " with a failed rank, %" PRIu64 " revoked, %" PRIu64 " by their deadline, %" PRIu64 " steps of experts, %"
           PRIu64 " rows lost; %" PRIu64 " puts acknowledged, %" PRIu64 " gets\n1 passed, 0 failed, 0 skipped\n",
           n_runs, n_views, job_counts.agreed, job_counts.well, job_counts.failed, job_counts.revoked,
           job_counts.timed_out, job_counts.steps, job_counts.lost_rows, n_acked, n_got);
    return 0;
}
