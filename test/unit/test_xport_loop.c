/*
 * The loop transport's own guarantees: its faults have the described effects, and contexts in several threads work
 * together.
 */
#include "config.h"
#include "loop/xport_loop.h"
#include "xport_pair.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

static uint64_t seen[512];

static void note(side_t *side, const void *hdr, size_t hdr_len, const void *data, size_t len,
                 kvcl_xport_reply_t *reply)
{
    (void)hdr_len;
    (void)data;
    (void)len;
    (void)reply;
    memcpy(&seen[side->received], hdr, sizeof(uint64_t));
}

static void send_seq(pair_t *pair, uint64_t from, uint64_t to)
{
    for (; from < to; ++from) {
        ck_assert_int_eq(pair->a.ops->am_send(pair->a.ep, &from, sizeof(from), NULL, 0, 0, NULL), KVCL_OK);
    }
}

START_TEST(the_nth_message_is_lost)
{
    kvcl_loop_faults_t faults = {.drop_nth = 3};
    pair_t             pair;

    pair_open(&pair, PAIR_LOOP);
    pair.b.on_recv = note;
    kvcl_loop_set_faults(&faults);
    send_seq(&pair, 0, 6);
    PAIR_UNTIL(&pair, pair.b.received == 5);
    ck_assert_uint_eq(seen[1], 1);
    ck_assert_uint_eq(seen[2], 3);
    kvcl_loop_set_faults(NULL);
    pair_close(&pair);
}
END_TEST

START_TEST(a_delayed_message_waits_for_its_turn)
{
    kvcl_loop_faults_t faults = {.delay_progress = 5};
    pair_t             pair;
    int                i;

    pair_open(&pair, PAIR_LOOP);
    kvcl_loop_set_faults(&faults);
    send_seq(&pair, 0, 1);
    for (i = 0; i < 4; ++i) {
        (void)pair.b.ops->progress(pair.b.xport);
        ck_assert_uint_eq(pair.b.received, 0);
        ck_assert_int_eq(pair.b.ops->arm(pair.b.xport), KVCL_ERR_BUSY);
    }
    (void)pair.b.ops->progress(pair.b.xport);
    ck_assert_uint_eq(pair.b.received, 1);
    ck_assert_int_eq(pair.b.ops->arm(pair.b.xport), KVCL_OK);
    pair_close(&pair);
}
END_TEST

START_TEST(reordering_loses_nothing_and_replays)
{
    kvcl_loop_faults_t faults = {.reorder_seed = 77};
    uint64_t           first[100];
    bool               there[100] = {false};
    int                moved = 0, round, i;
    pair_t             pair;

    for (round = 0; round < 2; ++round) {
        pair_open(&pair, PAIR_LOOP);
        pair.b.on_recv = note;
        kvcl_loop_set_faults(&faults);
        send_seq(&pair, 0, 100);
        PAIR_UNTIL(&pair, pair.b.received == 100);
        for (i = 0; i < 100; ++i) {
            there[seen[i]] = true;
            moved += (seen[i] != (uint64_t)i);
            ck_assert((round == 0) || (first[i] == seen[i]));
            first[i] = seen[i];
        }
        pair_close(&pair);
    }
    for (i = 0; i < 100; ++i) {
        ck_assert(there[i]);
    }
    ck_assert_int_gt(moved, 20);
}
END_TEST

