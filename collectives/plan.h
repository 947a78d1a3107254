/*
 * A plan: what one rank does in one collective, as an array of steps.
 *
 * SEND   offer [off, off+len) of the local send buffer to the peer, which pulls it.
 * RECV   pull len bytes at peer_off of the peer's send buffer to off of the local receive buffer; or, where `with` is
 *        not KVCL_PLAN_COPY, write to off what they give when reduced with the len bytes at `with` of that buffer.
 *
 * The two buffers are one, unless the collective has two (coll.h). The k-th SEND from a to b pairs with the k-th RECV
 * at b from a: peer_off is the SEND's off, and their lengths are equal. A step may start when the step `after` is done.
 * A step without bytes is a notification. Where a rank does not know the SEND's off, peer_off is KVCL_PLAN_ANY and the
 * announcement names it; such a plan is uneven: the lengths differ between pairs of ranks, and only the two of a pair
 * know theirs.
 *
 * Invariants: after < own index, so a plan has no cycle. A failed append sticks in plan->status and
 * makes all later ones do nothing. After seal the plan is read-only and may be shared.
 * Owns its arrays. No lock.
 *
 * Each algorithm guarantees, and the simulator of test/unit tests: it ends even when only one step at a time is
 * announced to a peer and only one pulled; no SEND is enabled before its bytes have arrived.
 */
#ifndef KVCL_COLLECTIVES_PLAN_H
#define KVCL_COLLECTIVES_PLAN_H

#include <kvcl/kvcl_status.h>

#include <stdint.h>

#define KVCL_STEP_NONE UINT32_MAX
#define KVCL_PLAN_COPY UINT64_MAX
#define KVCL_PLAN_ANY  UINT64_MAX

enum { KVCL_PLAN_MAX_STEPS = 1 << 20 };

typedef enum { KVCL_STEP_SEND, KVCL_STEP_RECV } kvcl_step_op_t;

typedef struct kvcl_step {
    uint64_t       off;
    uint64_t       len;
    uint64_t       peer_off; /* RECV; KVCL_PLAN_ANY: where the announcement says */
    uint64_t       with;     /* RECV: KVCL_PLAN_COPY, or the operand here */
    uint32_t       peer;
    uint32_t       after;     /* index of a step, or KVCL_STEP_NONE */
    kvcl_step_op_t op;
    /* filled by seal */
    uint32_t       k;         /* which one of those to or from this peer */
    uint32_t       first_dep; /* the steps that wait for this one, linked by next_dep */
    uint32_t       next_dep;
} kvcl_step_t;

/* One peer of a sealed plan: its steps are index[first_send + k] and index[first_recv + k]. */
typedef struct kvcl_plan_peer {
    uint32_t rank;
    uint32_t sends;
    uint32_t recvs;
    uint32_t first_send;
    uint32_t first_recv;
    uint32_t send_signature; /* of the announcements to and from it: the plan's, or, uneven, with the pair's bytes */
    uint32_t recv_signature;
} kvcl_plan_peer_t;

typedef struct kvcl_plan {
    kvcl_step_t      *steps;
    uint32_t          count;
    uint32_t          capacity;
    uint32_t         *index;     /* sealed: the steps, by peer, then op, then order */
    kvcl_plan_peer_t *peers;     /* sealed: by rank */
    uint32_t          npeers;
    uint32_t          signature; /* equal on all ranks of one collective (coll.c) */
    int               uneven;
    kvcl_status_t     status;    /* of the appends */
} kvcl_plan_t;

void kvcl_plan_init(kvcl_plan_t *plan);
void kvcl_plan_fini(kvcl_plan_t *plan);

/** Append a step. @return its index, for a later step's after; KVCL_STEP_NONE on failure. */
uint32_t kvcl_plan_send(kvcl_plan_t *plan, uint32_t peer, uint64_t off, uint64_t len, uint32_t after);
/** The bytes have the same place at the peer. */
uint32_t kvcl_plan_recv(kvcl_plan_t *plan, uint32_t peer, uint64_t off, uint64_t len, uint32_t after);
uint32_t kvcl_plan_recv_from(kvcl_plan_t *plan, uint32_t peer, uint64_t peer_off, uint64_t off, uint64_t len,
                             uint32_t after);
uint32_t kvcl_plan_reduce(kvcl_plan_t *plan, uint32_t peer, uint64_t peer_off, uint64_t with, uint64_t off,
                          uint64_t len, uint32_t after);

/** Index the steps. @return the appends' status, KVCL_ERR_NO_MEMORY. */
kvcl_status_t kvcl_plan_seal(kvcl_plan_t *plan) KVCL_MUST_CHECK;

/** The entry of @a rank in a sealed plan, or KVCL_STEP_NONE. */
uint32_t kvcl_plan_find_peer(const kvcl_plan_t *plan, uint32_t rank);

/**
 * Is the sealed plan well-formed for @a rank of @a size and buffers of so many bytes: do peers exist and differ from
 * this rank, are ranges in bounds, do dependencies point backwards? @return KVCL_OK, KVCL_ERR_INTERNAL naming the step.
 */
kvcl_status_t kvcl_plan_check(const kvcl_plan_t *plan, uint32_t rank, uint32_t size, uint64_t send_bytes,
                              uint64_t recv_bytes) KVCL_MUST_CHECK;

#endif
