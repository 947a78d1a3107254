/*
 * Recovery after failures, as ULFM does it for MPI: names and meaning are ULFM's (W. Bland et al., "Post-failure
 * recovery of MPI communication capability", IJHPCA 2013). All calls need KVCL_VIEWS=yes (kvcl_view.h), and
 * communicators of one job.
 *
 * Errors are local: a rank that works with a failed one gets KVCL_ERR_RANK_FAILED, others get no error. It may end
 * the communicator's operations on all ranks (kvcl_comm_revoke). The ranks then agree on flags (kvcl_comm_agree), and
 * continue with the living ranks: in a new communicator (kvcl_comm_shrink), or in comm itself (kvcl_comm_active).
 *
 * Order. All ranks call a communicator's agreements, shrinks and collectives (kvcl_coll.h) in one order. If some agree
 * or shrink where others have called a collective, all these calls end with KVCL_ERR_INVALID_PARAM as soon as every
 * rank is in one of them, and the sentence of each names two calls that differ, with their ranks. Collectives that were
 * called from that place on end so as well. The next calls are one again. Ranks compare while nothing has gone wrong:
 * after an operation of a communicator has failed on a rank, or a rank of comm has failed or joined, that rank compares
 * nothing until it has agreed again; calls that wait for each other then end by their deadlines. So a rank that agrees
 * because of a failure breaks no agreement; but if others may be in collectives that do not fail by themselves, it
 * revokes comm first.
 */
#ifndef KVCL_RECOVER_H
#define KVCL_RECOVER_H

#include <kvcl/kvcl_view.h>

KVCL_BEGIN_DECLS

/**
 * The ranks of comm that have failed, as this rank knows it: numbers in comm, in the order in which it was told. The
 * list grows at its end. A rank in whose slot another process has joined is in it no longer, and neither is its
 * acknowledgement (KVCL_EVENT_JOINED). Local; any thread; does not block.
 * @param [out] ranks  the first cap of them; NULL with cap 0.
 * @param [out] n_p    how many there are.
 * @return KVCL_OK, KVCL_ERR_UNSUPPORTED (KVCL_VIEWS is not set), KVCL_ERR_INVALID_PARAM.
 */
KVCL_API kvcl_status_t kvcl_comm_get_failed(kvcl_comm_h comm, int *ranks, int cap, int *n_p) KVCL_MUST_CHECK;

/**
 * This rank acknowledges the first n failures of kvcl_comm_get_failed(): once all ranks have done so, kvcl_comm_agree()
 * reports them no longer. A smaller n than before changes nothing. Local; any thread; does not block.
 * @param [out] acked_p  how many are acknowledged now; NULL: not wanted.
 * @return as kvcl_comm_get_failed(), and KVCL_ERR_NO_MEMORY.
 */
KVCL_API kvcl_status_t kvcl_comm_ack_failed(kvcl_comm_h comm, int n, int *acked_p) KVCL_MUST_CHECK;

/**
 * Revoke comm on all ranks, for ever. One rank calls it, or several; it waits for none of them. All operations of comm
 * that are in progress end with KVCL_ERR_REVOKED, on every living rank as soon as it learns of it: collectives, sends,
 * recvs, probes, notifications, and gets and puts that name comm. Later ones return KVCL_ERR_REVOKED at once, and send
 * nothing. Every rank that learns of it tells the others, so all living ranks learn of it if one of them has. A rank
 * that makes comm later finds it revoked, unless it has learned of 256 other revocations since. The world can be
 * revoked too.
 *
 * kvcl_comm_agree(), kvcl_comm_shrink() and the local calls go on working. Memory imported over comm, stores opened
 * over it, and communicators made from it are objects of their own, and are not revoked. A collective that ends waits
 * up to 2 s for a silent rank that may still read its buffer. Any thread, also in a callback; does not block.
 * @return KVCL_OK (also if it was revoked before), KVCL_ERR_UNSUPPORTED (KVCL_VIEWS is not set),
 *         KVCL_ERR_INVALID_PARAM (a communicator of another job).
 */
KVCL_API kvcl_status_t kvcl_comm_revoke(kvcl_comm_h comm) KVCL_MUST_CHECK;

/**
 * Has comm been revoked, as this rank knows? Local; any thread; does not block.
 * @param [out] revoked_p  1: yes; 0: no, which it always is without KVCL_VIEWS.
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM.
 */
KVCL_API kvcl_status_t kvcl_comm_is_revoked(kvcl_comm_h comm, int *revoked_p) KVCL_MUST_CHECK;

