/*
 * Structs of other versions (base/structs.h), and statistics of ranks of other versions (store/admin/stats_wire.h).
 */
#include "base/structs.h"
#include "store/admin/stats_wire.h"

#include <check.h>
#include <stdlib.h>

typedef struct thing {
    size_t   size;
    uint64_t flags;
    uint32_t a, b;
    uint64_t c;
} thing_t;

enum { FIRST = KVCL_UP_TO(thing_t, flags) };

START_TEST(an_older_caller_lacks_fields_which_keep_their_defaults)
{
    const thing_t  whole = {.size = KVCL_UP_TO(thing_t, a), .flags = 3, .a = 5, .b = 6, .c = 7};
    thing_t        own  = {.size = sizeof(own), .b = 7, .c = 9};
    void *volatile made = malloc(KVCL_UP_TO(thing_t, a)); /* ASan sees its end, the compiler does not */
    void          *old  = made;

    memcpy(old, &whole, KVCL_UP_TO(thing_t, a));
    ck_assert_int_eq(kvcl_struct_in(&own, old, FIRST, sizeof(own), "thing_t"), KVCL_OK);
    ck_assert((own.size == sizeof(own)) && (own.flags == 3) && (own.a == 5) && (own.b == 7) && (own.c == 9));
    free(old);
}
END_TEST

START_TEST(a_newer_caller_is_taken_if_it_sets_nothing_new)
{
    struct {
        thing_t  thing;
        uint64_t more;
    } newer = {{sizeof(newer), 1, 2, 3, 4}, 0};
    thing_t own = {.size = sizeof(own)};

    ck_assert_int_eq(kvcl_struct_in(&own, &newer, FIRST, sizeof(own), "thing_t"), KVCL_OK);
    ck_assert((own.size == sizeof(own)) && (own.c == 4));
    newer.more = 1;
    own.c      = 11;
    ck_assert_int_eq(kvcl_struct_in(&own, &newer, FIRST, sizeof(own), "thing_t"), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(own.c, 11);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "byte 32 of its 40"));
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "knows 32"));
}
END_TEST

START_TEST(what_is_no_size_is_refused_with_both_numbers)
{
    thing_t own = {.size = sizeof(own)}, bad = {.size = 15};

    ck_assert_int_eq(kvcl_struct_in(&own, &bad, FIRST, sizeof(own), "thing_t"), KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "thing_t.size is 15, at least 16"));
    bad.size = SIZE_MAX;
    ck_assert_int_eq(kvcl_struct_in(&own, &bad, FIRST, sizeof(own), "thing_t"), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_struct_out_check(&bad, FIRST, "thing_t", "call"), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_stride_check(15, FIRST, "thing_t", "call"), KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "call: stride is 15, 16 to 8192"));
}
END_TEST

START_TEST(elements_are_written_a_stride_apart)
{
    const thing_t from    = {.size = 1, .flags = 2, .a = 3, .b = 4, .c = 5};
    uint64_t      more[10], less[6];

    memset(more, 0xff, sizeof(more));
    memset(less, 0xff, sizeof(less));
    kvcl_struct_out_at(more, 0, 40, &from, sizeof(from));
    kvcl_struct_out_at(more, 1, 40, &from, sizeof(from));
    ck_assert((more[3] == 5) && (more[4] == 0) && (more[8] == 5) && (more[9] == 0));
    kvcl_struct_out_at(less, 1, 16, &from, sizeof(from));
    ck_assert((less[1] == UINT64_MAX) && (less[2] == 1) && (less[3] == 2) && (less[4] == UINT64_MAX));
}
END_TEST

/* ---- statistics ---- */

static size_t pack(uint8_t *packed, size_t cap)
{
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;

    stats.blocks  = 11;
    stats.n_sizes = 2;
    stats.sizes[0] = (kvcl_store_size_stats_t){.block_bytes = 64, .takes = 3};
    stats.sizes[1] = (kvcl_store_size_stats_t){.block_bytes = 128, .takes = 4};
    return kvcl_stats_pack(&stats, packed, cap);
}

START_TEST(statistics_of_a_newer_rank_are_read_as_far_as_known)
{
    uint8_t            packed[KVCL_STATS_WIRE_MAX], newer[KVCL_STATS_WIRE_MAX];
    size_t             len = pack(packed, sizeof(packed)), at, n = packed[0], i;
    kvcl_store_stats_t stats;

    memcpy(newer, packed, KVCL_STATS_WIRE_HEAD + (n * 8)); /* two more numbers, and one more of each size */
    newer[0] = (uint8_t)(n + 2);
    newer[4] = 7;
    at       = KVCL_STATS_WIRE_HEAD + (n * 8);
    memset(newer + at, 0xee, 16);
    at += 16;
    for (i = 0; i < 2; ++i) {
        memcpy(newer + at, packed + KVCL_STATS_WIRE_HEAD + (n * 8) + (i * 48), 48);
        memset(newer + at + 48, 0xee, 8);
        at += 56;
    }
    ck_assert(kvcl_stats_unpack(newer, at, &stats));
    ck_assert((stats.blocks == 11) && (stats.n_sizes == 2) && (stats.sizes[1].block_bytes == 128));
    ck_assert((stats.sizes[1].takes == 4) && (stats.sizes[1].reserved[0] == 0));
    ck_assert(!kvcl_stats_unpack(newer, at - 1, &stats) && !kvcl_stats_unpack(newer, at + 1, &stats) && (len > 0));
}
END_TEST

START_TEST(statistics_of_an_older_rank_lack_some)
{
    uint8_t            older[KVCL_STATS_WIRE_HEAD + 16] = {2}; /* two numbers, no sizes */
    kvcl_store_stats_t stats;

    older[KVCL_STATS_WIRE_HEAD]     = 9;
    older[KVCL_STATS_WIRE_HEAD + 8] = 12;
    ck_assert(kvcl_stats_unpack(older, sizeof(older), &stats));
    ck_assert((stats.size == sizeof(stats)) && (stats.blocks == 9) && (stats.published == 12) && (stats.evicted == 0));
    ck_assert((stats.n_sizes == 0) && !kvcl_stats_unpack(older, 7, &stats) && !kvcl_stats_unpack(older, 0, &stats));
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("structs");
    TCase   *tc    = tcase_create("ages");
    SRunner *runner;
    int     failed;

    tcase_add_test(tc, an_older_caller_lacks_fields_which_keep_their_defaults);
    tcase_add_test(tc, a_newer_caller_is_taken_if_it_sets_nothing_new);
    tcase_add_test(tc, what_is_no_size_is_refused_with_both_numbers);
    tcase_add_test(tc, elements_are_written_a_stride_apart);
    tcase_add_test(tc, statistics_of_a_newer_rank_are_read_as_far_as_known);
    tcase_add_test(tc, statistics_of_an_older_rank_lack_some);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
