/*
 * kvcl_top: the blocks, pools and traffic of all ranks, refreshed. It requests the numbers of all ranks from one rank's
 * HTTP server (kvcl_serve --http), and shows them with the changes since the last request. Owns two lists of rows: the
 * current and the previous one.
 */
#include "config.h"
#include "tools/cli.h"
#include "tools/clock.h"
#include "tools/http_get.h"
#include "tools/stat_rows.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_USAGE = 2, TIMEOUT_S = 10, RANKS_MAX = 65536 };

typedef struct options {
    const char *where;
    double     interval;
    bool       once;
    bool       json;
    const char *token_file;
    token_t    token;
} options_t;

typedef struct row {
    int                rank;
    bool               alive;  /* stats are its */
    kvcl_rank_state_t  state;  /* as the server's rank knows it */
    kvcl_store_stats_t stats;
} row_t;

typedef struct table {
    row_t    *rows;
    size_t   n;
    uint64_t when_ns;
} table_t;

static cli_result_t parse(options_t *opt, int argc, char **argv)
{
    const cli_option_t table[] = {
        {"interval", CLI_REAL, &opt->interval, "SECONDS", "time between refreshes (default 1)", 0, 0},
        {"once", CLI_FLAG, &opt->once, NULL, "print one display and exit: totals, no rates", 0, 0},
        {"json", CLI_FLAG, &opt->json, NULL, "one JSON object per line for each rank: all numbers, as totals", 0, 0},
        {"token-file", CLI_STRING, &opt->token_file, "FILE", "the file (mode 0600) with the token of kvcl_serve "
         "--http-token-file", 0, 0},
    };
    const cli_spec_t spec = {"kvcl_top", "[options] HOST:PORT",
                             "Show the blocks, pools and traffic of all ranks of a store. HOST:PORT is the HTTP\n"
                             "server of any of its ranks (kvcl_serve --http), which queries the others.",
                             table, sizeof(table) / sizeof(table[0])};
    cli_result_t     result;
    size_t           n = 0;
    char             why[400];

    *opt   = (options_t){.interval = 1};
    result = cli_parse(&spec, argc, argv, &opt->where, 1, &n);
    if (result != CLI_GO) {
        return result;
    }
    if (n != 1) {
        return cli_error(&spec, "HOST:PORT is needed");
    }
    if (!http_where_valid(opt->where)) {
        return cli_error(&spec, "\"%s\" is not HOST:PORT with a port of 1 to 65535", opt->where);
    }
    if ((opt->token_file != NULL) && !token_read(opt->token_file, &opt->token, why, sizeof(why))) {
        return cli_error(&spec, "--token-file: %s", why);
    }
    return ((opt->interval < 0.05) || (opt->interval > 86400))
               ? cli_error(&spec, "--interval must be 0.05 to 86400 seconds")
               : CLI_GO;
}

/* Parse the lines of a body into rows; lines of another form are ignored. */
static bool read_rows(char *body, table_t *table)
{
    char   *line, *save = NULL;
    size_t lines = 1, i;

    for (i = 0; body[i] != '\0'; ++i) {
        lines += (body[i] == '\n') ? 1 : 0;
    }
    lines       = (lines < RANKS_MAX) ? lines : RANKS_MAX;
    table->rows = calloc(lines, sizeof(*table->rows));
    table->n    = 0;
    if (table->rows == NULL) {
        return false;
    }
    for (line = strtok_r(body, "\n", &save); (line != NULL) && (table->n < lines); line = strtok_r(NULL, "\n", &save)) {
        row_t *row = &table->rows[table->n];
        table->n += stat_read_json(line, &row->rank, &row->alive, &row->state, &row->stats) ? 1 : 0;
    }
    return true;
}

static const row_t *find(const table_t *table, int rank)
{
    size_t i;

    for (i = 0; i < table->n; ++i) {
        if (table->rows[i].rank == rank) {
            return &table->rows[i];
        }
    }
    return NULL;
}

