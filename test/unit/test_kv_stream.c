/*
 * Streams and run lists on cases computed by hand: the runs, their order, their merging; seek; refusals of a selection
 * check. Bases are offsets here (not dereferenced) except where bytes are moved. The random cases are in
 * test_kv_copy.c.
 */
#include "kv/runs.h"

#include "base/checksum.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static kvcl_shape_t shape_of(kvcl_layout_t layout)
{
    kvcl_shape_t shape;

    ck_assert_msg(kvcl_shape_init(&shape, &layout) == KVCL_OK, "%s", kvcl_last_error());
    return shape;
}

/* 2 layers, K and V, 8 blocks, 2 tokens, 4 heads of 16 bytes: planes of 1024, a block's plane 128. */
#define SMALL .layers = 2, .blocks = 8, .tokens = 2, .heads = 4, .head_dim = 8, .elem_bytes = 2

static const uintptr_t zero_base[8];

static kvcl_side_t side_of(const kvcl_shape_t *shape, const uint32_t *ids, size_t n)
{
    return (kvcl_side_t){.shape = shape, .bases = zero_base, .sel = {.blocks = ids, .n_blocks = n}};
}

typedef struct piece {
    uintptr_t addr;
    size_t len;
} piece_t;

static void expect_pieces(const kvcl_side_t *side, uint32_t order, const piece_t *pieces, size_t n)
{
    kvcl_stream_t s;
    uintptr_t addr;
    size_t i, len;

    ck_assert_int_eq(kvcl_side_check(side), KVCL_OK);
    kvcl_stream_init(&s, side, order);
    for (i = 0; i < n; ++i) {
        len = kvcl_stream_next(&s, SIZE_MAX, &addr);
        ck_assert_msg((addr == pieces[i].addr) && (len == pieces[i].len), "piece %zu is %zu at %zu, not %zu at %zu", i,
                      len, (size_t)addr, pieces[i].len, (size_t)pieces[i].addr);
    }
    ck_assert_uint_eq(kvcl_stream_next(&s, SIZE_MAX, &addr), 0);
    ck_assert_uint_eq(kvcl_stream_left(&s), 0);
}
#define EXPECT(_side, _order, ...)                                                                                     \
    expect_pieces(_side, _order, (const piece_t[]){__VA_ARGS__},                                                       \
                  sizeof((const piece_t[]){__VA_ARGS__}) / sizeof(piece_t))

/* The number of runs from here to the end, of at most max bytes. */
static uint64_t count_runs(const kvcl_runs_t *runs, size_t max)
{
    kvcl_runs_t walk  = *runs;
    uint64_t    count = 0;
    kvcl_run_t  run;

    while (kvcl_runs_next(&walk, max, &run)) {
        ++count;
    }
    return count;
}

START_TEST(canonical_order_goes_block_by_block)
{
    kvcl_shape_t shape = shape_of(KVCL_LAYOUT_NHD(SMALL));
    const uint32_t ids[] = {5, 6};
    kvcl_side_t side = side_of(&shape, ids, 2);

    EXPECT(&side, KVCL_STREAM_CANONICAL, {640, 128}, {1664, 128}, {2688, 128}, {3712, 128}, {768, 128}, {1792, 128},
           {2816, 128}, {3840, 128});
}
END_TEST

START_TEST(planes_outside_of_blocks_merge_neighbours)
{
    kvcl_shape_t shape = shape_of(KVCL_LAYOUT_NHD(SMALL));
    const uint32_t ids[] = {5, 6, 3};
    kvcl_side_t side = side_of(&shape, ids, 3);

    EXPECT(&side, 0x54321, {640, 256}, {384, 128}, {1664, 256}, {1408, 128}, {2688, 256}, {2432, 128}, {3712, 256},
           {3456, 128});
}
END_TEST

START_TEST(opaque_blocks_merge_over_the_whole_list)
{
    kvcl_shape_t shape = shape_of(KVCL_LAYOUT_BYTES(100, 512));
    const uint32_t ids[] = {0, 1, 2, 9, 8, 8, 9, 99};
    kvcl_side_t side = side_of(&shape, ids, 8);

    EXPECT(&side, KVCL_STREAM_CANONICAL, {0, 1536}, {4608, 512}, {4096, 512}, {4096, 1024}, {50688, 512});
}
END_TEST

