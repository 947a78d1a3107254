/*
 * The executor by hand, one rank at a time: order of actions, windows, refused events, failure. Whole collectives are
 * in test_coll_algs.c.
 */
#include "config.h"

#include "collectives/exec.h"
#include "collectives/exec.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { SIGNATURE = 77 };

static kvcl_plan_t plan;
static kvcl_exec_t exec;
static void       *memory;

static void setup(void)
{
    kvcl_plan_init(&plan);
    plan.signature = SIGNATURE;
}

static void teardown(void)
{
    kvcl_plan_fini(&plan);
    free(memory);
    memory = NULL;
}

static void start(uint32_t pulls, uint32_t announces)
{
    ck_assert_int_eq(kvcl_plan_seal(&plan), KVCL_OK);
    memory = malloc(kvcl_exec_bytes(&plan) + 1);
    kvcl_exec_init(&exec, &plan, memory, &(kvcl_exec_limits_t){pulls, announces});
}

static void expect(kvcl_exec_op_t op, uint32_t peer, uint32_t k)
{
    kvcl_exec_action_t action;

    ck_assert_msg(kvcl_exec_next(&exec, &action), "no action, expected %d", (int)op);
    ck_assert_int_eq(action.op, op);
    ck_assert_uint_eq(action.peer, peer);
    if (op != KVCL_EXEC_ABORT) {
        ck_assert_uint_eq(action.k, k);
    }
}

static void expect_nothing(void)
{
    kvcl_exec_action_t action;

    ck_assert_msg(!kvcl_exec_next(&exec, &action), "an action %d to %u", (int)action.op, action.peer);
}

/* From where the plan has the bytes. */
static kvcl_status_t announce(uint32_t peer, uint32_t k, uint64_t len)
{
    uint32_t i   = kvcl_plan_find_peer(&plan, peer);
    uint64_t off = ((i != KVCL_STEP_NONE) && (k < plan.peers[i].recvs))
                       ? plan.steps[plan.index[plan.peers[i].first_recv + k]].peer_off : 0;

    return kvcl_exec_announced(&exec, peer, k, off, len, SIGNATURE);
}

START_TEST(a_plan_without_steps_is_done_at_once)
{
    start(0, 0);
    expect_nothing();
    ck_assert_int_eq(kvcl_exec_status(&exec), KVCL_OK);
    ck_assert(kvcl_exec_released(&exec));
    kvcl_exec_fail(&exec, KVCL_ERR_CANCELED); /* too late */
    ck_assert_int_eq(kvcl_exec_status(&exec), KVCL_OK);
}
END_TEST

START_TEST(bytes_are_pulled_from_where_the_plan_and_the_announcement_say)
{
    kvcl_exec_action_t action;

    kvcl_plan_reduce(&plan, 5, 4096, 200, 100, 8, KVCL_STEP_NONE);
    start(0, 0);
    expect_nothing();
    ck_assert_int_eq(kvcl_exec_announced(&exec, 5, 0, 100, 8, SIGNATURE), KVCL_ERR_PROTOCOL);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "at 100, not at 4096"));
    ck_assert_int_eq(kvcl_exec_announced(&exec, 5, 0, 4096, 8, SIGNATURE), KVCL_OK);
    ck_assert(kvcl_exec_next(&exec, &action));
    ck_assert_int_eq(action.op, KVCL_EXEC_PULL);
    ck_assert_uint_eq(action.peer_off, 4096);
    ck_assert_uint_eq(action.off, 100);
    ck_assert_uint_eq(action.with, 200);
    ck_assert_uint_eq(action.len, 8);
    expect_nothing();
    ck_assert_int_eq(kvcl_exec_pulled(&exec, action.step, KVCL_OK), KVCL_OK);
    ck_assert_int_eq(kvcl_exec_status(&exec), KVCL_INPROGRESS); /* the ACK is owed */
    expect(KVCL_EXEC_ACK, 5, 0);
    ck_assert_int_eq(kvcl_exec_status(&exec), KVCL_OK);
}
END_TEST

START_TEST(a_step_waits_for_the_one_before_it)
{
    uint32_t recv = kvcl_plan_recv(&plan, 1, 0, 8, KVCL_STEP_NONE);

    kvcl_plan_send(&plan, 2, 0, 8, recv);
    start(0, 0);
    expect_nothing();
    ck_assert_int_eq(announce(1, 0, 8), KVCL_OK);
    expect(KVCL_EXEC_PULL, 1, 0);
    ck_assert_int_eq(kvcl_exec_pulled(&exec, recv, KVCL_OK), KVCL_OK);
    expect(KVCL_EXEC_ACK, 1, 0);
    expect(KVCL_EXEC_ANNOUNCE, 2, 0);
    expect_nothing();
    ck_assert_int_eq(kvcl_exec_status(&exec), KVCL_INPROGRESS);
    ck_assert_int_eq(kvcl_exec_acked(&exec, 2, 0), KVCL_OK);
    ck_assert_int_eq(kvcl_exec_status(&exec), KVCL_OK);
}
END_TEST

