/*
 * Copies of popular prefixes. For policies of placement, after the pick.
 */
#ifndef KVCL_SCHED_REPLICATE_H
#define KVCL_SCHED_REPLICATE_H

#include "sched/gather.h"

/**
 * Plan copies of the prompt's hottest trunk into job->copy. horizon: seconds within which a copy must be expected to be
 * asked for; 0: none is planned. Without keys none is.
 */
void kvcl_replicate(kvcl_job_t *job, const kvcl_prices_t *prices, double horizon);

#endif
