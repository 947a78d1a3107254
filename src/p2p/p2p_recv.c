/*
 * The receiving side of two-sided transfers (p2p.h): the calls, and a recv as a request.
 *
 * Owns: a recv (p2p_recv.h). Matching is in p2p_match.c, the bytes of a matched send in p2p_take.c. Invariants: a recv
 * is posted or matched, never both; it ends once. Locks: the engine lock, except in the calls until they post.
 */
#include "config.h"
#include "p2p/p2p.h"
#include "p2p/p2p_recv.h"
#include "p2p/p2p_words.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/structs.h"
#include "xfer/describe.h"
#include "xfer/params.h"

#include <stdio.h>
#include <stdlib.h>

static void recv_stop(kvcl_req_t *req, kvcl_status_t status)
{
    kvcl_p2p_recv_t *recv = kvcl_container_of(req, kvcl_p2p_recv_t, req);

    if (recv->layers != NULL) {
        kvcl_layers_in_stop(recv->layers, status);
        return;
    }
    if (recv->pull != NULL) {
        kvcl_pull_stop(recv->pull, status);
        return;
    }
    if (recv->near.busy) { /* it ends when no byte is written any more */
        recv->stopped = (recv->stopped == KVCL_OK) ? status : recv->stopped;
        kvcl_near_stop(&recv->near);
        return;
    }
    kvcl_peer_unwait(&recv->waiter);
    kvcl_list_del(&recv->posted.link);
    kvcl_p2p_recv_finish(recv, status);
}

static void recv_release(kvcl_req_t *req)
{
    kvcl_p2p_recv_t *recv = kvcl_container_of(req, kvcl_p2p_recv_t, req);

    free((void *)recv->sel.blocks);
    kvcl_layers_in_free(recv->layers);
    kvcl_gate_free(recv->gate);
    free(recv);
}

