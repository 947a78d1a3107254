/*
 * Policies of placement: choices computed by hand, and the paper's algorithm 1 against a plain reference.
 */
#include "sched_scene.h"
#include "base/rand.h"
#include "sched/sched.h"

#include <stdlib.h>
#include <time.h>

START_TEST(in_turn_and_at_random_use_every_instance)
{
    scene_t  scene;
    unsigned seen = 0, i;

    scene_open(&scene, "prefill=rr", 3);
    for (i = 0; i < 6; ++i) {
        ck_assert_uint_eq(scene_decide(&scene), i % 3);
    }
    scene_close(&scene);
    scene_open(&scene, "prefill=random", 3);
    for (i = 0; i < 60; ++i) {
        seen |= 1u << scene_decide(&scene);
    }
    ck_assert_uint_eq(seen, 7);
    scene_close(&scene);
}
END_TEST

START_TEST(the_same_seed_draws_the_same)
{
    scene_t a, b;
    int     i;

    scene_open(&a, "prefill=random", 16);
    scene_open(&b, "prefill=random", 16);
    for (i = 0; i < 50; ++i) {
        ck_assert_uint_eq(scene_decide(&a), scene_decide(&b));
    }
    scene_close(&a);
    scene_close(&b);
}
END_TEST

START_TEST(local_weighs_its_queue_against_its_blocks)
{
    scene_t scene;

    scene_open(&scene, "prefill=local", 2);
    scene_hold(&scene, 0, 0, 8);
    scene.inst[0].queue_s = 0.7; /* 0.7 + 0.2 against 1 */
    ck_assert_uint_eq(scene_decide(&scene), 0);
    scene.inst[0].queue_s = 0.9;
    ck_assert_uint_eq(scene_decide(&scene), 1);
    ck_assert_uint_eq(scene.out.fetch_tokens, 0);
    scene_close(&scene);
}
END_TEST

START_TEST(global_fetches_above_the_threshold_only)
{
    scene_t scene;

    scene_open(&scene, "prefill=global:threshold=2", 2);
    scene.inst[0].nic_bytes_s = scene.inst[1].nic_bytes_s = 1e7; /* a block takes 0.01 s */
    scene_hold(&scene, 0, 0, 8);
    scene_hold(&scene, 1, 0, 3);
    scene.inst[0].queue_s = 5;
    ck_assert_uint_eq(scene_decide(&scene), 1); /* 8 / 3 > 2: fetch 5 blocks */
    ck_assert_uint_eq(scene.out.fetch_tokens, 500);
    scene_near(scene.out.score, 0.05 + 0.2);
    ck_assert_uint_eq(scene.out.runs[1].plan, KVCL_SCHED_FETCH);
    ck_assert_uint_eq(scene.out.runs[1].first, 3);
    ck_assert_uint_eq(scene.out.runs[1].from, 0);
    ck_assert_uint_eq(scene.out.runs[1].flags, KVCL_SCHED_KEEP);
    scene_hold(&scene, 1, 3, 1);
    ck_assert_uint_eq(scene_decide(&scene), 1); /* 8 / 4 is not above 2: compute */
    ck_assert_uint_eq(scene.out.fetch_tokens, 0);
    scene_near(scene.out.score, 0.6);
    scene_close(&scene);
    scene_open(&scene, "prefill=global:migrate=0", 2);
    scene_hold(&scene, 0, 0, 8);
    scene.inst[0].queue_s = 5;
    ck_assert_uint_eq(scene_decide(&scene), 1);
    ck_assert_uint_eq(scene.out.runs[0].plan, KVCL_SCHED_FETCH);
    ck_assert_uint_eq(scene.out.runs[0].flags, 0);
    scene_close(&scene);
}
END_TEST

START_TEST(pending_blocks_count_at_home_and_are_no_source)
{
    scene_t scene;

    scene_open(&scene, "prefill=global", 2);
    scene_hold(&scene, 0, 0, 8);
    scene.hold[0].flags = KVCL_SCHED_PENDING;
    ck_assert_uint_eq(scene_decide(&scene), 0);
    ck_assert_uint_eq(scene.out.there_tokens, 800);
    scene.inst[0].queue_s = 5;
    ck_assert_uint_eq(scene_decide(&scene), 1);
    ck_assert_uint_eq(scene.out.fetch_tokens, 0);
    scene_close(&scene);
}
END_TEST

