/*
 * A caller's keys are bytes: they may lie at any address, in all calls of the store.
 */
#include "config.h"
#include "store_alone.h"

#include <string.h>

enum { KEYS = 5, BLOCK = 256 };

/* All that a store does with keys; ids 0 to KEYS - 1 are put, and fetched into those after them. */
static void use(kvcl_store_h store, kvcl_cache_h cache, const kvcl_key_t *keys)
{
    uint32_t   put[KEYS], got[KEYS], i;
    uint8_t    present[KEYS], bytes[BLOCK];
    size_t     hit;
    kvcl_req_h req;

    for (i = 0; i < KEYS; ++i) {
        put[i] = i;
        got[i] = KEYS + i;
        memset(bytes, (int)i + 1, sizeof(bytes));
        ck_assert_int_eq(kvcl_cache_write_block(cache, i, bytes, sizeof(bytes)), KVCL_OK);
    }
    ck_assert_int_eq(kvcl_store_put(store, keys, KEYS, cache, put, NULL, &req), KVCL_OK);
    wait_for(req);
    ck_assert_int_eq(kvcl_store_match(store, keys, KEYS, &hit, NULL), KVCL_OK);
    ck_assert_uint_eq(hit, KEYS);
    ck_assert_int_eq(kvcl_store_exists(store, keys, KEYS, present, NULL), KVCL_OK);
    ck_assert_uint_eq(present[KEYS - 1], 1);
    ck_assert_int_eq(kvcl_store_get(store, keys, KEYS, cache, got, NULL, NULL, &req), KVCL_OK);
    wait_for(req);
    for (i = 0; i < KEYS; ++i) {
        ck_assert_int_eq(kvcl_cache_read_block(cache, got[i], bytes, sizeof(bytes)), KVCL_OK);
        ck_assert_uint_eq(bytes[BLOCK - 1], i + 1);
    }
    ck_assert_int_eq(kvcl_store_upsert(store, keys, KEYS, cache, put, NULL, &req), KVCL_OK);
    wait_for(req);
    ck_assert_int_eq(kvcl_store_remove(store, keys, KEYS, NULL, &req), KVCL_OK);
    wait_for(req);
    ck_assert_int_eq(kvcl_store_match(store, keys, KEYS, &hit, NULL), KVCL_OK);
    ck_assert_uint_eq(hit, 0);
}

START_TEST(keys_lie_at_any_address)
{
    static uint8_t      room[sizeof(kvcl_key_t) * (KEYS + 1)];
    const kvcl_layout_t layout = KVCL_LAYOUT_BYTES(2 * KEYS, BLOCK);
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    store_alone_t       alone;
    unsigned            i;

    for (i = 0; i < sizeof(room); ++i) {
        room[i] = (uint8_t)(i * 7);
    }
    params.dram_bytes  = 16 * BLOCK;
    params.block_bytes = BLOCK;
    alone              = open_alone(&layout, params);
    use(alone.store, alone.cache, (const kvcl_key_t *)&room[_i]);
    close_alone(&alone);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("key address");
    TCase *tcase = tcase_create("key address");

    tcase_add_loop_test(tcase, keys_lie_at_any_address, 0, 9);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
