/*
 * What kvcl_get_vec, kvcl_put_vec, notifications and kvcl_alltoallv refuse (errors.h): a sentence about a piece has its
 * index.
 */
#include "test/api/errors.h"

START_TEST(remote_pieces_are_checked)
{
    const size_t many = (size_t)KVCL_VEC_MAX + 1;
    char         *own = kvcl_mem_addr(mem);
    kvcl_vec_t   v[3] = {{0, plain, 8}, {16, plain + 16, 8}, {32, plain + 32, 8}};
    kvcl_vec_t   bad[3], all[2] = {{0, own, 8}, {8, own + FAR - 8, 8}};

    REFUSED(INVALID_PARAM, "kvcl_get_vec", kvcl_get_vec(NULL, v, 3, NULL, NULL, &out.req));
    REFUSED(INVALID_PARAM, "NULL", kvcl_get_vec(rmem, NULL, 3, NULL, NULL, &out.req));
    REFUSED(INVALID_PARAM, "KVCL_VEC_MAX", kvcl_put_vec(rmem, v, many, NULL, NULL, &out.req));
    REFUSED(INVALID_PARAM, "0x40", kvcl_put_vec(rmem, v, 3, NULL, &flagged, &out.req));
    REFUSED(ACCESS, "right to read", kvcl_get_vec(writable, v, 3, NULL, NULL, &out.req));
    REFUSED(ACCESS, "right to write", kvcl_put_vec(readable, v, 3, NULL, NULL, &out.req));
    REFUSED(INVALID_PARAM, "mem", kvcl_get_vec(rmem, v, 3, (kvcl_mem_h)rmem, NULL, &out.req));
    memcpy(bad, v, sizeof(v));
    bad[1].len = 0;
    REFUSED(INVALID_PARAM, "piece 1 has length 0", kvcl_get_vec(rmem, bad, 3, NULL, NULL, &out.req));
    REFUSED(INVALID_PARAM, "piece 1 has length 0", kvcl_put_vec(rmem, bad, 3, NULL, NULL, &out.req));
    memcpy(bad, v, sizeof(v));
    bad[2].addr = NULL;
    REFUSED(INVALID_PARAM, "piece 2: addr is NULL", kvcl_put_vec(rmem, bad, 3, NULL, NULL, &out.req));
    memcpy(bad, v, sizeof(v));
    bad[2].offset = FAR - 7;
    REFUSED(OUT_OF_RANGE, "piece 2: bytes 4089 + 8 of a region of 4096",
            kvcl_get_vec(rmem, bad, 3, NULL, NULL, &out.req));
    bad[2].offset = UINT64_MAX;
    REFUSED(OUT_OF_RANGE, "piece 2: bytes 18446744073709551615", kvcl_put_vec(rmem, bad, 3, NULL, NULL, &out.req));
    memcpy(bad, v, sizeof(v));
    bad[2].addr = plain + 7; /* in the first piece */
    REFUSED(INVALID_PARAM, "pieces 0 and 2 overlap", kvcl_get_vec(rmem, bad, 3, NULL, NULL, &out.req));
    bad[2].addr = plain + 16; /* of the second */
    REFUSED(INVALID_PARAM, "pieces 1 and 2 overlap", kvcl_get_vec(rmem, bad, 3, NULL, NULL, &out.req));
    bad[2].addr = (void *)(UINTPTR_MAX - 3);
    REFUSED(INVALID_PARAM, "wrap around", kvcl_get_vec(rmem, bad, 3, NULL, NULL, &out.req));
    REFUSED(OUT_OF_RANGE, "piece 0", kvcl_get_vec(rmem, v, 3, mem, NULL, &out.req)); /* not in mem */
    all[1].len = 9;
    REFUSED(OUT_OF_RANGE, "piece 1: its 9 bytes", kvcl_put_vec(rmem, all, 2, mem, NULL, &out.req));
    all[1].len = 8;
    TAKEN(kvcl_put_vec(rmem, all, 2, mem, NULL, &out.req));
    ck_assert_int_eq(final(out.req), KVCL_OK);
    bad[2].addr = plain + 16; /* a put reads them: they may overlap */
    TAKEN(kvcl_put_vec(rmem, bad, 3, NULL, NULL, &out.req));
    ck_assert_int_eq(final(out.req), KVCL_OK);
}
END_TEST

