/*
 * Posting and stopping collectives on device memory (dev_coll.h): the kinds of the buffers are detected and an
 * operation is given to the communicator's runner (dev_runner.c), which is made if there is none.
 *
 * An operation has two holders, its request and the runner. It completes once: by the runner (dev_run.c), or here if it
 * is stopped in the queue, or if the runner does not let go of its memory within KVCL_DEV_GRACE_MS.
 */
#include "config.h"
#include "devcoll/dev_coll.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- the request ---- */

static void release(kvcl_req_t *req)
{
    kvcl_dev_drop(kvcl_container_of(req, kvcl_dev_op_t, req));
}

/* Engine lock held. */
static void end_here(kvcl_dev_op_t *op, kvcl_status_t status)
{
    kvcl_assert_locked(op->runner->ctx);
    kvcl_dev_tell(op, status);
    kvcl_req_complete(&op->req, status);
}

/* The next operation of the queue, which it leaves; NULL: there is none. Engine lock held. */
static kvcl_dev_op_t *pop(kvcl_dev_runner_t *r)
{
    kvcl_list_t *link;

    kvcl_assert_locked(r->ctx);
    pthread_mutex_lock(&r->lock);
    link = kvcl_list_pop(&r->queue);
    pthread_mutex_unlock(&r->lock);
    if (link == NULL) {
        return NULL;
    }
    kvcl_list_init(link);
    return kvcl_container_of(link, kvcl_dev_op_t, link);
}

/* Engine lock held. The runner is inside a call that does not return. */
static void give_up(kvcl_dev_op_t *op)
{
    kvcl_dev_runner_t *r = op->runner;
    kvcl_dev_op_t     *next;

    kvcl_assert_locked(r->ctx);
    kvcl_log_error("%s: NCCL or the driver still uses the buffers of a collective that was stopped %d ms ago: do not "
                   "free them; later collectives on device memory of this communicator fail", op->call.name,
                   KVCL_DEV_GRACE_MS);
    atomic_store(&r->lost, true);
    pthread_mutex_lock(&r->lock);
    r->current = NULL;
    pthread_mutex_unlock(&r->lock);
    end_here(op, op->stopping);
    while ((next = pop(r)) != NULL) {
        if (!kvcl_req_is_done(&next->req)) {
            end_here(next, KVCL_ERR_IO);
        }
        kvcl_dev_drop(next);
    }
}

static void why(kvcl_dev_op_t *op, kvcl_status_t status, int from)
{
    if (from >= 0) {
        kvcl_req_why(&op->req, "rank %d ended it (%s); its kvcl_req_error has the reason", from,
                     kvcl_status_text(status));
    }
}

void kvcl_dev_stop(kvcl_dev_op_t *op, kvcl_status_t status, int from)
{
    kvcl_dev_runner_t *r = op->runner;
    kvcl_req_t        *sub;

    kvcl_assert_locked(r->ctx);
    if (kvcl_req_is_done(&op->req)) {
        return;
    }
    if (r->current != op) { /* it stays in the queue, completed: the runner lets go of it */
        op->stopping = status;
        why(op, status, from);
        end_here(op, status);
        return;
    }
    if (op->stopping != KVCL_OK) {
        if (kvcl_deadline_passed(op->grace_ns)) {
            give_up(op);
        }
        return;
    }
    why(op, status, from);
    op->grace_ns = kvcl_deadline_after(KVCL_DEV_GRACE_MS * KVCL_NS_PER_MS);
    if (!kvcl_req_stop_again(&op->req, op->grace_ns)) {
        kvcl_log_warn("no memory to bound the end of a collective");
    }
    pthread_mutex_lock(&r->lock);
    op->stopping = status;
    pthread_cond_broadcast(&r->cond);
    pthread_mutex_unlock(&r->lock);
    sub = kvcl_req_slot_find(op->sub);
    if ((sub != NULL) && !kvcl_req_is_done(sub)) {
        sub->cls->stop(sub, status);
    }
}

static void stop(kvcl_req_t *req, kvcl_status_t status)
{
    kvcl_dev_stop(kvcl_container_of(req, kvcl_dev_op_t, req), status, -1);
}

static void describe(const kvcl_req_t *req, char *buf, size_t cap)
{
    const kvcl_dev_op_t *op = kvcl_container_of((kvcl_req_t *)req, kvcl_dev_op_t, req);

    snprintf(buf, cap, "%s on device memory (number %llu of its communicator, at rank %d, %llu bytes)", op->call.name,
             (unsigned long long)op->seq, op->runner->rank,
             (unsigned long long)((op->in_bytes > op->out_bytes) ? op->in_bytes : op->out_bytes));
}

static bool explain(const kvcl_req_t *req, kvcl_status_t status, char *buf, size_t cap)
{
    return kvcl_coll_class.explain(req, status, buf, cap);
}

static const kvcl_req_class_t dev_class = {
    .name = "device-collective", .stop = stop, .release = release, .describe = describe, .explain = explain};

/* ---- posting ---- */

/* A copy of the lengths and offsets, in one allocation that begins at send_lens. */
static kvcl_status_t own_parts(const kvcl_coll_call_t *call, kvcl_coll_parts_t *parts)
{
    const size_t n = (size_t)call->comm->size;
    uint64_t     *all;
    size_t       i;

    if (call->parts == NULL) {
        return KVCL_OK;
    }
    all = malloc(4 * n * sizeof(*all));
    if (all == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory", call->name);
    }
    for (i = 0; i < n; ++i) {
        all[i]         = call->parts->send_lens[i];
        all[n + i]     = call->parts->send_offs[i];
        all[2 * n + i] = call->parts->recv_lens[i];
        all[3 * n + i] = call->parts->recv_offs[i];
    }
    *parts = (kvcl_coll_parts_t){.send_lens = all, .send_offs = all + n, .recv_lens = all + 2 * n,
                                 .recv_offs = all + 3 * n};
    return KVCL_OK;
}

