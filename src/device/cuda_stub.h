/*
 * The part of the CUDA driver's interface that device memory needs, for builds without the toolkit's cuda.h: types and
 * numbers of its stable binary interface only. test/unit/test_cuda_header.c compares every name with cuda.h where that
 * exists.
 */
#ifndef KVCL_DEVICE_CUDA_STUB_H
#define KVCL_DEVICE_CUDA_STUB_H

#include <stddef.h>

typedef unsigned long long  CUdeviceptr;
typedef int                 CUdevice;
typedef struct CUctx_st    *CUcontext;
typedef struct CUmod_st    *CUmodule;
typedef struct CUfunc_st   *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st  *CUevent;
typedef void (*CUhostFn)(void *arg);

typedef enum cudaError_enum {
    CUDA_SUCCESS             = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_READY     = 600,
    CUDA_ERROR_UNKNOWN       = 999
} CUresult;

typedef enum CUpointer_attribute_enum {
    CU_POINTER_ATTRIBUTE_CONTEXT        = 1,
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE    = 2,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
    CU_POINTER_ATTRIBUTE_RANGE_SIZE       = 12
} CUpointer_attribute;

typedef enum CUstreamCaptureStatus_enum {
    CU_STREAM_CAPTURE_STATUS_NONE = 0
} CUstreamCaptureStatus;

enum {
    CU_MEMORYTYPE_HOST       = 1,
    CU_MEMORYTYPE_DEVICE     = 2,
    CU_STREAM_NON_BLOCKING   = 1,
    CU_EVENT_BLOCKING_SYNC   = 1,
    CU_EVENT_DISABLE_TIMING  = 2,
    CU_MEMHOSTALLOC_PORTABLE = 1
};

#endif
