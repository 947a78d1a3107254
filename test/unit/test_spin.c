/*
 * How long a waiting thread polls (base/spin.h): as long as it may where polling finds the events, next to never where
 * the events come only after it sleeps, and again soon where that has changed.
 */
#include "config.h"
#include "base/spin.h"
#include "test_base.h"

enum { MOST_NS = 100000, STEP_NS = 1000 };

/* One wait for an event that comes after at_ns of polling, or, where the core is needed for it, after a sleep.
 * Returns the time polled; *slept: whether it ended in a sleep. */
static uint64_t one_wait(kvcl_spin_t *spin, uint64_t at_ns, bool needs_core, bool *slept)
{
    uint64_t waited_ns = 0;

    *slept = false;
    for (; needs_core || (waited_ns < at_ns); waited_ns += STEP_NS) {
        if (!kvcl_spin_more(spin, waited_ns)) {
            kvcl_spin_slept(spin);
            *slept = true;
            return waited_ns;
        }
    }
    kvcl_spin_found(spin);
    return waited_ns;
}

static unsigned sleeps_of(kvcl_spin_t *spin, unsigned waits, bool needs_core, uint64_t *polled_ns)
{
    unsigned sleeps = 0;
    bool     slept;

    for (*polled_ns = 0; waits != 0; --waits) {
        *polled_ns += one_wait(spin, 10 * STEP_NS, needs_core, &slept);
        sleeps     += slept ? 1 : 0;
    }
    return sleeps;
}

START_TEST(a_wait_polls_where_that_finds_the_event)
{
    kvcl_spin_t spin = {.most_ns = MOST_NS};
    uint64_t    polled_ns;

    ck_assert_uint_eq(sleeps_of(&spin, 1000, false, &polled_ns), 0);
    ck_assert_uint_eq(polled_ns, 1000 * 10 * STEP_NS);
}
END_TEST

START_TEST(a_wait_sleeps_where_polling_is_in_vain)
{
    kvcl_spin_t spin = {.most_ns = MOST_NS};
    uint64_t    polled_ns;

    ck_assert_uint_eq(sleeps_of(&spin, 2, true, &polled_ns), 2);
    ck_assert_uint_eq(polled_ns, 2 * MOST_NS);
    ck_assert_uint_eq(sleeps_of(&spin, 4, true, &polled_ns), 4);
    ck_assert_uint_eq(polled_ns, 0);
    ck_assert_uint_eq(sleeps_of(&spin, 6500, true, &polled_ns), 6500);
    ck_assert_uint_ge(polled_ns, 50 * MOST_NS);  /* it tries again now and then */
    ck_assert_uint_le(polled_ns, 110 * MOST_NS); /* once in 65 waits */
}
END_TEST

START_TEST(polling_comes_back_soon)
{
    kvcl_spin_t spin = {.most_ns = MOST_NS};
    uint64_t    polled_ns;

    (void)sleeps_of(&spin, 1000, true, &polled_ns);
    ck_assert_uint_le(sleeps_of(&spin, 1000, false, &polled_ns), KVCL_SPIN_MOST_SKIPPED);
    ck_assert_uint_eq(sleeps_of(&spin, 1000, false, &polled_ns), 0);
}
END_TEST

START_TEST(one_wait_in_vain_changes_nothing)
{
    kvcl_spin_t spin = {.most_ns = MOST_NS};
    uint64_t    polled_ns;
    unsigned    i;

    for (i = 0; i < 100; ++i) {
        ck_assert_uint_eq(sleeps_of(&spin, 1, true, &polled_ns), 1);
        ck_assert_uint_eq(sleeps_of(&spin, 1, false, &polled_ns), 0);
    }
}
END_TEST

START_TEST(without_time_a_wait_never_polls)
{
    kvcl_spin_t spin = {.most_ns = 0};
    uint64_t    polled_ns;

    ck_assert_uint_eq(sleeps_of(&spin, 1000, true, &polled_ns), 1000);
    ck_assert_uint_eq(polled_ns, 0);
}
END_TEST

/* The first refusal may be of an event that has just come; a sleep or an event ends the row. */
START_TEST(a_thread_that_may_not_sleep_takes_naps)
{
    kvcl_spin_t spin = {.most_ns = MOST_NS};
    unsigned    i;

    for (i = 0; i < 3; ++i) {
        ck_assert(!kvcl_spin_naps(&spin));
        ck_assert(kvcl_spin_naps(&spin));
        ck_assert(kvcl_spin_naps(&spin));
        if (i == 0) {
            kvcl_spin_found(&spin);
        } else {
            kvcl_spin_slept(&spin);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("spin");
    TCase *tc    = tcase_create("spin");

    tcase_add_test(tc, a_wait_polls_where_that_finds_the_event);
    tcase_add_test(tc, a_wait_sleeps_where_polling_is_in_vain);
    tcase_add_test(tc, polling_comes_back_soon);
    tcase_add_test(tc, one_wait_in_vain_changes_nothing);
    tcase_add_test(tc, without_time_a_wait_never_polls);
    tcase_add_test(tc, a_thread_that_may_not_sleep_takes_naps);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
