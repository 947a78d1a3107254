/*
 * The decode instance at random, or in turn, or the same one as the prefill. Pure.
 */
#include "config.h"
#include "sched/policies.h"

static void by_lot(kvcl_job_t *job, const double *arg)
{
    (void)arg;
    job->dpick = job->dec[kvcl_rand_below(&job->s->rand, job->n_dec)];
}

static void in_turn(kvcl_job_t *job, const double *arg)
{
    (void)arg;
    job->dpick = job->dec[job->s->turn_dec++ % job->n_dec];
}

static void same(kvcl_job_t *job, const double *arg)
{
    uint32_t i;

    for (i = 0; (i < job->n_dec) && (job->n_cand > 0); ++i) {
        if (job->dec[i] == job->cand[job->pick].inst) {
            job->dpick = job->dec[i];
            return;
        }
    }
    kvcl_policy_decode_load.decode(job, arg);
}

const kvcl_policy_t kvcl_policy_decode_random = {.name   = "random",
                                                 .kind   = KVCL_POLICY_DECODE,
                                                 .desc   = "any instance, by the seed",
                                                 .source = "common baseline",
                                                 .blind  = true,
                                                 .decode = by_lot};

const kvcl_policy_t kvcl_policy_decode_rr = {.name   = "rr",
                                             .kind   = KVCL_POLICY_DECODE,
                                             .desc   = "each instance in turn, as they are listed",
                                             .source = "common baseline",
                                             .blind  = true,
                                             .decode = in_turn};

const kvcl_policy_t kvcl_policy_decode_same = {.name   = "same",
                                               .kind   = KVCL_POLICY_DECODE,
                                               .desc   = "where it was prefilled, if that decodes; else as load",
                                               .source = "engines without disaggregation",
                                               .blind  = true,
                                               .decode = same};
