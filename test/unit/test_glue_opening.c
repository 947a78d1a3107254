/*
 * A peer's endpoint for data before it is connected, over a UCX that this program plays (fake_ucp.h): nothing is posted
 * on it, it is not closed unless it fails or the transport is closed, and what waits for it ends as its caller wishes.
 */
#include "config.h"
#include "fake_ucp.h"
#include "test_base.h"

#include <stdlib.h>
#include <string.h>

enum { SIZE = 64 };

static glue_t *g;
static char   buf[SIZE], any;

typedef struct waited {
    kvcl_xport_send_t send;
    unsigned          done;
    kvcl_status_t     status;
} waited_t;

static void on_done(kvcl_xport_send_t *send, kvcl_status_t status)
{
    waited_t *waited = kvcl_container_of(send, waited_t, send);

    ++waited->done;
    waited->status = status;
}

static void progress(void)
{
    (void)kvcl_xport_rdma.progress(&g->super);
}

static void close_port(void)
{
    kvcl_xport_rdma.fini(&g->super);
    ck_assert_uint_eq(fake_ucp.left, 0);
    ck_assert_uint_eq(fake_ucp.posted_early, 0);
    ck_assert_uint_eq(fake_ucp.used_after, 0);
    ck_assert_uint_eq(fake_ucp.keys, 0);
    ck_assert_uint_eq(fake_ucp.created, fake_ucp.closed);
}

static kvcl_xport_ep_t *open_peer(void)
{
    kvcl_xport_ep_t *ep;

    g->data.ctx = (ucp_context_h)(void *)&any;
    ck_assert_int_eq(kvcl_glue_ep_create(&g->super, g->addr, g->addr_len, &ep), KVCL_OK);
    g->data.ctx = NULL;
    return ep;
}

static glue_data_t *data_of(kvcl_xport_ep_t *ep)
{
    return &kvcl_container_of(ep, glue_ep_t, super)->data;
}

static kvcl_status_t post(kvcl_xport_rmem_t *rmem, waited_t *waited)
{
    *waited = (waited_t){.send = {.done = on_done}};
    return kvcl_glue_get(rmem, 0, buf, SIZE, &waited->send);
}

/* What waited has ended so, and UCX has not seen it. */
static void check_ended(const waited_t *waited, kvcl_status_t status)
{
    ck_assert_uint_eq(waited->done, 1);
    ck_assert_int_eq(waited->status, status);
    ck_assert_uint_eq(fake_ucp.in_flight, 0);
    ck_assert_uint_eq(fake_ucp.closed_early, 0);
    ck_assert(!kvcl_xport_rdma.outstanding(&g->super));
}

START_TEST(operations_are_posted_in_order_when_it_is_connected)
{
    kvcl_xport_ep_t   *ep;
    kvcl_xport_rmem_t *rmem;
    waited_t          one, two, three, four;

    g = fake_open_port(true);
    ep   = open_peer();
    rmem = fake_open_region(ep, SIZE);
    ck_assert_int_eq(post(rmem, &one), KVCL_INPROGRESS);
    two = three = (waited_t){.send = {.done = on_done}};
    ck_assert_int_eq(kvcl_glue_put(rmem, 0, buf, SIZE, &two.send), KVCL_INPROGRESS);
    ck_assert_int_eq(kvcl_glue_flush(rmem, &three.send), KVCL_INPROGRESS);
    progress();
    ck_assert_uint_eq(fake_ucp.in_flight, 0);
    ck_assert(kvcl_xport_rdma.outstanding(&g->super));
    fake_connect();
    progress();
    ck_assert_uint_eq(fake_ucp.in_flight, 3);
    ck_assert_int_eq(post(rmem, &four), KVCL_INPROGRESS);
    fake_complete(UCS_OK);
    progress();
    ck_assert(one.done && !two.done);
    fake_complete(UCS_OK);
    progress();
    ck_assert(two.done && !three.done);
    fake_complete(UCS_OK);
    fake_complete(UCS_OK);
    progress();
    check_ended(&three, KVCL_OK);
    check_ended(&four, KVCL_OK);
    kvcl_glue_rmem_close(rmem);
    kvcl_glue_ep_close(ep);
    close_port();
}
END_TEST

