/*
 * Whole jobs in one thread: ranks that decide their views, keep a directory, run collectives, agree on what is left
 * after failures, and exchange rows of experts, over one network and one clock.
 *
 * Real, as they ship: the machines of src/view (views, agreements, revocations); the directory's tables, homes, maps
 * and moving shards; the plans and the executor of collectives; places, repairs, moves, routes and steps of experts.
 * Modelled: the world of sim_view.h, what sim_store.h says of the directory, and what src/coll, src/member and
 * src/experts do with messages. Messages of collectives, revocations and experts are not lost while both ranks live,
 * since sessions repeat them: they are delayed, overtaken and doubled, and wait where a link is cut. Those of
 * agreements get lost, too.
 *
 * The program of each rank: it agrees with all members of its view on a communicator of those that are left
 * (kvcl_comm_shrink of the world), runs OPS operations in it, and agrees again. Where one fails, or the view has
 * changed, it revokes the communicator and agrees. A process that has joined begins with an agreement.
 *
 * Invariants, besides those of sim_view.h and sim_store.c:
 *   Uniform   whoever ends an agreement has the value that all have, also those that die later
 *   Known     what an agreement says about the operations before it is true of every rank that has ended it
 *   Right     an operation that ends well has the bytes of its own number and communicator, on every rank
 *   OldView   no message of a process that the receiver's view lacks, or that was reported as failed, is taken
 *   Served    no rank reads bytes of another one's operation before they are there
 *   Ends      an operation ends by its deadline; of a rank that was not stopped and has a quorum well, or with
 *             RANK_FAILED or REVOKED, before it (one fault)
 *   OneMap    ranks that have activated the same number have the same map of experts, and its moves make it
 *   Masked    no row of experts goes to a rank outside the mask, or to a slot without that expert; each choice becomes
 *             a row, or is counted as lost
 *   GoesOn    healed for a while, all members of the view are in one communicator, and operations end well in it
 */
#ifndef KVCL_TEST_SIM_JOB_H
#define KVCL_TEST_SIM_JOB_H

#include "sim_store.h"

#include "collectives/coll.h"
#include "collectives/exec.h"
#include "ep/ep_map.h"
#include "ep/ep_step.h"
#include "ep/ep_turn.h"
#include "view/agree.h"
#include "view/revokes.h"

enum { OPS = 12 /* of a communicator */, JOB_BYTES = 320, LOCAL = 2, EXPERTS_MAX = SLOTS * LOCAL, TOKENS = 2,
       TOP_K = 2, ROWS = TOKENS * TOP_K, DEADLINE_MS = 5000, GRACE_MS = 2000, AGAIN_MS = 100, EP_LIMIT_MS = 1500 };

#define OP_BITS ((UINT64_C(1) << OPS) - 1)

typedef enum {
    JOB_BREAK_NOTHING,
    JOB_BREAK_OLD_VIEW,      /* messages of excluded processes are taken */
    JOB_BREAK_ANY_COMM,      /* a message of an older communicator counts in the present one */
    JOB_BREAK_NO_REVOKE,     /* a rank whose operation has failed does not revoke */
    JOB_BREAK_DEAF_EXEC,     /* a failed rank is not reported to the executor */
    JOB_BREAK_OWN_MAP,       /* a rank that has no map of the last number repairs its own */
    JOB_BREAK_VIEW_MAP,      /* the map's mask is the rank's view, not the communicator */
    JOB_BREAK_TRUST_ALL,     /* whoever has come is trusted to have the experts of its slots */
    JOB_BREAK_NO_MASK,       /* rows go to experts whose ranks are not active */
    JOB_BREAK_OLD_ROWS,      /* rows of an older activation count */
    JOB_BREAK_END
} job_break_t;

/* What is sent. From JOB_ANNOUNCE on: waits across a cut; from JOB_NOTICE on: of experts. */
typedef enum { JOB_WAKE, JOB_AGREE, JOB_REVOKE, JOB_ANNOUNCE, JOB_PULL, JOB_PULLED, JOB_ACK, JOB_ABORT, JOB_NOTICE,
               JOB_ROWS, JOB_WORD, JOB_TAKEN } job_kind_t;

