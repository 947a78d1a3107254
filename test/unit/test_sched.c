/*
 * Decisions of the scheduler, apart from its policies: policy strings, what is left out, what is predicted, feedback.
 */
#include "sched_scene.h"

#include <math.h>

static void refuses(const char *policy, const char *words)
{
    kvcl_sched_model_h model = NULL;
    kvcl_sched_h       sched = NULL;

    ck_assert_int_eq(kvcl_sched_model_parse("m", scene_round, strlen(scene_round), &model), KVCL_OK);
    ck_assert_int_eq(kvcl_sched_create(policy, &model, 1, NULL, &sched), KVCL_ERR_INVALID_PARAM);
    ck_assert_msg(strstr(kvcl_last_error(), words) != NULL, "\"%s\" has no \"%s\"", kvcl_last_error(), words);
    kvcl_sched_model_free(model);
}

START_TEST(a_bad_policy_is_refused_with_its_column_and_the_nearest_name)
{
    refuses("prefil=load", "column 1: one of prefill=, decode=, admit=, queue= is expected at \"prefil=load\", is it "
            "prefill?");
    refuses("prefill=laod", "column 9: no such policy at \"laod\", is it load?");
    refuses("prefill=load,queue=fcsf", "column 20: no such policy at \"fcsf\", is it fcfs?");
    refuses("prefill=load,prefill=rr", "column 14: this occurs twice");
    refuses("prefill=load,", "column 14: something must follow");
    refuses("prefill=load:x=1", "column 14: the policy has no such key");
    refuses("prefill", "column 1");
}
END_TEST

START_TEST(every_policy_can_be_chosen_by_its_name)
{
    const char *name, *kind, *desc, *source;
    char       text[128];
    scene_t    scene;
    size_t     i;

    for (i = 0; kvcl_sched_policies(i, &name, &kind, &desc, &source) == KVCL_OK; ++i) {
        (void)snprintf(text, sizeof(text), "%s=%s", kind, name);
        scene_open(&scene, text, 4);
        ck_assert_uint_lt(scene_decide(&scene), 4);
        ck_assert((desc[0] != '\0') && (source[0] != '\0'));
        scene_close(&scene);
    }
    ck_assert_uint_gt(i, 5);
}
END_TEST

START_TEST(the_parts_of_a_prediction_are_computed_by_hand)
{
    scene_t scene;
    char    text[2048];

    scene_open(&scene, "prefill=load", 2);
    scene.inst[0].queue_s = 3;
    scene.inst[1].queue_s = 2;
    scene.inst[1].role    = KVCL_SCHED_PREFILL;
    scene.req.arrival_s   = 1;
    scene.now             = 1.5;
    scene_hold(&scene, 1, 0, 4);
    ck_assert_uint_eq(scene_decide(&scene), 1);
    ck_assert_uint_eq(scene.out.verdict, KVCL_SCHED_GO);
    ck_assert_uint_eq(scene.out.decode, 0);
    scene_near(scene.out.times.waited_s, 0.5);
    scene_near(scene.out.times.queue_s, 2);
    scene_near(scene.out.times.prefill_s, 0.6);
    scene_near(scene.out.times.handover_s, 1 - 0.6); /* 1e6 bytes at 1e6 bytes/s, beside the prefill */
    scene_near(scene.out.times.ttft_s, 0.5 + 2 + 0.6 + 0.4);
    scene_near(scene.out.times.error, 0.05);
    scene_near(scene.out.busy_s, 0.6);
    scene_near(scene.out.tbt_s, 0.01 + 0.001 + (1e-6 * (1000 + 128)));
    ck_assert_uint_eq(scene.out.there_tokens, 400);
    ck_assert_uint_eq(scene.out.compute_tokens, 600);
    ck_assert_uint_eq(scene.out.n_runs, 2);
    ck_assert_uint_eq(scene.out.runs[0].plan, KVCL_SCHED_THERE);
    ck_assert_uint_eq(scene.out.runs[0].blocks, 4);
    ck_assert_uint_eq(scene.out.runs[1].plan, KVCL_SCHED_COMPUTE);
    ck_assert_uint_eq(scene.out.runs[1].first, 4);
    ck_assert_uint_eq(scene.out.runner_up, 0);
    (void)kvcl_sched_describe(&scene.out, text, sizeof(text));
    ck_assert_msg(strstr(text, "runner-up 0: a longer queue") != NULL, "%s", text);
    ck_assert_uint_eq(strlen(kvcl_sched_describe(&scene.out, text, 10)), 9);
    scene_close(&scene);
}
END_TEST

