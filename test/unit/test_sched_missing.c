/*
 * Decisions without all that a decision should know: models that predict nothing or state no error, and reports that
 * are old.
 */
#include "sched_scene.h"

#include <stdbool.h>

/* Its prefills take 0 s up to one token; nothing is known of longer ones. */
static const char unknown[] = "kvcl-model 1\nname x\nsource y\nprefill_prefix 0 1\nprefill_row 0 0 0\n"
                              "prefill_row 1 0 0\ndecode 0.01 0.001 1e-6\nkv_bytes 1000\nnic 1e6\n";

/* Does this policy compare predicted seconds? The others count requests, tokens or blocks, or draw. */
static bool is_timed(const char *name)
{
    return strstr(" load p2c preble local global kvcl ", name) != NULL;
}

/* Instance 2 has the least load, 1 the blocks; 3 would be chosen by the numbers of requests. */
static void open_uneven(scene_t *scene, const char *name, const char *model)
{
    char   policy[64];
    size_t i;

    (void)snprintf(policy, sizeof(policy), "prefill=%s", name);
    scene_open_model(scene, policy, 4, model);
    for (i = 0; i < 4; ++i) {
        scene->inst[i].queue_s  = 5;
        scene->inst[i].prefills = 4;
    }
    scene->inst[2].queue_s  = 1;
    scene->inst[3].prefills = 1;
    scene_hold(scene, 1, 0, 10);
}

START_TEST(a_policy_without_its_predictions_takes_the_least_load_and_says_so)
{
    const char *name, *kind;
    scene_t    scene, known;
    size_t     i;
    int        k, seen = 0;

    for (i = 0; kvcl_sched_policies(i, &name, &kind, NULL, NULL) == KVCL_OK; ++i) {
        if (strcmp(kind, "prefill") != 0) {
            continue;
        }
        open_uneven(&scene, name, unknown);
        open_uneven(&known, name, scene_round);
        for (k = 0; k < 20; ++k) {
            scene.req.id = known.req.id = (uint64_t)k + 1;
            (void)scene_decide(&scene);
            (void)scene_decide(&known);
            if (is_timed(name)) {
                ck_assert_msg(scene.out.prefill == 2, "%s: %u", name, scene.out.prefill);
                ck_assert_msg(scene.out.reason == KVCL_SCHED_REASON_FALLBACK, "%s: %u", name, scene.out.reason);
            } else { /* it needs none: as always, and it claims nothing else */
                ck_assert_msg(scene.out.prefill == known.out.prefill, "%s: %u", name, scene.out.prefill);
                ck_assert_msg(scene.out.reason == KVCL_SCHED_REASON_BEST, "%s: %u", name, scene.out.reason);
            }
            ck_assert_uint_eq(known.out.reason, KVCL_SCHED_REASON_BEST);
            ck_assert(scene.out.times.ttft_s < 0);
        }
        seen += is_timed(name) ? 1 : 0;
        scene_close(&scene);
        scene_close(&known);
    }
    ck_assert_int_eq(seen, 6);
}
END_TEST

#define NO_TRANSFER "kvcl-model 1\nname x\nsource y\nprefill 0 0.001 0 0\nprefill_error 0.05\n" \
                    "decode 0.01 0.001 1e-6\ndecode_error 0.05\nkv_bytes 1000\nnic 1e6\n"

static void verdict_is(scene_t *scene, double ttft_s, uint32_t verdict)
{
    scene->req.ttft_s = ttft_s;
    (void)scene_decide(scene);
    ck_assert_msg(scene->out.verdict == verdict, "%s, TTFT %g s (asked: %g), error %g",
                  kvcl_sched_verdict_name(scene->out.verdict), scene->out.times.ttft_s, ttft_s,
                  scene->out.times.error);
}

/* Instance 0 prefills, instance 1 decodes; 4 of 10 blocks are there, so that 0.4 s of the hand-over are left. */
static void open_handover(scene_t *scene, const char *policy, const char *model)
{
    scene_open_model(scene, policy, 2, model);
    scene->inst[0].role = KVCL_SCHED_PREFILL;
    scene->inst[1].role = KVCL_SCHED_DECODE;
    scene_hold(scene, 0, 0, 4);
}

