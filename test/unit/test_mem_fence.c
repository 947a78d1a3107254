/*
 * Memory that is revoked while a transport cannot make peers' keys invalid (the fault keep_keys of the loop), and
 * caches that cannot be destroyed: what the calls report, and that they can be repeated.
 */
#include "config.h"
#include "test_base.h"
#include "base/error.h"
#include "cache/cache.h"
#include "core/comm.h"
#include "core/context.h"
#include "loop/xport_loop.h"
#include <kvcl/kvcl.h>

#include <pthread.h>
#include <string.h>

enum { BYTES = 8192 };

static const kvcl_loop_faults_t keep_keys = {.keep_keys = true};
static const kvcl_layout_t      layout    = KVCL_LAYOUT_BYTES(2, 64);

static kvcl_context_h ctx;
static kvcl_comm_h    world;

static void open_context(void)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;

    params.boot = "self";
    params.path = "loop";
    ck_assert_int_eq(kvcl_init(&params, &ctx), KVCL_OK);
    ck_assert_int_eq(kvcl_comm_world(ctx, &world), KVCL_OK);
}

static void close_context(void)
{
    kvcl_loop_set_faults(NULL);
    kvcl_finalize(ctx);
}

static bool has_said(const char *text)
{
    if (strstr(kvcl_last_error(), text) == NULL) {
        printf("the error is \"%s\"\n", kvcl_last_error());
        return false;
    }
    return true;
}

/* What a rank that imported the memory gets. */
static kvcl_status_t get_from(kvcl_rmem_h rmem)
{
    char          buf[64];
    kvcl_req_h    req    = NULL;
    kvcl_status_t status = kvcl_get_bytes(rmem, 0, buf, sizeof(buf), NULL, &req);

    return (status < KVCL_OK) ? status : kvcl_req_wait(req, 60 * KVCL_NS_PER_SEC);
}

static kvcl_rmem_h import(kvcl_mem_h mem)
{
    char        desc[1024];
    size_t      len = sizeof(desc);
    kvcl_rmem_h rmem;

    ck_assert_int_eq(kvcl_mem_export(mem, KVCL_READ_WRITE, desc, &len), KVCL_OK);
    ck_assert_int_eq(kvcl_rmem_import(world, 0, desc, len, &rmem), KVCL_OK);
    return rmem;
}

START_TEST(a_revoke_that_leaves_keys_fails_and_is_repeated)
{
    kvcl_rmem_h rmem;
    kvcl_mem_h  mem;

    ck_assert_int_eq(kvcl_mem_alloc(ctx, BYTES, NULL, &mem), KVCL_OK);
    rmem = import(mem);
    ck_assert_int_eq(get_from(rmem), KVCL_OK);
    kvcl_loop_set_faults(&keep_keys);
    ck_assert_int_eq(kvcl_mem_revoke(mem), KVCL_ERR_NO_MEMORY);
    ck_assert(has_said("kvcl_mem_revoke: the fault keep_keys of the loop; then call kvcl_mem_revoke again"));
    ck_assert_int_eq(get_from(rmem), KVCL_ERR_ACCESS);
    ck_assert_int_eq(kvcl_mem_revoke(mem), KVCL_ERR_NO_MEMORY);
    kvcl_loop_set_faults(NULL);
    ck_assert_int_eq(kvcl_mem_revoke(mem), KVCL_OK);
    ck_assert_int_eq(get_from(rmem), KVCL_ERR_ACCESS);
    kvcl_rmem_free(rmem);
    rmem = import(mem);
    ck_assert_int_eq(get_from(rmem), KVCL_OK);
    kvcl_rmem_free(rmem);
    kvcl_mem_free(mem);
}
END_TEST

START_TEST(memory_that_peers_may_reach_is_not_released)
{
    static char buf[BYTES];
    kvcl_mem_h  allocated, registered;
    char        *addr;

    ck_assert_int_eq(kvcl_mem_alloc(ctx, BYTES, NULL, &allocated), KVCL_OK);
    ck_assert_int_eq(kvcl_mem_register(ctx, buf, BYTES, KVCL_MEM_HOST, NULL, &registered), KVCL_OK);
    addr = kvcl_mem_addr(allocated);
    kvcl_loop_set_faults(&keep_keys);
    kvcl_mem_free(allocated);
    ck_assert(has_said("memory of 8192 bytes at ") && has_said("must not be freed: the fault keep_keys"));
    addr[BYTES - 1] = 1; /* it is there */
    kvcl_mem_free(registered);
    ck_assert(has_said("must not be freed: the fault keep_keys"));
}
END_TEST

