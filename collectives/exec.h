/*
 * The executor: runs a plan as a pure state machine. Events are calls, actions are taken one by one.
 *
 * Bytes are PULLed. A SEND that may start becomes ANNOUNCE to its peer. A RECV that may start and
 * whose announcement is here becomes PULL; when the pull has ended the RECV is done and ACK goes to the
 * sender, whose SEND is then done. A step without bytes is a notification: its SEND is done when
 * announced, its RECV when the announcement is here, and no ACK follows. Where an announcement carries its bytes, the
 * callers may agree on no ACK: the sender calls acked() at once, the receiver has_bytes(), and drops the ACK.
 *
 *      caller                               executor
 *      message or completion arrives   ->   kvcl_exec_announced / pulled / acked / aborted
 *      do it (post, send)              <-   while (kvcl_exec_next(exec, &action))
 *
 * The caller may postpone kvcl_exec_next (a full transport): nothing is lost, order is kept. After each event call it
 * until it returns 0, then read kvcl_exec_status. Events may arrive while actions are being taken (a pull that ended
 * inside the posting).
 *
 * Announcements name k, so they may arrive in any order. The caller keeps those of a collective that this rank has not
 * started yet.
 *
 * Failure: a pull that failed, kvcl_exec_fail (deadline, cancel, dead rank) or a peer's ABORT. From then on the only
 * actions are ABORTs: one to each peer of an open step, and to a peer being pulled from only when those pulls have
 * ended. So an ABORT means that its sender no longer reads the receiver's buffer and announces nothing more. status()
 * reports the end of the local pulls: no late byte lands in the local buffer. released() reports that no peer reads the
 * local buffer either: only then may its memory be reused.
 *
 * Owns nothing: plan and memory are the caller's and outlive it. No allocation, no clock, no lock (the
 * caller's), no call blocks.
 */
#ifndef KVCL_COLLECTIVES_EXEC_H
#define KVCL_COLLECTIVES_EXEC_H

#include "collectives/plan.h"

#include <kvcl/kvcl_status.h>

#include <stddef.h>
#include <stdint.h>

typedef enum {
    KVCL_EXEC_ANNOUNCE, /* send to peer: k, off, len in the local buffer, signature */
    KVCL_EXEC_PULL,     /* read len bytes at peer_off of the peer's buffer to off of the local one, or reduce them with
                           those at `with` (plan.h); then pulled(step) */
    KVCL_EXEC_ACK,      /* send to peer: its SEND k is done */
    KVCL_EXEC_ABORT     /* send to peer: status */
} kvcl_exec_op_t;

typedef struct kvcl_exec_action {
    kvcl_exec_op_t op;
    uint32_t       peer;
    uint32_t       k;
    uint32_t       step;
    uint64_t       off;
    uint64_t       peer_off;
    uint64_t       with;
    uint64_t       len;
    uint32_t       signature;
    kvcl_status_t  status;
} kvcl_exec_action_t;

typedef struct kvcl_exec_limits {
    uint32_t pulls;     /* PULLs under way; 0: KVCL_EXEC_PULLS */
    uint32_t announces; /* SENDs announced and not acked, per peer; 0: KVCL_EXEC_ANNOUNCES */
} kvcl_exec_limits_t;

enum { KVCL_EXEC_PULLS = 4, KVCL_EXEC_ANNOUNCES = 16 };

/* Private from here. A step stands in one queue at most, linked by next. */
typedef struct kvcl_exec_step {
    uint32_t next;
    uint8_t  flags;    /* exec.c */
    uint64_t peer_off; /* RECV: as announced */
} kvcl_exec_step_t;

typedef struct kvcl_exec_queue {
    uint32_t head; /* KVCL_STEP_NONE: empty */
    uint32_t tail;
} kvcl_exec_queue_t;

typedef struct kvcl_exec_peer {
    kvcl_exec_queue_t waiting; /* SENDs enabled while the peer's window was full */
    uint32_t          unacked; /* SENDs announced or about to be, not acked */
    uint32_t          open;    /* steps not done, but for RECVs announced of nothing, or of bytes that are here */
    uint32_t          pulls;   /* under way */
    uint8_t           flags;   /* exec.c */
} kvcl_exec_peer_t;

