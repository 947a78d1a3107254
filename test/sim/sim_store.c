/*
 * Processes that follow views with what they list, while faults come at random; the model: sim_store.h.
 *
 *   sim_store [--seeds N] [--seed S] [--break NAME]
 *
 * Default: 60 seeds, TEST_RING=night: 8,000.
 * TEST_TIMEOUT: 3600
 *
 * Invariants:
 *   OneOwner   no shard has two owners at one true time. An owner has a lease, and is the home that is asked; who has
 *              switched, and does not know yet that all have, owns only what it is asked for in all of its maps
 *   Fenced     no home changes its table for a process that its view excludes
 *   Found      until a second rank is lost: a key that was acknowledged before a get began is found by a member
 *   Right      what is got is the block of its key
 *   Kept       at the end each acknowledged key with a living holder is found, and no removed one
 *   Ends       healed for eight seconds, shards have moved and no operation is left
 */
#include "config.h"

#include "sim_args.h"
#include "sim_store.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const break_names[BREAK_END] = {"nothing", "no-lease", "before-commit", "stale-sender", "no-walk",
                                                   "ask-new", "any-incarnation", "take-unsettled", "early-get",
                                                   "no-drain", "forget-old", "sure-of-none",
                                                   "unheard-holders"};

enum { STORIES = 200000 }; /* seeds from here on: fault_of_story() */

static unsigned n_faults; /* of a story */

/* Two at a time: a home lists four copies of a key, and two that stay must be among them. */
static bool may_leave(const part_t *part)
{
    unsigned i, n = 0;

    for (i = 0; i < sim.n_procs; ++i) {
        n += sim_is_member(&sim.procs[i]) && (parts[i].leaving != STAYS);
    }
    return (n < KVCL_DIR_LOCS_MAX - 2) && (part->stage == OPEN) && (part->leaving == STAYS);
}

/* Do shards move to a rank that comes, or from one that leaves? */
static bool one_comes_or_leaves(void)
{
    unsigned i;

    for (i = 0; i < sim.n_procs; ++i) {
        if (sim_is_member(&sim.procs[i]) && parts[i].moving &&
            ((parts[i].fresh != 0) || (parts[i].leaving == GIVES_SHARDS))) {
            return true;
        }
    }
    return false;
}

/* Two ranks that join while another one is stopped come together, while shards move after that one's exclusion. */
static unsigned fault_of_story(void)
{
    static const unsigned faults[] = {2, 6, 7}; /* of fault(): stopped, joins, leaves */

    return faults[n_faults++ % 3];
}

/* strikes: a rank is killed, or is to leave. */
static void fault(unsigned most, bool strikes, uint64_t *fault_at)
{
    const bool story = (sim.seed >= STORIES) && !strikes;
    proc_t   *p = &sim.procs[sim_below(sim.n_procs)];
    unsigned i, what = !strikes ? sim_below(8) : (sim_below(4) != 0) ? 0 : 7;

    *fault_at = sim.now + (100 + sim_below(story ? 300 : 1200)) * MS;
    what      = story ? fault_of_story() : what;
    if ((what < 2) && sim_lives(p) && (n_lost < most)) {
        p->dead = true;
        for (i = 0; i < sim.n_procs; ++i) {
            if (sim_lives(&sim.procs[i]) && (sim_below(100) < 90)) {
                sim_prove(i, index_of(p), 1 + sim_below(10));
            }
        }
    } else if ((what < 4) && sim_lives(p)) {
        sim_pause(p, story ? 1500 + sim_below(1000) : 50 + sim_below((n_lost < most) ? 2500 : 300));
    } else if ((what == 4) && (n_lost < most)) {
        for (i = 0; i < sim.n_procs; ++i) {
            sim.cut[index_of(p)][i] = sim.cut[i][index_of(p)] = (i != index_of(p)) ? IS_CUT : 0;
        }
    } else if (what == 5) {
        memset(sim.cut, 0, sizeof(sim.cut));
    } else if (what == 6) {
        for (i = 0; i <= (story ? 1 : sim_below(2)); ++i) {
            sim_join(sim_free_slot());
        }
    } else if ((what == 7) && may_leave(&parts[index_of(p)])) {
        parts[index_of(p)].leaving = GIVES_SHARDS;
    }
}

static void run(uint64_t seed)
{
    const kvcl_views_times_t times = KVCL_VIEWS_TIMES;
    const unsigned           most = (seed % 2 == 0) ? 1 : 3; /* ranks that are lost */
    uint64_t                 fault_at;
    bool                     grew = false, grows, strikes = false;

    store_begin();
    sim_begin(seed, 3 + (unsigned)(seed % 3), 50, &times);
    store_keys();
    n_faults = 0;
    fault_at = (300 + sim_below(500)) * MS;
    while ((sim.now < END_MS * MS) && !sim.failed) {
        sim_step(sim.now + MS / 2 + 1);
        store_run();
        if (!sim.healed && (sim.now >= FAULTS_MS * MS)) {
            sim_heal();
        } else if (!sim.healed && (sim.now >= fault_at)) {
            fault(most, strikes, &fault_at);
            strikes = false;
        }
        grows = one_comes_or_leaves();
        if (grows && !grew && !strikes && (sim_below(3) == 0)) { /* a rank dies or leaves meanwhile, most likely */
            strikes  = true;
            fault_at = sim.now + (sim_below(20) * MS);
        }
        grew = grows;
    }
    if (!sim.failed) {
        store_check_end();
    }
}

static bool passes(uint64_t seed)
{
    run(seed);
    if (sim.failed) {
        printf("replay: sim_store --seed %" PRIu64 " --seeds 1 --break %s\n0 passed, 1 failed, 0 skipped\n", seed,
               break_names[broken]);
    }
    return !sim.failed;
}

int main(int argc, char **argv)
{
    static const uint64_t known[] = {1390, 9915, 101203, 103075, 117032, 1000144}; /* have found a fault; run first */
    const char            *ring   = getenv("TEST_RING");
    sim_args_t            args    = {.first = 1};
    uint64_t              seed;
    unsigned              i;

    args.seeds = ((ring != NULL) && (strcmp(ring, "night") == 0)) ? 8000 : 60;
    if (!sim_args_take(&args, argc, argv, "sim_store", break_names, BREAK_END)) {
        return 2;
    }
    broken = (break_t)args.broken;
    for (i = 0; (args.first == 1) && (i < sizeof(known) / sizeof(known[0])); ++i) {
        if (!passes(known[i])) {
            return 1;
        }
    }
    for (seed = args.first; seed < args.first + args.seeds; ++seed) {
        if (!passes(seed)) {
            return 1;
        }
    }
    printf("%" PRIu64 " seeds: %" PRIu64 " puts acknowledged, %" PRIu64 " removals, %" PRIu64 " gets, shards moved %"
           PRIu64 " times\n1 passed, 0 failed, 0 skipped\n", args.seeds, n_acked, n_removed, n_got, n_moved);
    if (args.seeds == 1) { /* a replay, which need not show every operation */
        return 0;
    }
    return (n_acked > 0) && (n_removed > 0) && (n_got > 0) && (n_moved > 0) ? 0 : 1;
}