START_TEST(runs_in_any_order_make_one_leading_run)
{
    scene_t scene;

    scene_open(&scene, "prefill=load", 1);
    scene_hold(&scene, 0, 6, 2);
    scene_hold(&scene, 0, 3, 3);
    scene_hold(&scene, 0, 9, 1);
    scene_hold(&scene, 0, 0, 3);
    scene_hold(&scene, 9, 0, 10);            /* an unknown instance */
    scene_hold(&scene, 5000, 0, 10);         /* an impossible one */
    scene_hold(&scene, 0, UINT32_MAX, UINT32_MAX);
    (void)scene_decide(&scene);
    ck_assert_uint_eq(scene.out.there_tokens, 800);
    scene_close(&scene);
}
END_TEST

START_TEST(reports_that_contradict_themselves_are_left_out_and_counted)
{
    scene_t scene;

    scene_open(&scene, "prefill=load", 8);
    scene.inst[0].queue_s  = -1;
    scene.inst[1].queue_s  = (double)NAN;
    scene.inst[2].queue_s  = 1e30;
    scene.inst[3].kv_total = 5;
    scene.inst[3].kv_free  = 6;
    scene.inst[4].id       = 64;
    scene.inst[5].model    = 1;
    scene.inst[6].queue_s  = 5;
    scene.inst[7].id       = 6; /* twice */
    scene.inst[4].nic_bytes_s = 1e-300;
    ck_assert_uint_eq(scene_decide(&scene), 6);
    ck_assert_uint_eq(scene.out.left_out, 7);
    ck_assert_uint_eq(scene.out.reason, KVCL_SCHED_REASON_ONLY);
    scene_close(&scene);
}
END_TEST

START_TEST(nobody_to_ask_is_a_wait_and_draining_instances_are_nobody)
{
    scene_t scene;

    scene_open(&scene, "prefill=load", 0);
    (void)scene_decide(&scene);
    ck_assert_uint_eq(scene.out.verdict, KVCL_SCHED_WAIT);
    ck_assert_uint_eq(scene.out.reason, KVCL_SCHED_REASON_NO_CANDIDATE);
    ck_assert(scene.out.retry_s > 0);
    scene_close(&scene);
    scene_open(&scene, "prefill=load", 1);
    scene.inst[0].flags = KVCL_SCHED_DRAINING;
    ck_assert_uint_eq(scene_decide(&scene), KVCL_SCHED_NONE);
    scene_close(&scene);
}
END_TEST

START_TEST(without_predictions_it_is_least_load_and_says_so)
{
    scene_t scene;

    scene_open_model(&scene, "prefill=load", 3, "kvcl-model 1\nname x\nsource y\nprefill_prefix 0 1\n"
                     "prefill_row 0 0 0\nprefill_row 1 0 0\n");
    scene.inst[0].queue_s = 2;
    scene.inst[1].queue_s = 1;
    scene.inst[2].queue_s = 3;
    ck_assert_uint_eq(scene_decide(&scene), 1);
    ck_assert_uint_eq(scene.out.reason, KVCL_SCHED_REASON_FALLBACK);
    ck_assert(scene.out.times.ttft_s < 0);
    scene_close(&scene);
}
END_TEST

