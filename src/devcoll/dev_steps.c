/*
 * What the steps of a collective on device memory are made of (dev_coll.h): a collective of the runner's communicator
 * and the wait for it, a sleep that a stop ends, the message to the other ranks.
 *
 * A step that is stopped while it is posted is stopped once its handle is known. Locks: none is held on entry, but by
 * kvcl_dev_tell().
 */
#include "config.h"
#include "devcoll/dev_coll.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdlib.h>
#include <time.h>

void kvcl_dev_drop(kvcl_dev_op_t *op)
{
    if (atomic_fetch_sub(&op->holders, 1) == 1) {
        free((void *)op->parts.send_lens);
        free(op);
    }
}

kvcl_status_t kvcl_dev_sleep(kvcl_dev_op_t *op, uint64_t ns)
{
    kvcl_dev_runner_t *r    = op->runner;
    const uint64_t    until = kvcl_now_ns() + ns;
    struct timespec   ts    = {.tv_sec  = (time_t)(until / KVCL_NS_PER_SEC),
                               .tv_nsec = (long)(until % KVCL_NS_PER_SEC)};
    kvcl_status_t     status;
    int               err = 0;

    pthread_mutex_lock(&r->lock);
    while ((op->stopping == KVCL_OK) && (err == 0)) {
        err = pthread_cond_timedwait(&r->cond, &r->lock, &ts);
    }
    status = op->stopping;
    pthread_mutex_unlock(&r->lock);
    return status;
}

kvcl_status_t kvcl_dev_await(kvcl_dev_op_t *op, kvcl_req_h req)
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
        status = (status == KVCL_OK) ? kvcl_dev_await(op, req) : status;
    }
    return status;
}

void kvcl_dev_tell(kvcl_dev_op_t *op, kvcl_status_t status)
{
    kvcl_comm_h comm = op->runner->comm;
    int         i;

    kvcl_assert_locked(op->runner->ctx);
    for (i = 0; i < comm->size; ++i) {
        kvcl_peer_t *peer = comm->peers[i];
        kvcl_msg_dev_stop_t stop = {.msg.type = KVCL_MSG_DEV_STOP, .comm = comm->id, .seq = op->seq,
                             .rank = (uint32_t)comm->rank, .status = status};

        if ((i != comm->rank) && (peer != NULL) && (peer->state == KVCL_PEER_READY) &&
            (kvcl_peer_post(peer, &stop.msg, sizeof(stop), NULL, 0) != KVCL_OK)) {
            kvcl_log_debug("%s does not learn that a collective has failed", peer->name);
        }
    }
}
