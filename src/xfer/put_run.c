/*
 * The steps of a put (put.h): written directly, or announced to the peer, until the peer has the bytes.
 *
 * Owns: the request, its direct pull, its offer. Invariants: a put ends once; while a peer may read the offer it does
 * not end; the peer's cache is described again at most once. Locks: the engine lock, except kvcl_put_begin().
 */
#include "config.h"
#include "xfer/put.h"
#include "base/error.h"
#include "mem/rmem.h"
#include "xfer/describe.h"
#include "xfer/direct.h"
#include "kv/flat.h"
#include "xfer/pull.h"
#include "xfer/xfer.h"
#include "weave/pieces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void complete(kvcl_put_t *put, kvcl_status_t status)
{
    kvcl_set_statuses(put->status, put->n_status, status);
    put->req.timing.bytes = (status == KVCL_OK) ? put->total : 0;
    if (put->on_done != NULL) {
        put->on_done(put, status);
    }
    kvcl_req_complete(&put->req, status);
}

static void offer_idle(kvcl_offer_t *offer)
{
    kvcl_put_t *put = kvcl_container_of(offer, kvcl_put_t, offer);

    complete(put, put->final);
}

/* End the put: at once, or when no peer reads the offer. */
static void finish(kvcl_put_t *put, kvcl_status_t status)
{
    if (!put->offered) {
        complete(put, status);
    } else if (put->offer.id != 0) {
        put->final = status;
        kvcl_offer_close(put->req.ctx, &put->offer);
    }
}

static void put_stop(kvcl_req_t *req, kvcl_status_t status)
{
    kvcl_put_t *put = kvcl_container_of(req, kvcl_put_t, req);

    if (put->direct != NULL) {
        kvcl_pull_stop(put->direct, status);
    } else {
        finish(put, status);
    }
}

void kvcl_put_discard(kvcl_put_t *put)
{
    free((void *)put->local.blocks);
    free((void *)put->remote.blocks);
    free(put->near);
    free(put->far);
    kvcl_pull_discard(put->direct);
    free(put);
}

static void put_release(kvcl_req_t *req)
{
    kvcl_put_discard(kvcl_container_of(req, kvcl_put_t, req));
}

static kvcl_transfer_words_t words_of(const kvcl_put_t *put)
{
    return (kvcl_transfer_words_t){.push = true, .peer = put->peer, .name = put->name, .remote = &put->remote,
                                   .cache = put->cache, .local = &put->local};
}

static void put_describe(const kvcl_req_t *req, char *buf, size_t cap)
{
    const kvcl_put_t      *put  = kvcl_container_of((kvcl_req_t *)req, kvcl_put_t, req);
    kvcl_transfer_words_t words = words_of(put);

    if (put->cache != NULL) {
        kvcl_describe_transfer(&words, buf, cap);
    } else {
        kvcl_describe_bytes(true, put->peer, put->far, put->total, put->offset, buf, cap);
    }
}

static bool put_explain(const kvcl_req_t *req, kvcl_status_t status, char *buf, size_t cap)
{
    const kvcl_put_t      *put  = kvcl_container_of((kvcl_req_t *)req, kvcl_put_t, req);
    kvcl_transfer_words_t words = words_of(put);

    return ((put->cache != NULL) && kvcl_explain_transfer(&words, status, buf, cap)) ||
           (((put->cache == NULL) || (put->signal_mem != NULL)) && kvcl_explain_access(put->peer, status, buf, cap));
}

static const kvcl_req_class_t put_class = {
    .name = "put", .stop = put_stop, .release = put_release, .describe = put_describe, .explain = put_explain};

static void send_signal(kvcl_put_t *put)
{
    kvcl_rregion_t    *region = &put->signal_mem->rregion;
    kvcl_msg_signal_t out     = {.msg = {.type = KVCL_MSG_SIGNAL, .op = put->req.id}, .region = region->id,
                                 .key = region->keys[1], .offset = put->signal_offset, .add = put->signal_add};

    if (kvcl_peer_post(put->peer, &out.msg, sizeof(out), NULL, 0) != KVCL_OK) {
        complete(put, KVCL_ERR_RANK_FAILED);
    }
}

/* side_p: the side of the stream; without a shape for plain bytes. */
static void local_stream(const kvcl_put_t *put, uint32_t unit, kvcl_stream_t *stream, kvcl_side_t *side_p)
{
    *side_p = (kvcl_side_t){0};
    if (put->near != NULL) {
        kvcl_stream_pieces(stream, put->near, 0);
        stream->copier = put->copier;
    } else if (put->cache == NULL) {
        kvcl_stream_flat(stream, put->buf, put->total);
    } else {
        *side_p = kvcl_cache_side(put->cache, &put->local);
        kvcl_stream_init_units(stream, side_p, KVCL_STREAM_CANONICAL, unit);
    }
}

