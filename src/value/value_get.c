/*
 * Gets of values: in rounds, each of one or a few gets of blocks (get/get_rounds.c).
 *
 * A round takes blocks of as many values as there is room for: first the block under a value's own key (a plain block)
 * or under its head's key; then, of values with parts, all parts at once, from all ranks that hold them. A block whose
 * destination is contiguous in the user's memory is fetched straight into it, by a view (value.h) for all memory of its
 * alignment. Heads, ends, and blocks that extents cut go through a buffer.
 *
 * One thread at a time runs a get, without the lock: the caller's, then the thread that ends a round's last get
 * (outstanding, under the lock). The get becomes a request when a round cannot be done inside the call. The request
 * completes when no get of blocks is left, so nothing is written afterwards.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "value/value_get.h"
#include "store/get/gets.h"
#include "store/words.h"
#include "xfer/params.h"

#include <stdio.h>
#include <stdlib.h>

enum { BOUNCE_BYTES = 32 << 20 };

static void destroy(kvcl_vget_t *get)
{
    free(get->bounce);
    free(get->items);
    free(get->recs);
    kvcl_tenant_release(get->tenant);
    free(get);
}

static void release(kvcl_req_t *req)
{
    destroy(kvcl_container_of(req, kvcl_vget_t, req));
}

static void stop(kvcl_req_t *req, kvcl_status_t status)
{
    kvcl_vget_t *get = kvcl_container_of(req, kvcl_vget_t, req);
    unsigned    i;

    get->stopping = (get->stopping == KVCL_OK) ? status : get->stopping;
    for (i = 0; i <= KVCL_VGET_VIEWS_MAX; ++i) { /* n_groups may be changing */
        if ((get->groups[i].req != NULL) && !kvcl_req_is_done(get->groups[i].req)) {
            get->groups[i].req->cls->stop(get->groups[i].req, status);
        }
    }
}

static const char absent[] = "kvcl_store_get_values: %llu of %llu values " KVCL_WORDS_ABSENT;

/* The first that failed; n: none. */
static size_t first_failed(const kvcl_vget_t *get, size_t *failed_p)
{
    size_t first = get->n, i;

    *failed_p = 0;
    for (i = get->n; i-- > 0;) {
        if ((get->ones[i].state != KVCL_VGET_DONE) || (get->ones[i].why != KVCL_OK)) {
            first = i;
            ++*failed_p;
        }
    }
    return first;
}

static void describe(const kvcl_req_t *req, char *buf, size_t cap)
{
    const kvcl_vget_t *get = kvcl_container_of((kvcl_req_t *)req, kvcl_vget_t, req);
    size_t            failed, first = first_failed(get, &failed);

    if (first == get->n) {
        snprintf(buf, cap, "kvcl_store_get_values of %zu values", get->n);
    } else {
        snprintf(buf, cap, "kvcl_store_get_values of %zu values, %zu failed, the first is number %zu of %llu "
                 "bytes, key %016llx...", get->n, failed, first, (unsigned long long)get->ones[first].bytes,
                 kvcl_key_prefix(&get->ones[first].key));
    }
}

static bool explain(const kvcl_req_t *req, kvcl_status_t status, char *buf, size_t cap)
{
    (void)req;
    return kvcl_store_explain(status, buf, cap);
}

static const kvcl_req_class_t vget_class = {
    .name = "store-get-values", .stop = stop, .release = release, .describe = describe, .explain = explain};

/* ---- running ---- */

static kvcl_status_t run(kvcl_vget_t *get);
static kvcl_status_t finish(kvcl_vget_t *get, kvcl_status_t stopped);

