/*
 * Running collectives: the pure executor of collectives/exec.h bound to the engine.
 *
 * One kvcl_coll_op_t is one collective as this rank runs it, a request. Its life: posted (it waits while KVCL_COLL_OPEN
 * collectives of its communicator are in flight), begun (sessions with the plan's peers are established, then the
 * executor's actions are performed), over (executor finished, no peer reads the local buffer), complete.
 * Files: coll_calls.c the public calls, coll_post.c how they are posted, coll_run.c the life, coll_pull.c the bytes,
 * coll_stage.c their place in shared memory, coll_msg.c messages, coll_early.c early ones, coll_unlike.c calls that
 * differ, coll_order.c their order among agreements, coll_comm.c the state of a communicator, coll_room.c the room.
 *
 * All under the engine lock, except for calls that say otherwise.
 */
#ifndef KVCL_COLL_RUN_H
#define KVCL_COLL_RUN_H

#include "collectives/exec.h"
#include "collectives/plan_cache.h"
#include "collectives/reduce.h"
#include "collectives/select.h"
#include "core/comm.h"
#include "coll/coll_called.h"
#include "coll/coll_post.h"
#include "coll/coll_stage.h"
#include "coll/coll_wire.h"
#include "near/near.h"
#include "req/req.h"
#include "xfer/offer.h"
#include "xfer/pull.h"

enum {
    KVCL_COLL_OPEN     = 16, /* collectives of one communicator in flight; later ones wait */
    KVCL_COLL_FAILURES = 16, /* failed collectives whose status is kept, per communicator */
    KVCL_COLL_PAST     = 16  /* calls whose collectives are over, kept to be compared with others' */
};

/* The state of a communicator, from its first collective on. */
typedef struct kvcl_coll_comm {
    uint64_t          id;
    kvcl_comm_h       comm;    /* NULL: freed, or its collectives are numbered anew (slots/rank_slots.h) */
    uint32_t          rank;
    uint32_t          size;
    int               path;    /* kvcl_coll_path_t of caches, -1: not known yet */
    bool              whole;   /* each of its slots has a process, or had one */
    kvcl_plan_cache_t plans;
    kvcl_coll_stage_t stage;
    kvcl_list_t       waiting; /* kvcl_coll_op_t, by seq */
    unsigned          running;
    unsigned          posts;   /* calls that use it, and hold no lock meanwhile */
    bool              beginning;
    uint64_t          seqs;    /* collectives posted: coll_seq of the communicator */
    struct {
        uint64_t      seq;
        kvcl_status_t status;
    } failures[KVCL_COLL_FAILURES]; /* a ring */
    unsigned          n_failures;
    struct {
        uint64_t           seq;
        kvcl_coll_called_t called; /* kind 0: none */
    } past[KVCL_COLL_PAST]; /* by seq % KVCL_COLL_PAST */
} kvcl_coll_comm_t;

typedef struct kvcl_coll_op kvcl_coll_op_t;

/* Bytes whose place came with their announcement, before their step: here, or in a slot of the peer's stage. */
typedef struct kvcl_coll_chunk {
    kvcl_list_t   link;
    uint32_t      k;
    bool          staged;
    bool          near;   /* bytes are a kvcl_near_wire_t */
    uint32_t      slot;
    uint64_t      count;  /* of the peer's failures: with another one the slot is no longer valid */
    size_t        len;
    unsigned char bytes[];
} kvcl_coll_chunk_t;

typedef struct kvcl_coll_peer {
    kvcl_coll_op_t     *op;
    kvcl_peer_t        *peer;
    uint32_t           rank;
    kvcl_peer_waiter_t waiter;
    bool               waiting;   /* for its session */
    bool               gone;
    bool               notified;  /* it has been sent the local block ids */
    uint64_t           offer;     /* its offer, from its announcements */
    uint64_t           revoked;   /* its revocation count, from its last announcement */
    uint32_t           no_acks;   /* by k: its announcement awaits no ACK */
    bool               unmapped;  /* its stage is not mapped here */
    bool               unread;    /* its memory cannot be read here */
    bool               described; /* its cache and selection are known: */
    uint32_t           cache;
    kvcl_sel_t         sel;       /* owned */
    kvcl_list_t        chunks;
} kvcl_coll_peer_t;

/* VOID: its bytes are not valid, and the step stays open until the operation fails. */
typedef enum { KVCL_COLL_PULL_FREE, KVCL_COLL_PULL_ACTIVE, KVCL_COLL_PULL_LANDED, KVCL_COLL_PULL_VOID }
    kvcl_coll_pull_state_t;

typedef struct kvcl_coll_pull {
    kvcl_coll_op_t         *op;
    kvcl_coll_pull_state_t state;
    uint32_t               step;
    kvcl_pull_t            *pull; /* ACTIVE, or near is busy */
    kvcl_near_read_t       near;
    kvcl_status_t          stopped; /* an error: of the near that is busy */
    kvcl_exec_action_t     action;
    void                   *operand; /* owned, kept from one pull to the next: the bytes to reduce with */
    uint64_t               operand_bytes;
} kvcl_coll_pull_t;

