/*
 * The receiving side of two-sided transfers (p2p.h): matching, arrived sends, taking the bytes.
 */
#include "config.h"
#include "p2p/p2p.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/structs.h"
#include "xfer/describe.h"
#include "xfer/flat.h"
#include "xfer/gate.h"
#include "p2p/layers.h"
#include "xfer/offer.h"
#include "xfer/params.h"
#include "xfer/pull.h"
#include "xfer/xfer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARRIVED_MAX = 256 << 20 };

typedef struct arrived {
    kvcl_list_t     link;
    kvcl_peer_t     *peer;
    kvcl_msg_send_t msg;
    size_t          len;
    unsigned char   bytes[];
} arrived_t;

typedef struct recv {
    kvcl_req_t       req;
    kvcl_list_t      link;    /* posted, or none */
    kvcl_gate_t      *gate;
    kvcl_peer_waiter_t waiter; /* at the gate */
    uint64_t         comm;
    int              source;
    uint64_t         tag;
    kvcl_cache_h     cache;   /* NULL: buf */
    kvcl_sel_t       sel;     /* owned blocks */
    void             *buf;
    uint64_t         cap;     /* bytes of the selection, or room at buf */
    kvcl_recv_info_t *info;
    kvcl_peer_t      *from;   /* the one that it may come from, or NULL */
    kvcl_peer_t      *peer;   /* matched */
    kvcl_pull_t      *pull;
    kvcl_msg_send_t  msg;
    kvcl_layers_in_t *_Atomic layers; /* matched a layer-wise send; as long as this */
} recv_t;

static void answer(kvcl_peer_t *peer, uint64_t op, kvcl_status_t status)
{
    kvcl_msg_done_t out = {.msg = {.type = KVCL_MSG_SEND_DONE, .op = op}, .status = status};

    if (kvcl_peer_post(peer, &out.msg, sizeof(out), NULL, 0) != KVCL_OK) {
        kvcl_log_debug("%s does not hear the end of its send: it is gone", peer->name);
    }
}

static void recv_finish(recv_t *recv, kvcl_status_t status)
{
    if (recv->peer != NULL) {
        answer(recv->peer, recv->msg.msg.op, status);
    }
    kvcl_req_complete(&recv->req, status);
}

static void recv_stop(kvcl_req_t *req, kvcl_status_t status)
{
    recv_t *recv = kvcl_container_of(req, recv_t, req);

    if (recv->layers != NULL) {
        kvcl_layers_in_stop(recv->layers, status);
        return;
    }
    if (recv->pull != NULL) {
        kvcl_pull_stop(recv->pull, status);
        return;
    }
    kvcl_peer_unwait(&recv->waiter);
    kvcl_list_del(&recv->link);
    recv_finish(recv, status);
}

static void recv_release(kvcl_req_t *req)
{
    recv_t *recv = kvcl_container_of(req, recv_t, req);

    free((void *)recv->sel.blocks);
    kvcl_layers_in_free(recv->layers);
    kvcl_gate_free(recv->gate);
    free(recv);
}

/* Of what was not sent layer by layer all layers come together. */
static kvcl_status_t recv_layer_state(const kvcl_req_t *req, uint32_t layer)
{
    recv_t                 *recv   = kvcl_container_of((kvcl_req_t *)req, recv_t, req);
    const kvcl_layers_in_t *layers = recv->layers;
    kvcl_range_t           mine;

    if (recv->cache != NULL) {
        mine = kvcl_sel_layers(&recv->cache->shape, &recv->sel);
        if ((layer < mine.first) || (layer >= mine.end)) {
            return KVCL_ERR_OUT_OF_RANGE;
        }
        if ((layers != NULL) && kvcl_layers_in_landed(layers, layer)) {
            return KVCL_OK;
        }
    }
    return (kvcl_status_t)atomic_load_explicit(&recv->req.state, memory_order_acquire);
}

static void recv_describe(const kvcl_req_t *req, char *buf, size_t cap)
{
    const recv_t *recv = kvcl_container_of((kvcl_req_t *)req, recv_t, req);
    char         who[48], what[160];

    kvcl_describe_peer((recv->peer != NULL) ? recv->peer : recv->from, who, sizeof(who));
    if (recv->cache != NULL) {
        snprintf(buf, cap, "kvcl_recv of tag %llu from %s into %s of \"%s\"", (unsigned long long)recv->tag, who,
                 kvcl_describe_sel(&recv->sel, what, sizeof(what)), recv->cache->name);
    } else {
        snprintf(buf, cap, "kvcl_recv_bytes of tag %llu from %s into %llu bytes", (unsigned long long)recv->tag, who,
                 (unsigned long long)recv->cap);
    }
}

