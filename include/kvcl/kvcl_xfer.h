/*
 * Point to point: two-sided send and recv matched by (rank, tag), one-sided put and get, of block lists and of plain
 * bytes. A transfer moves the selection's canonical byte stream (kvcl_layout.h), so the two sides may differ in
 * strides, base pointers, block ids, and in the size of blocks if one divides the other, not in the shape of a token.
 * So heads can move between ranks of different tensor-parallel sizes (kvcl_reshard.h), and the cache groups of a hybrid
 * model move by one request each; wait for all of them together.
 */
#ifndef KVCL_XFER_H
#define KVCL_XFER_H

#include <kvcl/kvcl_cache.h>
#include <kvcl/kvcl_req.h>

KVCL_BEGIN_DECLS

/* For kvcl_recv, kvcl_recv_bytes and kvcl_probe: a message with any tag. A send with this tag is refused. */
#define KVCL_ANY_TAG UINT64_MAX

/* What a recv got, or a probe found. */
typedef struct kvcl_recv_info {
    size_t   size;   /* sizeof(kvcl_recv_info_t): set it before the call */
    int      source;
    uint64_t tag;
    uint64_t bytes;
} kvcl_recv_info_t;
#define KVCL_RECV_INFO_INIT {sizeof(kvcl_recv_info_t), 0, 0, 0}

/* kvcl_xfer_params_t.flags */
#define KVCL_LAYERWISE  UINT64_C(0x1) /* kvcl_send: each layer is sent after kvcl_req_layer_ready();
                                         kvcl_store_get_part: each layer arrives by itself */
#define KVCL_BACKGROUND UINT64_C(0x2) /* gets and puts: others go first, at both ends, where they compete for the same
                                         owner or copying thread; KVCL_BACKGROUND_SHARE percent remain for this one */
#define KVCL_PUT_WAIT   UINT64_C(0x4) /* kvcl_store_put: if the pool has no room, wait for it until the deadline */
#define KVCL_PUT_TO     UINT64_C(0x8) /* kvcl_store_put, kvcl_store_upsert: into the pool of rank to_rank */
#define KVCL_PUT_STAYS  UINT64_C(0x10) /* kvcl_store_put: other ranks may fetch the blocks from the caller's cache until
                                          the request has completed */

#define KVCL_ON_DEVICE  UINT64_C(0x20) /* collectives of plain bytes: the buffers may be device memory (kvcl_coll.h) */

typedef struct kvcl_xfer_params {
    size_t           size;         /* sizeof(kvcl_xfer_params_t) */
    uint64_t         flags;        /* of those above; the table below lists the flags and fields of each call */
    uint64_t         timeout_ns;   /* the operation's deadline from now; 0, KVCL_WAIT_DEFAULT: KVCL_TIMEOUT;
                                    * KVCL_WAIT_FOREVER is refused */
    kvcl_req_cb_t    cb;           /* run once on completion; may be NULL */
    void             *cb_arg;      /* of cb; with queue: kvcl_done_t.arg */
    kvcl_status_t    *status;      /* gets and puts of blocks, store calls: one entry a block (of the remote list),
                                      written before completion; may be NULL */
    const char       *remote_cache; /* put, get of blocks: name of the peer's cache; NULL: the local cache's name */
    kvcl_rmem_h      signal_mem;   /* put: once the data is visible to the peer, add signal_add to the 8-byte counter */
    uint64_t         signal_offset; /* at this offset (8-aligned) of this imported memory of the same peer */
    uint64_t         signal_add;
    kvcl_recv_info_t *info;        /* recv: filled before completion; may be NULL */
    uint64_t         replicas;     /* kvcl_store_put: copies wanted of each block, at most 4; 0: the store's default */
    uint8_t          *copies;      /* kvcl_store_put: one entry a block: how many copies there are, written before
                                      completion; may be NULL */
    void             *stream;      /* gets, puts, sends, recvs, collectives of plain bytes: a CUstream (see
                                      below); NULL: none */
    uint64_t         tenant;       /* kvcl_store_put: the tenant of the blocks (kvcl_store_admin.h); 0: none,
                                      or that of the handle */
    uint64_t         to_rank;      /* with KVCL_PUT_TO: the rank of the store's comm whose pool takes the blocks */
    const void       *notify;      /* gets, puts: bytes for the peer's program, after the data (kvcl_notify_recv);
                                      copied by the call; NULL: none */
    size_t           notify_bytes; /* at most KVCL_NOTIFY_MAX; may be 0 with a notify that is not NULL */
    kvcl_queue_h     queue;        /* in place of cb: the completion queue that records the end; NULL: none */
} kvcl_xfer_params_t;
#define KVCL_XFER_PARAMS_INIT                                                                                          \
    {sizeof(kvcl_xfer_params_t), 0, 0, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, 0, NULL, NULL, 0, 0, NULL, 0, NULL}
