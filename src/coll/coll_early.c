/*
 * Arrival of collectives' messages, and the queue of early ones.
 *
 * Early: a rank may announce in a collective, or even in a communicator, that this rank has not begun. Such messages
 * are kept unchanged and handled when the collective begins. Bound: a correct rank has at most KVCL_COLL_OPEN
 * collectives of a communicator in flight, each with KVCL_EXEC_ANNOUNCES announcements open to a peer; EARLY_MAX holds
 * those of four communicators, and the bound of bytes those of one at least. Where a peer exceeds it, its messages
 * older than two timeouts are dropped; or it is sent an ABORT.
 *
 * An ABORT for a collective that has not begun is answered with an ABORT at once, because no bytes are being read. An
 * announcement in one that has ended is answered with its status. No other message of either is answered, and an answer
 * never is: otherwise two ranks that both do not know a collective would answer each other for ever.
 *
 * Engine lock throughout.
 */
#include "config.h"
#include "base/clock.h"
#include "base/log.h"
#include "coll/coll_run.h"
#include "weave/pieces.h"

#include <stdlib.h>
#include <string.h>

enum { EARLY_MAX = 4 * KVCL_COLL_OPEN * (KVCL_EXEC_ANNOUNCES + 1), EARLY_BYTES_MAX = 32 << 20 };

typedef struct early {
    kvcl_list_t     link;
    kvcl_peer_t     *peer;
    uint64_t        came_ns;
    size_t          len;
    kvcl_msg_coll_t msg;
    unsigned char   payload[] __attribute__((aligned(8)));
} early_t;

static void drop(early_t *early)
{
    kvcl_list_del(&early->link);
    free(early);
}

void kvcl_coll_forget(kvcl_context_h ctx, const kvcl_peer_t *peer, uint64_t comm)
{
    early_t *early, *next;

    kvcl_list_foreach_safe (early, next, &kvcl_coll_room(ctx)->early, early_t, link) {
        if (((peer == NULL) || (early->peer == peer)) && ((comm == 0) || (early->msg.comm == comm))) {
            drop(early);
        }
    }
}

void kvcl_coll_replay(kvcl_coll_op_t *op)
{
    kvcl_list_t *all = &kvcl_coll_room(op->req.ctx)->early;
    early_t     *early, *next;

    kvcl_list_foreach_safe (early, next, all, early_t, link) {
        if ((early->msg.comm == op->cc->id) && (early->msg.seq == op->seq)) {
            kvcl_coll_handle(op, early->peer, &early->msg, early->payload, early->len);
            drop(early);
        }
    }
}

void kvcl_coll_refuse(kvcl_context_h ctx, const kvcl_coll_comm_t *cc, uint64_t seq)
{
    early_t *early, *next;

    kvcl_list_foreach_safe (early, next, &kvcl_coll_room(ctx)->early, early_t, link) {
        if ((early->msg.comm == cc->id) && (early->msg.seq == seq)) {
            if (early->msg.kind == KVCL_COLL_ANNOUNCE) {
                kvcl_coll_turn_away(cc, &early->msg, early->peer, KVCL_ERR_INVALID_PARAM);
            }
            drop(early);
        }
    }
}

/* Have this peer's messages and one of len bytes room? */
static bool fits(kvcl_context_h ctx, const kvcl_peer_t *peer, size_t len)
{
    const size_t most = (size_t)KVCL_COLL_OPEN * KVCL_EXEC_ANNOUNCES * ctx->config.eager; /* of one communicator */
    size_t       n    = 0, bytes = len;
    early_t      *early;

    kvcl_list_foreach (early, &kvcl_coll_room(ctx)->early, early_t, link) {
        n     += (early->peer == peer) ? 1 : 0;
        bytes += (early->peer == peer) ? early->len : 0;
    }
    return (n < EARLY_MAX) && (bytes <= ((most > EARLY_BYTES_MAX) ? most : EARLY_BYTES_MAX));
}

/* Expired messages make room where there is none: others may still wait for these collectives, whose own deadlines are
 * not known here. */
