/*
 * The table of algorithms: the default's choices, overrides, and the sentence for each mistake.
 */
#include "config.h"

#include "collectives/select.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const char *choose(const char *text, kvcl_coll_kind_t kind, kvcl_coll_path_t path, uint32_t size, uint64_t len)
{
    kvcl_coll_shape_t      shape = {.size = size, .path = path, .len = len};
    const kvcl_coll_alg_t *alg;
    kvcl_coll_table_t      table;

    ck_assert_msg(kvcl_coll_table_parse(text, &table) == KVCL_OK, "%s", kvcl_last_error());
    alg = kvcl_coll_select(&table, kind, &shape);
    ck_assert_ptr_nonnull(alg);
    ck_assert_int_eq(alg->kind, kind);
    return alg->name;
}

START_TEST(the_default_table_fits_every_shape)
{
    static const uint64_t lens[] = {0, 1, 32767, 32768, 262143, 262144, UINT64_MAX};
    unsigned              kind, path, size, i;

    for (kind = 0; kind < KVCL_COLL_COUNT; ++kind) {
        for (path = 0; path < 2; ++path) {
            for (size = 1; size < 40; ++size) {
                for (i = 0; i < sizeof(lens) / sizeof(lens[0]); ++i) {
                    choose(NULL, (kvcl_coll_kind_t)kind, (kvcl_coll_path_t)path, size, lens[i]);
                }
            }
        }
    }
}
END_TEST

START_TEST(the_defaults_are_as_documented)
{
    ck_assert_str_eq(choose("", KVCL_COLL_BCAST, KVCL_COLL_PATH_SHM, 4, 1 << 28), "flat");
    ck_assert_str_eq(choose("", KVCL_COLL_BCAST, KVCL_COLL_PATH_SHM, 16, 1), "flat");
    ck_assert_str_eq(choose("", KVCL_COLL_BCAST, KVCL_COLL_PATH_SHM, 17, 1 << 28), "chain");
    ck_assert_str_eq(choose("", KVCL_COLL_BCAST, KVCL_COLL_PATH_NET, 4, (256 << 10) - 1), "binomial");
    ck_assert_str_eq(choose("", KVCL_COLL_BCAST, KVCL_COLL_PATH_NET, 4, 256 << 10), "chain");
    ck_assert_str_eq(choose("", KVCL_COLL_BCAST, KVCL_COLL_PATH_STAGE, 4, (8 << 10) - 1), "binomial");
    ck_assert_str_eq(choose("", KVCL_COLL_BCAST, KVCL_COLL_PATH_STAGE, 4, 8 << 10), "pieces");
    ck_assert_str_eq(choose("", KVCL_COLL_BCAST, KVCL_COLL_PATH_STAGE, 17, 8 << 20), "chain");
    ck_assert_str_eq(choose("", KVCL_COLL_ALLGATHER, KVCL_COLL_PATH_NET, 4, 8), "bruck");
    ck_assert_str_eq(choose("", KVCL_COLL_ALLGATHER, KVCL_COLL_PATH_NET, 4, 1 << 20), "direct");
    ck_assert_str_eq(choose("", KVCL_COLL_ALLGATHER, KVCL_COLL_PATH_NET, 17, 1 << 20), "ring");
    ck_assert_str_eq(choose("", KVCL_COLL_ALLREDUCE, KVCL_COLL_PATH_NET, 4, 8), "doubling");
    ck_assert_str_eq(choose("", KVCL_COLL_ALLREDUCE, KVCL_COLL_PATH_NET, 16, 1 << 20), "direct");
    ck_assert_str_eq(choose("", KVCL_COLL_ALLREDUCE, KVCL_COLL_PATH_NET, 17, 1 << 20), "ring");
    ck_assert_str_eq(choose("", KVCL_COLL_BARRIER, KVCL_COLL_PATH_NET, 4, 0), "dissemination");
}
END_TEST

START_TEST(own_rows_come_first_and_the_rest_stays)
{
    const char *text = " bcast : net : 1M-inf : flat , bcast:any:0-1K:chain:2-5";

    ck_assert_str_eq(choose(text, KVCL_COLL_BCAST, KVCL_COLL_PATH_NET, 4, 1 << 20), "flat");
    ck_assert_str_eq(choose(text, KVCL_COLL_BCAST, KVCL_COLL_PATH_NET, 4, 1 << 19), "chain");
    ck_assert_str_eq(choose(text, KVCL_COLL_BCAST, KVCL_COLL_PATH_SHM, 4, 1023), "chain");
    ck_assert_str_eq(choose(text, KVCL_COLL_BCAST, KVCL_COLL_PATH_SHM, 5, 1023), "flat");
    ck_assert_str_eq(choose(text, KVCL_COLL_BCAST, KVCL_COLL_PATH_SHM, 4, 1024), "flat");
    ck_assert_str_eq(choose(text, KVCL_COLL_ALLGATHER, KVCL_COLL_PATH_SHM, 4, 8), "bruck");
}
END_TEST

