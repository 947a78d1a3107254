/* Wire fields, hashes, checksums, random numbers, clock and cores. */
#include "config.h"
#include "test_base.h"
#include "base/checksum.h"
#include "base/cpu.h"
#include "base/crypto.h"
#include "base/wirebuf.h"
#include "weave/sum_copy.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

START_TEST(wire_fields_are_little_endian_and_come_back)
{
    uint8_t   buf[64];
    kvcl_wr_t wr;
    kvcl_rd_t rd;
    uint8_t   out[3];

    kvcl_wr_init(&wr, buf, sizeof(buf));
    kvcl_wr_u8(&wr, 0x11);
    kvcl_wr_u16(&wr, 0x2233);
    kvcl_wr_u32(&wr, 0x44556677);
    kvcl_wr_u64(&wr, UINT64_C(0x8899aabbccddeeff));
    kvcl_wr_bytes(&wr, "abc", 3);
    kvcl_wr_zero(&wr, 2);
    kvcl_wr_bytes(&wr, NULL, 0);
    ck_assert(kvcl_wr_ok(&wr));
    ck_assert_uint_eq(kvcl_wr_len(&wr), 20);
    ck_assert_int_eq(buf[1], 0x33);
    ck_assert_int_eq(buf[3], 0x77);
    ck_assert_int_eq(buf[7], 0xff);
    kvcl_rd_init(&rd, buf, kvcl_wr_len(&wr));
    ck_assert_uint_eq(kvcl_rd_u8(&rd), 0x11);
    ck_assert_uint_eq(kvcl_rd_u16(&rd), 0x2233);
    ck_assert_uint_eq(kvcl_rd_u32(&rd), 0x44556677);
    ck_assert_uint_eq(kvcl_rd_u64(&rd), UINT64_C(0x8899aabbccddeeff));
    kvcl_rd_copy(&rd, out, 3);
    ck_assert_mem_eq(out, "abc", 3);
    ck_assert_uint_eq(kvcl_rd_left(&rd), 2);
    ck_assert(!kvcl_rd_done(&rd));
    ck_assert_ptr_eq(kvcl_rd_bytes(&rd, 2), buf + 18);
    ck_assert(kvcl_rd_done(&rd));
}
END_TEST

START_TEST(wire_overflow_is_sticky_and_touches_nothing)
{
    uint8_t   buf[8];
    uint8_t   out[4] = {9, 9, 9, 9};
    kvcl_wr_t wr;
    kvcl_rd_t rd;

    memset(buf, 0xee, sizeof(buf));
    kvcl_wr_init(&wr, buf, 6);
    kvcl_wr_u32(&wr, 0);
    kvcl_wr_u32(&wr, 0);
    ck_assert(!kvcl_wr_ok(&wr));
    kvcl_wr_u8(&wr, 0); /* would fit, but the error persists */
    ck_assert_uint_eq(kvcl_wr_len(&wr), 4);
    ck_assert_int_eq(buf[4], 0xee);
    kvcl_rd_init(&rd, buf, 6);
    ck_assert_ptr_null(kvcl_rd_bytes(&rd, 7));
    ck_assert_uint_eq(kvcl_rd_u8(&rd), 0);
    ck_assert_uint_eq(kvcl_rd_left(&rd), 0);
    kvcl_rd_copy(&rd, out, 4);
    ck_assert_mem_eq(out, "\0\0\0\0", 4);
    ck_assert(!kvcl_rd_ok(&rd));
    kvcl_rd_init(&rd, buf, 6);
    ck_assert_ptr_null(kvcl_rd_bytes(&rd, SIZE_MAX)); /* no wrap-around */
    kvcl_rd_init(&rd, NULL, 0);
    ck_assert(kvcl_rd_done(&rd));
    ck_assert_uint_eq(kvcl_rd_u64(&rd), 0);
    ck_assert(!kvcl_rd_ok(&rd));
}
END_TEST

static void unhex(const char *hex, uint8_t *out)
{
    unsigned byte;

    for (; *hex != '\0'; hex += 2) {
        ck_assert_int_eq(sscanf(hex, "%2x", &byte), 1);
        *out++ = (uint8_t)byte;
    }
}

START_TEST(sha256_matches_its_standard)
{
    uint8_t      want[32], got[32];
    struct iovec iov[3] = {{TEST_STR("a"), 1}, {NULL, 0}, {TEST_STR("bc"), 2}};

    unhex("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", want);
    kvcl_sha256("abc", 3, got);
    ck_assert_mem_eq(got, want, 32);
    kvcl_sha256_iov(iov, 3, got);
    ck_assert_mem_eq(got, want, 32);
    unhex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", want);
    kvcl_sha256(NULL, 0, got);
    ck_assert_mem_eq(got, want, 32);
}
END_TEST

