/*
 * kvcl_store_bcast: a prefix for every rank, as a chain of public operations, each posted from the callback of the one
 * before.
 *
 *   COUNT    all-gather how many of the keys each rank holds, and check that all ranks passed the same keys
 *   GATHER   the lowest rank that holds most of them fetches all of them into its own ids: it is the source
 *   VERDICT  the source sends whether it has all of them; if not, every rank ends with KVCL_ERR_NOT_FOUND
 *   SPREAD   kvcl_bcast of the ids
 *   PUBLISH  each rank publishes its copies
 *
 * A deadline or a cancel takes effect after the step in flight, which has the same deadline. One step at a time touches
 * the fields; `stopping` is under the engine lock.
 */
#include "config.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/error.h"
#include "store/store.h"
#include "store/words.h"
#include "store/pool/publish_own.h"
#include "store/tenant.h"
#include "xfer/params.h"
#include <kvcl/kvcl_coll.h>

#include <stdio.h>
#include <stdlib.h>

typedef enum { COUNT, GATHER, VERDICT, SPREAD, PUBLISH } step_t;

typedef struct census {
    uint64_t n;
    uint64_t hash; /* of the keys */
    uint64_t have;
} census_t;

typedef struct sbcast {
    kvcl_req_t    req;
    kvcl_store_h  store;
    kvcl_cache_h  cache;
    step_t        step;
    kvcl_status_t stopping;
    uint64_t      deadline_ns;
    uint32_t      root;
    int32_t       verdict;
    census_t      own;
    census_t      *all;  /* n_ranks, by rank */
    kvcl_status_t *each; /* the user's array, or NULL */
    kvcl_key_t    *keys;
    uint32_t      *ids;
    size_t        n;
    uint64_t      tenant; /* of the published blocks */
} sbcast_t;

static void release(kvcl_req_t *req)
{
    sbcast_t *b = kvcl_container_of(req, sbcast_t, req);

    free(b->all);
    free(b->keys);
    free(b->ids);
    free(b);
}

static void stop(kvcl_req_t *req, kvcl_status_t status)
{
    sbcast_t *b = kvcl_container_of(req, sbcast_t, req);

    b->stopping = (b->stopping == KVCL_OK) ? status : b->stopping;
}

static void describe(const kvcl_req_t *req, char *buf, size_t cap)
{
    const sbcast_t *b = kvcl_container_of((kvcl_req_t *)req, sbcast_t, req);

    snprintf(buf, cap, "kvcl_store_bcast of %zu blocks of \"%s\"", b->n, b->cache->name);
}

static const kvcl_req_class_t bcast_class = {
    .name = "store-bcast", .stop = stop, .release = release, .describe = describe};

static void finish(sbcast_t *b, kvcl_status_t status)
{
    kvcl_context_h ctx = b->store->ctx;
    size_t         i;

    kvcl_lock(ctx);
    if ((status != KVCL_OK) && (b->stopping == KVCL_OK)) {
        kvcl_req_keep_error(&b->req); /* the sentence of the step that failed */
    }
    for (i = 0; (b->each != NULL) && (status != KVCL_OK) && (i < b->n); ++i) {
        b->each[i] = status;
    }
    --b->store->ops;
    b->req.timing.bytes = (status == KVCL_OK) ? b->n * b->cache->shape.block_bytes : 0;
    kvcl_req_complete(&b->req, status);
    kvcl_unlock(ctx);
}

static void on_step(void *arg, kvcl_status_t status);

static kvcl_xfer_params_t sub_params(sbcast_t *b)
{
    kvcl_xfer_params_t p    = KVCL_XFER_PARAMS_INIT;
    uint64_t           left = kvcl_deadline_left(b->deadline_ns);

    p.timeout_ns = (left != 0) ? left : 1;
    p.cb         = on_step;
    p.cb_arg     = b;
    return p;
}