/* ---- showing ---- */

static double percent(uint64_t part, uint64_t whole)
{
    return (whole != 0) ? 100.0 * (double)part / (double)whole : 0;
}

/* The change per second since the previous row; the total if there is none (or the rank has restarted). */
static double rate(uint64_t now, uint64_t before, double seconds)
{
    return (seconds > 0) ? ((now >= before) ? (double)(now - before) / seconds : 0) : (double)now;
}

static const char *state_of(const row_t *row)
{
    if (row->state == KVCL_RANK_FAILED) {
        return "failed";
    }
    if (!row->alive) {
        return "silent";
    }
    return (row->state == KVCL_RANK_SUSPECT)  ? "suspected"
           : (row->stats.draining != 0)       ? "drain"
           : (row->stats.nvme_state == 2)     ? "nvme!"
                                              : "alive";
}

/* p50/p99 in microseconds; "-": no call. */
static void show_latency(uint64_t p50_ns, uint64_t p99_ns)
{
    char text[48] = "-";

    if (p99_ns != 0) {
        snprintf(text, sizeof(text), "%.4g/%.4g", (double)p50_ns / 1e3, (double)p99_ns / 1e3);
    }
    printf(" %13s", text);
}

static void show_row(const row_t *row, const row_t *before, double seconds)
{
    static const kvcl_store_stats_t none;
    const kvcl_store_stats_t        *now = &row->stats, *was = (before != NULL) ? &before->stats : &none;
    uint64_t                        gets, hits;

    if (!row->alive) {
        printf("%5d %s\n", row->rank, state_of(row));
        return;
    }
    seconds = (before != NULL) ? seconds : 0;
    gets    = (seconds > 0) ? now->gets - was->gets : now->gets;
    hits    = (seconds > 0) ? now->hits - was->hits : now->hits;
    printf("%5d %-9s %9llu %9llu %5.1f %7llu %9llu %9.0f %5.1f %9.0f %8.0f %8.0f %8.1f %8.1f %8.1f %8.1f", row->rank,
           state_of(row), (unsigned long long)now->blocks, (unsigned long long)now->pool_blocks,
           percent(now->pool_published, now->pool_blocks), (unsigned long long)now->pinned,
           (unsigned long long)now->nvme_blocks, rate(now->gets, was->gets, seconds), percent(hits, gets),
           rate(now->published, was->published, seconds), rate(now->evicted, was->evicted, seconds),
           rate(now->copied + now->moved, was->copied + was->moved, seconds),
           rate(now->bytes_in, was->bytes_in, seconds) / 1e6, rate(now->bytes_out, was->bytes_out, seconds) / 1e6,
           rate(now->bytes_native, was->bytes_native, seconds) / 1e6,
           rate(now->bytes_served, was->bytes_served, seconds) / 1e6);
    show_latency(now->get_p50_ns, now->get_p99_ns);
    show_latency(now->put_p50_ns, now->put_p99_ns);
    show_latency(now->match_p50_ns, now->match_p99_ns);
    printf("\n");
}

static void show(const options_t *opt, const table_t *now, const table_t *before)
{
    double seconds = (before->n != 0) ? (double)(now->when_ns - before->when_ns) / 1e9 : 0;
    size_t i;

    if (!opt->once && isatty(STDOUT_FILENO)) {
        printf("\033[H\033[2J"); /* home, clear */
    }
    printf("%s: %zu rank%s%s\n", opt->where, now->n, (now->n == 1) ? "" : "s",
           (seconds > 0) ? ", counts a second" : ", totals");
    printf("%5s %-9s %9s %9s %5s %7s %9s %9s %5s %9s %8s %8s %8s %8s %8s %8s %13s %13s %13s\n", "rank", "state",
           "blocks", "pool", "used%", "pinned", "nvme", "gets", "hit%", "puts", "evicted", "moved", "MB in", "MB out",
           "MB nat", "MB srv", "get us", "put us", "match us");
    for (i = 0; i < now->n; ++i) {
        show_row(&now->rows[i], find(before, now->rows[i].rank), seconds);
    }
    fflush(stdout);
}