START_TEST(only_unordered_messages_are_overtaken)
{
    kvcl_loop_faults_t faults = {.overtake_seed = 99};
    uint64_t           seq, ordered = 0, first[400];
    bool               there[400] = {false};
    int                moved = 0, round, i;
    pair_t             pair;

    for (round = 0; round < 2; ++round) {
        pair_open(&pair, PAIR_LOOP);
        pair.b.on_recv = note;
        kvcl_loop_set_faults(&faults);
        for (seq = 0; seq < 400; ++seq) { /* every fourth is ordered */
            ck_assert_int_eq(pair.a.ops->am_send(pair.a.ep, &seq, sizeof(seq), NULL, 0,
                                                 (seq % 4 == 0) ? 0 : KVCL_XPORT_UNORDERED, NULL), KVCL_OK);
        }
        PAIR_UNTIL(&pair, pair.b.received == 400);
        for (ordered = 0, moved = 0, i = 0; i < 400; ++i) {
            ck_assert_uint_lt(seen[i], 400);
            there[seen[i]] = true;
            moved += (seen[i] != (uint64_t)i);
            ck_assert((seen[i] % 4 != 0) || (seen[i] == ordered));
            ordered += (seen[i] % 4 == 0) ? 4 : 0;
            ck_assert((round == 0) || (first[i] == seen[i]));
            first[i] = seen[i];
        }
        pair_close(&pair);
    }
    for (i = 0; i < 400; ++i) {
        ck_assert(there[i]);
    }
    ck_assert_int_gt(moved, 100);
    kvcl_loop_set_faults(NULL);
}
END_TEST

/* None follows that could overtake it. */
START_TEST(the_last_unordered_message_is_delivered)
{
    kvcl_loop_faults_t faults = {.overtake_seed = 5};
    pair_t             pair;
    uint64_t           seq;

    pair_open(&pair, PAIR_LOOP);
    kvcl_loop_set_faults(&faults);
    for (seq = 0; seq < 20; ++seq) {
        ck_assert_int_eq(pair.a.ops->am_send(pair.a.ep, &seq, sizeof(seq), NULL, 0, KVCL_XPORT_UNORDERED, NULL),
                         KVCL_OK);
        PAIR_UNTIL(&pair, pair.b.received == seq + 1);
        ck_assert_int_eq(pair.b.ops->arm(pair.b.xport), KVCL_OK);
    }
    kvcl_loop_set_faults(NULL);
    pair_close(&pair);
}
END_TEST

START_TEST(each_failed_allocation_changes_nothing)
{
    kvcl_loop_faults_t  faults = {.fail_alloc_nth = 1};
    kvcl_xport_params_t params = {.path = "loop"};
    kvcl_xport_mem_t    *mem   = NULL;
    kvcl_xport_ep_t     *ep    = NULL;
    kvcl_xport_t        *xport = NULL;
    const void          *addr;
    uint64_t            hdr = 1;
    size_t              len;
    char                buf[1000];
    pair_t              pair;

    pair_open(&pair, PAIR_LOOP);
    pair.b.ops->address(pair.b.xport, &addr, &len);
    kvcl_loop_set_faults(&faults);
    ck_assert_int_eq(kvcl_xport_loop.init(&params, &xport), KVCL_ERR_NO_MEMORY);
    kvcl_loop_set_faults(&faults);
    ck_assert_int_eq(pair.a.ops->ep_create(pair.a.xport, addr, len, &ep), KVCL_ERR_NO_MEMORY);
    kvcl_loop_set_faults(&faults);
    ck_assert_int_eq(pair.a.ops->am_send(pair.a.ep, &hdr, 8, NULL, 0, 0, NULL), KVCL_ERR_NO_MEMORY);
    kvcl_loop_set_faults(&faults);
    ck_assert_int_eq(pair.a.ops->mem_register(pair.a.xport, buf, sizeof(buf), &mem), KVCL_ERR_NO_MEMORY);
    ck_assert_ptr_null(xport);
    ck_assert_ptr_null(ep);
    ck_assert_ptr_null(mem);
    ck_assert_int_eq(pair.a.ops->am_send(pair.a.ep, &hdr, 8, NULL, 0, 0, NULL), KVCL_OK);
    PAIR_UNTIL(&pair, pair.b.received == 1);
    pair_close(&pair);
}
END_TEST

