/*
 * kvcl_store_get as a request (get.h describes the rounds). Everything runs under the engine lock, except the copying
 * and checking in get/verify.c.
 *
 * Wrong bytes are never returned: a block is KVCL_OK only if its copy's generation was unchanged after the bytes
 * arrived, its owner has the incarnation that published it, and its checksum matches. A copy that is missing is
 * reported to its home.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "store/get/get.h"
#include "store/cold/cold.h"
#include "store/get/gets.h"
#include "store/get/uses.h"
#include "store/words.h"
#include "xfer/params.h"
#include "xfer/pull.h"

#include <stdio.h>
#include <stdlib.h>

enum { SMALL_BYTES = 256 * 1024 }; /* checksummed under the lock: a few microseconds */

static void advance(kvcl_get_t *get);

static void release(kvcl_req_t *req)
{
    kvcl_get_t *get = kvcl_container_of(req, kvcl_get_t, req);

    kvcl_scatter_free(&get->scatter);
    kvcl_tenant_release(get->tenant);
    free(get);
}

/* ---- the end ---- */

static void touch_hits(kvcl_get_t *get)
{
    kvcl_store_h         store = get->store;
    const kvcl_dir_loc_t *loc;
    kvcl_owner_t         *owner;
    size_t               i;

    for (i = get->n; i-- > 0;) { /* the end of a chain first */
        const kvcl_get_item_t *item = &get->items[i];
        if ((item->why == KVCL_OK) && (kvcl_get_loc(item)->rank != store->me) && !item->from_tier) {
            loc = kvcl_get_loc(item);
            kvcl_uses_note(store, &loc, 1, true);
        } else if ((item->why == KVCL_OK) && (kvcl_get_loc(item)->rank == store->me)) {
            owner = kvcl_owner_by_cache_id(store, kvcl_get_loc(item)->cache);
            if (owner != NULL) {
                kvcl_owner_touch(owner, kvcl_get_loc(item)->slot);
            }
        }
    }
    kvcl_uses_send(store, true);
}

