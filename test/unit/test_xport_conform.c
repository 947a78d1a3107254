/*
 * The requirements of every transport, run over loop, ucx on shared memory, ucx on tcp, ucx with its own choice, and
 * KVCL's own tcp, plain and aead.
 */
#include "config.h"
#include "xport_pair.h"

#include <stdio.h>

static const size_t sizes[] = {0, 1, 7, 8, 63, 64, 500, 4096, 8191, 8192, 8193, 65536, 245760, 262144, 1048576,
                               5000001};

static int is_tcp(int kind)
{
    return (kind == PAIR_TCP) || (kind >= PAIR_PLAIN);
}

/* Send with an object and wait; returns the final status. */
static kvcl_status_t send_wait(pair_t *pair, const void *hdr, size_t hdr_len, const kvcl_iov_t *iov, size_t n_iov)
{
    waited_t      waited = waited_new();
    kvcl_status_t status = pair->a.ops->am_send(pair->a.ep, hdr, hdr_len, iov, n_iov, 0, &waited.send);

    if (status != KVCL_INPROGRESS) {
        return status;
    }
    PAIR_UNTIL(pair, waited.done);
    ck_assert_int_eq(waited.done, 1);
    return waited.status;
}

START_TEST(messages_of_every_size_arrive_whole)
{
    char     *buf = malloc(sizes[sizeof(sizes) / sizeof(sizes[0]) - 1]);
    uint64_t hdr[4];
    pair_t   pair;
    size_t   i;

    pair_open(&pair, (pair_kind_t)_i);
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        kvcl_iov_t iov = {buf, sizes[i]};

        fill(buf, sizes[i], i);
        fill(hdr, sizeof(hdr), i + 1000);
        ck_assert_int_eq(send_wait(&pair, hdr, sizeof(hdr), &iov, 1), KVCL_OK);
        PAIR_UNTIL(&pair, pair.b.received == i + 1);
        ck_assert_uint_eq(pair.b.len, sizes[i]);
        ck_assert(filled(pair.b.data, sizes[i], i));
        ck_assert_uint_eq(pair.b.hdr_len, sizeof(hdr));
        ck_assert(filled(pair.b.hdr, sizeof(hdr), i + 1000));
    }
    ck_assert_uint_eq(pair.b.wrong, 0);
    pair_close(&pair);
    free(buf);
}
END_TEST

START_TEST(headers_of_every_size_arrive_aligned)
{
    kvcl_xport_attr_t attr;
    uint64_t          hdr[128];
    char              data[13];
    kvcl_iov_t        iov = {data, sizeof(data)};
    pair_t            pair;
    size_t            len;

    pair_open(&pair, (pair_kind_t)_i);
    pair.a.ops->query(pair.a.xport, &attr);
    ck_assert_uint_ge(attr.max_hdr, 256);
    for (len = 1; len <= attr.max_hdr; len += (len < 70) ? 1 : 119) {
        iov.len = len % sizeof(data);
        fill(hdr, len, len);
        fill(data, iov.len, len);
        ck_assert_int_eq(pair.a.ops->am_send(pair.a.ep, hdr, len, &iov, 1, 0, NULL), KVCL_OK);
        memset(hdr, 0, len); /* it was copied */
        PAIR_UNTIL(&pair, pair.b.received > 0);
        pair.b.received = 0;
        ck_assert_uint_eq(pair.b.hdr_len, len);
        ck_assert(filled(pair.b.hdr, len, len));
        ck_assert_uint_eq(pair.b.len, iov.len);
        ck_assert(filled(pair.b.data, iov.len, len));
    }
    ck_assert_uint_eq(pair.b.wrong, 0);
    ck_assert_int_eq(pair.a.ops->am_send(pair.a.ep, hdr, attr.max_hdr + 1, NULL, 0, 0, NULL), KVCL_ERR_INVALID_PARAM);
    pair_close(&pair);
}
END_TEST

static void check_order(side_t *side, const void *hdr, size_t hdr_len, const void *data, size_t len,
                        kvcl_xport_reply_t *reply)
{
    uint64_t seq;

    (void)reply;
    ck_assert_uint_eq(hdr_len, sizeof(seq));
    memcpy(&seq, hdr, sizeof(seq));
    side->wrong += (seq != side->received) || !filled(data, len, seq);
}

