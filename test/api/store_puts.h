/*
 * What the tests of puts share: a store, a cache with the bytes of its blocks, keys, and the two calls that they make
 * all the time. Included once, by the test's only file.
 */
#ifndef KVCL_TEST_API_STORE_PUTS_H
#define KVCL_TEST_API_STORE_PUTS_H

#include <kvcl/kvcl.h>

#include <check.h>

enum { BLOCKS = 64, BLOCK = 64 << 10, SECOND = 1000000000 };

#define TAKEN(_call) ck_assert_msg((_call) == KVCL_OK, "%s: %s", #_call, kvcl_last_error())

static kvcl_context_h ctx;
static kvcl_cache_h   cache;
static kvcl_store_h   store;
static uint8_t        *bytes; /* of the cache */
static kvcl_key_t     keys[BLOCKS];
static uint32_t       near_ids[BLOCKS], far_ids[BLOCKS];

static kvcl_status_t end_of(kvcl_req_h req)
{
    return kvcl_req_wait(req, 20ull * SECOND);
}

static size_t count_present(void)
{
    uint8_t present[BLOCKS];
    size_t  n = 0, i;

    TAKEN(kvcl_store_exists(store, keys, BLOCKS, present, NULL));
    for (i = 0; i < BLOCKS; ++i) {
        n += present[i];
    }
    return n;
}

#endif
