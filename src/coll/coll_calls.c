/*
 * The public calls of collectives: each describes itself as a kvcl_coll_call_t, which is checked here and posted by
 * coll_post.c.
 *
 * A call that fails takes no number in its communicator; the other ranks' collective then ends by its deadline. It is
 * counted (refuse).
 */
#include "config.h"
#include "base/error.h"
#include "coll/coll_post.h"
#include "coll/coll_run.h"
#include "handle/handle.h"
#include "req/failures.h"
#include <kvcl/kvcl_coll.h>

#include <stdbool.h>
#include <stdlib.h>

/* ---- checks ---- */

static kvcl_status_t check_sel(const kvcl_coll_call_t *call)
{
    if (call->sel->tokens.end != 0) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: collectives transfer whole blocks: set sel.tokens to "
                         "{0, 0}", call->name);
    }
    return kvcl_xfer_local(call->comm->ctx, call->cache, call->sel, call->name);
}

/* One of the two buffers of a call. */
typedef struct side {
    const char *name;
    uintptr_t  at;
    uint64_t   bytes; /* 0: not looked at */
} side_t;

static kvcl_status_t check_side(const kvcl_coll_call_t *call, const side_t *side)
{
    if ((side->bytes > 0) && (side->at == 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %s is NULL", call->name, side->name);
    }
    if ((side->bytes > 0) && (call->elem > 1) && (side->at % call->elem != 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %s is not aligned to its elements of %u bytes", call->name,
                         side->name, call->elem);
    }
    return KVCL_OK;
}

/* all: bytes of all ranks. */
static void sides_of(const kvcl_coll_call_t *call, uint64_t all, side_t *in, side_t *out)
{
    const bool is_root = (call->comm->rank == call->root);

    *in  = (side_t){"in", (uintptr_t)call->in, call->len};
    *out = (side_t){"out", (uintptr_t)call->buf, call->len};
    switch (call->kind) {
    case KVCL_COLL_ALLGATHER:
        out->bytes = all;
        break;
    case KVCL_COLL_REDUCE_SCATTER:
        in->bytes = all;
        break;
    case KVCL_COLL_ALLTOALL:
        in->bytes  = all;
        out->bytes = all;
        break;
    case KVCL_COLL_GATHER:
        out->bytes = is_root ? all : 0;
        break;
    case KVCL_COLL_SCATTER:
        in->bytes = is_root ? all : 0;
        break;
    default:
        break;
    }
}

/* The two buffers share no byte, but for this rank's part, which may be in its place in the larger one. */
static kvcl_status_t check_apart(const kvcl_coll_call_t *call, const side_t *in, const side_t *out)
{
    const uint64_t at = (uint64_t)call->comm->rank * call->len;
    bool           may;

    if ((in->bytes == 0) || (out->bytes == 0) || (in->at + in->bytes <= out->at) || (out->at + out->bytes <= in->at)) {
        return KVCL_OK;
    }
    switch (call->kind) {
    case KVCL_COLL_ALLREDUCE:
        may = (in->at == out->at);
        break;
    case KVCL_COLL_ALLGATHER:
    case KVCL_COLL_GATHER:
        may = (in->at == out->at + at);
        break;
    case KVCL_COLL_REDUCE_SCATTER:
    case KVCL_COLL_SCATTER:
        may = (out->at == in->at + at);
        break;
    default:
        may = false;
        break;
    }
    if (may) {
        return KVCL_OK;
    }
    return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: in and out overlap: give it two buffers%s", call->name,
                     (call->kind == KVCL_COLL_ALLTOALL)    ? ""
                     : (call->kind == KVCL_COLL_ALLREDUCE) ? ", or the same one twice"
                                                           : ", or this rank's part in its place");
}

void kvcl_coll_spans(const kvcl_coll_call_t *call, kvcl_coll_span_t *in, kvcl_coll_span_t *out)
{
    const int n = call->comm->size;
    side_t    from, to;

    if (call->kind == KVCL_COLL_ALLTOALLV) {
        *in  = kvcl_coll_parts_span(call->parts->send_lens, call->parts->send_offs, n);
        *out = kvcl_coll_parts_span(call->parts->recv_lens, call->parts->recv_offs, n);
        return;
    }
    sides_of(call, (uint64_t)n * call->len, &from, &to);
    *in  = (kvcl_coll_span_t){0, from.bytes};
    *out = (kvcl_coll_span_t){0, to.bytes};
}

