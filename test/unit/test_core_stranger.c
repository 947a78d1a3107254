/*
 * Whoever has not proven the job secret is not heard: messages dropped and counted, nothing kept; and whoever has, but
 * sends nonsense, is counted too. The stranger is a raw endpoint of the transport (test_core.h).
 */
#include "config.h"
#include "test_base.h"
#include "test_core.h"
#include "xfer/xfer_wire.h"

static kvcl_context_h ctx;
static stranger_t     s;

static void setup(void)
{
    ctx = lone_context();
    stranger_open(&s, ctx);
}

static void teardown(void)
{
    stranger_close(&s);
    kvcl_finalize(ctx);
}

static uint64_t strangers(void)
{
    kvcl_context_stats_t stats;

    kvcl_context_stats(ctx, &stats);
    return stats.strangers;
}

static uint64_t malformed(void)
{
    kvcl_context_stats_t stats;

    kvcl_context_stats(ctx, &stats);
    return stats.malformed;
}

/* The context does its work still. */
static void works(void)
{
    kvcl_comm_h world;
    kvcl_req_h  req, sent;
    char        in[8];

    ck_assert_int_eq(kvcl_comm_world(ctx, &world), KVCL_OK);
    ck_assert_int_eq(kvcl_send_bytes(world, 0, 1, "to me", 6, NULL, &sent), KVCL_OK);
    ck_assert_int_eq(kvcl_recv_bytes(world, 0, 1, in, 8, NULL, &req), KVCL_OK);
    ck_assert_int_eq(kvcl_req_wait(req, KVCL_NS_PER_SEC), KVCL_OK);
    ck_assert_int_eq(kvcl_req_wait(sent, KVCL_NS_PER_SEC), KVCL_OK);
    ck_assert_str_eq(in, "to me");
}

START_TEST(without_a_handshake_every_type_is_dropped_and_counted)
{
    unsigned char hdr[256] = {0}, data[64] = {0};
    kvcl_msg_t    *msg = (kvcl_msg_t *)(void *)hdr;
    unsigned      type, n = 0;

    for (type = 0; type < 256; ++type) {
        if ((type >= KVCL_MSG_HELLO) && (type <= KVCL_MSG_REFUSE)) {
            continue;
        }
        *msg = (kvcl_msg_t){.magic = KVCL_WIRE_MAGIC, .version = KVCL_WIRE_VERSION, .type = (uint8_t)type};
        stranger_say(&s, hdr, sizeof(hdr), data, sizeof(data));
        msg->token = 0x1234;
        stranger_say(&s, hdr, sizeof(hdr), data, sizeof(data));
        n += 2;
        ck_assert_uint_eq(strangers(), n);
    }
    ck_assert_uint_eq(s.heard, 0); /* not even told off */
    ck_assert_uint_eq(ctx->peers.count, 0);
    works();
}
END_TEST

START_TEST(noise_is_dropped_and_counted)
{
    unsigned char hdr[200];
    kvcl_rand_t   rnd;
    unsigned      i, k;
    size_t        len;

    test_seed(&rnd);
    for (i = 0; i < 20000; ++i) {
        len = kvcl_rand_below(&rnd, sizeof(hdr));
        for (k = 0; k < len; ++k) {
            hdr[k] = (unsigned char)kvcl_rand_next(&rnd);
        }
        if (i % 2) { /* half of them look like ours */
            memcpy(hdr, "\x56\x4b\x01\x00", 4);
            hdr[4] = (unsigned char)kvcl_rand_below(&rnd, 8);
        }
        stranger_say(&s, hdr, len, hdr, len / 2);
    }
    ck_assert_uint_gt(strangers(), 9000);
    ck_assert_uint_eq(ctx->peers.count, 0);
    ck_assert_uint_eq(malformed(), 0);
    works();
}
END_TEST