/* By the rank itself, as one of its peers. */
static kvcl_status_t get_block(kvcl_cache_h into, const char *from)
{
    static const uint32_t ids[]  = {0};
    const kvcl_sel_t      sel    = {.blocks = ids, .n_blocks = 1};
    kvcl_xfer_params_t    params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h            req    = NULL;
    kvcl_status_t         status;

    params.remote_cache = from;
    status              = kvcl_get(world, 0, into, &sel, &sel, &params, &req);
    return (status < KVCL_OK) ? status : kvcl_req_wait(req, 60 * KVCL_NS_PER_SEC);
}

static void ignore(kvcl_region_user_t *user)
{
    (void)user;
}

/* _i 0: a key stays. 1: a peer reads the cache, and the transfer does not end. */
START_TEST(a_cache_that_is_not_destroyed_is_revoked)
{
    kvcl_cache_h       cache, here;
    kvcl_region_user_t reader = {.revoked = ignore};

    ck_assert_int_eq(kvcl_cache_create(ctx, "kv", &layout, NULL, &cache), KVCL_OK);
    ck_assert_int_eq(kvcl_cache_create(ctx, "here", &layout, NULL, &here), KVCL_OK);
    ck_assert_int_eq(get_block(here, "kv"), KVCL_OK);
    kvcl_lock(ctx);
    kvcl_list_init(&reader.link);
    reader.peer = world->peers[0];
    if (_i == 0) {
        kvcl_loop_set_faults(&keep_keys);
    } else {
        kvcl_list_add_tail(&cache->users, &reader.link);
        cache->serves = 1;
    }
    kvcl_unlock(ctx);
    kvcl_cache_destroy(cache);
    ck_assert(has_said("cache \"kv\" is not destroyed") && has_said("must not be freed"));
    ck_assert(has_said((_i == 0) ? "the fault keep_keys of the loop; then call kvcl_cache_destroy again"
                                 : "a peer still reads it"));
    ck_assert(cache->regions[0]->revoked && (cache->regions[0]->xmem[0] == NULL));
    ck_assert_int_eq(get_block(here, "kv"), KVCL_ERR_NOT_REGISTERED);
    kvcl_lock(ctx);
    kvcl_loop_set_faults(NULL);
    kvcl_list_del(&reader.link);
    cache->serves = 0;
    kvcl_unlock(ctx);
    kvcl_cache_destroy(cache);
    ck_assert_int_eq(kvcl_cache_create(ctx, "kv", &layout, NULL, &cache), KVCL_OK);
    ck_assert_int_eq(get_block(here, "kv"), KVCL_OK);
    kvcl_cache_destroy(cache);
    kvcl_cache_destroy(here);
}
END_TEST

typedef struct user {
    kvcl_mem_h mem;
    pthread_t  thread;
    bool       exports;
} user_t;

enum { USES = 2000 };

static void *use(void *arg)
{
    user_t   *user = arg;
    char     desc[1024];
    unsigned i;

    for (i = 0; i < USES; ++i) {
        size_t len = sizeof(desc);

        ck_assert_int_eq(user->exports ? kvcl_mem_export(user->mem, KVCL_READ, desc, &len) : kvcl_mem_revoke(user->mem),
                         KVCL_OK);
    }
    return NULL;
}

/* An export ends with a description, whatever other threads do; the next revocation takes it back. */
START_TEST(exports_and_revocations_at_once)
{
    user_t      users[4];
    kvcl_mem_h  mem;
    kvcl_rmem_h rmem;
    unsigned    i;

    ck_assert_int_eq(kvcl_mem_alloc(ctx, BYTES, NULL, &mem), KVCL_OK);
    for (i = 0; i < 4; ++i) {
        users[i] = (user_t){.mem = mem, .exports = (i < 2)};
        ck_assert_int_eq(pthread_create(&users[i].thread, NULL, use, &users[i]), 0);
    }
    for (i = 0; i < 4; ++i) {
        pthread_join(users[i].thread, NULL);
    }
    rmem = import(mem);
    ck_assert_int_eq(get_from(rmem), KVCL_OK);
    ck_assert_int_eq(kvcl_mem_revoke(mem), KVCL_OK);
    ck_assert_int_eq(get_from(rmem), KVCL_ERR_ACCESS);
    kvcl_rmem_free(rmem);
    kvcl_mem_free(mem);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mem");
    TCase *tc    = tcase_create("fence");

    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, open_context, close_context);
    tcase_add_test(tc, a_revoke_that_leaves_keys_fails_and_is_repeated);
    tcase_add_test(tc, memory_that_peers_may_reach_is_not_released);
    tcase_add_loop_test(tc, a_cache_that_is_not_destroyed_is_revoked, 0, 2);
    tcase_add_test(tc, exports_and_revocations_at_once);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
