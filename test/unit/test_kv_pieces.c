/*
 * Lists of pieces: joined neighbours, streams from every position, hostile bytes; and the check of a get's local
 * pieces against all pairs.
 */
#include "base/rand.h"
#include "kv/pieces.h"
#include "vec/overlap.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N = 60, ROUNDS = 200 };

static kvcl_rand_t rnd;

static kvcl_pieces_t *list_of(const kvcl_wire_piece_t *v, size_t n)
{
    kvcl_pieces_t *pieces = kvcl_pieces_new(n);
    size_t        i;

    ck_assert_ptr_nonnull(pieces);
    for (i = 0; i < n; ++i) {
        ck_assert(kvcl_pieces_add(pieces, v[i].offset, v[i].len));
    }
    return pieces;
}

START_TEST(neighbours_that_touch_are_one_piece)
{
    const kvcl_wire_piece_t v[] = {{100, 10}, {110, 5}, {115, 1}, {90, 10}, {100, 3}, {104, 1}};
    kvcl_pieces_t           *pieces = list_of(v, 6);
    kvcl_wire_piece_t       out[6];

    ck_assert_uint_eq(pieces->given, 6);
    ck_assert_uint_eq(pieces->n, 3);
    ck_assert_uint_eq(kvcl_pieces_bytes(pieces), 30);
    kvcl_pieces_encode(pieces, out);
    ck_assert((out[0].offset == 100) && (out[0].len == 16) && (out[1].offset == 90) && (out[1].len == 13) &&
              (out[2].offset == 104) && (out[2].len == 1));
    ck_assert(!kvcl_pieces_add(pieces, 0, UINT64_MAX - 4));
    ck_assert_uint_eq(kvcl_pieces_bytes(pieces), 30);
    free(pieces);
}
END_TEST

/* The address of each byte, by a stream from each position. */
START_TEST(a_stream_begins_at_any_position)
{
    kvcl_wire_piece_t v[N];
    uint64_t          want[N * 20];
    size_t            total = 0, at, from, len, i, k;
    kvcl_pieces_t     *pieces;
    kvcl_stream_t     stream;
    uintptr_t         addr;

    for (i = 0; i < N; ++i) {
        v[i] = (kvcl_wire_piece_t){kvcl_rand_below(&rnd, 100000), 1 + kvcl_rand_below(&rnd, 19)};
        if ((i > 0) && (kvcl_rand_below(&rnd, 3) == 0)) {
            v[i].offset = v[i - 1].offset + v[i - 1].len;
        }
        for (k = 0; k < v[i].len; ++k) {
            want[total++] = v[i].offset + k + 7;
        }
    }
    pieces = list_of(v, N);
    kvcl_stream_pieces(&stream, pieces, 7);
    for (from = 0; from <= total; ++from) {
        kvcl_stream_seek(&stream, from);
        ck_assert_uint_eq(kvcl_stream_pos(&stream), from);
        for (at = from; (len = kvcl_stream_next(&stream, 1 + kvcl_rand_below(&rnd, 30), &addr)) > 0; at += len) {
            for (k = 0; k < len; ++k) {
                ck_assert_uint_eq(addr + k, want[at + k]);
            }
        }
        ck_assert_uint_eq(at, total);
        ck_assert_uint_eq(kvcl_stream_left(&stream), 0);
    }
    free(pieces);
}
END_TEST

static kvcl_status_t decode(const kvcl_wire_piece_t *v, size_t n, size_t len, uint64_t total)
{
    kvcl_pieces_t *pieces = NULL;
    kvcl_status_t status  = kvcl_pieces_decode(v, len, n, 1000, total, &pieces);

    ck_assert((status == KVCL_OK) == (pieces != NULL));
    free(pieces);
    return status;
}