typedef enum { KVCL_COLL_OFFER_NONE, KVCL_COLL_OFFER_OPEN, KVCL_COLL_OFFER_CLOSING, KVCL_COLL_OFFER_CLOSED }
    kvcl_coll_offer_state_t;

struct kvcl_coll_op {
    kvcl_req_t              req;
    kvcl_list_t             link;        /* the communicator's waiting, or the room's running */
    kvcl_list_t             landed_link; /* the room's landed */
    kvcl_coll_comm_t        *cc;
    const char              *call;       /* static: "kvcl_bcast" */
    uint32_t                root;        /* UINT32_MAX: it has none */
    bool                    to_root;     /* a gather */
    uint64_t                seq;
    kvcl_coll_called_t      called;
    kvcl_coll_unlike_t      unlike;      /* why it fails, where the kinds are not 0 */
    bool                    compared;    /* the others have been told of `called` */
    kvcl_plan_entry_t       *plan;
    kvcl_exec_t             exec;
    kvcl_coll_peer_t        *peers;      /* as plan->plan.peers */
    void                    *buf;        /* to receive into; or cache and sel */
    const void              *in;         /* to send from: buf, unless the collective has two buffers */
    uint64_t                in_total;    /* bytes of in */
    bool                    no_acks;     /* of its eager bytes */
    bool                    staged;      /* it may use the stage, and waits until no other one does */
    bool                    near;        /* long pieces are read out of this rank's memory */
    uint8_t                 *slot_of;    /* by step of the plan, KVCL_COLL_STAGE_NO_SLOT: none */
    void                    *work;       /* owned: buf, where it is not the caller's; its end goes to result */
    void                    *result;
    kvcl_reduce_fn_t        reduce;      /* NULL: it does not reduce */
    uint32_t                elem;        /* bytes of an element */
    kvcl_cache_h            cache;
    kvcl_sel_t              sel;         /* owned */
    uint64_t                total;       /* bytes of buf */
    uint64_t                payload;     /* bytes of the caller's larger buffer: for sentences and records */
    kvcl_token_t            token;       /* layers 0: matches any block of the same size */
    uint64_t                block_bytes;
    kvcl_offer_t            offer;
    kvcl_coll_offer_state_t offer_state;
    kvcl_coll_pull_t        pulls[KVCL_EXEC_PULLS];
    void                    (*advance)(kvcl_coll_op_t *op); /* kvcl_coll_advance, for files below coll_run.c */
    unsigned                unready;     /* peers whose session is not established yet */
    bool                    begun;
    bool                    advancing;   /* inside kvcl_coll_advance, which handles all changes */
    bool                    failing;     /* the failure has been handled */
    bool                    forced;      /* the grace time has passed: end without the silent peers */
    uint64_t                grace_ns;    /* the end of the grace time; 0: not begun */
};

typedef struct kvcl_coll_room {
    kvcl_coll_table_t table;
    kvcl_map_t        comms;   /* id -> kvcl_coll_comm_t */
    kvcl_list_t       running; /* kvcl_coll_op_t */
    kvcl_list_t       landed;
    kvcl_coll_on_device_fn_t on_device;
    kvcl_list_t       early;   /* coll_early.c: messages of collectives that this rank has not begun */
} kvcl_coll_room_t;

static inline kvcl_coll_room_t *kvcl_coll_room(kvcl_context_h ctx)
{
    return ctx->rooms[KVCL_ROOM_COLL];
}

/* ---- coll_run.c ---- */

/** Takes a started request with its plan, buffer and peers set; it may be freed on return. */
void kvcl_coll_launch(kvcl_coll_op_t *op);
/** Perform the executor's actions; the operation may be freed afterwards. */
void kvcl_coll_advance(kvcl_coll_op_t *op);
/** The peer failed with status; the caller advances. */
void kvcl_coll_peer_failed(kvcl_coll_peer_t *peer, kvcl_status_t status);
/** Frees what it owns; the operation too, which was never launched, or is complete. No lock needed. */
void kvcl_coll_discard(kvcl_coll_op_t *op);
extern const kvcl_req_class_t kvcl_coll_class;

/* ---- coll_pull.c ---- */

void kvcl_coll_stream(const kvcl_coll_op_t *op, kvcl_stream_t *stream); /* what is sent from, at 0 */
void kvcl_coll_pull(kvcl_coll_op_t *op, kvcl_coll_peer_t *from, const kvcl_exec_action_t *action);
void kvcl_coll_stop_pulls(kvcl_coll_op_t *op, kvcl_status_t status);
unsigned kvcl_coll_poll(kvcl_context_h ctx); /* the room's landed list */

/* ---- coll_msg.c ---- */

kvcl_coll_peer_t *kvcl_coll_peer_at(kvcl_coll_op_t *op, uint32_t rank); /* NULL: not in the plan */
kvcl_status_t kvcl_coll_announce(kvcl_coll_op_t *op, kvcl_coll_peer_t *to, const kvcl_exec_action_t *action)
    KVCL_MUST_CHECK;