START_TEST(messages_of_one_frame_keep_their_order)
{
    enum { COUNT = 3000 };
    kvcl_xport_attr_t attr;
    char              *data;
    pair_t            pair;
    uint64_t          seq;

    pair_open(&pair, (pair_kind_t)_i);
    pair.b.on_recv = check_order;
    pair.a.ops->query(pair.a.xport, &attr);
    data = malloc(attr.inline_bytes);
    for (seq = 0; seq < COUNT; ++seq) {
        kvcl_iov_t iov = {data, (seq * 37) % ((seq % 5 == 0) ? attr.inline_bytes : 100)};

        fill(data, iov.len, seq);
        ck_assert_int_eq(pair.a.ops->am_send(pair.a.ep, &seq, sizeof(seq), &iov, 1, 0, NULL), KVCL_OK);
        if (seq % 500 == 499) {
            PAIR_UNTIL(&pair, pair.b.received > seq - 300); /* not all: some pile up */
        }
    }
    PAIR_UNTIL(&pair, pair.b.received == COUNT);
    ck_assert_uint_eq(pair.b.wrong, 0);
    pair_close(&pair);
    free(data);
}
END_TEST

/* A short message does not overtake one of many fragments. */
START_TEST(messages_of_every_size_keep_their_order)
{
    enum { COUNT = 240 };
    static const size_t lengths[] = {0, 300000, 8, 70000, 100, 9000};
    static waited_t     sends[COUNT];
    static uint64_t     seqs[COUNT];
    kvcl_status_t       status;
    char                *data[COUNT];
    pair_t              pair;
    uint64_t            seq;
    unsigned            n_pending = 0;

    pair_open(&pair, (pair_kind_t)_i);
    pair.b.on_recv = check_order;
    for (seq = 0; seq < COUNT; ++seq) {
        kvcl_iov_t iov = {NULL, lengths[seq % 6]};

        iov.buf = data[seq] = malloc(iov.len + 1);
        fill(data[seq], iov.len, seq);
        seqs[seq]  = seq;
        sends[seq] = waited_new();
        status     = pair.a.ops->am_send(pair.a.ep, &seqs[seq], sizeof(seq), &iov, 1, 0, &sends[seq].send);
        ck_assert((status == KVCL_OK) || (status == KVCL_INPROGRESS));
        sends[seq].done = (status == KVCL_OK);
        n_pending += (status == KVCL_INPROGRESS);
    }
    PAIR_UNTIL(&pair, pair.b.received == COUNT);
    ck_assert_uint_eq(pair.b.wrong, 0);
    for (seq = 0; seq < COUNT; ++seq) {
        PAIR_UNTIL(&pair, sends[seq].done == 1);
        free(data[seq]);
    }
    ck_assert_uint_gt(n_pending, 0);
    pair_close(&pair);
}
END_TEST

START_TEST(pieces_are_gathered)
{
    enum { PIECES = 40 };
    kvcl_iov_t iov[PIECES];
    char       *buf = malloc(PIECES * 20000);
    uint64_t   hdr  = 1;
    pair_t     pair;
    size_t     n, i, at;

    pair_open(&pair, (pair_kind_t)_i);
    fill(buf, PIECES * 20000, 5);
    for (n = 1; n <= PIECES; n += 3) {
        for (i = 0, at = 0; i < n; ++i) {
            iov[i].buf = buf + at;
            iov[i].len = (i * i * 13) % 20000;
            at += iov[i].len;
        }
        pair.b.received = 0;
        ck_assert_int_eq(send_wait(&pair, &hdr, sizeof(hdr), iov, n), KVCL_OK);
        PAIR_UNTIL(&pair, pair.b.received == 1);
        ck_assert_uint_eq(pair.b.len, at);
        ck_assert(filled(pair.b.data, at, 5));
    }
    ck_assert_int_eq(pair.a.ops->am_send(pair.a.ep, &hdr, sizeof(hdr), iov, 2, 0, NULL), KVCL_OK);
    pair_close(&pair);
    free(buf);
}
END_TEST

