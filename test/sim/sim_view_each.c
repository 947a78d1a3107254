/*
 * A change of views, and one more fault at each of its messages in turn, for jobs of 2 and 3 ranks; TEST_RING=night: of
 * 4, too. The world and its invariants: sim_view.h.
 *
 *   sim_view_each [--seeds N] [--seed S]       a seed is the number of a case
 *
 * A change begins when a rank ends (with proof or without), is cut off, leaves or joins. At message i of the change
 * (beats do not count) a rank ends or stops, or that message is lost, or its link is cut, for longer than it takes the
 * others to be done with a rank.
 */
#include "config.h"

#include "sim_args.h"
#include "sim_view.h"

#include <inttypes.h>

enum { ENDS_PROVEN, ENDS_SILENTLY, IS_CUT_OFF, LEAVES, JOINS, BEGINNINGS };
enum { KILL_PROVEN, KILL_SILENTLY, STOP, LOSE, CUT, FAULTS };
enum { RANKS_MAX = 4, INDICES = 64, BEGIN_MS = 300, FAULT_MS = 1600, HEAL_MS = 3500, END_MS = 8500 };

typedef struct which {
    unsigned n, beginning, first, fault, second, index;
} which_t;

static which_t  now;
static bool     has_begun, has_happened;
static unsigned n_messages;
static uint64_t mends_at;

/* False: the number is not of a case. */
static bool decode(uint64_t number)
{
    now.index     = (unsigned)(number % INDICES);
    now.second    = (unsigned)(number / INDICES % RANKS_MAX);
    now.fault     = (unsigned)(number / INDICES / RANKS_MAX % FAULTS);
    now.first     = (unsigned)(number / INDICES / RANKS_MAX / FAULTS % RANKS_MAX);
    now.beginning = (unsigned)(number / INDICES / RANKS_MAX / FAULTS / RANKS_MAX % BEGINNINGS);
    now.n         = 2 + (unsigned)(number / INDICES / RANKS_MAX / FAULTS / RANKS_MAX / BEGINNINGS);
    return (now.n <= RANKS_MAX) && (now.first < ((now.beginning == JOINS) ? 1 : now.n)) &&
           (now.second < ((now.fault < LOSE) ? now.n : 1));
}

static uint64_t count(unsigned ranks)
{
    return (uint64_t)(ranks - 1) * BEGINNINGS * RANKS_MAX * FAULTS * RANKS_MAX * INDICES;
}

static void end(unsigned rank, bool proven)
{
    unsigned i;

    sim.procs[rank].dead = true;
    for (i = 0; proven && (i < sim.n_procs); ++i) {
        if (sim_lives(&sim.procs[i])) {
            sim_prove(i, rank, 1 + sim_below(20));
        }
    }
}

static bool on_message(proc_t *from, proc_t *to, const kvcl_view_msg_t *msg)
{
    if (!has_begun || has_happened || (msg->type == KVCL_VIEW_BEAT) || (n_messages++ < now.index)) {
        return true;
    }
    has_happened = true;
    mends_at     = sim.now + (FAULT_MS * MS);
    if (now.fault == CUT) {
        sim.cut[from - sim.procs][to - sim.procs] = IS_CUT;
    } else if ((now.fault != LOSE) && sim_lives(&sim.procs[now.second])) {
        if (now.fault == STOP) {
            sim_pause(&sim.procs[now.second], FAULT_MS);
        } else {
            end(now.second, now.fault == KILL_PROVEN);
        }
    }
    return now.fault != LOSE;
}

static void begin(void)
{
    unsigned i;

    has_begun = true;
    switch (now.beginning) {
    case ENDS_PROVEN:
    case ENDS_SILENTLY:
        end(now.first, now.beginning == ENDS_PROVEN);
        break;
    case IS_CUT_OFF:
        for (i = 0; i < now.n; ++i) {
            sim.cut[now.first][i] = sim.cut[i][now.first] = (i != now.first) ? IS_CUT : 0;
        }
        break;
    case LEAVES:
        sim_leave(&sim.procs[now.first], now.first);
        break;
    default:
        sim_join(now.n);
        break;
    }
}

static void run(uint64_t number)
{
    static const kvcl_views_times_t times = KVCL_VIEWS_TIMES;

    sim_begin(number, now.n, 50, &times);
    sim.hook  = on_message;
    has_begun = has_happened = false;
    n_messages               = 0;
    mends_at                 = UINT64_MAX;
    while ((sim.now < END_MS * MS) && !sim.failed) {
        sim_step(has_begun ? END_MS * MS : BEGIN_MS * MS);
        if (!has_begun && (sim.now >= BEGIN_MS * MS)) {
            begin();
        }
        if (sim.now >= mends_at) {
            memset(sim.cut, 0, sizeof(sim.cut));
        }
        if (!sim.healed && (sim.now >= HEAL_MS * MS)) {
            sim_heal();
        }
    }
    if (!sim.failed) {
        sim_check_together();
    }
}

int main(int argc, char **argv)
{
    static const char *const nothing[] = {"nothing"};
    const char              *ring      = getenv("TEST_RING");
    sim_args_t               args      = {.first = 0};
    uint64_t                 number, cases = 0, adopted = 0;

    args.seeds = count(((ring != NULL) && (strcmp(ring, "night") == 0)) ? RANKS_MAX : RANKS_MAX - 1);
    if (!sim_args_take(&args, argc, argv, "sim_view_each", nothing, 1)) {
        return 2;
    }
    for (number = args.first; number < args.first + args.seeds; ++number) {
        if (!decode(number)) {
            number |= INDICES - 1;
            continue;
        }
        run(number);
        cases += 1;
        adopted += sim.adopted;
        if (sim.failed) {
            printf("replay: sim_view_each --seed %" PRIu64 " --seeds 1\n0 passed, 1 failed, 0 skipped\n", number);
            return 1;
        }
        if (!has_happened) { /* the change has no more messages */
            number |= INDICES - 1;
        }
    }
    printf("%" PRIu64 " cases, views adopted: %" PRIu64 "\n1 passed, 0 failed, 0 skipped\n", cases, adopted);
    return 0;
}