START_TEST(one_that_is_connected_at_once_is_used_at_once)
{
    kvcl_xport_ep_t   *ep;
    kvcl_xport_rmem_t *rmem;
    waited_t          get;

    g = fake_open_port(true);
    fake_ucp.connected = true;
    ep   = open_peer();
    rmem = fake_open_region(ep, SIZE);
    ck_assert_int_eq(post(rmem, &get), KVCL_INPROGRESS);
    ck_assert_uint_eq(fake_ucp.in_flight, 1);
    fake_complete(UCS_OK);
    progress();
    check_ended(&get, KVCL_OK);
    kvcl_glue_rmem_close(rmem);
    kvcl_glue_ep_close(ep);
    close_port();
}
END_TEST

/* _i: rma_end, or the region is closed. */
START_TEST(a_fence_ends_what_waits_and_closes_nothing)
{
    kvcl_xport_ep_t   *ep;
    kvcl_xport_rmem_t *rmem, *other;
    waited_t          get, kept;

    g = fake_open_port(true);
    ep    = open_peer();
    rmem  = fake_open_region(ep, SIZE);
    other = fake_open_region(ep, SIZE);
    ck_assert_int_eq(post(rmem, &get), KVCL_INPROGRESS);
    if (_i == 0) {
        kvcl_glue_data_end(ep);
    } else {
        kvcl_glue_rmem_close(rmem);
        rmem = fake_open_region(ep, SIZE);
    }
    ck_assert_uint_eq(get.done, 0); /* from progress only */
    ck_assert_int_eq(kvcl_xport_rdma.arm(&g->super), KVCL_ERR_BUSY);
    progress();
    check_ended(&get, KVCL_ERR_CANCELED);
    ck_assert_int_eq(post(other, &kept), KVCL_INPROGRESS);
    fake_connect();
    progress();
    ck_assert_uint_eq(fake_ucp.in_flight, 1); /* the later one alone */
    fake_complete(UCS_OK);
    progress();
    check_ended(&kept, KVCL_OK);
    ck_assert_uint_eq(fake_ucp.closed, 0);
    kvcl_glue_rmem_close(rmem);
    kvcl_glue_rmem_close(other);
    kvcl_glue_ep_close(ep);
    close_port();
}
END_TEST

/* The peer does not answer in time: messages carry the bytes until it does. */
START_TEST(operations_do_not_wait_for_ever)
{
    kvcl_xport_ep_t   *ep;
    kvcl_xport_rmem_t *rmem;
    waited_t          get;

    g = fake_open_port(true);
    ep   = open_peer();
    rmem = fake_open_region(ep, SIZE);
    ck_assert_int_eq(post(rmem, &get), KVCL_INPROGRESS);
    ck_assert_uint_eq(g->wait_timer.due_ns, data_of(ep)->wait_ns);
    data_of(ep)->wait_ns = 1;
    progress();
    progress();
    check_ended(&get, KVCL_ERR_UNREACHABLE);
    ck_assert_uint_eq(g->wait_timer.due_ns, 0);
    ck_assert_int_eq(post(rmem, &get), KVCL_ERR_UNREACHABLE);
    ck_assert_uint_eq(fake_ucp.created, 1);
    fake_connect();
    ck_assert_int_eq(post(rmem, &get), KVCL_INPROGRESS);
    ck_assert_uint_eq(fake_ucp.in_flight, 1);
    fake_complete(UCS_OK);
    kvcl_glue_rmem_close(rmem);
    kvcl_glue_ep_close(ep);
    close_port();
}
END_TEST

START_TEST(a_failure_ends_what_waits)
{
    kvcl_xport_ep_t   *ep;
    kvcl_xport_rmem_t *rmem;
    waited_t          get;
    unsigned          i;

    g = fake_open_port(true);
    ep   = open_peer();
    rmem = fake_open_region(ep, SIZE);
    for (i = 1; i <= 2; ++i) { /* the first time it is opened again at once */
        ck_assert_int_eq(post(rmem, &get), KVCL_INPROGRESS);
        fake_fail();
        progress();
        progress();
        check_ended(&get, KVCL_ERR_UNREACHABLE);
        ck_assert_uint_eq(fake_ucp.created, i);
        ck_assert_uint_eq(fake_ucp.closed, i);
    }
    ck_assert_uint_ne(data_of(ep)->retry_ns, 0);
    data_of(ep)->retry_ns = UINT64_MAX;
    ck_assert_int_eq(post(rmem, &get), KVCL_ERR_UNREACHABLE);
    data_of(ep)->retry_ns = 0;
    ck_assert_int_eq(post(rmem, &get), KVCL_INPROGRESS);
    ck_assert_uint_eq(fake_ucp.created, 3);
    fake_connect();
    progress();
    fake_complete(UCS_OK);
    kvcl_glue_rmem_close(rmem);
    kvcl_glue_ep_close(ep);
    close_port();
}
END_TEST

