/*
 * policies: hit ratios of eviction policies over a trace of prefix-chained blocks; the library's own is
 * src/policy/evict.c itself. Owns the options, the table and the verdict.
 *
 *   policies [options] [TRACE...]        TRACE as kvcl_replay reads it; without one, a generated trace
 *
 * One pool serves one request after the other, each to its end before the next. A hit is a block of the longest leading
 * run that is held ("run", the count of kvcl_store_match), or a held block at any position ("block").
 */
#include "config.h"
#include "chains.h"

#include "tools/cli.h"
#include "tools/replay/generate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZES_MAX = 16, TRACES_MAX = 16, POLICIES_MAX = 32, EXIT_SHORT = 1, EXIT_USAGE = 2 };

typedef struct options {
    const char *pools;  /* percents of the distinct blocks */
    const char *only;   /* names of policies; kvcl and lru are always included */
    bool       tsv;
    bool       check;
    bool       papers;
    uint64_t   requests; /* of the generated trace */
    uint64_t   seed;
    const char *traces[TRACES_MAX];
    size_t     n_traces;
    unsigned   percent[SIZES_MAX];
    size_t     n_sizes;
} options_t;

typedef struct table {
    uint32_t  capacity[SIZES_MAX];
    outcome_t cell[POLICIES_MAX][SIZES_MAX];
    bool      there[POLICIES_MAX];
} table_t;

static bool read_percents(options_t *opt)
{
    const char *at = opt->pools;
    char       *end;

    for (opt->n_sizes = 0; opt->n_sizes < SIZES_MAX; at = end + 1) {
        const unsigned long percent = strtoul(at, &end, 10);
        if ((end == at) || (percent == 0) || (percent > 100)) {
            return false;
        }
        opt->percent[opt->n_sizes++] = (unsigned)percent;
        if (*end != ',') {
            return *end == '\0';
        }
    }
    return false;
}

static cli_result_t parse(options_t *opt, int argc, char **argv)
{
    const cli_option_t table[] = {
        {"pool", CLI_STRING, &opt->pools, "LIST", "pools, in percent of the distinct blocks (10,25,50)", 0, 0},
        {"only", CLI_STRING, &opt->only, "LIST", "these policies, beside kvcl and lru; by name, with commas", 0, 0},
        {"tsv", CLI_FLAG, &opt->tsv, NULL, "one line a policy and pool, with tabs, and nothing else", 0, 0},
        {"check", CLI_FLAG, &opt->check, NULL, "exit 1 if kvcl has less than lru, or 97% of the best", 0, 0},
        {"papers", CLI_FLAG, &opt->papers, NULL, "list the policies and where they are from, and exit", 0, 0},
        {"requests", CLI_COUNT, &opt->requests, "N", "of a generated trace (2000)", 1, 10000000},
        {"seed", CLI_COUNT, &opt->seed, "N", "of a generated trace (1)", 0, 0},
    };
    const cli_spec_t spec = {"policies", "[options] [TRACE...]",
                             "Simulate eviction policies over traces of prefix-chained blocks (one JSON object a\n"
                             "line, with hash_ids), or over a generated one. 'run' counts blocks of the longest\n"
                             "leading run that is held, 'block' all that are held; 'orphans' are blocks that went\n"
                             "while one that follows them was held.",
                             table, sizeof(table) / sizeof(table[0])};
    cli_result_t     result;

    *opt   = (options_t){.pools = "10,25,50", .requests = 2000, .seed = 1};
    result = cli_parse(&spec, argc, argv, opt->traces, TRACES_MAX, &opt->n_traces);
    if ((result == CLI_GO) && !read_percents(opt)) {
        result = cli_error(&spec, "--pool: \"%s\" is not a list of percents", opt->pools);
    }
    return result;
}

static bool is_wanted(const options_t *opt, const policy_t *policy)
{
    const size_t len = strlen(policy->name);
    const char   *at = opt->only;

    if ((at == NULL) || (policy == &policy_kvcl) || (policy == &policy_lru)) {
        return true;
    }
    for (; (at = strstr(at, policy->name)) != NULL; ++at) {
        if (((at == opt->only) || (at[-1] == ',')) && ((at[len] == ',') || (at[len] == '\0'))) {
            return true;
        }
    }
    return false;
}

static bool fill(const options_t *opt, const chains_t *chains, table_t *table)
{
    size_t p, s;

    memset(table, 0, sizeof(*table));
    for (s = 0; s < opt->n_sizes; ++s) {
        table->capacity[s] = (uint32_t)(((uint64_t)chains->n_keys * opt->percent[s]) / 100);
        table->capacity[s] = (table->capacity[s] == 0) ? 1 : table->capacity[s];
    }
    for (p = 0; p < n_policies; ++p) {
        table->there[p] = is_wanted(opt, policies[p]);
        for (s = 0; table->there[p] && (s < opt->n_sizes); ++s) {
            if (!chains_run(chains, policies[p], table->capacity[s], &table->cell[p][s])) {
                fprintf(stderr, "policies: out of memory\n");
                return false;
            }
        }
    }
    return true;
}

/* ---- output ---- */

static double percent_of(uint64_t part, uint64_t all)
{
    return (all == 0) ? 0 : (100.0 * (double)part) / (double)all;
}

static void print_tsv(const options_t *opt, const char *name, const chains_t *chains, const table_t *table)
{
    size_t p, s;

    for (p = 0; p < n_policies; ++p) {
        for (s = 0; table->there[p] && (s < opt->n_sizes); ++s) {
            const outcome_t *cell = &table->cell[p][s];
            printf("%s\t%u\t%" PRIu32 "\t%s\t%" PRIu32 "\t%" PRIu32 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64
                   "\n", name, opt->percent[s], table->capacity[s], policies[p]->name, chains->n_requests,
                   chains->n_ids, cell->run_hits, cell->block_hits, cell->evicted, cell->orphans);
        }
    }
}

