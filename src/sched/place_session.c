/*
 * Sessions by rendezvous hashing with bounded load: the requests of a session go to the instance of the highest hash
 * that has at most bound x the mean load; requests without a session are hashed by their first block, or their id. An
 * instance that joins or leaves moves its own sessions only. Pure.
 */
#include "config.h"
#include "sched/policies.h"

#include <string.h>

static uint64_t identity(const kvcl_sched_req_t *req)
{
    uint64_t id = (req->session != 0) ? req->session : req->id;

    if ((req->session == 0) && (req->keys != NULL) && (req->n_keys > 0)) {
        memcpy(&id, &req->keys[0].bytes[8], sizeof(id));
    }
    return id;
}

static void place(kvcl_job_t *job, const double *arg)
{
    const uint64_t          id = identity(&job->req);
    const kvcl_sched_inst_t *inst;
    double                  mean = 0, load;
    uint64_t                mix;
    uint32_t                i;

    for (i = 0; i < job->n_cand; ++i) {
        inst  = kvcl_job_inst(job, &job->cand[i]);
        mean += (double)inst->prefills + inst->waiting + inst->running;
    }
    mean = (mean + 1) / job->n_cand; /* with this request */
    for (i = 0; i < job->n_cand; ++i) {
        inst = kvcl_job_inst(job, &job->cand[i]);
        load = (double)inst->prefills + inst->waiting + inst->running;
        mix  = id ^ ((uint64_t)inst->id * UINT64_C(0x9e3779b97f4a7c15));
        job->cand[i].score = 1 - ((double)(kvcl_splitmix64(&mix) >> 11) / 9007199254740992.0);
        if (load + 1 > arg[0] * ((mean > 1) ? mean : 1)) {
            job->cand[i].score += 1 + load; /* above its bound: after all others, by load */
        }
    }
    kvcl_pick_least(job);
}

const kvcl_policy_t kvcl_policy_place_session = {
    .name   = "session",
    .kind   = KVCL_POLICY_PREFILL,
    .desc   = "a session stays at its instance, unless that has more than bound=1.25 times the mean requests",
    .source = "Mirrokni et al., consistent hashing with bounded loads (SODA'18)",
    .keys   = {{"bound", 1.25, 1, 1e6}},
    .place  = place};
