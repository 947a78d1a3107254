/*
 * Hostile handshakes (sock/sock_hs.h): each bit of each message flipped; downgrades; messages repeated, reordered,
 * reflected, of another connection; a proven side that lies.
 */
#include "config.h"
#include "base/crypto.h"
#include "base/x25519.h"
#include "sock_pair.h"

#include <string.h>

/* A handshake of four messages, of which message `which` has one bit flipped; -1: none. */
typedef enum { BOTH_DONE, A_REFUSED, B_REFUSED } outcome_t;

static outcome_t play(kvcl_sock_wire_t wire_a, kvcl_sock_wire_t wire_b, int which, size_t bit)
{
    uint8_t       bytes[BYTES_MAX];
    kvcl_status_t status;
    pair_t        pair;
    size_t        len, used;
    int           i;

    begin(&pair, wire_a, wire_b);
    for (i = 0; i < 4; ++i) {
        kvcl_sock_hs_t *from = (i % 2 == 0) ? &pair.a : &pair.b, *to = (i % 2 == 0) ? &pair.b : &pair.a;

        len = take(from, bytes);
        if (i == which) {
            bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        }
        status = give(to, bytes, len, 4096, &used);
        if (status != KVCL_OK) {
            ck_assert_int_ge(i, which);
            assert_failed(to, status, status);
            ck_assert(to->connects || (kvcl_sock_hs_state(&pair.a) != KVCL_SOCK_HS_DONE));
            return to->connects ? A_REFUSED : B_REFUSED;
        }
    }
    return BOTH_DONE;
}

/*
 * Each bit of each message, in both wires. A changed HELLO or CHALLENGE is refused before either side is DONE; B
 * refuses a changed PROOF, and A a changed WELCOME (B has verified A's honest PROOF by then).
 */
START_TEST(no_bit_of_a_message_can_change)
{
    static const size_t lens[] = {HELLO_LEN, CHALLENGE_LEN, PROOF_LEN, PROOF_LEN};
    size_t              bit;
    int                 which, wires;

    for (wires = 0; wires < 2; ++wires) {
        kvcl_sock_wire_t wire = (wires == 0) ? KVCL_SOCK_PLAIN : KVCL_SOCK_AEAD;

        ck_assert_int_eq(play(wire, KVCL_SOCK_PLAIN, -1, 0), BOTH_DONE);
        for (which = 0; which < 4; ++which) {
            for (bit = 0; bit < 8 * lens[which]; ++bit) {
                outcome_t outcome = play(wire, KVCL_SOCK_PLAIN, which, bit);

                ck_assert_msg(outcome != BOTH_DONE, "bit %zu of message %d", bit, which);
                ck_assert((which != 2) || (outcome == B_REFUSED));
                ck_assert(((which != 1) && (which != 3)) || (outcome == A_REFUSED));
            }
        }
    }
}
END_TEST

/* A man in the middle removes aead from HELLO, or from CHALLENGE, or replaces an X25519 key by his own. */
START_TEST(a_downgrade_is_refused)
{
    uint8_t bytes[BYTES_MAX], priv[32] = {5}, pub[32];
    pair_t  pair;
    size_t  len;

    begin(&pair, KVCL_SOCK_AEAD, KVCL_SOCK_PLAIN);
    len = take(&pair.a, bytes);
    ck_assert_uint_eq(bytes[9], KVCL_SOCK_AEAD);
    bytes[9] = KVCL_SOCK_PLAIN;
    ck_assert_int_eq(give(&pair.b, bytes, len, 4096, NULL), KVCL_OK);
    len = take(&pair.b, bytes);
    ck_assert_uint_eq(bytes[8], KVCL_SOCK_PLAIN);
    assert_failed(&pair.a, give(&pair.a, bytes, len, 4096, NULL), KVCL_ERR_AUTH);

    begin(&pair, KVCL_SOCK_AEAD, KVCL_SOCK_AEAD);
    ck_assert_int_eq(pass(&pair.a, &pair.b, 4096), KVCL_OK);
    len      = take(&pair.b, bytes);
    bytes[8] = KVCL_SOCK_PLAIN;
    assert_failed(&pair.a, give(&pair.a, bytes, len, 4096, NULL), KVCL_ERR_AUTH);

    ck_assert_int_eq(kvcl_x25519_public(priv, pub), KVCL_OK);
    begin(&pair, KVCL_SOCK_AEAD, KVCL_SOCK_AEAD);
    len = take(&pair.a, bytes);
    memcpy(bytes + HELLO_LEN - 32, pub, 32);
    ck_assert_int_eq(give(&pair.b, bytes, len, 4096, NULL), KVCL_OK);
    assert_failed(&pair.a, pass(&pair.b, &pair.a, 4096), KVCL_ERR_AUTH);
}
END_TEST

