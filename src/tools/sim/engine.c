/*
 * Owns a run: its memory, arrivals, the loop over events, samples of load, and the end: all requests have ended, or the
 * queues are longer than the config allows. Arrivals are not in the heap: they are in order already.
 */
#include "config.h"
#include "tools/sim/calls.h"
#include "tools/sim/log/log.h"
#include "tools/sim/sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void sim_event(sim_t *sim, double at, uint32_t kind, uint32_t a, uint32_t b)
{
    if (!sim_events_add(&sim->events, at, kind, a, b)) {
        sim->failed = "out of memory";
    }
}

static void flow_changed(void *arg, uint32_t flow)
{
    sim_t *sim = arg;

    sim_event(sim, sim->nic.flows[flow].end, EVENT_FLOW, flow, sim->nic.flows[flow].version);
}

static void leave_queue(sim_t *sim, uint32_t id, uint32_t request)
{
    sim_inst_t *inst = &sim->insts[id];
    uint32_t   i     = 0;

    while ((i < inst->n_queue) && (inst->queue[i] != request)) {
        ++i;
    }
    if (i == inst->n_queue) {
        return;
    }
    inst->queue_busy -= sim->runs[request].waiting.prefill_s;
    inst->queue_tokens -= sim->runs[request].waiting.tokens;
    memmove(inst->queue + i, inst->queue + i + 1, (inst->n_queue - i - 1) * sizeof(*inst->queue));
    if (--inst->n_queue == 0) {
        inst->queue_busy = 0; /* sums of doubles keep a rest */
    }
}

/* A request leaves the queue without a prefill: its blocks are expected no more, but for those that others there have,
 * too. */
static void expect_no_more(sim_t *sim, uint32_t id, uint32_t request)
{
    const sim_inst_t *inst = &sim->insts[id];
    uint32_t         i;

    sim_expect(sim, id, request, false);
    for (i = 0; i < inst->n_queue; ++i) {
        sim_expect(sim, id, inst->queue[i], true);
    }
    if (inst->running != SIM_NONE) {
        sim_expect(sim, id, inst->running, true);
    }
}

/* The next request of its session, after the client's time to think; or the next session's first. */
static void send_next(sim_t *sim, uint32_t request)
{
    uint32_t next = sim->work->requests[request].next;

    if ((next == WORK_NONE) && (sim->next_session < sim->n_heads)) {
        next = sim->heads[sim->next_session++];
    }
    if (next != WORK_NONE) {
        sim_event(sim, sim->now + sim->config->think, EVENT_SEND, next, 0);
    }
}

void sim_ended(sim_t *sim, uint32_t request, sim_state_t state)
{
    sim_run_t         *r  = &sim->runs[request];
    const sim_state_t was = r->state;

    r->state = state;
    r->end   = sim->now;
    if ((was >= SIM_QUEUED) && (was <= SIM_MOVES) && (state != SIM_DONE) && (r->decode < sim->n_insts)) {
        --sim->insts[r->decode].pending;
        sim->insts[r->decode].pending_tokens -= sim->work->requests[request].input;
    }
    if (state != SIM_DONE) {
        sim_no_handover(sim, request);
    }
    if (was == SIM_QUEUED) {
        leave_queue(sim, r->prefill, request);
        expect_no_more(sim, r->prefill, request);
    }
    if ((state >= SIM_REFUSED) && (state <= SIM_WASTED) && (r->reason < SIM_REASONS)) {
        ++sim->totals.reasons[state - SIM_REFUSED][r->reason];
    }
    --sim->left;
    if (sim->config->clients != 0) {
        send_next(sim, request);
    }
}

static void arrive(sim_t *sim, uint32_t request)
{
    const sim_config_t       *config = sim->config;
    const work_request_t     *work   = &sim->work->requests[request];
    sim_run_t                *r      = &sim->runs[request];
    const kvcl_sched_guess_t own     = kvcl_sched_model_prefill(config->model, work->input, 0);

    r->arrival = sim->now;
    r->limit   = config->ttft + (config->ttft_own * fmax(own.seconds, 0));
    sim_decide(sim, request);
}

