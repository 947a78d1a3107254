/*
 * Asks: questions to other ranks of a store (ask.h), and making those about keys that were dealt (deal.c).
 *
 * Each ask is a request of its own, so that deadlines and dead peers end it as any other; its poster hears of the end
 * once, by done(). All under the engine lock, but kvcl_ask_new and kvcl_asks_make, which touch nothing
 * shared.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "store/store.h"

#include <stdlib.h>

static void stop(kvcl_req_t *req, kvcl_status_t status);

static const kvcl_req_class_t ask_class = {.name = "store-ask", .stop = stop, .release = NULL};

kvcl_ask_t *kvcl_ask_new(kvcl_store_h store, uint32_t rank, uint8_t kind, size_t payload_room)
{
    kvcl_ask_t *ask = malloc(sizeof(*ask) + payload_room);

    if (ask != NULL) {
        memset(ask, 0, sizeof(*ask));
        kvcl_list_init(&ask->link);
        kvcl_list_init(&ask->watch_link);
        kvcl_list_init(&ask->waiter.link);
        ask->store = store;
        ask->rank  = rank;
        ask->peer  = store->ranks[rank].peer;
        ask->kind  = kind;
    }
    return ask;
}

void kvcl_ask_discard(kvcl_ask_t *ask)
{
    free(ask);
}

static void end(kvcl_ask_t *ask, kvcl_status_t status, const void *data, size_t len)
{
    if (ask->over) {
        return;
    }
    ask->over = true;
    kvcl_peer_unwait(&ask->waiter);
    kvcl_list_del(&ask->link);
    kvcl_list_del(&ask->watch_link);
    if ((status == KVCL_ERR_NOT_FOUND) || (ask->peer->state == KVCL_PEER_FAILED)) {
        kvcl_store_rank_gone(ask->store, ask->rank); /* it closed its part, or died: before anybody asks again */
    }
    if (ask->quick) {
        kvcl_peer_answered(ask->peer);
    }
    --ask->store->ops;
    ask->done(ask, status, data, len);
    kvcl_req_complete(&ask->req, status);
}

static void stop(kvcl_req_t *req, kvcl_status_t status)
{
    end(kvcl_container_of(req, kvcl_ask_t, req), status, NULL, 0);
}

static const kvcl_ask_kind_t *kind_of(const kvcl_ask_t *ask)
{
    return &kvcl_store_room(ask->store->ctx)->kinds[ask->kind];
}

static void send_ask(kvcl_ask_t *ask)
{
    kvcl_msg_dir_ask_t out = {.msg   = {.type = KVCL_MSG_DIR_ASK, .flags = ask->kind, .op = ask->req.id},
                              .store = ask->store->id, .n = ask->n, .rank = ask->store->me};
    kvcl_status_t      status;

    kvcl_req_watch(&ask->req, ask->peer);
    if (kind_of(ask)->quick) {
        status     = kvcl_peer_post_soon(ask->peer, &out.msg, sizeof(out), ask->payload, ask->len);
        ask->quick = true;
        kvcl_peer_asked(ask->peer);
    } else {
        status = kvcl_peer_post(ask->peer, &out.msg, sizeof(out), ask->payload, ask->len);
    }
    if (status != KVCL_OK) {
        end(ask, status, NULL, 0);
    }
}

static void on_peer(kvcl_peer_waiter_t *waiter, kvcl_status_t status)
{
    kvcl_ask_t *ask = kvcl_container_of(waiter, kvcl_ask_t, waiter);

    if (status != KVCL_OK) {
        end(ask, KVCL_ERR_RANK_FAILED, NULL, 0);
        return;
    }
    send_ask(ask);
}

void kvcl_ask_post(kvcl_ask_t *ask, uint64_t timeout_ns, kvcl_list_t *asks)
{
    kvcl_context_h ctx = ask->store->ctx;
    kvcl_status_t  status;

    kvcl_assert_locked(ctx);
    kvcl_list_del(&ask->link);
    ask->posted_ns = kvcl_now_ns();
    ask->patient   = kvcl_store_suspects(ask->store, ask->rank);
    status = kvcl_req_start(&ask->req, ctx, &ask_class, timeout_ns, NULL, NULL, false);
    if (status != KVCL_OK) {
        kvcl_list_del(&ask->watch_link);
        ask->done(ask, status, NULL, 0);
        kvcl_ask_discard(ask);
        return;
    }
    ++ask->store->ops;
    if (asks != NULL) {
        kvcl_list_add_tail(asks, &ask->link);
    }
    status = kvcl_req_publish(&ask->req);
    if (status != KVCL_OK) {
        end(ask, status, NULL, 0);
        return;
    }
    ask->waiter.fn = on_peer;
    status         = kvcl_peer_ready(ask->peer, &ask->waiter);
    if (status == KVCL_OK) {
        send_ask(ask);
    } else if (status != KVCL_INPROGRESS) {
        end(ask, KVCL_ERR_RANK_FAILED, NULL, 0);
    }
}