static void on_got(void *arg, kvcl_status_t status)
{
    kvcl_vget_group_t *group = arg;
    kvcl_vget_t       *get   = group->get;
    kvcl_context_h    ctx    = get->store->ctx;
    kvcl_status_t     stopped;
    bool              last;

    (void)status; /* each block has its own status */
    kvcl_lock(ctx);
    group->req = NULL;
    last       = (--get->outstanding == 0);
    stopped    = get->stopping;
    kvcl_unlock(ctx);
    if (last && (stopped != KVCL_OK)) {
        (void)!finish(get, stopped); /* some gets of the round may never have begun */
    } else if (last) {
        kvcl_vget_take_round(get);
        (void)!run(get); /* it is a request by now, and carries the status */
    }
}

/* Inside the call, without a request. */
static void get_now(kvcl_vget_t *get, kvcl_vget_group_t *group)
{
    kvcl_status_t *statuses[2] = {get->got + group->first, NULL}, final;
    kvcl_key_t    few[64];
    uint32_t      i;

    if (get->again || (group->n > sizeof(few) / sizeof(few[0])) ||
        (group->n > get->store->ctx->config.inline_copy / get->block)) {
        return;
    }
    for (i = 0; i < group->n; ++i) {
        few[i] = get->recs[group->first + i].key;
    }
    group->done = kvcl_get_now(get->store, few, group->n, &group->view.cache, get->ids + group->first, statuses,
                               NULL, get->tenant, &final);
}

/* Lock held. Post the gets of the round that get_now() did not do. */
static void post(kvcl_vget_t *get)
{
    kvcl_status_t     status = KVCL_OK;
    kvcl_vget_group_t *group;
    unsigned          i;

    kvcl_assert_locked(get->store->ctx);
    for (i = 0; (i < get->n_groups) && (status == KVCL_OK) && (get->stopping == KVCL_OK); ++i) {
        group = &get->groups[i];
        if (group->done || (group->n == 0)) {
            continue;
        }
        group->get = get;
        ++get->outstanding;
        status = kvcl_get_recs(get->store, get->recs + group->first, group->n, &group->view.cache,
                               get->ids + group->first, get->got + group->first,
                               (i == 0) ? get->from : NULL,
                               kvcl_deadline_left(get->deadline_ns) + 1, true, get->tenant, on_got, group,
                               &group->req);
        if (status != KVCL_OK) {
            --get->outstanding;
            group->req = NULL;
        }
    }
    if (status != KVCL_OK) {
        stop(&get->req, status);
    }
}

/* stopped: the status of values that are not done. */
static kvcl_status_t finish(kvcl_vget_t *get, kvcl_status_t stopped)
{
    kvcl_context_h ctx    = get->store->ctx;
    kvcl_status_t  first  = KVCL_OK, why;
    kvcl_xfer_params_t p  = get->params;
    kvcl_req_h     *req_p = get->req_p;
    uint64_t       bytes  = 0;
    size_t         i, at, failed;
    char           what[256];

    for (i = 0; i < get->n; ++i) {
        why   = (get->ones[i].state == KVCL_VGET_DONE) ? get->ones[i].why : stopped;
        first = (first == KVCL_OK) ? why : first;
        bytes += (why == KVCL_OK) ? get->ones[i].bytes : 0;
        if (get->statuses[0] != NULL) {
            get->statuses[0][i] = why;
        }
        if (get->statuses[1] != NULL) {
            get->statuses[1][i] = why;
        }
    }
    if (!get->started) {
        if (first == KVCL_ERR_NOT_FOUND) {
            at = first_failed(get, &failed);
            (void)kvcl_store_absent(absent, failed, get->n, at, &get->ones[at].key);
        } else if (first != KVCL_OK) {
            describe(&get->req, what, sizeof(what));
            (void)kvcl_fail(first, "%s: %s", what, kvcl_status_text(first));
        }
        destroy(get);
        return kvcl_req_instant(ctx, first, bytes, &p, req_p);
    }
    kvcl_lock(ctx);
    --get->store->ops;
    get->req.timing.bytes = bytes;
    kvcl_req_complete(&get->req, first);
    kvcl_unlock(ctx);
    return KVCL_OK;
}