static void handle(sim_t *sim, const sim_event_t *event)
{
    switch (event->kind) {
    case EVENT_RETRY:
        sim_decide(sim, event->a);
        break;
    case EVENT_SEND:
        arrive(sim, event->a);
        break;
    case EVENT_PIECE:
        if (sim->insts[event->a].piece == event->b) {
            sim_piece_ended(sim, event->a);
        }
        break;
    case EVENT_PREFILLED:
        if ((sim->runs[event->a].state == SIM_PREFILLS) && (sim->runs[event->a].tries == event->b)) {
            sim_prefilled(sim, event->a);
        }
        break;
    case EVENT_FLOW:
        if (sim->nic.flows[event->a].used && (sim->nic.flows[event->a].version == event->b)) {
            sim_flow_ended(sim, event->a);
        }
        break;
    case EVENT_JOIN:
        if ((sim->runs[event->a].state == SIM_MOVES) && (sim->runs[event->a].tries == event->b) &&
            sim->insts[sim->runs[event->a].decode].alive) {
            sim_join(sim, event->a);
        }
        break;
    case EVENT_STEP:
        if (sim->insts[event->a].step == event->b) {
            sim_step_ended(sim, event->a);
        }
        break;
    case EVENT_FAULT:
        sim_fault(sim, event->a);
        break;
    default:
        if (sim->insts[event->a].death == event->b) {
            sim_detected(sim, event->a);
        }
        break;
    }
}

/* The load now, as a sample; and whether it is too much. */
static void sample(sim_t *sim)
{
    sim_sample_t     s = {.at = sim->next_sample};
    const sim_inst_t *inst;
    uint32_t         i, prefills = 0, decodes = 0;

    for (i = 0; i < sim->n_insts; ++i) {
        inst = &sim->insts[i];
        if (inst->alive && ((inst->role & KVCL_SCHED_PREFILL) != 0)) {
            ++prefills;
            s.queue += sim_queue_s(sim, inst);
            s.busy += (inst->running != SIM_NONE) ? 1 : 0;
        }
        if (inst->alive && ((inst->role & KVCL_SCHED_DECODE) != 0)) {
            ++decodes;
            s.step += inst->batch.base + (inst->batch.slope * inst->batch.context);
            s.running += inst->batch.n;
            s.kv += (sim->config->kv_tokens != 0) ? (double)inst->reserved / (double)sim->config->kv_tokens : 0;
        }
    }
    prefills = (prefills != 0) ? prefills : 1;
    decodes  = (decodes != 0) ? decodes : 1;
    s.queue /= prefills;
    s.busy /= prefills;
    s.step /= decodes;
    s.running /= decodes;
    s.kv /= decodes;
    if (sim->n_samples < SIM_SAMPLES) {
        sim->samples[sim->n_samples++] = s;
    }
    sim->overloaded = (sim->config->overload > 0) && (s.queue > sim->config->overload);
}

/* Between two events queues only shrink: when there is no room for more samples, one before an event is enough. */
static void sample_until(sim_t *sim, double at)
{
    while ((at >= sim->next_sample) && !sim->overloaded) {
        sim->now = sim->next_sample;
        sample(sim);
        sim->next_sample += sim->sample_s;
        if (sim->n_samples == SIM_SAMPLES) {
            sim->next_sample = fmax(sim->next_sample, at + sim->sample_s);
            return;
        }
    }
}

