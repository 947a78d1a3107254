/*
 * The payload of a bundle of messages (core/bundle.h): random sequences of messages are unpacked as they were packed,
 * and bundles that are cut off or changed are refused or stay within their bytes. TEST_SEED replays.
 */
#include "config.h"
#include "base/rand.h"
#include "core/bundle.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CASES = 20000, MESSAGES_MAX = 6, DATA_MAX = 300,
       ROOM = MESSAGES_MAX * (8 + KVCL_BUNDLE_HDR_MAX + DATA_MAX + 8) };

static kvcl_rand_t rnd;

static void setup(void)
{
    const char *text = getenv("TEST_SEED");
    uint64_t   seed  = (text != NULL) ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);

    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    kvcl_rand_seed(&rnd, seed);
}

typedef struct row {
    uint8_t  *bytes; /* of exactly len bytes, so that a sanitizer detects reads past its end */
    size_t   len;
    unsigned n;
    uint32_t hdr[MESSAGES_MAX], data[MESSAGES_MAX];
    size_t   at[MESSAGES_MAX]; /* of the header */
} row_t;

static void make(row_t *row)
{
    static uint8_t room[ROOM];
    unsigned       i;
    size_t         j;

    row->n   = (unsigned)kvcl_rand_below(&rnd, MESSAGES_MAX + 1);
    row->len = 0;
    for (i = 0; i < row->n; ++i) {
        row->hdr[i]  = (uint32_t)kvcl_rand_below(&rnd, KVCL_BUNDLE_HDR_MAX + 1);
        row->data[i] = (uint32_t)kvcl_rand_below(&rnd, DATA_MAX + 1);
        row->at[i]   = row->len + 8;
        memcpy(room + row->len, &row->hdr[i], 4);
        memcpy(room + row->len + 4, &row->data[i], 4);
        for (j = row->len + 8; j < row->len + 8 + row->hdr[i] + row->data[i]; ++j) {
            room[j] = (uint8_t)kvcl_rand_next(&rnd);
        }
        row->len = (j + 7) & ~(size_t)7;
    }
    row->bytes = malloc(row->len + 1);
    ck_assert_ptr_nonnull(row->bytes);
    memcpy(row->bytes, room, row->len);
}

/* Walk all messages of len bytes. Return how the walk ended, and their number. */
static kvcl_status_t walk(const uint8_t *bytes, size_t len, unsigned *n_p, const row_t *row)
{
    uint8_t       hdr[KVCL_BUNDLE_HDR_MAX];
    size_t        at = 0, before = 0, hdr_len, data_len;
    const void    *data;
    kvcl_status_t status;

    for (*n_p = 0; (status = kvcl_bundle_next(bytes, len, &at, hdr, &hdr_len, &data, &data_len)) == KVCL_OK; ++*n_p) {
        ck_assert_uint_gt(at, before);
        ck_assert_uint_le(at, len);
        ck_assert_uint_le(hdr_len, sizeof(hdr));
        ck_assert((const uint8_t *)data >= bytes);
        ck_assert_uint_le(data_len, (size_t)(bytes + len - (const uint8_t *)data));
        before = at;
        if (row != NULL) {
            ck_assert_uint_eq(hdr_len, row->hdr[*n_p]);
            ck_assert_uint_eq(data_len, row->data[*n_p]);
            ck_assert_mem_eq(hdr, row->bytes + row->at[*n_p], hdr_len);
            ck_assert_ptr_eq(data, row->bytes + row->at[*n_p] + hdr_len);
        }
    }
    return status;
}

START_TEST(what_went_in_comes_out)
{
    unsigned i, n;
    row_t    row;

    for (i = 0; i < CASES; ++i) {
        make(&row);
        ck_assert_int_eq(walk(row.bytes, row.len, &n, &row), KVCL_INPROGRESS);
        ck_assert_uint_eq(n, row.n);
        free(row.bytes);
    }
}
END_TEST

START_TEST(a_row_that_is_cut_off_is_refused)
{
    uint8_t  *cut;
    size_t   len;
    unsigned i, n;
    row_t    row;

    for (i = 0; i < CASES; ++i) {
        make(&row);
        if (row.len > 0) {
            len = row.len - 1 - kvcl_rand_below(&rnd, 7);
            cut = malloc(len + 1);
            ck_assert_ptr_nonnull(cut);
            memcpy(cut, row.bytes, len);
            ck_assert_int_eq(walk(cut, len, &n, NULL), KVCL_ERR_PROTOCOL);
            ck_assert_uint_eq(n, row.n - 1);
            free(cut);
        }
        free(row.bytes);
    }
}
END_TEST

START_TEST(lengths_that_lie_stay_inside)
{
    static const uint32_t edges[] = {0, 1, 7, 255, 256, 257, 0x7fffffff, 0x80000000, 0xfffffff8, 0xffffffff};
    kvcl_status_t         status;
    unsigned              i, n;
    row_t                 row;

    for (i = 0; i < CASES; ++i) {
        make(&row);
        if (row.n > 0) {
            memcpy(row.bytes + row.at[kvcl_rand_below(&rnd, row.n)] - 8 + (4 * kvcl_rand_below(&rnd, 2)),
                   &edges[kvcl_rand_below(&rnd, sizeof(edges) / sizeof(edges[0]))], 4);
        }
        status = walk(row.bytes, row.len, &n, NULL);
        ck_assert((status == KVCL_INPROGRESS) || (status == KVCL_ERR_PROTOCOL));
        free(row.bytes);
    }
}
END_TEST

int main(void)
{
    Suite   *suite  = suite_create("bundle");
    TCase   *tcase  = tcase_create("payload");
    SRunner *runner = srunner_create(suite);
    int     failed;

    setup();
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, what_went_in_comes_out);
    tcase_add_test(tcase, a_row_that_is_cut_off_is_refused);
    tcase_add_test(tcase, lengths_that_lie_stay_inside);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? 0 : 1;
}
