/*
 * The life of a collective (coll_run.h).
 *
 * A collective begins by establishing sessions with all peers of its plan; the executor's actions start when all of
 * these are established or have failed.
 *
 * It ends when the executor has finished and no peer reads the local buffer. After a failure peers have GRACE_MS to
 * confirm that; this collective then treats a silent peer as failed.
 *
 * Engine lock throughout. kvcl_coll_advance may end and free the operation: callers must not use it afterwards.
 */
#include "config.h"
#include "coll/coll_run.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "weave/pieces.h"
#include "xfer/describe.h"

#include <stdio.h>
#include <stdlib.h>

enum { GRACE_MS = 2000 };

static void end_if_over(kvcl_coll_op_t *op);

static uint32_t plan_peers(const kvcl_coll_op_t *op)
{
    return op->plan->plan.npeers;
}

/* ---- the executor's actions ---- */

static void perform(kvcl_coll_op_t *op, const kvcl_exec_action_t *action)
{
    kvcl_coll_peer_t *peer  = kvcl_coll_peer_at(op, action->peer);
    kvcl_status_t    status = KVCL_OK;

    switch (action->op) {
    case KVCL_EXEC_ANNOUNCE:
        status = kvcl_coll_announce(op, peer, action);
        if ((status == KVCL_OK) && op->no_acks && (action->len > 0) && (action->len <= op->req.ctx->config.eager)) {
            status = kvcl_exec_acked(&op->exec, peer->rank, action->k); /* the bytes are in the message */
        }
        break;
    case KVCL_EXEC_PULL:
        kvcl_coll_pull(op, peer, action);
        break;
    case KVCL_EXEC_ACK:
        status = kvcl_coll_ack(op, peer, action->k);
        break;
    case KVCL_EXEC_ABORT:
        if (kvcl_coll_abort(op, peer->peer, action->status) != KVCL_OK) {
            kvcl_exec_peer_failed(&op->exec, peer->rank, KVCL_ERR_RANK_FAILED);
        }
        break;
    }
    if (status != KVCL_OK) {
        kvcl_exec_fail(&op->exec, status);
    }
}

/* Ranks outside the local plan may wait for ranks inside it: notify those with a session. All, if calls differ. */
static void notify_others(kvcl_coll_op_t *op)
{
    const bool  all  = (op->unlike.calls[0].kind != 0); /* also those that await nothing of this rank */
    kvcl_comm_h comm = op->cc->comm;
    int         i;

    for (i = 0; (comm != NULL) && (i < comm->size); ++i) {
        kvcl_peer_t *peer = comm->peers[i];

        if ((peer != NULL) && (peer->state == KVCL_PEER_READY) && (i != comm->rank) &&
            (all ? kvcl_exec_is_settled(&op->exec, (uint32_t)i) : (kvcl_coll_peer_at(op, (uint32_t)i) == NULL))) {
            kvcl_coll_try_abort(op, peer, op->exec.status);
        }
    }
}

void kvcl_coll_advance(kvcl_coll_op_t *op)
{
    kvcl_exec_action_t action;
    bool               again = true;

    if (op->advancing || (op->unready > 0)) {
        return;
    }
    op->advancing = true;
    while (again) {
        while (kvcl_exec_next(&op->exec, &action)) {
            perform(op, &action);
        }
        again = (op->exec.status != KVCL_OK) && !op->failing;
        if (again) {
            kvcl_log_info("collective %llu of communicator %llx fails: %s", (unsigned long long)op->seq,
                          (unsigned long long)op->cc->id, kvcl_status_text(op->exec.status));
            op->failing = true;
            kvcl_coll_stop_pulls(op, op->exec.status);
            notify_others(op);
        }
    }
    op->advancing = false;
    end_if_over(op);
}

/* ---- the beginning ---- */

