/*
 * The histogram of times: buckets without gaps, each at most a quarter wider than its beginning; adds that are not
 * lost; the sampling of calls.
 */
#include "base/histogram.h"
#include "base/rand.h"
#include "base/latency.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void is_in_its_bucket(uint64_t ns)
{
    unsigned bucket = kvcl_hist_bucket(ns);

    if ((bucket >= KVCL_HIST_BUCKETS) || (ns > kvcl_hist_bound(bucket)) ||
        ((bucket > 0) && (ns <= kvcl_hist_bound(bucket - 1)))) {
        ck_abort_msg("%llu ns is not in bucket %u", (unsigned long long)ns, bucket); /* each check costs a write */
    }
}

START_TEST(every_time_is_in_the_bucket_whose_bound_is_next)
{
    const char  *text = getenv("TEST_SEED");
    uint64_t    seed  = (text != NULL) ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
    kvcl_rand_t rnd;
    unsigned    i;

    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    kvcl_rand_seed(&rnd, seed);
    ck_assert_uint_eq(kvcl_hist_bound(0), 64);
    ck_assert_uint_eq(kvcl_hist_bound(1), 80);
    ck_assert_uint_eq(kvcl_hist_bound(KVCL_HIST_BUCKETS - 2), UINT64_C(1) << 36);
    ck_assert_uint_eq(kvcl_hist_bound(KVCL_HIST_BUCKETS - 1), UINT64_MAX);
    for (i = 1; i < KVCL_HIST_BUCKETS; ++i) {
        ck_assert_uint_gt(kvcl_hist_bound(i), kvcl_hist_bound(i - 1));
        ck_assert((i == KVCL_HIST_BUCKETS - 1) || (kvcl_hist_bound(i) <= kvcl_hist_bound(i - 1) / 4 * 5));
        ck_assert_uint_eq(kvcl_hist_bucket(kvcl_hist_bound(i - 1)), i - 1);
        ck_assert_uint_eq(kvcl_hist_bucket(kvcl_hist_bound(i - 1) + 1), i);
    }
    is_in_its_bucket(0);
    is_in_its_bucket(1);
    is_in_its_bucket(UINT64_MAX);
    for (i = 0; i < 100000; ++i) {
        is_in_its_bucket(kvcl_rand_below(&rnd, UINT64_C(1) << (1 + kvcl_rand_below(&rnd, 62))));
    }
}
END_TEST

START_TEST(what_is_added_is_there)
{
    kvcl_hist_t hist;
    unsigned    i;

    memset(&hist, 0, sizeof(hist));
    kvcl_hist_add(&hist, 100, 1);
    kvcl_hist_add(&hist, 110, 61);
    kvcl_hist_add(&hist, UINT64_C(1) << 40, 1);
    for (i = 0; i < KVCL_HIST_BUCKETS; ++i) {
        ck_assert_uint_eq(hist.counts[i], (i == kvcl_hist_bucket(100)) ? 62 : (i == KVCL_HIST_BUCKETS - 1) ? 1 : 0);
    }
    ck_assert_uint_eq(hist.sum_ns, 100 + (61 * 110) + (UINT64_C(1) << 40));
}
END_TEST

START_TEST(a_quantile_is_the_bound_of_its_bucket_over_all_histograms)
{
    static kvcl_hist_t hists[3];
    unsigned           i;

    memset(hists, 0, sizeof(hists));
    ck_assert_uint_eq(kvcl_hist_quantile(hists, 3, 50), 0);
    kvcl_hist_add(&hists[1], 1000, 1);
    ck_assert_uint_eq(kvcl_hist_quantile(hists, 3, 50), kvcl_hist_bound(kvcl_hist_bucket(1000)));
    ck_assert_uint_eq(kvcl_hist_quantile(hists, 3, 99), kvcl_hist_bound(kvcl_hist_bucket(1000)));
    ck_assert_uint_eq(kvcl_hist_quantile(hists, 1, 99), 0);
    for (i = 0; i < 98; ++i) {
        kvcl_hist_add(&hists[i % 3], 100, 1);
    }
    kvcl_hist_add(&hists[2], 1000000, 1); /* 98 of 100 ns, 1 of 1,000, 1 of 1,000,000 */
    ck_assert_uint_eq(kvcl_hist_quantile(hists, 3, 98), kvcl_hist_bound(kvcl_hist_bucket(100)));
    ck_assert_uint_eq(kvcl_hist_quantile(hists, 3, 99), kvcl_hist_bound(kvcl_hist_bucket(1000)));
    ck_assert_uint_eq(kvcl_hist_quantile(hists, 3, 100), kvcl_hist_bound(kvcl_hist_bucket(1000000)));
    kvcl_hist_add(&hists[0], UINT64_C(1) << 40, 1000); /* beyond: the last finite bound */
    ck_assert_uint_eq(kvcl_hist_quantile(hists, 3, 99), UINT64_C(1) << KVCL_HIST_MAX_BITS);
}
END_TEST

/* Calls of several kinds that alternate are all sampled, and the weights add up to all calls. */
START_TEST(calls_that_take_turns_are_all_sampled)
{
    static kvcl_latency_table_t table;
    unsigned                    kinds, i;

    for (kinds = 1; kinds < KVCL_LATENCY_OPS; ++kinds) {
        unsigned met[KVCL_LATENCY_OPS] = {0}, all = 0;
        memset(&table, 0, sizeof(table));
        for (i = 0; i < 10u * kinds * KVCL_LATENCY_EVERY + 1; ++i) {
            kvcl_timing_t timing = kvcl_timing_sample(&table, (kvcl_latency_op_t)(1 + (i % kinds)));
            if (timing.begun_ns != 0) {
                ck_assert_uint_eq(timing.op, 1 + (i % kinds));
                ++met[i % kinds];
                all += timing.weight;
            }
        }
        ck_assert_uint_eq(all, 10u * kinds * KVCL_LATENCY_EVERY + 1);
        for (i = 0; i < kinds; ++i) {
            ck_assert_uint_ge(met[i], 10);
        }
    }
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("histogram");
    TCase   *tcase = tcase_create("histogram");
    SRunner *runner;
    int     failed;

    tcase_add_test(tcase, every_time_is_in_the_bucket_whose_bound_is_next);
    tcase_add_test(tcase, what_is_added_is_there);
    tcase_add_test(tcase, a_quantile_is_the_bound_of_its_bucket_over_all_histograms);
    tcase_add_test(tcase, calls_that_take_turns_are_all_sampled);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
