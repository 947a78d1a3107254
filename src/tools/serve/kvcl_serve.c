/*
 * kvcl_serve: a rank that only provides memory and NVMe to its job's store. Owns the store and the HTTP server, in this
 * order; signals are blocked before any thread starts, and the first thread waits for them.
 *
 * SIGTERM or SIGINT: blocks that no other rank has move to ranks with room, then the store is closed.
 */
#include "config.h"
#include "metrics/metrics_context.h"
#include "metrics/metrics_store.h"
#include "tools/cli.h"
#include "tools/job.h"
#include "tools/serve/clients.h"
#include "tools/serve/serve_http.h"
#include "tools/stat_rows.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_USAGE 2
#define NS_PER_SEC UINT64_C(1000000000)

enum { REPLICAS = 2 };
enum { RANKS_REQUESTS = 4 }; /* of /ranks at a time: a silent rank holds each of them until its deadline */

typedef struct options {
    uint64_t    pool;
    cli_sizes_t blocks;
    uint64_t    replicas;
    uint64_t    entries;
    uint64_t    drain;
    const char  *join;
    const char  *nvme;
    bool        format;
    const char  *http;
    const char  *token_file;
    token_t     token;
    const char  *clients;
    uint64_t    client_buffer;
} options_t;

typedef struct server {
    job_t           job;
    kvcl_store_h    store;
    serve_http_t    *http;
    serve_clients_t *clients;
    atomic_bool     leaving;
    atomic_bool     closing; /* no more queries to other ranks */
    atomic_uint     querying; /* requests of /ranks in progress */
} server_t;

_Static_assert(CLI_SIZES_MAX == (int)KVCL_STORE_SIZES_MAX, "what a pool can have can be said");

/* Block sizes are required, and the pool must have room for them (kvcl_store_params_t.block_sizes). */
static cli_result_t check_sizes(const cli_spec_t *spec, const options_t *opt)
{
    uint64_t largest = 0, smallest = UINT64_MAX, need;
    size_t   i;

    if (opt->blocks.n == 0) {
        return cli_error(spec, "--block is needed: the bytes of a block");
    }
    for (i = 0; i < opt->blocks.n; ++i) {
        largest  = (opt->blocks.sizes[i] > largest) ? opt->blocks.sizes[i] : largest;
        smallest = (opt->blocks.sizes[i] < smallest) ? opt->blocks.sizes[i] : smallest;
    }
    if (opt->pool / smallest > UINT32_MAX) {
        return cli_error(spec, "--pool of %llu bytes: at most %u blocks of %llu bytes, %llu bytes",
                         (unsigned long long)opt->pool, UINT32_MAX, (unsigned long long)smallest,
                         (unsigned long long)smallest * UINT32_MAX);
    }
    if (opt->blocks.n == 1) {
        return (opt->pool < largest) ? cli_error(spec, "--pool is less than one block") : CLI_GO;
    }
    need = 4 * opt->blocks.n * largest;
    return (opt->pool >= need) ? CLI_GO :
           cli_error(spec, "--pool of %llu bytes: blocks of %zu sizes need room for 4 of the largest each, %llu bytes",
                     (unsigned long long)opt->pool, opt->blocks.n, (unsigned long long)need);
}

static cli_result_t check_format(const cli_spec_t *spec, const options_t *opt)
{
    const char *by_env = getenv("KVCL_STORE_NVME");

    return (!opt->format || (opt->nvme != NULL) || ((by_env != NULL) && (by_env[0] != '\0')))
               ? CLI_GO : cli_error(spec, "--nvme-format without --nvme or KVCL_STORE_NVME");
}

