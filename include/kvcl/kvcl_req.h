/*
 * Requests: anything in flight.
 *
 * A request completes exactly once, perhaps before the posting call returns. The call that first sees it complete
 * (test, wait, wait_any, wait_all) frees it; afterwards the handle is dead. Passing NULL for the request when posting
 * detaches the operation: it frees itself.
 *
 * Callbacks never run inside the call that posted the operation, but on the progress thread or inside a call that tests
 * or waits, with no library lock held; they may post and test, not block (kvcl.h lists the calls they must not make).
 * test, wait, wait_any and wait_all collect a request only after its callback has returned, so the callback's argument
 * may be freed once they have; a thread that collects runs the callback itself if no other thread has begun it. Inside
 * its own callback a request can be collected at once. A wait inside another request's callback that runs in it fails
 * with KVCL_ERR_BUSY, since it would not end.
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
 * Whether a layer of a recv has arrived. layer: as the receiving cache counts, within the selection. If the send was
 * not layer-wise, or the request is of another kind, all layers arrive when the request completes. Any thread; several
 * may query different layers of one request. Never collects it: kvcl_req_test or kvcl_req_wait must do that, and not
 * before these calls have returned.
 * @return KVCL_OK: all its bytes have arrived, and stay even if the request fails later. KVCL_INPROGRESS: not yet; the
 *         context was progressed. The request's error, if it failed. KVCL_ERR_OUT_OF_RANGE: not a selected layer.
 */
KVCL_API kvcl_status_t kvcl_req_layer_test(kvcl_req_h req, uint32_t layer) KVCL_MUST_CHECK;

/** The same, waiting at most timeout_ns for it, then KVCL_ERR_WAIT_TIMEOUT; sleeps after a bounded spin. Blocks. */
KVCL_API kvcl_status_t kvcl_req_layer_wait(kvcl_req_h req, uint32_t layer, uint64_t timeout_ns) KVCL_MUST_CHECK;

/**
 * The reason of its failure: the operation, the rank, the cache and blocks or the key, both sizes or the deadline, and
 * what to do. "" while it is in progress, and after success. Owned by the request: valid until it is collected.
 * The call that collects a failed request (test, wait, wait_any, wait_all: the first failed one's) leaves the same
 * sentence in kvcl_last_error() of its thread, and so does the library before it runs a failed request's callback. Any
 * thread.
 */
KVCL_API const char *kvcl_req_error(kvcl_req_h req);

/**
 * Request the operation to stop. It still completes, usually with KVCL_ERR_CANCELED, and must still be collected. After
 * completion the operation is fenced: no late byte lands in its buffers.
 */
KVCL_API void kvcl_req_cancel(kvcl_req_h req);

KVCL_END_DECLS

#endif