static void answer(side_t *side, const void *hdr, size_t hdr_len, const void *data, size_t len,
                   kvcl_xport_reply_t *reply)
{
    (void)data;
    (void)len;
    side->failed_with = side->ops->reply(reply, hdr, hdr_len);
}

START_TEST(a_stranger_gets_his_answer)
{
    char     hdr[200];
    pair_t   pair;
    int      round;
    uint64_t before;

    /* b has no endpoint to a */
    side_open(&pair.a, (pair_kind_t)_i);
    side_open(&pair.b, (pair_kind_t)_i);
    side_connect(&pair.a, &pair.b);
    pair.b.on_recv = answer;
    for (round = 0; round < 50; ++round) {
        before = pair.a.received;
        fill(hdr, sizeof(hdr), (uint64_t)round);
        ck_assert_int_eq(pair.a.ops->am_send(pair.a.ep, hdr, sizeof(hdr), NULL, 0, KVCL_XPORT_REPLY, NULL), KVCL_OK);
        PAIR_UNTIL(&pair, pair.a.received == before + 1);
        ck_assert_int_eq(pair.b.failed_with, KVCL_OK);
        ck_assert_uint_eq(pair.a.hdr_len, sizeof(hdr));
        ck_assert(filled(pair.a.hdr, sizeof(hdr), (uint64_t)round));
        if (round == 25) {
            side_connect(&pair.b, &pair.a);
        }
    }
    before = pair.b.received;
    ck_assert_int_eq(pair.a.ops->am_send(pair.a.ep, hdr, 8, NULL, 0, 0, NULL), KVCL_OK);
    PAIR_UNTIL(&pair, pair.b.received == before + 1);
    ck_assert_int_eq(pair.b.failed_with, KVCL_ERR_UNSUPPORTED);
    pair_close(&pair);
}
END_TEST

START_TEST(closing_completes_every_send_once)
{
    enum { COUNT = 64, SIZE = 1 << 20 };
    static waited_t waited[COUNT];
    char            *buf = calloc(1, SIZE);
    kvcl_iov_t      iov  = {buf, SIZE};
    uint64_t        hdr  = 0;
    int             pending = 0;
    uint64_t        deadline;
    pair_t          pair;
    int             i, done;

    pair_open(&pair, (pair_kind_t)_i);
    for (i = 0; i < COUNT; ++i) {
        waited[i] = waited_new();
        if (pair.a.ops->am_send(pair.a.ep, &hdr, sizeof(hdr), &iov, 1, 0, &waited[i].send) == KVCL_INPROGRESS) {
            ++pending;
        }
    }
    ck_assert_int_eq(waited[0].done, 0); /* never inside the posting call */
    pair.a.ops->ep_close(pair.a.ep);
    pair.a.ep = NULL;
    deadline  = kvcl_deadline_after(50 * KVCL_NS_PER_SEC);
    do {
        (void)pair.a.ops->progress(pair.a.xport);
        for (i = 0, done = 0; i < COUNT; ++i) {
            ck_assert_int_le(waited[i].done, 1);
            done += waited[i].done;
        }
    } while ((done < pending) && !kvcl_deadline_passed(deadline));
    ck_assert_int_eq(done, pending);
    pair_close(&pair);
    free(buf);
}
END_TEST

