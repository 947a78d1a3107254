/*
 * Owns the pools' contents, what the index knows of them, and the transfers between instances. Invariant: a block's bit
 * in `present` is what its pool said lag seconds ago; news holds what was said since, in order of time.
 */
#include "config.h"
#include "tools/sim/sim.h"

#include <stdlib.h>
#include <string.h>

struct sim_news {
    double   at;
    uint32_t block;
    uint32_t inst; /* highest bit: the block has gone */
};

#define GONE (UINT32_C(1) << 31)

static void set_bit(uint64_t *words, uint32_t inst, bool value)
{
    const uint64_t bit = UINT64_C(1) << (inst % 64);

    words[inst / 64] = value ? words[inst / 64] | bit : words[inst / 64] & ~bit;
}

static void say(sim_t *sim, uint32_t inst, uint32_t block, bool there)
{
    struct sim_news *news;
    size_t          cap;

    if (sim->config->lag <= 0) {
        set_bit(sim->present + ((size_t)block * sim->words), inst, there);
        return;
    }
    if (sim->n_news == sim->cap_news) {
        if (sim->first_news > sim->n_news / 2) {
            memmove(sim->news, sim->news + sim->first_news, (sim->n_news - sim->first_news) * sizeof(*news));
            sim->n_news -= sim->first_news;
            sim->first_news = 0;
        } else {
            cap  = (sim->cap_news != 0) ? sim->cap_news * 2 : 1024;
            news = realloc(sim->news, cap * sizeof(*news));
            if (news == NULL) {
                sim->failed = "out of memory";
                return;
            }
            sim->news     = news;
            sim->cap_news = cap;
        }
    }
    sim->news[sim->n_news++] = (struct sim_news){sim->now + sim->config->lag, block, inst | (there ? 0 : GONE)};
}

void sim_learn(sim_t *sim)
{
    const struct sim_news *news;

    while ((sim->first_news < sim->n_news) && (sim->news[sim->first_news].at <= sim->now)) {
        news = &sim->news[sim->first_news++];
        set_bit(sim->present + ((size_t)news->block * sim->words), news->inst & ~GONE, (news->inst & GONE) == 0);
    }
}

uint32_t sim_run_at(const sim_t *sim, uint32_t inst, uint32_t request)
{
    const work_request_t *r      = &sim->work->requests[request];
    const uint32_t       *blocks = sim->work->blocks + r->first;
    uint32_t             n       = 0;

    while ((n < r->n) && sim_pool_has(&sim->insts[inst].pool, blocks[n])) {
        ++n;
    }
    return n;
}

void sim_expect(sim_t *sim, uint32_t inst, uint32_t request, bool expected)
{
    const work_request_t *r      = &sim->work->requests[request];
    const uint32_t       *blocks = sim->work->blocks + r->first;
    uint32_t             i;

    for (i = 0; i < r->n; ++i) {
        set_bit(sim->expected + ((size_t)blocks[i] * sim->words), inst, expected);
    }
}

void sim_expect_none(sim_t *sim, uint32_t inst)
{
    uint32_t block;

    for (block = 0; block < sim->work->distinct; ++block) {
        set_bit(sim->expected + ((size_t)block * sim->words), inst, false);
    }
}

void sim_keep(sim_t *sim, uint32_t inst, uint32_t request, uint32_t first, uint32_t end)
{
    const uint32_t *blocks = sim->work->blocks + sim->work->requests[request].first;
    sim_pool_t     *pool   = &sim->insts[inst].pool;
    uint32_t       i, gone;
    bool           had;

    for (i = end; i > first; --i) { /* the tail first */
        had  = sim_pool_has(pool, blocks[i - 1]);
        gone = sim_pool_insert(pool, blocks[i - 1]);
        if (gone != SIM_NO_BLOCK) {
            ++sim->totals.evicted;
            say(sim, inst, gone, false);
        }
        if (!had) {
            say(sim, inst, blocks[i - 1], true);
        }
    }
}

typedef struct dropped {
    sim_t    *sim;
    uint32_t inst;
} dropped_t;

