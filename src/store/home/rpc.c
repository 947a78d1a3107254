/*
 * RPCs (rpc.h): queries to other ranks of a store, and the making of queries about scattered keys (scatter.c).
 *
 * Each RPC is a request of its own, so deadlines and failed peers end it like any other request. Its poster is notified
 * of the end once, by done(). Engine lock held, except in kvcl_rpc_new and kvcl_rpcs_make, which touch nothing shared.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "store/home/far_table.h"
#include "store/home/mapped.h"
#include "store/home/ranks.h"
#include "store/store.h"

#include <stdlib.h>

static void stop(kvcl_req_t *req, kvcl_status_t status);

static bool again(kvcl_req_t *req);

static const kvcl_req_class_t rpc_class = {.name = "store-rpc", .stop = stop, .again = again, .release = NULL};

kvcl_rpc_t *kvcl_rpc_new(kvcl_store_h store, uint32_t rank, uint8_t kind, size_t payload_room)
{
    kvcl_rpc_t *rpc = malloc(sizeof(*rpc) + payload_room);

    if (rpc != NULL) {
        memset(rpc, 0, sizeof(*rpc));
        kvcl_list_init(&rpc->link);
        kvcl_list_init(&rpc->watch_link);
        kvcl_list_init(&rpc->waiter.link);
        rpc->store = store;
        rpc->rank  = rank;
        rpc->peer  = store->ranks[rank].peer;
        rpc->kind  = kind;
    }
    return rpc;
}

void kvcl_rpc_discard(kvcl_rpc_t *rpc)
{
    free(rpc);
}

static void end(kvcl_rpc_t *rpc, kvcl_status_t status, const void *data, size_t len)
{
    if (rpc->over) {
        return;
    }
    rpc->over = true;
    kvcl_peer_unwait(&rpc->waiter);
    kvcl_list_del(&rpc->link);
    kvcl_list_del(&rpc->watch_link);
    if (rpc->far != NULL) {
        kvcl_far_leave(rpc->far);
    }
    if (((status == KVCL_ERR_NOT_FOUND) || (rpc->peer->state == KVCL_PEER_FAILED)) &&
        (rpc->peer == rpc->store->ranks[rpc->rank].peer)) { /* no other process has its slot by now */
        kvcl_store_rank_failed(rpc->store, rpc->rank); /* it closed its part, or failed: known before the next query */
    }
    if (rpc->quick) {
        kvcl_peer_answered(rpc->peer);
    }
    --rpc->store->ops;
    rpc->done(rpc, status, data, len);
    kvcl_req_complete(&rpc->req, status);
}

static void stop(kvcl_req_t *req, kvcl_status_t status)
{
    end(kvcl_container_of(req, kvcl_rpc_t, req), status, NULL, 0);
}

static const kvcl_rpc_kind_t *kind_of(const kvcl_rpc_t *rpc)
{
    return &kvcl_store_room(rpc->store->ctx)->kinds[rpc->kind];
}

/* Its failure ends the requests to it. One that ended sooner would end beside a rank that still counts as a home, and
 * the keys of this home would seem to be absent, though the other home lists them. */
static bool fails_soon(const kvcl_peer_t *peer)
{
    return peer->unsent && (peer->state == KVCL_PEER_READY);
}

static void send_message(kvcl_rpc_t *rpc)
{
    kvcl_msg_dir_request_t out = {.msg   = {.type = KVCL_MSG_DIR_REQUEST, .flags = rpc->kind, .op = rpc->req.id},
                                  .store = rpc->store->id, .n = rpc->n, .rank = rpc->store->me};
    kvcl_status_t          status;

    if (kind_of(rpc)->quick) {
        status     = kvcl_peer_post_soon(rpc->peer, &out.msg, sizeof(out), rpc->payload, rpc->len);
        rpc->quick = true;
        kvcl_peer_queried(rpc->peer);
    } else {
        status = kvcl_peer_post(rpc->peer, &out.msg, sizeof(out), rpc->payload, rpc->len);
    }
    if ((status != KVCL_OK) && !fails_soon(rpc->peer)) {
        end(rpc, status, NULL, 0);
    }
}

