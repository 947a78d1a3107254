/*
 * The answers of a rank to those that come to its store, or leave it (part.h), and what it says of its own part.
 *
 * All input is hostile: a part is checked by hello.c, and its rank by the communicator's peers, before it is used. Owns
 * nothing. Engine lock held, but for the functions that part.h names.
 */
#include "config.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "store/cold/cold.h"
#include "store/grow/part.h"
#include "store/home/follow_views.h"
#include "store/home/home_answer.h"
#include "store/home/ranks.h"
#include "store/pool/pool.h"
#include "topo/topo.h"

/* ---- this rank's part ---- */

kvcl_hello_t kvcl_grow_hello(const struct kvcl_store *store, bool ok)
{
    kvcl_hello_t hello = {.id = store->id, .incarnation = ok ? store->incarnation : 0,
                          .replicas = (uint16_t)store->replicas, .listing = kvcl_cold_has_any(store->cold)};
    uint8_t      host[16];
    unsigned     i;

    kvcl_host_id(host);
    memcpy(&hello.host, host, sizeof(hello.host));
    if (ok && (store->pool != NULL)) {
        hello.pool_bytes = store->pool->bytes;
        hello.n_sizes    = store->pool->n;
        for (i = 0; i < store->pool->n; ++i) {
            hello.sizes[i] = (uint32_t)store->pool->caches[i]->shape.block_bytes;
        }
    }
    return hello;
}

kvcl_part_t kvcl_grow_part(const struct kvcl_store *store)
{
    return (kvcl_part_t){.hello = kvcl_grow_hello(store, true), .comm = store->comm->id,
                         .epoch = store->comm->epoch, .coll_seq = store->comm->coll_seq,
                         .flags = store->views->moves.ranks[store->me].leaves ? KVCL_PART_LEAVES : 0};
}

uint64_t kvcl_grow_name(const struct kvcl_store *store)
{
    return kvcl_checksum_seed(store->comm->world, store->n_ranks * sizeof(*store->comm->world), UINT64_C(0x51075));
}

bool kvcl_grow_others_stay(const struct kvcl_store *store)
{
    uint32_t i;

    kvcl_assert_locked(store->ctx);
    for (i = 0; i < store->n_ranks; ++i) {
        const kvcl_moves_rank_t *rank = &store->views->moves.ranks[i];

        if ((i != store->me) && (rank->incarnation != 0) && !rank->leaves) {
            return true;
        }
    }
    return false;
}

bool kvcl_part_read(const void *data, size_t len, kvcl_part_t *part_p)
{
    if (len != sizeof(*part_p)) {
        return false;
    }
    memcpy(part_p, data, sizeof(*part_p));
    return ((part_p->flags & ~(uint32_t)(KVCL_PART_SURE | KVCL_PART_LEAVES)) == 0) && (part_p->reserved == 0);
}

/* ---- MOVED ---- */

#define MOVED_NS (200 * KVCL_NS_PER_MS)

static void on_moved(kvcl_rpc_t *rpc, kvcl_status_t status, const void *data, size_t len)
{
    (void)rpc;
    (void)status;
    (void)data;
    (void)len;
}

void kvcl_grow_ask_moved(kvcl_store_h store, uint32_t rank, uint64_t id, bool listed, bool switched)
{
    const kvcl_moved_t moved = {.id = id, .listed = listed, .switched = switched, .asks = 1};
    kvcl_rpc_t         *rpc  = kvcl_rpc_new(store, rank, KVCL_RPC_MOVED, sizeof(moved));

    kvcl_assert_locked(store->ctx);
    if (rpc != NULL) {
        memcpy(rpc->payload, &moved, sizeof(moved));
        rpc->len  = sizeof(moved);
        rpc->n    = 1;
        rpc->done = on_moved;
        kvcl_rpc_post(rpc, MOVED_NS, &store->op_rpcs);
    }
}

bool kvcl_grow_on_moved(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                        size_t len)
{
    if (!kvcl_views_on_moved(store, peer, in, data, len)) {
        return false;
    }
    kvcl_rpc_answer(peer, in, KVCL_OK, 0, NULL, 0);
    return true;
}

