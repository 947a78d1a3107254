/*
 * Owns the prefill queues and what runs: an instance prefills one request at a time, in pieces if the config has
 * chunks; after each piece the queue policy may take another. A coupled instance shares its device with its batch:
 * pieces begin between steps, and with chunks each piece is followed by a step.
 *
 * A pipeline of X nodes takes a request in chunks: it is busy for T / X, and the result comes (X - 1) / X of the last
 * chunk's seconds later.
 */
#include "config.h"
#include "tools/sim/calls.h"
#include "tools/sim/sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PIPELINE_CHUNK 1024u /* tokens, where the config names none */

static bool reserve_queue(sim_t *sim, sim_inst_t *inst)
{
    uint32_t *queue, cap;

    if (inst->n_queue < inst->cap_queue) {
        return true;
    }
    cap   = (inst->cap_queue != 0) ? inst->cap_queue * 2 : 64;
    queue = realloc(inst->queue, cap * sizeof(*queue));
    if (queue == NULL) {
        sim->failed = "out of memory";
        return false;
    }
    inst->queue     = queue;
    inst->cap_queue = cap;
    return true;
}

void sim_queue_add(sim_t *sim, uint32_t id, uint32_t request, double busy_s)
{
    sim_inst_t           *inst = &sim->insts[id];
    sim_run_t            *r    = &sim->runs[request];
    kvcl_sched_waiting_t *w    = &r->waiting;

    if (!reserve_queue(sim, inst)) {
        return;
    }
    r->state      = SIM_QUEUED;
    w->size       = sizeof(*w);
    w->id         = request + UINT64_C(1);
    w->arrival_s  = r->arrival;
    w->deadline_s = (r->limit > 0) ? fmax(r->arrival + r->limit - r->handover, 0) : 0;
    w->prefill_s  = busy_s;
    inst->queue[inst->n_queue++] = request;
    inst->queue_busy += busy_s;
    inst->queue_tokens += w->tokens;
    sim_expect(sim, id, request, true);
    sim_prefill_next(sim, id);
}

static void queue_remove(sim_t *sim, sim_inst_t *inst, uint32_t at)
{
    const sim_run_t *r = &sim->runs[inst->queue[at]];

    inst->queue_busy -= r->waiting.prefill_s;
    inst->queue_tokens -= r->waiting.tokens;
    memmove(inst->queue + at, inst->queue + at + 1, (inst->n_queue - at - 1) * sizeof(*inst->queue));
    if (--inst->n_queue == 0) {
        inst->queue_busy = 0; /* sums of doubles keep a rest */
    }
}

/* The queue policy has refused it: its pieces so far are wasted. */
static void refuse_late(sim_t *sim, uint32_t request)
{
    sim_run_t *r = &sim->runs[request];

    if (r->start >= 0) {
        sim->totals.wasted_s += r->seconds - r->left;
    }
    r->reason = KVCL_SCHED_REASON_LATE;
    sim_ended(sim, request, SIM_LATE);
    sim_call_given_up(sim, request);
}

/* The queue policy's next: SIM_NONE if none. Those that it refuses have ended. */
static uint32_t choose(sim_t *sim, uint32_t id)
{
    sim_inst_t *inst = &sim->insts[id];
    size_t     next, n_late, i;
    uint32_t   request;

    next    = inst->n_queue;
    n_late  = 0;
    request = SIM_NONE;
    if ((inst->n_queue == 0) || !sim_call_order(sim, id, &next, &n_late)) {
        return SIM_NONE;
    }
    if (next < inst->n_queue) {
        request = inst->queue[next];
    }
    for (i = 0; i < n_late; ++i) {
        sim->late[i] = inst->queue[sim->late[i]]; /* indices change as they are taken out */
    }
    for (i = 0; i < n_late; ++i) {
        refuse_late(sim, (uint32_t)sim->late[i]);
    }
    return request;
}

