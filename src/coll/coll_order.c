/*
 * The collectives of a communicator in one order with its agreements (coll_order.h).
 *
 * Invariant: a collective that ends here ends on all ranks of it, each by its own agreement; its ABORTs carry the two
 * calls all the same, for a rank that was told of the agreement before and does not end it by itself. A communicator's
 * state under the old numbers lives until the last of its collectives is over, as when a process has joined.
 * Locks: the engine lock.
 */
#include "config.h"
#include "coll/coll_order.h"
#include "base/error.h"
#include "coll/coll_run.h"

/* One of this state from number seq on that is open and has not failed; NULL: the list has none. */
static kvcl_coll_op_t *find_in(kvcl_list_t *list, const kvcl_coll_comm_t *cc, uint64_t seq)
{
    kvcl_coll_op_t *op;

    kvcl_list_foreach (op, list, kvcl_coll_op_t, link) {
        if ((op->cc == cc) && (op->seq >= seq) && (op->exec.status == KVCL_OK) &&
            (kvcl_exec_status(&op->exec) == KVCL_INPROGRESS)) {
            return op;
        }
    }
    return NULL;
}

static kvcl_coll_op_t *find_open(kvcl_context_h ctx, kvcl_coll_comm_t *cc, uint64_t seq)
{
    kvcl_coll_op_t *op = find_in(&kvcl_coll_room(ctx)->running, cc, seq);

    return (op != NULL) ? op : find_in(&cc->waiting, cc, seq);
}

bool kvcl_coll_order_called(kvcl_comm_h comm, uint64_t seq, kvcl_coll_called_t *called_p)
{
    kvcl_coll_comm_t *cc = kvcl_map_get(&kvcl_coll_room(comm->ctx)->comms, kvcl_comm_coll_id(comm));
    kvcl_coll_op_t   *op = (cc != NULL) ? find_open(comm->ctx, cc, seq) : NULL;

    kvcl_assert_locked(comm->ctx);
    if (op == NULL) {
        return false;
    }
    *called_p = kvcl_coll_past_call(cc, seq);
    op        = kvcl_coll_running(comm->ctx, cc->id, seq);
    if (op != NULL) {
        *called_p = op->called;
    }
    kvcl_list_foreach (op, &cc->waiting, kvcl_coll_op_t, link) {
        if (op->seq == seq) {
            *called_p = op->called;
        }
    }
    return true;
}

void kvcl_coll_order_end(kvcl_comm_h comm, uint64_t seq, const kvcl_coll_unlike_t *unlike, uint64_t epoch)
{
    kvcl_context_h   ctx = comm->ctx;
    kvcl_coll_comm_t *cc = kvcl_map_get(&kvcl_coll_room(ctx)->comms, kvcl_comm_coll_id(comm));
    kvcl_coll_op_t   *op;

    kvcl_assert_locked(ctx);
    if (cc != NULL) {
        cc->posts += 1; /* so that cc stays until kvcl_coll_comm_release() below */
        while ((op = find_open(ctx, cc, seq)) != NULL) {
            if (unlike != NULL) {
                op->unlike = *unlike;
                (void)kvcl_coll_unlike_fail(unlike);
                kvcl_req_keep_error(&op->req);
            }
            kvcl_req_bind(&op->req, 0); /* all ranks know of this failure: it is not counted (req/failures.h) */
            kvcl_coll_class.stop(&op->req, KVCL_ERR_INVALID_PARAM);
        }
    } else {
        kvcl_coll_forget(ctx, NULL, kvcl_comm_coll_id(comm)); /* what others have begun here */
    }
    comm->epoch    = epoch;
    comm->coll_seq = 0;
    if (cc != NULL) {
        cc->comm   = NULL;
        cc->posts -= 1;
        kvcl_coll_comm_release(ctx, cc);
    }
}
