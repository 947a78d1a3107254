/*
 * Where copies of keys lie: for calls that are about places, not bytes (pin, copy, move). Blocks; no lock.
 *
 * Tables that can be read here are read; the other homes are asked, one round, all at the same time. What a home does
 * not say in time counts as nowhere.
 */
#include "config.h"
#include "base/error.h"
#include "store/admin/ops.h"

#include <stdlib.h>

typedef struct locate {
    kvcl_found_t *found;
    unsigned     outstanding;
} locate_t;

static void on_lookup(kvcl_ask_t *ask, kvcl_status_t status, const void *data, size_t len)
{
    locate_t       *locate = ask->arg;
    kvcl_dir_msg_t reply;
    uint32_t       at = 0, i;

    if ((status == KVCL_OK) && (kvcl_dir_msg_unpack(&reply, data, len) == KVCL_OK)) {
        for (i = 0; i < ask->n; ++i) {
            kvcl_found_t *found = &locate->found[ask->order[i]];
            found->n = (uint8_t)kvcl_dir_msg_locs(&reply, i, &at, found->locs);
        }
    }
    --locate->outstanding;
    kvcl_engine_notify(ask->store->ctx);
}

static bool is_over(void *arg)
{
    return ((const locate_t *)arg)->outstanding == 0;
}

static kvcl_status_t ask_homes(kvcl_store_h store, const kvcl_key_t *keys, size_t n, const uint8_t *skip,
                               locate_t *locate, uint64_t timeout_ns)
{
    kvcl_list_t   asks, *link;
    kvcl_deal_t   deal;
    kvcl_status_t status = kvcl_deal(store, keys, sizeof(*keys), n, skip, &deal);
    uint32_t      home;

    kvcl_list_init(&asks);
    for (home = 0; (home < store->n_ranks) && (status == KVCL_OK); ++home) {
        if (home != store->me) {
            status = kvcl_asks_make(store, home, KVCL_ASK_LOOKUP, keys, sizeof(*keys), &deal, &asks);
        }
    }
    if (status == KVCL_OK) {
        kvcl_lock(store->ctx);
        ++locate->outstanding;
        while ((link = kvcl_list_first(&asks)) != NULL) {
            kvcl_ask_t *ask = kvcl_container_of(link, kvcl_ask_t, link);
            ask->arg  = locate;
            ask->done = on_lookup;
            ++locate->outstanding;
            kvcl_ask_post(ask, timeout_ns, NULL);
        }
        --locate->outstanding;
        kvcl_unlock(store->ctx);
        (void)kvcl_engine_wait(store->ctx, is_over, locate, UINT64_MAX); /* each ask has its deadline */
    }
    kvcl_deal_free(&deal);
    return status;
}

/* Copies of ranks that are gone are no copies. */
static void keep_living(const struct kvcl_store *store, kvcl_found_t *found)
{
    unsigned kept = 0, i;

    for (i = 0; i < found->n; ++i) {
        if (kvcl_store_loc_lives(store, &found->locs[i])) {
            found->locs[kept++] = found->locs[i];
        }
    }
    found->n = (uint8_t)kept;
}

kvcl_status_t kvcl_locate(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_found_t *found,
                          uint64_t timeout_ns)
{
    locate_t      locate = {.found = found};
    uint8_t       *skip  = malloc(n + 1);
    bool          gone, ask = false;
    kvcl_status_t status = KVCL_OK;
    size_t        i;

    if (skip == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory to look for %zu keys", n);
    }
    for (i = 0; i < n; ++i) {
        const kvcl_dir_view_t *view = kvcl_store_view(store, &keys[i], &gone);
        found[i].n = (view != NULL) ? (uint8_t)kvcl_dir_read(view, &keys[i], found[i].locs) : 0;
        skip[i]    = (view != NULL) || gone;
        ask        = ask || !skip[i];
    }
    if (ask) {
        status = ask_homes(store, keys, n, skip, &locate, timeout_ns);
    }
    for (i = 0; i < n; ++i) {
        keep_living(store, &found[i]);
    }
    free(skip);
    return status;
}