/* The unit of both sides. Without the owner's shape the put will be refused. */
static uint32_t unit_of(const kvcl_put_t *put, const kvcl_rcache_t *rcache)
{
    kvcl_side_t local, remote;

    if (rcache == NULL) {
        return 0;
    }
    local  = kvcl_cache_side(put->cache, &put->local);
    remote = kvcl_rcache_side(rcache, &put->remote);
    return kvcl_runs_unit(&remote, &local);
}

static void fill_put(kvcl_put_t *put, kvcl_msg_put_t *out)
{
    memset(out, 0, sizeof(*out));
    out->msg.type  = KVCL_MSG_PUT;
    out->msg.op    = put->req.id;
    out->order     = KVCL_STREAM_CANONICAL;
    out->len       = put->total;
    out->msg.flags = put->background ? KVCL_PUT_BACKGROUND : 0;
    if (put->cache != NULL) {
        kvcl_rcache_t *rcache = kvcl_rcache_ready(put->peer, put->name_key);
        out->msg.flags |= KVCL_PUT_CACHE;
        out->target     = (rcache != NULL) ? rcache->id : 0;
        out->layers[0]  = put->remote.layers.first;
        out->layers[1]  = put->remote.layers.end;
        out->heads[0]   = put->remote.heads.first;
        out->heads[1]   = put->remote.heads.end;
        out->tokens[0]  = put->remote.tokens.first;
        out->tokens[1]  = put->remote.tokens.end;
        out->n_blocks   = put->remote.n_blocks;
        out->unit       = unit_of(put, rcache);
    } else {
        out->target = put->rmem->rregion.id;
        out->key    = put->rmem->rregion.keys[1];
        out->offset = put->offset;
    }
    if (put->far != NULL) {
        out->msg.flags |= KVCL_PUT_PIECES;
        out->n_blocks   = put->far->n;
    }
    if (put->signal_mem != NULL) {
        out->msg.flags    |= KVCL_PUT_SIGNAL;
        out->signal_region = put->signal_mem->rregion.id;
        out->signal_key    = put->signal_mem->rregion.keys[1];
        out->signal_offset = put->signal_offset;
        out->signal_add    = put->signal_add;
    }
}

/* The peer's memory cannot be reached: announce the put, and the peer takes the bytes. */
static void announce(kvcl_put_t *put)
{
    size_t         ids      = (put->far != NULL) ? put->far->n * sizeof(kvcl_wire_piece_t)
                                                 : put->remote.n_blocks * sizeof(uint32_t);
    bool           eager    = (put->total <= put->req.ctx->config.eager);
    size_t         len      = ids + (eager ? (size_t)put->total : 0);
    char           *payload = malloc(len + 1);
    kvcl_msg_put_t out;
    kvcl_stream_t  stream;
    kvcl_side_t    side;
    kvcl_status_t  status = (payload != NULL) ? KVCL_OK : KVCL_ERR_NO_MEMORY;

    kvcl_timing_path(&put->req.timing, KVCL_MEM_PATH_SERVED);
    if (status == KVCL_OK) {
        fill_put(put, &out);
        if (put->far != NULL) {
            kvcl_pieces_encode(put->far, payload);
        } else if (ids != 0) {
            kvcl_copy_bytes(payload, put->remote.blocks, ids);
        }
        local_stream(put, out.unit, &stream, &side);
        if (eager) {
            out.msg.flags |= KVCL_PUT_EAGER;
            if (kvcl_stream_gather(&stream, payload + ids, (size_t)put->total) != put->total) {
                status = KVCL_ERR_IO;
            }
        } else {
            put->offer   = (kvcl_offer_t){.stream = stream, .side = side, .peer = put->peer, .idle = offer_idle};
            status       = kvcl_offer_open(put->req.ctx, &put->offer);
            put->offered = (status == KVCL_OK);
            out.offer    = put->offer.id;
        }
    }
    if (status == KVCL_OK) {
        status = kvcl_peer_post(put->peer, &out.msg, sizeof(out), payload, len);
    }
    free(payload);
    if (status != KVCL_OK) {
        finish(put, status);
    }
}

static void direct_done(kvcl_pull_t *pull, kvcl_status_t status)
{
    kvcl_put_t *put = pull->arg;

    put->direct = NULL;
    kvcl_timing_path(&put->req.timing, (kvcl_mem_path_t)pull->req.timing.path);
    kvcl_req_watch(&put->req, put->peer);
    if ((status < 0) && (status != KVCL_ERR_UNSUPPORTED)) {
        kvcl_req_take_why(&put->req, &pull->req);
    }
    if (status == KVCL_ERR_UNSUPPORTED) {
        announce(put);
    } else if ((status == KVCL_OK) && (put->signal_mem != NULL)) {
        send_signal(put);
    } else {
        complete(put, status);
    }
}

