/*
 * KVCL's collectives as NCCL's (nccl_comm.h). Exchanges are groups of sends and receives; this rank's own part is a
 * copy in the same stream.
 */
#include "config.h"
#include "nccl/nccl_comm_impl.h"
#include "base/error.h"
#include <kvcl/kvcl_coll.h>

/* The words of kvcl_coll_shape_t.reduction: 1 + (dtype << 8) + operation. */
static bool type_of(uint32_t reduction, ncclDataType_t *type_p)
{
    static const struct {
        kvcl_dtype_t   ours;
        ncclDataType_t theirs;
    } types[] = {{KVCL_DTYPE_U8, ncclUint8}, {KVCL_DTYPE_I8, ncclInt8}, {KVCL_DTYPE_U32, ncclUint32},
                 {KVCL_DTYPE_I32, ncclInt32}, {KVCL_DTYPE_U64, ncclUint64}, {KVCL_DTYPE_I64, ncclInt64},
                 {KVCL_DTYPE_F16, ncclFloat16}, {KVCL_DTYPE_BF16, ncclBfloat16}, {KVCL_DTYPE_F32, ncclFloat32},
                 {KVCL_DTYPE_F64, ncclFloat64}};
    size_t i;

    for (i = 0; i < sizeof(types) / sizeof(types[0]); ++i) {
        if ((uint32_t)types[i].ours == (reduction - 1) >> 8) {
            *type_p = types[i].theirs;
            return true;
        }
    }
    return false;
}

static bool op_of(uint32_t reduction, ncclRedOp_t *op_p)
{
    switch ((reduction - 1) & 0xff) {
    case KVCL_REDUCE_SUM:
        *op_p = ncclSum;
        return true;
    case KVCL_REDUCE_PROD:
        *op_p = ncclProd;
        return true;
    case KVCL_REDUCE_MIN:
        *op_p = ncclMin;
        return true;
    case KVCL_REDUCE_MAX:
        *op_p = ncclMax;
        return true;
    default:
        return false;
    }
}

bool kvcl_nccl_has(kvcl_coll_kind_t kind, uint32_t reduction)
{
    ncclDataType_t type;
    ncclRedOp_t    op;

    if ((kind == KVCL_COLL_ALLREDUCE) || (kind == KVCL_COLL_REDUCE_SCATTER)) {
        return type_of(reduction, &type) && op_of(reduction, &op);
    }
    return kind != KVCL_COLL_BARRIER;
}

/* What this rank exchanges with another one in a call. */
typedef struct pair {
    const char *give;
    char       *take;
    uint64_t   give_len, take_len;
} pair_t;

static pair_t pair_with(const kvcl_nccl_call_t *call, uint32_t other)
{
    const char *in   = call->in;
    char       *out  = call->out;
    pair_t     pair  = {NULL, NULL, 0, 0};
    const bool to    = (other == call->root), from = (call->rank == call->root);

    switch (call->kind) {
    case KVCL_COLL_ALLTOALL:
        return (pair_t){in + other * call->len, out + other * call->len, call->len, call->len};
    case KVCL_COLL_ALLTOALLV:
        return (pair_t){in + call->parts->send_offs[other], out + call->parts->recv_offs[other],
                        call->parts->send_lens[other], call->parts->recv_lens[other]};
    case KVCL_COLL_GATHER:
        pair = (pair_t){in, from ? out + other * call->len : NULL, to ? call->len : 0, from ? call->len : 0};
        return pair;
    default: /* scatter */
        pair = (pair_t){from ? in + other * call->len : NULL, out, from ? call->len : 0, to ? call->len : 0};
        return pair;
    }
}

static ncclResult_t exchange(kvcl_nccl_t *nccl, const kvcl_nccl_call_t *call)
{
    ncclResult_t result = nccl->lib->group_start(), ended;
    uint32_t     i;

    for (i = 0; (i < call->size) && (result == ncclSuccess); ++i) {
        const pair_t pair = pair_with(call, i);

        if ((i != call->rank) && (pair.give_len > 0)) {
            result = nccl->lib->send(pair.give, pair.give_len, ncclUint8, (int)i, nccl->comm, nccl->stream);
        }
        if ((i != call->rank) && (pair.take_len > 0) && ((result == ncclSuccess) || (result == ncclInProgress))) {
            result = nccl->lib->recv(pair.take, pair.take_len, ncclUint8, (int)i, nccl->comm, nccl->stream);
        }
        result = (result == ncclInProgress) ? ncclSuccess : result;
    }
    ended = nccl->lib->group_end();
    return (result == ncclSuccess) ? ended : result;
}

static kvcl_status_t own_part(kvcl_nccl_t *nccl, const kvcl_nccl_call_t *call)
{
    const kvcl_cuda_driver_t *d   = nccl->device->driver;
    const pair_t             pair = pair_with(call, call->rank);

    if ((pair.give_len == 0) || (pair.give == pair.take)) {
        return KVCL_OK;
    }
    return kvcl_cuda_status(d, d->copy((uintptr_t)pair.take, (uintptr_t)pair.give, pair.give_len, nccl->stream),
                            "cuMemcpyAsync");
}

/* The context is current. */
static kvcl_status_t begin(kvcl_nccl_t *nccl, const kvcl_nccl_call_t *call)
{
    const kvcl_nccl_lib_t *lib   = nccl->lib;
    const uint64_t        count  = (call->elem > 0) ? call->len / call->elem : call->len;
    ncclDataType_t        type   = ncclUint8;
    ncclRedOp_t           op     = ncclSum;
    kvcl_status_t         status = KVCL_OK;

    switch (call->kind) {
    case KVCL_COLL_BCAST:
        return kvcl_nccl_status(lib, lib->broadcast(call->out, call->out, call->len, ncclUint8, (int)call->root,
                                                    nccl->comm, nccl->stream), "ncclBroadcast");
    case KVCL_COLL_ALLGATHER:
        return kvcl_nccl_status(lib, lib->all_gather(call->in, call->out, call->len, ncclUint8, nccl->comm,
                                                     nccl->stream), "ncclAllGather");
    case KVCL_COLL_ALLREDUCE:
    case KVCL_COLL_REDUCE_SCATTER:
        if (!type_of(call->reduction, &type) || !op_of(call->reduction, &op)) {
            return kvcl_fail(KVCL_ERR_UNSUPPORTED, "NCCL has no such reduction");
        }
        if (call->kind == KVCL_COLL_ALLREDUCE) {
            return kvcl_nccl_status(lib, lib->all_reduce(call->in, call->out, count, type, op, nccl->comm,
                                                         nccl->stream), "ncclAllReduce");
        }
        return kvcl_nccl_status(lib, lib->reduce_scatter(call->in, call->out, count, type, op, nccl->comm,
                                                         nccl->stream), "ncclReduceScatter");
    default:
        status = own_part(nccl, call);
        return (status == KVCL_OK) ? kvcl_nccl_status(lib, exchange(nccl, call), "ncclGroupEnd") : status;
    }
}

kvcl_status_t kvcl_nccl_run(kvcl_nccl_t *nccl, const kvcl_nccl_call_t *call)
{
    const kvcl_cuda_driver_t *d     = nccl->device->driver;
    kvcl_status_t            status = kvcl_cuda_status(d, d->ctx_push(nccl->device->ctx), "cuCtxPushCurrent");
    CUcontext                popped;

    if (status == KVCL_OK) {
        status = begin(nccl, call);
        (void)d->ctx_pop(&popped);
    }
    return status;
}