static void drop_block(void *arg, uint32_t block)
{
    dropped_t *dropped = arg;

    say(dropped->sim, dropped->inst, block, false);
}

void sim_drop_blocks(sim_t *sim, uint32_t inst)
{
    dropped_t dropped = {sim, inst};

    sim_pool_clear(&sim->insts[inst].pool, drop_block, &dropped);
}

static double block_bytes(const sim_t *sim, uint32_t blocks)
{
    return sim->info.kv_bytes * WORK_BLOCK_TOKENS * blocks;
}

/* Blocks of a request that an instance really has from `first` on, at most `most`. They are used now. */
static uint32_t really(sim_t *sim, uint32_t inst, uint32_t request, uint32_t first, uint32_t most)
{
    const work_request_t *r      = &sim->work->requests[request];
    const uint32_t       *blocks = sim->work->blocks + r->first;
    sim_pool_t           *pool   = &sim->insts[inst].pool;
    uint32_t             n       = 0, i;

    while ((n < most) && (first + n < r->n) && sim_pool_has(pool, blocks[first + n])) {
        ++n;
    }
    for (i = n; i > 0; --i) {
        sim_pool_touch(pool, blocks[first + i - 1]);
    }
    return n;
}

/* kind, request, and in b: first, blocks and whether they stay. */
static uint32_t start_flow(sim_t *sim, uint32_t kind, uint32_t request, uint32_t from, uint32_t to, double bytes,
                           uint32_t b)
{
    const uint32_t flow = sim_nic_start(&sim->nic, sim->now, from, to, bytes);

    if (flow == SIM_NO_FLOW) {
        sim->failed = "out of memory";
        return flow;
    }
    sim->nic.flows[flow].kind = kind;
    sim->nic.flows[flow].a    = request;
    sim->nic.flows[flow].b    = b;
    return flow;
}

/* b of a transfer of blocks: 15 bits of first, 16 of blocks, and whether they stay. */
static uint32_t pack(uint32_t first, uint32_t blocks, bool keep)
{
    return (first << 17) | (blocks << 1) | (keep ? 1 : 0);
}

void sim_fetch(sim_t *sim, uint32_t request, const kvcl_sched_run_t *run)
{
    sim_run_t *r = &sim->runs[request];
    uint32_t  n;

    if ((run->from >= sim->n_insts) || (run->from == r->prefill) || !sim->insts[run->from].alive) {
        return;
    }
    n = really(sim, run->from, request, run->first, run->blocks);
    if (n == 0) {
        return;
    }
    if (r->fetches == 0) {
        r->fetch_first = run->first;
        r->fetched     = run->first;
        r->fetch_s     = sim->now;
    }
    r->fetched = (run->first == r->fetched) ? r->fetched + n : r->fetched; /* a gap ends the run */
    ++r->fetches;
    r->fetch_bytes += block_bytes(sim, n);
    sim->totals.fetch_bytes += block_bytes(sim, n);
    (void)start_flow(sim, FLOW_FETCH, request, run->from, r->prefill, block_bytes(sim, n),
               pack(run->first, n, (run->flags & KVCL_SCHED_KEEP) != 0));
}

void sim_copy(sim_t *sim, uint32_t request, const kvcl_sched_run_t *run)
{
    const uint32_t end = run->first + run->blocks;
    uint32_t       i, n, to, first;

    for (i = 0; (i < run->n) && (i < KVCL_SCHED_OTHERS); ++i) {
        to = run->inst[i];
        if ((run->from >= sim->n_insts) || (to >= sim->n_insts) || (to == run->from) ||
            !sim->insts[run->from].alive || !sim->insts[to].alive) {
            continue;
        }
        first = sim_run_at(sim, to, request); /* what it has is not copied */
        first = (first > run->first) ? first : run->first;
        n     = (first < end) ? really(sim, run->from, request, first, end - first) : 0;
        if (n != 0) {
            sim->totals.replica_bytes += block_bytes(sim, n);
            (void)start_flow(sim, FLOW_COPY, request, run->from, to, block_bytes(sim, n), pack(first, n, true));
        }
    }
}