START_TEST(heads_and_layers_are_cut_by_arithmetic)
{
    kvcl_shape_t nhd = shape_of(KVCL_LAYOUT_NHD(SMALL));
    kvcl_shape_t hnd = shape_of(KVCL_LAYOUT_HND(SMALL));
    const uint32_t ids[] = {1};
    kvcl_side_t side = side_of(&nhd, ids, 1);

    side.sel.layers = (kvcl_range_t){1, 2};
    side.sel.heads = (kvcl_range_t){1, 3};
    EXPECT(&side, KVCL_STREAM_CANONICAL, {2192, 32}, {2256, 32}, {3216, 32}, {3280, 32});
    ck_assert_uint_eq(kvcl_sel_bytes(&nhd, &side.sel), 128);
    side.shape = &hnd; /* heads are apart: token by token in canonical order, as in HND order */
    EXPECT(&side, KVCL_STREAM_HND, {2208, 64}, {3232, 64});
    EXPECT(&side, KVCL_STREAM_CANONICAL, {2208, 16}, {2240, 16}, {2224, 16}, {2256, 16}, {3232, 16}, {3264, 16},
           {3248, 16}, {3280, 16});
}
END_TEST

START_TEST(runs_never_cross_a_base_even_if_bases_touch)
{
    kvcl_shape_t shape = shape_of(KVCL_LAYOUT_NHD(SMALL, .flags = KVCL_LAYOUT_PER_PLANE));
    const uintptr_t bases[] = {0, 1024, 2048, 3072};
    const uint32_t ids[] = {0, 1, 2, 3, 4, 5, 6, 7};
    kvcl_side_t side = {.shape = &shape, .bases = bases, .sel = {.blocks = ids, .n_blocks = 8}};
    kvcl_stream_t s;
    uintptr_t addr;
    uint32_t base;

    EXPECT(&side, shape.order, {0, 1024}, {1024, 1024}, {2048, 1024}, {3072, 1024});
    kvcl_stream_init(&s, &side, shape.order);
    for (base = 0; base < 4; ++base) {
        ck_assert_uint_eq(kvcl_stream_next(&s, SIZE_MAX, &addr), 1024);
        ck_assert_uint_eq(s.base, base);
    }
    side.sel.layers = (kvcl_range_t){1, 2};
    kvcl_stream_init(&s, &side, shape.order);
    ck_assert_uint_eq(kvcl_stream_next(&s, 100, &addr), 100);
    ck_assert_uint_eq(addr, 2048);
    ck_assert_uint_eq(s.base, 2);
}
END_TEST

START_TEST(an_empty_list_is_an_empty_stream)
{
    kvcl_shape_t shape = shape_of(KVCL_LAYOUT_NHD(SMALL));
    kvcl_side_t side = side_of(&shape, NULL, 0);
    kvcl_runs_t runs;
    kvcl_run_t run;
    kvcl_stream_t s;
    uintptr_t addr;

    ck_assert_int_eq(kvcl_side_check(&side), KVCL_OK);
    kvcl_stream_init(&s, &side, KVCL_STREAM_CANONICAL);
    ck_assert_uint_eq(kvcl_stream_next(&s, 1, &addr), 0);
    ck_assert_uint_eq(kvcl_stream_checksum(&s, 10), kvcl_checksum("", 0));
    ck_assert_int_eq(kvcl_runs_init(&runs, &side, &side, KVCL_RUNS_ANY_ORDER), KVCL_OK);
    ck_assert_int_eq(kvcl_runs_next(&runs, 1, &run), 0);
    ck_assert_int_eq(kvcl_runs_copy(&runs, 0, 0), KVCL_OK);
}
END_TEST

