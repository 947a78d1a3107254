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

part_t      parts[PROCS];
mail_t      mails[MAILS];
unsigned    n_mails;
kvcl_key_t  keys[KEYS];
key_state_t states[KEYS];
uint64_t    n_acked, n_removed, n_got, n_moved;
unsigned    n_lost;
uint64_t    n_come, n_left;
unsigned    handing[KEYS];
break_t     broken;

enum { STORIES = 200000 }; /* seeds from here on: fault_of_story() */

static uint8_t  was_lost[PROCS];
static unsigned n_faults; /* of a story */

/* Has a rank handed over, and is still a member? If one is lost meanwhile, both may take copies along. */
static bool one_goes(void)
{
    unsigned i;

    for (i = 0; i < sim.n_procs; ++i) {
        if ((parts[i].leaving == GOES) && sim_is_member(&sim.procs[i])) {
            return true;
        }
    }
    return false;
}

static void count_lost(void)
{
    unsigned i;

    for (i = 0; i < sim.n_procs; ++i) {
        const proc_t *p = &sim.procs[i];

        if (!was_lost[i] && (parts[i].leaving != GOES) &&
            (p->dead || ((p->views.state != KVCL_VIEWS_JOINING) && is_excluded(p)))) {
            was_lost[i] = 1;
            n_lost     += one_goes() ? 2 : 1;
        }
    }
}

static void tick_parts(void)
{
    unsigned i, j;

    for (i = 0; i < sim.n_procs; ++i) {
        proc_t *p    = &sim.procs[i];
        part_t *part = &parts[i];

        follow(p);
        if (!sim_is_member(p) || p->paused || !part->begun || (sim.now < part->tick_at)) {
            continue;
        }
        part->tick_at = sim.now + (5 * MS);
        for (j = 0; j < OPS; ++j) {
            if (part->ops[j].kind != OP_NONE) {
                run_op(p, &part->ops[j]);
            }
        }
        walk(p);
        sweep(p);
        say_again(p);
        grow(p);
        client(p);
    }
}

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

/* By a member of this rank's view: an excluded one may not know that it is. */
static bool is_held(const proc_t *p, unsigned key)
{
    unsigned i;

    for (i = 0; i < sim.n_procs; ++i) {
        if (sim_is_member(&sim.procs[i]) && (parts[i].held[key] != 0) &&
            kvcl_view_has(&p->views.view, sim.procs[i].slot, sim.procs[i].incarnation)) {
            return true;
        }
    }
    return false;
}

/* Directly, without messages: whoever is asked lists a living holder. */
static bool is_found(const proc_t *p, unsigned key)
{
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX];
    uint32_t       home = asked(p, &parts[index_of(p)], &keys[key]);
    unsigned       i, j, n;

    for (i = 0; i < sim.n_procs; ++i) {
        if (!sim_is_member(&sim.procs[i]) || (sim.procs[i].slot != home)) {
            continue;
        }
        n = look_up(&sim.procs[i], key, locs);
        for (j = 0; j < n * sim.n_procs; ++j) {
            const proc_t *q = &sim.procs[j % sim.n_procs];

            if (sim_is_member(q) && (q->slot == locs[j / sim.n_procs].rank) &&
                ((uint16_t)q->incarnation == locs[j / sim.n_procs].incarnation) &&
                (parts[j % sim.n_procs].held[key] != 0)) {
                return true;
            }
        }
    }
    return false;
}

/* Does a member of this one's view have the store, that stays? */
static bool is_open(const proc_t *p)
{
    unsigned i, n = 0;

    for (i = 0; i < sim.n_procs; ++i) {
        const proc_t *q = &sim.procs[i];

        n += sim_is_member(q) && kvcl_view_has(&p->views.view, q->slot, q->incarnation) && (parts[i].stage == OPEN) &&
             (parts[i].leaving == STAYS);
    }
    return n != 0;
}

static void check_end(void)
{
    unsigned i, j, k;

    for (i = 0; (i < sim.n_procs) && !sim.failed; ++i) {
        const proc_t *p = &sim.procs[i];

        if (!sim_is_member(p) || !kvcl_views_has_quorum(&p->views)) {
            continue;
        }
        for (j = 0; j < OPS; ++j) {
            if (parts[i].ops[j].kind != OP_NONE) {
                sim_broken("Ends", p, "an operation is left");
            }
        }
        if ((parts[i].stage != OPEN) && is_open(p)) {
            sim_broken("Ends", p, "it has not come to the store");
        }
        if ((parts[i].leaving != STAYS) && is_open(p)) {
            sim_broken("Ends", p, "it has not left");
        }
        if (parts[i].moving) {
            sim_broken("Ends", p, "shards still move");
        }
        for (k = 0; k < KEYS; ++k) {
            if ((states[k] == KEY_ACKED) && is_held(p, k) && !is_found(p, k)) {
                sim_broken("Kept", p, "an acknowledged key is not found");
            }
            if ((states[k] == KEY_REMOVED) && is_found(p, k)) {
                sim_broken("Kept", p, "a removed key is found");
            }
        }
    }
}

static void begin(uint64_t seed)
{
    kvcl_views_times_t times = KVCL_VIEWS_TIMES;
    unsigned           i, j;

    sim_begin(seed, 3 + (unsigned)(seed % 3), 50, &times);
    memset(parts, 0, sizeof(parts));
    memset(mails, 0, sizeof(mails));
    memset(states, 0, sizeof(states));
    memset(was_lost, 0, sizeof(was_lost));
    memset(handing, 0, sizeof(handing));
    n_lost   = 0;
    n_mails  = 0;
    n_faults = 0;
    for (i = 0; i < KEYS; ++i) {
        for (j = 0; j < sizeof(keys[i].bytes); ++j) {
            keys[i].bytes[j] = (unsigned char)kvcl_rand_next(&sim.rnd);
        }
    }
}

static void deliver_until(uint64_t now)
{
    unsigned i;

    while ((n_mails > 0) && (mails[n_mails - 1].at == 0)) {
        n_mails -= 1;
    }
    for (i = 0; i < n_mails; ++i) {
        if ((mails[i].at != 0) && (mails[i].at <= now)) {
            deliver(&mails[i]);
        }
    }
}

static void run(uint64_t seed)
{
    const unsigned most = (seed % 2 == 0) ? 1 : 3; /* ranks that are lost */
    uint64_t       fault_at;
    bool           grew = false, grows, strikes = false;

    begin(seed);
    fault_at = (300 + sim_below(500)) * MS;
    while ((sim.now < END_MS * MS) && !sim.failed) {
        sim_step(sim.now + MS / 2 + 1);
        count_lost();
        deliver_until(sim.now);
        tick_parts();
        check_owners();
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
        check_end();
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
    static const uint64_t known[] = {1390, 9915, 101203, 103075, 117032, 200107}; /* have found a fault; run first */
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
