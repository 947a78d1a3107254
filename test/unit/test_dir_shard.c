/*
 * Shards: the same map from the same ranks, even load, and little movement.
 */
#include "config.h"

#include "test_dir.h"

#include "dir/shard.h"

#include <check.h>

static kvcl_shard_map_t a, b;

START_TEST(the_order_of_ranks_does_not_matter)
{
    const uint32_t up[5] = {1, 4, 9, 70000, 2}, down[6] = {2, 70000, 9, 4, 1, 9};
    uint32_t       i;

    ck_assert_int_eq(kvcl_shard_map_build(&a, 1, up, 5), KVCL_OK);
    ck_assert_int_eq(kvcl_shard_map_build(&b, 1, down, 6), KVCL_OK);
    for (i = 0; i < KVCL_SHARDS; ++i) {
        ck_assert_uint_eq(a.home[i], b.home[i]);
        ck_assert_uint_eq(a.backup[i], b.backup[i]);
        ck_assert_uint_ne(a.home[i], a.backup[i]);
    }
}
END_TEST

START_TEST(load_is_even)
{
    uint32_t ranks[16], count[16] = {0}, n, i;

    for (n = 1; n <= 16; ++n) {
        ranks[n - 1] = n - 1;
        memset(count, 0, sizeof(count));
        ck_assert_int_eq(kvcl_shard_map_build(&a, 1, ranks, n), KVCL_OK);
        for (i = 0; i < KVCL_SHARDS; ++i) {
            ++count[a.home[i]];
        }
        for (i = 0; i < n; ++i) {
            ck_assert_uint_gt(count[i] * n * 10, KVCL_SHARDS * 7);
            ck_assert_uint_lt(count[i] * n * 10, KVCL_SHARDS * 13);
        }
    }
}
END_TEST

START_TEST(a_rank_that_goes_moves_only_its_shards_each_to_its_backup)
{
    const uint32_t all[6] = {0, 1, 2, 3, 4, 5}, less[5] = {0, 1, 2, 4, 5};
    uint32_t       i;

    ck_assert_int_eq(kvcl_shard_map_build(&a, 1, all, 6), KVCL_OK);
    ck_assert_int_eq(kvcl_shard_map_build(&b, 2, less, 5), KVCL_OK);
    for (i = 0; i < KVCL_SHARDS; ++i) {
        ck_assert_uint_eq(b.home[i], (a.home[i] == 3) ? a.backup[i] : a.home[i]);
    }
}
END_TEST

START_TEST(alone_there_is_no_backup_and_nobody_is_an_error)
{
    const uint32_t one = 6, none = KVCL_SHARD_NO_RANK;
    kvcl_key_t     key = test_key(1);

    ck_assert_int_eq(kvcl_shard_map_build(&a, 1, &one, 1), KVCL_OK);
    ck_assert_uint_eq(kvcl_shard_home(&a, &key), 6);
    ck_assert_uint_eq(kvcl_shard_backup(&a, &key), KVCL_SHARD_NO_RANK);
    ck_assert_int_eq(kvcl_shard_map_build(&a, 1, &one, 0), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_shard_map_build(&a, 1, &none, 1), KVCL_ERR_INVALID_PARAM);
}
END_TEST

START_TEST(keys_of_one_tag_share_a_home)
{
    const uint32_t all[6] = {0, 1, 2, 3, 4, 5};
    kvcl_key_t     x = test_key(1), y = test_key(2);

    ck_assert_int_eq(kvcl_shard_map_build(&a, 1, all, 6), KVCL_OK);
    memcpy(y.bytes, x.bytes, 2);
    ck_assert_uint_eq(kvcl_shard_home(&a, &x), kvcl_shard_home(&a, &y));
    memset(x.bytes, 0xff, 2);
    ck_assert_uint_eq(kvcl_shard_of(&x), KVCL_SHARDS - 1);
}
END_TEST

/* All ranks of a job, of any version, must compute this map. */
START_TEST(the_map_is_the_one_of_version_1)
{
    const uint32_t all[4] = {0, 1, 2, 3};
    uint64_t       sum    = 0;
    uint32_t       i;

    ck_assert_int_eq(kvcl_shard_map_build(&a, 1, all, 4), KVCL_OK);
    for (i = 0; i < KVCL_SHARDS; ++i) {
        sum = sum * 31 + a.home[i] * 4 + a.backup[i];
    }
    ck_assert_uint_eq(sum, UINT64_C(16003309682453992525));
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("dir_shard");
    TCase   *tc    = tcase_create("shard");
    SRunner *runner;
    int      failed;

    tcase_add_test(tc, the_order_of_ranks_does_not_matter);
    tcase_add_test(tc, load_is_even);
    tcase_add_test(tc, a_rank_that_goes_moves_only_its_shards_each_to_its_backup);
    tcase_add_test(tc, alone_there_is_no_backup_and_nobody_is_an_error);
    tcase_add_test(tc, keys_of_one_tag_share_a_home);
    tcase_add_test(tc, the_map_is_the_one_of_version_1);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