static kvcl_status_t check_buffers(const kvcl_coll_call_t *call)
{
    kvcl_status_t status;
    side_t        in, out;
    uint64_t      all;

    if (call->kind == KVCL_COLL_ALLTOALLV) {
        return KVCL_OK; /* start_alltoallv has */
    }
    if (call->kind == KVCL_COLL_BCAST) {
        return ((call->len > 0) && (call->buf == NULL))
                   ? kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: the buffer is NULL", call->name) : KVCL_OK;
    }
    if (__builtin_mul_overflow((uint64_t)call->comm->size, call->len, &all)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %llu bytes for each of %d ranks are more than 2^64 bytes",
                         call->name, (unsigned long long)call->len, call->comm->size);
    }
    sides_of(call, all, &in, &out);
    status = check_side(call, &in);
    if (status == KVCL_OK) {
        status = check_side(call, &out);
    }
    return (status == KVCL_OK) ? check_apart(call, &in, &out) : status;
}

/* A call that fails at once has no place in the order of the communicator's calls: this rank cannot compare its own
 * with others' until they agree again (member/recover_order.c). */
static kvcl_status_t refuse(kvcl_status_t status)
{
    kvcl_req_count_failure();
    return status;
}

static kvcl_status_t start(kvcl_coll_call_t *call, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_status_t status = kvcl_xfer_params(params, call->call, &call->params);

    if (status == KVCL_OK) {
        status = kvcl_comm_check_op(call->comm, call->root, call->name);
    }
    if ((status == KVCL_OK) && call->comm->inter) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: collectives need an intra-communicator", call->name);
    }
    if (status == KVCL_OK) {
        status = (call->sel != NULL) ? check_sel(call) : check_buffers(call);
    }
    if ((status == KVCL_OK) && ((call->params.flags & KVCL_ON_DEVICE) || (call->params.stream != NULL))) {
        status = kvcl_coll_room(call->comm->ctx)->on_device(call, req_p);
    } else if (status == KVCL_OK) {
        status = kvcl_coll_post(call, req_p);
    }
    return (status == KVCL_OK) ? KVCL_OK : refuse(status);
}

/* The same for a call that reduces count elements. */
static kvcl_status_t start_reduction(kvcl_coll_call_t *call, size_t count, kvcl_dtype_t dtype, kvcl_reduce_t op,
                                     const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    call->elem   = kvcl_dtype_bytes(dtype);
    call->reduce = kvcl_reduce_find(kvcl_reduce_best_set(), dtype, op);
    if (call->elem == 0) {
        return refuse(kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %d is no type of kvcl_dtype_t", call->name, (int)dtype));
    }
    if (call->reduce == NULL) {
        return refuse(kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: operation %d (%s) does not reduce %s", call->name,
                                (int)op, kvcl_reduce_name(op), kvcl_dtype_name(dtype)));
    }
    if (__builtin_mul_overflow((uint64_t)count, call->elem, &call->len)) {
        return refuse(kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %zu elements of %u bytes are more than 2^64 bytes",
                                call->name, count, call->elem));
    }
    call->reduction = 1 + ((uint32_t)dtype << 8) + (uint32_t)op;
    return start(call, params, req_p);
}

/* ---- parts of several lengths ---- */

static kvcl_status_t start_alltoallv(kvcl_coll_call_t *call, kvcl_coll_parts_t *parts,
                                     const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    const size_t     size   = (size_t)call->comm->size;
    uint64_t         *offs  = calloc(2 * size, sizeof(*offs));
    kvcl_coll_span_t *spans = calloc(2 * size, sizeof(*spans));
    kvcl_status_t    status = KVCL_OK;

    if ((offs == NULL) || (spans == NULL)) {
        status = kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory", call->name);
    }
    if ((status == KVCL_OK) && (parts->send_offs == NULL)) {
        parts->send_offs = offs;
        status           = kvcl_coll_parts_place(call, "in", parts->send_lens, offs);
    }
    if ((status == KVCL_OK) && (parts->recv_offs == NULL)) {
        parts->recv_offs = offs + size;
        status           = kvcl_coll_parts_place(call, "out", parts->recv_lens, offs + size);
    }
    if (status == KVCL_OK) {
        status = kvcl_coll_parts_check(call, spans);
    }
    status = (status == KVCL_OK) ? start(call, params, req_p) : refuse(status);
    free(offs);
    free(spans);
    return status;
}

/* ---- the calls ---- */

