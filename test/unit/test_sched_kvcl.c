/*
 * KVCL's placement: compute or fetch, the queue that hides a fetch, runs gathered from several holders, prices; choices
 * computed by hand, and never worse than trying every block.
 */
#include "sched_scene.h"
#include "base/rand.h"

#include <stdlib.h>
#include <time.h>

static void all_links(scene_t *scene, double bytes_s)
{
    size_t i;

    for (i = 0; i < scene->n; ++i) {
        scene->inst[i].nic_bytes_s = bytes_s;
    }
}

START_TEST(a_fetch_that_costs_more_than_computing_is_not_made)
{
    scene_t scene;

    scene_open(&scene, "prefill=kvcl:work=0:room=0", 2);
    all_links(&scene, 0.9e6); /* a block takes 0.11 s to fetch, 0.1 s to compute */
    scene_hold(&scene, 0, 0, 8);
    scene.inst[0].queue_s = 5;
    ck_assert_uint_eq(scene_decide(&scene), 1);
    ck_assert_uint_eq(scene.out.fetch_tokens, 0);
    scene_near(scene.out.times.ttft_s, 1);
    all_links(&scene, 1.1e6);
    ck_assert_uint_eq(scene_decide(&scene), 1);
    ck_assert_uint_eq(scene.out.fetch_tokens, 800);
    scene_close(&scene);
}
END_TEST

START_TEST(a_queue_hides_a_slow_fetch_up_to_its_end)
{
    scene_t scene;

    scene_open(&scene, "prefill=kvcl:work=0:room=0", 2);
    all_links(&scene, 0.5e6); /* 0.2 s a block */
    scene_hold(&scene, 0, 0, 8);
    scene.inst[0].queue_s = 5;
    scene.inst[1].queue_s = 0.65; /* hides three blocks */
    ck_assert_uint_eq(scene_decide(&scene), 1);
    ck_assert_uint_eq(scene.out.fetch_tokens, 300);
    ck_assert_uint_eq(scene.out.runs[0].plan, KVCL_SCHED_FETCH);
    ck_assert_uint_eq(scene.out.runs[0].blocks, 3);
    scene_near(scene.out.times.fetch_s, 0);
    scene_near(scene.out.times.ttft_s, 0.65 + 0.7);
    scene_near(scene.out.score, 0.65 + 0.7);
    scene_close(&scene);
}
END_TEST

START_TEST(runs_are_gathered_from_several_holders)
{
    scene_t scene;

    scene_open(&scene, "prefill=kvcl:holders=1:room=0", 4);
    all_links(&scene, 1e7);
    scene_hold(&scene, 0, 0, 4);
    scene_hold(&scene, 1, 3, 4);  /* 3..6 */
    scene_hold(&scene, 2, 6, 4);  /* 6..9 */
    scene.inst[0].queue_s = scene.inst[1].queue_s = scene.inst[2].queue_s = 9;
    ck_assert_uint_eq(scene_decide(&scene), 3);
    ck_assert_uint_eq(scene.out.fetch_tokens, 1000);
    ck_assert_uint_eq(scene.out.n_runs, 3);
    ck_assert_uint_eq(scene.out.runs[0].from, 0);
    ck_assert_uint_eq(scene.out.runs[1].from, 1);
    ck_assert_uint_eq(scene.out.runs[2].from, 2);
    ck_assert_uint_eq(scene.out.runs[2].first + scene.out.runs[2].blocks, 10);
    scene.hold[1].blocks = 2; /* a gap at 5: what is behind it is of no use */
    ck_assert_uint_eq(scene_decide(&scene), 3);
    ck_assert_uint_eq(scene.out.fetch_tokens, 500);
    scene_close(&scene);
}
END_TEST

START_TEST(a_run_behind_the_leading_one_is_not_fetched_again)
{
    scene_t scene;

    scene_open(&scene, "prefill=kvcl:room=0", 2);
    all_links(&scene, 1e7);
    scene_hold(&scene, 0, 0, 10);
    scene_hold(&scene, 1, 4, 3); /* 4..6 */
    scene.inst[0].queue_s = 9;
    ck_assert_uint_eq(scene_decide(&scene), 1);
    ck_assert_uint_eq(scene.out.n_runs, 3);
    ck_assert_uint_eq(scene.out.runs[1].plan, KVCL_SCHED_THERE);
    ck_assert_uint_eq(scene.out.runs[1].first, 4);
    ck_assert_uint_eq(scene.out.there_tokens, 300);
    ck_assert_uint_eq(scene.out.fetch_tokens, 700);
    scene_near(scene.out.times.fetch_s, 0.07);
    scene_close(&scene);
}
END_TEST

