/*
 * LMetric: tokens to prefill, with those queued, times the requests that it has. No parameter. Pure.
 */
#include "config.h"
#include "sched/policies.h"

static void place(kvcl_job_t *job, const double *arg)
{
    const kvcl_sched_inst_t *inst;
    double                  own, tokens, batch;
    uint32_t                i;

    (void)arg;
    for (i = 0; i < job->n_cand; ++i) {
        inst               = kvcl_job_inst(job, &job->cand[i]);
        own                = (double)job->cand[i].own * job->req.block_tokens;
        tokens             = (double)inst->queued_tokens + (double)job->req.tokens - own;
        batch              = (double)inst->running + inst->pending + inst->prefills + inst->waiting + 1;
        job->cand[i].score = ((tokens > 1) ? tokens : 1) * batch;
    }
    kvcl_pick_least(job);
}

const kvcl_policy_t kvcl_policy_place_lmetric = {.name   = "lmetric",
                                                 .kind   = KVCL_POLICY_PREFILL,
                                                 .desc   = "the least new prefill tokens x requests",
                                                 .source = "LMetric, arXiv 2603.15202",
                                                 .place  = place};
