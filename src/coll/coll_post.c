/*
 * The public calls of collectives: they check their arguments, choose the algorithm, borrow the plan, resolve the
 * plan's peers (which may query boot, so no lock is held) and launch the operation.
 *
 * A call that fails takes no number in its communicator; the other ranks' collective then ends by its deadline.
 */
#include "config.h"
#include "base/checksum.h"
#include "base/error.h"
#include "coll/coll_run.h"
#include "handle/handle.h"
#include "xfer/params.h"
#include "weave/pieces.h"
#include <kvcl/kvcl_coll.h>

#include <stdlib.h>
#include <string.h>

enum { ALLGATHER_MAX = 64 * 1024 };

/* One call's arguments. */
typedef struct call {
    const char         *name;
    kvcl_call_id_t     call;
    kvcl_coll_kind_t   kind;
    kvcl_comm_h        comm;
    int                root;
    void               *buf;
    const void         *in;  /* allgather: this rank's part */
    kvcl_cache_h       cache;
    const kvcl_sel_t   *sel;
    uint64_t           len;  /* as kvcl_coll_shape_t.len */
    kvcl_xfer_params_t params;
} call_t;

static kvcl_status_t check(const call_t *call)
{
    kvcl_status_t status = kvcl_comm_check(call->comm, call->root, call->name);

    if (status != KVCL_OK) {
        return status;
    }
    if (call->comm->inter) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: collectives need an intra-communicator", call->name);
    }
    if ((call->sel != NULL) && (call->sel->tokens.end != 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: collectives transfer whole blocks: set sel.tokens to "
                         "{0, 0}", call->name);
    }
    if (call->sel != NULL) {
        return kvcl_xfer_local(call->comm->ctx, call->cache, call->sel, call->name);
    }
    if ((call->len > 0) && (call->buf == NULL)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: the buffer is NULL", call->name);
    }
    return KVCL_OK;
}

/* The shape of a selected block, without strides; zero for opaque blocks, which match any of the same size. */
static kvcl_token_t token_of(const kvcl_shape_t *shape, const kvcl_sel_t *sel)
{
    kvcl_token_t token = kvcl_token_of(shape, sel);

    token.tokens = shape->tokens;
    return kvcl_shape_is_opaque(shape) ? (kvcl_token_t){0} : token;
}

static kvcl_status_t borrow_plan(call_t *call, kvcl_coll_comm_t **cc_p, kvcl_plan_entry_t **plan_p)
{
    kvcl_context_h         ctx   = call->comm->ctx;
    kvcl_coll_shape_t      shape = {.rank = (uint32_t)call->comm->rank, .size = (uint32_t)call->comm->size,
                                    .root = (uint32_t)call->root, .path = KVCL_COLL_PATH_NET, .len = call->len,
                                    .chunk = ctx->config.coll_chunk};
    const kvcl_coll_alg_t *alg;
    kvcl_status_t         status;

    kvcl_lock(ctx);
    status = kvcl_coll_comm_get(call->comm, cc_p);
    kvcl_unlock(ctx);
    if ((status == KVCL_OK) && (call->cache != NULL)) { /* plain bytes travel in messages, on any path */
        status = kvcl_coll_comm_path(call->comm, *cc_p, &shape.path);
    }
    if (status == KVCL_OK) {
        kvcl_lock(ctx);
        alg    = kvcl_coll_select(&kvcl_coll_room(ctx)->table, call->kind, &shape);
        status = kvcl_plan_cache_get(&(*cc_p)->plans, alg, &shape, plan_p);
        kvcl_unlock(ctx);
    }
    return status;
}

static void return_plan(kvcl_context_h ctx, kvcl_coll_comm_t *cc, kvcl_plan_entry_t *plan)
{
    kvcl_lock(ctx);
    kvcl_plan_cache_put(&cc->plans, plan);
    kvcl_unlock(ctx);
}

