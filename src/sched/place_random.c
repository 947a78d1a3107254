/* Placement at random, by the scheduler's seed. Pure. */
#include "config.h"
#include "sched/policies.h"

static void place(kvcl_job_t *job, const double *arg)
{
    (void)arg;
    job->pick   = (uint32_t)kvcl_rand_below(&job->s->rand, job->n_cand);
    job->second = KVCL_SCHED_NONE;
}

const kvcl_policy_t kvcl_policy_place_random = {.name   = "random",
                                                .kind   = KVCL_POLICY_PREFILL,
                                                .desc   = "any instance, by the seed",
                                                .source = "Mooncake, FAST'25, section 4.2 (baseline)",
                                                .blind  = true,
                                                .place  = place};
