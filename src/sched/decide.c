/*
 * A decision, from the request to the filled result: the order of its parts is in sched.h. WAIT and REFUSE change
 * nothing but the state of the drawing policies.
 */
#include "config.h"
#include "sched/sched.h"
#include "base/error.h"
#include "base/structs.h"
#include "handle/handle.h"

static const double RETRY_S = 1; /* when there is no better guess */

static bool number_ok(double x)
{
    return (x >= 0) && (x <= 1e18);
}

static kvcl_status_t read_req(kvcl_job_t *job, const kvcl_sched_req_t *req, double now_s, const char *call)
{
    kvcl_sched_req_t *to = &job->req;
    kvcl_status_t    status;

    if (req == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: the request is NULL", call);
    }
    *to    = (kvcl_sched_req_t)KVCL_SCHED_REQ_INIT;
    status = kvcl_struct_in(to, req, KVCL_UP_TO(kvcl_sched_req_t, kv_bytes), sizeof(*to), "kvcl_sched_req_t");
    if (status != KVCL_OK) {
        return status;
    }
    if ((to->tokens == 0) || (to->tokens > (UINT64_C(1) << 40)) || ((to->n_keys > 0) && (to->block_tokens == 0)) ||
        (to->klass >= KVCL_SCHED_CLASSES) || ((to->flags & ~(uint32_t)KVCL_SCHED_DRY) != 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: the request has %llu tokens (1 to 2^40 are possible), blocks of "
                         "%u tokens (not 0), class %u (0 to 31), flags %u (0 or 1)", call,
                         (unsigned long long)to->tokens, (unsigned)to->block_tokens, (unsigned)to->klass,
                         (unsigned)to->flags);
    }
    if (!number_ok(to->weight) || !number_ok(to->ttft_s) || !number_ok(to->tbt_s) || !number_ok(to->kv_bytes) ||
        !((to->arrival_s >= -1e18) && (to->arrival_s <= 1e18)) || !((now_s >= -1e18) && (now_s <= 1e18))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: weight, ttft_s, tbt_s or kv_bytes of the request is negative or "
                         "not finite, or arrival_s or now_s is not finite", call);
    }
    to->weight = (to->weight == 0) ? 1 : to->weight;
    return KVCL_OK;
}

static kvcl_status_t check_call(const char *call, kvcl_sched_h sched, const kvcl_sched_inst_t *insts, size_t stride,
                                size_t n_insts, const kvcl_sched_decision_t *decision)
{
    kvcl_status_t status = kvcl_handle_check(sched, KVCL_KIND_SCHED, call);

    if (status == KVCL_OK) {
        status = kvcl_struct_out_check(decision, KVCL_UP_TO(kvcl_sched_decision_t, runs), "kvcl_sched_decision_t",
                                       call);
    }
    if ((status == KVCL_OK) && (n_insts > 0)) {
        status = kvcl_stride_check(stride, KVCL_UP_TO(kvcl_sched_inst_t, past_s), "kvcl_sched_inst_t", call);
    }
    if ((status == KVCL_OK) && (((insts == NULL) && (n_insts > 0)) || (n_insts > sched->params.max_insts))) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %zu instances, at most max_insts (%u) are possible; or insts "
                           "is NULL", call, n_insts, (unsigned)sched->params.max_insts);
    }
    return status;
}

static double expected_output(const kvcl_sched_t *s, const kvcl_sched_req_t *req)
{
    double tokens = (double)req->output_tokens;

    if (tokens == 0) {
        tokens = kvcl_lengths_quantile(&s->learn.lengths[req->klass], 0.5);
    }
    tokens = (tokens == 0) ? 256 : tokens;
    return ((req->output_max > 0) && (tokens > (double)req->output_max)) ? (double)req->output_max : tokens;
}

/* Clear what the last decision left. The arrays stay. */
static kvcl_job_t *new_job(kvcl_sched_t *s, double now_s)
{
    kvcl_job_t *job = &s->job;

    job->s        = s;
    job->now_s    = now_s;
    job->n_inst   = 0;
    job->left_out = 0;
    job->n_cand   = 0;
    job->n_dec    = 0;
    job->pick     = 0;
    job->second   = KVCL_SCHED_NONE;
    job->dpick    = KVCL_SCHED_NONE;
    job->placed   = KVCL_SCHED_NONE;
    job->fallback = false;
    job->n_old    = 0;
    job->keep     = false;
    job->n_pieces = 0;
    job->n_copies = 0;
    job->count    = false;
    job->holds    = NULL;
    job->n_holds  = 0;
    return job;
}

/* Blocks of the prompt that can be shared: no more than it has tokens for. */
static uint32_t blocks_of(const kvcl_sched_req_t *req, uint32_t most)
{
    const uint64_t all = (req->n_keys == 0) ? 0 : (req->tokens + req->block_tokens - 1) / req->block_tokens;
    const uint64_t n   = (req->n_keys < all) ? req->n_keys : all;

    return (uint32_t)((n < most) ? n : most);
}

