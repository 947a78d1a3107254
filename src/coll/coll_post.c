/*
 * Posting a collective (coll_post.h): choose the algorithm, borrow the plan, resolve the plan's peers (which may query
 * boot, so no lock is held), copy this rank's own part, and launch the operation.
 *
 * A call that fails takes no number in its communicator; the other ranks' collective then ends by its deadline.
 */
#include "config.h"
#include "base/checksum.h"
#include "base/error.h"
#include "coll/coll_post.h"
#include "coll/coll_run.h"
#include "weave/pieces.h"

#include <stdlib.h>
#include <string.h>

/* The shape of a selected block, without strides; zero for opaque blocks, which match any of the same size. */
static kvcl_token_t token_of(const kvcl_shape_t *shape, const kvcl_sel_t *sel)
{
    kvcl_token_t token = kvcl_token_of(shape, sel);

    token.tokens = shape->tokens;
    return kvcl_shape_is_opaque(shape) ? (kvcl_token_t){0} : token;
}

static kvcl_status_t borrow_plan(kvcl_coll_call_t *call, kvcl_coll_comm_t **cc_p, kvcl_plan_entry_t **plan_p)
{
    kvcl_context_h         ctx   = call->comm->ctx;
    kvcl_coll_shape_t      shape = {.rank = (uint32_t)call->comm->rank, .size = (uint32_t)call->comm->size,
                                    .root = (uint32_t)call->root, .path = KVCL_COLL_PATH_NET, .len = call->len,
                                    .chunk = ctx->config.coll_chunk, .elem = call->elem,
                                    .reduction = call->reduction, .parts = call->parts};
    const kvcl_coll_alg_t *alg;
    kvcl_status_t         status;
    bool                  tried = false, whole = false;

    kvcl_lock(ctx);
    status = kvcl_coll_comm_get(call->comm, cc_p);
    if (status == KVCL_OK) {
        tried = (*cc_p)->stage.tried;
        whole = (*cc_p)->whole;
        ++(*cc_p)->posts;
    } else {
        *cc_p = NULL;
    }
    kvcl_unlock(ctx);
    if ((status == KVCL_OK) && !whole && (shape.size > 1)) {
        status = kvcl_coll_comm_whole(call->comm, *cc_p);
    }
    if ((status == KVCL_OK) && (shape.size > 1) &&
        ((call->cache != NULL) || (call->parts != NULL) || (call->len >= KVCL_COLL_STAGE_MIN))) {
        status = kvcl_coll_comm_path(call->comm, *cc_p, &shape.path);
    }
    if ((status == KVCL_OK) && (call->cache == NULL) && (shape.path == KVCL_COLL_PATH_SHM)) {
        shape.path  = KVCL_COLL_PATH_STAGE;
        shape.chunk = (shape.chunk < KVCL_COLL_STAGE_SLOT) ? shape.chunk : KVCL_COLL_STAGE_SLOT;
        if (!tried) {
            kvcl_coll_stage_make(call->comm, *cc_p);
        }
    }
    if (status == KVCL_OK) {
        kvcl_lock(ctx);
        alg    = kvcl_coll_select(&kvcl_coll_room(ctx)->table, call->kind, &shape);
        status = kvcl_plan_cache_get(&(*cc_p)->plans, alg, &shape, plan_p);
        kvcl_unlock(ctx);
    }
    return status;
}

/* Lock held. */
static void end_post(kvcl_context_h ctx, kvcl_coll_comm_t *cc)
{
    kvcl_assert_locked(ctx);
    --cc->posts;
    kvcl_coll_comm_release(ctx, cc);
}

/* plan NULL: none was borrowed. */
static void return_plan(kvcl_context_h ctx, kvcl_coll_comm_t *cc, kvcl_plan_entry_t *plan)
{
    kvcl_lock(ctx);
    if (plan != NULL) {
        kvcl_plan_cache_put(&cc->plans, plan);
    }
    end_post(ctx, cc);
    kvcl_unlock(ctx);
}

/* Lock held. The collectives are numbered anew since the call began: other ranks know nothing of the number that this
 * one would get. */
static kvcl_status_t check_epoch(const kvcl_coll_call_t *call, const kvcl_coll_comm_t *cc)
{
    kvcl_assert_locked(call->comm->ctx);
    return (cc->id == kvcl_comm_coll_id(call->comm))
               ? KVCL_OK
               : kvcl_fail(KVCL_ERR_RANK_FAILED, "a rank has joined the communicator, or the ranks have made different "
                           "calls, while a collective was posted: post it again");
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

static bool has_root(kvcl_coll_kind_t kind)
{
    return (kind == KVCL_COLL_BCAST) || (kind == KVCL_COLL_GATHER) || (kind == KVCL_COLL_SCATTER);
}

/* The caller's buffers, or one for the regions of the algorithm. */
static kvcl_status_t set_buffers(const kvcl_coll_call_t *call, kvcl_coll_op_t *op)
{
    kvcl_coll_shape_t shape = op->plan->shape;
    kvcl_coll_bytes_t bytes;
    kvcl_status_t     status;

    shape.parts = call->parts;
    status      = kvcl_coll_buffer_bytes(op->plan->alg, &shape, &bytes);
    if (status != KVCL_OK) {
        return status;
    }
    op->buf      = call->buf;
    op->in       = kvcl_coll_has_two_buffers(call->kind) ? call->in : call->buf;
    op->total    = bytes.recv;
    op->in_total = bytes.send;
    op->payload  = (call->parts != NULL)      ? kvcl_coll_parts_bytes(call->parts, call->comm->size)
                   : (bytes.recv > bytes.send) ? bytes.recv
                                               : bytes.send;
    op->reduce   = call->reduce;
    op->elem     = call->elem;
    if (op->plan->alg->regions != NULL) {
        op->work = malloc(bytes.recv);
        if (op->work == NULL) {
            return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for %llu bytes", call->name,
                             (unsigned long long)bytes.recv);
        }
        op->payload = call->len;
        op->result  = call->buf;
        op->buf     = op->work;
        op->in      = op->work;
    }
    return KVCL_OK;
}