static bool has_room(kvcl_context_h ctx, const kvcl_peer_t *peer, size_t len)
{
    const uint64_t now = kvcl_now_ns(), age = 2 * ctx->config.timeout_ns;
    early_t        *early, *next;

    if (fits(ctx, peer, len)) {
        return true;
    }
    kvcl_list_foreach_safe (early, next, &kvcl_coll_room(ctx)->early, early_t, link) {
        if ((early->peer == peer) && (now - early->came_ns > age)) {
            drop(early);
        }
    }
    return fits(ctx, peer, len);
}

/* A peer aborts a collective: drop its announcements in it. */
static void unannounce(kvcl_context_h ctx, const kvcl_peer_t *peer, const kvcl_msg_coll_t *in)
{
    early_t *early, *next;

    kvcl_list_foreach_safe (early, next, &kvcl_coll_room(ctx)->early, early_t, link) {
        if ((early->peer == peer) && (early->msg.comm == in->comm) && (early->msg.seq == in->seq)) {
            drop(early);
        }
    }
}

/* This rank may not know the communicator yet: the receiver uses only comm and seq. */
static void answer(const kvcl_msg_coll_t *in, kvcl_peer_t *peer, const kvcl_coll_comm_t *cc, kvcl_status_t status)
{
    kvcl_msg_coll_t out = {.msg    = {.type = KVCL_MSG_COLL, .flags = KVCL_COLL_ANSWER},
                           .comm   = in->comm,
                           .seq    = in->seq,
                           .rank   = (cc != NULL) ? cc->rank : UINT32_MAX,
                           .kind   = KVCL_COLL_ABORT,
                           .status = status};

    if (kvcl_peer_post(peer, &out.msg, sizeof(out), NULL, 0) != KVCL_OK) {
        kvcl_log_debug("%s has failed: an ABORT is not sent", peer->name);
    }
}

static void hold(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_coll_t *in, const void *data, size_t len,
                 const kvcl_coll_comm_t *cc)
{
    early_t *early;

    if ((in->kind == KVCL_COLL_ABORT) && ((in->msg.flags & KVCL_COLL_ANSWER) == 0)) {
        unannounce(ctx, peer, in);
        answer(in, peer, cc, kvcl_coll_error_of(in->status));
    } else if (in->kind != KVCL_COLL_ANNOUNCE) {
        ++ctx->stats.late;
        return;
    }
    early = has_room(ctx, peer, len) ? malloc(sizeof(*early) + len) : NULL;
    if (early == NULL) {
        kvcl_log_warn("%s sends too many messages of collectives that this rank has not begun", peer->name);
        if (in->kind == KVCL_COLL_ANNOUNCE) {
            answer(in, peer, cc, KVCL_ERR_NO_SPACE);
        }
        return;
    }
    early->peer    = peer;
    early->came_ns = kvcl_now_ns();
    early->len     = len;
    early->msg     = *in;
    if (len > 0) {
        kvcl_copy_bytes(early->payload, data, len);
    }
    kvcl_list_add_tail(&kvcl_coll_room(ctx)->early, &early->link);
}

void kvcl_coll_on_message(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                          const void *data, size_t len)
{
    kvcl_msg_coll_t        in = {.kind = 0};
    const kvcl_coll_comm_t *cc;
    kvcl_coll_op_t         *op;
    kvcl_status_t          status;

    memcpy(&in, msg, (hdr_len < sizeof(in)) ? hdr_len : sizeof(in)); /* a rank of an older version says no call */
    cc = kvcl_map_get(&kvcl_coll_room(ctx)->comms, in.comm);
    op = kvcl_coll_running(ctx, in.comm, in.seq);
    if (op != NULL) {
        kvcl_coll_handle(op, peer, &in, data, len);
        op->advance(op);
    } else if ((cc != NULL) && kvcl_coll_comm_is_over(cc, in.seq, &status)) {
        if ((in.kind == KVCL_COLL_ANNOUNCE) || (in.kind == KVCL_COLL_COMPARE)) {
            kvcl_coll_turn_away(cc, &in, peer, status);
        } else {
            ++ctx->stats.late;
        }
    } else {
        hold(ctx, peer, &in, data, len, cc);
    }
}
