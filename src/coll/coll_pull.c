/*
 * The bytes of collectives (coll_run.h): pulls from a peer, eager bytes of its announcements, slots of its stage, and
 * reads of its memory.
 *
 * A copy from a peer's mapped memory is valid only if the peer revoked nothing meanwhile (pull.h, guarded): a peer that
 * aborted may have reused its buffer, and its ABORT may be queued behind other messages. If it revoked, its offer is
 * pulled instead, and the peer refuses that if this collective was aborted. Then the transports are polled once more
 * (the landed list), so that an ABORT that has arrived is usually handled before the bytes are passed on.
 *
 * Engine lock throughout.
 */
#include "config.h"
#include "base/error.h"
#include "base/log.h"
#include "coll/coll_run.h"
#include "weave/pieces.h"
#include "kv/flat.h"
#include "xfer/xfer.h"

#include <stdlib.h>
#include <string.h>

enum { DRAIN_MAX = 64 };

void kvcl_coll_stream(const kvcl_coll_op_t *op, kvcl_stream_t *stream)
{
    kvcl_side_t side;

    if (op->cache == NULL) {
        kvcl_stream_flat(stream, op->in, op->in_total);
        return;
    }
    side = kvcl_cache_side(op->cache, &op->sel);
    kvcl_stream_init(stream, &side, KVCL_STREAM_CANONICAL);
}

/* Bytes of a plain buffer are here: put them in their place, or reduce them. The lower rank's are the first operand. */
static void take_bytes(kvcl_coll_op_t *op, uint32_t from, const kvcl_exec_action_t *action, const void *bytes)
{
    char       *to = (char *)op->buf + action->off;
    const char *with;

    if (action->with == KVCL_PLAN_COPY) {
        kvcl_copy_bytes(to, bytes, action->len);
        return;
    }
    with = (const char *)op->buf + action->with;
    if (from < op->cc->rank) {
        op->reduce(to, bytes, with, action->len / op->elem);
    } else {
        op->reduce(to, with, bytes, action->len / op->elem);
    }
}

/* Report the step to the executor. */
static void pulled(kvcl_coll_op_t *op, uint32_t step, kvcl_status_t status)
{
    const kvcl_step_t *at = &op->plan->plan.steps[step];

    kvcl_coll_stage_changed(op, at->off, at->len);
    if (kvcl_exec_pulled(&op->exec, step, status) != KVCL_OK) {
        kvcl_log_error("a collective's executor does not know a pulled step: %s", kvcl_last_error());
    }
}

/* Copied past the peer: reported by kvcl_coll_poll(). */
static void land(kvcl_coll_pull_t *pull)
{
    kvcl_coll_op_t *op = pull->op;

    pull->state = KVCL_COLL_PULL_LANDED;
    if (kvcl_list_is_empty(&op->landed_link)) {
        kvcl_list_add_tail(&kvcl_coll_room(op->req.ctx)->landed, &op->landed_link);
    }
    kvcl_engine_kick(op->req.ctx);
}

static void pull_done(kvcl_pull_t *child, kvcl_status_t status)
{
    kvcl_coll_pull_t *pull  = child->arg;
    kvcl_coll_op_t   *op    = pull->op;
    bool             mapped = (child->rcache != NULL) && child->rcache->mapped;

    pull->pull = NULL;
    if ((status == KVCL_OK) && mapped && !op->failing) {
        land(pull);
        return;
    }
    pull->state = KVCL_COLL_PULL_FREE;
    if (status < 0) {
        kvcl_req_take_why(&op->req, &child->req);
    } else if ((pull->action.with != KVCL_PLAN_COPY) && !op->failing) {
        take_bytes(op, pull->action.peer, &pull->action, pull->operand);
    }
    pulled(op, pull->step, status);
    op->advance(op);
}

/* Where a pull puts plain bytes: in their place, or where they are reduced from. NULL: no memory. */
static char *place_of(kvcl_coll_pull_t *pull, const kvcl_exec_action_t *action)
{
    if (action->with == KVCL_PLAN_COPY) {
        return (char *)pull->op->buf + action->off;
    }
    if (pull->operand_bytes < action->len) {
        free(pull->operand);
        pull->operand       = malloc(action->len);
        pull->operand_bytes = (pull->operand != NULL) ? action->len : 0;
    }
    return pull->operand;
}

static kvcl_status_t fill_pull(const kvcl_coll_peer_t *from, kvcl_coll_pull_t *pull, kvcl_pull_t *child,
                               const kvcl_exec_action_t *action)
{
    const kvcl_coll_op_t *op    = pull->op;
    char                 *place = (op->cache == NULL) ? place_of(pull, action) : NULL;
    kvcl_status_t        status = KVCL_OK;

    if ((op->cache == NULL) && (place == NULL)) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for %llu bytes to reduce", (unsigned long long)action->len);
    }
    child->peer       = from->peer;
    child->from       = KVCL_FROM_OFFER;
    child->offer      = from->offer;
    child->ranged     = true;
    child->range_from = action->peer_off;
    child->total      = action->len;
    child->buf        = (void *)((uintptr_t)place - action->peer_off); /* of a stream from 0 only the end is used */
    child->on_done    = pull_done;
    if (op->cache != NULL) {
        status = kvcl_pull_set_local(child, op->cache, &op->sel);
        if ((status == KVCL_OK) && from->described) {
            child->from     = KVCL_FROM_CACHE;
            child->guarded  = true;
            child->revoked  = from->revoked;
            child->cache_id = from->cache;
            status          = kvcl_pull_set_remote(child, &from->sel);
        }
    }
    return status;
}

