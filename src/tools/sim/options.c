/*
 * Owns kvcl_sim's command line: the table of its options, their defaults and the checks between them.
 */
#include "config.h"
#include "tools/sim/options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_REQUESTS 10000u
#define REQUESTS_MAX     20000000u
#define DEFAULT_MODEL    "llama3-70b-8xa800"
#define DEFAULT_POLICY   "prefill=kvcl"
#define SECONDS_MAX      1e9
#define FACTOR_LEAST     1e-6 /* of speeds and rates */
#define FACTOR_MOST      1e6
#define WAIT_MOST        1e6  /* seconds */

/* Options that are parsed as text first. */
typedef struct texts {
    const char *arrivals;
    const char *pool;
    const char *evict;
    const char *fault;
    const char *tbt_by;
    uint64_t   prefill;
    uint64_t   decode;
    uint64_t   coupled;
    uint64_t   group;
    uint64_t   clients;
    double     nic_gbit;
} texts_t;

static const char about[] =
    "Simulate a cluster that serves language models, with the library's scheduler inside: which instance prefills\n"
    "each request of a trace, which one decodes it, which blocks of KV move, and who is refused. Without --trace, a\n"
    "trace is generated. --list prints the policies; --compare runs several, --sweep finds the highest speed that a\n"
    "policy holds, and --paper repeats the published experiments beside their results.";

static bool is_one_of(const char *text, const char *const *names, size_t n, unsigned *at_p)
{
    size_t i;

    for (i = 0; i < n; ++i) {
        if (strcmp(text, names[i]) == 0) {
            *at_p = (unsigned)i;
            return true;
        }
    }
    return false;
}

/* "die:3@100", "join:4@60", "slow:2:1.5@30", with commas between. */
static bool parse_fault(const char *text, size_t len, sim_fault_t *fault)
{
    static const char *const names[] = {"die:", "join:", "slow:"};
    char                     word[64], *p = word, *end;
    unsigned                 kind = 0;

    if (len >= sizeof(word)) {
        return false;
    }
    memcpy(word, text, len);
    word[len] = '\0';
    while ((kind < 3) && (strncmp(word, names[kind], strlen(names[kind])) != 0)) {
        ++kind;
    }
    if (kind == 3) {
        return false;
    }
    p += strlen(names[kind]);
    fault->kind   = (sim_fault_kind_t)kind;
    fault->inst   = (uint32_t)strtoul(p, &end, 10);
    fault->factor = 1;
    if ((end == p) || (*p < '0') || (*p > '9')) {
        return false;
    }
    if (kind == FAULT_SLOW) {
        if (*end != ':') {
            return false;
        }
        p             = end + 1;
        fault->factor = strtod(p, &end);
        if ((end == p) || !(fault->factor >= FACTOR_LEAST) || !(fault->factor <= FACTOR_MOST)) {
            return false;
        }
    }
    if (*end != '@') {
        return false;
    }
    p         = end + 1;
    fault->at = strtod(p, &end);
    return (end != p) && (*end == '\0') && isfinite(fault->at) && (fault->at >= 0) && (fault->at < SECONDS_MAX);
}

static cli_result_t settle_faults(const cli_spec_t *spec, sim_config_t *config, const char *text)
{
    size_t len;

    while ((text != NULL) && (*text != '\0')) {
        len = strcspn(text, ",");
        if (config->n_faults == SIM_FAULTS_MAX) {
            return cli_error(spec, "--fault: more than %u", SIM_FAULTS_MAX);
        }
        if (!parse_fault(text, len, &config->faults[config->n_faults])) {
            return cli_error(spec, "--fault: \"%.*s\" is not die:N@SECOND, join:N@SECOND or slow:N:FACTOR@SECOND, with "
                             "a FACTOR of %g to %g and a SECOND below %g", (int)len, text, FACTOR_LEAST, FACTOR_MOST,
                             SECONDS_MAX);
        }
        if (config->faults[config->n_faults].inst >= config->prefill + config->decode + config->coupled) {
            return cli_error(spec, "--fault: there is no instance %u", config->faults[config->n_faults].inst);
        }
        ++config->n_faults;
        text += len + ((text[len] == ',') ? 1 : 0);
    }
    return CLI_GO;
}

