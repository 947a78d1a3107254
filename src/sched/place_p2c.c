/*
 * The power of two choices: two instances are drawn, the one with the shorter prefill queue is taken. Pure.
 */
#include "config.h"
#include "sched/policies.h"

static void place(kvcl_job_t *job, const double *arg)
{
    const uint32_t a = (uint32_t)kvcl_rand_below(&job->s->rand, job->n_cand);
    uint32_t       b = (job->n_cand > 1) ? (uint32_t)kvcl_rand_below(&job->s->rand, job->n_cand - 1) : a;
    bool           first;

    (void)arg;
    b                  += ((job->n_cand > 1) && (b >= a)) ? 1 : 0;
    job->cand[a].score  = job->cand[a].queue_s;
    job->cand[b].score  = job->cand[b].queue_s;
    first               = job->cand[a].score <= job->cand[b].score;
    job->pick           = first ? a : b;
    job->second         = (a == b) ? KVCL_SCHED_NONE : (first ? b : a);
}

const kvcl_policy_t kvcl_policy_place_p2c = {.name   = "p2c",
                                             .kind   = KVCL_POLICY_PREFILL,
                                             .desc   = "the shorter prefill queue of two that are drawn",
                                             .source = "Mitzenmacher, the power of two choices (TPDS'01)",
                                             .timed  = true,
                                             .place  = place};
