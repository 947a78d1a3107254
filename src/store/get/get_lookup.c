/*
 * Lookup of a get's blocks (get.h): in mapped tables, else by querying their homes, all at once. Blocks carried by the
 * homes' answers are taken at once (fetch.h). Engine lock held.
 */
#include "config.h"
#include "base/error.h"
#include "store/get/fetch.h"
#include "store/home/lookup.h"
#include "store/home/paths.h"

#include <stdlib.h>

static void on_lookup(kvcl_rpc_t *rpc, kvcl_status_t status, const void *data, size_t len)
{
    kvcl_get_t     *get   = rpc->arg;
    bool           again  = (get->stopping == KVCL_OK) && ((rpc->store->incarnations[rpc->rank] == 0) || rpc->hedged);
    bool           brings = (rpc->kind == KVCL_RPC_FETCH);
    kvcl_fetched_t in;
    uint32_t       at = 0, i;

    kvcl_hedge_answered(rpc, status);
    kvcl_timing_path(&get->req.timing, kvcl_rpc_path(rpc));
    if (status == KVCL_OK) { /* the row of kinds.c has checked that it unpacks */
        status = brings ? kvcl_fetch_unpack(&in, data, len, rpc->n, kvcl_fetch_requested(rpc))
                        : kvcl_dir_msg_unpack(&in.reply, data, len);
    }
    for (i = 0; i < rpc->n; ++i) {
        kvcl_get_item_t *item = &get->items[rpc->order[i]];
        item->n_locs = (status == KVCL_OK) ? (uint8_t)kvcl_dir_msg_locs(&in.reply, i, &at, item->locs) : 0;
        item->state  = (again && (get->lookups < KVCL_GET_LOOKUPS_MAX)) ? KVCL_GET_LOOKUP : KVCL_GET_READY;
        item->why    = ((status == KVCL_ERR_TIMED_OUT) || (status == KVCL_ERR_NO_MEMORY)) ? status : item->why;
    }
    if ((status == KVCL_OK) && brings) {
        kvcl_fetch_take(get, rpc, &in);
    }
    --get->outstanding;
    get->advance(get);
}

static kvcl_status_t query_homes(kvcl_get_t *get, const uint8_t *skip)
{
    kvcl_store_h  store = get->store;
    kvcl_list_t   rpcs, *link;
    kvcl_status_t status;
    uint32_t      home;

    kvcl_scatter_free(&get->scatter);
    status = kvcl_scatter_keys(store, get->items, sizeof(get->items[0]), get->n, skip, &get->scatter);
    kvcl_list_init(&rpcs);
    for (home = 0; (home < store->n_ranks) && (status == KVCL_OK); ++home) {
        status = kvcl_rpcs_make(store, home, kvcl_fetch_kind(get, home), get->items, sizeof(get->items[0]),
                                &get->scatter, &rpcs);
    }
    while ((status == KVCL_OK) && ((link = kvcl_list_first(&rpcs)) != NULL)) {
        kvcl_rpc_t *rpc = kvcl_container_of(link, kvcl_rpc_t, link);
        home      = rpc->rank;
        rpc->arg  = get;
        rpc->done = on_lookup;
        if (rpc->kind == KVCL_RPC_FETCH) {
            kvcl_fetch_finish_rpc(rpc, get->cache->shape.block_bytes);
        }
        ++get->outstanding;
        kvcl_rpc_post(rpc, kvcl_get_time_left(get), &get->rpcs);
        kvcl_store_learn(store, home);
    }
    return status;
}

kvcl_status_t kvcl_get_lookups(kvcl_get_t *get)
{
    kvcl_store_h  store = get->store;
    uint8_t       *skip = malloc(get->n);
    bool          query = false, lost;
    kvcl_status_t status;
    size_t        i;

    kvcl_assert_locked(store->ctx);
    if (skip == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a lookup");
    }
    ++get->lookups;
    for (i = 0; i < get->n; ++i) {
        kvcl_get_item_t       *item = &get->items[i];
        const kvcl_dir_view_t *view;
        skip[i] = 1;
        if (i + KVCL_LOOKUP_AHEAD < get->n) {
            kvcl_store_prefetch(store, &get->items[i + KVCL_LOOKUP_AHEAD].key);
        }
        if (item->state != KVCL_GET_LOOKUP) {
            continue;
        }
        view = kvcl_store_view(store, &item->key, &lost);
        if ((view == NULL) && !lost) {
            skip[i] = 0;
            query   = true;
            continue;
        }
        item->n_locs = (view != NULL) ? (uint8_t)kvcl_dir_read(view, &item->key, item->locs) : 0;
        item->state  = KVCL_GET_READY;
    }
    status = query ? query_homes(get, skip) : KVCL_OK;
    free(skip);
    return status;
}
