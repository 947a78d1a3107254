/*
 * Records (sock/sock_record.h): any iovec in, any iovec out; replay, reordering, truncation, each bit flipped, lengths
 * out of range. TEST_SEED replays.
 */
#include "config.h"
#include "sock/sock_record.h"
#include "test_base.h"

#include <string.h>

enum { PARTS_MAX = 8, SHORT = 37, CASES = 300 };

static kvcl_rand_t rnd;

static void setup(void)
{
    test_seed(&rnd);
}

static const kvcl_aead_cipher_t ciphers[] = {KVCL_AEAD_AES128_GCM, KVCL_AEAD_CHACHA20_POLY1305};

/* One direction, both ends. */
typedef struct way {
    kvcl_sock_records_t seals, opens;
} way_t;

static void open_way(way_t *way, int cipher)
{
    kvcl_aead_key_t key = {.key = {1, 2, 3}, .iv = {4, 5, 6}};

    ck_assert_int_eq(kvcl_sock_records_init(&way->seals, ciphers[cipher], &key, true), KVCL_OK);
    ck_assert_int_eq(kvcl_sock_records_init(&way->opens, ciphers[cipher], &key, false), KVCL_OK);
}

static void close_way(way_t *way)
{
    kvcl_sock_records_fini(&way->seals);
    kvcl_sock_records_fini(&way->opens);
    kvcl_sock_records_fini(&way->opens); /* zeroed */
}

/* A record of len bytes, each `byte`. */
static size_t seal(way_t *way, uint8_t byte, size_t len, uint8_t *record)
{
    static uint8_t text[KVCL_SOCK_RECORD_TEXT];
    struct iovec   iov = {text, len};
    size_t         taken, record_len;

    memset(text, byte, len);
    ck_assert_int_eq(kvcl_sock_seal(&way->seals, &iov, 1, KVCL_SOCK_RECORD_TEXT, record, &taken, &record_len), KVCL_OK);
    ck_assert_uint_eq(taken, len);
    ck_assert_uint_eq(record_len, len + KVCL_SOCK_RECORD_EXTRA);
    return record_len;
}

/* Open it, and check its bytes. */
static void opens_as(way_t *way, uint8_t *record, size_t len, uint8_t byte)
{
    uint8_t *text;
    size_t  n, i;
    void    *at;

    ck_assert_int_eq(kvcl_sock_open(&way->opens, record, len, &at, &n), KVCL_OK);
    text = (uint8_t *)at;
    ck_assert_uint_eq(n, len - KVCL_SOCK_RECORD_EXTRA);
    for (i = 0; i < n; ++i) {
        ck_assert_uint_eq(text[i], byte);
    }
}

/* It fails with want, and so does the next honest record. */
static void is_final(way_t *way, uint8_t *record, size_t len, kvcl_status_t want)
{
    uint8_t next[256], copy[256];
    size_t  n;
    void    *at;

    memcpy(copy, record, (len < sizeof(copy)) ? len : sizeof(copy));
    ck_assert_int_eq(kvcl_sock_open(&way->opens, copy, len, &at, &n), want);
    n = seal(way, 1, SHORT, next);
    ck_assert_int_eq(kvcl_sock_open(&way->opens, next, n, &at, &n), KVCL_ERR_PROTOCOL);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "failed before"));
}

/* n parts of random lengths, some empty, of the bytes from `at` on: together len. */
static size_t cut(uint8_t *at, size_t len, struct iovec *iov)
{
    size_t n = 0, step;

    while (n + 1 < PARTS_MAX) {
        step     = (kvcl_rand_below(&rnd, 4) == 0) ? 0 : kvcl_rand_below(&rnd, len + 1);
        iov[n++] = (struct iovec){at, step};
        at  += step;
        len -= step;
    }
    iov[n++] = (struct iovec){at, len};
    return n;
}