typedef struct kvcl_exec {
    const kvcl_plan_t *plan;
    kvcl_exec_step_t  *steps;
    kvcl_exec_peer_t  *peers;
    kvcl_exec_queue_t  acks;      /* RECVs pulled */
    kvcl_exec_queue_t  announces; /* SENDs within their window */
    kvcl_exec_queue_t  pulls;     /* RECVs that may start */
    kvcl_exec_limits_t limits;
    uint32_t           open;      /* steps not done */
    uint32_t           pulling;
    uint32_t           aborts;    /* failed: ABORTs not taken yet */
    kvcl_status_t      status;    /* OK until failed */
} kvcl_exec_t;

/** Bytes of memory (aligned as malloc's) that kvcl_exec_init needs. */
size_t kvcl_exec_bytes(const kvcl_plan_t *plan);

/** Start: the first actions can be taken at once. @param limits NULL: the defaults. */
void kvcl_exec_init(kvcl_exec_t *exec, const kvcl_plan_t *plan, void *memory, const kvcl_exec_limits_t *limits);

/** The next thing to do. @return 1 with *action filled, 0 if there is nothing now. */
int kvcl_exec_next(kvcl_exec_t *exec, kvcl_exec_action_t *action);

/*
 * Events from peers. A refused one changes nothing: KVCL_ERR_UNKNOWN_RANK (the plan has no such peer),
 * KVCL_ERR_PROTOCOL (no such step, a duplicate, an ACK of what was not announced). After a failure
 * they are accepted and ignored.
 */

/** @return as above, KVCL_ERR_PROTOCOL also for bytes at another place than the plan's; KVCL_ERR_INVALID_PARAM with a
 *  sentence, and the collective has failed with it, if the peer planned another collective or another length. */
kvcl_status_t kvcl_exec_announced(kvcl_exec_t *exec, uint32_t peer, uint32_t k, uint64_t off, uint64_t len,
                                  uint32_t signature) KVCL_MUST_CHECK;
/** Has this announcement been accepted already? */
int           kvcl_exec_was_announced(const kvcl_exec_t *exec, uint32_t peer, uint32_t k);
/** After an announcement that was accepted, of some bytes: they came with it, and its sender awaits no ACK. */
void kvcl_exec_has_bytes(kvcl_exec_t *exec, uint32_t peer, uint32_t k);
kvcl_status_t kvcl_exec_acked(kvcl_exec_t *exec, uint32_t peer, uint32_t k) KVCL_MUST_CHECK;
/** @param status  as received from the peer; one that is no error counts as KVCL_ERR_CANCELED. */
kvcl_status_t kvcl_exec_aborted(kvcl_exec_t *exec, uint32_t peer, kvcl_status_t status) KVCL_MUST_CHECK;

/* Events from here. */

/** A PULL has ended; its bytes are in place or, with an error, will never come.
 *  @return KVCL_ERR_INVALID_PARAM for a step that is not under way. */
kvcl_status_t kvcl_exec_pulled(kvcl_exec_t *exec, uint32_t step, kvcl_status_t status) KVCL_MUST_CHECK;

/** Fail with an error status; the first one stays. */
void kvcl_exec_fail(kvcl_exec_t *exec, kvcl_status_t status);

/** The rank is dead or out of the view: fail, send it nothing, and no longer count on its ABORT. Pulls
 *  from it still end by kvcl_exec_pulled. A rank that is not in the plan, or that has done its part of all
 *  steps, is no failure. */
void kvcl_exec_peer_failed(kvcl_exec_t *exec, uint32_t peer, kvcl_status_t status);

/** Is nothing open between this rank and that one, or is it not in the plan? A failure sends it no ABORT then. */
int           kvcl_exec_is_settled(const kvcl_exec_t *exec, uint32_t peer);

/** @return KVCL_INPROGRESS; KVCL_OK: all done; an error: failed, own pulls ended, ABORTs taken. */
kvcl_status_t kvcl_exec_status(const kvcl_exec_t *exec);

/** May the local buffer be reused: status is not INPROGRESS and no peer can still read an announced range. */
int kvcl_exec_released(const kvcl_exec_t *exec);

#endif