/**
 * All living ranks of comm agree on the bits that are set in every rank's *flags. Collective: all call it,
 * kvcl_comm_shrink() and collectives in one order (see the top of this page), and agree one at a time. All that return
 * a value return the same value and status, whichever ranks die meanwhile, also those that die later. A rank that dies
 * before it has called takes no part. Blocks; not from a callback.
 * @param [in,out] flags  bits of this rank; on KVCL_OK and KVCL_ERR_RANK_FAILED those of all.
 * @param timeout_ns  nanoseconds; KVCL_WAIT_DEFAULT: KVCL_TIMEOUT. KVCL_WAIT_FOREVER is refused. After
 *                    KVCL_ERR_TIMED_OUT the next call is the next round: the others must make it too.
 * @return KVCL_OK; KVCL_ERR_RANK_FAILED (the ranks have agreed, and not all of them have acknowledged all failures of
 *         comm); KVCL_ERR_INVALID_PARAM (also: some ranks called kvcl_comm_shrink() or a collective instead, and
 *         nothing was agreed; their calls end so too); KVCL_ERR_NO_QUORUM or KVCL_ERR_TIMED_OUT (this rank cannot tell:
 *         others may have agreed; NO_QUORUM also in a process that waits until a member activates it);
 *         KVCL_ERR_STALE (this rank was excluded); KVCL_ERR_BUSY (another thread is in such a call with comm);
 *         KVCL_ERR_CANCELED (another thread has freed comm meanwhile); KVCL_ERR_UNSUPPORTED; KVCL_ERR_NO_MEMORY.
 */
KVCL_API kvcl_status_t kvcl_comm_agree(kvcl_comm_h comm, uint64_t *flags, uint64_t timeout_ns) KVCL_MUST_CHECK;

/**
 * A communicator of the ranks of comm that are left, in their order: the same ones on all. Collective as
 * kvcl_comm_agree(), with its timeout_ns. A rank that has just died may be among them: then call it again. Blocks; not
 * from a callback.
 * @return KVCL_OK and *shrunk_p, to be freed by kvcl_comm_free(); otherwise as kvcl_comm_agree().
 */
KVCL_API kvcl_status_t kvcl_comm_shrink(kvcl_comm_h comm, uint64_t timeout_ns, kvcl_comm_h *shrunk_p) KVCL_MUST_CHECK;

/* The result of a call that changes the members. */
typedef struct kvcl_view_change_result {
    size_t   size;      /* sizeof(kvcl_view_change_result_t) */
    uint64_t view;      /* the number of this rank's view now */
    uint64_t view_id;   /* its hash: two different views never have the same */
    int      n_dropped; /* ranks that the call left unchanged; its comment says which */
    int      reserved;
    uint64_t dropped[KVCL_EVENT_RANKS / 64]; /* numbers in the communicator: bit r % 64 of word r / 64 */
} kvcl_view_change_result_t;
#define KVCL_VIEW_CHANGE_RESULT_INIT {sizeof(kvcl_view_change_result_t), 0, 0, 0, 0, {0}}

/**
 * Remove living ranks of comm from the job: from the view, and so from every communicator. One member calls it; the
 * others get KVCL_EVENT_DRAINED and a view without them, and all operations with them end with KVCL_ERR_RANK_FAILED.
 * They are not asked to hand anything over: each gets KVCL_EVENT_EXCLUDED, and its operations end with KVCL_ERR_STALE.
 * The call takes about KVCL_DEAD, until their leases end. If members remove each other so that none would stay, the
 * lowest one does. Blocks; not from a callback.
 * @param ranks, n  numbers in comm, without the caller's own. A rank that is no member is left unchanged, and is in
 *                  result->dropped.
 * @param timeout_ns  nanoseconds; KVCL_WAIT_DEFAULT: KVCL_TIMEOUT. KVCL_WAIT_FOREVER is refused.
 * @param [out] result  filled on KVCL_OK; NULL: not wanted.
 * @return KVCL_OK: this rank's view has none of them; KVCL_ERR_TIMED_OUT, KVCL_ERR_NO_QUORUM: not yet; they are removed
 *         later, as soon as that is possible; KVCL_ERR_STALE (this rank was excluded); KVCL_ERR_UNKNOWN_RANK,
 *         KVCL_ERR_INVALID_PARAM, KVCL_ERR_UNSUPPORTED.
 */
KVCL_API kvcl_status_t kvcl_comm_deactivate(kvcl_comm_h comm, const int *ranks, int n, uint64_t timeout_ns,
                                            kvcl_view_change_result_t *result) KVCL_MUST_CHECK;

