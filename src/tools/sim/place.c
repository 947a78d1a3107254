/*
 * Owns what the scheduler is shown, and what is done with its decisions. Reads the pools through the index only.
 */
#include "config.h"
#include "tools/sim/calls.h"
#include "tools/sim/sim.h"

#include <math.h>
#include <string.h>

#define TRIES_MAX 1000u

double sim_queue_s(const sim_t *sim, const sim_inst_t *inst)
{
    const double rest = (inst->running != SIM_NONE) ? inst->guess_end - sim->now : 0;

    return ((rest > 0) ? rest : 0) + ((inst->queue_busy > 0) ? inst->queue_busy : 0);
}

/* Tokens of context now: the batch itself is at its last boundary. */
static uint64_t context_now(const sim_t *sim, const sim_batch_t *batch)
{
    const double step = batch->base + (batch->slope * batch->context);
    const double done = ((batch->n != 0) && (step > 0)) ? (sim->now - batch->at) / step : 0;

    return (uint64_t)(batch->context + ((done > 0) ? done * batch->n : 0));
}

static void fill_view(const sim_t *sim, uint32_t id, kvcl_sched_inst_t *view)
{
    const sim_inst_t *inst = &sim->insts[id];
    const uint64_t   total = sim->config->kv_tokens;

    *view                = (kvcl_sched_inst_t)KVCL_SCHED_INST_INIT;
    view->id             = id;
    view->role           = inst->role;
    view->queue_s        = sim_queue_s(sim, inst);
    view->prefills       = (inst->running != SIM_NONE) ? 1 : 0;
    view->waiting        = inst->n_queue;
    view->queued_tokens  = inst->queue_tokens;
    view->running        = inst->batch.n;
    view->pending        = inst->pending;
    view->context_tokens = context_now(sim, &inst->batch);
    view->pending_tokens = inst->pending_tokens;
    view->kv_total       = total;
    view->kv_free        = (inst->reserved < total) ? total - inst->reserved : 0;
    view->host           = id;
    view->nic_bytes_s    = sim->nic.ports[id].bytes_s;
    view->sends          = sim->nic.ports[id].n[0];
    view->recvs          = sim->nic.ports[id].n[1];
    view->send_bytes     = (view->sends != 0) ? sim_nic_left(&sim->nic, sim->now, id, 0) : 0;
    view->recv_bytes     = (view->recvs != 0) ? sim_nic_left(&sim->nic, sim->now, id, 1) : 0;
}

size_t sim_fill_views(sim_t *sim)
{
    size_t   n = 0;
    uint32_t i;

    for (i = 0; i < sim->n_insts; ++i) {
        if (sim->insts[i].known) {
            fill_view(sim, i, &sim->views[n++]);
        }
    }
    return n;
}

static void add_hold(sim_t *sim, size_t *n_p, uint32_t inst, uint32_t first, uint32_t end, uint16_t flags)
{
    if (end > first) {
        sim->holds[(*n_p)++] = (kvcl_sched_hold_t){inst, first, end - first, 1, flags};
    }
}

/* For each instance of one word: the leading run that the index knows, and the one behind it that is expected. */
static void word_runs(sim_t *sim, const work_request_t *r, uint32_t word, uint32_t *lens)
{
    const uint32_t *blocks = sim->work->blocks + r->first;
    uint64_t       there   = UINT64_MAX, both = UINT64_MAX, gone, present;
    uint32_t       i;

    for (i = 0; (i < r->n) && (both != 0); ++i) {
        present = sim->present[((size_t)blocks[i] * sim->words) + word];
        for (gone = there & ~present; gone != 0; gone &= gone - 1) {
            lens[2 * __builtin_ctzll(gone)] = i;
        }
        there &= present;
        present |= sim->expected[((size_t)blocks[i] * sim->words) + word];
        for (gone = both & ~present; gone != 0; gone &= gone - 1) {
            lens[(2 * __builtin_ctzll(gone)) + 1] = i;
        }
        both &= present;
    }
    for (gone = there; gone != 0; gone &= gone - 1) {
        lens[2 * __builtin_ctzll(gone)] = i;
    }
    for (gone = both; gone != 0; gone &= gone - 1) {
        lens[(2 * __builtin_ctzll(gone)) + 1] = i;
    }
}

static size_t fill_holds(sim_t *sim, uint32_t request)
{
    size_t   n = 0;
    uint32_t word, i;

    for (word = 0; word < sim->words; ++word) {
        word_runs(sim, &sim->work->requests[request], word, sim->lens);
        for (i = 0; (i < 64) && ((word * 64) + i < sim->n_insts); ++i) {
            if (!sim->insts[(word * 64) + i].known) {
                continue;
            }
            add_hold(sim, &n, (word * 64) + i, 0, sim->lens[2 * i], 0);
            add_hold(sim, &n, (word * 64) + i, sim->lens[2 * i], sim->lens[(2 * i) + 1], KVCL_SCHED_PENDING);
        }
    }
    return n;
}

/* The decision's moves; then its place in the queue. */
static void place(sim_t *sim, uint32_t request)
{
    const kvcl_sched_decision_t *decision = &sim->decision;
    sim_run_t                   *r        = &sim->runs[request];
    sim_inst_t                  *to;
    uint32_t                    i;

    r->prefill  = decision->prefill;
    r->decode   = decision->decode;
    r->guess    = decision->times.ttft_s;
    r->handover = decision->times.handover_s + decision->times.load_s;
    r->ready    = sim->now + decision->times.fetch_s;
    r->waiting.tokens = decision->compute_tokens;
    r->waiting.error  = decision->times.error;
    for (i = 0; i < decision->n_runs; ++i) {
        if (decision->runs[i].plan == KVCL_SCHED_FETCH) {
            r->state = SIM_QUEUED;
            sim_fetch(sim, request, &decision->runs[i]);
        } else if (decision->runs[i].plan == KVCL_SCHED_REPLICATE) {
            sim_copy(sim, request, &decision->runs[i]);
        }
    }
    if (r->decode < sim->n_insts) {
        to = &sim->insts[r->decode];
        ++to->pending;
        to->pending_tokens += sim->work->requests[request].input;
    }
    sim_queue_add(sim, r->prefill, request, decision->busy_s);
}

void sim_decide(sim_t *sim, uint32_t request)
{
    sim_run_t *r = &sim->runs[request];
    size_t    n_views, n_holds;

    sim_learn(sim);
    n_views = sim_fill_views(sim);
    n_holds = fill_holds(sim, request);
    if (!sim_call_decide(sim, request, n_views, n_holds)) {
        return;
    }
    ++sim->totals.decisions;
    sim->totals.left_out += sim->decision.left_out;
    switch (sim->decision.verdict) {
    case KVCL_SCHED_GO:
        place(sim, request);
        break;
    case KVCL_SCHED_WAIT:
        ++sim->totals.waits;
        if (++r->tries < TRIES_MAX) {
            sim_event(sim, sim->now + fmax(sim->decision.retry_s, 0.001), EVENT_RETRY, request, 0);
            break;
        }
        /* fall through */
    default:
        r->reason = sim->decision.reason;
        sim_ended(sim, request, SIM_REFUSED);
        break;
    }
}

bool sim_good(const sim_t *sim, uint32_t request)
{
    const sim_run_t *r = &sim->runs[request];

    return (r->state == SIM_DONE) && ((r->limit <= 0) || (r->first - r->arrival <= r->limit)) &&
           ((sim->config->tbt <= 0) || (r->tbt <= sim->config->tbt));
}
