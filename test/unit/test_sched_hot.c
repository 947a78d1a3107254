/*
 * Popular prefixes: how they are counted, and the copies that KVCL's placement plans of them. By hand, in the scene of
 * a block that takes 0.1 s to compute; its network takes 0.01 s.
 */
#include "sched_scene.h"
#include "base/rand.h"
#include "sched/hot.h"

#include <stdlib.h>
#include <time.h>

static void name_keys(kvcl_key_t *keys, uint32_t first, uint32_t n, uint64_t name)
{
    uint32_t i;

    for (i = first; i < n; ++i, ++name) {
        memset(&keys[i], 0, sizeof(keys[i]));
        memcpy(&keys[i].bytes[8], &name, sizeof(name));
    }
}

START_TEST(depths_are_four_an_octave_and_none_is_beyond_the_prompt)
{
    static const uint32_t wanted[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24};
    uint32_t              depth[KVCL_HOT_DEPTHS], n, i;

    n = kvcl_hot_depths(27, depth);
    ck_assert_uint_eq(n, sizeof(wanted) / sizeof(wanted[0]));
    for (i = 0; i < n; ++i) {
        ck_assert_uint_eq(depth[i], wanted[i]);
    }
    ck_assert_uint_eq(kvcl_hot_depths(0, depth), 0);
    ck_assert_uint_le(kvcl_hot_depths(UINT32_MAX, depth), KVCL_HOT_DEPTHS);
}
END_TEST

START_TEST(a_rate_is_learnt_and_forgotten)
{
    kvcl_key_t keys[8];
    kvcl_hot_t hot;
    double     t, rate;

    name_keys(keys, 0, 8, 100);
    ck_assert_int_eq(kvcl_hot_init(&hot), KVCL_OK);
    ck_assert_ptr_null(kvcl_hot_find(&hot, &keys[3]));
    for (t = 0; t < 600; t += 0.5) {
        kvcl_hot_count(&hot, keys, 8, t);
    }
    rate = kvcl_hot_rate(kvcl_hot_find(&hot, &keys[7]), 600);
    ck_assert_msg((rate > 1.8) && (rate < 2.2), "2 a second, learnt as %g", rate);
    rate = kvcl_hot_rate(kvcl_hot_find(&hot, &keys[7]), 900);
    ck_assert_msg(rate < 0.1, "%g after 5 minutes", rate);
    kvcl_hot_fini(&hot);
}
END_TEST

START_TEST(a_popular_prefix_outlives_any_stream_of_others)
{
    const char  *text = getenv("TEST_SEED");
    uint64_t    seed  = (text != NULL) ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
    kvcl_rand_t random;
    kvcl_key_t  popular[4], other[4];
    kvcl_hot_t  hot;
    unsigned    i;

    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    kvcl_rand_seed(&random, seed);
    ck_assert_int_eq(kvcl_hot_init(&hot), KVCL_OK);
    name_keys(popular, 0, 4, 7);
    for (i = 0; i < 100000; ++i) {
        name_keys(other, 0, 4, kvcl_rand_next(&random) | (UINT64_C(1) << 63));
        kvcl_hot_count(&hot, other, 4, 0.001 * i);
        if (i % 50 == 0) {
            kvcl_hot_count(&hot, popular, 4, 0.001 * i);
        }
    }
    ck_assert_ptr_nonnull(kvcl_hot_find(&hot, &popular[3]));
    ck_assert_double_gt(kvcl_hot_rate(kvcl_hot_find(&hot, &popular[3]), 100), 8);
    kvcl_hot_fini(&hot);
}
END_TEST

/* Each request goes on in its own way behind the first six blocks. */
static void next_request(scene_t *scene, double seconds)
{
    name_keys((kvcl_key_t *)(uintptr_t)scene->req.keys, 6, 10, 1000 + (scene->req.id * 10));
    scene->now          += seconds;
    scene->req.arrival_s = scene->now;
    ++scene->req.id;
    (void)scene_decide(scene);
}

/* Four instances, of which 0 has the prompt. Its first six blocks were asked for ten times a second, while 0 was alone,
 * so that nothing was planned yet. */
static void open_hot(scene_t *scene, kvcl_key_t keys[10], const char *policy, double seconds)
{
    size_t i;

    scene_open(scene, policy, 4);
    for (i = 0; i < scene->n; ++i) {
        scene->inst[i].nic_bytes_s = 1e7;
    }
    scene_hold(scene, 0, 0, 10);
    name_keys(keys, 0, 6, 1);
    scene->req.keys = keys;
    for (scene->n = 1; seconds > 0; seconds -= 0.1) {
        next_request(scene, 0.1);
    }
    scene->n = 4;
}

static const kvcl_sched_run_t *replica(const scene_t *scene)
{
    uint32_t i;

    for (i = 0; i < scene->out.n_runs; ++i) {
        if (scene->out.runs[i].plan == KVCL_SCHED_REPLICATE) {
            return &scene->out.runs[i];
        }
    }
    return NULL;
}

/* Decide once a second until copies are planned, at most a minute. */
static const kvcl_sched_run_t *until_replica(scene_t *scene)
{
    unsigned i;

    for (i = 0; i < 60; ++i) {
        next_request(scene, 1);
        if (replica(scene) != NULL) {
            return replica(scene);
        }
    }
    return NULL;
}