static void on_table_read(kvcl_rpc_t *rpc, const void *data, size_t len)
{
    if (data != NULL) {
        rpc->read = true;
        end(rpc, KVCL_OK, data, len);
    } else {
        send_message(rpc);
    }
}

static void send_rpc(kvcl_rpc_t *rpc)
{
    kvcl_req_watch(&rpc->req, rpc->peer);
    if (!kvcl_far_start(rpc, on_table_read)) {
        send_message(rpc);
    }
}

static void on_peer(kvcl_peer_waiter_t *waiter, kvcl_status_t status)
{
    kvcl_rpc_t *rpc = kvcl_container_of(waiter, kvcl_rpc_t, waiter);

    if (status != KVCL_OK) {
        end(rpc, KVCL_ERR_RANK_FAILED, NULL, 0);
        return;
    }
    send_rpc(rpc);
}

/* Only RPCs that change nothing at the other rank begin again. */
static bool again(kvcl_req_t *req)
{
    kvcl_rpc_t *rpc = kvcl_container_of(req, kvcl_rpc_t, req);

    if ((rpc->kind != KVCL_RPC_LOOKUP) && (rpc->kind != KVCL_RPC_PRESENT) && (rpc->kind != KVCL_RPC_FETCH) &&
        (rpc->kind != KVCL_RPC_TABLE)) {
        return false;
    }
    if (rpc->far != NULL) {
        kvcl_far_leave(rpc->far);
        rpc->far = NULL;
    }
    if (rpc->quick) {
        rpc->quick = false;
        kvcl_peer_answered(rpc->peer);
    }
    kvcl_req_unpublish(&rpc->req); /* a late answer does not match */
    return (kvcl_req_publish(&rpc->req) == KVCL_OK) && (kvcl_peer_ready(rpc->peer, &rpc->waiter) == KVCL_INPROGRESS);
}

void kvcl_rpc_post(kvcl_rpc_t *rpc, uint64_t timeout_ns, kvcl_list_t *rpcs)
{
    kvcl_context_h ctx = rpc->store->ctx;
    kvcl_status_t  status;

    kvcl_assert_locked(ctx);
    kvcl_list_del(&rpc->link);
    rpc->posted_ns   = kvcl_now_ns();
    rpc->was_suspect = kvcl_store_suspects(rpc->store, rpc->rank);
    status           = kvcl_req_start(&rpc->req, ctx, &rpc_class, timeout_ns, NULL, NULL, false);
    if (status != KVCL_OK) {
        kvcl_list_del(&rpc->watch_link);
        rpc->done(rpc, status, NULL, 0);
        kvcl_rpc_discard(rpc);
        return;
    }
    ++rpc->store->ops;
    if (rpcs != NULL) {
        kvcl_list_add_tail(rpcs, &rpc->link);
    }
    status = kvcl_req_publish(&rpc->req);
    if (status != KVCL_OK) {
        end(rpc, status, NULL, 0);
        return;
    }
    rpc->waiter.fn = on_peer;
    status         = kvcl_peer_ready(rpc->peer, &rpc->waiter);
    if (status == KVCL_OK) {
        send_rpc(rpc);
    } else if (status != KVCL_INPROGRESS) {
        end(rpc, KVCL_ERR_RANK_FAILED, NULL, 0);
    }
}

void kvcl_rpc_post_watched(kvcl_rpc_t *rpc, uint64_t timeout_ns, kvcl_list_t *rpcs)
{
    kvcl_silence_watch(rpc); /* before the post: the RPC may be freed afterwards */
    kvcl_rpc_post(rpc, timeout_ns, rpcs);
}

void kvcl_rpc_abandon(kvcl_rpc_t *rpc)
{
    kvcl_assert_locked(rpc->store->ctx);
    rpc->silent = true;
    end(rpc, KVCL_ERR_TIMED_OUT, NULL, 0);
}

void kvcl_rpcs_stop(kvcl_list_t *rpcs, kvcl_status_t status)
{
    while (!kvcl_list_is_empty(rpcs)) {
        end(kvcl_list_head(rpcs, kvcl_rpc_t, link), status, NULL, 0);
    }
}

