/*
 * The histogram of delays. Its p99 is never less than the true one and at most 50% longer; old delays are forgotten.
 */
#include "base/rand.h"
#include "policy/delay.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N = 2000 };

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

START_TEST(p99_is_near_the_true_one)
{
    const char   *text = getenv("TEST_SEED");
    uint64_t     seed  = (text != NULL) ? strtoull(text, NULL, 0) : (uint64_t)time(NULL), ns[N], exact, p99;
    kvcl_delay_t delay;
    kvcl_rand_t  rnd;
    unsigned     round, i, n;

    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    kvcl_rand_seed(&rnd, seed);
    for (round = 0; round < 200; ++round) {
        memset(&delay, 0, sizeof(delay));
        n = KVCL_DELAY_ENOUGH + (unsigned)kvcl_rand_below(&rnd, N - KVCL_DELAY_ENOUGH);
        for (i = 0; i < n; ++i) {
            ns[i] = kvcl_rand_below(&rnd, UINT64_C(1) << (14 + kvcl_rand_below(&rnd, 26)));
            kvcl_delay_add(&delay, ns[i]);
        }
        qsort(ns, n, sizeof(ns[0]), compare);
        exact = ns[n - 1 - (n / 100)];
        p99   = kvcl_delay_p99(&delay);
        ck_assert_uint_ge(p99, exact);
        ck_assert_uint_le(p99, (exact < 2 * KVCL_DELAY_LEAST_NS) ? 3 * KVCL_DELAY_LEAST_NS : exact + (exact / 2) + 1);
    }
}
END_TEST

START_TEST(few_are_not_enough)
{
    kvcl_delay_t delay = {0};
    unsigned     i;

    for (i = 0; i < KVCL_DELAY_ENOUGH; ++i) {
        ck_assert_uint_eq(kvcl_delay_p99(&delay), 0);
        kvcl_delay_add(&delay, 1000000);
    }
    ck_assert_uint_ge(kvcl_delay_p99(&delay), 1000000);
    ck_assert_uint_le(kvcl_delay_p99(&delay), 1500000);
}
END_TEST

START_TEST(old_times_are_forgotten)
{
    kvcl_delay_t delay = {0};
    unsigned     i;

    for (i = 0; i < 10 * KVCL_DELAY_MOST; ++i) {
        kvcl_delay_add(&delay, 1000000000);
    }
    ck_assert_uint_ge(kvcl_delay_p99(&delay), 1000000000);
    for (i = 0; i < 10 * KVCL_DELAY_MOST; ++i) {
        kvcl_delay_add(&delay, 1000000);
    }
    ck_assert_uint_le(kvcl_delay_p99(&delay), 1500000);
}
END_TEST

START_TEST(any_time_and_size_has_its_place)
{
    kvcl_delay_t delay = {0};
    unsigned     i;

    for (i = 0; i < KVCL_DELAY_ENOUGH; ++i) {
        kvcl_delay_add(&delay, (i % 2 != 0) ? UINT64_MAX : 0);
    }
    ck_assert_uint_gt(kvcl_delay_p99(&delay), UINT64_C(1000000000000));
    ck_assert_uint_eq(kvcl_delay_class(0), 1);
    ck_assert_uint_eq(kvcl_delay_class(4095), 1);
    ck_assert_uint_eq(kvcl_delay_class(4096), 2);
    ck_assert_uint_eq(kvcl_delay_class(65536), 4);
    ck_assert_uint_eq(kvcl_delay_class(UINT64_MAX), KVCL_DELAY_CLASSES - 1);
}
END_TEST

START_TEST(an_unknown_class_takes_its_neighbours_word)
{
    kvcl_delay_t classes[KVCL_DELAY_CLASSES] = {{0}};
    uint64_t     p99;
    unsigned     i;

    ck_assert_uint_eq(kvcl_delay_p99_of(classes, 5), 0);
    for (i = 0; i < KVCL_DELAY_ENOUGH; ++i) {
        kvcl_delay_add(&classes[5], 1000000);
        kvcl_delay_add(&classes[KVCL_DELAY_QUERY], 10);
    }
    p99 = kvcl_delay_p99(&classes[5]);
    ck_assert_uint_eq(kvcl_delay_p99_of(classes, 5), p99);
    ck_assert_uint_eq(kvcl_delay_p99_of(classes, 7), 16 * p99);
    ck_assert_uint_eq(kvcl_delay_p99_of(classes, 1), p99); /* not a question's */
    for (i = 0; i < 10 * KVCL_DELAY_MOST; ++i) {
        kvcl_delay_add(&classes[1], UINT64_MAX);
    }
    ck_assert_uint_eq(kvcl_delay_p99_of(classes, 4), kvcl_delay_p99(&classes[1]) * 64);
    ck_assert_uint_ge(kvcl_delay_p99_of(classes, KVCL_DELAY_CLASSES - 1), 64 * p99);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("store_delay");
    TCase   *tc    = tcase_create("all");
    SRunner *sr    = srunner_create(suite);
    int     failed;

    tcase_add_test(tc, p99_is_near_the_true_one);
    tcase_add_test(tc, few_are_not_enough);
    tcase_add_test(tc, old_times_are_forgotten);
    tcase_add_test(tc, any_time_and_size_has_its_place);
    tcase_add_test(tc, an_unknown_class_takes_its_neighbours_word);
    suite_add_tcase(suite, tc);
    srunner_run_all(sr, CK_NORMAL);
    failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return (failed == 0) ? 0 : 1;
}
