/*
 * Models of the scheduler: their formulas, tables and rooflines, and what a bad file gets.
 */
#include "sched_scene.h"

#include <stdlib.h>

static kvcl_sched_model_h parse(const char *text)
{
    kvcl_sched_model_h model = NULL;

    ck_assert_msg(kvcl_sched_model_parse("m", text, strlen(text), &model) == KVCL_OK, "%s", kvcl_last_error());
    return model;
}

static void refuses(const char *text, const char *words)
{
    kvcl_sched_model_h model = NULL;

    ck_assert_int_eq(kvcl_sched_model_parse("m", text, strlen(text), &model), KVCL_ERR_INVALID_PARAM);
    ck_assert_msg(strstr(kvcl_last_error(), words) != NULL, "\"%s\" has no \"%s\"", kvcl_last_error(), words);
    ck_assert_ptr_null(model);
}

START_TEST(the_shipped_model_is_that_of_the_paper)
{
    const char              *top = getenv("top_srcdir");
    char                    path[4096];
    kvcl_sched_model_h      model;
    kvcl_sched_model_info_t info = KVCL_SCHED_MODEL_INFO_INIT;
    static const double     none[] = {1.005, 2.053, 4.478, 10.585, 27.517}, most[] = {.134, .227, .406, .882, 2.329};
    double                  n, t;
    int                     i;

    (void)snprintf(path, sizeof(path), "%s/contrib/sched/llama3-70b-8xa800.model", (top != NULL) ? top : ".");
    ck_assert_msg(kvcl_sched_model_load(path, &model) == KVCL_OK, "%s", kvcl_last_error());
    for (i = 0; i < 5; ++i) {
        n = (double)(8192 << i);
        t = kvcl_sched_model_prefill(model, n, 0).seconds;
        ck_assert_msg((t > none[i] * 0.95) && (t < none[i] * 1.05), "%g tokens: %g s", n, t);
        t = kvcl_sched_model_prefill(model, n, 0.95 * n).seconds;
        ck_assert_msg((t > most[i] * 0.95) && (t < most[i] * 1.05), "%g tokens cached: %g s", n, t);
    }
    ck_assert_int_eq(kvcl_sched_model_info(model, &info), KVCL_OK);
    scene_near(info.kv_bytes, 327680);
    ck_assert_str_eq(kvcl_sched_model_name(model), "llama3-70b-8xa800");
    kvcl_sched_model_free(model);
}
END_TEST

START_TEST(every_shipped_model_can_be_read_and_names_its_source)
{
    static const char *const names[] = {"opt-13b-tp1-a100", "opt-13b-tp2-a100", "opt-13b-tp4-a100", "opt-66b-tp2-a100",
                                        "opt-66b-tp3-a100", "opt-66b-tp4-a100", "opt-66b-tp8-a100",
                                        "roofline-70b-8xa800"};
    const char               *top = getenv("top_srcdir");
    char                     path[4096];
    kvcl_sched_model_h       model;
    double                   seconds[sizeof(names) / sizeof(names[0])];
    size_t                   i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        (void)snprintf(path, sizeof(path), "%s/contrib/sched/%s.model", (top != NULL) ? top : ".", names[i]);
        ck_assert_msg(kvcl_sched_model_load(path, &model) == KVCL_OK, "%s", kvcl_last_error());
        ck_assert_str_eq(kvcl_sched_model_name(model), names[i]);
        ck_assert_str_ne(kvcl_sched_model_source(model), "");
        seconds[i] = kvcl_sched_model_prefill(model, 8192, 0).seconds;
        ck_assert(seconds[i] > 0.1);
        ck_assert(seconds[i] < 5);
        if ((i > 0) && (strncmp(names[i], names[i - 1], strlen("opt-66b-tp")) == 0)) {
            ck_assert_msg(seconds[i] < seconds[i - 1], "%s is not faster than %s", names[i], names[i - 1]);
        }
        ck_assert(kvcl_sched_model_decode(model, 100, 1e5).seconds < kvcl_sched_model_decode(model, 100, 2e5).seconds);
        kvcl_sched_model_free(model);
    }
}
END_TEST