START_TEST(hmac_matches_rfc_4231)
{
    uint8_t      key[131], want[32], got[32];
    struct iovec iov[2] = {{TEST_STR("what do ya want "), 16}, {TEST_STR("for nothing?"), 12}};
    struct iovec big    = {TEST_STR("Test Using Larger Than Block-Size Key - Hash Key First"), 54};

    unhex("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843", want);
    kvcl_hmac_sha256("Jefe", 4, iov, 2, got);
    ck_assert_mem_eq(got, want, 32);
    memset(key, 0xaa, sizeof(key));
    unhex("60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54", want);
    kvcl_hmac_sha256(key, sizeof(key), &big, 1, got);
    ck_assert_mem_eq(got, want, 32);
    ck_assert(kvcl_ct_equal(got, want, 32));
    got[31] ^= 1;
    ck_assert(!kvcl_ct_equal(got, want, 32));
    kvcl_wipe(got, 32);
    ck_assert_int_eq(got[5], 0);
}
END_TEST

static void *hash_much(void *arg)
{
    uint8_t seed = *(uint8_t *)arg;
    uint8_t buf[100], first[32], again[32];
    int     i;

    memset(buf, seed, sizeof(buf));
    kvcl_sha256(buf, sizeof(buf), first);
    for (i = 0; i < 2000; ++i) {
        kvcl_sha256(buf, sizeof(buf), again);
        if (memcmp(first, again, 32) != 0) {
            return arg;
        }
    }
    return NULL;
}

START_TEST(threads_hash_side_by_side)
{
    pthread_t threads[4];
    uint8_t   seeds[4];
    void     *wrong;
    int       i;

    for (i = 0; i < 4; ++i) {
        seeds[i] = (uint8_t)i;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, hash_much, &seeds[i]), 0);
    }
    for (i = 0; i < 4; ++i) {
        pthread_join(threads[i], &wrong);
        ck_assert_ptr_null(wrong);
    }
}
END_TEST

START_TEST(checksum_of_parts_is_that_of_the_whole)
{
    static uint8_t        buf[5000];
    kvcl_checksum_state_t state;
    kvcl_rand_t           rnd;
    size_t                i, cut;

    test_seed(&rnd);
    for (i = 0; i < sizeof(buf); ++i) {
        buf[i] = (uint8_t)kvcl_rand_next(&rnd);
    }
    cut = kvcl_rand_below(&rnd, sizeof(buf));
    kvcl_checksum_init(&state);
    kvcl_checksum_update(&state, buf, cut);
    kvcl_checksum_update(&state, buf + cut, sizeof(buf) - cut);
    ck_assert_uint_eq(kvcl_checksum_digest(&state), kvcl_checksum(buf, sizeof(buf)));
    ck_assert_uint_eq(kvcl_checksum_seed(buf, 64, 0), kvcl_checksum(buf, 64));
    cut = kvcl_check32(buf, 60);
    buf[kvcl_rand_below(&rnd, 60)] ^= (uint8_t)(1u << kvcl_rand_below(&rnd, 8));
    ck_assert_uint_ne(kvcl_check32(buf, 60), cut);
}
END_TEST

/* In pieces of any length, at any alignment, with and without a copy; other bytes stay unchanged. */
static void check_sum_copy(unsigned seed, const uint8_t *src, size_t len, uint8_t *dst, bool copying)
{
    const size_t end  = len;
    size_t       done = 0, n;
    kvcl_sum_t   sum;

    memset(dst, 0xee, len + 1);
    kvcl_sum_init(&sum);
    while (done < end) {
        seed = (seed * 1103515245u) + 12345u;
        n    = 1 + ((seed >> 8) % (((seed >> 4) & 1) ? 3000 : 90));
        n    = (n < end - done) ? n : end - done;
        kvcl_sum_copy(&sum, copying ? dst + done : NULL, src + done, n);
        done += n;
        if ((done % 3) == 0) {
            ck_assert_uint_eq(kvcl_sum_end(&sum), kvcl_checksum(src, done));
        }
    }
    ck_assert_uint_eq(kvcl_sum_end(&sum), kvcl_checksum(src, len));
    if (copying) {
        ck_assert_mem_eq(dst, src, len);
    }
    ck_assert_int_eq(dst[len], 0xee);
}