START_TEST(the_windows_bound_what_is_under_way)
{
    uint32_t i;

    for (i = 0; i < 4; ++i) {
        kvcl_plan_send(&plan, 1, i, 1, KVCL_STEP_NONE);
        kvcl_plan_recv(&plan, 2, 10 + i, 1, KVCL_STEP_NONE);
    }
    kvcl_plan_send(&plan, 3, 0, 1, KVCL_STEP_NONE);
    start(2, 3);
    expect(KVCL_EXEC_ANNOUNCE, 1, 0);
    expect(KVCL_EXEC_ANNOUNCE, 1, 1);
    expect(KVCL_EXEC_ANNOUNCE, 1, 2);
    expect(KVCL_EXEC_ANNOUNCE, 3, 0); /* another peer, another window */
    for (i = 0; i < 4; ++i) {
        ck_assert_int_eq(announce(2, 3 - i, 1), KVCL_OK);
    }
    expect(KVCL_EXEC_PULL, 2, 3);
    expect(KVCL_EXEC_PULL, 2, 2);
    expect_nothing();
    ck_assert_int_eq(kvcl_exec_acked(&exec, 1, 1), KVCL_OK);
    expect(KVCL_EXEC_ANNOUNCE, 1, 3);
    ck_assert_int_eq(kvcl_exec_pulled(&exec, 5, KVCL_OK), KVCL_OK);
    expect(KVCL_EXEC_ACK, 2, 2);
    expect(KVCL_EXEC_PULL, 2, 1);
    expect_nothing();
}
END_TEST

START_TEST(a_notification_needs_no_ack)
{
    uint32_t recv = kvcl_plan_recv(&plan, 1, 0, 0, KVCL_STEP_NONE);

    kvcl_plan_send(&plan, 2, 0, 0, recv);
    start(0, 0);
    expect_nothing();
    ck_assert_int_eq(announce(1, 0, 0), KVCL_OK);
    expect(KVCL_EXEC_ANNOUNCE, 2, 0);
    ck_assert_int_eq(kvcl_exec_status(&exec), KVCL_OK);
    ck_assert_int_eq(kvcl_exec_acked(&exec, 2, 0), KVCL_ERR_PROTOCOL);
}
END_TEST

START_TEST(what_a_peer_may_not_say_is_refused_and_changes_nothing)
{
    kvcl_plan_recv(&plan, 1, 0, 8, KVCL_STEP_NONE);
    kvcl_plan_send(&plan, 1, 0, 8, KVCL_STEP_NONE);
    start(0, 0);
    ck_assert_int_eq(announce(2, 0, 8), KVCL_ERR_UNKNOWN_RANK);
    ck_assert_int_eq(announce(1, 1, 8), KVCL_ERR_PROTOCOL);
    ck_assert_int_eq(announce(1, UINT32_MAX, 8), KVCL_ERR_PROTOCOL);
    ck_assert_int_eq(kvcl_exec_acked(&exec, 1, 0), KVCL_ERR_PROTOCOL); /* not announced yet */
    ck_assert_int_eq(kvcl_exec_acked(&exec, 1, 1), KVCL_ERR_PROTOCOL);
    ck_assert_int_eq(kvcl_exec_acked(&exec, 9, 0), KVCL_ERR_UNKNOWN_RANK);
    ck_assert_int_eq(kvcl_exec_aborted(&exec, 9, KVCL_ERR_IO), KVCL_ERR_UNKNOWN_RANK);
    ck_assert_int_eq(kvcl_exec_pulled(&exec, 0, KVCL_OK), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_exec_pulled(&exec, 1, KVCL_OK), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_exec_pulled(&exec, 2, KVCL_OK), KVCL_ERR_INVALID_PARAM);
    ck_assert(!kvcl_exec_was_announced(&exec, 1, 0));
    ck_assert_int_eq(announce(1, 0, 8), KVCL_OK);
    ck_assert_int_eq(announce(1, 0, 8), KVCL_ERR_PROTOCOL); /* twice */
    ck_assert(kvcl_exec_was_announced(&exec, 1, 0));
    ck_assert(!kvcl_exec_was_announced(&exec, 1, 1) && !kvcl_exec_was_announced(&exec, 2, 0));
    expect(KVCL_EXEC_ANNOUNCE, 1, 0);
    expect(KVCL_EXEC_PULL, 1, 0);
    ck_assert_int_eq(kvcl_exec_pulled(&exec, 0, KVCL_OK), KVCL_OK);
    ck_assert_int_eq(kvcl_exec_pulled(&exec, 0, KVCL_OK), KVCL_ERR_INVALID_PARAM); /* twice */
    ck_assert_int_eq(kvcl_exec_acked(&exec, 1, 0), KVCL_OK);
    ck_assert_int_eq(kvcl_exec_acked(&exec, 1, 0), KVCL_ERR_PROTOCOL); /* twice */
    expect(KVCL_EXEC_ACK, 1, 0);
    expect_nothing();
    ck_assert_int_eq(kvcl_exec_status(&exec), KVCL_OK);
}
END_TEST

