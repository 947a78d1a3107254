/*
 * kvcl_context_connect (door.h): a request that waits for the peer's session, sends CALL, and ends with its ANSWER.
 *
 * Invariants: the caller blocks until the request has ended, so what the request points to outlives it; the
 * communicator exists before CALL is sent, because messages of the other side may arrive with ANSWER. Locks: the engine
 * lock, but for the public call.
 */
#include "config.h"
#include "door/door.h"
#include "base/clock.h"
#include "base/error.h"
#include "handle/handle.h"
#include "req/callback.h"
#include "req/req.h"
#include "req/timeout.h"
#include "wire/address.h"
#include <kvcl/kvcl_comm.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char call[] = "kvcl_context_connect";

typedef struct calling {
    kvcl_req_t         req;
    kvcl_comm_h        comm;
    kvcl_peer_t        *peer;
    kvcl_peer_waiter_t waiter;
    bool               asked; /* CALL was sent */
} calling_t;

static calling_t *of(kvcl_req_t *req)
{
    return kvcl_container_of(req, calling_t, req);
}

static void stop(kvcl_req_t *req, kvcl_status_t status)
{
    if (!of(req)->asked) {
        kvcl_peer_unwait(&of(req)->waiter);
    }
    kvcl_req_complete(req, status);
}

static const kvcl_req_class_t calling_class = {.name = call, .stop = stop};

static void ask(calling_t *calling)
{
    kvcl_msg_door_t out = {.msg = {.type = KVCL_MSG_DOOR, .op = calling->req.id}, .kind = KVCL_DOOR_CALL};
    kvcl_status_t   status;

    calling->asked = true;
    out.id         = calling->comm->id;
    kvcl_req_watch(&calling->req, calling->peer);
    status = kvcl_peer_post(calling->peer, &out.msg, sizeof(out), NULL, 0);
    if (status != KVCL_OK) {
        kvcl_req_complete(&calling->req, status);
    }
}

static void on_session(kvcl_peer_waiter_t *waiter, kvcl_status_t status)
{
    calling_t *calling = kvcl_container_of(waiter, calling_t, waiter);

    if (status == KVCL_OK) {
        ask(calling);
        return;
    }
    calling->asked = true; /* the waiter is no longer in its list */
    kvcl_req_complete(&calling->req, status);
}

void kvcl_door_on_answer(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_door_t *in)
{
    kvcl_req_t    *req    = kvcl_req_find(ctx, in->msg.op, &calling_class);
    kvcl_status_t status = (kvcl_status_t)in->status;

    kvcl_assert_locked(ctx);
    if ((in->status > 0) || (in->rank > INT_MAX)) {
        kvcl_am_malformed(ctx, peer, "an answer of a door that no door gives");
        return;
    }
    if ((req == NULL) || (of(req)->peer != peer) || !of(req)->asked) {
        ++ctx->stats.late;
        if (status == KVCL_OK) {
            kvcl_door_say_leave(peer, in->id, (int)in->rank);
        }
        return;
    }
    if (status == KVCL_OK) {
        of(req)->comm->rank = (int)in->rank;
        status              = kvcl_door_conn_add(of(req)->comm, 0, peer, in->id);
        if (status != KVCL_OK) {
            kvcl_door_say_leave(peer, in->id, (int)in->rank);
        }
    }
    kvcl_req_complete(req, status);
}

/* ---- the call ---- */

/* The packed address that the text is, or that its port gives. */
static kvcl_status_t find(kvcl_context_h ctx, const char *address, uint64_t deadline_ns, void *packed, size_t cap,
                          size_t *len_p)
{
    kvcl_address_t parsed;
    kvcl_status_t  status;

    if (strncmp(address, "kvcl1:", 6) == 0) {
        status = kvcl_address_parse(address, packed, cap, len_p);
        status = (status == KVCL_OK) ? kvcl_address_unpack(packed, *len_p, &parsed) : status;
        return (status == KVCL_ERR_PROTOCOL) ? kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %s", call, kvcl_last_error())
                                             : status;
    }
    return kvcl_door_ask(address, ctx->secret, deadline_ns, packed, cap, len_p);
}

