/*
 * Owns kvcl_replay's command line: the table of its options, their defaults and the checks between them.
 */
#include "config.h"
#include "tools/replay/options.h"

#include "tools/replay/models.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_BYTES_PER_TOKEN 16u
#define DEFAULT_REQUESTS        1000u
#define MAX_REQUESTS            10000000u
#define MAX_RANK                65535
#define MAX_KILL_SECOND         1e6
#define MAX_REPLICAS            4u /* the limit of kvcl_store_put */

/* Options that are parsed as text first. */
typedef struct texts {
    const char *pool;
    const char *kill;
} texts_t;

static const char about[] =
    "Replay a serving cluster's KV-cache traffic: each rank is a worker that reuses the blocks of any worker,\n"
    "computes the others and publishes them. Every fetched byte is verified. Run it under mpirun or srun.\n"
    "Without --trace, a trace of the same shape is generated. With --store, blocks are put into pools, with copies\n"
    "(--replicas) and a tier on NVMe (--nvme), and a rank may be killed during the run (--kill).";

/* "25%": of the distinct blocks, all pools together. */
static bool parse_share(const char *text, double *share_p)
{
    char         *end;
    const double percent = strtod(text, &end);

    *share_p = percent / 100;
    return (end != text) && (strcmp(end, "%") == 0) && isfinite(percent) && (percent > 0) && (percent <= 100);
}

static cli_result_t settle_pool(const cli_spec_t *spec, replay_options_t *opt, const char *pool)
{
    if (strcmp(pool, "unlimited") == 0) {
        opt->pool_bytes = REPLAY_POOL_UNLIMITED;
        return CLI_GO;
    }
    if (parse_share(pool, &opt->pool_share)) {
        return opt->store ? CLI_GO : cli_error(spec, "--pool: a percentage needs --store");
    }
    opt->pool_share = 0;
    if (!cli_parse_size(pool, &opt->pool_bytes) || (opt->pool_bytes == 0)) {
        return cli_error(spec, "--pool: \"%s\" is neither a size (a number with K, M, G or T) nor unlimited%s", pool,
                         opt->store ? " nor N%" : "");
    }
    return CLI_GO;
}

/* "RANK@SECOND" or "RANK@held" */
static cli_result_t settle_kill(const cli_spec_t *spec, replay_options_t *opt, const char *text)
{
    char   *end   = NULL;
    long   rank   = -1;
    double second = -1;
    bool   held;

    if ((text[0] >= '0') && (text[0] <= '9')) {
        rank = strtol(text, &end, 10);
    }
    held = (rank >= 0) && (strcmp(end, "@held") == 0);
    if (held) {
        end += strlen(end);
        second = 0;
    } else if ((rank >= 0) && (*end == '@') && (end[1] >= '0') && (end[1] <= '9')) {
        second = strtod(end + 1, &end);
    }
    if ((rank > MAX_RANK) || !isfinite(second) || (second < 0) || (second > MAX_KILL_SECOND) || (*end != '\0')) {
        return cli_error(spec, "--kill: \"%s\" is not RANK@SECOND, as in 1@2.5, nor RANK@held", text);
    }
    if (opt->in_order) {
        return cli_error(spec, "--kill and --in-order exclude each other: ranks in order would wait for the one that "
                         "died");
    }
    if (held && (opt->replicas < 2)) {
        return cli_error(spec, "--kill: RANK@held needs --replicas 2 or more: it waits for blocks with other copies");
    }
    opt->kill_rank = (int)rank;
    opt->kill_ns   = held ? REPLAY_KILL_HELD : (uint64_t)(second * 1e9);
    return CLI_GO;
}

/* The options that need --store. */
static cli_result_t settle_store(const cli_spec_t *spec, replay_options_t *opt, const texts_t *texts)
{
    if (!opt->store) {
        if ((opt->nvme != NULL) || (opt->replicas != 0) || (texts->kill != NULL)) {
            return cli_error(spec, "--%s needs --store",
                             (opt->nvme != NULL) ? "nvme" : (opt->replicas != 0) ? "replicas" : "kill");
        }
        return CLI_GO;
    }
    opt->replicas = (opt->replicas != 0) ? opt->replicas : 1;
    return (texts->kill != NULL) ? settle_kill(spec, opt, texts->kill) : CLI_GO;
}

