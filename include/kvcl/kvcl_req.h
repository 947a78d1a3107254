/*
 * Requests: anything in flight.
 *
 * A request completes exactly once, perhaps before the posting call returns. The call that first sees it complete
 * (test, wait, wait_any, wait_some, wait_all) frees it; afterwards the handle is dead. Passing NULL for the request
 * when posting detaches the operation: it frees itself. An operation posted with a completion queue is collected by
 * kvcl_req_drain alone.
 *
 * Callbacks never run inside the call that posted the operation, but on the progress thread or inside a call that tests
 * or waits, with no library lock held; they may post and test, not block (kvcl.h lists the calls they must not make).
 * test and the waits collect a request only after its callback has returned, so the callback's argument may be freed
 * once they have; a thread that collects runs the callback itself if no other thread has begun it. Inside its own
 * callback a request can be collected at once. A wait inside another request's callback that runs in it fails with
 * KVCL_ERR_BUSY, since it would not end.
 */
#ifndef KVCL_REQ_H
#define KVCL_REQ_H

#include <stddef.h>
#include <stdint.h>
#include <kvcl/kvcl_context.h>

KVCL_BEGIN_DECLS

typedef struct kvcl_req *kvcl_req_h;

/* status is final. The request handle is valid inside the callback, which may collect it if no thread does. */
typedef void (*kvcl_req_cb_t)(void *arg, kvcl_status_t status);

/**
 * @return KVCL_INPROGRESS, also while another thread is in the request's callback; or the final status: its callback
 *         has returned, and the request is freed. Progresses the context if it has not completed. Costs well under a
 *         microsecond, plus the time of the callback if this thread runs it.
 */
KVCL_API kvcl_status_t kvcl_req_test(kvcl_req_h req) KVCL_MUST_CHECK;

/**
 * Wait at most timeout_ns (kvcl_context.h) for completion; sleeps after a bounded spin. Blocks.
 * @return the final status (the request is freed), or KVCL_ERR_WAIT_TIMEOUT: the operation continues, and the handle
 *         stays valid. In contrast KVCL_ERR_TIMED_OUT is final: the operation's own deadline passed and it is fenced.
 *         KVCL_ERR_BUSY: this thread is in the callback of that request.
 */
KVCL_API kvcl_status_t kvcl_req_wait(kvcl_req_h req, uint64_t timeout_ns) KVCL_MUST_CHECK;

/**
 * Wait until one of n completes. NULL entries are skipped. All requests must belong to one context: with requests of
 * two contexts the call fails with KVCL_ERR_INVALID_PARAM and collects nothing. Blocks.
 * @param [in,out] reqs   the finished entry is set to NULL.
 * @param [out] index_p   which; untouched with KVCL_ERR_WAIT_TIMEOUT. n if all entries are NULL (status KVCL_OK).
 */
KVCL_API kvcl_status_t kvcl_req_wait_any(kvcl_req_h *reqs, size_t n, uint64_t timeout_ns, size_t *index_p)
    KVCL_MUST_CHECK;

/**
 * Wait until at least one of n completes, and collect all that have completed by then (MPI_Waitsome). NULL entries are
 * skipped. All requests must belong to one context, as for kvcl_req_wait_any. Blocks.
 * @param [in,out] reqs    the finished entries are set to NULL.
 * @param [out] indices    room for n: the finished entries, in rising order.
 * @param [out] statuses   room for n: their final statuses, in the order of indices; NULL: not wanted.
 * @param [out] count_p    how many have finished; untouched with KVCL_ERR_WAIT_TIMEOUT. 0 if all entries are NULL.
 * @return KVCL_OK, the error of the first failed entry among the finished, or KVCL_ERR_WAIT_TIMEOUT: none has finished.
 */
KVCL_API kvcl_status_t kvcl_req_wait_some(kvcl_req_h *reqs, size_t n, uint64_t timeout_ns, size_t *indices,
                                          kvcl_status_t *statuses, size_t *count_p) KVCL_MUST_CHECK;

/**
 * Wait until all n complete. Finished entries become NULL. All requests must belong to one context, as for
 * kvcl_req_wait_any. Blocks.
 * @return KVCL_OK, the first error among the finished, or KVCL_ERR_WAIT_TIMEOUT (none has failed, some entries are
 *         left).
 */
KVCL_API kvcl_status_t kvcl_req_wait_all(kvcl_req_h *reqs, size_t n, uint64_t timeout_ns) KVCL_MUST_CHECK;

/**
 * Mark a layer of a send with KVCL_LAYERWISE (kvcl_xfer.h): its bytes are in place, and stay so until the request
 * completes; the receiver may read them. layer: as the sending cache counts, within the selection. Layers may be marked
 * in any order, and more than once. Any thread, also at the same time as others; takes no lock. It costs a few atomic
 * operations and, when no thread progresses the context, one write to an eventfd that wakes a sleeping thread (some
 * microseconds); the receiver is then notified at once. Without a progress thread it is notified when the context is
 * progressed next. Does not collect the request, which must not be collected before the call; another thread may
 * collect a request that this mark completes.
 * @return KVCL_OK (also after successful completion); the request's error, if it failed; KVCL_ERR_OUT_OF_RANGE;
 *         KVCL_ERR_INVALID_PARAM: not a layer-wise send.
 */
KVCL_API kvcl_status_t kvcl_req_layer_ready(kvcl_req_h req, uint32_t layer) KVCL_MUST_CHECK;