/* The layers of a send that is not layer-wise arrive together. */
static kvcl_status_t recv_layer_state(const kvcl_req_t *req, uint32_t layer)
{
    kvcl_p2p_recv_t        *recv   = kvcl_container_of((kvcl_req_t *)req, kvcl_p2p_recv_t, req);
    const kvcl_layers_in_t *layers = recv->layers;
    kvcl_range_t           selected;

    if (recv->cache != NULL) {
        selected = kvcl_sel_layers(&recv->cache->shape, &recv->sel);
        if ((layer < selected.first) || (layer >= selected.end)) {
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
    const kvcl_p2p_recv_t *recv = kvcl_container_of((kvcl_req_t *)req, kvcl_p2p_recv_t, req);
    char                  peer[48], what[160], tag[32];

    kvcl_describe_tag(recv->posted.tag, tag, sizeof(tag));
    if (recv->peer != NULL) {
        kvcl_comm_source_name(recv->peer, recv->msg.comm, recv->msg.source, peer, sizeof(peer));
    } else {
        kvcl_describe_peer(recv->from, peer, sizeof(peer));
    }
    if (recv->cache != NULL) {
        snprintf(buf, cap, "kvcl_recv of %s from %s into %s of \"%s\"", tag, peer,
                 kvcl_describe_sel(&recv->sel, what, sizeof(what)), recv->cache->name);
    } else {
        snprintf(buf, cap, "kvcl_recv_bytes of %s from %s into %llu bytes", tag, peer, (unsigned long long)recv->cap);
    }
}

static bool recv_explain(const kvcl_req_t *req, kvcl_status_t status, char *buf, size_t cap)
{
    const kvcl_p2p_recv_t *recv = kvcl_container_of((kvcl_req_t *)req, kvcl_p2p_recv_t, req);

    if ((status != KVCL_ERR_TIMED_OUT) || (recv->peer != NULL)) {
        return false;
    }
    snprintf(buf, cap, "no send with that tag arrived within its deadline of %llu ms: compare rank, tag and "
             "communicator on both sides, or raise params.timeout_ns (0: KVCL_TIMEOUT)",
             (unsigned long long)(req->timeout_ns / KVCL_NS_PER_MS));
    return true;
}

static const kvcl_req_class_t recv_class = {
    .name = "recv", .stop = recv_stop, .release = recv_release, .layer_state = recv_layer_state,
    .describe = recv_describe, .explain = recv_explain};

void kvcl_p2p_on_layers(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                        size_t len)
{
    kvcl_req_t      *req = kvcl_req_find(ctx, msg->op, &recv_class);
    kvcl_p2p_recv_t *recv;

    (void)hdr_len;
    if (req == NULL) {
        ++ctx->stats.late;
        return;
    }
    recv = kvcl_container_of(req, kvcl_p2p_recv_t, req);
    if ((recv->peer != peer) || (recv->layers == NULL)) {
        kvcl_am_malformed(ctx, peer, "layers of a send of another rank");
        return;
    }
    kvcl_layers_in_announced(recv->layers, (const kvcl_msg_layers_t *)msg, data, len);
}

static void matched(kvcl_posted_t *posted, kvcl_peer_t *peer, const kvcl_msg_send_t *msg, const void *data, size_t len)
{
    kvcl_p2p_recv_take(kvcl_container_of(posted, kvcl_p2p_recv_t, posted), peer, msg, data, len);
}

/* A recv from one known rank fails when that rank does; from any rank, only by its deadline. */
static void match(kvcl_p2p_recv_t *recv)
{
    kvcl_context_h ctx = recv->req.ctx;

    kvcl_assert_locked(ctx);
    if (kvcl_match_arrived(ctx, &recv->posted)) {
        return;
    }
    if ((recv->from != NULL) && (recv->from->state == KVCL_PEER_FAILED)) {
        kvcl_req_complete(&recv->req, recv->from->why);
        return;
    }
    kvcl_match_post(ctx, &recv->posted);
    if (recv->from != NULL) {
        kvcl_req_watch(&recv->req, recv->from);
    }
}

/* The work on the CUDA stream before the recv has finished. */
static void recv_passed(kvcl_peer_waiter_t *waiter, kvcl_status_t status)
{
    (void)status; /* a recv waits for no peer */
    match(kvcl_container_of(waiter, kvcl_p2p_recv_t, waiter));
}

static kvcl_status_t recv_post(kvcl_comm_h comm, kvcl_p2p_recv_t *recv, const kvcl_xfer_params_t *p, kvcl_peer_t *from,
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
    recv->posted.comm = comm->id;
    recv->info        = p->info;
    recv->from        = from;
    recv->waiter.fn   = recv_passed;
    kvcl_list_init(&recv->waiter.link);
    recv->posted.matched = matched;
    kvcl_list_init(&recv->posted.link);
    kvcl_lock(ctx);
    status = kvcl_req_post(&recv->req, ctx, &recv_class, p, req_p);
    if (status != KVCL_OK) {
        kvcl_unlock(ctx);
        recv_release(&recv->req);
        return kvcl_fail(status, "no memory for a recv");
    }
    recv->req.with = from;
    kvcl_req_bind(&recv->req, comm->id);
    if (kvcl_gate_pass(recv->gate, NULL, &recv->waiter) != KVCL_INPROGRESS) {
        match(recv);
    }
    kvcl_unlock(ctx);
    return KVCL_OK;
}

static kvcl_status_t recv_begin(kvcl_comm_h comm, int rank, kvcl_call_id_t call, const kvcl_xfer_params_t *params,
                                kvcl_xfer_params_t *p, kvcl_peer_t **from_p, kvcl_p2p_recv_t **recv_p)
{
    kvcl_status_t status;

    *from_p = NULL;
    if (rank == KVCL_ANY_SOURCE) {
        status = kvcl_comm_check_any(comm, rank, kvcl_call_name(call));
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
    (*recv_p)->posted.source = rank;
    return KVCL_OK;
}

kvcl_status_t kvcl_recv(kvcl_comm_h comm, int rank, uint64_t tag, kvcl_cache_h cache, const kvcl_sel_t *sel,
                        const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_xfer_params_t p;
    kvcl_peer_t        *from;
    kvcl_p2p_recv_t    *recv;
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
    recv->posted.tag = tag;
    recv->cache      = cache;
    recv->cap        = kvcl_sel_bytes(&cache->shape, sel);
    return recv_post(comm, recv, &p, from, req_p);
}

kvcl_status_t kvcl_recv_bytes(kvcl_comm_h comm, int rank, uint64_t tag, void *buf, size_t cap,
                              const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_xfer_params_t p;
    kvcl_peer_t        *from;
    kvcl_p2p_recv_t    *recv;
    kvcl_status_t      status = recv_begin(comm, rank, KVCL_CALL_RECV_BYTES, params, &p, &from, &recv);

    if (status != KVCL_OK) {
        return status;
    }
    if ((buf == NULL) && (cap != 0)) {
        free(recv);
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_recv_bytes: buf is NULL");
    }
    recv->posted.tag = tag;
    recv->buf        = buf;
    recv->cap        = cap;
    return recv_post(comm, recv, &p, from, req_p);
}