START_TEST(bad_ids_are_named_with_index_and_value)
{
    kvcl_shape_t shape = shape_of(KVCL_LAYOUT_NHD(SMALL));
    uint32_t ids[1000];
    kvcl_side_t side = side_of(&shape, ids, 1000);

    memset(ids, 0, sizeof(ids));
    ck_assert_int_eq(kvcl_side_check(&side), KVCL_OK);
    ids[999] = 8;
    ck_assert_int_eq(kvcl_side_check(&side), KVCL_ERR_OUT_OF_RANGE);
    ck_assert_str_eq(kvcl_last_error(), "selection: blocks[999] is 8: the layout has blocks 0 to 7");
    ids[256] = UINT32_MAX;
    ck_assert_int_eq(kvcl_side_check(&side), KVCL_ERR_OUT_OF_RANGE);
    ck_assert_str_eq(kvcl_last_error(), "selection: blocks[256] is 4294967295: the layout has blocks 0 to 7");
}
END_TEST

START_TEST(bad_ranges_and_pointers_are_named)
{
    kvcl_shape_t shape = shape_of(KVCL_LAYOUT_NHD(SMALL));
    kvcl_shape_t huge = shape_of(KVCL_LAYOUT_BYTES(1, 0xffffffff));
    const uint32_t ids[] = {0};
    kvcl_side_t side;

#define REFUSE(_status, _word, ...)                                                                                    \
    do {                                                                                                               \
        side = side_of(&shape, ids, 1);                                                                                \
        __VA_ARGS__;                                                                                                   \
        ck_assert_int_eq(kvcl_side_check(&side), _status);                                                             \
        ck_assert_msg(strstr(kvcl_last_error(), _word) != NULL, "%s", kvcl_last_error());                              \
    } while (0)
    REFUSE(KVCL_ERR_OUT_OF_RANGE, "layers end at 3", side.sel.layers.end = 3);
    REFUSE(KVCL_ERR_OUT_OF_RANGE, "layers [1, 0)", side.sel.layers.first = 1);
    REFUSE(KVCL_ERR_OUT_OF_RANGE, "heads [2, 2)", side.sel.heads = ((kvcl_range_t){2, 2}));
    REFUSE(KVCL_ERR_OUT_OF_RANGE, "heads end at 5", side.sel.heads = ((kvcl_range_t){4, 5}));
    REFUSE(KVCL_ERR_OUT_OF_RANGE, "tokens end at 3, the blocks have 2", side.sel.tokens.end = 3);
    REFUSE(KVCL_ERR_OUT_OF_RANGE, "tokens [1, 0)", side.sel.tokens.first = 1);
    REFUSE(KVCL_ERR_OUT_OF_RANGE, "tokens end at 1", side.sel.n_blocks = 0; side.sel.tokens.end = 1);
    REFUSE(KVCL_ERR_INVALID_PARAM, "blocks", side.sel.blocks = NULL);
    REFUSE(KVCL_ERR_INVALID_PARAM, "shape", side.shape = NULL);
    REFUSE(KVCL_ERR_INVALID_PARAM, "bases", side.bases = NULL);
    REFUSE(KVCL_ERR_OUT_OF_RANGE, "2^63", side.shape = &huge; side.sel.n_blocks = SIZE_MAX / 4);
#undef REFUSE
    ck_assert_int_eq(kvcl_side_check(NULL), KVCL_ERR_INVALID_PARAM);
}
END_TEST

START_TEST(orders_are_permutations)
{
    ck_assert(kvcl_stream_order_valid(KVCL_STREAM_CANONICAL));
    ck_assert(kvcl_stream_order_valid(KVCL_STREAM_HND));
    ck_assert(kvcl_stream_order_valid(0x12345));
    ck_assert(!kvcl_stream_order_valid(0));
    ck_assert(!kvcl_stream_order_valid(0x11345));
    ck_assert(!kvcl_stream_order_valid(0x62345));
    ck_assert(!kvcl_stream_order_valid(0x02345));
    ck_assert(!kvcl_stream_order_valid(0x112345));
    ck_assert(!kvcl_stream_order_valid(UINT32_MAX));
}
END_TEST

