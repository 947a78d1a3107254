/*
 * kvcl_context_connect and kvcl_context_connect_post (door.h): a request that asks at "host:port" for the peer's
 * address if it needs to, waits for the peer's session, sends CALL, and ends with its ANSWER.
 *
 * Invariants: the communicator exists before CALL is sent, because messages of the other side may arrive with ANSWER;
 * it is the caller's, who may free it at any time: a request in the room's list has its communicator, one that has
 * ended uses it no more. A thread that asks holds the request. Locks: the engine lock, but for the public calls.
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
#include "xfer/params.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char call[] = "kvcl_context_connect";

typedef enum phase {
    ASKING,  /* a thread asks for the address */
    MEETING, /* the peer's session is made */
    CALLED   /* CALL was sent */
} phase_t;

typedef struct calling {
    kvcl_req_t           req;
    kvcl_list_t          link; /* kvcl_door_room_t.calling */
    kvcl_comm_h          comm;
    phase_t              phase;
    kvcl_peer_t          *peer;
    kvcl_peer_waiter_t   waiter;
    bool                 by_name; /* host:port, not the text of an address */
    char                 to[KVCL_HOSTPORT_MAX];
    kvcl_door_question_t question; /* its packed address, whoever found it */
} calling_t;

static calling_t *of(kvcl_req_t *req)
{
    return kvcl_container_of(req, calling_t, req);
}

static void finish(calling_t *calling, kvcl_status_t status)
{
    kvcl_list_del(&calling->link);
    calling->comm = NULL;
    kvcl_req_complete(&calling->req, status);
}

static void stop(kvcl_req_t *req, kvcl_status_t status)
{
    calling_t *calling = of(req);

    if (calling->phase == ASKING) {
        kvcl_door_question_drop(req->ctx, &calling->question);
        if ((status == KVCL_ERR_TIMED_OUT) && atomic_load(&calling->question.refused)) {
            kvcl_req_why(req, "each connection was closed before an answer");
            status = KVCL_ERR_UNREACHABLE;
        }
    } else if (calling->phase == MEETING) {
        kvcl_peer_unwait(&calling->waiter);
    }
    finish(calling, status);
}

static void describe(const kvcl_req_t *req, char *buf, size_t cap)
{
    snprintf(buf, cap, "%s to %s", call, of((kvcl_req_t *)(uintptr_t)req)->to);
}

/* Of a failure that the other side, the progress thread or the caller has decided. */
static bool explain(const kvcl_req_t *req, kvcl_status_t status, char *buf, size_t cap)
{
    static const struct {
        kvcl_status_t status;
        const char    *why;
    } reasons[] = {
        {KVCL_ERR_NOT_FOUND, "the context there does not listen: its program calls kvcl_context_listen first"},
        {KVCL_ERR_BUSY, "this context has as many connections to that door as it may have: disconnect some"},
        {KVCL_ERR_NO_SPACE, "that door has given all its numbers: its program must close it and listen again"},
        {KVCL_ERR_TIMED_OUT, "no answer in the time given"},
        {KVCL_ERR_CANCELED, "canceled, by kvcl_req_cancel, by kvcl_comm_free of its communicator, or by kvcl_finalize"},
        {KVCL_ERR_AUTH, "the other side has another job secret: name the same file by KVCL_SECRET_FILE on both sides"},
        {KVCL_ERR_VERSION, "the other side has another wire version"},
        {KVCL_ERR_STALE, "the context of that address is closed, another has replaced it"},
    };
    size_t i;

    (void)req;
    for (i = 0; i < sizeof(reasons) / sizeof(reasons[0]); ++i) {
        if (reasons[i].status == status) {
            snprintf(buf, cap, "%s", reasons[i].why);
            return true;
        }
    }
    return false;
}

static const kvcl_req_class_t calling_class = {.name = call, .stop = stop, .describe = describe, .explain = explain};

/* ---- the steps ---- */

