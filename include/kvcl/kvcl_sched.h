/*
 * The scheduler of requests: it chooses the instance that prefills a request, the instance that decodes it and the
 * blocks of KV that move, or refuses the request.
 *
 * Decisions are pure: no I/O, no clock (the caller passes the time), no thread, no allocation. The caller describes the
 * request, the instances and the blocks that each holds; the scheduler answers with a decision, predictions and
 * reasons. The same calls in the same order give the same decisions (params.seed). A scheduler keeps what it has learnt
 * from feedback: factors that correct the models, lengths of outputs by class, the recent work of each instance, and
 * the requests that run.
 *
 * All times are in seconds (double), on any clock of the caller that does not run backwards. Bandwidth is in bytes a
 * second, errors are relative (0.1 is 10%).
 *
 * The order of calls for a request: kvcl_sched_decide; if GO, the caller moves the blocks and queues the prefill there,
 * and adds decision.busy_s to that instance's queue_s. kvcl_sched_order chooses the next one of a queue. Then come
 * kvcl_sched_prefill_done, kvcl_sched_decode, kvcl_sched_first_token, kvcl_sched_finished. A request that must wait or
 * was refused is not tracked. Call kvcl_sched_finished also for one that is refused in a queue or given up.
 *
 * Thread: one thread at a time for each scheduler; different schedulers are independent.
 */
#ifndef KVCL_SCHED_H
#define KVCL_SCHED_H

#include <kvcl/kvcl_key.h>
#include <kvcl/kvcl_sched_model.h>

KVCL_BEGIN_DECLS

typedef struct kvcl_sched *kvcl_sched_h;

#define KVCL_SCHED_NONE    UINT32_MAX /* no instance */
#define KVCL_SCHED_CLASSES 32u        /* classes of requests: 0..31 */

enum { KVCL_SCHED_RUNS = 32, KVCL_SCHED_OTHERS = 4 };

/* ---- the caller's side ---- */

/* kvcl_sched_inst_t.role, a mask. 0: it only holds blocks. */
enum { KVCL_SCHED_PREFILL = 1, KVCL_SCHED_DECODE = 2, KVCL_SCHED_BOTH = 3 };

/* kvcl_sched_inst_t.flags */
enum { KVCL_SCHED_DRAINING = 1 /* takes no new request; its blocks may be fetched */ };

/*
 * An instance of an engine, as last reported. Unknown numbers are 0. It is left out of a decision, and counted, if a
 * time is negative or not finite, or above 1e9; if bytes are above 0 and below 1; if kv_free > kv_total; if its id is
 * not below params.max_insts, or occurs twice; or if its model does not exist.
 */