START_TEST(formulas_give_what_is_computed_by_hand)
{
    kvcl_sched_model_h model = parse("kvcl-model 1\nname x\nsource y # why\nprefill 1 0.1 0.001 0.01\n"
                                     "decode 1 2 3\ndecode_from 10 5 0.5 0.25\ndecode_error 0.1\n");
    double             base, token;

    scene_near(kvcl_sched_model_prefill(model, 100, 40).seconds, 1 + 6 + (0.001 * 60 * 140) + 0.4);
    scene_near(kvcl_sched_model_prefill(model, 100, 400).seconds, 1 + 1); /* more cached than there is: all */
    ck_assert(kvcl_sched_model_prefill(model, 100, 40).error < 0);
    scene_near(kvcl_sched_model_decode(model, 2, 7).seconds, 1 + 4 + 21);
    scene_near(kvcl_sched_model_decode(model, 2, 7).error, 0.1);
    scene_near(kvcl_sched_model_decode(model, 10, 8).seconds, 5 + 5 + 2);
    scene_near(kvcl_sched_model_decode(model, 0, 0).seconds, 0);
    ck_assert_int_eq(kvcl_sched_model_decode_line(model, 10, &base, &token), KVCL_OK);
    scene_near(base, 10);
    scene_near(token, 0.25);
    ck_assert_str_eq(kvcl_sched_model_source(model), "y");
    kvcl_sched_model_free(model);
}
END_TEST

START_TEST(a_table_is_linear_between_its_points_and_unknown_outside)
{
    kvcl_sched_model_h model = parse("kvcl-model 1\nname x\nsource y\nprefill_prefix 0 100\nprefill_row 0 0 1\n"
                                     "prefill_row 100 10 21\ndecode_context 10 20\ndecode_row 1 1 2\n"
                                     "decode_row 3 3 4\n");
    double             base, token;

    scene_near(kvcl_sched_model_prefill(model, 50, 0).seconds, 5);
    scene_near(kvcl_sched_model_prefill(model, 100, 50).seconds, (5 + 11) / 2.0);
    scene_near(kvcl_sched_model_prefill(model, 200, 100).seconds, 21);
    ck_assert(kvcl_sched_model_prefill(model, 101, 0).seconds < 0);
    scene_near(kvcl_sched_model_decode(model, 2, 30).seconds, 2.5); /* 15 tokens each */
    ck_assert(kvcl_sched_model_decode(model, 4, 60).seconds < 0);
    ck_assert_int_eq(kvcl_sched_model_decode_line(model, 2, &base, &token), KVCL_OK);
    scene_near(base, 2);
    scene_near(token, 1.0 / 40);
    kvcl_sched_model_free(model);
}
END_TEST

START_TEST(a_roofline_is_flops_and_bytes)
{
    kvcl_sched_model_h model = parse("kvcl-model 1\nname x\nsource y\nlayers 2\nwidth 10\nattention 4\nlinear 20\n"
                                     "weight_bytes 1000\nflops 1000\nmemory 100\neff_attention 0.5\neff_linear 0.25\n"
                                     "eff_memory 0.1\nkv_bytes 5\nload 50\n");

    /* b = 2 x 20 x 100 / 250 = 16; c = 2 x 4 x 10 / 500 = 0.16; d = 0.1; e = 1000 / 10; f = b; g = 0.5 */
    scene_near(kvcl_sched_model_prefill(model, 10, 4).seconds, (16 * 6) + (0.16 * 6 * 14) + 0.4);
    scene_near(kvcl_sched_model_decode(model, 3, 8).seconds, 100 + 48 + 4);
    kvcl_sched_model_free(model);
}
END_TEST

#define HEAD "kvcl-model 1\nname x\nsource y\n"

START_TEST(the_largest_counts_are_kept_as_they_are)
{
    kvcl_sched_model_h      model = parse(HEAD "prefill 1 2 3 4\nkv_tokens 1e15\npool_tokens 999999999999999\n"
                                          "max_batch 1e9\n");
    kvcl_sched_model_info_t info  = KVCL_SCHED_MODEL_INFO_INIT;

    ck_assert_int_eq(kvcl_sched_model_info(model, &info), KVCL_OK);
    ck_assert(info.kv_tokens == 1e15);
    ck_assert(info.pool_tokens == 999999999999999.0);
    ck_assert(info.max_batch == 1000000000);
    kvcl_sched_model_free(model);
}
END_TEST

