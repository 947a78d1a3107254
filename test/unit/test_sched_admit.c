/*
 * Admission: the paper's three, and KVCL's; what waits ahead in a queue by deadline; requests that are followed.
 */
#include "sched_scene.h"
#include "base/rand.h"

#include <stdlib.h>
#include <time.h>

static uint32_t late(scene_t *scene)
{
    ck_assert_int_eq(kvcl_sched_decode(scene->sched, scene->now, &scene->req, scene->out.prefill, scene->out.decode,
                                       scene->inst, sizeof(scene->inst[0]), scene->n, &scene->out), KVCL_OK);
    return scene->out.verdict;
}

static uint32_t verdict(scene_t *scene)
{
    (void)scene_decide(scene);
    return scene->out.verdict;
}

START_TEST(baseline_judges_ttft_early_and_tbt_late)
{
    scene_t scene;

    scene_open(&scene, "prefill=local,admit=baseline", 1);
    scene.req.ttft_s = 0.9;
    ck_assert_uint_eq(verdict(&scene), KVCL_SCHED_REFUSE); /* 1 s */
    ck_assert_uint_eq(scene.out.reason, KVCL_SCHED_REASON_TTFT);
    ck_assert(scene.out.retry_s >= 0.5);
    scene.req.ttft_s      = 1.1;
    scene.req.tbt_s       = 0.05;
    scene.inst[0].running = 50; /* 0.01 + 0.051 + 0.001 */
    ck_assert_uint_eq(verdict(&scene), KVCL_SCHED_GO);
    ck_assert_uint_eq(late(&scene), KVCL_SCHED_REFUSE);
    ck_assert_uint_eq(scene.out.reason, KVCL_SCHED_REASON_TBT);
    scene_close(&scene);
}
END_TEST

START_TEST(early_rejection_judges_both_at_arrival)
{
    scene_t scene;

    scene_open(&scene, "prefill=local,admit=er", 1);
    scene.req.tbt_s       = 0.05;
    scene.inst[0].running = 50;
    ck_assert_uint_eq(verdict(&scene), KVCL_SCHED_REFUSE);
    ck_assert_uint_eq(scene.out.reason, KVCL_SCHED_REASON_TBT);
    scene.inst[0].running        = 30;
    scene.inst[0].pending        = 40; /* still prefilled: no load of now */
    scene.inst[0].pending_tokens = 40000;
    ck_assert_uint_eq(verdict(&scene), KVCL_SCHED_GO);
    ck_assert_uint_eq(late(&scene), KVCL_SCHED_GO);
    scene.inst[0].running = 50;
    ck_assert_uint_eq(late(&scene), KVCL_SCHED_REFUSE);
    scene_close(&scene);
}
END_TEST

START_TEST(a_request_that_is_pending_is_not_counted_twice)
{
    scene_t scene;

    scene_open(&scene, "prefill=local,admit=er", 1);
    scene.req.tbt_s       = 0.0120001; /* 0.01 + 0.001 for it alone, and its context */
    scene.req.tokens      = 900;
    ck_assert_uint_eq(verdict(&scene), KVCL_SCHED_REFUSE); /* 1028 tokens */
    scene.req.tbt_s = 0.0121;
    ck_assert_uint_eq(verdict(&scene), KVCL_SCHED_GO);
    scene.inst[0].pending        = 1;
    scene.inst[0].pending_tokens = 900;
    ck_assert_uint_eq(late(&scene), KVCL_SCHED_GO);
    scene.inst[0].pending = 0;
    scene.inst[0].running = 1; /* another one */
    ck_assert_uint_eq(late(&scene), KVCL_SCHED_REFUSE);
    scene_close(&scene);
}
END_TEST

