/*
 * The runner of a communicator (dev_coll.h): its thread, and the steps of a collective that all ways have.
 *
 * The thread takes operations from the queue in turn. It holds no lock while it waits for a request or a device.
 * An operation that has been given up (runner.lost) has completed already: the thread then only lets go of it and ends.
 */
#include "config.h"
#include "devcoll/dev_coll.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

/* ---- waiting ---- */

static kvcl_status_t stopping(kvcl_dev_op_t *op)
{
    kvcl_status_t status;

    pthread_mutex_lock(&op->runner->lock);
    status = op->stopping;
    pthread_mutex_unlock(&op->runner->lock);
    return status;
}

/* Waits for a request of which op->sub is the handle while it is in flight. */
static kvcl_status_t await(kvcl_dev_op_t *op, kvcl_req_h req)
{
    kvcl_context_h ctx = op->runner->ctx;
    kvcl_status_t  status;
    kvcl_req_t     *sub;

    kvcl_lock(ctx);
    op->sub = req;
    sub     = kvcl_req_slot_find(req);
    if ((op->stopping != KVCL_OK) && (sub != NULL) && !kvcl_req_is_done(sub)) {
        sub->cls->stop(sub, op->stopping);
    }
    kvcl_unlock(ctx);
    status = kvcl_req_wait(req, KVCL_WAIT_FOREVER); /* it has its deadline */
    kvcl_lock(ctx);
    op->sub = NULL;
    kvcl_unlock(ctx);
    return status;
}

void kvcl_dev_end_gate(kvcl_dev_op_t *op)
{
    if (op->gate != NULL) {
        kvcl_req_cancel(op->gate);
        if (kvcl_req_wait(op->gate, KVCL_WAIT_FOREVER) != KVCL_OK) {
            kvcl_log_debug("a wait for a stream was canceled");
        }
        op->gate = NULL;
    }
}

kvcl_status_t kvcl_dev_step(kvcl_dev_op_t *op, unsigned step, kvcl_coll_call_t *call)
{
    kvcl_context_h ctx  = op->runner->ctx;
    uint64_t       left = kvcl_deadline_left(op->deadline_ns);
    kvcl_status_t  status;
    kvcl_req_h     req;

    call->comm              = op->runner->comm;
    call->params            = kvcl_xfer_defaults;
    call->params.timeout_ns = (left != 0) ? left : 1;
    kvcl_lock(ctx);
    status               = op->stopping;
    call->comm->coll_seq = op->seq * KVCL_DEV_STEPS + step;
    kvcl_unlock(ctx);
    if (status == KVCL_OK) {
        status = kvcl_coll_post(call, &req);
        status = (status == KVCL_OK) ? await(op, req) : status;
    }
    return status;
}

/* ---- the steps ---- */

/* What all ranks must give equally. The lengths of an alltoallv are compared in pairs. */
static uint64_t args_of(const kvcl_coll_call_t *call)
{
    const uint64_t words[] = {(uint64_t)call->kind, (uint64_t)call->root, call->len, call->elem, call->reduction};

    return kvcl_checksum(words, sizeof(words));
}

static kvcl_status_t agree(kvcl_dev_op_t *op, kvcl_dev_way_t *way_p)
{
    const bool       uneven = (op->call.kind == KVCL_COLL_ALLTOALLV);
    const uint32_t   size   = (uint32_t)op->runner->comm->size, me = (uint32_t)op->runner->comm->rank;
    const size_t     each   = kvcl_dev_offer_bytes(size, uneven);
    char             *all   = malloc(each * size);
    kvcl_coll_call_t call   = {.name = op->call.name, .kind = KVCL_COLL_ALLGATHER, .buf = all, .len = each};
    kvcl_dev_offer_t offer  = {.args = args_of(&op->call)};
    kvcl_status_t    status;
    uint32_t         i;

    if (all == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for the offers of %u ranks", op->call.name, size);
    }
    call.in = all + me * each;
    memcpy(all + me * each, &offer, sizeof(offer));
    for (i = 0; uneven && (i < size); ++i) {
        memcpy(all + me * each + sizeof(offer) + i * sizeof(uint64_t), &op->parts.send_lens[i], sizeof(uint64_t));
    }
    status = kvcl_dev_step(op, KVCL_DEV_AGREE, &call);
    if (status == KVCL_OK) {
        status = kvcl_dev_decide(all, size, me, uneven ? op->parts.recv_lens : NULL, op->call.name, way_p);
    }
    free(all);
    return status;
}