START_TEST(a_wrong_token_or_index_is_a_stranger)
{
    unsigned char data[8] = {0};
    kvcl_msg_send_t msg = {.msg = {.magic = KVCL_WIRE_MAGIC, .version = KVCL_WIRE_VERSION, .type = KVCL_MSG_SEND,
                                   .flags = KVCL_SEND_EAGER}, .len = 8};

    stranger_enter(&s);
    msg.msg.peer  = s.index;
    msg.msg.token = s.token ^ 1;
    stranger_say(&s, &msg, sizeof(msg), data, 8);
    ck_assert_uint_eq(strangers(), 1);
    msg.msg.token = 0;
    stranger_say(&s, &msg, sizeof(msg), data, 8);
    ck_assert_uint_eq(strangers(), 2);
    msg.msg.token = s.token;
    msg.msg.peer  = s.index + 1;
    stranger_say(&s, &msg, sizeof(msg), data, 8);
    ck_assert_uint_eq(strangers(), 3);
    msg.msg.peer    = s.index;
    msg.msg.version = KVCL_WIRE_VERSION + 1;
    stranger_say(&s, &msg, sizeof(msg), data, 8);
    ck_assert_uint_eq(strangers(), 4);
    msg.msg.version = KVCL_WIRE_VERSION;
    stranger_say(&s, &msg, sizeof(msg), data, 8); /* and so it is heard */
    ck_assert_uint_eq(strangers(), 4);
    works();
}
END_TEST

START_TEST(a_greeting_alone_keeps_nothing)
{
    unsigned i;

    for (i = 0; i < 100; ++i) {
        stranger_hello(&s);
        ck_assert_uint_eq(s.last.msg.type, KVCL_MSG_CHALLENGE);
    }
    ck_assert_uint_eq(ctx->peers.count, 0);
}
END_TEST

START_TEST(a_greeting_for_another_context_is_refused)
{
    kvcl_hs_msg_t hs;

    stranger_hello(&s);
    hs = stranger_hs(&s, KVCL_MSG_HELLO);
    hs.ids.uuid_b[3] ^= 1;
    stranger_say(&s, &hs, sizeof(hs), NULL, 0);
    ck_assert_uint_eq(s.last.msg.type, KVCL_MSG_REFUSE);
    ck_assert_int_eq((int)s.last.index, KVCL_ERR_STALE);
    ck_assert_uint_eq(ctx->peers.count, 0);
}
END_TEST

START_TEST(the_wrong_secret_proves_nothing)
{
    uint8_t       wrong[32];
    kvcl_hs_msg_t hs;

    memcpy(wrong, ctx->secret, 32);
    wrong[31] ^= 1;
    stranger_hello(&s);
    hs = stranger_proof(&s, wrong);
    stranger_say(&s, &hs, sizeof(hs), s.address, s.address_len);
    ck_assert_uint_eq(s.last.msg.type, KVCL_MSG_REFUSE);
    ck_assert_int_eq((int)s.last.index, KVCL_ERR_AUTH);
    ck_assert_uint_eq(strangers(), 1);
    ck_assert_uint_eq(ctx->peers.count, 0);
}
END_TEST

/* What a proof covers: the index, the address, the nonces, the moment. */
START_TEST(a_changed_proof_proves_nothing)
{
    kvcl_hs_msg_t hs;
    int           i;

    for (i = 0; i < 5; ++i) {
        stranger_hello(&s);
        hs = stranger_proof(&s, ctx->secret);
        switch (i) {
        case 0:
            hs.index ^= 1;
            break;
        case 1:
            s.address[s.address_len - 1] ^= 1;
            break;
        case 2:
            hs.ids.nonce_b[0] ^= 1; /* not my challenge */
            kvcl_hs_mac(ctx->secret, "A", &hs.ids, hs.index, s.address, s.address_len, hs.mac);
            break;
        case 3:
            hs.window -= 5; /* long ago */
            break;
        default:
            hs.ids.uuid_a[0] ^= 1; /* somebody else's */
            break;
        }
        stranger_say(&s, &hs, sizeof(hs), s.address, s.address_len);
        if (i == 1) {
            s.address[s.address_len - 1] ^= 1;
        }
        ck_assert_uint_eq(s.last.msg.type, KVCL_MSG_REFUSE);
        ck_assert_uint_eq(strangers(), (unsigned)i + 1);
        ck_assert_uint_eq(ctx->peers.count, 0);
    }
}
END_TEST

