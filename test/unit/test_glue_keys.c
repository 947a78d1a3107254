/*
 * Keys of RDMA, at both sides, over a UCX that this program plays (fake_ucp.h): those of a peer's regions, which are
 * kept while operations may use them; and those of local memory, which are invalid once the memory is freed, or an
 * error says that they are not.
 */
#include "config.h"
#include "fake_ucp.h"
#include "test_base.h"
#include "base/error.h"

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
    kvcl_list_init(&g.aside);
    kvcl_glue_wait_init(&g);
    ep.super.xport  = &g.super;
    ep.data.addr    = &any;
    ep.data.ucp_ep  = (ucp_ep_h)(void *)&any;
    ep.data.native  = true;
    kvcl_list_init(&ep.data.link);
    kvcl_list_init(&ep.data.rmems);
    kvcl_list_init(&ep.data.waiting);
    kvcl_list_init(&ep.data.wait_link);
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
    one = fake_open_region(&ep.super, SIZE);
    two = fake_open_region(&ep.super, SIZE);
    post(one, &first, _i != 0);
    post(two, &second, _i != 0);
    kvcl_glue_rmem_close(one);
    ck_assert_uint_eq(fake_ucp.keys, 2);
    fake_complete(UCS_OK);
    kvcl_glue_rmem_close(two); /* the second operation is in flight */
    ck_assert_uint_eq(fake_ucp.keys, 2);
    fake_complete(UCS_OK);
    ck_assert_uint_eq(first.done + second.done, 2);
    one = fake_open_region(&ep.super, SIZE);
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
    closed = fake_open_region(&ep.super, SIZE);
    open   = fake_open_region(&ep.super, SIZE);
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
    closed = fake_open_region(&ep.super, SIZE);
    open   = fake_open_region(&ep.super, SIZE);
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

/* ---- local memory ---- */

enum { PAGE = 4096, AREAS = 6, AREA = 3 * PAGE, ROUNDS = 4000 };

static char area[AREAS][AREA] __attribute__((aligned(PAGE)));

/* An instance of rdma. The pages that it keeps for itself are registered. */
static void open_port(void)
{
    open_peer();
    ck_assert_int_eq(kvcl_glue_keys_open(&g), KVCL_OK);
    (void)snprintf(g.plan.devices, sizeof(g.plan.devices), "rxe0:1");
}

static void close_port(void)
{
    kvcl_glue_keys_close(&g);
}

static ucp_mem_h use_memory(const char *addr, size_t len)
{
    ucp_mem_map_params_t params = {.address = (void *)(uintptr_t)addr, .length = len};
    ucp_mem_h            memh   = NULL;

    return (ucp_mem_map(NULL, &params, &memh) == UCS_OK) ? memh : NULL;
}

static void free_memory(ucp_mem_h memh)
{
    ck_assert_int_eq(ucp_mem_unmap(NULL, memh), UCS_OK);
    kvcl_glue_keys_freed(&g);
}

/* No more memory may be locked than is locked with the memory that is freed. _i: areas, all freed one after another. */
START_TEST(freed_memory_has_no_key_at_the_limit)
{
    ucp_mem_h memh[AREAS];
    int       round, i;

    open_port();
    for (round = 0; round < 3; ++round) {
        fake_ucp.limit_pages = UINT64_MAX;
        for (i = 0; i <= _i; ++i) {
            memh[i] = use_memory(area[i], AREA);
            ck_assert_ptr_nonnull(memh[i]);
        }
        fake_ucp.limit_pages = fake_locked_pages();
        for (i = 0; i <= _i; ++i) {
            ck_assert(fake_has_key(area[i]));
            free_memory(memh[i]);
            ck_assert(!fake_has_key(area[i]));
            ck_assert_int_eq(kvcl_glue_mem_fence(&g.super), KVCL_OK);
            fake_ucp.limit_pages = fake_locked_pages(); /* as if others had locked what became free */
        }
    }
    close_port();
}
END_TEST

