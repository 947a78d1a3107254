/*
 * Blocks of kvcl_store_alloc after an eviction: with KVCL_STORE_ZERO they are zero, in every layout of memory; without
 * it they still have the bytes of the block that was evicted.
 */
#include "config.h"
#include <kvcl/kvcl.h>

#include <check.h>
#include <stdlib.h>
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
static size_t left_over(kvcl_context_h ctx, const kvcl_layout_t *layout, uint64_t flags)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_cache_h        cache;
    kvcl_comm_h         world;
    kvcl_store_h        store;
    kvcl_key_t          keys[BLOCKS];
    kvcl_req_h          req;
    uint32_t            ids[BLOCKS], id;
    size_t              block, i, n = 0;
    char                *buf;

    ck_assert_int_eq(kvcl_cache_create(ctx, "zero", layout, NULL, &cache), KVCL_OK);
    params.flags = flags;
    params.cache = cache;
    ck_assert_int_eq(kvcl_comm_world(ctx, &world), KVCL_OK);
    ck_assert_int_eq(kvcl_store_open(world, &params, &store), KVCL_OK);
    block = kvcl_cache_block_bytes(cache);
    buf   = malloc(block);
    memset(buf, 0xaa, block);
    memset(keys, 0, sizeof(keys));
    ck_assert_int_eq(kvcl_store_alloc(store, BLOCKS, ids), KVCL_OK);
    for (i = 0; i < BLOCKS; ++i) {
        memset(&keys[i], (int)i + 1, sizeof(keys[i]));
        ck_assert_int_eq(kvcl_cache_write_block(cache, ids[i], buf, block), KVCL_OK);
    }
    ck_assert_int_eq(kvcl_store_publish(store, keys, BLOCKS, cache, ids, NULL, &req), KVCL_OK);
    ck_assert_int_eq(kvcl_req_wait(req, KVCL_WAIT_DEFAULT), KVCL_OK);
    ck_assert_int_eq(kvcl_store_alloc(store, 1, &id), KVCL_OK);
    ck_assert_int_eq(kvcl_cache_read_block(cache, id, buf, block), KVCL_OK);
    for (i = 0; i < block; ++i) {
        n += (buf[i] != 0);
    }
    for (i = 0; i < BLOCKS; ++i) { /* the blocks beside it are as they were */
        if (ids[i] != id) {
            ck_assert_int_eq(kvcl_cache_read_block(cache, ids[i], buf, block), KVCL_OK);
            ck_assert_ptr_null(memchr(buf, 0, block));
        }
    }
    ck_assert_int_eq(kvcl_store_free(store, &id, 1), KVCL_OK);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
    free(buf);
    return n;
}

START_TEST(a_new_block_is_zero_if_requested)
{
    kvcl_layout_t      layout = (_i == 0) ? bytes_layout : paged_layout();
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    kvcl_context_h     ctx;

    params.boot = "self";
    ck_assert_int_eq(kvcl_init(&params, &ctx), KVCL_OK);
    ck_assert_uint_eq(left_over(ctx, &layout, KVCL_STORE_ZERO), 0);
    ck_assert_uint_gt(left_over(ctx, &layout, 0), 0); /* the test sees old bytes */
    kvcl_finalize(ctx);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("zero");
    TCase   *tcase = tcase_create("zero");
    SRunner *runner;
    int     failed;

    tcase_add_loop_test(tcase, a_new_block_is_zero_if_requested, 0, 2);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? 0 : 1;
}