START_TEST(busy_senders_share_and_the_receiver_limits)
{
    scene_t scene;

    scene_open(&scene, "prefill=kvcl:price=0:room=0", 3);
    all_links(&scene, 1e7);
    scene_hold(&scene, 0, 0, 10);
    scene_hold(&scene, 1, 0, 10);
    scene.inst[0].queue_s = scene.inst[1].queue_s = 9;
    scene.inst[0].sends = scene.inst[1].sends = 1; /* half of each: both together fill the receiver */
    ck_assert_uint_eq(scene_decide(&scene), 2);
    ck_assert_uint_eq(scene.out.n_runs, 2);
    ck_assert_uint_eq(scene.out.runs[0].blocks, 5);
    ck_assert_uint_eq(scene.out.runs[0].n, 1);
    ck_assert_uint_eq(scene.out.runs[0].inst[0], scene.out.runs[1].from);
    scene_near(scene.out.times.fetch_s, 0.1);
    scene.inst[0].sends = 0; /* one is enough */
    ck_assert_uint_eq(scene_decide(&scene), 2);
    ck_assert_uint_eq(scene.out.n_runs, 1);
    ck_assert_uint_eq(scene.out.runs[0].from, 0);
    scene_near(scene.out.times.fetch_s, 0.1);
    scene_close(&scene);
}
END_TEST

START_TEST(a_price_for_the_sender_moves_the_choice)
{
    scene_t scene;

    scene_open(&scene, "prefill=kvcl:price=0:work=0:room=0", 2);
    all_links(&scene, 1e7);
    scene_hold(&scene, 0, 0, 9);
    scene.inst[0].queue_s = 0.62; /* 0.62 + 0.1, or a fetch of 0.09 x 5 and 0.1 */
    scene.inst[0].sends   = 4;
    ck_assert_uint_eq(scene_decide(&scene), 1);
    scene_close(&scene);
    scene_open(&scene, "prefill=kvcl:price=1:work=0:room=0", 2);
    all_links(&scene, 1e7);
    scene_hold(&scene, 0, 0, 9);
    scene.inst[0].queue_s = 0.62;
    scene.inst[0].sends   = 4; /* which 0.09 s of its link cost 0.36 s */
    ck_assert_uint_eq(scene_decide(&scene), 0);
    scene_close(&scene);
}
END_TEST

START_TEST(a_copy_costs_more_room_the_longer_the_queues)
{
    scene_t scene;

    scene_open(&scene, "prefill=kvcl:work=1:room=0.1:price=0", 2);
    all_links(&scene, 1e7);
    ck_assert_uint_eq(scene_decide(&scene), 0); /* a prefill of 1 s */
    scene_hold(&scene, 0, 0, 8);
    scene.inst[0].queue_s = 1;
    scene.inst[1].queue_s = 0.9; /* 1.95 times: 0.9 + (0.2 + 0.08) x 1.95 against 1 + 0.2 x 1.95 */
    ck_assert_uint_eq(scene_decide(&scene), 0);
    scene_near(scene.out.score, 1 + (0.2 * 1.95));
    scene_near(scene.out.runner_score, 0.9 + (0.28 * 1.95));
    scene.inst[0].queue_s = 1.2; /* 2.05 */
    ck_assert_uint_eq(scene_decide(&scene), 1);
    ck_assert_uint_eq(scene.out.fetch_tokens, 800);
    scene_close(&scene);
}
END_TEST

START_TEST(work_that_others_wait_for_moves_the_choice)
{
    scene_t scene;

    scene_open(&scene, "prefill=kvcl:work=0:room=0", 2);
    all_links(&scene, 1e3);
    scene_hold(&scene, 0, 0, 8);
    scene.inst[0].queue_s = 0.85; /* 0.85 + 0.2 against 0.01 + 1 */
    scene.inst[1].queue_s = 0.01;
    ck_assert_uint_eq(scene_decide(&scene), 1);
    scene_close(&scene);
    scene_open(&scene, "prefill=kvcl:work=1:room=0", 2);
    all_links(&scene, 1e3);
    ck_assert_uint_eq(scene_decide(&scene), 0); /* a prefill of 1 s */
    scene_near(scene.out.busy_s, 1);
    scene_hold(&scene, 0, 0, 8);
    scene.inst[0].queue_s = 0.85; /* 0.43 requests wait: 0.85 + 0.2 x 1.43 against 0.01 + 1.43 */
    scene.inst[1].queue_s = 0.01;
    ck_assert_uint_eq(scene_decide(&scene), 0);
    scene_near(scene.out.score, 0.85 + (0.2 * 1.43));
    scene_near(scene.out.runner_score, 0.01 + 1.43);
    scene_close(&scene);
}
END_TEST