START_TEST(equal_memories_are_walked_as_they_lie)
{
    /* vLLM pages per head, K next to V: no run in canonical order is longer than a head vector */
    kvcl_shape_t paged = shape_of(
        KVCL_LAYOUT_NHD(SMALL, .flags = KVCL_LAYOUT_PER_LAYER, .kv_stride = 16, .token_stride = 32, .head_stride = 64));
    kvcl_shape_t nhd = shape_of(KVCL_LAYOUT_NHD(SMALL));
    kvcl_shape_t opaque = shape_of(KVCL_LAYOUT_BYTES(8, 512));
    const uintptr_t bases[] = {0, 4096};
    const uint32_t ids[] = {2, 3, 4, 7};
    kvcl_side_t a = {.shape = &paged, .bases = bases, .sel = {.blocks = ids, .n_blocks = 4}};
    kvcl_side_t b = side_of(&nhd, ids, 4);
    kvcl_side_t c = side_of(&opaque, ids, 4);
    kvcl_runs_t runs;
    kvcl_run_t run;

    ck_assert_int_eq(kvcl_runs_init(&runs, &a, &a, KVCL_RUNS_ANY_ORDER), KVCL_OK);
    ck_assert_uint_eq(count_runs(&runs, SIZE_MAX), 4);
    ck_assert_uint_eq(count_runs(&runs, 256), 8);
    ck_assert_int_eq(kvcl_runs_next(&runs, SIZE_MAX, &run), 1);
    ck_assert_uint_eq(run.len, 768);
    ck_assert_uint_eq(run.dst, 512);
    ck_assert_int_eq(kvcl_runs_init(&runs, &b, &b, KVCL_RUNS_ANY_ORDER), KVCL_OK);
    ck_assert_uint_eq(count_runs(&runs, SIZE_MAX), 8);
    ck_assert_int_eq(kvcl_runs_init(&runs, &a, &b, KVCL_RUNS_ANY_ORDER), KVCL_OK);
    ck_assert_uint_eq(count_runs(&runs, SIZE_MAX), kvcl_runs_bytes(&runs) / 16);
    ck_assert_int_eq(kvcl_runs_init(&runs, &b, &c, KVCL_RUNS_ANY_ORDER), KVCL_OK);
    ck_assert_uint_eq(runs.src.order, KVCL_STREAM_CANONICAL);
    ck_assert_uint_eq(count_runs(&runs, SIZE_MAX), 16);
    ck_assert_int_eq(kvcl_runs_init(&runs, &b, &c, 0x54321), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_runs_init(&runs, &b, &b, 0x54322), KVCL_ERR_INVALID_PARAM);
}
END_TEST

START_TEST(unlike_selections_are_refused_with_both_values)
{
    kvcl_shape_t a = shape_of(KVCL_LAYOUT_NHD(SMALL));
    kvcl_shape_t opaque = shape_of(KVCL_LAYOUT_BYTES(8, 500));
    const uint32_t ids[] = {0, 1};
    kvcl_side_t dst = side_of(&a, ids, 2), src = side_of(&a, ids, 1);
    kvcl_runs_t runs;

    ck_assert_int_eq(kvcl_runs_init(&runs, &dst, &src, 0), KVCL_ERR_BAD_LAYOUT);
    ck_assert_str_eq(kvcl_last_error(), "selections differ: n_blocks is 2 on the destination, 1 on the source");
    src.sel.n_blocks = 2;
    src.sel.heads = (kvcl_range_t){0, 2};
    ck_assert_int_eq(kvcl_runs_init(&runs, &dst, &src, 0), KVCL_ERR_BAD_LAYOUT);
    ck_assert_str_eq(kvcl_last_error(), "selections differ: heads is 4 on the destination, 2 on the source");
    dst.sel.heads = (kvcl_range_t){2, 4};
    ck_assert_int_eq(kvcl_runs_init(&runs, &dst, &src, 0), KVCL_OK);
    src = side_of(&opaque, ids, 2);
    ck_assert_int_eq(kvcl_runs_init(&runs, &dst, &src, 0), KVCL_ERR_BAD_LAYOUT);
    ck_assert_str_eq(kvcl_last_error(),
                     "selections differ: bytes of a block is 256 on the destination, 500 on the source");
}
END_TEST

/* 1 layer, 1 plane, 4 blocks of 8 tokens of 16 bytes: 128 a block. */
#define EIGHTS .layers = 1, .kv = 1, .blocks = 4, .tokens = 8, .heads = 2, .head_dim = 4, .elem_bytes = 2

