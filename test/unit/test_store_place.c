/*
 * The placement of copies: different hosts first; shares by room; a rank that is new, or was emptied, does not get
 * everything.
 */
#include "policy/place.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 5, POOL = 1 << 20, BLOCK = 1 << 10 };

static kvcl_place_t places[RANKS];
static uint8_t      ok[RANKS];
static unsigned     chosen[RANKS];

static void setup(void)
{
    unsigned i;

    memset(chosen, 0, sizeof(chosen));
    for (i = 0; i < RANKS; ++i) {
        kvcl_place_init(&places[i], i, POOL);
        ok[i] = 1;
    }
}

static uint32_t choose(void)
{
    uint32_t i = kvcl_place_next(places, RANKS, ok, NULL, 0);

    ck_assert_uint_lt(i, RANKS);
    ++chosen[i];
    return i;
}

static void fill(unsigned rank)
{
    kvcl_place_took(&places[rank], POOL, 0);
}

START_TEST(hosts_that_fail_apart_come_first_and_the_others_if_there_is_none)
{
    uint64_t hosts[2] = {3, 4};
    unsigned i;

    places[0].host = places[1].host = 3;
    ok[2] = 0;
    for (i = 3; i < RANKS; ++i) {
        places[i].host = 4;
    }
    places[4].host = 9;
    for (i = 0; i < 10; ++i) {
        ck_assert_uint_eq(kvcl_place_next(places, RANKS, ok, hosts, 2), 4);
    }
    ok[4] = 0;
    ck_assert_uint_ne(kvcl_place_next(places, RANKS, ok, hosts, 2), 4);
    memset(ok, 0, sizeof(ok));
    ck_assert_uint_eq(kvcl_place_next(places, RANKS, ok, hosts, 2), UINT32_MAX);
}
END_TEST

START_TEST(equals_are_taken_in_turn)
{
    unsigned i;

    for (i = 0; i < 100 * RANKS; ++i) {
        (void)choose();
    }
    for (i = 0; i < RANKS; ++i) {
        ck_assert_uint_eq(chosen[i], 100);
    }
}
END_TEST

START_TEST(a_rank_with_room_gets_more_than_full_ones_but_not_all)
{
    unsigned i;

    for (i = 0; i < RANKS; ++i) {
        kvcl_place_took(&places[i], POOL, (i == 2) ? POOL : 0);
    }
    for (i = 0; i < 1200; ++i) {
        (void)choose();
    }
    for (i = 0; i < RANKS; ++i) {
        ck_assert_uint_eq(chosen[i], (i == 2) ? 100 * 8 : 100);
    }
}
END_TEST

START_TEST(an_emptied_rank_begins_with_little_more_than_its_share)
{
    uint64_t free_bytes = POOL;
    unsigned i, early = 0;
    uint32_t to;

    for (i = 0; i < RANKS; ++i) {
        fill(i);
    }
    kvcl_place_seen(&places[3], POOL); /* it has lost all its blocks */
    ck_assert_uint_eq(kvcl_place_weight(&places[3]), 2);
    for (i = 0; i < 900; ++i) {
        to = choose();
        early += ((to == 3) && (i < 30)) ? 1 : 0;
        free_bytes -= ((to == 3) && (free_bytes != 0)) ? BLOCK : 0;
        kvcl_place_took(&places[to], BLOCK, (to == 3) ? free_bytes : 0);
    }
    ck_assert_uint_le(early, 11);             /* a third, where the old rule assigned it all 30 */
    ck_assert_uint_gt(chosen[3], 900 * 4 / 10); /* later the room decides */
    ck_assert_uint_lt(chosen[3], 900 * 7 / 10);
}
END_TEST

START_TEST(a_rank_that_was_silent_begins_anew)
{
    kvcl_place_took(&places[0], POOL, POOL);
    ck_assert_uint_gt(kvcl_place_weight(&places[0]), 4);
    kvcl_place_restart(&places[0]);
    ck_assert_uint_eq(kvcl_place_weight(&places[0]), 2);
}
END_TEST

START_TEST(nonsense_from_a_rank_is_bounded)
{
    unsigned i;

    kvcl_place_took(&places[0], UINT64_MAX, UINT64_MAX);
    ck_assert_uint_le(kvcl_place_weight(&places[0]), 1 + KVCL_PLACE_POINTS);
    kvcl_place_init(&places[1], 1, 0);
    kvcl_place_took(&places[1], 5, 5);
    ck_assert_uint_eq(kvcl_place_weight(&places[1]), 1);
    for (i = 0; i < 1000; ++i) {
        (void)choose();
    }
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("store_place");
    TCase   *tc    = tcase_create("place");
    SRunner *runner;
    int     failed;

    tcase_add_checked_fixture(tc, setup, NULL);
    tcase_add_test(tc, hosts_that_fail_apart_come_first_and_the_others_if_there_is_none);
    tcase_add_test(tc, equals_are_taken_in_turn);
    tcase_add_test(tc, a_rank_with_room_gets_more_than_full_ones_but_not_all);
    tcase_add_test(tc, an_emptied_rank_begins_with_little_more_than_its_share);
    tcase_add_test(tc, a_rank_that_was_silent_begins_anew);
    tcase_add_test(tc, nonsense_from_a_rank_is_bounded);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
