/*
 * Blocks of a get that lie in a second tier, local or remote: their owner is requested to stage them.
 *
 * In a round each owner is sent a request for at most one window of blocks, while the blocks of the window before are
 * fetched; the others wait. A staged location replaces the location in the tier and is then fetched like any other
 * copy. When its block is over, the owner is notified that the staging block may be reused, with one message a round.
 * Everything here runs under the engine lock.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "store/get/get.h"
#include "store/cold/cold.h"
#include "store/home/ranks.h"
#include "weave/pieces.h"

#include <stdlib.h>

/* One request; items[] are indexes into the get. */
typedef struct request {
    kvcl_get_t *get;
    uint32_t   rank;
    uint32_t   n;
    uint32_t   items[];
} request_t;
_Static_assert(sizeof(request_t) % 8 == 0, "records stand behind the items");

/* Replace the location in the tier by the staged one; on failure this copy is over. */
static void take_one(kvcl_get_t *get, uint32_t i, kvcl_status_t status, const kvcl_stage_got_t *got)
{
    kvcl_get_item_t *item = &get->items[i];
    kvcl_dir_loc_t  *loc  = &item->locs[item->cur];

    if (status == KVCL_OK) {
        status = (got->status > 0) ? KVCL_ERR_PROTOCOL : (kvcl_status_t)got->status;
    }
    if (status != KVCL_OK) {
        kvcl_get_result(get, i, ((status == KVCL_ERR_NOT_FOUND) || (status == KVCL_ERR_IO)) ? KVCL_ERR_STALE : status);
        return;
    }
    item->tier_slot = loc->slot;
    item->tier_gen  = loc->gen;
    loc->flags      = (uint16_t)((loc->flags & ~KVCL_DIR_TIER_MASK) | KVCL_DIR_TIER_DRAM);
    loc->cache      = got->cache;
    loc->slot       = got->slot;
    loc->gen        = got->gen;
    item->held      = (kvcl_get_held_t){.rank = loc->rank, .cache = loc->cache, .slot = loc->slot, .gen = loc->gen};
    item->staged    = true;
    item->from_tier = true;
    item->state     = KVCL_GET_READY;
}

kvcl_dir_loc_t kvcl_get_origin(const kvcl_get_item_t *item)
{
    kvcl_dir_loc_t loc = *kvcl_get_loc(item);

    if (item->from_tier) {
        loc.cache = KVCL_COLD_CACHE;
        loc.slot  = item->tier_slot;
        loc.gen   = item->tier_gen;
    }
    return loc;
}

static void take_all(request_t *request, kvcl_status_t status, const kvcl_stage_got_t *got)
{
    kvcl_get_t       *get = request->get;
    kvcl_stage_got_t one  = {.status = KVCL_OK};
    uint32_t         i;

    for (i = 0; i < request->n; ++i) {
        if (got != NULL) {
            memcpy(&one, &got[i], sizeof(one));
        }
        take_one(get, request->items[i], status, &one);
    }
    free(request);
    --get->outstanding;
    get->advance(get);
}

static void on_answer(kvcl_rpc_t *rpc, kvcl_status_t status, const void *data, size_t len)
{
    (void)len;
    take_all(rpc->arg, status, data);
}

static void on_staged_local(void *arg, const kvcl_stage_got_t *got, uint32_t n)
{
    request_t *request = arg;

    (void)n;
    request->get->local_stage = NULL;
    take_all(request, KVCL_OK, got);
}

/* Is a request to this rank in flight? */
static bool is_requested(const kvcl_get_t *get, uint32_t rank)
{
    kvcl_rpc_t *rpc;

    if (rank == get->store->me) {
        return get->local_stage != NULL;
    }
    kvcl_list_foreach (rpc, &get->stages, kvcl_rpc_t, link) {
        if (rpc->rank == rank) {
            return true;
        }
    }
    return false;
}

static void add_rec(const kvcl_get_t *get, uint32_t i, kvcl_store_rec_t *rec)
{
    rec->key = get->items[i].key;
    rec->loc = *kvcl_get_loc(&get->items[i]);
}

static void query_owner(request_t *request, kvcl_store_rec_t *recs)
{
    kvcl_get_t    *get   = request->get;
    kvcl_store_h  store  = get->store;
    uint64_t      left   = kvcl_deadline_left(get->deadline_ns);
    size_t        len    = request->n * sizeof(*recs);
    kvcl_rpc_t    *rpc;
    kvcl_status_t status = KVCL_ERR_NOT_FOUND;

    if (request->rank == store->me) {
        if (store->cold != NULL) {
            get->local_stage = request;
            status           = kvcl_stage_here(store->cold, recs, request->n, on_staged_local, request);
        }
        if (status != KVCL_OK) {
            get->local_stage = NULL;
            take_all(request, status, NULL);
        }
        return;
    }
    rpc = kvcl_rpc_new(store, request->rank, KVCL_RPC_STAGE, len);
    if (rpc == NULL) {
        take_all(request, KVCL_ERR_NO_MEMORY, NULL);
        return;
    }
    kvcl_copy_bytes(rpc->payload, recs, len);
    rpc->len  = len;
    rpc->n    = request->n;
    rpc->arg  = request;
    rpc->done = on_answer;
    kvcl_rpc_post(rpc, (left != 0) ? left : 1, &get->stages);
}

