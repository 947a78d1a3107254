/*
 * Collectives on device memory (KVCL_ON_DEVICE, kvcl_coll.h).
 *
 * A communicator gets a runner with its first such collective, and with the first one after a process has joined it: a
 * thread that performs them one after another, in the order in which they were posted, and a communicator of its own
 * over the same ranks, of which only the runner's collectives use numbers. A collective has these steps:
 *   STREAM  wait for the engine's stream
 *   AGREE   an allgather of offers (dev_offer.h): every rank decides the same way
 *   then by the host: copy what is given to the host, the same collective of host memory, copy the result to the device
 *   or by NCCL (dev_nccl.c): make an ncclComm if there is none that all ranks have, run it, wait for its stream
 * The number of each step is made of the collective's own, so ranks that skip a step after a failure remain in step.
 *
 * Posting calls and other threads never wait for a device or for NCCL; the runner does. kvcl_dev_stop() ends its wait.
 * A rank whose collective fails tells the others (STOP), which stop theirs, and tell others.
 *
 * Locks: the engine's; inside it the runner's, which guards `stopping` for waits outside the engine's lock.
 */
#ifndef KVCL_DEVCOLL_DEV_COLL_H
#define KVCL_DEVCOLL_DEV_COLL_H

#include "coll/coll_post.h"
#include "coll/coll_run.h"
#include "device/copier.h"
#include "devcoll/dev_offer.h"
#include "req/req.h"

#include <pthread.h>

enum {
    KVCL_DEV_AGREE = 0, KVCL_DEV_ID = 1, KVCL_DEV_DATA = 2, /* steps with a number */
    KVCL_DEV_STEPS   = 4,
    KVCL_DEV_STOPPED = 8,         /* STOPs that are kept, of collectives that this rank has not begun */
    KVCL_DEV_COPIERS = 4,         /* devices that a runner keeps open */
    KVCL_DEV_GRACE_MS = 5000      /* for a runner whose collective is stopped; one on the host takes up to 2 s */
};

typedef struct kvcl_dev_op {
    kvcl_req_t              req;
    kvcl_list_t             link;      /* the runner's queue, while it waits there */
    struct kvcl_dev_runner  *runner;
    kvcl_coll_call_t        call;      /* with parts of its own */
    kvcl_coll_parts_t       parts;
    kvcl_copier_t           *in, *out; /* the runner's; NULL: host memory, or no buffer */
    uint64_t                in_bytes, out_bytes; /* from call.in and call.buf */
    uint64_t                seq;
    uint64_t                deadline_ns;
    kvcl_req_h              gate;      /* kvcl_stream_done, or NULL */
    kvcl_req_h              sub;       /* the step in flight; the engine lock */
    kvcl_status_t           stopping;  /* both locks to write */
    uint64_t                grace_ns;  /* stopping: until then the runner may take to let go of the memory */
    bool                    in_nccl;   /* NCCL works on it; the engine lock */
    _Atomic unsigned        holders;   /* the request, the runner */
} kvcl_dev_op_t;

typedef struct kvcl_dev_runner {
    kvcl_list_t        link;      /* the room's runners, or those that end */
    kvcl_context_h     ctx;
    uint64_t           id;        /* of the user's communicator */
    uint64_t           epoch;     /* its epoch, when the runner was made */
    int                rank;      /* this rank's number in it */
    kvcl_comm_h        comm;      /* its own; the engine lock; NULL: its thread has ended */
    pthread_t          thread;
    bool               joined;    /* nothing is left of the thread; the engine lock */
    pthread_mutex_t    lock;
    pthread_cond_t     cond;      /* an operation, its stop, the end */
    kvcl_list_t        queue;     /* kvcl_dev_op_t; engine lock and lock to change */
    kvcl_dev_op_t      *current;  /* the same */
    bool               ending;    /* the same */
    _Atomic bool       lost;      /* a call of NCCL or of the driver did not return in time */
    uint64_t           seqs;      /* posted; the engine lock */
    struct {
        uint64_t      seq;
        kvcl_status_t status;
        uint32_t      rank;
    } stopped[KVCL_DEV_STOPPED]; /* a ring; the engine lock */
    unsigned           n_stopped;
    kvcl_copier_t      *copiers[KVCL_DEV_COPIERS]; /* the engine lock */
    struct kvcl_nccl   *nccl;     /* the thread's own, as is live */
    uint64_t           live;      /* as in kvcl_dev_offer_t */
} kvcl_dev_runner_t;