/* The value of the first sample of this metric, a number; -1: there is none. */
static long long metric(const char *body, const char *name)
{
    const size_t len = strlen(name);
    const char   *at, *value;

    for (at = strstr(body, name); at != NULL; at = strstr(at + len, name)) {
        if (((at == body) || (at[-1] == '\n')) && (at[len] == '{')) {
            value = strstr(at, "} ");
            return (value != NULL) ? strtoll(value + 2, NULL, 10) : -1;
        }
    }
    return -1;
}

/* The ranks whose sample of this metric has the value, at most NAMED_MAX of them, after a word. */
static void show_ranks(const char *body, const char *name, int wanted, const char *word)
{
    enum { NAMED_MAX = 16 };
    const char *at = body;
    int        of, value, n = 0;

    while ((n <= NAMED_MAX) && ((at = strstr(at, name)) != NULL)) {
        at += strlen(name);
        if ((sscanf(at, "{rank=\"%*d\",of=\"%d\"} %d", &of, &value) == 2) && (value == wanted)) {
            if (n == NAMED_MAX) {
                printf(" ...");
            } else {
                printf("%s %d", (n == 0) ? word : "", of);
            }
            ++n;
        }
    }
}

/* Of the rank that answers; nothing where it has no views. */
static void show_view(const options_t *opt)
{
    char *body, why[400];

    if (!http_get(opt->where, "/metrics", &opt->token, TIMEOUT_S, &body, why, sizeof(why))) {
        return; /* the table is all the same */
    }
    if (metric(body, "kvcl_view_number") > 0) {
        printf("view %lld: %lld of %lld ranks", metric(body, "kvcl_view_number"), metric(body, "kvcl_view_members"),
               metric(body, "kvcl_view_slots"));
        show_ranks(body, "\nkvcl_view_active", 0, ", not active:");
        printf(", %lld suspected", metric(body, "kvcl_view_suspected"));
        show_ranks(body, "\nkvcl_view_suspect", 1, ":");
        printf(", lease: %s, %lld changes, %lld false suspicions\n",
               (metric(body, "kvcl_view_lease") == 1) ? "yes" : "no", metric(body, "kvcl_view_changes_total"),
               metric(body, "kvcl_view_false_suspicions_total"));
        fflush(stdout);
    }
    free(body);
}

/* One refresh. False: the reason was printed to stderr. */
static bool look(const options_t *opt, table_t *before)
{
    table_t now = {.rows = NULL};
    char    *body, why[400];

    if (!http_get(opt->where, "/ranks", &opt->token, TIMEOUT_S, &body, why, sizeof(why))) {
        fprintf(stderr, "kvcl_top: %s\n", why);
        return false;
    }
    now.when_ns = clock_ns();
    if (opt->json) {
        fputs(body, stdout);
        fflush(stdout);
    } else if (read_rows(body, &now)) {
        show(opt, &now, before);
        show_view(opt);
        free(before->rows);
        *before = now;
    }
    free(body);
    return true;
}

int main(int argc, char **argv)
{
    table_t         before = {.rows = NULL};
    struct timespec nap;
    options_t       opt;
    bool            good;

    switch (parse(&opt, argc, argv)) {
    case CLI_DONE:
        return cli_finish("kvcl_top", EXIT_SUCCESS);
    case CLI_BAD:
        return EXIT_USAGE;
    case CLI_GO:
        break;
    }
    nap.tv_sec  = (time_t)opt.interval;
    nap.tv_nsec = (long)((opt.interval - (double)nap.tv_sec) * 1e9);
    good        = look(&opt, &before);
    while (good && !opt.once && !ferror(stdout)) {
        nanosleep(&nap, NULL);
        good = look(&opt, &before);
    }
    free(before.rows);
    return cli_finish("kvcl_top", good ? EXIT_SUCCESS : EXIT_FAILURE);
}