/* Within a process a registered region is mapped; between processes no transport maps. */
START_TEST(registered_memory_is_mapped_in_one_process)
{
    enum { SIZE = 300000 };
    kvcl_xport_rmem_attr_t attr;
    kvcl_xport_rmem_t      *rmem;
    kvcl_xport_mem_t       *mem;
    char                   packed[512];
    size_t                 len   = sizeof(packed);
    char                   *addr = malloc(SIZE);
    pair_t                 pair;

    pair_open(&pair, (pair_kind_t)_i);
    ck_assert_int_eq(pair.b.ops->mem_register(pair.b.xport, addr, SIZE, &mem), KVCL_OK);
    fill(addr, SIZE, 3);
    ck_assert_int_eq(pair.b.ops->mem_pack(mem, packed, &len), KVCL_OK);
    ck_assert_int_eq(pair.a.ops->rmem_open(pair.a.ep, packed, len, (uintptr_t)addr, SIZE, &rmem, &attr), KVCL_OK);
    if (is_tcp(_i)) {
        ck_assert_uint_eq(len, 0);
        ck_assert(!attr.get && !attr.put);
    }
    if (_i != PAIR_LOOP) {
        ck_assert_ptr_null(attr.map);
    } else {
        ck_assert_ptr_nonnull(attr.map); /* and b made no progress since */
        ck_assert(filled(attr.map, SIZE, 3));
        fill(attr.map, SIZE, 4);
        ck_assert(filled(addr, SIZE, 4));
    }
    pair.a.ops->rmem_close(rmem);
    pair.b.ops->mem_free(mem);
    pair_close(&pair);
    free(addr);
}
END_TEST

START_TEST(get_and_put_where_they_are_native)
{
    enum { SIZE = 1 << 20 };
    kvcl_xport_rmem_attr_t attr;
    kvcl_xport_rmem_t      *rmem;
    kvcl_xport_mem_t       *mem;
    char                   packed[512];
    size_t                 len  = sizeof(packed);
    char                   *far = malloc(SIZE), *near = malloc(SIZE);
    waited_t               waited;
    kvcl_status_t          status;
    uint64_t               deadline;
    pair_t                 pair;
    int                    step;

    pair_open(&pair, (pair_kind_t)_i);
    fill(far, SIZE, 1);
    ck_assert_int_eq(pair.b.ops->mem_register(pair.b.xport, far, SIZE, &mem), KVCL_OK);
    ck_assert_int_eq(pair.b.ops->mem_pack(mem, packed, &len), KVCL_OK);
    ck_assert_int_eq(pair.a.ops->rmem_open(pair.a.ep, packed, len, (uintptr_t)far, SIZE, &rmem, &attr), KVCL_OK);
    for (step = 0; attr.get && (step < (attr.put ? 3 : 1)); ++step) {
        waited = waited_new();
        if (step == 0) {
            status = pair.a.ops->get(rmem, 5, near + 5, SIZE - 5, &waited.send);
        } else if (step == 1) {
            fill(near, SIZE, 2);
            status = pair.a.ops->put(rmem, 0, near, SIZE, &waited.send);
        } else {
            status = pair.a.ops->flush(rmem, &waited.send);
        }
        deadline = kvcl_deadline_after(50 * KVCL_NS_PER_SEC);
        while ((status == KVCL_INPROGRESS) && !waited.done && !kvcl_deadline_passed(deadline)) {
            (void)pair.a.ops->progress(pair.a.xport); /* a alone: the owner sleeps */
        }
        ck_assert_int_eq((status == KVCL_INPROGRESS) ? waited.status : status, KVCL_OK);
        ck_assert(waited.done || (status == KVCL_OK));
        if (step == 0) {
            fill(near, 5, 1);
            ck_assert(filled(near, SIZE, 1));
        }
    }
    ck_assert(!attr.put || filled(far, SIZE, 2));
    if (attr.get) {
        ck_assert_int_eq(pair.a.ops->get(rmem, SIZE - 4, near, 5, &waited.send), KVCL_ERR_OUT_OF_RANGE);
    }
    pair.a.ops->rmem_close(rmem);
    pair.b.ops->mem_free(mem);
    pair_close(&pair);
    free(far);
    free(near);
}
END_TEST

START_TEST(an_armed_sleeper_wakes_for_a_message)
{
    pair_t pair;

    pair_open(&pair, (pair_kind_t)_i);
    pair_sleeps_and_wakes(&pair);
    pair_close(&pair);
}
END_TEST

