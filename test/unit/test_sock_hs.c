/*
 * The handshake of a connection (sock/sock_hs.h), both sides in memory: every choice of wire and cipher, wrong secrets,
 * ids and versions, strangers, messages cut off. test_sock_hs_hostile.c has the rest.
 */
#include "config.h"
#include "sock/sock_record.h"
#include "sock_pair.h"

#include <string.h>

static void assert_agreed(const pair_t *pair, kvcl_sock_wire_t wire, kvcl_aead_cipher_t cipher)
{
    const kvcl_sock_session_t *a = kvcl_sock_hs_session(&pair->a), *b = kvcl_sock_hs_session(&pair->b);

    ck_assert_int_eq(kvcl_sock_hs_state(&pair->a), KVCL_SOCK_HS_DONE);
    ck_assert_int_eq(kvcl_sock_hs_state(&pair->b), KVCL_SOCK_HS_DONE);
    ck_assert_int_eq(a->wire, wire);
    ck_assert_int_eq(b->wire, wire);
    ck_assert_int_eq(a->cipher, cipher);
    ck_assert_int_eq(b->cipher, cipher);
    ck_assert_int_eq(a->purpose, KVCL_SOCK_STREAM);
    ck_assert_int_eq(b->purpose, KVCL_SOCK_STREAM);
    ck_assert_uint_eq(a->peer_id[0], 2);
    ck_assert_uint_eq(b->peer_id[0], 1);
    ck_assert_mem_eq(&a->tx, &b->rx, sizeof(a->tx));
    ck_assert_mem_eq(&a->rx, &b->tx, sizeof(a->rx));
    ck_assert_int_eq(has_keys(&pair->a), wire == KVCL_SOCK_AEAD);
    ck_assert((wire == KVCL_SOCK_PLAIN) || (memcmp(&a->tx, &a->rx, sizeof(a->tx)) != 0));
    ck_assert(is_wiped(&pair->a) && is_wiped(&pair->b));
}

START_TEST(all_wires_and_ciphers_are_agreed_in_pieces_of_any_size)
{
    static const size_t pieces[] = {1, 7, 8, 9, 95, 4096};
    pair_t              pair;
    size_t              i;
    int                 choice;

    for (choice = 0; choice < 16; ++choice) {
        kvcl_sock_wire_t   wire_a = (choice & 1) ? KVCL_SOCK_AEAD : KVCL_SOCK_PLAIN;
        kvcl_sock_wire_t   wire_b = (choice & 2) ? KVCL_SOCK_AEAD : KVCL_SOCK_PLAIN;
        kvcl_aead_cipher_t of_a   = (choice & 4) ? KVCL_AEAD_AES128_GCM : KVCL_AEAD_CHACHA20_POLY1305;
        kvcl_aead_cipher_t of_b   = (choice & 8) ? KVCL_AEAD_AES128_GCM : KVCL_AEAD_CHACHA20_POLY1305;

        for (i = 0; i < sizeof(pieces) / sizeof(pieces[0]); ++i) {
            kvcl_sock_side_t a = side(1, wire_a), b = side(2, wire_b);

            a.cipher = of_a;
            b.cipher = of_b;
            ck_assert_int_eq(kvcl_sock_hs_connect(&pair.a, &a, b.id, KVCL_SOCK_STREAM), KVCL_OK);
            kvcl_sock_hs_accept(&pair.b, &b);
            ck_assert_int_eq(run(&pair, pieces[i]), KVCL_OK);
            assert_agreed(&pair, ((choice & 3) != 0) ? KVCL_SOCK_AEAD : KVCL_SOCK_PLAIN,
                          ((choice & 12) == 12) ? KVCL_AEAD_AES128_GCM : KVCL_AEAD_CHACHA20_POLY1305);
            kvcl_sock_hs_wipe(&pair.a);
            ck_assert(!has_keys(&pair.a));
        }
    }
}
END_TEST

