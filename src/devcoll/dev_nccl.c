/*
 * A collective on device memory by NCCL (dev_coll.h). All by the runner's thread.
 *
 * The runner has one ncclComm, made at the first collective for which all ranks have offered NCCL: rank 0 makes the id,
 * and a broadcast over the runner's communicator gives it to the others. It lives until a collective fails on this
 * rank; then it is aborted before the operation completes, so NCCL uses the buffers no more. The next agreement finds
 * that not all ranks have the same one, and makes a new one on all.
 */
#include "config.h"
#include "devcoll/dev_coll.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "nccl/nccl_comm.h"
#include "wire/address.h"

#include <string.h>
#include <time.h>

enum {
    SHORTEST_NS = 5000, LONGEST_NS = 1000000, /* of a sleep between two polls: an eighth of what has passed */
    LAST_NS = 100000000 /* a peer that has left may have been done already: so long NCCL may take to finish here */
};

/* What rank 0 gives to all: an id, or why there is none. */
typedef struct id_msg {
    int32_t status;
    char    id[KVCL_NCCL_ID_BYTES];
} id_msg_t;

/* The copier of both buffers, where they are on one device; NULL: they are not, or there are none. */
static kvcl_copier_t *copier_of(const kvcl_dev_op_t *op)
{
    if (((op->in_bytes > 0) && (op->in == NULL)) || ((op->out_bytes > 0) && (op->out == NULL)) ||
        ((op->in != NULL) && (op->out != NULL) && (op->in != op->out))) {
        return NULL;
    }
    return (op->in != NULL) ? op->in : op->out;
}

void kvcl_dev_nccl_offer(kvcl_dev_op_t *op, kvcl_dev_offer_t *offer)
{
    kvcl_dev_runner_t   *r      = op->runner;
    const kvcl_copier_t *copier = copier_of(op);

    if (!r->ctx->config.nccl || (copier == NULL) ||
        !kvcl_nccl_has(op->call.kind, op->call.reduction) || (kvcl_nccl_gpu(copier, offer->gpu) != KVCL_OK)) {
        return;
    }
    kvcl_host_id(offer->host);
    offer->nccl = kvcl_nccl_version();
    offer->live = ((r->nccl != NULL) && kvcl_nccl_is_on(r->nccl, copier)) ? r->live : 0;
}

void kvcl_dev_nccl_close(kvcl_dev_runner_t *r)
{
    if (!kvcl_nccl_close(r->nccl)) {
        kvcl_log_error("a device still works on a collective that NCCL was told to abort");
    }
    r->nccl = NULL;
    r->live = 0;
}

/* The context may be gone where the operation was given up. */
static bool is_lost(const kvcl_dev_op_t *op)
{
    return atomic_load(&op->runner->lost);
}

/* Until NCCL has done what it was given, or the operation is stopped. Polls for KVCL_SPIN, then sleeps in between: the
 * shortest sleep takes longer than a small collective. */
static kvcl_status_t await(kvcl_dev_op_t *op)
{
    const struct timespec pause = {.tv_nsec = LONGEST_NS};
    const uint64_t        begun = kvcl_now_ns(), spin = is_lost(op) ? 0 : op->runner->ctx->config.spin_ns;
    kvcl_status_t         status, stopping = KVCL_OK;
    uint64_t              ns, last = 0;

    for (;;) {
        status = kvcl_nccl_poll(op->runner->nccl);
        if (status != KVCL_INPROGRESS) {
            return status;
        }
        if ((stopping != KVCL_OK) && ((stopping != KVCL_ERR_RANK_FAILED) || kvcl_deadline_passed(last))) {
            return stopping;
        }
        if (stopping != KVCL_OK) {
            (void)nanosleep(&pause, NULL);
            continue;
        }
        ns = kvcl_now_ns() - begun;
        if (ns < spin) {
            ns = 0;
        } else {
            ns = (ns / 8 < SHORTEST_NS) ? SHORTEST_NS : (ns / 8 > LONGEST_NS) ? LONGEST_NS : ns / 8;
        }
        stopping = kvcl_dev_sleep(op, ns);
        last     = kvcl_deadline_after(LAST_NS);
    }
}