START_TEST(notifications_are_checked)
{
    kvcl_recv_info_t   info = KVCL_RECV_INFO_INIT;
    kvcl_xfer_params_t p    = KVCL_XFER_PARAMS_INIT;

    REFUSED(INVALID_PARAM, "kvcl_notify", kvcl_notify(NULL, 0, plain, 8, NULL, &out.req));
    REFUSED(UNKNOWN_RANK, "rank 1", kvcl_notify(world, 1, plain, 8, NULL, &out.req));
    REFUSED(INVALID_PARAM, "at NULL", kvcl_notify(world, 0, NULL, 8, NULL, &out.req));
    REFUSED(INVALID_PARAM, "KVCL_NOTIFY_MAX", kvcl_notify(world, 0, plain, KVCL_NOTIFY_MAX + 1, NULL, &out.req));
    REFUSED(INVALID_PARAM, "kvcl_notify_recv", kvcl_notify_recv(NULL, out.bytes, 8, NULL, 0));
    REFUSED(INVALID_PARAM, "buf is NULL", kvcl_notify_recv(world, NULL, 8, NULL, 0));
    REFUSED(INVALID_PARAM, "KVCL_WAIT_FOREVER", kvcl_notify_recv(world, out.bytes, 8, NULL, KVCL_WAIT_FOREVER));
    REFUSED(WAIT_TIMEOUT, "a notification", kvcl_notify_recv(world, out.bytes, 8, NULL, 0));
    info.size = 4;
    REFUSED(INVALID_PARAM, "kvcl_recv_info_t", kvcl_notify_recv(world, out.bytes, 8, &info, 0));
    info.size = sizeof(info);
    p.notify = "too long for 7";
    p.notify_bytes = 14;
    TAKEN(kvcl_get_bytes(rmem, 0, out.bytes + 64, 8, &p, &out.req));
    ck_assert_int_eq(final(out.req), KVCL_OK);
    ck_assert_int_eq(kvcl_notify_recv(world, out.bytes, 7, &info, SECOND), KVCL_ERR_TRUNCATED);
    ck_assert_uint_eq(info.bytes, 14); /* and it stays */
    TAKEN(kvcl_notify_recv(world, out.bytes, 14, &info, SECOND));
    ck_assert_mem_eq(out.bytes, "too long for 7", 14);
    ck_assert_int_eq(info.source, 0);
}
END_TEST

START_TEST(parts_of_several_lengths_are_checked)
{
    static const uint64_t parts[] = {8, 4, UINT64_MAX - 3};

    REFUSED(INVALID_PARAM, "in and out overlap",
            kvcl_alltoallv(world, out.bytes, parts, NULL, out.bytes, parts, NULL, NULL, &out.req));
    REFUSED(INVALID_PARAM, "out_lens is NULL",
            kvcl_alltoallv(world, out.bytes, parts, NULL, out.bytes + 8, NULL, NULL, NULL, &out.req));
    REFUSED(INVALID_PARAM, "in is NULL",
            kvcl_alltoallv(world, NULL, parts, NULL, out.bytes + 8, parts, NULL, NULL, &out.req));
    REFUSED(INVALID_PARAM, "this rank gives itself 8 bytes and takes 4",
            kvcl_alltoallv(world, out.bytes, parts, NULL, out.bytes + 8, parts + 1, NULL, NULL, &out.req));
    REFUSED(INVALID_PARAM, "ends behind 2^64",
            kvcl_alltoallv(world, out.bytes, parts, parts + 2, out.bytes + 8, parts, NULL, NULL, &out.req));
}
END_TEST

int main(void)
{
    Suite   *suite  = suite_create("errors_vec");
    TCase   *tc     = tcase_create("world");
    SRunner *runner = srunner_create(suite);
    int      failed;

    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, open_world, close_world);
    tcase_add_test(tc, remote_pieces_are_checked);
    tcase_add_test(tc, notifications_are_checked);
    tcase_add_test(tc, parts_of_several_lengths_are_checked);
    suite_add_tcase(suite, tc);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
