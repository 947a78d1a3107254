/*
 * Fetching blocks of a get: one pull for the blocks that lie in one cache of one rank, and copies out of local caches.
 *
 * A pull owns its kvcl_get_fetch_t until on_fetched(); get->outstanding counts it. Engine lock held.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "store/cold/cold.h"
#include "store/get/get.h"
#include "xfer/pull.h"

#include <stdlib.h>

/* A cache of a peer is mapped: later gets read it inside the call. */
static void remember_rcache(kvcl_store_rank_t *rank, kvcl_rcache_t *rcache)
{
    kvcl_rcache_t *old;
    unsigned      i;

    for (i = 0; i < KVCL_STORE_RCACHES; ++i) {
        old = atomic_load_explicit(&rank->rcaches[i], memory_order_relaxed);
        if ((old != NULL) && (old->id == rcache->id)) {
            atomic_store_explicit(&rank->rcaches[i], rcache, memory_order_release);
            return;
        }
    }
    atomic_store_explicit(&rank->rcaches[rank->next_rcache++ % KVCL_STORE_RCACHES], rcache, memory_order_release);
}

static void on_fetched(kvcl_pull_t *pull, kvcl_status_t status)
{
    kvcl_get_fetch_t  *fetch = pull->arg;
    kvcl_get_t        *get   = fetch->get;
    kvcl_store_rank_t *rank;
    size_t            i;

    kvcl_list_del(&fetch->link);
    kvcl_hedge_fetched(fetch, status);
    kvcl_timing_path(&get->req.timing, (kvcl_mem_path_t)pull->req.timing.path);
    if ((pull->rcache != NULL) && pull->rcache->mapped && (status == KVCL_OK)) {
        rank = &get->store->ranks[kvcl_get_loc(&get->items[fetch->items[0]])->rank];
        if (rank->peer == pull->rcache->peer) { /* no other process has its slot by now */
            remember_rcache(rank, pull->rcache);
        }
    }
    for (i = 0; i < fetch->n; ++i) {
        uint32_t        at    = fetch->items[i];
        kvcl_get_item_t *item = &get->items[at];
        kvcl_status_t   one   = fetch->status[i];
        if (fetch->hedged && (one == KVCL_ERR_TIMED_OUT) && (get->stopping == KVCL_OK) &&
            kvcl_hedge_stays(get, item)) {
            item->state = KVCL_GET_READY; /* the only copy: it is waited for, by itself */
            continue;
        }
        if ((one == KVCL_OK) && (kvcl_get_loc(item)->flags & KVCL_LOC_SUMMED) && (get->stopping == KVCL_OK)) {
            if (pull->summed) {
                kvcl_get_result(get, at, kvcl_verify_sum(item, fetch->sums[i]));
                continue;
            }
            if (!get->small) {
                kvcl_verify_push(get, at);
                continue;
            }
            one = kvcl_verify_item(get, item);
        }
        kvcl_get_result(get, at, one);
    }
    free(fetch);
    --get->outstanding;
    get->advance(get);
}

static kvcl_status_t fill_pull(kvcl_get_t *get, const kvcl_dir_loc_t *loc, kvcl_get_fetch_t *fetch, uint32_t *slots,
                               uint32_t *ids)
{
    kvcl_pull_t   *pull  = fetch->pull;
    kvcl_sel_t    remote = {.blocks = slots, .n_blocks = fetch->n};
    kvcl_sel_t    local  = {.blocks = ids, .n_blocks = fetch->n};
    bool          summed = false;
    kvcl_status_t status;
    size_t        i;

    pull->gens = malloc(fetch->n * sizeof(*pull->gens));
    if (pull->gens == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a transfer");
    }
    for (i = 0; i < fetch->n; ++i) {
        const kvcl_get_item_t *item = &get->items[fetch->items[i]];
        slots[i]      = kvcl_get_loc(item)->slot;
        ids[i]        = item->id;
        pull->gens[i] = kvcl_get_loc(item)->gen;
        summed        = summed || (kvcl_get_loc(item)->flags & KVCL_LOC_SUMMED);
    }
    status = kvcl_pull_set_remote(pull, &remote);
    if (status == KVCL_OK) {
        status = kvcl_pull_set_local(pull, get->cache, &local);
    }
    pull->peer     = get->store->ranks[loc->rank].peer;
    pull->from     = KVCL_FROM_CACHE;
    pull->cache_id = loc->cache;
    pull->total    = (uint64_t)fetch->n * get->cache->shape.block_bytes;
    pull->status   = fetch->status;
    pull->sums     = summed ? fetch->sums : NULL;
    pull->on_done  = on_fetched;
    pull->arg      = fetch;
    return status;
}