static kvcl_status_t perform(kvcl_dev_op_t *op)
{
    kvcl_dev_way_t way    = KVCL_DEV_BY_HOST;
    kvcl_status_t  status = stopping(op);

    if ((status == KVCL_OK) && (op->gate != NULL)) {
        status   = await(op, op->gate);
        op->gate = NULL;
    }
    kvcl_dev_end_gate(op);
    if (status == KVCL_OK) {
        status = agree(op, &way);
    }
    if (status == KVCL_OK) {
        status = kvcl_dev_by_host(op);
    }
    return status;
}

/* Lets go of the operation, which may be freed. */
static void finish(kvcl_dev_op_t *op, kvcl_status_t status)
{
    kvcl_dev_runner_t *r = op->runner;

    kvcl_lock(r->ctx);
    if (r->current == op) { /* else it was given up */
        pthread_mutex_lock(&r->lock);
        r->current = NULL;
        pthread_mutex_unlock(&r->lock);
    }
    if (!kvcl_req_is_done(&op->req)) {
        if ((status != KVCL_OK) && (op->stopping != KVCL_OK)) {
            status = op->stopping;
        } else if (status != KVCL_OK) {
            kvcl_req_keep_error(&op->req);
        }
        if (status != KVCL_OK) {
            kvcl_dev_tell(op, status);
        }
        op->req.timing.bytes = (status == KVCL_OK) ? ((op->in_bytes > op->out_bytes) ? op->in_bytes : op->out_bytes)
                                                   : 0;
        kvcl_req_complete(&op->req, status);
    }
    kvcl_unlock(r->ctx);
    kvcl_dev_drop(op);
}

/* The next operation; NULL: the end. */
static kvcl_dev_op_t *take(kvcl_dev_runner_t *r)
{
    kvcl_dev_op_t *op = NULL;

    while (op == NULL) {
        pthread_mutex_lock(&r->lock);
        while (kvcl_list_is_empty(&r->queue) && !r->ending) {
            pthread_cond_wait(&r->cond, &r->lock);
        }
        pthread_mutex_unlock(&r->lock);
        kvcl_lock(r->ctx); /* one that is stopped meanwhile has left the queue */
        pthread_mutex_lock(&r->lock);
        if (!kvcl_list_is_empty(&r->queue)) {
            op = kvcl_list_head(&r->queue, kvcl_dev_op_t, link);
            kvcl_list_del(&op->link);
            r->current = op;
        }
        pthread_mutex_unlock(&r->lock);
        if ((op == NULL) && r->ending) {
            kvcl_unlock(r->ctx);
            return NULL;
        }
        kvcl_unlock(r->ctx);
    }
    return op;
}

void *kvcl_dev_runner_main(void *runner)
{
    kvcl_dev_runner_t *r = runner;
    kvcl_dev_op_t     *op;
    unsigned          i;

    while (!atomic_load(&r->lost) && ((op = take(r)) != NULL)) {
        finish(op, perform(op));
    }
    if (atomic_load(&r->lost)) {
        return NULL; /* its memory stays: the context may be gone */
    }
    for (i = 0; i < KVCL_DEV_COPIERS; ++i) {
        kvcl_copier_close(r->copiers[i]);
    }
    kvcl_comm_free(r->comm);
    kvcl_lock(r->ctx);
    r->gone = true;
    kvcl_unlock(r->ctx);
    return NULL;
}
