/*
 * Peers' policies of placement, and those of decode: choices computed by hand.
 */
#include "sched_scene.h"

START_TEST(two_choices_take_the_shorter_queue)
{
    scene_t scene;
    int     i;

    scene_open(&scene, "prefill=p2c", 3);
    scene.inst[1].queue_s = 9; /* the longest is never taken, since one of the two drawn is shorter */
    scene.inst[0].queue_s = 1;
    for (i = 0; i < 100; ++i) {
        ck_assert_uint_ne(scene_decide(&scene), 1);
        ck_assert_uint_ne(scene.out.runner_up, scene.out.prefill);
    }
    scene_close(&scene);
    scene_open(&scene, "prefill=p2c", 1);
    ck_assert_uint_eq(scene_decide(&scene), 0);
    ck_assert_uint_eq(scene.out.runner_up, KVCL_SCHED_NONE);
    scene_close(&scene);
}
END_TEST

START_TEST(cache_aware_follows_a_long_match_unless_uneven)
{
    scene_t scene;

    scene_open(&scene, "prefill=cache_aware", 3);
    scene_hold(&scene, 1, 0, 4); /* 0.4 of the prompt */
    scene.inst[1].waiting = 60;
    ck_assert_uint_eq(scene_decide(&scene), 1);
    scene.inst[1].waiting = 65; /* 65 - 0 > 64, and > 1.5 x 0 */
    ck_assert_uint_ne(scene_decide(&scene), 1);
    scene.inst[0].running = scene.inst[2].running = 50; /* 65 - 50 is even */
    ck_assert_uint_eq(scene_decide(&scene), 1);
    scene.hold[0].blocks = 3; /* 0.3 is not above 0.3 */
    scene.inst[2].running = 49;
    ck_assert_uint_eq(scene_decide(&scene), 2);
    scene_close(&scene);
}
END_TEST

START_TEST(dynamo_adds_prefill_and_decode_blocks_with_credits_by_tier)
{
    scene_t scene;

    scene_open(&scene, "prefill=dynamo", 3);
    scene_hold(&scene, 0, 0, 8);           /* DRAM: 8 x 0.75 */
    scene_hold(&scene, 1, 0, 7);
    scene.hold[1].tier = 0;                /* device: 7 x 1 */
    scene.inst[2].context_tokens = 100;
    ck_assert_uint_eq(scene_decide(&scene), 1);
    scene_near(scene.out.score, 10 - 7);
    scene.inst[1].queued_tokens = 450;
    ck_assert_uint_eq(scene_decide(&scene), 0);
    scene_near(scene.out.score, 10 - 6);
    scene.inst[0].context_tokens = 800;
    ck_assert_uint_eq(scene_decide(&scene), 1);
    scene_near(scene.out.score, 10 - 7 + 4.5);
    ck_assert_uint_eq(scene.out.runner_up, 2);
    scene_near(scene.out.runner_score, 11);
    scene_close(&scene);
}
END_TEST

START_TEST(lmetric_multiplies_tokens_and_requests)
{
    scene_t scene;

    scene_open(&scene, "prefill=lmetric", 2);
    scene_hold(&scene, 0, 0, 6);
    scene.inst[0].running = 1; /* 400 x 2 against 1000 x 1 */
    ck_assert_uint_eq(scene_decide(&scene), 0);
    scene_near(scene.out.score, 800);
    scene.inst[0].running = 2;
    ck_assert_uint_eq(scene_decide(&scene), 1);
    scene_near(scene.out.score, 1000);
    scene_close(&scene);
}
END_TEST

START_TEST(preble_exploits_more_than_half_and_balances)
{
    scene_t scene;

    scene_open(&scene, "prefill=preble", 2);
    scene_hold(&scene, 0, 0, 6);
    scene.inst[0].past_s = 1.4;
    scene.inst[1].past_s = 1; /* 1.4 is within 1.5 x 1 */
    ck_assert_uint_eq(scene_decide(&scene), 0);
    scene_close(&scene);
    scene_open(&scene, "prefill=preble", 2);
    scene_hold(&scene, 0, 0, 6);
    scene.inst[0].past_s = 2.5;
    scene.inst[1].past_s = 1; /* 2.5 + 0.4 against 1 + 1 */
    ck_assert_uint_eq(scene_decide(&scene), 1);
    scene_close(&scene);
    scene_open(&scene, "prefill=preble", 2);
    scene_hold(&scene, 0, 0, 5); /* half is not more than half: the least cost */
    scene.inst[0].past_s = 0.9;
    ck_assert_uint_eq(scene_decide(&scene), 1);
    scene_close(&scene);
}
END_TEST

START_TEST(decode_in_turn_at_random_and_at_the_same_instance)
{
    scene_t  scene;
    unsigned seen = 0;
    uint32_t i;

    scene_open(&scene, "decode=rr", 4);
    for (i = 0; i < 8; ++i) {
        (void)scene_decide(&scene);
        ck_assert_uint_eq(scene.out.decode, i % 4);
    }
    scene_close(&scene);
    scene_open(&scene, "decode=random", 4);
    for (i = 0; i < 60; ++i) {
        (void)scene_decide(&scene);
        seen |= 1u << scene.out.decode;
    }
    ck_assert_uint_eq(seen, 15);
    scene_close(&scene);
    scene_open(&scene, "prefill=rr,decode=same", 4);
    scene.inst[2].role = KVCL_SCHED_PREFILL;
    for (i = 0; i < 4; ++i) {
        (void)scene_decide(&scene);
        ck_assert((scene.out.decode == scene.out.prefill) == (i != 2));
        ck_assert((scene.out.times.handover_s == 0) == (i != 2) || (i == 2));
    }
    scene_close(&scene);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("peers' policies");
    TCase *tcase = tcase_create("peers");

    tcase_add_test(tcase, two_choices_take_the_shorter_queue);
    tcase_add_test(tcase, cache_aware_follows_a_long_match_unless_uneven);
    tcase_add_test(tcase, dynamo_adds_prefill_and_decode_blocks_with_credits_by_tier);
    tcase_add_test(tcase, lmetric_multiplies_tokens_and_requests);
    tcase_add_test(tcase, preble_exploits_more_than_half_and_balances);
    tcase_add_test(tcase, decode_in_turn_at_random_and_at_the_same_instance);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
