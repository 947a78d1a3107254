/*
 * The sending side of two-sided transfers (p2p.h): the calls, and a send as a request.
 *
 * Owns: a send and its offer or layers. Invariants: the request ends once, after all reads of its bytes have ended.
 * Locks: the engine lock, except in the calls until they post.
 */
#include "config.h"
#include "p2p/p2p.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "xfer/describe.h"
#include "kv/flat.h"
#include "gate/gate.h"
#include "near/near.h"
#include "p2p/layers.h"
#include "weave/user_memory.h"
#include "xfer/offer.h"
#include "xfer/params.h"
#include "xfer/pull.h"
#include "xfer/xfer.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct send {
    kvcl_req_t         req;
    kvcl_peer_t        *peer;
    kvcl_gate_t        *gate;
    kvcl_peer_waiter_t waiter;
    bool               announced;
    kvcl_offer_t       offer;
    bool               offered;
    kvcl_layers_out_t  *layers; /* KVCL_LAYERWISE; in place of the offer */
    kvcl_status_t      final;
    kvcl_cache_h       cache; /* NULL: buf */
    kvcl_sel_t         sel;   /* owned blocks */
    const void         *buf;
    kvcl_msg_send_t    msg;
} send_t;

static void complete(send_t *send, kvcl_status_t status)
{
    send->req.timing.bytes = (status == KVCL_OK) ? send->msg.len : 0;
    kvcl_req_complete(&send->req, status);
}

static void send_idle(kvcl_offer_t *offer)
{
    send_t *send = kvcl_container_of(offer, send_t, offer);

    complete(send, send->final);
}

static void layers_idle(kvcl_layers_out_t *out)
{
    send_t *send = out->owner;

    complete(send, send->final);
}

static void send_finish(send_t *send, kvcl_status_t status)
{
    if (send->layers != NULL) {
        if (!send->layers->closed) {
            send->final = status;
            kvcl_layers_out_close(send->layers);
        }
    } else if (!send->offered) {
        complete(send, status);
    } else if (send->offer.id != 0) {
        send->final = status;
        kvcl_offer_close(send->req.ctx, &send->offer);
    }
}

static void send_stop(kvcl_req_t *req, kvcl_status_t status)
{
    send_t          *send = kvcl_container_of(req, send_t, req);
    kvcl_msg_done_t out   = {.msg = {.type = KVCL_MSG_SEND_STOP, .op = req->id}};

    kvcl_peer_unwait(&send->waiter);
    if (send->announced && (send->msg.msg.flags & (KVCL_SEND_CACHE | KVCL_SEND_NEAR))) {
        kvcl_revoke(send->req.ctx); /* the receiver may be copying */
    }
    if (send->announced && (kvcl_peer_post(send->peer, &out.msg, sizeof(out), NULL, 0) != KVCL_OK)) {
        kvcl_log_debug("%s has failed: SEND_STOP is not sent", send->peer->name);
    }
    send_finish(send, status);
}

static void send_release(kvcl_req_t *req)
{
    send_t *send = kvcl_container_of(req, send_t, req);

    free((void *)send->sel.blocks);
    free(send->layers);
    kvcl_gate_free(send->gate);
    free(send);
}

static kvcl_status_t send_layer_ready(kvcl_req_t *req, uint32_t layer)
{
    send_t *send = kvcl_container_of(req, send_t, req);

    if (send->layers == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_req_layer_ready: the send has no KVCL_LAYERWISE");
    }
    return kvcl_layers_out_ready(send->layers, layer);
}

static void send_describe(const kvcl_req_t *req, char *buf, size_t cap)
{
    const send_t *send = kvcl_container_of((kvcl_req_t *)req, send_t, req);
    char         who[48], what[160];

    kvcl_describe_peer(send->peer, who, sizeof(who));
    if (send->cache != NULL) {
        snprintf(buf, cap, "kvcl_send of tag %llu to %s, %s of \"%s\", %llu bytes", (unsigned long long)send->msg.tag,
                 who, kvcl_describe_sel(&send->sel, what, sizeof(what)), send->cache->name,
                 (unsigned long long)send->msg.len);
    } else {
        snprintf(buf, cap, "kvcl_send_bytes of tag %llu to %s, %llu bytes", (unsigned long long)send->msg.tag, who,
                 (unsigned long long)send->msg.len);
    }
}