START_TEST(a_dead_region_or_context_is_refused)
{
    kvcl_xport_rmem_attr_t attr;
    kvcl_xport_rmem_t      *rmem;
    kvcl_xport_mem_t       *mem;
    kvcl_xport_ep_t        *ep;
    const void             *addr;
    char                   packed[512], dead[64];
    size_t                 len = sizeof(packed), dead_len;
    pair_t                 pair;
    static char            p[4096];

    pair_open(&pair, PAIR_LOOP);
    ck_assert_int_eq(pair.b.ops->mem_register(pair.b.xport, p, 4096, &mem), KVCL_OK);
    ck_assert_int_eq(pair.b.ops->mem_pack(mem, packed, &len), KVCL_OK);
    pair.b.ops->mem_free(mem);
    ck_assert_int_eq(pair.a.ops->rmem_open(pair.a.ep, packed, len, (uintptr_t)p, 4096, &rmem, &attr),
                     KVCL_ERR_NOT_REGISTERED);
    pair.b.ops->address(pair.b.xport, &addr, &dead_len);
    memcpy(dead, addr, dead_len);
    side_close(&pair.b);
    ck_assert_int_eq(pair.a.ops->ep_create(pair.a.xport, dead, dead_len, &ep), KVCL_ERR_UNREACHABLE);
    side_close(&pair.a);
}
END_TEST

START_TEST(faults_choose_the_path_to_memory)
{
    kvcl_loop_faults_t     faults = {.no_map = true, .async_sends = true};
    kvcl_xport_rmem_attr_t attr;
    kvcl_xport_rmem_t      *rmem;
    kvcl_xport_mem_t       *mem;
    char                   packed[512], near[100];
    size_t                 len = sizeof(packed);
    waited_t               waited = waited_new();
    pair_t                 pair;
    static char            p[4096];

    pair_open(&pair, PAIR_LOOP);
    kvcl_loop_set_faults(&faults);
    ck_assert_int_eq(pair.b.ops->mem_register(pair.b.xport, p, 4096, &mem), KVCL_OK);
    fill(p, 4096, 6);
    ck_assert_int_eq(pair.b.ops->mem_pack(mem, packed, &len), KVCL_OK);
    ck_assert_int_eq(pair.a.ops->rmem_open(pair.a.ep, packed, len, (uintptr_t)p, 4096, &rmem, &attr), KVCL_OK);
    ck_assert_ptr_null(attr.map);
    ck_assert(attr.get && attr.put);
    ck_assert_int_eq(pair.a.ops->get(rmem, 0, near, sizeof(near), &waited.send), KVCL_INPROGRESS);
    ck_assert_int_eq(waited.done, 0);
    PAIR_UNTIL(&pair, waited.done == 1);
    ck_assert(filled(near, sizeof(near), 6));
    ck_assert_int_eq(pair.a.ops->put(rmem, 4000, near, sizeof(near), &waited.send), KVCL_ERR_OUT_OF_RANGE);
    pair.a.ops->rmem_close(rmem);
    faults.no_rma = true;
    kvcl_loop_set_faults(&faults);
    ck_assert_int_eq(pair.a.ops->rmem_open(pair.a.ep, packed, len, (uintptr_t)p, 4096, &rmem, &attr), KVCL_OK);
    ck_assert(!attr.get && !attr.put && (attr.map == NULL));
    pair.a.ops->rmem_close(rmem);
    pair.b.ops->mem_free(mem);
    kvcl_loop_set_faults(NULL);
    pair_close(&pair);
}
END_TEST

typedef struct exposed {
    char                   bytes[4096];
    kvcl_xport_mem_t       *mem;
    kvcl_xport_rmem_t      *rmem; /* as the other side sees it */
    kvcl_xport_rmem_attr_t attr;
} exposed_t;

static void expose(side_t *owner, side_t *peer, exposed_t *one)
{
    char   packed[512];
    size_t len = sizeof(packed);

    ck_assert_int_eq(owner->ops->mem_register(owner->xport, one->bytes, sizeof(one->bytes), &one->mem), KVCL_OK);
    ck_assert_int_eq(owner->ops->mem_pack(one->mem, packed, &len), KVCL_OK);
    ck_assert_int_eq(peer->ops->rmem_open(peer->ep, packed, len, (uintptr_t)one->bytes, sizeof(one->bytes), &one->rmem,
                                          &one->attr), KVCL_OK);
}

