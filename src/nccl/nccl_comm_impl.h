/*
 * The inside of an ncclComm (nccl_comm.h), for nccl_comm.c and nccl_run.c.
 */
#ifndef KVCL_NCCL_NCCL_COMM_IMPL_H
#define KVCL_NCCL_NCCL_COMM_IMPL_H

#include "device/cuda_device.h"
#include "nccl/nccl_api.h"
#include "nccl/nccl_comm.h"

struct kvcl_nccl {
    const kvcl_nccl_lib_t    *lib;
    const kvcl_cuda_device_t *device;
    ncclComm_t               comm;   /* NULL: not begun */
    CUstream                 stream;
};

/** KVCL_OK for success and what is in progress; else KVCL_ERR_IO, and the sentence names the call and the error. */
kvcl_status_t kvcl_nccl_status(const kvcl_nccl_lib_t *lib, ncclResult_t result, const char *call) KVCL_MUST_CHECK;

#endif