static void send_call(calling_t *calling)
{
    kvcl_msg_door_t out = {.msg = {.type = KVCL_MSG_DOOR, .op = calling->req.id}, .kind = KVCL_DOOR_CALL};
    kvcl_status_t   status;

    calling->phase = CALLED;
    out.id         = calling->comm->id;
    kvcl_req_watch(&calling->req, calling->peer);
    status = kvcl_peer_post(calling->peer, &out.msg, sizeof(out), NULL, 0);
    if (status != KVCL_OK) {
        finish(calling, status);
    }
}

static void on_session(kvcl_peer_waiter_t *waiter, kvcl_status_t status)
{
    calling_t *calling = kvcl_container_of(waiter, calling_t, waiter);

    if (status == KVCL_OK) {
        send_call(calling);
    } else {
        finish(calling, status);
    }
}

/* Lock held. The address is known. */
static void meet(calling_t *calling)
{
    kvcl_status_t status = kvcl_peer_by_address(calling->req.ctx, calling->question.packed, calling->question.len,
                                                &calling->peer);

    kvcl_assert_locked(calling->req.ctx);
    calling->phase = MEETING;
    status         = (status == KVCL_OK) ? kvcl_req_publish(&calling->req) : status;
    status         = (status == KVCL_OK) ? kvcl_peer_ready(calling->peer, &calling->waiter) : status;
    if (status == KVCL_OK) {
        send_call(calling);
    } else if (status != KVCL_INPROGRESS) {
        kvcl_req_keep_error(&calling->req);
        finish(calling, status);
    }
}

static void on_address(kvcl_door_question_t *question, kvcl_status_t status)
{
    calling_t *calling = kvcl_container_of(question, calling_t, question);

    if (status == KVCL_OK) {
        meet(calling);
        return;
    }
    if ((status == KVCL_ERR_TIMED_OUT) && atomic_load(&question->refused)) {
        stop(&calling->req, status);
        return;
    }
    kvcl_req_keep_error(&calling->req);
    finish(calling, status);
}

static void on_release(kvcl_door_question_t *question)
{
    kvcl_req_drop(&kvcl_container_of(question, calling_t, question)->req);
}