START_TEST(a_stalled_get_ends_by_rma_end_alone)
{
    kvcl_loop_faults_t faults = {.no_map = true, .async_sends = true, .stall_rma = true};
    waited_t           get = waited_new(), flush = waited_new();
    char               near[100] = {0};
    static exposed_t   far;
    pair_t             pair;
    int                i;

    pair_open(&pair, PAIR_LOOP);
    kvcl_loop_set_faults(&faults);
    expose(&pair.b, &pair.a, &far);
    fill(far.bytes, sizeof(far.bytes), 1);
    ck_assert_int_eq(pair.a.ops->get(far.rmem, 0, near, sizeof(near), &get.send), KVCL_INPROGRESS);
    ck_assert_int_eq(pair.a.ops->flush(far.rmem, &flush.send), KVCL_INPROGRESS);
    for (i = 0; i < 10; ++i) {
        memset(near, 0, sizeof(near));
        (void)pair_progress(&pair);
        ck_assert(filled(near, sizeof(near), 1)); /* the network still writes */
    }
    ck_assert((get.done == 0) && (flush.done == 0));
    ck_assert_int_eq(pair.a.ops->arm(pair.a.xport), KVCL_OK); /* nothing to do: a sleeper needs a timer */
    pair.a.ops->rma_end(pair.a.ep);
    ck_assert((get.done == 0) && (flush.done == 0)); /* from progress only */
    PAIR_UNTIL(&pair, (get.done == 1) && (flush.done == 1));
    ck_assert((get.status < 0) && (flush.status < 0));
    memset(near, 0, sizeof(near));
    for (i = 0; i < 10; ++i) {
        (void)pair_progress(&pair);
    }
    ck_assert_int_eq(near[1] | near[50], 0);
    faults.stall_rma = false;
    kvcl_loop_set_faults(&faults);
    ck_assert_int_eq(pair.a.ops->get(far.rmem, 0, near, sizeof(near), &get.send), KVCL_INPROGRESS);
    PAIR_UNTIL(&pair, get.done == 2);
    ck_assert((get.status == KVCL_OK) && filled(near, sizeof(near), 1) && (pair.a.failures == 0));
    pair.a.ops->rmem_close(far.rmem);
    pair.b.ops->mem_free(far.mem);
    kvcl_loop_set_faults(NULL);
    pair_close(&pair);
}
END_TEST

START_TEST(a_get_of_freed_memory_ends_those_in_flight_and_no_endpoint)
{
    kvcl_loop_faults_t faults = {.no_map = true, .async_sends = true, .break_rma = true};
    waited_t           stale = waited_new(), mine = waited_new(), back = waited_new();
    uint64_t           breaks = kvcl_loop_breaks();
    static exposed_t   gone, left, home; /* of b, b, a */
    char               near[3][100];
    pair_t             pair;

    pair_open(&pair, PAIR_LOOP);
    kvcl_loop_set_faults(&faults);
    expose(&pair.b, &pair.a, &gone);
    expose(&pair.b, &pair.a, &left);
    expose(&pair.a, &pair.b, &home);
    pair.b.ops->mem_free(gone.mem);
    ck_assert_int_eq(pair.a.ops->get(left.rmem, 0, near[0], 100, &mine.send), KVCL_INPROGRESS);
    ck_assert_int_eq(pair.b.ops->get(home.rmem, 0, near[1], 100, &back.send), KVCL_INPROGRESS);
    ck_assert_int_eq(pair.a.ops->get(gone.rmem, 0, near[2], 100, &stale.send), KVCL_INPROGRESS);
    PAIR_UNTIL(&pair, (mine.done == 1) && (back.done == 1) && (stale.done == 1));
    ck_assert((mine.status == KVCL_ERR_RANK_FAILED) && (back.status == KVCL_ERR_RANK_FAILED) &&
              (stale.status == KVCL_ERR_RANK_FAILED));
    ck_assert_uint_eq(kvcl_loop_breaks(), breaks + 1);
    ck_assert_int_eq(pair.a.ops->get(left.rmem, 0, near[0], 100, &mine.send), KVCL_INPROGRESS);
    ck_assert_int_eq(pair.b.ops->get(home.rmem, 0, near[1], 100, &back.send), KVCL_INPROGRESS);
    PAIR_UNTIL(&pair, (mine.done == 2) && (back.done == 2));
    ck_assert((mine.status == KVCL_OK) && (back.status == KVCL_OK));
    ck_assert((pair.a.failures == 0) && (pair.b.failures == 0));
    pair.a.ops->rmem_close(gone.rmem);
    pair.a.ops->rmem_close(left.rmem);
    pair.b.ops->rmem_close(home.rmem);
    pair.b.ops->mem_free(left.mem);
    pair.a.ops->mem_free(home.mem);
    kvcl_loop_set_faults(NULL);
    pair_close(&pair);
}
END_TEST

