/*
 * kvcl_store_get as a request (get.h has the rounds). All under the engine lock but the copying and checking in
 * get/verify.c.
 *
 * Never wrong bytes: a block is KVCL_OK only if its copy's generation was unchanged after the bytes were here, by an
 * owner of the incarnation that published it, and its checksum fits. What is found to be gone is reported to its home.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "store/get/get.h"
#include "store/cold/cold.h"
#include "xfer/params.h"
#include "xfer/pull.h"

#include <stdlib.h>

enum { SMALL_BYTES = 256 * 1024 }; /* summed under the lock: some microseconds */

static void release(kvcl_req_t *req)
{
    kvcl_get_t *get = kvcl_container_of(req, kvcl_get_t, req);

    kvcl_deal_free(&get->deal);
    free(get);
}

/* ---- the end ---- */

static void touch_hits(kvcl_get_t *get)
{
    kvcl_store_h store = get->store;
    kvcl_owner_t *owner;
    size_t       i;

    for (i = get->n; i-- > 0;) { /* the end of a chain first */
        const kvcl_get_item_t *item = &get->items[i];
        if ((item->why == KVCL_OK) && (item->locs[item->cur].rank != store->me) && !item->from_tier) {
            kvcl_uses_note(store, &item->locs[item->cur], true);
        } else if ((item->why == KVCL_OK) && (item->locs[item->cur].rank == store->me)) {
            owner = kvcl_owner_by_cache_id(store, item->locs[item->cur].cache);
            if (owner != NULL) {
                kvcl_owner_touch(owner, item->locs[item->cur].slot);
            }
        }
    }
}

static void finish(kvcl_get_t *get)
{
    kvcl_status_t first = KVCL_OK, status;
    size_t        hits[KVCL_DIR_TIER_MASK + 1] = {0}, local = 0, i;

    kvcl_hedge_disarm(get);
    kvcl_get_let_go(get, true);
    for (i = 0; i < get->n; ++i) {
        if (get->items[i].state != KVCL_GET_DONE) {
            get->items[i].why = (get->stopping != KVCL_OK) ? get->stopping : KVCL_ERR_INTERNAL;
        }
        status = get->items[i].why;
        if (status == KVCL_OK) {
            const kvcl_get_item_t *item = &get->items[i];
            ++hits[item->from_tier ? KVCL_DIR_TIER_NVME : (item->locs[item->cur].flags & KVCL_DIR_TIER_MASK)];
            local += (!item->from_tier && (item->locs[item->cur].rank == get->store->me)) ? 1 : 0;
        }
        if (get->from != NULL) {
            get->from[i] = kvcl_get_origin(&get->items[i]);
        }
        first  = (first == KVCL_OK) ? status : first;
        if (get->statuses[0] != NULL) {
            get->statuses[0][i] = status;
        }
        if (get->statuses[1] != NULL) {
            get->statuses[1][i] = status;
        }
    }
    if (!get->inner) {
        touch_hits(get);
        kvcl_store_count_hits(get->store, hits, local);
        kvcl_hot_got(get);
    }
    --get->store->ops;
    kvcl_req_complete(&get->req, first);
}

static void stop(kvcl_req_t *req, kvcl_status_t status)
{
    kvcl_get_t *get = kvcl_container_of(req, kvcl_get_t, req);
    kvcl_get_fetch_t    *fetch, *next;

    if (get->stopping != KVCL_OK) {
        return;
    }
    get->stopping = status;
    ++get->outstanding;
    kvcl_verify_drop(get);
    kvcl_asks_stop(&get->asks, status);
    kvcl_get_stage_stop(get, status);
    kvcl_list_foreach_safe (fetch, next, &get->pulls, kvcl_get_fetch_t, link) {
        kvcl_pull_stop(fetch->pull, status);
    }
    --get->outstanding;
    kvcl_get_advance(get);
}

static const kvcl_req_class_t get_class = {.name = "store-get", .stop = stop, .release = release};