/* Random bytes in random parts come out the same in other parts, whatever the largest record. */
START_TEST(random_bytes_pass_in_any_parts)
{
    static uint8_t in[KVCL_SOCK_RECORD_TEXT + 999], out[sizeof(in)], record[KVCL_SOCK_RECORD_MAX];
    struct iovec   from[PARTS_MAX], to[PARTS_MAX];
    way_t          way;
    size_t         i, len, max, taken, record_len, told, got, n;
    int            round;
    void           *at;

    open_way(&way, _i);
    for (round = 0; round < CASES; ++round) {
        len = 1 + kvcl_rand_below(&rnd, (round % 8 == 0) ? sizeof(in) : 3000);
        max = 1 + kvcl_rand_below(&rnd, (round % 3 == 0) ? 100 : KVCL_SOCK_RECORD_TEXT);
        for (i = 0; i < len; ++i) {
            in[i] = (uint8_t)kvcl_rand_next(&rnd);
        }
        n = cut(in, len, from);
        ck_assert_int_eq(kvcl_sock_seal(&way.seals, from, n, max, record, &taken, &record_len), KVCL_OK);
        ck_assert_uint_eq(taken, (len < max) ? len : max);
        ck_assert_int_eq(kvcl_sock_record_len(&way.opens, record, &told), KVCL_OK);
        ck_assert_uint_eq(told, record_len);
        memset(out, 0, sizeof(out));
        if (round % 2 == 0) {
            n = cut(out, taken, to);
            ck_assert_int_eq(kvcl_sock_open_into(&way.opens, record, record_len, to, n, &got), KVCL_OK);
            ck_assert_mem_eq(out, in, taken);
            ck_assert_uint_eq(out[taken], 0);
        } else {
            ck_assert_int_eq(kvcl_sock_open(&way.opens, record, record_len, &at, &got), KVCL_OK);
            ck_assert_mem_eq(at, in, taken);
        }
        ck_assert_uint_eq(got, taken);
    }
    close_way(&way);
}
END_TEST

/* Small parts are gathered before they are encrypted, large ones are not: both orders, and the ends. */
START_TEST(small_and_large_parts_mix)
{
    static const size_t lens[] = {24, 9000, 8, 8191, 8192, 20000, 1, 0, 7};
    static uint8_t      in[KVCL_SOCK_RECORD_TEXT], record[KVCL_SOCK_RECORD_MAX];
    struct iovec        iov[sizeof(lens) / sizeof(lens[0])];
    size_t              i, len = 0, taken, record_len, got;
    void                *at;
    way_t               way;

    open_way(&way, _i);
    for (i = 0; i < sizeof(lens) / sizeof(lens[0]); ++i) {
        iov[i] = (struct iovec){in + len, lens[i]};
        len   += lens[i];
    }
    for (i = 0; i < len; ++i) {
        in[i] = (uint8_t)kvcl_rand_next(&rnd);
    }
    ck_assert_int_eq(kvcl_sock_seal(&way.seals, iov, sizeof(lens) / sizeof(lens[0]), KVCL_SOCK_RECORD_TEXT, record,
                                    &taken, &record_len), KVCL_OK);
    ck_assert_uint_eq(taken, len);
    ck_assert_int_eq(kvcl_sock_open(&way.opens, record, record_len, &at, &got), KVCL_OK);
    ck_assert_uint_eq(got, len);
    ck_assert_mem_eq(at, in, len);
    close_way(&way);
}
END_TEST

/* A stream that brings the bytes one by one: the first 4 tell the length. */
START_TEST(records_are_found_in_single_bytes)
{
    uint8_t stream[4096], one[KVCL_SOCK_RECORD_MAX];
    size_t  lens[] = {1, 2, SHORT, 1000}, len = 0, have = 0, want = KVCL_SOCK_RECORD_HEAD, i, opened = 0;
    way_t   way;

    open_way(&way, _i);
    for (i = 0; i < 4; ++i) {
        len += seal(&way, (uint8_t)i, lens[i], stream + len);
    }
    for (i = 0; i < len; ++i) {
        one[have++] = stream[i];
        if ((have == want) && (want == KVCL_SOCK_RECORD_HEAD)) {
            ck_assert_int_eq(kvcl_sock_record_len(&way.opens, one, &want), KVCL_OK);
        } else if (have == want) {
            opens_as(&way, one, have, (uint8_t)opened);
            ck_assert_uint_eq(have, lens[opened++] + KVCL_SOCK_RECORD_EXTRA);
            have = 0;
            want = KVCL_SOCK_RECORD_HEAD;
        }
    }
    ck_assert_uint_eq(opened, 4);
    ck_assert_uint_eq(have, 0);
    close_way(&way);
}
END_TEST

