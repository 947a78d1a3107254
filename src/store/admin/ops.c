/*
 * Requests about a rank's own part of the store (ops.h): serving and sending them. The sending side is a call
 * (home/call.h), which ends by its deadline at the latest.
 *
 * Owns nothing. Engine lock held, except in the functions that block.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "store/admin/ops.h"
#include "store/home/home_answer.h"
#include "store/home/ranks.h"
#include "weave/pieces.h"

#include <stdlib.h>

bool kvcl_op_on_request(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                        size_t len)
{
    kvcl_op_out_t out = {.cap = KVCL_OP_ANSWER_MAX};
    kvcl_status_t status;

    out.buf = kvcl_home_scratch(store->ctx, out.cap);
    status  = (out.buf == NULL) ? KVCL_ERR_NO_MEMORY
                                : kvcl_store_room(store->ctx)->kinds[in->msg.flags].op(store, data, len, &out);
    if (status == KVCL_ERR_PROTOCOL) {
        return false;
    }
    kvcl_rpc_answer(peer, in, status, out.n, out.buf, (status == KVCL_OK) ? out.len : 0);
    return true;
}

/* ---- sending ---- */

static void answer(kvcl_op_t *op, uint32_t rank, uint64_t tag, kvcl_status_t status, const void *data, size_t len)
{
    op->answered(op, rank, tag, (status == KVCL_ERR_NOT_FOUND) ? KVCL_ERR_RANK_FAILED : status, data, len);
}

static void on_answer(kvcl_rpc_t *rpc, kvcl_status_t status, const void *data, size_t len)
{
    kvcl_op_t *op = rpc->arg;

    answer(op, rpc->rank, rpc->tag, status, data, len);
    kvcl_call_over(&op->call);
}

static void query_local(kvcl_op_t *op, uint8_t kind, const void *in, size_t len, uint64_t tag)
{
    kvcl_store_h  store = op->call.store;
    kvcl_op_out_t out   = {.cap = KVCL_OP_ANSWER_MAX, .buf = malloc(KVCL_OP_ANSWER_MAX)};
    kvcl_status_t status;

    status = (out.buf != NULL) ? kvcl_store_room(store->ctx)->kinds[kind].op(store, in, len, &out) : KVCL_ERR_NO_MEMORY;
    answer(op, store->me, tag, status, out.buf, (status == KVCL_OK) ? out.len : 0);
    free(out.buf);
}

void kvcl_op_rpc(kvcl_op_t *op, uint32_t rank, uint8_t kind, const void *in, size_t len, uint64_t tag,
                 uint64_t grace_ns)
{
    kvcl_store_h store = op->call.store;
    kvcl_rpc_t   *rpc;

    kvcl_assert_locked(store->ctx);
    if (rank == store->me) {
        query_local(op, kind, in, len, tag);
        return;
    }
    if ((store->incarnations[rank] == 0) || kvcl_store_excludes(store, rank)) {
        answer(op, rank, tag, (store->incarnations[rank] == 0) ? KVCL_ERR_RANK_FAILED : KVCL_ERR_UNREACHABLE, NULL,
               0);
        return;
    }
    rpc = kvcl_rpc_new(store, rank, kind, len);
    if (rpc == NULL) {
        answer(op, rank, tag, KVCL_ERR_NO_MEMORY, NULL, 0);
        return;
    }
    if (len != 0) {
        kvcl_copy_bytes(rpc->payload, in, len);
    }
    rpc->len      = len;
    rpc->n        = 1;
    rpc->arg      = op;
    rpc->tag      = tag;
    rpc->done     = on_answer;
    rpc->grace_ns = grace_ns;
    kvcl_call_post(&op->call, rpc, 0, true);
}

kvcl_status_t kvcl_op_check_rank(kvcl_store_h store, int rank, const char *call)
{
    return ((rank < 0) || ((uint32_t)rank >= store->n_ranks))
               ? kvcl_fail(KVCL_ERR_UNKNOWN_RANK, "%s: rank is %d, but the store has ranks 0 to %u", call, rank,
                           store->n_ranks - 1)
               : KVCL_OK;
}

/* ---- one blocking round ---- */

typedef struct round {
    kvcl_op_t     op;
    bool          requested;
    uint8_t       kind;
    uint32_t      first, n; /* the ranks first to first + n - 1 */
    const void    *in;
    size_t        len;
    kvcl_op_out_t *outs;    /* n of each, the caller's */
    kvcl_status_t *status;
} round_t;