/* ---- one block's copies ---- */

static void report_gone(kvcl_store_h store, const kvcl_get_item_t *item)
{
    kvcl_store_rec_t rec = {.key = item->key, .loc = item->locs[item->cur]};

    kvcl_store_tell_removed(store, &rec, 1);
}

/* Its owner looks whether it is, or whether it was the way here, or the directory. */
static void report_spoilt(kvcl_store_h store, const kvcl_get_item_t *item)
{
    kvcl_store_rec_t rec = {.key = item->key, .loc = item->locs[item->cur]};

    kvcl_store_tell_owner(store, &rec, true);
}

/* The bytes that came have another sum. The copy stays listed until its owner has looked, so it may be tried again. */
static void came_wrong(kvcl_get_t *get, kvcl_get_item_t *item, bool from_tier)
{
    item->wrong = false;
    atomic_fetch_add_explicit(&get->store->corrupt, 1, memory_order_relaxed);
    kvcl_log_info("a block from rank %u has not the bytes that were published", item->locs[item->cur].rank);
    if (get->stopping == KVCL_OK) {
        item->again = true;
        if (!from_tier) {
            report_spoilt(get->store, item);
        }
    }
}

void kvcl_get_result(kvcl_get_t *get, uint32_t i, kvcl_status_t status)
{
    kvcl_get_item_t *item     = &get->items[i];
    kvcl_store_h    store     = get->store;
    const bool      from_tier = item->from_tier;

    if (status == KVCL_OK) {
        item->why   = KVCL_OK;
        item->state = KVCL_GET_DONE;
        return;
    }
    item->state     = KVCL_GET_READY;
    item->from_tier = false;
    item->tried    |= (uint8_t)(1u << item->cur);
    if (item->wrong) {
        came_wrong(get, item, from_tier);
        return;
    }
    switch (status) {
    case KVCL_ERR_STALE:
        atomic_fetch_add_explicit(&store->stale, 1, memory_order_relaxed);
        break;
    case KVCL_ERR_NOT_REGISTERED:
    case KVCL_ERR_OUT_OF_RANGE:
        break;
    default:
        item->why = status;
        return;
    }
    if (get->stopping == KVCL_OK) {
        item->again = true;
        report_gone(store, item);
    }
}

/* No copy is left. */
static void give_up(const kvcl_get_t *get, kvcl_get_item_t *item)
{
    if (item->again && (get->lookups < KVCL_GET_LOOKUPS_MAX)) {
        item->again = false;
        item->tried = item->silent = 0;
        item->state = KVCL_GET_LOOKUP;
        return;
    }
    item->why   = kvcl_get_final(item->why, kvcl_deadline_passed(get->deadline_ns));
    item->state = KVCL_GET_DONE;
}

