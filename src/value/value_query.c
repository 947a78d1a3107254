/*
 * Queries about values: the state machine of value_query.h.
 *
 * It gets the blocks under the head keys, a bounded number at a time, as a get does. Keys without a head may name plain
 * blocks, so it queries which ranks hold those. A removal then removes the keys and the head keys, and after that, in
 * the background, the parts that the heads name.
 *
 * Invariants: the callbacks on_got, on_unlocked and on_removed run without the lock and end with kvcl_call_over(), so
 * the query outlives them. A removal that has begun is not stopped; it has the call's deadline.
 * Lock: the engine lock where a comment says so; the caller's arrays are written under it, before the request ends.
 */
#include "config.h"
#include "base/error.h"
#include "store/get/gets.h"
#include "store/words.h"
#include "value/value_query.h"

#include <stdlib.h>

enum { HEADS_BYTES = 16 << 20 };

/* ---- heads: lock held, except in callbacks ---- */

static void on_got(void *arg, kvcl_status_t status)
{
    kvcl_vquery_t  *values = arg;
    kvcl_context_h ctx     = values->call.store->ctx;

    (void)status; /* each block has its own status */
    kvcl_lock(ctx);
    values->get = NULL;
    kvcl_call_over(&values->call);
    kvcl_unlock(ctx);
}

/* Get the blocks under the next head keys. False: the get could not begin. */
static bool get_heads(kvcl_vquery_t *values)
{
    kvcl_store_h  store = values->call.store;
    kvcl_status_t status;
    size_t        i;

    kvcl_assert_locked(store->ctx);
    values->some = (values->n - values->at < values->most) ? values->n - values->at : values->most;
    memset(values->recs, 0, values->some * sizeof(*values->recs));
    for (i = 0; i < values->some; ++i) {
        kvcl_store_value_key(&values->keys[values->at + i], &values->recs[i].key);
        values->ids[i] = (uint32_t)i;
    }
    kvcl_tenant_keys_at(values->tenant, values->recs, sizeof(values->recs[0]), values->some);
    ++values->call.outstanding;
    status = kvcl_get_recs(store, values->recs, values->some, &values->view.cache, values->ids,
                           values->status + values->at, NULL, kvcl_call_time_left(&values->call), false, NULL, on_got,
                           values, &values->get);
    if (status != KVCL_OK) {
        --values->call.outstanding;
        values->get    = NULL;
        values->failed = status;
        kvcl_req_keep_error(&values->call.req);
    }
    return status == KVCL_OK;
}

/* Read the heads that arrived. Keys without one are looked up next: they may name plain blocks. */
static void read_heads(kvcl_vquery_t *values)
{
    uint64_t         block = kvcl_value_block(values->call.store);
    const kvcl_key_t *keys = values->keys + values->at;
    kvcl_status_t    *status = values->status + values->at;
    bool             request;
    size_t           i, missing = 0;

    kvcl_assert_locked(values->call.store->ctx);
    for (i = 0; i < values->some; ++i) {
        if ((status[i] == KVCL_OK) &&
            !kvcl_value_head_read(values->buf + (i * block), block, &keys[i], &values->heads[values->at + i])) {
            status[i] = KVCL_ERR_NOT_FOUND;
        }
        missing += (status[i] == KVCL_ERR_NOT_FOUND) ? 1 : 0;
    }
    if (values->tenant != NULL) {
        memcpy(values->plain, keys, values->some * sizeof(*keys));
        kvcl_tenant_keys(values->tenant, values->plain, values->some);
        keys = values->plain;
    }
    values->find = (kvcl_find_t){.call = &values->call, .keys = keys, .n = (missing != 0) ? values->some : 0,
                                 .flags = values->flags, .found = values->found};
    memset(values->found, 0, values->some * sizeof(*values->found));
    (void)kvcl_find_here(values->call.store, keys, values->find.n, false, values->flags, values->found, &request);
}

/* Set the plain blocks. A key whose homes did not answer in time is absent, as in kvcl_locate. */
static void take_plain(kvcl_vquery_t *values)
{
    kvcl_status_t *status = values->status + values->at, found = values->find.status;
    uint64_t      block   = kvcl_value_block(values->call.store);
    size_t        i;
    unsigned      j;

    kvcl_assert_locked(values->call.store->ctx);
    for (i = 0; i < values->find.n; ++i) {
        for (j = 0; (status[i] == KVCL_ERR_NOT_FOUND) && (j < values->found[i].n); ++j) {
            if (values->found[i].locs[j].len == block) {
                values->heads[values->at + i] = (kvcl_value_head_t){.bytes = block,
                                                                      .key = values->keys[values->at + i]};
                status[i]                     = KVCL_OK;
            }
        }
    }
    if ((found != KVCL_OK) && (found != KVCL_ERR_TIMED_OUT)) {
        values->failed = found;
    }
    kvcl_find_free(&values->find);
    values->find.n = 0;
    values->at += values->some;
}