bool sim_go(sim_t *sim)
{
    sim_event_t event;
    uint64_t    done = 0;
    double      arrival;
    size_t      i;

    while ((sim->left != 0) && (sim->failed == NULL) && !sim->overloaded) {
        arrival = (sim->next < sim->work->n) && (sim->config->clients == 0)
                      ? sim->work->requests[sim->next].arrival : INFINITY;
        if (arrival <= sim_events_next(&sim->events)) {
            if (isinf(arrival)) {
                sim->failed = "no event is left, and requests wait";
                break;
            }
            event = (sim_event_t){arrival, 0, EVENT_SEND, (uint32_t)sim->next++, 0};
        } else {
            (void)sim_events_take(&sim->events, &event);
        }
        sample_until(sim, event.at);
        sim->now = event.at;
        handle(sim, &event);
    }
    for (i = 0; sim->overloaded && (i < sim->work->n); ++i) {
        done += (sim->runs[i].prefilled > 0) ? 1 : 0;
    }
    sim->holds_rate = (sim->now > 0) ? (double)done / sim->now : 0;
    if (sim->failed != NULL) {
        fprintf(stderr, "kvcl_sim: %s\n", sim->failed);
    }
    return sim->failed == NULL;
}

static bool open_insts(sim_t *sim)
{
    const sim_config_t *config = sim->config;
    const uint64_t     blocks  = config->pool_tokens / WORK_BLOCK_TOKENS;
    const uint32_t     most    = (sim->work->distinct != 0) ? sim->work->distinct : 1;
    const uint32_t     cap     = (config->pool_tokens == 0) || (blocks > most) ? most : (uint32_t)blocks;
    uint32_t           i;
    sim_inst_t         *inst;

    for (i = 0; i < sim->n_insts; ++i) {
        inst          = &sim->insts[i];
        inst->role    = (i < config->prefill) ? KVCL_SCHED_PREFILL
                        : (i < config->prefill + config->decode) ? KVCL_SCHED_DECODE : KVCL_SCHED_BOTH;
        inst->alive   = !sim_joins_first(config, i);
        inst->known   = inst->alive;
        inst->slower  = 1;
        inst->running = SIM_NONE;
        sim_batch_init(&inst->batch);
        if ((inst->role != KVCL_SCHED_DECODE) && !sim_pool_init(&inst->pool, (cap != 0) ? cap : 1, config->lru)) {
            return false;
        }
    }
    return true;
}

static bool open_memory(sim_t *sim)
{
    const size_t n = sim->work->n, bits = (size_t)sim->work->distinct * sim->words;
    const size_t most = sim->words * 64;

    sim->insts    = calloc(sim->n_insts, sizeof(*sim->insts));
    sim->runs     = calloc(n, sizeof(*sim->runs));
    sim->present  = calloc(bits + 1, sizeof(*sim->present));
    sim->expected = calloc(bits + 1, sizeof(*sim->expected));
    sim->views    = calloc(sim->n_insts, sizeof(*sim->views));
    sim->holds    = calloc(2 * most, sizeof(*sim->holds));
    sim->keys     = calloc((WORK_INPUT_MAX / WORK_BLOCK_TOKENS) + 1, sizeof(*sim->keys));
    sim->lens     = calloc(2 * 64, sizeof(*sim->lens));
    sim->heads    = calloc(n, sizeof(*sim->heads));
    return (sim->insts != NULL) && (sim->runs != NULL) && (sim->present != NULL) && (sim->expected != NULL) &&
           (sim->views != NULL) && (sim->holds != NULL) && (sim->keys != NULL) && (sim->lens != NULL) &&
           (sim->heads != NULL) &&
           sim_nic_init(&sim->nic, sim->n_insts, sim->config->nic) && open_insts(sim);
}

