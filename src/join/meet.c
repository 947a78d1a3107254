/*
 * Meeting of two jobs' rank 0 (join/meet.h).
 *
 * Owns: the meetings at work, and the lists of requests that wait (join/held.h).
 * Invariant: a meet_t is a request whose user is the blocked caller, so what it points to outlives it.
 * Locks: the engine lock, but for kvcl_meet().
 */
#include "config.h"
#include "join/meet.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/rand.h"
#include "join/held.h"
#include "req/req.h"
#include "wire/address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum { MEET_SESSION, MEET_REQUESTED, MEET_LISTENING, MEET_ANSWERED } meet_state_t;

typedef struct meet {
    kvcl_req_t           req;
    kvcl_list_t          link;   /* accepting: kvcl_meet_room_t.accepts */
    meet_state_t         state;
    kvcl_peer_t          *peer;
    kvcl_peer_waiter_t   waiter;
    const kvcl_members_t *local;
    kvcl_members_t       remote; /* handed over on success */
    kvcl_members_t       *remote_p;
    uint64_t             asked;  /* answered: the peer's op */
    uint64_t             id;
    uint64_t             *id_p;
} meet_t;

typedef kvcl_meet_room_t room_t;

static room_t *room_of(kvcl_context_h ctx)
{
    return ctx->rooms[KVCL_ROOM_COMM];
}

static kvcl_status_t post(kvcl_peer_t *peer, uint8_t type, kvcl_msg_connect_t *out, const kvcl_members_t *members)
{
    out->msg.type = type;
    out->n        = (members != NULL) ? members->n : 0;
    return kvcl_peer_post(peer, &out->msg, sizeof(*out), (members != NULL) ? members->buf : NULL,
                          (members != NULL) ? members->len : 0);
}

/* A notification only: a failed peer does not matter. */
static void notify(kvcl_peer_t *peer, uint8_t type, uint64_t op, uint32_t kind, kvcl_status_t status)
{
    kvcl_msg_connect_t out = {.msg = {.op = op}, .kind = kind, .status = status};

    if (post(peer, type, &out, NULL) != KVCL_OK) {
        kvcl_log_debug("%s cannot be answered: it has failed", peer->name);
    }
}

static void finish(meet_t *meet, kvcl_status_t status)
{
    kvcl_list_del(&meet->link);
    if (status == KVCL_OK) {
        *meet->remote_p  = meet->remote;
        *meet->id_p      = meet->id;
        meet->remote.buf = NULL;
    }
    kvcl_req_complete(&meet->req, status);
}

static void stop(kvcl_req_t *req, kvcl_status_t status)
{
    meet_t *meet = kvcl_container_of(req, meet_t, req);

    if (meet->state == MEET_SESSION) {
        kvcl_peer_unwait(&meet->waiter);
    } else if (meet->state == MEET_REQUESTED) {
        notify(meet->peer, KVCL_MSG_CONNECT, meet->req.id, KVCL_CONNECT_WITHDRAW, KVCL_OK);
    } else if (meet->state == MEET_ANSWERED) {
        const kvcl_held_request_t left = {.peer = meet->peer, .op = meet->asked, .answer = req->id, .id = meet->id};

        kvcl_held_keep(&room_of(req->ctx)->left, &left, &meet->remote, meet->local);
    }
    finish(meet, status);
}

static void release(kvcl_req_t *req)
{
    meet_t *meet = kvcl_container_of(req, meet_t, req);

    free(meet->remote.buf);
    free(meet);
}

static const kvcl_req_class_t meet_class = {.name = "kvcl_comm_connect or kvcl_comm_accept", .stop = stop,
                                            .release = release};

/* ---- connecting ---- */

static void send_request(meet_t *meet)
{
    kvcl_msg_connect_t out = {.msg = {.op = meet->req.id}, .kind = KVCL_CONNECT_REQUEST};
    kvcl_status_t      status;

    meet->state = MEET_REQUESTED;
    kvcl_req_watch(&meet->req, meet->peer);
    status = post(meet->peer, KVCL_MSG_CONNECT, &out, meet->local);
    if (status != KVCL_OK) {
        finish(meet, status);
    }
}

static void on_session(kvcl_peer_waiter_t *waiter, kvcl_status_t status)
{
    meet_t *meet = kvcl_container_of(waiter, meet_t, waiter);

    if (status != KVCL_OK) {
        finish(meet, status);
        return;
    }
    send_request(meet);
}

/* why: the sentence if it fails at once, otherwise unchanged. */
static void start_connect(meet_t *meet, char why[KVCL_ERROR_MAX])
{
    kvcl_status_t status;

    meet->state     = MEET_SESSION;
    meet->waiter.fn = on_session;
    kvcl_list_init(&meet->waiter.link);
    status = kvcl_peer_ready(meet->peer, &meet->waiter);
    if (status == KVCL_OK) {
        send_request(meet);
    } else if (status != KVCL_INPROGRESS) {
        snprintf(why, KVCL_ERROR_MAX, "%s", kvcl_last_error());
        finish(meet, status);
    }
}

