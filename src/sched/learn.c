/*
 * Learning from feedback (learn.h). Owns the array of instances. Numbers that are not finite, or out of range, change
 * nothing. Pure.
 */
#include "config.h"
#include "sched/learn.h"
#include "base/error.h"

#include <stdlib.h>

enum { ENOUGH = 8, HALVE_AT = 4096 };

static const double STEP       = 0.05;  /* of the exponential mean, when enough is known */
static const double MEAN_STEP = 0.02; /* of the mean prefill */
static const double ERROR_STEP = 0.02;  /* of the error's quantile */
static const double ERROR_SHARE = 0.9;  /* that quantile */

kvcl_status_t kvcl_learn_init(kvcl_learn_t *learn, uint32_t n_insts)
{
    learn->inst = calloc(n_insts, sizeof(*learn->inst));
    learn->n    = n_insts;
    return (learn->inst == NULL) ? kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for what a scheduler learns of %u "
                                             "instances", (unsigned)n_insts) : KVCL_OK;
}

void kvcl_learn_fini(kvcl_learn_t *learn)
{
    free(learn->inst);
}

/* ---- factors ---- */

void kvcl_factor_add(kvcl_factor_t *factor, double measured, double predicted)
{
    double ratio, step, miss;

    if (!(measured > 0) || !(predicted > 0) || !(measured < 1e9) || !(predicted < 1e9)) {
        return;
    }
    ratio = measured / predicted;
    ratio = (ratio < 0.02) ? 0.02 : ((ratio > 50) ? 50 : ratio);
    ++factor->n;
    if (factor->n == 1) {
        factor->mean  = ratio;
        factor->error = 0.2;
        return;
    }
    miss           = (ratio / factor->mean) - 1;
    miss           = (miss < 0) ? -miss : miss;
    factor->error += ((miss > factor->error) ? ERROR_SHARE : ERROR_SHARE - 1) * ERROR_STEP *
                     ((factor->n < 64) ? 4 : 1);
    factor->error  = (factor->error < 0.005) ? 0.005 : factor->error;
    step           = 1.0 / (double)factor->n;
    factor->mean  += ((step > STEP) ? step : STEP) * (ratio - factor->mean);
}

double kvcl_factor_mean(const kvcl_factor_t *factor)
{
    return (factor->n < ENOUGH) ? 1 : factor->mean;
}

double kvcl_factor_error(const kvcl_factor_t *factor, double model_error)
{
    return (factor->n < ENOUGH) ? model_error : factor->error;
}

/* ---- lengths ---- */

/* Buckets of a quarter of an octave: 4 log2(tokens), linear inside the octave. */
static unsigned bucket_of(uint64_t tokens)
{
    const unsigned octave = (tokens > 1) ? 63u - (unsigned)__builtin_clzll(tokens) : 0;
    const uint64_t rest   = (tokens > 0) ? tokens - (UINT64_C(1) << octave) : 0;
    const unsigned part   = (unsigned)((rest * 4) >> octave);
    const unsigned bucket = (octave * 4) + ((part > 3) ? 3 : part);

    return (bucket < KVCL_LEARN_BUCKETS) ? bucket : KVCL_LEARN_BUCKETS - 1;
}

static double bound_of(unsigned bucket)
{
    return (double)(UINT64_C(1) << (bucket / 4)) * (1 + ((double)((bucket % 4) + 1) / 4));
}

void kvcl_lengths_add(kvcl_lengths_t *lengths, uint64_t tokens)
{
    unsigned i;

    if ((tokens == 0) || (tokens >= (UINT64_C(1) << 24))) {
        return;
    }
    if (lengths->n == HALVE_AT) {
        for (i = 0, lengths->n = 0; i < KVCL_LEARN_BUCKETS; ++i) {
            lengths->bucket[i] /= 2;
            lengths->n         += lengths->bucket[i];
        }
    }
    ++lengths->bucket[bucket_of(tokens)];
    ++lengths->n;
}

double kvcl_lengths_quantile(const kvcl_lengths_t *lengths, double q)
{
    double   below = 0;
    unsigned i;

    if (lengths->n < ENOUGH) {
        return 0;
    }
    for (i = 0; i < KVCL_LEARN_BUCKETS - 1; ++i) {
        below += lengths->bucket[i];
        if (below >= q * (double)lengths->n) {
            break;
        }
    }
    return bound_of(i);
}

/* ---- past load ---- */

/* 2^-x, x >= 0: whole numbers by a shift, the rest by the series of e^(-x ln 2), right to 0.0002. Many short steps must
 * decay as few long ones do. */
static double half_power(double x)
{
    const double whole = (x < 60) ? (double)(unsigned)x : 60;
    const double y     = (x < 60) ? (x - whole) * 0.6931471805599453 : 0;

    return (1 - (y * (1 - (y / 2 * (1 - (y / 3 * (1 - (y / 4 * (1 - (y / 5)))))))))) /
           (double)(UINT64_C(1) << (unsigned)whole);
}

double kvcl_learn_left(double age_s)
{
    return (age_s > 0) ? half_power(age_s / KVCL_LEARN_HALF_S) : 1;
}

double kvcl_learn_past(const kvcl_learn_inst_t *inst, double now_s)
{
    return inst->past_s * kvcl_learn_left(now_s - inst->past_at);
}

void kvcl_learn_give(kvcl_learn_t *learn, uint32_t id, double now_s, double seconds)
{
    kvcl_learn_inst_t *inst = &learn->inst[id];

    inst->past_s   = kvcl_learn_past(inst, now_s) + seconds;
    inst->past_at  = now_s;
    learn->mean_s += ((learn->mean_s > 0) ? MEAN_STEP : 1) * (seconds - learn->mean_s);
}