/* A rank that is killed may take the connections of others with it (link/heal.c): posting again does not help. */
void kvcl_coll_peer_failed(kvcl_coll_peer_t *peer, kvcl_status_t status)
{
    const bool failed = (peer->op->exec.status != KVCL_OK), lost = (peer->peer->state != KVCL_PEER_FAILED);
    const int  dead   = lost ? kvcl_comm_failed_rank(peer->op->cc->comm) : -1;

    peer->gone = true;
    /* A rank of the job with an endpoint has failed. KVCL_ERR_STALE of a rank that was met: this one was excluded. */
    if (((status == KVCL_ERR_STALE) && !peer->peer->met) ||
        ((status == KVCL_ERR_UNREACHABLE) && ((dead >= 0) || (!lost && (peer->peer->ep != NULL))))) {
        status = KVCL_ERR_RANK_FAILED;
    }
    kvcl_exec_peer_failed(&peer->op->exec, peer->rank, status);
    if (failed || (peer->op->exec.status == KVCL_OK) || (status == KVCL_ERR_STALE)) {
        return;
    }
    if ((status == KVCL_ERR_UNREACHABLE) && (kvcl_peer_why_unreachable(peer->peer) != NULL)) {
        kvcl_req_why(&peer->op->req, "rank %u: %s", peer->rank, kvcl_peer_why_unreachable(peer->peer));
    } else if (lost && (dead < 0)) {
        kvcl_req_why(&peer->op->req, "the connection to rank %u was lost meanwhile, and is made again over the next "
                     "path: post it again, on all ranks", peer->rank);
    } else {
        kvcl_req_why(&peer->op->req, "rank %u has left or failed, or its connection broke, which is final: continue "
                     "with a communicator without it (kvcl_comm_create)", (dead >= 0) ? (uint32_t)dead : peer->rank);
    }
}

static void on_ready(kvcl_peer_waiter_t *waiter, kvcl_status_t status)
{
    kvcl_coll_peer_t *peer = kvcl_container_of(waiter, kvcl_coll_peer_t, waiter);

    peer->waiting = false;
    --peer->op->unready;
    if (status != KVCL_OK) {
        kvcl_coll_peer_failed(peer, status);
    }
    kvcl_coll_advance(peer->op);
}

static void connect_peers(kvcl_coll_op_t *op)
{
    kvcl_status_t status;
    uint32_t      i;

    for (i = 0; i < plan_peers(op); ++i) {
        kvcl_coll_peer_t *peer = &op->peers[i];

        peer->waiter.fn = on_ready;
        kvcl_list_init(&peer->waiter.link);
        status = kvcl_peer_ready(peer->peer, &peer->waiter);
        if (status == KVCL_INPROGRESS) {
            peer->waiting = true;
            ++op->unready;
        } else if (status != KVCL_OK) {
            kvcl_coll_peer_failed(peer, status);
        }
    }
}

/* Leaves op->advancing set: the caller advances. */
static void begin(kvcl_coll_op_t *op)
{
    kvcl_list_del(&op->link);
    kvcl_list_add_tail(&kvcl_coll_room(op->req.ctx)->running, &op->link);
    op->begun     = true;
    op->advancing = true;
    ++op->cc->running;
    connect_peers(op);
    kvcl_coll_replay(op);
}

/* Begin the communicator's next collectives, as many as may be in flight; may free cc. */
static void begin_waiting(kvcl_context_h ctx, kvcl_coll_comm_t *cc)
{
    if (cc->beginning) {
        return; /* the caller that set beginning continues */
    }
    cc->beginning = true;
    while ((cc->running < KVCL_COLL_OPEN) && !kvcl_list_is_empty(&cc->waiting)) {
        kvcl_coll_op_t *op = kvcl_list_head(&cc->waiting, kvcl_coll_op_t, link);

        if (op->staged && (cc->stage.holder != NULL)) {
            break; /* the holder needs no later operation of any rank */
        }
        kvcl_coll_stage_hold(op);
        begin(op);
        op->advancing = false;
        kvcl_coll_advance(op);
    }
    cc->beginning = false;
    kvcl_coll_comm_release(ctx, cc);
}

