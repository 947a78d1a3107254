/*
 * Owns kvcl_perf's command line and the checks between its options.
 */
#include "config.h"
#include "tools/perf/perf.h"

#include <stdio.h>
#include <string.h>

#define THREADS_MAX     64u
#define COUNT_MAX       (UINT64_C(1) << 30)
#define MEMORY_MAX      (UINT64_C(1) << 42)
#define DEFAULT_BATCH   64u

static const char about[] =
    "Measure one operation between two ranks and, with --floor, raw UCX and a memcpy of the same bytes.\n"
    "Run it under mpirun or srun with 2 ranks (bcast, allreduce, --pattern: 2 or more; 1: itself); copy needs none.\n"
    "TEST is one of send put get lookup match store-get store-put store-keys bcast allreduce copy.";

/* "send put get ...": all, or those that have patterns. */
static const char *list_tests(bool patterns, char *buf, size_t cap)
{
    size_t used = 0, i;

    buf[0] = '\0';
    for (i = 0; (i < perf_n_tests) && (used + 1 < cap); ++i) {
        if (!patterns || (perf_tests[i].flow != NULL)) {
            used += (size_t)snprintf(buf + used, cap - used, "%s%s", (used == 0) ? "" : " ", perf_tests[i].name);
        }
    }
    return buf;
}

static cli_result_t find_test(const cli_spec_t *spec, const char *name, const perf_test_t **test_p)
{
    char   all[256];
    size_t i;

    for (i = 0; i < perf_n_tests; ++i) {
        if (strcmp(perf_tests[i].name, name) == 0) {
            *test_p = &perf_tests[i];
            return CLI_GO;
        }
    }
    return cli_error(spec, "no such test: \"%s\"; the tests are %s", name, list_tests(false, all, sizeof(all)));
}

static void settle_batch(perf_options_t *opt, const perf_test_t *test)
{
    const uint64_t share = opt->count / opt->threads;

    if (test->batched) {
        opt->batch = (opt->batch != 0) ? opt->batch : DEFAULT_BATCH;
        opt->batch = (opt->batch < share) ? opt->batch : share;
    } else if (opt->batch >= share) {
        opt->batch = 0; /* all of them */
    }
}

perf_options_t perf_options_at(const perf_options_t *opt, const perf_test_t *test, size_t i)
{
    perf_options_t each = *opt;

    if (opt->sweep.n > 0) {
        each.unit  = opt->sweep.sizes[i];
        each.count = (opt->unit * opt->count) / each.unit;
        each.count = (each.count > 0) ? each.count : 1;
    }
    settle_batch(&each, test);
    return each;
}

/* Each size leaves a block for each thread. */
static cli_result_t check_sweep(const cli_spec_t *spec, const perf_options_t *opt, const perf_test_t *test)
{
    size_t i;

    if ((opt->sweep.n > 0) && !test->bytes) {
        return cli_error(spec, "--sweep: %s moves no blocks", test->name);
    }
    for (i = 0; i < opt->sweep.n; ++i) {
        const uint64_t size = opt->sweep.sizes[i], count = perf_options_at(opt, test, i).count;

        if (count > COUNT_MAX) {
            return cli_error(spec, "--sweep: more than %llu blocks of %llu bytes; use a larger size or a smaller "
                             "--unit or --count", (unsigned long long)COUNT_MAX, (unsigned long long)size);
        }
        if (opt->threads > count) {
            return cli_error(spec, "--threads: more than the %llu blocks of %llu bytes; use fewer threads or a larger "
                             "--count", (unsigned long long)count, (unsigned long long)size);
        }
    }
    return CLI_GO;
}

/* A test without ranks: of the options it has --unit, --iters, --json and --plot. */
static cli_result_t settle_alone(const cli_spec_t *spec, const perf_options_t *opt, const perf_test_t *test,
                                 const char *order)
{
    if ((opt->count != 0) || (opt->threads != 1) || (opt->batch != 0) || opt->apart || opt->verify || opt->floor ||
        opt->cold || (opt->beside != 0) || opt->unsummed || (opt->sweep.n != 0) || (strcmp(order, "seq") != 0)) {
        return cli_error(spec, "%s takes --unit, --iters, --json and --plot only", test->name);
    }
    if (opt->unit > PERF_COPY_UNIT_MAX) {
        return cli_error(spec, "--unit: %s copies pieces of at most 16M", test->name);
    }
    return CLI_GO;
}