static void start(kvcl_job_t *job, kvcl_sched_decision_t *out)
{
    const kvcl_sched_t *s = job->s;

    *out              = (kvcl_sched_decision_t){.size = sizeof(*out), .verdict = KVCL_SCHED_GO,
                                                .prefill = KVCL_SCHED_NONE, .decode = KVCL_SCHED_NONE,
                                                .runner_up = KVCL_SCHED_NONE};
    out->times.ttft_s = -1;
    out->times.error  = -1;
    out->tbt_s        = -1;
    out->tbt_error    = -1;
    out->runner_times = out->times;
    job->out          = out;
    job->blocks       = blocks_of(&job->req, s->params.max_blocks);
    job->kv_bytes     = (job->req.kv_bytes > 0) ? job->req.kv_bytes : s->models[0]->info.kv_bytes;
    job->output       = expected_output(s, &job->req);
    out->output_tokens = (uint64_t)job->output;
}

static void nobody(kvcl_job_t *job)
{
    job->out->verdict = KVCL_SCHED_WAIT;
    job->out->reason  = KVCL_SCHED_REASON_NO_CANDIDATE;
    job->out->retry_s = RETRY_S;
}

static void set_decode(kvcl_job_t *job, uint32_t i)
{
    const kvcl_sched_inst_t *inst = job->inst[i];

    job->dpick          = i;
    job->out->decode    = inst->id;
    job->out->tbt_s     = kvcl_times_tbt(job, i);
    job->out->tbt_error = ((job->out->tbt_s < 0) || kvcl_job_old(job, inst)) ? -1 :
                          kvcl_factor_error(&job->s->learn.inst[inst->id].decode,
                                            kvcl_job_model(job, inst)->info.decode_error);
}

static void pick_decode(kvcl_job_t *job)
{
    const kvcl_sched_t *s = job->s;

    if (job->n_dec > 0) {
        s->choice[KVCL_POLICY_DECODE].policy->decode(job, s->choice[KVCL_POLICY_DECODE].arg);
        set_decode(job, job->dpick);
    }
}

static void place(kvcl_job_t *job)
{
    const kvcl_choice_t   *choice = &job->s->choice[KVCL_POLICY_PREFILL];
    kvcl_sched_decision_t *out    = job->out;
    kvcl_cand_t           *cand;
    uint32_t              i;

    for (i = 0; i < job->n_cand; ++i) {
        job->fallback = !kvcl_times_own(job, &job->cand[i]) || job->fallback;
    }
    kvcl_ahead(job);
    job->fallback = job->fallback && choice->policy->timed;
    job->old_prefill = job->old_prefill && !choice->policy->blind;
    if (job->fallback || job->old_prefill) {
        kvcl_pick_load(job);
    } else {
        choice->policy->place(job, choice->arg);
    }
    cand         = &job->cand[job->pick];
    out->prefill = kvcl_job_inst(job, cand)->id;
    out->score   = cand->score;
    out->busy_s  = (cand->prefill_s < 0) ? 0 : cand->prefill_s / cand->factor;
    out->reason  = (job->n_cand == 1) ? KVCL_SCHED_REASON_ONLY : KVCL_SCHED_REASON_BEST;
    out->reason  = job->old_prefill ? KVCL_SCHED_REASON_STALE :
                   (job->fallback ? KVCL_SCHED_REASON_FALLBACK : out->reason);
    pick_decode(job);
    kvcl_times_fill(job, cand, &out->times);
    if (job->second != KVCL_SCHED_NONE) {
        out->runner_up    = kvcl_job_inst(job, &job->cand[job->second])->id;
        out->runner_score = job->cand[job->second].score;
        kvcl_times_fill(job, &job->cand[job->second], &out->runner_times);
    }
}

static void remember(kvcl_job_t *job)
{
    const kvcl_sched_decision_t *out = job->out;
    const double                ttft = (out->times.ttft_s < 0) ? 0 : out->times.ttft_s;
    kvcl_followed_t             request;

    if ((out->verdict != KVCL_SCHED_GO) || ((job->req.flags & KVCL_SCHED_DRY) != 0)) {
        return;
    }
    kvcl_learn_give(&job->s->learn, out->prefill, job->now_s, out->busy_s);
    kvcl_replicate_done(job);
    request = (kvcl_followed_t){.id         = job->req.id,
                                .prefill    = out->prefill,
                                .decode     = out->decode,
                                .klass      = job->req.klass,
                                .prefill_s  = (out->times.prefill_s > 0) ? out->times.prefill_s : 0,
                                .fetch_s    = job->cand[job->pick].fetch_s,
                                .fetch_bytes = (double)out->fetch_tokens * job->kv_bytes,
                                .deadline_s = (job->req.ttft_s > 0) ? job->req.arrival_s + job->req.ttft_s : 0,
                                .start_s    = (job->req.arrival_s + ttft > job->now_s) ? job->req.arrival_s + ttft :
                                                                                         job->now_s,
                                .tokens     = (double)job->req.tokens,
                                .output     = job->output};
    kvcl_follow_add(&job->s->follow, &request);
}