static bool recv_explain(const kvcl_req_t *req, kvcl_status_t status, char *buf, size_t cap)
{
    const recv_t *recv = kvcl_container_of((kvcl_req_t *)req, recv_t, req);

    if ((status != KVCL_ERR_TIMED_OUT) || (recv->peer != NULL)) {
        return false;
    }
    snprintf(buf, cap, "no send with that tag came within its deadline of %llu ms: compare rank, tag and communicator "
             "on both sides, or raise params.timeout_ns (0: KVCL_TIMEOUT)",
             (unsigned long long)(req->timeout_ns / KVCL_NS_PER_MS));
    return true;
}

static const kvcl_req_class_t recv_class = {
    .name = "recv", .stop = recv_stop, .release = recv_release, .layer_state = recv_layer_state,
    .describe = recv_describe, .explain = recv_explain};

static bool matches(const recv_t *recv, const kvcl_msg_send_t *msg)
{
    return (recv->comm == msg->comm) && (recv->tag == msg->tag) &&
           ((recv->source == KVCL_ANY_SOURCE) || (recv->source == msg->source));
}

static void recv_pulled(kvcl_pull_t *pull, kvcl_status_t status)
{
    recv_t *recv = pull->arg;

    recv->pull = NULL;
    if (status < 0) {
        kvcl_req_take_why(&recv->req, &pull->req);
    }
    recv_finish(recv, status);
}

/* Of the two sizes of blocks one must divide the other. What the sender says of its own is hostile. */
static bool blocks_fit(const recv_t *recv)
{
    const kvcl_msg_send_t *msg = &recv->msg;
    uint32_t              each = recv->cache->shape.tokens;

    return (msg->unit != 0) && ((msg->each % msg->unit) == 0) && (msg->each != 0) &&
           (((msg->each % each) == 0) || ((each % msg->each) == 0));
}

static bool tokens_fit(const recv_t *recv)
{
    kvcl_token_t token = kvcl_token_of(&recv->cache->shape, &recv->sel);

    return memcmp(&token, &recv->msg.token, sizeof(token)) == 0;
}

static kvcl_status_t fits(recv_t *recv)
{
    const kvcl_msg_send_t *msg = &recv->msg;
    char                  text[KVCL_ERROR_MAX];

    if ((recv->cache != NULL) && (msg->token.layers != 0) && (!tokens_fit(recv) || !blocks_fit(recv))) {
        kvcl_req_why(&recv->req, "%s", kvcl_describe_layouts(msg, recv->cache, &recv->sel, text, sizeof(text)));
        return KVCL_ERR_BAD_LAYOUT;
    }
    if ((recv->cache != NULL) ? (msg->len != recv->cap) : (msg->len > recv->cap)) {
        kvcl_req_why(&recv->req, "%s",
                     kvcl_describe_sizes(msg, recv->cache, &recv->sel, recv->cap, text, sizeof(text)));
        return KVCL_ERR_TRUNCATED;
    }
    return KVCL_OK;
}

static kvcl_status_t recv_copy(recv_t *recv, const void *data)
{
    uint32_t      unit   = kvcl_send_unit(&recv->msg, recv->cache, &recv->sel);
    kvcl_status_t status = KVCL_OK;
    kvcl_stream_t stream;
    kvcl_side_t   side;

    if (recv->cache == NULL) {
        memcpy(recv->buf, data, (size_t)recv->msg.len);
    } else {
        side = kvcl_cache_side(recv->cache, &recv->sel);
        if ((unit == 0) || (unit == recv->msg.unit)) {
            kvcl_stream_init_units(&stream, &side, KVCL_STREAM_CANONICAL, unit);
            if (kvcl_stream_scatter(&stream, data, (size_t)recv->msg.len) != recv->msg.len) {
                status = KVCL_ERR_IO;
            }
        } else { /* the sender's blocks are larger */
            status = kvcl_runs_unpack(&side, data, recv->msg.unit);
        }
    }
    if (status == KVCL_OK) {
        recv->req.ctx->stats.bytes_in += recv->msg.len;
    }
    return status;
}