void sim_handover(sim_t *sim, uint32_t request)
{
    sim_run_t    *r    = &sim->runs[request];
    const double bytes = sim->info.kv_bytes * sim->work->requests[request].input;

    r->moved = (r->decode == r->prefill);
    if (!r->moved) {
        sim->totals.handover_bytes += bytes;
        r->flow = start_flow(sim, FLOW_HANDOVER, request, r->prefill, r->decode, bytes, 0);
    }
}

void sim_no_handover(sim_t *sim, uint32_t request)
{
    sim_run_t *r = &sim->runs[request];

    if (r->flow != SIM_NO_FLOW) {
        sim_nic_end(&sim->nic, sim->now, r->flow);
        r->flow = SIM_NO_FLOW;
    }
    r->moved = false;
}

void sim_moved(sim_t *sim, uint32_t request)
{
    const sim_run_t *r   = &sim->runs[request];
    double          load = 0;

    if ((r->decode != r->prefill) && (sim->info.load_bytes_s > 0)) {
        load = sim->info.kv_bytes * sim->work->requests[request].input / sim->info.load_bytes_s;
    }
    sim->insts[r->decode].stall_s += load * sim->config->stall;
    sim_event(sim, sim->now + load + sim->config->overhead, EVENT_JOIN, request, r->tries);
}

/* A transfer of blocks of a prompt came; n is 0 if it failed. */
static void fetched(sim_t *sim, uint32_t request, uint32_t first, uint32_t n, bool keep)
{
    sim_run_t *r = &sim->runs[request];

    if ((r->state != SIM_QUEUED) && (r->state != SIM_PREFILLS)) {
        return; /* refused meanwhile, or placed anew */
    }
    --r->fetches;
    if (n == 0) {
        r->fetched = (first < r->fetched) ? first : r->fetched;
    } else if (keep) {
        sim->totals.replicas += n;
        sim_keep(sim, r->prefill, request, first, first + n);
    }
    if (r->fetches == 0) {
        r->fetch_s = sim->now - r->fetch_s;
        r->ready   = 0;
        sim_prefill_next(sim, r->prefill);
    }
}

void sim_flow_ended(sim_t *sim, uint32_t flow)
{
    const sim_flow_t f     = sim->nic.flows[flow];
    const uint32_t   first = f.b >> 17, n = (f.b >> 1) & 0xffff;

    sim_nic_end(&sim->nic, sim->now, flow);
    switch (f.kind) {
    case FLOW_FETCH:
        if (sim->runs[f.a].prefill == f.to) {
            fetched(sim, f.a, first, n, (f.b & 1) != 0);
        }
        break;
    case FLOW_COPY:
        sim->totals.replicas += n;
        sim_keep(sim, f.to, f.a, first, first + n);
        break;
    default:
        sim->runs[f.a].flow  = SIM_NO_FLOW;
        sim->runs[f.a].moved = true;
        if (sim->runs[f.a].state == SIM_MOVES) {
            sim_moved(sim, f.a);
        }
        break;
    }
}

void sim_drop_flows(sim_t *sim, uint32_t inst)
{
    sim_flow_t f;
    uint32_t   i;

    for (i = 0; i < sim->nic.n_flows; ++i) {
        f = sim->nic.flows[i];
        if (!f.used || ((f.from != inst) && (f.to != inst))) {
            continue;
        }
        sim_nic_end(&sim->nic, sim->now, i);
        if ((f.kind == FLOW_FETCH) && (f.from == inst) && (sim->runs[f.a].prefill == f.to)) {
            fetched(sim, f.a, f.b >> 17, 0, false); /* it computes them */
        } else if (f.kind == FLOW_HANDOVER) {
            sim->runs[f.a].flow = SIM_NO_FLOW;
            if ((f.from == inst) && (sim->runs[f.a].state == SIM_MOVES)) {
                sim_ended(sim, f.a, SIM_LOST);
            }
        }
    }
}
