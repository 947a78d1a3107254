/*
 * Agreement (view/agree.h) in random runs: ranks die or are excluded at any message, views arrive late, messages are
 * delayed, overtaken and lost. All that decide a round decide the same, whoever dies afterwards; all that live decide
 * all rounds; what a rank that is told of gave is in the value.
 *
 * Ranks that are in another call in the place of a round end it by the round, all with the same two calls, unless one
 * of them calls because another one has died, or that other call ends meanwhile.
 */
#include "view/agree.h"

#include "test_base.h"

#include <stdbool.h>
#include <string.h>

enum { RANKS = 6, ROUNDS = 4, POST = 4096, CALL = 7, OTHER = 9, STEPS = 200000 };

typedef struct letter {
    uint64_t         at;
    uint32_t         to;
    kvcl_agree_msg_t msg;
} letter_t;

/* Some ranks are in another call in the place of the first round. */
typedef enum {
    ALIKE,  /* none is */
    UNLIKE, /* for ever */
    DEATHS, /* all are; one is killed, and the others stop and give, each when it notices in its own way */
    ENDS    /* it ends by itself */
} kind_t;

typedef struct rank {
    kvcl_agree_t       agree;
    bool               other, gave; /* in another call; in that of the round */
    uint64_t           ends_at;     /* the other call; 0: never */
    bool               dead, out; /* out: excluded, and does not know */
    uint64_t           view;      /* known */
    uint64_t           view_at;   /* when it learns of the next one; 0: there is none */
    uint64_t           again_at;
    unsigned           decided;
    kvcl_agree_value_t values[ROUNDS + 1];
} rank_t;

static kvcl_rand_t        rnd;
static rank_t             ranks[RANKS];
static letter_t           post[POST];
static unsigned           n_post, n, loss, faults, unlike;
static kind_t             kind;
static uint64_t           now, views;
static kvcl_rankset_t     members[64]; /* of each view */
static bool               known[ROUNDS + 1];
static kvcl_agree_value_t first[ROUNDS + 1];

static unsigned below(unsigned limit)
{
    return (unsigned)kvcl_rand_below(&rnd, limit);
}

/* The next view is without that rank. The others learn of it one by one. */
static void exclude(unsigned who, unsigned within)
{
    unsigned i;

    members[views + 1] = members[views];
    views += 1;
    kvcl_rankset_del(&members[views], who);
    for (i = 0; i < n; ++i) {
        if (!ranks[i].dead && !ranks[i].out && (ranks[i].view_at == 0)) {
            ranks[i].view_at = now + 1 + below(within);
        }
    }
}

static void kill_one(unsigned who, unsigned within)
{
    ranks[who].dead = true;
    exclude(who, within);
}

/* A rank dies, or is excluded though it lives. */
static void fault(void)
{
    unsigned who = below(n), i, left = 0;

    for (i = 0; i < n; ++i) {
        left += (!ranks[i].dead && !ranks[i].out) ? 1 : 0;
    }
    if ((left <= 1) || ranks[who].dead || ranks[who].out) {
        return;
    }
    ranks[who].dead = below(3) != 0;
    ranks[who].out  = !ranks[who].dead;
    exclude(who, 50);
}

/* Another fault may happen at any message. */
static void send(void *arg, uint32_t to, const kvcl_agree_msg_t *msg)
{
    const rank_t *from = arg;

    ck_assert_uint_lt(to, n);
    if (from->dead || (below(100) < loss)) {
        return;
    }
    ck_assert_uint_lt(n_post, POST);
    post[n_post++] = (letter_t){now + 1 + below((below(4) == 0) ? 100 : 10), to, *msg};
    if ((faults > 0) && (below(12) == 0)) {
        faults -= 1;
        fault();
    }
}

/* Before anything follows from it here, the decision is on its way to all others. */
static void has_told_all(const rank_t *rank, uint64_t round)
{
    kvcl_rankset_t   told = {{0}}, untold = rank->agree.living;
    kvcl_agree_msg_t *msg;
    unsigned         i;

    for (i = 0; i < n_post; ++i) {
        msg = &post[i].msg;
        if ((msg->from == rank->agree.me) && (msg->type == KVCL_AGREE_DECIDED) && (msg->round == round)) {
            kvcl_rankset_add(&told, post[i].to);
        }
    }
    kvcl_rankset_drop(&untold, &told);
    kvcl_rankset_del(&untold, rank->agree.me);
    ck_assert((loss > 0) || rank->dead || kvcl_rankset_is_empty(&untold));
}

