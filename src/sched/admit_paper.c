/*
 * The paper's admissions. TTFT and TBT are those of the decision; a deadline of 0 is none, and a prediction without an
 * error bound refuses no request.
 *
 *   baseline  at arrival the TTFT is judged; the TBT only when the prefill has ended, which then is wasted
 *   er        both at arrival, by the decode load of now; and the TBT once more after the prefill
 *             "now" is what decodes: requests that were placed and are still prefilled do not, and the swing of both
 *             loads in opposite directions comes from just that (section 7.3)
 *   erp       the decode load of the moment when the prefill will have ended: those that will decode then, each for td
 *             seconds, spread evenly over the decode instances
 *
 * Pure.
 */
#include "config.h"
#include "sched/admit.h"
#include "sched/policies.h"

static bool ttft_missed(const kvcl_job_t *job)
{
    const kvcl_sched_times_t *t = &job->out->times;

    return (job->req.ttft_s > 0) && (t->ttft_s >= 0) && (t->error >= 0) && (t->ttft_s > job->req.ttft_s);
}

static bool tbt_missed(const kvcl_job_t *job, double tbt)
{
    return (job->req.tbt_s > 0) && (tbt >= 0) && (job->out->tbt_error >= 0) && (tbt > job->req.tbt_s);
}

/* A step of the decode instance with this request and those that decode there now. */
static double tbt_now(const kvcl_job_t *job)
{
    const kvcl_sched_inst_t *inst;
    double                  seconds;

    if (job->dpick == KVCL_SCHED_NONE) {
        return job->out->tbt_s;
    }
    inst    = job->inst[job->dpick];
    seconds = kvcl_model_decode(kvcl_job_model(job, inst), (double)inst->running + 1,
                                (double)inst->context_tokens + (double)job->req.tokens + (job->output / 2));
    return (seconds < 0) ? -1 : seconds * kvcl_factor_mean(&job->s->learn.inst[inst->id].decode);
}

static void judge_ttft(kvcl_job_t *job)
{
    if (ttft_missed(job)) {
        kvcl_admit_refuse(job, KVCL_SCHED_REASON_TTFT, job->out->times.ttft_s - job->req.ttft_s);
    }
}

static void judge_tbt(kvcl_job_t *job, double tbt)
{
    if ((job->out->verdict == KVCL_SCHED_GO) && tbt_missed(job, tbt)) {
        kvcl_admit_refuse(job, KVCL_SCHED_REASON_TBT, 1);
    }
}

static void baseline(kvcl_job_t *job, const double *arg, bool late)
{
    (void)arg;
    if (late) {
        judge_tbt(job, tbt_now(job));
    } else {
        judge_ttft(job);
    }
}

static void early(kvcl_job_t *job, const double *arg, bool late)
{
    (void)arg;
    if (!late) {
        judge_ttft(job);
    }
    judge_tbt(job, tbt_now(job));
}

static void early_predicted(kvcl_job_t *job, const double *arg, bool late)
{
    const kvcl_sched_t *s = job->s;
    kvcl_forecast_t    f;
    double             then, tbt = tbt_now(job);

    if (!late) {
        judge_ttft(job);
        if ((job->dpick != KVCL_SCHED_NONE) && (job->out->times.ttft_s >= 0)) {
            then = job->req.arrival_s + job->out->times.ttft_s;
            f    = kvcl_follow_forecast(&s->follow, KVCL_SCHED_NONE, then, arg[0], tbt);
            tbt  = kvcl_model_decode(kvcl_job_model(job, job->inst[job->dpick]), (f.batch + 1) / job->n_dec,
                                     (f.context + (double)job->req.tokens) / job->n_dec);
            tbt  = (tbt < 0) ? -1 : tbt * kvcl_factor_mean(&s->learn.inst[job->inst[job->dpick]->id].decode);
        }
    }
    judge_tbt(job, tbt);
}

const kvcl_policy_t kvcl_policy_admit_baseline = {.name   = "baseline",
                                                  .kind   = KVCL_POLICY_ADMIT,
                                                  .desc   = "TTFT at arrival, TBT only after the prefill",
                                                  .source = "Mooncake, arXiv 2407.00079, section 8.2",
                                                  .admit  = baseline};

const kvcl_policy_t kvcl_policy_admit_er = {.name   = "er",
                                            .kind   = KVCL_POLICY_ADMIT,
                                            .desc   = "early rejection: TTFT and TBT of now at arrival",
                                            .source = "Mooncake, arXiv 2407.00079, section 7.2",
                                            .admit  = early};

const kvcl_policy_t kvcl_policy_admit_erp = {
    .name   = "erp",
    .kind   = KVCL_POLICY_ADMIT,
    .desc   = "early rejection by prediction: the TBT when the prefill will have ended, if each decodes td=10 seconds",
    .source = "Mooncake, arXiv 2407.00079, section 7.4; td is not published",
    .keys   = {{"td", 10, 0.001, 1e6}},
    .admit  = early_predicted};