START_TEST(hostile_addresses_are_refused)
{
    kvcl_xport_ep_t *ep = NULL;
    const void      *addr;
    char            bad[4200];
    size_t          len, i;
    pair_t          pair;

    side_open(&pair.a, (pair_kind_t)_i);
    pair.a.ops->address(pair.a.xport, &addr, &len);
    srand(7);
    for (i = 0; i < 5000; ++i) {
        size_t bad_len = (size_t)rand() % sizeof(bad);
        size_t j;

        for (j = 0; j < bad_len; ++j) {
            bad[j] = (char)rand();
        }
        ck_assert_int_eq(pair.a.ops->ep_create(pair.a.xport, bad, bad_len, &ep), KVCL_ERR_PROTOCOL);
    }
    for (i = 0; i < len; ++i) { /* cut off, and with one bit flipped */
        memcpy(bad, addr, len);
        ck_assert_int_eq(pair.a.ops->ep_create(pair.a.xport, bad, i, &ep), KVCL_ERR_PROTOCOL);
        bad[i] = (char)(bad[i] ^ 4);
        ck_assert_int_eq(pair.a.ops->ep_create(pair.a.xport, bad, len, &ep), KVCL_ERR_PROTOCOL);
    }
    ck_assert_int_eq(pair.a.ops->ep_create(pair.a.xport, "", 0, &ep), KVCL_ERR_PROTOCOL);
    pair.a.ops->fini(pair.a.xport);
}
END_TEST

START_TEST(hostile_packed_regions_are_refused)
{
    kvcl_xport_rmem_attr_t attr;
    kvcl_xport_rmem_t      *rmem;
    kvcl_xport_mem_t       *mem;
    char                   packed[512], bad[600];
    size_t                 len   = sizeof(packed), i, j;
    void                   *addr = malloc(8192);
    pair_t                 pair;

    pair_open(&pair, (pair_kind_t)_i);
    ck_assert_int_eq(pair.b.ops->mem_register(pair.b.xport, addr, 8192, &mem), KVCL_OK);
    ck_assert_int_eq(pair.b.ops->mem_pack(mem, packed, &len), KVCL_OK);
    for (i = 0; i < len; ++i) {
        memcpy(bad, packed, len);
        bad[i] = (char)(bad[i] ^ 16);
        ck_assert_int_eq(pair.a.ops->rmem_open(pair.a.ep, bad, len, (uintptr_t)addr, 8192, &rmem, &attr),
                         KVCL_ERR_PROTOCOL);
        if (i > 0) {
            ck_assert_int_eq(pair.a.ops->rmem_open(pair.a.ep, packed, i, (uintptr_t)addr, 8192, &rmem, &attr),
                             KVCL_ERR_PROTOCOL);
        }
    }
    for (i = 0; i < 2000; ++i) {
        for (j = 0; j < sizeof(bad); ++j) {
            bad[j] = (char)rand();
        }
        ck_assert_int_eq(pair.a.ops->rmem_open(pair.a.ep, bad, 1 + (size_t)rand() % sizeof(bad), 0, 1, &rmem, &attr),
                         KVCL_ERR_PROTOCOL);
    }
    if (len > 0) { /* a good rkey for a range beyond the region */
        ck_assert_int_eq(pair.a.ops->rmem_open(pair.a.ep, packed, len, (uintptr_t)addr, UINT64_MAX, &rmem, &attr),
                         KVCL_ERR_PROTOCOL);
        ck_assert_int_eq(pair.a.ops->rmem_open(pair.a.ep, packed, len, (uintptr_t)addr - 1, 8192, &rmem, &attr),
                         KVCL_ERR_PROTOCOL);
    }
    pair.b.ops->mem_free(mem);
    pair_close(&pair);
    free(addr);
}
END_TEST

START_TEST(a_closed_peer_fails_the_endpoint_once)
{
    uint64_t hdr = 1;
    pair_t   pair;
    int      i;

    if ((_i == PAIR_SHM) || (_i == PAIR_AUTO)) {
        return; /* over shared memory UCX detects only that a process is gone: test_xport_ucx */
    }
    pair_open(&pair, (pair_kind_t)_i);
    ck_assert_int_eq(pair.a.ops->am_send(pair.a.ep, &hdr, sizeof(hdr), NULL, 0, 0, NULL), KVCL_OK);
    PAIR_UNTIL(&pair, pair.b.received == 1);
    side_close(&pair.b);
    for (i = 0; (i < 2000000) && (pair.a.failures == 0); ++i) {
        (void)pair.a.ops->progress(pair.a.xport);
    }
    ck_assert_uint_eq(pair.a.failures, 1);
    ck_assert_int_eq(pair.a.failed_with, KVCL_ERR_RANK_FAILED);
    for (i = 0; i < 1000; ++i) {
        (void)pair.a.ops->progress(pair.a.xport);
    }
    ck_assert_uint_eq(pair.a.failures, 1);
    ck_assert_int_eq(pair.a.ops->am_send(pair.a.ep, &hdr, sizeof(hdr), NULL, 0, 0, NULL), KVCL_ERR_RANK_FAILED);
    side_close(&pair.a);
}
END_TEST

