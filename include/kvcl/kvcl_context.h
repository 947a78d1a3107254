/*
 * The context: this process's membership in a job. It owns the transports, the progress thread and every object
 * created from it. A process may hold several.
 */
#ifndef KVCL_CONTEXT_H
#define KVCL_CONTEXT_H

#include <stddef.h>
#include <stdint.h>
#include <kvcl/kvcl_status.h>

KVCL_BEGIN_DECLS

typedef struct kvcl_context *kvcl_context_h;

/*
 * Timeouts are nanoseconds from now.
 *
 * A call that only waits (kvcl_req_wait, kvcl_signal_wait, ...) returns KVCL_ERR_WAIT_TIMEOUT when its time is up: the
 * operation continues, handles stay valid, and kvcl_last_error() names the operation and the time waited. 0: check
 * once, do not wait. KVCL_WAIT_DEFAULT: the context's KVCL_TIMEOUT. KVCL_WAIT_FOREVER: until the operation ends; its
 * own deadline ends it.
 *
 * A call that works within a timeout (kvcl_comm_connect, kvcl_store_drain, ...) returns KVCL_ERR_TIMED_OUT when its
 * time is up: the work has ended. 0: time out unless it can finish at once. KVCL_WAIT_DEFAULT as above.
 * KVCL_WAIT_FOREVER is refused. In kvcl_xfer_params_t 0 is the default, as for every field of params.
 */
#define KVCL_WAIT_FOREVER UINT64_MAX
#define KVCL_WAIT_DEFAULT (UINT64_MAX - 1)

/*
 * The caller's own key-value store (torch.distributed's Store, mpi4py, etcd), by which ranks exchange their addresses.
 * Values are opaque bytes of at most 64 KiB. KVCL calls it only inside kvcl_init and on the first message to a peer,
 * without a library lock, and never from two threads at once. arg also identifies the store: all ranks open the same
 * number of contexts on one.
 */
typedef struct kvcl_oob {
    size_t        size;   /* sizeof(kvcl_oob_t) */
    int           rank;   /* of this process: 0..nranks-1 */
    int           nranks;
    kvcl_status_t (*set)(void *arg, const char *key, const void *val, size_t len);
    /* Blocks until the key exists, or fails with an error; *len_p receives the value's length. */
    kvcl_status_t (*get)(void *arg, const char *key, void *buf, size_t cap, size_t *len_p);
    /* Returns after every rank has called it. */
    kvcl_status_t (*fence)(void *arg);
    void          *arg;
} kvcl_oob_t;
#define KVCL_OOB_INIT {sizeof(kvcl_oob_t), 0, 0, NULL, NULL, NULL, NULL}

enum {
    /* No progress thread: operations move only inside kvcl calls that wait, and in kvcl_progress(). Peers that need
     * this rank's CPU (the served path) wait as well. */
    KVCL_INIT_NO_THREAD = 1u << 0,
    /* A rank that is alone (boot "self") and has no secret_file: its secret is the user's own, $HOME/.kvcl/secret,
     * which is created if it is not there, in place of a random one. So contexts of one user that are started apart can
     * connect. Other boots ignore it. */
    KVCL_INIT_USER_SECRET = 1u << 1,
    /* params.rank holds without params.nranks too, in place of KVCL_RANK: of a process that joins a running job
     * (KVCL_JOIN), the slot that it asks for; of others the rank, where KVCL_SIZE or a launcher gives the size. */
    KVCL_INIT_RANK = 1u << 2
};

typedef struct kvcl_init_params {
    size_t           size;        /* sizeof(kvcl_init_params_t) */
    uint64_t         flags;       /* KVCL_INIT_* */
    const char       *boot;       /* "auto" (default), "pmix", "tcp", "oob", "join", "self"; NULL: KVCL_BOOT */
    const char       *rendezvous; /* "tcp://host:port"; NULL: KVCL_RENDEZVOUS */
    int              rank;        /* with nranks > 0 or KVCL_INIT_RANK: this process's, or -1 to have one assigned */
    int              nranks;      /* 0: KVCL_RANK and KVCL_SIZE, or the launcher's */
    const kvcl_oob_t *oob;        /* the caller's own store; used during kvcl_init and until finalize */
    const char       *secret_file; /* NULL: KVCL_SECRET_FILE */
    const char       *path;       /* "auto", "shm", "tcp", "loop", "rdma"; NULL: KVCL_PATH */
} kvcl_init_params_t;
#define KVCL_INIT_PARAMS_INIT {sizeof(kvcl_init_params_t), 0, NULL, NULL, -1, 0, NULL, NULL, NULL}

/*
 * The job's secret: ranks prove it to each other, in both directions, before they accept any other message. All ranks
 * of a job share one. A process that knows it (a stolen rank, a copied secret_file) can join the job, pose as any of
 * its ranks, and read or write whatever the ranks export to each other. The proofs of two ranks have a key of their
 * own, made from the secret and both ranks' identities; it is no protection against a third process that knows the
 * secret. After a theft, stop all ranks and start them with another secret.
 * A context has one copy of it, in a page that core dumps leave out and forked children read as zeros, and that stays
 * out of swap if RLIMIT_MEMLOCK allows; kvcl_finalize() wipes it. PMIx and the store of params.oob never have the
 * secret: ranks publish X25519 values there, and rank 0 seals the secret for each of them. A process that only reads
 * what they carry does not learn it; a process that can also change it can pose as any rank while the ranks meet, or
 * stand between them, unless a secret_file is named: then only its hash is sent there.
 */

