/* Status names, error sentences, log lines, sizes and times, settings tables. */
#include "config.h"
#include "test_base.h"
#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/units.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

START_TEST(every_status_has_its_own_name_and_a_text)
{
    int i, j;

    ck_assert_str_eq(kvcl_status_name(KVCL_OK), "OK");
    ck_assert_str_eq(kvcl_status_name(KVCL_ERR_NO_SPACE), "ERR_NO_SPACE");
    ck_assert_str_eq(kvcl_status_text(KVCL_ERR_TIMED_OUT), "deadline passed");
    ck_assert_str_eq(kvcl_status_name((kvcl_status_t)77), "UNKNOWN");
    ck_assert_int_eq(KVCL_ERR_INTERNAL, -24); /* append-only: numbers never change */
    for (i = -24; i <= 1; ++i) {
        ck_assert_str_ne(kvcl_status_name((kvcl_status_t)i), "UNKNOWN");
        ck_assert_int_gt((int)strlen(kvcl_status_text((kvcl_status_t)i)), 4);
        for (j = -24; j < i; ++j) {
            ck_assert_str_ne(kvcl_status_name((kvcl_status_t)i), kvcl_status_name((kvcl_status_t)j));
        }
    }
}
END_TEST

START_TEST(last_error_is_a_sentence_that_can_be_prefixed)
{
    char long_text[2 * KVCL_ERROR_MAX];

    ck_assert_str_eq(kvcl_last_error(), "");
    errno = 5;
    ck_assert_int_eq(kvcl_fail(KVCL_ERR_NOT_FOUND, "no key %d", 7), KVCL_ERR_NOT_FOUND);
    ck_assert_int_eq(errno, 5);
    ck_assert_str_eq(kvcl_last_error(), "no key 7");
    ck_assert_int_eq(kvcl_fail(KVCL_ERR_IO, "above: %s", kvcl_last_error()), KVCL_ERR_IO);
    ck_assert_str_eq(kvcl_last_error(), "above: no key 7");
    ck_assert_int_eq(kvcl_fail_errno(KVCL_ERR_IO, ENOENT, "open %s", "x"), KVCL_ERR_IO);
    ck_assert_str_eq(kvcl_last_error(), "open x: No such file or directory");
    memset(long_text, 'x', sizeof(long_text));
    long_text[sizeof(long_text) - 1] = '\0';
    ck_assert_int_eq(kvcl_fail_errno(KVCL_ERR_IO, ENOENT, "%s", long_text), KVCL_ERR_IO);
    ck_assert_uint_eq(strlen(kvcl_last_error()), KVCL_ERROR_MAX - 1);
}
END_TEST

static int  lines;
static char last_line[256];

static void count_line(void *arg, kvcl_log_level_t level, const char *text)
{
    (void)level;
    ++*(int *)arg;
    snprintf(last_line, sizeof(last_line), "%s", text);
}

static int evaluated(int *counter)
{
    return ++*counter;
}