/* An operation of this rank uses the memory as its own buffer while it is freed, at the limit. */
START_TEST(memory_in_use_loses_its_key_when_its_operations_have_ended)
{
    kvcl_xport_rmem_t *rmem;
    ucp_mem_h         memh;
    waited_t          get;
    int               round;

    open_port();
    rmem = fake_open_region(&ep.super, SIZE);
    for (round = 0; round < 4; ++round) {
        fake_ucp.limit_pages = UINT64_MAX;
        memh = use_memory(area[0], AREA);
        fake_ucp.limit_pages = fake_locked_pages();
        post(rmem, &get, false);
        fake_use(area[0]);
        free_memory(memh);
        ck_assert(fake_has_key(area[0]));
        ck_assert(g.keys.due);
        fake_unuse(area[0]);
        fake_complete(UCS_OK);
        (void)kvcl_glue_data_progress(&g);
        ck_assert(!fake_has_key(area[0]));
        ck_assert(!g.keys.due);
        ck_assert_int_eq(kvcl_glue_mem_fence(&g.super), KVCL_OK);
    }
    kvcl_glue_rmem_close(rmem);
    close_port();
}
END_TEST

START_TEST(a_key_that_stays_is_reported_until_it_is_gone)
{
    ucp_mem_h memh;

    open_port();
    memh = use_memory(area[0], AREA);
    fake_ucp.fail_nth = 1;
    free_memory(memh);
    ck_assert(fake_has_key(area[0]));
    fake_ucp.limit_pages = 0;
    ck_assert_int_eq(kvcl_glue_mem_fence(&g.super), KVCL_ERR_NO_MEMORY);
    ck_assert_msg((strstr(kvcl_last_error(), "rxe0:1") != NULL) && (strstr(kvcl_last_error(), "ulimit -l") != NULL),
                  "%s", kvcl_last_error());
    ck_assert_int_eq(kvcl_glue_mem_fence(&g.super), KVCL_ERR_NO_MEMORY);
    fake_ucp.limit_pages = UINT64_MAX;
    ck_assert_int_eq(kvcl_glue_mem_fence(&g.super), KVCL_OK);
    ck_assert(!fake_has_key(area[0]));
    close_port();
}
END_TEST

/* Registrations fail and limits change at random. Where no error is reported, freed memory has no key. */
START_TEST(random_failures)
{
    ucp_mem_h     memh[AREAS] = {NULL};
    kvcl_rand_t   rnd;
    kvcl_status_t status;
    unsigned      round, at, i, failed = 0;

    test_seed(&rnd);
    open_port();
    for (round = 0; round < ROUNDS; ++round) {
        at                   = (unsigned)kvcl_rand_below(&rnd, AREAS);
        fake_ucp.fail_nth    = (kvcl_rand_below(&rnd, 8) == 0) ? 1 + (unsigned)kvcl_rand_below(&rnd, 3) : 0;
        fake_ucp.limit_pages = fake_locked_pages() + kvcl_rand_below(&rnd, 5);
        if (memh[at] == NULL) {
            memh[at] = use_memory(area[at] + kvcl_rand_below(&rnd, 100), PAGE + kvcl_rand_below(&rnd, PAGE));
        } else {
            free_memory(memh[at]);
            memh[at] = NULL;
        }
        status  = kvcl_glue_mem_fence(&g.super);
        failed += (status != KVCL_OK);
        for (i = 0; (status == KVCL_OK) && (i < AREAS); ++i) {
            ck_assert((memh[i] != NULL) || !fake_has_key(area[i] + 200));
        }
    }
    fake_ucp.fail_nth    = 0;
    fake_ucp.limit_pages = UINT64_MAX;
    ck_assert_int_eq(kvcl_glue_mem_fence(&g.super), KVCL_OK);
    printf("%u of %u calls reported a key\n", failed, (unsigned)ROUNDS);
    ck_assert_uint_gt(failed, 0);
    ck_assert_uint_lt(failed, ROUNDS / 2);
    close_port();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("glue_keys");
    TCase *tc    = tcase_create("keys");

    tcase_add_loop_test(tc, a_key_outlives_the_operations_that_may_use_it, 0, 2);
    tcase_add_test(tc, keys_of_an_ended_endpoint);
    tcase_add_test(tc, the_close_waits_for_regions_that_are_open);
    tcase_add_loop_test(tc, freed_memory_has_no_key_at_the_limit, 0, AREAS);
    tcase_add_test(tc, memory_in_use_loses_its_key_when_its_operations_have_ended);
    tcase_add_test(tc, a_key_that_stays_is_reported_until_it_is_gone);
    tcase_add_test(tc, random_failures);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
