/*
 * How much of a queue runs before a new request, where the queue is not in the order of arrival: of the prefills that
 * are followed at the instance, the shorter ones, or those with an earlier deadline that can still be met. What the
 * report has beyond those that are followed counts in full. Pure.
 */
#include "config.h"
#include "sched/sched.h"

static bool runs_before(const kvcl_job_t *job, const kvcl_followed_t *r, const kvcl_cand_t *cand,
                        kvcl_queue_order_t order)
{
    if (order == KVCL_ORDER_LENGTH) {
        return (cand->prefill_s < 0) || (r->prefill_s <= cand->prefill_s);
    }
    if ((job->req.ttft_s <= 0) || (r->deadline_s <= 0)) {
        return job->req.ttft_s <= 0;
    }
    return (r->deadline_s <= job->req.arrival_s + job->req.ttft_s) && (job->now_s + r->prefill_s <= r->deadline_s);
}

void kvcl_ahead(kvcl_job_t *job)
{
    kvcl_sched_t             *s    = job->s;
    const kvcl_queue_order_t order = s->choice[KVCL_POLICY_QUEUE].policy->order;
    const kvcl_followed_t    *r;
    kvcl_cand_t              *cand;
    double                   rest;
    uint32_t                 i;

    if ((order == KVCL_ORDER_ARRIVAL) || (s->follow.n == 0)) {
        return;
    }
    for (i = 0; i < job->n_cand; ++i) {
        s->known[kvcl_job_inst(job, &job->cand[i])->id]   = 0;
        s->scratch[kvcl_job_inst(job, &job->cand[i])->id] = 0;
    }
    for (i = 0; i < s->follow.n; ++i) {
        r = &s->follow.at[i];
        if (r->decodes || (kvcl_view_find(job, r->prefill) == KVCL_SCHED_NONE) ||
            (s->cand_of[r->prefill] == KVCL_SCHED_NONE)) {
            continue;
        }
        s->known[r->prefill] += r->prefill_s;
        if (runs_before(job, r, &job->cand[s->cand_of[r->prefill]], order)) {
            s->scratch[r->prefill] += r->prefill_s;
        }
    }
    for (i = 0; i < job->n_cand; ++i) {
        cand          = &job->cand[i];
        rest          = cand->queue_s - s->known[kvcl_job_inst(job, cand)->id];
        rest          = ((rest > 0) ? rest : 0) + s->scratch[kvcl_job_inst(job, cand)->id];
        cand->queue_s = (rest < cand->queue_s) ? rest : cand->queue_s;
    }
}