START_TEST(no_bit_of_a_record_can_change)
{
    uint8_t       record[SHORT + KVCL_SOCK_RECORD_EXTRA], out[SHORT], zero[SHORT] = {0};
    struct iovec  iov = {out, sizeof(out)};
    kvcl_status_t status;
    size_t        len, bit, n;
    way_t         way;

    for (bit = 0; bit < 8 * sizeof(record); ++bit) {
        open_way(&way, _i);
        len = seal(&way, 0xab, SHORT, record);
        record[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        memset(out, 0x5a, sizeof(out));
        if (bit % 2 == 0) { /* both ways to open it */
            status = kvcl_sock_open_into(&way.opens, record, len, &iov, 1, &n);
            ck_assert_int_eq(status, (bit < 32) ? KVCL_ERR_PROTOCOL : KVCL_ERR_AUTH);
            ck_assert((status != KVCL_ERR_AUTH) || (memcmp(out, zero, sizeof(out)) == 0));
        } else {
            is_final(&way, record, len, (bit < 32) ? KVCL_ERR_PROTOCOL : KVCL_ERR_AUTH);
        }
        close_way(&way);
    }
}
END_TEST

/* The length is additional data: a record cannot be made shorter, though its bytes are there. */
START_TEST(a_record_cannot_be_cut_or_lengthened)
{
    uint8_t record[SHORT + KVCL_SOCK_RECORD_EXTRA + 8], changed[sizeof(record)];
    size_t  len, other;
    way_t   way;

    for (other = KVCL_SOCK_RECORD_EXTRA + 1; other < sizeof(record); ++other) {
        memset(record, 0, sizeof(record));
        open_way(&way, _i);
        len = seal(&way, 0xcd, SHORT, record);
        if (other != len) {
            memcpy(changed, record, sizeof(record));
            changed[0] = (uint8_t)(other - KVCL_SOCK_RECORD_EXTRA);
            is_final(&way, changed, other, KVCL_ERR_AUTH);
            close_way(&way);
            open_way(&way, _i);
            (void)seal(&way, 0xcd, SHORT, record);
            is_final(&way, record, other, KVCL_ERR_PROTOCOL); /* its length says otherwise */
        }
        close_way(&way);
    }
    for (other = 0; other <= KVCL_SOCK_RECORD_EXTRA; ++other) {
        open_way(&way, _i);
        (void)seal(&way, 0xcd, SHORT, record);
        is_final(&way, record, other, KVCL_ERR_PROTOCOL);
        close_way(&way);
    }
}
END_TEST

START_TEST(replayed_reordered_and_missing_records_are_found)
{
    uint8_t record[3][SHORT + KVCL_SOCK_RECORD_EXTRA], copy[sizeof(record[0])];
    size_t  len = sizeof(record[0]);
    way_t   way;
    int     i, round;

    for (round = 0; round < 3; ++round) {
        open_way(&way, _i);
        for (i = 0; i < 3; ++i) {
            (void)seal(&way, (uint8_t)i, SHORT, record[i]);
        }
        if (round == 0) { /* replayed */
            memcpy(copy, record[0], len);
            opens_as(&way, copy, len, 0);
            is_final(&way, record[0], len, KVCL_ERR_AUTH);
        } else if (round == 1) { /* reordered */
            is_final(&way, record[1], len, KVCL_ERR_AUTH);
        } else { /* the second is missing */
            opens_as(&way, record[0], len, 0);
            is_final(&way, record[2], len, KVCL_ERR_AUTH);
        }
        close_way(&way);
    }
}
END_TEST

/* A record sent back to the side that sealed it: the other direction has another key. */
START_TEST(a_reflected_record_is_found)
{
    kvcl_aead_key_t     back = {.key = {9}};
    uint8_t             record[SHORT + KVCL_SOCK_RECORD_EXTRA];
    kvcl_sock_records_t opens;
    way_t               way;
    size_t              len, n;
    void                *at;

    open_way(&way, _i);
    ck_assert_int_eq(kvcl_sock_records_init(&opens, ciphers[_i], &back, false), KVCL_OK);
    len = seal(&way, 3, SHORT, record);
    ck_assert_int_eq(kvcl_sock_open(&opens, record, len, &at, &n), KVCL_ERR_AUTH);
    kvcl_sock_records_fini(&opens);
    close_way(&way);
}
END_TEST

START_TEST(lengths_are_bounded_before_use)
{
    static const uint32_t bad[] = {0, KVCL_SOCK_RECORD_TEXT + 1, 0x7fffffff, 0x80000000, 0xffffffff};
    static uint8_t        text[KVCL_SOCK_RECORD_TEXT + 1], record[KVCL_SOCK_RECORD_MAX];
    struct iovec          iov = {text, sizeof(text)}, none = {NULL, 0}, small = {text, SHORT - 1};
    uint8_t               head[4];
    size_t                i, n, len;
    way_t                 way;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        open_way(&way, _i);
        memcpy(head, &bad[i], 4);
        ck_assert_int_eq(kvcl_sock_record_len(&way.opens, head, &len), KVCL_ERR_PROTOCOL);
        ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "from 1 to 65408"));
        ck_assert(way.opens.failed);
        close_way(&way);
    }
    open_way(&way, _i);
    ck_assert_int_eq(kvcl_sock_seal(&way.seals, &none, 1, SHORT, record, &n, &len), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_sock_seal(&way.seals, NULL, 0, SHORT, record, &n, &len), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_sock_seal(&way.seals, &iov, 1, 0, record, &n, &len), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_sock_seal(&way.seals, &iov, 1, KVCL_SOCK_RECORD_TEXT + 1, record, &n, &len),
                     KVCL_ERR_INVALID_PARAM);
    /* none of that was final, and the longest record passes */
    ck_assert_int_eq(kvcl_sock_seal(&way.seals, &iov, 1, KVCL_SOCK_RECORD_TEXT, record, &n, &len), KVCL_OK);
    ck_assert_uint_eq(n, KVCL_SOCK_RECORD_TEXT);
    opens_as(&way, record, len, 0);
    /* no room for the text: not final either */
    len = seal(&way, 7, SHORT, record);
    ck_assert_int_eq(kvcl_sock_open_into(&way.opens, record, len, &small, 1, &n), KVCL_ERR_INVALID_PARAM);
    opens_as(&way, record, len, 7);
    close_way(&way);
}
END_TEST