void kvcl_ask_post_watched(kvcl_ask_t *ask, uint64_t timeout_ns, kvcl_list_t *asks)
{
    kvcl_silence_watch(ask); /* before it is posted: it may be gone afterwards */
    kvcl_ask_post(ask, timeout_ns, asks);
}

void kvcl_ask_give_up(kvcl_ask_t *ask)
{
    kvcl_assert_locked(ask->store->ctx);
    ask->silent = true;
    end(ask, KVCL_ERR_TIMED_OUT, NULL, 0);
}

void kvcl_asks_stop(kvcl_list_t *asks, kvcl_status_t status)
{
    while (!kvcl_list_is_empty(asks)) {
        end(kvcl_list_head(asks, kvcl_ask_t, link), status, NULL, 0);
    }
}

bool kvcl_ask_fits_dir(const kvcl_ask_t *ask, const void *data, size_t len)
{
    kvcl_dir_msg_t unpacked;

    return (kvcl_dir_msg_unpack(&unpacked, data, len) == KVCL_OK) && (unpacked.n == ask->n) &&
           ((unsigned)unpacked.type == (unsigned)ask->kind + KVCL_DIR_MSG_LOOKUP);
}

/* The payload must be what this kind of ask expects, whatever the peer sent. */
static bool answer_fits(const kvcl_ask_t *ask, const kvcl_msg_dir_answer_t *in, const void *data, size_t len)
{
    const kvcl_ask_kind_t *kind = kind_of(ask);

    if (kind->fits != NULL) {
        return kind->fits(ask, data, len);
    }
    return (kind->answer_item == 0) ||
           ((in->n == ask->n) && (len == kind->answer_head + ((size_t)ask->n * kind->answer_item)));
}

void kvcl_ask_on_answer(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                        const void *data, size_t len)
{
    const kvcl_msg_dir_answer_t *in  = (const kvcl_msg_dir_answer_t *)msg;
    kvcl_req_t                  *req = kvcl_req_find(ctx, msg->op, &ask_class);
    kvcl_ask_t                  *ask;

    (void)hdr_len;
    if (req == NULL) {
        ++ctx->stats.late;
        return;
    }
    ask = kvcl_container_of(req, kvcl_ask_t, req);
    if ((ask->peer != peer) || (in->msg.flags != ask->kind) || (in->status > 0)) {
        kvcl_am_malformed(ctx, peer, "an answer to another question");
        return;
    }
    if (in->status != KVCL_OK) {
        end(ask, (kvcl_status_t)in->status, NULL, 0);
    } else if (!answer_fits(ask, in, data, len)) {
        kvcl_am_malformed(ctx, peer, "an answer that does not fit its question");
        end(ask, KVCL_ERR_PROTOCOL, NULL, 0);
    } else {
        end(ask, KVCL_OK, data, len);
    }
}

/* ---- how a home's table can be read ---- */

static kvcl_status_t open_view(kvcl_store_rank_t *rank, const void *data, size_t len)
{
    kvcl_status_t status;
    size_t        used;

    status = kvcl_rregion_open(rank->peer, data, len, &rank->region, &used);
    if ((status == KVCL_OK) && (rank->region.attr.map == NULL)) {
        status = KVCL_ERR_UNSUPPORTED;
    }
    if (status == KVCL_OK) {
        status = kvcl_dir_view_init(&rank->view, rank->region.attr.map, (size_t)rank->region.len);
    }
    if (status != KVCL_OK) {
        kvcl_rregion_close(&rank->region);
    }
    return status;
}

static void on_table(kvcl_ask_t *ask, kvcl_status_t status, const void *data, size_t len)
{
    kvcl_store_rank_t *rank = &ask->store->ranks[ask->rank];

    if (ask->store->closing) {
        return;
    }
    if (status == KVCL_OK) {
        status = open_view(rank, data, len);
    }
    kvcl_log_debug("the directory of %s: %s", rank->peer->name, (status == KVCL_OK) ? "mapped" : "by message");
    atomic_store_explicit(&rank->view_state, (status == KVCL_OK) ? KVCL_VIEW_MAPPED : KVCL_VIEW_BY_MESSAGE,
                          memory_order_release);
}