/* The receiver sends a bare status: these are its meanings. */
static bool send_explain(const kvcl_req_t *req, kvcl_status_t status, char *buf, size_t cap)
{
    const send_t *send = kvcl_container_of((kvcl_req_t *)req, send_t, req);
    const char   *text;

    switch (status) {
    case KVCL_ERR_BAD_LAYOUT:
        text = "layouts do not match: its recv selects another shape; the receiver's kvcl_req_error has both";
        break;
    case KVCL_ERR_TRUNCATED:
        text = "its recv has another size; the receiver's kvcl_req_error has both: select as much on both sides";
        break;
    case KVCL_ERR_ACCESS:
        text = kvcl_is_mapped(send->buf, (send->buf == NULL) ? 0 : (size_t)send->msg.len)
                   ? "the buffer of its recv is not writable memory"
                   : "this send's buffer is not mapped any more: keep it until the send completes";
        break;
    case KVCL_ERR_NO_SPACE:
        text = "the receiver has no room for more sends without a recv: post the recv before the send";
        break;
    case KVCL_ERR_TIMED_OUT:
        snprintf(buf, cap, "%s within its deadline of %llu ms: compare rank, tag and communicator on both sides, or "
                 "raise params.timeout_ns (0: KVCL_TIMEOUT)",
                 send->announced ? "no recv took it" : "no connection was made",
                 (unsigned long long)(req->timeout_ns / KVCL_NS_PER_MS));
        return true;
    default:
        return false;
    }
    snprintf(buf, cap, "%s", text);
    return true;
}

static const kvcl_req_class_t send_class = {
    .name = "send", .stop = send_stop, .release = send_release, .layer_ready = send_layer_ready,
    .describe = send_describe, .explain = send_explain};

static void send_stream(const send_t *send, kvcl_stream_t *stream)
{
    kvcl_side_t side;

    if (send->cache == NULL) {
        kvcl_stream_flat(stream, send->buf, send->msg.len);
    } else {
        side = kvcl_cache_side(send->cache, &send->sel);
        kvcl_stream_init_units(stream, &side, KVCL_STREAM_CANONICAL, send->msg.unit);
    }
}

static kvcl_status_t announce_eager(send_t *send, kvcl_stream_t *stream)
{
    char          *bytes = malloc((size_t)send->msg.len + 1);
    kvcl_status_t status;

    if (bytes == NULL) {
        return KVCL_ERR_NO_MEMORY;
    }
    if (kvcl_stream_gather(stream, bytes, (size_t)send->msg.len) != send->msg.len) {
        free(bytes);
        return KVCL_ERR_IO;
    }
    send->msg.msg.flags = KVCL_SEND_EAGER;
    status = kvcl_peer_post(send->peer, &send->msg.msg, sizeof(send->msg), bytes, (size_t)send->msg.len);
    free(bytes);
    return status;
}

/* Name the cache's blocks, for a receiver that can map it. Returns the bytes of block ids that follow the message. */
static size_t name_cache(send_t *send)
{
    if ((send->cache == NULL) || (send->peer->maps == 0) || (send->sel.n_blocks == 0)) {
        return 0;
    }
    send->msg.msg.flags |= KVCL_SEND_CACHE;
    send->msg.revoked    = kvcl_revoked(send->req.ctx);
    send->msg.cache      = send->cache->id;
    return send->sel.n_blocks * sizeof(uint32_t);
}

static kvcl_status_t announce_layers(send_t *send)
{
    size_t ids;

    send->msg.msg.flags = KVCL_SEND_LAYERS;
    ids                 = name_cache(send);
    kvcl_layers_out_open(send->layers);
    return kvcl_peer_post(send->peer, &send->msg.msg, sizeof(send->msg), send->sel.blocks, ids);
}

static kvcl_status_t announce_offer(send_t *send, const kvcl_stream_t *stream)
{
    kvcl_near_wire_t near;
    kvcl_status_t    status;

    send->offer = (kvcl_offer_t){.stream = *stream, .plain = send->buf, .peer = send->peer, .idle = send_idle};
    if (send->cache != NULL) {
        send->offer.side = kvcl_cache_side(send->cache, &send->sel);
    }
    status = kvcl_offer_open(send->req.ctx, &send->offer);
    if (status != KVCL_OK) {
        return status;
    }
    send->offered   = true;
    send->msg.offer = send->offer.id;
    if (send->peer->maps != 0) {
        kvcl_engine_expect(send->req.ctx, send->msg.len);
    }
    if ((send->cache == NULL) && kvcl_near_describe(send->peer, send->buf, &near)) {
        send->msg.msg.flags |= KVCL_SEND_NEAR;
        return kvcl_peer_post(send->peer, &send->msg.msg, sizeof(send->msg), &near, sizeof(near));
    }
    return kvcl_peer_post(send->peer, &send->msg.msg, sizeof(send->msg), send->sel.blocks, name_cache(send));
}

