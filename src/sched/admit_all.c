/* Admission of everything. Pure. */
#include "config.h"
#include "sched/policies.h"

static void admit(kvcl_job_t *job, const double *arg, bool late)
{
    (void)job;
    (void)arg;
    (void)late;
}

const kvcl_policy_t kvcl_policy_admit_all = {.name   = "all",
                                             .kind   = KVCL_POLICY_ADMIT,
                                             .desc   = "nothing is refused",
                                             .source = "common baseline",
                                             .admit  = admit};
