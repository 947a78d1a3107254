/*
 * The view of one decision: the sound reports, the instances that may prefill or decode, and the leading blocks that
 * each one holds. The arrays are the scheduler's, made once; an entry by id is of this decision if its stamp is.
 */
#include "config.h"
#include "sched/sched.h"
#include "base/error.h"
#include "base/structs.h"

enum { PASSES = 8, STEPS = 64 };

static const double TIME_MAX = 1e9;

static bool time_ok(double x)
{
    return (x >= 0) && (x <= TIME_MAX);
}

/* 0: not known. Less than a byte, or a byte a second, is no report. */
static bool bytes_ok(double x)
{
    return (x == 0) || ((x >= 1) && (x <= 1e18));
}

static bool sound(const kvcl_sched_t *s, const kvcl_sched_inst_t *inst)
{
    return (inst->id < s->params.max_insts) && (s->stamp[inst->id] != s->call) && (inst->model < s->n_models) &&
           (inst->role <= KVCL_SCHED_BOTH) && time_ok(inst->age_s) && time_ok(inst->queue_s) && time_ok(inst->past_s) &&
           bytes_ok(inst->nic_bytes_s) && bytes_ok(inst->send_bytes) && bytes_ok(inst->recv_bytes) &&
           ((inst->kv_total == 0) || (inst->kv_free <= inst->kv_total));
}

static bool takes(const kvcl_sched_inst_t *inst, uint32_t role)
{
    return ((inst->role & role) != 0) && ((inst->flags & KVCL_SCHED_DRAINING) == 0);
}

static void add_candidate(kvcl_job_t *job, const kvcl_sched_inst_t *inst, uint32_t i)
{
    const bool old = kvcl_job_old(job, inst);
    double     factor;

    if (takes(inst, KVCL_SCHED_PREFILL) && (!old || job->old_prefill)) {
        job->s->cand_of[inst->id] = job->n_cand;
        factor = kvcl_factor_mean(&job->s->learn.inst[inst->id].prefill);
        job->cand[job->n_cand++] = (kvcl_cand_t){.inst = i, .factor = factor, .queue_s = inst->queue_s * factor,
                                                 .prefill_s = -1};
    }
    if (takes(inst, KVCL_SCHED_DECODE) && (!old || job->old_decode)) {
        job->dec[job->n_dec++] = i;
    }
}

/* Old reports tell no load: instances with one are left aside while at least half of their role have younger ones. */
static void add_candidates(kvcl_job_t *job)
{
    const kvcl_sched_inst_t *inst;
    int64_t                 prefill = 0, decode = 0; /* old ones less young ones */
    uint32_t                i;

    for (i = 0; i < job->n_inst; ++i) {
        inst        = job->inst[i];
        prefill    += takes(inst, KVCL_SCHED_PREFILL) ? (kvcl_job_old(job, inst) ? 1 : -1) : 0;
        decode     += takes(inst, KVCL_SCHED_DECODE) ? (kvcl_job_old(job, inst) ? 1 : -1) : 0;
        job->n_old += (takes(inst, KVCL_SCHED_BOTH) && kvcl_job_old(job, inst)) ? 1 : 0;
    }
    job->old_prefill = prefill > 0;
    job->old_decode  = decode > 0;
    for (i = 0; i < job->n_inst; ++i) {
        add_candidate(job, job->inst[i], i);
    }
}

/* Extend the leading blocks by id. Runs may come in any order, so those that do not fit yet are tried again. */
static void extend(kvcl_job_t *job, uint32_t *lead, bool pending)
{
    const kvcl_sched_hold_t *hold;
    const kvcl_sched_t      *s = job->s;
    bool                    again = true;
    size_t                  i;
    uint64_t                end;
    unsigned                pass;

    for (pass = 0; again && (pass < PASSES); ++pass) {
        again = false;
        for (i = 0; i < job->n_holds; ++i) {
            hold = &job->holds[i];
            if ((hold->inst >= s->params.max_insts) || (s->stamp[hold->inst] != s->call) ||
                (((hold->flags & KVCL_SCHED_PENDING) != 0) && !pending)) {
                continue;
            }
            end = (uint64_t)hold->first + hold->blocks;
            end = (end < job->blocks) ? end : job->blocks;
            if ((hold->first <= lead[hold->inst]) && (end > lead[hold->inst])) {
                lead[hold->inst] = (uint32_t)end;
                again            = (pass > 0) || again;
            } else if (hold->first > lead[hold->inst]) {
                again = (pass == 0) || again;
            }
        }
    }
}

