/*
 * Owns what is measured beside KVCL: raw UCX by each of its methods, and a local memcpy of the same runs. Both write to
 * the initiator's blocks (get) or read them (put); the other side is the floor's own memory, laid out the same way.
 */
#include "config.h"
#include "tools/perf/perf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CARD_TAG_TO_TARGET    = 0x666c31,
    CARD_TAG_TO_INITIATOR = 0x666c32
};

static bool exchange(void *arg, const void *mine, void *theirs)
{
    perf_t         *perf = arg;
    const uint64_t out   = perf->initiator ? CARD_TAG_TO_TARGET : CARD_TAG_TO_INITIATOR;
    const uint64_t in    = perf->initiator ? CARD_TAG_TO_INITIATOR : CARD_TAG_TO_TARGET;

    if (perf->initiator) {
        return job_send(perf->job, perf->peer, out, mine, KVCL_FLOOR_EXCHANGE_BYTES, PERF_TIMEOUT_NS) &&
               job_recv(perf->job, perf->peer, in, theirs, KVCL_FLOOR_EXCHANGE_BYTES, PERF_TIMEOUT_NS);
    }
    return job_recv(perf->job, 0, in, theirs, KVCL_FLOOR_EXCHANGE_BYTES, PERF_TIMEOUT_NS) &&
           job_send(perf->job, 0, out, mine, KVCL_FLOOR_EXCHANGE_BYTES, PERF_TIMEOUT_NS);
}

/* "100us" -> 100000 */
static uint64_t parse_time(const char *text)
{
    char         *unit;
    const double value = strtod(text, &unit);

    if (strcmp(unit, "ns") == 0) {
        return (uint64_t)value;
    }
    if (strcmp(unit, "us") == 0) {
        return (uint64_t)(value * 1e3);
    }
    return (uint64_t)(value * ((strcmp(unit, "ms") == 0) ? 1e6 : 1e9));
}

typedef struct surroundings {
    uint64_t spin_ns;
    bool     spin_set;
    char     net[256];
} surroundings_t;

static void see_setting(void *arg, const kvcl_setting_info_t *info)
{
    surroundings_t *seen = arg;

    if (strcmp(info->name, "KVCL_SPIN") == 0) {
        seen->spin_ns  = parse_time(info->value);
        seen->spin_set = (strcmp(info->source, "default") != 0);
    } else if (strcmp(info->name, "KVCL_NET") == 0) {
        snprintf(seen->net, sizeof(seen->net), "%s", (info->value[0] != '\0') ? info->value : "lo");
    }
}

/* As the library waits: it spins unless ranks outnumber cores, or as KVCL_SPIN says. */
static bool see_surroundings(const perf_t *perf, surroundings_t *seen)
{
    memset(seen, 0, sizeof(*seen));
    if (!job_ok(perf->job, kvcl_query_settings(see_setting, seen), "kvcl_query_settings")) {
        return false;
    }
    if (!seen->spin_set && (perf->job->size > job_online_cores())) {
        seen->spin_ns = 0;
    }
    return true;
}

bool perf_floor_open(perf_t *perf)
{
    const size_t          bytes  = (size_t)(perf->opt->count * perf->opt->unit);
    kvcl_floor_params_t   params = {.initiator = perf->initiator, .bytes = bytes, .exchange = exchange, .arg = perf};
    surroundings_t        seen;

    if (!see_surroundings(perf, &seen)) {
        return false;
    }
    params.tcp     = (strstr(perf->result.path, "tcp") != NULL);
    params.net     = seen.net;
    params.spin_ns = seen.spin_ns;
    if (!perf->self && (perf->test->raw != PERF_RAW_NONE) && !kvcl_floor_open(&params, &perf->floor)) {
        return false;
    }
    if (!perf->initiator) {
        return true;
    }
    if (perf->floor == NULL) {
        perf->copy_from = malloc(bytes);
        if (perf->copy_from == NULL) {
            job_complain(perf->job, "out of memory");
            return false;
        }
    }
    memset((perf->floor != NULL) ? kvcl_floor_memory(perf->floor) : perf->copy_from, 0x5a, bytes);
    return true;
}

static void lane_add(perf_lane_t *lane, uint64_t took)
{
    hist_add(&lane->ns, took);
    lane->total_ns += took;
    ++lane->iters;
}

static bool run_method(perf_t *perf, unsigned method, uint64_t iters)
{
    const bool put = (perf->test->raw == PERF_RAW_PUT);
    uint64_t   i, start;

    for (i = 0; i <= iters; ++i) {
        start = clock_ns();
        if (!kvcl_floor_transfer(perf->floor, method, put, perf->runs, perf->n_runs)) {
            return false;
        }
        if (i != 0) {
            lane_add(&perf->result.floor[method], clock_ns() - start);
        }
    }
    return true;
}

static void run_copy(perf_t *perf, uint64_t iters)
{
    uint8_t  *other = (perf->floor != NULL) ? kvcl_floor_memory(perf->floor) : perf->copy_from;
    uint64_t i, start;
    size_t   r;

    for (i = 0; i <= iters; ++i) {
        start = clock_ns();
        for (r = 0; r < perf->n_runs; ++r) {
            if (perf->test->raw == PERF_RAW_PUT) {
                memcpy(other + perf->runs[r].remote, perf->runs[r].local, perf->runs[r].len);
            } else {
                memcpy(perf->runs[r].local, other + perf->runs[r].remote, perf->runs[r].len);
            }
        }
        if (i != 0) {
            lane_add(&perf->result.copy, clock_ns() - start);
        }
    }
}

bool perf_floor_round(perf_t *perf, uint64_t iters)
{
    unsigned method;

    if (perf->floor != NULL) {
        if (!perf_ask_floor(perf)) {
            return false;
        }
        for (method = 0; method < kvcl_floor_methods(perf->floor); ++method) {
            if (!run_method(perf, method, iters)) {
                return false;
            }
        }
        if (!kvcl_floor_release(perf->floor)) {
            return false;
        }
    }
    run_copy(perf, iters);
    return true;
}

void perf_floor_close(perf_t *perf)
{
    kvcl_floor_close(perf->floor);
    free(perf->copy_from);
}
