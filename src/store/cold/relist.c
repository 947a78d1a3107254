/*
 * Keys that are removed while a starting rank still lists what its tier holds.
 *
 * A home that removes a key notifies the holders that it lists; it does not know of blocks that a rank has found in its
 * file and not listed yet. So each rank declares, when it opens its part of the store, whether its tier holds any
 * block, and notifies every rank once all of them are listed (ALL_LISTED). Until then a home sends the keys that it
 * removes to such ranks (FORGET), and they drop them from their tiers; a listing in flight is withdrawn when its home
 * has answered (pool/publish.c). A home that does not receive ALL_LISTED only sends more than is needed. Everything
 * here runs under the engine lock.
 */
#include "config.h"
#include "base/log.h"
#include "store/cold/cold.h"
#include "store/home/home_answer.h"

static void on_notified(kvcl_rpc_t *rpc, kvcl_status_t status, const void *data, size_t len)
{
    (void)data;
    (void)len;
    if (status != KVCL_OK) {
        kvcl_log_debug("rank %u was not notified: %s", rpc->rank, kvcl_status_text(status));
    }
}

static void post(kvcl_store_h store, uint32_t rank, uint8_t kind, const kvcl_key_t *keys, const uint32_t *order,
                 uint32_t n)
{
    kvcl_rpc_t *rpc = kvcl_rpc_new(store, rank, kind, n * sizeof(*keys));
    uint32_t   i;

    if (rpc == NULL) {
        kvcl_log_warn("no memory to notify rank %u of %u removed keys", rank, n);
        return;
    }
    for (i = 0; i < n; ++i) {
        memcpy(rpc->payload + (i * sizeof(*keys)), &keys[(order != NULL) ? order[i] : i], sizeof(*keys));
    }
    rpc->n    = n;
    rpc->len  = n * sizeof(*keys);
    rpc->done = on_notified;
    kvcl_rpc_post(rpc, 0, &store->op_rpcs);
}

void kvcl_relist_removed(kvcl_store_h store, const kvcl_key_t *keys, const uint32_t *order, size_t n)
{
    size_t   from, some, i;
    uint32_t rank;

    for (rank = 0; rank < store->n_ranks; ++rank) {
        if (!store->ranks[rank].listing || (store->incarnations[rank] == 0) || store->closing) {
            continue;
        }
        for (i = 0; (rank == store->me) && (i < n); ++i) {
            kvcl_cold_drop(store->cold, &keys[(order != NULL) ? order[i] : i]);
        }
        for (from = 0; (rank != store->me) && (from < n); from += some) {
            some = (n - from < KVCL_RPC_KEYS_MAX) ? n - from : KVCL_RPC_KEYS_MAX;
            post(store, rank, KVCL_RPC_FORGET, (order != NULL) ? keys : keys + from,
                 (order != NULL) ? order + from : NULL, (uint32_t)some);
        }
    }
}

bool kvcl_relist_on_forget(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                           size_t len)
{
    kvcl_key_t key;
    uint32_t   i;

    (void)len;
    for (i = 0; i < in->n; ++i) {
        memcpy(&key, (const char *)data + (i * sizeof(key)), sizeof(key));
        kvcl_cold_drop(store->cold, &key);
    }
    kvcl_rpc_answer(peer, in, KVCL_OK, in->n, NULL, 0);
    return true;
}

bool kvcl_relist_on_all_listed(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in,
                               const void *data, size_t len)
{
    (void)data;
    (void)len;
    if ((in->rank >= store->n_ranks) || (store->ranks[in->rank].peer != peer)) {
        return false;
    }
    store->ranks[in->rank].listing = false;
    kvcl_rpc_answer(peer, in, KVCL_OK, in->n, NULL, 0);
    return true;
}

void kvcl_relist_over(kvcl_store_h store)
{
    uint32_t rank;

    for (rank = 0; rank < store->n_ranks; ++rank) {
        if ((rank != store->me) && (store->incarnations[rank] != 0)) {
            post(store, rank, KVCL_RPC_ALL_LISTED, NULL, NULL, 0);
        }
    }
    store->ranks[store->me].listing = false;
}