static cli_result_t settle_cluster(const cli_spec_t *spec, sim_config_t *config, const texts_t *texts)
{
    const uint64_t nodes = texts->prefill + texts->decode + texts->coupled;

    if ((texts->coupled == 0) && ((texts->prefill == 0) || (texts->decode == 0))) {
        return cli_error(spec, "--prefill and --decode need 1 or more each, or --coupled");
    }
    if (nodes > SIM_INSTS_MAX) {
        return cli_error(spec, "%llu instances are more than %u", (unsigned long long)nodes, SIM_INSTS_MAX);
    }
    if ((texts->group > 1) && (texts->prefill % texts->group != 0)) {
        return cli_error(spec, "--group: %llu prefill nodes cannot be divided into groups of %llu",
                         (unsigned long long)texts->prefill, (unsigned long long)texts->group);
    }
    config->group   = (uint32_t)texts->group;
    config->prefill = (uint32_t)(texts->prefill / texts->group);
    config->decode  = (uint32_t)texts->decode;
    config->coupled = (uint32_t)texts->coupled;
    config->clients = (uint32_t)texts->clients;
    config->nic     = texts->nic_gbit * 1e9 / 8;
    return CLI_GO;
}

/* Numbers outside of these would leave doubles no digits, or let a run take for ever. */
static cli_result_t settle_bounds(const cli_spec_t *spec, const sim_options_t *opt, const texts_t *texts)
{
    const sim_config_t *config = &opt->config;
    const struct {
        const char *name;
        double     value, least, most;
        bool       zero; /* means that it was not set */
    } bounds[] = {{"speed", opt->speed, FACTOR_LEAST, FACTOR_MOST, false},
                  {"rate", opt->rate, FACTOR_LEAST, FACTOR_MOST, true},
                  {"slower", config->slower, FACTOR_LEAST, FACTOR_MOST, false},
                  {"nic", texts->nic_gbit, FACTOR_LEAST, SECONDS_MAX, true},
                  {"think", config->think, 0, WAIT_MOST, true},
                  {"lag", config->lag, 0, WAIT_MOST, true},
                  {"detect", config->detect, 0, WAIT_MOST, true},
                  {"overhead", config->overhead, -1, WAIT_MOST, true},
                  {"expect", config->expect, 0, FACTOR_MOST, true},
                  {"noise", config->noise, 0, 10, true}};
    size_t i;

    for (i = 0; i < sizeof(bounds) / sizeof(bounds[0]); ++i) {
        if (((bounds[i].value < bounds[i].least) && !(bounds[i].zero && (bounds[i].value == 0))) ||
            (bounds[i].value > bounds[i].most)) {
            return cli_error(spec, "--%s: %g is not within %g..%g", bounds[i].name, bounds[i].value,
                             fmax(bounds[i].least, 0), bounds[i].most);
        }
    }
    return CLI_GO;
}

/* The options that depend on one another. */
static cli_result_t settle(const cli_spec_t *spec, sim_options_t *opt, const texts_t *texts)
{
    static const char *const arrivals[] = {"trace", "spread", "poisson", "closed"};
    static const char *const evicts[]   = {"kvcl", "lru"};
    static const char *const tbts[]     = {"longest", "mean"};
    static const char *const kinds[]    = {"conversation", "agent"};
    sim_config_t             *config    = &opt->config;
    unsigned                 at         = 0;
    cli_result_t             result     = settle_cluster(spec, config, texts);

    result = (result == CLI_GO) ? settle_bounds(spec, opt, texts) : result;
    if (result != CLI_GO) {
        return result;
    }
    if (!is_one_of(texts->arrivals, arrivals, 4, &at)) {
        return cli_error(spec, "--arrivals: \"%s\" is not trace, spread, poisson or closed", texts->arrivals);
    }
    opt->arrivals = (work_arrivals_t)at;
    if (!is_one_of(texts->evict, evicts, 2, &at)) {
        return cli_error(spec, "--evict: \"%s\" is not kvcl or lru", texts->evict);
    }
    config->lru = (at == 1);
    if (!is_one_of(texts->tbt_by, tbts, 2, &at)) {
        return cli_error(spec, "--tbt-by: \"%s\" is not longest or mean", texts->tbt_by);
    }
    config->tbt_mean = (at == 1);
    if (!is_one_of(opt->generate, kinds, 2, &at)) {
        return cli_error(spec, "--generate: \"%s\" is not conversation or agent", opt->generate);
    }
    if ((opt->arrivals == WORK_CLOSED) != (config->clients != 0)) {
        return cli_error(spec, "--arrivals closed and --clients N need each other");
    }
    if (config->stall > 1) {
        return cli_error(spec, "--stall: a share of 0 to 1");
    }
    if ((opt->sweep > 1) || (opt->sweep == 0)) {
        return cli_error(spec, "--sweep: a share above 0, at most 1");
    }
    if (((opt->svg != NULL) || (opt->log != NULL)) && ((opt->sweep > 0) || (opt->compare != NULL))) {
        return cli_error(spec, "--%s is of one run: it cannot be beside --%s", (opt->svg != NULL) ? "svg" : "log",
                         (opt->sweep > 0) ? "sweep" : "compare");
    }
    if ((opt->compare != NULL) && (opt->compare[strspn(opt->compare, SIM_BLANKS)] == '\0')) {
        return cli_error(spec, "--compare: the list has no policy");
    }
    if ((texts->pool != NULL) && (strcmp(texts->pool, "unlimited") != 0)) {
        if (!cli_parse_size(texts->pool, &config->pool_tokens) || (config->pool_tokens == 0)) {
            return cli_error(spec, "--pool: \"%s\" is neither a number of tokens nor unlimited", texts->pool);
        }
    } else {
        config->pool_tokens = (texts->pool != NULL) ? 0 : UINT64_MAX; /* UINT64_MAX: the model's */
    }
    return settle_faults(spec, config, texts->fault);
}

