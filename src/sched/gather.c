/*
 * Gathering runs from several holders (gather.h): a few runs that reach furthest and are sent fastest, cut where any of
 * them begins or ends. Pure.
 */
#include "config.h"
#include "sched/gather.h"

/* A run that was chosen as a source. */
typedef struct source {
    uint32_t inst;
    uint32_t first, end;
    uint16_t tier;
    double   out;
    double   wait;
} source_t;

static double less(double a, double b)
{
    return (a < b) ? a : b;
}

static bool read_source(const kvcl_job_t *job, const kvcl_sched_hold_t *hold, source_t *to)
{
    const uint32_t          at = kvcl_view_find(job, hold->inst);
    const kvcl_sched_inst_t *inst;
    uint64_t                end = (uint64_t)hold->first + hold->blocks;
    double                  bandwidth;

    if ((at == KVCL_SCHED_NONE) || ((hold->flags & KVCL_SCHED_PENDING) != 0) || (hold->first >= job->blocks) ||
        (hold->blocks == 0)) {
        return false;
    }
    inst      = job->inst[at];
    bandwidth = kvcl_times_bandwidth(job, inst);
    if (bandwidth <= 0) {
        return false;
    }
    to->inst  = at;
    to->first = hold->first;
    to->end   = (uint32_t)((end < job->blocks) ? end : job->blocks);
    to->tier  = hold->tier;
    to->out   = bandwidth / ((double)inst->sends + 1);
    to->wait  = (double)inst->sends / bandwidth;
    return true;
}

/* The runs that cover the prompt from its beginning in the fewest steps; of equal ones the fastest sender. */
static uint32_t cover(const kvcl_job_t *job, source_t *chosen, uint32_t most)
{
    source_t source, best = {0};
    uint32_t n, at = 0;
    size_t   i;
    bool     found = true;

    for (n = 0; (n < most) && found; n += found ? 1 : 0) {
        found = false;
        for (i = 0; i < job->n_holds; ++i) {
            if ((job->holds[i].first <= at) && ((uint64_t)job->holds[i].first + job->holds[i].blocks > at) &&
                read_source(job, &job->holds[i], &source) &&
                (!found || (source.end > best.end) || ((source.end == best.end) && (source.out > best.out)))) {
                best  = source;
                found = best.end > at;
            }
        }
        if (found) {
            chosen[n] = best;
            at        = best.end;
        }
    }
    return n;
}

/* Add runs that save the most: long ones of fast senders. */
static uint32_t add_fast(const kvcl_job_t *job, source_t *chosen, uint32_t n)
{
    const uint32_t base = n;
    source_t       source;
    double         worth[KVCL_GATHER_RUNS], value;
    uint32_t       k;
    size_t         i;

    for (i = 0; i < job->n_holds; ++i) {
        if (!read_source(job, &job->holds[i], &source)) {
            continue;
        }
        value = (double)(source.end - source.first) * source.out;
        for (k = 0; (k < base) && !((chosen[k].inst == source.inst) && (chosen[k].first == source.first)); ++k) {
        }
        if ((k < base) || ((n == KVCL_GATHER_RUNS) && ((n == base) || (value <= worth[n - 1])))) {
            continue;
        }
        n += (n < KVCL_GATHER_RUNS) ? 1 : 0;
        for (k = n - 1; (k > base) && (worth[k - 1] < value); --k) {
            chosen[k] = chosen[k - 1];
            worth[k]  = worth[k - 1];
        }
        chosen[k] = source;
        worth[k]  = value;
    }
    return n;
}

static void add_holder(kvcl_seg_t *seg, const source_t *source, uint32_t most)
{
    uint32_t k;

    if ((seg->n == most) && (seg->out[most - 1] >= source->out)) {
        return;
    }
    seg->n += (seg->n < most) ? 1 : 0;
    for (k = seg->n - 1; (k > 0) && (seg->out[k - 1] < source->out); --k) {
        seg->inst[k] = seg->inst[k - 1];
        seg->out[k]  = seg->out[k - 1];
        seg->wait[k] = seg->wait[k - 1];
        seg->tier[k] = seg->tier[k - 1];
    }
    seg->inst[k] = source->inst;
    seg->out[k]  = source->out;
    seg->wait[k] = source->wait;
    seg->tier[k] = source->tier;
}