START_TEST(a_hot_trunk_is_copied_to_those_without_it)
{
    scene_t                scene;
    kvcl_key_t             keys[10];
    const kvcl_sched_run_t *run;

    open_hot(&scene, keys, "prefill=kvcl:room=0.2", 30);
    scene.inst[2].queue_s = 1;
    scene.inst[3].queue_s = 0.5;
    run                   = until_replica(&scene);
    ck_assert_ptr_nonnull(run);
    ck_assert_uint_eq(run->first, 0);
    ck_assert_uint_eq(run->blocks, 6); /* what they share, no more */
    ck_assert_uint_eq(run->from, 0);
    ck_assert_uint_eq(run->n, 2); /* one sender feeds two */
    ck_assert_uint_eq(run->inst[0], 1);
    ck_assert_uint_eq(run->inst[1], 3);
    ck_assert_uint_eq(run->flags, KVCL_SCHED_KEEP);
    ck_assert_uint_eq(scene.out.prefill, 0);
    scene_hold(&scene, 1, 0, 6);
    scene_hold(&scene, 3, 0, 6);
    run = until_replica(&scene);
    ck_assert_ptr_nonnull(run);
    ck_assert_uint_eq(run->n, 1); /* the last one */
    ck_assert_uint_eq(run->inst[0], 2);
    scene_hold(&scene, 2, 0, 6);
    ck_assert_ptr_null(until_replica(&scene));
    scene_close(&scene);
}
END_TEST

START_TEST(what_is_under_way_is_not_copied_again)
{
    scene_t    scene;
    kvcl_key_t keys[10];

    open_hot(&scene, keys, "prefill=kvcl:room=0.2", 30);
    ck_assert_ptr_nonnull(until_replica(&scene));
    next_request(&scene, 0.5);
    ck_assert_ptr_null(replica(&scene));
    scene_close(&scene);
}
END_TEST

START_TEST(copies_that_never_come_are_not_planned_for_ever)
{
    scene_t    scene;
    kvcl_key_t keys[10];
    unsigned   i, n = 0;

    open_hot(&scene, keys, "prefill=kvcl:room=0.2", 30);
    for (i = 0; i < 100; ++i) { /* ten seconds: half-lives do not matter */
        next_request(&scene, 0.1);
        n += (replica(&scene) != NULL) ? replica(&scene)->n : 0;
    }
    ck_assert_uint_le(n, 6);
    scene_close(&scene);
}
END_TEST

START_TEST(what_is_not_popular_busy_or_refused_is_not_copied)
{
    scene_t    scene;
    kvcl_key_t keys[10];

    open_hot(&scene, keys, "prefill=kvcl:room=0.2", 0.5); /* 5 hits */
    next_request(&scene, 1);
    ck_assert_ptr_null(replica(&scene));
    scene_close(&scene);
    open_hot(&scene, keys, "prefill=kvcl:room=0.2:replicate=0", 30);
    ck_assert_ptr_null(until_replica(&scene));
    scene_close(&scene);
    open_hot(&scene, keys, "prefill=kvcl:room=0.2:price=1", 30);
    scene.inst[0].sends = 40; /* its transfers would lose more than a copy gains */
    ck_assert_ptr_null(until_replica(&scene));
    scene_close(&scene);
    open_hot(&scene, keys, "prefill=kvcl:room=0.2", 30);
    scene.req.keys = NULL;
    (void)scene_decide(&scene);
    ck_assert_ptr_null(replica(&scene));
    scene_close(&scene);
    open_hot(&scene, keys, "prefill=kvcl:room=0.2,admit=baseline", 30);
    scene.req.ttft_s = 1e-6;
    next_request(&scene, 1);
    ck_assert_uint_eq(scene.out.verdict, KVCL_SCHED_REFUSE);
    scene.req.ttft_s = 0;
    ck_assert_ptr_nonnull(until_replica(&scene)); /* what was refused is not under way */
    scene_close(&scene);
}
END_TEST

START_TEST(two_senders_feed_four)
{
    scene_t    scene;
    kvcl_key_t keys[10];
    uint32_t   i, n = 0;

    open_hot(&scene, keys, "prefill=kvcl:room=0.1", 30);
    scene.n = 8;
    for (i = 0; i < 8; ++i) {
        scene.inst[i]             = (kvcl_sched_inst_t)KVCL_SCHED_INST_INIT;
        scene.inst[i].id          = i;
        scene.inst[i].nic_bytes_s = 1e7;
    }
    scene_hold(&scene, 1, 0, 10);
    scene.inst[1].sends = 1; /* it sends at half the speed of 0 */
    ck_assert_ptr_nonnull(until_replica(&scene));
    for (i = 0; i < scene.out.n_runs; ++i) {
        if (scene.out.runs[i].plan == KVCL_SCHED_REPLICATE) {
            ck_assert_uint_eq(scene.out.runs[i].from, n);
            ck_assert_uint_eq(scene.out.runs[i].n, 2);
            ++n;
        }
    }
    ck_assert_uint_eq(n, 2);
    scene_close(&scene);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sched_hot");
    TCase *tcase = tcase_create("hot");

    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, depths_are_four_an_octave_and_none_is_beyond_the_prompt);
    tcase_add_test(tcase, a_rate_is_learnt_and_forgotten);
    tcase_add_test(tcase, a_popular_prefix_outlives_any_stream_of_others);
    tcase_add_test(tcase, a_hot_trunk_is_copied_to_those_without_it);
    tcase_add_test(tcase, what_is_under_way_is_not_copied_again);
    tcase_add_test(tcase, copies_that_never_come_are_not_planned_for_ever);
    tcase_add_test(tcase, what_is_not_popular_busy_or_refused_is_not_copied);
    tcase_add_test(tcase, two_senders_feed_four);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