/* The executor has at most as many pulls in flight as there are entries. */
static kvcl_coll_pull_t *free_pull(kvcl_coll_op_t *op)
{
    kvcl_coll_pull_t *pull = op->pulls;

    while (pull->state != KVCL_COLL_PULL_FREE) {
        ++pull;
    }
    return pull;
}

static kvcl_status_t start_pull(kvcl_coll_op_t *op, const kvcl_coll_peer_t *from, const kvcl_exec_action_t *action)
{
    kvcl_coll_pull_t *pull  = free_pull(op);
    kvcl_pull_t      *child = kvcl_pull_new();
    kvcl_status_t    status;

    if (child == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a transfer");
    }
    status = fill_pull(from, pull, child, action);
    if (status == KVCL_OK) {
        pull->state = KVCL_COLL_PULL_ACTIVE;
        pull->step  = action->step;
        pull->action = *action;
        pull->pull  = child;
        child->arg  = pull;
        /* No deadline of its own: the collective's stops it. */
        status = kvcl_pull_start(op->req.ctx, child, UINT64_MAX);
    }
    if (status != KVCL_OK) {
        pull->state = KVCL_COLL_PULL_FREE;
        kvcl_pull_discard(child);
    }
    return status;
}

/* Bytes that arrived with their announcement are only copied into the buffer. */
static kvcl_status_t take_eager(kvcl_coll_op_t *op, const kvcl_coll_peer_t *from, const kvcl_exec_action_t *action,
                                const kvcl_coll_chunk_t *chunk)
{
    kvcl_stream_t stream;

    if (op->cache == NULL) {
        take_bytes(op, from->rank, action, chunk->bytes);
        return KVCL_OK;
    }
    kvcl_coll_stream(op, &stream);
    kvcl_stream_seek(&stream, action->off);
    return (kvcl_stream_scatter(&stream, chunk->bytes, chunk->len) == chunk->len) ? KVCL_OK : KVCL_ERR_IO;
}

/* The peer's operation failed while its bytes were read. Its ABORT is under way: the step stays open until that, or the
 * end of the peer or the deadline, fails this operation. */
static kvcl_status_t await_abort(kvcl_coll_op_t *op, const kvcl_exec_action_t *action)
{
    kvcl_coll_pull_t *pull = free_pull(op);

    pull->state = KVCL_COLL_PULL_VOID;
    pull->step  = action->step;
    return KVCL_INPROGRESS;
}

/* KVCL_ERR_UNREACHABLE: not mapped here. */
static kvcl_status_t take_slot(kvcl_coll_op_t *op, kvcl_coll_peer_t *from, const kvcl_exec_action_t *action,
                               const kvcl_coll_chunk_t *chunk)
{
    const void *bytes = kvcl_coll_stage_read(op->cc, from->rank, chunk->slot, action->len);

    from->unmapped = (bytes == NULL);
    if (bytes == NULL) {
        return KVCL_ERR_UNREACHABLE;
    }
    take_bytes(op, from->rank, action, bytes);
    op->req.ctx->stats.bytes_in += action->len;
    return kvcl_coll_stage_is_valid(op->cc, from->rank, chunk->count) ? KVCL_OK : await_abort(op, action);
}

/* Where the peer has revoked bytes meanwhile, has absent pages, or may not be read, its offer is pulled. */
static void near_done(kvcl_near_read_t *near, kvcl_status_t status)
{
    kvcl_coll_pull_t *pull = kvcl_container_of(near, kvcl_coll_pull_t, near);
    kvcl_coll_op_t   *op   = pull->op;
    kvcl_coll_peer_t *from = kvcl_coll_peer_at(op, pull->action.peer);

    if ((status == KVCL_OK) && (pull->stopped == KVCL_OK)) {
        op->req.ctx->stats.bytes_in     += pull->action.len;
        op->req.ctx->stats.bytes_native += pull->action.len;
        land(pull);
        return;
    }
    pull->state = KVCL_COLL_PULL_FREE;
    if (pull->stopped != KVCL_OK) {
        status = pull->stopped;
    } else if (status == KVCL_ERR_INVALID_PARAM) {
        kvcl_req_why(&op->req, "the receive buffer is not writable memory: keep it mapped and writable until the end");
        status = KVCL_ERR_ACCESS;
    } else {
        from->unread = from->unread || ((status != KVCL_ERR_STALE) && (status != KVCL_ERR_BUSY));
        status       = start_pull(op, from, &pull->action);
    }
    if (status != KVCL_OK) {
        pulled(op, pull->step, status);
        op->advance(op);
    }
}