/**
 * Whether a layer of a recv, or of a kvcl_store_get_part with KVCL_LAYERWISE, has arrived. layer: as the local cache
 * counts, within the selection. If the send was not layer-wise, or the request is of another kind, all layers arrive
 * when the request completes. Any thread; several may query different layers of one request. Never collects it:
 * kvcl_req_test or kvcl_req_wait must do that, and not before these calls have returned.
 * @return KVCL_OK: all its bytes have arrived, and stay even if the request fails later. KVCL_INPROGRESS: not yet; the
 *         context was progressed. The request's error, if it failed. KVCL_ERR_OUT_OF_RANGE: not a selected layer.
 */
KVCL_API kvcl_status_t kvcl_req_layer_test(kvcl_req_h req, uint32_t layer) KVCL_MUST_CHECK;

/** The same, waiting at most timeout_ns for it, then KVCL_ERR_WAIT_TIMEOUT; sleeps after a bounded spin. Blocks. */
KVCL_API kvcl_status_t kvcl_req_layer_wait(kvcl_req_h req, uint32_t layer, uint64_t timeout_ns) KVCL_MUST_CHECK;

/**
 * The reason of its failure: the operation, the rank, the cache and blocks or the key, both sizes or the deadline, and
 * what to do. "" while it is in progress, and after success. Owned by the request: valid until it is collected. The
 * call that collects a failed request (of wait_some and wait_all: the first failed one) leaves the same sentence in
 * kvcl_last_error() of its thread, and so does the library before it runs a failed request's callback. Any thread.
 */
KVCL_API const char *kvcl_req_error(kvcl_req_h req);

/**
 * Request the operation to stop. It still completes, usually with KVCL_ERR_CANCELED, and must still be collected. After
 * completion the operation is fenced: no late byte lands in its buffers.
 */
KVCL_API void kvcl_req_cancel(kvcl_req_h req);

/*
 * Completion queues, for engines that poll: one call collects many completions, and costs a few nanoseconds where there
 * is none. Create a queue, name it in params.queue of each operation (kvcl_xfer.h) and set params.cb_arg to a pointer
 * or a number of your own; then call kvcl_req_drain from time to time, or sleep on kvcl_queue_fd. Operations of several
 * contexts and threads may share a queue. Every operation posted with it is recorded once, also one that ended inside
 * its posting call; an operation whose posting call failed is not.
 *
 * The request of such an operation, if the posting call was given req_p, serves kvcl_req_cancel, kvcl_req_error and the
 * calls for layers. It is dead once its completion has been drained, so these calls must not overlap with a drain that
 * may return it. The calls that test or wait refuse it (KVCL_ERR_INVALID_PARAM).
 */
typedef struct kvcl_queue *kvcl_queue_h;

/* A completion, filled by kvcl_req_drain. */
typedef struct kvcl_done {
    size_t        size;   /* sizeof(kvcl_done_t) of the library, at most the stride */
    void          *arg;   /* params.cb_arg of the operation */
    kvcl_status_t status; /* final */
    uint64_t      bytes;  /* of payload that was moved: 0 if the operation failed or moves none. Collectives: of this
                             rank's larger buffer. Store gets: of the blocks or values that were got, also if others
                             failed; store puts: of blocks or values that the store lacked */
    uint64_t      ns;     /* from the beginning of the posting call to the completion */
    const char    *error; /* why it failed, as kvcl_req_error(); NULL: it has not. Owned by the queue: valid until the
                             next drain of it */
} kvcl_done_t;
#define KVCL_DONE_INIT {sizeof(kvcl_done_t), NULL, KVCL_OK, 0, 0, NULL}

/**
 * @param [out] queue_p  on KVCL_OK: the queue, to be freed by kvcl_queue_destroy(). It belongs to no context.
 * @return KVCL_OK, KVCL_ERR_NO_MEMORY.
 */
KVCL_API kvcl_status_t kvcl_queue_create(kvcl_queue_h *queue_p) KVCL_MUST_CHECK;

/**
 * Free a queue, and the completions in it. Operations in flight continue as if detached: their completions are recorded
 * nowhere. No thread may be posting with it or draining it. NULL is allowed.
 */
KVCL_API void kvcl_queue_destroy(kvcl_queue_h queue);

/**
 * Collect completions, the oldest first. Never waits, takes no lock of a context, and progresses none: without a
 * progress thread (KVCL_INIT_NO_THREAD) call kvcl_progress() or kvcl_context_arm() before. Any thread, also several at
 * once, but then a record's error may become invalid when another thread drains.
 * @param [out] done   an array of cap records.
 * @param stride       sizeof(kvcl_done_t)
 * @param [out] n_p    how many records were filled; 0: nothing has completed. If it is cap, more may be left.
 * @return KVCL_OK; KVCL_ERR_INVALID_PARAM, KVCL_ERR_DEAD_HANDLE.
 */
KVCL_API kvcl_status_t kvcl_req_drain(kvcl_queue_h queue, kvcl_done_t *done, size_t stride, size_t cap, size_t *n_p)
    KVCL_MUST_CHECK;

/**
 * A file descriptor for poll(2), epoll(7) and event loops that is readable exactly while the queue has completions:
 * drain until there are none, and do not read from it. Owned by the queue, always the same one, closed when the queue
 * is destroyed and its last operation has ended. It moves nothing: without a progress thread sleep on the context's
 * descriptor (kvcl_context_eventfd), which wakes for completions as well.
 * @return KVCL_OK, KVCL_ERR_IO.
 */
KVCL_API kvcl_status_t kvcl_queue_fd(kvcl_queue_h queue, int *fd_p) KVCL_MUST_CHECK;

KVCL_END_DECLS

#endif
