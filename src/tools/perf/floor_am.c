/*
 * The floor on TCP: a request and a reply for each piece of at most PIECE_BYTES, WINDOW of them in flight, the data as
 * one active message, eager or rendezvous. A get's data is in the reply; a put's data is in the request, and the reply
 * is empty.
 */
#include "config.h"
#include "tools/perf/floor_impl.h"

#include <string.h>

#define AM_ID       1u
#define PIECE_BYTES (1u << 20)
#define WINDOW      (FLOOR_SENDS / 4u)

enum {
    OP_GET_EAGER = 1,
    OP_GET_RNDV  = 2,
    OP_PUT       = 3,
    OP_DATA      = 4, /* reply to a get */
    OP_ACK       = 5, /* reply to a put */
    OP_RELEASE   = 6
};

static void send_done(void *request, ucs_status_t status, void *user_data)
{
    floor_send_t *send = user_data;

    send->busy          = false;
    send->floor->broken = send->floor->broken || (status != UCS_OK);
    ucp_request_free(request);
}

/* More than the requests, replies and receptions of a window together, so a handler never waits. */
static floor_send_t *free_send(kvcl_floor_t *floor)
{
    size_t i;

    for (;;) {
        for (i = 0; i < FLOOR_SENDS; ++i) {
            if (!floor->sends[i].busy) {
                return &floor->sends[i];
            }
        }
        ucp_worker_progress(floor->worker);
    }
}

static bool send_msg(kvcl_floor_t *floor, const floor_msg_t *msg, const void *data, size_t len, unsigned flags)
{
    floor_send_t        *send = free_send(floor);
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                                                 UCP_OP_ATTR_FIELD_FLAGS,
                                 .cb           = {.send = send_done},
                                 .user_data    = send,
                                 .flags        = flags};
    ucs_status_ptr_t    req;

    send->floor = floor;
    send->msg   = *msg;
    send->busy  = true;
    req         = ucp_am_send_nbx(floor->ep, AM_ID, &send->msg, sizeof(send->msg), data, len, &param);
    if (!UCS_PTR_IS_PTR(req)) {
        send->busy = false;
    }
    if (UCS_PTR_IS_ERR(req)) {
        floor->broken = true;
        return kvcl_floor_fail("send", UCS_PTR_STATUS(req));
    }
    return true;
}

/* All bytes of a piece have arrived: the target answers a put, the initiator counts. */
static void arrived(kvcl_floor_t *floor, const floor_msg_t *msg)
{
    floor_msg_t ack = *msg;

    if (msg->op == OP_PUT) {
        ack.op = OP_ACK;
        (void)send_msg(floor, &ack, NULL, 0, UCP_AM_SEND_FLAG_EAGER);
    } else {
        ++floor->done;
    }
}

static void recv_done(void *request, ucs_status_t status, size_t len, void *user_data)
{
    floor_send_t *receive = user_data; /* keeps the header of an incoming rendezvous */

    (void)len;
    receive->busy          = false;
    receive->floor->broken = receive->floor->broken || (status != UCS_OK);
    arrived(receive->floor, &receive->msg);
    ucp_request_free(request);
}

static ucs_status_t take_rndv(kvcl_floor_t *floor, const floor_msg_t *msg, void *to, void *data, size_t len)
{
    floor_send_t        *receive = free_send(floor);
    ucp_request_param_t param    = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                    .cb           = {.recv_am = recv_done},
                                    .user_data    = receive};
    ucs_status_ptr_t    req;

    receive->floor = floor;
    receive->msg   = *msg;
    receive->busy  = true;
    req            = ucp_am_recv_data_nbx(floor->worker, data, to, len, &param);
    if (!UCS_PTR_IS_PTR(req)) {
        receive->busy = false;
        floor->broken = floor->broken || (req != NULL);
        arrived(floor, msg);
    }
    return UCS_INPROGRESS;
}

static void serve_get(kvcl_floor_t *floor, const floor_msg_t *msg)
{
    floor_msg_t reply = *msg;

    reply.op = OP_DATA;
    (void)send_msg(floor, &reply, (char *)floor->memory + msg->remote, msg->len,
                   (msg->op == OP_GET_RNDV) ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER);
}