START_TEST(sessions_stay_and_bounded_load_moves_them)
{
    scene_t  scene;
    uint32_t home, other;
    int      i;

    scene_open(&scene, "prefill=session:bound=1.5", 8);
    scene.req.session = 42;
    home              = scene_decide(&scene);
    for (i = 0; i < 8; ++i) {
        scene.inst[i].running = 4;
        ck_assert_uint_eq(scene_decide(&scene), home);
    }
    scene.inst[home].running = 7; /* 8 > 1.5 x 36 / 8 */
    other                    = scene_decide(&scene);
    ck_assert_uint_ne(other, home);
    scene.inst[(home + 1) % 8].flags = KVCL_SCHED_DRAINING;
    scene.inst[home].running         = 4;
    ck_assert_uint_eq(scene_decide(&scene), home); /* another instance that leaves moves nobody here */
    scene_close(&scene);
}
END_TEST

/* A hold of some tier. */
static void hold_on(scene_t *scene, uint32_t inst, uint32_t first, uint32_t blocks, uint16_t tier)
{
    scene_hold(scene, inst, first, blocks);
    scene->hold[scene->n_holds - 1].tier = tier;
}

START_TEST(plans_name_the_tier_that_the_holder_has)
{
    static const char *const names[] = {"global", "kvcl:work=0:room=0:price=0"};
    char                     policy[64];
    scene_t                  scene;
    size_t                   i;
    uint16_t                 tier;

    for (i = 0; i < 2; ++i) {
        for (tier = 0; tier < 3; ++tier) {
            (void)snprintf(policy, sizeof(policy), "prefill=%s", names[i]);
            scene_open(&scene, policy, 2);
            scene.inst[0].nic_bytes_s = scene.inst[1].nic_bytes_s = 1e7;
            scene.inst[0].queue_s     = 5;
            hold_on(&scene, 0, 0, 8, tier);
            hold_on(&scene, 1, 0, 2, 2 - tier);
            ck_assert_uint_eq(scene_decide(&scene), 1);
            ck_assert_uint_eq(scene.out.runs[0].plan, KVCL_SCHED_THERE);
            ck_assert_uint_eq(scene.out.runs[0].tier, 2 - tier);
            ck_assert_uint_eq(scene.out.runs[1].plan, KVCL_SCHED_FETCH);
            ck_assert_uint_eq(scene.out.runs[1].from, 0);
            ck_assert_uint_eq(scene.out.runs[1].tier, tier);
            scene_close(&scene);
        }
    }
    scene_open(&scene, "prefill=local", 1);
    hold_on(&scene, 0, 0, 3, 0);
    hold_on(&scene, 0, 2, 4, 1); /* block 2 twice: the device counts */
    hold_on(&scene, 0, 0, 9, 2);
    (void)scene_decide(&scene);
    ck_assert_uint_eq(scene.out.runs[0].blocks, 9);
    ck_assert_uint_eq(scene.out.runs[0].tier, 2); /* blocks 6 to 8 */
    scene.n_holds = 2;
    (void)scene_decide(&scene);
    ck_assert_uint_eq(scene.out.runs[0].blocks, 6);
    ck_assert_uint_eq(scene.out.runs[0].tier, 1);
    scene.n_holds = 1;
    (void)scene_decide(&scene);
    ck_assert_uint_eq(scene.out.runs[0].tier, 0);
    scene_close(&scene);
}
END_TEST

