/*
 * Layouts: defaults against sizes computed by hand, refusals and the fields they name, the canonical form, comparison,
 * and the packed form with hostile bytes.
 */
#include "kv/stream.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define LLAMA .layers = 32, .blocks = 4096, .tokens = 16, .heads = 8, .head_dim = 128, .elem_bytes = 2

static kvcl_shape_t shape_of(kvcl_layout_t layout)
{
    kvcl_shape_t shape;

    ck_assert_msg(kvcl_shape_init(&shape, &layout) == KVCL_OK, "%s", kvcl_last_error());
    return shape;
}

static void refuse(kvcl_layout_t layout, kvcl_status_t status, const char *word)
{
    kvcl_shape_t shape, before;

    memset(&shape, 0x5a, sizeof(shape));
    before = shape;
    ck_assert_int_eq(kvcl_shape_init(&shape, &layout), status);
    ck_assert_msg(strstr(kvcl_last_error(), word) != NULL, "\"%s\" does not name %s", kvcl_last_error(), word);
    ck_assert_int_eq(memcmp(&shape, &before, sizeof(shape)), 0);
}

START_TEST(dense_defaults_of_both_orders)
{
    kvcl_shape_t n = shape_of(KVCL_LAYOUT_NHD(LLAMA));
    kvcl_shape_t h = shape_of(KVCL_LAYOUT_HND(LLAMA));

    ck_assert_uint_eq(n.kv, 2);
    ck_assert_uint_eq(n.head_stride, 256);
    ck_assert_uint_eq(n.token_stride, 2048);
    ck_assert_uint_eq(n.block_stride, 32768);
    ck_assert_uint_eq(n.kv_stride, 134217728);
    ck_assert_uint_eq(n.layer_stride, 268435456);
    ck_assert_uint_eq(n.block_bytes, 2097152);
    ck_assert_uint_eq(n.base_bytes, 8589934592);
    ck_assert_uint_eq(n.n_bases, 1);
    ck_assert_uint_eq(n.order, 0x54321);
    ck_assert_uint_eq(h.token_stride, 256);
    ck_assert_uint_eq(h.head_stride, 4096);
    ck_assert_uint_eq(h.block_stride, 32768);
    ck_assert_uint_eq(h.order, 0x54312);
}
END_TEST

START_TEST(bases_per_layer_and_per_plane)
{
    kvcl_shape_t l = shape_of(KVCL_LAYOUT_NHD(LLAMA, .flags = KVCL_LAYOUT_PER_LAYER));
    kvcl_shape_t p = shape_of(KVCL_LAYOUT_NHD(LLAMA, .flags = KVCL_LAYOUT_PER_PLANE));
    size_t n_bases, base_bytes;
    kvcl_layout_t layout = KVCL_LAYOUT_NHD(LLAMA, .flags = KVCL_LAYOUT_PER_LAYER);

    ck_assert_uint_eq(l.n_bases, 32);
    ck_assert_uint_eq(l.base_bytes, 268435456);
    ck_assert_uint_eq(l.layer_stride, 0);
    ck_assert_uint_eq(p.n_bases, 64);
    ck_assert_uint_eq(p.base_bytes, 134217728);
    ck_assert_int_eq(kvcl_layout_extent(&layout, &n_bases, &base_bytes), KVCL_OK);
    ck_assert_uint_eq(n_bases, 32);
    ck_assert_uint_eq(base_bytes, 268435456);
    ck_assert_int_eq(kvcl_layout_extent(&layout, NULL, NULL), KVCL_OK);
}
END_TEST