START_TEST(prediction_counts_those_that_will_decode_then)
{
    scene_t scene;
    int     i;

    scene_open(&scene, "prefill=local,admit=erp:td=10", 1);
    scene.req.tbt_s = 0.05;
    for (i = 0; i < 50; ++i) { /* placed now, they decode from second 1 to 11 */
        scene.req.id = (uint64_t)i + 1;
        (void)verdict(&scene);
    }
    ck_assert_uint_eq(scene.out.verdict, KVCL_SCHED_REFUSE); /* the report shows none of them running */
    ck_assert_uint_eq(scene.out.reason, KVCL_SCHED_REASON_TBT);
    scene.now           = 9.5;
    scene.req.arrival_s = 9.5;
    scene.req.id        = 100;
    ck_assert_uint_eq(verdict(&scene), KVCL_SCHED_REFUSE); /* at 10.5 they still decode */
    scene.now           = 11;
    scene.req.arrival_s = 11;
    scene.inst[0].running = 30; /* not their load of now counts, but that of second 12 */
    ck_assert_uint_eq(verdict(&scene), KVCL_SCHED_GO);
    scene_close(&scene);
}
END_TEST

static const char no_bound[] = "kvcl-model 1\nname x\nsource y\nprefill 0 0.001 0 0\ndecode 0.01 0.001 1e-6\n"
                               "kv_bytes 1000\nnic 1e6\n";

START_TEST(without_an_error_bound_nobody_is_refused)
{
    static const char *const policies[] = {"admit=baseline", "admit=er", "admit=erp", "admit=kvcl"};
    scene_t                  scene;
    size_t                   i;

    for (i = 0; i < sizeof(policies) / sizeof(policies[0]); ++i) {
        scene_open_model(&scene, policies[i], 2, no_bound);
        scene.req.ttft_s      = 0.001;
        scene.req.tbt_s       = 1e-6;
        scene.inst[0].queue_s = scene.inst[1].queue_s = 1000;
        ck_assert_uint_eq(verdict(&scene), KVCL_SCHED_GO);
        ck_assert_uint_eq(late(&scene), KVCL_SCHED_GO);
        scene_close(&scene);
    }
}
END_TEST

START_TEST(kvcl_refuses_at_the_optimistic_end_only)
{
    scene_t scene;

    scene_open(&scene, "prefill=local,admit=kvcl", 1);
    scene.req.ttft_s = 0.96; /* 1 s, 5% error: 0.952 is possible */
    ck_assert_uint_eq(verdict(&scene), KVCL_SCHED_GO);
    scene.req.ttft_s = 0.95;
    ck_assert_uint_eq(verdict(&scene), KVCL_SCHED_REFUSE);
    ck_assert_uint_eq(scene.out.reason, KVCL_SCHED_REASON_TTFT);
    scene.req.ttft_s       = 0;
    scene.inst[0].kv_total = 1000; /* 1,000 tokens, and none of output */
    scene.inst[0].kv_free  = 1000;
    ck_assert_uint_eq(verdict(&scene), KVCL_SCHED_REFUSE);
    ck_assert_uint_eq(scene.out.reason, KVCL_SCHED_REASON_NO_ROOM);
    scene.inst[0].kv_total = 1001;
    ck_assert_uint_eq(verdict(&scene), KVCL_SCHED_GO);
    scene.req.output_tokens = 200; /* the caller expects them */
    ck_assert_uint_eq(verdict(&scene), KVCL_SCHED_REFUSE);
    ck_assert_uint_eq(scene.out.reason, KVCL_SCHED_REASON_NO_ROOM);
    scene.req.output_max = 1;
    ck_assert_uint_eq(verdict(&scene), KVCL_SCHED_GO);
    scene_close(&scene);
}
END_TEST

START_TEST(a_guess_of_the_output_refuses_no_prompt_that_fits)
{
    kvcl_sched_measured_t m = KVCL_SCHED_MEASURED_INIT;
    scene_t               scene;
    int                   i;

    scene_open(&scene, "admit=kvcl", 1);
    scene.inst[0].kv_total = 1200;
    scene.inst[0].kv_free  = 1200;
    ck_assert_uint_eq(verdict(&scene), KVCL_SCHED_GO); /* not 256 of output, as is guessed */
    m.output_tokens = 5000;
    for (i = 0; i < 20; ++i) {
        ck_assert_int_eq(kvcl_sched_finished(scene.sched, 0, &m), KVCL_OK);
    }
    ck_assert_uint_eq(verdict(&scene), KVCL_SCHED_GO); /* nor 5,000, as others of the class had */
    scene_close(&scene);
}
END_TEST

