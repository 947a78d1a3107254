/*
 * Orders of a prefill queue: which one runs next, and which ones are refused.
 */
#include "sched_scene.h"

#include <math.h>

enum { N = 4 };

static kvcl_sched_waiting_t queue[N];

/* arrival, deadline, seconds */
static void set(int i, double arrival, double deadline, double seconds)
{
    queue[i]            = (kvcl_sched_waiting_t)KVCL_SCHED_WAITING_INIT;
    queue[i].id         = (uint64_t)i + 1;
    queue[i].arrival_s  = arrival;
    queue[i].deadline_s = deadline;
    queue[i].prefill_s  = seconds;
    queue[i].error      = -1;
}

static size_t next(const char *policy, double now, size_t n, size_t *late, size_t *n_late)
{
    scene_t scene;
    size_t  at = 99;

    scene_open(&scene, policy, 1);
    ck_assert_int_eq(kvcl_sched_order(scene.sched, now, queue, sizeof(queue[0]), n, &at, late, (late != NULL) ? N : 0,
                                      n_late), KVCL_OK);
    scene_close(&scene);
    return at;
}

START_TEST(first_come_and_shortest_first)
{
    size_t n_late;

    set(0, 5, 0, 3);
    set(1, 2, 0, 4);
    set(2, 3, 0, 1);
    ck_assert_uint_eq(next("queue=fcfs", 10, 3, NULL, &n_late), 1);
    ck_assert_uint_eq(next("queue=sjf", 10, 3, NULL, &n_late), 2);
    queue[1].weight = 5; /* 4 / 5 < 1 */
    ck_assert_uint_eq(next("queue=sjf", 10, 3, NULL, &n_late), 1);
    queue[1].weight = 0;
    ck_assert_uint_eq(next("queue=sjf:age=10", 10, 3, NULL, &n_late), 1); /* 4 - 80, 1 - 70, 3 - 50 */
    queue[2].ready_s = 11;
    ck_assert_uint_eq(next("queue=sjf", 10, 3, NULL, &n_late), 0); /* its fetches are not done */
    ck_assert_uint_eq(next("queue=sjf", 10, 0, NULL, &n_late), 0);
    ck_assert_uint_eq(n_late, 0);
}
END_TEST

START_TEST(the_earliest_deadline_that_can_be_met)
{
    size_t n_late;

    set(0, 0, 20, 3);
    set(1, 0, 15, 3);
    set(2, 0, 12, 3); /* 10 + 3 > 12 */
    ck_assert_uint_eq(next("queue=edf", 10, 3, NULL, &n_late), 1);
    ck_assert_uint_eq(next("queue=edf:age=0", 10, 3, NULL, &n_late), 1);
    set(1, 0, 11, 3);
    set(0, 0, 11, 3); /* all are late: by arrival with age=0, by the allowance of 4 x with age */
    set(2, -1, 12.5, 3);
    ck_assert_uint_eq(next("queue=edf:age=0", 10, 3, NULL, &n_late), 2);
    ck_assert_uint_eq(next("queue=edf", 10, 3, NULL, &n_late), 0); /* 44 against -1 + 54 */
    set(3, 0, 45, 3); /* in time, but later than the new deadline of the late ones */
    ck_assert_uint_eq(next("queue=edf", 10, 4, NULL, &n_late), 0);
    set(3, 0, 43, 3);
    ck_assert_uint_eq(next("queue=edf", 10, 4, NULL, &n_late), 3);
}
END_TEST

START_TEST(only_a_bounded_prediction_refuses)
{
    size_t late[N], n_late = 0;

    set(0, 0, 12, 3);
    set(1, 0, 12, 3);
    set(2, 0, 12, 3);
    queue[1].error = 0.1; /* 10 + 3 / 1.1 > 12 */
    queue[2].error = 0.6; /* 10 + 3 / 1.6 < 12 */
    (void)next("queue=edf:refuse=1", 10, 3, late, &n_late);
    ck_assert_uint_eq(n_late, 1);
    ck_assert_uint_eq(late[0], 1);
    (void)next("queue=edf", 10, 3, late, &n_late);
    ck_assert_uint_eq(n_late, 0);
    queue[0].error = queue[2].error = 0.1;
    ck_assert_uint_eq(next("queue=edf:refuse=1", 10, 3, late, &n_late), 3); /* nobody is left */
    ck_assert_uint_eq(n_late, 3);
}
END_TEST

START_TEST(bad_numbers_are_refused)
{
    scene_t scene;
    size_t  at, n_late;

    scene_open(&scene, "queue=edf", 1);
    set(0, 0, 12, 3);
    queue[0].prefill_s = (double)NAN;
    ck_assert_int_eq(kvcl_sched_order(scene.sched, 0, queue, sizeof(queue[0]), 1, &at, NULL, 0, &n_late),
                     KVCL_ERR_INVALID_PARAM);
    queue[0].prefill_s = 1;
    ck_assert_int_eq(kvcl_sched_order(scene.sched, 0, queue, sizeof(queue[0]), 1, &at, NULL, 1, &n_late),
                     KVCL_ERR_INVALID_PARAM);
    scene_close(&scene);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("queues of prefills");
    TCase *tcase = tcase_create("queues");

    tcase_add_test(tcase, first_come_and_shortest_first);
    tcase_add_test(tcase, the_earliest_deadline_that_can_be_met);
    tcase_add_test(tcase, only_a_bounded_prediction_refuses);
    tcase_add_test(tcase, bad_numbers_are_refused);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