static void announce(send_t *send)
{
    kvcl_stream_t stream;
    kvcl_status_t status;

    send->msg.msg.op = send->req.id;
    if (send->layers != NULL) {
        status = announce_layers(send);
    } else {
        send_stream(send, &stream);
        status = (send->msg.len <= send->req.ctx->config.eager) ? announce_eager(send, &stream)
                                                                 : announce_offer(send, &stream);
    }
    send->announced = (status == KVCL_OK);
    if (status != KVCL_OK) {
        send_finish(send, status);
    }
}

static void send_peer_ready(kvcl_peer_waiter_t *waiter, kvcl_status_t status)
{
    send_t *send = kvcl_container_of(waiter, send_t, waiter);

    if (status != KVCL_OK) {
        send_finish(send, status);
        return;
    }
    announce(send);
}

static kvcl_status_t check_tag(uint64_t tag, const char *call)
{
    if (tag == KVCL_ANY_TAG) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: the tag is KVCL_ANY_TAG, which only a recv or a probe may name; "
                         "send with another one", call);
    }
    return KVCL_OK;
}

static kvcl_status_t send_post(kvcl_comm_h comm, int rank, send_t *send, uint64_t tag, const kvcl_xfer_params_t *p,
                               kvcl_req_h *req_p)
{
    kvcl_context_h         ctx    = comm->ctx;
    const kvcl_comm_self_t self   = kvcl_comm_self(comm, rank);
    kvcl_status_t          status = kvcl_gate_make(ctx, p->stream, "kvcl_send", &send->gate);

    if (status != KVCL_OK) {
        send_release(&send->req);
        return status;
    }
    send->msg.msg.type = KVCL_MSG_SEND;
    send->msg.comm     = self.id;
    send->msg.source   = self.rank;
    send->msg.tag      = tag;
    send->waiter.fn    = send_peer_ready;
    kvcl_list_init(&send->waiter.link);
    kvcl_lock(ctx);
    status = kvcl_req_post(&send->req, ctx, &send_class, p, req_p);
    if (status != KVCL_OK) {
        kvcl_unlock(ctx);
        send_release(&send->req);
        return kvcl_fail(status, "no memory for a send");
    }
    send->req.with = send->peer;
    kvcl_req_bind(&send->req, self.id);
    status = kvcl_req_publish(&send->req);
    if (status == KVCL_OK) {
        status = kvcl_gate_pass(send->gate, send->peer, &send->waiter);
    }
    if ((status == KVCL_OK) || (status == KVCL_INPROGRESS)) {
        kvcl_req_watch(&send->req, send->peer);
    }
    if (status == KVCL_OK) {
        announce(send);
    } else if (status != KVCL_INPROGRESS) {
        send_finish(send, status);
    }
    kvcl_unlock(ctx);
    return KVCL_OK;
}

static void layers_failed(kvcl_layers_out_t *out, kvcl_status_t status)
{
    send_t *send = out->owner;

    send_stop(&send->req, status);
}

static kvcl_status_t make_layers(send_t *send, kvcl_context_h ctx)
{
    send->layers = kvcl_layers_out_new(ctx, send->peer, send->cache, &send->sel);
    if (send->layers == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_send: no memory for layers");
    }
    send->layers->owner  = send;
    send->layers->idle   = layers_idle;
    send->layers->failed = layers_failed;
    send->msg.layers[0]  = send->layers->sel.layers.first;
    send->msg.layers[1]  = send->layers->sel.layers.end;
    return KVCL_OK;
}