/* Lock held. */
static kvcl_status_t start(kvcl_vget_t *get)
{
    kvcl_status_t status = KVCL_OK;

    kvcl_assert_locked(get->store->ctx);
    if (!get->started) {
        get->params.timeout_ns = kvcl_deadline_left(get->deadline_ns) + 1;
        status                 = kvcl_req_post(&get->req, get->store->ctx, &vget_class, &get->params, get->req_p);
        get->started           = (status == KVCL_OK);
        get->store->ops       += get->started ? 1 : 0;
    }
    return status;
}

/* Lock held. Start the gets of a round that were not done inside the call; returns how many are in flight. */
static unsigned start_left(kvcl_vget_t *get, kvcl_status_t status, unsigned left)
{
    kvcl_assert_locked(get->store->ctx);
    status = ((status == KVCL_OK) && (left != 0)) ? start(get) : status;
    if (status != KVCL_OK) {
        get->stopping = (get->stopping == KVCL_OK) ? status : get->stopping;
    }
    if ((left == 0) || (get->stopping != KVCL_OK)) {
        return 0;
    }
    get->outstanding = 1;
    post(get);
    return --get->outstanding;
}

/* Run rounds until one is in flight or none is left; may free the get. */
static kvcl_status_t run(kvcl_vget_t *get)
{
    kvcl_context_h ctx = get->store->ctx;
    kvcl_status_t  status, stopped = KVCL_OK;
    unsigned       i, left, in_flight;

    do {
        status = kvcl_vget_round(get);
        if ((status == KVCL_OK) && (get->n_items == 0)) {
            break;
        }
        atomic_fetch_add_explicit(&get->store->counts.gets, get->n_items, memory_order_relaxed);
        if (get->tenant != NULL) {
            atomic_fetch_add_explicit(&get->tenant->counts.gets, get->n_items, memory_order_relaxed);
        }
        for (i = 0, left = 0; (status == KVCL_OK) && (i < get->n_groups); ++i) {
            if (get->groups[i].n != 0) {
                get_now(get, &get->groups[i]);
                left += get->groups[i].done ? 0 : 1;
            }
        }
        kvcl_lock(ctx);
        in_flight = start_left(get, status, left);
        stopped   = get->stopping;
        kvcl_unlock(ctx);
        if (in_flight != 0) {
            return KVCL_OK; /* the last of them continues */
        }
        if (stopped == KVCL_OK) {
            kvcl_vget_take_round(get);
        }
    } while (stopped == KVCL_OK);
    return finish(get, stopped);
}

/* ---- the call ---- */

static kvcl_status_t make(kvcl_store_h store, const kvcl_key_t *keys, size_t n, const kvcl_value_t *values,
                          kvcl_vget_t **get_p)
{
    size_t        n_extents = 0, i;
    bool          split     = false;
    kvcl_extent_t *extents;
    kvcl_vget_t   *get;
    uint64_t      room;

    for (i = 0; i < n; ++i) {
        n_extents += values[i].n_extents;
        split = split || (values[i].n_extents > 1);
    }
    get = calloc(1, sizeof(*get) + (n * sizeof(get->ones[0])) + (n_extents * sizeof(*extents)));
    if (get == NULL) {
        return KVCL_ERR_NO_MEMORY;
    }
    extents    = (kvcl_extent_t *)(void *)&get->ones[n];
    get->store = store;
    get->n     = n;
    get->block = kvcl_value_block(store);
    for (i = 0; i < n; ++i) {
        kvcl_vget_one_t *one = &get->ones[i];
        one->key   = keys[i];
        one->value = (kvcl_value_t){.extents = extents, .n_extents = values[i].n_extents};
        if (values[i].n_extents != 0) {
            memcpy(extents, values[i].extents, values[i].n_extents * sizeof(*extents));
        }
        extents += values[i].n_extents;
        (void)kvcl_value_bytes(&one->value, &one->bytes);
    }
    room             = BOUNCE_BYTES / get->block;
    room             = (room == 0) ? 1 : room;
    get->bounce_room = (uint32_t)((split || (room < n)) ? room : n);
    get->bounce      = malloc(get->bounce_room * get->block);
    get->n_groups    = 1;
    if ((get->bounce == NULL) || (kvcl_view_shape(get->block, &get->shape) != KVCL_OK)) {
        destroy(get);
        return KVCL_ERR_NO_MEMORY;
    }
    get->groups[0].view.base = (uintptr_t)get->bounce;
    get->groups[0].view.cache = (struct kvcl_cache){.ctx = store->ctx, .name = "plain memory", .shape = get->shape,
                                                    .bases = &get->groups[0].view.base};
    *get_p = get;
    return KVCL_OK;
}

