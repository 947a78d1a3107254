/*
 * Copies of popular prefixes, planned before requests fetch them. For the deepest prefix of the prompt that is popular
 * enough, candidates without it are given it in the background, those with the shortest queues first. A prefix is
 * popular enough for an instance if, of the seconds that a fetch there would cost a later request, more are expected to
 * be saved than the copy costs: price for the sender's other transfers, room for the pool. A copy lives `horizon`
 * seconds in the mean, so that with h hits of its instance in that time it is asked for with the chance h / (1 + h).
 *
 * Copies double: each of the two best senders feeds two instances, and when these have them, the next request with the
 * prefix finds twice as many senders. So the trunk of a tree of prompts reaches n instances in log n steps, as by a
 * broadcast, and no link carries it more than twice at a time. Pure.
 */
#include "config.h"
#include "sched/replicate.h"

enum { SENDERS = 2, EACH = 2, TARGETS = SENDERS * EACH };

static const double WAIT_LEAST_S = 1; /* until an index has seen the copies */

/* A prefix that could be copied: its depth and what a copy brings and costs. */
typedef struct trunk {
    uint32_t depth;
    double   asked;   /* the chance that a copy is asked for before it is driven out */
    uint32_t sender[SENDERS];
    uint32_t n_senders;
    uint32_t target[TARGETS]; /* indices of candidates, the shortest queue first */
    uint32_t n_targets;
} trunk_t;

static bool sends_before(const kvcl_job_t *job, uint32_t a, uint32_t b)
{
    const double x = kvcl_times_bandwidth(job, job->inst[a]) / ((double)job->inst[a]->sends + 1);
    const double y = kvcl_times_bandwidth(job, job->inst[b]) / ((double)job->inst[b]->sends + 1);

    return (x > y) || ((x == y) && (job->inst[a]->id < job->inst[b]->id));
}

/* The instances that have the prefix now and send it fastest. */
static void find_senders(const kvcl_job_t *job, trunk_t *trunk)
{
    uint32_t i, k;

    trunk->n_senders = 0;
    for (i = 0; i < job->n_inst; ++i) {
        if ((job->s->held[job->inst[i]->id] < trunk->depth) || (kvcl_times_bandwidth(job, job->inst[i]) <= 0)) {
            continue;
        }
        if ((trunk->n_senders == SENDERS) && !sends_before(job, i, trunk->sender[SENDERS - 1])) {
            continue;
        }
        trunk->n_senders += (trunk->n_senders < SENDERS) ? 1 : 0;
        for (k = trunk->n_senders - 1; (k > 0) && sends_before(job, i, trunk->sender[k - 1]); --k) {
            trunk->sender[k] = trunk->sender[k - 1];
        }
        trunk->sender[k] = i;
    }
}

/* Seconds that a later request is expected to be saved at a candidate, less those that the copy costs now. */
static double gain(const kvcl_job_t *job, const kvcl_cand_t *cand, const trunk_t *trunk, const kvcl_prices_t *prices)
{
    const kvcl_sched_inst_t *from = job->inst[trunk->sender[0]], *to = kvcl_job_inst(job, cand);
    const double            bytes = kvcl_job_bytes(job, cand->own, trunk->depth);
    const double            rate  = kvcl_times_rate(job, from, to);
    const double            cost  = (prices->sender * (double)from->sends * bytes / kvcl_times_bandwidth(job, from)) +
                                    ((1 - trunk->asked) * prices->room * bytes);
    const double computed = kvcl_job_prefill(job, cand, cand->own) - kvcl_job_prefill(job, cand, trunk->depth);

    return (rate > 0) ? (trunk->asked * ((bytes / rate < computed) ? bytes / rate : computed)) - cost : -1;
}

/* The candidates that would gain, the shortest queues first. */
static void find_targets(const kvcl_job_t *job, trunk_t *trunk, const kvcl_prices_t *prices)
{
    const kvcl_cand_t *cand;
    uint32_t          i, k;

    trunk->n_targets = 0;
    for (i = 0; i < job->n_cand; ++i) {
        cand = &job->cand[i];
        if ((i == job->pick) || (cand->own >= trunk->depth) ||
            (kvcl_times_bandwidth(job, kvcl_job_inst(job, cand)) <= 0) ||
            ((trunk->n_targets == TARGETS) && (cand->queue_s >= job->cand[trunk->target[TARGETS - 1]].queue_s)) ||
            (gain(job, cand, trunk, prices) <= 0)) {
            continue;
        }
        trunk->n_targets += (trunk->n_targets < TARGETS) ? 1 : 0;
        for (k = trunk->n_targets - 1; (k > 0) && (cand->queue_s < job->cand[trunk->target[k - 1]].queue_s); --k) {
            trunk->target[k] = trunk->target[k - 1];
        }
        trunk->target[k] = i;
    }
}

