/*
 * The parts shared by all tools: command lines, HTTP, histograms, JSON, patterns, the words for memory, the machine;
 * what kvcl_perf asks of a ratio, which ranks move blocks with which in its patterns, and the axes of pictures.
 */
#include "config.h"
#include "tools/cli.h"
#include "tools/hist.h"
#include "tools/http_get.h"
#include "tools/build_info.h"
#include "tools/json_out.h"
#include "tools/machine.h"
#include "tools/memory_text.h"
#include "metrics/metrics_text.h"
#include "tools/pattern.h"
#include "tools/perf/flows/flow_kind.h"
#include "tools/perf/perf_asked.h"
#include "tools/svg.h"

#include <arpa/inet.h>
#include <check.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct values {
    bool        flag;
    const char  *text;
    uint64_t    count;
    uint64_t    size;
    cli_sizes_t sizes;
    double      real;
} values_t;

/* Parse a command line of words; its output to stderr is stored in said. */
static cli_result_t parse(values_t *v, const char *const *words, const char **positional, size_t *n_p, char *said,
                          size_t cap)
{
    const cli_option_t table[] = {
        {"flag", CLI_FLAG, &v->flag, NULL, "a flag", 0, 0},
        {"text", CLI_STRING, &v->text, "TEXT", "a text", 0, 0},
        {"count", CLI_COUNT, &v->count, "N", "a number", 1, 10},
        {"size", CLI_SIZE, &v->size, "BYTES", "a size", 0, 0},
        {"sizes", CLI_SIZES, &v->sizes, "BYTES,...", "some sizes", 1, 1 << 20},
        {"real", CLI_REAL, &v->real, "X", "a real", 0, 0},
    };
    const cli_spec_t spec = {"tool", "[options]", "About.", table, sizeof(table) / sizeof(table[0])};
    FILE             *file = tmpfile();
    const int        keep  = dup(STDERR_FILENO);
    cli_result_t     result;
    size_t           len;
    int              argc = 1;

    ck_assert_ptr_nonnull(file);
    while (words[argc] != NULL) {
        ++argc;
    }
    memset(v, 0, sizeof(*v));
    ck_assert_int_ge(dup2(fileno(file), STDERR_FILENO), 0);
    result = cli_parse(&spec, argc, (char **)words, positional, 1, n_p);
    fflush(stderr);
    ck_assert_int_ge(dup2(keep, STDERR_FILENO), 0);
    close(keep);
    rewind(file);
    len       = fread(said, 1, cap - 1, file);
    said[len] = '\0';
    fclose(file);
    return result;
}

START_TEST(options_are_read_in_both_spellings)
{
    static const char *const words[] = {"tool",   "--flag", "--text=a=b", "--count", "7",   "--size", "64K",
                                        "--real", "0.5",    "--",         "--flag",  NULL};
    const char               *positional[1];
    char                     said[256];
    values_t                 v;
    size_t                   n;

    ck_assert_int_eq(parse(&v, words, positional, &n, said, sizeof(said)), CLI_GO);
    ck_assert(v.flag);
    ck_assert_str_eq(v.text, "a=b");
    ck_assert_uint_eq(v.count, 7);
    ck_assert_uint_eq(v.size, 65536);
    ck_assert(fabs(v.real - 0.5) < 1e-9);
    ck_assert_uint_eq(n, 1);
    ck_assert_str_eq(positional[0], "--flag");
}
END_TEST

START_TEST(sizes_are_read_as_a_list)
{
    static const char *const words[] = {"tool", "--sizes", "9", "--sizes=4K,12288,1M,7", NULL};
    char                     said[256];
    values_t                 v;
    size_t                   n;

    ck_assert_int_eq(parse(&v, words, NULL, &n, said, sizeof(said)), CLI_GO);
    ck_assert_uint_eq(v.sizes.n, 4); /* the last one counts */
    ck_assert_uint_eq(v.sizes.sizes[0], 4096);
    ck_assert_uint_eq(v.sizes.sizes[1], 12288);
    ck_assert_uint_eq(v.sizes.sizes[2], 1 << 20);
    ck_assert_uint_eq(v.sizes.sizes[3], 7);
}
END_TEST

