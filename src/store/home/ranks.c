/*
 * The ranks of a store: which take part, and which are homes of which keys.
 *
 * The map is rendezvous hashing over the ranks that take part (dir/shard.h). When a rank fails, each of its shards
 * falls to its backup, which lists all blocks that have two homes. Where maps follow views, follow_views.c makes them.
 * Otherwise every rank detects a failure by itself and makes its own map. Until all ranks have done so the maps differ,
 * and a query to a failed home costs one more query.
 *
 * A rank that is silent for a while has not failed. It is suspected: other copies, and the other homes of its keys, are
 * preferred until it answers a probe.
 *
 * Readers take no lock, so an old map stays until the store is closed. There are at most as many maps as ranks; where
 * they follow views, an equal one is used again (view_maps.c), so the same ranks may go and come for ever. Engine lock
 * held, except in the functions that only read the map or a rank's marks.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "dir/moves.h"
#include "store/home/far_table.h"
#include "store/home/ranks.h"
#include "store/home/follow_views.h"
#include "store/store.h"
#include "store/tenant.h"
#include <kvcl/kvcl_store_admin.h>

#include <stdlib.h>

kvcl_status_t kvcl_store_map_make(kvcl_store_h store)
{
    kvcl_store_map_t *old   = atomic_load_explicit(&store->map, memory_order_relaxed);
    kvcl_store_map_t *map   = malloc(sizeof(*map));
    uint32_t         *ranks = malloc(store->n_ranks * sizeof(*ranks)), n = 0, i;
    kvcl_status_t    status = KVCL_ERR_NO_MEMORY;

    if ((map != NULL) && (ranks != NULL)) {
        for (i = 0; i < store->n_ranks; ++i) {
            if ((old == NULL) || (store->incarnations[i] != 0)) { /* the first map has all ranks */
                ranks[n++] = i;
            }
        }
        status = kvcl_shard_map_build(&map->shards, 1 /* the store numbers its maps by itself */, ranks, n);
    }
    free(ranks);
    if (status != KVCL_OK) {
        free(map);
        return kvcl_fail(status, "no memory for a shard map");
    }
    map->old      = map->also = NULL;
    map->switched = false;
    if (old == NULL) {
        atomic_store(&store->settled, map);
    }
    kvcl_store_map_set(store, map);
    return KVCL_OK;
}

void kvcl_store_maps_free(kvcl_store_h store)
{
    kvcl_store_map_t *map, *before;

    for (map = store->maps; map != NULL; map = before) {
        before = map->before;
        free(map->old);
        free(map->also);
        free(map);
    }
    store->maps = NULL;
    atomic_store_explicit(&store->map, NULL, memory_order_relaxed);
}

void kvcl_store_rank_failed(kvcl_store_h store, uint32_t rank)
{
    kvcl_assert_locked(store->ctx);
    if (store->incarnations[rank] == 0) {
        return;
    }
    kvcl_log_info("rank %u no longer takes part in a store", rank);
    store->incarnations[rank] = 0; /* readers skip its entries, and later ones overwrite them */
    atomic_store_explicit(&store->ranks[rank].incarnation, 0, memory_order_relaxed);
    if (kvcl_views_rank_failed(store, rank)) {
        return;
    }
    if (!store->closing && (kvcl_store_map_make(store) != KVCL_OK)) {
        kvcl_log_warn("no memory for a shard map without rank %u: keys whose home it was are not found", rank);
    }
    store->notify->rank_failed(store);
}

void kvcl_store_rank_meet(kvcl_store_h store, uint32_t rank, const kvcl_hello_t *hello)
{
    kvcl_assert_locked(store->ctx);
    store->ranks[rank].listing = (hello->listing != 0);
    store->ranks[rank].n_sizes = hello->n_sizes;
    memcpy(store->ranks[rank].sizes, hello->sizes, sizeof(hello->sizes));
    kvcl_place_init(&store->places[rank], hello->host, hello->pool_bytes);
    /* Each rank starts its placements at another rank. */
    store->places[rank].turn = -(int64_t)((rank + store->n_ranks - store->me) % store->n_ranks);
}

bool kvcl_store_rank_renew(kvcl_store_h store, uint32_t rank, kvcl_peer_t *peer, const kvcl_hello_t *hello)
{
    kvcl_store_rank_t *at = &store->ranks[rank];
    unsigned          i;

    kvcl_assert_locked(store->ctx);
    if (!kvcl_far_renew(store, rank)) {
        return false;
    }
    for (i = 0; i < KVCL_STORE_RCACHES; ++i) {
        atomic_store_explicit(&at->rcaches[i], NULL, memory_order_release);
    }
    at->peer     = peer;
    at->checking = at->missed = at->republishing = false;
    at->silent_since_ns = at->answered_ns = 0;
    atomic_store(&at->leaving, false);
    atomic_store(&at->avoided, 0);
    kvcl_store_rank_meet(store, rank, hello);
    at->fresh = true;
    return true;
}

bool kvcl_store_has_all(const struct kvcl_store *store, const kvcl_key_t *key, uint32_t rank)
{
    const kvcl_shard_map_t *settled = &atomic_load(&((struct kvcl_store *)store)->settled)->shards;

    return (kvcl_shard_home(settled, key) == rank) || (kvcl_shard_backup(settled, key) == rank);
}

/* ---- silent ranks ---- */