/* The agreed keys carry records both ways; two handshakes of the same sides have different keys. */
START_TEST(the_keys_carry_records_and_are_new_each_time)
{
    static const uint8_t text[] = "bytes";
    struct iovec         iov    = {(void *)(uintptr_t)text, sizeof(text)};
    uint8_t              record[64];
    kvcl_sock_records_t  seals, opens;
    pair_t               one, two;
    size_t               taken, len, got;
    void                 *back;

    begin(&one, KVCL_SOCK_AEAD, KVCL_SOCK_PLAIN);
    begin(&two, KVCL_SOCK_AEAD, KVCL_SOCK_PLAIN);
    ck_assert_int_eq(run(&one, 4096), KVCL_OK);
    ck_assert_int_eq(run(&two, 4096), KVCL_OK);
    ck_assert_mem_ne(&one.a.session.tx, &two.a.session.tx, sizeof(one.a.session.tx));
    ck_assert_int_eq(kvcl_sock_records_init(&seals, one.b.session.cipher, &one.b.session.tx, true), KVCL_OK);
    ck_assert_int_eq(kvcl_sock_records_init(&opens, one.a.session.cipher, &one.a.session.rx, false), KVCL_OK);
    ck_assert_int_eq(kvcl_sock_seal(&seals, &iov, 1, 32, record, &taken, &len), KVCL_OK);
    ck_assert_int_eq(kvcl_sock_open(&opens, record, len, &back, &got), KVCL_OK);
    ck_assert_uint_eq(got, sizeof(text));
    ck_assert_mem_eq(back, text, sizeof(text));
    kvcl_sock_records_fini(&seals);
    kvcl_sock_records_fini(&opens);
}
END_TEST

START_TEST(another_secret_is_refused_by_either_side)
{
    kvcl_sock_side_t a = side(1, KVCL_SOCK_AEAD), b = side(2, KVCL_SOCK_AEAD);
    uint8_t          bytes[BYTES_MAX];
    pair_t           pair;
    size_t           len;

    /* A detects it at CHALLENGE, and B by A's REFUSE. */
    b.secret = other_secret;
    ck_assert_int_eq(kvcl_sock_hs_connect(&pair.a, &a, b.id, KVCL_SOCK_STREAM), KVCL_OK);
    kvcl_sock_hs_accept(&pair.b, &b);
    ck_assert_int_eq(pass(&pair.a, &pair.b, 4096), KVCL_OK);
    assert_failed(&pair.a, pass(&pair.b, &pair.a, 4096), KVCL_ERR_AUTH);
    assert_failed(&pair.b, pass(&pair.a, &pair.b, 4096), KVCL_ERR_AUTH);

    /* An A that ignores CHALLENGE: B detects it at PROOF. */
    kvcl_sock_hs_accept(&pair.b, &b);
    ck_assert_int_eq(kvcl_sock_hs_connect(&pair.a, &a, b.id, KVCL_SOCK_STREAM), KVCL_OK);
    ck_assert_int_eq(pass(&pair.a, &pair.b, 4096), KVCL_OK);
    len = take(&pair.b, bytes);
    ck_assert_uint_eq(len, CHALLENGE_LEN);
    memset(bytes, 0, PROOF_LEN);
    memcpy(bytes, &(kvcl_sock_head_t){KVCL_SOCK_MAGIC, KVCL_SOCK_VERSION, KVCL_SOCK_PROOF, 0}, 8);
    assert_failed(&pair.b, give(&pair.b, bytes, PROOF_LEN, 4096, NULL), KVCL_ERR_AUTH);
    ck_assert_ptr_nonnull(strstr(sentence, "secret"));
    ck_assert_uint_eq(take(&pair.b, bytes), 8);
    ck_assert_uint_eq(bytes[6], KVCL_SOCK_REFUSE);
    assert_failed(&pair.a, give(&pair.a, bytes, 8, 4096, NULL), KVCL_ERR_AUTH);
}
END_TEST

START_TEST(another_id_is_stale)
{
    kvcl_sock_side_t a = side(1, KVCL_SOCK_PLAIN), b = side(3, KVCL_SOCK_PLAIN);
    uint8_t          asked[16] = {2};
    pair_t           pair;

    ck_assert_int_eq(kvcl_sock_hs_connect(&pair.a, &a, asked, KVCL_SOCK_MESSAGES), KVCL_OK);
    kvcl_sock_hs_accept(&pair.b, &b);
    assert_failed(&pair.b, pass(&pair.a, &pair.b, 4096), KVCL_ERR_STALE);
    assert_failed(&pair.a, pass(&pair.b, &pair.a, 4096), KVCL_ERR_STALE);
    ck_assert_int_eq(kvcl_sock_hs_connect(&pair.a, &a, a.id, KVCL_SOCK_MESSAGES), KVCL_ERR_INVALID_PARAM);
}
END_TEST