/* Lock held. */
static void ask(calling_t *calling)
{
    kvcl_status_t status;

    kvcl_assert_locked(calling->req.ctx);
    (void)atomic_fetch_add(&calling->req.holders, 1); /* the thread's, until on_release() */
    status = kvcl_door_question_put(&kvcl_door_room_of(calling->req.ctx)->askers, &calling->question);
    if (status != KVCL_OK) {
        kvcl_req_keep_error(&calling->req);
        (void)atomic_fetch_sub(&calling->req.holders, 1);
        finish(calling, status);
    }
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
    if ((req == NULL) || (of(req)->peer != peer) || (of(req)->phase != CALLED)) {
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
    finish(of(req), status);
}

void kvcl_door_abandon(kvcl_door_room_t *room, kvcl_comm_h comm)
{
    calling_t *calling, *next;

    kvcl_assert_locked(comm->ctx);
    kvcl_list_foreach_safe (calling, next, &room->calling, calling_t, link) {
        if (calling->comm == comm) {
            stop(&calling->req, KVCL_ERR_CANCELED);
        }
    }
}

/* ---- the calls ---- */

/* The packed address that the text is, or where to ask for it. */
static kvcl_status_t read_address(kvcl_context_h ctx, calling_t *calling, const char *address)
{
    kvcl_door_question_t *question = &calling->question;
    kvcl_address_t       parsed;
    kvcl_status_t        status;

    calling->by_name = (strncmp(address, "kvcl1:", 6) != 0);
    if (calling->by_name) {
        status = kvcl_hostport_parse(address, call, 1, &question->at);
        if (status == KVCL_OK) {
            (void)kvcl_hostport_print(&question->at, calling->to);
        }
        return status;
    }
    snprintf(calling->to, sizeof(calling->to), "that address"); /* the text says nothing to a reader */
    status = kvcl_address_parse(ctx->secret, address, question->packed, sizeof(question->packed), &question->len);
    status = (status == KVCL_OK) ? kvcl_address_unpack(question->packed, question->len, &parsed) : status;
    return (status == KVCL_ERR_PROTOCOL) ? kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %s", call, kvcl_last_error())
                                         : status;
}

static kvcl_status_t make(kvcl_context_h ctx, const char *address, uint64_t timeout_ns, calling_t **calling_p)
{
    calling_t     *calling = calloc(1, sizeof(*calling));
    kvcl_status_t status;

    if (calling == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory", call);
    }
    status = read_address(ctx, calling, address);
    status = (status == KVCL_OK) ? kvcl_door_comm_make(ctx, 1, &calling->comm) : status;
    if (status != KVCL_OK) {
        free(calling);
        return status;
    }
    kvcl_list_init(&calling->link);
    kvcl_list_init(&calling->waiter.link);
    kvcl_list_init(&calling->question.link);
    calling->waiter.fn            = on_session;
    calling->question.deadline_ns = kvcl_deadline_after(kvcl_timeout(ctx, timeout_ns));
    calling->question.answer      = on_address;
    calling->question.release     = on_release;
    *calling_p                    = calling;
    return KVCL_OK;
}

static kvcl_status_t post(kvcl_context_h ctx, const char *address, const kvcl_xfer_params_t *params,
                          kvcl_comm_h *comm_p, kvcl_req_h *req_p)
{
    calling_t     *calling = NULL;
    kvcl_status_t status = make(ctx, address, params->timeout_ns, &calling);

    if (status != KVCL_OK) {
        return status;
    }
    kvcl_lock(ctx);
    status = kvcl_req_post(&calling->req, ctx, &calling_class, params, req_p);
    if (status != KVCL_OK) {
        kvcl_unlock(ctx);
        kvcl_comm_free(calling->comm);
        free(calling);
        return kvcl_fail(status, "%s: no memory", call);
    }
    kvcl_list_add_tail(&kvcl_door_room_of(ctx)->calling, &calling->link);
    *comm_p = calling->comm;
    if (calling->by_name) {
        ask(calling);
    } else {
        meet(calling);
    }
    kvcl_unlock(ctx);
    return KVCL_OK;
}

kvcl_status_t kvcl_context_connect_post(kvcl_context_h ctx, const char *address, const kvcl_xfer_params_t *params,
                                        kvcl_comm_h *comm_p, kvcl_req_h *req_p)
{
    kvcl_status_t      status = kvcl_handle_check(ctx, KVCL_KIND_CONTEXT, kvcl_call_name(KVCL_CALL_CONTEXT_CONNECT));
    kvcl_xfer_params_t own;

    status = (status == KVCL_OK) ? kvcl_xfer_params(params, KVCL_CALL_CONTEXT_CONNECT, &own) : status;
    if (status != KVCL_OK) {
        return status;
    }
    if ((address == NULL) || (comm_p == NULL)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: NULL argument", kvcl_call_name(KVCL_CALL_CONTEXT_CONNECT));
    }
    return post(ctx, address, &own, comm_p, req_p);
}

kvcl_status_t kvcl_context_connect(kvcl_context_h ctx, const char *address, uint64_t timeout_ns, kvcl_comm_h *comm_p)
{
    kvcl_xfer_params_t params = kvcl_xfer_defaults;
    kvcl_comm_h        comm   = NULL;
    kvcl_req_h         req    = NULL;
    kvcl_status_t      status = kvcl_handle_check(ctx, KVCL_KIND_CONTEXT, call);

    if (status != KVCL_OK) {
        return status;
    }
    if ((address == NULL) || (comm_p == NULL)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: NULL argument", call);
    }
    if (kvcl_callback_inside(ctx)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: it would block in a callback of the context: use %s", call,
                         kvcl_call_name(KVCL_CALL_CONTEXT_CONNECT));
    }
    status = kvcl_call_timeout(ctx, timeout_ns, call, &params.timeout_ns);
    status = (status == KVCL_OK) ? post(ctx, address, &params, &comm, &req) : status;
    status = (status == KVCL_OK) ? kvcl_req_wait(req, KVCL_WAIT_FOREVER) : status;
    if (status != KVCL_OK) {
        kvcl_comm_free(comm);
        return status;
    }
    *comm_p = comm;
    return KVCL_OK;
}