kvcl_status_t kvcl_get_stage(kvcl_get_t *get, uint32_t first)
{
    uint32_t         rank   = kvcl_get_loc(&get->items[first])->rank, i;
    uint32_t         window = kvcl_stage_window(get->cache->shape.block_bytes, get->store->ranks[rank].n_sizes);
    request_t        *request;
    kvcl_store_rec_t *recs;

    kvcl_assert_locked(get->store->ctx);
    if (is_requested(get, rank)) {
        return KVCL_OK; /* it waits for the next round */
    }
    request = malloc(sizeof(*request) + (window * (sizeof(request->items[0]) + sizeof(*recs))) + sizeof(uint64_t));
    if (request == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a question");
    }
    *request = (request_t){.get = get, .rank = rank};
    recs     = (kvcl_store_rec_t *)(void *)(request->items + ((window + 1) / 2 * 2));
    for (i = first; (i < get->n) && (request->n < window); ++i) {
        kvcl_get_item_t *item = &get->items[i];
        if ((item->state == KVCL_GET_READY) && !(item->tried & (1u << item->cur)) &&
            (kvcl_get_loc(item)->rank == rank) && kvcl_loc_is_nvme(kvcl_get_loc(item))) {
            item->state = KVCL_GET_BUSY;
            add_rec(get, i, &recs[request->n]);
            request->items[request->n++] = i;
        }
    }
    ++get->outstanding;
    query_owner(request, recs);
    return KVCL_OK;
}

/* Stopping one rpc may end several, but cannot begin the next round: check() holds get->outstanding. */
void kvcl_get_stage_hedge(kvcl_get_t *get, uint64_t now_ns, uint64_t hedge_ns)
{
    kvcl_list_t silent;
    kvcl_rpc_t  *rpc, *next;
    uint32_t    i;

    kvcl_assert_locked(get->store->ctx);
    kvcl_list_init(&silent);
    kvcl_list_foreach_safe (rpc, next, &get->stages, kvcl_rpc_t, link) {
        const request_t *request = rpc->arg;
        bool            others   = false;
        for (i = 0; (i < request->n) && !others; ++i) {
            others = kvcl_get_has_other(get, &get->items[request->items[i]]);
        }
        if (others && (now_ns - rpc->posted_ns >= hedge_ns)) {
            kvcl_list_del(&rpc->link);
            kvcl_list_add_tail(&silent, &rpc->link);
        }
    }
    kvcl_list_foreach (rpc, &silent, kvcl_rpc_t, link) {
        kvcl_store_suspect(get->store, rpc->rank);
    }
    kvcl_rpcs_stop(&silent, KVCL_ERR_TIMED_OUT);
}

/* ---- release ---- */

static void notify(kvcl_store_h store, uint32_t rank, const kvcl_stage_got_t *got, uint32_t n)
{
    kvcl_msg_dir_request_t out   = {.msg   = {.type = KVCL_MSG_DIR_REQUEST, .flags = KVCL_RPC_RELEASE},
                                    .store = store->id, .n = n, .rank = store->me};
    kvcl_peer_t            *peer = store->ranks[rank].peer;

    if ((n != 0) && (peer->state == KVCL_PEER_READY) &&
        (kvcl_peer_post(peer, &out.msg, sizeof(out), got, n * sizeof(*got)) != KVCL_OK)) {
        kvcl_log_debug("%s cannot be notified of %u blocks that were read: it has failed", peer->name, n);
    }
}

static bool is_over(const kvcl_get_item_t *item)
{
    return item->staged && (item->state != KVCL_GET_BUSY) &&
           ((item->state != KVCL_GET_READY) || (item->tried & (1u << item->cur)));
}

void kvcl_get_release(kvcl_get_t *get, bool all)
{
    kvcl_stage_got_t got[64];
    kvcl_store_h     store = get->store;
    uint32_t         n, rank;
    size_t           i, j;

    kvcl_assert_locked(store->ctx);
    for (i = 0; i < get->n; ++i) {
        if (!get->items[i].staged || (!all && !is_over(&get->items[i]))) {
            continue;
        }
        rank = get->items[i].held.rank;
        n    = 0;
        for (j = i; (j < get->n) && (n < 64); ++j) {
            kvcl_get_item_t *item = &get->items[j];
            if (item->staged && (all || is_over(item)) && (item->held.rank == rank)) {
                item->staged = false;
                got[n++]     = (kvcl_stage_got_t){.cache = item->held.cache, .slot = item->held.slot,
                                                  .gen = item->held.gen};
            }
        }
        if (rank == store->me) {
            kvcl_stage_release(store, got, n);
        } else {
            notify(store, rank, got, n);
        }
    }
}

void kvcl_get_stage_stop(kvcl_get_t *get, kvcl_status_t status)
{
    request_t *request = get->local_stage;

    kvcl_rpcs_stop(&get->stages, status);
    if (request != NULL) {
        kvcl_stage_forget(get->store->cold, request);
        get->local_stage = NULL;
        take_all(request, status, NULL);
    }
}