START_TEST(a_copy_pays_for_its_room)
{
    scene_t scene;

    scene_open(&scene, "prefill=kvcl:work=0:room=0.8", 2);
    all_links(&scene, 1e7); /* a block: 0.01 s to fetch, and 0.08 s for its room, against 0.1 s */
    scene_hold(&scene, 0, 0, 8);
    scene.inst[0].queue_s = 5;
    ck_assert_uint_eq(scene_decide(&scene), 1);
    ck_assert_uint_eq(scene.out.fetch_tokens, 800);
    scene_near(scene.out.score, 0.08 + 0.64 + 0.2);
    scene_near(scene.out.times.ttft_s, 0.08 + 0.2); /* a price is no time */
    scene_close(&scene);
    scene_open(&scene, "prefill=kvcl:work=0:room=1", 2);
    all_links(&scene, 1e7);
    scene_hold(&scene, 0, 0, 8);
    scene.inst[0].queue_s = 5;
    ck_assert_uint_eq(scene_decide(&scene), 1);
    ck_assert_uint_eq(scene.out.fetch_tokens, 0);
    scene_close(&scene);
}
END_TEST

/* The least max(queue, fetch) + prefill over every instance and every block, with one holder at a time. */
static double reference(const scene_t *scene, const uint32_t *run, double rate)
{
    double   cost, fetch, queue, least = 1e18;
    uint32_t i, j, upto, longest = 0;

    for (i = 0; i < scene->n; ++i) {
        longest = (run[i] > longest) ? run[i] : longest;
    }
    for (i = 0; i < scene->n; ++i) {
        for (upto = run[i]; upto <= ((longest > run[i]) ? longest : run[i]); ++upto) {
            queue = scene->inst[i].queue_s;
            fetch = 0;
            for (j = run[i]; j < upto; ++j) {
                fetch += 1e5 / rate;
            }
            cost  = ((fetch > queue) ? fetch : queue) + ((upto == 10) ? 0.001 : 0.1 * (10 - upto));
            least = (cost < least) ? cost : least;
        }
    }
    return least;
}

START_TEST(no_block_and_instance_is_better)
{
    const char  *text = getenv("TEST_SEED");
    uint64_t    seed  = (text != NULL) ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
    scene_t     scene;
    kvcl_rand_t rnd;
    uint32_t    run[SCENE_INSTS], at;
    double      rate;
    int         round, i;

    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    kvcl_rand_seed(&rnd, seed);
    scene_open(&scene, "prefill=kvcl:work=0:price=0:room=0", SCENE_INSTS);
    scene.req.flags = KVCL_SCHED_DRY;
    for (round = 0; round < 20000; ++round) {
        rate          = 5e5 * (double)(1 + kvcl_rand_below(&rnd, 8));
        scene.n       = 1 + kvcl_rand_below(&rnd, SCENE_INSTS);
        scene.n_holds = 0;
        all_links(&scene, rate);
        for (i = 0; i < (int)scene.n; ++i) {
            scene.inst[i].queue_s = 0.001 * (double)kvcl_rand_below(&rnd, 2000);
            run[i]                = (uint32_t)kvcl_rand_below(&rnd, 11);
            scene_hold(&scene, (uint32_t)i, 0, run[i]);
        }
        (void)scene_decide(&scene);
        scene_near(scene.out.score, reference(&scene, run, rate));
        for (i = 0, at = 0; i < (int)scene.out.n_runs; ++i) { /* the runs are the prompt, in order */
            ck_assert_uint_eq(scene.out.runs[i].first, at);
            at += scene.out.runs[i].blocks;
        }
        ck_assert_uint_eq(at, 10);
    }
    scene_close(&scene);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("KVCL's placement");
    TCase *tcase = tcase_create("placement");

    tcase_add_test(tcase, a_fetch_that_costs_more_than_computing_is_not_made);
    tcase_add_test(tcase, a_queue_hides_a_slow_fetch_up_to_its_end);
    tcase_add_test(tcase, runs_are_gathered_from_several_holders);
    tcase_add_test(tcase, a_run_behind_the_leading_one_is_not_fetched_again);
    tcase_add_test(tcase, busy_senders_share_and_the_receiver_limits);
    tcase_add_test(tcase, a_price_for_the_sender_moves_the_choice);
    tcase_add_test(tcase, work_that_others_wait_for_moves_the_choice);
    tcase_add_test(tcase, a_copy_costs_more_room_the_longer_the_queues);
    tcase_add_test(tcase, a_copy_pays_for_its_room);
    tcase_add_test(tcase, no_block_and_instance_is_better);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
