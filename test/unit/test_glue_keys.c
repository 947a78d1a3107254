/*
 * Keys of RDMA, at both sides, over a UCX that this program plays (fake_ucp.h): those of a peer's regions, which are
 * kept while operations may use them.
 */
#include "config.h"
#include "fake_ucp.h"
#include "test_base.h"
#include "base/checksum.h"

#include <string.h>

enum { SIZE = 64 };

static glue_t    g;
static glue_ep_t ep;
static char      buf[SIZE];

typedef struct waited {
    kvcl_xport_send_t send;
    unsigned          done;
} waited_t;

static void on_done(kvcl_xport_send_t *send, kvcl_status_t status)
{
    (void)status;
    ++kvcl_container_of(send, waited_t, send)->done;
}

/* An instance of rdma and a peer whose endpoint for data is open. */
static void open_peer(void)
{
    static char any;

    fake_reset();
    memset(&g, 0, sizeof(g));
    memset(&ep, 0, sizeof(ep));
    g.super.ops = &kvcl_xport_rdma;
    g.plan.rdma = true;
    g.direct    = true;
    g.done_tail = &g.done_head;
    kvcl_list_init(&g.ending);
    ep.super.xport  = &g.super;
    ep.data.addr    = &any;
    ep.data.ucp_ep  = (ucp_ep_h)(void *)&any;
    ep.data.native  = true;
    kvcl_list_init(&ep.data.link);
    kvcl_list_init(&ep.data.rmems);
}

static kvcl_xport_rmem_t *open_region(void)
{
    struct {
        glue_packed_t packed;
        char          rkey[8];
    } region = {.packed = {.magic = GLUE_PACKED_MAGIC, .len = SIZE, .rkey_len = sizeof(region.rkey)}};
    kvcl_xport_rmem_attr_t attr = {0};
    kvcl_xport_rmem_t      *rmem;

    region.packed.check = kvcl_check32((char *)&region + offsetof(glue_packed_t, addr),
                                       sizeof(region) - offsetof(glue_packed_t, addr));
    ck_assert_int_eq(kvcl_glue_rmem_open(&ep.super, &region, sizeof(region), 0, SIZE, &rmem, &attr), KVCL_OK);
    ck_assert(attr.get && attr.put);
    return rmem;
}

static void post(kvcl_xport_rmem_t *rmem, waited_t *waited, bool put)
{
    *waited = (waited_t){.send = {.done = on_done}};
    ck_assert_int_eq(put ? kvcl_glue_put(rmem, 0, buf, SIZE, &waited->send)
                         : kvcl_glue_get(rmem, 0, buf, SIZE, &waited->send), KVCL_INPROGRESS);
}

/* _i: a get, or a put, is in flight when its region is closed. */
START_TEST(a_key_outlives_the_operations_that_may_use_it)
{
    kvcl_xport_rmem_t *one, *two;
    waited_t          first, second;

    open_peer();
    one = open_region();
    two = open_region();
    post(one, &first, _i != 0);
    post(two, &second, _i != 0);
    kvcl_glue_rmem_close(one);
    ck_assert_uint_eq(fake_ucp.keys, 2);
    fake_complete(UCS_OK);
    kvcl_glue_rmem_close(two); /* the second operation is in flight */
    ck_assert_uint_eq(fake_ucp.keys, 2);
    fake_complete(UCS_OK);
    ck_assert_uint_eq(first.done + second.done, 2);
    one = open_region();
    ck_assert_uint_eq(fake_ucp.keys, 3);
    kvcl_glue_rmem_close(one); /* nothing is in flight */
    ck_assert_uint_eq(fake_ucp.keys, 0);
    ck_assert(kvcl_list_is_empty(&ep.data.rmems));
    ck_assert_uint_eq(fake_ucp.used_after, 0);
}
END_TEST

/* The endpoint for data is ended: the keys of all its regions are released, those of closed ones as well. */
START_TEST(keys_of_an_ended_endpoint)
{
    kvcl_xport_rmem_t *closed, *open;
    waited_t          first, second;

    open_peer();
    closed = open_region();
    open   = open_region();
    post(closed, &first, false);
    post(open, &second, true);
    kvcl_glue_rmem_close(closed);
    kvcl_glue_data_end(&ep.super);
    (void)kvcl_glue_data_progress(&g);
    fake_complete(UCS_ERR_CANCELED);
    fake_complete(UCS_ERR_CANCELED);
    (void)kvcl_glue_data_progress(&g);
    ck_assert(kvcl_list_is_empty(&g.ending));
    ck_assert_uint_eq(fake_ucp.keys, 0);
    kvcl_glue_rmem_close(open);
    ck_assert(kvcl_list_is_empty(&ep.data.rmems));
}
END_TEST

/* The peer's endpoint is closed while operations are in flight, first with a region that is open, then without. */
START_TEST(the_close_waits_for_regions_that_are_open)
{
    kvcl_xport_rmem_t *closed, *open;
    waited_t          first;

    open_peer();
    closed = open_region();
    open   = open_region();
    post(closed, &first, true);
    kvcl_glue_rmem_close(closed);
    ck_assert(!kvcl_glue_data_close(&ep));
    ck_assert_uint_eq(fake_ucp.keys, 2);
    kvcl_glue_rmem_close(open);
    ck_assert_uint_eq(fake_ucp.keys, 2);
    ck_assert(kvcl_glue_data_close(&ep));
    ck_assert_uint_eq(fake_ucp.keys, 0);
    ck_assert_ptr_null(ep.data.ucp_ep);
    fake_complete(UCS_ERR_CANCELED);
    ck_assert_uint_eq(first.done, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("glue_keys");
    TCase *tc    = tcase_create("peers");

    tcase_add_loop_test(tc, a_key_outlives_the_operations_that_may_use_it, 0, 2);
    tcase_add_test(tc, keys_of_an_ended_endpoint);
    tcase_add_test(tc, the_close_waits_for_regions_that_are_open);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
