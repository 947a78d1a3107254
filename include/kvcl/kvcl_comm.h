/*
 * Communicators: ranks in order. An intra-communicator names ranks 0..size-1, including the calling rank. An
 * inter-communicator (kvcl_comm_connect, kvcl_comm_accept) names the other job's ranks; sends, gets and puts over it
 * address the remote side's ranks, as in MPI-4 section 7.6.
 */
#ifndef KVCL_COMM_H
#define KVCL_COMM_H

#include <kvcl/kvcl_context.h>

KVCL_BEGIN_DECLS

typedef struct kvcl_comm *kvcl_comm_h;

#define KVCL_ANY_SOURCE (-1)

/** All ranks of the job. The same handle each time; kvcl_comm_free() on it does nothing. */
KVCL_API kvcl_status_t kvcl_comm_world(kvcl_context_h ctx, kvcl_comm_h *comm_p) KVCL_MUST_CHECK;

/**
 * A communicator over some ranks of another, in the given order. Every member calls it with the same list; no message
 * is sent. Members that create several over the same list must create them in the same order.
 * @return KVCL_OK, KVCL_ERR_UNKNOWN_RANK (a rank is out of range or twice), KVCL_ERR_INVALID_PARAM (the caller is not
 * in the list).
 */
KVCL_API kvcl_status_t kvcl_comm_create(kvcl_comm_h parent, const int *ranks, int n, kvcl_comm_h *comm_p)
    KVCL_MUST_CHECK;

/** Operations over it must have completed. NULL is allowed. */
KVCL_API void kvcl_comm_free(kvcl_comm_h comm);

KVCL_API int      kvcl_comm_rank(kvcl_comm_h comm); /* the calling rank, in its own side */
KVCL_API int      kvcl_comm_size(kvcl_comm_h comm); /* ranks that can be addressed; between two jobs: the other's */
/** The number of the communicator's membership. The members of a communicator never change in this version, so it is
 * always 1: a rank that dies stays a member that fails. A rank that is to be left out needs a new communicator
 * (kvcl_comm_create). */
KVCL_API uint64_t kvcl_comm_view(kvcl_comm_h comm);
KVCL_API int      kvcl_comm_is_inter(kvcl_comm_h comm);

/* The state of another rank as this rank knows it. */
typedef enum kvcl_rank_state {
    KVCL_RANK_UNKNOWN = 0, /* not met yet: nothing was sent to it, or it has not answered yet */
    KVCL_RANK_ALIVE   = 1, /* connected, and no failure is known */
    KVCL_RANK_SUSPECT = 2, /* connected, but silent to a store, which queries other ranks first until it answers */
    KVCL_RANK_FAILED  = 3  /* failed or departed; it does not return under this rank */
} kvcl_rank_state_t;

/**
 * The state of a rank of comm as this rank knows it; the caller itself is KVCL_RANK_ALIVE. The call sends no message: a
 * rank that has just died may still be ALIVE. Any thread; does not block.
 * @return KVCL_OK; KVCL_ERR_UNKNOWN_RANK; KVCL_ERR_INVALID_PARAM (comm or state_p is NULL).
 */
KVCL_API kvcl_status_t kvcl_rank_state(kvcl_comm_h comm, int rank, kvcl_rank_state_t *state_p) KVCL_MUST_CHECK;

/**
 * Join two jobs started apart. Collective over comm on both sides; rank 0 of the connecting side needs the other
 * side's rank-0 address (kvcl_context_address()), the others may pass NULL. Both jobs must share the secret
 * (KVCL_SECRET_FILE). Blocks, at most timeout_ns.
 * @return KVCL_OK, KVCL_ERR_TIMED_OUT (no job accepts), KVCL_ERR_AUTH, KVCL_ERR_VERSION, KVCL_ERR_UNREACHABLE,
 *         KVCL_ERR_INVALID_PARAM (not an address).
 */
KVCL_API kvcl_status_t kvcl_comm_connect(kvcl_comm_h comm, const char *address, uint64_t timeout_ns,
                                         kvcl_comm_h *inter_p) KVCL_MUST_CHECK;
/** The other half of kvcl_comm_connect: waits for one job to connect. Blocks, at most timeout_ns. */
KVCL_API kvcl_status_t kvcl_comm_accept(kvcl_comm_h comm, uint64_t timeout_ns, kvcl_comm_h *inter_p) KVCL_MUST_CHECK;

KVCL_END_DECLS

#endif