/* ---- ASK ---- */

/* Is this peer the process that has the rank now? */
static bool is_process_of(const struct kvcl_store *store, uint32_t rank, const kvcl_peer_t *peer)
{
    return (rank < store->n_ranks) && (rank != store->me) && (store->comm->peers[rank] == peer) &&
           (peer->state == KVCL_PEER_READY) && kvcl_views_has(store, rank);
}

kvcl_store_h kvcl_grow_find(kvcl_context_h ctx, const kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in)
{
    kvcl_store_h store;

    kvcl_assert_locked(ctx);
    kvcl_list_foreach (store, &kvcl_store_room(ctx)->stores, struct kvcl_store, link) {
        if ((store->views != NULL) && !store->closing && (kvcl_grow_name(store) == in->store) &&
            (in->rank < store->n_ranks) &&
            ((store->views->moves.ranks[in->rank].incarnation == 0) || (store->ranks[in->rank].peer != peer))) {
            return store;
        }
    }
    return NULL;
}

bool kvcl_grow_on_ask(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                      size_t len)
{
    kvcl_part_t part;

    (void)data;
    if (len != 0) {
        return false;
    }
    if ((store->views->view == 0) || !is_process_of(store, in->rank, peer)) {
        kvcl_rpc_answer(peer, in, KVCL_ERR_BUSY, 0, NULL, 0);
        return true;
    }
    part = kvcl_grow_part(store);
    kvcl_rpc_answer(peer, in, KVCL_OK, 0, &part, sizeof(part));
    return true;
}

/* ---- TAKE ---- */

static kvcl_status_t check_part(const struct kvcl_store *store, const kvcl_part_t *part, uint32_t rank)
{
    kvcl_status_t status = kvcl_hello_check(&part->hello, rank, store->id);

    if ((status == KVCL_OK) && (part->hello.replicas != store->replicas)) {
        status = KVCL_ERR_INVALID_PARAM;
    }
    return status;
}

static kvcl_status_t take(kvcl_store_h store, kvcl_peer_t *peer, uint32_t rank, const kvcl_part_t *part)
{
    const kvcl_store_views_t *views  = store->views;
    const kvcl_moves_rank_t  *known  = &views->moves.ranks[rank];
    const bool               leaves  = (part->flags & KVCL_PART_LEAVES) != 0;
    const bool               is_here = (known->incarnation == part->hello.incarnation) &&
                                       (store->ranks[rank].peer == peer);

    if (is_here && (known->leaves == leaves)) {
        return KVCL_OK;
    }
    if ((views->view != 0) && !views->over && !(part->flags & KVCL_PART_SURE)) {
        return KVCL_ERR_BUSY;
    }
    if (!is_here && (leaves || !kvcl_store_rank_renew(store, rank, peer, &part->hello))) {
        return KVCL_ERR_BUSY; /* it asks again, when both know of the same process */
    }
    kvcl_log_info("rank %u %s a store", rank, leaves ? "gives its shards to the others of" : "comes to");
    kvcl_views_rank_comes(store, rank, (uint16_t)part->hello.incarnation, leaves);
    return KVCL_OK;
}

bool kvcl_grow_on_take(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                       size_t len)
{
    kvcl_part_t   part;
    kvcl_status_t status;

    if (!kvcl_part_read(data, len, &part)) {
        return false;
    }
    if (store->views == NULL) {
        status = KVCL_ERR_UNSUPPORTED;
    } else if (!is_process_of(store, in->rank, peer)) {
        status = KVCL_ERR_BUSY;
    } else {
        status = check_part(store, &part, in->rank);
        status = (status == KVCL_OK) ? take(store, peer, in->rank, &part) : status;
    }
    if (status == KVCL_OK) {
        part        = kvcl_grow_part(store);
        part.flags |= ((store->views->view != 0) || store->views->sure) ? KVCL_PART_SURE : 0u;
    }
    kvcl_rpc_answer(peer, in, status, 1, &part, (status == KVCL_OK) ? sizeof(part) : 0);
    return true;
}