static void defaults(sim_options_t *opt, texts_t *texts)
{
    memset(opt, 0, sizeof(*opt));
    opt->generate            = "conversation";
    opt->speed               = 1;
    opt->sweep               = -1;
    opt->model               = DEFAULT_MODEL;
    opt->config.policy       = DEFAULT_POLICY;
    opt->config.slower       = 1;
    opt->config.seed         = 1;
    opt->config.detect       = 1;
    opt->config.overload     = 600;
    opt->config.kv_tokens    = UINT64_MAX; /* the model's */
    *texts                   = (texts_t){.arrivals = "trace", .evict = "kvcl", .tbt_by = "longest", .prefill = 8,
                                         .decode = 8, .group = 1};
}

cli_result_t sim_options_parse(sim_options_t *opt, int argc, char **argv)
{
    sim_config_t       *config = &opt->config;
    texts_t            texts;
    const cli_option_t table[] = {
        {"trace", CLI_STRING, &opt->trace, "FILE", "Mooncake's JSON lines, or CSV with a header", 0, 0},
        {"generate", CLI_STRING, &opt->generate, "KIND", "without --trace: conversation (default) or agent", 0, 0},
        {"requests", CLI_COUNT, &opt->requests, "N", "at most N requests (10000 generated)", 1, REQUESTS_MAX},
        {"arrivals", CLI_STRING, &texts.arrivals, "HOW", "trace (default), spread, poisson, closed", 0, 0},
        {"speed", CLI_REAL, &opt->speed, "X", "arrivals X times as fast (default 1)", 0, 0},
        {"rate", CLI_REAL, &opt->rate, "R", "of poisson: requests a second (default: the trace's)", 0, 0},
        {"clients", CLI_COUNT, &texts.clients, "N", "of closed: sessions at a time", 0, 1000000},
        {"think", CLI_REAL, &config->think, "S", "of closed: seconds before the next request", 0, 0},
        {"policy", CLI_STRING, &config->policy, "TEXT", "prefill=...,decode=...,admit=...,queue=...", 0, 0},
        {"model", CLI_STRING, &opt->model, "FILE", "speed of an instance (default " DEFAULT_MODEL ")", 0, 0},
        {"guess", CLI_STRING, &opt->guess, "FILE", "the model that the scheduler uses (default the same)", 0, 0},
        {"prefill", CLI_COUNT, &texts.prefill, "N", "prefill nodes (default 8)", 0, SIM_INSTS_MAX},
        {"decode", CLI_COUNT, &texts.decode, "N", "decode instances (default 8)", 0, SIM_INSTS_MAX},
        {"coupled", CLI_COUNT, &texts.coupled, "N", "instances that do both (default 0)", 0, SIM_INSTS_MAX},
        {"group", CLI_COUNT, &texts.group, "N", "prefill nodes of a pipeline (default 1)", 1, 64},
        {"chunk", CLI_SIZE, &config->chunk, "N", "tokens of a piece of prefill (default: whole)", 1, 0},
        {"pool", CLI_STRING, &texts.pool, "N", "tokens of a pool, or unlimited (default the model's)", 0, 0},
        {"evict", CLI_STRING, &texts.evict, "HOW", "kvcl (default): the library's order; lru", 0, 0},
        {"kv", CLI_SIZE, &config->kv_tokens, "N", "tokens of KV on a decode device (default the model's)", 1, 0},
        {"serial", CLI_FLAG, &config->serial, NULL, "KV is stored and sent after each prefill, not beside it", 0, 0},
        {"nic", CLI_REAL, &texts.nic_gbit, "G", "Gb/s of an instance each way (default the model's)", 0, 0},
        {"stall", CLI_REAL, &config->stall, "F", "share of a KV load that stops its batch (default the model's)", 0, 0},
        {"overhead", CLI_REAL, &config->overhead, "S", "seconds before a first token (default the model's)", 0, 0},
        {"lag", CLI_REAL, &config->lag, "S", "delay of the index in seconds (default 0)", 0, 0},
        {"slower", CLI_REAL, &config->slower, "X", "instances take X times the model's seconds", 0, 0},
        {"noise", CLI_REAL, &config->noise, "F", "relative deviation of a prefill's seconds (default 0)", 0, 0},
        {"expect", CLI_REAL, &config->expect, "X", "the scheduler is told X times the output length", 0, 0},
        {"ttft", CLI_REAL, &config->ttft, "S", "limit of the first token (default 0: none)", 0, 0},
        {"ttft-own", CLI_REAL, &config->ttft_own, "X", "added to --ttft: X times its prefill without cache", 0, 0},
        {"tbt", CLI_REAL, &config->tbt, "S", "limit of the time between tokens (default 0: none)", 0, 0},
        {"tbt-by", CLI_STRING, &texts.tbt_by, "HOW", "longest (default: its longest tenth), mean", 0, 0},
        {"overload", CLI_REAL, &config->overload, "S", "mean queue that ends a run (default 600; 0: none)", 0, 0},
        {"fault", CLI_STRING, &texts.fault, "LIST", "die:N@S, join:N@S or slow:N:X@S, comma-separated", 0, 0},
        {"detect", CLI_REAL, &config->detect, "S", "seconds until a death is known (default 1)", 0, 0},
        {"seed", CLI_COUNT, &config->seed, "N", "of everything random (default 1)", 0, 0},
        {"list", CLI_FLAG, &opt->list, NULL, "print the policies", 0, 0},
        {"compare", CLI_STRING, &opt->compare, "LIST", "policies, separated by spaces, side by side", 0, 0},
        {"sweep", CLI_REAL, &opt->sweep, "SHARE", "the highest speed with this share of good requests", 0, 0},
        {"paper", CLI_STRING, &opt->paper, "NAME", "fig5, fig9, fig10, fig13, fig15, table3", 0, 0},
        {"fit", CLI_STRING, &opt->fit, "CSV", "fit a model to measured requests", 0, 0},
        {"out", CLI_STRING, &opt->out, "FILE", "--fit: write the model there", 0, 0},
        {"log", CLI_STRING, &opt->log, "FILE", "write each call of the scheduler and its result", 0, 0},
        {"replay-log", CLI_STRING, &opt->replay_log, "FILE", "repeat the calls of a log, and compare", 0, 0},
        {"svg", CLI_STRING, &opt->svg, "FILE", "draw the load over time, or a figure of --paper", 0, 0},
        {"cdf", CLI_FLAG, &opt->cdf, NULL, "print TTFT and TBT at each hundredth", 0, 0},
        {"json", CLI_FLAG, &opt->json, NULL, "print one JSON object", 0, 0},
    };
    const cli_spec_t spec = {"kvcl_sim", "[options]", about, table, sizeof(table) / sizeof(table[0])};
    cli_result_t     result;
    size_t           n;

    defaults(opt, &texts);
    config->stall = config->overhead = -1; /* the model's */
    result        = cli_parse(&spec, argc, argv, NULL, 0, &n);
    return (result == CLI_GO) ? settle(&spec, opt, &texts) : result;
}
