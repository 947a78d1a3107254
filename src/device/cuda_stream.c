/*
 * Order with an engine's streams: when has a stream finished the work that it was given before? (copier.h,
 * kvcl_copier_after)
 *
 * The stream is the caller's, in the caller's current context, as in the caller's own CUDA calls. A host function is
 * enqueued behind its work; it runs once, on a thread of the driver, and may not call CUDA. If the stream's context
 * fails it never runs: a waiter needs a deadline.
 */
#include "config.h"
#include "base/error.h"
#include "device/copier.h"
#include "device/cuda_api.h"

kvcl_status_t kvcl_cuda_after(void *stream, void (*fn)(void *arg), void *arg)
{
    const kvcl_cuda_driver_t *d      = kvcl_cuda_driver(true);
    CUstreamCaptureStatus    capture = CU_STREAM_CAPTURE_STATUS_NONE;
    kvcl_status_t            status;
    CUresult                 result;

    if (d == NULL) {
        return KVCL_ERR_UNSUPPORTED;
    }
    status = kvcl_cuda_status(d, d->stream_capturing(stream, &capture), "cuStreamIsCapturing");
    if (status != KVCL_OK) {
        return status;
    }
    if (capture != CU_STREAM_CAPTURE_STATUS_NONE) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "the stream is being captured into a graph: what it is given is not "
                         "done now, so nothing can come after it");
    }
    result = d->stream_query(stream);
    if (result != CUDA_ERROR_NOT_READY) {
        return kvcl_cuda_status(d, result, "cuStreamQuery");
    }
    status = kvcl_cuda_status(d, d->host_call(stream, fn, arg), "cuLaunchHostFunc");
    return (status == KVCL_OK) ? KVCL_INPROGRESS : status;
}
