/*
 * Messages of collectives (coll_wire.h): those that this rank sends, and those received for a collective under way.
 *
 * The content of a message is hostile until it has been compared with the plan; block ids are checked by the pull.
 * Engine lock throughout.
 */
#include "config.h"
#include "base/error.h"
#include "base/log.h"
#include "coll/coll_run.h"
#include "weave/pieces.h"

#include <stdlib.h>

enum { GATHER_BYTES = 8192, NEAR_MIN = 128 << 10 };

/* ---- out ---- */

kvcl_coll_peer_t *kvcl_coll_peer_at(kvcl_coll_op_t *op, uint32_t rank)
{
    uint32_t i = kvcl_plan_find_peer(&op->plan->plan, rank);

    return (i == KVCL_STEP_NONE) ? NULL : &op->peers[i];
}

kvcl_status_t kvcl_coll_ack(kvcl_coll_op_t *op, kvcl_coll_peer_t *to, uint32_t k)
{
    kvcl_msg_coll_t out = kvcl_coll_header(op->cc, op->seq, &op->called, KVCL_COLL_ACK);

    if ((k < KVCL_EXEC_ANNOUNCES) && (to->no_acks & (UINT32_C(1) << k))) {
        return KVCL_OK;
    }
    out.k = k;
    out.msg.flags |= (to->unmapped ? KVCL_COLL_UNMAPPED : 0) | (to->unread ? KVCL_COLL_UNREAD : 0);
    return kvcl_peer_post(to->peer, &out.msg, sizeof(out), NULL, 0);
}

/* The message carries the bytes: from the buffer in place, or gathered from a cache. */
static kvcl_status_t announce_eager(kvcl_coll_op_t *op, kvcl_coll_peer_t *to, kvcl_msg_coll_t *out)
{
    unsigned char small[GATHER_BYTES], *bytes = small;
    kvcl_status_t status;
    kvcl_stream_t stream;

    out->msg.flags |= KVCL_COLL_EAGER | (op->no_acks ? KVCL_COLL_NO_ACK : 0);
    op->req.ctx->stats.bytes_out += out->len;
    if (op->cache == NULL) {
        return kvcl_peer_post(to->peer, &out->msg, sizeof(*out), (const char *)op->in + out->off, out->len);
    }
    if (out->len > sizeof(small)) {
        bytes = malloc(out->len);
        if (bytes == NULL) {
            return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for %llu bytes", (unsigned long long)out->len);
        }
    }
    kvcl_coll_stream(op, &stream);
    kvcl_stream_seek(&stream, out->off);
    status = (kvcl_stream_gather(&stream, bytes, out->len) == out->len)
                 ? kvcl_peer_post(to->peer, &out->msg, sizeof(*out), bytes, out->len) : KVCL_ERR_IO;
    if (bytes != small) {
        free(bytes);
    }
    return status;
}

static kvcl_status_t open_offer(kvcl_coll_op_t *op)
{
    kvcl_status_t status = KVCL_OK;

    if (op->offer_state == KVCL_COLL_OFFER_NONE) {
        kvcl_coll_stream(op, &op->offer.stream);
        op->offer.plain = (op->cache == NULL) ? op->in : NULL;
        status = kvcl_offer_open(op->req.ctx, &op->offer);
        op->offer_state = (status == KVCL_OK) ? KVCL_COLL_OFFER_OPEN : KVCL_COLL_OFFER_NONE;
    }
    return status;
}

/* Copy the bytes to the stage, if there is room and the peer maps it. */
static bool stage_bytes(kvcl_coll_op_t *op, kvcl_coll_peer_t *to, const kvcl_exec_action_t *action,
                        kvcl_msg_coll_t *out)
{
    const void *bytes = (const char *)op->in + action->off;
    uint8_t    slot   = kvcl_coll_stage_write(op, to, action->step, bytes, action->off, action->len);

    if (slot == KVCL_COLL_STAGE_NO_SLOT) {
        return false;
    }
    out->msg.flags |= KVCL_COLL_STAGED;
    out->cache      = slot;
    out->revoked    = kvcl_coll_stage_count(&op->cc->stage);
    op->req.ctx->stats.bytes_out += action->len;
    return true;
}

