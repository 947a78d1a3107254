/*
 * Collectives over an intra-communicator. All ranks call the same collectives of one communicator in the same order,
 * and kvcl_comm_agree() and kvcl_comm_shrink() in one order with them (kvcl_recover.h).
 * Which algorithm runs is a readable table (KVCL_COLL_TABLE, kvcl_info --colls).
 *
 * If a rank fails, the others' requests end with KVCL_ERR_RANK_FAILED or KVCL_ERR_TIMED_OUT: up to 2 s late where a
 * silent rank may still read a buffer. If the connection of two ranks is lost and made again, those over it end with
 * KVCL_ERR_UNREACHABLE, or with KVCL_ERR_TIMED_OUT on a rank that had not begun; the communicator remains usable.
 * On a rank that was excluded (kvcl_view.h) they end with KVCL_ERR_STALE; one that is inside NCCL then ends with
 * KVCL_ERR_RANK_FAILED. A broadcast may end with KVCL_OK on a rank whose part is over before it learns of a failure.
 */
#ifndef KVCL_COLL_H
#define KVCL_COLL_H

#include <kvcl/kvcl_xfer.h>

KVCL_BEGIN_DECLS

/**
 * Give the root's selected blocks to every rank. Each rank names its own cache and block ids; the selections must
 * have the same shape and number of blocks on all ranks.
 */
