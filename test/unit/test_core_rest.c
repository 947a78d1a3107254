/*
 * The passes of the engine: where messages complete a request, the rooms rest for one pass, never for two, and no
 * thread that waited leaves before they were polled.
 */
#include "config.h"
#include "test_base.h"
#include "core/context.h"
#include <kvcl/kvcl.h>

static kvcl_context_h         ctx;
static const kvcl_xport_ops_t *real;
static kvcl_xport_ops_t       ops;
static unsigned               completes; /* passes of the transport that complete a request from now on */

static unsigned progress(kvcl_xport_t *xport)
{
    unsigned n = real->progress(xport);

    if (completes > 0) {
        --completes;
        ++ctx->engine.completed;
    }
    return n;
}

static void open_all(void)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;

    params.boot  = "self";
    params.path  = "loop";
    params.flags = KVCL_INIT_NO_THREAD;
    ck_assert_int_eq(kvcl_init(&params, &ctx), KVCL_OK);
    real         = ctx->engine.xports[0]->ops;
    ops          = *real;
    ops.progress = progress;
    ctx->engine.xports[0]->ops = &ops;
}

static void close_all(void)
{
    ctx->engine.xports[0]->ops = real;
    kvcl_finalize(ctx);
}

static unsigned poll_briefly(void)
{
    unsigned n;

    kvcl_lock(ctx);
    n = kvcl_engine_poll_briefly(ctx, kvcl_now_ns());
    kvcl_unlock(ctx);
    return n;
}

START_TEST(rooms_rest_for_the_pass_that_completes_a_request_and_not_for_the_next)
{
    open_all();
    (void)poll_briefly();
    ck_assert(!ctx->engine.rested);
    completes = 3;
    ck_assert_uint_gt(poll_briefly(), 0); /* the caller must not sleep now */
    ck_assert(ctx->engine.rested);
    (void)poll_briefly();
    ck_assert(!ctx->engine.rested);
    (void)poll_briefly();
    ck_assert(ctx->engine.rested);
    close_all();
}
END_TEST

static bool is_done(void *arg)
{
    (void)arg;
    return completes == 0;
}

START_TEST(a_thread_that_waited_leaves_no_room_unpolled)
{
    open_all();
    completes = 1;
    ck_assert(kvcl_engine_wait(ctx, is_done, NULL, kvcl_deadline_after(60 * KVCL_NS_PER_SEC)));
    ck_assert(!ctx->engine.rested);
    close_all();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core");
    TCase *tc    = tcase_create("rest");

    tcase_add_test(tc, rooms_rest_for_the_pass_that_completes_a_request_and_not_for_the_next);
    tcase_add_test(tc, a_thread_that_waited_leaves_no_room_unpolled);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