/* The runner keeps a device open: opening it loads KVCL's kernel. Takes the copier over. */
static kvcl_status_t keep(kvcl_dev_runner_t *r, kvcl_copier_t *copier)
{
    kvcl_status_t status = KVCL_OK;
    unsigned      i      = 0;
    bool          known;

    kvcl_lock(r->ctx);
    while ((i < KVCL_DEV_COPIERS) && (r->copiers[i] != NULL) && (r->copiers[i] != copier)) {
        ++i;
    }
    known = (i < KVCL_DEV_COPIERS) && (r->copiers[i] == copier);
    if (r->ending) {
        status = kvcl_dev_runner_past();
    } else if (i == KVCL_DEV_COPIERS) {
        status = kvcl_fail(KVCL_ERR_UNSUPPORTED, "the collectives of a communicator may use memory of %d devices, and "
                           "have: use a communicator for each", KVCL_DEV_COPIERS);
    } else {
        r->copiers[i] = copier;
    }
    kvcl_unlock(r->ctx);
    if (known || (status != KVCL_OK)) {
        kvcl_copier_close(copier);
    }
    return status;
}

/* [base + from, base + to) is looked at. */
static kvcl_status_t detect(kvcl_dev_runner_t *r, const void *base, kvcl_coll_span_t span, kvcl_copier_t **copier_p)
{
    kvcl_status_t status;

    *copier_p = NULL;
    if (span.to == span.from) {
        return KVCL_OK;
    }
    status = kvcl_copier_open(KVCL_MEM_AUTO, (const char *)base + span.from, span.to - span.from, copier_p);
    return ((status == KVCL_OK) && (*copier_p != NULL)) ? keep(r, *copier_p) : status;
}

static kvcl_status_t prepare(const kvcl_coll_call_t *call, kvcl_dev_op_t *op)
{
    kvcl_xfer_params_t params = {.size = sizeof(params), .timeout_ns = call->params.timeout_ns};
    kvcl_coll_span_t   in, out;
    kvcl_status_t      status;

    kvcl_coll_spans(call, &in, &out);
    op->in_bytes  = in.to;
    op->out_bytes = out.to;
    if (call->kind == KVCL_COLL_BCAST) {
        op->call.in = call->buf;
    }
    status = own_parts(call, &op->parts);
    if (status == KVCL_OK) {
        op->call.parts = (call->parts != NULL) ? &op->parts : NULL;
        status         = detect(op->runner, op->call.in, in, &op->in);
    }
    if (status == KVCL_OK) {
        status = detect(op->runner, call->buf, out, &op->out);
    }
    if ((status == KVCL_OK) && (call->params.stream != NULL)) {
        status = kvcl_stream_done(call->comm->ctx, call->params.stream, &params, &op->gate);
    }
    return status;
}

/* Engine lock held. Has another rank ended this collective already? */
static void heed(kvcl_dev_runner_t *r, kvcl_dev_op_t *op)
{
    unsigned i;

    kvcl_assert_locked(r->ctx);
    for (i = 0; i < KVCL_DEV_STOPPED; ++i) {
        if ((r->stopped[i].status != KVCL_OK) && (r->stopped[i].seq == op->seq)) {
            kvcl_dev_stop(op, r->stopped[i].status, (int)r->stopped[i].rank);
            return;
        }
    }
}

static kvcl_status_t launch(const kvcl_coll_call_t *call, kvcl_dev_op_t *op, kvcl_req_h *req_p)
{
    kvcl_dev_runner_t *r = op->runner;
    kvcl_status_t     status;

    kvcl_lock(r->ctx);
    status = atomic_load(&r->lost) ? kvcl_fail(KVCL_ERR_IO, "%s: an earlier collective of this communicator is still "
                                               "inside NCCL or the driver: end the process", call->name) : KVCL_OK;
    if ((status == KVCL_OK) && (r->ending || (r->epoch != call->comm->epoch))) {
        status = kvcl_dev_runner_past();
    }
    if (status == KVCL_OK) {
        status = kvcl_req_post(&op->req, r->ctx, &dev_class, &call->params, req_p);
    }
    if (status == KVCL_OK) {
        kvcl_req_bind(&op->req, call->comm->id);
        op->seq         = r->seqs++;
        op->deadline_ns = kvcl_deadline_after(kvcl_timeout(r->ctx, call->params.timeout_ns));
        pthread_mutex_lock(&r->lock);
        kvcl_list_add_tail(&r->queue, &op->link);
        pthread_cond_broadcast(&r->cond);
        pthread_mutex_unlock(&r->lock);
        heed(r, op); /* op may be freed now */
    }
    kvcl_unlock(r->ctx);
    return status;
}

kvcl_status_t kvcl_dev_post(kvcl_coll_call_t *call, kvcl_req_h *req_p)
{
    kvcl_dev_runner_t *r;
    kvcl_status_t     status = kvcl_dev_runner_of(call->comm, &r);
    kvcl_dev_op_t     *op    = (status == KVCL_OK) ? calloc(1, sizeof(*op)) : NULL;

    if (status != KVCL_OK) {
        return status;
    }
    if (op == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory", call->name);
    }
    op->runner = r;
    op->call   = *call;
    kvcl_list_init(&op->link);
    atomic_init(&op->holders, 2);
    status = prepare(call, op);
    if (status == KVCL_OK) {
        status = launch(call, op, req_p);
    }
    if (status != KVCL_OK) {
        kvcl_dev_end_gate(op);
        kvcl_dev_drop(op);
        kvcl_dev_drop(op);
    }
    return status;
}