/*
 * fork(2): a context belongs to the process that created it. In a child every handle of the parent is dead: calls fail
 * with KVCL_ERR_DEAD_HANDLE, calls that free do nothing, exit(3) is harmless, and the parent continues. In the child
 * kvcl_init fails with KVCL_ERR_UNSUPPORTED, unless the parent had no context when it forked. A child that calls exec
 * has no restrictions.
 */

/**
 * Join the job: by the caller's callbacks if given, through a member of a running job if KVCL_JOIN is set, by a
 * rendezvous address if set, by PMIx under mpirun or srun, alone otherwise (rank 0 of 1). Blocks until all ranks have
 * joined, with KVCL_JOIN until this process is a member (contrib/doc/failures, section 6), at most KVCL_BOOT_TIMEOUT.
 * @param [out] ctx_p  on KVCL_OK: the context, to be freed by kvcl_finalize().
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM (bad params or a bad KVCL_* variable, named), KVCL_ERR_TIMED_OUT (a member
 *         did not join), KVCL_ERR_AUTH (secret missing or different), KVCL_ERR_VERSION (a peer uses another wire
 *         version), KVCL_ERR_NO_MEMORY, KVCL_ERR_UNREACHABLE, KVCL_ERR_IO (rank 0 cannot listen at the rendezvous, or
 *         $HOME/.kvcl cannot be created), KVCL_ERR_UNSUPPORTED (in the child of a process that has a context),
 *         KVCL_ERR_BUSY (the port of KVCL_METRICS is taken). With KVCL_JOIN also KVCL_ERR_NO_SPACE (no slot is free),
 *         KVCL_ERR_BUSY (a living rank has the slot), KVCL_ERR_UNKNOWN_RANK (the job has fewer slots), KVCL_ERR_STALE
 *         (the members have excluded this process meanwhile).
 */
KVCL_API kvcl_status_t kvcl_init(const kvcl_init_params_t *params, kvcl_context_h *ctx_p) KVCL_MUST_CHECK;

/**
 * Leave the job. Blocks until the peers have read what was sent to them, at most about two seconds. Operations in
 * flight complete with KVCL_ERR_CANCELED; caches, memory, comms and stores of this context that were not freed are
 * freed with a warning that names them. Peers that still read this rank's memory get KVCL_ERR_RANK_FAILED or old bytes
 * that verification refuses: a job that cares calls kvcl_barrier first. Not from a callback. NULL is allowed.
 */
KVCL_API void kvcl_finalize(kvcl_context_h ctx);

/**
 * This context's address as printable text, for jobs started apart: give it to kvcl_comm_connect() or, if the context
 * listens, to kvcl_context_connect() elsewhere. With KVCL_VIEWS it changes where this rank gets another queue
 * (contrib/doc/failures): processes of its host need the newer one.
 * @param [out] len_p  length with the closing zero; with cap too small: the length needed.
 * @return KVCL_OK, KVCL_ERR_TRUNCATED.
 */
KVCL_API kvcl_status_t kvcl_context_address(kvcl_context_h ctx, char *buf, size_t cap, size_t *len_p) KVCL_MUST_CHECK;

/**
 * One file descriptor of this context for poll(2), epoll(7) and event loops. Owned by the context; always the same one.
 * A request that completed before this first call does not count.
 *
 * With a progress thread it is readable when a request can be collected that could not when it was last read (8 bytes,
 * as eventfd(2)) or armed.
 *
 * With KVCL_INIT_NO_THREAD it is readable when there is work: a message of a peer, a completion, a deadline, or an
 * operation that another thread posted. Never read from it. Sleep on it only after kvcl_context_arm() has returned
 * KVCL_OK:
 *
 *     for (;;) {
 *         while (kvcl_context_arm(ctx) == KVCL_INPROGRESS) {
 *             kvcl_req_test() the posted requests; post more
 *         }
 *         poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, -1);
 *     }
 *
 * So a rank without a thread serves its peers, and its own operations progress, as long as it runs this loop.
 */
KVCL_API kvcl_status_t kvcl_context_eventfd(kvcl_context_h ctx, int *fd_p) KVCL_MUST_CHECK;

/**
 * Call this before sleeping on the descriptor, after kvcl_context_eventfd() has returned it. It progresses the context
 * as kvcl_progress() does if it has no progress thread, resets the descriptor, and arms it so that every later event
 * makes it readable again, also events of operations that this thread posts afterwards. Never sleeps. Not from a
 * callback.
 * @return KVCL_OK: sleep on the descriptor. KVCL_INPROGRESS: something progressed; test requests, then call it again.
 *         KVCL_ERR_INVALID_PARAM (kvcl_context_eventfd() was not called), KVCL_ERR_IO.
 */
KVCL_API kvcl_status_t kvcl_context_arm(kvcl_context_h ctx) KVCL_MUST_CHECK;

/**
 * Move everything that can move, run callbacks, return how many requests completed. Needed only with
 * KVCL_INIT_NO_THREAD; harmless otherwise. Never sleeps. Not from a callback.
 */
KVCL_API unsigned kvcl_progress(kvcl_context_h ctx);

KVCL_END_DECLS

#endif