static uint32_t place_of(const sim_inst_t *inst, uint32_t request)
{
    uint32_t i = 0;

    while ((i < inst->n_queue) && (inst->queue[i] != request)) {
        ++i;
    }
    return i;
}

/* Seconds that vary as the config says: the sum of four uniform numbers is near enough to normal. */
static double vary(sim_t *sim, double seconds)
{
    double   sum = 0;
    unsigned i;

    if (sim->config->noise <= 0) {
        return seconds;
    }
    for (i = 0; i < 4; ++i) {
        sum += ((double)(kvcl_rand_next(&sim->random) >> 11) / 9007199254740992.0) - 0.5;
    }
    return seconds * exp(sim->config->noise * sum * 1.7320508);
}

/* What of the prompt is here counts now, and so does what was fetched. */
static void begin_request(sim_t *sim, sim_inst_t *inst, uint32_t id, uint32_t request)
{
    const work_request_t     *work = &sim->work->requests[request];
    sim_run_t                *r    = &sim->runs[request];
    const uint32_t           here  = sim_run_at(sim, id, request);
    uint32_t                 all   = here, tokens;
    const kvcl_sched_guess_t zero  = {0, 0};
    kvcl_sched_guess_t       guess = zero;

    if ((r->fetch_bytes > 0) && (here >= r->fetch_first) && (r->fetched > here)) {
        all = r->fetched;
    }
    /* What came by fetch and stays counts as fetched. */
    r->fetch_tokens = (r->fetch_bytes > 0) && (r->fetched > r->fetch_first)
                          ? (r->fetched - r->fetch_first) * WORK_BLOCK_TOKENS : 0;
    tokens          = all * WORK_BLOCK_TOKENS;
    tokens          = (tokens < work->input) ? tokens : work->input - 1; /* the last token is always computed */
    r->fetch_tokens = (r->fetch_tokens < tokens) ? r->fetch_tokens : tokens;
    r->there_tokens = tokens - r->fetch_tokens;
    guess           = kvcl_sched_model_prefill(sim->config->model, work->input, tokens);
    r->seconds      = vary(sim, fmax(guess.seconds, 0) * sim->config->slower * inst->slower);
    if (sim->config->serial && (sim->info.load_bytes_s > 0)) {
        r->seconds += sim->info.kv_bytes * (work->input - tokens) / sim->info.load_bytes_s;
    }
    r->seconds /= sim->config->group;
    r->left  = r->seconds;
    r->start = sim->now;
    if (!sim->config->serial && (r->decode < sim->n_insts) && sim->insts[r->decode].alive) {
        sim_handover(sim, request);
    }
    sim->totals.there_tokens += r->there_tokens;
    sim->totals.fetch_tokens += r->fetch_tokens;
    sim->totals.input_tokens += work->input;
}

static void begin_piece(sim_t *sim, uint32_t id, uint32_t request)
{
    sim_inst_t           *inst  = &sim->insts[id];
    sim_run_t            *r     = &sim->runs[request];
    const work_request_t *work  = &sim->work->requests[request];
    uint32_t             tokens;

    queue_remove(sim, inst, place_of(inst, request));
    if (r->start < 0) {
        begin_request(sim, inst, id, request);
    }
    tokens        = work->input - r->there_tokens - r->fetch_tokens;
    r->state      = SIM_PREFILLS;
    inst->running = request;
    inst->piece_s = r->left;
    if ((sim->config->chunk != 0) && (sim->config->chunk < tokens)) {
        inst->piece_s = fmin(r->left, r->seconds * (double)sim->config->chunk / tokens);
    }
    inst->piece_end = sim->now + inst->piece_s;
    inst->guess_end = sim->now + r->waiting.prefill_s;
    inst->prefill_s += inst->piece_s;
    sim->totals.prefill_s += inst->piece_s;
    inst->decoded = false;
    if ((inst->batch.n != 0) && !sim_batch_stall(&inst->batch, inst->piece_end)) {
        sim->failed = "out of memory";
    }
    sim_event(sim, inst->piece_end, EVENT_PIECE, id, ++inst->piece);
}

