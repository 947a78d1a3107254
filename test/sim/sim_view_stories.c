/*
 * Runs in which certain things happen in a certain order: each was made for a rule of src/view, and fails without it
 * (sim_view_breaks.sh). Times vary a little with the seed.
 */
#include "config.h"

#include "sim_view.h"

enum { SPREAD_MS = 20, LAST_MS = 3000, HEALED_MS = 5000 };

typedef enum { KILL = 1, PAUSE, CUT, HOLD, RELEASE, MEND, JOIN, LEAVE, WARM } deed_t;

typedef struct act {
    uint64_t             after_ms; /* the one before it */
    kvcl_view_msg_type_t on;       /* not before the first message of this type; 0: whatever is sent */
    deed_t               deed;
    /* Sets of ranks, bit r for rank r. KILL: the kernel tells those of `to`. CUT, HOLD, MEND: the links from `of` to
     * `to`. JOIN: slots. For PAUSE `to` is a time in ms, for LEAVE the slot that is to go, for WARM yes or no. */
    unsigned             of, to;
} act_t;

typedef struct story {
    const char *rule;
    unsigned    n;
    unsigned    keep; /* those that nothing has happened to that others may exclude them for */
    bool        decides; /* a view follows before the world heals */
    act_t       acts[8];
} story_t;