static const struct {
    const char *word;
    const char *value;
    const char *said;
} wrong[] = {
    {"--cuont", "3", "tool: unknown option --cuont (did you mean --count?)"},
    {"--completely-else", NULL, "tool: unknown option --completely-else;"},
    {"-x", NULL, "tool: unknown option -x"},
    {"--count", NULL, "tool: --count needs a value: N"},
    {"--count", "x", "tool: --count: \"x\" is not a number"},
    {"--count", "-1", "tool: --count: \"-1\" is not a number of 0 or more;"},
    {"--count", "5K", "tool: --count: \"5K\" is not a number"},
    {"--count", "0", "tool: --count: 0 is not within 1..10"},
    {"--count", "11", "tool: --count: 11 is not within 1..10"},
    {"--count", "99999999999999999999999", "tool: --count: \"99999999999999999999999\" is not a number"},
    {"--size", "12X", "tool: --size: \"12X\" is not a size"},
    {"--size", "", "tool: --size: \"\" is not a size"},
    {"--sizes", "", "tool: --sizes: \"\" is not a size"},
    {"--sizes", "4K,", "tool: --sizes: \"\" is not a size"},
    {"--sizes", "4K,,5K", "tool: --sizes: \"\" is not a size"},
    {"--sizes", "4K;5K", "tool: --sizes: \"4K;5K\" is not a size"},
    {"--sizes", "1,999999999999999999999999999999999999999999",
     "tool: --sizes: \"9999999999999999999999999999999\" is not"},
    {"--sizes", "000000000000000000000000000000123456789", /* of which a part would be a size */
     "tool: --sizes: \"0000000000000000000000000000001\" is not"},
    {"--sizes", "1,2M", "tool: --sizes: 2M is not within 1..1048576"},
    {"--sizes", "4K,8K,4096", "tool: --sizes: 4096 is given twice"},
    {"--sizes", "1,2,3,4,5,6,7,8,9", "tool: --sizes: more than 8 sizes"},
    {"--real", "-1", "tool: --real: \"-1\" is not a number of 0 or more"},
    {"--real", "nan", "tool: --real: \"nan\" is not a number of 0 or more"},
    {"--flag=1", NULL, "tool: --flag takes no value"},
    {"a", "b", "tool: unexpected argument \"b\""},
};

START_TEST(a_wrong_option_is_named)
{
    const char *words[] = {"tool", wrong[_i].word, wrong[_i].value, NULL};
    const char *positional[1];
    char       said[256];
    values_t   v;
    size_t     n;

    ck_assert_int_eq(parse(&v, words, positional, &n, said, sizeof(said)), CLI_BAD);
    ck_assert_msg(strncmp(said, wrong[_i].said, strlen(wrong[_i].said)) == 0, "%s", said);
    ck_assert_ptr_nonnull(strstr(said, "; see 'tool --help'\n"));
}
END_TEST

/* The ranks of a job share stderr: what is written at once stays together. */
START_TEST(an_error_is_written_at_once)
{
    const cli_spec_t spec = {"tool", "[options]", "About.", NULL, 0};
    const int        keep = dup(STDERR_FILENO);
    char             said[256];
    ssize_t          len;
    int              fds[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0); /* a record for each write */
    ck_assert_int_ge(dup2(fds[0], STDERR_FILENO), 0);
    (void)cli_error(&spec, "--%s is bad", "this");
    ck_assert_int_ge(dup2(keep, STDERR_FILENO), 0);
    len = recv(fds[1], said, sizeof(said) - 1, MSG_DONTWAIT);
    said[(len > 0) ? len : 0] = '\0';
    ck_assert_str_eq(said, "tool: --this is bad; see 'tool --help'\n");
    close(keep);
    close(fds[0]);
    close(fds[1]);
}
END_TEST

