/*
 * Dynamo's router: blocks to prefill (those queued, and the prompt less a credit for what the instance holds, by tier),
 * and blocks that decode. The least wins; its temperature is 0, the default. Pure.
 */
#include "config.h"
#include "sched/policies.h"

enum { SCALE, DEVICE, HOST, DISK };

/* Blocks of each instance's own run, by the credit of their tier. Scratch: by id. */
static void add_credits(kvcl_job_t *job, const double *arg)
{
    double                  *credit = job->s->scratch;
    const kvcl_sched_hold_t *hold;
    uint64_t                end;
    uint32_t                own, i;
    size_t                  k;

    for (i = 0; i < job->n_inst; ++i) {
        credit[job->inst[i]->id] = 0;
    }
    for (k = 0; k < job->n_holds; ++k) {
        hold = &job->holds[k];
        if (kvcl_view_find(job, hold->inst) != KVCL_SCHED_NONE) {
            own = job->s->own[hold->inst];
            end = (uint64_t)hold->first + hold->blocks;
            end = (end < own) ? end : own;
            if (end > hold->first) {
                credit[hold->inst] += (double)(end - hold->first) * arg[(hold->tier < 2) ? DEVICE + hold->tier : DISK];
            }
        }
    }
}

static void place(kvcl_job_t *job, const double *arg)
{
    const double            block = (job->req.block_tokens > 0) ? job->req.block_tokens : 16;
    const kvcl_sched_inst_t *inst;
    double                  prefill, credit;
    uint32_t                i;

    add_credits(job, arg);
    for (i = 0; i < job->n_cand; ++i) {
        inst               = kvcl_job_inst(job, &job->cand[i]);
        credit             = job->s->scratch[inst->id];
        credit             = (credit < job->cand[i].own) ? credit : job->cand[i].own;
        prefill            = (((double)inst->queued_tokens + (double)job->req.tokens) / block) - credit;
        job->cand[i].score = (arg[SCALE] * ((prefill > 0) ? prefill : 0)) +
                             (((double)inst->context_tokens + (double)inst->pending_tokens) / block);
    }
    kvcl_pick_least(job);
}

const kvcl_policy_t kvcl_policy_place_dynamo = {
    .name   = "dynamo",
    .kind   = KVCL_POLICY_PREFILL,
    .desc   = "the least scale=1 x blocks to prefill + blocks that decode; credits device=1, host=0.75, disk=0.25",
    .source = "NVIDIA Dynamo, lib/kv-router, its defaults",
    .keys   = {{"scale", 1, 0, 1e6}, {"device", 1, 0, 1}, {"host", 0.75, 0, 1}, {"disk", 0.25, 0, 1}},
    .place  = place};