START_TEST(a_bad_file_is_refused_with_its_line_and_column)
{
    refuses("", "ends without a line name");
    refuses("name x\n", "m:1:1: the first line must be");
    refuses("kvcl-model 2\n", "version 1");
    refuses(HEAD "prefil 1 2 3 4\n", "m:4:1: unknown word, is it prefill?");
    refuses(HEAD "prefill 1 2 3\n", "too few numbers for prefill");
    refuses(HEAD "prefill 1 2 3 4 5\n", "m:4:17: too many numbers for prefill");
    refuses(HEAD "prefill 1 -2 3 4\n", "m:4:11: this is no number");
    refuses(HEAD "prefill 1 nan 3 4\n", "m:4:11: this is no number");
    refuses(HEAD "prefill 1 inf 3 4\n", "m:4:11: this is no number");
    refuses(HEAD "prefill 1 1e999 3 4\n", "m:4:11: this is no number");
    refuses(HEAD "prefill 1 2 3 4\nprefill 1 2 3 4\n", "m:5:1: a second line of prefill");
    refuses(HEAD "decode 1 2 3\n", "ends without prefill");
    refuses(HEAD "decode_from 9 1 2 3\n", "needs a line decode");
    refuses(HEAD "decode 0 0 0\n", "m:4:1: a decode step must take time");
    refuses(HEAD "decode 1 0 0\ndecode_from 9 0 0 0\n", "m:5:1: a decode step must take time");
    refuses(HEAD "decode_context 1 9\ndecode_row 1 0 1\n", "m:5:1: a decode step must take time");
    refuses(HEAD "decode_context 1 9\ndecode_row 1 2 1\n", "m:5:1: the seconds of a decode_row must not fall");
    refuses(HEAD "prefill_row 1 2\n", "before the line of its table");
    refuses(HEAD "prefill_prefix 0 9 9\n", "must rise");
    refuses(HEAD "prefill_prefix 0 9\nprefill_row 1 2\n", "one of each column");
    refuses(HEAD "prefill_prefix 0 9\nprefill_row 1 2 3\nprefill_row 1 2 3\n", "rows of a table must rise");
    refuses(HEAD "prefill_prefix 0 9\n", "ends without");
    refuses(HEAD "layers 1\n", "all of its ten numbers");
    refuses(HEAD "prefill 1 2 3 4\nstall 2\n", "stall is above 1");
    refuses(HEAD "prefill 1 2 3 4\nnic 1e-3\n", "at least 1");
    refuses(HEAD "prefill 1 2 3 4\nkv_tokens 18446744073709551616\n", "m:5:1: a whole number is needed, at most 1e15");
    refuses(HEAD "kv_tokens 1.000001e15\n", "m:4:1: a whole number is needed");
    refuses(HEAD "pool_tokens 1e280\n", "m:4:1: a whole number is needed, at most 1e15 tokens");
    refuses(HEAD "pool_tokens 0.5\n", "m:4:1: a whole number is needed, at most 1e15 tokens");
    refuses(HEAD "max_batch 1000000001\n", "m:4:1: a whole number is needed, at most 1e9 requests");
    refuses(HEAD "max_batch 1.5\n", "a whole number is needed, at most 1e9 requests");
}
END_TEST

START_TEST(a_missing_file_names_where_it_was_looked_for)
{
    kvcl_sched_model_h model = NULL;

    ck_assert_int_eq(kvcl_sched_model_load("no-such-model", &model), KVCL_ERR_IO);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "kvcl/models"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("models of the scheduler");
    TCase *tcase = tcase_create("models");

    tcase_add_test(tcase, the_shipped_model_is_that_of_the_paper);
    tcase_add_test(tcase, every_shipped_model_can_be_read_and_names_its_source);
    tcase_add_test(tcase, formulas_give_what_is_computed_by_hand);
    tcase_add_test(tcase, a_table_is_linear_between_its_points_and_unknown_outside);
    tcase_add_test(tcase, a_roofline_is_flops_and_bytes);
    tcase_add_test(tcase, the_largest_counts_are_kept_as_they_are);
    tcase_add_test(tcase, a_bad_file_is_refused_with_its_line_and_column);
    tcase_add_test(tcase, a_missing_file_names_where_it_was_looked_for);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
