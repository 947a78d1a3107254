/*
 * Inter-communicators: kvcl_comm_connect, kvcl_comm_accept, and the room of communicators.
 *
 * The rank 0s of both sides meet (join/meet.h). Each then broadcasts the outcome over its local communicator, so that
 * all ranks of a side return the same. To have time for that, the meeting gets a little less than
 * the caller's timeout. Both calls block and hold no lock.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "core/comm.h"
#include "handle/handle.h"
#include "req/timeout.h"
#include "join/meet.h"
#include <kvcl/kvcl_coll.h>

#include <stdlib.h>
#include <string.h>

/* The head of the broadcast of rank 0; the members' addresses follow. */
typedef struct outcome {
    int32_t  status;
    uint32_t n;
    uint64_t id;
    uint64_t len;
} outcome_t;

static kvcl_status_t spread(kvcl_comm_h comm, void *buf, size_t len, uint64_t deadline_ns)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_req_h         req    = NULL;
    kvcl_status_t      status;

    params.timeout_ns = kvcl_deadline_left(deadline_ns);
    if (params.timeout_ns < KVCL_NS_PER_MS) {
        params.timeout_ns = KVCL_NS_PER_MS;
    }
    status = kvcl_bcast_bytes(comm, 0, buf, len, &params, &req);
    if (status == KVCL_OK) {
        status = kvcl_req_wait(req, KVCL_WAIT_FOREVER);
    }
    return (status == KVCL_OK) ? KVCL_OK
                               : kvcl_fail(status, "the ranks of this side could not agree: %s",
                                           kvcl_status_text(status));
}

/* The packed addresses of comm's ranks, from boot. */
static kvcl_status_t list_members(kvcl_comm_h comm, kvcl_members_t *members)
{
    kvcl_context_h ctx    = comm->ctx;
    kvcl_status_t  status = KVCL_OK;
    const void     *blob;
    char           *grown;
    size_t         len;
    uint32_t       len32;
    int            i;

    memset(members, 0, sizeof(*members));
    members->n = (uint32_t)comm->size;
    pthread_mutex_lock(&ctx->boot_lock);
    for (i = 0; (status == KVCL_OK) && (i < comm->size); ++i) {
        status = kvcl_rank_slot_address(ctx, (comm->world != NULL) ? comm->world[i] : i, &blob, &len);
        if (status != KVCL_OK) {
            break;
        }
        grown = (members->len + len + 4 <= KVCL_MEMBERS_BYTES_MAX) ? realloc(members->buf, members->len + len + 4)
                                                                   : NULL;
        if (grown == NULL) {
            status = kvcl_fail(KVCL_ERR_NO_MEMORY, "no room for the addresses of %d ranks", comm->size);
            break;
        }
        len32 = (uint32_t)len;
        memcpy(grown + members->len, &len32, sizeof(len32));
        memcpy(grown + members->len + sizeof(len32), blob, len);
        members->buf  = grown;
        members->len += sizeof(len32) + len;
    }
    pthread_mutex_unlock(&ctx->boot_lock);
    return status;
}

static kvcl_status_t meet_as_root(kvcl_comm_h comm, const char *address, uint64_t timeout_ns, kvcl_members_t *theirs,
                                  uint64_t *id_p)
{
    uint64_t       reserve = (timeout_ns / 4 < KVCL_NS_PER_SEC) ? timeout_ns / 4 : KVCL_NS_PER_SEC;
    kvcl_members_t mine;
    kvcl_status_t  status = list_members(comm, &mine);

    if (status == KVCL_OK) {
        status = kvcl_meet(comm->ctx, address, &mine, timeout_ns - reserve, theirs, id_p);
    }
    free(mine.buf);
    return status;
}

static kvcl_status_t make_inter(kvcl_comm_h local, const outcome_t *outcome, const kvcl_members_t *theirs,
                                kvcl_comm_h *inter_p)
{
    kvcl_context_h ctx = local->ctx;
    kvcl_comm_h    inter;
    kvcl_peer_t    *peer;
    kvcl_status_t  status = kvcl_comm_make(ctx, outcome->id, local->rank, (int)theirs->n, &inter);
    const void     *addr = NULL;
    size_t         at = 0, len = 0;
    uint32_t       i;

    if (status != KVCL_OK) {
        return status;
    }
    inter->inter      = true;
    inter->local      = local;
    inter->local_size = local->size;
    kvcl_lock(ctx);
    for (i = 0; (status == KVCL_OK) && (i < theirs->n); ++i) {
        status = kvcl_members_next(theirs, &at, &addr, &len);
        if (status == KVCL_OK) {
            status = kvcl_peer_by_address(ctx, addr, len, &peer);
            if (status == KVCL_OK) {
                inter->peers[i] = peer;
            }
        }
    }
    kvcl_unlock(ctx);
    if (status != KVCL_OK) {
        kvcl_comm_free(inter);
        return status;
    }
    *inter_p = inter;
    return KVCL_OK;
}

