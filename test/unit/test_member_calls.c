/*
 * Calls of members that wait, leave and activate (src/member), while other threads of the process wait as well.
 */
#include "config.h"
#include "member/lease.h"
#include "member/member.h"
#include "members_job.h"

#include <pthread.h>

/* ---- calls that wait while another thread polls ---- */

typedef struct waiter {
    kvcl_context_h ctx;
    int            rank; /* of which nothing comes */
    pthread_t      thread;
    kvcl_status_t  status;
    bool           is;
} waiter_t;

static void *wait_for_nothing(void *arg)
{
    waiter_t           *waiter = arg;
    kvcl_xfer_params_t p       = KVCL_XFER_PARAMS_INIT;
    kvcl_comm_h        world;
    kvcl_req_h         req;
    char               byte;

    p.timeout_ns = 2 * LONG_NS;
    ck_assert_int_eq(kvcl_comm_world(waiter->ctx, &world), KVCL_OK);
    ck_assert_int_eq(kvcl_recv_bytes(world, waiter->rank, 1, &byte, 1, &p, &req), KVCL_OK);
    waiter->status = kvcl_req_wait(req, KVCL_WAIT_FOREVER); /* until that rank has ended */
    return NULL;
}

static bool has_waiters(kvcl_context_h ctx, unsigned followers)
{
    bool has;

    kvcl_lock(ctx);
    has = ctx->engine.polling && (ctx->engine.followers == followers);
    kvcl_unlock(ctx);
    return has;
}

/* A thread of ctx that polls until the other rank has ended. */
static void begin_polling(waiter_t *poller, kvcl_context_h ctx, int rank)
{
    *poller = (waiter_t){.ctx = ctx, .rank = rank};
    ck_assert_int_eq(pthread_create(&poller->thread, NULL, wait_for_nothing, poller), 0);
    while (!has_waiters(ctx, 0)) {
        nap();
    }
}

static void *leave(void *arg)
{
    waiter_t *waiter = arg;

    waiter->status = kvcl_leave(waiter->ctx, LONG_NS);
    return NULL;
}

/* Nothing but the other's beats says that it leaves as well. */
START_TEST(all_that_leave_at_once_know_it_at_once)
{
    kvcl_context_h a = begin_job(), b = join_job(a);
    waiter_t       poller, leaver = {.ctx = a};
    uint64_t       from;

    begin_polling(&poller, a, 1);
    ck_assert_int_eq(pthread_create(&leaver.thread, NULL, leave, &leaver), 0);
    while (!has_waiters(a, 1)) {
        nap();
    }
    from = kvcl_now_ns();
    ck_assert_int_eq(kvcl_leave(b, LONG_NS), KVCL_OK);
    ck_assert_int_eq(pthread_join(leaver.thread, NULL), 0);
    ck_assert_int_eq(leaver.status, KVCL_OK);
    ck_assert_uint_lt(kvcl_now_ns() - from, LONG_NS / 2);
    kvcl_finalize(b);
    ck_assert_int_eq(pthread_join(poller.thread, NULL), 0);
    kvcl_finalize(a);
}
END_TEST

static bool may_own(void *ctx)
{
    return kvcl_member_has_lease(ctx);
}

static bool owns(kvcl_context_h ctx)
{
    bool has;

    kvcl_lock(ctx);
    has = kvcl_member_has_lease(ctx);
    kvcl_unlock(ctx);
    return has;
}

static void *wait_to_own(void *arg)
{
    waiter_t *waiter = arg;

    waiter->is = kvcl_engine_wait(waiter->ctx, may_own, waiter->ctx, kvcl_deadline_after(LONG_NS));
    return NULL;
}

/* Rank 0 is stopped for a moment, in which nobody suspects it: nothing but the lease of rank 1 changes. */
START_TEST(who_waits_to_own_goes_on_when_a_quorum_answers_again)
{
    kvcl_context_h a, b;
    waiter_t       poller, waiter;
    uint64_t       from;

    setenv("KVCL_SUSPECT", "9s", 1);
    a = begin_job();
    b = join_job(a);
    begin_polling(&poller, b, 0);
    kvcl_lock(a);
    while (owns(b)) {
        nap();
    }
    waiter = (waiter_t){.ctx = b};
    ck_assert_int_eq(pthread_create(&waiter.thread, NULL, wait_to_own, &waiter), 0);
    while (!has_waiters(b, 1)) {
        nap();
    }
    kvcl_unlock(a);
    from = kvcl_now_ns();
    ck_assert_int_eq(pthread_join(waiter.thread, NULL), 0);
    ck_assert(waiter.is);
    ck_assert_uint_lt(kvcl_now_ns() - from, LONG_NS / 2);
    kvcl_finalize(a);
    ck_assert_int_eq(pthread_join(poller.thread, NULL), 0);
    kvcl_finalize(b);
    unsetenv("KVCL_SUSPECT");
}
END_TEST

/* ---- leaving ---- */

/* The process of that slot has told this member that all have met it. */
static void until_waits(kvcl_context_h ctx, int slot)
{
    unsigned char waits[SLOTS] = {0};
    kvcl_comm_h   world;

    ck_assert_int_eq(kvcl_comm_world(ctx, &world), KVCL_OK);
    while (waits[slot] == 0) {
        nap();
        ck_assert_int_eq(kvcl_comm_waiting(world, waits, SLOTS), KVCL_OK);
    }
}

