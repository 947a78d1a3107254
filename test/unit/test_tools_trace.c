/*
 * The trace reader of kvcl_replay: good lines, every kind of bad line, and whole files, strict or not.
 */
#include "config.h"
#include "tools/replay/trace.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GOOD "{\"timestamp\": 5, \"input_length\": 700, \"output_length\": 3, \"hash_ids\": [0, 9]}"

static uint64_t *ids;

static void make_ids(void)
{
    ids = malloc(TRACE_IDS_MAX * sizeof(*ids));
    ck_assert_ptr_nonnull(ids);
}

static void free_ids(void)
{
    free(ids);
}

START_TEST(a_line_of_the_schema_is_read)
{
    char            error[TRACE_ERROR_MAX];
    trace_request_t request;

    ck_assert(trace_parse_line(GOOD, strlen(GOOD), &request, ids, error));
    ck_assert_uint_eq(request.timestamp_ms, 5);
    ck_assert_uint_eq(request.input_length, 700);
    ck_assert_uint_eq(request.output_length, 3);
    ck_assert_uint_eq(request.n, 2);
    ck_assert_uint_eq(ids[0], 0);
    ck_assert_uint_eq(ids[1], 9);
}
END_TEST

static const char *const odd_but_good[] = {
    "{\"hash_ids\":[],\"output_length\":0,\"input_length\":0,\"timestamp\":0}",
    " \t{ \"timestamp\" : 5.25 , \"input_length\":1,\"output_length\":1,\"hash_ids\" : [ 1 , 2 ] } \r",
    "{\"timestamp\":1,\"input_length\":1,\"output_length\":1,\"hash_ids\":[9007199254740992]}",
    "{\"who\": {\"a\": [1, -2.5e+3, true, null, \"x\\\"y\"], \"b\": {}}, \"timestamp\":1,\"input_length\":1,"
    "\"output_length\":1,\"hash_ids\":[1], \"more\": false}",
};

START_TEST(odd_but_good_lines_are_read)
{
    char            error[TRACE_ERROR_MAX] = "";
    trace_request_t request;

    ck_assert_msg(trace_parse_line(odd_but_good[_i], strlen(odd_but_good[_i]), &request, ids, error), "%s: %s",
                  odd_but_good[_i], error);
}
END_TEST

#define REST ",\"input_length\":1,\"output_length\":1,\"hash_ids\":[1]}"

static const struct {
    const char *line;
    const char *error;
} bad[] = {
    {"", "column 1: the line ends where '{' should be"},
    {"[]", "column 1: '[' where '{' should be"},
    {"{}", "\"timestamp\" is missing"},
    {"{\"timestamp\":1,\"input_length\":1,\"output_length\":1}", "\"hash_ids\" is missing"},
    {"{\"timestamp\":1" , "column 15: the line ends where ',' or '}' should be"},
    {"{\"timestamp\":-1" REST, "column 14: timestamp is negative"},
    {"{\"timestamp\":01" REST, "column 14: timestamp starts with 0"},
    {"{\"timestamp\":1e3" REST, "column 15: timestamp is not a whole number"},
    {"{\"timestamp\":\"1\"" REST, "column 14: '\"' where a number should be"},
    {"{\"timestamp\":9007199254740993" REST, "column 29: timestamp is larger than 2^53"},
    {"{\"timestamp\":99999999999999999999999" REST, "column 29: timestamp is larger than 2^53"},
    {"{\"timestamp\":1,\"timestamp\":1" REST, "column 28: \"timestamp\" occurs twice"},
    {"{\"timestamp\":1" REST " x", "column 67: 'x' where the end of the line should be"},
    {"{\"timestamp\":1,}", "column 16: '}' where a string should be"},
    {"{timestamp:1}", "column 2: 't' where a string should be"},
    {"{\"hash_ids\":[1,-2]}", "column 16: an id is negative"},
    {"{\"hash_ids\":[1,2.5]}", "column 17: an id is not a whole number"},
    {"{\"hash_ids\":[1,]}", "column 16: ']' where a number should be"},
    {"{\"hash_ids\":[1 2]}", "column 16: '2' where ',' or ']' should be"},
    {"{\"hash_ids\":[1", "column 15: the line ends where ',' or ']' should be"},
    {"{\"hash_ids\":7}", "column 13: '7' where '[' should be"},
    {"{\"x\":[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]}", "column 22: nested deeper than 16"},
    {"{\"x\":truth}", "column 6: 't' where a value should be"},
    {"{\"x\":-}", "column 7: '}' where a digit should be"},
    {"{\"x\":\"\x01\"}", "column 7: byte 0x01 where the end of a string should be"},
    {"{\"x", "column 4: the line ends where the end of a string should be"},
};

