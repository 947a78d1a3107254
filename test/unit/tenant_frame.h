/*
 * A store of one rank with a pool and a cache, three handles of tenants, and keys of a chain with blocks for them; for
 * the tests of tenants' handles.
 */
#ifndef KVCL_TEST_TENANT_FRAME_H
#define KVCL_TEST_TENANT_FRAME_H

#include <kvcl/kvcl.h>

#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4096, KEYS = 100, POOL = 1024, A = 7, B = 8 };

static const char secret_a[] = "the first tenant's secret", secret_b[] = "the other tenant's secret";

static kvcl_context_h ctx;
static kvcl_comm_h    world;
static kvcl_cache_h   cache, own;
static kvcl_store_h   store, a, b, other; /* other: A's number, B's secret */
static kvcl_key_t     keys[KEYS];
static uint32_t       ids[KEYS];
static kvcl_req_h     req;

#define OK(_call)     ck_assert_msg((_call) == KVCL_OK, "%s: %s", #_call, kvcl_last_error())
#define FAILS(_status, _word, _call)                                                                                   \
    do {                                                                                                               \
        ck_assert_int_eq((_call), KVCL_ERR_##_status);                                                                 \
        ck_assert_msg(strstr(kvcl_last_error(), (_word)) != NULL, "\"%s\" lacks \"%s\"", kvcl_last_error(), (_word));  \
    } while (0)

static inline kvcl_status_t done(kvcl_status_t posted)
{
    return (posted == KVCL_OK) ? kvcl_req_wait(req, KVCL_WAIT_DEFAULT) : posted;
}

static inline kvcl_cache_h new_cache(const char *name, uint32_t blocks)
{
    const kvcl_layout_t layout = KVCL_LAYOUT_BYTES(blocks, BLOCK);
    kvcl_cache_h        made;

    OK(kvcl_cache_create(ctx, name, &layout, NULL, &made));
    return made;
}

static inline void fill_block(kvcl_cache_h to, uint32_t id, uint8_t byte)
{
    uint8_t buf[BLOCK];

    memset(buf, byte, sizeof(buf));
    OK(kvcl_cache_write_block(to, id, buf, sizeof(buf)));
}

static inline uint8_t first_byte(kvcl_cache_h of, uint32_t id)
{
    uint8_t buf[BLOCK];

    OK(kvcl_cache_read_block(of, id, buf, sizeof(buf)));
    return buf[0];
}

static inline void setup(void)
{
    kvcl_init_params_t  init   = KVCL_INIT_PARAMS_INIT;
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    uint32_t            tokens[KEYS * 4], i;
    kvcl_key_t          root;
    size_t              n;

    init.boot = "self";
    OK(kvcl_init(&init, &ctx));
    OK(kvcl_comm_world(ctx, &world));
    cache              = new_cache("tenants", 2 * KEYS);
    own                = new_cache("own", 8);
    params.cache       = own;
    params.dram_bytes  = POOL * BLOCK;
    params.block_bytes = BLOCK;
    OK(kvcl_store_open(world, &params, &store));
    OK(kvcl_store_tenant(store, A, secret_a, sizeof(secret_a), &a));
    OK(kvcl_store_tenant(store, B, secret_b, sizeof(secret_b), &b));
    OK(kvcl_store_tenant(store, A, secret_b, sizeof(secret_b), &other));
    kvcl_key_root(NULL, 0, "tenants", &root);
    memset(tokens, 3, sizeof(tokens));
    OK(kvcl_key_chain(&root, 0, tokens, KEYS * 4, 4, keys, KEYS, &n));
    for (i = 0; i < KEYS; ++i) {
        ids[i] = i;
        fill_block(cache, i, (uint8_t)(i + 1));
    }
}

static inline void teardown(void)
{
    kvcl_store_close(a);
    kvcl_store_close(b);
    kvcl_store_close(other);
    kvcl_store_close(store);
    kvcl_cache_destroy(cache);
    kvcl_cache_destroy(own);
    kvcl_finalize(ctx);
}

/* ---- what a handle sees ---- */

static inline size_t matched(kvcl_store_h by)
{
    size_t hit = 999, all = 999, posted = 999;

    OK(kvcl_store_match(by, keys, KEYS, &hit, NULL));
    OK(kvcl_store_match_all(by, NULL, keys, KEYS, &all, NULL));
    OK(done(kvcl_store_match_post(by, keys, KEYS, &posted, NULL, &req)));
    ck_assert_uint_eq(hit, all);
    ck_assert_uint_eq(hit, posted);
    return hit;
}

static inline size_t existing(kvcl_store_h by)
{
    uint8_t present[KEYS], posted[KEYS];
    size_t  n = 0, i;

    OK(kvcl_store_exists(by, keys, KEYS, present, NULL));
    OK(done(kvcl_store_exists_post(by, keys, KEYS, posted, NULL, &req)));
    for (i = 0; i < KEYS; ++i) {
        ck_assert_uint_eq(present[i], posted[i]);
        n += present[i];
    }
    return n;
}

/* Gets all keys, one at a time and together; returns how many arrive, with the right bytes. */
static inline size_t got(kvcl_store_h by)
{
    uint32_t      to[KEYS], i, one = KEYS;
    kvcl_status_t status[KEYS];
    size_t        n = 0, single = 0;

    for (i = 0; i < KEYS; ++i) {
        to[i] = KEYS + i;
        fill_block(cache, KEYS + i, 0);
        if (done(kvcl_store_get(by, &keys[i], 1, cache, &one, NULL, NULL, &req)) == KVCL_OK) {
            ck_assert_uint_eq(first_byte(cache, one), i + 1);
            ++single;
        }
    }
    (void)!done(kvcl_store_get(by, keys, KEYS, cache, to, status, NULL, &req));
    for (i = 0; i < KEYS; ++i) {
        if (status[i] == KVCL_OK) {
            ck_assert_uint_eq(first_byte(cache, to[i]), i + 1);
            ++n;
        }
    }
    ck_assert_uint_eq(n, single);
    return n;
}

static inline bool is_key(const kvcl_key_t *key)
{
    size_t i;

    for (i = 0; (i < KEYS) && !kvcl_key_equal(key, &keys[i]); ++i) {
    }
    return i < KEYS;
}

static inline void put_all(kvcl_store_h by)
{
    OK(done(kvcl_store_put(by, keys, KEYS, cache, ids, NULL, &req)));
}

#endif