kvcl_status_t kvcl_sched_decide(kvcl_sched_h sched, double now_s, const kvcl_sched_req_t *req,
                                const kvcl_sched_inst_t *insts, size_t stride, size_t n_insts,
                                const kvcl_sched_hold_t *holds, size_t n_holds, kvcl_sched_decision_t *decision_p)
{
    const char            *call  = "kvcl_sched_decide";
    kvcl_status_t         status = check_call(call, sched, insts, stride, n_insts, decision_p);
    kvcl_sched_decision_t own, *out;
    kvcl_job_t            *job;

    if (status != KVCL_OK) {
        return status;
    }
    job    = new_job(sched, now_s);
    status = read_req(job, req, now_s, call);
    if ((status == KVCL_OK) && (holds == NULL) && (n_holds > 0)) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: holds is NULL", call);
    }
    if (status != KVCL_OK) {
        return status;
    }
    out = (decision_p->size == sizeof(own)) ? decision_p : &own;
    start(job, out);
    job->holds   = holds;
    job->n_holds = (n_holds < sched->params.max_holds) ? n_holds : sched->params.max_holds;
    status       = kvcl_view_make(job, insts, stride, n_insts);
    if (status != KVCL_OK) {
        return status;
    }
    out->left_out = job->left_out;
    out->stale    = job->n_old;
    if (job->n_cand == 0) {
        nobody(job);
    } else {
        place(job);
        kvcl_runs_write(job);
        sched->choice[KVCL_POLICY_ADMIT].policy->admit(job, sched->choice[KVCL_POLICY_ADMIT].arg, false);
        remember(job);
    }
    if (out == &own) {
        kvcl_struct_out(decision_p, &own, sizeof(own));
    }
    return KVCL_OK;
}

/* After the prefill: the request decodes elsewhere than planned, or not at all. One whose decode instance has gone is
 * not followed any more: it is again. */
static void placed_again(kvcl_job_t *job)
{
    kvcl_followed_t *request = kvcl_follow_find(&job->s->follow, job->req.id);
    kvcl_followed_t again;

    if ((job->req.flags & KVCL_SCHED_DRY) != 0) {
        return;
    }
    if (job->out->verdict == KVCL_SCHED_REFUSE) {
        kvcl_follow_remove(&job->s->follow, job->req.id);
    } else if (request != NULL) {
        request->decode = job->out->decode;
    } else {
        again = (kvcl_followed_t){.id      = job->req.id,
                                  .prefill = job->out->prefill,
                                  .decode  = job->out->decode,
                                  .klass   = job->req.klass,
                                  .decodes = true,
                                  .start_s = job->now_s,
                                  .tokens  = (double)job->req.tokens,
                                  .output  = job->output};
        kvcl_follow_add(&job->s->follow, &again);
    }
}

kvcl_status_t kvcl_sched_decode(kvcl_sched_h sched, double now_s, const kvcl_sched_req_t *req, uint32_t prefill,
                                uint32_t decode, const kvcl_sched_inst_t *insts, size_t stride, size_t n_insts,
                                kvcl_sched_decision_t *decision_p)
{
    const char            *call  = "kvcl_sched_decode";
    kvcl_status_t         status = check_call(call, sched, insts, stride, n_insts, decision_p);
    kvcl_sched_decision_t out;
    kvcl_job_t            *job;
    uint32_t              at;

    if (status != KVCL_OK) {
        return status;
    }
    job    = new_job(sched, now_s);
    status = read_req(job, req, now_s, call);
    if (status != KVCL_OK) {
        return status;
    }
    start(job, &out);
    status = kvcl_view_make(job, insts, stride, n_insts);
    if (status != KVCL_OK) {
        return status;
    }
    out.left_out = job->left_out;
    out.stale    = job->n_old;
    out.prefill  = prefill;
    at           = kvcl_view_find(job, decode);
    if (job->n_dec == 0) {
        nobody(job);
    } else {
        job->placed = ((at != KVCL_SCHED_NONE) && (job->inst[at]->pending > 0)) ? at : KVCL_SCHED_NONE;
        pick_decode(job);
        if (job->old_decode && !sched->choice[KVCL_POLICY_DECODE].policy->blind) {
            out.reason = KVCL_SCHED_REASON_STALE;
        }
        if ((at != KVCL_SCHED_NONE) && ((job->inst[at]->flags & KVCL_SCHED_DRAINING) == 0)) {
            set_decode(job, at); /* the KV is on its way there */
        }
        sched->choice[KVCL_POLICY_ADMIT].policy->admit(job, sched->choice[KVCL_POLICY_ADMIT].arg, true);
        placed_again(job);
    }
    kvcl_struct_out(decision_p, &out, sizeof(out));
    return KVCL_OK;
}