/* A proven side whose HELLO is well-formed but nonsense. */
START_TEST(fields_out_of_range_are_refused)
{
    static const struct {
        size_t  at;
        uint8_t value;
    } row[] = {{8, 0}, {8, 3}, {9, 0}, {9, 3}, {10, 0}, {10, 3}, {11, 1}, {15, 0x80}};
    uint8_t bytes[BYTES_MAX];
    pair_t  pair;
    size_t  i, len;

    for (i = 0; i < sizeof(row) / sizeof(row[0]); ++i) {
        begin(&pair, KVCL_SOCK_PLAIN, KVCL_SOCK_PLAIN);
        len              = take(&pair.a, bytes);
        bytes[row[i].at] = row[i].value;
        assert_failed(&pair.b, give(&pair.b, bytes, len, 4096, NULL), KVCL_ERR_PROTOCOL);
        assert_failed(&pair.a, pass(&pair.b, &pair.a, 4096), KVCL_ERR_PROTOCOL);
    }
}
END_TEST

/* All messages of one handshake, recorded. */
static void record(uint8_t msg[4][BYTES_MAX], size_t len[4], kvcl_sock_wire_t wire)
{
    pair_t pair;
    int    i;

    begin(&pair, wire, KVCL_SOCK_PLAIN);
    for (i = 0; i < 4; ++i) {
        kvcl_sock_hs_t *from = (i % 2 == 0) ? &pair.a : &pair.b, *to = (i % 2 == 0) ? &pair.b : &pair.a;

        len[i] = take(from, msg[i]);
        ck_assert_int_eq(give(to, msg[i], len[i], 4096, NULL), KVCL_OK);
    }
    ck_assert_int_eq(kvcl_sock_hs_state(&pair.a), KVCL_SOCK_HS_DONE);
}

START_TEST(recorded_messages_prove_nothing)
{
    uint8_t          msg[4][BYTES_MAX], now[BYTES_MAX];
    size_t           len[4];
    kvcl_sock_wire_t wire = (_i == 0) ? KVCL_SOCK_PLAIN : KVCL_SOCK_AEAD;
    pair_t           pair;

    record(msg, len, wire);
    begin(&pair, wire, KVCL_SOCK_PLAIN); /* to B: HELLO and PROOF again */
    ck_assert_int_eq(give(&pair.b, msg[0], len[0], 4096, NULL), KVCL_OK);
    ck_assert_uint_eq(take(&pair.b, now), CHALLENGE_LEN);
    ck_assert_mem_ne(now, msg[1], CHALLENGE_LEN);
    assert_failed(&pair.b, give(&pair.b, msg[2], len[2], 4096, NULL), KVCL_ERR_AUTH);
    /* to A: CHALLENGE again */
    assert_failed(&pair.a, give(&pair.a, msg[1], len[1], 4096, NULL), KVCL_ERR_AUTH);
    /* to A: an honest CHALLENGE, then the old WELCOME */
    begin(&pair, wire, KVCL_SOCK_PLAIN);
    ck_assert_int_eq(pass(&pair.a, &pair.b, 4096), KVCL_OK);
    ck_assert_int_eq(pass(&pair.b, &pair.a, 4096), KVCL_OK);
    assert_failed(&pair.a, give(&pair.a, msg[3], len[3], 4096, NULL), KVCL_ERR_AUTH);
}
END_TEST

