/*
 * Which ranks receive the copies of a block: those that have a pool with blocks of its size and answer, by the order of
 * policy/place.h.
 *
 * Owns nothing; uses the store's scratch bytes place_ok. Engine lock held.
 */
#include "config.h"
#include "member/lease.h"
#include "store/home/follow_views.h"
#include "store/home/ranks.h"
#include "store/place/choose.h"
#include "store/store.h"

static bool is_place(const struct kvcl_store *store, uint32_t rank, uint64_t bytes)
{
    return (rank != store->me) && (store->incarnations[rank] != 0) && kvcl_store_takes(store, rank, bytes) &&
           !kvcl_store_suspects(store, rank) && !store->ranks[rank].fresh && !kvcl_views_leaves(store, rank);
}

/* With views: could this member take copies, if it answered? It answers again, or the next view excludes it. Until then
 * this rank does not know whether the other one is gone or it was excluded itself. */
static bool is_awaited(const struct kvcl_store *store, uint32_t rank, uint64_t bytes)
{
    return (store->views != NULL) && (rank != store->me) && (store->views->moves.ranks[rank].incarnation != 0) &&
           kvcl_store_takes(store, rank, bytes) && !kvcl_store_excludes(store, rank) && !store->ranks[rank].fresh &&
           !kvcl_views_leaves(store, rank) && !is_place(store, rank, bytes);
}

unsigned kvcl_store_places(kvcl_store_h store, uint64_t bytes)
{
    unsigned n = 0;
    uint32_t i;

    for (i = 0; i < store->n_ranks; ++i) {
        n += (is_place(store, i, bytes) || is_awaited(store, i, bytes)) ? 1 : 0;
    }
    return n;
}

bool kvcl_store_awaits_place(kvcl_store_h store, uint64_t bytes)
{
    uint32_t i;

    for (i = 0; (i < store->n_ranks) && !is_awaited(store, i, bytes); ++i) {
    }
    return (i != store->n_ranks) && !kvcl_member_is_excluded(store->ctx);
}

/* Marks in place_ok the ranks that could take a copy and are not skipped. */
static void mark_places(kvcl_store_h store, uint64_t bytes, const uint8_t *skip)
{
    uint32_t i;

    for (i = 0; i < store->n_ranks; ++i) {
        store->place_ok[i] = !skip[i] && is_place(store, i, bytes);
    }
}

/* Lock held. Prefers ranks on hosts other than `host` and other than each other's. */
static unsigned place_apart(kvcl_store_h store, uint64_t bytes, const uint8_t *skip, uint64_t host, unsigned n,
                            uint16_t *ranks)
{
    uint64_t hosts[KVCL_DIR_LOCS_MAX + 1] = {host};
    unsigned found;
    uint32_t i;

    kvcl_assert_locked(store->ctx);
    mark_places(store, bytes, skip);
    for (found = 0; (found < n) && (found < KVCL_DIR_LOCS_MAX); ++found) {
        i = kvcl_place_next(store->places, store->n_ranks, store->place_ok, hosts, found + 1);
        if (i == UINT32_MAX) {
            break;
        }
        ranks[found]       = (uint16_t)i;
        store->place_ok[i] = 0;
        hosts[found + 1]   = store->places[i].host;
    }
    return found;
}

unsigned kvcl_store_place(kvcl_store_h store, uint64_t bytes, const uint8_t *skip, unsigned n, uint16_t *ranks)
{
    return place_apart(store, bytes, skip, store->places[store->me].host, n, ranks);
}

/* Reduces place_ok to the ranks on this rank's host, if it has any of them. */
static void keep_near(kvcl_store_h store)
{
    uint64_t host = store->places[store->me].host;
    bool     any  = false;
    uint32_t i;

    for (i = 0; i < store->n_ranks; ++i) {
        any = any || (store->place_ok[i] && (store->places[i].host == host));
    }
    for (i = 0; any && (i < store->n_ranks); ++i) {
        store->place_ok[i] = store->place_ok[i] && (store->places[i].host == host);
    }
}

unsigned kvcl_store_place_near(kvcl_store_h store, uint64_t bytes, uint8_t *skip, unsigned n, uint16_t *ranks)
{
    uint32_t i;

    kvcl_assert_locked(store->ctx);
    if (n == 0) {
        return 0;
    }
    mark_places(store, bytes, skip);
    keep_near(store);
    i = kvcl_place_next(store->places, store->n_ranks, store->place_ok, NULL, 0);
    if (i == UINT32_MAX) {
        return 0;
    }
    ranks[0] = (uint16_t)i;
    skip[i]  = 1;
    return 1 + place_apart(store, bytes, skip, store->places[i].host, n - 1, ranks + 1);
}