START_TEST(under_overload_the_dear_are_refused_and_later_nobody)
{
    scene_t scene;
    int     i, refused = 0;

    scene_open(&scene, "prefill=local,admit=kvcl:full=0.7", 2);
    scene.req.ttft_s = 10;
    scene_hold(&scene, 0, 0, 0);
    for (i = 0; i < 400; ++i) {
        scene.inst[0].queue_s = scene.inst[1].queue_s = 8;
        scene.req.id          = (uint64_t)i + 1;
        refused              += (verdict(&scene) == KVCL_SCHED_REFUSE) ? 1 : 0;
    }
    ck_assert_int_gt(refused, 100);
    ck_assert_uint_eq(scene.out.reason, KVCL_SCHED_REASON_WORTH);
    scene.hold[0].blocks = 9; /* it costs a tenth, and is worth the same */
    ck_assert_uint_eq(verdict(&scene), KVCL_SCHED_GO);
    scene.hold[0].blocks = 0;
    scene.req.weight     = 1e6;
    ck_assert_uint_eq(verdict(&scene), KVCL_SCHED_GO);
    scene.req.weight      = 0;
    scene.inst[0].queue_s = scene.inst[1].queue_s = 0;
    ck_assert_uint_eq(verdict(&scene), KVCL_SCHED_GO); /* at once, whatever the price was */
    scene_close(&scene);
}
END_TEST

START_TEST(by_deadline_only_earlier_ones_are_ahead)
{
    scene_t scene;

    scene_open(&scene, "prefill=local,queue=edf", 1);
    scene.req.ttft_s = 20;
    (void)scene_decide(&scene);
    scene.req.id          = 2;
    scene.req.ttft_s      = 5;
    scene.inst[0].queue_s = 1; /* the first one */
    (void)scene_decide(&scene);
    scene_near(scene.out.times.queue_s, 0);
    scene.req.id          = 3;
    scene.req.ttft_s      = 10;
    scene.inst[0].queue_s = 2.5; /* both, and half a second of another's */
    (void)scene_decide(&scene);
    scene_near(scene.out.times.queue_s, 1.5);
    scene_close(&scene);
    scene_open(&scene, "prefill=local,queue=sjf", 1);
    (void)scene_decide(&scene);
    scene.req.id          = 2;
    scene.req.tokens      = 500;
    scene.inst[0].queue_s = 1;
    (void)scene_decide(&scene);
    scene_near(scene.out.times.queue_s, 0);
    scene_close(&scene);
}
END_TEST

START_TEST(an_idle_cluster_refuses_nobody_that_it_can_serve)
{
    const char  *text = getenv("TEST_SEED");
    uint64_t    seed  = (text != NULL) ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
    scene_t     scene;
    kvcl_rand_t rnd;
    int         i;

    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    kvcl_rand_seed(&rnd, seed);
    scene_open(&scene, "admit=kvcl,queue=edf", 4);
    for (i = 0; i < 5000; ++i) {
        scene.now             += 10;
        scene.req.arrival_s    = scene.now;
        scene.req.id           = (uint64_t)i + 1;
        scene.req.tokens       = 1 + kvcl_rand_below(&rnd, 5000);
        scene.req.n_keys       = (scene.req.tokens + 99) / 100;
        scene.req.output_tokens = kvcl_rand_below(&rnd, 3000);
        scene.req.ttft_s       = 0.001 * (double)scene.req.tokens * 1.01 + (1.1 * (double)scene.req.tokens * 0.001);
        scene.req.tbt_s        = 0.1;
        ck_assert_uint_eq(verdict(&scene), KVCL_SCHED_GO);
        kvcl_sched_measured_t m = KVCL_SCHED_MEASURED_INIT;
        m.id = scene.req.id;
        ck_assert_int_eq(kvcl_sched_finished(scene.sched, scene.now + 5, &m), KVCL_OK);
    }
    scene_close(&scene);
}
END_TEST

START_TEST(an_instance_that_has_gone_takes_its_requests_along)
{
    scene_t scene;
    int     i;

    scene_open(&scene, "prefill=local,admit=erp", 1);
    scene.req.tbt_s = 0.05;
    for (i = 0; i < 50; ++i) {
        scene.req.id = (uint64_t)i + 1;
        (void)verdict(&scene);
    }
    ck_assert_uint_eq(scene.out.verdict, KVCL_SCHED_REFUSE);
    ck_assert_int_eq(kvcl_sched_gone(scene.sched, 0, 0), KVCL_OK);
    ck_assert_uint_eq(verdict(&scene), KVCL_SCHED_GO);
    scene_close(&scene);
}
END_TEST

