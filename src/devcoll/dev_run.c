/*
 * The runner of a communicator (dev_coll.h): its thread, and the steps of a collective that all ways have.
 *
 * The thread takes operations from the queue in turn. It holds no lock while it waits for a request, a device or NCCL.
 * An operation that has been given up (runner.lost) has completed already: the thread then only lets go of it and ends.
 */
#include "config.h"
#include "devcoll/dev_coll.h"
#include "base/checksum.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

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
    kvcl_dev_nccl_offer(op, &offer);
    call.in = all + me * each;
    memcpy(all + me * each, &offer, sizeof(offer));
    for (i = 0; uneven && (i < size); ++i) {
        memcpy(all + me * each + sizeof(offer) + i * sizeof(uint64_t), &op->parts.send_lens[i], sizeof(uint64_t));
    }
    status = atomic_load(&op->runner->lost) ? KVCL_ERR_IO : kvcl_dev_step(op, KVCL_DEV_AGREE, &call);
    if (status == KVCL_OK) {
        status = kvcl_dev_decide(all, size, me, uneven ? op->parts.recv_lens : NULL, op->call.name, way_p);
    }
    free(all);
    return status;
}

static kvcl_status_t perform(kvcl_dev_op_t *op)
{
    kvcl_dev_way_t way    = KVCL_DEV_BY_HOST;
    kvcl_status_t  status = kvcl_dev_sleep(op, 0); /* is it stopped already? */

    if ((status == KVCL_OK) && (op->gate != NULL)) {
        status   = kvcl_dev_await(op, op->gate);
        op->gate = NULL;
    }
    kvcl_dev_end_gate(op);
    if (status == KVCL_OK) {
        status = agree(op, &way);
    }
    if (status == KVCL_OK) {
        status = (way == KVCL_DEV_BY_HOST) ? kvcl_dev_by_host(op) : kvcl_dev_by_nccl(op, way);
    }
    return status;
}

/* Lets go of the operation, which may be freed. */
static void finish(kvcl_dev_op_t *op, kvcl_status_t status)
{
    kvcl_dev_runner_t *r = op->runner;

    if (atomic_load(&r->lost)) { /* it was given up, and completed; the context may be gone */
        kvcl_dev_drop(op);
        return;
    }
    kvcl_lock(r->ctx);
    pthread_mutex_lock(&r->lock);
    r->current = NULL;
    pthread_mutex_unlock(&r->lock);
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
    kvcl_comm_h       comm;
    unsigned          i;

    while (!atomic_load(&r->lost) && ((op = take(r)) != NULL)) {
        finish(op, perform(op));
    }
    if (atomic_load(&r->lost)) {
        return NULL; /* its memory stays: the context may be gone */
    }
    kvcl_dev_nccl_close(r);
    for (i = 0; i < KVCL_DEV_COPIERS; ++i) {
        kvcl_copier_close(r->copiers[i]);
    }
    if (!atomic_load(&r->lost)) { /* the calls above may have taken too long */
        kvcl_lock(r->ctx);
        comm    = r->comm;
        r->comm = NULL;
        kvcl_unlock(r->ctx);
        kvcl_comm_free(comm);
    }
    return NULL;
}