#define KVCL_NOTIFY_MAX 8192u /* bytes of a notification */

/*
 * The flags and fields of each call. All take timeout_ns. Calls that return a request take cb, cb_arg and queue too;
 * kvcl_xfer_prepare and blocking calls (kvcl_store_match, for example, but not kvcl_store_match_post) do not. signal
 * means signal_mem, signal_offset and signal_add, notify means notify and notify_bytes. A flag or a field that a call
 * does not take is refused by name (KVCL_ERR_INVALID_PARAM): leave it 0.
 *
 *   call                      flags            fields
 *   kvcl_get                  BACKGROUND       status, remote_cache, stream, notify
 *   kvcl_put                  BACKGROUND       status, remote_cache, signal, stream, notify
 *   kvcl_xfer_prepare         BACKGROUND       remote_cache, signal
 *   kvcl_xfer_post            -                status, stream, notify
 *   kvcl_get_bytes            BACKGROUND       stream, notify
 *   kvcl_put_bytes            BACKGROUND       signal, stream, notify
 *   kvcl_get_vec              BACKGROUND       stream, notify
 *   kvcl_put_vec              BACKGROUND       signal, stream, notify
 *   kvcl_notify               -                -
 *   kvcl_send                 LAYERWISE        stream
 *   kvcl_send_bytes           -                stream
 *   kvcl_recv                 -                info, stream
 *   kvcl_recv_bytes           -                info, stream
 *   kvcl_stream_done          -                -
 *   kvcl_context_connect_post -                -
 *   kvcl_bcast                -                -
 *   kvcl_bcast_bytes          ON_DEVICE        stream
 *   kvcl_barrier              -                -
 *   kvcl_allgather            ON_DEVICE        stream
 *   kvcl_allreduce            ON_DEVICE        stream
 *   kvcl_reduce_scatter       ON_DEVICE        stream
 *   kvcl_alltoall             ON_DEVICE        stream
 *   kvcl_alltoallv            ON_DEVICE        stream
 *   kvcl_gather               ON_DEVICE        stream
 *   kvcl_scatter              ON_DEVICE        stream
 *   kvcl_store_get            -                status
 *   kvcl_store_get_part       LAYERWISE        status
 *   kvcl_store_put            PUT_WAIT, PUT_TO, PUT_STAYS status, replicas, copies, tenant, to_rank
 *   kvcl_store_upsert         PUT_TO           status, replicas, copies, tenant, to_rank
 *   kvcl_store_publish        -                status
 *   kvcl_store_remove         -                status
 *   kvcl_store_bcast          -                status
 *   kvcl_store_get_values     -                status
 *   kvcl_store_put_values     PUT_WAIT         status, replicas, copies, tenant
 *   kvcl_store_upsert_values  -                status, replicas, copies, tenant
 *   kvcl_store_value_sizes    -                -
 *   kvcl_store_value_keys     -                -
 *   kvcl_store_remove_values  -                -
 *   kvcl_store_match          -                -
 *   kvcl_store_exists         -                -
 *   kvcl_store_where          -                -
 *   kvcl_store_match_all      -                -
 *   kvcl_store_pin            -                -
 *   kvcl_store_unpin          -                -
 *   kvcl_store_quota          -                -
 *   kvcl_store_clear          -                -
 *   kvcl_store_copy           -                -
 *   kvcl_store_drain          -                -
 *   kvcl_store_rank_stats     -                -
 *   kvcl_store_all_stats      -                -
 *   kvcl_store_list           -                -
 *   kvcl_store_events         -                -
 *
 * kvcl_store_put_value and kvcl_store_get_value take the same as the calls for many values; a posting form (..._post)
 * takes the same as the plain one, and cb, cb_arg and queue.
 */