static void on_round(kvcl_op_t *op, uint32_t rank, uint64_t tag, kvcl_status_t status, const void *data, size_t len)
{
    round_t       *round = kvcl_container_of(op, round_t, op);
    kvcl_op_out_t *out   = &round->outs[tag];

    (void)rank;
    if ((status == KVCL_OK) && (len > out->cap)) {
        status = KVCL_ERR_PROTOCOL;
    } else if (status == KVCL_OK) {
        if (len != 0) {
            kvcl_copy_bytes(out->buf, data, len);
        }
        out->len = len;
    }
    round->status[tag] = status;
}

/* The other ranks first: they answer while this rank makes its own answer. */
static bool query_round(kvcl_call_t *call)
{
    round_t  *round = kvcl_container_of(call, round_t, op.call);
    uint32_t me     = call->store->me - round->first, i;

    if (round->requested) {
        return false;
    }
    round->requested = true;
    for (i = 0; i < round->n; ++i) {
        if ((i != me) && (round->status[i] == KVCL_OK)) {
            kvcl_op_rpc(&round->op, round->first + i, round->kind, round->in, round->len, i, 0);
        }
    }
    if ((me < round->n) && (round->status[me] == KVCL_OK)) {
        kvcl_op_rpc(&round->op, call->store->me, round->kind, round->in, round->len, me, 0);
    }
    return true;
}

/* Each rank has its own status, so a deadline is no failure of the round. */
static kvcl_status_t end_round(kvcl_call_t *call)
{
    return (call->stopped == KVCL_ERR_TIMED_OUT) ? KVCL_OK : call->stopped;
}

static kvcl_status_t run_round(kvcl_store_h store, round_t with, uint64_t timeout_ns, const char *name)
{
    kvcl_xfer_params_t p      = {.size = sizeof(p), .timeout_ns = timeout_ns};
    round_t            *round = malloc(sizeof(*round));

    if (round == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for requests to %u ranks", name, with.n);
    }
    *round              = with;
    round->op.answered  = on_round;
    round->op.call.next = query_round;
    round->op.call.end  = end_round;
    return kvcl_call_run(&round->op.call, store, name, &p);
}

kvcl_status_t kvcl_op_call(kvcl_store_h store, int rank, uint8_t kind, const void *in, size_t len, uint64_t timeout_ns,
                           kvcl_op_out_t *out, const char *name)
{
    kvcl_status_t one = KVCL_OK, status = kvcl_op_check_rank(store, rank, name);

    if (status == KVCL_OK) {
        status = run_round(store, (round_t){.kind = kind, .first = (uint32_t)rank, .n = 1, .in = in, .len = len,
                                            .outs = out, .status = &one}, timeout_ns, name);
    }
    return ((status == KVCL_OK) && (one < 0))
               ? kvcl_fail(one, "%s: rank %d: %s", name, rank, kvcl_status_text(one)) : (status < 0) ? status : one;
}

kvcl_status_t kvcl_op_why(kvcl_call_t *call, kvcl_status_t status, int rank)
{
    kvcl_assert_locked(call->store->ctx);
    switch (status) {
    case KVCL_ERR_RANK_FAILED:
        kvcl_req_why(&call->req, "rank %d no longer takes part in the store", rank);
        break;
    case KVCL_ERR_UNREACHABLE:
        kvcl_req_why(&call->req, "rank %d is excluded here: kvcl_store_exclude(store, %d, 0) admits it again", rank,
                     rank);
        break;
    case KVCL_ERR_TIMED_OUT:
        kvcl_req_why(&call->req, "rank %d did not answer in time: it is stopped or busy, or the deadline is too short",
                     rank);
        break;
    case KVCL_ERR_PROTOCOL:
        kvcl_req_why(&call->req, "rank %d sent a malformed answer: check that all ranks run the same version", rank);
        break;
    default:
        if (status < 0) {
            kvcl_req_why(&call->req, "rank %d: %s", rank, kvcl_status_text(status));
        }
        break;
    }
    return status;
}

kvcl_status_t kvcl_op_call_all(kvcl_store_h store, uint8_t kind, const void *in, size_t len, uint64_t timeout_ns,
                               kvcl_op_out_t *outs, kvcl_status_t *status)
{
    return run_round(store, (round_t){.kind = kind, .n = store->n_ranks, .in = in, .len = len, .outs = outs,
                                      .status = status}, timeout_ns, "kvcl_store");
}
