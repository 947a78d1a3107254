/*
 * Communicators: ranks in order. An intra-communicator names ranks 0..size-1, including the calling rank. An
 * inter-communicator (kvcl_comm_connect, kvcl_comm_accept) names the other job's ranks; sends, gets and puts over it
 * address the remote side's ranks, as in MPI-4 section 7.6. So do those of contexts that meet one by one
 * (kvcl_context_listen, kvcl_context_connect).
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
/** The number of the job's view, from 1 on (kvcl_view.h). Without KVCL_VIEWS it is always 1: a rank that dies stays a
 * member that fails. The ranks of a communicator never change: one without the dead is a new one (kvcl_comm_create). */
KVCL_API uint64_t kvcl_comm_view(kvcl_comm_h comm);
KVCL_API int      kvcl_comm_is_inter(kvcl_comm_h comm);

/* The state of another rank as this rank knows it. */
typedef enum kvcl_rank_state {
    KVCL_RANK_UNKNOWN = 0, /* not met yet: nothing was sent to it, or it has not answered yet */
    KVCL_RANK_ALIVE   = 1, /* connected, and no failure is known */
    KVCL_RANK_SUSPECT = 2, /* connected, but silent to a store, which queries other ranks first until it answers, or
                            * (KVCL_VIEWS) for KVCL_SUSPECT */
    KVCL_RANK_FAILED  = 3  /* failed or departed; the process does not return under this rank, but another one may join
                            * in its slot (KVCL_JOIN), and is ALIVE then */
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

/*
 * Contexts that meet one by one, for programs started apart that come and go: a prefill and a decode engine, agents
 * that exchange an address. One context listens; any other connects to it, when it likes, without a call of the
 * listening program. Both are then peers: transfers, sends and notifications go in both directions, and memory is
 * exported to the other and imported from it, over the communicators that the two calls return. Collectives, stores and
 * kvcl_comm_create refuse these communicators. All need the same secret (KVCL_SECRET_FILE). The paths are those of
 * every pair of ranks: shared memory within a host, otherwise what KVCL_NET names on both sides.
 */

/**
 * Listen. Every context that connects from now on gets the next number, from 0, as its rank in @a *door_p; it is given
 * once. So kvcl_notify_recv(), and kvcl_recv() and kvcl_probe() with KVCL_ANY_SOURCE, serve all of them, and the source
 * that they report is where an answer goes. kvcl_comm_size() is how many have connected so far; the context's eventfd
 * wakes when one connects or leaves; kvcl_rank_state() says which are gone: KVCL_RANK_FAILED. A context has one door at
 * a time; kvcl_comm_free() closes it and disconnects all, and its port closes a moment later. What was sent before its
 * sender left or died can still be taken.
 * @param at  "host:port" where others may ask for this context: a name, an IPv4 address or an [IPv6 address] of this
 *            host, and a port; 0: a free one. 127.0.0.1 serves this host, 0.0.0.0 all interfaces. Whoever connects
 *            there proves the job's secret, and learns nothing before. NULL: no port is opened, and others need the
 *            text of kvcl_context_address().
 * @param [out] buf, len_p  what to give to kvcl_context_connect() elsewhere, with its closing zero: "host:port" with
 *            the port in use (after 0.0.0.0 put a name of this host in its place), or the text of
 *            kvcl_context_address(). With cap too small: *len_p is the length needed, and nothing listens.
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM (not host:port), KVCL_ERR_UNREACHABLE (not an address of this host),
 *         KVCL_ERR_BUSY (the port is taken), KVCL_ERR_EXISTS (the context has a door), KVCL_ERR_TRUNCATED,
 *         KVCL_ERR_IO, KVCL_ERR_NO_MEMORY.
 */
KVCL_API kvcl_status_t kvcl_context_listen(kvcl_context_h ctx, const char *at, char *buf, size_t cap, size_t *len_p,
                                           kvcl_comm_h *door_p) KVCL_MUST_CHECK;

/**
 * Connect to a context that listens, its own too. @a *comm_p has one rank, 0: that context. kvcl_comm_rank() of it is
 * the number that the door gave. A context may connect to one door up to 64 times; each communicator is apart from the
 * others. kvcl_comm_free() disconnects. Blocks, at most timeout_ns; kvcl_context_connect_post() (kvcl_xfer.h) does not.
 * @param address  what kvcl_context_listen() gave: "host:port", or the text of kvcl_context_address().
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM (not an address), KVCL_ERR_NOT_FOUND (the context does not listen),
 *         KVCL_ERR_UNREACHABLE (nobody listens at that port; no path), KVCL_ERR_AUTH (another secret),
 *         KVCL_ERR_VERSION, KVCL_ERR_STALE (the context of that address has ended), KVCL_ERR_BUSY (64 connections),
 *         KVCL_ERR_NO_SPACE (the door has given all its 262,144 numbers), KVCL_ERR_TIMED_OUT, KVCL_ERR_RANK_FAILED,
 *         KVCL_ERR_PROTOCOL (another service listens there), KVCL_ERR_IO, KVCL_ERR_NO_MEMORY.
 */
KVCL_API kvcl_status_t kvcl_context_connect(kvcl_context_h ctx, const char *address, uint64_t timeout_ns,
                                            kvcl_comm_h *comm_p) KVCL_MUST_CHECK;

/**
 * Disconnect one rank, on either side: of a door one that has connected, of kvcl_context_connect()'s communicator rank
 * 0. Both sides' later calls that name the rank fail with KVCL_ERR_RANK_FAILED; the other side learns it with the next
 * message that it reads. Does nothing for a rank that is gone. What was posted before goes on: wait for one's own
 * requests first; a recv or a send that the other side does not match ends by its deadline. Memory imported over the
 * communicator remains usable until kvcl_rmem_free(), and exported memory until kvcl_mem_revoke(). A peer that dies
 * needs no call: requests with it end with KVCL_ERR_RANK_FAILED. Any thread; does not block.
 * @return KVCL_OK, KVCL_ERR_UNKNOWN_RANK, KVCL_ERR_INVALID_PARAM (a communicator of another call).
 */
KVCL_API kvcl_status_t kvcl_context_disconnect(kvcl_comm_h comm, int rank) KVCL_MUST_CHECK;

KVCL_END_DECLS

#endif