static const story_t stories[] = {
    /* Rank 2, which does not hear ranks 0 and 1, goes on with ranks 3 and 4. Ranks 4 and 2 die. Rank 0 heard rank 2
     * until then, but not rank 3, and has proof of both deaths: ranks 0 and 1 are no quorum. */
    {"the dead count in a quorum", 5, 0, false,
     {{500, 0, CUT, 3, 0x1c}, {300, 0, CUT, 8, 3}, {0, KVCL_VIEW_PREPARE, CUT, 0x14, 3},
      {0, KVCL_VIEW_COMMIT, CUT, 0x14, 3}, {30, 0, KILL, 16, 1}, {150, 0, KILL, 4, 1}}},
    /* Rank 0 goes on without rank 1, with a rank that joins, and dies. Rank 1 has proof of all ranks that it knows. */
    {"proof is not enough without a lease", 2, 0, false,
     {{500, 0, CUT, 2, 5}, {0, 0, CUT, 5, 2}, {300, 0, JOIN, 4, 0}, {1300, 0, KILL, 1, 2}}},
    /* Rank 1 accepts its own exclusion; ranks 2 and 3, that were not asked yet, echo its beats, and die. */
    {"who has accepted its own exclusion has no lease", 4, 0, false,
     {{500, 0, CUT, 2, 1}, {900, 0, CUT, 1, 12}, {300, 0, MEND, 2, 1}, {300, 0, KILL, 12, 1}}},
    /* Ranks 1 and 2 are three's majority, and miss the commit of six, of whom the others are a majority. */
    {"a lease is one in both views", 3, 0, false,
     {{500, 0, JOIN, 0x38, 0}, {0, KVCL_VIEW_COMMIT, CUT, 6, 0x39}, {0, 0, CUT, 0x39, 6}, {30, 0, MEND, 0x39, 6}}},
    /* Four ranks are cut into halves. */
    {"half is enough with the lowest rank only", 4, 0, false, {{500, 0, CUT, 3, 12}, {0, 0, CUT, 12, 3}}},
    /* Rank 2 has promised the ballot of rank 1, which stops. Rank 0 asks rank 2 again to accept an older one. The
     * commit of that gets lost, and rank 1 goes on. */
    {"a promise is kept", 3, 0, false,
     {{500, 0, CUT, 1, 2}, {0, 0, CUT, 2, 1}, {0, KVCL_VIEW_PREPARE, CUT, 2, 1}, {0, KVCL_VIEW_ACCEPT, PAUSE, 2, 2000},
      {0, 0, CUT, 2, 4}, {500, 0, MEND, 2, 4}, {0, KVCL_VIEW_COMMIT, CUT, 1, 4}}},
    /* All have accepted what rank 0 asks for, and say so late. Rank 1 does not hear rank 0, and begins another ballot:
     * rank 4 has died. Rank 0 promises and accepts that, and then their answers come. */
    {"who has promised a ballot commits no lower one", 5, 0, false,
     {{500, 0, JOIN, 32, 0}, {0, KVCL_VIEW_ACCEPTED, HOLD, 30, 1}, {50, 0, MEND, 30, 1}, {0, 0, CUT, 1, 30},
      {100, 0, KILL, 16, 15}, {0, KVCL_VIEW_PREPARE, MEND, 1, 14}, {0, KVCL_VIEW_ACCEPTED, RELEASE, 0, 0}}},
    /* A rank stops and goes on, after the others are done with it, and before. */
    {"a rank that slept has no lease", 3, 0, false, {{500, 0, PAUSE, 1, 1600}, {2000, 0, PAUSE, 2, 900}}},
    /* The machine sleeps, as laptops do. */
    {"silence counts while the listener is awake", 3, 7, false, {{500, 0, PAUSE, 1, 1300}, {0, 0, PAUSE, 6, 1550}}},
    /* A rank compiles for two and a half seconds without a beat. */
    {"others bear with a rank that warms up", 3, 7, false,
     {{500, 0, WARM, 2, 1}, {100, 0, PAUSE, 2, 2500}, {2600, 0, WARM, 2, 0}}},
    /* The same, and a beat from before that arrives after it. */
    {"an old message does not end a phase", 3, 7, false,
     {{500, 0, HOLD, 2, 5}, {150, 0, MEND, 2, 5}, {0, 0, WARM, 2, 1}, {50, 0, PAUSE, 2, 2500}, {0, 0, RELEASE, 0, 0},
      {2600, 0, WARM, 2, 0}}},
    /* A rank that warms up is killed: proof counts at once, though silence would not. */
    {"no phase delays proof", 3, 0, false, {{500, 0, WARM, 4, 1}, {100, 0, KILL, 4, 1}}},
    /* The leader dies when it has committed, and one rank has seen it. */
    {"what may be committed is chosen again", 4, 0, false,
     {{500, 0, KILL, 8, 7}, {0, KVCL_VIEW_COMMIT, CUT, 1, 6}, {0, 0, KILL, 1, 6}}},
    /* All but one die. */
    {"one of eight survives", 6, 0, false, {{500, 0, KILL, 0x1f, 0x20}}},
    /* A rank does not reach the others, and hears them. */
    {"a rank is done with only when it is not echoed", 3, 0, false, {{500, 0, CUT, 1, 6}, {1500, 0, MEND, 1, 6}}},
    /* Rank 0, which does not hear rank 2, asks for a view without it, and dies. Rank 2 has accepted that. It leads,
     * since rank 1 is to leave, and rank 1 may accept a second after it last echoed rank 2. */
    {"one that leaves is waited for", 3, 0, false,
     {{500, 0, CUT, 4, 3}, {0, 0, JOIN, 8, 0}, {0, KVCL_VIEW_PREPARE, LEAVE, 4, 1}, {0, KVCL_VIEW_ACCEPT, CUT, 1, 2},
      {30, 0, KILL, 1, 0}, {0, 0, MEND, 4, 3}}},
    /* A rank comes back in its slot before the others know that it has ended. */
    {"another incarnation is another rank", 3, 0, false,
     {{500, 0, KILL, 4, 0}, {100, 0, JOIN, 4, 0}, {2500, 0, LEAVE, 2, 1}}},
    /* The lowest two ranks do not hear each other. Rank 2 hears both, and each asks it to go on without the other. */
    {"the lower one of two leaders goes first", 3, 0, true, {{500, 0, CUT, 1, 2}, {0, 0, CUT, 2, 1}}},
    /* Rank 0 hears rank 2 only, which hears all. */
    {"one that hears no quorum does not lead", 5, 0, true, {{500, 0, CUT, 1, 0x1a}, {0, 0, CUT, 0x1a, 1}}},
    /* Rank 1 does not hear ranks 2, 3 and 4, and ranks 3 and 4 hear it. It asks them for promises, again and again. */
    {"one that hears no answer holds up nobody", 5, 0, true,
     {{500, 0, CUT, 2, 4}, {0, 0, CUT, 0x1c, 2}, {300, 0, KILL, 1, 0x1e}}},
};

