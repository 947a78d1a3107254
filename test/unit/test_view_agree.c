/*
 * Agreement (view/agree.h) in random runs: ranks die or are excluded at any message, views arrive late, messages are
 * delayed, overtaken and lost. All that decide a round decide the same, whoever dies afterwards; all that live decide
 * all rounds; what a rank that is told of gave is in the value.
 */
#include "view/agree.h"

#include "test_base.h"

#include <stdbool.h>
#include <string.h>

enum { RANKS = 6, ROUNDS = 4, POST = 4096, CALL = 7, STEPS = 200000 };

typedef struct letter {
    uint64_t         at;
    uint32_t         to;
    kvcl_agree_msg_t msg;
} letter_t;

typedef struct rank {
    kvcl_agree_t       agree;
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
static unsigned           n_post, n, loss, faults;
static uint64_t           now, views;
static kvcl_rankset_t     members[64]; /* of each view */
static bool               known[ROUNDS + 1];
static kvcl_agree_value_t first[ROUNDS + 1];

static unsigned below(unsigned limit)
{
    return (unsigned)kvcl_rand_below(&rnd, limit);
}

/* A rank dies, or is excluded though it lives. The others learn of the view one by one. */
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
    members[views + 1] = members[views];
    views += 1;
    kvcl_rankset_del(&members[views], who);
    for (i = 0; i < n; ++i) {
        if (!ranks[i].dead && !ranks[i].out && (ranks[i].view_at == 0)) {
            ranks[i].view_at = now + 1 + below(50);
        }
    }
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

static void decided(void *arg, uint64_t round, const kvcl_agree_value_t *value)
{
    rank_t *rank = arg;
    unsigned i;

    ck_assert_uint_eq(round, rank->decided + 1);
    rank->decided += 1;
    rank->values[round] = *value;
    if (!known[round]) {
        known[round] = true;
        first[round] = *value;
    }
    ck_assert_mem_eq(value, &first[round], sizeof(*value));
    ck_assert_uint_eq(value->call, CALL);
    for (i = 0; i < n; ++i) { /* each gives all bits but its own */
        ck_assert(!kvcl_rankset_has(&value->members, i) || (((value->flags >> i) & 1) == 0));
    }
}

static const kvcl_agree_ops_t ops = {send, decided};

static void go_on(rank_t *rank)
{
    kvcl_rankset_t none = {{0}};
    unsigned       me   = (unsigned)(rank - ranks);

    while (!rank->dead && (rank->decided < ROUNDS) && (rank->agree.round == rank->decided)) {
        (void)kvcl_agree_give(&rank->agree, CALL, ~(UINT64_C(1) << me), &none);
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
            go_on(rank);
        }
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

static void run(void)
{
    unsigned i;

    n = 1 + below(RANKS);
    memset(ranks, 0, sizeof(ranks));
    memset(members, 0, sizeof(members));
    memset(known, 0, sizeof(known));
    n_post = 0;
    now    = 0;
    views  = 1;
    loss   = (below(2) == 0) ? 0 : below(30);
    faults = below(n);
    for (i = 0; i < n; ++i) {
        kvcl_rankset_add(&members[1], i);
    }
    for (i = 0; i < n; ++i) {
        ranks[i].view = 1;
        kvcl_agree_init(&ranks[i].agree, i, &members[1], &ops, &ranks[i]);
    }
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
    for (i = 0; i < 5000; ++i) {
        run();
    }
}
END_TEST

/* Ranks that make different calls are all told so. */
static unsigned mixed;

static void keep_call(void *arg, uint64_t round, const kvcl_agree_value_t *value)
{
    (void)arg;
    (void)round;
    mixed += (value->call == KVCL_AGREE_CALL_MIXED) ? 1 : 0;
}

START_TEST(different_calls_are_told_to_all)
{
    static const kvcl_agree_ops_t keep = {send, keep_call};
    kvcl_rankset_t                none = {{0}};
    unsigned                      i;

    test_seed(&rnd);
    memset(members, 0, sizeof(members));
    memset(ranks, 0, sizeof(ranks));
    n      = 3;
    loss   = 0;
    faults = 0;
    n_post = 0;
    mixed  = 0;
    for (i = 0; i < n; ++i) {
        kvcl_rankset_add(&members[1], i);
    }
    for (i = 0; i < n; ++i) {
        ranks[i].view = 1;
        kvcl_agree_init(&ranks[i].agree, i, &members[1], &keep, &ranks[i]);
        ranks[i].decided = ROUNDS; /* go_on() gives nothing more */
        (void)kvcl_agree_give(&ranks[i].agree, (i == 1) ? 1 : 2, 0, &none);
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
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
