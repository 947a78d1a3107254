/*
 * A simulated cluster: instances that prefill, decode or both, their pools of KV blocks, the network between them, and
 * the library's scheduler, which decides for each request. One run is one thread; the same settings and seed give the
 * same bytes. Files: engine.c (events and arrivals), place.c (what the scheduler sees and what a decision does),
 * prefill.c, decode.c, move.c (blocks and transfers), faults.c.
 */
#ifndef KVCL_TOOLS_SIM_SIM_H
#define KVCL_TOOLS_SIM_SIM_H

#include "tools/sim/batch.h"
#include "tools/sim/events.h"
#include "tools/sim/nic.h"
#include "tools/sim/pool.h"
#include "tools/sim/work/work.h"

#include <kvcl/kvcl.h>
#include <kvcl/kvcl_sched.h>

#include "base/rand.h"

#define SIM_NONE       UINT32_MAX
#define SIM_INSTS_MAX  1024u
#define SIM_FAULTS_MAX 16u
#define SIM_REASONS    16u
#define SIM_CLASSES    KVCL_SCHED_CLASSES
#define SIM_SAMPLES    240u

typedef enum sim_fault_kind { FAULT_DIE, FAULT_JOIN, FAULT_SLOW } sim_fault_kind_t;

typedef struct sim_fault {
    sim_fault_kind_t kind;
    uint32_t         inst;
    double           at;
    double           factor; /* of FAULT_SLOW: times as slow */
} sim_fault_t;

/* What is simulated. Times in seconds, lengths in tokens. */
typedef struct sim_config {
    const char         *policy;
    kvcl_sched_model_h model;       /* how fast instances are */
    kvcl_sched_model_h guess;       /* the scheduler's model; may be the same */
    const char         *guess_path; /* for the log */
    uint32_t           prefill;     /* instances */
    uint32_t           decode;
    uint32_t           coupled;
    uint32_t           group;       /* nodes of a prefill instance, a pipeline; at least 1 */
    uint64_t           pool_tokens; /* of an instance; 0: no limit */
    uint64_t           kv_tokens;   /* of a decode instance's device; 0: no limit */
    bool               lru;
    bool               serial;      /* KV is stored and sent after a prefill, not layer by layer beside it */
    double             nic;         /* bytes a second each way */
    uint64_t           chunk;       /* tokens of a piece of prefill; 0: whole */
    double             lag;         /* of the index, behind the pools */
    double             stall;       /* share of a load of KV for which the batch stands still */
    double             overhead;    /* of each request, before its first token; negative: the model's schedule */
    double             slower;      /* instances take this times the model's seconds */
    double             noise;       /* relative deviation of a prefill's seconds */
    double             expect;      /* the scheduler is told this times the output; 0: nothing */
    double             ttft;        /* limit of the first token: ttft + ttft_own x own prefill without cache */
    double             ttft_own;
    double             tbt;
    bool               tbt_mean;    /* TBT of a request is the mean; otherwise the mean of its longest tenth */
    double             overload;    /* seconds of queue, in the mean, that end a run; 0: none do */
    uint32_t           clients;     /* of the closed loop; 0: arrivals are the work's */
    double             think;
    double             detect;      /* from an instance's death until the scheduler knows it */
    sim_fault_t        faults[SIM_FAULTS_MAX];
    uint32_t           n_faults;
    uint64_t           seed;
    FILE               *log;        /* of decisions; may be NULL */
} sim_config_t;

typedef enum sim_state {
    SIM_WAITS,    /* not yet arrived, or told to wait */
    SIM_QUEUED,
    SIM_PREFILLS,
    SIM_MOVES,    /* its KV, to the decode instance */
    SIM_DECODES,
    SIM_DONE,
    SIM_REFUSED,  /* at arrival */
    SIM_LATE,     /* in the queue */
    SIM_WASTED,   /* after its prefill */
    SIM_LOST      /* with an instance */
} sim_state_t;

