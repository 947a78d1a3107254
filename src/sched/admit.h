/* The refusal that the policies of admission share. Pure. */
#ifndef KVCL_SCHED_ADMIT_H
#define KVCL_SCHED_ADMIT_H

#include "sched/sched.h"

static inline void kvcl_admit_refuse(kvcl_job_t *job, kvcl_sched_reason_t reason, double retry_s)
{
    job->out->verdict = KVCL_SCHED_REFUSE;
    job->out->reason  = (uint32_t)reason;
    job->out->retry_s = (retry_s < 0.5) ? 0.5 : ((retry_s > 60) ? 60 : retry_s);
}

#endif