void kvcl_meet_on_connected(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                            const void *data, size_t len)
{
    const kvcl_msg_connect_t *in  = (const kvcl_msg_connect_t *)msg;
    kvcl_req_t               *req = kvcl_req_find(ctx, msg->op, &meet_class);
    kvcl_msg_connect_t       out  = {.msg = {.op = in->answer}, .kind = KVCL_CONNECT_CONFIRM};
    kvcl_status_t            status;
    meet_t                   *meet;

    (void)hdr_len;
    meet = (req != NULL) ? kvcl_container_of(req, meet_t, req) : NULL;
    if ((meet == NULL) || (meet->state != MEET_REQUESTED) || (meet->peer != peer)) {
        ++ctx->stats.late;
        return;
    }
    status = ((in->status < 0) && (in->status >= KVCL_ERR_INTERNAL))
                 ? (kvcl_status_t)in->status
                 : kvcl_members_take(in->n, data, len, peer, &meet->remote);
    if (status == KVCL_OK) {
        meet->id = in->id;
        status   = post(peer, KVCL_MSG_CONNECT, &out, NULL);
    }
    finish(meet, status);
}

/* ---- accepting ---- */

/* Answer a request in the name of an accept; the request is freed. */
static void answer(meet_t *meet, kvcl_held_request_t *request)
{
    kvcl_msg_connect_t out = {.msg = {.op = request->op}, .status = KVCL_OK, .answer = meet->req.id};
    kvcl_status_t      status;

    status = kvcl_random_bytes(&meet->id, sizeof(meet->id));
    if (status == KVCL_OK) {
        meet->id |= 2; /* as kvcl_comm_new_id */
        out.id    = meet->id;
        status    = post(request->peer, KVCL_MSG_CONNECTED, &out, meet->local);
    }
    if (status == KVCL_OK) {
        free(meet->remote.buf);
        meet->remote         = request->members;
        meet->peer           = request->peer;
        meet->asked          = request->op;
        meet->state          = MEET_ANSWERED;
        request->members.buf = NULL;
    }
    kvcl_held_drop(request);
}

/* A connection whose accept had ended before CONFIRM came. */
static void take_over(meet_t *meet, kvcl_held_request_t *left)
{
    free(meet->remote.buf);
    meet->remote      = left->members;
    meet->id          = left->id;
    left->members.buf = NULL;
    kvcl_held_drop(left);
    finish(meet, KVCL_OK);
}

/* Bring waiting accepts and held requests together. */
static void match(room_t *room)
{
    kvcl_held_request_t *left;
    meet_t              *meet, *next;

    kvcl_list_foreach_safe (meet, next, &room->accepts, meet_t, link) {
        left = (meet->state == MEET_LISTENING) ? kvcl_held_confirmed(&room->left, meet->local) : NULL;
        if (left != NULL) {
            take_over(meet, left);
            continue;
        }
        while ((meet->state == MEET_LISTENING) && !kvcl_list_is_empty(&room->held)) {
            answer(meet, kvcl_list_head(&room->held, kvcl_held_request_t, link));
        }
    }
}

static void listen_again(meet_t *meet)
{
    meet->state = MEET_LISTENING;
    meet->peer  = NULL;
}

static void on_request(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_connect_t *in, const void *data,
                       size_t len)
{
    room_t        *room  = room_of(ctx);
    kvcl_status_t status = kvcl_held_add(&room->held, peer, in->msg.op, in->n, data, len);

    if (status == KVCL_OK) {
        match(room);
        return;
    }
    if (status != KVCL_ERR_BUSY) {
        kvcl_am_malformed(ctx, peer, kvcl_last_error());
    }
    notify(peer, KVCL_MSG_CONNECTED, in->msg.op, 0, status);
}

static void on_confirm(kvcl_context_h ctx, const kvcl_peer_t *peer, uint64_t op)
{
    kvcl_req_t *req  = kvcl_req_find(ctx, op, &meet_class);
    meet_t     *meet = (req != NULL) ? kvcl_container_of(req, meet_t, req) : NULL;

    if ((meet != NULL) && (meet->state == MEET_ANSWERED) && (meet->peer == peer)) {
        finish(meet, KVCL_OK);
    } else if (kvcl_held_confirm(&room_of(ctx)->left, peer, op)) {
        match(room_of(ctx));
    } else {
        ++ctx->stats.late;
    }
}