static ucs_status_t on_message(void *arg, const void *header, size_t header_len, void *data, size_t len,
                               const ucp_am_recv_param_t *param)
{
    kvcl_floor_t *floor = arg;
    floor_msg_t  msg;
    void         *to;

    if (header_len != sizeof(msg)) {
        return UCS_OK;
    }
    memcpy(&msg, header, sizeof(msg));
    if (!floor->initiator && ((msg.remote > floor->bytes) || (msg.len > floor->bytes - msg.remote))) {
        floor->broken = true;
        return UCS_OK;
    }
    switch (msg.op) {
    case OP_GET_EAGER:
    case OP_GET_RNDV:
        serve_get(floor, &msg);
        return UCS_OK;
    case OP_PUT:
    case OP_DATA:
        to = (msg.op == OP_PUT) ? (char *)floor->memory + msg.remote : (void *)(uintptr_t)msg.local;
        if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
            return take_rndv(floor, &msg, to, data, len);
        }
        memcpy(to, data, len);
        arrived(floor, &msg);
        return UCS_OK;
    case OP_ACK:
        ++floor->done;
        return UCS_OK;
    default:
        msg.op          = OP_ACK;
        floor->released = send_msg(floor, &msg, NULL, 0, UCP_AM_SEND_FLAG_EAGER);
        return UCS_OK;
    }
}

bool kvcl_floor_am_init(kvcl_floor_t *floor)
{
    ucp_am_handler_param_t param = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                                                  UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                    .id         = AM_ID,
                                    .flags      = UCP_AM_FLAG_WHOLE_MSG,
                                    .cb         = on_message,
                                    .arg        = floor};
    const ucs_status_t     status = ucp_worker_set_am_recv_handler(floor->worker, &param);

    return (status == UCS_OK) || kvcl_floor_fail("ucp_worker_set_am_recv_handler", status);
}

static bool transfer_piece(kvcl_floor_t *floor, bool rndv, bool put, char *local, uint64_t remote, uint64_t len)
{
    const floor_msg_t msg = {.op     = put ? OP_PUT : (rndv ? OP_GET_RNDV : OP_GET_EAGER),
                             .remote = remote,
                             .len    = len,
                             .local  = (uint64_t)(uintptr_t)local};

    if (!kvcl_floor_drain(floor, WINDOW - 1)) {
        return false;
    }
    ++floor->posted;
    return send_msg(floor, &msg, put ? local : NULL, put ? len : 0,
                    (put && rndv) ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER);
}

bool kvcl_floor_am_transfer(kvcl_floor_t *floor, bool rndv, bool put, const kvcl_floor_run_t *runs, size_t n)
{
    bool     good = true;
    uint64_t at, len;
    size_t   i;

    for (i = 0; i < n; ++i) {
        for (at = 0; good && (at < runs[i].len); at += len) {
            len  = (runs[i].len - at < PIECE_BYTES) ? runs[i].len - at : PIECE_BYTES;
            good = transfer_piece(floor, rndv, put, (char *)runs[i].local + at, runs[i].remote + at, len);
        }
    }
    return good && kvcl_floor_drain(floor, 0);
}

/* Whether an outgoing message is still in flight: no other code progresses this worker once serving ends. */
static bool any_busy(const kvcl_floor_t *floor)
{
    bool   busy = false;
    size_t i;

    for (i = 0; i < FLOOR_SENDS; ++i) {
        busy = busy || floor->sends[i].busy;
    }
    return busy;
}

bool kvcl_floor_serve(kvcl_floor_t *floor, uint64_t timeout_ns)
{
    floor_wait_t wait;

    floor->released = false;
    kvcl_floor_wait_start(&wait);
    while ((!floor->released || any_busy(floor)) && !floor->broken) {
        if (!kvcl_floor_wait_step(floor, &wait, timeout_ns)) {
            return kvcl_floor_fail("the initiator does not answer", UCS_ERR_TIMED_OUT);
        }
    }
    return !floor->broken || kvcl_floor_fail("the initiator has failed", UCS_ERR_CONNECTION_RESET);
}

bool kvcl_floor_release(kvcl_floor_t *floor)
{
    const floor_msg_t msg = {.op = OP_RELEASE};

    ++floor->posted;
    return send_msg(floor, &msg, NULL, 0, UCP_AM_SEND_FLAG_EAGER) && kvcl_floor_drain(floor, 0);
}