/* Who overheard a proof and says it again gains nothing and breaks nothing. */
START_TEST(a_replayed_proof_gains_nothing)
{
    stranger_t    other;
    kvcl_hs_msg_t hs;
    unsigned char data[8] = {0};
    kvcl_msg_send_t msg = {.msg = {.magic = KVCL_WIRE_MAGIC, .version = KVCL_WIRE_VERSION, .type = KVCL_MSG_SEND,
                                   .flags = KVCL_SEND_EAGER}, .len = 8};
    int           i;

    stranger_hello(&s);
    hs = stranger_proof(&s, ctx->secret);
    stranger_say(&s, &hs, sizeof(hs), s.address, s.address_len);
    s.index = s.last.index;
    s.token = kvcl_hs_token(ctx->secret, &s.ids, true);
    stranger_open(&other, ctx);
    for (i = 0; i < 10; ++i) {
        stranger_say(&other, &hs, sizeof(hs), s.address, s.address_len);
    }
    ck_assert_uint_eq(ctx->peers.count, 1);
    msg.msg.peer  = s.index;
    msg.msg.token = s.token;
    stranger_say(&s, &msg, sizeof(msg), data, 8);
    ck_assert_uint_eq(strangers(), 0);
    stranger_close(&other);
    works();
}
END_TEST

START_TEST(another_wire_version_is_refused_in_words_it_understands)
{
    kvcl_hs_msg_t hs;

    stranger_hello(&s);
    hs             = stranger_hs(&s, KVCL_MSG_HELLO);
    hs.msg.version = KVCL_WIRE_VERSION + 1;
    stranger_say(&s, &hs, sizeof(hs), NULL, 0);
    ck_assert_uint_eq(s.last.msg.type, KVCL_MSG_REFUSE);
    ck_assert_uint_eq(s.last.msg.magic, KVCL_WIRE_MAGIC);
    ck_assert_int_eq((int)s.last.index, KVCL_ERR_VERSION);
    ck_assert_uint_eq(strangers(), 1);
    ck_assert_uint_eq(ctx->peers.count, 0);
}
END_TEST

/* ---------------------------------------------------------------- when the context greets first */

static uint8_t answer_type;
static int     answer_why;

/* A peer that answers a greeting badly. */
static void answer_badly(stranger_t *at)
{
    kvcl_hs_msg_t out = at->last;

    if (at->last.msg.type != KVCL_MSG_HELLO) {
        return;
    }
    out.msg.type = answer_type;
    out.index    = (uint32_t)answer_why;
    if (answer_why == KVCL_ERR_VERSION) {
        out.msg.version = 99;
    }
    memset(out.mac, 0x42, 32);
    (void)kvcl_xport_reply(at->reply, &out, sizeof(out));
}

static kvcl_status_t greet(uint8_t type, int why)
{
    kvcl_peer_t *peer;
    kvcl_comm_h comm;
    kvcl_req_h  req;
    int         i;

    answer_type = type;
    answer_why  = why;
    s.on_heard  = answer_badly;
    ck_assert_int_eq(kvcl_comm_make(ctx, 77, 0, 2, &comm), KVCL_OK);
    kvcl_lock(ctx);
    ck_assert_int_eq(kvcl_peer_by_address(ctx, s.address, s.address_len, &peer), KVCL_OK);
    comm->peers[1] = peer;
    kvcl_unlock(ctx);
    ck_assert_int_eq(kvcl_send_bytes(comm, 1, 1, "secret", 7, NULL, &req), KVCL_OK);
    for (i = 0; i < 20; ++i) {
        kvcl_status_t status = kvcl_req_test(req);
        if (status != KVCL_INPROGRESS) {
            kvcl_comm_free(comm);
            return status;
        }
        stranger_move(&s);
    }
    return KVCL_INPROGRESS;
}