bool kvcl_rpc_fits_dir(const kvcl_rpc_t *rpc, const void *data, size_t len)
{
    kvcl_dir_msg_t unpacked;

    return (kvcl_dir_msg_unpack(&unpacked, data, len) == KVCL_OK) && (unpacked.n == rpc->n) &&
           ((unsigned)unpacked.type == (unsigned)rpc->kind + KVCL_DIR_MSG_LOOKUP);
}

/* Does the payload fit the RPC's kind? The peer may have sent anything. */
static bool answer_fits(const kvcl_rpc_t *rpc, const kvcl_msg_dir_answer_t *in, const void *data, size_t len)
{
    const kvcl_rpc_kind_t *kind = kind_of(rpc);

    if (kind->fits != NULL) {
        return kind->fits(rpc, data, len);
    }
    return (kind->answer_item == 0) ||
           ((in->n == rpc->n) && (len == kind->answer_head + ((size_t)rpc->n * kind->answer_item)));
}

void kvcl_rpc_on_answer(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                        const void *data, size_t len)
{
    const kvcl_msg_dir_answer_t *in  = (const kvcl_msg_dir_answer_t *)msg;
    kvcl_req_t                  *req = kvcl_req_find(ctx, msg->op, &rpc_class);
    kvcl_rpc_t                  *rpc;

    (void)hdr_len;
    if (req == NULL) {
        ++ctx->stats.late;
        return;
    }
    rpc = kvcl_container_of(req, kvcl_rpc_t, req);
    if ((rpc->peer != peer) || (in->msg.flags != rpc->kind) || (in->status > 0)) {
        kvcl_am_malformed(ctx, peer, "an answer whose kind, status or sender does not match its request");
        return;
    }
    if (in->status != KVCL_OK) {
        end(rpc, (kvcl_status_t)in->status, NULL, 0);
    } else if (!answer_fits(rpc, in, data, len)) {
        kvcl_am_malformed(ctx, peer, "an answer whose length does not fit its request");
        end(rpc, KVCL_ERR_PROTOCOL, NULL, 0);
    } else {
        end(rpc, KVCL_OK, data, len);
    }
}

/* ---- how a home's table can be read ---- */

/* KVCL_INPROGRESS: it is not mapped, but the network can read it. */
static kvcl_status_t open_view(kvcl_store_rank_t *rank, const void *data, size_t len)
{
    kvcl_status_t status;
    size_t        used;

    status = kvcl_rregion_open(rank->peer, data, len, &rank->region, &used);
    if ((status == KVCL_OK) && (rank->region.attr.map == NULL) && rank->region.attr.get) {
        return KVCL_INPROGRESS;
    }
    if ((status == KVCL_OK) && (rank->region.attr.map == NULL)) {
        status = KVCL_ERR_UNSUPPORTED;
    }
    if (status == KVCL_OK) {
        status = kvcl_mapped_keep(rank);
    }
    if (status != KVCL_OK) {
        kvcl_rregion_close(&rank->region);
    }
    return status;
}

static void on_table(kvcl_rpc_t *rpc, kvcl_status_t status, const void *data, size_t len)
{
    kvcl_store_rank_t *rank = &rpc->store->ranks[rpc->rank];

    if (rpc->store->closing || (rpc->peer != rank->peer) ||
        (atomic_load(&rank->view_state) != KVCL_VIEW_REQUESTED)) {
        return; /* the link was lost meanwhile: a later query requests it again */
    }
    if (status == KVCL_OK) {
        status = open_view(rank, data, len);
    }
    if (status == KVCL_INPROGRESS) {
        kvcl_far_learn(rpc->store, rpc->rank);
        return;
    }
    kvcl_log_debug("the directory of %s: %s", rank->peer->name, (status == KVCL_OK) ? "mapped" : "by message");
    atomic_store_explicit(&rank->view_state, (status == KVCL_OK) ? KVCL_VIEW_MAPPED : KVCL_VIEW_BY_MESSAGE,
                          memory_order_release);
}