/* The receiver reads them out of this rank's memory: one copy, and none here. */
static bool describe_bytes(kvcl_coll_op_t *op, const kvcl_coll_peer_t *to, const kvcl_exec_action_t *action,
                           kvcl_near_wire_t *at)
{
    const bool can = op->near && (action->len >= NEAR_MIN) && !op->cc->stage.peers[to->rank].unread &&
                     kvcl_near_describe(to->peer, (const char *)op->in + action->off, at);

    op->req.ctx->stats.bytes_out += can ? action->len : 0;
    return can;
}

static kvcl_status_t post_staged(kvcl_coll_op_t *op, kvcl_coll_peer_t *to, kvcl_msg_coll_t *out)
{
    const bool first = !to->notified;

    to->notified = true;
    return kvcl_peer_post(to->peer, &out->msg, sizeof(*out), first ? op->cc->stage.packed : NULL,
                          first ? sizeof(op->cc->stage.packed) : 0);
}

kvcl_status_t kvcl_coll_announce(kvcl_coll_op_t *op, kvcl_coll_peer_t *to, const kvcl_exec_action_t *action)
{
    kvcl_context_h   ctx = op->req.ctx;
    kvcl_msg_coll_t  out = kvcl_coll_header(op->cc, op->seq, &op->called, KVCL_COLL_ANNOUNCE);
    kvcl_near_wire_t at;
    kvcl_status_t    status;

    out.k           = action->k;
    out.signature   = action->signature;
    out.off         = action->off;
    out.len         = action->len;
    out.token       = op->token;
    out.n_blocks    = op->sel.n_blocks;
    out.block_bytes = op->block_bytes;
    out.revoked     = kvcl_revoked(ctx);
    if (action->len == 0) {
        return kvcl_peer_post(to->peer, &out.msg, sizeof(out), NULL, 0);
    }
    if (action->len <= ctx->config.eager) {
        return announce_eager(op, to, &out);
    }
    status = open_offer(op);
    if (status != KVCL_OK) {
        return status;
    }
    out.msg.op = op->offer.id;
    if (describe_bytes(op, to, action, &at)) {
        out.msg.flags |= KVCL_COLL_NEAR;
        return kvcl_peer_post(to->peer, &out.msg, sizeof(out), &at, sizeof(at));
    }
    if (op->staged && stage_bytes(op, to, action, &out)) {
        return post_staged(op, to, &out);
    }
    if ((op->cache == NULL) || to->notified || (ctx->config.path == KVCL_PATH_TCP) || (to->peer->maps == 0)) {
        return kvcl_peer_post(to->peer, &out.msg, sizeof(out), NULL, 0);
    }
    to->notified   = true;
    out.msg.flags |= KVCL_COLL_SOURCE;
    out.cache      = op->cache->id;
    out.layers[0]  = op->sel.layers.first;
    out.layers[1]  = op->sel.layers.end;
    out.heads[0]   = op->sel.heads.first;
    out.heads[1]   = op->sel.heads.end;
    return kvcl_peer_post(to->peer, &out.msg, sizeof(out), op->sel.blocks, op->sel.n_blocks * sizeof(uint32_t));
}

/* ---- in, for a collective that has begun ---- */

/* The same call; both give plain bytes, or both select the same number of blocks of the same shape. */
static kvcl_status_t check_same(kvcl_coll_op_t *op, const kvcl_msg_coll_t *in)
{
    kvcl_status_t status = kvcl_coll_check_call(op, in);
    const char    *what  = NULL;
    uint32_t      here, there;

    if (status != KVCL_OK) {
        return status;
    }
    if ((op->cache == NULL) != (in->block_bytes == 0)) {
        return KVCL_ERR_PROTOCOL;
    }
    if (op->cache == NULL) {
        return KVCL_OK;
    }
    if (in->n_blocks != op->sel.n_blocks) {
        return kvcl_fail(KVCL_ERR_BAD_LAYOUT, "rank %u selects %llu blocks, this rank %zu", in->rank,
                         (unsigned long long)in->n_blocks, op->sel.n_blocks);
    }
    if ((in->token.layers != 0) && (op->token.layers != 0)) {
        what = kvcl_token_differs(&in->token, &op->token, &there, &here);
    }
    if (what != NULL) {
        return kvcl_fail(KVCL_ERR_BAD_LAYOUT, "layouts do not match: %s is %u on rank %u, %u on this rank", what, there,
                         in->rank, here);
    }
    if (in->block_bytes != op->block_bytes) {
        return kvcl_fail(KVCL_ERR_BAD_LAYOUT, "layouts do not match: a block has %llu bytes on rank %u, %llu on this "
                         "rank", (unsigned long long)in->block_bytes, in->rank, (unsigned long long)op->block_bytes);
    }
    return KVCL_OK;
}