kvcl_status_t kvcl_coll_ack(kvcl_coll_op_t *op, kvcl_coll_peer_t *to, uint32_t k) KVCL_MUST_CHECK;
/** A message about a collective that has begun; the caller advances. */
void kvcl_coll_handle(kvcl_coll_op_t *op, kvcl_peer_t *peer, const kvcl_msg_coll_t *in, const void *data, size_t len);

/* ---- coll_unlike.c ---- */

/** Keep the call of a collective that is over. */
void kvcl_coll_keep_call(kvcl_coll_comm_t *cc, uint64_t seq, const kvcl_coll_called_t *called);
kvcl_coll_called_t kvcl_coll_past_call(const kvcl_coll_comm_t *cc, uint64_t seq); /* kind 0: not known any more */
/** called: this rank's call. */
kvcl_msg_coll_t kvcl_coll_header(const kvcl_coll_comm_t *cc, uint64_t seq, const kvcl_coll_called_t *called,
                                 uint32_t kind);
kvcl_status_t kvcl_coll_abort(const kvcl_coll_op_t *op, kvcl_peer_t *to, kvcl_status_t status) KVCL_MUST_CHECK;
void kvcl_coll_try_abort(const kvcl_coll_op_t *op, kvcl_peer_t *to, kvcl_status_t status);
/** To a message about a collective that is over here: it failed with status, or a further announcement came. */
void kvcl_coll_turn_away(const kvcl_coll_comm_t *cc, const kvcl_msg_coll_t *in, kvcl_peer_t *to, kvcl_status_t status);
/** The part of a collective's timeout after which it compares its call with the others'. */
uint64_t kvcl_coll_compare_ns(uint64_t timeout_ns);
/** Its deadline is near: have the ranks that made another call say so. */
void kvcl_coll_compare(kvcl_coll_op_t *op);
/** A message of a rank that made another call: KVCL_ERR_INVALID_PARAM, and the sentence names both. */
kvcl_status_t kvcl_coll_check_call(kvcl_coll_op_t *op, const kvcl_msg_coll_t *in) KVCL_MUST_CHECK;
void kvcl_coll_compared(kvcl_coll_op_t *op, kvcl_peer_t *peer, const kvcl_msg_coll_t *in); /* a COMPARE */
/** An ABORT of that rank. @return what the collective fails with; the request keeps the sentence. */
kvcl_status_t kvcl_coll_why_aborted(kvcl_coll_op_t *op, uint32_t rank, const kvcl_msg_coll_t *in, const void *data,
                                    size_t len);
kvcl_status_t kvcl_coll_error_of(int32_t status); /* of a message: KVCL_ERR_CANCELED if it is no error */

/* ---- coll_early.c ---- */

void kvcl_coll_on_message(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                          const void *data, size_t len);
void kvcl_coll_replay(kvcl_coll_op_t *op); /* handles the early messages of op */
void kvcl_coll_refuse(kvcl_context_h ctx, const kvcl_coll_comm_t *cc, uint64_t seq); /* of one without steps here */
/** Drop the early messages of a peer (NULL: of all) and of a communicator (0: of all). */
void kvcl_coll_forget(kvcl_context_h ctx, const kvcl_peer_t *peer, uint64_t comm);

/* ---- coll_comm.c ---- */

/** The running one, or NULL. */
kvcl_coll_op_t *kvcl_coll_running(kvcl_context_h ctx, uint64_t comm, uint64_t seq);
/** Made if new. */
kvcl_status_t kvcl_coll_comm_get(kvcl_comm_h comm, kvcl_coll_comm_t **cc_p) KVCL_MUST_CHECK;
/** Frees it if its communicator is gone and nobody uses it. */
void kvcl_coll_comm_release(kvcl_context_h ctx, kvcl_coll_comm_t *cc);
/** Has this collective ended here? Then *status_p is the answer to an announcement in it. */
bool kvcl_coll_comm_is_over(const kvcl_coll_comm_t *cc, uint64_t seq, kvcl_status_t *status_p);
void kvcl_coll_comm_failure(kvcl_coll_comm_t *cc, uint64_t seq, kvcl_status_t status);
/** No lock held; sets cc->whole. KVCL_ERR_RANK_FAILED: nobody has one of its slots. All ranks must find that out, those
 *  too whose plan does not have the slot: nobody tells them. */
kvcl_status_t kvcl_coll_comm_whole(kvcl_comm_h comm, kvcl_coll_comm_t *cc) KVCL_MUST_CHECK;
/** No lock held; queries boot the first time. *path_p is the same on all ranks: KVCL_COLL_PATH_SHM if, by their
 *  addresses, every rank can map the cache memory of all others. */
kvcl_status_t kvcl_coll_comm_path(kvcl_comm_h comm, kvcl_coll_comm_t *cc, kvcl_coll_path_t *path_p) KVCL_MUST_CHECK;

#endif