void kvcl_store_learn(kvcl_store_h store, uint32_t rank)
{
    kvcl_rpc_t *rpc;

    kvcl_assert_locked(store->ctx);
    if ((rank == store->me) || store->closing ||
        (atomic_load_explicit(&store->ranks[rank].view_state, memory_order_relaxed) != KVCL_VIEW_UNKNOWN) ||
        !kvcl_deadline_passed(store->ranks[rank].learn_ns)) {
        return;
    }
    rpc = kvcl_rpc_new(store, rank, KVCL_RPC_TABLE, 0);
    if (rpc != NULL) {
        atomic_store_explicit(&store->ranks[rank].view_state, KVCL_VIEW_REQUESTED, memory_order_relaxed);
        rpc->done = on_table;
        kvcl_rpc_post(rpc, 0, NULL);
    }
}

/* ---- queries about scattered keys ---- */

_Static_assert((int)KVCL_RPC_PUBLISH == (int)KVCL_DIR_MSG_PUBLISH && (int)KVCL_RPC_REMOVE == (int)KVCL_DIR_MSG_REMOVE &&
                   (int)KVCL_RPC_LOOKUP == (int)KVCL_DIR_MSG_LOOKUP,
               "RPC kinds that carry a directory message have its number");

/* Writes the payload: a message of dir_wire.h, or bare keys. A record begins with its key. */
static kvcl_status_t fill(kvcl_rpc_t *rpc, size_t room, const char *items, size_t stride)
{
    kvcl_dir_pack_t pack;
    kvcl_status_t   status = KVCL_OK;
    uint32_t        i;

    if (rpc->kind > KVCL_RPC_LOOKUP) {
        for (i = 0; i < rpc->n; ++i) {
            memcpy(rpc->payload + ((size_t)i * KVCL_DIR_KEY_BYTES), items + ((size_t)rpc->order[i] * stride),
                   KVCL_DIR_KEY_BYTES);
        }
        rpc->len = (size_t)rpc->n * KVCL_DIR_KEY_BYTES;
        return KVCL_OK;
    }
    status = kvcl_dir_pack_begin(&pack, rpc->payload, room, (kvcl_dir_msg_type_t)rpc->kind,
                                 kvcl_store_shards(rpc->store)->view, 0);
    for (i = 0; (i < rpc->n) && (status == KVCL_OK); ++i) {
        const void *item = items + ((size_t)rpc->order[i] * stride); /* keys of a lookup may lie at any address */
        status = kvcl_dir_pack_add(&pack, item, (rpc->kind == KVCL_RPC_LOOKUP)
                                                    ? NULL : &((const kvcl_store_rec_t *)item)->loc);
    }
    rpc->len = kvcl_dir_pack_end(&pack);
    return status;
}

/* One RPC about the items order[0..n). */
static kvcl_rpc_t *make_one(kvcl_store_h store, uint32_t rank, uint8_t kind, const char *items, size_t stride,
                            const uint32_t *order, uint32_t n)
{
    size_t     room = kvcl_dir_request_bytes((kind <= KVCL_RPC_LOOKUP) ? (kvcl_dir_msg_type_t)kind
                                                                       : KVCL_DIR_MSG_LOOKUP, n);
    kvcl_rpc_t *rpc = kvcl_rpc_new(store, rank, kind, room);

    if (rpc != NULL) {
        rpc->n     = n;
        rpc->order = order;
        if (fill(rpc, room, items, stride) != KVCL_OK) {
            kvcl_rpc_discard(rpc);
            rpc = NULL;
        }
    }
    return rpc;
}

kvcl_status_t kvcl_rpcs_make(kvcl_store_h store, uint32_t rank, uint8_t kind, const void *keys, size_t stride,
                             const kvcl_scatter_t *scatter, kvcl_list_t *list)
{
    uint32_t   from = scatter->starts[rank], to = scatter->starts[rank + 1], n;
    kvcl_rpc_t *rpc;

    for (; from < to; from += n) {
        n   = (to - from > KVCL_RPC_KEYS_MAX) ? KVCL_RPC_KEYS_MAX : to - from;
        rpc = make_one(store, rank, kind, keys, stride, scatter->order + from, n);
        if (rpc == NULL) {
            while (!kvcl_list_is_empty(list)) {
                rpc = kvcl_list_head(list, kvcl_rpc_t, link);
                kvcl_list_del(&rpc->link);
                kvcl_rpc_discard(rpc);
            }
            return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a query of %u keys", n);
        }
        kvcl_list_add_tail(list, &rpc->link);
    }
    return KVCL_OK;
}
