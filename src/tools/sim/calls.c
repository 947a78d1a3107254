/*
 * Owns the structs of each call to the scheduler.
 */
#include "config.h"
#include "tools/sim/calls.h"

#include "tools/sim/log/log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static kvcl_sched_req_t describe(const sim_t *sim, uint32_t request)
{
    const work_request_t *work = &sim->work->requests[request];
    const sim_run_t      *r    = &sim->runs[request];
    kvcl_sched_req_t     req   = KVCL_SCHED_REQ_INIT;

    req.id            = request + UINT64_C(1);
    req.klass         = work->klass;
    req.n_keys        = work->n;
    req.tokens        = work->input;
    req.block_tokens  = WORK_BLOCK_TOKENS;
    req.tries         = r->tries;
    req.output_tokens = (uint64_t)llround(work->output * sim->config->expect);
    req.ttft_s        = r->limit;
    req.tbt_s         = sim->config->tbt;
    req.arrival_s     = r->arrival;
    req.session       = (work->session != WORK_NONE) ? work->session + UINT64_C(1) : 0;
    return req;
}

static bool good(sim_t *sim, kvcl_status_t status)
{
    if (status != KVCL_OK) {
        sim->failed = kvcl_last_error();
    }
    return status == KVCL_OK;
}

/* Keys of a request's blocks: eight bytes of each, where the scheduler looks for them, tell them apart. */
static const kvcl_key_t *keys_of(sim_t *sim, uint32_t request)
{
    const work_request_t *work = &sim->work->requests[request];
    uint64_t             name;
    uint32_t             i;

    for (i = 0; i < work->n; ++i) {
        name = sim->work->blocks[work->first + i] + UINT64_C(1);
        memcpy(&sim->keys[i].bytes[8], &name, sizeof(name));
    }
    return sim->keys;
}

bool sim_call_decide(sim_t *sim, uint32_t request, size_t n_views, size_t n_holds)
{
    kvcl_sched_req_t req = describe(sim, request);

    req.keys           = keys_of(sim, request);
    sim->decision.size = sizeof(sim->decision);
    if (!good(sim, kvcl_sched_decide(sim->sched, sim->now, &req, sim->views, sizeof(*sim->views), n_views, sim->holds,
                                     n_holds, &sim->decision))) {
        return false;
    }
    log_decide(sim->config->log, sim->now, &req, sim->views, n_views, sim->holds, n_holds, &sim->decision);
    return true;
}

bool sim_call_decode(sim_t *sim, uint32_t request)
{
    const kvcl_sched_req_t req    = describe(sim, request);
    const sim_run_t        *r     = &sim->runs[request];
    const size_t           n      = sim_fill_views(sim);

    sim->decision.size = sizeof(sim->decision);
    if (!good(sim, kvcl_sched_decode(sim->sched, sim->now, &req, r->prefill, r->decode, sim->views,
                                     sizeof(*sim->views), n, &sim->decision))) {
        return false;
    }
    log_decode(sim->config->log, sim->now, &req, r->prefill, r->decode, sim->views, n, &sim->decision);
    return true;
}

static bool reserve_waiting(sim_t *sim, size_t n)
{
    kvcl_sched_waiting_t *waiting;
    size_t               *late;

    if (n <= sim->cap_waiting) {
        return true;
    }
    waiting = realloc(sim->waiting, 2 * n * sizeof(*waiting));
    sim->waiting = (waiting != NULL) ? waiting : sim->waiting;
    late         = realloc(sim->late, 2 * n * sizeof(*late));
    sim->late    = (late != NULL) ? late : sim->late;
    if ((waiting == NULL) || (late == NULL)) {
        sim->failed = "out of memory";
        return false;
    }
    sim->cap_waiting = 2 * n;
    return true;
}

bool sim_call_order(sim_t *sim, uint32_t id, size_t *next_p, size_t *n_late_p)
{
    const sim_inst_t *inst = &sim->insts[id];
    const sim_run_t  *r;
    uint32_t         i;

    if (!reserve_waiting(sim, inst->n_queue)) {
        return false;
    }
    for (i = 0; i < inst->n_queue; ++i) {
        r                       = &sim->runs[inst->queue[i]];
        sim->waiting[i]         = r->waiting;
        sim->waiting[i].ready_s = (r->fetches != 0) ? fmax(r->ready, sim->now) : 0;
    }
    if (!good(sim, kvcl_sched_order(sim->sched, sim->now, sim->waiting, sizeof(*sim->waiting), inst->n_queue, next_p,
                                    sim->late, inst->n_queue, n_late_p))) {
        return false;
    }
    log_order(sim->config->log, sim->now, sim->waiting, inst->n_queue, *next_p, sim->late, *n_late_p);
    return true;
}

static kvcl_sched_measured_t measured_of(const sim_t *sim, uint32_t request)
{
    const sim_run_t       *r = &sim->runs[request];
    kvcl_sched_measured_t m  = KVCL_SCHED_MEASURED_INIT;

    m.id            = request + UINT64_C(1);
    m.prefill       = r->prefill;
    m.decode        = r->decode;
    m.klass         = sim->work->requests[request].klass;
    m.tokens        = sim->work->requests[request].input;
    m.cached_tokens = r->there_tokens + r->fetch_tokens;
    return m;
}

void sim_call_prefill_done(sim_t *sim, uint32_t request)
{
    const sim_run_t       *r = &sim->runs[request];
    kvcl_sched_measured_t m  = measured_of(sim, request);

    m.prefill_s   = r->seconds;
    m.fetch_s     = r->fetch_s;
    m.fetch_bytes = r->fetch_bytes;
    if (good(sim, kvcl_sched_prefill_done(sim->sched, sim->now, &m))) {
        log_measured(sim->config->log, LOG_PREFILL_DONE, sim->now, &m);
    }
}

void sim_call_first_token(sim_t *sim, uint32_t request)
{
    const sim_run_t       *r = &sim->runs[request];
    kvcl_sched_measured_t m  = measured_of(sim, request);

    m.ttft_s       = r->first - r->arrival;
    m.ttft_guess_s = r->guess;
    if (good(sim, kvcl_sched_first_token(sim->sched, sim->now, &m))) {
        log_measured(sim->config->log, LOG_FIRST_TOKEN, sim->now, &m);
    }
}

void sim_call_finished(sim_t *sim, uint32_t request)
{
    const sim_run_t       *r     = &sim->runs[request];
    const sim_batch_t     *batch = &sim->insts[r->decode].batch;
    kvcl_sched_measured_t m      = measured_of(sim, request);

    m.output_tokens = sim->work->requests[request].output;
    m.tbt_s         = r->tbt_mean;
    m.batch         = batch->n + 1.0;
    m.context       = batch->context + (double)(m.tokens + m.output_tokens);
    if (good(sim, kvcl_sched_finished(sim->sched, sim->now, &m))) {
        log_measured(sim->config->log, LOG_FINISHED, sim->now, &m);
    }
}

void sim_call_given_up(sim_t *sim, uint32_t request)
{
    kvcl_sched_measured_t m = KVCL_SCHED_MEASURED_INIT;

    m.id    = request + UINT64_C(1);
    m.klass = sim->work->requests[request].klass;
    if (good(sim, kvcl_sched_finished(sim->sched, sim->now, &m))) {
        log_measured(sim->config->log, LOG_FINISHED, sim->now, &m);
    }
}

void sim_call_gone(sim_t *sim, uint32_t inst)
{
    if (good(sim, kvcl_sched_gone(sim->sched, sim->now, inst))) {
        log_gone(sim->config->log, sim->now, inst);
    }
}
