/*
 * Owns the measurements for comparison: raw UCX by each of its methods, for the same runs and over TCP also in frames
 * of 1 MiB, and a local memcpy of the same runs by one thread and by two. All write to the initiator's blocks (get) or
 * read them (put); the other side is the floor's memory, in the same layout.
 */
#include "config.h"
#include "tools/perf/perf.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TCP_RUNS_MAX 4096u
#define FRAME_BYTES  (1u << 20)
#define TWO_BYTES    (UINT64_C(16) << 20) /* fewer bytes do not justify a second thread */

typedef struct list {
    const kvcl_floor_run_t *runs;
    size_t                 n;
} list_t;

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

/* As in the library: spins unless ranks outnumber cores, or for KVCL_SPIN. */
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

uint64_t perf_floor_bytes(const perf_t *perf)
{
    return perf->opt->unit * (perf_in_parts(perf) ? perf->opt->batch : perf->opt->count);
}

/* The runs of iteration i: all, or one batch after the other, as for KVCL. */
static list_t list_of(const perf_t *perf, uint64_t i)
{
    const size_t batch = (size_t)perf->opt->batch;
    list_t       list  = {perf->runs, perf->n_runs};

    if (perf_in_parts(perf)) {
        list.runs += (i % (perf->n_runs / batch)) * batch;
        list.n = batch;
    }
    return list;
}

/* Over RDMA raw UCX is not measured: the floor knows shared memory and TCP. */
static bool has_raw(const perf_t *perf)
{
    if (perf->self || (perf->test->raw == PERF_RAW_NONE)) {
        return false;
    }
    if (strncmp(perf->result.path, "rdma", 4) != 0) {
        return true;
    }
    if (perf->initiator) {
        job_complain(perf->job, "--floor: raw UCX is not measured over RDMA; compare with ucx_perftest -t %s",
                     (perf->test->raw == PERF_RAW_PUT) ? "ucp_put_bw" : "ucp_get");
    }
    return false;
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
    if (has_raw(perf) && !kvcl_floor_open(&params, &perf->floor)) {
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

/* One lane of raw UCX, the first iteration not counted. in_order: this run each time, not those of the test. */
static bool run_method(perf_t *perf, perf_lane_t *lane, unsigned method, const kvcl_floor_run_t *in_order,
                       uint64_t iters)
{
    const bool put = (perf->test->raw == PERF_RAW_PUT);
    uint64_t   i, start, near, far_begin, far_end;
    list_t     list;

    if (!perf_query_floor(perf, &far_begin)) {
        return false;
    }
    near = clock_cpu_ns();
    for (i = 0; i <= iters; ++i) {
        list  = (in_order != NULL) ? (list_t){in_order, 1} : list_of(perf, i);
        start = clock_ns();
        if (!kvcl_floor_transfer(perf->floor, method, put, list.runs, list.n)) {
            return false;
        }
        if (i != 0) {
            lane_add(lane, clock_ns() - start);
        }
    }
    near = clock_cpu_ns() - near;
    if (!kvcl_floor_release(perf->floor) || !perf_query_end(perf, &far_end)) {
        return false;
    }
    lane->cpu_ns += near + (far_end - far_begin);
    lane->cpu_iters += iters + 1;
    return true;
}

static void copy_run(const perf_t *perf, const kvcl_floor_run_t *run, uint64_t from, uint64_t len)
{
    uint8_t *other = (perf->floor != NULL) ? kvcl_floor_memory(perf->floor) : perf->copy_from;

    if (perf->test->raw == PERF_RAW_PUT) {
        memcpy(other + run->remote + from, (const char *)run->local + from, len);
    } else {
        memcpy((char *)run->local + from, other + run->remote + from, len);
    }
}

/* Half of the list; of a single run, half of its bytes. */
static void copy_half(const perf_t *perf, const list_t *list, bool second)
{
    const size_t   half  = list->n / 2, last = second ? list->n : half;
    const uint64_t bytes = list->runs[0].len / 2;
    size_t         i;

    if (list->n == 1) {
        copy_run(perf, list->runs, second ? bytes : 0, second ? list->runs[0].len - bytes : bytes);
        return;
    }
    for (i = second ? half : 0; i < last; ++i) {
        copy_run(perf, list->runs + i, 0, list->runs[i].len);
    }
}

typedef struct helper {
    const perf_t *perf;
    list_t       list;
} helper_t;

static void *second_half(void *arg)
{
    const helper_t *helper = arg;

    copy_half(helper->perf, &helper->list, true);
    return NULL;
}

static void copy_once(const perf_t *perf, list_t list, bool two)
{
    helper_t  helper = {perf, list};
    pthread_t thread;
    size_t    i;

    if (two && (pthread_create(&thread, NULL, second_half, &helper) == 0)) {
        copy_half(perf, &list, false);
        pthread_join(thread, NULL);
        return;
    }
    for (i = 0; i < list.n; ++i) {
        copy_run(perf, list.runs + i, 0, list.runs[i].len);
    }
}

static void run_copy(perf_t *perf, perf_lane_t *lane, bool two, uint64_t iters)
{
    const uint64_t cpu = clock_cpu_ns();
    uint64_t       i, start;

    for (i = 0; i <= iters; ++i) {
        start = clock_ns();
        copy_once(perf, list_of(perf, i), two);
        if (i != 0) {
            lane_add(lane, clock_ns() - start);
        }
    }
    lane->cpu_ns += clock_cpu_ns() - cpu;
    lane->cpu_iters += iters + 1;
}

/* Over TCP one message for each of very many runs would take minutes: frames replace this measurement. */
static bool raw_round(perf_t *perf, uint64_t iters)
{
    const bool             tcp      = (strstr(perf->result.path, "tcp") != NULL);
    const uint64_t         bytes    = perf_floor_bytes(perf);
    const kvcl_floor_run_t in_order = {perf->near_base, 0, bytes};
    unsigned               method;

    for (method = 0; method < kvcl_floor_methods(perf->floor); ++method) {
        if ((!tcp || (list_of(perf, 0).n <= TCP_RUNS_MAX)) &&
            !run_method(perf, &perf->result.floor[method], method, NULL, iters)) {
            return false;
        }
        if (tcp && (bytes > FRAME_BYTES) &&
            !run_method(perf, &perf->result.frames[method], method, &in_order, iters)) {
            return false;
        }
    }
    return true;
}

bool perf_floor_round(perf_t *perf, uint64_t iters)
{
    if ((perf->floor != NULL) && !raw_round(perf, iters)) {
        return false;
    }
    run_copy(perf, &perf->result.copy, false, iters);
    if (perf_floor_bytes(perf) >= TWO_BYTES) {
        run_copy(perf, &perf->result.copy2, true, iters);
    }
    return true;
}

void perf_floor_close(perf_t *perf)
{
    kvcl_floor_close(perf->floor);
    free(perf->copy_from);
}