void kvcl_coll_launch(kvcl_coll_op_t *op)
{
    unsigned i;

    kvcl_assert_locked(op->req.ctx);
    op->advance = kvcl_coll_advance;
    for (i = 0; i < KVCL_EXEC_PULLS; ++i) {
        op->pulls[i].op = op;
    }
    kvcl_list_init(&op->landed_link);
    kvcl_list_init(&op->link);
    kvcl_list_add_tail(&op->cc->waiting, &op->link);
    begin_waiting(op->req.ctx, op->cc);
}

/* ---- the end ---- */

static void free_memory(kvcl_coll_op_t *op)
{
    unsigned i;

    for (i = 0; i < KVCL_EXEC_PULLS; ++i) {
        free(op->pulls[i].operand);
        op->pulls[i].operand = NULL;
    }
    free(op->work);
    op->work = NULL;
}

void kvcl_coll_discard(kvcl_coll_op_t *op)
{
    free_memory(op);
    free((void *)op->sel.blocks);
    free(op);
}

static void release(kvcl_req_t *req)
{
    kvcl_coll_discard(kvcl_container_of(req, kvcl_coll_op_t, req));
}

static void complete(kvcl_coll_op_t *op, kvcl_status_t status)
{
    kvcl_coll_comm_t *cc = op->cc;
    kvcl_context_h   ctx = op->req.ctx;
    kvcl_list_t      *link;
    uint32_t         i;

    for (i = 0; i < plan_peers(op); ++i) {
        free((void *)op->peers[i].sel.blocks);
        while ((link = kvcl_list_pop(&op->peers[i].chunks)) != NULL) {
            free(kvcl_container_of(link, kvcl_coll_chunk_t, link));
        }
    }
    kvcl_list_del(&op->link);
    kvcl_list_del(&op->landed_link);
    kvcl_coll_keep_call(cc, op->seq, &op->called);
    kvcl_plan_cache_put(&cc->plans, op->plan);
    if ((status == KVCL_OK) && (op->work != NULL)) {
        kvcl_copy_bytes(op->result, (char *)op->work + (op->total - op->payload), op->payload);
    }
    free_memory(op);
    if (status != KVCL_OK) {
        kvcl_revoke(ctx); /* a silent peer may still be copying */
        kvcl_coll_comm_failure(cc, op->seq, status);
    }
    kvcl_coll_stage_release(op, status != KVCL_OK);
    --cc->running;
    op->req.timing.bytes = (status == KVCL_OK) ? op->payload : 0;
    kvcl_req_complete(&op->req, status);
    begin_waiting(ctx, cc);
}

/* Give silent peers GRACE_MS, by the request's own timer. Returns whether it has not passed. */
static bool wait_for_silent(kvcl_coll_op_t *op)
{
    kvcl_engine_t *eng = &op->req.ctx->engine;

    if (op->forced) {
        return false;
    }
    if (op->grace_ns == 0) {
        op->grace_ns = kvcl_deadline_after(GRACE_MS * KVCL_NS_PER_MS);
        kvcl_heap_del(&eng->timers, &op->req.timer);
        if (kvcl_heap_add(&eng->timers, &op->req.timer, op->grace_ns) != KVCL_OK) {
            return false;
        }
        kvcl_engine_kick(op->req.ctx);
    }
    return true;
}

static void offer_idle(kvcl_offer_t *offer)
{
    kvcl_coll_op_t *op = kvcl_container_of(offer, kvcl_coll_op_t, offer);

    op->offer_state = KVCL_COLL_OFFER_CLOSED;
    if (!op->advancing) {
        end_if_over(op);
    }
}

static void end_if_over(kvcl_coll_op_t *op)
{
    kvcl_status_t status = kvcl_exec_status(&op->exec);

    if ((status == KVCL_INPROGRESS) || (!kvcl_exec_released(&op->exec) && wait_for_silent(op))) {
        return;
    }
    if (op->offer_state == KVCL_COLL_OFFER_OPEN) {
        op->offer_state = KVCL_COLL_OFFER_CLOSING;
        op->offer.idle  = offer_idle;
        op->advancing   = true;
        kvcl_offer_close(op->req.ctx, &op->offer);
        op->advancing = false;
    }
    if (op->offer_state != KVCL_COLL_OFFER_CLOSING) {
        complete(op, status);
    }
}