/* Fill comm->peers[] for the plan's. */
static kvcl_status_t find_peers(kvcl_comm_h comm, const kvcl_plan_t *plan)
{
    kvcl_status_t status = KVCL_OK;
    kvcl_peer_t   *peer;
    uint32_t      i = 0;

    while ((status == KVCL_OK) && (i < plan->npeers)) {
        kvcl_lock(comm->ctx);
        while ((i < plan->npeers) && (comm->peers[plan->peers[i].rank] != NULL)) {
            ++i;
        }
        kvcl_unlock(comm->ctx);
        if (i < plan->npeers) {
            status = kvcl_comm_peer(comm, (int)plan->peers[i].rank, &peer);
        }
    }
    return status;
}

/* One allocation: the operation, its peers, the executor's memory. */
static kvcl_status_t make(const call_t *call, kvcl_coll_comm_t *cc, kvcl_plan_entry_t *plan, kvcl_coll_op_t **op_p)
{
    size_t         peers = plan->plan.npeers * sizeof(kvcl_coll_peer_t);
    kvcl_coll_op_t *op   = calloc(1, sizeof(*op) + peers + kvcl_exec_bytes(&plan->plan));
    uint32_t       i, *ids;

    if (op == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory", call->name);
    }
    op->cc    = cc;
    op->call  = call->name;
    op->root  = (call->kind == KVCL_COLL_BCAST) ? (uint32_t)call->root : UINT32_MAX;
    op->plan  = plan;
    op->peers = (kvcl_coll_peer_t *)(op + 1);
    op->buf   = call->buf;
    op->total = (call->kind == KVCL_COLL_ALLGATHER) ? call->len * (uint64_t)call->comm->size : call->len;
    for (i = 0; i < plan->plan.npeers; ++i) {
        op->peers[i].op   = op;
        op->peers[i].rank = plan->plan.peers[i].rank;
        kvcl_list_init(&op->peers[i].chunks);
    }
    if (call->cache != NULL) {
        ids = malloc(call->sel->n_blocks * sizeof(*ids)); /* more than none: the plan has steps */
        if (ids == NULL) {
            free(op);
            return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for %zu block ids", call->name, call->sel->n_blocks);
        }
        memcpy(ids, call->sel->blocks, call->sel->n_blocks * sizeof(*ids));
        op->cache       = call->cache;
        op->sel         = *call->sel;
        op->sel.blocks  = ids;
        op->token       = token_of(&call->cache->shape, call->sel);
        op->block_bytes = kvcl_sel_block_bytes(&call->cache->shape, call->sel);
    }
    kvcl_exec_init(&op->exec, &plan->plan, (char *)(op + 1) + peers, NULL);
    *op_p = op;
    return KVCL_OK;
}

static void place_my_part(const call_t *call)
{
    char *place = (char *)call->buf + ((uint64_t)call->comm->rank * call->len);

    if ((call->kind == KVCL_COLL_ALLGATHER) && (call->in != place)) {
        kvcl_copy_bytes(place, call->in, call->len);
    }
}

/* No steps: one rank, or no bytes. The collective still takes its number. Its callback, on another thread, may free the
 * communicator at once, so the plan is returned before. */
static kvcl_status_t finish_empty(const call_t *call, kvcl_coll_comm_t *cc, kvcl_plan_entry_t *plan, kvcl_req_h *req_p)
{
    kvcl_context_h ctx = call->comm->ctx;

    place_my_part(call);
    kvcl_lock(ctx);
    cc->seqs = ++call->comm->coll_seq;
    kvcl_plan_cache_put(&cc->plans, plan);
    kvcl_unlock(ctx);
    return kvcl_req_instant(ctx, KVCL_OK, call->params.cb, call->params.cb_arg, req_p);
}