START_TEST(hostile_lists_are_refused)
{
    kvcl_wire_piece_t v[3] = {{0, 10}, {990, 10}, {500, 1}};
    const size_t      len  = sizeof(v);

    ck_assert_int_eq(decode(v, 3, len, 21), KVCL_OK);
    ck_assert_int_eq(decode(v, 3, len, 22), KVCL_ERR_TRUNCATED);
    ck_assert_int_eq(decode(v, 3, len, 20), KVCL_ERR_TRUNCATED);
    ck_assert_int_eq(decode(v, 3, len - 1, 21), KVCL_ERR_PROTOCOL);
    ck_assert_int_eq(decode(v, 0, len, 0), KVCL_ERR_PROTOCOL);
    ck_assert_int_eq(decode(v, SIZE_MAX / 16 + 2, len, 21), KVCL_ERR_PROTOCOL);
    v[2].len = 0;
    ck_assert_int_eq(decode(v, 3, len, 20), KVCL_ERR_PROTOCOL);
    v[2] = (kvcl_wire_piece_t){1000, 1};
    ck_assert_int_eq(decode(v, 3, len, 21), KVCL_ERR_OUT_OF_RANGE);
    v[2] = (kvcl_wire_piece_t){991, 10};
    ck_assert_int_eq(decode(v, 3, len, 30), KVCL_ERR_OUT_OF_RANGE);
    v[2] = (kvcl_wire_piece_t){UINT64_MAX, 2};
    ck_assert_int_eq(decode(v, 3, len, 22), KVCL_ERR_OUT_OF_RANGE);
    v[2] = (kvcl_wire_piece_t){2, UINT64_MAX};
    ck_assert_int_eq(decode(v, 3, len, 19), KVCL_ERR_OUT_OF_RANGE);
}
END_TEST

START_TEST(overlaps_are_found_in_any_order)
{
    unsigned found = 0, round;

    for (round = 0; round < ROUNDS; ++round) {
        const size_t n = 1 + kvcl_rand_below(&rnd, 30), spread = 60 << kvcl_rand_below(&rnd, 20);
        kvcl_vec_t   v[30];
        size_t       i, j, a = n, b = n;
        bool         overlap = false;

        for (i = 0; i < n; ++i) {
            v[i] = (kvcl_vec_t){0, (void *)(uintptr_t)(4096 + kvcl_rand_below(&rnd, spread)),
                                1 + kvcl_rand_below(&rnd, 12)};
        }
        for (i = 0; i < n; ++i) {
            for (j = i + 1; j < n; ++j) {
                overlap = overlap || (((uintptr_t)v[i].addr < (uintptr_t)v[j].addr + v[j].len) &&
                                      ((uintptr_t)v[j].addr < (uintptr_t)v[i].addr + v[i].len));
            }
        }
        ck_assert_int_eq(kvcl_vec_overlap(v, n, &a, &b), overlap ? KVCL_ERR_INVALID_PARAM : KVCL_OK);
        if (overlap) {
            ++found;
            ck_assert((a < b) && (b < n) && ((uintptr_t)v[a].addr < (uintptr_t)v[b].addr + v[b].len) &&
                      ((uintptr_t)v[b].addr < (uintptr_t)v[a].addr + v[a].len));
        }
    }
    ck_assert_msg((found > 0) && (found < ROUNDS), "%u of %d lists overlap: the test shows nothing", found, ROUNDS);
}
END_TEST

int main(void)
{
    const char    *text  = getenv("TEST_SEED");
    const uint64_t seed  = (text != NULL) ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
    Suite         *suite = suite_create("kv_pieces");
    TCase         *tc    = tcase_create("pieces");
    SRunner       *runner;
    int           failed;

    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    kvcl_rand_seed(&rnd, seed);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, neighbours_that_touch_are_one_piece);
    tcase_add_test(tc, a_stream_begins_at_any_position);
    tcase_add_test(tc, hostile_lists_are_refused);
    tcase_add_test(tc, overlaps_are_found_in_any_order);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
