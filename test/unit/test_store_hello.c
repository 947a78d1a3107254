/*
 * What a rank says of itself when a store is opened (store/hello.h) is hostile: every number is bounded where it is
 * learnt, and the error names the rank.
 */
#include "config.h"

#include "base/rand.h"
#include "dir/entry.h"
#include "store/hello.h"
#include "test_base.h"

#include <string.h>

static kvcl_hello_t good(void)
{
    return (kvcl_hello_t){.id = 5, .incarnation = 7, .replicas = 2, .pool_bytes = 1 << 20, .n_sizes = 2,
                          .sizes = {4096, 65536}};
}

START_TEST(a_number_out_of_bounds_names_the_rank)
{
    kvcl_hello_t rows[8];
    size_t       i;

    for (i = 0; i < 8; ++i) {
        rows[i] = good();
        ck_assert_int_eq(kvcl_hello_check(&rows[i], 3, 5), KVCL_OK);
    }
    rows[0].replicas    = 60;
    rows[1].replicas    = KVCL_DIR_LOCS_MAX + 1;
    rows[2].replicas    = 0;
    rows[3].n_sizes     = KVCL_SLABS_CLASSES_MAX + 1;
    rows[4].sizes[1]    = 0;
    rows[5].sizes[0]    = (1 << 20) + 1;
    rows[6].incarnation = 1 << 16;
    rows[7].listing     = 2;
    for (i = 0; i < 8; ++i) {
        ck_assert_int_eq(kvcl_hello_check(&rows[i], 3, 5), KVCL_ERR_PROTOCOL);
        ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "rank 3"));
    }
    rows[0]             = good();
    rows[0].incarnation = 0;
    ck_assert_int_eq(kvcl_hello_check(&rows[0], 3, 5), KVCL_ERR_CANCELED);
    rows[0]    = good();
    rows[0].id = 6;
    ck_assert_int_eq(kvcl_hello_check(&rows[0], 3, 5), KVCL_ERR_INVALID_PARAM);
}
END_TEST

/* Any bytes: what passes can be used as it is. */
START_TEST(what_passes_is_within_bounds)
{
    kvcl_rand_t  rnd;
    kvcl_hello_t hello;
    unsigned     i, n, passed = 0;

    test_seed(&rnd);
    for (i = 0; i < 100000; ++i) {
        hello = good();
        for (n = 0; n < 1 + i % 3; ++n) { /* one to three bytes changed */
            ((uint8_t *)&hello)[kvcl_rand_below(&rnd, sizeof(hello))] = (uint8_t)kvcl_rand_below(&rnd, 256);
        }
        if (kvcl_hello_check(&hello, 1, 5) != KVCL_OK) {
            ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "rank 1"));
            continue;
        }
        ++passed;
        ck_assert((hello.replicas >= 1) && (hello.replicas <= KVCL_DIR_LOCS_MAX) &&
                  (hello.n_sizes <= KVCL_SLABS_CLASSES_MAX) && (hello.incarnation <= UINT16_MAX));
        for (n = 0; n < hello.n_sizes; ++n) {
            ck_assert((hello.sizes[n] > 0) && (hello.sizes[n] <= hello.pool_bytes));
        }
    }
    ck_assert_uint_gt(passed, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("store_hello");
    TCase *tc    = tcase_create("all");

    tcase_add_test(tc, a_number_out_of_bounds_names_the_rank);
    tcase_add_test(tc, what_passes_is_within_bounds);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