static kvcl_status_t set_cache(const kvcl_coll_call_t *call, kvcl_coll_op_t *op)
{
    uint32_t *ids = malloc(call->sel->n_blocks * sizeof(*ids)); /* more than none: the plan has steps */

    if (ids == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for %zu block ids", call->name, call->sel->n_blocks);
    }
    memcpy(ids, call->sel->blocks, call->sel->n_blocks * sizeof(*ids));
    op->cache       = call->cache;
    op->sel         = *call->sel;
    op->sel.blocks  = ids;
    op->token       = token_of(&call->cache->shape, call->sel);
    op->block_bytes = kvcl_sel_block_bytes(&call->cache->shape, call->sel);
    return KVCL_OK;
}

/*
 * Do the senders of eager bytes await no ACK? No rank ends these before all have begun, so none runs ahead of another
 * by more than the operations in flight; with so few announcements to each peer, the other rank can keep all of them
 * (coll_early.c).
 */
static bool has_no_acks(const kvcl_coll_call_t *call, const kvcl_plan_t *plan)
{
    bool     can = (call->kind == KVCL_COLL_ALLREDUCE) || (call->kind == KVCL_COLL_ALLGATHER) ||
               (call->kind == KVCL_COLL_ALLTOALL);
    uint32_t i;

    for (i = 0; can && (i < plan->npeers); ++i) {
        can = (plan->peers[i].sends <= KVCL_EXEC_ANNOUNCES);
    }
    return can;
}

/* Are long pieces read by their receivers, out of this rank's memory? Each peer can, as far as is known, and only
 * copies them: what is reduced comes through the stage, which is in the caches. */
static bool reads_near(const kvcl_coll_call_t *call, const kvcl_coll_comm_t *cc, const kvcl_plan_t *plan)
{
    kvcl_near_wire_t at;
    bool             can = (call->reduce == NULL) && (call->cache == NULL);
    uint32_t         i;

    kvcl_lock(call->comm->ctx);
    for (i = 0; can && (i < plan->npeers); ++i) {
        can = (call->comm->peers[plan->peers[i].rank] != NULL) && !cc->stage.peers[plan->peers[i].rank].unread &&
              kvcl_near_describe(call->comm->peers[plan->peers[i].rank], NULL, &at);
    }
    kvcl_unlock(call->comm->ctx);
    return can;
}

/* One allocation: the operation, its peers, the executor's memory, the slots of the steps. */
static kvcl_status_t make(const kvcl_coll_call_t *call, kvcl_coll_comm_t *cc, kvcl_plan_entry_t *plan,
                          kvcl_coll_op_t **op_p)
{
    const size_t             peers = plan->plan.npeers * sizeof(kvcl_coll_peer_t);
    const size_t             exec  = kvcl_exec_bytes(&plan->plan);
    const bool               staged = (plan->shape.path == KVCL_COLL_PATH_STAGE) && (cc->stage.peers != NULL);
    const bool               near   = staged && reads_near(call, cc, &plan->plan);
    const kvcl_exec_limits_t limits = {.announces = (staged && !near) ? cc->stage.window : 0};
    kvcl_coll_op_t           *op = calloc(1, sizeof(*op) + peers + exec + (staged ? plan->plan.count : 0));
    kvcl_status_t            status;
    uint32_t       i;

    if (op == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory", call->name);
    }
    op->cc      = cc;
    op->call    = call->name;
    op->called  = kvcl_coll_called_of(call);
    op->root    = has_root(call->kind) ? (uint32_t)call->root : UINT32_MAX;
    op->to_root = (call->kind == KVCL_COLL_GATHER);
    op->plan    = plan;
    op->no_acks = has_no_acks(call, &plan->plan);
    op->peers   = (kvcl_coll_peer_t *)(op + 1);
    for (i = 0; i < plan->plan.npeers; ++i) {
        op->peers[i].op   = op;
        op->peers[i].rank = plan->plan.peers[i].rank;
        kvcl_list_init(&op->peers[i].chunks);
    }
    status = set_buffers(call, op);
    if ((status == KVCL_OK) && (call->cache != NULL)) {
        status = set_cache(call, op);
    }
    if (status != KVCL_OK) {
        kvcl_coll_discard(op);
        return status;
    }
    kvcl_exec_init(&op->exec, &plan->plan, (char *)(op + 1) + peers, &limits);
    if (staged) {
        op->staged  = true;
        op->near    = near;
        op->slot_of = (uint8_t *)(op + 1) + peers + exec;
        memset(op->slot_of, KVCL_COLL_STAGE_NO_SLOT, plan->plan.count);
    }
    *op_p = op;
    return KVCL_OK;
}