/* Every recorded message at every step of either side. Only the one that is due may not be refused by its head. */
START_TEST(messages_out_of_order_are_refused)
{
    static const uint8_t due[] = {KVCL_SOCK_CHALLENGE, KVCL_SOCK_WELCOME, KVCL_SOCK_HELLO, KVCL_SOCK_PROOF};
    uint8_t              msg[4][BYTES_MAX];
    size_t               len[4];
    pair_t               pair;
    int                  step, which;

    record(msg, len, KVCL_SOCK_AEAD);
    for (step = 0; step < 4; ++step) {
        for (which = 0; which < 4; ++which) {
            kvcl_sock_hs_t *to = (step < 2) ? &pair.a : &pair.b;

            begin(&pair, KVCL_SOCK_AEAD, KVCL_SOCK_PLAIN);
            if (step != 2) {
                ck_assert_int_eq(pass(&pair.a, &pair.b, 4096), KVCL_OK);
            }
            if (step == 1) {
                ck_assert_int_eq(pass(&pair.b, &pair.a, 4096), KVCL_OK);
            }
            if (msg[which][6] != due[step]) {
                assert_failed(to, give(to, msg[which], len[which], 4096, NULL), KVCL_ERR_PROTOCOL);
            }
        }
    }
}
END_TEST

/* A's own messages sent back to A: in the connection that it made, and in one that it accepts. */
START_TEST(reflected_messages_prove_nothing)
{
    kvcl_sock_side_t a = side(1, KVCL_SOCK_PLAIN);
    uint8_t          bytes[BYTES_MAX], hello[BYTES_MAX], proof[BYTES_MAX];
    kvcl_sock_hs_t   accepts;
    pair_t           pair;
    size_t           len;

    begin(&pair, KVCL_SOCK_PLAIN, KVCL_SOCK_PLAIN);
    len = take(&pair.a, hello);
    memcpy(bytes, hello, len);
    assert_failed(&pair.a, give(&pair.a, bytes, len, 4096, NULL), KVCL_ERR_PROTOCOL);
    kvcl_sock_hs_accept(&accepts, &a);
    assert_failed(&accepts, give(&accepts, hello, len, 4096, NULL), KVCL_ERR_STALE);
    memcpy(hello + 32, a.id, 16); /* as if A connected to itself */
    kvcl_sock_hs_accept(&accepts, &a);
    assert_failed(&accepts, give(&accepts, hello, len, 4096, NULL), KVCL_ERR_PROTOCOL);

    /* PROOF's MAC as WELCOME's */
    begin(&pair, KVCL_SOCK_PLAIN, KVCL_SOCK_PLAIN);
    ck_assert_int_eq(pass(&pair.a, &pair.b, 4096), KVCL_OK);
    ck_assert_int_eq(pass(&pair.b, &pair.a, 4096), KVCL_OK);
    len      = take(&pair.a, proof);
    proof[6] = KVCL_SOCK_WELCOME;
    assert_failed(&pair.a, give(&pair.a, proof, len, 4096, NULL), KVCL_ERR_AUTH);
    /* CHALLENGE's MAC as PROOF's */
    begin(&pair, KVCL_SOCK_PLAIN, KVCL_SOCK_PLAIN);
    ck_assert_int_eq(pass(&pair.a, &pair.b, 4096), KVCL_OK);
    (void)take(&pair.b, bytes);
    bytes[6] = KVCL_SOCK_PROOF;
    memmove(bytes + 8, bytes + CHALLENGE_LEN - 32, 32);
    assert_failed(&pair.b, give(&pair.b, bytes, PROOF_LEN, 4096, NULL), KVCL_ERR_AUTH);
}
END_TEST

/*
 * Two ranks connect to each other at once. Both connections have the same pair's key; a message of one is refused in
 * the other.
 */
