/*
 * The scheduler inside: its state, one decision's view of the cluster, and the shape of a policy.
 *
 * A decision runs in this order: the view (view.c) checks the instances and finds the runs that each holds; the policy
 * of placement picks a prefill instance (place_*.c); the policy of decode picks a decode instance (decode_*.c); times
 * are predicted (times.c); the policy of admission judges (admit_*.c); runs are written (runs.c); the request is
 * followed (follow.c). Nothing allocates after kvcl_sched_create. One thread at a time.
 */
#ifndef KVCL_SCHED_SCHED_H
#define KVCL_SCHED_SCHED_H

#include <kvcl/kvcl_sched.h>
#include "base/rand.h"
#include "sched/follow.h"
#include "sched/hot.h"
#include "sched/learn.h"
#include "sched/predict/model.h"

#include <stdbool.h>
#include <stdint.h>

enum { KVCL_POLICY_KEYS = 6, KVCL_POLICY_NAME_MAX = 24 };

typedef struct kvcl_sched kvcl_sched_t;
typedef struct kvcl_job   kvcl_job_t;

/* ---- policies ---- */

typedef enum kvcl_policy_kind {
    KVCL_POLICY_PREFILL,
    KVCL_POLICY_DECODE,
    KVCL_POLICY_ADMIT,
    KVCL_POLICY_QUEUE,
    KVCL_POLICY_KINDS
} kvcl_policy_kind_t;

/* The prefills of a queue that run before a new request: all, the shorter ones, or those with an earlier deadline. */
typedef enum kvcl_queue_order { KVCL_ORDER_ARRIVAL, KVCL_ORDER_LENGTH, KVCL_ORDER_DEADLINE } kvcl_queue_order_t;

typedef struct kvcl_policy_key {
    const char *name; /* NULL: behind the last */
    double     dflt, min, max;
} kvcl_policy_key_t;

/* The prefills that wait at an instance. */
typedef struct kvcl_policy_queue {
    const kvcl_sched_waiting_t *w;   /* the caller's */
    size_t                     stride;
    size_t                     n;
    double                     now_s;
    size_t                     *late; /* [cap] */
    size_t                     cap;
    size_t                     n_late;
} kvcl_policy_queue_t;

static inline const kvcl_sched_waiting_t *kvcl_queue_at(const kvcl_policy_queue_t *queue, size_t i)
{
    return (const kvcl_sched_waiting_t *)(const void *)((const char *)queue->w + (i * queue->stride));
}

/* Are its fetches done? */
static inline bool kvcl_queue_ready(const kvcl_policy_queue_t *queue, size_t i)
{
    return kvcl_queue_at(queue, i)->ready_s <= queue->now_s;
}

typedef struct kvcl_policy {
    const char         *name;
    kvcl_policy_kind_t kind;
    const char         *desc;
    const char         *source;
    kvcl_policy_key_t  keys[KVCL_POLICY_KEYS];
    kvcl_queue_order_t order; /* QUEUE: which prefills run before a new request */
    bool               blind; /* PREFILL, DECODE: it reads nothing of the reports, so that old ones are as good */
    bool               timed; /* PREFILL: it compares predicted seconds; where they are missing, least load is chosen */
    /* PREFILL: sets pick, second and the candidates' scores. There is at least one candidate. */
    void   (*place)(kvcl_job_t *job, const double *arg);
    /* DECODE: sets dec. There is at least one candidate. */
    void   (*decode)(kvcl_job_t *job, const double *arg);
    /* ADMIT: sets verdict, reason and retry_s. late: at the end of the prefill. */
    void   (*admit)(kvcl_job_t *job, const double *arg, bool late);
    /* QUEUE: the index of the next, or n. */
    size_t (*next)(kvcl_policy_queue_t *queue, const double *arg);
} kvcl_policy_t;

/* The policy that was chosen, and the values of its keys. */
typedef struct kvcl_choice {
    const kvcl_policy_t *policy;
    double              arg[KVCL_POLICY_KEYS];
    double              stale_s; /* PREFILL, for the whole decision: older reports are old */
} kvcl_choice_t;