/* ---- removal ---- */

/* An internal request that is complete at once, so that its callback runs without the lock. */
static const kvcl_req_class_t unlocked_class = {.name = "store-values"};

static void on_removed(void *arg, kvcl_status_t status)
{
    kvcl_vquery_t  *values = arg;
    kvcl_store_h   store   = values->call.store;
    kvcl_context_h ctx     = store->ctx;
    size_t         i;

    for (i = 0; (status == KVCL_OK) && (i < values->n); ++i) {
        if (values->status[i] == KVCL_OK) {
            kvcl_value_drop_parts(store, values->tenant, &values->heads[i]);
        }
    }
    kvcl_lock(ctx);
    values->failed = status;
    if (status != KVCL_OK) {
        kvcl_req_keep_error(&values->call.req);
    }
    kvcl_call_over(&values->call);
    kvcl_unlock(ctx);
}

static void on_unlocked(void *arg, kvcl_status_t status)
{
    kvcl_vquery_t      *values = arg;
    kvcl_xfer_params_t p       = {.size = sizeof(p), .cb = on_removed, .cb_arg = values};

    p.timeout_ns = kvcl_call_time_left(&values->call);
    status       = (status == KVCL_OK) ? kvcl_store_remove(values->call.store, values->both, 2 * values->n, &p, NULL)
                                       : status;
    if (status != KVCL_OK) {
        on_removed(values, status);
    }
}

/* Lock held. Start the removal; false: it could not begin. */
static bool begin_removal(kvcl_vquery_t *values)
{
    kvcl_context_h ctx  = values->call.store->ctx;
    kvcl_req_t     *req = calloc(1, sizeof(*req));
    size_t         i;

    kvcl_assert_locked(ctx);
    for (i = 0; i < values->n; ++i) {
        values->both[2 * i] = values->keys[i];
        kvcl_store_value_key(&values->keys[i], &values->both[(2 * i) + 1]);
    }
    kvcl_tenant_keys(values->tenant, values->both, 2 * values->n);
    values->failed = (req == NULL) ? KVCL_ERR_NO_MEMORY
                                   : kvcl_req_start(req, ctx, &unlocked_class, 0, on_unlocked, values, false);
    if (values->failed != KVCL_OK) {
        free(req);
        return false;
    }
    ++values->call.outstanding;
    kvcl_req_complete(req, KVCL_OK);
    return true;
}

/* ---- the call: lock held ---- */

static bool next(kvcl_call_t *call)
{
    kvcl_vquery_t *values = kvcl_container_of(call, kvcl_vquery_t, call);

    while (values->failed == KVCL_OK) {
        switch (values->state) {
        case KVCL_VQUERY_BEGIN:
            if (values->at < values->n) {
                values->state = KVCL_VQUERY_GOT;
                return get_heads(values);
            }
            values->state = (values->about == KVCL_VQUERY_REMOVE) ? KVCL_VQUERY_REMOVAL : KVCL_VQUERY_OVER;
            break;
        case KVCL_VQUERY_GOT:
            read_heads(values);
            values->state = KVCL_VQUERY_FIND;
            break;
        case KVCL_VQUERY_FIND:
            if (kvcl_find_round(&values->find)) {
                return true;
            }
            take_plain(values);
            values->state = KVCL_VQUERY_BEGIN;
            break;
        case KVCL_VQUERY_REMOVAL:
            values->state = KVCL_VQUERY_OVER;
            return begin_removal(values);
        case KVCL_VQUERY_OVER:
            return false;
        }
    }
    return false;
}

/* The call is stopped, and with it the get of heads. */
static void halt(kvcl_call_t *call)
{
    kvcl_vquery_t *values = kvcl_container_of(call, kvcl_vquery_t, call);

    if ((values->get != NULL) && !kvcl_req_is_done(values->get)) {
        values->get->cls->stop(values->get, KVCL_ERR_CANCELED);
    }
}

static kvcl_status_t give_keys(kvcl_vquery_t *values)
{
    const kvcl_value_head_t *head = &values->heads[0];
    kvcl_key_t              seed;
    uint64_t                n = 1 + head->parts, i;

    *values->n_p = (size_t)n;
    if (values->cap != 0) {
        values->user_keys[0] = values->keys[0];
    }
    if (!kvcl_value_is_plain(head)) {
        kvcl_value_seed(head, &seed);
        for (i = 0; (i < values->cap) && (i < n); ++i) {
            if (i == 0) {
                kvcl_store_value_key(&values->keys[0], &values->user_keys[0]);
            } else {
                kvcl_value_part_key(&seed, i - 1, &values->user_keys[i]);
            }
        }
    }
    if (n > values->cap) {
        kvcl_req_why(&values->call.req, "the value has %llu blocks, and cap is %zu: give room for all",
                     (unsigned long long)n, values->cap);
        return KVCL_ERR_NO_SPACE;
    }
    return KVCL_OK;
}

