/*
 * Picking among scored candidates, and the least loaded one. Ties go to the instance that was given less work of late,
 * then to the least id, so that an idle cluster is used evenly and decisions repeat. Pure.
 */
#include "config.h"
#include "sched/sched.h"

static const double EVEN = 1e-9; /* scores that differ by less, relatively, are even */

static double past_of(const kvcl_job_t *job, const kvcl_sched_inst_t *inst)
{
    return inst->past_s + kvcl_learn_past(&job->s->learn.inst[inst->id], job->now_s);
}

static bool before(const kvcl_job_t *job, const kvcl_cand_t *a, const kvcl_cand_t *b)
{
    const kvcl_sched_inst_t *of_a, *of_b;
    const double            size = ((a->score < 0) ? -a->score : a->score) + ((b->score < 0) ? -b->score : b->score);
    double                  past_a, past_b;

    if (a->score < b->score - (EVEN * size)) {
        return true;
    }
    if (a->score > b->score + (EVEN * size)) {
        return false;
    }
    of_a   = kvcl_job_inst(job, a);
    of_b   = kvcl_job_inst(job, b);
    past_a = past_of(job, of_a);
    past_b = past_of(job, of_b);
    return (past_a != past_b) ? past_a < past_b : of_a->id < of_b->id;
}

void kvcl_pick_least(kvcl_job_t *job)
{
    uint32_t i, best = 0, second = KVCL_SCHED_NONE;

    for (i = 1; i < job->n_cand; ++i) {
        if (before(job, &job->cand[i], &job->cand[best])) {
            second = best;
            best   = i;
        } else if ((second == KVCL_SCHED_NONE) || before(job, &job->cand[i], &job->cand[second])) {
            second = i;
        }
    }
    job->pick   = best;
    job->second = second;
}

void kvcl_pick_load(kvcl_job_t *job)
{
    const kvcl_sched_inst_t *inst;
    uint32_t                i;

    for (i = 0; i < job->n_cand; ++i) {
        inst               = kvcl_job_inst(job, &job->cand[i]);
        job->cand[i].score = (inst->queue_s > 0) ? inst->queue_s :
                             (1e-6 * (double)inst->queued_tokens) + (1e-3 * ((double)inst->prefills + inst->waiting));
    }
    kvcl_pick_least(job);
}