/* Without a file each process that is alone has a secret of its own, and no client could prove this job's. */
static cli_result_t check_clients(const cli_spec_t *spec, const options_t *opt)
{
    const char *secret = getenv("KVCL_SECRET_FILE");

    return ((opt->clients == NULL) || ((secret != NULL) && (secret[0] != '\0')))
               ? CLI_GO : cli_error(spec, "--clients needs a secret that its clients share: set KVCL_SECRET_FILE "
                                          "(umask 077; openssl rand -hex 32 >FILE)");
}

static cli_result_t check_token(const cli_spec_t *spec, options_t *opt)
{
    char why[400];

    if (opt->token_file == NULL) {
        return CLI_GO;
    }
    if (opt->http == NULL) {
        return cli_error(spec, "--http-token-file without --http");
    }
    return token_read(opt->token_file, &opt->token, why, sizeof(why)) ? CLI_GO
                                                                      : cli_error(spec, "--http-token-file: %s", why);
}

static cli_result_t parse(options_t *opt, int argc, char **argv)
{
    const cli_option_t table[] = {
        {"block", CLI_SIZES, &opt->blocks, "SIZE[,SIZE...]", "bytes of a block, as in the workers' stores; values use "
         "the first size", 1, UINT32_MAX - 1},
        {"pool", CLI_SIZE, &opt->pool, "SIZE", "memory of the pool (default 1G)", 1, 0},
        {"nvme", CLI_STRING, &opt->nvme, "PATH:SIZE", "a second tier, in a file on a local NVMe; %r is the rank", 0, 0},
        {"nvme-format", CLI_FLAG, &opt->format, NULL, "drop what that file holds, whatever it is", 0, 0},
        {"replicas", CLI_COUNT, &opt->replicas, "N", "copies of a put that sets no number (default 2)", 1, 4},
        {"entries", CLI_COUNT, &opt->entries, "N", "capacity of this rank's part of the directory (default 1048576)", 1,
         1u << 30},
        {"http", CLI_STRING, &opt->http, "[HOST:]PORT", "serve /metrics, /healthz, /ranks; rank r listens on PORT + r",
         0, 0},
        {"http-token-file", CLI_STRING, &opt->token_file, "FILE", "a file (mode 0600) with a token that every request "
         "but /healthz must bear", 0, 0},
        {"clients", CLI_STRING, &opt->clients, "FILE", "accept processes that are no ranks of this job, by the address "
         "in this file; %r is the rank", 0, 0},
        {"client-buffer", CLI_SIZE, &opt->client_buffer, "SIZE", "memory through which a client moves blocks "
         "(default 32M)", 1, UINT64_C(1) << 40},
        {"join", CLI_STRING, &opt->join, "ADDRESS[,ADDRESS...]",
         "join a running job through these members, and come to "
         "the store that they have open", 0, 0},
        {"drain", CLI_COUNT, &opt->drain, "SECONDS", "time limit for moving blocks away at the end (default 30)", 1,
         86400},
    };
    const cli_spec_t spec = {"kvcl_serve", "--block SIZE[,SIZE...] [options]",
                             "A rank that provides memory to its job's store. Start it with the workers by mpirun,\n"
                             "srun, or with KVCL_RENDEZVOUS, KVCL_SIZE and KVCL_RANK set. All ranks open one store\n"
                             "over the world. SIGTERM moves its blocks away and ends it.",
                             table, sizeof(table) / sizeof(table[0])};
    cli_result_t     result;
    size_t           n;

    *opt   = (options_t){.pool = UINT64_C(1) << 30, .drain = 30,
                          .client_buffer = UINT64_C(32) << 20};
    result = cli_parse(&spec, argc, argv, NULL, 0, &n);
    result = (result == CLI_GO) ? check_sizes(&spec, opt) : result;
    result = (result == CLI_GO) ? check_format(&spec, opt) : result;
    result = (result == CLI_GO) ? check_clients(&spec, opt) : result;
    return (result == CLI_GO) ? check_token(&spec, opt) : result;
}

/* ---- HTTP ---- */