static unsigned count_events(kvcl_context_h ctx, int type)
{
    kvcl_event_t event = KVCL_EVENT_INIT;
    unsigned     n     = 0;

    while (kvcl_event_next(ctx, &event) == KVCL_OK) {
        n += (event.type == type) ? 1 : 0;
    }
    return n;
}

START_TEST(who_asks_to_leave_twice_is_told_once)
{
    kvcl_context_h a = begin_job();

    ck_assert_int_eq(kvcl_leave(a, LONG_NS), KVCL_OK);
    ck_assert_int_eq(kvcl_leave(a, LONG_NS), KVCL_OK);
    ck_assert_uint_eq(count_events(a, KVCL_EVENT_DRAINED), 1);
    kvcl_finalize(a);
}
END_TEST

/* It has nothing to leave, and is a member when it is activated. */
START_TEST(a_process_that_waits_does_not_leave)
{
    const int      one = 1;
    kvcl_context_h a, b;
    kvcl_comm_h    world;

    setenv("KVCL_JOIN_WAITS", "yes", 1);
    a = begin_job();
    b = join_job(a);
    ck_assert_int_eq(kvcl_leave(b, LONG_NS), KVCL_ERR_RANK_FAILED);
    ck_assert_uint_eq(count_events(b, KVCL_EVENT_DRAINED), 0);
    until_waits(a, 1);
    ck_assert_int_eq(kvcl_comm_world(a, &world), KVCL_OK);
    ck_assert_int_eq(kvcl_comm_activate(world, &one, 1, LONG_NS, NULL), KVCL_OK);
    ck_assert_int_eq(kvcl_comm_world(b, &world), KVCL_OK);
    ck_assert_int_eq(kvcl_comm_sync(world, LONG_NS, NULL), KVCL_OK);
    kvcl_finalize(b);
    kvcl_finalize(a);
    unsetenv("KVCL_JOIN_WAITS");
}
END_TEST

/* ---- activation ---- */

static uint64_t activated(kvcl_context_h ctx, uint32_t slot)
{
    uint64_t incarnation;

    kvcl_lock(ctx);
    incarnation = kvcl_member_room(ctx)->ranks[slot].activated;
    kvcl_unlock(ctx);
    return incarnation;
}

typedef struct activation {
    kvcl_context_h            ctx;
    pthread_t                 thread;
    kvcl_status_t             status;
    kvcl_view_change_result_t result;
} activation_t;

static void *activate(void *arg)
{
    activation_t *call     = arg;
    const int    ranks[2]  = {2, 3};
    kvcl_comm_h  world;

    ck_assert_int_eq(kvcl_comm_world(call->ctx, &world), KVCL_OK);
    call->status = kvcl_comm_activate(world, ranks, 2, LONG_NS, &call->result);
    return NULL;
}

/* A call names the process of slot 2, and waits for it: rank 1 is stopped. In slot 3 none waits, so the call drops that
 * rank. Before it returns, another call has named a process there. */
START_TEST(what_one_call_has_named_another_one_that_drops_the_rank_does_not_forget)
{
    const int          one  = 1;
    activation_t       call = {.result = KVCL_VIEW_CHANGE_RESULT_INIT};
    kvcl_context_h     a, b, c;
    kvcl_member_rank_t *rank;
    kvcl_comm_h        world;

    setenv("KVCL_JOIN_WAITS", "yes", 1);
    a = begin_job();
    b = join_job(a);
    until_waits(a, 1);
    ck_assert_int_eq(kvcl_comm_world(a, &world), KVCL_OK);
    ck_assert_int_eq(kvcl_comm_activate(world, &one, 1, LONG_NS, NULL), KVCL_OK);
    ck_assert_int_eq(kvcl_comm_world(b, &world), KVCL_OK);
    ck_assert_int_eq(kvcl_comm_sync(world, LONG_NS, NULL), KVCL_OK);
    c = join_job(a);
    until_waits(a, 2);
    kvcl_lock(b);
    call.ctx = a;
    ck_assert_int_eq(pthread_create(&call.thread, NULL, activate, &call), 0);
    while (activated(a, 2) == 0) {
        nap();
    }
    kvcl_lock(a);
    rank = &kvcl_member_room(a)->ranks[3];
    ck_assert_uint_eq(rank->activated, 0);
    rank->activated = 77; /* as the other call does */
    rank->n_named  += 1;
    kvcl_unlock(a);
    kvcl_unlock(b);
    ck_assert_int_eq(pthread_join(call.thread, NULL), 0);
    ck_assert_int_eq(call.status, KVCL_OK);
    ck_assert_uint_eq(call.result.dropped[0], 1u << 3);
    ck_assert_uint_eq(activated(a, 3), 77);
    kvcl_finalize(c);
    kvcl_finalize(b);
    kvcl_finalize(a);
    unsetenv("KVCL_JOIN_WAITS");
}
END_TEST

/* ---- the suite ---- */

int main(void)
{
    Suite *suite = suite_create("member-calls");
    TCase *tcase;

    tcase = add_case(suite, "leaving");
    tcase_add_test(tcase, all_that_leave_at_once_know_it_at_once);
    tcase_add_test(tcase, who_asks_to_leave_twice_is_told_once);
    tcase_add_test(tcase, a_process_that_waits_does_not_leave);
    tcase = add_case(suite, "owning");
    tcase_add_test(tcase, who_waits_to_own_goes_on_when_a_quorum_answers_again);
    tcase = add_case(suite, "activation");
    tcase_add_test(tcase, what_one_call_has_named_another_one_that_drops_the_rank_does_not_forget);
    return test_run(suite);
}