/* While shards move: a home that has all records of the key, and of two one that is not suspected. */
static uint32_t old_home(const struct kvcl_store *store, const kvcl_shard_map_t *map, const kvcl_key_t *key)
{
    const kvcl_shard_map_t *old   = kvcl_store_old(map);
    const bool             two    = (store->replicas > 1);
    uint32_t               home   = kvcl_moves_reader(map, old, key, two);
    uint32_t               backup = two ? kvcl_shard_backup(old, key) : KVCL_SHARD_NO_RANK;

    return (kvcl_store_suspects(store, home) && (backup != KVCL_SHARD_NO_RANK) && !kvcl_store_suspects(store, backup))
               ? backup : home;
}

uint32_t kvcl_store_home_now(const struct kvcl_store *store, const kvcl_shard_map_t *map, const kvcl_key_t *key)
{
    uint32_t home = kvcl_shard_home(map, key), backup = kvcl_shard_backup(map, key);

    if (kvcl_store_reads_old(map)) {
        return old_home(store, map, key);
    }
    if ((store->replicas == 1) || (backup == KVCL_SHARD_NO_RANK) || !kvcl_store_suspects(store, home) ||
        kvcl_store_suspects(store, backup)) {
        return home;
    }
    return kvcl_store_has_all(store, key, backup) ? backup : home;
}

static void probe(kvcl_store_h store, uint32_t rank);

static bool is_silent(const struct kvcl_store *store, uint32_t rank)
{
    return (atomic_load_explicit(&store->ranks[rank].avoided, memory_order_relaxed) & KVCL_AVOID_SILENT) != 0;
}

static void trust(kvcl_store_h store, uint32_t rank)
{
    if (is_silent(store, rank)) {
        atomic_fetch_and_explicit(&store->ranks[rank].avoided, ~(unsigned)KVCL_AVOID_SILENT, memory_order_relaxed);
        --store->ranks[rank].peer->suspicions;
        store->notify->rank_back(store, rank);
    }
}

static void on_probe(kvcl_rpc_t *rpc, kvcl_status_t status, const void *data, size_t len)
{
    kvcl_store_h store = rpc->store;

    (void)data;
    (void)len;
    if (status == KVCL_ERR_TIMED_OUT) {
        probe(store, rpc->rank);
        return;
    }
    trust(store, rpc->rank);
    kvcl_log_info("rank %u answers again", rpc->rank);
}

/* Sends a query without a deadline, which the rank answers as soon as it runs again. */
static void probe(kvcl_store_h store, uint32_t rank)
{
    kvcl_rpc_t *rpc = store->closing ? NULL : kvcl_rpc_new(store, rank, KVCL_RPC_TABLE, 0);

    if (rpc == NULL) {
        trust(store, rank);
        return;
    }
    rpc->done = on_probe;
    kvcl_rpc_post(rpc, 0, &store->probes);
}

void kvcl_store_suspect(kvcl_store_h store, uint32_t rank)
{
    kvcl_assert_locked(store->ctx);
    if ((rank == store->me) || (store->incarnations[rank] == 0) || is_silent(store, rank)) {
        return;
    }
    kvcl_log_info("rank %u does not answer: other ranks are preferred until it does", rank);
    if (!store->ranks[rank].checking) {
        store->ranks[rank].silent_since_ns = kvcl_now_ns();
    }
    atomic_fetch_or_explicit(&store->ranks[rank].avoided, KVCL_AVOID_SILENT, memory_order_relaxed);
    ++store->ranks[rank].peer->suspicions;
    kvcl_place_restart(&store->places[rank]);
    probe(store, rank);
    kvcl_silence_found(store);
}

static kvcl_status_t exclude(kvcl_store_h store, int rank, int on)
{
    kvcl_status_t status = kvcl_store_check(store, NULL, 0, "kvcl_store_exclude");

    if (status != KVCL_OK) {
        return status;
    }
    if ((rank < 0) || ((uint32_t)rank >= store->n_ranks)) {
        return kvcl_fail(KVCL_ERR_UNKNOWN_RANK, "kvcl_store_exclude: rank is %d, but the store has ranks 0 to %u", rank,
                         store->n_ranks - 1);
    }
    if ((uint32_t)rank == store->me) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_exclude: rank %d is the caller's own: kvcl_store_drain "
                         "empties it", rank);
    }
    kvcl_lock(store->ctx);
    if (on) {
        atomic_fetch_or_explicit(&store->ranks[rank].avoided, KVCL_AVOID_EXCLUDED, memory_order_relaxed);
        kvcl_silence_found(store);
    } else {
        atomic_fetch_and_explicit(&store->ranks[rank].avoided, ~(unsigned)KVCL_AVOID_EXCLUDED, memory_order_relaxed);
        kvcl_place_restart(&store->places[rank]);
        store->notify->rank_back(store, (uint32_t)rank);
    }
    kvcl_unlock(store->ctx);
    return KVCL_OK;
}

kvcl_status_t kvcl_store_exclude(kvcl_store_h store, int rank, int on)
{
    kvcl_entry_t  entry;
    kvcl_status_t status = kvcl_store_enter(&store, NULL, 0, "kvcl_store_exclude", &entry);

    status = (status == KVCL_OK) ? kvcl_tenant_refuse(&entry, "kvcl_store_exclude") : status;
    status = (status == KVCL_OK) ? exclude(store, rank, on) : status;
    kvcl_store_leave(&entry);
    return status;
}

bool kvcl_store_takes(const struct kvcl_store *store, uint32_t rank, uint64_t bytes)
{
    const kvcl_store_rank_t *at = &store->ranks[rank];
    unsigned                i;

    for (i = 0; (i < at->n_sizes) && (at->sizes[i] != bytes); ++i) {
    }
    return i != at->n_sizes;
}