/* The options that depend on one another. */
static cli_result_t settle(const cli_spec_t *spec, replay_options_t *opt, const texts_t *texts)
{
    cli_result_t result;

    if ((opt->model != NULL) && (opt->bytes_per_token != 0)) {
        return cli_error(spec, "--model and --bytes-per-token exclude each other");
    }
    if (opt->model != NULL) {
        opt->bytes_per_token = replay_model_bytes_per_token(opt->model);
        if (opt->bytes_per_token == 0) {
            return cli_error(spec, "--model: \"%s\" is unknown; the models are %s", opt->model, replay_model_names());
        }
    } else if (opt->bytes_per_token == 0) {
        opt->bytes_per_token = DEFAULT_BYTES_PER_TOKEN;
    }
    if (opt->bytes_per_token > UINT32_MAX / REPLAY_BLOCK_TOKENS) {
        return cli_error(spec, "--bytes-per-token: a block of %u tokens would be larger than 4 GiB",
                         REPLAY_BLOCK_TOKENS);
    }
    opt->block_bytes = opt->bytes_per_token * REPLAY_BLOCK_TOKENS;
    result = settle_pool(spec, opt, texts->pool);
    return (result == CLI_GO) ? settle_store(spec, opt, texts) : result;
}

cli_result_t replay_options_parse(replay_options_t *opt, int argc, char **argv)
{
    texts_t            texts   = {.pool = "unlimited"};
    const cli_option_t table[] = {
        {"trace", CLI_STRING, &opt->trace, "FILE",
         "JSON lines of timestamp, input_length, output_length, hash_ids", 0, 0},
        {"model", CLI_STRING, &opt->model, "NAME", "bytes per token of this model", 0, 0},
        {"bytes-per-token", CLI_SIZE, &opt->bytes_per_token, "N", "the same as a number (default 16)", 1, 0},
        {"pool", CLI_STRING, &texts.pool, "SIZE", "memory of each rank; evicts when full (default unlimited)", 0, 0},
        {"in-order", CLI_FLAG, &opt->in_order, NULL, "a request starts after all earlier ones are published", 0, 0},
        {"speed", CLI_REAL, &opt->speed, "X", "timestamps X times faster; 0 (default): do not wait", 0, 0},
        {"strict", CLI_FLAG, &opt->strict, NULL, "a bad trace line stops the run", 0, 0},
        {"requests", CLI_COUNT, &opt->requests, "N", "of a generated trace (default 1000)", 1, MAX_REQUESTS},
        {"seed", CLI_COUNT, &opt->seed, "S", "of a generated trace (default 1)", 0, 0},
        {"store", CLI_FLAG, &opt->store, NULL, "use the whole store; --pool may be N% of the distinct blocks", 0, 0},
        {"replicas", CLI_COUNT, &opt->replicas, "R", "with --store: copies of a block (default 1)", 1, MAX_REPLICAS},
        {"nvme", CLI_STRING, &opt->nvme, "PATH:SIZE", "with --store: each rank's second tier; %r is the rank", 0, 0},
        {"kill", CLI_STRING, &texts.kill, "RANK@SECOND",
         "with --store: kill the rank then; RANK@held: when it holds 16 blocks, some of them copied", 0, 0},
        {"json", CLI_FLAG, &opt->json, NULL, "print one JSON object", 0, 0},
    };
    const cli_spec_t spec = {"kvcl_replay", "[options]", about, table, sizeof(table) / sizeof(table[0])};
    cli_result_t     result;
    size_t           n;

    memset(opt, 0, sizeof(*opt));
    opt->requests  = DEFAULT_REQUESTS;
    opt->seed      = 1;
    opt->kill_rank = REPLAY_KILL_NONE;
    result         = cli_parse(&spec, argc, argv, NULL, 0, &n);
    return (result == CLI_GO) ? settle(&spec, opt, &texts) : result;
}
