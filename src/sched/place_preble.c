/*
 * Preble's E2. Exploit: if more than half of the prompt is held, the holder of the longest run with the least cost.
 * Explore: the least cost of all. Cost = work given of late + decode work ahead + this prefill. A holder whose work is
 * above balance x that of the least is not exploited. Pure.
 */
#include "config.h"
#include "sched/policies.h"

static double work(const kvcl_job_t *job, const kvcl_cand_t *cand)
{
    const kvcl_sched_inst_t *inst = kvcl_job_inst(job, cand);
    double                  tbt   = kvcl_model_decode(kvcl_job_model(job, inst), (double)inst->running + 1,
                                                      (double)inst->context_tokens);

    return inst->past_s + kvcl_learn_past(&job->s->learn.inst[inst->id], job->now_s) +
           ((tbt > 0) ? (double)inst->running * (job->output / 2) * tbt / ((double)inst->running + 1) : 0);
}

static void place(kvcl_job_t *job, const double *arg)
{
    double   load, least = 1e18, holder = 1e18;
    uint32_t i, longest = 0;
    bool     exploit;

    for (i = 0; i < job->n_cand; ++i) {
        load               = work(job, &job->cand[i]);
        job->cand[i].score = load + ((job->cand[i].prefill_s > 0) ? job->cand[i].prefill_s : 0);
        least              = (load < least) ? load : least;
        if (job->cand[i].own >= longest) {
            holder  = ((job->cand[i].own > longest) || (load < holder)) ? load : holder;
            longest = job->cand[i].own;
        }
    }
    exploit = ((double)longest * job->req.block_tokens * 2 > (double)job->req.tokens) &&
              ((holder <= arg[0] * least) || (holder < 1));
    for (i = 0; exploit && (i < job->n_cand); ++i) {
        job->cand[i].score += (job->cand[i].own < longest) ? 1e9 : 0;
    }
    kvcl_pick_least(job);
}

const kvcl_policy_t kvcl_policy_place_preble = {
    .name   = "preble",
    .kind   = KVCL_POLICY_PREFILL,
    .desc   = "E2: a holder of more than half, unless its work is above balance=1.5 times the least; else least cost",
    .source = "Preble (ICLR'25), global_scheduler_with_time.py",
    .keys   = {{"balance", 1.5, 1, 1e6}},
    .timed  = true,
    .place  = place};
