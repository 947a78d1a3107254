/* First come, first served: by arrival, then by the order of the list. Pure. */
#include "config.h"
#include "sched/policies.h"

static size_t next(kvcl_policy_queue_t *queue, const double *arg)
{
    size_t i, best = 0;

    (void)arg;
    for (i = 1; i < queue->n; ++i) {
        if (kvcl_queue_at(queue, i)->arrival_s < kvcl_queue_at(queue, best)->arrival_s) {
            best = i;
        }
    }
    return best;
}

const kvcl_policy_t kvcl_policy_queue_fcfs = {.name   = "fcfs",
                                              .kind   = KVCL_POLICY_QUEUE,
                                              .desc   = "first come, first served",
                                              .source = "Mooncake, FAST'25, section 4.1",
                                              .next   = next};