START_TEST(log_below_the_level_evaluates_nothing)
{
    int n = 0, level = -1;

    kvcl_log_set_handler(count_line, &lines);
    kvcl_log_info("not shown %d", evaluated(&n));
    ck_assert_int_eq(n, 0);
    kvcl_log_warn("shown %d", evaluated(&n));
    ck_assert_int_eq(lines, 1);
    ck_assert_str_eq(last_line, "shown 1");
    ck_assert_int_eq(kvcl_log_level_parse("TRACE", &level), KVCL_OK);
    ck_assert_int_eq(level, KVCL_LOG_TRACE);
    ck_assert_int_eq(kvcl_log_level_parse("2", &level), KVCL_OK);
    ck_assert_int_eq(level, KVCL_LOG_INFO);
    ck_assert_int_eq(kvcl_log_level_parse("loud", &level), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(level, KVCL_LOG_INFO);
    kvcl_log_set_level(99);
    kvcl_log_trace("%s", "deep");
    ck_assert_str_eq(last_line, "deep");
}
END_TEST

START_TEST(log_line_names_host_and_process)
{
    char    line[256] = "";
    char    want[64];
    int     fds[2];
    int     saved = dup(STDERR_FILENO);
    ssize_t n;

    ck_assert_int_eq(pipe(fds), 0);
    dup2(fds[1], STDERR_FILENO);
    kvcl_log_error("bad %d", 3);
    kvcl_log_warn("worse");
    dup2(saved, STDERR_FILENO);
    n = read(fds[0], line, sizeof(line) - 1);
    ck_assert_int_gt((int)n, 0);
    snprintf(want, sizeof(want), ":%d] error bad 3\n", (int)getpid());
    ck_assert_msg(strstr(line, want) != NULL, "%s", line);
    ck_assert_msg(strstr(line, "] warn  worse\n") != NULL, "%s", line);
}
END_TEST

START_TEST(sizes_and_times_are_read_and_written)
{
    static const struct { const char *text; uint64_t value; } sizes[] = {
        {"0", 0}, {"17", 17}, {"64K", 65536}, {"4KiB", 4096}, {"4kb", 4096}, {"2G", UINT64_C(2) << 30},
        {"1.5M", 1572864},
        {" 3 T ", UINT64_C(3) << 40}, {"unlimited", KVCL_UNLIMITED}, {"inf", KVCL_UNLIMITED}, {"12b", 12}
    };
    static const struct { const char *text; uint64_t value; } times[] = {
        {"10ms", 10000000}, {"2s", 2000000000}, {"500us", 500000}, {"3", 3000000000}, {"0.5", 500000000}, {"7ns", 7},
        {"2m", UINT64_C(120000000000)}, {"1h", UINT64_C(3600000000000)}, {"unlimited", KVCL_UNLIMITED}
    };
    static const char *const bad[] = {"", "K", "-1", "1X", "1 2", "0x10", "1e3", ".5", "99999999999999999999",
                                      "20000000T",
                                      "unlimitedK"};
    char     buf[32];
    uint64_t value;
    size_t   i;

    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        ck_assert_int_eq(kvcl_size_parse(sizes[i].text, &value), KVCL_OK);
        ck_assert_uint_eq(value, sizes[i].value);
    }
    for (i = 0; i < sizeof(times) / sizeof(times[0]); ++i) {
        ck_assert_int_eq(kvcl_time_parse(times[i].text, &value), KVCL_OK);
        ck_assert_uint_eq(value, times[i].value);
    }
    value = 5;
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        ck_assert_msg(kvcl_size_parse(bad[i], &value) == KVCL_ERR_INVALID_PARAM, "\"%s\"", bad[i]);
    }
    ck_assert_uint_eq(value, 5);
    ck_assert_str_eq(kvcl_size_format(buf, sizeof(buf), 65536), "64K");
    ck_assert_str_eq(kvcl_size_format(buf, sizeof(buf), 1000), "1000");
    ck_assert_str_eq(kvcl_size_format(buf, sizeof(buf), 1536), "1.50K");
    ck_assert_str_eq(kvcl_size_format(buf, sizeof(buf), 0), "0");
    ck_assert_str_eq(kvcl_size_format(buf, sizeof(buf), KVCL_UNLIMITED), "unlimited");
    ck_assert_str_eq(kvcl_time_format(buf, sizeof(buf), 10000000), "10ms");
    ck_assert_str_eq(kvcl_time_format(buf, sizeof(buf), UINT64_C(60000000000)), "1m");
    ck_assert_str_eq(kvcl_time_format(buf, 4, KVCL_UNLIMITED), "unl");
}
END_TEST

typedef struct options {
    char    *name;
    int      on;
    int64_t  count;
    uint64_t bytes;
    uint64_t wait_ns;
    int      kind;
} options_t;

static const char *const kinds[] = {"auto", "shm", "tcp", NULL};

static const kvcl_setting_t table[] = {
    {"KVCL_T_NAME", NULL, "a text", KVCL_SETTING_STRING, offsetof(options_t, name), 0, 0, NULL},
    {"KVCL_T_ON", "y", "a switch", KVCL_SETTING_BOOL, offsetof(options_t, on), 0, 0, NULL},
    {"KVCL_T_COUNT", "3", "a number", KVCL_SETTING_INT, offsetof(options_t, count), 1, 8, NULL},
    {"KVCL_T_BYTES", "64K", "a size", KVCL_SETTING_SIZE, offsetof(options_t, bytes), 4096, -1, NULL},
    {"KVCL_T_WAIT", "1s", "a time", KVCL_SETTING_TIME, offsetof(options_t, wait_ns), 0, 0, NULL},
    {"KVCL_T_KIND", "auto", "a kind", KVCL_SETTING_ENUM, offsetof(options_t, kind), 0, 0, kinds},
    KVCL_SETTING_END
};