static void print_table(const options_t *opt, const char *name, const chains_t *chains, const table_t *table)
{
    size_t p, s;

    printf("%s: %" PRIu32 " requests, %" PRIu32 " blocks, %" PRIu32 " of them distinct\n\n%-12s", name,
           chains->n_requests, chains->n_ids, chains->n_keys, "pool");
    for (s = 0; s < opt->n_sizes; ++s) {
        printf("  %3u%%: %-9" PRIu32 "             ", opt->percent[s], table->capacity[s]);
    }
    printf("\n%-12s", "");
    for (s = 0; s < opt->n_sizes; ++s) {
        printf("  %6s %6s %-13s", "run", "block", "orphans");
    }
    printf("\n");
    for (p = 0; p < n_policies; ++p) {
        if (!table->there[p]) {
            continue;
        }
        printf("%-12s", policies[p]->name);
        for (s = 0; s < opt->n_sizes; ++s) {
            const outcome_t *cell = &table->cell[p][s];
            printf("  %6.2f %6.2f %-13" PRIu64, percent_of(cell->run_hits, chains->n_ids),
                   percent_of(cell->block_hits, chains->n_ids), cell->orphans);
        }
        printf("\n");
    }
}

/* ---- the verdict ---- */

static uint64_t hits(const outcome_t *cell, bool run)
{
    return run ? cell->run_hits : cell->block_hits;
}

/* The best online policy other than kvcl; lru is always present. */
static size_t best_online(const table_t *table, size_t s, bool run)
{
    size_t p, best = SIZE_MAX;

    for (p = 0; p < n_policies; ++p) {
        if (table->there[p] && !policies[p]->offline && (policies[p] != &policy_kvcl) &&
            ((best == SIZE_MAX) || (hits(&table->cell[p][s], run) > hits(&table->cell[best][s], run)))) {
            best = p;
        }
    }
    return best;
}

static size_t index_of(const policy_t *policy)
{
    size_t p = 0;

    while (policies[p] != policy) {
        ++p;
    }
    return p;
}

/* Compare kvcl with LRU and the best, for one pool. */
static bool judge(const options_t *opt, const table_t *table, size_t s, bool run)
{
    const size_t   best  = best_online(table, s, run);
    const uint64_t ours  = hits(&table->cell[index_of(&policy_kvcl)][s], run);
    const uint64_t lru   = hits(&table->cell[index_of(&policy_lru)][s], run);
    const uint64_t most  = hits(&table->cell[best][s], run);
    const bool     holds = (ours >= lru) && (ours * 100 >= most * 97);

    if (!opt->tsv) {
        printf("%3u%% %-5s  kvcl %.4f of lru, %.4f of the best online (%s)%s\n", opt->percent[s], run ? "run" : "block",
               (lru == 0) ? 1.0 : (double)ours / (double)lru, (most == 0) ? 1.0 : (double)ours / (double)most,
               policies[best]->name, holds ? "" : ": SHORT");
    }
    return holds;
}

static bool judge_all(const options_t *opt, const table_t *table)
{
    bool   holds = true;
    size_t s;

    for (s = 0; s < opt->n_sizes; ++s) {
        holds = judge(opt, table, s, true) && holds;
        holds = judge(opt, table, s, false) && holds;
    }
    return holds;
}

/* ---- main ---- */

static bool load(const options_t *opt, const char *path, trace_t *trace)
{
    trace_init(trace);
    if (path != NULL) {
        return trace_load(trace, path, false, stderr);
    }
    return trace_generate(trace, opt->requests, opt->seed);
}

/* @return EXIT_*: 0, or the failure. */
static int one_trace(const options_t *opt, const char *path)
{
    const char *name  = (path == NULL) ? "generated" : (strrchr(path, '/') != NULL) ? strrchr(path, '/') + 1 : path;
    chains_t   chains = {.n_ids = 0};
    trace_t    trace;
    table_t    table;
    int        result = EXIT_USAGE;

    if (load(opt, path, &trace) && chains_make(&chains, &trace) && fill(opt, &chains, &table)) {
        if (opt->tsv) {
            print_tsv(opt, name, &chains, &table);
        } else {
            print_table(opt, name, &chains, &table);
            printf("\n");
        }
        result = (judge_all(opt, &table) || !opt->check) ? 0 : EXIT_SHORT;
        if (!opt->tsv) {
            printf("\n");
        }
    }
    chains_free(&chains);
    trace_free(&trace);
    return result;
}

static void print_papers(void)
{
    size_t p;

    for (p = 0; p < n_policies; ++p) {
        printf("%-12s %s%s\n", policies[p]->name, policies[p]->paper,
               policies[p]->offline ? " (sees the trace: a bound)" : "");
    }
}

int main(int argc, char **argv)
{
    options_t    opt;
    cli_result_t parsed = parse(&opt, argc, argv);
    size_t       i;
    int          result, worst = 0;

    if (parsed != CLI_GO) {
        return (parsed == CLI_DONE) ? 0 : EXIT_USAGE;
    }
    if (opt.papers) {
        print_papers();
        return 0;
    }
    if (opt.tsv) {
        printf("trace\tpercent\tpool\tpolicy\trequests\tblocks\trun_hits\tblock_hits\tevicted\torphans\n");
    }
    if (opt.n_traces == 0) {
        return one_trace(&opt, NULL);
    }
    for (i = 0; i < opt.n_traces; ++i) {
        result = one_trace(&opt, opt.traces[i]);
        worst  = (result > worst) ? result : worst;
    }
    return worst;
}
