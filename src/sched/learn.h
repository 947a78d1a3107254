/*
 * What feedback teaches: the factor between measured and predicted times of each instance, its error, the length of
 * outputs by class, and the work that each instance was given of late. Memory is taken once, by kvcl_learn_init. Pure.
 */
#ifndef KVCL_SCHED_LEARN_H
#define KVCL_SCHED_LEARN_H

#include <kvcl/kvcl_sched.h>

#include <stdint.h>

enum { KVCL_LEARN_BUCKETS = 96, KVCL_LEARN_HALF_S = 60 };

/* A ratio of measured to predicted, followed by an exponential mean. Zeroed: nothing is known, the factor is 1. */
typedef struct kvcl_factor {
    double   mean;  /* of the ratio */
    double   error; /* 0.9 quantile of |ratio / mean - 1|, followed by steps */
    uint64_t n;
} kvcl_factor_t;

typedef struct kvcl_learn_inst {
    kvcl_factor_t prefill;
    kvcl_factor_t decode;
    kvcl_factor_t fetch;
    double        past_s;  /* seconds of work given, decayed at past_at */
    double        past_at;
} kvcl_learn_inst_t;

/* Lengths of outputs of one class: a histogram of buckets that grow by a quarter; old counts are halved at times. */
typedef struct kvcl_lengths {
    uint32_t bucket[KVCL_LEARN_BUCKETS];
    uint64_t n;
} kvcl_lengths_t;

typedef struct kvcl_learn {
    kvcl_learn_inst_t *inst; /* [n] by id */
    uint32_t          n;
    kvcl_factor_t     ttft;  /* of the cluster: what the queue predictions are worth */
    double            mean_s; /* of prefills given of late; 0: none was */
    kvcl_lengths_t    lengths[KVCL_SCHED_CLASSES];
} kvcl_learn_t;

kvcl_status_t kvcl_learn_init(kvcl_learn_t *learn, uint32_t n_insts) KVCL_MUST_CHECK;
void          kvcl_learn_fini(kvcl_learn_t *learn);

void   kvcl_factor_add(kvcl_factor_t *factor, double measured, double predicted);
/** Of a prediction by the model: 1 until enough was measured. */
double kvcl_factor_mean(const kvcl_factor_t *factor);
/** The error after correction: the learnt one, or the model's until enough was measured. Negative: not known. */
double kvcl_factor_error(const kvcl_factor_t *factor, double model_error);

void   kvcl_lengths_add(kvcl_lengths_t *lengths, uint64_t tokens);
/** Quantile q (0..1) of the lengths. 0: nothing is known. */
double kvcl_lengths_quantile(const kvcl_lengths_t *lengths, double q);

/** What is left after so many seconds of something that halves every KVCL_LEARN_HALF_S. */
double kvcl_learn_left(double age_s);

/** Work that an instance was given of late, halved every minute. */
double kvcl_learn_past(const kvcl_learn_inst_t *inst, double now_s);
void   kvcl_learn_give(kvcl_learn_t *learn, uint32_t inst, double now_s, double seconds);

#endif