START_TEST(sizes_have_letters)
{
    uint64_t value = 0;

    ck_assert(cli_parse_size("17", &value) && (value == 17));
    ck_assert(cli_parse_size("4k", &value) && (value == 4096));
    ck_assert(cli_parse_size("2MB", &value) && (value == 2u << 20));
    ck_assert(cli_parse_size("1GiB", &value) && (value == 1u << 30));
    ck_assert(cli_parse_size("3T", &value) && (value == UINT64_C(3) << 40));
    ck_assert(!cli_parse_size("16777216T", &value));
    ck_assert(!cli_parse_size("1KK", &value));
    ck_assert(!cli_parse_size("K", &value));
    ck_assert(!cli_parse_size(" 1", &value));
}
END_TEST

static void near(double value, double wanted)
{
    ck_assert_msg(fabs(value - wanted) <= (0.016 * wanted) + 1, "%f, not %f", value, wanted);
}

START_TEST(percentiles_are_right_within_a_bucket)
{
    hist_t   *h = calloc(1, sizeof(*h));
    uint64_t i;

    ck_assert_ptr_nonnull(h);
    ck_assert(hist_quantile(h, 0.5) == 0);
    for (i = 1; i <= 100000; ++i) {
        hist_add(h, i * 10);
    }
    near(hist_quantile(h, 0.5), 500000);
    near(hist_quantile(h, 0.99), 990000);
    near(hist_quantile(h, 1), 1000000);
    free(h);
}
END_TEST

START_TEST(histograms_take_any_value_and_merge)
{
    hist_t *a = calloc(1, sizeof(*a)), *b = calloc(1, sizeof(*b));

    ck_assert(a && b);
    hist_add(a, 0);
    hist_add(a, 63);
    hist_add(b, UINT64_MAX);
    hist_add(b, 64);
    hist_merge(a, b);
    ck_assert_uint_eq(a->count, 4);
    ck_assert(hist_quantile(a, 0.01) < 1.1);
    near(hist_quantile(a, 1), (double)(UINT64_C(1) << HIST_MAX_BITS));
    free(a);
    free(b);
}
END_TEST

START_TEST(json_is_quoted_and_has_no_nan)
{
    char       text[256] = "";
    FILE       *file     = fmemopen(text, sizeof(text), "w");
    json_out_t json;

    ck_assert_ptr_nonnull(file);
    json_begin(&json, file);
    json_string(&json, "s", "a\"b\\c\nd");
    json_count(&json, "n", UINT64_MAX);
    json_real(&json, "r", 1.25, 1);
    json_real(&json, "x", NAN, 1);
    json_end(&json);
    fclose(file);
    ck_assert_str_eq(text, "{\"s\": \"a\\\"b\\\\c\\u000ad\", \"n\": 18446744073709551615, \"r\": 1.2, \"x\": null}\n");
}
END_TEST

START_TEST(json_nests_and_is_always_utf8)
{
    char       text[512] = "";
    FILE       *file     = fmemopen(text, sizeof(text), "w");
    json_out_t json;

    ck_assert_ptr_nonnull(file);
    json_begin(&json, file);
    json_open(&json, "a", '[');
    json_open(&json, NULL, '{');
    json_null(&json, "n");
    json_close(&json, '}');
    json_open(&json, NULL, '[');
    json_close(&json, ']');
    json_bool(&json, NULL, true);
    json_close(&json, ']');
    json_string(&json, "good", "\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80");
    json_string(&json, "stray", "\x80\xff");
    json_string(&json, "overlong", "\xc0\x80\xe0\x80\x80");
    json_string(&json, "surrogate", "\xed\xa0\x80");
    json_string(&json, "cut", "\xe2\x82");
    json_end(&json);
    fclose(file);
    ck_assert_str_eq(text, "{\"a\": [{\"n\": null}, [], true], "
                           "\"good\": \"\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80\", \"stray\": \"\\ufffd\\ufffd\", "
                           "\"overlong\": \"\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\", "
                           "\"surrogate\": \"\\ufffd\\ufffd\\ufffd\", \"cut\": \"\\ufffd\\ufffd\"}\n");
}
END_TEST