START_TEST(sum_of_a_copy_is_the_checksum)
{
    static uint8_t src[40000], dst[40001];
    kvcl_sum_t     sum;
    size_t         len;

    for (len = 0; len < sizeof(src); ++len) {
        src[len] = (uint8_t)((len * 2654435761u) >> 13);
    }
    for (len = 0; len < 5000; ++len) {
        ck_assert_uint_eq(kvcl_sum_of(src + (len % 65), len), kvcl_checksum(src + (len % 65), len));
        kvcl_sum_init(&sum);
        kvcl_sum_copy(&sum, dst + (len % 7), src + (len % 65), len);
        ck_assert_uint_eq(kvcl_sum_end(&sum), kvcl_checksum(src + (len % 65), len));
        ck_assert_mem_eq(dst + (len % 7), src + (len % 65), len);
        memset(dst, 0xee, len + 8);
        ck_assert_uint_eq(kvcl_sum_copy_of(dst + (len % 7), src + (len % 65), len),
                          kvcl_checksum(src + (len % 65), len));
        ck_assert_mem_eq(dst + (len % 7), src + (len % 65), len);
        ck_assert_int_eq(dst[len + 7], 0xee);
    }
    for (len = 1; len < sizeof(src) - 64; len += 1 + (len % 977)) {
        check_sum_copy((unsigned)len, src + (len % 64), len, dst, true);
        check_sum_copy((unsigned)len, src + (len % 64), len, dst, false);
    }
}
END_TEST

START_TEST(random_numbers_repeat_by_seed_and_stay_in_bounds)
{
    kvcl_rand_t a, b;
    uint64_t    seen[7] = {0};
    uint8_t     bytes[64] = {0};
    int         i;

    kvcl_rand_seed(&a, 42);
    kvcl_rand_seed(&b, 42);
    for (i = 0; i < 7000; ++i) {
        ck_assert_uint_eq(kvcl_rand_next(&a), kvcl_rand_next(&b));
        ++seen[kvcl_rand_below(&a, 7)];
        (void)kvcl_rand_below(&b, 7);
    }
    for (i = 0; i < 7; ++i) {
        ck_assert_uint_gt(seen[i], 800);
        ck_assert_uint_lt(seen[i], 1200);
    }
    ck_assert_uint_eq(kvcl_rand_below(&a, 1), 0);
    ck_assert_int_eq(kvcl_random_bytes(bytes, sizeof(bytes)), KVCL_OK);
    ck_assert_mem_ne(bytes, bytes + 32, 32);
}
END_TEST

START_TEST(deadlines_saturate)
{
    uint64_t now_ns = kvcl_now_ns();

    ck_assert_uint_ge(kvcl_now_ns(), now_ns);
    ck_assert_uint_eq(kvcl_deadline_after(UINT64_MAX), KVCL_DEADLINE_NONE);
    ck_assert_uint_eq(kvcl_deadline_after(UINT64_MAX - 5), KVCL_DEADLINE_NONE);
    ck_assert(!kvcl_deadline_passed(KVCL_DEADLINE_NONE));
    ck_assert(kvcl_deadline_passed(now_ns));
    ck_assert_uint_eq(kvcl_deadline_left(now_ns), 0);
    ck_assert_uint_eq(kvcl_deadline_left(KVCL_DEADLINE_NONE), UINT64_MAX);
    ck_assert_int_eq(kvcl_deadline_poll_ms(KVCL_DEADLINE_NONE), -1);
    ck_assert_int_eq(kvcl_deadline_poll_ms(now_ns), 0);
    ck_assert_int_eq(kvcl_deadline_poll_ms(UINT64_MAX - 1), INT_MAX);
    ck_assert_int_gt(kvcl_deadline_poll_ms(kvcl_deadline_after(1000 * KVCL_NS_PER_SEC)), 900000);
    ck_assert_int_ge(kvcl_online_cores(), 1);
    kvcl_relax();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base bytes");
    TCase *tc    = tcase_create("bytes");

    tcase_set_timeout(tc, 60); /* thousands of lengths: seconds under a sanitizer on a busy machine */
    tcase_add_test(tc, wire_fields_are_little_endian_and_come_back);
    tcase_add_test(tc, wire_overflow_is_sticky_and_touches_nothing);
    tcase_add_test(tc, sha256_matches_its_standard);
    tcase_add_test(tc, hmac_matches_rfc_4231);
    tcase_add_test(tc, threads_hash_side_by_side);
    tcase_add_test(tc, checksum_of_parts_is_that_of_the_whole);
    tcase_add_test(tc, sum_of_a_copy_is_the_checksum);
    tcase_add_test(tc, random_numbers_repeat_by_seed_and_stay_in_bounds);
    tcase_add_test(tc, deadlines_saturate);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