static unsigned answer_ranks(server_t *server, FILE *body)
{
    size_t             n       = (size_t)server->job.size, i;
    kvcl_store_stats_t *stats  = calloc(n, sizeof(*stats));
    kvcl_status_t      *status = calloc(n, sizeof(*status));
    bool               requested;

    if ((stats == NULL) || (status == NULL)) {
        free(stats);
        free(status);
        return 503;
    }
    requested = !server->closing && (kvcl_store_all_stats(server->store, n, stats, sizeof(*stats), status,
                                                          NULL) == KVCL_OK);
    for (i = 0; i < n; ++i) {
        kvcl_rank_state_t state = KVCL_RANK_UNKNOWN;
        (void)!kvcl_rank_state(server->job.world, (int)i, &state); /* no such rank: there is none */
        stat_print_json(body, (int)i, requested && (status[i] == KVCL_OK), state, &stats[i]);
    }
    free(stats);
    free(status);
    return 200;
}

/* On threads of the HTTP server: a query to a silent rank does not delay other requests. */
static unsigned answer(void *arg, const char *path, FILE *body, const char **type_p)
{
    server_t           *server = arg;
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;

    if (strcmp(path, "/healthz") == 0) {
        fputs(server->leaving ? "draining\n" : "ok\n", body);
        return server->leaving ? 503 : 200;
    }
    if (strcmp(path, "/metrics") == 0) {
        *type_p = "text/plain; version=0.0.4; charset=utf-8";
        if (kvcl_store_stats(server->store, &stats) != KVCL_OK) {
            return 503;
        }
        kvcl_metrics_stores(body, server->job.rank, &stats, 1);
        kvcl_metrics_context(body, server->job.rank, server->job.ctx);
        return 200;
    }
    if (strcmp(path, "/ranks") == 0) {
        unsigned code = 503;

        if (atomic_fetch_add(&server->querying, 1) < RANKS_REQUESTS) {
            *type_p = "application/x-ndjson";
            code    = answer_ranks(server, body);
        } else {
            fprintf(body, "busy: %d requests of /ranks are in progress\n", RANKS_REQUESTS);
        }
        atomic_fetch_sub(&server->querying, 1);
        return code;
    }
    fputs("not found; the paths are /metrics, /healthz and /ranks\n", body);
    return 404;
}

/* ---- life cycle ---- */

/* "kvcl_serve: rank 0 of 3: 256 blocks of 4096 bytes", "...: 1048576 bytes for blocks of 4096, 12288 bytes" */
static void say_what_there_is(const server_t *server, const options_t *opt)
{
    size_t i;

    printf("kvcl_serve: rank %d of %d: ", server->job.rank, server->job.size);
    if (opt->blocks.n == 1) {
        printf("%llu blocks of ", (unsigned long long)(opt->pool / opt->blocks.sizes[0]));
    } else {
        printf("%llu bytes for blocks of ", (unsigned long long)opt->pool);
    }
    for (i = 0; i < opt->blocks.n; ++i) {
        printf("%s%llu", (i == 0) ? "" : ", ", (unsigned long long)opt->blocks.sizes[i]);
    }
    printf(" bytes");
}

/* A client's buffer has room for one block of the store at least. */
static uint64_t client_buffer(const options_t *opt)
{
    uint64_t bytes = opt->client_buffer;
    size_t   i;

    for (i = 0; i < opt->blocks.n; ++i) {
        bytes = (opt->blocks.sizes[i] > bytes) ? opt->blocks.sizes[i] : bytes;
    }
    return bytes;
}