/* All ranks: receive the outcome from rank 0, which passes status and theirs. */
static kvcl_status_t conclude(kvcl_comm_h comm, kvcl_status_t status, kvcl_members_t *theirs, uint64_t id,
                              uint64_t deadline_ns, kvcl_comm_h *inter_p)
{
    outcome_t     outcome  = {.status = status, .n = theirs->n, .id = id, .len = theirs->len};
    kvcl_status_t notified = spread(comm, &outcome, sizeof(outcome), deadline_ns);

    if (notified != KVCL_OK) {
        return notified;
    }
    if (outcome.status != KVCL_OK) {
        return (comm->rank == 0) ? status : kvcl_fail((kvcl_status_t)outcome.status, "rank 0 could not connect: %s",
                                                      kvcl_status_text((kvcl_status_t)outcome.status));
    }
    if (comm->rank != 0) {
        *theirs = (kvcl_members_t){malloc(outcome.len), outcome.len, outcome.n};
        if (theirs->buf == NULL) {
            return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for %u addresses", outcome.n);
        }
    }
    notified = spread(comm, theirs->buf, theirs->len, deadline_ns);
    return (notified == KVCL_OK) ? make_inter(comm, &outcome, theirs, inter_p) : notified;
}

/* The sentence of a failed meeting: its status was set on the other side, or on the progress thread. */
static void explain(kvcl_status_t status, const char *call, bool accept)
{
    switch (status) {
    case KVCL_ERR_TIMED_OUT:
        (void)kvcl_fail(status, "%s: nobody %s in the time given", call, accept ? "connected" : "accepted");
        break;
    case KVCL_ERR_AUTH:
        (void)kvcl_fail(status, "%s: the other side has another job secret: set KVCL_SECRET_FILE to the same file for "
                        "both jobs", call);
        break;
    case KVCL_ERR_VERSION:
        (void)kvcl_fail(status, "%s: the other side has another wire version than %u", call,
                        (unsigned)KVCL_WIRE_VERSION);
        break;
    case KVCL_ERR_STALE:
        (void)kvcl_fail(status, "%s: the context of that address is closed, another has replaced it", call);
        break;
    default:
        break;
    }
}

static kvcl_status_t join(kvcl_comm_h comm, const char *address, bool accept, uint64_t timeout_ns, kvcl_comm_h *inter_p,
                          const char *call)
{
    kvcl_members_t theirs = {NULL, 0, 0};
    kvcl_status_t  status = KVCL_OK;
    uint64_t       id     = 0, deadline_ns;

    status = kvcl_handle_check(comm, KVCL_KIND_COMM, call);
    if (status != KVCL_OK) {
        return status;
    }
    if ((inter_p == NULL) || comm->inter) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: NULL argument, or an inter-communicator", call);
    }
    status = kvcl_call_timeout(comm->ctx, timeout_ns, call, &timeout_ns);
    if (status != KVCL_OK) {
        return status;
    }
    deadline_ns = kvcl_deadline_after(timeout_ns);
    if (comm->rank == 0) { /* on every error too: the other ranks wait for the outcome */
        status = (!accept && (address == NULL))
                     ? kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: rank 0 needs the other side's address", call)
                     : meet_as_root(comm, address, timeout_ns, &theirs, &id);
        explain(status, call, accept);
    }
    status = conclude(comm, status, &theirs, id, deadline_ns, inter_p);
    free(theirs.buf);
    return status;
}

kvcl_status_t kvcl_comm_connect(kvcl_comm_h comm, const char *address, uint64_t timeout_ns, kvcl_comm_h *inter_p)
{
    return join(comm, address, false, timeout_ns, inter_p, "kvcl_comm_connect");
}

kvcl_status_t kvcl_comm_accept(kvcl_comm_h comm, uint64_t timeout_ns, kvcl_comm_h *inter_p)
{
    return join(comm, NULL, true, timeout_ns, inter_p, "kvcl_comm_accept");
}

static const kvcl_msg_handler_t handlers[] = {
    {KVCL_MSG_CONNECT, sizeof(kvcl_msg_connect_t), kvcl_meet_on_connect},
    {KVCL_MSG_CONNECTED, sizeof(kvcl_msg_connect_t), kvcl_meet_on_connected},
    {0, 0, NULL},
};

const kvcl_room_t kvcl_room_comm = {
    .name        = "comm",
    .handlers    = handlers,
    .init        = kvcl_meet_init,
    .fini        = kvcl_meet_fini,
    .peer_failed = kvcl_meet_peer_failed,
};

int kvcl_comm_is_inter(kvcl_comm_h comm)
{
    return ((kvcl_handle_check(comm, KVCL_KIND_COMM, "kvcl_comm_is_inter") == KVCL_OK) && comm->inter) ? 1 : 0;
}
