/*
 * How a collective ends that the ranks have not called alike, or that one of them gives up: ABORT and COMPARE
 * (coll_wire.h).
 *
 * Each message names its sender's call. The first rank that finds another call than its own keeps both, with their
 * ranks, and its ABORTs pass them on to all ranks: so those that are still in the collective fail with one sentence.
 * Ranks that all wait to receive send nothing; shortly before its deadline each therefore sends its call to all
 * (COMPARE).
 *
 * Engine lock throughout.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "coll/coll_run.h"

enum { COMPARE_MS = 500 };

kvcl_msg_coll_t kvcl_coll_header(const kvcl_coll_comm_t *cc, uint64_t seq, const kvcl_coll_called_t *called,
                                 uint32_t kind)
{
    return (kvcl_msg_coll_t){.msg = {.type = KVCL_MSG_COLL}, .comm = cc->id, .seq = seq, .rank = cc->rank,
                             .kind = kind, .called = *called};
}

void kvcl_coll_keep_call(kvcl_coll_comm_t *cc, uint64_t seq, const kvcl_coll_called_t *called)
{
    cc->past[seq % KVCL_COLL_PAST].seq    = seq;
    cc->past[seq % KVCL_COLL_PAST].called = *called;
}

kvcl_coll_called_t kvcl_coll_past_call(const kvcl_coll_comm_t *cc, uint64_t seq)
{
    return (cc->past[seq % KVCL_COLL_PAST].seq == seq) ? cc->past[seq % KVCL_COLL_PAST].called
                                                       : (kvcl_coll_called_t){.kind = 0};
}

/* ---- out ---- */

static kvcl_status_t post_abort(kvcl_msg_coll_t *out, kvcl_peer_t *to, kvcl_status_t status,
                                const kvcl_coll_unlike_t *unlike)
{
    const bool has_any = (unlike->calls[0].kind != 0);

    out->status = status;
    return kvcl_peer_post(to, &out->msg, sizeof(*out), has_any ? unlike : NULL, has_any ? sizeof(*unlike) : 0);
}

/* The others have excluded this rank (member/member.h): all peers fail, those that it has met as well. */
static bool is_excluded(const kvcl_coll_op_t *op)
{
    uint32_t i;

    for (i = 0; i < op->plan->plan.npeers; ++i) {
        if (op->peers[i].gone && op->peers[i].peer->met && (op->peers[i].peer->why == KVCL_ERR_STALE)) {
            return true;
        }
    }
    return false;
}

/* A rank that is excluded has failed, to the others. */
kvcl_status_t kvcl_coll_abort(const kvcl_coll_op_t *op, kvcl_peer_t *to, kvcl_status_t status)
{
    kvcl_msg_coll_t out = kvcl_coll_header(op->cc, op->seq, &op->called, KVCL_COLL_ABORT);

    return post_abort(&out, to, is_excluded(op) ? KVCL_ERR_RANK_FAILED : status, &op->unlike);
}

void kvcl_coll_try_abort(const kvcl_coll_op_t *op, kvcl_peer_t *to, kvcl_status_t status)
{
    if (kvcl_coll_abort(op, to, status) != KVCL_OK) {
        kvcl_log_debug("%s has failed: an ABORT is not sent", to->name);
    }
}

void kvcl_coll_turn_away(const kvcl_coll_comm_t *cc, const kvcl_msg_coll_t *in, kvcl_peer_t *to, kvcl_status_t status)
{
    const kvcl_coll_called_t mine   = kvcl_coll_past_call(cc, in->seq);
    kvcl_msg_coll_t          out    = kvcl_coll_header(cc, in->seq, &mine, KVCL_COLL_ABORT);
    kvcl_coll_unlike_t       unlike = {.ranks = {in->rank, cc->rank}};

    if (kvcl_coll_called_differs(&in->called, &mine)) {
        unlike.calls[0] = in->called;
        unlike.calls[1] = mine;
        status          = KVCL_ERR_INVALID_PARAM;
    } else if (in->kind == KVCL_COLL_COMPARE) {
        return; /* the same call, and what this rank owed is on its way */
    }
    if (post_abort(&out, to, status, &unlike) != KVCL_OK) {
        kvcl_log_debug("%s has failed: an ABORT is not sent", to->name);
    }
}