static bool begin(server_t *server, const options_t *opt)
{
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    char                why[400];

    params.dram_bytes    = opt->pool;
    params.block_bytes   = opt->blocks.sizes[0];
    params.block_sizes   = &opt->blocks.sizes[1];
    params.n_block_sizes = opt->blocks.n - 1;
    params.replicas      = ((opt->replicas != 0) || (opt->join != NULL)) ? opt->replicas : REPLICAS;
    params.dir_entries   = opt->entries;
    params.nvme          = opt->nvme;
    params.flags         = (opt->format ? KVCL_STORE_NVME_FORMAT : 0u) | ((opt->join != NULL) ? KVCL_STORE_JOIN : 0u);
    if (!job_store_ok(&server->job, kvcl_store_open(server->job.world, &params, &server->store))) {
        return false;
    }
    if ((opt->http != NULL) &&
        !serve_http_open(opt->http, server->job.rank, &opt->token, answer, server, why, sizeof(why), &server->http)) {
        job_complain(&server->job, "--http: %s", why);
        return false;
    }
    if ((opt->clients != NULL) && !serve_clients_open(&server->job, server->store, opt->clients, client_buffer(opt),
                                                      &server->clients)) {
        return false;
    }
    say_what_there_is(server, opt);
    if (server->http != NULL) {
        printf(", http port %u", serve_http_port(server->http));
    }
    printf("\n");
    fflush(stdout);
    return true;
}

/* Whether another rank may take blocks. */
static bool others_live(const server_t *server)
{
    kvcl_rank_state_t state;
    int               rank;

    for (rank = 0; rank < server->job.size; ++rank) {
        if ((rank != server->job.rank) && (kvcl_rank_state(server->job.world, rank, &state) == KVCL_OK) &&
            (state != KVCL_RANK_FAILED)) {
            return true;
        }
    }
    return false;
}

/* What ends with the last rank. Nothing is said of an empty pool. */
static void say_what_is_lost(const server_t *server)
{
    kvcl_store_stats_t stats = KVCL_STORE_STATS_INIT;

    if ((kvcl_store_stats(server->store, &stats) != KVCL_OK) || (stats.pool_published == 0)) {
        return;
    }
    printf("kvcl_serve: rank %d of %d: no rank is left to take its blocks: %llu in memory end with it",
           server->job.rank, server->job.size, (unsigned long long)stats.pool_published);
    if (stats.nvme_blocks != 0) {
        printf(", %llu stay in the second tier", (unsigned long long)stats.nvme_blocks);
    }
    printf("\n");
    fflush(stdout);
}

static void leave(server_t *server, uint64_t seconds)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    uint64_t           moved  = 0;
    kvcl_status_t      status;

    params.timeout_ns = seconds * NS_PER_SEC;
    server->leaving   = true;
    if (!others_live(server)) {
        say_what_is_lost(server);
        return;
    }
    status = kvcl_store_drain(server->store, &moved, &params);
    printf("kvcl_serve: rank %d of %d: %llu blocks moved away%s%s\n", server->job.rank, server->job.size,
           (unsigned long long)moved, (status == KVCL_OK) ? "" : ", not all: ",
           (status == KVCL_OK) ? "" : kvcl_status_text(status));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    server_t  server = {.store = NULL};
    options_t opt;
    sigset_t  signals;
    bool      good;
    int       number;

    switch (parse(&opt, argc, argv)) {
    case CLI_DONE:
        return cli_finish("kvcl_serve", EXIT_SUCCESS);
    case CLI_BAD:
        return EXIT_USAGE;
    case CLI_GO:
        break;
    }
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* for all threads: early signals stay pending until then */
    if (((opt.join != NULL) && (setenv("KVCL_JOIN", opt.join, 1) != 0)) || !job_open(&server.job, "kvcl_serve")) {
        return EXIT_FAILURE;
    }
    good = begin(&server, &opt);
    if (good) {
        while (sigwait(&signals, &number) != 0) {
        }
        leave(&server, opt.drain);
    }
    server.closing = true;
    serve_clients_close(server.clients);
    serve_http_close(server.http);
    kvcl_store_close(server.store);
    job_close(&server.job);
    return cli_finish("kvcl_serve", good ? EXIT_SUCCESS : EXIT_FAILURE);
}