static void decided(void *arg, uint64_t round, const kvcl_agree_value_t *value)
{
    rank_t *rank = arg;
    unsigned i;

    ck_assert_uint_eq(round, rank->decided + 1);
    rank->decided += 1;
    rank->gave     = false;
    rank->other    = rank->other && (value->unlike == 0);
    rank->values[round] = *value;
    if (!known[round]) {
        known[round] = true;
        first[round] = *value;
    }
    ck_assert_mem_eq(value, &first[round], sizeof(*value));
    ck_assert((round == 1) || (value->unlike == 0));
    if ((round == 1) && ((kind == UNLIKE) || (kind == ENDS))) {
        ck_assert((value->unlike != 0) || (kind == ENDS));
        unlike += value->unlike;
    }
    if (value->unlike != 0) {
        ck_assert((kind == UNLIKE) || (kind == ENDS));
        ck_assert_uint_eq(value->call, KVCL_AGREE_CALL_MIXED);
        has_told_all(rank, round);
        ck_assert((value->names[0].slot < n) && (value->names[0].words[0] == CALL));
        ck_assert((value->names[1].slot == KVCL_SLOT_NONE) || (value->names[1].words[0] == OTHER));
        ck_assert((kind != UNLIKE) || ((value->names[1].slot < n) && (value->names[1].slot != value->names[0].slot)));
        return;
    }
    ck_assert_uint_eq(value->call, CALL);
    for (i = 0; i < n; ++i) { /* each gives all bits but its own */
        ck_assert(!kvcl_rankset_has(&value->members, i) || (((value->flags >> i) & 1) == 0));
    }
}

static bool in_other(const rank_t *rank)
{
    return rank->other && ((rank->ends_at == 0) || (now < rank->ends_at));
}

/* A rank that knows of a death is not sure of any order. */
static bool called(void *arg, uint64_t at, kvcl_agree_name_t *name)
{
    const rank_t *rank = arg;

    name->words[0] = OTHER;
    return (rank->decided == 0) && (rank->view == 1) && in_other(rank) && (at == 0);
}

static const kvcl_agree_ops_t ops = {send, decided, called};

static void give(rank_t *rank, uint32_t call, uint64_t flags)
{
    const kvcl_agree_value_t value = {.call = call, .flags = flags, .names = {{.words = {call}}}};

    rank->gave = true;
    (void)kvcl_agree_give(&rank->agree, &value, (rank->view == 1) ? 0 : KVCL_AGREE_NOWHERE);
}

static void go_on(rank_t *rank)
{
    while (!rank->dead && (rank->decided < ROUNDS) && !rank->gave && !in_other(rank)) {
        give(rank, CALL, ~(UINT64_C(1) << (unsigned)(rank - ranks)));
    }
}

static void learn(rank_t *rank)
{
    rank->view   += 1;
    rank->view_at = (rank->view < views) ? now + 1 + below(50) : 0;
    kvcl_agree_view(&rank->agree, rank->view, &members[rank->view]);
    go_on(rank);
}

static void deliver(unsigned i)
{
    const letter_t letter = post[i];
    rank_t         *to    = &ranks[letter.to];

    post[i] = post[--n_post];
    if (!to->dead && kvcl_rankset_has(&members[to->view], letter.msg.from)) { /* the session of others has ended */
        kvcl_agree_take(&to->agree, &letter.msg);
        go_on(to);
    }
}

/* Everything that is due now. */
static void step(void)
{
    unsigned i;

    for (i = 0; i < n; ++i) {
        rank_t *rank = &ranks[i];

        if (!rank->dead && !rank->out && (rank->view_at != 0) && (now >= rank->view_at)) {
            learn(rank);
        }
        if (!rank->dead && (now >= rank->again_at)) {
            rank->again_at = now + 100 + below(100);
            kvcl_agree_again(&rank->agree);
        }
        go_on(rank);
    }
    for (i = 0; i < n_post;) {
        if (now >= post[i].at) {
            deliver(i);
            i = 0;
        } else {
            ++i;
        }
    }
}

static bool all_done(void)
{
    unsigned i;

    for (i = 0; i < n; ++i) {
        if (!ranks[i].dead && !ranks[i].out && (ranks[i].decided < ROUNDS)) {
            return false;
        }
    }
    return true;
}

