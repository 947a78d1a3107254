/* Placement by load alone: the shortest prefill queue in seconds. What instances hold does not count. Pure. */
#include "config.h"
#include "sched/policies.h"

static void place(kvcl_job_t *job, const double *arg)
{
    (void)arg;
    kvcl_pick_load(job);
}

const kvcl_policy_t kvcl_policy_place_load = {.name   = "load",
                                              .kind   = KVCL_POLICY_PREFILL,
                                              .desc   = "the shortest prefill queue, in predicted seconds",
                                              .source = "Mooncake, FAST'25, section 4.2 (load balancing)",
                                              .timed  = true,
                                              .place  = place};
