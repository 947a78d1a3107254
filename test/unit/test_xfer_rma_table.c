/*
 * Native transfers that are served instead: the built-in table, the user's rows before it, and refusals.
 */
#include "config.h"

#include "base/error.h"
#include "native/rma_table.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static kvcl_rma_table_t parsed(const char *text)
{
    kvcl_rma_table_t table;

    ck_assert_int_eq(kvcl_rma_table_parse(text, &table), KVCL_OK);
    return table;
}

START_TEST(many_small_runs_by_cma_are_served)
{
    kvcl_rma_table_t table = parsed(NULL);

    ck_assert(!kvcl_rma_table_native(&table, "cma", 64, 100000));
    ck_assert(!kvcl_rma_table_native(&table, "cma", 4095, 16));
    ck_assert(kvcl_rma_table_native(&table, "cma", 4095, 15));
    ck_assert(kvcl_rma_table_native(&table, "cma", 4096, 16));
    ck_assert(kvcl_rma_table_native(&table, "cma", 64, 1));
    ck_assert(kvcl_rma_table_native(&table, "rdma", 64, 100000));
    ck_assert(kvcl_rma_table_native(&table, "cuda_ipc", 64, 100000));
    ck_assert(kvcl_rma_table_native(&table, "loop", 64, 100000));
}
END_TEST

START_TEST(rows_of_the_user_come_first)
{
    kvcl_rma_table_t table = parsed("cma:1K-8K:native,any:2K-inf:served:10,rdma:0-4K:served");

    ck_assert(kvcl_rma_table_native(&table, "cma", 1024, 1000));
    ck_assert(kvcl_rma_table_native(&table, "cma", 8191, 1000));
    ck_assert(!kvcl_rma_table_native(&table, "cma", 1023, 1000)); /* the built-in row */
    ck_assert(!kvcl_rma_table_native(&table, "cma", 1 << 20, 10));
    ck_assert(kvcl_rma_table_native(&table, "cma", 1 << 20, 9));
    ck_assert(!kvcl_rma_table_native(&table, "rdma", 100, 1));
    ck_assert(!kvcl_rma_table_native(&table, "loop", UINT64_MAX - 1, 10));
    ck_assert(kvcl_rma_table_native(&table, "loop", 2047, 10));
    table = parsed("any:0-inf:native");
    ck_assert(kvcl_rma_table_native(&table, "cma", 64, 100000));
}
END_TEST

START_TEST(a_table_prints_itself)
{
    kvcl_rma_table_t table = parsed("rdma:512-4K:served:2,any:1M-inf:native"), again;
    char             text[KVCL_RMA_TABLE_TEXT], twice[KVCL_RMA_TABLE_TEXT], cut[9];

    kvcl_rma_table_format(&table, text, sizeof(text));
    ck_assert(strstr(text, "rdma:512-4K:served:2,any:1M-inf:native:0,cma:0-4K:served:16") == text);
    again = parsed(text);
    kvcl_rma_table_format(&again, twice, sizeof(twice));
    ck_assert(strncmp(twice, text, strlen(text)) == 0);
    kvcl_rma_table_format(&table, cut, sizeof(cut));
    ck_assert_str_eq(cut, "rdma:512");
}
END_TEST

START_TEST(what_is_no_row_is_refused)
{
    static const char *const bad[] = {
        "rubble", ":", "cma", "cma:0-4K", "cma:0-4K:", "cma:0-4K:fast", "shm:0-4K:served", "cma:4K:served",
        "cma:4K-4K:served", "cma:8K-4K:served", "cma:-4K:served", "cma:0-:served", "cma:0-4K:served:",
        "cma:0-4K:served:x", "cma:0-4K:served:-1", "cma:0-4K:served:1:2", "cma:0-4K:served,", ",cma:0-4K:served",
        "cma:0-4K:served,,cma:0-8K:served"};
    kvcl_rma_table_t table;
    char             text[2048] = "";
    size_t           i;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        ck_assert_msg(kvcl_rma_table_parse(bad[i], &table) == KVCL_ERR_INVALID_PARAM, "%s", bad[i]);
        ck_assert(strstr(kvcl_last_error(), "table of native transfers") != NULL);
    }
    memset(text, 'x', 200);
    ck_assert_int_eq(kvcl_rma_table_parse(text, &table), KVCL_ERR_INVALID_PARAM);
    text[0] = '\0';
    for (i = 0; i < KVCL_RMA_ROWS - 2; ++i) {
        strcat(text, (i == 0) ? "any:0-1:native" : ",any:0-1:native");
    }
    ck_assert_int_eq(kvcl_rma_table_parse(text, &table), KVCL_OK);
    strcat(text, ",any:0-1:native");
    ck_assert_int_eq(kvcl_rma_table_parse(text, &table), KVCL_ERR_INVALID_PARAM);
}
END_TEST

int main(void)
{
    Suite   *suite  = suite_create("xfer_rma_table");
    TCase   *tc     = tcase_create("table");
    SRunner *runner = srunner_create(suite);
    int     failed;

    tcase_add_test(tc, many_small_runs_by_cma_are_served);
    tcase_add_test(tc, rows_of_the_user_come_first);
    tcase_add_test(tc, a_table_prints_itself);
    tcase_add_test(tc, what_is_no_row_is_refused);
    suite_add_tcase(suite, tc);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
