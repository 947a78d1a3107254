/*
 * The CUDA driver as a table of its functions, filled by dlopen("libcuda.so.1") when device memory is first registered:
 * the library links no part of CUDA, and loads it only where it is used. Tests install a table of their own.
 */
#ifndef KVCL_DEVICE_CUDA_API_H
#define KVCL_DEVICE_CUDA_API_H

#if KVCL_HAVE_CUDA_H
#include <cuda.h>
#else
#include "device/cuda_stub.h"
#endif

#include <kvcl/kvcl_status.h>
#include <stdbool.h>

/* X(member, name in cuda.h, name in libcuda.so.1, parameters). All return CUresult. */
#define KVCL_CUDA_MAP(X)                                                                                               \
    X(init, cuInit, "cuInit", (unsigned flags))                                                                        \
    X(error_name, cuGetErrorName, "cuGetErrorName", (CUresult error, const char **name))                               \
    X(pointer, cuPointerGetAttribute, "cuPointerGetAttribute", (void *to, CUpointer_attribute what, CUdeviceptr ptr))  \
    X(bus_id, cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId", (char *text, int len, CUdevice device))                      \
    X(ctx_retain, cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext *ctx, CUdevice device))             \
    X(ctx_release, cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice device))                       \
    X(ctx_push, cuCtxPushCurrent, "cuCtxPushCurrent_v2", (CUcontext ctx))                                              \
    X(ctx_pop, cuCtxPopCurrent, "cuCtxPopCurrent_v2", (CUcontext *ctx))                                                \
    X(priorities, cuCtxGetStreamPriorityRange, "cuCtxGetStreamPriorityRange", (int *least, int *greatest))             \
    X(stream_create, cuStreamCreateWithPriority, "cuStreamCreateWithPriority",                                         \
      (CUstream *stream, unsigned flags, int priority))                                                                \
    X(stream_destroy, cuStreamDestroy, "cuStreamDestroy_v2", (CUstream stream))                                        \
    X(stream_sync, cuStreamSynchronize, "cuStreamSynchronize", (CUstream stream))                                      \
    X(stream_query, cuStreamQuery, "cuStreamQuery", (CUstream stream))                                                 \
    X(stream_capturing, cuStreamIsCapturing, "cuStreamIsCapturing", (CUstream stream, CUstreamCaptureStatus *status))  \
    X(event_create, cuEventCreate, "cuEventCreate", (CUevent *event, unsigned flags))                                  \
    X(event_destroy, cuEventDestroy, "cuEventDestroy_v2", (CUevent event))                                             \
    X(event_record, cuEventRecord, "cuEventRecord", (CUevent event, CUstream stream))                                  \
    X(event_query, cuEventQuery, "cuEventQuery", (CUevent event))                                                      \
    X(event_sync, cuEventSynchronize, "cuEventSynchronize", (CUevent event))                                           \
    X(host_alloc, cuMemHostAlloc, "cuMemHostAlloc", (void **ptr, size_t len, unsigned flags))                          \
    X(host_free, cuMemFreeHost, "cuMemFreeHost", (void *ptr))                                                          \
    X(copy, cuMemcpyAsync, "cuMemcpyAsync", (CUdeviceptr dst, CUdeviceptr src, size_t len, CUstream stream))           \
    X(module_load, cuModuleLoadData, "cuModuleLoadData", (CUmodule *module, const void *image))                        \
    X(module_unload, cuModuleUnload, "cuModuleUnload", (CUmodule module))                                              \
    X(function, cuModuleGetFunction, "cuModuleGetFunction", (CUfunction *function, CUmodule module, const char *name)) \
    X(launch, cuLaunchKernel, "cuLaunchKernel",                                                                        \
      (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,              \
       unsigned shared, CUstream stream, void **params, void **extra))                                                 \
    X(host_call, cuLaunchHostFunc, "cuLaunchHostFunc", (CUstream stream, CUhostFn fn, void *arg))

typedef struct kvcl_cuda_driver {
#define KVCL_CUDA_MEMBER(_member, _name, _symbol, _params) CUresult(*_member) _params;
    KVCL_CUDA_MAP(KVCL_CUDA_MEMBER)
#undef KVCL_CUDA_MEMBER
} kvcl_cuda_driver_t;

/**
 * The driver. load: open and start it if that was not done yet; else only if the process has opened it already.
 * @return NULL: there is none. With load, the sentence says why.
 */
const kvcl_cuda_driver_t *kvcl_cuda_driver(bool load);
/** For tests: this table from now on; NULL: the real driver. No device memory is registered. */
void                      kvcl_cuda_set_driver(const kvcl_cuda_driver_t *driver);
/** KVCL_OK for CUDA_SUCCESS; else KVCL_ERR_IO (or NO_MEMORY),
 * and the sentence names the call and the driver's error. */
kvcl_status_t             kvcl_cuda_status(const kvcl_cuda_driver_t *driver, CUresult result, const char *call);

#endif
