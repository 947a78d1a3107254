/*
 * Blocks of kvcl_store_alloc after an eviction: with KVCL_STORE_ZERO they are zero, in every layout of memory; without
 * it they still have the bytes of the block that was evicted.
 */
#include "config.h"
#include "store_alone.h"

#include <string.h>

enum { BLOCKS = 4, LAYERS = 3 };

static const kvcl_layout_t bytes_layout = KVCL_LAYOUT_BYTES(BLOCKS, 40000);

static kvcl_layout_t paged_layout(void)
{
    kvcl_layout_t layout = kvcl_layout_nhd(LAYERS, BLOCKS, 4, 2, 8, 2);

    layout.flags = KVCL_LAYOUT_PER_LAYER;
    return layout;
}

/* Publishes all blocks, full of 0xaa, then takes one, which evicts one. @return how many of its bytes are not 0. */
static size_t left_over(const kvcl_layout_t *layout, uint64_t flags)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    store_alone_t       alone;
    kvcl_key_t          keys[BLOCKS];
    kvcl_req_h          req;
    uint32_t            ids[BLOCKS], id;
    size_t              block, i, n = 0;
    char                *buf;

    params.flags = flags;
    alone        = open_alone(layout, params);
    block        = kvcl_cache_block_bytes(alone.cache);
    buf          = malloc(block);
    memset(buf, 0xaa, block);
    memset(keys, 0, sizeof(keys));
    ck_assert_int_eq(kvcl_store_alloc(alone.store, BLOCKS, ids), KVCL_OK);
    for (i = 0; i < BLOCKS; ++i) {
        memset(&keys[i], (int)i + 1, sizeof(keys[i]));
        ck_assert_int_eq(kvcl_cache_write_block(alone.cache, ids[i], buf, block), KVCL_OK);
    }
    ck_assert_int_eq(kvcl_store_publish(alone.store, keys, BLOCKS, alone.cache, ids, NULL, &req), KVCL_OK);
    wait_for(req);
    ck_assert_int_eq(kvcl_store_alloc(alone.store, 1, &id), KVCL_OK);
    ck_assert_int_eq(kvcl_cache_read_block(alone.cache, id, buf, block), KVCL_OK);
    for (i = 0; i < block; ++i) {
        n += (buf[i] != 0);
    }
    for (i = 0; i < BLOCKS; ++i) { /* the blocks beside it are as they were */
        if (ids[i] != id) {
            ck_assert_int_eq(kvcl_cache_read_block(alone.cache, ids[i], buf, block), KVCL_OK);
            ck_assert_ptr_null(memchr(buf, 0, block));
        }
    }
    ck_assert_int_eq(kvcl_store_free(alone.store, &id, 1), KVCL_OK);
    close_alone(&alone);
    free(buf);
    return n;
}

START_TEST(a_new_block_is_zero_if_requested)
{
    const kvcl_layout_t layout = (_i == 0) ? bytes_layout : paged_layout();

    ck_assert_uint_eq(left_over(&layout, KVCL_STORE_ZERO), 0);
    ck_assert_uint_gt(left_over(&layout, 0), 0); /* the test sees old bytes */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("zero");
    TCase *tcase = tcase_create("zero");

    tcase_add_loop_test(tcase, a_new_block_is_zero_if_requested, 0, 2);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
