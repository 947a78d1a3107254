/*
 * Collectives: the shape of an operation, the list of algorithms, and making a plan.
 *
 * Everything in this room is pure: an algorithm plans which rank sends which bytes to which rank (plan.h), the executor
 * names the steps that may run now (exec.h), and the caller moves the bytes. No lock, no clock, no I/O.
 *
 * A new algorithm is one file with one `const kvcl_coll_alg_t kvcl_coll_alg_<name>`, its name in
 * KVCL_COLL_ALGS and a line in local.am; a row in the table of select.c makes it a default.
 */
#ifndef KVCL_COLLECTIVES_COLL_H
#define KVCL_COLLECTIVES_COLL_H

#include "collectives/plan.h"

#include <kvcl/kvcl_status.h>

#include <stddef.h>
#include <stdint.h>

/* X(NAME, "name"). What the buffer is: bcast: len bytes, equal on all ranks afterwards;
 * allgather: size * len bytes, rank r's own part at r * len; allreduce: len bytes, the input before and the result
 * after; barrier: none. Those with two buffers, of which this rank's own part is copied by the caller:
 * reduce_scatter: size * len bytes to send, len to receive into, which begin as this rank's part; alltoall: size * len
 * each, the part for or from rank r at r * len; alltoallv: as the shape's parts say; gather, scatter: size * len at the
 * root, len elsewhere. */
#define KVCL_COLL_MAP(X)                                                                           \
    X(BCAST, "bcast")                                                                              \
    X(BARRIER, "barrier")                                                                          \
    X(ALLGATHER, "allgather")                                                                      \
    X(ALLREDUCE, "allreduce")                                                                      \
    X(REDUCE_SCATTER, "reduce_scatter")                                                            \
    X(ALLTOALL, "alltoall")                                                                        \
    X(ALLTOALLV, "alltoallv")                                                                      \
    X(GATHER, "gather")                                                                            \
    X(SCATTER, "scatter")

#define KVCL_COLL_ENUM(_name, _text) KVCL_COLL_##_name,
typedef enum { KVCL_COLL_MAP(KVCL_COLL_ENUM) KVCL_COLL_COUNT } kvcl_coll_kind_t;
#undef KVCL_COLL_ENUM

/* The worst path between any two ranks that take part. */
typedef enum {
    KVCL_COLL_PATH_SHM, /* every peer's memory is mapped: a pull is a memcpy by the puller */
    KVCL_COLL_PATH_NET, /* at least one pair is not */
    KVCL_COLL_PATH_STAGE /* as shm, of plain bytes: copied by the sender to memory that every peer maps */
} kvcl_coll_path_t;

/* The parts of an alltoallv, one for each rank: bytes, and where they begin. */
typedef struct kvcl_coll_parts {
    const uint64_t *send_lens;
    const uint64_t *send_offs;
    const uint64_t *recv_lens;
    const uint64_t *recv_offs;
} kvcl_coll_parts_t;

/* One operation as one rank sees it. All fields but rank and parts must be equal on all ranks, path and chunk
 * too: the ranks choose their algorithm apart. kvcl_exec_announced() finds out when they are not. */
typedef struct kvcl_coll_shape {
    uint32_t         rank;
    uint32_t         size;
    uint32_t         root;  /* bcast, gather, scatter; else 0 */
    kvcl_coll_path_t path;
    uint64_t         len;   /* bytes; allgather, alltoall, gather, scatter, reduce_scatter: per rank; barrier: 0 */
    uint64_t         chunk; /* bytes of a pipeline's piece; 0: do not cut */
    uint32_t         elem;  /* allreduce, reduce_scatter: bytes of an element, which is not cut; else 0 */
    uint32_t         reduction; /* these: a word that stands for the type and the operation (reduce.h) */
    const kvcl_coll_parts_t *parts; /* alltoallv, whose len is 0: this rank's own, for kvcl_coll_plan; else NULL */
} kvcl_coll_shape_t;

typedef struct kvcl_coll_alg {
    kvcl_coll_kind_t kind;
    const char      *name; /* unique within its kind */
    const char      *desc;
    /* Append this rank's steps. Called with a valid shape of more than one rank that has work to do
     * (len > 0 or a barrier). A failed append sticks to the plan, so nothing need be tested here. */
    void (*plan)(const kvcl_coll_shape_t *shape, kvcl_plan_t *plan);
    /* Not NULL: the plan is for a buffer of that many times len, which begins with the input and ends with the result:
     * the caller allocates it and copies. */
    uint32_t (*regions)(uint32_t size);
} kvcl_coll_alg_t;

#define KVCL_COLL_ALGS(X)                                                                          \
    X(bcast_flat)                                                                                  \
    X(bcast_binomial)                                                                              \
    X(bcast_chain)                                                                                 \
    X(bcast_pieces)                                                                                \
    X(barrier_dissemination)                                                                       \
    X(allgather_bruck)                                                                             \
    X(allgather_ring)                                                                              \
    X(allgather_direct)                                                                            \
    X(allreduce_doubling)                                                                          \
    X(allreduce_direct)                                                                            \
    X(allreduce_ring)                                                                              \
    X(reduce_scatter_pairwise)                                                                     \
    X(alltoall_pairwise)                                                                           \
    X(alltoallv_pairwise)                                                                          \
    X(gather_flat)                                                                                 \
    X(scatter_flat)

#define KVCL_COLL_EXTERN(_name) extern const kvcl_coll_alg_t kvcl_coll_alg_##_name;
KVCL_COLL_ALGS(KVCL_COLL_EXTERN)
#undef KVCL_COLL_EXTERN

/** The i-th algorithm in the order of the list, NULL past its end: what kvcl_info prints. */
const kvcl_coll_alg_t *kvcl_coll_alg_at(size_t i);

/** NULL if there is none. */
const kvcl_coll_alg_t *kvcl_coll_alg_find(kvcl_coll_kind_t kind, const char *name);

const char *kvcl_coll_kind_name(kvcl_coll_kind_t kind); /* "bcast" */
const char *kvcl_coll_path_name(kvcl_coll_path_t path); /* "shm", "net" */

/** Has it a buffer to send from and another one to receive into? */
int kvcl_coll_has_two_buffers(kvcl_coll_kind_t kind);

typedef struct kvcl_coll_bytes {
    uint64_t send; /* of this rank's buffer; with two, of the one that SENDs name */
    uint64_t recv; /* the same, or of the one that RECVs name */
} kvcl_coll_bytes_t;

/** @return KVCL_OK, KVCL_ERR_INVALID_PARAM if a product overflows. */
kvcl_status_t kvcl_coll_buffer_bytes(const kvcl_coll_alg_t *alg, const kvcl_coll_shape_t *shape,
                                     kvcl_coll_bytes_t *bytes_p) KVCL_MUST_CHECK;

/**
 * Make this rank's plan, sealed and ready for an executor. No steps means nothing to do (one rank,
 * or no bytes; of an alltoallv: of this rank's). The plan depends on the shape only, never on time or on what the
 * machine has.
 * @param plan [out]  filled on KVCL_OK and then freed by kvcl_plan_fini(); else empty.
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM, KVCL_ERR_UNKNOWN_RANK (root), KVCL_ERR_NO_MEMORY.
 */
kvcl_status_t kvcl_coll_plan(const kvcl_coll_alg_t *alg, const kvcl_coll_shape_t *shape,
                             kvcl_plan_t *plan) KVCL_MUST_CHECK;

#endif