START_TEST(engine_layouts_are_accepted)
{
    /* vLLM [blocks][2][tokens][heads][dim] per layer; with its pages per head, K beside V; all layers
     * of a block together; MLA */
    kvcl_shape_t a =
        shape_of(KVCL_LAYOUT_NHD(LLAMA, .flags = KVCL_LAYOUT_PER_LAYER, .kv_stride = 32768, .block_stride = 65536));
    kvcl_shape_t b = shape_of(KVCL_LAYOUT_NHD(LLAMA, .flags = KVCL_LAYOUT_PER_LAYER, .kv_stride = 256,
                                              .token_stride = 512, .head_stride = 8192));
    kvcl_shape_t c =
        shape_of(KVCL_LAYOUT_NHD(LLAMA, .kv_stride = 32768, .layer_stride = 65536, .block_stride = 2097152));
    kvcl_shape_t d = shape_of(KVCL_LAYOUT_NHD(.layers = 61, .kv = 1, .blocks = 100, .tokens = 64, .heads = 1,
                                              .head_dim = 576, .elem_bytes = 2));

    ck_assert_uint_eq(a.base_bytes, 268435456);
    ck_assert_uint_eq(a.order, 0x53421);
    ck_assert_uint_eq(b.block_stride, 65536);
    ck_assert_uint_eq(b.base_bytes, 268435456);
    ck_assert_uint_eq(b.order, 0x53124);
    ck_assert_uint_eq(c.base_bytes, 8589934592);
    ck_assert_uint_eq(c.order, 0x35421);
    ck_assert_uint_eq(d.block_bytes, 61 * 73728);
}
END_TEST

START_TEST(padding_carries_outwards_and_counts_in_the_extent_only)
{
    kvcl_shape_t s = shape_of(KVCL_LAYOUT_NHD(.layers = 2, .blocks = 3, .tokens = 4, .heads = 5, .head_dim = 6,
                                              .elem_bytes = 2, .block_stride = 1000));

    ck_assert_uint_eq(s.kv_stride, 3000);
    ck_assert_uint_eq(s.layer_stride, 6000);
    ck_assert_uint_eq(s.block_bytes, 2 * 2 * 240);
    ck_assert_uint_eq(s.base_bytes, 6000 + 3000 + 2000 + 240);
}
END_TEST

START_TEST(zero_counts_are_named)
{
    refuse(KVCL_LAYOUT_NHD(.blocks = 1, .tokens = 1, .heads = 1, .head_dim = 1, .elem_bytes = 1), KVCL_ERR_BAD_LAYOUT,
           "layers");
    refuse(KVCL_LAYOUT_NHD(.layers = 1, .tokens = 1, .heads = 1, .head_dim = 1, .elem_bytes = 1), KVCL_ERR_BAD_LAYOUT,
           "blocks");
    refuse(KVCL_LAYOUT_NHD(.layers = 1, .blocks = 1, .heads = 1, .head_dim = 1, .elem_bytes = 1), KVCL_ERR_BAD_LAYOUT,
           "tokens");
    refuse(KVCL_LAYOUT_NHD(.layers = 1, .blocks = 1, .tokens = 1, .head_dim = 1, .elem_bytes = 1), KVCL_ERR_BAD_LAYOUT,
           "heads");
    refuse(KVCL_LAYOUT_NHD(.layers = 1, .blocks = 1, .tokens = 1, .heads = 1, .elem_bytes = 1), KVCL_ERR_BAD_LAYOUT,
           "head_dim");
    refuse(KVCL_LAYOUT_NHD(.layers = 1, .blocks = 1, .tokens = 1, .heads = 1, .head_dim = 1), KVCL_ERR_BAD_LAYOUT,
           "elem_bytes");
}
END_TEST

