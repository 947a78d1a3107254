/*
 * KVCL's admission, at arrival:
 *
 *   1. Feasibility. A request is refused if it would miss its TTFT even at the optimistic end of its prediction, ttft /
 *      (1 + error); or, in the same way, its TBT, with the requests that will decode when its prefill has ended. Each
 *      of them decodes for its own length: the expected one, or the median learnt of its class.
 *   2. Room. A request is refused if its KV fits into no decode instance, even an empty one: its prompt, with the
 *      output that the caller expects, or one token. A guess of the output refuses no request.
 *   3. Worth against price. Worth = weight x (seconds of its whole prefill)^gamma; cost = the seconds of prefill that
 *      it takes, and the decode room: its share of the tokens of KV, times the seconds that it holds them for an output
 *      of quantile q. Under overload only those pass whose worth / cost is above a price. The price rises while the
 *      queues are longer than `full` mean deadlines; while they are shorter, it refuses no request.
 *
 * A prediction without an error bound refuses no request. After the prefill none is refused: the prefill would be
 * wasted. Pure.
 */
#include "config.h"
#include "sched/admit.h"
#include "sched/policies.h"

enum { QUANTILE, FULL, GAMMA };

static const double STEP = 0.2; /* of the price, at a decision */

/* x^gamma for gamma 0, 0.5 and 1, linear between. Newton's root. */
static double power(double x, double gamma)
{
    double root = (x > 1) ? x : 1;
    int    i;

    for (i = 0; i < 30; ++i) {
        root = (root + (x / root)) / 2;
    }
    return (gamma <= 0.5) ? 1 + ((root - 1) * gamma * 2) : root + ((x - root) * ((gamma * 2) - 1));
}

static double output_of(const kvcl_job_t *job, double q)
{
    const kvcl_sched_req_t *req    = &job->req;
    double                 tokens = kvcl_lengths_quantile(&job->s->learn.lengths[req->klass], q);

    tokens = (tokens > job->output) ? tokens : job->output;
    return ((req->output_max > 0) && (tokens > (double)req->output_max)) ? (double)req->output_max : tokens;
}

/* What the caller expects of the output; not known: one token. Never what is only guessed. */
static double output_least(const kvcl_sched_req_t *req)
{
    const double tokens = (req->output_tokens > 0) ? (double)req->output_tokens : 1;

    return ((req->output_max > 0) && (tokens > (double)req->output_max)) ? (double)req->output_max : tokens;
}

static bool fits_nowhere(const kvcl_job_t *job)
{
    const double need = (double)job->req.tokens + output_least(&job->req);
    uint32_t     k;

    for (k = 0; k < job->n_dec; ++k) {
        if ((job->inst[job->dec[k]]->kv_total == 0) || ((double)job->inst[job->dec[k]]->kv_total >= need)) {
            return false;
        }
    }
    return job->n_dec > 0;
}

static bool ttft_hopeless(const kvcl_job_t *job)
{
    const kvcl_sched_times_t *t = &job->out->times;

    return (job->req.ttft_s > 0) && (t->ttft_s >= 0) && (t->error >= 0) &&
           (t->waited_s + ((t->ttft_s - t->waited_s) / (1 + t->error)) > job->req.ttft_s);
}

static bool tbt_hopeless(const kvcl_job_t *job)
{
    const kvcl_sched_t     *s   = job->s;
    const kvcl_sched_inst_t *inst;
    kvcl_forecast_t         f;
    double                  then, tbt = job->out->tbt_s;

    if ((job->req.tbt_s <= 0) || (tbt < 0) || (job->out->tbt_error < 0) || (job->dpick == KVCL_SCHED_NONE)) {
        return false;
    }
    inst = job->inst[job->dpick];
    if (job->out->times.ttft_s >= 0) {
        then = job->req.arrival_s + job->out->times.ttft_s;
        f    = kvcl_follow_forecast(&s->follow, inst->id, then, 0, tbt);
        tbt  = kvcl_model_decode(kvcl_job_model(job, inst), f.batch + 1, f.context + (double)job->req.tokens);
        tbt  = tbt * kvcl_factor_mean(&s->learn.inst[inst->id].decode);
        tbt  = (tbt < job->out->tbt_s) ? tbt : job->out->tbt_s; /* refused only if both are too long */
    }
    return tbt / (1 + job->out->tbt_error) > job->req.tbt_s;
}