START_TEST(endpoints_come_and_go)
{
    char     text[64];
    uint64_t hdr = 9;
    pair_t   pair;
    int      round;

    pair_open(&pair, (pair_kind_t)_i);
    pair.a.ops->ep_describe(pair.a.ep, text, sizeof(text));
    ck_assert_msg(strncmp(text, (_i == PAIR_LOOP) ? "loop" : is_tcp(_i) ? "tcp/lo" : "posix", 4) == 0, "%s", text);
    ck_assert_uint_ge(pair.a.ep->frame_bytes, 8192);
    for (round = 0; round < 100; ++round) {
        side_t far;

        side_open(&far, (pair_kind_t)_i);
        side_connect(&far, &pair.b);
        pair.b.received = 0;
        ck_assert_int_eq(far.ops->am_send(far.ep, &hdr, sizeof(hdr), NULL, 0, 0, NULL), KVCL_OK);
        while (pair.b.received == 0) {
            (void)far.ops->progress(far.xport);
            (void)pair_progress(&pair);
        }
        far.ops->ep_describe(far.ep, text, sizeof(text)); /* a message has arrived: the wire is known */
        ck_assert_str_eq(text, (_i == PAIR_LOOP) ? "loop" : (_i == PAIR_PLAIN) ? "tcp/lo plain" :
                               (_i == PAIR_AEAD) ? "tcp/lo aead" : is_tcp(_i) ? "tcp/lo ucx" : "posix");
        side_close(&far);
        (void)pair_progress(&pair);
    }
    ck_assert_uint_eq(pair.a.failures + pair.b.failures, 0);
    pair_close(&pair);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("transports");
    TCase   *tcase = tcase_create("contract");
    SRunner *runner;
    int     failed;

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, messages_of_every_size_arrive_whole, 0, PAIR_ALL_KINDS);
    tcase_add_loop_test(tcase, headers_of_every_size_arrive_aligned, 0, PAIR_ALL_KINDS);
    tcase_add_loop_test(tcase, messages_of_one_frame_keep_their_order, 0, PAIR_ALL_KINDS);
    tcase_add_loop_test(tcase, messages_of_every_size_keep_their_order, 0, PAIR_ALL_KINDS);
    tcase_add_loop_test(tcase, pieces_are_gathered, 0, PAIR_ALL_KINDS);
    tcase_add_loop_test(tcase, a_stranger_gets_his_answer, 0, PAIR_ALL_KINDS);
    tcase_add_loop_test(tcase, closing_completes_every_send_once, 0, PAIR_ALL_KINDS);
    tcase_add_loop_test(tcase, registered_memory_is_mapped_in_one_process, 0, PAIR_ALL_KINDS);
    tcase_add_loop_test(tcase, get_and_put_where_they_are_native, 0, PAIR_ALL_KINDS);
    tcase_add_loop_test(tcase, an_armed_sleeper_wakes_for_a_message, 0, PAIR_ALL_KINDS);
    tcase_add_loop_test(tcase, hostile_addresses_are_refused, 0, PAIR_ALL_KINDS);
    tcase_add_loop_test(tcase, hostile_packed_regions_are_refused, 0, PAIR_ALL_KINDS);
    tcase_add_loop_test(tcase, a_closed_peer_fails_the_endpoint_once, 0, PAIR_ALL_KINDS);
    tcase_add_loop_test(tcase, endpoints_come_and_go, 0, PAIR_ALL_KINDS);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? 0 : 1;
}
