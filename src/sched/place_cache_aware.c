/*
 * SGLang's cache_aware: while the numbers of requests are uneven (max - min > abs and max > rel x min) the fewest
 * requests; else the instance with the longest match, if it is more than match of the prompt; else the fewest requests.
 * Pure.
 */
#include "config.h"
#include "sched/policies.h"

enum { ABS, REL, MATCH };

static double requests(const kvcl_sched_inst_t *inst)
{
    return (double)inst->prefills + inst->waiting + inst->running + inst->pending;
}

static void place(kvcl_job_t *job, const double *arg)
{
    double   load, least = 1e18, most = 0;
    uint32_t i, longest = 0;
    bool     uneven, match;

    for (i = 0; i < job->n_cand; ++i) {
        load    = requests(kvcl_job_inst(job, &job->cand[i]));
        least   = (load < least) ? load : least;
        most    = (load > most) ? load : most;
        longest = (job->cand[i].own > longest) ? job->cand[i].own : longest;
    }
    uneven = (most - least > arg[ABS]) && (most > arg[REL] * least);
    match  = !uneven && ((double)longest * job->req.block_tokens > arg[MATCH] * (double)job->req.tokens);
    for (i = 0; i < job->n_cand; ++i) {
        load               = requests(kvcl_job_inst(job, &job->cand[i]));
        job->cand[i].score = load + ((match && (job->cand[i].own < longest)) ? 1e9 : 0);
    }
    kvcl_pick_least(job);
}

const kvcl_policy_t kvcl_policy_place_cache_aware = {
    .name   = "cache_aware",
    .kind   = KVCL_POLICY_PREFILL,
    .desc   = "the longest match above match=0.3; the fewest requests if max - min > abs=64 and max > rel=1.5 min",
    .source = "SGLang gateway, cache_aware, its defaults",
    .keys   = {{"abs", 64, 0, 1e9}, {"rel", 1.5, 1, 1e6}, {"match", 0.3, 0, 1}},
    .place  = place};