/* ---- one decision ---- */

enum { KVCL_PIECES = KVCL_SCHED_RUNS - 4 }; /* of fetches; the rest is for THERE, COMPUTE and REPLICATE */

/* A run to fetch. */
typedef struct kvcl_piece {
    uint32_t first, blocks;
    uint32_t from;                       /* index of an instance */
    uint32_t n_others;
    uint32_t others[KVCL_SCHED_OTHERS];
    uint16_t tier;
} kvcl_piece_t;

/* A prefill candidate. */
typedef struct kvcl_cand {
    uint32_t inst;       /* index into job->inst */
    uint32_t own;        /* leading blocks that it holds */
    uint32_t upto;       /* leading blocks that it will have: own, and those fetched */
    double   factor;     /* learnt of its prefills */
    double   queue_s;    /* corrected; what is in front of the request */
    double   fetch_s;    /* of the fetches, from now on */
    double   prefill_s;  /* corrected; negative: not known */
    double   score;
} kvcl_cand_t;

struct kvcl_job {
    kvcl_sched_t            *s;
    double                  now_s;
    kvcl_sched_req_t        req;
    uint32_t                blocks;   /* of the prompt, at most max_blocks */
    double                  kv_bytes; /* 0: not known */
    double                  output;   /* tokens reckoned with */
    const kvcl_sched_hold_t *holds;
    size_t                  n_holds;
    const kvcl_sched_inst_t **inst;   /* that passed the checks */
    uint32_t                n_inst;
    uint32_t                left_out;
    kvcl_cand_t             *cand;    /* those that may prefill */
    uint32_t                n_cand;
    uint32_t                *dec;     /* indices of those that may decode */
    uint32_t                n_dec;
    uint32_t                pick;     /* index of a candidate */
    uint32_t                second;   /* KVCL_SCHED_NONE */
    uint32_t                dpick;    /* index of an instance; KVCL_SCHED_NONE */
    uint32_t                placed;   /* index of the instance whose pending has this request already */
    bool                    fallback; /* predictions that the policy compares are missing */
    uint32_t                n_old;       /* instances that take requests, with an old report */
    bool                    old_prefill; /* most reports of those that may prefill are old */
    bool                    old_decode;
    bool                    keep;     /* fetched runs stay */
    uint32_t                n_pieces; /* of the picked candidate's fetches, in order */
    kvcl_piece_t            piece[KVCL_PIECES];
    uint32_t                n_copies; /* replicas to make: from, others[], first, blocks */
    kvcl_piece_t            copy[2];
    kvcl_hot_entry_t        *trunk;   /* that copy[] is of */
    bool                    count;    /* the prompt's prefixes are counted, if it is taken */
    kvcl_sched_decision_t   *out;
};

/* ---- the scheduler ---- */

struct kvcl_sched {
    kvcl_choice_t                    choice[KVCL_POLICY_KINDS];
    const struct kvcl_sched_model    **models;
    size_t                           n_models;
    kvcl_sched_params_t              params;
    kvcl_rand_t                      rand;
    kvcl_learn_t                     learn;
    kvcl_follow_t                    follow;
    kvcl_hot_t                       hot;
    double                           price;     /* of admission: worth for a second */
    double                           mean_worth;
    double                           mean_ttft; /* of the deadlines asked for */
    uint64_t                         call;      /* stamp of the decision */
    uint64_t                         turn;      /* of round robin */
    uint64_t                         turn_dec;
    kvcl_job_t                       job;
    uint32_t                         *held;     /* [max_insts] leading blocks there now, by id, in this decision */
    uint32_t                         *own;      /* [max_insts] the same, and those that are pending */
    uint64_t                         *stamp;    /* [max_insts] of the decision that saw this id */
    uint32_t                         *index;    /* [max_insts] id -> job.inst */
    uint32_t                         *cand_of;  /* [max_insts] id -> job.cand; KVCL_SCHED_NONE */
    uint32_t                         *model_of; /* [max_insts] id -> model, as last seen */
    double                           *scratch;  /* [max_insts] a policy's, within one decision */
    double                           *known;    /* [max_insts] seconds of the prefills followed there */
    kvcl_sched_inst_t                *copy;     /* [max_insts] of reports of another size */
};