/* Every rank compares the same numbers and decides the same. */
static kvcl_status_t choose_root(sbcast_t *b)
{
    uint32_t i;

    b->root = 0;
    for (i = 0; i < b->store->n_ranks; ++i) {
        if ((b->all[i].n != b->own.n) || (b->all[i].hash != b->own.hash)) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_bcast: rank %u passed %llu keys, and rank %u %llu%s: "
                             "pass the same keys in the same order on every rank", i, (unsigned long long)b->all[i].n,
                             b->store->me, (unsigned long long)b->own.n,
                             (b->all[i].n == b->own.n) ? " other ones" : "");
        }
        b->root = (b->all[i].have > b->all[b->root].have) ? i : b->root;
    }
    if (b->all[b->root].have != 0) {
        return KVCL_OK;
    }
    return kvcl_fail(KVCL_ERR_NOT_FOUND, "no rank has any of these keys; the first is %016llx...: compute them and put "
                     "them", kvcl_key_prefix(&b->keys[0]));
}

static kvcl_status_t post(sbcast_t *b)
{
    kvcl_store_h       store = b->store;
    kvcl_xfer_params_t p     = sub_params(b);
    kvcl_sel_t         sel   = {.blocks = b->ids, .n_blocks = b->n};

    switch (b->step) {
    case COUNT:
        return kvcl_allgather(store->comm, &b->own, sizeof(b->own), b->all, &p, NULL);
    case GATHER:
        return kvcl_store_get(store, b->keys, b->n, b->cache, b->ids, NULL, &p, NULL);
    case VERDICT:
        return kvcl_bcast_bytes(store->comm, (int)b->root, &b->verdict, sizeof(b->verdict), &p, NULL);
    case SPREAD:
        return kvcl_bcast(store->comm, (int)b->root, b->cache, &sel, &p, NULL);
    case PUBLISH:
        p.status = b->each;
        return kvcl_own_publish(store, b->keys, b->n, b->cache, b->ids, b->tenant, &p, NULL);
    }
    return KVCL_ERR_INTERNAL;
}

/* The step in flight ended with status: set b->step to the next one, or *over_p if there is none. */
static kvcl_status_t next_step(sbcast_t *b, kvcl_status_t status, bool *over_p)
{
    *over_p = true;
    if ((status != KVCL_OK) && (b->step != GATHER)) {
        return status;
    }
    switch (b->step) {
    case COUNT:
        status = choose_root(b);
        if (status != KVCL_OK) {
            return status;
        }
        b->step = (b->root == b->store->me) ? GATHER : VERDICT;
        break;
    case GATHER:
        b->verdict = status;
        b->step    = VERDICT;
        break;
    case VERDICT:
        if (b->verdict != KVCL_OK) {
            return kvcl_fail((b->verdict < 0) ? (kvcl_status_t)b->verdict : KVCL_ERR_PROTOCOL, "rank %u, which holds "
                             "most of the blocks, could not get the others: %s; kvcl_req_error there names the first: "
                             "put it, or broadcast without it", b->root,
                             kvcl_status_text((kvcl_status_t)b->verdict));
        }
        b->step = SPREAD;
        break;
    case SPREAD:
        b->step = PUBLISH;
        break;
    case PUBLISH:
        return KVCL_OK;
    }
    *over_p = false;
    return KVCL_OK;
}

static kvcl_status_t stopped(sbcast_t *b)
{
    kvcl_status_t status;

    kvcl_lock(b->store->ctx);
    status = b->stopping;
    kvcl_unlock_quietly(b->store->ctx);
    return status;
}

static void on_step(void *arg, kvcl_status_t status)
{
    sbcast_t *b = arg;
    bool     over;

    for (;;) {
        status = next_step(b, status, &over);
        if (!over) {
            status = stopped(b);
            over   = (status != KVCL_OK);
        }
        if (over) {
            finish(b, status);
            return;
        }
        status = post(b);
        if (status == KVCL_OK) {
            return; /* on_step runs again at its end */
        }
    }
}