static void begin(unsigned size)
{
    unsigned i;

    memset(ranks, 0, sizeof(ranks));
    memset(members, 0, sizeof(members));
    memset(known, 0, sizeof(known));
    n      = size;
    n_post = 0;
    now    = 0;
    views  = 1;
    unlike = 0;
    loss   = (below(2) == 0) ? 0 : below(30);
    for (i = 0; i < n; ++i) {
        kvcl_rankset_add(&members[1], i);
    }
    for (i = 0; i < n; ++i) {
        ranks[i].view = 1;
        kvcl_agree_init(&ranks[i].agree, i, &members[1], &ops, &ranks[i]);
    }
}

static void run(void)
{
    unsigned i;

    for (i = 0; i < n; ++i) {
        if (!ranks[i].dead) {
            go_on(&ranks[i]);
        }
    }
    for (; (now < STEPS) && !all_done(); ++now) {
        step();
    }
    ck_assert_msg(all_done(), "a rank of %u does not decide", n);
}

START_TEST(whoever_dies_when_all_decide_the_same)
{
    unsigned i;

    test_seed(&rnd);
    kind = ALIKE;
    for (i = 0; i < 5000; ++i) {
        begin(1 + below(RANKS));
        faults = below(n);
        run();
    }
}
END_TEST

/* Some ranks give to the first round, the others are in another call in its place. */
START_TEST(another_call_in_the_place_of_a_round_ends_all_of_them)
{
    unsigned i, j;

    test_seed(&rnd);
    kind   = UNLIKE;
    faults = 0;
    for (i = 0; i < 2000; ++i) {
        begin(2 + below(RANKS - 1));
        for (j = 0; j < n; ++j) {
            ranks[j].other = below(2) != 0;
        }
        j              = below(n);
        ranks[j].other = true;
        ranks[(j + 1) % n].other = false;
        run();
        ck_assert_uint_eq(unlike, n);
    }
}
END_TEST

START_TEST(a_call_because_of_a_death_is_no_other_call)
{
    unsigned i, j;

    test_seed(&rnd);
    kind = DEATHS;
    for (i = 0; i < 3000; ++i) {
        begin(2 + below(RANKS - 1));
        for (j = 0; j < n; ++j) {
            ranks[j].other   = true;
            ranks[j].ends_at = 1 + below(200);
        }
        kill_one(below(n), 300);
        faults = below(n - 1);
        run();
    }
}
END_TEST

/* The other call ends, well or not, and the rank gives after all. */
START_TEST(another_call_that_ends_makes_way_for_the_round)
{
    unsigned i, j, ended = 0;

    test_seed(&rnd);
    kind = ENDS;
    for (i = 0; i < 2000; ++i) {
        begin(2 + below(RANKS - 1));
        for (j = 0; j < n; ++j) {
            ranks[j].other   = below(2) != 0;
            ranks[j].ends_at = 1 + below(300);
        }
        faults = below(n);
        run();
        ended += (unlike == 0) ? 1 : 0;
    }
    ck_assert_uint_gt(ended, 0);
    ck_assert_uint_lt(ended, 2000);
}
END_TEST

/* Ranks that make different calls are all told so. */
static unsigned mixed;

static void keep_call(void *arg, uint64_t round, const kvcl_agree_value_t *value)
{
    (void)arg;
    (void)round;
    mixed += ((value->call == KVCL_AGREE_CALL_MIXED) && (value->unlike == 0) &&
              (value->names[0].words[0] != value->names[1].words[0])) ? 1 : 0;
}

START_TEST(different_calls_are_told_to_all)
{
    static const kvcl_agree_ops_t keep = {send, keep_call, NULL};
    unsigned                      i;

    test_seed(&rnd);
    kind   = ALIKE;
    faults = 0;
    mixed  = 0;
    begin(3);
    loss = 0;
    for (i = 0; i < n; ++i) {
        ranks[i].agree.ops = &keep;
        ranks[i].decided   = ROUNDS; /* go_on() gives nothing more */
        give(&ranks[i], (i == 1) ? 1 : 2, 0);
    }
    for (now = 0; (now < 1000) && (mixed < n); ++now) {
        step();
    }
    ck_assert_uint_eq(mixed, n);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("agreement");
    TCase *tcase = tcase_create("agree");

    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, whoever_dies_when_all_decide_the_same);
    tcase_add_test(tcase, different_calls_are_told_to_all);
    tcase_add_test(tcase, another_call_in_the_place_of_a_round_ends_all_of_them);
    tcase_add_test(tcase, a_call_because_of_a_death_is_no_other_call);
    tcase_add_test(tcase, another_call_that_ends_makes_way_for_the_round);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