void kvcl_store_learn(kvcl_store_h store, uint32_t rank)
{
    kvcl_ask_t *ask;

    kvcl_assert_locked(store->ctx);
    if ((rank == store->me) || store->closing ||
        (atomic_load_explicit(&store->ranks[rank].view_state, memory_order_relaxed) != KVCL_VIEW_UNKNOWN)) {
        return;
    }
    ask = kvcl_ask_new(store, rank, KVCL_ASK_TABLE, 0);
    if (ask != NULL) {
        atomic_store_explicit(&store->ranks[rank].view_state, KVCL_VIEW_ASKED, memory_order_relaxed);
        ask->done = on_table;
        kvcl_ask_post(ask, 0, NULL);
    }
}

/* ---- questions about keys that were dealt ---- */

_Static_assert((int)KVCL_ASK_PUBLISH == (int)KVCL_DIR_MSG_PUBLISH && (int)KVCL_ASK_REMOVE == (int)KVCL_DIR_MSG_REMOVE &&
                   (int)KVCL_ASK_LOOKUP == (int)KVCL_DIR_MSG_LOOKUP,
               "asks that carry a directory message are numbered as these");

/* The payload: a message of dir_wire.h, or bare keys. A record begins with its key. */
static kvcl_status_t fill(kvcl_ask_t *ask, size_t room, const char *items, size_t stride)
{
    kvcl_dir_pack_t pack;
    kvcl_status_t   status = KVCL_OK;
    uint32_t        i;

    if (ask->kind > KVCL_ASK_LOOKUP) {
        for (i = 0; i < ask->n; ++i) {
            memcpy(ask->payload + ((size_t)i * KVCL_DIR_KEY_BYTES), items + ((size_t)ask->order[i] * stride),
                   KVCL_DIR_KEY_BYTES);
        }
        ask->len = (size_t)ask->n * KVCL_DIR_KEY_BYTES;
        return KVCL_OK;
    }
    status = kvcl_dir_pack_begin(&pack, ask->payload, room, (kvcl_dir_msg_type_t)ask->kind,
                                 kvcl_store_shards(ask->store)->view, 0);
    for (i = 0; (i < ask->n) && (status == KVCL_OK); ++i) {
        const kvcl_store_rec_t *rec = (const void *)(items + ((size_t)ask->order[i] * stride));
        status = kvcl_dir_pack_add(&pack, &rec->key, (ask->kind == KVCL_ASK_LOOKUP) ? NULL : &rec->loc);
    }
    ask->len = kvcl_dir_pack_end(&pack);
    return status;
}

/* One ask of the items order[0..n). */
static kvcl_ask_t *make_one(kvcl_store_h store, uint32_t rank, uint8_t kind, const char *items, size_t stride,
                            const uint32_t *order, uint32_t n)
{
    size_t     room = kvcl_dir_request_bytes((kind <= KVCL_ASK_LOOKUP) ? (kvcl_dir_msg_type_t)kind
                                                                       : KVCL_DIR_MSG_LOOKUP, n);
    kvcl_ask_t *ask = kvcl_ask_new(store, rank, kind, room);

    if (ask != NULL) {
        ask->n     = n;
        ask->order = order;
        if (fill(ask, room, items, stride) != KVCL_OK) {
            kvcl_ask_discard(ask);
            ask = NULL;
        }
    }
    return ask;
}

kvcl_status_t kvcl_asks_make(kvcl_store_h store, uint32_t rank, uint8_t kind, const void *keys, size_t stride,
                             const kvcl_deal_t *deal, kvcl_list_t *list)
{
    uint32_t   from = deal->starts[rank], to = deal->starts[rank + 1], n;
    kvcl_ask_t *ask;

    for (; from < to; from += n) {
        n   = (to - from > KVCL_ASK_KEYS_MAX) ? KVCL_ASK_KEYS_MAX : to - from;
        ask = make_one(store, rank, kind, keys, stride, deal->order + from, n);
        if (ask == NULL) {
            while (!kvcl_list_is_empty(list)) {
                ask = kvcl_list_head(list, kvcl_ask_t, link);
                kvcl_list_del(&ask->link);
                kvcl_ask_discard(ask);
            }
            return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a question about %u keys", n);
        }
        kvcl_list_add_tail(list, &ask->link);
    }
    return KVCL_OK;
}