kvcl_status_t kvcl_send(kvcl_comm_h comm, int rank, uint64_t tag, kvcl_cache_h cache, const kvcl_sel_t *sel,
                        const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_xfer_params_t p;
    kvcl_peer_t        *peer;
    send_t             *send;
    kvcl_status_t      status = kvcl_xfer_begin(comm, rank, KVCL_CALL_SEND, params, &p, &peer);

    if ((status != KVCL_OK) || ((status = check_tag(tag, "kvcl_send")) != KVCL_OK) ||
        ((status = kvcl_xfer_local(comm->ctx, cache, sel, "kvcl_send")) != KVCL_OK)) {
        return status;
    }
    if ((p.flags & KVCL_LAYERWISE) && (req_p == NULL)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_send: KVCL_LAYERWISE needs a request to mark layers on");
    }
    send = calloc(1, sizeof(*send));
    if ((send == NULL) || (kvcl_own_sel(&send->sel, sel) != KVCL_OK)) {
        free(send);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_send: no memory for a send");
    }
    send->peer          = peer;
    send->cache         = cache;
    send->msg.len       = kvcl_sel_bytes(&cache->shape, sel);
    send->msg.token     = kvcl_token_of(&cache->shape, sel);
    send->msg.layers[0] = sel->layers.first;
    send->msg.layers[1] = sel->layers.end;
    send->msg.heads[0]  = sel->heads.first;
    send->msg.heads[1]  = sel->heads.end;
    send->msg.n_blocks  = sel->n_blocks;
    send->msg.tokens[0] = sel->tokens.first;
    send->msg.tokens[1] = sel->tokens.end;
    send->msg.each      = cache->shape.tokens;
    send->msg.unit      = kvcl_sel_unit(&cache->shape, sel);
    if ((p.flags & KVCL_LAYERWISE) && (make_layers(send, comm->ctx) != KVCL_OK)) {
        send_release(&send->req);
        return KVCL_ERR_NO_MEMORY;
    }
    return send_post(comm, rank, send, tag, &p, req_p);
}

kvcl_status_t kvcl_send_bytes(kvcl_comm_h comm, int rank, uint64_t tag, const void *buf, size_t len,
                              const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_xfer_params_t p;
    kvcl_peer_t        *peer;
    send_t             *send;
    kvcl_status_t      status = kvcl_xfer_begin(comm, rank, KVCL_CALL_SEND_BYTES, params, &p, &peer);

    if ((status != KVCL_OK) || ((status = check_tag(tag, "kvcl_send_bytes")) != KVCL_OK)) {
        return status;
    }
    if ((buf == NULL) && (len != 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_send_bytes: buf is NULL");
    }
    send = calloc(1, sizeof(*send));
    if (send == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_send_bytes: no memory for a send");
    }
    send->peer    = peer;
    send->buf     = buf;
    send->msg.len = len;
    return send_post(comm, rank, send, tag, &p, req_p);
}

void kvcl_p2p_on_done(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                      size_t len)
{
    const kvcl_msg_done_t *in  = (const kvcl_msg_done_t *)msg;
    kvcl_req_t            *req = kvcl_req_find(ctx, msg->op, &send_class);
    send_t                *send;

    (void)hdr_len;
    (void)data;
    (void)len;
    if (req == NULL) {
        ++ctx->stats.late;
        return;
    }
    send = kvcl_container_of(req, send_t, req);
    if ((send->peer != peer) || !send->announced || (in->status > 0)) {
        kvcl_am_malformed(ctx, peer, "the end of a send to another rank");
        return;
    }
    if ((in->status == KVCL_OK) && (send->layers != NULL) && (send->layers->n_announced < send->layers->n)) {
        kvcl_am_malformed(ctx, peer, "KVCL_OK for a send whose layers were not all reported");
        send_stop(req, KVCL_ERR_PROTOCOL);
        return;
    }
    if ((in->status == KVCL_OK) && !send->offered && (send->layers == NULL)) {
        ctx->stats.bytes_out += send->msg.len;
    }
    send_finish(send, (kvcl_status_t)in->status);
}

void kvcl_p2p_on_layers_want(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                             const void *data, size_t len)
{
    const kvcl_msg_layers_want_t *in  = (const kvcl_msg_layers_want_t *)msg;
    kvcl_req_t                   *req = kvcl_req_find(ctx, msg->op, &send_class);
    send_t                       *send;

    (void)hdr_len;
    (void)data;
    (void)len;
    if (req == NULL) {
        kvcl_layers_out_refuse(peer, in->requester); /* the send has ended; its SEND_STOP may be in flight */
        return;
    }
    send = kvcl_container_of(req, send_t, req);
    if ((send->peer != peer) || (send->layers == NULL) ||
        (kvcl_layers_out_want(send->layers, in->requester, (msg->flags & KVCL_LAYERS_WHOLE) != 0) != KVCL_OK)) {
        kvcl_am_malformed(ctx, peer, "LAYERS_WANT for a send to another rank, or a second one");
    }
}
