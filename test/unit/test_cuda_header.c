/*
 * KVCL's declarations of the CUDA driver's interface (mem_cuda_stub.h) against the toolkit's cuda.h, where the build
 * has it: every type and number at compile time, and at run time the names under which libcuda.so.1 has the functions.
 * A name in the stub that is missing in the lists here clashes with cuda.h, and this file does not compile.
 */
#include "config.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#if !KVCL_HAVE_CUDA_H
int main(void)
{
    puts("SKIP: built against our own declarations (--with-cuda=PATH, contrib/ci/cuda-wheel)");
    return 77;
}
#else

/* The stub, under other names. */
#define CUdeviceptr                         our_CUdeviceptr
#define CUdevice                            our_CUdevice
#define CUcontext                           our_CUcontext
#define CUmodule                            our_CUmodule
#define CUfunction                          our_CUfunction
#define CUstream                            our_CUstream
#define CUevent                             our_CUevent
#define CUhostFn                            our_CUhostFn
#define cudaError_enum                      our_cudaError_enum
#define CUresult                            our_CUresult
#define CUpointer_attribute_enum            our_CUpointer_attribute_enum
#define CUpointer_attribute                 our_CUpointer_attribute
#define CUstreamCaptureStatus_enum          our_CUstreamCaptureStatus_enum
#define CUstreamCaptureStatus               our_CUstreamCaptureStatus
#define CUDA_SUCCESS                        our_CUDA_SUCCESS
#define CUDA_ERROR_INVALID_VALUE            our_CUDA_ERROR_INVALID_VALUE
#define CUDA_ERROR_OUT_OF_MEMORY            our_CUDA_ERROR_OUT_OF_MEMORY
#define CUDA_ERROR_NOT_READY                our_CUDA_ERROR_NOT_READY
#define CUDA_ERROR_UNKNOWN                  our_CUDA_ERROR_UNKNOWN
#define CU_POINTER_ATTRIBUTE_CONTEXT        our_CU_POINTER_ATTRIBUTE_CONTEXT
#define CU_POINTER_ATTRIBUTE_MEMORY_TYPE    our_CU_POINTER_ATTRIBUTE_MEMORY_TYPE
#define CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL our_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
#define CU_POINTER_ATTRIBUTE_RANGE_START_ADDR our_CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
#define CU_POINTER_ATTRIBUTE_RANGE_SIZE     our_CU_POINTER_ATTRIBUTE_RANGE_SIZE
#define CU_STREAM_CAPTURE_STATUS_NONE       our_CU_STREAM_CAPTURE_STATUS_NONE
#define CU_MEMORYTYPE_HOST                  our_CU_MEMORYTYPE_HOST
#define CU_MEMORYTYPE_DEVICE                our_CU_MEMORYTYPE_DEVICE
#define CU_STREAM_NON_BLOCKING              our_CU_STREAM_NON_BLOCKING
#define CU_EVENT_BLOCKING_SYNC              our_CU_EVENT_BLOCKING_SYNC
#define CU_EVENT_DISABLE_TIMING             our_CU_EVENT_DISABLE_TIMING
#define CU_MEMHOSTALLOC_PORTABLE            our_CU_MEMHOSTALLOC_PORTABLE
#include "device/cuda_stub.h"
#undef CUdeviceptr
#undef CUdevice
#undef CUcontext
#undef CUmodule
#undef CUfunction
#undef CUstream
#undef CUevent
#undef CUhostFn
#undef cudaError_enum
#undef CUresult
#undef CUpointer_attribute_enum
#undef CUpointer_attribute
#undef CUstreamCaptureStatus_enum
#undef CUstreamCaptureStatus
#undef CUDA_SUCCESS
#undef CUDA_ERROR_INVALID_VALUE
#undef CUDA_ERROR_OUT_OF_MEMORY
#undef CUDA_ERROR_NOT_READY
#undef CUDA_ERROR_UNKNOWN
#undef CU_POINTER_ATTRIBUTE_CONTEXT
#undef CU_POINTER_ATTRIBUTE_MEMORY_TYPE
#undef CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
#undef CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
#undef CU_POINTER_ATTRIBUTE_RANGE_SIZE
#undef CU_STREAM_CAPTURE_STATUS_NONE
#undef CU_MEMORYTYPE_HOST
#undef CU_MEMORYTYPE_DEVICE
#undef CU_STREAM_NON_BLOCKING
#undef CU_EVENT_BLOCKING_SYNC
#undef CU_EVENT_DISABLE_TIMING
#undef CU_MEMHOSTALLOC_PORTABLE

#include "device/cuda_api.h"

#define SAME_TYPE(_type) _Static_assert(__builtin_types_compatible_p(our_##_type, _type), #_type)
SAME_TYPE(CUdeviceptr);
SAME_TYPE(CUdevice);
SAME_TYPE(CUcontext);
SAME_TYPE(CUmodule);
SAME_TYPE(CUfunction);
SAME_TYPE(CUstream);
SAME_TYPE(CUevent);
SAME_TYPE(CUhostFn);

/* Enumerations are distinct types: with the same width they are passed alike. */
#define SAME_ENUM(_type) _Static_assert(sizeof(our_##_type) == sizeof(_type), #_type)
SAME_ENUM(CUresult);
SAME_ENUM(CUpointer_attribute);
SAME_ENUM(CUstreamCaptureStatus);

#define SAME_NUMBER(_name) _Static_assert((long)our_##_name == (long)_name, #_name)
SAME_NUMBER(CUDA_SUCCESS);
SAME_NUMBER(CUDA_ERROR_INVALID_VALUE);
SAME_NUMBER(CUDA_ERROR_OUT_OF_MEMORY);
SAME_NUMBER(CUDA_ERROR_NOT_READY);
SAME_NUMBER(CUDA_ERROR_UNKNOWN);
SAME_NUMBER(CU_POINTER_ATTRIBUTE_CONTEXT);
SAME_NUMBER(CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME_NUMBER(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME_NUMBER(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
SAME_NUMBER(CU_POINTER_ATTRIBUTE_RANGE_SIZE);
SAME_NUMBER(CU_STREAM_CAPTURE_STATUS_NONE);
SAME_NUMBER(CU_MEMORYTYPE_HOST);
SAME_NUMBER(CU_MEMORYTYPE_DEVICE);
SAME_NUMBER(CU_STREAM_NON_BLOCKING);
SAME_NUMBER(CU_EVENT_BLOCKING_SYNC);
SAME_NUMBER(CU_EVENT_DISABLE_TIMING);
SAME_NUMBER(CU_MEMHOSTALLOC_PORTABLE);

#define TEXT(_x)  TEXT2(_x)
#define TEXT2(_x) #_x

/* cuda.h maps some names to newer functions of another name, which are the ones to look up. */
#define NAMED(_member, _name, _symbol, _params)                                                                        \
    if (strcmp(TEXT(_name), _symbol) != 0) {                                                                           \
        printf("cuda.h calls %s by the name %s, mem_cuda_api.h looks up %s\n", #_member, TEXT(_name), _symbol);        \
        good = false;                                                                                                  \
    }

int main(void)
{
    bool good = true;

    KVCL_CUDA_MAP(NAMED)
    printf("compared with cuda.h of CUDA %d.%d\n", CUDA_VERSION / 1000, (CUDA_VERSION % 1000) / 10);
    return good ? 0 : 1;
}
#endif