START_TEST(two_connections_of_a_pair_do_not_mix)
{
    pair_t           ab, ba;
    kvcl_sock_side_t a = side(1, KVCL_SOCK_PLAIN), b = side(2, KVCL_SOCK_PLAIN);

    begin(&ab, KVCL_SOCK_PLAIN, KVCL_SOCK_PLAIN);
    ck_assert_int_eq(kvcl_sock_hs_connect(&ba.b, &b, a.id, KVCL_SOCK_STREAM), KVCL_OK);
    kvcl_sock_hs_accept(&ba.a, &a);
    ck_assert_int_eq(pass(&ab.a, &ab.b, 4096), KVCL_OK);
    ck_assert_int_eq(pass(&ba.b, &ba.a, 4096), KVCL_OK);
    /* crossed: B's CHALLENGE in the one goes to B in the other */
    assert_failed(&ba.b, pass(&ab.b, &ba.b, 4096), KVCL_ERR_AUTH);
    assert_failed(&ab.a, pass(&ba.a, &ab.a, 4096), KVCL_ERR_AUTH);
}
END_TEST

/* A proven B that sends an X25519 key of low order, or a wire that A did not offer. */
START_TEST(a_proven_side_that_lies_is_refused)
{
    kvcl_sock_challenge_t lie;
    uint8_t               bytes[BYTES_MAX], role[] = "B";
    pair_t                pair;
    int                   i;

    for (i = 0; i < 3; ++i) {
        begin(&pair, KVCL_SOCK_AEAD, KVCL_SOCK_AEAD);
        ck_assert_int_eq(pass(&pair.a, &pair.b, 4096), KVCL_OK);
        (void)take(&pair.b, bytes);
        memcpy(&lie, bytes, sizeof(lie));
        if (i == 0) {
            lie.wire = KVCL_SOCK_PLAIN;
        } else if (i == 1) {
            lie.cipher = 7;
        } else {
            memset(lie.pub, 0, sizeof(lie.pub));
        }
        {
            struct iovec parts[] = {{role, 2}, {pair.a.log, HELLO_LEN}, {&lie, offsetof(kvcl_sock_challenge_t, mac)}};

            kvcl_hmac_sha256(pair.a.pair_key, 32, parts, 3, lie.mac);
        }
        if (i < 2) {
            assert_failed(&pair.a, give(&pair.a, (const uint8_t *)&lie, sizeof(lie), 4096, NULL), KVCL_ERR_PROTOCOL);
            continue;
        }
        /* B's log must agree with the lie, so that WELCOME verifies and only the key is wrong */
        ck_assert_int_eq(give(&pair.a, (const uint8_t *)&lie, sizeof(lie), 4096, NULL), KVCL_OK);
        memcpy(pair.b.log + HELLO_LEN, &lie, sizeof(lie));
        ck_assert_int_eq(pass(&pair.a, &pair.b, 4096), KVCL_OK);
        assert_failed(&pair.a, pass(&pair.b, &pair.a, 4096), KVCL_ERR_PROTOCOL);
        ck_assert_ptr_nonnull(strstr(sentence, "low order"));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hostile sock handshakes");
    TCase *tc    = tcase_create("handshake");

    tcase_set_timeout(tc, 120); /* under a sanitizer on a busy machine */
    tcase_add_unchecked_fixture(tc, setup, NULL);
    tcase_add_test(tc, no_bit_of_a_message_can_change);
    tcase_add_test(tc, a_downgrade_is_refused);
    tcase_add_test(tc, fields_out_of_range_are_refused);
    tcase_add_loop_test(tc, recorded_messages_prove_nothing, 0, 2);
    tcase_add_test(tc, messages_out_of_order_are_refused);
    tcase_add_test(tc, reflected_messages_prove_nothing);
    tcase_add_test(tc, two_connections_of_a_pair_do_not_mix);
    tcase_add_test(tc, a_proven_side_that_lies_is_refused);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