START_TEST(who_does_not_know_the_secret_gets_nothing_from_me)
{
    ck_assert_int_eq(greet(KVCL_MSG_CHALLENGE, 0), KVCL_ERR_AUTH);
    ck_assert_uint_eq(s.heard, 1); /* the greeting, and no more */
    ck_assert_uint_eq(strangers(), 1);
    works();
}
END_TEST

START_TEST(a_refusal_for_the_version_is_told_as_such)
{
    ck_assert_int_eq(greet(KVCL_MSG_REFUSE, KVCL_ERR_VERSION), KVCL_ERR_VERSION);
    works();
}
END_TEST

START_TEST(a_refusal_with_a_strange_reason_is_unreachable)
{
    ck_assert_int_eq(greet(KVCL_MSG_REFUSE, 12345), KVCL_ERR_UNREACHABLE);
    works();
}
END_TEST

/* ---------------------------------------------------------------- proven, and yet nonsense */

START_TEST(nonsense_from_a_proven_peer_is_counted)
{
    unsigned char hdr[192], data[300];
    kvcl_rand_t   rnd;
    kvcl_msg_t    *msg = (kvcl_msg_t *)(void *)hdr;
    uint64_t      before = malformed();
    unsigned      i, k;
    size_t        hdr_len, len;

    test_seed(&rnd);
    stranger_enter(&s);
    for (i = 0; i < 20000; ++i) {
        hdr_len = sizeof(*msg) + kvcl_rand_below(&rnd, sizeof(hdr) - sizeof(*msg) + 1);
        len     = kvcl_rand_below(&rnd, sizeof(data));
        for (k = 0; k < sizeof(hdr); ++k) {
            hdr[k] = (unsigned char)((kvcl_rand_below(&rnd, 3) == 0) ? kvcl_rand_next(&rnd) : 0);
        }
        for (k = 0; k < len; ++k) {
            data[k] = (unsigned char)kvcl_rand_next(&rnd);
        }
        msg->magic   = KVCL_WIRE_MAGIC;
        msg->version = KVCL_WIRE_VERSION;
        msg->type    = (uint8_t)(KVCL_MSG_BYE + 1 + kvcl_rand_below(&rnd, KVCL_MSG_LAST - KVCL_MSG_BYE));
        msg->peer    = s.index;
        msg->token   = s.token;
        stranger_say(&s, hdr, hdr_len, data, len);
    }
    ck_assert_uint_gt(malformed(), before + 5000);
    ck_assert_uint_eq(strangers(), 0);
    works();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core_stranger");
    TCase *tcase = tcase_create("strangers");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, without_a_handshake_every_type_is_dropped_and_counted);
    tcase_add_test(tcase, noise_is_dropped_and_counted);
    tcase_add_test(tcase, a_wrong_token_or_index_is_a_stranger);
    tcase_add_test(tcase, a_greeting_alone_keeps_nothing);
    tcase_add_test(tcase, a_greeting_for_another_context_is_refused);
    tcase_add_test(tcase, the_wrong_secret_proves_nothing);
    tcase_add_test(tcase, a_changed_proof_proves_nothing);
    tcase_add_test(tcase, a_replayed_proof_gains_nothing);
    tcase_add_test(tcase, another_wire_version_is_refused_in_words_it_understands);
    tcase_add_test(tcase, who_does_not_know_the_secret_gets_nothing_from_me);
    tcase_add_test(tcase, a_refusal_for_the_version_is_told_as_such);
    tcase_add_test(tcase, a_refusal_with_a_strange_reason_is_unreachable);
    tcase_add_test(tcase, nonsense_from_a_proven_peer_is_counted);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
