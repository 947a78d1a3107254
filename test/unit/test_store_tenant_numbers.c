/*
 * Handles of a store for one tenant: whose number they accept, which secrets, and how they end (kvcl_store_tenant).
 */
#include "config.h"
#include "tenant_frame.h"

#include <sys/stat.h>
#include <unistd.h>

/* ---- numbers ---- */

START_TEST(numbers_of_others_are_refused)
{
    kvcl_xfer_params_t p = KVCL_XFER_PARAMS_INIT;
    uint64_t           removed, moved;
    uint8_t            one = 1;

    put_all(a);
    put_all(b);
    p.tenant = B;
    FAILS(ACCESS, "tenant is 8, but this is the handle of tenant 7",
          done(kvcl_store_put(a, keys, 1, cache, ids, &p, &req)));
    FAILS(ACCESS, "kvcl_store_upsert", done(kvcl_store_upsert(a, keys, 1, cache, ids, &p, &req)));
    FAILS(ACCESS, "kvcl_store_put_value", done(kvcl_store_put_value(a, keys, &one, 1, &p, &req)));
    FAILS(ACCESS, "kvcl_store_quota", kvcl_store_quota(a, -1, B, BLOCK, NULL));
    FAILS(ACCESS, "kvcl_store_clear", kvcl_store_clear(a, B, &removed, NULL));
    FAILS(ACCESS, "use the store's own handle", kvcl_store_drain(a, &moved, NULL));
    FAILS(ACCESS, "use the store's own handle", kvcl_store_exclude(a, 0, 1));
    p.tenant = A;
    OK(done(kvcl_store_put(a, keys, 1, cache, ids, &p, &req)));
    OK(kvcl_store_quota(a, -1, A, 10 * BLOCK, NULL));
    ck_assert_int_eq(done(kvcl_store_upsert(a, keys, KEYS, cache, ids, NULL, &req)), KVCL_ERR_NO_SPACE);
    OK(kvcl_store_quota(a, -1, 0, 0, NULL)); /* 0: its own */
    OK(done(kvcl_store_upsert(a, keys, KEYS, cache, ids, NULL, &req)));
    OK(kvcl_store_clear(a, 0, &removed, NULL));
    ck_assert_uint_eq(removed, KEYS);
    ck_assert_uint_eq(matched(a), 0);
    ck_assert_uint_eq(matched(b), KEYS);
    OK(kvcl_store_clear(store, B, &removed, NULL));
    ck_assert_uint_eq(removed, KEYS);
}
END_TEST

/* ---- handles ---- */

START_TEST(bad_secrets_are_refused)
{
    kvcl_store_h none = NULL;
    char         big[70000] = {0};

    FAILS(INVALID_PARAM, "secret has 15 bytes", kvcl_store_tenant(store, 9, big, 15, &none));
    FAILS(INVALID_PARAM, "secret has 70000 bytes", kvcl_store_tenant(store, 9, big, sizeof(big), &none));
    FAILS(INVALID_PARAM, "secret is NULL, with 32 bytes", kvcl_store_tenant(store, 9, NULL, 32, &none));
    FAILS(INVALID_PARAM, "KVCL_STORE_TENANT_KEY", kvcl_store_tenant(store, 9, NULL, 0, &none));
    FAILS(INVALID_PARAM, "tenant is 0", kvcl_store_tenant(store, 0, big, 32, &none));
    FAILS(INVALID_PARAM, "tenant_p is NULL", kvcl_store_tenant(store, 9, big, 32, NULL));
    FAILS(ACCESS, "a tenant's handle", kvcl_store_tenant(a, 9, big, 32, &none));
    ck_assert_ptr_null(none);
}
END_TEST

START_TEST(one_secret_opens_one_set_of_keys)
{
    kvcl_store_h again;

    put_all(a);
    OK(kvcl_store_tenant(store, A, secret_a, sizeof(secret_a), &again));
    ck_assert_uint_eq(got(again), KEYS);
    kvcl_store_close(again);
    FAILS(DEAD_HANDLE, "freed already", kvcl_store_match(again, keys, 1, &(size_t){0}, NULL));
    ck_assert_uint_eq(got(a), KEYS);
}
END_TEST

