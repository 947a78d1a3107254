/*
 * NCCL as a table of its functions, filled by dlopen("libnccl.so.2") when it is first asked for: the library links no
 * part of NCCL, and loads it only where it is used. nccl.h is included here alone.
 */
#ifndef KVCL_NCCL_NCCL_API_H
#define KVCL_NCCL_NCCL_API_H

#include "device/cuda_api.h"

#if KVCL_HAVE_NCCL_H
#include <nccl.h>
#else
#include "nccl/nccl_stub.h"
#endif

/* X(member, name in libnccl.so.2, parameters). All return ncclResult_t. */
#define KVCL_NCCL_MAP(X)                                                                                               \
    X(version, ncclGetVersion, (int *version))                                                                         \
    X(unique_id, ncclGetUniqueId, (ncclUniqueId * id))                                                                 \
    X(init, ncclCommInitRankConfig,                                                                                    \
      (ncclComm_t * comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config))                                  \
    X(abort, ncclCommAbort, (ncclComm_t comm))                                                                         \
    X(async_error, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t *error))                                      \
    X(group_start, ncclGroupStart, (void))                                                                             \
    X(group_end, ncclGroupEnd, (void))                                                                                 \
    X(send, ncclSend,                                                                                                  \
      (const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream))               \
    X(recv, ncclRecv, (void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream))       \
    X(broadcast, ncclBroadcast,                                                                                        \
      (const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm, CUstream stream))     \
    X(all_gather, ncclAllGather,                                                                                       \
      (const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm, CUstream stream))               \
    X(all_reduce, ncclAllReduce,                                                                                       \
      (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,                 \
       CUstream stream))                                                                                               \
    X(reduce_scatter, ncclReduceScatter,                                                                               \
      (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,                 \
       CUstream stream))

typedef struct kvcl_nccl_lib {
#define KVCL_NCCL_MEMBER(_member, _name, _params) ncclResult_t(*_member) _params;
    KVCL_NCCL_MAP(KVCL_NCCL_MEMBER)
#undef KVCL_NCCL_MEMBER
    const char *(*error_string)(ncclResult_t result);
    int        code; /* the version that is loaded: 22809 is 2.28.9 */
} kvcl_nccl_lib_t;

/**
 * The library; the first call loads it, which takes some 30 ms. Any thread.
 * @return NULL: there is none, or it is older than 2.14; the sentence says why.
 */
const kvcl_nccl_lib_t *kvcl_nccl_lib(void);

#endif