static kvcl_status_t take_source(kvcl_coll_peer_t *from, const kvcl_msg_coll_t *in, const void *data, size_t len)
{
    uint32_t *ids;

    if (from->described || (in->cache == 0) || (in->n_blocks == 0) || (len / sizeof(*ids) != in->n_blocks) ||
        (len % sizeof(*ids) != 0)) {
        return KVCL_ERR_PROTOCOL;
    }
    ids = malloc(len);
    if (ids == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for %llu block ids", (unsigned long long)in->n_blocks);
    }
    kvcl_copy_bytes(ids, data, len);
    from->sel = (kvcl_sel_t){.blocks = ids, .n_blocks = (size_t)in->n_blocks, .layers = {in->layers[0], in->layers[1]},
                             .heads = {in->heads[0], in->heads[1]}};
    from->cache     = in->cache;
    from->described = true;
    return KVCL_OK;
}

/* Where the bytes are, and len of them if they are in the message. */
static kvcl_status_t keep_chunk(kvcl_coll_peer_t *from, const kvcl_msg_coll_t *in, const void *data, size_t len)
{
    kvcl_coll_chunk_t *chunk = malloc(sizeof(*chunk) + len);

    if (chunk == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for %zu bytes", len);
    }
    chunk->k      = in->k;
    chunk->staged = (in->msg.flags & KVCL_COLL_STAGED) != 0;
    chunk->near   = (in->msg.flags & KVCL_COLL_NEAR) != 0;
    chunk->slot   = in->cache;
    chunk->count  = in->revoked;
    chunk->len    = len;
    kvcl_copy_bytes(chunk->bytes, data, len);
    kvcl_list_add_tail(&from->chunks, &chunk->link);
    return KVCL_OK;
}

/* An offer is there too: bytes that cannot be reached here are pulled from it. */
static kvcl_status_t take_staged(kvcl_coll_peer_t *from, const kvcl_msg_coll_t *in, const void *data, size_t len)
{
    kvcl_status_t status = KVCL_OK;

    if ((from->op->cache != NULL) || (in->msg.op == 0)) {
        return KVCL_ERR_PROTOCOL;
    }
    if (len > 0) {
        status = kvcl_coll_stage_describe(from->op->cc, from->rank, data, len);
    }
    return (status == KVCL_OK) ? keep_chunk(from, in, NULL, 0) : status;
}

static kvcl_status_t take_payload(kvcl_coll_peer_t *from, const kvcl_msg_coll_t *in, const void *data, size_t len)
{
    if (in->msg.op != 0) {
        from->offer   = in->msg.op;
        from->revoked = in->revoked;
    }
    if (in->msg.flags & KVCL_COLL_NEAR) {
        return ((from->op->cache != NULL) || (in->msg.op == 0) || (len != sizeof(kvcl_near_wire_t)))
                   ? KVCL_ERR_PROTOCOL : keep_chunk(from, in, data, len);
    }
    if (in->msg.flags & KVCL_COLL_STAGED) {
        return take_staged(from, in, data, len);
    }
    if (in->msg.flags & KVCL_COLL_SOURCE) {
        return take_source(from, in, data, len);
    }
    if (!(in->msg.flags & KVCL_COLL_EAGER)) {
        return (len == 0) ? KVCL_OK : KVCL_ERR_PROTOCOL;
    }
    if ((len != in->len) || (len == 0) || ((in->msg.flags & KVCL_COLL_NO_ACK) && (in->k >= KVCL_EXEC_ANNOUNCES))) {
        return KVCL_ERR_PROTOCOL;
    }
    if (in->msg.flags & KVCL_COLL_NO_ACK) {
        from->no_acks |= UINT32_C(1) << in->k;
        kvcl_exec_has_bytes(&from->op->exec, from->rank, in->k);
    }
    return keep_chunk(from, in, data, len);
}

