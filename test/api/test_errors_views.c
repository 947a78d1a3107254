/*
 * What the calls about views refuse (errors.h), and what a rank is told that is alone.
 */
#include "test/api/errors.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

static bool is_one_event(const kvcl_event_t *event)
{
    return (event->type == KVCL_EVENT_VIEW) && (event->view == 1) && (event->n_ranks == 1) &&
           kvcl_event_has(event, 0) && !kvcl_event_has(event, 1) && !kvcl_event_has(event, -1);
}

static void count_event(void *arg, const kvcl_event_t *event)
{
    *(_Atomic int *)arg += is_one_event(event) ? 1 : 100;
}

START_TEST(without_views_there_are_no_events)
{
    unsigned char active[2] = {7, 7};
    kvcl_event_t  event     = KVCL_EVENT_INIT;
    uint64_t      view      = 0;
    int           zero      = 0;

    REFUSED(UNSUPPORTED, "KVCL_VIEWS=yes", kvcl_on_event(ctx, count_event, NULL));
    REFUSED(UNSUPPORTED, "KVCL_VIEWS=yes", kvcl_event_next(ctx, &event));
    REFUSED(UNSUPPORTED, "KVCL_VIEWS=yes", kvcl_event_fd(ctx, &out.fd));
    REFUSED(UNSUPPORTED, "KVCL_VIEWS=yes", kvcl_comm_get_failed(world, NULL, 0, &out.fd));
    REFUSED(UNSUPPORTED, "KVCL_VIEWS=yes", kvcl_comm_ack_failed(world, 1, &out.fd));
    REFUSED(UNSUPPORTED, "KVCL_VIEWS=yes", kvcl_comm_agree(world, &view, SECOND));
    REFUSED(UNSUPPORTED, "KVCL_VIEWS=yes", kvcl_comm_shrink(world, SECOND, &out.comm));
    REFUSED(UNSUPPORTED, "KVCL_VIEWS=yes", kvcl_comm_activate(world, &zero, 1, SECOND, NULL));
    REFUSED(UNSUPPORTED, "KVCL_VIEWS=yes", kvcl_comm_sync(world, SECOND, NULL));
    REFUSED(UNSUPPORTED, "KVCL_VIEWS=yes", kvcl_comm_waiting(world, active, 1));
    REFUSED(INVALID_PARAM, "2 bytes for 1 ranks", kvcl_comm_active(world, active, 2, NULL));
    REFUSED(INVALID_PARAM, "active", kvcl_comm_active(world, NULL, 1, NULL));
    REFUSED(INVALID_PARAM, "7", kvcl_phase(ctx, (kvcl_phase_t)7));
    TAKEN(kvcl_comm_active(world, active, 1, &view));
    ck_assert((active[0] == 1) && (active[1] == 7) && (view == 1));
    TAKEN(kvcl_phase(ctx, KVCL_PHASE_WARM_UP));
}
END_TEST

static void change_members(kvcl_comm_h comm)
{
    kvcl_view_change_result_t result = KVCL_VIEW_CHANGE_RESULT_INIT;
    const int                 zero = 0, one = 1;
    unsigned char             waiting[2] = {7, 7};

    REFUSED(INVALID_PARAM, "2 bytes for 1 ranks", kvcl_comm_waiting(comm, waiting, 2));
    REFUSED(INVALID_PARAM, "waiting is NULL", kvcl_comm_waiting(comm, NULL, 1));
    TAKEN(kvcl_comm_waiting(comm, waiting, 1));
    ck_assert((waiting[0] == 0) && (waiting[1] == 7));
    REFUSED(INVALID_PARAM, "n is 0", kvcl_comm_activate(comm, &zero, 0, SECOND, &result));
    REFUSED(INVALID_PARAM, "ranks is NULL", kvcl_comm_activate(comm, NULL, 1, SECOND, &result));
    REFUSED(UNKNOWN_RANK, "rank 1", kvcl_comm_activate(comm, &one, 1, SECOND, &result));
    REFUSED(INVALID_PARAM, "KVCL_WAIT_FOREVER", kvcl_comm_activate(comm, &zero, 1, KVCL_WAIT_FOREVER, &result));
    result.size = 3;
    REFUSED(INVALID_PARAM, "kvcl_view_change_result_t", kvcl_comm_activate(comm, &zero, 1, SECOND, &result));
    REFUSED(INVALID_PARAM, "kvcl_view_change_result_t", kvcl_comm_sync(comm, SECOND, &result));
    result.size = sizeof(result);
    TAKEN(kvcl_comm_activate(comm, &zero, 1, 60 * (uint64_t)SECOND, &result));
    ck_assert((result.view == 1) && (result.n_dropped == 0) && (result.dropped[0] == 0) && (result.view_id != 0));
    TAKEN(kvcl_comm_sync(comm, 60 * (uint64_t)SECOND, &result));
    ck_assert((result.view == 1) && (result.n_dropped == 0));
}