uint64_t kvcl_coll_compare_ns(uint64_t timeout_ns)
{
    const uint64_t before_ns = COMPARE_MS * KVCL_NS_PER_MS;

    return timeout_ns - ((timeout_ns / 2 < before_ns) ? (timeout_ns / 2) : before_ns);
}

void kvcl_coll_compare(kvcl_coll_op_t *op)
{
    kvcl_msg_coll_t out  = kvcl_coll_header(op->cc, op->seq, &op->called, KVCL_COLL_COMPARE);
    kvcl_comm_h     comm = op->cc->comm;
    int             i;

    op->compared = true;
    for (i = 0; (comm != NULL) && (i < comm->size); ++i) {
        kvcl_peer_t *peer = comm->peers[i];

        if ((peer != NULL) && (i != comm->rank) && (peer->state == KVCL_PEER_READY) &&
            (kvcl_peer_post(peer, &out.msg, sizeof(out), NULL, 0) != KVCL_OK)) {
            kvcl_log_debug("%s has failed: a COMPARE is not sent", peer->name);
        }
    }
}

/* ---- in, for a collective that has begun ---- */

kvcl_status_t kvcl_coll_error_of(int32_t status)
{
    const bool is_one = ((status < 0) && (status >= KVCL_ERR_INTERNAL)) || (status == KVCL_ERR_REVOKED);

    return is_one ? (kvcl_status_t)status : KVCL_ERR_CANCELED;
}

kvcl_status_t kvcl_coll_check_call(kvcl_coll_op_t *op, const kvcl_msg_coll_t *in)
{
    kvcl_coll_unlike_t unlike = {.ranks = {in->rank, op->cc->rank}, .calls = {in->called, op->called}};

    if (!kvcl_coll_called_differs(&in->called, &op->called)) {
        return KVCL_OK;
    }
    if (op->exec.status == KVCL_OK) {
        op->unlike = unlike;
    }
    return kvcl_coll_unlike_fail(&unlike);
}

void kvcl_coll_compared(kvcl_coll_op_t *op, kvcl_peer_t *peer, const kvcl_msg_coll_t *in)
{
    if ((op->exec.status != KVCL_OK) || (kvcl_coll_check_call(op, in) == KVCL_OK)) {
        return; /* the others are told already, or need not be */
    }
    kvcl_req_keep_error(&op->req);
    kvcl_exec_fail(&op->exec, KVCL_ERR_INVALID_PARAM);
    kvcl_coll_try_abort(op, peer, KVCL_ERR_INVALID_PARAM); /* it may have no open step with this rank */
}

kvcl_status_t kvcl_coll_why_aborted(kvcl_coll_op_t *op, uint32_t rank, const kvcl_msg_coll_t *in, const void *data,
                                    size_t len)
{
    const kvcl_status_t status = kvcl_coll_error_of(in->status);
    kvcl_coll_unlike_t  unlike;

    if (op->exec.status != KVCL_OK) {
        return status;
    }
    if (kvcl_coll_unlike_read(data, len, &unlike)) {
        op->unlike = unlike;
        (void)kvcl_coll_unlike_fail(&unlike);
    } else if (((status != KVCL_ERR_TIMED_OUT) && (status != KVCL_ERR_INVALID_PARAM)) ||
               (kvcl_coll_check_call(op, in) == KVCL_OK)) {
        kvcl_req_why(&op->req, "rank %u aborted it: %s; that rank's kvcl_req_error has the reason", rank,
                     kvcl_status_text(status));
        return status;
    }
    kvcl_req_keep_error(&op->req);
    return KVCL_ERR_INVALID_PARAM;
}