/* The pull of a matched send: from the sender's cache if it can be mapped here, else what it offers. */
static kvcl_status_t recv_pull(recv_t *recv, const void *data, size_t len)
{
    const kvcl_msg_send_t *msg  = &recv->msg;
    kvcl_pull_t           *pull = kvcl_pull_new();
    kvcl_status_t         status = (pull != NULL) ? KVCL_OK : KVCL_ERR_NO_MEMORY;
    uint32_t              *ids;

    if (status != KVCL_OK) {
        return status;
    }
    pull->peer    = recv->peer;
    pull->from    = KVCL_FROM_OFFER;
    pull->offer   = msg->offer;
    pull->unit    = kvcl_send_unit(msg, recv->cache, &recv->sel);
    pull->total   = msg->len;
    pull->buf     = recv->buf;
    pull->on_done = recv_pulled;
    pull->arg     = recv;
    if (recv->cache != NULL) {
        status = kvcl_pull_set_local(pull, recv->cache, &recv->sel);
    }
    if ((status == KVCL_OK) && (msg->msg.flags & KVCL_SEND_CACHE)) {
        ids = malloc(len + 1);
        if (ids == NULL) {
            status = KVCL_ERR_NO_MEMORY;
        } else {
            memcpy(ids, data, len);
            pull->from     = KVCL_FROM_CACHE;
            pull->guarded  = true;
            pull->revoked = msg->revoked;
            pull->cache_id = msg->cache;
            pull->remote   = (kvcl_sel_t){.blocks = ids, .n_blocks = (size_t)msg->n_blocks,
                                          .layers = {msg->layers[0], msg->layers[1]},
                                          .heads = {msg->heads[0], msg->heads[1]},
                                          .tokens = {msg->tokens[0], msg->tokens[1]}};
        }
    }
    if (status == KVCL_OK) {
        recv->pull = pull;
        status     = kvcl_pull_start(recv->req.ctx, pull, UINT64_MAX, NULL, NULL, false);
    }
    if (status != KVCL_OK) {
        recv->pull = NULL;
        kvcl_pull_discard(pull);
    }
    return status;
}

static void layers_ended(kvcl_layers_in_t *in, kvcl_status_t status)
{
    recv_finish(in->owner, status);
}

static void recv_layers(recv_t *recv, const void *data, size_t len)
{
    kvcl_layers_in_t *in;
    kvcl_status_t    status = kvcl_req_publish(&recv->req);

    if (status == KVCL_OK) {
        in = kvcl_layers_in_new(recv->req.ctx, recv->peer, &recv->msg, data, len, recv->cache, &recv->sel, recv->buf,
                                &status);
    }
    if (status != KVCL_OK) {
        recv_finish(recv, status);
        return;
    }
    in->owner    = recv;
    in->ended    = layers_ended;
    recv->layers = in;
    kvcl_layers_in_begin(in, recv->req.id);
}

static void deliver(recv_t *recv, kvcl_peer_t *peer, const kvcl_msg_send_t *msg, const void *data, size_t len)
{
    kvcl_status_t status;

    kvcl_list_del(&recv->link);
    recv->peer = peer;
    recv->msg  = *msg;
    if (recv->info != NULL) {
        const kvcl_recv_info_t info = {.size = sizeof(info), .source = msg->source, .tag = msg->tag, .bytes = msg->len};
        kvcl_struct_out(recv->info, &info, sizeof(info));
    }
    kvcl_req_watch(&recv->req, peer);
    status = fits(recv);
    if (status != KVCL_OK) {
        recv_finish(recv, status);
    } else if (msg->msg.flags & KVCL_SEND_EAGER) {
        recv_finish(recv, recv_copy(recv, data));
    } else if (msg->msg.flags & KVCL_SEND_LAYERS) {
        recv_layers(recv, data, len);
    } else {
        status = recv_pull(recv, data, len);
        if (status != KVCL_OK) {
            recv_finish(recv, status);
        }
    }
}

static void keep(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_send_t *msg, const void *data, size_t len)
{
    kvcl_p2p_state_t *p2p  = kvcl_p2p_state(ctx);
    size_t           bytes = sizeof(arrived_t) + len;
    arrived_t        *arrived;

    arrived = (p2p->arrived_bytes + bytes <= ARRIVED_MAX) ? malloc(bytes) : NULL;
    if (arrived == NULL) {
        kvcl_log_warn("no room for a message that nobody has asked for yet: %s gets an error", peer->name);
        answer(peer, msg->msg.op, KVCL_ERR_NO_SPACE);
        return;
    }
    arrived->peer = peer;
    arrived->msg  = *msg;
    arrived->len  = len;
    memcpy(arrived->bytes, data, len);
    p2p->arrived_bytes += bytes;
    kvcl_list_add_tail(&p2p->arrived, &arrived->link);
}

static void drop(kvcl_p2p_state_t *p2p, arrived_t *arrived)
{
    kvcl_list_del(&arrived->link);
    p2p->arrived_bytes -= sizeof(*arrived) + arrived->len;
    free(arrived);
}