typedef struct job_mail {
    job_kind_t    kind;
    unsigned      from, to;
    uint64_t      comm, round, seq; /* of the sender's communicator; round: the agreement that has made it */
    bool          answer;           /* ABORT: no reply */
    uint32_t      k, step, signature;
    uint64_t      off, len;
    kvcl_status_t status;
    uint64_t      tag, id, call;    /* experts; call: of a WORD; 0: a skip */
    uint32_t      n;
    union {
        kvcl_agree_msg_t agree;
        kvcl_rankset_t   members;   /* REVOKE */
        uint8_t          bytes[JOB_BYTES];
        uint64_t         rows[ROWS];
    } u;
} job_mail_t;

typedef struct job_pull {
    bool     busy;
    uint32_t step, peer;
    uint64_t off, with, len;
} job_pull_t;

/* One operation of a communicator. */
typedef struct job_op {
    bool                   runs, noted, failing;
    const kvcl_coll_alg_t *alg;
    kvcl_coll_shape_t      shape;
    kvcl_plan_t            plan;
    kvcl_exec_t            exec;
    void                  *memory;
    uint8_t              **eager;    /* by step: the bytes that came with its announcement */
    void                  *copies;
    uint8_t               *no_ack;   /* by step: its announcement awaits none */
    uint8_t               *in, *out, *in_have, *out_have; /* in may be out */
    uint64_t               in_bytes, out_bytes;
    uint64_t               begun, seen, grace; /* sim.now */
    unsigned               way;      /* 0: bytes and no ACK, 1: bytes and ACK, 2: pulled */
    bool                   slept;    /* this process was stopped meanwhile, or had no quorum */
    job_pull_t             pulls[KVCL_EXEC_PULLS];
} job_op_t;

typedef enum { TAKE_NOTICE, TAKE_ROWS, TAKE_WORD, TAKES } job_take_t;

typedef struct job_ep {
    bool             is_open, in_call, slept;
    uint64_t         has;      /* the number of `placement`; 0: none */
    uint64_t         learns;   /* the number of `old`, which comes from the rank that has the latest */
    uint32_t         donor;
    bool             fresh[SLOTS]; /* ranks of the communicator that do not have that one */
    uint64_t         begun, seen, ticks; /* sim.now */
    int32_t          placement[SLOTS * LOCAL], old[SLOTS * LOCAL];
    uint8_t          active[SLOTS];
    int32_t          mask[SLOTS];
    kvcl_ep_map_t    map;
    kvcl_ep_dims_t   dims;
    kvcl_ep_turn_t   turn;
    kvcl_ep_peer_t   peers[SLOTS];
    kvcl_ep_route_t  route;
    kvcl_ep_inbox_t  inbox;
    int64_t          ids[ROWS], experts[ROWS];
    uint32_t         rows_to[SLOTS];
    uint64_t         in[LOCAL * SLOTS * TOKENS], back[ROWS]; /* rows: by place, by row */
    bool             takes[TAKES][SLOTS];
    uint64_t         take_tag[TAKES][SLOTS], send_id[TAKES][SLOTS];
} job_ep_t;

typedef enum { JOB_NEW, JOB_AGREES, JOB_WORKS, JOB_OUT } job_phase_t;

/* A process's part. */
typedef struct job {
    job_phase_t        phase;
    bool               news, decided, is_lost, looks;
    kvcl_rankset_t     gone;       /* reported as failed, and not handled yet */
    kvcl_rankset_t     joined;
    uint64_t           view_id;    /* that the agreement and the revocations know */
    kvcl_agree_t       agree;
    uint64_t           awaited;    /* round; 0: it is not known yet */
    uint64_t           gave_view;  /* the id of the view in which it gave */
    kvcl_agree_value_t value;
    kvcl_revokes_t     revokes;
    /* The communicator. */
    uint64_t           comm, round, comm_view;
    uint32_t           rank, size;
    uint32_t           slots[SLOTS];
    uint64_t           incarnations[SLOTS];
    kvcl_rankset_t     members;
    uint64_t           seq, ok;    /* the next operation; those that have ended well, as bits */
    bool               failed;     /* that one has failed here */
    uint64_t           wakes, again, well_at; /* sim.now; well_at: an operation ended */
    uint64_t           lineage;    /* of the numbers of rounds */
    job_op_t           op;
    job_ep_t           ep;
    unsigned           n_held;     /* messages that came before their time */
    unsigned           held[SIM_QUEUE_MAX / 16];
} job_t;

typedef struct job_counts {
    uint64_t well, failed, revoked, timed_out, agreed, steps, lost_rows;
} job_counts_t;

