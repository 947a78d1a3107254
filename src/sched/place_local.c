/*
 * The paper's cache-aware placement without transfers: the least queue + prefill with the instance's own run. Pure.
 */
#include "config.h"
#include "sched/policies.h"

static void place(kvcl_job_t *job, const double *arg)
{
    uint32_t i;

    (void)arg;
    for (i = 0; i < job->n_cand; ++i) {
        job->cand[i].score = job->cand[i].queue_s + job->cand[i].prefill_s;
    }
    kvcl_pick_least(job);
}

const kvcl_policy_t kvcl_policy_place_local = {.name   = "local",
                                               .kind   = KVCL_POLICY_PREFILL,
                                               .desc   = "the least queue + prefill, with the blocks it holds itself",
                                               .source = "Mooncake, FAST'25, section 4.2 (local cache-aware)",
                                               .timed  = true,
                                               .place  = place};
