/*
 * Decisions without all that a decision should know: models that predict nothing or state no error.
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

int main(void)
{
    Suite *suite = suite_create("decisions without predictions");
    TCase *tcase = tcase_create("missing");

    tcase_add_test(tcase, a_policy_without_its_predictions_takes_the_least_load_and_says_so);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