/* The copies of the trunk: sender k feeds every n_senders-th target. */
static void write_copies(kvcl_job_t *job, const trunk_t *trunk)
{
    kvcl_piece_t *copy;
    uint32_t     k, t, own;

    for (k = 0; (k < trunk->n_senders) && (k < trunk->n_targets); ++k) {
        copy  = &job->copy[job->n_copies++];
        *copy = (kvcl_piece_t){.first = trunk->depth, .from = trunk->sender[k]};
        for (t = k; (t < trunk->n_targets) && (copy->n_others < EACH); t += trunk->n_senders) {
            own                            = job->cand[trunk->target[t]].own;
            copy->first                    = (own < copy->first) ? own : copy->first;
            copy->others[copy->n_others++] = job->cand[trunk->target[t]].inst;
        }
        copy->blocks = trunk->depth - copy->first;
        copy->tier   = kvcl_view_tier(job, job->inst[copy->from]->id, copy->first, trunk->depth, false);
    }
}

/* Hits with which a copy can pay: at least one, and so many that a fetch from an idle sender, or computing, costs more
 * than the copy's room. */
static double hits_needed(const kvcl_job_t *job, const kvcl_prices_t *prices)
{
    const kvcl_cand_t *cand     = &job->cand[job->pick];
    const double      bandwidth = kvcl_times_bandwidth(job, kvcl_job_inst(job, cand));
    const double      compute   = kvcl_job_prefill(job, cand, 0) / kvcl_job_bytes(job, 0, job->blocks);
    double            needed    = prices->room * bandwidth;

    needed = (prices->room > needed * compute) ? prices->room / compute : needed;
    return (needed > 1) ? needed : 1;
}

void kvcl_replicate(kvcl_job_t *job, const kvcl_prices_t *prices, double horizon)
{
    uint32_t         depth[KVCL_HOT_DEPTHS], n = kvcl_hot_depths(job->blocks, depth);
    kvcl_hot_entry_t *hot = NULL;
    trunk_t          trunk;
    double           hits, needed;

    job->count = (horizon > 0) && (job->req.keys != NULL);
    if (!job->count || (job->n_cand < 2) || (job->kv_bytes <= 0) || (job->blocks == 0)) {
        return;
    }
    needed = hits_needed(job, prices);
    for (; n > 0; --n) {
        hot = kvcl_hot_find(&job->s->hot, &job->req.keys[depth[n - 1] - 1]);
        if (hot == NULL) {
            continue;
        }
        hits        = kvcl_hot_rate(hot, job->now_s) * horizon / job->n_cand;
        trunk.asked = hits / (1 + hits);
        if (hits > needed) {
            break;
        }
    }
    if ((n == 0) || (hot->wait > job->now_s) || (kvcl_hot_copies(hot, job->now_s) >= job->n_cand)) {
        return; /* not popular, under way, or driven out as fast as it is copied */
    }
    trunk.depth = depth[n - 1];
    find_senders(job, &trunk);
    if (trunk.n_senders == 0) {
        return;
    }
    find_targets(job, &trunk, prices);
    write_copies(job, &trunk);
    job->trunk = hot;
}

void kvcl_replicate_done(kvcl_job_t *job)
{
    const kvcl_piece_t *copy;
    double             rate, seconds, longest = WAIT_LEAST_S / 2, copies = 0;
    uint32_t           i;

    for (i = 0; i < job->n_copies; ++i) {
        copy    = &job->copy[i];
        rate    = kvcl_times_rate(job, job->inst[copy->from], job->inst[copy->others[0]]);
        seconds = copy->n_others * kvcl_job_bytes(job, copy->first, copy->first + copy->blocks) / rate;
        longest = (seconds > longest) ? seconds : longest;
        copies += copy->n_others;
    }
    if (job->n_copies > 0) {
        kvcl_hot_copied(job->trunk, job->now_s, copies, job->now_s + (2 * longest));
    }
    if (job->count) {
        kvcl_hot_count(&job->s->hot, job->req.keys, job->blocks, job->now_s);
    }
}