static cli_result_t settle(const cli_spec_t *spec, perf_options_t *opt, const perf_test_t *test, const char *order)
{
    if (test->alone != NULL) {
        return settle_alone(spec, opt, test, order);
    }
    if (opt->plot != NULL) {
        return cli_error(spec, "--plot: only copy draws a picture");
    }
    opt->unit  = (opt->unit != 0) ? opt->unit : test->unit;
    opt->count = (opt->count != 0) ? opt->count : test->count;
    if (strcmp(order, "random") == 0) {
        opt->random = true;
    } else if (strcmp(order, "seq") != 0) {
        return cli_error(spec, "--order: \"%s\" is neither seq nor random", order);
    }
    if (opt->count > MEMORY_MAX / opt->unit) {
        return cli_error(spec, "--unit times --count is more than 4 TiB");
    }
    if (opt->threads > opt->count) {
        return cli_error(spec, "--threads: more than the %llu blocks; use fewer threads or more blocks",
                         (unsigned long long)opt->count);
    }
    if ((opt->threads > 1) && ((test->drive != NULL) || (strcmp(test->name, "send") == 0))) {
        return cli_error(spec, "--threads: %s runs with one thread only", test->name);
    }
    if ((opt->beside != 0) && (strcmp(test->name, "get") != 0) && (strcmp(test->name, "put") != 0)) {
        return cli_error(spec, "--beside: only get and put can run during a bulk transfer");
    }
    if (opt->cold && (test->drive != NULL)) {
        return cli_error(spec, "--cold: %s cannot time its first iteration separately", test->name);
    }
    if (opt->unsummed && !test->store) {
        return cli_error(spec, "--no-checksum: %s uses no checksums", test->name);
    }
    if (opt->apart && (strcmp(test->name, "store-get") != 0)) {
        return cli_error(spec, "--apart is for store-get only; %s has no gets by key", test->name);
    }
    if ((opt->batch != 0) && !test->batched && !test->parts) {
        return cli_error(spec, "--batch: %s moves all of its blocks at once", test->name);
    }
    return check_sweep(spec, opt, test);
}

/* With a pattern every rank does one operation towards each of its targets at a time, with all blocks. */
static cli_result_t settle_pattern(const cli_spec_t *spec, perf_options_t *opt, const perf_test_t *test,
                                   const char *name)
{
    char all[256];

    if (name == NULL) {
        return CLI_GO;
    }
    if (!flow_kind_named(name, &opt->pattern)) {
        return cli_error(spec, "--pattern: \"%s\" is none of pairs, incast and all", name);
    }
    if (test->flow == NULL) {
        return cli_error(spec, "--pattern: %s has none; the tests with patterns are %s", test->name,
                         list_tests(true, all, sizeof(all)));
    }
    if ((opt->threads != 1) || (opt->batch != 0) || opt->apart || opt->cold || (opt->beside != 0)) {
        return cli_error(spec, "--pattern does not go with --threads, --batch, --apart, --cold or --beside; leave "
                         "them out");
    }
    return CLI_GO;
}

cli_result_t perf_options_parse(perf_options_t *opt, int argc, char **argv, const perf_test_t **test_p)
{
    char       all[256];
    const char *order   = "seq";
    const char *pattern = NULL;
    const char *name    = NULL;
    const cli_option_t table[] = {
        {"unit", CLI_SIZE, &opt->unit, "BYTES", "of one block (default 64K; bcast, allreduce 1M; key tests 64)",
         1, 0xffffffffu},
        {"count", CLI_SIZE, &opt->count, "N", "blocks, or keys (default 64; lookup 64K; match 128; store-keys 1M)", 1,
         COUNT_MAX},
        {"order", CLI_STRING, &order, "seq|random", "of the blocks, on both sides (default seq)", 0, 0},
        {"iters", CLI_COUNT, &opt->iters, "I", "iterations (default: about a second)", 1, 0},
        {"threads", CLI_COUNT, &opt->threads, "T", "that issue operations, each on its share (default 1)", 1,
         THREADS_MAX},
        {"batch", CLI_COUNT, &opt->batch, "N", "keys of one lookup (default 64), store-get or store-put (default: all)",
         1, COUNT_MAX},
        {"apart", CLI_FLAG, &opt->apart, NULL, "store-get: one get for each key of a batch, all posted at once",
         0, 0},
        {"verify", CLI_FLAG, &opt->verify, NULL, "write new bytes before every iteration and check them all", 0, 0},
        {"floor", CLI_FLAG, &opt->floor, NULL, "also measure raw UCX (not over RDMA) and memcpy, alternating", 0, 0},
        {"cold", CLI_FLAG, &opt->cold, NULL, "time the very first and the second iteration separately", 0, 0},
        {"beside", CLI_SIZE, &opt->beside, "BYTES", "get, put: run a background get of BYTES at the same time",
         PERF_BESIDE_BLOCK, MEMORY_MAX},
        {"no-checksum", CLI_FLAG, &opt->unsummed, NULL, "open the store without checksums", 0, 0},
        {"pattern", CLI_STRING, &pattern, "PATTERN", "pairs, incast or all: many ranks at the same time", 0, 0},
        {"sweep", CLI_SIZES, &opt->sweep, "SIZES", "measure blocks of each size in turn, such as 1K,4K,32K",
         1, 0xffffffffu},
        {"plot", CLI_STRING, &opt->plot, "FILE", "copy: write an SVG picture", 0, 0},
        {"json", CLI_FLAG, &opt->json, NULL, "print one JSON object", 0, 0},
    };
    const cli_spec_t spec = {"kvcl_perf", "TEST [options]", about, table, sizeof(table) / sizeof(table[0])};
    cli_result_t     result;
    size_t           n;

    memset(opt, 0, sizeof(*opt));
    opt->threads = 1;
    result       = cli_parse(&spec, argc, argv, &name, 1, &n);
    if (result == CLI_GO) {
        result = (n == 1) ? find_test(&spec, name, test_p)
                          : cli_error(&spec, "name one test of %s", list_tests(false, all, sizeof(all)));
    }
    opt->test = name;
    result    = (result == CLI_GO) ? settle(&spec, opt, *test_p, order) : result;
    return (result == CLI_GO) ? settle_pattern(&spec, opt, *test_p, pattern) : result;
}