/* Their defaults are not the shortest text of the value. */
static const kvcl_setting_t forms[] = {
    {"KVCL_T_ON", "yes", "a switch", KVCL_SETTING_BOOL, offsetof(options_t, on), 0, 0, NULL},
    {"KVCL_T_BYTES", "1024K", "a size", KVCL_SETTING_SIZE, offsetof(options_t, bytes), 0, 0, NULL},
    {"KVCL_T_WAIT", "60s", "a time", KVCL_SETTING_TIME, offsetof(options_t, wait_ns), 0, 0, NULL},
    KVCL_SETTING_END
};

/* arg: an array of "NAME=value" */
static const char *lookup(void *arg, const char *name)
{
    char **env = (char **)arg;
    size_t len = strlen(name);

    for (; *env != NULL; ++env) {
        if ((strncmp(*env, name, len) == 0) && ((*env)[len] == '=')) {
            return *env + len + 1;
        }
    }
    return NULL;
}

START_TEST(settings_take_defaults_then_environment_then_params)
{
    char                 *env[] = {TEST_STR("KVCL_T_COUNT=7"), TEST_STR("KVCL_T_KIND=TCP"), TEST_STR("KVCL_T_NAME=abc"),
                                     TEST_STR("KVCL_T_ON="), NULL};
    options_t             opt;
    kvcl_setting_source_t sources[6];
    char                  buf[64];

    memset(&opt, 0, sizeof(opt));
    ck_assert_int_eq(kvcl_settings_load(table, &opt, lookup, env, sources), KVCL_OK);
    ck_assert_str_eq(opt.name, "abc");
    ck_assert_int_eq(opt.on, 1);
    ck_assert_int_eq(opt.count, 7);
    ck_assert_uint_eq(opt.bytes, 65536);
    ck_assert_uint_eq(opt.wait_ns, 1000000000);
    ck_assert_int_eq(opt.kind, 2);
    ck_assert_str_eq(kvcl_setting_source_name(sources[2]), "environment");
    ck_assert_str_eq(kvcl_setting_source_name(sources[1]), "default");
    ck_assert_int_eq(kvcl_settings_set(table, &opt, "KVCL_T_BYTES", "unlimited", KVCL_SOURCE_PARAM, sources), KVCL_OK);
    ck_assert_str_eq(kvcl_settings_format(table, 3, &opt, buf, sizeof(buf)), "unlimited");
    ck_assert_str_eq(kvcl_setting_source_name(sources[3]), "param");
    ck_assert_int_eq(kvcl_settings_set(table, &opt, "KVCL_T_NAME", "d", KVCL_SOURCE_PARAM, NULL), KVCL_OK);
    ck_assert_str_eq(kvcl_settings_format(table, 0, &opt, buf, sizeof(buf)), "d");
    ck_assert_str_eq(kvcl_settings_format(table, 1, &opt, buf, sizeof(buf)), "y");
    ck_assert_str_eq(kvcl_settings_format(table, 2, &opt, buf, sizeof(buf)), "7");
    ck_assert_str_eq(kvcl_settings_format(table, 4, &opt, buf, sizeof(buf)), "1s");
    ck_assert_str_eq(kvcl_settings_format(table, 5, &opt, buf, sizeof(buf)), "tcp");
    ck_assert_int_eq(kvcl_settings_set(table, &opt, "KVCL_NO", "d", KVCL_SOURCE_PARAM, NULL), KVCL_ERR_NOT_FOUND);
    kvcl_settings_free(table, &opt);
    ck_assert_ptr_null(opt.name);
}
END_TEST