typedef struct kvcl_dev_room {
    kvcl_list_t runners, ended; /* kvcl_dev_runner_t; ended: take no more, and perform what they have */
} kvcl_dev_room_t;

typedef struct kvcl_msg_dev_stop {
    kvcl_msg_t msg;
    uint64_t   comm;   /* the runner's communicator */
    uint64_t   seq;
    uint32_t   rank;   /* the sender's */
    int32_t    status;
} kvcl_msg_dev_stop_t;
_Static_assert(sizeof(kvcl_msg_dev_stop_t) == 56, "wire format");

static inline kvcl_dev_room_t *kvcl_dev_room(kvcl_context_h ctx)
{
    return ctx->rooms[KVCL_ROOM_DEVCOLL];
}

/* ---- dev_post.c ---- */

/** The hook of src/coll (kvcl_coll_on_device_fn_t). */
kvcl_status_t kvcl_dev_post(kvcl_coll_call_t *call, kvcl_req_h *req_p) KVCL_MUST_CHECK;
/** Engine lock held. Ends the collective with status; idempotent. from: the rank that said so, or -1. */
void          kvcl_dev_stop(kvcl_dev_op_t *op, kvcl_status_t status, int from);

/* ---- dev_runner.c ---- */

/** No lock held. The runner of a communicator, as its collectives are numbered now; made if there is none. */
kvcl_status_t kvcl_dev_runner_of(kvcl_comm_h comm, kvcl_dev_runner_t **r_p) KVCL_MUST_CHECK;
/** Engine lock held. The runners of the communicator with this id take no more operations (0: all). */
void          kvcl_dev_runners_end(kvcl_context_h ctx, uint64_t id);
/** The sentence of a call whose runner ended meanwhile. @return KVCL_ERR_RANK_FAILED */
kvcl_status_t kvcl_dev_runner_past(void);

/* ---- dev_run.c ---- */

void *kvcl_dev_runner_main(void *runner);

/* ---- dev_steps.c ---- */

void          kvcl_dev_drop(kvcl_dev_op_t *op); /* a holder leaves */
/** Engine lock held. Tells the other ranks that the collective has failed here. */
void          kvcl_dev_tell(kvcl_dev_op_t *op, kvcl_status_t status);
/** The runner's thread: waits for a request, which is the operation's step meanwhile. */
kvcl_status_t kvcl_dev_await(kvcl_dev_op_t *op, kvcl_req_h req) KVCL_MUST_CHECK;
/** The runner's thread. A step: posts call over the runner's communicator and waits for its end. */
kvcl_status_t kvcl_dev_step(kvcl_dev_op_t *op, unsigned step, kvcl_coll_call_t *call) KVCL_MUST_CHECK;
/** No lock held. Ends the wait for the stream, if there is one that nobody waits for. */
void          kvcl_dev_end_gate(kvcl_dev_op_t *op);

/** The runner's thread: sleep at most this long. @return the status with which the operation is being stopped. */
kvcl_status_t kvcl_dev_sleep(kvcl_dev_op_t *op, uint64_t ns) KVCL_MUST_CHECK;

/* ---- dev_stage.c, dev_nccl.c: the runner's thread ---- */

kvcl_status_t kvcl_dev_by_host(kvcl_dev_op_t *op) KVCL_MUST_CHECK;

#if KVCL_HAVE_NCCL
/** The part of the offer that NCCL fills; nothing, where this rank cannot use it. */
void          kvcl_dev_nccl_offer(kvcl_dev_op_t *op, kvcl_dev_offer_t *offer);
kvcl_status_t kvcl_dev_by_nccl(kvcl_dev_op_t *op, kvcl_dev_way_t way) KVCL_MUST_CHECK;
void          kvcl_dev_nccl_close(kvcl_dev_runner_t *runner);
#else
static inline void kvcl_dev_nccl_offer(kvcl_dev_op_t *op, kvcl_dev_offer_t *offer)
{
    (void)op;
    (void)offer;
}
static inline kvcl_status_t kvcl_dev_by_nccl(kvcl_dev_op_t *op, kvcl_dev_way_t way)
{
    (void)op;
    (void)way;
    return KVCL_ERR_UNSUPPORTED;
}
static inline void kvcl_dev_nccl_close(kvcl_dev_runner_t *runner)
{
    (void)runner;
}
#endif

#endif