/* The sentence of a failure that the other side, or the progress thread, has decided. */
static kvcl_status_t explain(kvcl_status_t status, const char *address)
{
    static const struct {
        kvcl_status_t status;
        const char    *why;
    } reasons[] = {
        {KVCL_ERR_NOT_FOUND, "the context there does not listen: its program calls kvcl_context_listen first"},
        {KVCL_ERR_BUSY, "this context has as many connections to that door as it may have: disconnect some"},
        {KVCL_ERR_NO_SPACE, "that door has given all its numbers: its program must close it and listen again"},
        {KVCL_ERR_TIMED_OUT, "no answer in the time given"},
        {KVCL_ERR_AUTH, "the other side has another job secret: name the same file by KVCL_SECRET_FILE on both sides"},
        {KVCL_ERR_VERSION, "the other side has another wire version"},
        {KVCL_ERR_STALE, "the context of that address is closed, another has replaced it"},
    };
    const bool is_text = strlen(address) > 64; /* a context's address says nothing to a reader */
    size_t     i;

    for (i = 0; i < sizeof(reasons) / sizeof(reasons[0]); ++i) {
        if (reasons[i].status == status) {
            return kvcl_fail(status, "%s: %s: %s", call, is_text ? "that address" : address, reasons[i].why);
        }
    }
    return kvcl_fail(status, "%s: %s: %s", call, is_text ? "that address" : address, kvcl_last_error());
}

/* Blocks. The peer's answer is in comm, or the status says why not. */
static kvcl_status_t run(kvcl_comm_h comm, const void *packed, size_t len, uint64_t deadline_ns, const char *address)
{
    kvcl_context_h ctx      = comm->ctx;
    const uint64_t left_ns  = kvcl_deadline_left(deadline_ns);
    calling_t      *calling = calloc(1, sizeof(*calling));
    kvcl_status_t  status;

    if (calling == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory", call);
    }
    calling->comm      = comm;
    calling->waiter.fn = on_session;
    kvcl_list_init(&calling->waiter.link);
    kvcl_lock(ctx);
    status = kvcl_peer_by_address(ctx, packed, len, &calling->peer);
    if (status == KVCL_OK) {
        status = kvcl_req_start(&calling->req, ctx, &calling_class, (left_ns != 0) ? left_ns : 1, NULL, NULL, true);
    }
    if (status != KVCL_OK) {
        kvcl_unlock(ctx);
        free(calling);
        return (status == KVCL_ERR_NO_MEMORY) ? kvcl_fail(status, "%s: no memory", call) : status;
    }
    status = kvcl_req_publish(&calling->req);
    status = (status == KVCL_OK) ? kvcl_peer_ready(calling->peer, &calling->waiter) : status;
    if (status == KVCL_OK) {
        ask(calling);
    } else if (status != KVCL_INPROGRESS) {
        calling->asked = true;
        kvcl_req_keep_error(&calling->req);
        kvcl_req_complete(&calling->req, status);
    }
    kvcl_unlock(ctx);
    status = kvcl_req_wait(kvcl_req_handle(&calling->req), KVCL_WAIT_FOREVER);
    return (status == KVCL_OK) ? KVCL_OK : explain(status, address);
}

kvcl_status_t kvcl_context_connect(kvcl_context_h ctx, const char *address, uint64_t timeout_ns, kvcl_comm_h *comm_p)
{
    uint8_t       packed[KVCL_ADDRESS_MAX];
    size_t        len    = 0;
    kvcl_comm_h   comm   = NULL;
    kvcl_status_t status = kvcl_handle_check(ctx, KVCL_KIND_CONTEXT, call);
    uint64_t      deadline_ns;

    if (status != KVCL_OK) {
        return status;
    }
    if ((address == NULL) || (comm_p == NULL)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: NULL argument", call);
    }
    if (kvcl_callback_inside(ctx)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: it would block in a callback of the context", call);
    }
    status = kvcl_call_timeout(ctx, timeout_ns, call, &timeout_ns);
    if (status != KVCL_OK) {
        return status;
    }
    deadline_ns = kvcl_deadline_after(timeout_ns);
    status      = find(ctx, address, deadline_ns, packed, sizeof(packed), &len);
    status      = (status == KVCL_OK) ? kvcl_door_comm_make(ctx, 1, &comm) : status;
    if (status != KVCL_OK) {
        return status;
    }
    status = run(comm, packed, len, deadline_ns, address);
    if (status != KVCL_OK) {
        kvcl_comm_free(comm);
        return status;
    }
    *comm_p = comm;
    return KVCL_OK;
}