static void stop(kvcl_req_t *req, kvcl_status_t status)
{
    kvcl_coll_op_t *op = kvcl_container_of(req, kvcl_coll_op_t, req);
    uint32_t       i;

    if ((status == KVCL_ERR_TIMED_OUT) && !op->compared && (op->exec.status == KVCL_OK)) {
        kvcl_coll_compare(op);
        if (kvcl_req_stop_again(req, kvcl_deadline_add(req->timing.begun_ns, req->timeout_ns))) {
            return;
        }
    }
    if (op->advancing) { /* called from within kvcl_coll_advance, which handles the failure */
        kvcl_exec_fail(&op->exec, status);
        return;
    }
    if (!op->begun) {
        begin(op);
    }
    op->advancing = true;
    if ((op->grace_ns != 0) && (status == KVCL_ERR_TIMED_OUT) && kvcl_deadline_passed(op->grace_ns)) {
        kvcl_log_info("a collective ends without a reply from all peers that may read its buffer");
        op->forced = true;
    }
    kvcl_exec_fail(&op->exec, status);
    for (i = 0; i < plan_peers(op); ++i) {
        if (op->peers[i].waiting) {
            kvcl_peer_unwait(&op->peers[i].waiter);
            op->peers[i].waiting = false;
            --op->unready;
            kvcl_exec_peer_failed(&op->exec, op->peers[i].rank, status);
        }
    }
    op->advancing = false;
    kvcl_coll_advance(op);
}

static void describe(const kvcl_req_t *req, char *buf, size_t cap)
{
    const kvcl_coll_op_t *op = kvcl_container_of((kvcl_req_t *)req, kvcl_coll_op_t, req);
    char                 what[160] = "", root[32] = "";

    if (op->cache != NULL) {
        kvcl_describe_sel(&op->sel, what, sizeof(what));
    } else {
        snprintf(what, sizeof(what), "%llu bytes", (unsigned long long)op->payload);
    }
    if (op->root != UINT32_MAX) {
        snprintf(root, sizeof(root), " %s rank %u", op->to_root ? "to" : "from", op->root);
    }
    snprintf(buf, cap, "%s%s (number %llu of its communicator, at rank %u, %s%s%s%s)", op->call, root,
             (unsigned long long)op->seq, op->cc->rank, what, (op->cache != NULL) ? " of \"" : "",
             (op->cache != NULL) ? op->cache->name : "", (op->cache != NULL) ? "\"" : "");
}

static bool explain(const kvcl_req_t *req, kvcl_status_t status, char *buf, size_t cap)
{
    (void)req;
    switch (status) {
    case KVCL_ERR_TIMED_OUT:
        snprintf(buf, cap, "not all ranks took part within its deadline of %llu ms: all must call the same collectives "
                 "and agreements in the same order; or raise params.timeout_ns (0: KVCL_TIMEOUT)",
                 (unsigned long long)(req->timeout_ns / KVCL_NS_PER_MS));
        return true;
    case KVCL_ERR_RANK_FAILED:
        snprintf(buf, cap, "a rank of the communicator has left or failed: continue with a communicator without it "
                 "(kvcl_comm_create)");
        return true;
    case KVCL_ERR_BAD_LAYOUT:
    case KVCL_ERR_INVALID_PARAM:
        snprintf(buf, cap, "another rank called it with other arguments; its kvcl_req_error has both: give the same "
                 "root, length, type, operation and shape of blocks on all ranks");
        return true;
    default:
        return false;
    }
}

const kvcl_req_class_t kvcl_coll_class = {
    .name = "collective", .stop = stop, .release = release, .describe = describe, .explain = explain};