START_TEST(transfers_without_an_error_bound_refuse_nobody)
{
    static const char *const admit[] = {"baseline", "er", "erp", "kvcl"};
    char                     policy[64];
    scene_t                  scene;
    size_t                   i;

    for (i = 0; i < sizeof(admit) / sizeof(admit[0]); ++i) {
        (void)snprintf(policy, sizeof(policy), "prefill=local,admit=%s", admit[i]);
        open_handover(&scene, policy, NO_TRANSFER);
        verdict_is(&scene, 0.5, KVCL_SCHED_GO); /* 0.6 + 0.4 s */
        scene_near(scene.out.times.handover_s, 0.4);
        ck_assert(scene.out.times.error < 0);
        scene.n_holds = 0; /* 1 s of prefill hides it all */
        verdict_is(&scene, 0.5, KVCL_SCHED_REFUSE);
        scene_near(scene.out.times.error, 0.05);
        scene_close(&scene);

        open_handover(&scene, policy, NO_TRANSFER "transfer_error 0.1\n");
        verdict_is(&scene, 0.5, KVCL_SCHED_REFUSE);
        scene_near(scene.out.times.error, 0.1);
        scene_close(&scene);

        (void)snprintf(policy, sizeof(policy), "prefill=global,admit=%s", admit[i]);
        scene_open_model(&scene, policy, 2, NO_TRANSFER);
        scene.inst[0].queue_s     = 0.5;
        scene.inst[0].nic_bytes_s = scene.inst[1].nic_bytes_s = 4e6;
        scene.inst[1].role        = 0; /* it only holds blocks: 0.2 s of fetch */
        scene_hold(&scene, 1, 0, 8);
        verdict_is(&scene, 0.6, KVCL_SCHED_REFUSE); /* the queue hides the fetch */
        scene.inst[0].queue_s = 0;
        verdict_is(&scene, 0.3, KVCL_SCHED_GO);
        scene_near(scene.out.times.fetch_s, 0.2);
        scene_close(&scene);
    }
}
END_TEST

START_TEST(the_error_of_transfers_is_learnt)
{
    kvcl_sched_measured_t m = KVCL_SCHED_MEASURED_INIT;
    scene_t               scene;

    scene_open_model(&scene, "prefill=global,admit=er", 2, NO_TRANSFER);
    scene.inst[0].nic_bytes_s = scene.inst[1].nic_bytes_s = 4e6;
    scene.inst[1].role        = 0;
    scene_hold(&scene, 1, 0, 8);
    m.prefill = 0;
    m.fetch_s = 0.2;
    for (scene.req.id = 1; scene.req.id <= 20; ++scene.req.id) {
        verdict_is(&scene, 0, KVCL_SCHED_GO);
        m.id = scene.req.id;
        ck_assert_int_eq(kvcl_sched_prefill_done(scene.sched, 1, &m), KVCL_OK);
    }
    verdict_is(&scene, 0.3, KVCL_SCHED_REFUSE);
    scene_close(&scene);
}
END_TEST

START_TEST(an_instance_with_an_old_report_is_passed_over_and_counted)
{
    scene_t scene;
    char    text[2048];

    scene_open(&scene, "prefill=kvcl,admit=kvcl", 4);
    scene_hold(&scene, 1, 0, 10);
    ck_assert_uint_eq(scene_decide(&scene), 1);
    ck_assert_uint_eq(scene.out.stale, 0);
    scene.inst[1].age_s = 30; /* the limit itself is not above it */
    ck_assert_uint_eq(scene_decide(&scene), 1);
    scene.inst[1].age_s = 31;
    ck_assert_uint_ne(scene_decide(&scene), 1);
    ck_assert_uint_ne(scene.out.decode, 1);
    ck_assert_uint_eq(scene.out.reason, KVCL_SCHED_REASON_BEST);
    ck_assert_uint_eq(scene.out.stale, 1);
    ck_assert_uint_eq(scene.out.left_out, 0);
    ck_assert(strstr(kvcl_sched_describe(&scene.out, text, sizeof(text)), "instances with an old report: 1") != NULL);
    scene.inst[0].age_s = 1000;
    scene.inst[2].queue_s = scene.inst[3].queue_s = 9;
    ck_assert_uint_ge(scene_decide(&scene), 2); /* half of them are known */
    ck_assert_uint_eq(scene.out.stale, 2);
    scene_close(&scene);
}
END_TEST