/* As many requests as are taken, prefilled on 0, to decode on 1. @return how many. */
static uint64_t open_handed(scene_t *scene)
{
    scene_open(scene, "prefill=local,admit=erp:td=1000", 3);
    scene->inst[0].role    = KVCL_SCHED_PREFILL;
    scene->inst[1].role    = KVCL_SCHED_DECODE;
    scene->inst[2].role    = KVCL_SCHED_DECODE;
    scene->inst[2].running = 1; /* so all go to 1 */
    scene->req.tbt_s       = 0.05;
    for (scene->req.id = 1; verdict(scene) == KVCL_SCHED_GO; ++scene->req.id) {
        ck_assert_uint_eq(scene->out.decode, 1);
        ck_assert_uint_lt(scene->req.id, 1000);
    }
    ck_assert_uint_gt(scene->req.id, 4);
    return scene->req.id - 1;
}

START_TEST(requests_of_a_decode_instance_that_has_gone_are_placed_again)
{
    kvcl_sched_measured_t m = KVCL_SCHED_MEASURED_INIT;
    scene_t               scene;
    const uint64_t        n = open_handed(&scene);

    for (m.id = 1; m.id <= n; ++m.id) {
        ck_assert_int_eq(kvcl_sched_prefill_done(scene.sched, 1, &m), KVCL_OK);
    }
    scene.now = 1;
    ck_assert_int_eq(kvcl_sched_gone(scene.sched, 1, 1), KVCL_OK);
    scene.inst[1] = scene.inst[2];
    scene.n       = 2;
    scene.req.flags = KVCL_SCHED_DRY;
    ck_assert_uint_eq(verdict(&scene), KVCL_SCHED_GO); /* none is followed */
    scene.req.flags = 0;
    for (scene.req.id = 1; scene.req.id <= n; ++scene.req.id) {
        ck_assert_int_eq(kvcl_sched_decode(scene.sched, 1, &scene.req, 0, 1, scene.inst, sizeof(scene.inst[0]), scene.n,
                                           &scene.out), KVCL_OK);
        ck_assert_uint_eq(scene.out.verdict, KVCL_SCHED_GO);
        ck_assert_uint_eq(scene.out.decode, 2);
    }
    ck_assert_uint_eq(verdict(&scene), KVCL_SCHED_REFUSE); /* all are */
    scene_close(&scene);
}
END_TEST

START_TEST(requests_that_prefill_elsewhere_outlive_their_decode_instance)
{
    scene_t scene;

    (void)open_handed(&scene);
    ck_assert_int_eq(kvcl_sched_gone(scene.sched, 0, 1), KVCL_OK);
    scene.inst[1] = scene.inst[2];
    scene.n       = 2;
    ck_assert_uint_eq(verdict(&scene), KVCL_SCHED_REFUSE);
    scene_close(&scene);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("admission");
    TCase *tcase = tcase_create("admission");

    tcase_add_test(tcase, baseline_judges_ttft_early_and_tbt_late);
    tcase_add_test(tcase, early_rejection_judges_both_at_arrival);
    tcase_add_test(tcase, a_request_that_is_pending_is_not_counted_twice);
    tcase_add_test(tcase, prediction_counts_those_that_will_decode_then);
    tcase_add_test(tcase, without_an_error_bound_nobody_is_refused);
    tcase_add_test(tcase, kvcl_refuses_at_the_optimistic_end_only);
    tcase_add_test(tcase, a_guess_of_the_output_refuses_no_prompt_that_fits);
    tcase_add_test(tcase, under_overload_the_dear_are_refused_and_later_nobody);
    tcase_add_test(tcase, by_deadline_only_earlier_ones_are_ahead);
    tcase_add_test(tcase, an_idle_cluster_refuses_nobody_that_it_can_serve);
    tcase_add_test(tcase, an_instance_that_has_gone_takes_its_requests_along);
    tcase_add_test(tcase, requests_of_a_decode_instance_that_has_gone_are_placed_again);
    tcase_add_test(tcase, requests_that_prefill_elsewhere_outlive_their_decode_instance);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