START_TEST(another_length_or_another_plan_fails_the_collective)
{
    kvcl_plan_recv(&plan, 1, 0, 8, KVCL_STEP_NONE);
    start(0, 0);
    if (_i == 0) {
        ck_assert_int_eq(announce(1, 0, 9), KVCL_ERR_INVALID_PARAM);
        ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "9 bytes where 8 are due"));
    } else {
        ck_assert_int_eq(kvcl_exec_announced(&exec, 1, 0, 0, 8, SIGNATURE + 1), KVCL_ERR_INVALID_PARAM);
        ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "KVCL_COLL_TABLE"));
    }
    expect(KVCL_EXEC_ABORT, 1, 0);
    expect_nothing();
    ck_assert_int_eq(kvcl_exec_status(&exec), KVCL_ERR_INVALID_PARAM);
}
END_TEST

START_TEST(a_failure_waits_for_the_pulls_under_way)
{
    kvcl_exec_action_t action;

    kvcl_plan_recv(&plan, 1, 0, 8, KVCL_STEP_NONE);
    kvcl_plan_recv(&plan, 2, 8, 8, KVCL_STEP_NONE);
    kvcl_plan_recv(&plan, 3, 16, 8, KVCL_STEP_NONE);
    start(2, 0);
    ck_assert_int_eq(announce(1, 0, 8), KVCL_OK);
    ck_assert_int_eq(announce(2, 0, 8), KVCL_OK);
    expect(KVCL_EXEC_PULL, 1, 0);
    expect(KVCL_EXEC_PULL, 2, 0);
    ck_assert_int_eq(announce(3, 0, 8), KVCL_OK);
    ck_assert_int_eq(kvcl_exec_pulled(&exec, 0, KVCL_ERR_IO), KVCL_OK);
    ck_assert(kvcl_exec_next(&exec, &action));
    ck_assert_int_eq(action.op, KVCL_EXEC_ABORT);
    ck_assert_uint_eq(action.peer, 1);
    ck_assert_int_eq(action.status, KVCL_ERR_IO);
    expect(KVCL_EXEC_ABORT, 3, 0);
    expect_nothing(); /* rank 2 is still being read */
    ck_assert_int_eq(kvcl_exec_status(&exec), KVCL_INPROGRESS);
    kvcl_exec_fail(&exec, KVCL_ERR_CANCELED); /* the first failure persists */
    ck_assert_int_eq(kvcl_exec_pulled(&exec, 1, KVCL_OK), KVCL_OK);
    expect(KVCL_EXEC_ABORT, 2, 0);
    expect_nothing();
    ck_assert_int_eq(kvcl_exec_status(&exec), KVCL_ERR_IO);
    ck_assert(kvcl_exec_released(&exec));
}
END_TEST

START_TEST(a_buffer_is_released_when_no_peer_can_read_it)
{
    kvcl_plan_send(&plan, 1, 0, 8, KVCL_STEP_NONE);
    kvcl_plan_send(&plan, 2, 0, 8, KVCL_STEP_NONE);
    kvcl_plan_send(&plan, 3, 0, 8, KVCL_STEP_NONE);
    kvcl_plan_send(&plan, 4, 0, 8, KVCL_STEP_NONE); /* never announced */
    start(0, 0);
    expect(KVCL_EXEC_ANNOUNCE, 1, 0);
    expect(KVCL_EXEC_ANNOUNCE, 2, 0);
    expect(KVCL_EXEC_ANNOUNCE, 3, 0);
    kvcl_exec_fail(&exec, KVCL_ERR_TIMED_OUT);
    expect(KVCL_EXEC_ABORT, 1, 0);
    expect(KVCL_EXEC_ABORT, 2, 0);
    kvcl_exec_peer_failed(&exec, 3, KVCL_ERR_RANK_FAILED); /* no ABORT to it */
    expect(KVCL_EXEC_ABORT, 4, 0);
    expect_nothing();
    ck_assert_int_eq(kvcl_exec_status(&exec), KVCL_ERR_TIMED_OUT);
    ck_assert(!kvcl_exec_released(&exec));
    ck_assert_int_eq(kvcl_exec_acked(&exec, 1, 0), KVCL_OK);
    ck_assert(!kvcl_exec_released(&exec));
    ck_assert_int_eq(kvcl_exec_aborted(&exec, 2, KVCL_ERR_TIMED_OUT), KVCL_OK);
    ck_assert(kvcl_exec_released(&exec));
}
END_TEST

