/*
 * The way of a collective on device memory (devcoll/dev_offer.h): by NCCL only if nothing on any rank is against it.
 */
#include "config.h"
#include "test_base.h"
#include "base/error.h"
#include "devcoll/dev_offer.h"

#include <stdlib.h>
#include <string.h>

enum { SIZE = 4 };

static kvcl_dev_offer_t offers[SIZE];

static void reset(void)
{
    unsigned i;

    for (i = 0; i < SIZE; ++i) {
        offers[i] = (kvcl_dev_offer_t){.args = 7, .live = 3, .nccl = 22809};
        offers[i].gpu[0]  = (char)('a' + (i % 2));
        offers[i].host[0] = (uint8_t)(i / 2); /* the same addresses on two hosts */
    }
}

static kvcl_dev_way_t way(void)
{
    kvcl_dev_way_t first = KVCL_DEV_BY_HOST, other;
    uint32_t       me;

    for (me = 0; me < SIZE; ++me) {
        ck_assert_int_eq(kvcl_dev_decide(offers, SIZE, me, NULL, "call", &other), KVCL_OK);
        ck_assert(me == 0 || other == first); /* all ranks decide alike */
        first = other;
    }
    return first;
}

START_TEST(one_rank_against_nccl_is_enough)
{
    unsigned i;

    for (i = 0; i < SIZE; ++i) {
        reset();
        ck_assert_int_eq(way(), KVCL_DEV_BY_NCCL);
        offers[i].live = 4;
        ck_assert_int_eq(way(), KVCL_DEV_BY_NEW_NCCL);
        offers[i].live = 0;
        ck_assert_int_eq(way(), KVCL_DEV_BY_NEW_NCCL);
        offers[i].nccl = 22808;
        ck_assert_int_eq(way(), KVCL_DEV_BY_HOST);
        offers[i].nccl = 0;
        ck_assert_int_eq(way(), KVCL_DEV_BY_HOST);
    }
    reset();
    for (i = 0; i < SIZE; ++i) {
        offers[i].live = 0;
    }
    ck_assert_int_eq(way(), KVCL_DEV_BY_NEW_NCCL);
    for (i = 0; i < SIZE; ++i) {
        offers[i].nccl = 0;
    }
    ck_assert_int_eq(way(), KVCL_DEV_BY_HOST);
}
END_TEST

START_TEST(two_ranks_with_one_gpu_go_by_the_host)
{
    reset();
    offers[3].gpu[0] = offers[2].gpu[0];
    ck_assert_int_eq(way(), KVCL_DEV_BY_HOST);
    offers[3].host[0] = 9;
    ck_assert_int_eq(way(), KVCL_DEV_BY_NCCL);
}
END_TEST

START_TEST(other_arguments_are_refused_by_name)
{
    kvcl_dev_way_t any;

    reset();
    offers[2].args = 8;
    ck_assert_int_eq(kvcl_dev_decide(offers, SIZE, 0, NULL, "call", &any), KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "rank 2"));
}
END_TEST

START_TEST(lengths_are_compared_in_pairs)
{
    const size_t   each = kvcl_dev_offer_bytes(SIZE, 1);
    char           *all = calloc(SIZE, each);
    uint64_t       takes[SIZE] = {1, 2, 3, 4}, gives;
    kvcl_dev_way_t any;
    uint32_t       i;

    reset();
    ck_assert_uint_eq(each, sizeof(kvcl_dev_offer_t) + SIZE * sizeof(uint64_t));
    for (i = 0; i < SIZE; ++i) {
        gives = i + 1;
        memcpy(all + i * each, &offers[i], sizeof(offers[i]));
        memcpy(all + i * each + sizeof(offers[i]) + 1 * sizeof(gives), &gives, sizeof(gives)); /* to rank 1 */
    }
    ck_assert_int_eq(kvcl_dev_decide(all, SIZE, 1, takes, "call", &any), KVCL_OK);
    ck_assert_int_eq(any, KVCL_DEV_BY_NCCL);
    takes[3] = 5;
    ck_assert_int_eq(kvcl_dev_decide(all, SIZE, 1, takes, "call", &any), KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "rank 3 gives 4 bytes to rank 1, which expects 5"));
    free(all);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("offers");
    Suite *suite = suite_create("devcoll");

    tcase_add_test(tcase, one_rank_against_nccl_is_enough);
    tcase_add_test(tcase, two_ranks_with_one_gpu_go_by_the_host);
    tcase_add_test(tcase, other_arguments_are_refused_by_name);
    tcase_add_test(tcase, lengths_are_compared_in_pairs);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
