/*
 * Owns what dies, joins and slows down. A dead instance loses its blocks and the requests that prefill or decode on it.
 * Until the scheduler knows, requests are placed there and handed to it; these are decided anew when it does. So are
 * those that had been handed to it and did not decode yet: their KV is at the instance that prefilled them. An instance
 * that joins again has nothing of before; if its death was not known yet, the join tells it.
 */
#include "config.h"
#include "tools/sim/calls.h"
#include "tools/sim/sim.h"

static void lose_requests(sim_t *sim, uint32_t id)
{
    sim_inst_t *inst = &sim->insts[id];
    uint32_t   i;
    size_t     k;

    for (k = 0; k < sim->next; ++k) {
        i = (uint32_t)k;
        if ((sim->runs[i].state >= SIM_QUEUED) && (sim->runs[i].state <= SIM_DECODES)) {
            if (((sim->runs[i].state <= SIM_PREFILLS) && (sim->runs[i].prefill == id)) ||
                ((sim->runs[i].state == SIM_DECODES) && (sim->runs[i].decode == id))) {
                sim_ended(sim, i, SIM_LOST);
            }
        }
    }
    inst->running   = SIM_NONE;
    inst->n_joiners = 0;
    inst->reserved  = 0;
    ++inst->piece;
    ++inst->step;
    sim_batch_free(&inst->batch);
}

static void die(sim_t *sim, uint32_t id)
{
    sim_inst_t *inst = &sim->insts[id];

    if (!inst->alive) {
        return;
    }
    inst->alive = false;
    sim_drop_flows(sim, id);
    lose_requests(sim, id);
    sim_drop_blocks(sim, id);
    sim_event(sim, sim->now + sim->config->detect, EVENT_DETECT, id, ++inst->death);
}

/* The request is decided anew, as if it had just come. */
static void decide_again(sim_t *sim, uint32_t request)
{
    sim_run_t *r = &sim->runs[request];

    if (r->decode < sim->n_insts) {
        --sim->insts[r->decode].pending;
        sim->insts[r->decode].pending_tokens -= sim->work->requests[request].input;
    }
    sim_no_handover(sim, request);
    r->state       = SIM_WAITS;
    r->fetches     = 0;
    r->fetch_bytes = 0;
    r->start       = -1;
    ++r->tries;
    ++sim->totals.again;
    sim_event(sim, sim->now, EVENT_RETRY, request, 0);
}

/* It was handed to an instance that died: another one, if its KV is still where it was prefilled. */
static void hand_again(sim_t *sim, uint32_t request, uint32_t gone)
{
    sim_run_t *r = &sim->runs[request];

    if ((r->prefill == gone) || !sim->insts[r->prefill].alive) {
        decide_again(sim, request);
        return;
    }
    sim_no_handover(sim, request);
    ++r->tries; /* what is under way to the old one is void */
    ++sim->totals.again;
    sim_hand_on(sim, request);
}

/* What was placed at an instance, or handed to it, since it died goes elsewhere. */
static void clear(sim_t *sim, uint32_t id)
{
    sim_inst_t *inst = &sim->insts[id];
    uint32_t   request;
    size_t     k;

    sim_call_gone(sim, id);
    while (inst->n_queue != 0) {
        request = inst->queue[--inst->n_queue];
        sim_expect(sim, id, request, false);
        decide_again(sim, request);
    }
    inst->queue_busy   = 0;
    inst->queue_tokens = 0;
    for (k = 0; k < sim->next; ++k) {
        if ((sim->runs[k].state == SIM_MOVES) && (sim->runs[k].decode == id)) {
            hand_again(sim, (uint32_t)k, id);
        }
    }
}

void sim_detected(sim_t *sim, uint32_t id)
{
    sim->insts[id].known = false;
    clear(sim, id);
}

static void join(sim_t *sim, uint32_t id)
{
    sim_inst_t *inst   = &sim->insts[id];
    const bool untold = inst->known;
    size_t     k;

    if (inst->alive) {
        return;
    }
    ++inst->death; /* what would tell the last one is void */
    sim_drop_flows(sim, id);
    sim_expect_none(sim, id);
    for (k = 0; k < sim->next; ++k) {
        if ((sim->runs[k].decode == id) && (sim->runs[k].state <= SIM_PREFILLS)) {
            sim->runs[k].moved = false; /* it came before the death */
        }
    }
    inst->alive = true;
    inst->known = true;
    if (untold) {
        clear(sim, id);
    }
}

bool sim_joins_first(const sim_config_t *config, uint32_t inst)
{
    const sim_fault_t *f, *first = NULL;
    uint32_t          i;

    for (i = 0; i < config->n_faults; ++i) {
        f = &config->faults[i];
        if ((f->inst == inst) && (f->kind != FAULT_SLOW) && ((first == NULL) || (f->at < first->at))) {
            first = f;
        }
    }
    return (first != NULL) && (first->kind == FAULT_JOIN);
}

void sim_fault(sim_t *sim, uint32_t fault)
{
    const sim_fault_t *f    = &sim->config->faults[fault];
    sim_inst_t        *inst = &sim->insts[f->inst];

    switch (f->kind) {
    case FAULT_DIE:
        die(sim, f->inst);
        break;
    case FAULT_JOIN:
        join(sim, f->inst);
        break;
    case FAULT_SLOW:
        inst->slower = f->factor;
        break;
    }
}