enum { BALLS = 5000 };

static void hit_back(side_t *side, const void *hdr, size_t hdr_len, const void *data, size_t len,
                     kvcl_xport_reply_t *reply)
{
    (void)data;
    (void)len;
    (void)reply;
    if (side->received + 1 < BALLS) {
        side->wrong += side->ops->am_send(side->ep, hdr, hdr_len, NULL, 0, 0, NULL) != KVCL_OK;
    }
}

/* One thread, one context, asleep between messages. */
static void *play(void *arg)
{
    side_t        *side = arg;
    struct pollfd pfd   = {.fd = side->ops->event_fd(side->xport), .events = POLLIN};

    while (side->received < BALLS) {
        if ((side->ops->progress(side->xport) == 0) && (side->ops->arm(side->xport) == KVCL_OK)) {
            side->wrong += poll(&pfd, 1, 50000) != 1;
        }
    }
    return NULL;
}

START_TEST(threads_wake_each_other)
{
    pthread_t thread;
    uint64_t  hdr = 1;
    pair_t    pair;

    pair_open(&pair, PAIR_LOOP);
    pair.a.on_recv = hit_back;
    pair.b.on_recv = hit_back;
    ck_assert_int_eq(pair.a.ops->am_send(pair.a.ep, &hdr, sizeof(hdr), NULL, 0, 0, NULL), KVCL_OK);
    ck_assert_int_eq(pair.b.ops->am_send(pair.b.ep, &hdr, sizeof(hdr), NULL, 0, 0, NULL), KVCL_OK);
    ck_assert_int_eq(pthread_create(&thread, NULL, play, &pair.b), 0);
    (void)play(&pair.a);
    pthread_join(thread, NULL);
    ck_assert_uint_eq(pair.a.wrong + pair.b.wrong, 0);
    pair_close(&pair);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("loop");
    TCase   *tcase = tcase_create("loop");
    SRunner *runner;
    int     failed;

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, the_nth_message_is_lost);
    tcase_add_test(tcase, a_delayed_message_waits_for_its_turn);
    tcase_add_test(tcase, reordering_loses_nothing_and_replays);
    tcase_add_test(tcase, only_unordered_messages_are_overtaken);
    tcase_add_test(tcase, the_last_unordered_message_is_delivered);
    tcase_add_test(tcase, each_failed_allocation_changes_nothing);
    tcase_add_test(tcase, a_dead_region_or_context_is_refused);
    tcase_add_test(tcase, faults_choose_the_path_to_memory);
    tcase_add_test(tcase, a_stalled_get_ends_by_rma_end_alone);
    tcase_add_test(tcase, a_get_of_freed_memory_ends_those_in_flight_and_no_endpoint);
    tcase_add_test(tcase, threads_wake_each_other);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? 0 : 1;
}
