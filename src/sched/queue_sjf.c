/*
 * Shortest first: the least prefill seconds for its weight; each second of waiting takes age seconds off, so that long
 * ones come to their turn. A request whose fetches are not done yet comes after those that can run. Pure.
 */
#include "config.h"
#include "sched/policies.h"

static double rank(const kvcl_policy_queue_t *queue, size_t i, double age)
{
    const kvcl_sched_waiting_t *w = kvcl_queue_at(queue, i);

    return (w->prefill_s / ((w->weight > 0) ? w->weight : 1)) - (age * (queue->now_s - w->arrival_s));
}

static size_t next(kvcl_policy_queue_t *queue, const double *arg)
{
    size_t i, best = 0;
    bool   ready, best_ready = kvcl_queue_ready(queue, 0);

    for (i = 1; i < queue->n; ++i) {
        ready = kvcl_queue_ready(queue, i);
        if ((ready != best_ready) ? ready : rank(queue, i, arg[0]) < rank(queue, best, arg[0])) {
            best       = i;
            best_ready = ready;
        }
    }
    return best;
}

const kvcl_policy_t kvcl_policy_queue_sjf = {.name   = "sjf",
                                             .kind   = KVCL_POLICY_QUEUE,
                                             .desc   = "the shortest prefill for its weight first; age=0 seconds off a "
                                                       "second of waiting",
                                             .source = "Smith's rule; Dynamo's wspt",
                                             .order  = KVCL_ORDER_LENGTH,
                                             .keys   = {{"age", 0, 0, 1e6}},
                                             .next   = next};