/**
 * Processes that have joined in these slots become members (KVCL_JOIN_WAITS=yes, the same on all ranks). When
 * KVCL_EVENT_WAITING reports such a process, on every member, it has connected to all members and its kvcl_init() has
 * returned. It is in no view, so all its operations with other ranks end with KVCL_ERR_RANK_FAILED; it may load what it
 * needs meanwhile, and ends its waiting with kvcl_comm_sync(). One member calls this, or several with the same ranks;
 * the view that comes next has them all, on all ranks. Without KVCL_JOIN_WAITS processes become members by themselves.
 * Blocks; not from a callback.
 * @param ranks, n  numbers in comm. A rank that is a member already is left unchanged. One in whose slot no process
 *                  waits, or whose process is known to have ended, is in result->dropped. A process that ends at that
 *                  moment may be a member for a moment, and fail. A dropped one may become a member all the same if the
 *                  rank that leads was silent meanwhile (KVCL_EVENT_JOINED); otherwise another call must name it.
 * @param timeout_ns  nanoseconds; KVCL_WAIT_DEFAULT: KVCL_TIMEOUT. KVCL_WAIT_FOREVER is refused.
 * @param [out] result  filled on KVCL_OK; NULL: not wanted.
 * @return KVCL_OK: this rank's view has all of them but the dropped; KVCL_ERR_TIMED_OUT, KVCL_ERR_NO_QUORUM: not yet;
 *         they become members later, as soon as that is possible; KVCL_ERR_STALE (this rank was excluded);
 *         KVCL_ERR_RANK_FAILED (this rank itself waits to become a member); KVCL_ERR_UNKNOWN_RANK,
 *         KVCL_ERR_INVALID_PARAM, KVCL_ERR_UNSUPPORTED.
 */
KVCL_API kvcl_status_t kvcl_comm_activate(kvcl_comm_h comm, const int *ranks, int n, uint64_t timeout_ns,
                                          kvcl_view_change_result_t *result) KVCL_MUST_CHECK;

/**
 * Which ranks of comm have a process that waits until a member activates it (KVCL_JOIN_WAITS), and has met all members:
 * those that KVCL_EVENT_WAITING has named, except for those that have become members or ended since. This rank's own
 * knowledge, for a program that takes no events. Local, no message. Any thread, also in a callback; does not block.
 * @param [out] waiting  the caller's n bytes: 1 for a rank whose process waits, else 0; n is kvcl_comm_size(comm).
 * @return KVCL_OK, KVCL_ERR_UNSUPPORTED (KVCL_VIEWS is not set), KVCL_ERR_INVALID_PARAM (another n, NULL, or a
 *         communicator of another job).
 */
KVCL_API kvcl_status_t kvcl_comm_waiting(kvcl_comm_h comm, unsigned char *waiting, int n) KVCL_MUST_CHECK;

/**
 * Wait until this rank knows of no pending change of its view: no member of it has failed, has been silent for
 * KVCL_DEAD or is leaving, no process that this rank has activated still waits, and, in a process that has joined, a
 * member has activated it and all members know. Local: the others need not call it, and if nothing is pending it
 * returns at once. Blocks; not from a callback.
 * @param timeout_ns  nanoseconds; KVCL_WAIT_DEFAULT: KVCL_TIMEOUT; KVCL_WAIT_FOREVER; 0 checks once.
 * @param [out] result  filled on KVCL_OK; dropped: the ranks of comm that are no members. NULL: not wanted.
 * @return KVCL_OK; KVCL_ERR_TIMED_OUT; KVCL_ERR_NO_QUORUM; KVCL_ERR_STALE (this rank was excluded); KVCL_ERR_BUSY (this
 *         process has joined, and another one was given its slot: end it); KVCL_ERR_INVALID_PARAM,
 *         KVCL_ERR_UNSUPPORTED.
 */
KVCL_API kvcl_status_t kvcl_comm_sync(kvcl_comm_h comm, uint64_t timeout_ns, kvcl_view_change_result_t *result)
    KVCL_MUST_CHECK;

/**
 * Where processes may join the job through this rank: "host:port", for KVCL_JOIN, with its closing zero (after 0.0.0.0
 * put a name of this host in its place). It serves while this rank lives. Any thread; does not block.
 * @param [out] len_p  its bytes, also with cap too small.
 * @return KVCL_OK, KVCL_ERR_NOT_FOUND (KVCL_JOIN_AT is not set), KVCL_ERR_TRUNCATED, KVCL_ERR_INVALID_PARAM.
 */
KVCL_API kvcl_status_t kvcl_join_address(kvcl_context_h ctx, char *buf, size_t cap, size_t *len_p) KVCL_MUST_CHECK;

KVCL_END_DECLS

#endif