/* As many fetches as a decision may have, with blocks between them that are there, and replicas. */
START_TEST(the_runs_of_a_decision_fit_and_cover_the_prompt)
{
    kvcl_sched_decision_t   *out  = calloc(4, sizeof(*out)); /* room for what does not fit */
    kvcl_sched_inst_t       of    = {.id = 0};
    const kvcl_sched_inst_t *inst = &of;
    kvcl_cand_t             cand  = {.own = 1, .upto = 2 * KVCL_PIECES + 2};
    kvcl_job_t              *job  = calloc(1, sizeof(*job));
    uint32_t                i, at = 0;

    ck_assert((out != NULL) && (job != NULL));
    job->req      = (kvcl_sched_req_t){.tokens = 1000, .block_tokens = 10};
    job->blocks   = 100;
    job->inst     = &inst;
    job->cand     = &cand;
    job->out      = out;
    job->n_pieces = KVCL_PIECES;
    job->n_copies = 2;
    for (i = 0; i < KVCL_PIECES; ++i) {
        job->piece[i] = (kvcl_piece_t){.first = 2 * (i + 1), .blocks = 1};
    }
    kvcl_runs_write(job);
    ck_assert_uint_le(out->n_runs, KVCL_SCHED_RUNS);
    for (i = 0; (i < out->n_runs) && (out->runs[i].plan != KVCL_SCHED_REPLICATE); ++i) {
        ck_assert_uint_eq(out->runs[i].first, at);
        at += out->runs[i].blocks;
    }
    ck_assert_uint_eq(at, job->blocks);
    ck_assert_uint_eq(out->runs[i - 1].plan, KVCL_SCHED_COMPUTE);
    ck_assert_uint_eq(out->there_tokens + out->fetch_tokens + out->compute_tokens, 1000);
    free(job);
    free(out);
}
END_TEST

/* Algorithm 1 as the paper prints it, over leading runs. */
static uint32_t reference(const scene_t *scene, const uint32_t *run, double threshold, double *ttft_p)
{
    uint32_t i, best = 0, pick = 0;
    double   ttft, least = 1e18, use;

    for (i = 1; i < scene->n; ++i) {
        best = (run[i] > run[best]) ? i : best;
    }
    for (i = 0; i < scene->n; ++i) {
        use  = run[i];
        ttft = scene->inst[i].queue_s;
        if ((run[best] > run[i]) && ((run[i] == 0) || ((double)run[best] / run[i] > threshold))) {
            use   = run[best];
            ttft += 0.1 * (run[best] - run[i]);
        }
        ttft += (use == 10) ? 0.001 : 0.1 * (10 - use);
        if (ttft < least - 1e-9) {
            least = ttft;
            pick  = i;
        }
    }
    *ttft_p = least;
    return pick;
}

START_TEST(global_is_algorithm_1)
{
    const char  *text = getenv("TEST_SEED");
    uint64_t    seed  = (text != NULL) ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
    scene_t     scene;
    kvcl_rand_t rnd;
    uint32_t    run[SCENE_INSTS], pick;
    double      ttft;
    int         round, i;

    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    kvcl_rand_seed(&rnd, seed);
    scene_open(&scene, "prefill=global:threshold=1.5", SCENE_INSTS);
    scene.req.flags = KVCL_SCHED_DRY;
    for (round = 0; round < 20000; ++round) {
        scene.n       = 1 + kvcl_rand_below(&rnd, SCENE_INSTS);
        scene.n_holds = 0;
        for (i = 0; i < (int)scene.n; ++i) {
            scene.inst[i].queue_s = 0.001 * (double)kvcl_rand_below(&rnd, 2000);
            run[i]                = (uint32_t)kvcl_rand_below(&rnd, 11);
            scene_hold(&scene, (uint32_t)i, 0, run[i]);
        }
        pick = reference(&scene, run, 1.5, &ttft);
        (void)scene_decide(&scene);
        scene_near(scene.out.score, ttft);
        if (scene.out.prefill != pick) { /* only of an equal one */
            scene_near(scene.out.runner_score, ttft);
        }
    }
    scene_close(&scene);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("placement by the scheduler");
    TCase *tcase = tcase_create("placement");

    tcase_add_test(tcase, in_turn_and_at_random_use_every_instance);
    tcase_add_test(tcase, the_same_seed_draws_the_same);
    tcase_add_test(tcase, local_weighs_its_queue_against_its_blocks);
    tcase_add_test(tcase, global_fetches_above_the_threshold_only);
    tcase_add_test(tcase, pending_blocks_count_at_home_and_are_no_source);
    tcase_add_test(tcase, sessions_stay_and_bounded_load_moves_them);
    tcase_add_test(tcase, plans_name_the_tier_that_the_holder_has);
    tcase_add_test(tcase, the_runs_of_a_decision_fit_and_cover_the_prompt);
    tcase_add_test(tcase, global_is_algorithm_1);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