START_TEST(a_value_that_is_the_default_has_the_text_of_the_default)
{
    options_t opt;
    char      buf[64];

    memset(&opt, 0, sizeof(opt));
    ck_assert_int_eq(kvcl_settings_load(forms, &opt, NULL, NULL, NULL), KVCL_OK);
    ck_assert_str_eq(kvcl_settings_format(forms, 0, &opt, buf, sizeof(buf)), "yes");
    ck_assert_str_eq(kvcl_settings_format(forms, 1, &opt, buf, sizeof(buf)), "1024K");
    ck_assert_str_eq(kvcl_settings_format(forms, 2, &opt, buf, sizeof(buf)), "60s");
    opt.on      = 0;
    opt.bytes   = 2 << 20;
    opt.wait_ns = 120 * UINT64_C(1000000000);
    ck_assert_str_eq(kvcl_settings_format(forms, 0, &opt, buf, sizeof(buf)), "n");
    ck_assert_str_eq(kvcl_settings_format(forms, 1, &opt, buf, sizeof(buf)), "2M");
    ck_assert_str_eq(kvcl_settings_format(forms, 2, &opt, buf, sizeof(buf)), "2m");
}
END_TEST

START_TEST(bad_value_names_the_variable_the_value_and_what_is_accepted)
{
    static const char *const bad[][2] = {
        {"KVCL_T_ON=maybe", "KVCL_T_ON=maybe is not accepted: expected y or n"},
        {"KVCL_T_COUNT=9", "KVCL_T_COUNT=9 is not accepted: expected a whole number, from 1 to 8"},
        {"KVCL_T_COUNT=3x", "KVCL_T_COUNT=3x is not accepted: expected a whole number, from 1 to 8"},
        {"KVCL_T_BYTES=1", "KVCL_T_BYTES=1 is not accepted: expected a size such as 64K or 2G, from 4K to unlimited"},
        {"KVCL_T_WAIT=soon", "KVCL_T_WAIT=soon is not accepted: expected a time such as 10ms or 2s"},
        {"KVCL_T_KIND=rdma", "KVCL_T_KIND=rdma is not accepted: expected one of auto, shm, tcp"}
    };
    char     *env[] = {TEST_STR("KVCL_T_NAME=leak?"), NULL, NULL};
    options_t opt;
    size_t    i;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        memset(&opt, 0, sizeof(opt));
        env[1] = TEST_STR(bad[i][0]);
        ck_assert_int_eq(kvcl_settings_load(table, &opt, lookup, env, NULL), KVCL_ERR_INVALID_PARAM);
        ck_assert_str_eq(kvcl_last_error(), bad[i][1]);
        ck_assert_ptr_null(opt.name);
    }
}
END_TEST

START_TEST(unknown_variable_is_warned_about_with_the_nearest_name)
{
    const kvcl_setting_t *tables[] = {table, NULL};
    char                 *env[]    = {TEST_STR("PATH=/bin"), TEST_STR("KVCL_T_COUNT=1"), TEST_STR("KVCLX=1"), NULL,
                                         NULL};

    lines = 0;
    kvcl_log_set_handler(count_line, &lines);
    ck_assert_uint_eq(kvcl_settings_check_unknown(env, tables), 0);
    env[3] = TEST_STR("KVCL_T_CUONT=1");
    ck_assert_uint_eq(kvcl_settings_check_unknown(env, tables), 1);
    ck_assert_str_eq(last_line, "unknown variable KVCL_T_CUONT: did you mean KVCL_T_COUNT?");
    env[3] = TEST_STR("KVCL_SOMETHING_ELSE_ENTIRELY");
    ck_assert_uint_eq(kvcl_settings_check_unknown(env, tables), 1);
    ck_assert_str_eq(last_line, "unknown variable KVCL_SOMETHING_ELSE_ENTIRELY: kvcl_info lists all that exist");
    ck_assert_int_eq(lines, 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base text");
    TCase *tc    = tcase_create("text");

    tcase_add_test(tc, every_status_has_its_own_name_and_a_text);
    tcase_add_test(tc, last_error_is_a_sentence_that_can_be_prefixed);
    tcase_add_test(tc, log_below_the_level_evaluates_nothing);
    tcase_add_test(tc, log_line_names_host_and_process);
    tcase_add_test(tc, sizes_and_times_are_read_and_written);
    tcase_add_test(tc, settings_take_defaults_then_environment_then_params);
    tcase_add_test(tc, a_value_that_is_the_default_has_the_text_of_the_default);
    tcase_add_test(tc, bad_value_names_the_variable_the_value_and_what_is_accepted);
    tcase_add_test(tc, unknown_variable_is_warned_about_with_the_nearest_name);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