START_TEST(a_bad_request_is_refused)
{
    scene_t scene;

    scene_open(&scene, "prefill=load", 1);
    scene.req.tokens = 0;
    ck_assert_int_eq(kvcl_sched_decide(scene.sched, 0, &scene.req, scene.inst, sizeof(scene.inst[0]), 1, NULL, 0,
                                       &scene.out), KVCL_ERR_INVALID_PARAM);
    scene.req.tokens = 10;
    scene.req.ttft_s = (double)NAN;
    ck_assert_int_eq(kvcl_sched_decide(scene.sched, 0, &scene.req, scene.inst, sizeof(scene.inst[0]), 1, NULL, 0,
                                       &scene.out), KVCL_ERR_INVALID_PARAM);
    scene.req.ttft_s = 0;
    ck_assert_int_eq(kvcl_sched_decide(scene.sched, 0, &scene.req, scene.inst, 8, 1, NULL, 0, &scene.out),
                     KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_sched_decide(scene.sched, 0, &scene.req, scene.inst, sizeof(scene.inst[0]), 65, NULL, 0,
                                       &scene.out), KVCL_ERR_INVALID_PARAM);
    scene_close(&scene);
    ck_assert_int_eq(kvcl_sched_decide(scene.sched, 0, &scene.req, scene.inst, sizeof(scene.inst[0]), 1, NULL, 0,
                                       &scene.out), KVCL_ERR_DEAD_HANDLE);
}
END_TEST

START_TEST(a_slow_instance_is_learnt)
{
    kvcl_sched_measured_t m = KVCL_SCHED_MEASURED_INIT;
    scene_t               scene;
    int                   i;

    scene_open(&scene, "prefill=load", 1);
    m.prefill   = 0;
    m.tokens    = 1000;
    m.prefill_s = 2; /* the model says 1 */
    for (i = 0; i < 200; ++i) {
        ck_assert_int_eq(kvcl_sched_prefill_done(scene.sched, i, &m), KVCL_OK);
    }
    (void)scene_decide(&scene);
    scene_near(scene.out.times.prefill_s, 2);
    ck_assert((scene.out.times.error > 0) && (scene.out.times.error < 0.05));
    ck_assert_int_eq(kvcl_sched_gone(scene.sched, 0, 0), KVCL_OK);
    (void)scene_decide(&scene);
    scene_near(scene.out.times.prefill_s, 1);
    scene_close(&scene);
}
END_TEST

START_TEST(slow_fetches_and_wrong_totals_are_learnt)
{
    kvcl_sched_measured_t m = KVCL_SCHED_MEASURED_INIT;
    scene_t               scene;
    int                   i;

    scene_open(&scene, "prefill=kvcl:work=0:room=0", 2);
    scene.inst[0].nic_bytes_s = scene.inst[1].nic_bytes_s = 1e7;
    scene.inst[0].queue_s     = 5;
    scene_hold(&scene, 0, 0, 8);
    m.prefill      = 1;
    m.fetch_s      = 0.16; /* 0.08 s are predicted */
    m.ttft_s       = 1.5;
    m.ttft_guess_s = 1;
    for (i = 0; i < 200; ++i) {
        scene.req.id = (uint64_t)i + 1;
        ck_assert_uint_eq(scene_decide(&scene), 1);
        m.id = scene.req.id;
        ck_assert_int_eq(kvcl_sched_prefill_done(scene.sched, i, &m), KVCL_OK);
        ck_assert_int_eq(kvcl_sched_first_token(scene.sched, i, &m), KVCL_OK);
    }
    (void)scene_decide(&scene);
    scene_near(scene.out.times.fetch_s, 0.16);
    ck_assert(scene.out.times.error > 0.5);
    scene_close(&scene);
}
END_TEST

START_TEST(a_fetch_of_fewer_bytes_than_planned_is_learnt_by_its_bytes)
{
    kvcl_sched_measured_t m = KVCL_SCHED_MEASURED_INIT;
    scene_t               scene;
    int                   i;

    scene_open(&scene, "prefill=kvcl:work=0:room=0", 2);
    scene.inst[0].nic_bytes_s = scene.inst[1].nic_bytes_s = 1e7;
    scene.inst[0].queue_s     = 5;
    scene_hold(&scene, 0, 0, 8); /* 800,000 bytes, 0.08 s */
    m.prefill     = 1;
    m.fetch_s     = 0.06;
    m.fetch_bytes = 400000; /* the rest had been evicted: half as fast as predicted again */
    for (i = 0; i < 200; ++i) {
        scene.req.id = (uint64_t)i + 1;
        ck_assert_uint_eq(scene_decide(&scene), 1);
        m.id = scene.req.id;
        ck_assert_int_eq(kvcl_sched_prefill_done(scene.sched, i, &m), KVCL_OK);
    }
    (void)scene_decide(&scene);
    scene_near(scene.out.times.fetch_s, 0.12);
    scene_close(&scene);
}
END_TEST