/* ---- view.c ---- */

/** Check the instances, find candidates and their own runs. */
kvcl_status_t kvcl_view_make(kvcl_job_t *job, const kvcl_sched_inst_t *insts, size_t stride, size_t n_insts)
    KVCL_MUST_CHECK;
/** The index of an instance by its id; KVCL_SCHED_NONE: not in this decision. */
uint32_t kvcl_view_find(const kvcl_job_t *job, uint32_t id);
/** The slowest tier among the blocks first .. end - 1 of instance @a id, each by its fastest copy there. @a pending:
 * with those that are not there yet. */
uint16_t kvcl_view_tier(const kvcl_job_t *job, uint32_t id, uint32_t first, uint32_t end, bool pending);

static inline const kvcl_sched_inst_t *kvcl_job_inst(const kvcl_job_t *job, const kvcl_cand_t *cand)
{
    return job->inst[cand->inst];
}

/* Is its report too old to tell its load? */
static inline bool kvcl_job_old(const kvcl_job_t *job, const kvcl_sched_inst_t *inst)
{
    return inst->age_s > job->s->choice[KVCL_POLICY_PREFILL].stale_s;
}

static inline const struct kvcl_sched_model *kvcl_job_model(const kvcl_job_t *job, const kvcl_sched_inst_t *inst)
{
    return job->s->models[inst->model];
}

/* ---- times.c ---- */

/** Bytes of KV of blocks first .. end - 1. */
double kvcl_job_bytes(const kvcl_job_t *job, uint32_t first, uint32_t end);
/** Corrected seconds of a prefill at the candidate with so many leading blocks there. Negative: not known. */
double kvcl_job_prefill(const kvcl_job_t *job, const kvcl_cand_t *cand, uint32_t blocks);
/** Fill queue_s, prefill_s with the candidate's own run; no fetch. @return false: not known. */
bool   kvcl_times_own(kvcl_job_t *job, kvcl_cand_t *cand);
/** Predicted TBT at instance i with this request added. Negative: not known. */
double kvcl_times_tbt(const kvcl_job_t *job, uint32_t i);
/** Bytes a second of an instance, each way; 0: not known. */
double kvcl_times_bandwidth(const kvcl_job_t *job, const kvcl_sched_inst_t *inst);
/** Bytes a second of one more transfer; 0: not known. */
double kvcl_times_rate(const kvcl_job_t *job, const kvcl_sched_inst_t *from, const kvcl_sched_inst_t *to);
/** The parts of the TTFT at a candidate, with the decode instance that was picked. */
void   kvcl_times_fill(const kvcl_job_t *job, const kvcl_cand_t *cand, kvcl_sched_times_t *times);

/* ---- ahead.c ---- */

/** Take from each candidate's queue what the order of the queue lets run after this request. */
void kvcl_ahead(kvcl_job_t *job);

/* ---- pick.c ---- */

/** Pick the least score and the second; ties by past load, then by the least id. */
void kvcl_pick_least(kvcl_job_t *job);
/** Score all candidates by their load (queue_s, then tokens and prefills) and pick the least. */
void kvcl_pick_load(kvcl_job_t *job);

/* ---- replicate.c ---- */

/** The request is taken: its copies are made, and its prefixes counted. */
void kvcl_replicate_done(kvcl_job_t *job);

/* ---- runs.c ---- */

void kvcl_runs_write(kvcl_job_t *job);

/* ---- policies.c, policy_text.c ---- */

extern const kvcl_policy_t *const kvcl_policies[];
extern const size_t               kvcl_n_policies;
extern const char *const          kvcl_policy_kinds[KVCL_POLICY_KINDS];

kvcl_status_t kvcl_policy_parse(const char *text, kvcl_choice_t choice[KVCL_POLICY_KINDS]) KVCL_MUST_CHECK;

#endif
