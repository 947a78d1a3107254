/*
 * The life of an ncclComm (nccl_comm.h): made without blocking, polled, aborted.
 *
 * The device's context is current during each call of NCCL. An ncclComm is never destroyed in the ordinary way, which
 * waits for the other ranks, but aborted, which does not.
 */
#include "config.h"
#include "nccl/nccl_comm_impl.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { IDLE_MS = 2000, PAUSE_NS = 200000 };

kvcl_status_t kvcl_nccl_status(const kvcl_nccl_lib_t *lib, ncclResult_t result, const char *call)
{
    if ((result == ncclSuccess) || (result == ncclInProgress)) {
        return KVCL_OK;
    }
    return kvcl_fail(KVCL_ERR_IO, "%s: %s (%d); NCCL_DEBUG=WARN prints more", call, lib->error_string(result),
                     (int)result);
}

static const kvcl_cuda_device_t *device_of(const kvcl_copier_t *copier)
{
    return kvcl_container_of((kvcl_copier_t *)copier, kvcl_cuda_device_t, super);
}

uint32_t kvcl_nccl_version(void)
{
    const kvcl_nccl_lib_t *lib = kvcl_nccl_lib();

    return (lib != NULL) ? (uint32_t)lib->code : 0;
}

kvcl_status_t kvcl_nccl_gpu(const kvcl_copier_t *copier, char gpu[KVCL_NCCL_GPU_BYTES])
{
    const kvcl_cuda_device_t *device = device_of(copier);

    memset(gpu, 0, KVCL_NCCL_GPU_BYTES);
    return kvcl_cuda_status(device->driver, device->driver->bus_id(gpu, KVCL_NCCL_GPU_BYTES, device->ordinal),
                            "cuDeviceGetPCIBusId");
}

kvcl_status_t kvcl_nccl_id(char id[KVCL_NCCL_ID_BYTES])
{
    const kvcl_nccl_lib_t *lib = kvcl_nccl_lib();
    ncclUniqueId          unique;
    kvcl_status_t         status;

    _Static_assert(sizeof(unique) == KVCL_NCCL_ID_BYTES, "an id");
    if (lib == NULL) {
        return KVCL_ERR_UNSUPPORTED;
    }
    memset(&unique, 0, sizeof(unique));
    status = kvcl_nccl_status(lib, lib->unique_id(&unique), "ncclGetUniqueId");
    memcpy(id, &unique, sizeof(unique));
    return status;
}

/* The context is current. */
static kvcl_status_t begin(kvcl_nccl_t *nccl, uint32_t rank, uint32_t size, const char *id)
{
    const kvcl_cuda_driver_t *d     = nccl->device->driver;
    ncclConfig_t             config = NCCL_CONFIG_INITIALIZER;
    kvcl_status_t            status;
    ncclUniqueId             unique;

    memcpy(&unique, id, sizeof(unique));
    config.blocking = 0;
    status = kvcl_cuda_status(d, d->stream_create(&nccl->stream, CU_STREAM_NON_BLOCKING, nccl->device->priority),
                              "cuStreamCreateWithPriority");
    if (status == KVCL_OK) {
        status = kvcl_nccl_status(nccl->lib, nccl->lib->init(&nccl->comm, (int)size, unique, (int)rank, &config),
                                  "ncclCommInitRankConfig");
    }
    return status;
}

kvcl_status_t kvcl_nccl_open(const kvcl_copier_t *copier, uint32_t rank, uint32_t size,
                             const char id[KVCL_NCCL_ID_BYTES], kvcl_nccl_t **nccl_p)
{
    kvcl_nccl_t   *nccl = calloc(1, sizeof(*nccl));
    kvcl_status_t status;
    CUcontext     popped;

    if (nccl == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for an ncclComm");
    }
    nccl->lib    = kvcl_nccl_lib();
    nccl->device = device_of(copier);
    if (nccl->lib == NULL) {
        free(nccl);
        return KVCL_ERR_UNSUPPORTED;
    }
    status = kvcl_cuda_status(nccl->device->driver, nccl->device->driver->ctx_push(nccl->device->ctx),
                              "cuCtxPushCurrent");
    if (status == KVCL_OK) {
        status = begin(nccl, rank, size, id);
        (void)nccl->device->driver->ctx_pop(&popped);
    }
    if (status != KVCL_OK) {
        (void)kvcl_nccl_close(nccl); /* it has run nothing */
        return status;
    }
    *nccl_p = nccl;
    return KVCL_OK;
}

/* The work of the stream is over, with or without an error. */
static bool is_idle(const kvcl_nccl_t *nccl)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    const uint64_t        until = kvcl_deadline_after(IDLE_MS * KVCL_NS_PER_MS);
    CUresult              result;

    while (((result = nccl->device->driver->stream_query(nccl->stream)) == CUDA_ERROR_NOT_READY) &&
           !kvcl_deadline_passed(until)) {
        (void)nanosleep(&pause, NULL);
    }
    return result != CUDA_ERROR_NOT_READY;
}

bool kvcl_nccl_close(kvcl_nccl_t *nccl)
{
    bool      idle = true;
    CUcontext popped;

    if (nccl == NULL) {
        return true;
    }
    if (nccl->device->driver->ctx_push(nccl->device->ctx) == CUDA_SUCCESS) {
        if ((nccl->comm != NULL) && (nccl->lib->abort(nccl->comm) != ncclSuccess)) {
            kvcl_log_info("ncclCommAbort has failed");
        }
        idle = (nccl->stream == NULL) || is_idle(nccl);
        if (idle && (nccl->stream != NULL)) {
            (void)nccl->device->driver->stream_destroy(nccl->stream);
        }
        (void)nccl->device->driver->ctx_pop(&popped);
    }
    free(nccl);
    return idle;
}

kvcl_status_t kvcl_nccl_poll(kvcl_nccl_t *nccl)
{
    ncclResult_t  state = ncclSuccess;
    kvcl_status_t status;
    CUresult      result;

    status = kvcl_nccl_status(nccl->lib, nccl->lib->async_error(nccl->comm, &state), "ncclCommGetAsyncError");
    if (status == KVCL_OK) {
        status = kvcl_nccl_status(nccl->lib, state, "NCCL");
    }
    if ((status != KVCL_OK) || (state == ncclInProgress)) {
        return (status == KVCL_OK) ? KVCL_INPROGRESS : status;
    }
    result = nccl->device->driver->stream_query(nccl->stream);
    return (result == CUDA_ERROR_NOT_READY) ? KVCL_INPROGRESS
                                            : kvcl_cuda_status(nccl->device->driver, result, "cuStreamQuery");
}

bool kvcl_nccl_is_on(const kvcl_nccl_t *nccl, const kvcl_copier_t *copier)
{
    return nccl->device == device_of(copier);
}