/* What this rank gives to itself. work: the buffer of the algorithm's regions, or NULL. */
static void place_my_part(const kvcl_coll_call_t *call, void *work)
{
    const uint64_t at      = (uint64_t)call->comm->rank * call->len;
    const bool     is_root = (call->comm->rank == call->root);
    char           *out    = call->buf;
    const char     *in     = call->in;
    uint64_t       len     = call->len;

    switch (call->kind) {
    case KVCL_COLL_ALLREDUCE:
        out = (work != NULL) ? work : out;
        break;
    case KVCL_COLL_ALLGATHER:
        out += at;
        break;
    case KVCL_COLL_REDUCE_SCATTER:
        in += at;
        break;
    case KVCL_COLL_ALLTOALL:
        out += at;
        in += at;
        break;
    case KVCL_COLL_ALLTOALLV:
        len = call->parts->send_lens[call->comm->rank];
        in  = (len > 0) ? (in + call->parts->send_offs[call->comm->rank]) : NULL;
        out = (len > 0) ? (out + call->parts->recv_offs[call->comm->rank]) : NULL;
        break;
    case KVCL_COLL_GATHER:
        out = is_root ? (out + at) : NULL;
        break;
    case KVCL_COLL_SCATTER:
        in  = is_root ? (in + at) : NULL;
        break;
    default:
        return;
    }
    if ((in != out) && (in != NULL) && (out != NULL)) {
        kvcl_copy_bytes(out, in, len);
    }
}

/* No steps: one rank, or no bytes. The collective still takes its number. Its callback, on another thread, may free the
 * communicator at once, so the plan is returned before. */
static kvcl_status_t finish_empty(const kvcl_coll_call_t *call, kvcl_coll_comm_t *cc, kvcl_plan_entry_t *plan,
                                  kvcl_req_h *req_p)
{
    const kvcl_coll_called_t called = kvcl_coll_called_of(call);
    kvcl_context_h           ctx    = call->comm->ctx;
    kvcl_status_t            status;

    place_my_part(call, NULL);
    kvcl_lock(ctx);
    status = check_epoch(call, cc);
    if (status == KVCL_OK) {
        cc->seqs = ++call->comm->coll_seq;
        kvcl_coll_keep_call(cc, cc->seqs - 1, &called);
        kvcl_coll_refuse(ctx, cc, cc->seqs - 1);
    }
    kvcl_plan_cache_put(&cc->plans, plan);
    end_post(ctx, cc);
    kvcl_unlock(ctx);
    return (status == KVCL_OK) ? kvcl_req_instant(ctx, KVCL_OK, call->len, &call->params, req_p) : status;
}

static kvcl_status_t launch(const kvcl_coll_call_t *call, kvcl_coll_op_t *op, kvcl_req_h *req_p)
{
    kvcl_context_h     ctx    = call->comm->ctx;
    kvcl_coll_comm_t   *cc    = op->cc;
    kvcl_xfer_params_t params = call->params;
    kvcl_status_t      status;
    uint32_t           i;

    params.timeout_ns = kvcl_coll_compare_ns(kvcl_timeout(ctx, params.timeout_ns));
    kvcl_lock(ctx);
    for (i = 0; i < op->plan->plan.npeers; ++i) {
        op->peers[i].peer = call->comm->peers[op->peers[i].rank];
    }
    status = check_epoch(call, cc);
    status = (status == KVCL_OK) ? kvcl_req_post(&op->req, ctx, &kvcl_coll_class, &params, req_p) : status;
    if (status == KVCL_OK) {
        op->req.timeout_ns = kvcl_timeout(ctx, call->params.timeout_ns);
        kvcl_req_bind(&op->req, call->comm->id);
        op->seq  = call->comm->coll_seq++;
        cc->seqs = call->comm->coll_seq;
        kvcl_coll_launch(op); /* op may be freed now */
        end_post(ctx, cc);
    }
    kvcl_unlock(ctx);
    return status;
}

kvcl_status_t kvcl_coll_post(kvcl_coll_call_t *call, kvcl_req_h *req_p)
{
    kvcl_plan_entry_t *plan = NULL;
    kvcl_coll_op_t    *op   = NULL;
    kvcl_coll_comm_t  *cc   = NULL;
    kvcl_status_t     status;

    if (call->sel != NULL) {
        call->len = kvcl_sel_bytes(&call->cache->shape, call->sel);
    }
    status = borrow_plan(call, &cc, &plan);
    if (status != KVCL_OK) {
        if (cc != NULL) {
            return_plan(call->comm->ctx, cc, plan);
        }
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
        place_my_part(call, op->work);
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
