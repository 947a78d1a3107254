/*
 * KVCL's declarations of NCCL's interface (nccl_stub.h) against nccl.h, where the build has it: every type and number
 * at compile time. Where libnccl.so.2 is found, at run time: it has the functions under the names of the table. A name
 * in the stub that is missing in the lists here clashes with nccl.h, and this file does not compile.
 */
#include "config.h"

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#if KVCL_HAVE_NCCL_H

/* The stub, under other names. */
#define ncclComm             our_ncclComm_tag
#define ncclComm_t           our_ncclComm_t
#define NCCL_UNIQUE_ID_BYTES our_NCCL_UNIQUE_ID_BYTES
#define ncclUniqueId         our_ncclUniqueId
#define ncclResult           our_ncclResult
#define ncclSuccess          our_ncclSuccess
#define ncclInvalidArgument  our_ncclInvalidArgument
#define ncclRemoteError      our_ncclRemoteError
#define ncclInProgress       our_ncclInProgress
#define ncclResult_t         our_ncclResult_t
#define ncclDataType         our_ncclDataType
#define ncclInt8             our_ncclInt8
#define ncclUint8            our_ncclUint8
#define ncclInt32            our_ncclInt32
#define ncclUint32           our_ncclUint32
#define ncclInt64            our_ncclInt64
#define ncclUint64           our_ncclUint64
#define ncclFloat16          our_ncclFloat16
#define ncclFloat32          our_ncclFloat32
#define ncclFloat64          our_ncclFloat64
#define ncclBfloat16         our_ncclBfloat16
#define ncclDataType_t       our_ncclDataType_t
#define ncclRedOp            our_ncclRedOp
#define ncclSum              our_ncclSum
#define ncclProd             our_ncclProd
#define ncclMax              our_ncclMax
#define ncclMin              our_ncclMin
#define ncclRedOp_t          our_ncclRedOp_t
#define ncclConfig           our_ncclConfig
#define ncclConfig_t         our_ncclConfig_t
#include "nccl/nccl_stub.h"
static const our_ncclConfig_t our_config = NCCL_CONFIG_INITIALIZER;
#undef NCCL_CONFIG_INITIALIZER
#undef ncclComm
#undef ncclComm_t
#undef NCCL_UNIQUE_ID_BYTES
#undef ncclUniqueId
#undef ncclResult
#undef ncclSuccess
#undef ncclInvalidArgument
#undef ncclRemoteError
#undef ncclInProgress
#undef ncclResult_t
#undef ncclDataType
#undef ncclInt8
#undef ncclUint8
#undef ncclInt32
#undef ncclUint32
#undef ncclInt64
#undef ncclUint64
#undef ncclFloat16
#undef ncclFloat32
#undef ncclFloat64
#undef ncclBfloat16
#undef ncclDataType_t
#undef ncclRedOp
#undef ncclSum
#undef ncclProd
#undef ncclMax
#undef ncclMin
#undef ncclRedOp_t
#undef ncclConfig
#undef ncclConfig_t

#include "nccl/nccl_api.h"

/* Passed and returned alike: pointers, a struct of bytes, enumerations of the same width. */
#define SAME_SIZE(_type) _Static_assert(sizeof(our_##_type) == sizeof(_type), #_type)
SAME_SIZE(ncclComm_t);
SAME_SIZE(ncclUniqueId);
SAME_SIZE(ncclResult_t);
SAME_SIZE(ncclDataType_t);
SAME_SIZE(ncclRedOp_t);
_Static_assert(_Alignof(our_ncclUniqueId) == _Alignof(ncclUniqueId), "ncclUniqueId");

#define SAME_NUMBER(_name) _Static_assert((long)our_##_name == (long)_name, #_name)
SAME_NUMBER(NCCL_UNIQUE_ID_BYTES);
SAME_NUMBER(ncclSuccess);
SAME_NUMBER(ncclInvalidArgument);
SAME_NUMBER(ncclRemoteError);
SAME_NUMBER(ncclInProgress);
SAME_NUMBER(ncclInt8);
SAME_NUMBER(ncclUint8);
SAME_NUMBER(ncclInt32);
SAME_NUMBER(ncclUint32);
SAME_NUMBER(ncclInt64);
SAME_NUMBER(ncclUint64);
SAME_NUMBER(ncclFloat16);
SAME_NUMBER(ncclFloat32);
SAME_NUMBER(ncclFloat64);
SAME_NUMBER(ncclBfloat16);
SAME_NUMBER(ncclSum);
SAME_NUMBER(ncclProd);
SAME_NUMBER(ncclMax);
SAME_NUMBER(ncclMin);

#define SAME_PLACE(_member)                                                                                            \
    _Static_assert(offsetof(our_ncclConfig_t, _member) == offsetof(ncclConfig_t, _member), #_member)
SAME_PLACE(size);
SAME_PLACE(magic);
SAME_PLACE(version);
SAME_PLACE(blocking);

static bool compare(void)
{
    const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;

    printf("compared with nccl.h of NCCL %d.%d.%d\n", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
    return (our_config.magic == theirs.magic) && (our_config.version <= theirs.version) &&
           (our_config.size <= theirs.size);
}

#else
#include "nccl/nccl_api.h"

static bool compare(void)
{
    puts("nothing compared: built against our own declarations (--with-nccl=PATH, contrib/ci/nccl-wheel)");
    return true;
}
#endif

int main(void)
{
    const bool            good = compare();
    const kvcl_nccl_lib_t *lib = kvcl_nccl_lib();

    if (!good) {
        puts("NCCL_CONFIG_INITIALIZER differs");
        return 1;
    }
    if (lib != NULL) {
        printf("NCCL %d has all functions of the table\n", lib->code);
        return (lib->code >= 21400) ? 0 : 1;
    }
    printf("SKIP: %s\n", kvcl_last_error());
    return KVCL_HAVE_NCCL_H ? 0 : 77;
}