/* The status of the first absent value is the request's, except for a removal. */
static kvcl_status_t first_failed(kvcl_vquery_t *values)
{
    size_t i;

    for (i = 0; (i < values->n) && (values->status[i] == KVCL_OK); ++i) {
    }
    if (i == values->n) {
        return KVCL_OK;
    }
    kvcl_req_why(&values->call.req, "value %zu of %zu, key %016llx...: %s", i, values->n,
                 kvcl_key_prefix(&values->keys[i]),
                 (values->status[i] == KVCL_ERR_NOT_FOUND) ? "no rank has it: put it"
                                                           : kvcl_status_text(values->status[i]));
    return values->status[i];
}

static kvcl_status_t end(kvcl_call_t *call)
{
    kvcl_vquery_t *values = kvcl_container_of(call, kvcl_vquery_t, call);
    kvcl_status_t status  = (call->stopped != KVCL_OK) ? call->stopped : values->failed;
    size_t        i;

    for (i = values->at; (status != KVCL_OK) && (i < values->n); ++i) {
        values->status[i] = status;
    }
    for (i = 0; i < values->n; ++i) {
        if (values->user_bytes != NULL) {
            values->user_bytes[i] = (values->status[i] == KVCL_OK) ? values->heads[i].bytes : 0;
        }
        if (values->user_heads != NULL) {
            values->user_heads[i] = values->heads[i];
        }
        if (values->user_status != NULL) {
            values->user_status[i] = values->status[i];
        }
    }
    if ((status != KVCL_OK) || (values->about == KVCL_VQUERY_REMOVE)) {
        return status;
    }
    status = (values->about == KVCL_VQUERY_HEADS) ? KVCL_OK : first_failed(values);
    return ((status == KVCL_OK) && (values->about == KVCL_VQUERY_KEYS)) ? give_keys(values) : status;
}

static void destroy(kvcl_call_t *call)
{
    kvcl_vquery_t *values = kvcl_container_of(call, kvcl_vquery_t, call);

    kvcl_find_free(&values->find);
    kvcl_tenant_release(values->tenant);
    free(values->buf);
    free(values);
}

/* ---- kvcl_vquery_new: no lock ---- */

kvcl_vquery_t *kvcl_vquery_new(kvcl_store_h store, kvcl_store_tenant_t *tenant, const kvcl_key_t *keys, size_t n,
                               kvcl_vquery_about_t about)
{
    uint64_t      block  = kvcl_value_block(store), most = (block != 0) ? HEADS_BYTES / block : 0;
    size_t        remove = (about == KVCL_VQUERY_REMOVE) ? 2 * n : 0, plain, i;
    kvcl_vquery_t *values;

    most   = (most == 0) ? 1 : (most < n) ? most : n;
    plain  = (tenant != NULL) ? most : 0;
    values = calloc(1, sizeof(*values) + (most * (sizeof(*values->found) + sizeof(*values->recs))) +
                           (n * (sizeof(*values->heads) + sizeof(*values->keys))) +
                           ((remove + plain) * sizeof(*values->both)) + (n * sizeof(*values->status)) +
                           (most * (sizeof(*values->ids) + 1)));
    if (values == NULL) {
        return NULL;
    }
    values->heads  = (kvcl_value_head_t *)(void *)(values + 1);
    values->keys   = (kvcl_key_t *)(void *)(values->heads + n);
    values->both   = values->keys + n;
    values->plain  = values->both + remove;
    values->recs   = (kvcl_store_rec_t *)(void *)(values->plain + plain);
    values->found  = (kvcl_found_t *)(void *)(values->recs + most);
    values->status = (kvcl_status_t *)(void *)(values->found + most);
    values->ids    = (uint32_t *)(void *)(values->status + n);
    values->flags  = (uint8_t *)(values->ids + most);
    values->buf    = malloc((most * block) + 1);
    values->about  = about;
    values->tenant = kvcl_tenant_hold(tenant);
    values->n      = n;
    values->most   = most;
    values->at     = (block != 0) ? 0 : n;
    for (i = 0; i < n; ++i) {
        values->keys[i]   = keys[i];
        values->status[i] = KVCL_ERR_NOT_FOUND;
    }
    values->view.base  = (uintptr_t)values->buf;
    values->view.cache = (struct kvcl_cache){.ctx = store->ctx, .name = "plain memory", .bases = &values->view.base};
    values->call.next  = next;
    values->call.end   = end;
    values->call.halt  = halt;
    values->call.free  = destroy;
    if ((values->buf == NULL) || ((block != 0) && (kvcl_view_shape(block, &values->view.cache.shape) != KVCL_OK))) {
        destroy(&values->call);
        return NULL;
    }
    return values;
}