START_TEST(a_bad_line_is_refused_with_what_and_where)
{
    char            error[TRACE_ERROR_MAX] = "";
    trace_request_t request;

    ck_assert(!trace_parse_line(bad[_i].line, strlen(bad[_i].line), &request, ids, error));
    ck_assert_str_eq(error, bad[_i].error);
}
END_TEST

START_TEST(a_zero_byte_is_refused)
{
    char            line[] = "{\"timestamp\":1, ?}";
    char            error[TRACE_ERROR_MAX];
    trace_request_t request;

    line[16] = '\0';
    ck_assert(!trace_parse_line(line, sizeof(line) - 1, &request, ids, error));
    ck_assert_str_eq(error, "column 17: byte 0x00 where a string should be");
}
END_TEST

START_TEST(every_prefix_of_a_line_is_refused)
{
    char            error[TRACE_ERROR_MAX];
    trace_request_t request;
    char            *copy;
    size_t          len;

    for (len = 0; len < strlen(GOOD); ++len) {
        copy = malloc(len + 1); /* exact length: a sanitizer detects a read past it */
        ck_assert_ptr_nonnull(copy);
        memcpy(copy, GOOD, len);
        ck_assert(!trace_parse_line(copy, len, &request, ids, error));
        free(copy);
    }
}
END_TEST

START_TEST(more_ids_than_the_limit_are_refused)
{
    const size_t    cap   = 32 + (2 * ((size_t)TRACE_IDS_MAX + 1));
    char            *line = malloc(cap);
    char            error[TRACE_ERROR_MAX];
    trace_request_t request;
    size_t          len, i;

    ck_assert_ptr_nonnull(line);
    len = (size_t)snprintf(line, cap, "{\"hash_ids\":[1");
    for (i = 0; i < TRACE_IDS_MAX; ++i) {
        line[len++] = ',';
        line[len++] = '1';
    }
    line[len++] = ']';
    ck_assert(!trace_parse_line(line, len, &request, ids, error));
    ck_assert_ptr_nonnull(strstr(error, "more than 65536 ids"));
    free(line);
}
END_TEST

/* Write a file, load it, and return the report. */
static bool load(const char *bytes, size_t len, bool strict, trace_t *trace, char *reported, size_t cap)
{
    char path[] = "/tmp/kvcl-trace-XXXXXX";
    int  fd     = mkstemp(path);
    FILE *report;
    bool good;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, bytes, len), (ssize_t)len);
    close(fd);
    memset(reported, 0, cap);
    report = fmemopen(reported, cap, "w");
    ck_assert_ptr_nonnull(report);
    trace_init(trace);
    good = trace_load(trace, path, strict, report);
    fclose(report);
    unlink(path);
    return good;
}

START_TEST(bad_lines_of_a_file_are_reported_counted_and_skipped)
{
    static const char file[] = GOOD "\n\nnonsense\n" GOOD "\n{\"timestamp\"\0:1}\n" GOOD;
    char              reported[512];
    trace_t           trace;

    ck_assert(load(file, sizeof(file) - 1, false, &trace, reported, sizeof(reported)));
    ck_assert_uint_eq(trace.n_requests, 3);
    ck_assert_uint_eq(trace.n_ids, 6);
    ck_assert_uint_eq(trace.longest, 2);
    ck_assert_uint_eq(trace.skipped_lines, 2);
    ck_assert_ptr_nonnull(strstr(reported, ":3: column 1: 'n' where '{' should be (skipped)"));
    ck_assert_ptr_nonnull(strstr(reported, ":5: column 13: byte 0x00"));
    trace_free(&trace);
}
END_TEST