/* The least begin or end of a run beyond a block. */
static uint32_t next_edge(const source_t *source, uint32_t n, uint32_t beyond)
{
    uint32_t i, edge = UINT32_MAX;

    for (i = 0; i < n; ++i) {
        edge = ((source[i].first > beyond) && (source[i].first < edge)) ? source[i].first : edge;
        edge = ((source[i].end > beyond) && (source[i].end < edge)) ? source[i].end : edge;
    }
    return edge;
}

void kvcl_gather_make(const kvcl_job_t *job, kvcl_gather_t *gather, uint32_t holders)
{
    source_t       source[KVCL_GATHER_RUNS];
    const uint32_t n  = add_fast(job, source, cover(job, source, KVCL_GATHER_RUNS / 2));
    uint32_t       at = 0, edge, i;
    kvcl_seg_t     *seg;

    gather->n = 0;
    for (edge = next_edge(source, n, 0); (edge != UINT32_MAX) && (gather->n < KVCL_GATHER_SEGS);
         edge = next_edge(source, n, edge)) {
        seg        = &gather->seg[gather->n++];
        seg->first = at;
        seg->end   = edge;
        seg->n     = 0;
        for (i = 0; i < n; ++i) {
            if ((source[i].first <= at) && (source[i].end >= edge)) {
                add_holder(seg, &source[i], holders);
            }
        }
        at = edge;
    }
}

/* Bytes a second from the first k holders together, k as small as the receiver allows; what a byte costs others. */
static double rate_of(const kvcl_seg_t *seg, double bandwidth, double recvs, uint32_t *k_p, double *wait_p)
{
    double   out = 0, in = 0, wait = 0;
    uint32_t k;

    for (k = 0; k < seg->n; ++k) {
        out  += seg->out[k];
        wait += seg->out[k] * seg->wait[k];
        in    = bandwidth * (k + 1) / (recvs + k + 1);
        if (out >= in) {
            ++k;
            break;
        }
    }
    *k_p    = k;
    *wait_p = wait / out;
    return less(out, in);
}

static bool holds_it(const kvcl_seg_t *seg, uint32_t inst)
{
    uint32_t k;

    for (k = 0; (k < seg->n) && (seg->inst[k] != inst); ++k) {
    }
    return k < seg->n;
}

static void weigh(const kvcl_job_t *job, const kvcl_cand_t *cand, uint32_t upto, double fetch_s, double price_s,
                  double work, kvcl_reach_t *reach)
{
    const double prefill = kvcl_job_prefill(job, cand, upto);
    const double cost    = ((fetch_s > cand->queue_s) ? fetch_s : cand->queue_s) + (prefill * work) + price_s;

    if (cost < reach->cost_s) {
        *reach = (kvcl_reach_t){.upto = upto, .fetch_s = fetch_s, .prefill_s = prefill, .price_s = price_s,
                                .cost_s = cost};
    }
}

/* Blocks of a fetch of t seconds that the queue hides; all of them if it is longer. */
static uint32_t hidden_blocks(const kvcl_cand_t *cand, double fetch, double t, uint32_t blocks)
{
    if (fetch >= cand->queue_s) {
        return blocks;
    }
    return (fetch + t > cand->queue_s) ? (uint32_t)(((cand->queue_s - fetch) / t * blocks) + 1e-6) : blocks;
}