/* One that an accept has answered gets no CONFIRM: the accept takes another one. */
static void on_withdraw(room_t *room, const kvcl_peer_t *peer, uint64_t op)
{
    meet_t *meet;

    kvcl_held_withdraw(&room->held, peer, op);
    kvcl_held_withdraw(&room->left, peer, op);
    kvcl_list_foreach (meet, &room->accepts, meet_t, link) {
        if ((meet->state == MEET_ANSWERED) && (meet->peer == peer) && (meet->asked == op)) {
            listen_again(meet);
        }
    }
    match(room);
}

void kvcl_meet_on_connect(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                          const void *data, size_t len)
{
    const kvcl_msg_connect_t *in = (const kvcl_msg_connect_t *)msg;

    (void)hdr_len;
    switch (in->kind) {
    case KVCL_CONNECT_REQUEST:
        on_request(ctx, peer, in, data, len);
        break;
    case KVCL_CONNECT_CONFIRM:
        on_confirm(ctx, peer, msg->op);
        break;
    case KVCL_CONNECT_WITHDRAW:
        on_withdraw(room_of(ctx), peer, msg->op);
        break;
    default:
        kvcl_am_malformed(ctx, peer, "an unknown kind of connect");
        break;
    }
}

/* ---- the room's share ---- */

void kvcl_meet_peer_failed(kvcl_context_h ctx, void *state, kvcl_peer_t *peer)
{
    room_t *room = state;
    meet_t *meet;

    (void)ctx;
    kvcl_held_drop_all(&room->held, peer);
    kvcl_held_drop_all(&room->left, peer);
    kvcl_list_foreach (meet, &room->accepts, meet_t, link) {
        if ((meet->state == MEET_ANSWERED) && (meet->peer == peer)) {
            listen_again(meet);
        }
    }
    match(room);
}

kvcl_status_t kvcl_meet_init(kvcl_context_h ctx, void **state_p)
{
    room_t *room = calloc(1, sizeof(*room));

    (void)ctx;
    if (room == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for communicators");
    }
    kvcl_list_init(&room->accepts);
    kvcl_list_init(&room->held);
    kvcl_list_init(&room->left);
    *state_p = room;
    return KVCL_OK;
}

void kvcl_meet_fini(kvcl_context_h ctx, void *state)
{
    room_t *room = state;

    (void)ctx;
    kvcl_held_drop_all(&room->held, NULL);
    kvcl_held_drop_all(&room->left, NULL);
    free(room);
}

/* ---- the blocking call ---- */

static kvcl_status_t find_root(kvcl_context_h ctx, const char *address, kvcl_peer_t **peer_p)
{
    uint8_t       packed[KVCL_ADDRESS_MAX];
    size_t        len    = 0;
    kvcl_status_t status = kvcl_address_parse(ctx->secret, address, packed, sizeof(packed), &len);

    if (status == KVCL_OK) {
        kvcl_lock(ctx);
        status = kvcl_peer_by_address(ctx, packed, len, peer_p);
        kvcl_unlock(ctx);
    }
    /* What the text says is the caller's: bytes that make no sense are no peer's fault. */
    return (status == KVCL_ERR_PROTOCOL) ? kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s", kvcl_last_error()) : status;
}

kvcl_status_t kvcl_meet(kvcl_context_h ctx, const char *address, const kvcl_members_t *local, uint64_t timeout_ns,
                        kvcl_members_t *remote, uint64_t *id_p)
{
    kvcl_peer_t   *peer = NULL;
    meet_t        *meet;
    char          why[KVCL_ERROR_MAX] = "";
    kvcl_status_t status = (address != NULL) ? find_root(ctx, address, &peer) : KVCL_OK;

    if (status != KVCL_OK) {
        return status;
    }
    meet = calloc(1, sizeof(*meet));
    if (meet == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a connection");
    }
    *meet = (meet_t){.peer = peer, .local = local, .remote_p = remote, .id_p = id_p};
    kvcl_list_init(&meet->link);
    kvcl_lock(ctx);
    status = kvcl_req_start(&meet->req, ctx, &meet_class, timeout_ns, NULL, NULL, true);
    if (status != KVCL_OK) {
        kvcl_unlock(ctx);
        free(meet);
        return kvcl_fail(status, "no memory for a connection");
    }
    status = kvcl_req_publish(&meet->req);
    if (status != KVCL_OK) {
        finish(meet, status);
    } else if (address != NULL) {
        start_connect(meet, why);
    } else {
        meet->state = MEET_LISTENING;
        kvcl_list_add_tail(&room_of(ctx)->accepts, &meet->link);
        match(room_of(ctx));
    }
    kvcl_unlock(ctx);
    status = kvcl_req_wait(kvcl_req_handle(&meet->req), KVCL_WAIT_FOREVER);
    return (status == KVCL_OK) ? status : kvcl_fail(status, "the other job's rank 0: %s",
                                                    (why[0] != '\0') ? why : kvcl_status_text(status));
}
