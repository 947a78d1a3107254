/*
 * The paper's algorithm 1: one holder of the longest run; an instance whose own run is shorter than this by more than
 * the threshold fetches the difference, any other one computes it. TTFT = transfer + queue + prefill; the least wins.
 * An own run of 0 is above any threshold. At equality the run is computed (FAST'25; the arXiv text transfers). With
 * migrate=1 what was fetched stays. Pure.
 */
#include "config.h"
#include "sched/policies.h"

enum { THRESHOLD, MIGRATE };

/* The longest run; of equal ones that with the fewest transfers in flight, then the least id. */
static uint32_t best_holder(const kvcl_job_t *job)
{
    const kvcl_sched_inst_t *inst, *best = NULL;
    const uint32_t          *held = job->s->held;
    uint32_t                i, at = KVCL_SCHED_NONE;

    for (i = 0; i < job->n_inst; ++i) {
        inst = job->inst[i];
        if ((held[inst->id] > 0) &&
            ((best == NULL) || (held[inst->id] > held[best->id]) ||
             ((held[inst->id] == held[best->id]) &&
              ((inst->sends < best->sends) || ((inst->sends == best->sends) && (inst->id < best->id)))))) {
            best = inst;
            at   = i;
        }
    }
    return at;
}

static void score(kvcl_job_t *job, kvcl_cand_t *cand, uint32_t holder, double threshold)
{
    const uint32_t longest = (holder == KVCL_SCHED_NONE) ? 0 : job->s->held[job->inst[holder]->id];
    double         rate, bytes;

    if ((longest > cand->own) && ((double)longest > threshold * cand->own)) {
        rate  = kvcl_times_rate(job, job->inst[holder], kvcl_job_inst(job, cand));
        bytes = kvcl_job_bytes(job, cand->own, longest);
        if ((rate > 0) && (bytes > 0)) {
            cand->upto      = longest;
            cand->fetch_s   = bytes / rate;
            cand->prefill_s = kvcl_job_prefill(job, cand, longest);
        }
    }
    cand->score = cand->fetch_s + cand->queue_s + cand->prefill_s;
}

static void place(kvcl_job_t *job, const double *arg)
{
    const uint32_t    holder = best_holder(job);
    const kvcl_cand_t *cand;
    uint32_t          i;

    for (i = 0; i < job->n_cand; ++i) {
        score(job, &job->cand[i], holder, arg[THRESHOLD]);
    }
    kvcl_pick_least(job);
    cand = &job->cand[job->pick];
    if (cand->upto > cand->own) {
        job->keep     = arg[MIGRATE] > 0;
        job->n_pieces = 1;
        job->piece[0] = (kvcl_piece_t){.first = cand->own, .blocks = cand->upto - cand->own, .from = holder};
        job->piece[0].tier = kvcl_view_tier(job, job->inst[holder]->id, cand->own, cand->upto, false);
    }
}

const kvcl_policy_t kvcl_policy_place_global = {
    .name   = "global",
    .kind   = KVCL_POLICY_PREFILL,
    .desc   = "algorithm 1: fetch from the longest holder above threshold=2, else compute; migrate=1: it stays",
    .source = "Mooncake, FAST'25 and arXiv 2407.00079, algorithm 1",
    .keys   = {{"threshold", 2, 1, 1e6}, {"migrate", 1, 0, 1}},
    .timed  = true,
    .place  = place};