void kvcl_p2p_on_send(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                      size_t len)
{
    const kvcl_msg_send_t *in = (const kvcl_msg_send_t *)msg;
    recv_t                *recv;
    bool                  good;

    (void)hdr_len;
    if (msg->flags & KVCL_SEND_EAGER) {
        good = (len == in->len) && !(msg->flags & KVCL_SEND_LAYERS);
    } else if (msg->flags & KVCL_SEND_CACHE) {
        good = (in->cache != 0) && (in->n_blocks > 0) && (in->n_blocks <= len / sizeof(uint32_t)) &&
               (len == in->n_blocks * sizeof(uint32_t));
    } else {
        good = (len == 0);
    }
    if (!good) {
        kvcl_am_malformed(ctx, peer, "a send whose payload does not fit its header");
        return;
    }
    kvcl_list_foreach (recv, &kvcl_p2p_state(ctx)->recvs, recv_t, link) {
        if (matches(recv, in)) {
            deliver(recv, peer, in, data, len);
            return;
        }
    }
    keep(ctx, peer, in, data, len);
}

/* The sender gave up. A matched recv notices by its pull, whose offer is gone; one of layers may have none. */
void kvcl_p2p_on_stop(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                      size_t len)
{
    kvcl_p2p_state_t *p2p = kvcl_p2p_state(ctx);
    kvcl_layers_in_t  *layers = kvcl_layers_in_find(ctx, peer, msg->op);
    arrived_t         *arrived, *next;

    (void)hdr_len;
    (void)data;
    (void)len;
    if (layers != NULL) {
        kvcl_layers_in_stop(layers, KVCL_ERR_CANCELED);
        return;
    }
    kvcl_list_foreach_safe (arrived, next, &p2p->arrived, arrived_t, link) {
        if ((arrived->peer == peer) && (arrived->msg.msg.op == msg->op)) {
            drop(p2p, arrived);
        }
    }
}

void kvcl_p2p_on_layers(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                        size_t len)
{
    kvcl_req_t *req = kvcl_req_find(ctx, msg->op, &recv_class);
    recv_t     *recv;

    (void)hdr_len;
    if (req == NULL) {
        ++ctx->stats.late;
        return;
    }
    recv = kvcl_container_of(req, recv_t, req);
    if ((recv->peer != peer) || (recv->layers == NULL)) {
        kvcl_am_malformed(ctx, peer, "layers of a send that is not its");
        return;
    }
    kvcl_layers_in_announced(recv->layers, (const kvcl_msg_layers_t *)msg, data, len);
}

/* What a dead peer has sent in full still counts; what would have to be pulled does not. */
void kvcl_p2p_peer_failed(kvcl_context_h ctx, kvcl_peer_t *peer)
{
    kvcl_p2p_state_t *p2p = kvcl_p2p_state(ctx);
    arrived_t        *arrived, *next;

    kvcl_list_foreach_safe (arrived, next, &p2p->arrived, arrived_t, link) {
        if ((arrived->peer == peer) && ((arrived->msg.msg.flags & KVCL_SEND_EAGER) == 0)) {
            drop(p2p, arrived);
        }
    }
}

void kvcl_p2p_fini(kvcl_context_h ctx)
{
    kvcl_p2p_state_t *p2p = kvcl_p2p_state(ctx);
    arrived_t        *arrived, *next;

    kvcl_list_foreach_safe (arrived, next, &p2p->arrived, arrived_t, link) {
        drop(p2p, arrived);
    }
}

/* Lock held. A recv from one known rank fails when that rank does; from any rank, only by its deadline. */
static void recv_match(recv_t *recv)
{
    kvcl_p2p_state_t *p2p = kvcl_p2p_state(recv->req.ctx);
    arrived_t        *arrived, *next;

    kvcl_assert_locked(recv->req.ctx);
    kvcl_list_foreach_safe (arrived, next, &p2p->arrived, arrived_t, link) {
        if (matches(recv, &arrived->msg)) {
            kvcl_list_del(&arrived->link);
            deliver(recv, arrived->peer, &arrived->msg, arrived->bytes, arrived->len);
            drop(p2p, arrived);
            return;
        }
    }
    if ((recv->from != NULL) && (recv->from->state == KVCL_PEER_FAILED)) {
        kvcl_req_complete(&recv->req, recv->from->why);
        return;
    }
    kvcl_list_add_tail(&p2p->recvs, &recv->link);
    if (recv->from != NULL) {
        kvcl_req_watch(&recv->req, recv->from);
    }
}