START_TEST(units_of_a_block_merge_again_where_they_touch)
{
    kvcl_shape_t shape = shape_of(KVCL_LAYOUT_NHD(EIGHTS));
    kvcl_shape_t apart = shape_of(KVCL_LAYOUT_NHD(EIGHTS, .block_stride = 200));
    const uint32_t ids[] = {0, 1, 3};
    kvcl_side_t side = side_of(&shape, ids, 3), gaps = side_of(&apart, ids, 3);

    side.sel.tokens = (kvcl_range_t){2, 22}; /* in units of 2 */
    EXPECT(&side, KVCL_STREAM_CANONICAL, {32, 224}, {384, 96});
    gaps.sel.tokens = (kvcl_range_t){12, 20};
    EXPECT(&gaps, KVCL_STREAM_CANONICAL, {264, 64}, {600, 64});
    gaps.sel.tokens = (kvcl_range_t){8, 16}; /* whole blocks, but not all */
    EXPECT(&gaps, KVCL_STREAM_CANONICAL, {200, 128});
}
END_TEST

START_TEST(small_blocks_and_large_ones_make_long_runs)
{
    kvcl_shape_t large = shape_of(KVCL_LAYOUT_NHD(EIGHTS)), small;
    kvcl_layout_t layout = KVCL_LAYOUT_NHD(EIGHTS);
    const uint32_t ids[] = {2, 1}, smalls[] = {4, 5, 6, 0, 1, 9, 8};
    kvcl_side_t dst = side_of(&large, ids, 2), src;
    kvcl_runs_t runs;
    kvcl_run_t run;

    layout.tokens = 2;
    layout.blocks = 10;
    small = shape_of(layout);
    src = side_of(&small, smalls, 7);
    dst.sel.tokens = (kvcl_range_t){0, 14};
    ck_assert_uint_eq(kvcl_runs_unit(&dst, &src), 2);
    ck_assert_int_eq(kvcl_runs_init(&runs, &dst, &src, KVCL_RUNS_ANY_ORDER), KVCL_OK);
    ck_assert_uint_eq(kvcl_runs_bytes(&runs), 224);
    ck_assert(kvcl_runs_next(&runs, SIZE_MAX, &run));
    ck_assert(run.dst == 256 && run.src == 128 && run.len == 96);
    ck_assert(kvcl_runs_next(&runs, SIZE_MAX, &run));
    ck_assert(run.dst == 352 && run.src == 0 && run.len == 32);
    ck_assert(kvcl_runs_next(&runs, SIZE_MAX, &run));
    ck_assert(run.dst == 128 && run.src == 32 && run.len == 32); /* in the next large block, not after this one */
    ck_assert_uint_eq(count_runs(&runs, SIZE_MAX), 2);
    dst.sel.tokens.end = 16;
    ck_assert_int_eq(kvcl_runs_init(&runs, &dst, &src, KVCL_RUNS_ANY_ORDER), KVCL_ERR_BAD_LAYOUT);
    ck_assert_str_eq(kvcl_last_error(), "selections differ: tokens in all is 16 on the destination, 14 on the source");
    layout.tokens = 3;
    small = shape_of(layout);
    ck_assert_int_eq(kvcl_runs_init(&runs, &dst, &src, KVCL_RUNS_ANY_ORDER), KVCL_ERR_BAD_LAYOUT);
    ck_assert_str_eq(kvcl_last_error(), "selections differ: tokens of a block is 8 on the destination, 3 on the "
                                        "source: one must divide the other");
}
END_TEST