START_TEST(lengths_of_outputs_are_learnt_by_class)
{
    kvcl_sched_measured_t m = KVCL_SCHED_MEASURED_INIT;
    scene_t               scene;
    int                   i;

    scene_open(&scene, "prefill=load", 1);
    (void)scene_decide(&scene);
    ck_assert_uint_eq(scene.out.output_tokens, 256);
    m.klass = 3;
    for (i = 0; i < 100; ++i) {
        m.output_tokens = (uint64_t)(i < 60 ? 1000 : 4000);
        ck_assert_int_eq(kvcl_sched_finished(scene.sched, i, &m), KVCL_OK);
    }
    scene.req.klass = 3;
    (void)scene_decide(&scene);
    ck_assert_uint_ge(scene.out.output_tokens, 1000);
    ck_assert_uint_le(scene.out.output_tokens, 1250); /* a bucket is at most a quarter wider */
    scene.req.output_max = 10;
    (void)scene_decide(&scene);
    ck_assert_uint_eq(scene.out.output_tokens, 10);
    scene_close(&scene);
}
END_TEST

START_TEST(ties_go_to_the_instance_with_less_work_of_late)
{
    scene_t  scene;
    unsigned seen = 0;
    int      i;

    scene_open(&scene, "prefill=load", 3);
    for (i = 0; i < 3; ++i) {
        seen |= 1u << scene_decide(&scene);
        scene.now += 0.001;
    }
    ck_assert_uint_eq(seen, 7);
    scene.req.flags = KVCL_SCHED_DRY;
    ck_assert_uint_eq(scene_decide(&scene), scene_decide(&scene));
    scene_close(&scene);
}
END_TEST

START_TEST(decode_goes_where_there_is_room_then_by_load_then_by_distance)
{
    scene_t scene;
    int     i;

    scene_open(&scene, "prefill=load", 4);
    scene.inst[0].role = KVCL_SCHED_PREFILL;
    for (i = 1; i < 4; ++i) {
        scene.inst[i].role     = KVCL_SCHED_DECODE;
        scene.inst[i].kv_total = 10000;
        scene.inst[i].kv_free  = 10000;
        scene.inst[i].running  = 4;
        scene.inst[i].rack     = 1;
    }
    scene.inst[1].kv_free = 1000; /* too little for 1,000 tokens and the output */
    scene.inst[1].running = 1;
    scene.inst[2].running = 5;
    (void)scene_decide(&scene);
    ck_assert_uint_eq(scene.out.decode, 3);
    scene.inst[2].running = 4;
    scene.inst[2].rack    = 0; /* that of the prefill */
    (void)scene_decide(&scene);
    ck_assert_uint_eq(scene.out.decode, 2);
    scene_close(&scene);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("decisions of the scheduler");
    TCase *tcase = tcase_create("decisions");

    tcase_add_test(tcase, a_bad_policy_is_refused_with_its_column_and_the_nearest_name);
    tcase_add_test(tcase, every_policy_can_be_chosen_by_its_name);
    tcase_add_test(tcase, the_parts_of_a_prediction_are_computed_by_hand);
    tcase_add_test(tcase, runs_in_any_order_make_one_leading_run);
    tcase_add_test(tcase, reports_that_contradict_themselves_are_left_out_and_counted);
    tcase_add_test(tcase, nobody_to_ask_is_a_wait_and_draining_instances_are_nobody);
    tcase_add_test(tcase, without_predictions_it_is_least_load_and_says_so);
    tcase_add_test(tcase, a_bad_request_is_refused);
    tcase_add_test(tcase, a_slow_instance_is_learnt);
    tcase_add_test(tcase, slow_fetches_and_wrong_totals_are_learnt);
    tcase_add_test(tcase, a_fetch_of_fewer_bytes_than_planned_is_learnt_by_its_bytes);
    tcase_add_test(tcase, lengths_of_outputs_are_learnt_by_class);
    tcase_add_test(tcase, ties_go_to_the_instance_with_less_work_of_late);
    tcase_add_test(tcase, decode_goes_where_there_is_room_then_by_load_then_by_distance);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