/*
 * Device memory and the engine's streams. An engine computes on a CUDA stream of its own, which copies of this library
 * do not wait for by themselves. With params.stream set, the transfer reads and writes no local memory, and announces
 * nothing to its peer, before that stream has finished all work enqueued before the posting call. So keys and values
 * that are still being computed are complete when they are sent, and blocks that a kernel still reads are not
 * overwritten. The call itself does not wait, nor does the transfer wait for later work of the stream. The opposite
 * order needs nothing: when a request is complete its bytes are in place on the device, for any stream.
 *
 * The stream is one of the posting thread's current CUDA context: of cuStreamCreate or cudaStreamCreate, a
 * framework's handle of one, or CU_STREAM_LEGACY and CU_STREAM_PER_THREAD (the null stream has no handle of its own).
 * It may be destroyed once the call has returned, as CUDA allows. KVCL_ERR_INVALID_PARAM: it is being captured into a
 * graph. KVCL_ERR_UNSUPPORTED: no driver here. If its device fails, the request ends by its deadline. A request that is
 * canceled, or whose deadline passes, while it waits ends at once. Sends with streams match in the order in which their
 * streams release them. It orders work on host memory too (a copy from the device to pinned memory that is then put).
 */

/**
 * Send the selected blocks to the recv at @a rank, over the same communicator, whose tag is equal and whose source is
 * this rank or KVCL_ANY_SOURCE; a recv with KVCL_ANY_TAG takes any tag. Completes when the receiver has the bytes.
 * Sends from one rank match in the order they were posted, as far as their tags fit the recv. @a params NULL: all
 * fields have their defaults. @a req_p NULL: the operation is detached and frees itself (kvcl_req.h). Both hold for
 * every call of this header that has these parameters.
 * @return KVCL_OK, KVCL_ERR_UNKNOWN_RANK, KVCL_ERR_OUT_OF_RANGE (a block id), KVCL_ERR_INVALID_PARAM. Later, by the
 *         request: KVCL_ERR_TRUNCATED (the two sides select different sizes; both learn it, nothing was written),
 *         KVCL_ERR_BAD_LAYOUT (different shapes), KVCL_ERR_TIMED_OUT, KVCL_ERR_CANCELED, KVCL_ERR_RANK_FAILED,
 *         KVCL_ERR_UNREACHABLE (kvcl_status.h; the recv of a known source ends with it too).
 */