kvcl_status_t kvcl_bcast(kvcl_comm_h comm, int root, kvcl_cache_h cache, const kvcl_sel_t *sel,
                         const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_coll_call_t call = {.name = "kvcl_bcast", .call = KVCL_CALL_BCAST, .kind = KVCL_COLL_BCAST, .comm = comm,
                             .root = root, .cache = cache, .sel = sel};
    kvcl_status_t    status = kvcl_handle_check(cache, KVCL_KIND_CACHE, "kvcl_bcast");

    if (status != KVCL_OK) {
        return refuse(status);
    }
    if (sel == NULL) {
        return refuse(kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_bcast: the selection is NULL"));
    }
    return start(&call, params, req_p);
}

kvcl_status_t kvcl_bcast_bytes(kvcl_comm_h comm, int root, void *buf, size_t len, const kvcl_xfer_params_t *params,
                               kvcl_req_h *req_p)
{
    kvcl_coll_call_t call = {.name = "kvcl_bcast_bytes", .call = KVCL_CALL_BCAST_BYTES, .kind = KVCL_COLL_BCAST,
                             .comm = comm, .root = root, .buf = buf, .len = len};

    return start(&call, params, req_p);
}

kvcl_status_t kvcl_barrier(kvcl_comm_h comm, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_coll_call_t call = {.name = "kvcl_barrier", .call = KVCL_CALL_BARRIER, .kind = KVCL_COLL_BARRIER,
                             .comm = comm};

    return start(&call, params, req_p);
}

kvcl_status_t kvcl_allgather(kvcl_comm_h comm, const void *in, size_t len, void *out, const kvcl_xfer_params_t *params,
                             kvcl_req_h *req_p)
{
    kvcl_coll_call_t call = {.name = "kvcl_allgather", .call = KVCL_CALL_ALLGATHER, .kind = KVCL_COLL_ALLGATHER,
                             .comm = comm, .buf = out, .in = in, .len = len};

    return start(&call, params, req_p);
}

kvcl_status_t kvcl_allreduce(kvcl_comm_h comm, const void *in, void *out, size_t count, kvcl_dtype_t dtype,
                             kvcl_reduce_t op, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_coll_call_t call = {.name = "kvcl_allreduce", .call = KVCL_CALL_ALLREDUCE, .kind = KVCL_COLL_ALLREDUCE,
                             .comm = comm, .buf = out, .in = in};

    return start_reduction(&call, count, dtype, op, params, req_p);
}

kvcl_status_t kvcl_reduce_scatter(kvcl_comm_h comm, const void *in, void *out, size_t count, kvcl_dtype_t dtype,
                                  kvcl_reduce_t op, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_coll_call_t call = {.name = "kvcl_reduce_scatter", .call = KVCL_CALL_REDUCE_SCATTER,
                             .kind = KVCL_COLL_REDUCE_SCATTER, .comm = comm, .buf = out, .in = in};

    return start_reduction(&call, count, dtype, op, params, req_p);
}

kvcl_status_t kvcl_alltoall(kvcl_comm_h comm, const void *in, size_t len, void *out, const kvcl_xfer_params_t *params,
                            kvcl_req_h *req_p)
{
    kvcl_coll_call_t call = {.name = "kvcl_alltoall", .call = KVCL_CALL_ALLTOALL, .kind = KVCL_COLL_ALLTOALL,
                             .comm = comm, .buf = out, .in = in, .len = len};

    return start(&call, params, req_p);
}

kvcl_status_t kvcl_alltoallv(kvcl_comm_h comm, const void *in, const uint64_t *in_lens, const uint64_t *in_offs,
                             void *out, const uint64_t *out_lens, const uint64_t *out_offs,
                             const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_coll_parts_t parts = {.send_lens = in_lens, .send_offs = in_offs, .recv_lens = out_lens,
                               .recv_offs = out_offs};
    kvcl_coll_call_t  call  = {.name = "kvcl_alltoallv", .call = KVCL_CALL_ALLTOALLV, .kind = KVCL_COLL_ALLTOALLV,
                               .comm = comm, .buf = out, .in = in, .parts = &parts};
    kvcl_status_t     status = kvcl_comm_check(comm, 0, "kvcl_alltoallv");

    if (status != KVCL_OK) {
        return status;
    }
    if ((in_lens == NULL) || (out_lens == NULL)) {
        return refuse(kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_alltoallv: %s is NULL: it needs one length for each "
                                "rank", (in_lens == NULL) ? "in_lens" : "out_lens"));
    }
    return start_alltoallv(&call, &parts, params, req_p);
}

kvcl_status_t kvcl_gather(kvcl_comm_h comm, int root, const void *in, size_t len, void *out,
                          const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_coll_call_t call = {.name = "kvcl_gather", .call = KVCL_CALL_GATHER, .kind = KVCL_COLL_GATHER, .comm = comm,
                             .root = root, .buf = out, .in = in, .len = len};

    return start(&call, params, req_p);
}

kvcl_status_t kvcl_scatter(kvcl_comm_h comm, int root, const void *in, size_t len, void *out,
                           const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_coll_call_t call = {.name = "kvcl_scatter", .call = KVCL_CALL_SCATTER, .kind = KVCL_COLL_SCATTER,
                             .comm = comm, .root = root, .buf = out, .in = in, .len = len};

    return start(&call, params, req_p);
}