/* KVCL_ERR_UNREACHABLE: not this way. */
static kvcl_status_t start_near(kvcl_coll_op_t *op, kvcl_coll_peer_t *from, const kvcl_exec_action_t *action,
                                const kvcl_coll_chunk_t *chunk)
{
    kvcl_coll_pull_t *pull = free_pull(op);
    kvcl_near_wire_t at;

    memcpy(&at, chunk->bytes, sizeof(at));
    pull->near.done = near_done;
    from->unread    = from->unread || (action->with != KVCL_PLAN_COPY) ||
                      !kvcl_rma_table_native(&kvcl_xfer_state(op->req.ctx)->rma_table, "cma", action->len, 1) ||
                      (kvcl_near_start(&pull->near, from->peer, &at, 0, (char *)op->buf + action->off,
                                       (size_t)action->len) != KVCL_OK);
    if (from->unread) {
        return KVCL_ERR_UNREACHABLE;
    }
    pull->state   = KVCL_COLL_PULL_ACTIVE;
    pull->step    = action->step;
    pull->action  = *action;
    pull->stopped = KVCL_OK;
    return KVCL_INPROGRESS;
}

static kvcl_coll_chunk_t *find_chunk(kvcl_coll_peer_t *from, uint32_t k)
{
    kvcl_coll_chunk_t *chunk;

    kvcl_list_foreach (chunk, &from->chunks, kvcl_coll_chunk_t, link) {
        if (chunk->k == k) {
            return chunk;
        }
    }
    return NULL;
}

void kvcl_coll_pull(kvcl_coll_op_t *op, kvcl_coll_peer_t *from, const kvcl_exec_action_t *action)
{
    kvcl_coll_chunk_t *chunk = find_chunk(from, action->k);
    kvcl_status_t     status = KVCL_ERR_UNREACHABLE;

    if (chunk != NULL) {
        status = chunk->near     ? start_near(op, from, action, chunk)
                 : chunk->staged ? take_slot(op, from, action, chunk)
                                 : take_eager(op, from, action, chunk);
        op->req.ctx->stats.bytes_in += chunk->near ? 0 : chunk->len;
        kvcl_list_del(&chunk->link);
        free(chunk);
    }
    if (status == KVCL_ERR_UNREACHABLE) {
        status = (from->offer == 0) ? kvcl_fail(KVCL_ERR_PROTOCOL, "rank %u announced bytes without an offer",
                                                from->rank)
                                    : start_pull(op, from, action);
        status = (status == KVCL_OK) ? KVCL_INPROGRESS : status;
    }
    if (status != KVCL_INPROGRESS) {
        pulled(op, action->step, status);
    }
}

void kvcl_coll_stop_pulls(kvcl_coll_op_t *op, kvcl_status_t status)
{
    unsigned i;

    for (i = 0; i < KVCL_EXEC_PULLS; ++i) {
        kvcl_coll_pull_t *pull = &op->pulls[i];

        if ((pull->state == KVCL_COLL_PULL_ACTIVE) && pull->near.busy) {
            pull->stopped = status;
            kvcl_near_stop(&pull->near); /* near_done is called later */
        } else if (pull->state == KVCL_COLL_PULL_ACTIVE) {
            kvcl_pull_stop(pull->pull, status); /* on_done is called now or later */
        } else if (pull->state != KVCL_COLL_PULL_FREE) {
            pull->state = KVCL_COLL_PULL_FREE;
            pulled(op, pull->step, status);
        }
    }
    kvcl_list_del(&op->landed_link);
}

/* Copies that landed are reported when the transports have no further messages. */
unsigned kvcl_coll_poll(kvcl_context_h ctx)
{
    kvcl_coll_room_t *room = kvcl_coll_room(ctx);
    kvcl_engine_t    *eng  = &ctx->engine;
    kvcl_list_t      landed, *link;
    unsigned         n, i, turn;

    if (kvcl_list_is_empty(&room->landed)) {
        return 0;
    }
    for (turn = 0, n = 1; (n != 0) && (turn < DRAIN_MAX); ++turn) {
        for (i = 0, n = 0; i < eng->n_xports; ++i) {
            n += eng->xports[i]->ops->progress(eng->xports[i]);
        }
    }
    kvcl_list_init(&landed);
    kvcl_list_splice_tail(&landed, &room->landed);
    while ((link = kvcl_list_pop(&landed)) != NULL) {
        kvcl_coll_op_t *op = kvcl_container_of(link, kvcl_coll_op_t, landed_link);

        for (i = 0; i < KVCL_EXEC_PULLS; ++i) {
            if (op->pulls[i].state == KVCL_COLL_PULL_LANDED) {
                op->pulls[i].state = KVCL_COLL_PULL_FREE;
                pulled(op, op->pulls[i].step, KVCL_OK);
            }
        }
        op->advance(op);
    }
    return 1;
}