static const story_t *story;
static unsigned       next;   /* act */
static uint64_t       next_at;
static bool           waits;  /* for a message */

static void plan(void)
{
    const act_t *act = &story->acts[next];

    waits   = (act->on != 0);
    next_at = sim.now + ((act->after_ms == 0) ? 0 : (act->after_ms * MS) + sim_below(SPREAD_MS * MS));
}

static void set_links(unsigned of, unsigned to, uint8_t state)
{
    unsigned i, j;

    for (i = 0; i < FEW_PROCS; ++i) {
        for (j = 0; j < FEW_PROCS; ++j) {
            sim.cut[i][j] = (((of >> i) & (to >> j) & 1) != 0) ? state : sim.cut[i][j];
        }
    }
}

static void do_to(const act_t *act, unsigned i)
{
    unsigned j;

    switch (act->deed) {
    case KILL:
        sim.procs[i].dead = true;
        for (j = 0; j < sim.n_procs; ++j) {
            if ((act->to >> j) & 1) {
                sim_prove(j, i, 1 + sim_below(40));
            }
        }
        break;
    case PAUSE:
        sim_pause(&sim.procs[i], act->to);
        break;
    case JOIN:
        sim_join(i);
        break;
    case WARM:
        sim_warm(&sim.procs[i], act->to != 0);
        break;
    default:
        sim_leave(&sim.procs[i], act->to);
        break;
    }
}

static void act(void)
{
    const act_t *now = &story->acts[next];
    unsigned     i;

    if (now->deed == RELEASE) {
        sim_release();
    } else if ((now->deed == CUT) || (now->deed == HOLD) || (now->deed == MEND)) {
        set_links(now->of, now->to, (now->deed == CUT) ? IS_CUT : (now->deed == HOLD) ? IS_HELD : 0);
    } else {
        for (i = 0; i < FEW_SLOTS; ++i) {
            if ((now->of >> i) & 1) {
                do_to(now, i);
            }
        }
    }
    next += 1;
    plan();
}

static bool is_act(void)
{
    return (next < sizeof(story->acts) / sizeof(story->acts[0])) && (story->acts[next].deed != 0);
}

/* Those that follow without delay are done at once: before the message is sent. */
static bool on_message(proc_t *from, proc_t *to, const kvcl_view_msg_t *msg)
{
    (void)from;
    (void)to;
    if (!sim.healed && is_act() && waits && (msg->type == story->acts[next].on)) {
        do {
            act();
        } while (is_act() && !waits && (sim.now >= next_at));
    }
    return true;
}

void sim_story(uint64_t seed)
{
    kvcl_views_times_t times = KVCL_VIEWS_TIMES;
    uint64_t           end   = UINT64_MAX;
    unsigned           i;

    times.gather_ns = 100 * MS; /* so that what a story brings together goes together */
    story = &stories[(seed / 4) % (sizeof(stories) / sizeof(stories[0]))];
    next  = 0;
    sim_begin(seed, story->n, 10, &times);
    sim.hook = on_message;
    plan();
    while ((sim.now < end) && !sim.failed) {
        while (is_act() && !waits && (sim.now >= next_at)) {
            act();
        }
        sim_step((is_act() && !waits) ? next_at : end);
        if ((end == UINT64_MAX) && (!is_act() || (sim.now > 2 * LAST_MS * MS))) {
            end = sim.now + ((LAST_MS + HEALED_MS) * MS);
        }
        if (!sim.healed && (end != UINT64_MAX) && (sim.now >= end - (HEALED_MS * MS))) {
            if (story->decides && (sim.adopted == 0)) {
                sim_broken("Decided", &sim.procs[0], "no view has followed");
            }
            sim_heal();
        }
    }
    if (!sim.failed) {
        sim_check_together();
    }
    for (i = 0; i < FEW_SLOTS; ++i) {
        if (((story->keep >> i) & 1) && !sim_is_member(&sim.procs[i])) {
            sim_broken("Kept", &sim.procs[i], "others have excluded it for no reason");
        }
    }
}