KVCL_API kvcl_status_t kvcl_bcast(kvcl_comm_h comm, int root, kvcl_cache_h cache, const kvcl_sel_t *sel,
                                  const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/** Plain bytes: len must be equal on all ranks. */
KVCL_API kvcl_status_t kvcl_bcast_bytes(kvcl_comm_h comm, int root, void *buf, size_t len,
                                        const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/** Completes when every rank has called it. */
KVCL_API kvcl_status_t kvcl_barrier(kvcl_comm_h comm, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
    KVCL_MUST_CHECK;

/**
 * Every rank gets every rank's len bytes, in rank order, at out (size * len bytes). in may be out + rank * len. len
 * must be equal on all ranks.
 */
KVCL_API kvcl_status_t kvcl_allgather(kvcl_comm_h comm, const void *in, size_t len, void *out,
                                      const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/*
 * What the calls below have in common. Buffers are the caller's, host memory or a device's (see below), and belong to
 * the call until its request is complete: in is only read. in and out share no byte, unless a call names the place
 * where in may be. What all ranks must give equally (root, length or count, type, operation) is compared with each
 * message, and the kind of the call too: a rank that learns of a difference ends with KVCL_ERR_INVALID_PARAM, and so do
 * the others, unless they have finished; the sentence of each names two calls that differ, with their sizes and ranks.
 * Ranks that all wait for bytes compare their calls half a second before a deadline (after half of it, if it is short).
 * After a failure out holds any bytes; in is unchanged.
 * @a params: timeout_ns, cb, cb_arg and queue, and the flag and the stream below; NULL, and @a req_p NULL: as in
 * kvcl_xfer.h. Any thread.
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM, KVCL_ERR_UNKNOWN_RANK (root), KVCL_ERR_NO_MEMORY. Later, by the request: the
 *         errors at the top of this page, KVCL_ERR_TIMED_OUT, KVCL_ERR_CANCELED.
 */

/*
 * Device memory. With the flag KVCL_ON_DEVICE in and out may each be memory of a CUDA device; the driver is asked, as
 * for KVCL_MEM_AUTO. All ranks of a call give the flag, or none does; with it each may have host memory or device
 * memory. Where they differ, the call ends with KVCL_ERR_INVALID_PARAM or by its deadline.
 *
 * The ranks agree on the way of each call. It goes by NCCL, through an ncclComm of the communicator's own, where both
 * buffers of every rank are memory of one device, the ranks have the same version of NCCL and each has a GPU of its
 * own, KVCL_NCCL=no is set on none, and NCCL has the type and the operation: all but the bitwise operations, u16 and
 * i16. Otherwise it goes by the host: each rank copies what it gives to the host, the collective runs there, and the
 * result is copied to the device. Then the result is that of host memory, bit by bit; of NCCL, sums and products of
 * floats may be rounded in another order, and a NaN may lose against a number in a minimum or maximum.
 * kvcl_query_nccl() says whether this process has NCCL.
 *
 * Order: params.stream as in kvcl_xfer.h: no byte is read or written before that stream has finished the work that it
 * was given before the call; it implies the flag. Without a stream the caller synchronises it first. When the request
 * is complete, the result is in place for any stream. Calls with the flag on one communicator run one after another,
 * each after the agreement of all ranks. The call itself waits for no device. Memory of at most four devices per
 * communicator.
 *
 * The end of a failed call takes longer than its deadline while the device still uses the buffers, 5 s at most; the log
 * then says that they must not be freed, and later calls of the communicator with the flag fail with KVCL_ERR_IO. More
 * errors, by the request: KVCL_ERR_IO (the device or NCCL failed, on any rank), KVCL_ERR_NO_MEMORY (on the host). By
 * the call: KVCL_ERR_INVALID_PARAM (the allocation is shorter), KVCL_ERR_UNSUPPORTED (a fifth device), KVCL_ERR_IO.
 */

/* The type of an element; buffers are aligned to its size. Append only. */
typedef enum {
    KVCL_DTYPE_U8   = 0,
    KVCL_DTYPE_I8   = 1,
    KVCL_DTYPE_U16  = 2,
    KVCL_DTYPE_I16  = 3,
    KVCL_DTYPE_U32  = 4,
    KVCL_DTYPE_I32  = 5,
    KVCL_DTYPE_U64  = 6,
    KVCL_DTYPE_I64  = 7,
    KVCL_DTYPE_F16  = 8, /* IEEE 754 binary16; added and multiplied as f32, then rounded to nearest even */
    KVCL_DTYPE_BF16 = 9, /* the upper half of an f32; computed in the same way */
    KVCL_DTYPE_F32  = 10,
    KVCL_DTYPE_F64  = 11
} kvcl_dtype_t;

/* Integers wrap. A minimum or maximum with a NaN is a NaN. The bitwise operations are for integers. Append only. */
typedef enum {
    KVCL_REDUCE_SUM  = 0,
    KVCL_REDUCE_PROD = 1,
    KVCL_REDUCE_MIN  = 2,
    KVCL_REDUCE_MAX  = 3,
    KVCL_REDUCE_AND  = 4,
    KVCL_REDUCE_OR   = 5,
    KVCL_REDUCE_XOR  = 6
} kvcl_reduce_t;

/**
 * Reduce the count elements of every rank's in, each with those at its place; every rank gets the result at out. in may
 * be out. The order of the operations depends on the number of ranks, the count and KVCL_COLL_TABLE alone: all ranks
 * get the same bits, of floats too, and get them again from the same input.
 */
KVCL_API kvcl_status_t kvcl_allreduce(kvcl_comm_h comm, const void *in, void *out, size_t count, kvcl_dtype_t dtype,
                                      kvcl_reduce_t op, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
    KVCL_MUST_CHECK;

/**
 * Reduce as kvcl_allreduce; rank r gets the r-th count elements of the result, at out. in has size * count elements.
 * out may be the place of these elements in in.
 */
KVCL_API kvcl_status_t kvcl_reduce_scatter(kvcl_comm_h comm, const void *in, void *out, size_t count,
                                           kvcl_dtype_t dtype, kvcl_reduce_t op, const kvcl_xfer_params_t *params,
                                           kvcl_req_h *req_p) KVCL_MUST_CHECK;

/**
 * Give the r-th len bytes of in to rank r, which gets them at out, in the order of ranks: both have size * len bytes.
 */
KVCL_API kvcl_status_t kvcl_alltoall(kvcl_comm_h comm, const void *in, size_t len, void *out,
                                     const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/**
 * As kvcl_alltoall with parts of several lengths: in_lens[r] bytes at in + in_offs[r] go to rank r, which gets them as
 * its out_lens[s] bytes at out + out_offs[s], s being the sender: both ranks of a pair must name the same length, 0
 * included. Each list has an entry for each rank, and is read during the call only; without offsets (NULL) the parts
 * lie one behind another, in the order of ranks. Parts of in may overlap, those of out must not, and none of in one of
 * out. With offsets the parts may be in memory of any number of buffers, of which in and out name the first ones.
 */
KVCL_API kvcl_status_t kvcl_alltoallv(kvcl_comm_h comm, const void *in, const uint64_t *in_lens,
                                      const uint64_t *in_offs, void *out, const uint64_t *out_lens,
                                      const uint64_t *out_offs, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
    KVCL_MUST_CHECK;

/**
 * The root gets every rank's len bytes, in rank order, at out (size * len bytes; not looked at elsewhere). The root's
 * in may be out + root * len.
 */
KVCL_API kvcl_status_t kvcl_gather(kvcl_comm_h comm, int root, const void *in, size_t len, void *out,
                                   const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/**
 * Rank r gets the r-th len bytes of the root's in (size * len bytes; not looked at elsewhere) at out. The root's out
 * may be in + root * len.
 */
KVCL_API kvcl_status_t kvcl_scatter(kvcl_comm_h comm, int root, const void *in, size_t len, void *out,
                                    const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/* kvcl_comm_split: this rank is in none of the new communicators. */
#define KVCL_COLOR_NONE INT64_MIN

/**
 * A communicator for each color (MPI_Comm_split): the ranks that pass the same color, ordered by key, and by their rank
 * in @a comm where keys are equal. Collective over @a comm, an intra-communicator; no other collective of it may be in
 * flight on another thread. Blocks, at most timeout_ns (kvcl_context.h: a call that works).
 * @param [out] comm_p  to be freed by kvcl_comm_free(); NULL with KVCL_COLOR_NONE.
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM, KVCL_ERR_NO_MEMORY; as kvcl_allgather: KVCL_ERR_TIMED_OUT (a rank did not
 *         call it), KVCL_ERR_RANK_FAILED, KVCL_ERR_UNREACHABLE, KVCL_ERR_STALE. KVCL_ERR_RANK_FAILED also where a
 *         process joins comm meanwhile, on some ranks or all: agree on it (kvcl_recover.h), free what was made, and
 *         call it again, on all ranks.
 */
KVCL_API kvcl_status_t kvcl_comm_split(kvcl_comm_h comm, int64_t color, int64_t key, uint64_t timeout_ns,
                                       kvcl_comm_h *comm_p) KVCL_MUST_CHECK;

KVCL_END_DECLS

#endif
