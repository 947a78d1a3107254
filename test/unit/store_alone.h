/*
 * A context that is alone, with a cache and a store: for tests of what the calls of a store do with their arguments.
 */
#ifndef KVCL_TEST_STORE_ALONE_H
#define KVCL_TEST_STORE_ALONE_H

#include "test_base.h"

#include <kvcl/kvcl.h>

typedef struct store_alone {
    kvcl_context_h ctx;
    kvcl_cache_h   cache;
    kvcl_store_h   store;
} store_alone_t;

/* The cache is the store's pool, where params give the store no memory of its own. */
static inline store_alone_t open_alone(const kvcl_layout_t *layout, kvcl_store_params_t params)
{
    kvcl_init_params_t init = KVCL_INIT_PARAMS_INIT;
    store_alone_t      alone;
    kvcl_comm_h        world;

    init.boot = "self";
    ck_assert_int_eq(kvcl_init(&init, &alone.ctx), KVCL_OK);
    ck_assert_int_eq(kvcl_cache_create(alone.ctx, "alone", layout, NULL, &alone.cache), KVCL_OK);
    ck_assert_int_eq(kvcl_comm_world(alone.ctx, &world), KVCL_OK);
    if (params.dram_bytes == 0) {
        params.cache = alone.cache;
    }
    ck_assert_int_eq(kvcl_store_open(world, &params, &alone.store), KVCL_OK);
    return alone;
}

static inline void close_alone(const store_alone_t *alone)
{
    kvcl_store_close(alone->store);
    kvcl_cache_destroy(alone->cache);
    kvcl_finalize(alone->ctx);
}

static inline void wait_for(kvcl_req_h req)
{
    ck_assert_int_eq(kvcl_req_wait(req, KVCL_WAIT_DEFAULT), KVCL_OK);
}

#endif
