/*
 * Earliest deadline first, among those that can still make it. A request that cannot gets age times its allowance,
 * again and again until it can make that, and is ordered by this later deadline: it does not come before those in time,
 * and has its turn all the same. age=0: such requests come last, by arrival. refuse=1: they are refused instead, once
 * even the optimistic end of the prediction is too late. Pure.
 */
#include "config.h"
#include "sched/policies.h"

enum { AGE, REFUSE };

static const double NO_DEADLINE_S = 60; /* the allowance of a request without a deadline */
static const double FAR           = 1e12;

/* The deadline that a request is ordered by. */
static double deadline(const kvcl_policy_queue_t *queue, const kvcl_sched_waiting_t *w, double age)
{
    const double start = (w->ready_s > queue->now_s) ? w->ready_s : queue->now_s;
    const double end   = start + w->prefill_s;
    double       allow = (w->deadline_s > w->arrival_s) ? w->deadline_s - w->arrival_s : NO_DEADLINE_S;
    unsigned     i;

    if (end <= w->arrival_s + allow) {
        return w->arrival_s + allow;
    }
    if (age <= 1) {
        return FAR + w->arrival_s;
    }
    for (i = 0; (i < 64) && (end > w->arrival_s + allow); ++i) {
        allow *= age;
    }
    return w->arrival_s + allow;
}

static bool hopeless(const kvcl_policy_queue_t *queue, const kvcl_sched_waiting_t *w)
{
    return (w->deadline_s != 0) && (w->error >= 0) &&
           (queue->now_s + (w->prefill_s / (1 + w->error)) > w->deadline_s);
}

static size_t next(kvcl_policy_queue_t *queue, const double *arg)
{
    const kvcl_sched_waiting_t *w;
    size_t                     i, best = queue->n;
    double                     at, best_at = 0;
    bool                       ready, best_ready = false;

    for (i = 0; i < queue->n; ++i) {
        w = kvcl_queue_at(queue, i);
        if ((arg[REFUSE] > 0) && (queue->n_late < queue->cap) && hopeless(queue, w)) {
            queue->late[queue->n_late++] = i;
            continue;
        }
        at    = deadline(queue, w, arg[AGE]);
        ready = kvcl_queue_ready(queue, i);
        if ((best == queue->n) || ((ready != best_ready) ? ready : at < best_at)) {
            best       = i;
            best_at    = at;
            best_ready = ready;
        }
    }
    return best;
}

const kvcl_policy_t kvcl_policy_queue_edf = {
    .name   = "edf",
    .kind   = KVCL_POLICY_QUEUE,
    .desc   = "the earliest deadline that can be met; age=4 times the allowance for late ones; refuse=1: refuse them",
    .source = "EDF with feasibility; Kairos, arXiv 2605.02329",
    .order  = KVCL_ORDER_DEADLINE,
    .keys   = {{"age", 4, 0, 1e6}, {"refuse", 0, 0, 1}},
    .next   = next};