void sim_prefill_next(sim_t *sim, uint32_t id)
{
    sim_inst_t *inst = &sim->insts[id];
    uint32_t   request;

    if (!inst->alive || (inst->running != SIM_NONE) || (inst->n_queue == 0)) {
        return;
    }
    if ((inst->batch.n != 0) && (((sim->config->chunk != 0) && !inst->decoded) || !sim_at_boundary(sim, inst))) {
        sim_step_plan(sim, id);
        return;
    }
    request = choose(sim, id);
    if (request == SIM_NONE) {
        return;
    }
    if (sim->runs[request].fetches == 0) {
        begin_piece(sim, id, request);
    } /* else the end of its fetches calls again */
}

static double pipeline_rest(const sim_t *sim, const sim_run_t *r, const work_request_t *work)
{
    const double chunk  = (double)((sim->config->chunk != 0) ? sim->config->chunk : PIPELINE_CHUNK);
    const double tokens = work->input - r->there_tokens - r->fetch_tokens;
    const double whole  = r->seconds * sim->config->group;

    return whole * fmin(1, chunk / tokens) * (sim->config->group - 1) / sim->config->group;
}

void sim_piece_ended(sim_t *sim, uint32_t id)
{
    sim_inst_t     *inst   = &sim->insts[id];
    const uint32_t request = inst->running;
    sim_run_t      *r      = &sim->runs[request];

    inst->running = SIM_NONE;
    r->left -= inst->piece_s;
    if (r->left > 1e-9) {
        r->state             = SIM_QUEUED;
        r->waiting.prefill_s = fmax(inst->guess_end - sim->now, 0);
        if (reserve_queue(sim, inst)) { /* it goes on first among equals */
            memmove(inst->queue + 1, inst->queue, inst->n_queue++ * sizeof(*inst->queue));
            inst->queue[0] = request;
            inst->queue_busy += r->waiting.prefill_s;
            inst->queue_tokens += r->waiting.tokens;
        }
    } else if (sim->config->group > 1) {
        sim_event(sim, sim->now + pipeline_rest(sim, r, &sim->work->requests[request]), EVENT_PREFILLED, request,
                  r->tries);
    } else {
        sim_prefilled(sim, request);
    }
    if (inst->role == KVCL_SCHED_BOTH) {
        sim_boundary(sim, id);
    }
    sim_prefill_next(sim, id);
    if (inst->role == KVCL_SCHED_BOTH) {
        sim_step_plan(sim, id);
    }
}

void sim_prefilled(sim_t *sim, uint32_t request)
{
    sim_run_t *r = &sim->runs[request];

    r->prefilled = sim->now;
    sim_expect(sim, r->prefill, request, false);
    sim_keep(sim, r->prefill, request, 0, sim->work->requests[request].n);
    sim_call_prefill_done(sim, request);
    sim_hand_on(sim, request);
}

void sim_hand_on(sim_t *sim, uint32_t request)
{
    const work_request_t *work = &sim->work->requests[request];
    sim_run_t            *r    = &sim->runs[request];
    const uint32_t       was   = r->decode;

    if (!sim_call_decode(sim, request)) {
        return;
    }
    if (sim->decision.verdict != KVCL_SCHED_GO) {
        r->reason = sim->decision.reason;
        sim->totals.wasted_s += r->seconds;
        sim_ended(sim, request, SIM_WASTED);
        return;
    }
    if (sim->decision.decode != was) {
        if (was < sim->n_insts) {
            --sim->insts[was].pending;
            sim->insts[was].pending_tokens -= work->input;
        }
        sim_no_handover(sim, request);
        r->decode = sim->decision.decode;
        ++sim->insts[r->decode].pending;
        sim->insts[r->decode].pending_tokens += work->input;
    }
    r->state = SIM_MOVES;
    if (!r->moved && (r->flow == SIM_NO_FLOW)) {
        sim_handover(sim, request);
    }
    if (r->moved) {
        sim_moved(sim, request);
    }
}