static void set_in_nccl(kvcl_dev_op_t *op, bool in_nccl)
{
    if (is_lost(op)) {
        return;
    }
    kvcl_lock(op->runner->ctx);
    op->in_nccl = in_nccl;
    kvcl_unlock(op->runner->ctx);
}

/* A peer that failed before NCCL began is not reported again. */
static kvcl_status_t check_peers(kvcl_dev_op_t *op)
{
    kvcl_comm_h   comm   = op->runner->comm;
    kvcl_status_t status = KVCL_OK;
    int           i;

    kvcl_lock(op->runner->ctx);
    for (i = 0; (i < comm->size) && (status == KVCL_OK); ++i) {
        kvcl_peer_t *peer = comm->peers[i];

        if ((peer != NULL) && (peer->state == KVCL_PEER_FAILED)) {
            status = kvcl_fail(KVCL_ERR_RANK_FAILED, "rank %d has left or failed", i);
        }
    }
    kvcl_unlock(op->runner->ctx);
    return status;
}

static kvcl_status_t make(kvcl_dev_op_t *op)
{
    kvcl_dev_runner_t *r   = op->runner;
    id_msg_t          msg  = {.status = KVCL_OK};
    kvcl_coll_call_t  call = {.name = op->call.name, .kind = KVCL_COLL_BCAST, .buf = &msg, .len = sizeof(msg)};
    kvcl_status_t     status;

    kvcl_dev_nccl_close(r);
    if (r->comm->rank == 0) {
        msg.status = kvcl_nccl_id(msg.id);
        if (msg.status != KVCL_OK) {
            kvcl_log_warn("%s", kvcl_last_error());
        }
    }
    if (is_lost(op)) {
        return KVCL_ERR_IO;
    }
    status = kvcl_dev_step(op, KVCL_DEV_ID, &call);
    if ((status == KVCL_OK) && (msg.status != KVCL_OK)) {
        status = kvcl_fail(KVCL_ERR_IO, "rank 0 has no id for an ncclComm; its log has the reason, KVCL_NCCL=no does "
                           "without NCCL");
    }
    if (status == KVCL_OK) {
        status = kvcl_nccl_open(copier_of(op), (uint32_t)r->comm->rank, (uint32_t)r->comm->size, msg.id, &r->nccl);
    }
    if ((status == KVCL_OK) && is_lost(op)) {
        status = KVCL_ERR_IO;
    }
    if (status == KVCL_OK) {
        r->live = op->seq + 1;
        status  = await(op);
    }
    return status;
}

kvcl_status_t kvcl_dev_by_nccl(kvcl_dev_op_t *op, kvcl_dev_way_t way)
{
    const kvcl_nccl_call_t call = {.kind = op->call.kind, .rank = (uint32_t)op->runner->comm->rank,
                                   .size = (uint32_t)op->runner->comm->size, .root = (uint32_t)op->call.root,
                                   .in = op->call.in, .out = op->call.buf, .len = op->call.len,
                                   .elem = op->call.elem, .reduction = op->call.reduction, .parts = op->call.parts};
    kvcl_status_t          status;

    set_in_nccl(op, true);
    status = check_peers(op);
    if ((status == KVCL_OK) && (way == KVCL_DEV_BY_NEW_NCCL)) {
        status = make(op);
    }
    if (status == KVCL_OK) {
        status = kvcl_nccl_run(op->runner->nccl, &call);
    }
    if (status == KVCL_OK) {
        status = await(op);
    }
    set_in_nccl(op, false);
    if (status != KVCL_OK) {
        kvcl_dev_nccl_close(op->runner);
    }
    return status;
}