static void finish(kvcl_get_t *get)
{
    kvcl_status_t first = KVCL_OK, status;
    size_t        hits[KVCL_DIR_TIER_MASK + 1] = {0}, local = 0, i;

    kvcl_hedge_disarm(get);
    kvcl_get_release(get, true);
    for (i = 0; i < get->n; ++i) {
        if (get->items[i].state != KVCL_GET_DONE) {
            get->items[i].why = (get->stopping != KVCL_OK) ? get->stopping : KVCL_ERR_INTERNAL;
        }
        status = get->items[i].why;
        if (status == KVCL_OK) {
            const kvcl_get_item_t *item = &get->items[i];
            get->req.timing.bytes += get->cache->shape.block_bytes;
            ++hits[item->from_tier ? KVCL_DIR_TIER_NVME : (kvcl_get_loc(item)->flags & KVCL_DIR_TIER_MASK)];
            local += (!item->from_tier && (kvcl_get_loc(item)->rank == get->store->me)) ? 1 : 0;
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
        kvcl_store_count_hits(&get->store->counts, hits, local);
        if (get->tenant != NULL) {
            kvcl_store_count_hits(&get->tenant->counts, hits, local);
        }
        get->store->notify->got(get);
    }
    --get->store->ops;
    kvcl_req_complete(&get->req, first);
}

static void stop(kvcl_req_t *req, kvcl_status_t status)
{
    kvcl_get_t       *get = kvcl_container_of(req, kvcl_get_t, req);
    kvcl_get_fetch_t *fetch, *next;

    if (get->stopping != KVCL_OK) {
        return;
    }
    get->stopping = status;
    ++get->outstanding;
    kvcl_verify_drop(get);
    kvcl_rpcs_stop(&get->rpcs, status);
    kvcl_get_stage_stop(get, status);
    kvcl_list_foreach_safe (fetch, next, &get->pulls, kvcl_get_fetch_t, link) {
        kvcl_pull_stop(fetch->pull, status);
    }
    --get->outstanding;
    advance(get);
}

static void describe(const kvcl_req_t *req, char *buf, size_t cap)
{
    const kvcl_get_t      *get = kvcl_container_of((kvcl_req_t *)req, kvcl_get_t, req);
    const kvcl_get_item_t *item;
    size_t                absent = 0, first = get->n, i;
    char                  where[40] = "";

    for (i = get->n; i-- > 0;) {
        if (get->items[i].why != KVCL_OK) {
            first = i;
            ++absent;
        }
    }
    if (first == get->n) { /* it ended before any block failed */
        snprintf(buf, cap, "kvcl_store_get of %zu blocks into \"%s\"", get->n, get->cache->name);
        return;
    }
    item = &get->items[first];
    if ((item->n_locs != 0) && (item->why != KVCL_ERR_NOT_FOUND)) {
        snprintf(where, sizeof(where), ", last tried at rank %u", kvcl_get_loc(item)->rank);
    }
    snprintf(buf, cap, "kvcl_store_get of %zu blocks into \"%s\", %zu failed, the first is number %zu, key "
             "%016llx...%s", get->n, get->cache->name, absent, first, kvcl_key_prefix(&item->key), where);
}

static bool explain(const kvcl_req_t *req, kvcl_status_t status, char *buf, size_t cap)
{
    const kvcl_get_t *get = kvcl_container_of((kvcl_req_t *)req, kvcl_get_t, req);

    return ((status == KVCL_ERR_NOT_FOUND) &&
            kvcl_store_explain_size(get->store, get->cache->shape.block_bytes, buf, cap)) ||
           kvcl_store_explain(status, buf, cap);
}

static const kvcl_req_class_t get_class = {
    .name = "store-get", .stop = stop, .release = release, .describe = describe, .explain = explain};

/* ---- fetching ---- */

/* No copy is left. */
static void end_item(const kvcl_get_t *get, kvcl_get_item_t *item)
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

static bool same_source(const kvcl_get_item_t *a, const kvcl_get_item_t *b)
{
    return (kvcl_get_loc(a)->rank == kvcl_get_loc(b)->rank) && (kvcl_get_loc(a)->cache == kvcl_get_loc(b)->cache);
}

/* Start the fetch of every READY block from its best copy, or end it. */
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
            end_item(get, item);
        }
    }
    for (i = 0; (i < get->n) && (status == KVCL_OK); ++i) {
        kvcl_get_item_t *item = &get->items[i];
        /* An item that failed inside this loop is READY again with cur tried: it waits for the next round. */
        if ((item->state != KVCL_GET_READY) || (item->tried & (1u << item->cur))) {
            continue;
        }
        if (kvcl_loc_is_nvme(kvcl_get_loc(item))) {
            status = kvcl_get_stage(get, (uint32_t)i);
            continue;
        }
        if (kvcl_get_loc(item)->rank == get->store->me) {
            item->state = KVCL_GET_BUSY;
            kvcl_get_local(get, (uint32_t)i);
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
        status = kvcl_get_pull(get, group, n);
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

static void advance(kvcl_get_t *get)
{
    kvcl_status_t status;

    while (get->outstanding == 0) {
        kvcl_get_release(get, false);
        if ((get->stopping != KVCL_OK) || (count(get, KVCL_GET_DONE) == get->n)) {
            finish(get);
            return;
        }
        ++get->outstanding; /* fetches that end at once must not call advance() from here */
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
    kvcl_list_init(&get->rpcs);
    kvcl_list_init(&get->pulls);
    kvcl_list_init(&get->stages);
    kvcl_list_init(&get->verify_link);
    get->advance = advance;
    get->store   = store;
    get->cache   = cache;
    get->n       = n;
    get->todo    = (uint32_t *)(void *)(get->items + n);
    get->small   = (n <= SMALL_BYTES / cache->shape.block_bytes);
    for (i = 0; i < n; ++i) {
        memcpy(&get->items[i].key, (const char *)keys + (i * stride), sizeof(kvcl_key_t));
        get->items[i].id  = ids[i];
        get->items[i].why = KVCL_ERR_NOT_FOUND;
    }
    return get;
}

static kvcl_status_t start(kvcl_get_t *get, kvcl_store_tenant_t *tenant, const kvcl_xfer_params_t *p,
                           kvcl_req_h *req_p)
{
    kvcl_context_h ctx = get->store->ctx;
    kvcl_status_t  status;

    kvcl_lock(ctx);
    get->deadline_ns = kvcl_deadline_after(kvcl_timeout(ctx, p->timeout_ns));
    status = kvcl_req_post(&get->req, ctx, &get_class, p, req_p);
    if (status == KVCL_OK) {
        get->req.timing.op = KVCL_LATENCY_STORE_GET;
        get->tenant        = kvcl_tenant_hold(tenant);
        ++get->store->ops;
        advance(get);
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
                            bool user, kvcl_store_tenant_t *tenant, kvcl_req_cb_t cb, void *cb_arg, kvcl_req_t **req_p)
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
    get->req.timing.op = user ? KVCL_LATENCY_NONE : KVCL_LATENCY_STORE_COPY;
    get->tenant        = kvcl_tenant_hold(tenant);
    ++store->ops;
    *req_p = &get->req;
    advance(get);
    return KVCL_OK;
}

static kvcl_status_t get_blocks(kvcl_store_h store, kvcl_store_tenant_t *tenant, const kvcl_key_t *keys, size_t n,
                                kvcl_cache_h cache, const uint32_t *ids, kvcl_status_t *status,
                                const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_sel_t         sel = {.blocks = ids, .n_blocks = n};
    kvcl_status_t      result = kvcl_store_check(store, keys, n, "kvcl_store_get");
    kvcl_xfer_params_t p;
    kvcl_status_t      *statuses[2];
    kvcl_timing_t      timing;
    kvcl_get_t         *get;

    if ((result != KVCL_OK) || ((result = kvcl_xfer_params(params, KVCL_CALL_STORE_GET, &p)) != KVCL_OK) ||
        ((result = kvcl_xfer_local(store->ctx, cache, &sel, "kvcl_store_get")) != KVCL_OK)) {
        return result;
    }
    statuses[0] = status;
    statuses[1] = p.status;
    atomic_fetch_add_explicit(&store->counts.gets, n, memory_order_relaxed);
    if (tenant != NULL) {
        atomic_fetch_add_explicit(&tenant->counts.gets, n, memory_order_relaxed);
    }
    timing = kvcl_timing_sample(&store->ctx->latency, KVCL_LATENCY_STORE_GET);
    if ((n <= store->ctx->config.inline_copy / cache->shape.block_bytes) &&
        kvcl_get_now(store, keys, n, cache, ids, statuses, &timing, tenant, &result)) {
        return kvcl_req_instant(store->ctx, result, timing.bytes, &p, req_p);
    }
    get = make(store, keys, sizeof(*keys), n, cache, ids);
    if (get == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_store_get: no memory for %zu blocks", n);
    }
    get->statuses[0] = statuses[0];
    get->statuses[1] = statuses[1];
    return start(get, tenant, &p, req_p);
}

kvcl_status_t kvcl_store_get(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                             const uint32_t *ids, kvcl_status_t *status, const kvcl_xfer_params_t *params,
                             kvcl_req_h *req_p)
{
    kvcl_entry_t  entry;
    kvcl_status_t result = kvcl_store_enter(&store, &keys, n, "kvcl_store_get", &entry);

    if (result == KVCL_OK) {
        result = get_blocks(store, entry.tenant, keys, n, cache, ids, status, params, req_p);
    }
    kvcl_store_leave(&entry);
    return result;
}