START_TEST(limits_and_options_are_named)
{
    kvcl_layout_t base = KVCL_LAYOUT_NHD(LLAMA);
    kvcl_layout_t l;

#define WITH(_field, _value) (l = base, l._field = (_value), l)
    refuse(WITH(layers, 4097), KVCL_ERR_BAD_LAYOUT, "layers is 4097");
    refuse(WITH(blocks, UINT64_C(0x100000000)), KVCL_ERR_BAD_LAYOUT, "blocks is 4294967296");
    refuse(WITH(kv, 3), KVCL_ERR_BAD_LAYOUT, "kv is 3");
    refuse(WITH(flags, 0x10), KVCL_ERR_BAD_LAYOUT, "flags");
    refuse(WITH(flags, 3), KVCL_ERR_BAD_LAYOUT, "flags");
    refuse(WITH(order, 2), KVCL_ERR_BAD_LAYOUT, "order");
    refuse(WITH(reserved, 1), KVCL_ERR_BAD_LAYOUT, "reserved");
    refuse(WITH(size, 0), KVCL_ERR_INVALID_PARAM, "size");
    refuse(WITH(size, offsetof(kvcl_layout_t, layer_stride) - 1), KVCL_ERR_INVALID_PARAM, "size");
    base.flags = KVCL_LAYOUT_PER_LAYER;
    refuse(WITH(layer_stride, 1u << 30), KVCL_ERR_BAD_LAYOUT, "layer_stride");
    base.flags = KVCL_LAYOUT_PER_PLANE;
    refuse(WITH(kv_stride, 1u << 30), KVCL_ERR_BAD_LAYOUT, "kv_stride");
#undef WITH
}
END_TEST

START_TEST(overlapping_strides_are_named)
{
    kvcl_layout_t base = KVCL_LAYOUT_NHD(LLAMA);
    kvcl_layout_t l;

#define WITH(_field, _value) (l = base, l._field = (_value), l)
    refuse(WITH(head_stride, 255), KVCL_ERR_BAD_LAYOUT, "head_stride is 255");
    refuse(WITH(token_stride, 2047), KVCL_ERR_BAD_LAYOUT, "token_stride is 2047");
    refuse(WITH(block_stride, 32767), KVCL_ERR_BAD_LAYOUT, "block_stride is 32767");
    refuse(WITH(kv_stride, 134217727), KVCL_ERR_BAD_LAYOUT, "kv_stride is 134217727");
    refuse(WITH(layer_stride, 268435455), KVCL_ERR_BAD_LAYOUT, "layer_stride is 268435455");
    refuse(WITH(kv_stride, 32768), KVCL_ERR_BAD_LAYOUT, "overlap"); /* as large as block_stride */
#undef WITH
    /* the padding of one dimension may hold the last step of another, not more */
    (void)shape_of(KVCL_LAYOUT_NHD(.layers = 1, .kv = 1, .blocks = 2, .tokens = 2, .heads = 1, .head_dim = 4,
                                   .elem_bytes = 1, .token_stride = 10, .block_stride = 14));
    refuse(KVCL_LAYOUT_NHD(.layers = 1, .kv = 1, .blocks = 2, .tokens = 2, .heads = 1, .head_dim = 4, .elem_bytes = 1,
                           .token_stride = 10, .block_stride = 13),
           KVCL_ERR_BAD_LAYOUT, "block_stride is 13");
}
END_TEST

START_TEST(overflowing_products_are_refused)
{
    const uint32_t m = UINT32_MAX;

    refuse(KVCL_LAYOUT_NHD(.layers = 1, .blocks = 1, .tokens = 1, .heads = 1, .head_dim = m, .elem_bytes = m),
           KVCL_ERR_BAD_LAYOUT, "head_dim");
    refuse(KVCL_LAYOUT_NHD(.layers = 4096, .blocks = 1, .tokens = m, .heads = m, .head_dim = 1, .elem_bytes = 1),
           KVCL_ERR_BAD_LAYOUT, "one block");
    refuse(KVCL_LAYOUT_NHD(.layers = 4096, .blocks = m, .tokens = m, .heads = 1, .head_dim = 1, .elem_bytes = 1),
           KVCL_ERR_BAD_LAYOUT, "blocks");
    refuse(KVCL_LAYOUT_NHD(LLAMA, .block_stride = UINT64_MAX), KVCL_ERR_BAD_LAYOUT, "block_stride");
    refuse(KVCL_LAYOUT_NHD(LLAMA, .token_stride = UINT64_C(1) << 60), KVCL_ERR_BAD_LAYOUT, "token_stride");
    refuse(KVCL_LAYOUT_NHD(LLAMA, .block_stride = UINT64_C(1) << 51, .kv_stride = (UINT64_C(1) << 62) - 1),
           KVCL_ERR_BAD_LAYOUT, "");
}
END_TEST