START_TEST(a_gone_rank_fails_only_the_plans_it_is_in)
{
    kvcl_plan_recv(&plan, 1, 0, 8, KVCL_STEP_NONE);
    start(0, 0);
    kvcl_exec_peer_failed(&exec, 2, KVCL_ERR_RANK_FAILED);
    ck_assert_int_eq(kvcl_exec_status(&exec), KVCL_INPROGRESS);
    kvcl_exec_peer_failed(&exec, 1, KVCL_ERR_RANK_FAILED);
    expect_nothing();
    ck_assert_int_eq(kvcl_exec_status(&exec), KVCL_ERR_RANK_FAILED);
}
END_TEST

START_TEST(a_rank_that_announced_nothing_may_leave_before_its_turn)
{
    kvcl_plan_recv(&plan, 1, 0, 0, KVCL_STEP_NONE);
    kvcl_plan_recv(&plan, 2, 0, 0, 0); /* the next round of a barrier */
    kvcl_plan_send(&plan, 3, 0, 0, 1);
    start(0, 0);
    ck_assert_int_eq(announce(2, 0, 0), KVCL_OK);
    kvcl_exec_peer_failed(&exec, 2, KVCL_ERR_RANK_FAILED);
    expect_nothing();
    ck_assert_int_eq(kvcl_exec_status(&exec), KVCL_INPROGRESS);
    ck_assert_int_eq(announce(1, 0, 0), KVCL_OK);
    expect(KVCL_EXEC_ANNOUNCE, 3, 0);
    expect_nothing();
    ck_assert_int_eq(kvcl_exec_status(&exec), KVCL_OK);
}
END_TEST

START_TEST(a_rank_whose_bytes_are_here_may_leave_before_their_turn)
{
    uint32_t step;

    kvcl_plan_recv(&plan, 1, 0, 8, KVCL_STEP_NONE);
    step = kvcl_plan_recv(&plan, 2, 8, 8, 0);
    start(0, 0);
    ck_assert_int_eq(announce(2, 0, 8), KVCL_OK);
    kvcl_exec_has_bytes(&exec, 2, 0);
    kvcl_exec_peer_failed(&exec, 2, KVCL_ERR_RANK_FAILED);
    ck_assert_int_eq(announce(1, 0, 8), KVCL_OK);
    expect(KVCL_EXEC_PULL, 1, 0);
    ck_assert_int_eq(kvcl_exec_pulled(&exec, 0, KVCL_OK), KVCL_OK);
    expect(KVCL_EXEC_ACK, 1, 0);
    expect(KVCL_EXEC_PULL, 2, 0);
    ck_assert_int_eq(kvcl_exec_pulled(&exec, step, KVCL_OK), KVCL_OK);
    expect(KVCL_EXEC_ACK, 2, 0); /* the caller drops it */
    ck_assert_int_eq(kvcl_exec_status(&exec), KVCL_OK);
}
END_TEST

START_TEST(an_abort_status_from_the_wire_is_never_success)
{
    kvcl_plan_recv(&plan, 1, 0, 8, KVCL_STEP_NONE);
    start(0, 0);
    ck_assert_int_eq(kvcl_exec_aborted(&exec, 1, KVCL_OK), KVCL_OK);
    expect(KVCL_EXEC_ABORT, 1, 0);
    ck_assert_int_eq(kvcl_exec_status(&exec), KVCL_ERR_CANCELED);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("collectives: executor");
    TCase   *tcase = tcase_create("all");
    SRunner *runner;
    int      failed;

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_plan_without_steps_is_done_at_once);
    tcase_add_test(tcase, bytes_are_pulled_from_where_the_plan_and_the_announcement_say);
    tcase_add_test(tcase, a_step_waits_for_the_one_before_it);
    tcase_add_test(tcase, the_windows_bound_what_is_under_way);
    tcase_add_test(tcase, a_notification_needs_no_ack);
    tcase_add_test(tcase, what_a_peer_may_not_say_is_refused_and_changes_nothing);
    tcase_add_loop_test(tcase, another_length_or_another_plan_fails_the_collective, 0, 2);
    tcase_add_test(tcase, a_failure_waits_for_the_pulls_under_way);
    tcase_add_test(tcase, a_buffer_is_released_when_no_peer_can_read_it);
    tcase_add_test(tcase, a_gone_rank_fails_only_the_plans_it_is_in);
    tcase_add_test(tcase, a_rank_that_announced_nothing_may_leave_before_its_turn);
    tcase_add_test(tcase, a_rank_whose_bytes_are_here_may_leave_before_their_turn);
    tcase_add_test(tcase, an_abort_status_from_the_wire_is_never_success);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
