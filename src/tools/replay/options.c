/*
 * Owns kvcl_replay's command line: the table of its options, their defaults and the checks between them.
 */
#include "config.h"
#include "tools/replay/options.h"

#include "tools/replay/models.h"

#include <string.h>

#define DEFAULT_BYTES_PER_TOKEN 16u
#define DEFAULT_REQUESTS        1000u
#define MAX_BLOCK_BYTES         UINT64_C(0xffffffff)
#define MAX_REQUESTS            10000000u

static const char about[] =
    "Replay a serving cluster's KV-cache traffic: each rank is a worker that reuses the blocks which any worker has,\n"
    "computes the others and publishes them. Every byte that arrives is verified. Run it under mpirun or srun.\n"
    "Without --trace, a trace of the same shape is generated.";

/* The options that need more than the table: sizes that depend on one another. */
static cli_result_t settle(const cli_spec_t *spec, replay_options_t *opt, const char *pool)
{
    if ((opt->model != NULL) && (opt->bytes_per_token != 0)) {
        return cli_error(spec, "--model and --bytes-per-token exclude each other");
    }
    if (opt->model != NULL) {
        opt->bytes_per_token = replay_model_bytes_per_token(opt->model);
        if (opt->bytes_per_token == 0) {
            return cli_error(spec, "--model: \"%s\" is unknown; there are %s", opt->model, replay_model_names());
        }
    } else if (opt->bytes_per_token == 0) {
        opt->bytes_per_token = DEFAULT_BYTES_PER_TOKEN;
    }
    opt->block_bytes = opt->bytes_per_token * REPLAY_BLOCK_TOKENS;
    if (opt->block_bytes > MAX_BLOCK_BYTES) {
        return cli_error(spec, "--bytes-per-token: a block of %u tokens would be larger than 4 GiB",
                         REPLAY_BLOCK_TOKENS);
    }
    if (strcmp(pool, "unlimited") == 0) {
        opt->pool_bytes = REPLAY_POOL_UNLIMITED;
    } else if (!cli_parse_size(pool, &opt->pool_bytes) || (opt->pool_bytes == 0)) {
        return cli_error(spec, "--pool: \"%s\" is neither a size (a number with K, M, G or T) nor unlimited", pool);
    }
    return CLI_GO;
}

cli_result_t replay_options_parse(replay_options_t *opt, int argc, char **argv)
{
    const char         *pool   = "unlimited";
    const cli_option_t table[] = {
        {"trace", CLI_STRING, &opt->trace, "FILE",
         "JSON lines of timestamp, input_length, output_length, hash_ids", 0, 0},
        {"model", CLI_STRING, &opt->model, "NAME", "bytes per token as this model has them", 0, 0},
        {"bytes-per-token", CLI_SIZE, &opt->bytes_per_token, "N", "the same as a number (default 16)", 1, 0},
        {"pool", CLI_STRING, &pool, "SIZE", "memory each rank gives; full: it evicts (default unlimited)", 0, 0},
        {"in-order", CLI_FLAG, &opt->in_order, NULL, "a request starts after all earlier ones are published", 0, 0},
        {"speed", CLI_REAL, &opt->speed, "X", "timestamps X times faster; 0 (default): do not wait", 0, 0},
        {"strict", CLI_FLAG, &opt->strict, NULL, "a bad trace line stops the run", 0, 0},
        {"requests", CLI_COUNT, &opt->requests, "N", "of a generated trace (default 1000)", 1, MAX_REQUESTS},
        {"seed", CLI_COUNT, &opt->seed, "S", "of a generated trace (default 1)", 0, 0},
        {"json", CLI_FLAG, &opt->json, NULL, "print one JSON object", 0, 0},
    };
    const cli_spec_t spec = {"kvcl_replay", "[options]", about, table, sizeof(table) / sizeof(table[0])};
    cli_result_t     result;
    size_t           n;

    memset(opt, 0, sizeof(*opt));
    opt->requests = DEFAULT_REQUESTS;
    opt->seed     = 1;
    result        = cli_parse(&spec, argc, argv, NULL, 0, &n);
    return (result == CLI_GO) ? settle(&spec, opt, pool) : result;
}