typedef struct kvcl_sched_inst {
    size_t   size;            /* sizeof(kvcl_sched_inst_t) */
    uint32_t id;              /* small and stable, for example its rank; below params.max_insts */
    uint32_t role;
    uint32_t flags;
    uint32_t model;           /* index into the models of kvcl_sched_create */
    double   age_s;           /* age of this report; kvcl_sched_create states when it is old */
    double   queue_s;         /* predicted seconds until it could begin one more prefill: the rest of those running, and
                                 all those waiting; by the scheduler's busy_s, without its correction */
    uint32_t prefills;        /* prefills running */
    uint32_t waiting;         /* prefills waiting */
    uint64_t queued_tokens;   /* tokens that these have still to compute */
    uint32_t running;         /* requests that decode */
    uint32_t pending;         /* requests placed here whose decode has not begun */
    uint64_t context_tokens;  /* tokens of context of the running */
    uint64_t pending_tokens;  /* the same for the pending, at the time they begin */
    uint64_t kv_free;         /* tokens of KV that fit into the device now, those of the pending not deducted */
    uint64_t kv_total;        /* 0: not known, no limit */
    uint32_t host;            /* place: host, then rack, then net, a class of networks */
    uint32_t rack;
    uint32_t net;
    uint32_t reserved;        /* 0 */
    double   nic_bytes_s;     /* each way; 0: the model's */
    uint32_t sends;           /* transfers in flight from it, hand-overs included */
    uint32_t recvs;           /* transfers in flight to it */
    double   send_bytes;      /* bytes that these have still to move */
    double   recv_bytes;
    double   past_s;          /* recent seconds of work that other schedulers gave it, decayed; breaks ties */
} kvcl_sched_inst_t;
#define KVCL_SCHED_INST_INIT \
    {sizeof(kvcl_sched_inst_t), 0, KVCL_SCHED_BOTH, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/* kvcl_sched_hold_t.flags */
enum { KVCL_SCHED_PENDING = 1 /* predicted, or under way: the blocks are not there yet */ };

/*
 * A run of a request's blocks that an instance holds: blocks first .. first + blocks - 1 of the prompt. An instance may
 * have several. Runs beyond the prompt are cut; those of unknown instances are ignored. Fixed for ever: 16 bytes.
 */
typedef struct kvcl_sched_hold {
    uint32_t inst;   /* id */
    uint32_t first;
    uint32_t blocks;
    uint16_t tier;   /* 0: device (KVCL_STORE_TIER_CACHE), 1: DRAM, 2: NVMe */
    uint16_t flags;
} kvcl_sched_hold_t;

/* kvcl_sched_req_t.flags */
enum { KVCL_SCHED_DRY = 1 /* a query: the scheduler keeps nothing of it */ };

typedef struct kvcl_sched_req {
    size_t           size;          /* sizeof(kvcl_sched_req_t) */
    uint64_t         id;            /* the caller's, to name it in later calls; 0: it is not tracked */
    uint32_t         flags;
    uint32_t         klass;         /* 0..31 */
    const kvcl_key_t *keys;         /* of the prompt's blocks, in order; read during the call only. NULL: nothing is
                                       learnt of prefixes, and no replicas are planned */
    size_t           n_keys;        /* blocks of the prompt that can be shared; also without keys */
    uint64_t         tokens;        /* of the prompt; more than 0 */
    uint32_t         block_tokens;  /* tokens of a block */
    uint32_t         tries;         /* times that it was told to wait */
    uint64_t         output_tokens; /* expected; 0: as learnt of its class */
    uint64_t         output_max;    /* it generates no more; 0: not known */
    double           weight;        /* worth against others; 0 means 1 */
    double           ttft_s;        /* deadline of the first token, from arrival; 0: none */
    double           tbt_s;         /* deadline of the time between tokens; 0: none */
    double           arrival_s;     /* on the clock of now_s */
    uint64_t         session;       /* requests of one conversation; 0: none */
    double           kv_bytes;      /* of a token; 0: the model's */
} kvcl_sched_req_t;
#define KVCL_SCHED_REQ_INIT {sizeof(kvcl_sched_req_t), 0, 0, 0, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/* ---- the scheduler's answer ---- */

typedef enum kvcl_sched_verdict {
    KVCL_SCHED_GO     = 1,
    KVCL_SCHED_WAIT   = 2, /* ask again after retry_s */
    KVCL_SCHED_REFUSE = 3  /* tell the client, with retry_s (HTTP 429 and Retry-After) */
} kvcl_sched_verdict_t;

/* X(name, number, text). Numbers are append-only. */
#define KVCL_SCHED_REASON_MAP(X)                                                                           \
    X(BEST, 0, "the policy's best")                                                                        \
    X(ONLY, 1, "the only candidate")                                                                       \
    X(FALLBACK, 2, "least load, because predicted times are missing")                                      \
    X(NO_CANDIDATE, 3, "no instance takes requests")                                                       \
    X(TTFT, 4, "the first token would miss its deadline")                                                  \
    X(TBT, 5, "the time between tokens would miss its deadline")                                           \
    X(PREFILL_LOAD, 6, "the prefill instances are too loaded")                                             \
    X(DECODE_LOAD, 7, "the decode instances are too loaded")                                               \
    X(NO_ROOM, 8, "its KV fits into no decode instance")                                                   \
    X(WORTH, 9, "it is worth less than the prefill seconds and the decode room that it takes from others") \
    X(LATE, 10, "its deadline can no longer be met")                                                       \
    X(STALE, 11, "least load, because the reports of most instances are old")

#define KVCL_SCHED_REASON_ENUM(_name, _number, _text) KVCL_SCHED_REASON_##_name = (_number),
typedef enum kvcl_sched_reason { KVCL_SCHED_REASON_MAP(KVCL_SCHED_REASON_ENUM) } kvcl_sched_reason_t;
#undef KVCL_SCHED_REASON_ENUM

typedef enum kvcl_sched_plan {
    KVCL_SCHED_THERE     = 1, /* the prefill instance has it */
    KVCL_SCHED_FETCH     = 2, /* fetch it from `from`; inst[] have it too */
    KVCL_SCHED_COMPUTE   = 3,
    KVCL_SCHED_REPLICATE = 4  /* copy it from `from` to inst[], in the background; not needed by this request. The
                                 caller counts these as sends and recvs; prefill=kvcl plans it, if keys are given */
} kvcl_sched_plan_t;

/* kvcl_sched_run_t.flags */
enum { KVCL_SCHED_KEEP = 1 /* a fetched run stays at the prefill instance, for others */ };

/*
 * The plan of a run of blocks. THERE, FETCH and COMPUTE cover the prompt's blocks in order, without gaps.
 * FETCH: kvcl_store_get at the prefill instance. REPLICATE: kvcl_store_copy to each of inst[]. Fixed for ever: 40
 * bytes.
 */
typedef struct kvcl_sched_run {
    uint32_t first;
    uint32_t blocks;
    uint16_t plan;                     /* kvcl_sched_plan_t */
    uint16_t tier;                     /* of the copy at `from`, or there; of several the slowest */
    uint16_t flags;
    uint16_t n;                        /* of inst[] */
    uint32_t from;                     /* id; KVCL_SCHED_NONE */
    uint32_t inst[KVCL_SCHED_OTHERS];  /* ids */
    uint32_t reserved;                 /* 0 */
} kvcl_sched_run_t;

/* The parts of a predicted TTFT. Fixed for ever, since decisions hold two: 64 bytes. */
typedef struct kvcl_sched_times {
    double waited_s;   /* since arrival, before this decision */
    double queue_s;    /* in the prefill queue */
    double fetch_s;    /* of the fetches, what the queue does not hide */
    double prefill_s;
    double handover_s; /* KV to the decode instance, beyond what the prefill hides */
    double load_s;     /* into the device there, and scheduling */
    double ttft_s;     /* the sum, from arrival; negative: not known */
    double error;      /* of ttft_s, relative; negative: not known */
} kvcl_sched_times_t;

typedef struct kvcl_sched_decision {
    size_t             size;          /* sizeof(kvcl_sched_decision_t) */
    uint32_t           verdict;       /* kvcl_sched_verdict_t */
    uint32_t           reason;        /* kvcl_sched_reason_t */
    double             retry_s;       /* WAIT, REFUSE */
    uint32_t           prefill;       /* id; of a refusal: where it would have gone, or KVCL_SCHED_NONE */
    uint32_t           decode;
    kvcl_sched_times_t times;
    double             tbt_s;         /* predicted at the decode instance; negative: not known */
    double             tbt_error;
    double             busy_s;        /* add this to the prefill instance's queue_s */
    double             score;         /* what the policy minimised; its unit is the policy's */
    uint32_t           runner_up;     /* the second best prefill instance; KVCL_SCHED_NONE */
    uint32_t           left_out;      /* instances whose report contradicts itself */
    double             runner_score;
    kvcl_sched_times_t runner_times;  /* why it lost: where it has more seconds */
    uint64_t           there_tokens;
    uint64_t           fetch_tokens;
    uint64_t           compute_tokens;
    uint64_t           output_tokens; /* that the prediction assumes */
    uint32_t           n_runs;
    uint32_t           reserved;
    kvcl_sched_run_t   runs[KVCL_SCHED_RUNS];
    uint32_t           stale;         /* instances that take requests, and whose report is old */
    uint32_t           reserved2;     /* 0 */
} kvcl_sched_decision_t;

/* ---- a scheduler ---- */

typedef struct kvcl_sched_params {
    size_t   size;         /* sizeof(kvcl_sched_params_t) */
    uint64_t flags;        /* must be 0 */
    uint64_t seed;         /* of the policies that choose at random */
    uint32_t max_insts;    /* ids are below this; 0: 1024; at most 65536 */
    uint32_t max_requests; /* tracked at a time; 0: 65536; at most 16777216; more are not tracked */
    uint32_t max_blocks;   /* of a prompt; 0: 16384. Blocks beyond that count as not held */
    uint32_t max_holds;    /* of one decision; 0: 65536; more are ignored */
} kvcl_sched_params_t;
#define KVCL_SCHED_PARAMS_INIT {sizeof(kvcl_sched_params_t), 0, 0, 0, 0, 0, 0}

/**
 * Make a scheduler. policy: "prefill=NAME[:key=value...],decode=NAME,admit=NAME,queue=NAME" in any order; what is left
 * out is "prefill=kvcl,decode=load,admit=all,queue=fcfs". kvcl_sched_policies lists the names and their keys. Each
 * policy of prefill also has the key stale (30; 0.001 to 1e9 seconds): reports with a larger age_s are old. An instance
 * with an old report takes no new request while at least half of those of its role have younger ones. Otherwise all
 * stay, a policy that reads reports (not random, not rr) takes the least load as last reported, and says STALE.
 * Predictions from an old report have no error, so that they refuse nobody. models:
 * n_models of them, at least one; they must outlive the scheduler. The caller destroys *sched_p.
 * @return KVCL_OK; KVCL_ERR_INVALID_PARAM (of a policy with the column and the nearest known name); KVCL_ERR_NO_MEMORY.
 */
KVCL_API kvcl_status_t kvcl_sched_create(const char *policy, const kvcl_sched_model_h *models, size_t n_models,
                                         const kvcl_sched_params_t *params, kvcl_sched_h *sched_p) KVCL_MUST_CHECK;
KVCL_API void          kvcl_sched_destroy(kvcl_sched_h sched);

/**
 * Decide about a request. insts: n_insts of them, stride sizeof(kvcl_sched_inst_t). holds: the runs of its blocks that
 * instances have, in any order. decision_p: filled on KVCL_OK. The call keeps no pointer. An empty list of instances,
 * and missing predictions, are no errors: the decision states them.
 * @return KVCL_OK (also for WAIT and REFUSE); KVCL_ERR_INVALID_PARAM (the request: no tokens, blocks without tokens, a
 *         number that is negative or not finite; more instances than max_insts).
 */
KVCL_API kvcl_status_t kvcl_sched_decide(kvcl_sched_h sched, double now_s, const kvcl_sched_req_t *req,
                                         const kvcl_sched_inst_t *insts, size_t stride, size_t n_insts,
                                         const kvcl_sched_hold_t *holds, size_t n_holds,
                                         kvcl_sched_decision_t *decision_p) KVCL_MUST_CHECK;

/**
 * Choose the decode instance again, when the prefill has ended: GO with decision.decode, which may be another one than
 * before, or REFUSE, which wastes the prefill (admit=baseline does so by design). prefill: where it was prefilled.
 * Call it again, after kvcl_sched_gone, for a request whose decode instance has gone: while its KV is at the prefill
 * instance it needs no other prefill. A request whose prefill instance has gone as well goes to kvcl_sched_decide.
 * @return as kvcl_sched_decide.
 */
KVCL_API kvcl_status_t kvcl_sched_decode(kvcl_sched_h sched, double now_s, const kvcl_sched_req_t *req,
                                         uint32_t prefill, uint32_t decode, const kvcl_sched_inst_t *insts,
                                         size_t stride, size_t n_insts, kvcl_sched_decision_t *decision_p)
    KVCL_MUST_CHECK;

/* A prefill that waits at an instance. */
typedef struct kvcl_sched_waiting {
    size_t   size;       /* sizeof(kvcl_sched_waiting_t) */
    uint64_t id;         /* the request's */
    double   arrival_s;
    double   deadline_s; /* when its prefill must have ended, on the clock of now_s; 0: none */
    double   prefill_s;  /* its decision's busy_s, or what is left of it */
    double   error;      /* of that, relative: times.error; negative: not known, then it is never refused */
    double   ready_s;    /* when its fetches will be done; 0: now */
    double   weight;     /* 0 means 1 */
    uint64_t tokens;     /* that it computes */
} kvcl_sched_waiting_t;
#define KVCL_SCHED_WAITING_INIT {sizeof(kvcl_sched_waiting_t), 0, 0, 0, 0, 0, 0, 0, 0}

/**
 * Choose the next of the prefills that wait at one instance, by the queue policy. *next_p: its index; n if none should
 * (n is 0, or all are refused). late: receives the indices of those to refuse now, at most cap (0: none are), *n_late_p
 * of them. @return KVCL_OK, KVCL_ERR_INVALID_PARAM (a number that is not finite; cap without late).
 */
KVCL_API kvcl_status_t kvcl_sched_order(kvcl_sched_h sched, double now_s, const kvcl_sched_waiting_t *waiting,
                                        size_t stride, size_t n, size_t *next_p, size_t *late, size_t cap,
                                        size_t *n_late_p) KVCL_MUST_CHECK;

/* ---- measurements ---- */

/* 0, or NAN for a time: not measured. */
typedef struct kvcl_sched_measured {
    size_t   size;          /* sizeof(kvcl_sched_measured_t) */
    uint64_t id;            /* the request's; 0: none */
    uint32_t prefill;       /* instance, or KVCL_SCHED_NONE */
    uint32_t decode;
    uint32_t klass;
    uint32_t reserved;      /* 0 */
    uint64_t tokens;        /* of the prompt */
    uint64_t cached_tokens; /* of these, there or fetched */
    uint64_t output_tokens; /* generated in all */
    double   prefill_s;     /* of the device; without queue and fetch */
    double   fetch_s;       /* from the decision until all was fetched */
    double   fetch_bytes;   /* that were fetched, in fetch_s; 0: as many as were planned */
    double   ttft_s;
    double   ttft_guess_s;  /* what the decision predicted */
    double   tbt_s;         /* mean */
    double   batch;         /* mean of the batches it was in */
    double   context;       /* mean of their tokens of context */
} kvcl_sched_measured_t;
#define KVCL_SCHED_MEASURED_INIT \
    {sizeof(kvcl_sched_measured_t), 0, KVCL_SCHED_NONE, KVCL_SCHED_NONE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/**
 * The prefill has ended (id, prefill, tokens, cached_tokens, prefill_s, fetch_s, fetch_bytes are read); the first token
 * was sent (ttft_s, ttft_guess_s); the request has ended (output_tokens, if complete; tbt_s, batch, context). They
 * correct the models' factors for each instance and the error bounds. Numbers that are not finite, or negative, are
 * ignored.
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM (instance, class), KVCL_ERR_DEAD_HANDLE.
 */
KVCL_API kvcl_status_t kvcl_sched_prefill_done(kvcl_sched_h sched, double now_s, const kvcl_sched_measured_t *measured)
    KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_sched_first_token(kvcl_sched_h sched, double now_s, const kvcl_sched_measured_t *measured)
    KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_sched_finished(kvcl_sched_h sched, double now_s, const kvcl_sched_measured_t *measured)
    KVCL_MUST_CHECK;

/**
 * An instance has gone: what was learnt of it is forgotten, and the requests on it are no longer tracked. Those that
 * were to decode there are placed by kvcl_sched_decode, those that were to prefill there by kvcl_sched_decide.
 */
KVCL_API kvcl_status_t kvcl_sched_gone(kvcl_sched_h sched, double now_s, uint32_t inst) KVCL_MUST_CHECK;

/* ---- text ---- */

/** A decision in words, one line a part. Always ends in NUL, cut at len. @return buf. */
KVCL_API const char *kvcl_sched_describe(const kvcl_sched_decision_t *decision, char *buf, size_t len);

/** "REFUSE", and the words of a reason. Static, never NULL. */
KVCL_API const char *kvcl_sched_verdict_name(uint32_t verdict);
KVCL_API const char *kvcl_sched_reason_text(uint32_t reason);

/**
 * Policy i of the table: its name, its kind ("prefill", "decode", "admit", "queue"), its effect with its keys and
 * their defaults, and its source. Static; each pointer may be NULL.
 * @return KVCL_OK, KVCL_ERR_NOT_FOUND (i is beyond the last).
 */
KVCL_API kvcl_status_t kvcl_sched_policies(size_t i, const char **name_p, const char **kind_p, const char **desc_p,
                                           const char **source_p) KVCL_MUST_CHECK;

KVCL_END_DECLS

#endif