START_TEST(a_key_ends_after_its_last_record)
{
    uint8_t      record[64], text[8] = {0};
    struct iovec iov = {text, sizeof(text)};
    way_t        way;
    size_t       n, len;

    open_way(&way, _i);
    way.seals.count = way.opens.count = (UINT64_C(1) << 48) - 1;
    len = seal(&way, 1, 8, record);
    opens_as(&way, record, len, 1);
    ck_assert_int_eq(kvcl_sock_seal(&way.seals, &iov, 1, 8, record, &n, &len), KVCL_ERR_PROTOCOL);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "2^48"));
    ck_assert_int_eq(kvcl_sock_record_len(&way.opens, record, &len), KVCL_ERR_PROTOCOL);
    close_way(&way);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sock records");
    TCase *tc    = tcase_create("records");

    tcase_set_timeout(tc, 120); /* under a sanitizer on a busy machine */
    tcase_add_unchecked_fixture(tc, setup, NULL);
    tcase_add_loop_test(tc, random_bytes_pass_in_any_parts, 0, 2);
    tcase_add_loop_test(tc, small_and_large_parts_mix, 0, 2);
    tcase_add_loop_test(tc, records_are_found_in_single_bytes, 0, 2);
    tcase_add_loop_test(tc, no_bit_of_a_record_can_change, 0, 2);
    tcase_add_loop_test(tc, a_record_cannot_be_cut_or_lengthened, 0, 2);
    tcase_add_loop_test(tc, replayed_reordered_and_missing_records_are_found, 0, 2);
    tcase_add_loop_test(tc, a_reflected_record_is_found, 0, 2);
    tcase_add_loop_test(tc, lengths_are_bounded_before_use, 0, 2);
    tcase_add_loop_test(tc, a_key_ends_after_its_last_record, 0, 2);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