/* The stream has come so far. */
static void recv_passed(kvcl_peer_waiter_t *waiter, kvcl_status_t status)
{
    (void)status; /* no peer is waited for */
    recv_match(kvcl_container_of(waiter, recv_t, waiter));
}

static kvcl_status_t recv_post(kvcl_comm_h comm, recv_t *recv, const kvcl_xfer_params_t *p, kvcl_peer_t *from,
                               kvcl_req_h *req_p)
{
    kvcl_context_h ctx    = comm->ctx;
    kvcl_status_t  status = KVCL_OK;

    if (p->info != NULL) {
        status = kvcl_struct_out_check(p->info, KVCL_UP_TO(kvcl_recv_info_t, bytes), "kvcl_recv_info_t", "kvcl_recv");
    }
    if (status == KVCL_OK) {
        status = kvcl_gate_make(ctx, p->stream, "kvcl_recv", &recv->gate);
    }
    if (status != KVCL_OK) {
        recv_release(&recv->req);
        return status;
    }
    recv->comm      = comm->id;
    recv->info      = p->info;
    recv->from      = from;
    recv->waiter.fn = recv_passed;
    kvcl_list_init(&recv->waiter.link);
    kvcl_list_init(&recv->link);
    kvcl_lock(ctx);
    status = kvcl_req_start(&recv->req, ctx, &recv_class, p->timeout_ns, p->cb, p->cb_arg, req_p != NULL);
    if (status != KVCL_OK) {
        kvcl_unlock(ctx);
        recv_release(&recv->req);
        return kvcl_fail(status, "no memory for a recv");
    }
    if (req_p != NULL) {
        *req_p = kvcl_req_handle(&recv->req);
    }
    recv->req.with = from;
    if (kvcl_gate_pass(recv->gate, NULL, &recv->waiter) != KVCL_INPROGRESS) {
        recv_match(recv);
    }
    kvcl_unlock(ctx);
    return KVCL_OK;
}

static kvcl_status_t recv_begin(kvcl_comm_h comm, int rank, kvcl_call_id_t call, const kvcl_xfer_params_t *params,
                                kvcl_xfer_params_t *p, kvcl_peer_t **from_p, recv_t **recv_p)
{
    kvcl_status_t status;

    *from_p = NULL;
    if (rank == KVCL_ANY_SOURCE) {
        status = kvcl_handle_check(comm, KVCL_KIND_COMM, kvcl_call_name(call));
        status = (status == KVCL_OK) ? kvcl_xfer_params(params, call, p) : status;
    } else {
        status = kvcl_xfer_begin(comm, rank, call, params, p, from_p);
    }
    if (status != KVCL_OK) {
        return status;
    }
    *recv_p = calloc(1, sizeof(**recv_p));
    if (*recv_p == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for a recv", kvcl_call_name(call));
    }
    (*recv_p)->source = rank;
    return KVCL_OK;
}

kvcl_status_t kvcl_recv(kvcl_comm_h comm, int rank, uint64_t tag, kvcl_cache_h cache, const kvcl_sel_t *sel,
                        const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_xfer_params_t p;
    kvcl_peer_t        *from;
    recv_t             *recv;
    kvcl_status_t      status = recv_begin(comm, rank, KVCL_CALL_RECV, params, &p, &from, &recv);

    if (status != KVCL_OK) {
        return status;
    }
    status = kvcl_xfer_local(comm->ctx, cache, sel, "kvcl_recv");
    if (status == KVCL_OK) {
        status = kvcl_own_sel(&recv->sel, sel);
    }
    if (status != KVCL_OK) {
        free(recv);
        return status;
    }
    recv->tag   = tag;
    recv->cache = cache;
    recv->cap   = kvcl_sel_bytes(&cache->shape, sel);
    return recv_post(comm, recv, &p, from, req_p);
}

kvcl_status_t kvcl_recv_bytes(kvcl_comm_h comm, int rank, uint64_t tag, void *buf, size_t cap,
                              const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_xfer_params_t p;
    kvcl_peer_t        *from;
    recv_t             *recv;
    kvcl_status_t      status = recv_begin(comm, rank, KVCL_CALL_RECV_BYTES, params, &p, &from, &recv);

    if (status != KVCL_OK) {
        return status;
    }
    if ((buf == NULL) && (cap != 0)) {
        free(recv);
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_recv_bytes: buf is NULL");
    }
    recv->tag = tag;
    recv->buf = buf;
    recv->cap = cap;
    return recv_post(comm, recv, &p, from, req_p);
}