START_TEST(labels_of_metrics_are_escaped)
{
    char   value[KVCL_METRIC_VALUE_MAX], longest[KVCL_METRIC_VALUE_MAX * 2], text[256] = "";
    FILE   *file = fmemopen(text, sizeof(text), "w");
    size_t i;

    ck_assert_str_eq(kvcl_metric_value(value, "a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    memset(longest, '"', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    kvcl_metric_value(value, longest);
    ck_assert_uint_eq(strlen(value) % 2, 0); /* no escape is cut in two */
    for (i = 0; value[i] != '\0'; ++i) {
        ck_assert_int_eq(value[i], ((i % 2) == 0) ? '\\' : '"');
    }
    ck_assert_ptr_nonnull(file);
    kvcl_metric_family(file, "x_total", "counter", "What it is.");
    kvcl_metric_count(file, "x_total", 7, "rank=\"%d\"", 3);
    fclose(file);
    ck_assert_str_eq(text, "# HELP x_total What it is.\n# TYPE x_total counter\nx_total{rank=\"3\"} 7\n");
}
END_TEST

START_TEST(the_line_of_the_build_is_taken_apart)
{
    const char line[] = "kvcl 0.1.0, wire version 12; ucx 1.13.1; boot auto, pmix, ucx; debug; device memory: cuda";
    char       part[24];

    ck_assert(build_part(line, "kvcl", part, sizeof(part)));
    ck_assert_str_eq(part, "0.1.0");
    ck_assert(build_part(line, "wire version", part, sizeof(part)));
    ck_assert_str_eq(part, "12");
    ck_assert(build_part(line, "ucx", part, sizeof(part)));
    ck_assert_str_eq(part, "1.13.1");
    ck_assert(build_part(line, "boot", part, sizeof(part)));
    ck_assert_str_eq(part, "auto, pmix, ucx");
    ck_assert(build_part(line, "device memory", part, sizeof(part)));
    ck_assert_str_eq(part, "cuda");
    ck_assert(!build_part(line, "version", part, sizeof(part))); /* not the beginning of a part */
    ck_assert(!build_part(line, "debug", part, sizeof(part)));   /* nothing follows */
    ck_assert_str_eq(part, "");
    ck_assert(build_part(line, "boot", part, 5));
    ck_assert_str_eq(part, "auto");
}
END_TEST

START_TEST(a_pattern_is_checked_to_the_byte)
{
    uint8_t seed[32], other[32];
    uint8_t buf[1000];
    size_t  len, at;

    pattern_seed(1, 2, seed);
    pattern_seed(1, 3, other);
    for (len = 0; len <= sizeof(buf); len += 37) {
        pattern_fill(seed, buf, len);
        ck_assert_uint_eq(pattern_check(seed, buf, len), PATTERN_GOOD);
        for (at = 0; at < len; at += 11) {
            buf[at] ^= 1;
            ck_assert_uint_eq(pattern_check(seed, buf, len), at);
            buf[at] ^= 1;
        }
    }
    pattern_fill(seed, buf, sizeof(buf));
    ck_assert_uint_lt(pattern_check(other, buf, sizeof(buf)), 8);
    ck_assert_uint_lt(pattern_check(seed, buf + 32, sizeof(buf) - 32), 8); /* shifted */
}
END_TEST

static const struct {
    const char *get_path, *put_path, *why, *put_why, *text;
    size_t     cap;
} memories[] = {
    {"mapped", "mapped", "", "", "mapped", MEMORY_TEXT_MAX},
    {"mapped", "", "", "", "mapped", MEMORY_TEXT_MAX},
    {"native", "native", "rdma", "rdma", "native (rdma)", MEMORY_TEXT_MAX},
    {"native", "served", "cma", "", "native (cma), puts served", MEMORY_TEXT_MAX},
    {"native", "served", "cma", "100% of it", "native (cma), puts served: 100% of it", MEMORY_TEXT_MAX},
    {"served", "served", "100% of it", "100% of it", "served: 100% of it", MEMORY_TEXT_MAX},
    {"served", "native", "why", "rdma", "served: why, puts native", MEMORY_TEXT_MAX},
    {"native", "served", "cma", "why", "native (cma", 12},
    {"native", "served", "cma", "why", "native (cma), p", 16},
    {"native", "served", "cma", "why", "native (cma), puts served: w", 29},
};

START_TEST(a_memory_has_its_words)
{
    const kvcl_memory_info_t info = {.size = sizeof(info), .get_path = memories[_i].get_path,
                                     .put_path = memories[_i].put_path, .why = memories[_i].why,
                                     .put_why = memories[_i].put_why};
    char                     text[MEMORY_TEXT_MAX];

    memory_text(&info, text, memories[_i].cap);
    ck_assert_str_eq(text, memories[_i].text);
}
END_TEST

static const struct {
    const char *cpuinfo, *text;
} processors[] = {
    {"processor\t: 0\nmodel\t\t: 167\nmodel name\t: A Processor\n\nmodel\t\t: 9\n",
     "A Processor, model 167"},
    {"model name\t: A Processor\n", "A Processor"},
    {"model name\t:\n", "other"},
    {"model\t\t: 167\n", "other"},
    {"model names\t: A\nmodel name", "other"},
    {"", "other"},
};

START_TEST(a_processor_has_its_name)
{
    char text[64];
    FILE *file = tmpfile();

    ck_assert_ptr_nonnull(file);
    fputs(processors[_i].cpuinfo, file);
    rewind(file);
    machine_processor_of(file, "other", text, sizeof(text));
    ck_assert_str_eq(text, processors[_i].text);
    fclose(file);
    machine_processor_of(NULL, "other", text, sizeof(text));
    ck_assert_str_eq(text, "other");
}
END_TEST

static const struct {
    const char         *test;
    bool               mapped, bound;
    uint64_t           run, bytes;
    perf_beside_what_t beside;
    double             ratio;
} asked[] = {
    {"get", true, true, 1024, 256 << 20, PERF_BESIDE_MEMCPY, 1.6},
    {"get", true, false, 1024, 256 << 20, PERF_BESIDE_MEMCPY2, 1.7},
    {"get", true, true, 4096, 320 << 20, PERF_BESIDE_MEMCPY, 1.5},
    {"get", true, false, 73728, 512 << 20, PERF_BESIDE_MEMCPY2, 1.6},
    {"get", true, true, 1 << 30, 1 << 30, PERF_BESIDE_MEMCPY, 1.0},
    {"get", true, true, 65536, 4 << 20, PERF_BESIDE_UCX, 0.95},
    {"get", true, true, 4096, 4096, PERF_BESIDE_UCX, 0},
    {"get", false, true, 4096, 320 << 20, PERF_BESIDE_FRAMES, 1.25},
    {"get", false, true, 1 << 20, 1 << 20, PERF_BESIDE_UCX, 0.9},
    {"store-get", true, true, 4096, 4 << 20, PERF_BESIDE_MEMCPY, 1.2},
    {"store-get", true, true, 32768, 32 << 20, PERF_BESIDE_MEMCPY, 1.4},
    {"store-get", true, false, 32768, 32 << 20, PERF_BESIDE_MEMCPY, 0},
    {"put", true, true, 4096, 320 << 20, PERF_BESIDE_UCX, 0},
};

START_TEST(a_ratio_is_asked)
{
    const perf_asked_t row = perf_asked(asked[_i].test, asked[_i].mapped, asked[_i].bound, asked[_i].run,
                                        asked[_i].bytes);

    ck_assert_int_eq(row.beside, asked[_i].beside);
    ck_assert_double_eq(row.ratio, asked[_i].ratio);
}
END_TEST

/* Of 6 ranks: how many each one moves with, and how many move with it. */
static const struct {
    const char  *name;
    flow_kind_t kind;
    size_t      out[6];
    size_t      in[6];
} kinds[] = {
    {"pairs", FLOW_PAIRS, {1, 0, 1, 0, 1, 0}, {0, 1, 0, 1, 0, 1}},
    {"incast", FLOW_INCAST, {0, 1, 1, 1, 1, 1}, {5, 0, 0, 0, 0, 0}},
    {"all", FLOW_ALL, {5, 5, 5, 5, 5, 5}, {5, 5, 5, 5, 5, 5}},
};

/* The ranks that move with one have the places 0, 1, 2, ... there: no two share a place. */
START_TEST(a_pattern_names_its_ranks)
{
    flow_kind_t kind = FLOW_NONE;
    size_t      out[6] = {0}, in[6] = {0};
    int         from, to;

    ck_assert(flow_kind_named(kinds[_i].name, &kind));
    ck_assert_int_eq(kind, kinds[_i].kind);
    ck_assert_str_eq(flow_kind_name(kind), kinds[_i].name);
    for (to = 0; to < 6; ++to) {
        for (from = 0; from < 6; ++from) {
            if (flow_kind_initiates(kind, from, to)) {
                ck_assert_int_ne(from, to);
                ck_assert_uint_eq(flow_kind_place(kind, from, to), in[to]++);
                ++out[from];
            }
        }
    }
    ck_assert_mem_eq(out, kinds[_i].out, sizeof(out));
    ck_assert_mem_eq(in, kinds[_i].in, sizeof(in));
}
END_TEST

START_TEST(a_pattern_refuses_numbers_of_ranks)
{
    flow_kind_t kind = FLOW_INCAST;

    ck_assert(!flow_kind_named("none", &kind));
    ck_assert(!flow_kind_named("", &kind));
    ck_assert_int_eq(kind, FLOW_INCAST);
    ck_assert_ptr_nonnull(flow_kind_refuses(FLOW_ALL, 1));
    ck_assert_ptr_nonnull(flow_kind_refuses(FLOW_PAIRS, 1));
    ck_assert_ptr_nonnull(flow_kind_refuses(FLOW_PAIRS, 3));
    ck_assert_ptr_null(flow_kind_refuses(FLOW_PAIRS, 4));
    ck_assert_ptr_null(flow_kind_refuses(FLOW_INCAST, 3));
    ck_assert_ptr_null(flow_kind_refuses(FLOW_ALL, 2));
}
END_TEST

/* Accept one connection, and send a byte ten times a second, for a minute. */
static void drip(int listener)
{
    const struct timespec pause = {.tv_nsec = 100000000};
    int                   i, fd = accept(listener, NULL, NULL);

    for (i = 0; (i < 600) && (send(fd, "H", 1, MSG_NOSIGNAL) == 1); ++i) {
        nanosleep(&pause, NULL);
    }
    _exit(0);
}

START_TEST(a_server_that_sends_a_byte_now_and_then_is_given_up)
{
    static const token_t none;
    struct sockaddr_in   at       = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t            len      = sizeof(at);
    const int            listener = socket(AF_INET, SOCK_STREAM, 0);
    char                 where[64], why[400] = "", *body;
    pid_t                child;

    ck_assert_int_eq(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        drip(listener);
    }
    snprintf(where, sizeof(where), "127.0.0.1:%u", (unsigned)ntohs(at.sin_port));
    ck_assert(!http_get(where, "/ranks", &none, 1, &body, why, sizeof(why)));
    kill(child, SIGKILL);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    ck_assert_msg(strstr(why, "no complete reply within the time limit") != NULL, "%s", why);
    close(listener);
}
END_TEST

typedef struct axis {
    double most;
    double end;
    double step;
} axis_t;

static const axis_t axes[] = {
    {0, 1, 0.2}, {0.66, 0.8, 0.2}, {1, 1, 0.2}, {1.01, 1.5, 0.5}, {5.7, 6, 2}, {19.7, 20, 5}, {25.3, 30, 10},
    {58, 60, 20}, {65.3, 80, 20}, {100, 100, 20}, {0.0031, 0.004, 0.001}, {3542, 4000, 1000},
};

START_TEST(an_axis_has_round_lines)
{
    const axis_t *a = &axes[_i];

    ck_assert_double_eq_tol(svg_axis_end(a->most), a->end, a->end * 1e-9);
    ck_assert_double_eq_tol(svg_axis_step(a->end), a->step, a->step * 1e-9);
    ck_assert_int_eq(svg_axis_lines(a->end), (int)lround(a->end / a->step));
}
END_TEST

/* However an end was rounded, the axis ends at a line, and the lines are three to five. */
START_TEST(an_axis_ends_at_a_line)
{
    double most, end, lines;

    for (most = 1e-6; most < 1e6; most *= 1.0007) {
        end   = svg_axis_end(most);
        lines = end / svg_axis_step(end);
        ck_assert_double_ge(end, most);
        ck_assert_double_eq_tol(lines, round(lines), 1e-6);
        ck_assert_msg((lines > 2.5) && (lines < 5.5), "%g lines up to %g, for %g", lines, end, most);
    }
}
END_TEST

int main(void)
{
    Suite   *suite  = suite_create("tools_parts");
    TCase   *tcase  = tcase_create("parts");
    SRunner *runner = srunner_create(suite);
    int     failed;

    tcase_add_test(tcase, options_are_read_in_both_spellings);
    tcase_add_test(tcase, sizes_are_read_as_a_list);
    tcase_add_loop_test(tcase, a_wrong_option_is_named, 0, (int)(sizeof(wrong) / sizeof(wrong[0])));
    tcase_add_test(tcase, sizes_have_letters);
    tcase_add_test(tcase, an_error_is_written_at_once);
    tcase_add_test(tcase, percentiles_are_right_within_a_bucket);
    tcase_add_test(tcase, histograms_take_any_value_and_merge);
    tcase_add_test(tcase, json_is_quoted_and_has_no_nan);
    tcase_add_test(tcase, json_nests_and_is_always_utf8);
    tcase_add_test(tcase, labels_of_metrics_are_escaped);
    tcase_add_test(tcase, the_line_of_the_build_is_taken_apart);
    tcase_add_test(tcase, a_pattern_is_checked_to_the_byte);
    tcase_add_loop_test(tcase, a_memory_has_its_words, 0, (int)(sizeof(memories) / sizeof(memories[0])));
    tcase_add_loop_test(tcase, a_processor_has_its_name, 0, (int)(sizeof(processors) / sizeof(processors[0])));
    tcase_add_loop_test(tcase, a_ratio_is_asked, 0, (int)(sizeof(asked) / sizeof(asked[0])));
    tcase_add_loop_test(tcase, a_pattern_names_its_ranks, 0, (int)(sizeof(kinds) / sizeof(kinds[0])));
    tcase_add_test(tcase, a_pattern_refuses_numbers_of_ranks);
    tcase_add_test(tcase, a_server_that_sends_a_byte_now_and_then_is_given_up);
    tcase_add_loop_test(tcase, an_axis_has_round_lines, 0, (int)(sizeof(axes) / sizeof(axes[0])));
    tcase_add_test(tcase, an_axis_ends_at_a_line);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
