/*
 * The part of NCCL's interface that collectives on device memory need, for builds without nccl.h: types and numbers of
 * its stable binary interface only. test/unit/test_nccl_header.c compares every name with nccl.h where that exists.
 */
#ifndef KVCL_NCCL_NCCL_STUB_H
#define KVCL_NCCL_NCCL_STUB_H

#include <stddef.h>

typedef struct ncclComm *ncclComm_t;

enum { NCCL_UNIQUE_ID_BYTES = 128 };
typedef struct ncclUniqueId {
    char internal[128];
} ncclUniqueId;

typedef enum ncclResult {
    ncclSuccess         = 0,
    ncclInvalidArgument = 4,
    ncclRemoteError     = 6,
    ncclInProgress      = 7
} ncclResult_t;

typedef enum ncclDataType {
    ncclInt8     = 0,
    ncclUint8    = 1,
    ncclInt32    = 2,
    ncclUint32   = 3,
    ncclInt64    = 4,
    ncclUint64   = 5,
    ncclFloat16  = 6,
    ncclFloat32  = 7,
    ncclFloat64  = 8,
    ncclBfloat16 = 9
} ncclDataType_t;

typedef enum ncclRedOp {
    ncclSum  = 0,
    ncclProd = 1,
    ncclMax  = 2,
    ncclMin  = 3
} ncclRedOp_t;

/* As of NCCL 2.14, which the version says: a newer library takes its defaults for what was added later. */
typedef struct ncclConfig {
    size_t       size;
    unsigned int magic;
    unsigned int version;
    int          blocking;
} ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER {sizeof(ncclConfig_t), 0xcafebeef, 21400, 1}

#endif