static kvcl_status_t launch(const call_t *call, kvcl_coll_op_t *op, kvcl_req_h *req_p)
{
    kvcl_context_h ctx = call->comm->ctx;
    kvcl_status_t  status;
    uint32_t       i;

    kvcl_lock(ctx);
    for (i = 0; i < op->plan->plan.npeers; ++i) {
        op->peers[i].peer = call->comm->peers[op->peers[i].rank];
    }
    status = kvcl_req_start(&op->req, ctx, &kvcl_coll_class, call->params.timeout_ns, call->params.cb,
                            call->params.cb_arg, req_p != NULL);
    if (status == KVCL_OK) {
        place_my_part(call);
        op->seq      = call->comm->coll_seq++;
        op->cc->seqs = call->comm->coll_seq;
        if (req_p != NULL) {
            *req_p = kvcl_req_handle(&op->req);
        }
        kvcl_coll_launch(op); /* op may be freed now */
    }
    kvcl_unlock(ctx);
    return status;
}

static kvcl_status_t post(call_t *call, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_plan_entry_t *plan = NULL;
    kvcl_coll_op_t    *op   = NULL;
    kvcl_coll_comm_t  *cc;
    kvcl_status_t     status = kvcl_xfer_params(params, call->call, &call->params);

    if (status == KVCL_OK) {
        status = check(call);
    }
    if (status != KVCL_OK) {
        return status;
    }
    if (call->sel != NULL) {
        call->len = kvcl_sel_bytes(&call->cache->shape, call->sel);
    }
    status = borrow_plan(call, &cc, &plan);
    if (status != KVCL_OK) {
        return status;
    }
    if (plan->plan.count == 0) {
        return finish_empty(call, cc, plan, req_p);
    }
    status = find_peers(call->comm, &plan->plan);
    if (status == KVCL_OK) {
        status = make(call, cc, plan, &op);
    }
    if (status == KVCL_OK) {
        status = launch(call, op, req_p);
    }
    if (status != KVCL_OK) {
        if (op != NULL) {
            kvcl_coll_discard(op);
        }
        return_plan(call->comm->ctx, cc, plan);
    }
    return status;
}

kvcl_status_t kvcl_bcast(kvcl_comm_h comm, int root, kvcl_cache_h cache, const kvcl_sel_t *sel,
                         const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    call_t call = {.name = "kvcl_bcast", .call = KVCL_CALL_BCAST, .kind = KVCL_COLL_BCAST,
                   .comm = comm, .root = root, .cache = cache,
                   .sel = sel};

    kvcl_status_t status = kvcl_handle_check(cache, KVCL_KIND_CACHE, "kvcl_bcast");

    if (status != KVCL_OK) {
        return status;
    }
    if (sel == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_bcast: the selection is NULL");
    }
    return post(&call, params, req_p);
}

kvcl_status_t kvcl_bcast_bytes(kvcl_comm_h comm, int root, void *buf, size_t len, const kvcl_xfer_params_t *params,
                               kvcl_req_h *req_p)
{
    call_t call = {.name = "kvcl_bcast_bytes", .call = KVCL_CALL_BCAST_BYTES, .kind = KVCL_COLL_BCAST,
                   .comm = comm, .root = root, .buf = buf,
                   .len = len};

    return post(&call, params, req_p);
}

kvcl_status_t kvcl_barrier(kvcl_comm_h comm, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    call_t call = {.name = "kvcl_barrier", .call = KVCL_CALL_BARRIER, .kind = KVCL_COLL_BARRIER, .comm = comm};

    return post(&call, params, req_p);
}

kvcl_status_t kvcl_allgather(kvcl_comm_h comm, const void *in, size_t len, void *out, const kvcl_xfer_params_t *params,
                             kvcl_req_h *req_p)
{
    call_t call = {.name = "kvcl_allgather", .call = KVCL_CALL_ALLGATHER, .kind = KVCL_COLL_ALLGATHER,
                   .comm = comm, .buf = out, .in = in,
                   .len = len};

    if ((len > 0) && (in == NULL)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_allgather: in is NULL");
    }
    if (len > ALLGATHER_MAX) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_allgather: %zu bytes of each rank; at most %d", len,
                         ALLGATHER_MAX);
    }
    return post(&call, params, req_p);
}
