/*
 * The memory of copied messages that UCX holds, over a UCX that this program plays (fake_ucp.h) and that sends nothing
 * before it is told to: a peer that does not read fails at a bound, and replies to a stranger that does not are
 * dropped.
 */
#include "config.h"
#include "fake_ucp.h"
#include "test_base.h"

#include <stdlib.h>
#include <string.h>

enum { MANY = 2 * (GLUE_COPIES_MAX / GLUE_INLINE_BYTES) };

static glue_t   *g;
static unsigned failures, sent;
static bool     replies_fail;

/* Messages that UCX holds. */
static struct {
    ucp_send_nbx_callback_t cb;
    void                    *user_data;
    void                    *request;
} held[MANY];
static unsigned n_held;

ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h ep, unsigned id, const void *header, size_t header_length,
                                 const void *buffer, size_t count, const ucp_request_param_t *param)
{
    (void)ep, (void)id, (void)header, (void)header_length, (void)buffer, (void)count;
    ck_assert_uint_lt(n_held, MANY);
    held[n_held].cb        = param->cb.send;
    held[n_held].user_data = param->user_data;
    held[n_held].request   = malloc(1);
    return held[n_held++].request;
}

/* UCX has sent them all. */
static void send_held(void)
{
    unsigned i;

    for (i = 0; i < n_held; ++i) {
        held[i].cb(held[i].request, UCS_OK, held[i].user_data);
    }
    n_held = 0;
}

static void ep_failed(void *arg, kvcl_xport_ep_t *ep, kvcl_status_t status)
{
    (void)arg, (void)ep;
    ck_assert_int_eq(status, KVCL_ERR_RANK_FAILED);
    ++failures;
}

/* Answers each message. */
static void recv_message(void *arg, const void *hdr, size_t hdr_len, const void *data, size_t len,
                         kvcl_xport_reply_t *reply)
{
    (void)arg, (void)data, (void)len;
    if (kvcl_glue_reply(reply, hdr, hdr_len) == KVCL_OK) {
        ++sent;
    } else {
        replies_fail = true;
    }
}

/* An instance of rdma without a port. */
static void open_port(void)
{
    failures = sent = n_held = 0;
    replies_fail = false;
    g            = fake_open_port(false);
    g->cbs       = (kvcl_xport_cbs_t){.recv = recv_message, .ep_failed = ep_failed};
}

static kvcl_status_t send_one(kvcl_xport_ep_t *ep)
{
    static const char bytes[GLUE_INLINE_BYTES];
    const kvcl_iov_t  iov    = {bytes, sizeof(bytes)};
    const uint64_t    hdr[4] = {1};

    return kvcl_glue_am_send(ep, hdr, sizeof(hdr), &iov, 1, 0, NULL);
}

/* Nothing is lost in silence: the peer fails, and the sends say so. */
START_TEST(a_peer_that_does_not_read_fails_at_the_bound)
{
    kvcl_status_t   status;
    kvcl_xport_ep_t *ep;
    unsigned        n = 0, turn;

    open_port();
    ck_assert_int_eq(kvcl_glue_ep_create(&g->super, g->addr, g->addr_len, &ep), KVCL_OK);
    for (turn = 0; turn < 3; ++turn) { /* one that reads does not */
        for (n = 0; n < GLUE_COPIES_MAX / GLUE_INLINE_BYTES / 2; ++n) {
            if (send_one(ep) != KVCL_OK) {
                ck_abort_msg("%s", kvcl_last_error());
            }
        }
        send_held();
    }
    for (n = 0; (status = send_one(ep)) == KVCL_OK; ++n) {
    }
    ck_assert_int_eq(status, KVCL_ERR_RANK_FAILED);
    ck_assert_uint_gt(n, GLUE_COPIES_MAX / GLUE_INLINE_BYTES / 2);
    ck_assert_uint_eq(failures, 0);
    (void)kvcl_xport_rdma.progress(&g->super);
    ck_assert_uint_eq(failures, 1);
    ck_assert_int_eq(send_one(ep), KVCL_ERR_RANK_FAILED);
    (void)kvcl_xport_rdma.progress(&g->super);
    ck_assert_uint_eq(failures, 1);
    kvcl_glue_ep_close(ep);
    send_held();
    kvcl_xport_rdma.fini(&g->super);
}
END_TEST

static void take_message(ucp_ep_h from)
{
    const ucp_am_recv_param_t param   = {.recv_attr = UCP_AM_RECV_ATTR_FIELD_REPLY_EP, .reply_ep = from};
    const uint64_t            hdr[18] = {1}; /* as long as a handshake's */

    ck_assert_int_eq(fake_ucp.handler.cb(fake_ucp.handler.arg, hdr, sizeof(hdr), NULL, 0, &param), UCS_OK);
}

/* Handshakes of a stranger that reads no answer: their number is bounded, and another's are answered. */
START_TEST(replies_that_are_not_read_are_few)
{
    char     one, other;
    unsigned most, i;

    open_port();
    while (!replies_fail && (sent < MANY - 1)) {
        take_message((ucp_ep_h)(void *)&one);
    }
    ck_assert(replies_fail);
    most = sent;
    ck_assert_uint_le(most * 144, GLUE_REPLIES_MAX);
    ck_assert_uint_ge(most, 16);
    replies_fail = false;
    for (i = 0; i < most; ++i) {
        take_message((ucp_ep_h)(void *)&other);
    }
    ck_assert(!replies_fail);
    send_held();
    ck_assert_uint_eq(kvcl_map_count(&g->replies), 0);
    for (i = 0; i < most; ++i) {
        take_message((ucp_ep_h)(void *)&one);
    }
    ck_assert(!replies_fail);
    send_held();
    kvcl_xport_rdma.fini(&g->super);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("glue_copies");
    TCase *tc    = tcase_create("copies");

    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, a_peer_that_does_not_read_fails_at_the_bound);
    tcase_add_test(tc, replies_that_are_not_read_are_few);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
