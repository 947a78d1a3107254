/*
 * Agreement (view/agree.h) in steps: what is sent in one step arrives in the next, all of it. How many steps, that is
 * message delays in a row, until all have decided: at most 4 log2(n), up to as many ranks as a job may have.
 */
#include "view/agree.h"

#include "test_base.h"

#include <stdbool.h>
#include <string.h>

enum { RANKS = KVCL_SLOTS_MAX, CALL = 7, OTHER = 9, POST = 4 * RANKS, LOG2_RANKS = 10 };
_Static_assert(RANKS == 1 << LOG2_RANKS, "the figure that is wanted is for 1,024 ranks");

typedef struct letter {
    uint32_t         to;
    kvcl_agree_msg_t msg;
} letter_t;

typedef struct rank {
    kvcl_agree_t       agree;
    bool               dead, decided, other;
    kvcl_agree_value_t value;
} rank_t;

static rank_t         ranks[RANKS];
static letter_t       post[2][POST];
static unsigned       n_post[2], writes; /* writes: the list that is written, while the other one is delivered */
static unsigned       n, delays, sent;
static kvcl_rankset_t members;

static void send(void *arg, uint32_t to, const kvcl_agree_msg_t *msg)
{
    (void)arg;
    ck_assert_uint_lt(to, n);
    ck_assert_uint_lt(n_post[writes], POST);
    post[writes][n_post[writes]++] = (letter_t){to, *msg};
    ++sent;
}

static void decided(void *arg, uint64_t round, const kvcl_agree_value_t *value)
{
    rank_t *rank = arg;

    ck_assert(!rank->decided);
    ck_assert_uint_eq(round, 1);
    rank->decided = true;
    rank->value   = *value;
}

static bool called(void *arg, uint64_t at, kvcl_agree_name_t *name)
{
    const rank_t *rank = arg;

    name->words[0] = OTHER;
    return rank->other && (at == 0);
}

static const kvcl_agree_ops_t ops = {send, decided, called};

static void give(unsigned who)
{
    const uint64_t           flags = ~(UINT64_C(1) << (who % 64));
    const kvcl_agree_value_t value = {.call = CALL, .flags = flags, .names = {{.words = {CALL}}}};

    (void)kvcl_agree_give(&ranks[who].agree, &value, 0);
}

/* The last ones are in another call instead. */
static void begin(unsigned size, unsigned others)
{
    unsigned i;

    memset(ranks, 0, sizeof(ranks));
    memset(n_post, 0, sizeof(n_post));
    memset(&members, 0, sizeof(members));
    n      = size;
    delays = sent = 0;
    for (i = 0; i < n; ++i) {
        kvcl_rankset_add(&members, i);
    }
    for (i = 0; i < n; ++i) {
        kvcl_agree_init(&ranks[i].agree, i, &members, &ops, &ranks[i]);
        ranks[i].other = (i >= n - others);
    }
    for (i = 0; i < n; ++i) {
        if (!ranks[i].other) {
            give(i);
        }
    }
}

static void deliver_step(void)
{
    const unsigned reads = writes;
    unsigned       i;

    writes  = 1 - writes;
    delays += 1;
    for (i = 0; i < n_post[reads]; ++i) {
        if (!ranks[post[reads][i].to].dead) {
            kvcl_agree_take(&ranks[post[reads][i].to].agree, &post[reads][i].msg);
        }
    }
    n_post[reads] = 0;
}

static bool all_decided(void)
{
    unsigned i;

    for (i = 0; (i < n) && (ranks[i].dead || ranks[i].decided); ++i) {
    }
    return i == n;
}

static void run_to_end(void)
{
    while (!all_decided() && (n_post[writes] > 0)) {
        deliver_step();
    }
    ck_assert_msg(all_decided(), "a rank of %u has not decided when no message is under way any more", n);
}

/* All living ranks have the same value; a lone rank takes no message. */
static void check(const char *what, unsigned limit, uint32_t call, uint64_t flags)
{
    const rank_t *first = NULL;
    unsigned     i;

    for (i = 0; i < n; ++i) {
        if (!ranks[i].dead) {
            first = (first != NULL) ? first : &ranks[i];
            ck_assert_mem_eq(&ranks[i].value, &first->value, sizeof(first->value));
        }
    }
    ck_assert_uint_eq(first->value.call, call);
    ck_assert((call == KVCL_AGREE_CALL_MIXED) || (first->value.flags == flags));
    printf("agree, %u ranks, %s: %u message delays (at most %u), %u messages\n", n, what, delays, limit, sent);
    ck_assert_uint_le(delays, limit);
}

START_TEST(no_fault)
{
    unsigned log;

    for (log = 0; log <= LOG2_RANKS; ++log) {
        begin(1u << log, 0);
        run_to_end();
        check("no fault", 4 * log, CALL, (n >= 64) ? 0 : ~((UINT64_C(1) << n) - 1));
    }
}
END_TEST

/* Half of the ranks are in another call: all are told so as soon. Each rank tells all others then, so there are fewer
 * ranks here. */
START_TEST(half_of_them_call_something_else)
{
    begin(64, 32);
    run_to_end();
    check("half in another call", 4 * 6, KVCL_AGREE_CALL_MIXED, 0);
}
END_TEST

/* The leader dies after each step; the view without it comes a step later. Both views together keep to the limit. */
START_TEST(the_leader_dies)
{
    unsigned at, i;

    for (at = 0; at < 4; ++at) {
        begin(RANKS, 0);
        while (delays < at) {
            deliver_step();
        }
        ranks[0].dead = true;
        deliver_step(); /* what it has sent still arrives */
        kvcl_rankset_del(&members, 0);
        for (i = 1; i < n; ++i) {
            kvcl_agree_view(&ranks[i].agree, 2, &members);
        }
        run_to_end();
        check("the leader dies", 4 * LOG2_RANKS, CALL, 0);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("message delays of agreement");
    TCase *tcase = tcase_create("delays");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, no_fault);
    tcase_add_test(tcase, half_of_them_call_something_else);
    tcase_add_test(tcase, the_leader_dies);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