extern job_t        jobs[PROCS];
extern job_break_t  job_broken;
extern job_counts_t job_counts;
extern bool         job_one_fault; /* all meet their deadlines, except those that the fault concerns */
extern unsigned     job_experts;
extern uint64_t     job_calm_at;   /* from then on operations come seldom */
/* Called before each message is sent, except beats. It may end the sender, or change anything else. */
extern void (*job_on_send)(unsigned from, unsigned to);

static inline job_t *job_of(const proc_t *p)
{
    return &jobs[index_of(p)];
}

/* sim_job_run.c */
/** A job of n ranks. drift: as in sim_begin. */
void job_run_begin(uint64_t seed, unsigned n, unsigned drift);
/** The next event of the world, at most until that time of sim.now, and what is due in the other parts. */
void job_run_step(uint64_t until);
/** That it has ended is proven to so many percent of the processes that live, each within so many ms. */
void job_prove(const proc_t *p, unsigned percent, unsigned within_ms);
/** At the end of a run that has healed. */
void job_check_end(void);

/* sim_job_net.c */
void     job_net_begin(void);
uint64_t job_net_at(void);
void     job_net_deliver(void);
/** A message, which the caller fills, to the process with that incarnation in the slot. It goes nowhere if that process
 * or this one has ended, or if it is lost. */
job_mail_t *job_post(proc_t *p, uint32_t slot, uint64_t incarnation, job_kind_t kind);
job_mail_t *job_post_rank(proc_t *p, uint32_t rank, job_kind_t kind);
/** The sender's rank in this one's communicator; SLOTS: it has none. */
uint32_t job_rank_of(const job_t *job, const proc_t *from);
void     job_wake(proc_t *p, uint64_t after_ns);
/** Messages that are held are tried again at the end of the event (job_look). */
void     job_look_again(proc_t *p);
void     job_look(proc_t *p);
void     job_drop_held(job_t *job);

/* sim_job_comm.c: the program */
/** Before sim_begin. */
void job_begin(void);
void job_ended(proc_t *p, kvcl_status_t status);
void job_on_event(proc_t *p, kvcl_views_event_t event, const kvcl_rankset_t *ranks);
void job_after(proc_t *p);
void job_take_revoke(proc_t *p, const job_mail_t *mail);
void job_act(proc_t *p);
/** Has the peer in this rank of the communicator failed, or left the view? */
bool job_is_gone(const proc_t *p, uint32_t rank);

/* sim_job_agree.c */
/** Before a run. */
void job_agree_begin(void);
/** The process has become a member. */
void job_agree_start(proc_t *p);
/** It gives its value to the next agreement. */
void job_give(proc_t *p);
void job_take_agree(proc_t *p, const kvcl_agree_msg_t *msg);

/* sim_job_coll.c: operations */
void job_op_begin(proc_t *p);
void job_op_fail(proc_t *p, kvcl_status_t status);
void job_op_gone(proc_t *p, uint32_t rank, kvcl_status_t status);
void job_op_tick(proc_t *p);
/** Whether this process was stopped or had no quorum, before or since *seen_p, the time of the last look. */
bool job_has_slept(const proc_t *p, bool before, uint64_t *seen_p);
void job_op_drop(job_t *job);

/* sim_job_coll_in.c */
/** True: the message is done with; false: it is to be held. first: it was not held before. */
bool job_op_take(proc_t *p, const job_mail_t *mail, bool first);

/* sim_job_bytes.c: what an operation moves */
const kvcl_coll_alg_t *job_choose(const job_t *job, kvcl_coll_shape_t *shape, unsigned *way);
void job_bytes_begin(job_t *job);
void job_bytes_check(proc_t *p);
void job_bytes_check_have(proc_t *p, uint64_t off, uint64_t len);
void job_bytes_write(job_op_t *op, const job_pull_t *pull, const uint8_t *bytes);

/* sim_job_ep.c: maps; sim_job_step.c, sim_job_step_msgs.c: steps */
void job_ep_begin(proc_t *p);
void job_ep_drop(job_t *job);
/** The bytes that the rank gives in the first two operations of a communicator, and what follows from them. */
void job_ep_give(job_t *job, uint32_t seq, uint8_t *bytes, uint64_t len);
void job_ep_learn(proc_t *p, uint32_t seq, const uint8_t *bytes, uint64_t len);
void job_step_begin(proc_t *p);
bool job_step_take(proc_t *p, const job_mail_t *mail);
void job_step_tick(proc_t *p);
void job_step_gone(proc_t *p, uint32_t slot);
/** The communicator is revoked: nothing more of its ranks is waited for. */
void job_step_stop(proc_t *p);
extern const kvcl_ep_acts_t job_step_acts;

#endif