/* The pull that writes directly, if the peer's memory can be reached. */
static kvcl_pull_t *make_direct(kvcl_put_t *put)
{
    kvcl_pull_t *pull = kvcl_pull_new();

    if (pull == NULL) {
        return NULL;
    }
    pull->peer        = put->peer;
    pull->push        = true;
    pull->need_direct = true;
    pull->background  = put->background;
    pull->total       = put->total;
    pull->on_done     = direct_done;
    pull->arg         = put;
    if (put->cache == NULL) {
        pull->from    = KVCL_FROM_REGION;
        pull->rregion = &put->rmem->rregion;
        pull->offset  = put->offset;
        pull->buf     = (void *)put->buf;
        pull->near    = put->near;
        pull->far     = put->far;
        pull->buf_copier = put->copier;
        return pull;
    }
    pull->from       = KVCL_FROM_CACHE;
    strcpy(pull->cache_name, put->name);
    pull->name_key   = put->name_key;
    if ((kvcl_pull_set_local(pull, put->cache, &put->local) != KVCL_OK) ||
        (kvcl_pull_set_remote(pull, &put->remote) != KVCL_OK)) {
        kvcl_pull_discard(pull);
        return NULL;
    }
    return pull;
}

kvcl_status_t kvcl_put_start(kvcl_context_h ctx, kvcl_put_t *put, const kvcl_xfer_params_t *p, kvcl_req_h *req_p)
{
    kvcl_pull_t   *direct = put->direct;
    kvcl_status_t status;

    kvcl_assert_locked(ctx);
    status = kvcl_req_post(&put->req, ctx, &put_class, p, req_p);
    if (status != KVCL_OK) {
        return status;
    }
    kvcl_req_bind(&put->req, (put->cache != NULL) ? put->self.id : 0);
    put->req.with      = put->peer;
    put->req.timing.op = (direct->gate == NULL) ? KVCL_LATENCY_PUT : KVCL_LATENCY_NONE; /* a stream's is not timed */
    status             = kvcl_req_publish(&put->req);
    if (status == KVCL_OK) {
        /* The pull has no deadline: the put's stops it. */
        status = kvcl_pull_start(ctx, direct, UINT64_MAX);
    }
    if (status != KVCL_OK) {
        put->direct = NULL;
        kvcl_pull_discard(direct);
        complete(put, status);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_put_begin(kvcl_context_h ctx, kvcl_put_t *put, kvcl_gate_t *gate, const kvcl_xfer_params_t *p,
                             kvcl_req_h *req_p)
{
    kvcl_status_t status = KVCL_ERR_NO_MEMORY;

    put->background = (p->flags & KVCL_BACKGROUND) != 0;
    put->direct     = make_direct(put);
    if (put->direct == NULL) {
        kvcl_gate_free(gate);
        kvcl_put_discard(put);
        return kvcl_fail(status, "no memory for a put");
    }
    put->direct->gate  = gate;
    put->signal_mem    = p->signal_mem;
    put->signal_offset = p->signal_offset;
    put->signal_add    = p->signal_add;
    if (p->notify != NULL) {
        return kvcl_xfer_state(ctx)->notifier->put(ctx, put, p, req_p);
    }
    kvcl_lock(ctx);
    status = kvcl_put_start(ctx, put, p, req_p);
    kvcl_unlock(ctx);
    if (status != KVCL_OK) {
        kvcl_put_discard(put);
        return kvcl_fail(status, "no memory for a put");
    }
    return KVCL_OK;
}

/* The owner no longer has the cache that it described; it may have another of that name. Once. */
static bool begin_again(kvcl_put_t *put)
{
    kvcl_pull_t *direct;

    if (put->requested_again || (put->offered && (put->offer.serves != 0)) || ((direct = make_direct(put)) == NULL)) {
        return false;
    }
    if (put->offered) {
        kvcl_offer_withdraw(put->req.ctx, &put->offer);
        put->offered = false;
    }
    put->requested_again = true;
    put->direct          = direct;
    if (kvcl_pull_start(put->req.ctx, direct, UINT64_MAX) != KVCL_OK) {
        put->direct = NULL;
        kvcl_pull_discard(direct);
        return false;
    }
    return true;
}

/* PUT_DONE and SIGNALED. */
void kvcl_put_on_done(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                      size_t len)
{
    const kvcl_msg_done_t *in  = (const kvcl_msg_done_t *)msg;
    kvcl_req_t            *req = kvcl_req_find(ctx, msg->op, &put_class);
    kvcl_put_t            *put;

    (void)hdr_len;
    (void)data;
    (void)len;
    if (req == NULL) {
        ++ctx->stats.late;
        return;
    }
    put = kvcl_container_of(req, kvcl_put_t, req);
    if ((put->peer != peer) || (put->direct != NULL) || (in->status > 0)) {
        kvcl_am_malformed(ctx, peer, "the end of a put to another rank");
        return;
    }
    ctx->stats.bytes_out += ((in->status == KVCL_OK) && (msg->type == KVCL_MSG_PUT_DONE) && !put->offered)
                                ? put->total : 0;
    if ((in->status == KVCL_ERR_NOT_REGISTERED) && (put->cache != NULL)) {
        kvcl_rcache_t *rcache = kvcl_rcache_ready(peer, put->name_key);
        if (rcache != NULL) {
            kvcl_rcache_stale(rcache);
        }
        if (begin_again(put)) {
            return;
        }
    }
    finish(put, (kvcl_status_t)in->status);
}