START_TEST(sorted_lists_keep_their_pairs_and_merge)
{
    enum { N = 97 };
    kvcl_shape_t shape = shape_of(KVCL_LAYOUT_BYTES(N, 64));
    uint32_t first[N], second[N];
    kvcl_side_t dst = side_of(&shape, first, N), src = side_of(&shape, second, N);
    kvcl_runs_t runs;
    uint32_t n, i;

    for (n = 0; n <= N; ++n) {
        for (i = 0; i < n; ++i) {
            first[i] = (uint32_t)((i * 59u) % N); /* a permutation */
            second[i] = first[i] ^ 1;
        }
        kvcl_blocks_sort(first, second, n);
        for (i = 0; i < n; ++i) {
            ck_assert_uint_eq(second[i], first[i] ^ 1);
            ck_assert((i == 0) || (first[i - 1] < first[i]));
        }
    }
    for (i = 0; i < N; ++i) {
        first[i] = second[i] = (uint32_t)((i * 59u) % N);
    }
    ck_assert_int_eq(kvcl_runs_init(&runs, &dst, &src, KVCL_RUNS_ANY_ORDER), KVCL_OK);
    ck_assert_uint_gt(count_runs(&runs, SIZE_MAX), 90);
    kvcl_blocks_sort(first, second, N);
    kvcl_runs_seek(&runs, 0);
    ck_assert_uint_eq(count_runs(&runs, SIZE_MAX), 1);
}
END_TEST

START_TEST(seek_to_any_byte_equals_walking_there)
{
    kvcl_shape_t shape = shape_of(KVCL_LAYOUT_NHD(SMALL, .flags = KVCL_LAYOUT_PER_LAYER, .head_stride = 24));
    const uintptr_t bases[] = {1000000, 3000};
    const uint32_t ids[] = {7, 3, 4, 5, 0};
    kvcl_side_t side = {.shape = &shape, .bases = bases, .sel = {.blocks = ids, .n_blocks = 5}};
    const uint32_t orders[] = {KVCL_STREAM_CANONICAL, KVCL_STREAM_HND, 0x54321, 0x12345, 0x21453};
    kvcl_stream_t walk, jump;
    uintptr_t addr, there;
    uint64_t pos;
    size_t i, n = sizeof(orders) / sizeof(orders[0]);

    for (i = 0; i < 2 * n; ++i) {
        side.sel.tokens = (i < n) ? (kvcl_range_t){0, 0} : (kvcl_range_t){1, 8}; /* by blocks of 2, by tokens */
        kvcl_stream_init(&walk, &side, orders[i % n]);
        jump = walk;
        for (pos = 0; pos < walk.total_bytes; ++pos) {
            ck_assert_uint_eq(kvcl_stream_pos(&walk), pos);
            ck_assert_uint_eq(kvcl_stream_next(&walk, 1, &addr), 1);
            kvcl_stream_seek(&jump, pos);
            ck_assert_uint_eq(kvcl_stream_pos(&jump), pos);
            ck_assert_uint_eq(kvcl_stream_next(&jump, 1, &there), 1);
            ck_assert_uint_eq(addr, there);
            ck_assert_uint_eq(walk.base, jump.base);
        }
        kvcl_stream_seek(&jump, walk.total_bytes);
        ck_assert_uint_eq(kvcl_stream_next(&jump, 1, &there), 0);
        kvcl_stream_seek(&jump, UINT64_MAX);
        ck_assert_uint_eq(kvcl_stream_next(&jump, 1, &there), 0);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kv_stream");
    TCase *tc = tcase_create("stream");
    SRunner *runner;
    int failed;

    tcase_add_test(tc, canonical_order_goes_block_by_block);
    tcase_add_test(tc, planes_outside_of_blocks_merge_neighbours);
    tcase_add_test(tc, opaque_blocks_merge_over_the_whole_list);
    tcase_add_test(tc, heads_and_layers_are_cut_by_arithmetic);
    tcase_add_test(tc, runs_never_cross_a_base_even_if_bases_touch);
    tcase_add_test(tc, an_empty_list_is_an_empty_stream);
    tcase_add_test(tc, bad_ids_are_named_with_index_and_value);
    tcase_add_test(tc, bad_ranges_and_pointers_are_named);
    tcase_add_test(tc, orders_are_permutations);
    tcase_add_test(tc, equal_memories_are_walked_as_they_lie);
    tcase_add_test(tc, unlike_selections_are_refused_with_both_values);
    tcase_add_test(tc, units_of_a_block_merge_again_where_they_touch);
    tcase_add_test(tc, small_blocks_and_large_ones_make_long_runs);
    tcase_add_test(tc, sorted_lists_keep_their_pairs_and_merge);
    tcase_add_test(tc, seek_to_any_byte_equals_walking_there);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
