/*
 * The decode instance by load: the least predicted TBT with the request added, among those with room for its KV;
 * without room anywhere, the one with the most. Ties: the nearer one to the prefill, then the one with more room. Pure.
 */
#include "config.h"
#include "sched/policies.h"

static double room_of(const kvcl_sched_inst_t *inst)
{
    return (inst->kv_total == 0) ? 1e18 : (double)inst->kv_free - (double)inst->pending_tokens;
}

/* 0: the same instance; then host, rack, network class */
static unsigned distance(const kvcl_sched_inst_t *a, const kvcl_sched_inst_t *b)
{
    if (a->id == b->id) {
        return 0;
    }
    if (a->host == b->host) {
        return 1;
    }
    return (a->rack == b->rack) ? 2 : ((a->net == b->net) ? 3 : 4);
}

static void decode(kvcl_job_t *job, const double *arg)
{
    const double             need = (double)job->req.tokens + job->output;
    const kvcl_sched_inst_t  *inst, *from = (job->n_cand > 0) ? kvcl_job_inst(job, &job->cand[job->pick]) : NULL;
    double                   room, tbt, best_tbt = 0, best_room = 0;
    unsigned                 far, best_far = 0;
    bool                     fits, best_fits = false, better;
    uint32_t                 k, i;

    (void)arg;
    for (k = 0; k < job->n_dec; ++k) {
        i    = job->dec[k];
        inst = job->inst[i];
        room = room_of(inst);
        fits = room >= need;
        tbt  = kvcl_times_tbt(job, i);
        tbt  = (tbt < 0) ? (double)inst->running + inst->pending : tbt;
        far  = (from == NULL) ? 0 : distance(from, inst);
        if (job->dpick == KVCL_SCHED_NONE) {
            better = true;
        } else if (fits != best_fits) {
            better = fits;
        } else if (!fits) {
            better = room > best_room;
        } else if (tbt != best_tbt) {
            better = tbt < best_tbt;
        } else {
            better = (far != best_far) ? far < best_far : room > best_room;
        }
        if (better) {
            job->dpick = i;
            best_tbt   = tbt;
            best_room  = room;
            best_far   = far;
            best_fits  = fits;
        }
    }
}

const kvcl_policy_t kvcl_policy_decode_load = {.name   = "load",
                                               .kind   = KVCL_POLICY_DECODE,
                                               .desc   = "the least predicted TBT, among those with room for its KV",
                                               .source = "Mooncake, arXiv 2407.00079, algorithm 1",
                                               .decode = decode};