START_TEST(where_most_reports_are_old_least_load_decides_and_refuses_nobody)
{
    const char *name, *kind;
    char       policy[96];
    scene_t    scene;
    size_t     i;
    uint32_t   k, seen = 0;
    bool       blind;

    for (i = 0; kvcl_sched_policies(i, &name, &kind, NULL, NULL) == KVCL_OK; ++i) {
        if (strcmp(kind, "prefill") != 0) {
            continue;
        }
        (void)snprintf(policy, sizeof(policy), "prefill=%s:stale=5,admit=kvcl", name);
        blind = (strcmp(name, "random") == 0) || (strcmp(name, "rr") == 0);
        scene_open(&scene, policy, 4);
        for (k = 0; k < 4; ++k) {
            scene.inst[k].queue_s  = 50;
            scene.inst[k].prefills = 4;
            scene.inst[k].age_s    = (k == 3) ? 0 : 6;
        }
        scene.inst[2].queue_s = 40;
        scene_hold(&scene, 1, 0, 10);
        for (k = 0; k < 10; ++k) {
            scene.req.id     = k + 1;
            scene.req.ttft_s = 0.1;
            scene.req.tbt_s  = 1e-6;
            if (scene_decide(&scene) != 3) {
                ck_assert_msg(scene.out.verdict == KVCL_SCHED_GO || scene.out.tbt_error >= 0, "%s", name);
                ck_assert(scene.out.times.error < 0);
            }
            ck_assert_uint_eq(scene.out.stale, 3);
            if (!blind) {
                ck_assert_msg(scene.out.prefill == 2, "%s: %u", name, scene.out.prefill);
                if (scene.out.verdict == KVCL_SCHED_GO) {
                    ck_assert_uint_eq(scene.out.reason, KVCL_SCHED_REASON_STALE);
                    ++seen;
                }
            }
        }
        scene_close(&scene);
    }
    ck_assert_uint_gt(seen, 0);
    ck_assert(strstr(kvcl_sched_reason_text(KVCL_SCHED_REASON_STALE), "least load") != NULL);
}
END_TEST

START_TEST(the_age_of_a_report_has_a_range)
{
    kvcl_sched_model_h model = NULL;
    kvcl_sched_h       sched = NULL;

    ck_assert_int_eq(kvcl_sched_model_parse("m", scene_round, strlen(scene_round), &model), KVCL_OK);
    ck_assert_int_eq(kvcl_sched_create("prefill=rr:stale=0", &model, 1, NULL, &sched), KVCL_ERR_INVALID_PARAM);
    ck_assert_msg(strstr(kvcl_last_error(), "stale is from 0.001 to 1e+09") != NULL, "%s", kvcl_last_error());
    ck_assert_int_eq(kvcl_sched_create("prefill=rr:stle=9", &model, 1, NULL, &sched), KVCL_ERR_INVALID_PARAM);
    ck_assert_msg(strstr(kvcl_last_error(), "is it stale?") != NULL, "%s", kvcl_last_error());
    ck_assert_int_eq(kvcl_sched_create("queue=edf:stale=9", &model, 1, NULL, &sched), KVCL_ERR_INVALID_PARAM);
    kvcl_sched_model_free(model);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("decisions without predictions");
    TCase *tcase = tcase_create("missing");

    tcase_add_test(tcase, a_policy_without_its_predictions_takes_the_least_load_and_says_so);
    tcase_add_test(tcase, transfers_without_an_error_bound_refuse_nobody);
    tcase_add_test(tcase, the_error_of_transfers_is_learnt);
    tcase_add_test(tcase, an_instance_with_an_old_report_is_passed_over_and_counted);
    tcase_add_test(tcase, where_most_reports_are_old_least_load_decides_and_refuses_nobody);
    tcase_add_test(tcase, the_age_of_a_report_has_a_range);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
