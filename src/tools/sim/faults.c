/*
 * Owns what dies, joins and slows down. A dead instance loses its blocks and the requests on it; until the scheduler
 * knows, requests are placed there, and these are decided anew when it does.
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
                ((sim->runs[i].state >= SIM_MOVES) && (sim->runs[i].decode == id))) {
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
    sim_event(sim, sim->now + sim->config->detect, EVENT_DETECT, id, 0);
}

void sim_detected(sim_t *sim, uint32_t id)
{
    sim_inst_t *inst = &sim->insts[id];
    uint32_t   request;
    size_t     k;

    inst->known = false;
    sim_call_gone(sim, id);
    /* Those placed there since are decided again, and those that were to decode there get another place. */
    while (inst->n_queue != 0) {
        request = inst->queue[--inst->n_queue];
        sim_expect(sim, id, request, false);
        if (sim->runs[request].decode < sim->n_insts) {
            --sim->insts[sim->runs[request].decode].pending;
            sim->insts[sim->runs[request].decode].pending_tokens -= sim->work->requests[request].input;
        }
        sim_no_handover(sim, request);
        sim->runs[request].state       = SIM_WAITS;
        sim->runs[request].fetches     = 0;
        sim->runs[request].fetch_bytes = 0;
        ++sim->runs[request].tries;
        ++sim->totals.again;
        sim_event(sim, sim->now, EVENT_RETRY, request, 0);
    }
    inst->queue_busy   = 0;
    inst->queue_tokens = 0;
    for (k = 0; k < sim->next; ++k) {
        if ((sim->runs[k].state == SIM_MOVES) && (sim->runs[k].decode == id)) {
            sim_ended(sim, (uint32_t)k, SIM_LOST); /* sent there before it was known */
        }
    }
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
        inst->alive = true;
        inst->known = true;
        break;
    case FAULT_SLOW:
        inst->slower = f->factor;
        break;
    }
}