/* Mean seconds of queue over the mean deadline, in units of `full` of it. */
static double load_of(kvcl_job_t *job, double full)
{
    kvcl_sched_t *s = job->s;
    double       sum = 0;
    uint32_t     i;

    for (i = 0; i < job->n_cand; ++i) {
        sum += kvcl_job_inst(job, &job->cand[i])->queue_s;
    }
    if ((job->req.flags & KVCL_SCHED_DRY) == 0) {
        s->mean_ttft += ((s->mean_ttft == 0) ? 1 : 0.02) * (job->req.ttft_s - s->mean_ttft);
    }
    return sum / job->n_cand / (full * ((s->mean_ttft > 0) ? s->mean_ttft : job->req.ttft_s));
}

static double worth_for_cost(const kvcl_job_t *job, const double *arg)
{
    const kvcl_cand_t       *cand = &job->cand[job->pick];
    const double            whole = kvcl_job_prefill(job, cand, 0);
    const kvcl_sched_inst_t *inst = (job->dpick == KVCL_SCHED_NONE) ? NULL : job->inst[job->dpick];
    const double            out   = output_of(job, arg[QUANTILE]);
    double                  room  = 0;

    if ((inst != NULL) && (inst->kv_total > 0) && (job->out->tbt_s > 0)) {
        room = ((double)job->req.tokens + out) / (double)inst->kv_total * out * job->out->tbt_s;
    }
    return job->req.weight * power(whole, arg[GAMMA]) / (cand->prefill_s + room + 1e-9);
}

/* The price moves between half and three times the mean worth / cost, while the load is above 1. */
static void move_price(kvcl_sched_t *s, double load, double worth)
{
    s->mean_worth += ((s->mean_worth == 0) ? 1 : 0.02) * (worth - s->mean_worth);
    if (load > 1) {
        s->price  = (s->price > s->mean_worth / 2) ? s->price : s->mean_worth / 2;
        s->price *= 1 + (STEP * ((load < 3) ? load - 1 : 2));
        s->price  = (s->price < s->mean_worth * 3) ? s->price : s->mean_worth * 3;
    } else {
        s->price *= 1 - (STEP * (1 - load));
    }
}

static bool too_dear(kvcl_job_t *job, const double *arg)
{
    kvcl_sched_t *s = job->s;
    double       load, worth;

    if ((job->req.ttft_s <= 0) || (job->out->times.error < 0)) {
        return false;
    }
    load  = load_of(job, arg[FULL]);
    worth = worth_for_cost(job, arg);
    if ((job->req.flags & KVCL_SCHED_DRY) == 0) {
        move_price(s, load, worth);
    }
    return (load > 1) && (worth < s->price);
}

static void admit(kvcl_job_t *job, const double *arg, bool late)
{
    if (late) {
        return;
    }
    if (fits_nowhere(job)) {
        kvcl_admit_refuse(job, KVCL_SCHED_REASON_NO_ROOM, 60);
    } else if (ttft_hopeless(job)) {
        kvcl_admit_refuse(job, KVCL_SCHED_REASON_TTFT, job->out->times.ttft_s - job->req.ttft_s);
    } else if (tbt_hopeless(job)) {
        kvcl_admit_refuse(job, KVCL_SCHED_REASON_TBT, 1);
    } else if (too_dear(job, arg)) {
        kvcl_admit_refuse(job, KVCL_SCHED_REASON_WORTH, job->out->times.queue_s);
    }
}

const kvcl_policy_t kvcl_policy_admit_kvcl = {
    .name   = "kvcl",
    .kind   = KVCL_POLICY_ADMIT,
    .desc   = "who can make it, and is worth its price under overload; q=0.9 of output lengths, full=8, gamma=0.5",
    .source = "KVCL; bid prices: arXiv 2607.03948, quantiles: arXiv 2604.00499",
    .keys   = {{"q", 0.9, 0, 1}, {"full", 8, 0.01, 1e6}, {"gamma", 0.5, 0, 1}},
    .admit  = admit};
