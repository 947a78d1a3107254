/*
 * A rank whose KVCL_LEASE and KVCL_DEAD are longer than those of the others (view/views.h): the others exclude it only
 * when its lease has ended, if it has told them how long that is. Three ranks, one of which is cut off and goes on.
 */
#include "views_ranks.h"

enum { RANKS = 3, ODD = 2, LEASE_MS = 4000 };

static void begin_with(uint64_t lease_ms, uint64_t dead_ms)
{
    kvcl_views_times_t odd = KVCL_VIEWS_TIMES;

    odd.lease_ns       = lease_ms * MS;
    odd.detect.dead_ns = dead_ms * MS;
    begin(RANKS, &odd);
}

/* The time from the cut to the view without it. */
static uint64_t excluded_after_ms(void)
{
    const uint64_t cut_ns = now_ns;

    cut_off = ODD;
    while (ranks[0].view.number == 1) {
        tick();
        ck_assert_uint_lt(now_ns - cut_ns, 20000 * MS);
        ck_assert(!owns(ODD) || ((ranks[0].view.number == 1) && (ranks[1].view.number == 1)));
    }
    ck_assert(!kvcl_rankset_has(&ranks[0].view.members, ODD));
    ck_assert(owns(0));
    return (now_ns - cut_ns) / MS;
}

START_TEST(a_longer_lease_is_awaited)
{
    uint64_t ms;

    begin_with(LEASE_MS, LEASE_MS + 1000);
    ms = excluded_after_ms();
    ck_assert_uint_ge(ms, LEASE_MS);
    ck_assert_uint_lt(ms, LEASE_MS + 2000);
}
END_TEST

START_TEST(a_shorter_one_shortens_nothing)
{
    uint64_t ms;

    begin_with(300, 1000);
    ms = excluded_after_ms();
    ck_assert_uint_ge(ms, 900);
    ck_assert_uint_lt(ms, 2000);
}
END_TEST

/* What a process says later, and what is said of none, change nothing. */
START_TEST(the_first_word_counts)
{
    begin_with(800, 1000);
    ck_assert(!kvcl_views_lease_of(&ranks[0], ODD, UINT64_MAX));
    ck_assert(!kvcl_views_lease_of(&ranks[0], RANKS, 800 * MS)); /* no member */
    ck_assert_uint_lt(excluded_after_ms(), 2000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("leases of several lengths");
    TCase *tcase = tcase_create("leases of several lengths");

    tcase_add_test(tcase, a_longer_lease_is_awaited);
    tcase_add_test(tcase, a_shorter_one_shortens_nothing);
    tcase_add_test(tcase, the_first_word_counts);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
