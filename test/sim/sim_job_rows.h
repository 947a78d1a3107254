/*
 * Rows of experts in sim_job.h: what is written in them.
 */
#ifndef KVCL_TEST_SIM_JOB_ROWS_H
#define KVCL_TEST_SIM_JOB_ROWS_H

#include "sim_job.h"

/* A row: its expert, its token's slot, number, step and token, and its place. */
static inline uint64_t job_row_of(const job_t *job, uint32_t self, int64_t expert, uint32_t token, uint32_t place)
{
    return ((uint64_t)expert << 56) | ((uint64_t)self << 48) | ((job->round & 0xffff) << 32) |
           ((job->ep.turn.step & 0xff) << 24) | ((uint64_t)token << 16) | place;
}

/* The place that a row is for. */
static inline uint32_t job_row_place(const job_ep_t *ep, uint32_t row)
{
    uint32_t s = 0;

    while (ep->route.begin[s + 1] <= row) {
        ++s;
    }
    return s;
}

/* The value of one of this rank's rows. */
static inline uint64_t job_row_own(const proc_t *p, uint32_t row)
{
    const job_t    *job  = &jobs[index_of(p)];
    const uint32_t place = job_row_place(&job->ep, row);

    return job_row_of(job, p->slot, job->ep.placement[place], job->ep.route.tokens[row], place);
}

#endif