/* A request's way through the cluster. */
typedef struct sim_run {
    sim_state_t state;
    uint32_t    reason;       /* of a refusal */
    uint32_t    prefill;
    uint32_t    decode;
    uint32_t    tries;
    uint32_t    flow;         /* that takes its KV to the decode instance, or SIM_NO_FLOW */
    bool        moved;        /* all that the flow could take is there */
    uint32_t    fetches;      /* transfers to it that are under way */
    uint32_t    fetched;      /* blocks fetch_first .. fetched - 1 came */
    uint32_t    fetch_first;
    uint32_t    there_tokens; /* of the prompt: found, fetched */
    uint32_t    fetch_tokens;
    double      arrival;
    double      ready;        /* when its transfers will have ended, as far as is known */
    double      start;        /* of its prefill; -1: not yet */
    double      seconds;      /* of its prefill */
    double      left;         /* of these, to do */
    double      fetch_s;
    double      fetch_bytes;
    double      prefilled;
    double      first;        /* its first token */
    double      joined;
    double      end;
    double      tbt;          /* by the config's rule */
    double      tbt_mean;
    double      limit;        /* of its TTFT */
    kvcl_sched_waiting_t waiting;
    double      guess;        /* predicted TTFT */
    double      handover;     /* predicted, with load and scheduling */
} sim_run_t;

typedef struct sim_inst {
    uint32_t    role;
    bool        alive;
    bool        known;        /* the scheduler counts with it */
    uint32_t    death;        /* version of the event that tells it */
    double      slower;
    sim_pool_t  pool;
    /* Prefill. */
    uint32_t    *queue;       /* requests in order of placement */
    uint32_t    n_queue;
    uint32_t    cap_queue;
    double      queue_busy;   /* the scheduler's seconds of the queue */
    uint64_t    queue_tokens;
    uint32_t    running;      /* request, or SIM_NONE */
    double      piece_end;
    double      piece_s;      /* of the request's own seconds, in this piece */
    uint32_t    piece;        /* version of its event */
    double      guess_end;    /* of all of it, by the scheduler's seconds */
    bool        decoded;      /* coupled: a step was done since the last piece */
    double      prefill_s;    /* done in all */
    /* Decode. */
    sim_batch_t batch;
    uint32_t    step;         /* version of its event */
    uint32_t    *joiners;     /* requests whose KV is here; a ring would save a move of few */
    uint32_t    n_joiners;
    uint32_t    cap_joiners;
    uint64_t    reserved;     /* tokens of KV of those that decode, when they will have ended */
    uint32_t    pending;
    uint64_t    pending_tokens;
    double      stall_s;      /* that the next boundary adds */
} sim_inst_t;

typedef struct sim_sample {
    double   at;
    double   queue;    /* mean seconds of a prefill instance's queue */
    double   busy;     /* share of prefill instances that work */
    double   step;     /* mean seconds of a decode instance's step */
    double   running;  /* mean requests that decode, of an instance */
    double   kv;       /* share of the decode instances' KV that is reserved */
} sim_sample_t;

typedef struct sim_totals {
    uint64_t decisions;
    uint64_t waits;
    uint64_t reasons[3][SIM_REASONS]; /* refused early, late, after the prefill */
    uint64_t there_tokens;
    uint64_t fetch_tokens;
    uint64_t input_tokens;            /* of those that were prefilled */
    double   fetch_bytes;
    double   replica_bytes;
    double   handover_bytes;
    uint64_t replicas;                /* blocks copied by plan, or kept after a fetch */
    uint64_t evicted;
    uint64_t again;                   /* decided again, after a death */
    double   prefill_s;
    double   wasted_s;                /* of these, of requests that were refused later */
    uint64_t left_out;
} sim_totals_t;