KVCL_API kvcl_status_t kvcl_send(kvcl_comm_h comm, int rank, uint64_t tag, kvcl_cache_h cache, const kvcl_sel_t *sel,
                                 const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_recv(kvcl_comm_h comm, int rank, uint64_t tag, kvcl_cache_h cache, const kvcl_sel_t *sel,
                                 const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/*
 * Layer by layer: a send with KVCL_LAYERWISE is posted once, before any of its layers is computed, and matches as any
 * other. Nothing of a layer is read before kvcl_req_layer_ready(req, layer); layers are marked in any order. The recv
 * is an ordinary one: it fetches each layer as soon as it is marked, and kvcl_req_layer_wait(req, layer, ...) on it
 * returns when that layer has arrived, so that the transfer overlaps with computing on both sides. Each side names
 * layers as its own cache counts them: if the sender selects layers {8, 16} and the receiver {0, 8}, the sender marks 8
 * where the receiver waits for 0. Heads, block ids and strides may differ as in any transfer; a kvcl_recv_bytes
 * receives it too, all at once.
 *
 * The send completes when the receiver has all layers, so not before all were marked; its deadline, and the recv's,
 * count from their posts and must leave time for the computing. Cancel, deadline and a dead rank end both sides as
 * those of any send: a layer that had landed stays, no other byte changes after completion. A detached send (req_p
 * NULL) cannot be layer-wise: KVCL_ERR_INVALID_PARAM. One-sided, the same is one kvcl_put for each layer, with a
 * signal.
 */

/**
 * The same for plain bytes of host memory, registered or not (device memory: kvcl_send of a cache, or kvcl_get_bytes
 * and kvcl_put_bytes between host memory here and registered device memory there). A recv takes any length up to cap.
 * Until the request completes, @a buf stays mapped: that of a send readable and unchanged, that of a recv writable.
 * Otherwise the library's copy is a signal that ends the process. Where it is seen in time, both requests end with
 * KVCL_ERR_ACCESS: a send that is unmapped when the receiver asks for its bytes; a recv of 128 KiB or more whose first
 * or last byte is not writable, or, where the kernel copies (processes of one host), any byte.
 */
KVCL_API kvcl_status_t kvcl_send_bytes(kvcl_comm_h comm, int rank, uint64_t tag, const void *buf, size_t len,
                                       const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_recv_bytes(kvcl_comm_h comm, int rank, uint64_t tag, void *buf, size_t cap,
                                       const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/**
 * Wait at most timeout_ns for a message (of kvcl_send or kvcl_send_bytes) that no recv has matched, from @a rank or
 * KVCL_ANY_SOURCE and with @a tag or KVCL_ANY_TAG, and describe it. It stays: a recv posted next with info_p's source
 * and tag takes it, if no other thread's recv does. 0: progress the context, check once, and return KVCL_INPROGRESS if
 * there is none. Any thread; blocks if timeout_ns is not 0.
 * @param [in,out] info_p  its size is set before the call; receives source, tag and length in bytes of the first such
 *                         message, in the order of arrival. Untouched unless KVCL_OK is returned.
 * @return KVCL_OK; KVCL_INPROGRESS, KVCL_ERR_WAIT_TIMEOUT; KVCL_ERR_UNKNOWN_RANK; KVCL_ERR_INVALID_PARAM;
 *         KVCL_ERR_RANK_FAILED, KVCL_ERR_UNREACHABLE (of a known rank, which has failed and left no such message).
 */
KVCL_API kvcl_status_t kvcl_probe(kvcl_comm_h comm, int rank, uint64_t tag, uint64_t timeout_ns,
                                  kvcl_recv_info_t *info_p) KVCL_MUST_CHECK;

/**
 * Copy blocks from a rank's cache into the local one (get), or from the local one into the rank's (put); the peer's
 * program takes no part. Completion of a put means that the bytes are visible to the peer. A failed or canceled get may
 * have changed the local blocks; after completion nothing changes them any more. Between caches of one rank the two
 * selections must not share a block.
 * @return KVCL_OK, KVCL_ERR_UNKNOWN_RANK, KVCL_ERR_OUT_OF_RANGE (a local block id), KVCL_ERR_INVALID_PARAM. Later, by
 *         the request: KVCL_ERR_NOT_REGISTERED (no cache of that name there), KVCL_ERR_BAD_LAYOUT,
 *         KVCL_ERR_OUT_OF_RANGE (a remote id), KVCL_ERR_ACCESS (put: the cache there was created without
 *         KVCL_CACHE_WRITABLE), KVCL_ERR_TIMED_OUT, KVCL_ERR_CANCELED, KVCL_ERR_RANK_FAILED, KVCL_ERR_UNREACHABLE
 *         (kvcl_status.h; put: the bytes may or may not have arrived).
 */
KVCL_API kvcl_status_t kvcl_get(kvcl_comm_h comm, int rank, kvcl_cache_h cache, const kvcl_sel_t *remote,
                                const kvcl_sel_t *local, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
    KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_put(kvcl_comm_h comm, int rank, kvcl_cache_h cache, const kvcl_sel_t *local,
                                const kvcl_sel_t *remote, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
    KVCL_MUST_CHECK;

/* A get or put prepared for many postings. */
typedef struct kvcl_xfer *kvcl_xfer_h;
typedef enum { KVCL_XFER_GET = 0, KVCL_XFER_PUT = 1 } kvcl_xfer_dir_t;

/**
 * Prepare a kvcl_get or kvcl_put that differs in its block ids only from one posting to the next: the arguments are
 * checked, the peer and its cache's name looked up once. Nothing is sent.
 * @a local, @a remote: the layers, heads and tokens of each side; their blocks and n_blocks are not looked at, and
 * tokens, which count along a list, at each posting. @a params: flags, timeout_ns, remote_cache (copied) and, of a put,
 * the signal, for every posting; cb, cb_arg, queue, status and info must not be set here. The communicator, the cache
 * and the signal's memory must outlive the handle and what is posted by it. Any thread.
 * @return KVCL_OK; KVCL_ERR_UNKNOWN_RANK; KVCL_ERR_OUT_OF_RANGE (local layers or heads); KVCL_ERR_INVALID_PARAM.
 */
KVCL_API kvcl_status_t kvcl_xfer_prepare(kvcl_comm_h comm, int rank, kvcl_xfer_dir_t dir, kvcl_cache_h cache,
                                         const kvcl_sel_t *local, const kvcl_sel_t *remote,
                                         const kvcl_xfer_params_t *params, kvcl_xfer_h *xfer_p) KVCL_MUST_CHECK;

/**
 * Post it: the two lists of blocks mean what the selections of kvcl_get and kvcl_put do, as many blocks on both sides
 * where blocks have the same size. They are the caller's again on return. @a params (NULL: none): cb, cb_arg, queue,
 * status, stream, notify and timeout_ns, for this posting; nothing else may be set. Any number of threads at once.
 * @return as kvcl_get and kvcl_put, at once and later by the request.
 */
KVCL_API kvcl_status_t kvcl_xfer_post(kvcl_xfer_h xfer, const uint32_t *local_blocks, size_t n_local,
                                      const uint32_t *remote_blocks, size_t n_remote,
                                      const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/** Free a handle, NULL too. Transfers posted with it continue. No thread may be posting with it. */
KVCL_API void kvcl_xfer_free(kvcl_xfer_h xfer);

/**
 * Plain bytes from or to a peer's exported memory, which may be a device's; buf is host memory.
 * @return as above; KVCL_ERR_ACCESS (right not granted, or revoked), KVCL_ERR_OUT_OF_RANGE.
 */
KVCL_API kvcl_status_t kvcl_get_bytes(kvcl_rmem_h rmem, uint64_t offset, void *buf, size_t len,
                                      const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_put_bytes(kvcl_rmem_h rmem, uint64_t offset, const void *buf, size_t len,
                                      const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/* One piece of kvcl_get_vec and kvcl_put_vec. Fixed for ever: 24 bytes, in arrays. */
typedef struct kvcl_vec {
    uint64_t offset; /* of its bytes in the peer's memory */
    void     *addr;  /* of its bytes here */
    size_t   len;    /* bytes, > 0; any length, and each piece its own */
} kvcl_vec_t;
#define KVCL_VEC_MAX (1u << 20) /* pieces of one call */

/**
 * Many pieces of a peer's exported memory in one operation: each is copied from the peer (get) or to it (put). It costs
 * about as much as one kvcl_get of as many blocks: no layout is needed, offsets and addresses lie anywhere. Neighbours
 * in the list that touch on both sides move as one run. @a pieces is the caller's again on return; n 0 moves nothing
 * and is not an error.
 * @param mem  the registered memory of this rank in which all local bytes lie, which may be a device's. NULL: they are
 *             host memory, registered or not. It must outlive the operation.
 * Local pieces of a get must not overlap. Where remote pieces of a put overlap, the bytes that both have are those of
 * any of them. A failed or canceled get may have changed the local bytes; after completion nothing changes them.
 * @return KVCL_OK; with the index of the first such piece in the sentence: KVCL_ERR_INVALID_PARAM (len 0, addr NULL, a
 *         get's local pieces overlap), KVCL_ERR_OUT_OF_RANGE (beyond the end of the peer's memory, or of mem). Also
 *         KVCL_ERR_INVALID_PARAM (more than KVCL_VEC_MAX pieces); KVCL_ERR_ACCESS; and as kvcl_get_bytes, later too.
 */
KVCL_API kvcl_status_t kvcl_get_vec(kvcl_rmem_h rmem, const kvcl_vec_t *pieces, size_t n, kvcl_mem_h mem,
                                    const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_put_vec(kvcl_rmem_h rmem, const kvcl_vec_t *pieces, size_t n, kvcl_mem_h mem,
                                    const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/*
 * Notifications: a few bytes that the peer's program takes, to learn that a get or put of its memory has ended, and
 * which. With params.notify a get tells the peer that its bytes have been read (it may reuse the blocks), a put that
 * they are in place. The notification follows the data of its own operation, on every path; two operations are in no
 * order. The request completes when the peer holds the notification, which costs one more round trip. A failed
 * operation sends none.
 *
 * The peer holds them until its program takes them with kvcl_notify_recv: 4 MiB of each rank and 64 MiB of all, where
 * each counts as 1 KiB at least. One beyond that is not held: its request ends with KVCL_ERR_NO_SPACE, although its
 * data has been moved; kvcl_notify repeats the notification alone. Where the peer leaves or the link is lost before it
 * has answered (KVCL_ERR_RANK_FAILED, KVCL_ERR_UNREACHABLE), it may hold the notification or not. Notifications of a
 * rank that has failed are dropped when another process has joined in its slot.
 */

/**
 * A notification alone, without data. @a params: timeout_ns, cb, cb_arg and queue; nothing else may be set. Any thread.
 * @return KVCL_OK, KVCL_ERR_UNKNOWN_RANK, KVCL_ERR_INVALID_PARAM (more than KVCL_NOTIFY_MAX bytes). Later:
 *         KVCL_ERR_NO_SPACE, KVCL_ERR_TIMED_OUT, KVCL_ERR_CANCELED, KVCL_ERR_RANK_FAILED, KVCL_ERR_UNREACHABLE.
 */
KVCL_API kvcl_status_t kvcl_notify(kvcl_comm_h comm, int rank, const void *bytes, size_t len,
                                   const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/**
 * Take the next notification over @a comm, from any rank: in the order of arrival; those of operations with imported
 * memory travel over the communicator of kvcl_rmem_import. Waits at most timeout_ns; 0 checks once. The context's
 * eventfd wakes for an arrival. Any thread; blocks if timeout_ns is not 0.
 * @param [in,out] info  its size set by the caller; filled with source and bytes, tag 0; may be NULL.
 * @return KVCL_OK; KVCL_ERR_WAIT_TIMEOUT: none has arrived; KVCL_ERR_TRUNCATED: it has more bytes than cap: it stays,
 *         and info has its number of bytes; KVCL_ERR_INVALID_PARAM (KVCL_WAIT_FOREVER: nothing would end it).
 */
KVCL_API kvcl_status_t kvcl_notify_recv(kvcl_comm_h comm, void *buf, size_t cap, kvcl_recv_info_t *info,
                                        uint64_t timeout_ns) KVCL_MUST_CHECK;

/**
 * A request that completes when @a stream has done what it was given before the call, for whatever takes no
 * params.stream: its callback may mark a layer (kvcl_req_layer_ready) or post a collective or a put into the store.
 * @a params (NULL: none): timeout_ns, cb, cb_arg and queue; nothing else may be set.
 * @return KVCL_OK; KVCL_ERR_INVALID_PARAM (stream NULL, or being captured); KVCL_ERR_UNSUPPORTED (no driver);
 *         KVCL_ERR_NO_MEMORY; KVCL_ERR_IO (the driver). Later: KVCL_OK, KVCL_ERR_TIMED_OUT, KVCL_ERR_CANCELED.
 */
KVCL_API kvcl_status_t kvcl_stream_done(kvcl_context_h ctx, void *stream, const kvcl_xfer_params_t *params,
                                        kvcl_req_h *req_p) KVCL_MUST_CHECK;

/**
 * kvcl_context_connect() (kvcl_comm.h) without its wait. It waits neither for the other side nor for the resolver: a
 * thread of the context asks. Many may run at a time; 64 of them ask at "host:port", further ones wait for a free
 * thread, and their deadlines run meanwhile.
 * @a *comm_p is the caller's from the return on, however the request ends: kvcl_comm_free() is always due, and cancels
 * a connect in progress. It has no ranks (kvcl_comm_size() 0, and calls that name rank 0 fail with
 * KVCL_ERR_UNKNOWN_RANK) until the request has ended with KVCL_OK. After a failure or a cancel, a connection that the
 * other side has made meanwhile ends there. kvcl_finalize() waits for the resolver of a name that is still looked up.
 * @a params (NULL: none): timeout_ns, cb, cb_arg and queue; nothing else may be set. Any thread, also in a callback;
 * does not block.
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM (not an address), KVCL_ERR_VERSION or KVCL_ERR_AUTH (of the text of an
 *         address), KVCL_ERR_NO_MEMORY. Later, by the request: KVCL_ERR_CANCELED, and what kvcl_context_connect()
 *         returns.
 */
KVCL_API kvcl_status_t kvcl_context_connect_post(kvcl_context_h ctx, const char *address,
                                                 const kvcl_xfer_params_t *params, kvcl_comm_h *comm_p,
                                                 kvcl_req_h *req_p) KVCL_MUST_CHECK;

KVCL_END_DECLS

#endif