/* _i: then it is connected, or it fails. */
START_TEST(a_closed_peer_keeps_it_aside)
{
    kvcl_xport_ep_t   *ep, *again;
    kvcl_xport_rmem_t *rmem;
    waited_t          get;

    g = fake_open_port(true);
    ep   = open_peer();
    rmem = fake_open_region(ep, SIZE);
    ck_assert_int_eq(post(rmem, &get), KVCL_INPROGRESS);
    kvcl_glue_ep_close(ep);
    progress();
    progress();
    check_ended(&get, KVCL_ERR_CANCELED);
    kvcl_glue_rmem_close(rmem);
    progress();
    ck_assert_uint_eq(fake_ucp.closed, 0);
    ck_assert(!kvcl_list_is_empty(&g->aside));
    ck_assert(!kvcl_xport_rdma.closing(&g->super));
    again = open_peer(); /* no other one is opened meanwhile */
    rmem  = fake_open_region(again, SIZE);
    ck_assert_int_eq(post(rmem, &get), KVCL_ERR_UNREACHABLE);
    ck_assert_uint_eq(fake_ucp.created, 1);
    fake_ucp.unsent = (_i == 0);
    (_i == 0) ? fake_connect() : fake_fail();
    progress();
    if (_i == 0) { /* the last message of the connection */
        ck_assert_uint_eq(fake_ucp.closed, 0);
        fake_ucp.unsent = false;
        fake_complete(UCS_OK);
        progress();
    }
    ck_assert_uint_eq(fake_ucp.closed, 1);
    ck_assert(kvcl_list_is_empty(&g->aside) && kvcl_list_is_empty(&g->closing));
    ck_assert_int_eq(post(rmem, &get), KVCL_INPROGRESS);
    ck_assert_uint_eq(fake_ucp.created, 2);
    fake_connect();
    progress();
    fake_complete(UCS_OK);
    kvcl_glue_rmem_close(rmem);
    kvcl_glue_ep_close(again);
    ck_assert_uint_eq(fake_ucp.closed_early, 0);
    close_port();
}
END_TEST

/* _i: the peer was closed long ago, or just now. The worker goes as well. */
START_TEST(the_transport_is_closed_before_it_is_connected)
{
    kvcl_xport_ep_t   *ep;
    kvcl_xport_rmem_t *rmem;
    waited_t          get;

    g = fake_open_port(true);
    ep   = open_peer();
    rmem = fake_open_region(ep, SIZE);
    ck_assert_int_eq(post(rmem, &get), KVCL_INPROGRESS);
    kvcl_glue_rmem_close(rmem);
    kvcl_glue_ep_close(ep);
    if (_i == 0) {
        progress();
        progress();
        ck_assert_uint_eq(fake_ucp.closed, 0);
    }
    close_port();
    ck_assert_uint_eq(get.done, 1);
    ck_assert_uint_eq(fake_ucp.closed, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("glue_opening");
    TCase *tc    = tcase_create("opening");

    tcase_add_test(tc, operations_are_posted_in_order_when_it_is_connected);
    tcase_add_test(tc, one_that_is_connected_at_once_is_used_at_once);
    tcase_add_loop_test(tc, a_fence_ends_what_waits_and_closes_nothing, 0, 2);
    tcase_add_test(tc, operations_do_not_wait_for_ever);
    tcase_add_test(tc, a_failure_ends_what_waits);
    tcase_add_loop_test(tc, a_closed_peer_keeps_it_aside, 0, 2);
    tcase_add_loop_test(tc, the_transport_is_closed_before_it_is_connected, 0, 2);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