static kvcl_status_t get_values(kvcl_store_h store, kvcl_store_tenant_t *tenant, const kvcl_key_t *keys, size_t n,
                                const kvcl_value_t *values, kvcl_status_t *status, const kvcl_xfer_params_t *params,
                                kvcl_req_h *req_p)
{
    const char         *call  = "kvcl_store_get_values";
    kvcl_status_t      result = kvcl_store_check(store, keys, n, call);
    kvcl_xfer_params_t p;
    uint64_t           bytes;
    kvcl_vget_t        *get;
    size_t             i;

    if ((result != KVCL_OK) || ((result = kvcl_xfer_params(params, KVCL_CALL_STORE_GET_VALUES, &p)) != KVCL_OK)) {
        return result;
    }
    for (i = 0; i < n; ++i) {
        if ((values == NULL) || !kvcl_value_bytes(&values[i], &bytes)) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: value %zu has an extent that is NULL or too long", call, i);
        }
    }
    if (n > UINT32_MAX / 2) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %zu values are too many for one call", call, n);
    }
    if (n == 0) {
        return kvcl_req_instant(store->ctx, KVCL_OK, 0, &p, req_p);
    }
    if (kvcl_value_block(store) == 0) { /* no rank can have put one */
        for (i = 0; i < n; ++i) {
            if (status != NULL) {
                status[i] = KVCL_ERR_NOT_FOUND;
            }
            if (p.status != NULL) {
                p.status[i] = KVCL_ERR_NOT_FOUND;
            }
        }
        result = kvcl_store_absent(absent, n, n, 0, keys);
        return kvcl_req_instant(store->ctx, result, 0, &p, req_p);
    }
    result = make(store, keys, n, values, &get);
    if (result != KVCL_OK) {
        return kvcl_fail(result, "%s: no memory for %zu values", call, n);
    }
    get->tenant      = kvcl_tenant_hold(tenant);
    get->statuses[0] = status;
    get->statuses[1] = p.status;
    get->params      = p;
    get->req_p       = req_p;
    get->deadline_ns = kvcl_deadline_after(kvcl_timeout(store->ctx, p.timeout_ns));
    return run(get);
}

kvcl_status_t kvcl_store_get_values(kvcl_store_h store, const kvcl_key_t *keys, size_t n, const kvcl_value_t *values,
                                    kvcl_status_t *status, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_entry_t  entry;
    kvcl_status_t result = kvcl_store_enter(&store, NULL, 0, "kvcl_store_get_values", &entry);

    if (result == KVCL_OK) {
        result = get_values(store, entry.tenant, keys, n, values, status, params, req_p);
    }
    kvcl_store_leave(&entry);
    return result;
}

kvcl_status_t kvcl_store_get_value(kvcl_store_h store, const kvcl_key_t *key, void *buf, size_t bytes,
                                   const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_extent_t extent = {.addr = buf, .bytes = bytes};
    kvcl_value_t  value  = {.extents = &extent, .n_extents = 1};

    return kvcl_store_get_values(store, key, 1, &value, NULL, params, req_p);
}