START_TEST(a_printed_table_parses_to_the_same)
{
    char              first[2048], second[2048];
    kvcl_coll_table_t table;

    ck_assert_int_eq(kvcl_coll_table_parse("bcast:shm:1000001-3M:chain:3-9,allgather:net:0-1T:ring", &table), KVCL_OK);
    kvcl_coll_table_format(&table, ",", first, sizeof(first));
    ck_assert_ptr_eq(strstr(first, "bcast:shm:1000001-3M:chain:3-9,allgather:net:0-1T:ring,bcast:shm:0-inf:flat:0-17,"),
                     first);
    ck_assert_ptr_nonnull(strstr(first, kvcl_coll_default_table));
    ck_assert_int_eq(kvcl_coll_table_parse(first, &table), KVCL_OK);
    table.count -= 16; /* the built-in rows, a second time */
    kvcl_coll_table_format(&table, ",", second, sizeof(second));
    ck_assert_str_eq(first, second);
    ck_assert_uint_lt(strlen(kvcl_coll_table_format(&table, "\n", second, 20)), 20); /* cut */
}
END_TEST

static const struct {
    const char *text;
    const char *says;
} mistakes[] = {
    {"bcost:shm:0-inf:flat", "character 1: 'bcost' is not a collective: bcast barrier allgather allreduce "
                              "reduce_scatter alltoall alltoallv gather scatter"},
    {"bcast:shm:0-inf:flat,bcast:ib:0-1:flat", "character 28: 'ib' is not a path: shm net stage any"},
    {"bcast:shm:0-inf:flatt", "character 17: 'flatt' is not an algorithm of bcast: flat binomial chain pieces"},
    {"barrier:shm:0-inf:flat", "'flat' is not an algorithm of barrier: dissemination"},
    {"bcast:shm:0_inf:flat", "character 11: '0_inf' is not a range"},
    {"bcast:shm:9-3:flat", "'9-3' is not a range"},
    {"bcast:shm:3-3:flat", "'3-3' is not a range"},
    {"bcast:shm:-3:flat", "'-3' is not a range"},
    {"bcast:shm:0-x:flat", "'0-x' is not a range"},
    {"bcast:shm:0-inf:flat:4", "character 22: '4' is not a range"},
    {"bcast:shm:0-inf", "character 1: the row has too few fields"},
    {"bcast:shm:0-inf:flat:1-2:3", "too many fields"},
    {"bcast:shm:0-inf:flat,", "character 22: the row has too few fields"},
    {",", "character 1: the row has too few fields"},
    {"bcast:shm:0-inf:flatflatflatflatflatflatflatflatflat", "too long"},
};

START_TEST(mistakes_name_the_place_and_what_is_accepted)
{
    kvcl_coll_table_t table = {.count = 77};

    ck_assert_int_eq(kvcl_coll_table_parse(mistakes[_i].text, &table), KVCL_ERR_INVALID_PARAM);
    ck_assert_msg(strstr(kvcl_last_error(), mistakes[_i].says) != NULL, "'%s' says: %s", mistakes[_i].text,
                  kvcl_last_error());
    ck_assert_uint_eq(table.count, 77);
}
END_TEST

START_TEST(too_many_rows_are_refused)
{
    char              text[64 * KVCL_COLL_TABLE_ROWS] = "";
    kvcl_coll_table_t table;
    int               i;

    for (i = 0; i < KVCL_COLL_TABLE_ROWS; ++i) {
        strcat(text, (i > 0) ? ",bcast:any:0-inf:flat" : "bcast:any:0-inf:flat");
    }
    ck_assert_int_eq(kvcl_coll_table_parse(text, &table), KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "more than 48 rows"));
}
END_TEST

START_TEST(the_list_names_each_algorithm_once)
{
    const kvcl_coll_alg_t *alg;
    size_t                 i;

    for (i = 0; (alg = kvcl_coll_alg_at(i)) != NULL; ++i) {
        ck_assert_ptr_eq(kvcl_coll_alg_find(alg->kind, alg->name), alg);
        ck_assert_uint_gt(strlen(alg->desc), 0);
    }
    ck_assert_uint_eq(i, 16);
    ck_assert_ptr_null(kvcl_coll_alg_find(KVCL_COLL_BCAST, "ring"));
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("collectives: selection");
    TCase   *tcase = tcase_create("all");
    SRunner *runner;
    int      failed;

    tcase_add_test(tcase, the_default_table_fits_every_shape);
    tcase_add_test(tcase, the_defaults_are_as_documented);
    tcase_add_test(tcase, own_rows_come_first_and_the_rest_stays);
    tcase_add_test(tcase, a_printed_table_parses_to_the_same);
    tcase_add_loop_test(tcase, mistakes_name_the_place_and_what_is_accepted, 0,
                        (int)(sizeof(mistakes) / sizeof(mistakes[0])));
    tcase_add_test(tcase, too_many_rows_are_refused);
    tcase_add_test(tcase, the_list_names_each_algorithm_once);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