static bool open_sched(sim_t *sim)
{
    kvcl_sched_params_t params = KVCL_SCHED_PARAMS_INIT;
    log_head_t          head   = {sim->config->policy, sim->config->guess_path, &params};

    params.seed         = sim->config->seed;
    params.max_insts    = sim->n_insts;
    params.max_requests = (uint32_t)((sim->work->n < 65536) ? 65536 : (sim->work->n < (1u << 24)) ? sim->work->n
                                                                                                  : (1u << 24));
    params.max_blocks   = WORK_INPUT_MAX / WORK_BLOCK_TOKENS;
    if (kvcl_sched_create(sim->config->policy, &sim->config->guess, 1, &params, &sim->sched) != KVCL_OK) {
        fprintf(stderr, "kvcl_sim: --policy: %s\n", kvcl_last_error());
        return false;
    }
    log_begin(sim->config->log, &head);
    return true;
}

/* The closed loop: sessions in the order of their first requests; each client sends one at time 0. */
static void open_clients(sim_t *sim)
{
    uint8_t  *later = calloc(sim->work->n + 1, 1);
    uint32_t i, next;

    if (later == NULL) {
        sim->failed = "out of memory";
        return;
    }
    for (i = 0; i < sim->work->n; ++i) {
        next = sim->work->requests[i].next;
        if (next != WORK_NONE) {
            later[next] = 1;
        }
        if (later[i] == 0) {
            sim->heads[sim->n_heads++] = i;
        }
    }
    free(later);
    while ((sim->next_session < sim->config->clients) && (sim->next_session < sim->n_heads)) {
        sim_event(sim, 0, EVENT_SEND, sim->heads[sim->next_session++], 0);
    }
    sim->next = sim->work->n; /* all may be running */
}

bool sim_open(sim_t *sim, const sim_config_t *config, work_t *work)
{
    uint32_t i;
    double   span;

    memset(sim, 0, sizeof(*sim));
    sim->config  = config;
    sim->work    = work;
    sim->n_insts = config->prefill + config->decode + config->coupled;
    sim->words   = (sim->n_insts + 63) / 64;
    sim->left    = work->n;
    sim->info    = (kvcl_sched_model_info_t)KVCL_SCHED_MODEL_INFO_INIT;
    sim_events_init(&sim->events);
    kvcl_rand_seed(&sim->random, config->seed);
    if ((kvcl_sched_model_info(config->model, &sim->info) != KVCL_OK) || !open_memory(sim)) {
        fprintf(stderr, "kvcl_sim: out of memory\n");
        return false;
    }
    sim->nic.changed = flow_changed;
    sim->nic.arg     = sim;
    for (i = 0; i < work->n; ++i) {
        sim->runs[i].prefill = SIM_NONE;
        sim->runs[i].decode  = SIM_NONE;
        sim->runs[i].flow    = SIM_NO_FLOW;
        sim->runs[i].start   = -1;
    }
    span             = (work->n != 0) ? work->requests[work->n - 1].arrival : 0;
    sim->sample_s    = (span > 0) ? span / (SIM_SAMPLES - 40) : 1;
    sim->next_sample = sim->sample_s;
    for (i = 0; i < config->n_faults; ++i) {
        sim_event(sim, config->faults[i].at, EVENT_FAULT, i, 0);
    }
    if (config->clients != 0) {
        open_clients(sim);
    }
    return open_sched(sim);
}

void sim_close(sim_t *sim)
{
    uint32_t i;

    for (i = 0; (sim->insts != NULL) && (i < sim->n_insts); ++i) {
        sim_pool_free(&sim->insts[i].pool);
        sim_batch_free(&sim->insts[i].batch);
        free(sim->insts[i].queue);
        free(sim->insts[i].joiners);
    }
    if (sim->sched != NULL) {
        kvcl_sched_destroy(sim->sched);
    }
    free(sim->insts);
    free(sim->runs);
    free(sim->present);
    free(sim->expected);
    free(sim->news);
    free(sim->views);
    free(sim->holds);
    free(sim->keys);
    free(sim->lens);
    free(sim->waiting);
    free(sim->late);
    free(sim->heads);
    sim_nic_free(&sim->nic);
    sim_events_free(&sim->events);
    memset(sim, 0, sizeof(*sim));
}