/* A request that was posted through a handle goes on when the handle is closed. */
START_TEST(requests_outlive_the_handle)
{
    kvcl_store_event_t event;
    size_t             n = 99;
    kvcl_req_h         waits;

    put_all(b);
    OK(kvcl_store_events_post(a, 0, KEYS, UINT64_C(60000000000), &event, sizeof(event), 1, &n, NULL, &waits));
    put_all(a);
    kvcl_store_close(a);
    OK(kvcl_req_wait(waits, KVCL_WAIT_DEFAULT));
    ck_assert_uint_eq(n, 1);
    ck_assert(is_key(&event.key));
    OK(kvcl_store_tenant(store, A, secret_a, sizeof(secret_a), &a));
}
END_TEST

START_TEST(closing_the_store_ends_its_tenants)
{
    kvcl_store_h        second, tenant;
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;

    OK(kvcl_store_open(world, &params, &second));
    OK(kvcl_store_tenant(second, A, secret_a, sizeof(secret_a), &tenant));
    kvcl_store_close(second);
    FAILS(DEAD_HANDLE, "tenant's handle of a store was freed already",
          kvcl_store_match(tenant, keys, 1, &(size_t){0}, NULL));
    kvcl_store_close(tenant); /* logged, and nothing else */
    FAILS(DEAD_HANDLE, "freed already", kvcl_store_tenant(second, A, secret_a, sizeof(secret_a), &tenant));
}
END_TEST

/* A file has the same meaning as its bytes; one that others can read is refused. */
START_TEST(a_file_may_have_the_secret)
{
    char                path[] = "/tmp/kvcl_tenant.XXXXXX";
    static const char   bytes[32] = "32 bytes of a tenant's own file";
    kvcl_init_params_t  init   = KVCL_INIT_PARAMS_INIT;
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    int                 fd     = mkstemp(path);
    kvcl_context_h      second;
    kvcl_comm_h         comm;
    kvcl_store_h        its, by_file, by_bytes;
    uint8_t             value = 9, back = 0;

    ck_assert_int_eq(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
    close(fd);
    setenv("KVCL_STORE_TENANT_KEY", path, 1);
    init.boot = "self";
    OK(kvcl_init(&init, &second));
    OK(kvcl_comm_world(second, &comm));
    params.dram_bytes  = 64 * BLOCK;
    params.block_bytes = BLOCK;
    OK(kvcl_store_open(comm, &params, &its));
    OK(kvcl_store_tenant(its, A, NULL, 0, &by_file));
    OK(kvcl_store_tenant(its, A, bytes, sizeof(bytes), &by_bytes));
    OK(done(kvcl_store_put_value(by_file, keys, &value, 1, NULL, &req)));
    OK(done(kvcl_store_get_value(by_bytes, keys, &back, 1, NULL, &req)));
    ck_assert_uint_eq(back, 9);
    ck_assert_int_eq(chmod(path, 0644), 0);
    FAILS(ACCESS, "chmod 600", kvcl_store_tenant(its, A, NULL, 0, &by_file));
    unlink(path);
    FAILS(NOT_FOUND, path, kvcl_store_tenant(its, A, NULL, 0, &by_file));
    kvcl_store_close(its); /* and with it the tenants */
    kvcl_finalize(second);
    unsetenv("KVCL_STORE_TENANT_KEY");
}
END_TEST

int main(void)
{
    Suite   *suite  = suite_create("tenant_numbers");
    TCase   *tcase  = tcase_create("all");
    SRunner *runner = srunner_create(suite);
    int     failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, numbers_of_others_are_refused);
    tcase_add_test(tcase, bad_secrets_are_refused);
    tcase_add_test(tcase, one_secret_opens_one_set_of_keys);
    tcase_add_test(tcase, requests_outlive_the_handle);
    tcase_add_test(tcase, closing_the_store_ends_its_tenants);
    tcase_add_test(tcase, a_file_may_have_the_secret);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? 0 : 1;
}