START_TEST(a_rank_that_is_alone_has_a_view)
{
    kvcl_init_params_t p      = alone();
    kvcl_event_t       event  = KVCL_EVENT_INIT;
    _Atomic int        n      = 0;
    unsigned char      active = 0;
    kvcl_context_h     one;
    kvcl_comm_h        comm, shrunk;
    uint64_t           flags = 6;
    int                acked = -1, n_failed = -1;
    struct pollfd      fd = {.events = POLLIN};

    setenv("KVCL_VIEWS", "yes", 1);
    setenv("KVCL_DEAD", "200ms", 1);
    REFUSED(INVALID_PARAM, "less than three beats", kvcl_init(&p, &out.ctx));
    unsetenv("KVCL_DEAD");
    setenv("KVCL_LEASE", "1s", 1);
    REFUSED(INVALID_PARAM, "shorten it", kvcl_init(&p, &out.ctx));
    setenv("KVCL_LEASE", "200ms", 1);
    REFUSED(INVALID_PARAM, "two beats", kvcl_init(&p, &out.ctx));
    unsetenv("KVCL_LEASE");
    TAKEN(kvcl_init(&p, &one));
    TAKEN(kvcl_comm_world(one, &comm));
    TAKEN(kvcl_event_fd(one, &fd.fd));
    ck_assert_int_eq(poll(&fd, 1, 60000), 1);
    TAKEN(kvcl_event_next(one, &event));
    ck_assert(is_one_event(&event));
    ck_assert_int_eq(poll(&fd, 1, 0), 0);
    ck_assert_int_eq(kvcl_event_next(one, &event), KVCL_INPROGRESS);
    REFUSED(INVALID_PARAM, "fd_p", kvcl_event_fd(one, NULL));
    TAKEN(kvcl_comm_active(comm, &active, 1, NULL));
    ck_assert((active == 1) && (kvcl_comm_view(comm) == 1));
    change_members(comm);
    REFUSED(INVALID_PARAM, "flags", kvcl_comm_agree(comm, NULL, SECOND));
    REFUSED(INVALID_PARAM, "KVCL_WAIT_FOREVER", kvcl_comm_agree(comm, &flags, KVCL_WAIT_FOREVER));
    REFUSED(INVALID_PARAM, "KVCL_WAIT_FOREVER", kvcl_comm_shrink(comm, KVCL_WAIT_FOREVER, &shrunk));
    REFUSED(INVALID_PARAM, "KVCL_WAIT_FOREVER", kvcl_leave(one, KVCL_WAIT_FOREVER));
    REFUSED(INVALID_PARAM, "shrunk_p", kvcl_comm_shrink(comm, SECOND, NULL));
    REFUSED(INVALID_PARAM, "NULL", kvcl_comm_get_failed(comm, NULL, 1, &n_failed));
    TAKEN(kvcl_comm_agree(comm, &flags, 60 * (uint64_t)SECOND));
    ck_assert_uint_eq(flags, 6);
    TAKEN(kvcl_comm_shrink(comm, 60 * (uint64_t)SECOND, &shrunk));
    ck_assert(kvcl_comm_size(shrunk) == 1);
    kvcl_comm_free(shrunk);
    TAKEN(kvcl_comm_ack_failed(comm, 5, &acked));
    TAKEN(kvcl_comm_get_failed(comm, NULL, 0, &n_failed));
    ck_assert((acked == 0) && (n_failed == 0));
    kvcl_finalize(one);
    TAKEN(kvcl_init(&p, &one));
    TAKEN(kvcl_on_event(one, count_event, &n)); /* from the progress thread */
    while (n == 0) {
        usleep(1000);
    }
    ck_assert_int_eq(n, 1);
    kvcl_finalize(one);
    unsetenv("KVCL_VIEWS");
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("errors of views");
    TCase   *tcase = tcase_create("views");
    SRunner *runner;
    int     failed;

    tcase_add_checked_fixture(tcase, open_world, close_world);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, without_views_there_are_no_events);
    tcase_add_test(tcase, a_rank_that_is_alone_has_a_view);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? 0 : 1;
}