void kvcl_gather_reach(const kvcl_job_t *job, const kvcl_gather_t *gather, const kvcl_cand_t *cand,
                       const kvcl_prices_t *prices, kvcl_reach_t *reach)
{
    const kvcl_sched_inst_t *inst      = kvcl_job_inst(job, cand);
    const double            bandwidth = kvcl_times_bandwidth(job, inst);
    const double            slow      = kvcl_factor_mean(&job->s->learn.inst[inst->id].fetch);
    const kvcl_seg_t        *seg;
    double                  fetch = 0, paid = 0, rate, wait, bytes, t;
    uint32_t                i, k, from, hidden, last;

    reach->cost_s = 1e300;
    weigh(job, cand, cand->own, 0, 0, prices->work, reach);
    for (i = 0; (i < gather->n) && (bandwidth > 0) && (job->kv_bytes > 0); ++i) {
        seg  = &gather->seg[i];
        from = (cand->own > seg->first) ? cand->own : seg->first;
        if (seg->end <= from) {
            continue;
        }
        if (seg->n == 0) {
            break;
        }
        if (!holds_it(seg, cand->inst)) {
            rate   = rate_of(seg, bandwidth, (double)inst->recvs, &k, &wait);
            wait   = (prices->sender * wait) + prices->room;
            bytes  = kvcl_job_bytes(job, from, seg->end);
            t      = slow * bytes / rate;
            for (hidden = hidden_blocks(cand, fetch, t, seg->end - from), last = hidden + 2;
                 (hidden < last) && (from + hidden < seg->end); ++hidden) {
                weigh(job, cand, from + hidden, fetch + (t * hidden / (seg->end - from)),
                      paid + (wait * bytes * hidden / (seg->end - from)), prices->work, reach);
            }
            fetch += t;
            paid  += wait * bytes;
        }
        weigh(job, cand, seg->end, fetch, paid, prices->work, reach);
    }
}

/* A piece, or more of the last one. false: there is no room. */
static bool add_piece(kvcl_job_t *job, const kvcl_seg_t *seg, uint32_t k, uint32_t first, uint32_t blocks)
{
    kvcl_piece_t *last = (job->n_pieces > 0) ? &job->piece[job->n_pieces - 1] : NULL;
    uint32_t     i;

    if ((last != NULL) && (last->from == seg->inst[k]) && (last->first + last->blocks == first)) {
        last->blocks  += blocks;
        last->n_others = 0;
        last->tier     = (seg->tier[k] > last->tier) ? seg->tier[k] : last->tier;
        return true;
    }
    if (job->n_pieces == KVCL_PIECES) {
        return false;
    }
    last  = &job->piece[job->n_pieces++];
    *last = (kvcl_piece_t){.first = first, .blocks = blocks, .from = seg->inst[k], .tier = seg->tier[k]};
    for (i = 0; i < seg->n; ++i) {
        if (i != k) {
            last->others[last->n_others++] = seg->inst[i];
        }
    }
    return true;
}

void kvcl_gather_pieces(kvcl_job_t *job, const kvcl_gather_t *gather, const kvcl_cand_t *cand)
{
    const kvcl_sched_inst_t *inst      = kvcl_job_inst(job, cand);
    const double            bandwidth = kvcl_times_bandwidth(job, inst);
    const kvcl_seg_t        *seg;
    double                  out, wait;
    uint32_t                i, k, n, at = cand->own, end, left, part;

    for (i = 0; (i < gather->n) && (at < cand->upto); ++i) {
        seg = &gather->seg[i];
        end = (seg->end < cand->upto) ? seg->end : cand->upto;
        if ((end <= at) || holds_it(seg, cand->inst)) {
            at = (end > at) ? end : at;
            continue;
        }
        (void)rate_of(seg, bandwidth, (double)inst->recvs, &n, &wait);
        for (k = 0, out = 0; k < n; ++k) {
            out += seg->out[k];
        }
        for (k = 0, left = end - at; (k < n) && (left > 0); ++k) {
            part = (k + 1 == n) ? left : (uint32_t)(((double)(end - seg->first) * seg->out[k] / out) + 0.5);
            part = (part < left) ? part : left;
            if ((part > 0) && !add_piece(job, seg, k, at, part)) {
                return;
            }
            at   += part;
            left -= part;
        }
    }
}