START_TEST(a_longer_struct_of_a_later_version_is_taken_if_its_tail_is_zero)
{
    struct {
        kvcl_layout_t layout;
        uint64_t later;
    } big = {.layout = KVCL_LAYOUT_NHD(LLAMA)};
    size_t bytes = 0;

    big.layout.size = sizeof(big);
    ck_assert_int_eq(kvcl_layout_block_bytes(&big.layout, &bytes), KVCL_OK);
    ck_assert_uint_eq(bytes, 2097152);
    big.later = 1;
    bytes = 7;
    ck_assert_int_eq(kvcl_layout_block_bytes(&big.layout, &bytes), KVCL_ERR_INVALID_PARAM);
    ck_assert_uint_eq(bytes, 7);
    ck_assert_int_eq(kvcl_layout_block_bytes(NULL, &bytes), KVCL_ERR_INVALID_PARAM);
}
END_TEST

START_TEST(equal_placement_has_equal_hash_and_other_placement_has_not)
{
    kvcl_layout_t a = KVCL_LAYOUT_NHD(LLAMA), b = a;
    uint8_t ha[32], hb[32];

    b.head_stride = 256, b.token_stride = 2048, b.kv = 2;
    ck_assert_int_eq(kvcl_layout_hash(&a, ha), KVCL_OK);
    ck_assert_int_eq(kvcl_layout_hash(&b, hb), KVCL_OK);
    ck_assert_int_eq(memcmp(ha, hb, 32), 0);
    b.block_stride = 32768 + 64;
    ck_assert_int_eq(kvcl_layout_hash(&b, hb), KVCL_OK);
    ck_assert_int_ne(memcmp(ha, hb, 32), 0);
    /* unused strides, and a base per layer of one layer, make no difference */
    a = KVCL_LAYOUT_HND(.layers = 1, .kv = 1, .blocks = 9, .tokens = 1, .heads = 4, .head_dim = 8, .elem_bytes = 2);
    b = a;
    b.order = KVCL_ORDER_NHD, b.token_stride = 12345, b.layer_stride = 3;
    ck_assert_int_eq(kvcl_layout_hash(&a, ha), KVCL_OK);
    ck_assert_int_eq(kvcl_layout_hash(&b, hb), KVCL_OK);
    ck_assert_int_eq(memcmp(ha, hb, 32), 0);
    b.layer_stride = 0, b.flags = KVCL_LAYOUT_PER_PLANE;
    ck_assert_int_eq(kvcl_layout_hash(&b, hb), KVCL_OK);
    ck_assert_int_eq(memcmp(ha, hb, 32), 0);
}
END_TEST

START_TEST(compatible_says_what_differs_and_both_values)
{
    kvcl_layout_t a = KVCL_LAYOUT_NHD(LLAMA);
    kvcl_layout_t b = KVCL_LAYOUT_HND(LLAMA, .flags = KVCL_LAYOUT_PER_LAYER, .block_stride = 40000);
    kvcl_layout_t raw = KVCL_LAYOUT_BYTES(7, 2097152);

    b.blocks = 17;
    ck_assert_int_eq(kvcl_layout_compatible(&a, &b), KVCL_OK);
    ck_assert_int_eq(kvcl_layout_compatible(&a, &raw), KVCL_OK);
    ck_assert_int_eq(kvcl_layout_compatible(&raw, &b), KVCL_OK);
    b.heads = 4;
    ck_assert_int_eq(kvcl_layout_compatible(&a, &b), KVCL_ERR_BAD_LAYOUT);
    ck_assert_str_eq(kvcl_last_error(), "layouts differ: heads is 8 on one side, 4 on the other");
    raw.head_dim -= 1;
    ck_assert_int_eq(kvcl_layout_compatible(&a, &raw), KVCL_ERR_BAD_LAYOUT);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "2097152"));
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "2097151"));
    b.tokens = 0;
    ck_assert_int_eq(kvcl_layout_compatible(&a, &b), KVCL_ERR_BAD_LAYOUT);
}
END_TEST

