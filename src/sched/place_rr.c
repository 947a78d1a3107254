/* Placement in turn, by the order of the list. Pure. */
#include "config.h"
#include "sched/policies.h"

static void place(kvcl_job_t *job, const double *arg)
{
    (void)arg;
    job->pick   = (uint32_t)(job->s->turn++ % job->n_cand);
    job->second = KVCL_SCHED_NONE;
}

const kvcl_policy_t kvcl_policy_place_rr = {.name   = "rr",
                                            .kind   = KVCL_POLICY_PREFILL,
                                            .desc   = "each instance in turn, as they are listed",
                                            .source = "common baseline",
                                            .blind  = true,
                                            .place  = place};