kvcl_status_t kvcl_get_pull(kvcl_get_t *get, const uint32_t *items, size_t n)
{
    const kvcl_dir_loc_t *loc   = kvcl_get_loc(&get->items[items[0]]);
    const size_t         each   = sizeof(uint64_t) + sizeof(kvcl_status_t) + (3 * sizeof(uint32_t));
    kvcl_get_fetch_t     *fetch = calloc(1, sizeof(*fetch) + (n * each));
    kvcl_status_t        status;
    uint32_t             *slots;

    kvcl_assert_locked(get->store->ctx);
    if (fetch == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a transfer");
    }
    kvcl_list_init(&fetch->link);
    fetch->get      = get;
    fetch->n        = n;
    fetch->seen_ns  = kvcl_now_ns();
    fetch->begun_ns = fetch->seen_ns;
    fetch->sums     = (uint64_t *)(void *)(fetch + 1);
    fetch->status   = (kvcl_status_t *)(void *)(fetch->sums + n);
    fetch->items    = (uint32_t *)(void *)(fetch->status + n);
    slots           = fetch->items + n;
    memcpy(fetch->items, items, n * sizeof(*items));
    fetch->pull = kvcl_pull_new();
    status      = (fetch->pull != NULL) ? fill_pull(get, loc, fetch, slots, slots + n) : KVCL_ERR_NO_MEMORY;
    if (status == KVCL_OK) {
        kvcl_list_add_tail(&get->pulls, &fetch->link);
        ++get->outstanding;
        status = kvcl_pull_start(get->store->ctx, fetch->pull, kvcl_get_time_left(get));
        if (status == KVCL_OK) {
            return KVCL_OK; /* it may have ended and freed fetch */
        }
        --get->outstanding;
        kvcl_list_del(&fetch->link);
    }
    kvcl_pull_discard(fetch->pull);
    free(fetch);
    return status;
}

void kvcl_get_local(kvcl_get_t *get, uint32_t i)
{
    kvcl_get_item_t         *item   = &get->items[i];
    const kvcl_dir_loc_t    *loc    = kvcl_get_loc(item);
    const kvcl_owner_t      *owner  = kvcl_owner_by_cache_id(get->store, loc->cache);
    const kvcl_cold_class_t *staged = kvcl_cold_staging(get->store->cold, loc->cache);
    const kvcl_slots_t      *slots  = (owner != NULL) ? &owner->slots : (staged != NULL) ? &staged->slots : NULL;

    kvcl_assert_locked(get->store->ctx);
    if ((slots == NULL) || (kvcl_slots_check(slots, loc->slot, loc->gen, &item->key) != KVCL_OK)) {
        kvcl_get_result(get, i, KVCL_ERR_STALE);
        return;
    }
    item->src = (owner != NULL) ? owner->cache : staged->cache;
    if (get->small) {
        kvcl_status_t status = kvcl_verify_item(get, item);
        item->src = NULL;
        kvcl_get_result(get, i, status);
        return;
    }
    ++item->src->serves;
    kvcl_verify_push(get, i);
}