typedef struct sim {
    const sim_config_t *config;
    work_t             *work;
    kvcl_sched_h       sched;
    kvcl_sched_model_info_t info;
    sim_events_t       events;
    sim_nic_t          nic;
    sim_inst_t         *insts;
    uint32_t           n_insts;
    uint32_t           words;     /* of 64 instances */
    sim_run_t          *runs;
    uint64_t           *present;  /* words for each block: what the index knows of the pools */
    uint64_t           *expected; /* words for each block: placed there, not yet computed */
    struct sim_news    *news;     /* what the index does not yet know */
    size_t             n_news;
    size_t             first_news;
    size_t             cap_news;
    kvcl_sched_inst_t  *views;
    kvcl_sched_hold_t  *holds;
    kvcl_key_t         *keys;     /* of the request that is decided: its blocks' numbers */
    uint32_t           *lens;     /* two of each instance */
    kvcl_sched_waiting_t *waiting;
    size_t             *late;
    size_t             cap_waiting;
    kvcl_sched_decision_t decision;
    kvcl_rand_t        random;
    double             now;
    size_t             next;      /* arrival */
    size_t             left;      /* requests that have not ended */
    uint32_t           next_session;
    uint32_t           *heads;    /* closed loop: the first request of each session */
    uint32_t           n_heads;
    sim_totals_t       totals;
    sim_sample_t       samples[SIM_SAMPLES];
    uint32_t           n_samples;
    double             sample_s;
    double             next_sample;
    bool               overloaded;
    double             holds_rate; /* of an overloaded run: requests a second that were prefilled */
    const char         *failed;    /* static words, or NULL */
} sim_t;

enum { EVENT_RETRY, EVENT_PIECE, EVENT_PREFILLED, EVENT_FLOW, EVENT_JOIN, EVENT_STEP, EVENT_READY, EVENT_FAULT,
       EVENT_DETECT, EVENT_SEND };
enum { FLOW_FETCH, FLOW_COPY, FLOW_HANDOVER };

/* engine.c. sim_open: config and work must outlive it. False after reporting to stderr. sim_close accepts zero. */
bool sim_open(sim_t *sim, const sim_config_t *config, work_t *work);
bool sim_go(sim_t *sim);
void sim_close(sim_t *sim);
void sim_event(sim_t *sim, double at, uint32_t kind, uint32_t a, uint32_t b);
void sim_ended(sim_t *sim, uint32_t request, sim_state_t state); /* a request has ended, in whichever way */

/* place.c */
void   sim_decide(sim_t *sim, uint32_t request);
size_t sim_fill_views(sim_t *sim); /* @return how many */
bool   sim_good(const sim_t *sim, uint32_t request);
double sim_queue_s(const sim_t *sim, const sim_inst_t *inst);

/* prefill.c */
void sim_queue_add(sim_t *sim, uint32_t inst, uint32_t request, double busy_s);
void sim_prefill_next(sim_t *sim, uint32_t inst);
void sim_piece_ended(sim_t *sim, uint32_t inst);
void sim_prefilled(sim_t *sim, uint32_t request);
void sim_hand_on(sim_t *sim, uint32_t request); /* prefilled: to the decode instance that the scheduler names */

/* decode.c */
void sim_join(sim_t *sim, uint32_t request);     /* its KV is at its decode instance */
void sim_boundary(sim_t *sim, uint32_t inst);    /* a step ends now */
void sim_step_plan(sim_t *sim, uint32_t inst);   /* make the next STEP event */
void sim_step_ended(sim_t *sim, uint32_t inst);  /* that event */
bool sim_at_boundary(const sim_t *sim, const sim_inst_t *inst);

/* move.c */
void     sim_fetch(sim_t *sim, uint32_t request, const kvcl_sched_run_t *run);
void     sim_copy(sim_t *sim, uint32_t request, const kvcl_sched_run_t *run);
void     sim_handover(sim_t *sim, uint32_t request);   /* begin to send its KV */
void     sim_moved(sim_t *sim, uint32_t request);      /* it is prefilled, and its KV at the decode instance */
void     sim_no_handover(sim_t *sim, uint32_t request);
void     sim_flow_ended(sim_t *sim, uint32_t flow);
void     sim_keep(sim_t *sim, uint32_t inst, uint32_t request, uint32_t first, uint32_t end);
uint32_t sim_run_at(const sim_t *sim, uint32_t inst, uint32_t request);
void     sim_expect(sim_t *sim, uint32_t inst, uint32_t request, bool expected);
void     sim_expect_none(sim_t *sim, uint32_t inst);
void     sim_learn(sim_t *sim); /* the index catches up to now - lag */
void     sim_drop_flows(sim_t *sim, uint32_t inst);
void     sim_drop_blocks(sim_t *sim, uint32_t inst);

/* faults.c */
bool sim_joins_first(const sim_config_t *config, uint32_t inst); /* it is not there before its first join */
void sim_fault(sim_t *sim, uint32_t fault);
void sim_detected(sim_t *sim, uint32_t inst);

#endif