/* Lock held. Count the keys that this rank holds, and check that the ids may be filled. */
static kvcl_status_t check_local(sbcast_t *b)
{
    kvcl_store_h store  = b->store;
    kvcl_owner_t *owner = b->cache->store;
    size_t       i;

    kvcl_assert_locked(store->ctx);
    for (i = 0; (owner != NULL) && (i < b->n); ++i) {
        if (owner->array[b->ids[i]].state != (owner->managed ? KVCL_SLOT_FILLING : KVCL_SLOT_FREE)) {
            return kvcl_fail(KVCL_ERR_BUSY, "kvcl_store_bcast: block %u of cache \"%s\" may not be filled: it is "
                             "published, or was not taken by the caller: take blocks with kvcl_store_alloc, or "
                             "withdraw it", b->ids[i], b->cache->name);
        }
        if (!kvcl_owner_allows(owner, b->ids[i], b->tenant)) {
            return kvcl_fail(KVCL_ERR_ACCESS, "kvcl_store_bcast: block %u of cache \"%s\" was not allocated by the "
                             "handle of tenant %llu: take blocks with kvcl_store_alloc", b->ids[i], b->cache->name,
                             (unsigned long long)b->tenant);
        }
    }
    b->own.n    = b->n;
    b->own.hash = kvcl_checksum(b->keys, b->n * sizeof(*b->keys));
    for (i = 0; i < b->n; ++i) {
        b->own.have += (kvcl_owner_find(store, &b->keys[i], NULL) != NULL) ? 1 : 0;
    }
    return KVCL_OK;
}

static sbcast_t *make(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache, const uint32_t *ids,
                      const kvcl_xfer_params_t *p)
{
    sbcast_t *b = calloc(1, sizeof(*b));

    if (b == NULL) {
        return NULL;
    }
    b->store       = store;
    b->cache       = cache;
    b->n           = n;
    b->each        = p->status;
    b->deadline_ns = kvcl_deadline_after(kvcl_timeout(store->ctx, p->timeout_ns));
    b->all         = calloc(store->n_ranks, sizeof(*b->all));
    b->keys        = malloc((n + 1) * sizeof(*keys));
    b->ids         = malloc((n + 1) * sizeof(*ids));
    if ((b->all == NULL) || (b->keys == NULL) || (b->ids == NULL)) {
        release(&b->req);
        return NULL;
    }
    if (n != 0) {
        memcpy(b->keys, keys, n * sizeof(*keys));
        memcpy(b->ids, ids, n * sizeof(*ids));
    }
    return b;
}

static kvcl_status_t spread(kvcl_store_h store, uint64_t tenant, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                            const uint32_t *ids, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_sel_t         sel    = {.blocks = ids, .n_blocks = n};
    kvcl_status_t      status = kvcl_store_check(store, keys, n, "kvcl_store_bcast");
    kvcl_xfer_params_t p;
    sbcast_t           *b;

    if ((status != KVCL_OK) || ((status = kvcl_xfer_params(params, KVCL_CALL_STORE_BCAST, &p)) != KVCL_OK) ||
        ((status = kvcl_xfer_local(store->ctx, cache, &sel, "kvcl_store_bcast")) != KVCL_OK)) {
        return status;
    }
    if (n == 0) {
        return kvcl_req_instant(store->ctx, KVCL_OK, 0, &p, req_p);
    }
    b = make(store, keys, n, cache, ids, &p);
    if (b == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_store_bcast: no memory for %zu blocks", n);
    }
    b->tenant = tenant;
    kvcl_lock(store->ctx);
    status = check_local(b);
    if (status == KVCL_OK) {
        status = kvcl_req_post(&b->req, store->ctx, &bcast_class, &p, req_p); /* the steps may complete it */
    }
    if (status != KVCL_OK) {
        kvcl_unlock(store->ctx);
        release(&b->req);
        return status;
    }
    ++store->ops;
    kvcl_unlock(store->ctx);
    status = post(b);
    if (status != KVCL_OK) {
        finish(b, status);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_store_bcast(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                               const uint32_t *ids, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_entry_t  entry;
    kvcl_status_t status = kvcl_store_enter(&store, &keys, n, "kvcl_store_bcast", &entry);

    if (status == KVCL_OK) {
        status = spread(store, kvcl_tenant_of(entry.tenant), keys, n, cache, ids, params, req_p);
    }
    kvcl_store_leave(&entry);
    return status;
}