START_TEST(strict_stops_at_the_first_bad_line)
{
    static const char file[] = GOOD "\nnonsense\n" GOOD "\n";
    char              reported[512];
    trace_t           trace;

    ck_assert(!load(file, sizeof(file) - 1, true, &trace, reported, sizeof(reported)));
    ck_assert_ptr_nonnull(strstr(reported, ":2: column 1"));
    trace_free(&trace);
}
END_TEST

START_TEST(a_very_long_line_is_reported_and_the_next_one_read)
{
    const size_t len   = (3u << 20) + sizeof(GOOD);
    char         *file = malloc(len);
    char         reported[512];
    trace_t      trace;

    ck_assert_ptr_nonnull(file);
    memset(file, 'x', len);
    memcpy(file + len - sizeof(GOOD), "\n" GOOD, sizeof(GOOD));
    ck_assert(load(file, len, false, &trace, reported, sizeof(reported)));
    ck_assert_uint_eq(trace.n_requests, 1);
    ck_assert_uint_eq(trace.skipped_lines, 1);
    ck_assert_ptr_nonnull(strstr(reported, ":1: longer than 1048576 bytes (skipped)"));
    trace_free(&trace);
    free(file);
}
END_TEST

START_TEST(an_empty_file_is_an_error)
{
    char    reported[512];
    trace_t trace;

    ck_assert(!load("", 0, false, &trace, reported, sizeof(reported)));
    ck_assert_ptr_nonnull(strstr(reported, "no requests in it"));
    trace_free(&trace);
}
END_TEST

START_TEST(a_missing_file_and_a_directory_are_errors)
{
    char    reported[256] = "";
    FILE    *report       = fmemopen(reported, sizeof(reported), "w");
    trace_t trace;

    ck_assert_ptr_nonnull(report);
    trace_init(&trace);
    ck_assert(!trace_load(&trace, "/nonexistent/trace", false, report));
    ck_assert(!trace_load(&trace, "/tmp", false, report));
    fclose(report);
    ck_assert_ptr_nonnull(strstr(reported, "/nonexistent/trace: No such file or directory"));
    ck_assert_ptr_nonnull(strstr(reported, "/tmp: Is a directory"));
    trace_free(&trace);
}
END_TEST

int main(void)
{
    Suite   *suite  = suite_create("tools_trace");
    TCase   *lines  = tcase_create("lines");
    TCase   *files  = tcase_create("files");
    SRunner *runner = srunner_create(suite);
    int     failed;

    tcase_add_checked_fixture(lines, make_ids, free_ids);
    tcase_add_test(lines, a_line_of_the_schema_is_read);
    tcase_add_loop_test(lines, odd_but_good_lines_are_read, 0, (int)(sizeof(odd_but_good) / sizeof(odd_but_good[0])));
    tcase_add_loop_test(lines, a_bad_line_is_refused_with_what_and_where, 0, (int)(sizeof(bad) / sizeof(bad[0])));
    tcase_add_test(lines, a_zero_byte_is_refused);
    tcase_add_test(lines, every_prefix_of_a_line_is_refused);
    tcase_add_test(lines, more_ids_than_the_limit_are_refused);
    suite_add_tcase(suite, lines);
    tcase_add_test(files, bad_lines_of_a_file_are_reported_counted_and_skipped);
    tcase_add_test(files, strict_stops_at_the_first_bad_line);
    tcase_add_test(files, a_very_long_line_is_reported_and_the_next_one_read);
    tcase_add_test(files, an_empty_file_is_an_error);
    tcase_add_test(files, a_missing_file_and_a_directory_are_errors);
    suite_add_tcase(suite, files);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