/* ---- fetching ---- */

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
    kvcl_get_fetch_t    *fetch = pull->arg;
    kvcl_get_t *get   = fetch->get;
    size_t     i;

    kvcl_list_del(&fetch->link);
    kvcl_hedge_fetched(fetch, status);
    if ((pull->rcache != NULL) && pull->rcache->mapped && (status == KVCL_OK)) {
        remember_rcache(&get->store->ranks[get->items[fetch->items[0]].locs[get->items[fetch->items[0]].cur].rank],
                        pull->rcache);
    }
    for (i = 0; i < fetch->n; ++i) {
        uint32_t        at    = fetch->items[i];
        kvcl_get_item_t *item = &get->items[at];
        kvcl_status_t   one   = fetch->status[i];
        if (fetch->hedged && (one == KVCL_ERR_TIMED_OUT) && (get->stopping == KVCL_OK) &&
            kvcl_hedge_stays(get, item)) {
            item->state = KVCL_GET_READY; /* this copy is all there is: it is waited for, by itself */
            continue;
        }
        if ((one == KVCL_OK) && (item->locs[item->cur].flags & KVCL_LOC_SUMMED) && (get->stopping == KVCL_OK)) {
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
    kvcl_get_advance(get);
}

static kvcl_status_t fill_pull(kvcl_get_t *get, const kvcl_dir_loc_t *loc, kvcl_get_fetch_t *fetch, uint32_t *slots,
                               uint32_t *ids)
{
    kvcl_pull_t   *pull  = fetch->pull;
    kvcl_sel_t    remote = {.blocks = slots, .n_blocks = fetch->n};
    kvcl_sel_t    local  = {.blocks = ids, .n_blocks = fetch->n};
    kvcl_status_t status;
    size_t        i;

    pull->gens = malloc(fetch->n * sizeof(*pull->gens));
    if (pull->gens == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a transfer");
    }
    for (i = 0; i < fetch->n; ++i) {
        const kvcl_get_item_t *item = &get->items[fetch->items[i]];
        slots[i]      = item->locs[item->cur].slot;
        ids[i]        = item->id;
        pull->gens[i] = item->locs[item->cur].gen;
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
    pull->on_done  = on_fetched;
    pull->arg      = fetch;
    return status;
}

/* One pull for these items, which lie in one cache of one rank. */
static kvcl_status_t start_pull(kvcl_get_t *get, const uint32_t *items, size_t n)
{
    const kvcl_dir_loc_t *loc   = &get->items[items[0]].locs[get->items[items[0]].cur];
    kvcl_get_fetch_t     *fetch = calloc(1, sizeof(*fetch) + (n * (sizeof(kvcl_status_t) + (3 * sizeof(uint32_t)))));
    kvcl_status_t        status;
    uint32_t             *slots;

    if (fetch == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a transfer");
    }
    kvcl_list_init(&fetch->link);
    fetch->get      = get;
    fetch->n        = n;
    fetch->seen_ns  = kvcl_now_ns();
    fetch->begun_ns = fetch->seen_ns;
    fetch->status   = (kvcl_status_t *)(void *)(fetch + 1);
    fetch->items    = (uint32_t *)(void *)(fetch->status + n);
    slots           = fetch->items + n;
    memcpy(fetch->items, items, n * sizeof(*items));
    fetch->pull = kvcl_pull_new();
    status      = (fetch->pull != NULL) ? fill_pull(get, loc, fetch, slots, slots + n) : KVCL_ERR_NO_MEMORY;
    if (status == KVCL_OK) {
        kvcl_list_add_tail(&get->pulls, &fetch->link);
        ++get->outstanding;
        status = kvcl_pull_start(get->store->ctx, fetch->pull, kvcl_get_time_left(get), NULL, NULL, false);
        if (status == KVCL_OK) {
            return KVCL_OK; /* it may have ended: fetch is gone */
        }
        --get->outstanding;
        kvcl_list_del(&fetch->link);
    }
    kvcl_pull_discard(fetch->pull);
    free(fetch);
    return status;
}

static void start_local(kvcl_get_t *get, uint32_t i)
{
    kvcl_get_item_t         *item   = &get->items[i];
    const kvcl_dir_loc_t    *loc    = &item->locs[item->cur];
    const kvcl_owner_t      *owner  = kvcl_owner_by_cache_id(get->store, loc->cache);
    const kvcl_cold_class_t *staged = kvcl_cold_staging(get->store->cold, loc->cache);
    const kvcl_slots_t      *slots  = (owner != NULL) ? &owner->slots : (staged != NULL) ? &staged->slots : NULL;

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

static bool same_source(const kvcl_get_item_t *a, const kvcl_get_item_t *b)
{
    return (a->locs[a->cur].rank == b->locs[b->cur].rank) && (a->locs[a->cur].cache == b->locs[b->cur].cache);
}

/* Every READY block: to its best copy, or to its end. */
static kvcl_status_t start_fetches(kvcl_get_t *get)
{
    uint32_t      *group = malloc(get->n * sizeof(*group));
    kvcl_status_t status = KVCL_OK;
    size_t        i, j, n;

    if (group == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a transfer");
    }
    for (i = 0; i < get->n; ++i) {
        kvcl_get_item_t *item = &get->items[i];
        if ((item->state == KVCL_GET_READY) && !(item->staged && !(item->tried & (1u << item->cur))) &&
            !kvcl_get_choose(get, item)) {
            give_up(get, item);
        }
    }
    for (i = 0; (i < get->n) && (status == KVCL_OK); ++i) {
        kvcl_get_item_t *item = &get->items[i];
        /* An item that failed inside this loop is READY again with cur tried: its turn is the next round. */
        if ((item->state != KVCL_GET_READY) || (item->tried & (1u << item->cur))) {
            continue;
        }
        if (kvcl_loc_is_nvme(&item->locs[item->cur])) {
            status = kvcl_get_stage(get, (uint32_t)i);
            continue;
        }
        if (item->locs[item->cur].rank == get->store->me) {
            item->state = KVCL_GET_BUSY;
            start_local(get, (uint32_t)i);
            continue;
        }
        n = 0;
        for (j = i; j < get->n; ++j) {
            kvcl_get_item_t *other = &get->items[j];
            if ((other->state == KVCL_GET_READY) && !(other->tried & (1u << other->cur)) && same_source(item, other)) {
                other->state = KVCL_GET_BUSY;
                group[n++]   = (uint32_t)j;
            }
        }
        status = start_pull(get, group, n);
    }
    free(group);
    return status;
}

/* ---- the rounds ---- */

static size_t count(const kvcl_get_t *get, kvcl_get_state_t state)
{
    size_t i, n = 0;

    for (i = 0; i < get->n; ++i) {
        n += (get->items[i].state == (uint8_t)state) ? 1 : 0;
    }
    return n;
}

void kvcl_get_advance(kvcl_get_t *get)
{
    kvcl_status_t status;

    while (get->outstanding == 0) {
        kvcl_get_let_go(get, false);
        if ((get->stopping != KVCL_OK) || (count(get, KVCL_GET_DONE) == get->n)) {
            finish(get);
            return;
        }
        ++get->outstanding; /* what ends at once must not come back here */
        status = (count(get, KVCL_GET_LOOKUP) > 0) ? kvcl_get_lookups(get) : KVCL_OK;
        status = ((status == KVCL_OK) && (count(get, KVCL_GET_READY) > 0)) ? start_fetches(get) : status;
        --get->outstanding;
        kvcl_hedge_arm(get);
        if ((status != KVCL_OK) && (get->stopping == KVCL_OK)) {
            ++get->outstanding;
            stop(&get->req, status);
            --get->outstanding;
        }
    }
}

/* keys: stride bytes apart. */
static kvcl_get_t *make(kvcl_store_h store, const void *keys, size_t stride, size_t n, kvcl_cache_h cache,
                        const uint32_t *ids)
{
    kvcl_get_t *get = malloc(sizeof(*get) + (n * (sizeof(get->items[0]) + sizeof(*get->todo))));
    size_t     i;

    if (get == NULL) {
        return NULL;
    }
    memset(get, 0, sizeof(*get) + (n * sizeof(get->items[0])));
    kvcl_list_init(&get->asks);
    kvcl_list_init(&get->pulls);
    kvcl_list_init(&get->stages);
    kvcl_list_init(&get->verify_link);
    get->store = store;
    get->cache = cache;
    get->n     = n;
    get->todo  = (uint32_t *)(void *)(get->items + n);
    get->small = (n <= SMALL_BYTES / cache->shape.block_bytes);
    for (i = 0; i < n; ++i) {
        memcpy(&get->items[i].key, (const char *)keys + (i * stride), sizeof(kvcl_key_t));
        get->items[i].id  = ids[i];
        get->items[i].why = KVCL_ERR_NOT_FOUND;
    }
    return get;
}

static kvcl_status_t start(kvcl_get_t *get, const kvcl_xfer_params_t *p, kvcl_req_h *req_p)
{
    kvcl_context_h ctx = get->store->ctx;
    kvcl_status_t  status;

    kvcl_lock(ctx);
    get->deadline_ns = kvcl_deadline_after(kvcl_timeout(ctx, p->timeout_ns));
    status = kvcl_req_start(&get->req, ctx, &get_class, p->timeout_ns, p->cb, p->cb_arg, req_p != NULL);
    if (status == KVCL_OK) {
        ++get->store->ops;
        if (req_p != NULL) {
            *req_p = &get->req;
        }
        kvcl_get_advance(get);
    }
    kvcl_unlock(ctx);
    if (status != KVCL_OK) {
        free(get);
        return kvcl_fail(status, "kvcl_store_get: no memory for a request");
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_get_recs(kvcl_store_h store, const kvcl_store_rec_t *recs, size_t n, kvcl_cache_h cache,
                            const uint32_t *ids, kvcl_status_t *status, kvcl_dir_loc_t *from, uint64_t timeout_ns,
                            bool user, kvcl_req_cb_t cb, void *cb_arg, kvcl_req_t **req_p)
{
    kvcl_get_t    *get = make(store, recs, sizeof(*recs), n, cache, ids);
    kvcl_status_t result;
    size_t        i;

    kvcl_assert_locked(store->ctx);
    if (get == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory to fetch %zu blocks", n);
    }
    get->inner       = !user;
    get->statuses[0] = status;
    get->from        = from;
    for (i = 0; i < n; ++i) {
        get->items[i].locs[0] = recs[i].loc;
        get->items[i].n_locs  = 1;
        get->items[i].shunned = recs[i].loc;
        get->items[i].state   = (recs[i].loc.gen != 0) ? KVCL_GET_READY : KVCL_GET_LOOKUP;
    }
    get->deadline_ns = kvcl_deadline_after(kvcl_timeout(store->ctx, timeout_ns));
    result           = kvcl_req_start(&get->req, store->ctx, &get_class, timeout_ns, cb, cb_arg, false);
    if (result != KVCL_OK) {
        free(get);
        return kvcl_fail(result, "no memory for a request");
    }
    ++store->ops;
    *req_p = &get->req;
    kvcl_get_advance(get);
    return KVCL_OK;
}

kvcl_status_t kvcl_store_get(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                             const uint32_t *ids, kvcl_status_t *status, const kvcl_xfer_params_t *params,
                             kvcl_req_h *req_p)
{
    kvcl_sel_t         sel = {.blocks = ids, .n_blocks = n};
    kvcl_status_t      result = kvcl_store_check(store, keys, n, "kvcl_store_get");
    kvcl_xfer_params_t p;
    kvcl_status_t      *statuses[2];
    kvcl_get_t         *get;

    if ((result != KVCL_OK) || ((result = kvcl_xfer_params(params, "kvcl_store_get", &p)) != KVCL_OK) ||
        ((result = kvcl_xfer_local(store->ctx, cache, &sel, "kvcl_store_get")) != KVCL_OK)) {
        return result;
    }
    statuses[0] = status;
    statuses[1] = p.status;
    atomic_fetch_add_explicit(&store->gets, n, memory_order_relaxed);
    if ((n <= store->ctx->config.inline_copy / cache->shape.block_bytes) &&
        kvcl_get_now(store, keys, n, cache, ids, statuses, &result)) {
        return kvcl_req_instant(store->ctx, result, p.cb, p.cb_arg, req_p);
    }
    get = make(store, keys, sizeof(*keys), n, cache, ids);
    if (get == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_store_get: no memory for %zu blocks", n);
    }
    get->statuses[0] = statuses[0];
    get->statuses[1] = statuses[1];
    return start(get, &p, req_p);
}