/* held: what can be fetched from an instance; own: also what it will have when it prefills. */
static void leading_runs(kvcl_job_t *job)
{
    kvcl_sched_t *s       = job->s;
    bool         pending = false;
    uint32_t     i;
    size_t       k;

    for (i = 0; i < job->n_inst; ++i) {
        s->held[job->inst[i]->id] = 0;
    }
    extend(job, s->held, false);
    for (k = 0; k < job->n_holds; ++k) {
        pending = pending || ((job->holds[k].flags & KVCL_SCHED_PENDING) != 0);
    }
    for (i = 0; i < job->n_inst; ++i) {
        s->own[job->inst[i]->id] = s->held[job->inst[i]->id];
    }
    if (pending) {
        extend(job, s->own, true);
    }
}

kvcl_status_t kvcl_view_make(kvcl_job_t *job, const kvcl_sched_inst_t *insts, size_t stride, size_t n_insts)
{
    kvcl_sched_t            *s = job->s;
    const kvcl_sched_inst_t *inst;
    kvcl_status_t           status;
    uint32_t                i;
    size_t                  k;

    ++s->call;
    for (k = 0; k < n_insts; ++k) {
        inst = (const kvcl_sched_inst_t *)(const void *)((const char *)insts + (k * stride));
        if (inst->size != sizeof(*inst)) {
            s->copy[k] = (kvcl_sched_inst_t)KVCL_SCHED_INST_INIT;
            status     = kvcl_struct_in(&s->copy[k], inst, KVCL_UP_TO(kvcl_sched_inst_t, past_s), sizeof(*inst),
                                        "kvcl_sched_inst_t");
            if (status != KVCL_OK) {
                return status;
            }
            inst = &s->copy[k];
        }
        if (!sound(s, inst)) {
            ++job->left_out;
            continue;
        }
        i                   = job->n_inst++;
        job->inst[i]        = inst;
        s->stamp[inst->id]  = s->call;
        s->index[inst->id]  = i;
        s->cand_of[inst->id]  = KVCL_SCHED_NONE;
        s->model_of[inst->id] = inst->model;
    }
    add_candidates(job);
    leading_runs(job);
    for (i = 0; i < job->n_cand; ++i) {
        job->cand[i].own  = s->own[kvcl_job_inst(job, &job->cand[i])->id];
        job->cand[i].upto = job->cand[i].own;
    }
    return KVCL_OK;
}

uint32_t kvcl_view_find(const kvcl_job_t *job, uint32_t id)
{
    const kvcl_sched_t *s = job->s;

    return ((id < s->params.max_insts) && (s->stamp[id] == s->call)) ? s->index[id] : KVCL_SCHED_NONE;
}

/* The run of the instance that has block `at` on the fastest tier. NULL: none has it. */
static const kvcl_sched_hold_t *fastest_at(const kvcl_job_t *job, uint32_t id, uint64_t at, bool pending)
{
    const kvcl_sched_hold_t *hold, *best = NULL;
    size_t                  i;

    for (i = 0; i < job->n_holds; ++i) {
        hold = &job->holds[i];
        if ((hold->inst == id) && (hold->first <= at) && ((uint64_t)hold->first + hold->blocks > at) &&
            (pending || ((hold->flags & KVCL_SCHED_PENDING) == 0)) && ((best == NULL) || (hold->tier < best->tier))) {
            best = hold;
        }
    }
    return best;
}

uint16_t kvcl_view_tier(const kvcl_job_t *job, uint32_t id, uint32_t first, uint32_t end, bool pending)
{
    const kvcl_sched_hold_t *hold = fastest_at(job, id, first, pending);
    uint64_t                at;
    uint16_t                tier = 0;
    unsigned                step;

    for (step = 0; (step < STEPS) && (hold != NULL); ++step) {
        tier = (hold->tier > tier) ? hold->tier : tier;
        at   = (uint64_t)hold->first + hold->blocks;
        hold = (at < end) ? fastest_at(job, id, at, pending) : NULL;
    }
    return tier;
}