START_TEST(blocks_of_which_one_divides_the_other_are_compatible)
{
    kvcl_layout_t a = KVCL_LAYOUT_NHD(LLAMA), b = KVCL_LAYOUT_HND(LLAMA);
    kvcl_layout_t token = KVCL_LAYOUT_BYTES(7, 1152); /* one latent token a block */
    kvcl_layout_t latent = KVCL_LAYOUT_NHD(.layers = 1, .kv = 1, .blocks = 9, .tokens = 64, .heads = 1,
                                           .head_dim = 1152, .elem_bytes = 1);

    b.tokens = 64;
    ck_assert_int_eq(kvcl_layout_compatible(&a, &b), KVCL_OK);
    ck_assert_int_eq(kvcl_layout_compatible(&b, &a), KVCL_OK);
    b.tokens = 24;
    ck_assert_int_eq(kvcl_layout_compatible(&a, &b), KVCL_ERR_BAD_LAYOUT);
    ck_assert_str_eq(kvcl_last_error(),
                     "layouts differ: tokens is 16 on one side, 24 on the other, and neither divides the other");
    ck_assert_int_eq(kvcl_layout_compatible(&token, &latent), KVCL_OK);
    latent.head_dim = 1153;
    ck_assert_int_eq(kvcl_layout_compatible(&token, &latent), KVCL_ERR_BAD_LAYOUT);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "1152"));
}
END_TEST

START_TEST(describe_fits_is_cut_and_is_empty_on_error)
{
    kvcl_layout_t a = KVCL_LAYOUT_NHD(LLAMA, .flags = KVCL_LAYOUT_PER_LAYER);
    kvcl_layout_t worst = KVCL_LAYOUT_NHD(.layers = 4095, .blocks = 0xffffffff, .tokens = 2, .heads = 2,
                                          .head_dim = 10000, .elem_bytes = 1);
    char buf[KVCL_LAYOUT_DESCRIBE_MAX], small[12];

    ck_assert_int_eq(kvcl_layout_describe(&a, buf, sizeof(buf)), KVCL_OK);
    ck_assert_str_eq(buf, "32 layers x K,V x 4096 blocks x 16 tokens x 8 heads x 128 x 2 B; block 2097152 B; "
                          "32 bases (per layer) of 268435456 B; strides kv 134217728 block 32768 token 2048 head 256");
    ck_assert_int_eq(kvcl_layout_describe(&a, small, sizeof(small)), KVCL_OK);
    ck_assert_str_eq(small, "32 layers x");
    ck_assert_int_eq(kvcl_layout_describe(&worst, buf, sizeof(buf)), KVCL_OK);
    ck_assert_uint_lt(strlen(buf), sizeof(buf) - 1);
    ck_assert_int_eq(kvcl_layout_describe(&a, buf, 0), KVCL_ERR_INVALID_PARAM);
    a.heads = 0;
    ck_assert_int_eq(kvcl_layout_describe(&a, buf, sizeof(buf)), KVCL_ERR_BAD_LAYOUT);
    ck_assert_str_eq(buf, "");
}
END_TEST

