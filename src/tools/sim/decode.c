/*
 * Owns the decoding of an instance: requests join its batch at the end of a step, when their KV fits, in order of
 * arrival; the room of a request is its prompt and all its output, which a run knows. Between joins and ends the batch
 * goes on in closed form, with one event.
 */
#include "config.h"
#include "tools/sim/calls.h"
#include "tools/sim/sim.h"

#include <stdlib.h>
#include <string.h>

static uint64_t room_of(const work_request_t *work)
{
    return (uint64_t)work->input + work->output;
}

static bool fits(const sim_t *sim, const sim_inst_t *inst, uint32_t request)
{
    if ((sim->info.max_batch != 0) && (inst->batch.n >= sim->info.max_batch)) {
        return false;
    }
    /* One that is larger than the device runs alone: it would wait for ever. */
    return (sim->config->kv_tokens == 0) || (inst->batch.n == 0) ||
           (inst->reserved + room_of(&sim->work->requests[request]) <= sim->config->kv_tokens);
}

bool sim_at_boundary(const sim_t *sim, const sim_inst_t *inst)
{
    return (inst->batch.n == 0) || (sim_batch_steps(&inst->batch, sim->now) == 0);
}

static void set_speed(sim_t *sim, sim_inst_t *inst)
{
    const double slower = sim->config->slower * inst->slower;
    double       base = 0, slope = 0;

    if ((inst->batch.n != 0) &&
        ((kvcl_sched_model_decode_line(sim->config->model, inst->batch.n, &base, &slope) != KVCL_OK) ||
         (base + slope <= 0))) {
        sim->failed = "the model has no decode step for a batch of this run: no line decode, nor a table that holds it";
    }
    inst->batch.base  = base * slower;
    inst->batch.slope = slope * slower;
}

static void finish(sim_t *sim, uint32_t request)
{
    const work_request_t *work  = &sim->work->requests[request];
    sim_run_t            *r     = &sim->runs[request];
    sim_inst_t           *inst  = &sim->insts[r->decode];
    const uint64_t       steps  = (work->output > 1) ? work->output - 1 : 0;
    double               longest = 0;

    r->end = sim->now;
    if (steps != 0) {
        longest = sim_batch_longest(&inst->batch, steps, r->joined - r->first, &r->tbt_mean);
        r->tbt_mean = (r->end - r->first) / (double)steps;
        r->tbt      = sim->config->tbt_mean ? r->tbt_mean : longest;
        inst->reserved -= room_of(work);
    }
    sim_call_finished(sim, request);
    sim_ended(sim, request, SIM_DONE);
}

static void take_joiner(sim_inst_t *inst)
{
    --inst->n_joiners;
    memmove(inst->joiners, inst->joiners + 1, inst->n_joiners * sizeof(*inst->joiners));
}

/* Those that wait and fit join. */
static void admit(sim_t *sim, uint32_t id)
{
    sim_inst_t           *inst = &sim->insts[id];
    const work_request_t *work;
    sim_run_t            *r;
    uint32_t             request;

    while ((inst->n_joiners != 0) && fits(sim, inst, inst->joiners[0])) {
        request = inst->joiners[0];
        work    = &sim->work->requests[request];
        r       = &sim->runs[request];
        take_joiner(inst);
        if (!sim_batch_join(&inst->batch, sim->now, request, work->input + 1, work->output - 1)) {
            sim->failed = "out of memory";
            return;
        }
        r->state  = SIM_DECODES;
        r->joined = sim->now;
        inst->reserved += room_of(work);
        --inst->pending;
        inst->pending_tokens -= work->input;
    }
    if ((inst->stall_s > 0) && (inst->batch.n != 0)) {
        if (!sim_batch_stall(&inst->batch, inst->batch.at + inst->stall_s)) {
            sim->failed = "out of memory";
        }
    }
    inst->stall_s = 0;
}

void sim_boundary(sim_t *sim, uint32_t id)
{
    sim_inst_t *inst = &sim->insts[id];
    uint32_t   request;

    while (sim_batch_ended(&inst->batch, &request)) {
        finish(sim, request);
    }
    if (inst->running == SIM_NONE) {
        admit(sim, id);
    }
    set_speed(sim, inst);
}

/* A step event: what it planned was done. */
void sim_step_plan(sim_t *sim, uint32_t id)
{
    sim_inst_t *inst = &sim->insts[id];
    uint64_t   steps, most;

    ++inst->step; /* older plans are void */
    if ((inst->batch.n == 0) || (inst->running != SIM_NONE)) {
        return;
    }
    steps = most = sim_batch_left(&inst->batch);
    if ((inst->n_joiners != 0) && fits(sim, inst, inst->joiners[0])) {
        steps = sim_batch_steps(&inst->batch, sim->now);
    }
    if ((inst->role == KVCL_SCHED_BOTH) && (inst->n_queue != 0) && !inst->decoded) {
        steps = sim_batch_steps(&inst->batch, sim->now);
        steps = (sim->config->chunk != 0) && (steps == 0) ? 1 : steps;
    }
    steps = (steps < most) ? steps : most;
    steps = (steps != 0) ? steps : 1;
    sim_event(sim, inst->batch.at + sim_batch_seconds(&inst->batch, steps), EVENT_STEP, id, inst->step);
}

void sim_step_ended(sim_t *sim, uint32_t id)
{
    sim_inst_t *inst = &sim->insts[id];
    uint64_t   steps = sim_batch_steps(&inst->batch, sim->now);

    steps = (steps != 0) || (sim->now < inst->batch.at) ? steps : 1; /* one too short for the clock's digits */
    steps = (steps <= sim_batch_left(&inst->batch)) ? steps : sim_batch_left(&inst->batch);
    if (!sim_batch_advance(&inst->batch, steps)) {
        sim->failed = "out of memory";
        return;
    }
    inst->decoded = true;
    sim_boundary(sim, id);
    sim_prefill_next(sim, id);
    sim_step_plan(sim, id);
}

void sim_join(sim_t *sim, uint32_t request)
{
    sim_run_t      *r    = &sim->runs[request];
    sim_inst_t     *inst = &sim->insts[r->decode];
    const uint32_t id    = r->decode;
    uint32_t       *joiners, cap;

    r->first = sim->now;
    sim_call_first_token(sim, request);
    if (sim->work->requests[request].output <= 1) {
        --inst->pending;
        inst->pending_tokens -= sim->work->requests[request].input;
        finish(sim, request);
        return;
    }
    if (inst->n_joiners == inst->cap_joiners) {
        cap     = (inst->cap_joiners != 0) ? inst->cap_joiners * 2 : 16;
        joiners = realloc(inst->joiners, cap * sizeof(*joiners));
        if (joiners == NULL) {
            sim->failed = "out of memory";
            return;
        }
        inst->joiners     = joiners;
        inst->cap_joiners = cap;
    }
    inst->joiners[inst->n_joiners++] = request;
    if ((inst->batch.n == 0) && (inst->running == SIM_NONE)) {
        sim_boundary(sim, id);
    }
    sim_step_plan(sim, id);
}