START_TEST(another_version_is_named_on_both_sides)
{
    uint8_t bytes[BYTES_MAX];
    pair_t  pair;
    size_t  len, used;

    begin(&pair, KVCL_SOCK_PLAIN, KVCL_SOCK_PLAIN);
    len      = take(&pair.a, bytes);
    bytes[4] = 9;
    assert_failed(&pair.b, give(&pair.b, bytes, len, 4096, &used), KVCL_ERR_VERSION);
    ck_assert_uint_eq(used, 8); /* the body of another version has a length of its own */
    ck_assert_ptr_nonnull(strstr(sentence, "version 9"));
    len      = take(&pair.b, bytes);
    bytes[4] = 9; /* as the newer library answers */
    assert_failed(&pair.a, give(&pair.a, bytes, len, 4096, NULL), KVCL_ERR_VERSION);
    ck_assert_ptr_nonnull(strstr(sentence, "version 9"));
}
END_TEST

START_TEST(strangers_get_no_answer_and_no_more_than_a_head_is_read)
{
    static const char *row[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "SSH-2.0-OpenSSH_9.2", "\x16\x03\x01\x02 12345"};
    uint8_t           bytes[BYTES_MAX];
    pair_t            pair;
    size_t            i, used;

    for (i = 0; i < sizeof(row) / sizeof(row[0]); ++i) {
        begin(&pair, KVCL_SOCK_PLAIN, KVCL_SOCK_PLAIN);
        assert_failed(&pair.b, give(&pair.b, (const uint8_t *)row[i], strlen(row[i]), 1, &used), KVCL_ERR_PROTOCOL);
        ck_assert_uint_eq(used, 8);
        ck_assert_uint_eq(take(&pair.b, bytes), 0);
    }
}
END_TEST

START_TEST(a_truncated_message_is_never_complete)
{
    static const size_t lens[] = {HELLO_LEN, CHALLENGE_LEN, PROOF_LEN, PROOF_LEN};
    uint8_t             bytes[BYTES_MAX];
    size_t              cut, need;
    pair_t              pair;
    int                 which, i;

    for (which = 0; which < 4; ++which) {
        for (cut = 0; cut < lens[which]; ++cut) {
            kvcl_sock_hs_t *from = (which % 2 == 0) ? &pair.a : &pair.b, *to = (which % 2 == 0) ? &pair.b : &pair.a;

            begin(&pair, KVCL_SOCK_PLAIN, KVCL_SOCK_PLAIN);
            for (i = 0; i < which; ++i) {
                ck_assert_int_eq((i % 2 == 0) ? pass(&pair.a, &pair.b, 4096) : pass(&pair.b, &pair.a, 4096), KVCL_OK);
            }
            ck_assert_uint_eq(take(from, bytes), lens[which]);
            ck_assert_int_eq(give(to, bytes, cut, 4096, NULL), KVCL_OK);
            ck_assert_int_eq(kvcl_sock_hs_state(to), KVCL_SOCK_HS_GOING);
            (void)kvcl_sock_hs_in(to, &need);
            ck_assert_uint_gt(need, 0);
            ck_assert_uint_le(need, lens[which] - cut);
            ck_assert_uint_eq(take(to, bytes), 0);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sock handshake");
    TCase *tc    = tcase_create("handshake");

    tcase_set_timeout(tc, 120); /* under a sanitizer on a busy machine */
    tcase_add_unchecked_fixture(tc, setup, NULL);
    tcase_add_test(tc, all_wires_and_ciphers_are_agreed_in_pieces_of_any_size);
    tcase_add_test(tc, the_keys_carry_records_and_are_new_each_time);
    tcase_add_test(tc, another_secret_is_refused_by_either_side);
    tcase_add_test(tc, another_id_is_stale);
    tcase_add_test(tc, another_version_is_named_on_both_sides);
    tcase_add_test(tc, strangers_get_no_answer_and_no_more_than_a_head_is_read);
    tcase_add_test(tc, a_truncated_message_is_never_complete);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