START_TEST(packed_form_round_trips_and_has_fixed_bytes)
{
    kvcl_shape_t a = shape_of(KVCL_LAYOUT_HND(LLAMA, .flags = KVCL_LAYOUT_PER_LAYER, .block_stride = 40000)), b;
    uint8_t buf[KVCL_SHAPE_WIRE_BYTES];
    const uint8_t head[] = {1, 0, 88, 0, 1,   0, 0, 0, 32, 0, 0, 0, 2, 0,  0, 0, 16, 0, 0, 0,
                            8, 0, 0,  0, 128, 0, 0, 0, 2,  0, 0, 0, 0, 16, 0, 0, 0,  0, 0, 0};

    kvcl_shape_pack(&a, buf);
    ck_assert_int_eq(memcmp(buf, head, sizeof(head)), 0);
    ck_assert_int_eq(kvcl_shape_unpack(&b, buf, sizeof(buf)), KVCL_OK);
    ck_assert_int_eq(memcmp(&a, &b, sizeof(a)), 0);
}
END_TEST

START_TEST(hostile_bytes_are_refused)
{
    kvcl_shape_t a = shape_of(KVCL_LAYOUT_NHD(LLAMA)), b, before;
    uint8_t buf[KVCL_SHAPE_WIRE_BYTES + 1] = {0}, bad[sizeof(buf)];
    size_t len;

    memset(&b, 0x33, sizeof(b));
    before = b;
    kvcl_shape_pack(&a, buf);
    for (len = 0; len <= sizeof(buf); ++len) {
        if (len != KVCL_SHAPE_WIRE_BYTES) {
            ck_assert_int_eq(kvcl_shape_unpack(&b, buf, len), KVCL_ERR_PROTOCOL);
        }
    }
#define WITH(_at, _value) (memcpy(bad, buf, sizeof(bad)), bad[_at] = (_value), kvcl_shape_unpack(&b, bad, 88))
    ck_assert_int_eq(WITH(0, 2), KVCL_ERR_VERSION);
    ck_assert_int_eq(WITH(2, 89), KVCL_ERR_PROTOCOL);
    ck_assert_int_eq(WITH(87, 1), KVCL_ERR_PROTOCOL);
    ck_assert_int_eq(WITH(4, 4), KVCL_ERR_BAD_LAYOUT);    /* flags */
    ck_assert_int_eq(WITH(10, 1), KVCL_ERR_BAD_LAYOUT);   /* layers 65568 */
    ck_assert_int_eq(WITH(36, 1), KVCL_ERR_BAD_LAYOUT);   /* blocks beyond 2^32 */
    ck_assert_int_eq(WITH(47, 255), KVCL_ERR_BAD_LAYOUT); /* layer_stride */
#undef WITH
    ck_assert_int_eq(memcmp(&b, &before, sizeof(b)), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kv_layout");
    TCase *tc = tcase_create("layout");
    SRunner *runner;
    int failed;

    tcase_add_test(tc, dense_defaults_of_both_orders);
    tcase_add_test(tc, bases_per_layer_and_per_plane);
    tcase_add_test(tc, engine_layouts_are_accepted);
    tcase_add_test(tc, padding_carries_outwards_and_counts_in_the_extent_only);
    tcase_add_test(tc, zero_counts_are_named);
    tcase_add_test(tc, limits_and_options_are_named);
    tcase_add_test(tc, overlapping_strides_are_named);
    tcase_add_test(tc, overflowing_products_are_refused);
    tcase_add_test(tc, a_longer_struct_of_a_later_version_is_taken_if_its_tail_is_zero);
    tcase_add_test(tc, equal_placement_has_equal_hash_and_other_placement_has_not);
    tcase_add_test(tc, compatible_says_what_differs_and_both_values);
    tcase_add_test(tc, blocks_of_which_one_divides_the_other_are_compatible);
    tcase_add_test(tc, describe_fits_is_cut_and_is_empty_on_error);
    tcase_add_test(tc, packed_form_round_trips_and_has_fixed_bytes);
    tcase_add_test(tc, hostile_bytes_are_refused);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