static void on_announce(kvcl_coll_op_t *op, kvcl_coll_peer_t *from, kvcl_peer_t *peer, const kvcl_msg_coll_t *in,
                        const void *data, size_t len)
{
    bool          failed = (op->exec.status != KVCL_OK);
    kvcl_status_t status;

    if (kvcl_exec_was_announced(&op->exec, in->rank, in->k)) {
        kvcl_am_malformed(op->req.ctx, peer, "an announcement that came before");
        return;
    }
    status = check_same(op, in);
    if (status == KVCL_OK) {
        status = kvcl_exec_announced(&op->exec, in->rank, in->k, in->off, in->len, in->signature);
    }
    if ((status == KVCL_OK) && (from != NULL) && !failed) {
        status = take_payload(from, in, data, len);
    }
    if (status == KVCL_OK) {
        return;
    }
    if (status == KVCL_ERR_PROTOCOL) {
        kvcl_am_malformed(op->req.ctx, peer, "an announcement that matches no step");
    } else {
        kvcl_log_info("%s", kvcl_last_error());
        kvcl_req_keep_error(&op->req);
    }
    kvcl_exec_fail(&op->exec, status);
    if (from == NULL) { /* not in the local plan: the executor will not notify it */
        kvcl_coll_try_abort(op, peer, (op->exec.status != KVCL_OK) ? op->exec.status : status);
    }
}

static void on_ack(kvcl_coll_op_t *op, kvcl_peer_t *peer, const kvcl_msg_coll_t *in)
{
    const kvcl_plan_t *plan = &op->plan->plan;
    uint32_t          i;

    if (kvcl_exec_acked(&op->exec, in->rank, in->k) != KVCL_OK) {
        kvcl_am_malformed(op->req.ctx, peer, kvcl_last_error());
        return;
    }
    if (op->staged) {
        i = kvcl_plan_find_peer(plan, in->rank);
        kvcl_coll_stage_acked(op, plan->index[plan->peers[i].first_send + in->k]);
        op->cc->stage.peers[in->rank].refused |= (in->msg.flags & KVCL_COLL_UNMAPPED) != 0;
        op->cc->stage.peers[in->rank].unread  |= (in->msg.flags & KVCL_COLL_UNREAD) != 0;
    }
}

/* A peer that no longer knows the communicator, or not yet, names no rank. */
static kvcl_coll_peer_t *find_from(kvcl_coll_op_t *op, const kvcl_peer_t *peer, uint32_t rank)
{
    uint32_t i;

    if (rank != UINT32_MAX) {
        return kvcl_coll_peer_at(op, rank);
    }
    for (i = 0; i < op->plan->plan.npeers; ++i) {
        if (op->peers[i].peer == peer) {
            return &op->peers[i];
        }
    }
    return NULL;
}

void kvcl_coll_handle(kvcl_coll_op_t *op, kvcl_peer_t *peer, const kvcl_msg_coll_t *in, const void *data, size_t len)
{
    kvcl_coll_peer_t  *from = find_from(op, peer, in->rank);
    kvcl_comm_h       comm  = op->cc->comm;
    const kvcl_peer_t *known;
    kvcl_status_t     status;

    known = (from != NULL) ? from->peer
                           : ((comm != NULL) && (in->rank < (uint32_t)comm->size)) ? comm->peers[in->rank] : NULL;
    if ((known != NULL) && (known != peer)) {
        kvcl_am_malformed(op->req.ctx, peer, "a collective message in another rank's name");
        return;
    }
    switch (in->kind) {
    case KVCL_COLL_ANNOUNCE:
        on_announce(op, kvcl_coll_peer_at(op, in->rank), peer, in, data, len);
        break;
    case KVCL_COLL_ACK:
        on_ack(op, peer, in);
        break;
    case KVCL_COLL_ABORT:
        status = kvcl_coll_why_aborted(op, (from != NULL) ? from->rank : in->rank, in, data, len);
        if ((from == NULL) || (kvcl_exec_aborted(&op->exec, from->rank, status) != KVCL_OK)) {
            kvcl_exec_fail(&op->exec, status);
        }
        break;
    case KVCL_COLL_COMPARE:
        kvcl_coll_compared(op, peer, in);
        break;
    default:
        kvcl_am_malformed(op->req.ctx, peer, "an unknown kind of collective message");
        break;
    }
}
