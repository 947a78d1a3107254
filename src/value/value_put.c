/*
 * Puts and upserts of values: parts first, inside the call; then the blocks under the values' own keys, by which a
 * value is found, as a put of blocks (copy/chain.c). So a get that finds a head finds parts that were acknowledged
 * before it.
 *
 * An upsert first reads the heads that it replaces, so that their parts can be removed once no head names them any
 * more. A put that fails before its heads are published removes the parts that it has put.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/rand.h"
#include "store/admin/ops.h"
#include "store/copy/chain.h"
#include "value/value_put.h"
#include "xfer/params.h"

#include <stdlib.h>

static kvcl_value_work_t *make(kvcl_store_h store, size_t n)
{
    kvcl_value_work_t *work = calloc(1, sizeof(*work) + (n * (sizeof(*work->recs) + (2 * sizeof(*work->heads)) +
                                                   sizeof(*work->found) + (2 * sizeof(*work->item)) + 1)));

    if (work != NULL) {
        kvcl_value_put_init(&work->put, store);
        work->n      = n;
        work->block  = kvcl_value_block(store);
        work->recs   = (kvcl_store_rec_t *)(void *)(work + 1);
        work->heads  = (kvcl_value_head_t *)(void *)(work->recs + n);
        work->before = work->heads + n;
        work->found  = (kvcl_status_t *)(void *)(work->before + n);
        work->item   = (uint32_t *)(void *)(work->found + n);
        work->slots  = work->item + n;
        work->skip   = (uint8_t *)(work->slots + n);
    }
    return work;
}

/* ---- filling ---- */

static kvcl_value_holds_t own_block(void *arg, size_t i)
{
    const kvcl_value_work_t *work = arg;
    const kvcl_value_head_t *head = &work->heads[work->item[i]];

    return (kvcl_value_holds_t){.head  = kvcl_value_is_plain(head) ? NULL : head,
                                .at    = {.value = &work->values[work->item[i]]},
                                .bytes = (head->parts == 0) ? head->bytes : 0};
}

/* Fill the blocks of the values' own keys; they are not published yet. */
static kvcl_status_t fill_new(kvcl_value_work_t *work)
{
    kvcl_status_t status;
    size_t        i;

    for (i = 0; i < work->n; ++i) {
        if (!work->skip[i]) {
            kvcl_value_own_key(work, i, &work->recs[work->n_new].key);
            work->item[work->n_new++] = (uint32_t)i;
        }
    }
    status = kvcl_value_take(&work->put, work->n_new, work->slots);
    if (status != KVCL_OK) {
        return kvcl_value_puts_failed(status, work->call, "the heads", work->n_new);
    }
    kvcl_value_fill(work->put.store, work->slots, work->n_new, own_block, work, work->recs);
    return KVCL_OK;
}

/* Lock held. Publish what fill_new filled; returns how many. */
static size_t publish_new(kvcl_value_work_t *work)
{
    kvcl_store_h store = work->put.store;
    size_t       i;

    kvcl_assert_locked(store->ctx);
    for (i = 0; i < work->n_new; ++i) {
        if (work->instead) {
            (void)kvcl_discard_key(store, &work->recs[i].key); /* a block that was published here since */
        } else {
            kvcl_value_withdraw(store, &work->recs[i].key);
        }
    }
    return kvcl_value_publish(&work->put, work->slots, work->n_new, work->recs, work->item);
}

static void set_copies(const kvcl_value_work_t *work, uint8_t *copies)
{
    size_t i;

    for (i = 0; (copies != NULL) && (i < work->n); ++i) {
        copies[i] = (uint8_t)(work->skip[i] ? work->put.copies : 1); /* copy/chain.c counts those of new blocks */
    }
}

/* ---- a put ---- */

static kvcl_status_t put_parts(kvcl_value_work_t *work)
{
    kvcl_status_t status = KVCL_OK;
    size_t        i;

    for (i = 0; (status == KVCL_OK) && (i < work->n); ++i) {
        if (!work->skip[i] && (work->heads[i].parts != 0)) {
            status = kvcl_value_put_parts(&work->put, &work->heads[i], &work->values[i]);
            status = (status == KVCL_OK) ? KVCL_OK
                                         : kvcl_value_put_failed(status, work->call, i, work->n, &work->heads[i]);
        }
    }
    if (status == KVCL_OK) {
        status = kvcl_value_parts_wait(&work->put);
        status = (status == KVCL_OK) ? KVCL_OK : kvcl_value_puts_failed(status, work->call, "the parts", work->n);
    }
    return status;
}

static uint64_t bytes_new(const kvcl_value_work_t *work)
{
    uint64_t bytes = 0;
    size_t   i;

    for (i = 0; i < work->n; ++i) {
        bytes += work->skip[i] ? 0 : work->heads[i].bytes;
    }
    return bytes;
}

/* Publish and list the blocks under the values' own keys, and have them copied. If other ranks are to have copies,
 * parts stay pinned until these have the heads: a copy of a head must not evict the parts that it names. */
static kvcl_status_t list_new(kvcl_value_work_t *work, const kvcl_xfer_params_t *p, kvcl_req_h *req_p)
{
    kvcl_store_h        store  = work->put.store;
    kvcl_xfer_params_t  inner  = *p;
    const kvcl_timing_t timing = {.bytes = bytes_new(work)};
    const bool          waits  = (work->put.copies > 1) && !kvcl_list_is_empty(&work->put.kept);
    kvcl_status_t       status = KVCL_OK;
    kvcl_req_h          req    = NULL;
    size_t              n;

    if (waits) {
        inner.cb     = NULL;
        inner.cb_arg = NULL;
        inner.queue  = NULL;
    }
    kvcl_lock(store->ctx);
    n = publish_new(work);
    if (n != 0) {
        status = kvcl_chain_start(store->value_pool, work->recs, work->item, n, work->put.copies,
                                  waits ? NULL : &timing, &inner, waits ? &req : req_p);
    }
    kvcl_unlock(store->ctx);
    if ((status != KVCL_OK) || ((n != 0) && !waits)) {
        return status;
    }
    status = (n != 0) ? kvcl_req_wait(req, KVCL_WAIT_FOREVER) : KVCL_OK; /* it has its deadline */
    return kvcl_req_instant(store->ctx, status, (status == KVCL_OK) ? timing.bytes : 0, p, req_p);
}

static kvcl_status_t put_all(kvcl_value_work_t *work, const kvcl_key_t *keys, const kvcl_xfer_params_t *params,
                             kvcl_req_h *req_p)
{
    kvcl_xfer_params_t p      = *params;
    bool               filled = false;
    kvcl_sentence_t    why    = {0};
    kvcl_status_t      status;
    size_t             i;

    kvcl_value_check_pool(work);
    kvcl_value_read_before(work, keys);
    status = put_parts(work);
    if (status == KVCL_OK) {
        status = fill_new(work);
        filled = (status == KVCL_OK);
    }
    if (status == KVCL_OK) {
        status = kvcl_value_leave_old(work);
    }
    if (status != KVCL_OK) {
        kvcl_sentence_keep(&why); /* the steps below may fail as well */
        kvcl_value_parts_end(&work->put);
        if (filled) {
            kvcl_value_return(work->put.store, work->slots, work->n_new);
        }
        for (i = 0; i < work->n; ++i) {
            if (!work->skip[i] && (work->heads[i].parts != 0)) {
                kvcl_value_drop_parts(work->put.store, work->put.for_tenant, &work->heads[i]);
            }
        }
        kvcl_sentence_report(&why);
        kvcl_sentence_free(&why);
        return status;
    }
    for (i = 0; (p.status != NULL) && (i < work->n); ++i) {
        p.status[i] = KVCL_OK;
    }
    p.status     = NULL;
    p.timeout_ns = kvcl_deadline_left(work->put.deadline_ns) + 1;
    set_copies(work, p.copies);
    status = list_new(work, &p, req_p);
    if (status != KVCL_OK) {
        kvcl_sentence_keep(&why);
    }
    kvcl_value_drop_old(work);
    kvcl_value_parts_end(&work->put);
    kvcl_sentence_report(&why);
    kvcl_sentence_free(&why);
    return status;
}

/* ---- the calls ---- */

/* Make the heads of the new values. */
static kvcl_status_t check_values(kvcl_value_work_t *work, const kvcl_key_t *keys)
{
    uint8_t       nonce[KVCL_VALUE_NONCE_BYTES];
    kvcl_status_t status = KVCL_OK;
    uint64_t      bytes, seed;
    size_t        i;

    for (i = 0; (i < work->n) && (status == KVCL_OK); ++i) {
        if (!kvcl_value_bytes(&work->values[i], &bytes)) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: value %zu has an extent that is NULL or too long", work->call,
                             i);
        }
        if (bytes == work->block) {
            work->heads[i] = (kvcl_value_head_t){.bytes = bytes, .key = keys[i]};
            continue;
        }
        if (work->block < sizeof(work->heads[i])) {
            return kvcl_fail(KVCL_ERR_UNSUPPORTED, "%s: value %zu of %llu bytes: blocks of %llu have no room for a "
                             "head", work->call, i, (unsigned long long)bytes, (unsigned long long)work->block);
        }
        if (kvcl_value_parts(bytes, work->block) > KVCL_VALUE_PARTS_MAX) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: value %zu of %llu bytes has more than %llu blocks of %llu",
                             work->call, i, (unsigned long long)bytes, (unsigned long long)KVCL_VALUE_PARTS_MAX,
                             (unsigned long long)work->block);
        }
        status = kvcl_random_bytes(nonce, sizeof(nonce));
        if (status != KVCL_OK) {
            return kvcl_fail(status, "%s: no random bytes for value %zu: %s", work->call, i, kvcl_last_error());
        }
        kvcl_value_head_make(&keys[i], bytes, work->block, nonce, &work->heads[i]);
        memcpy(&seed, nonce, sizeof(seed));
        work->put.holder = seed;
    }
    return status;
}

static kvcl_status_t check(kvcl_store_h store, const kvcl_key_t *keys, size_t n, const kvcl_value_t *values,
                           const kvcl_xfer_params_t *params, kvcl_call_id_t which, kvcl_xfer_params_t *p)
{
    const char    *call  = kvcl_call_name(which);
    kvcl_status_t status = kvcl_store_check(store, keys, n, call);

    if (status == KVCL_OK) {
        status = kvcl_xfer_params(params, which, p);
    }
    if (status != KVCL_OK) {
        return status;
    }
    if ((values == NULL) && (n != 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: an array of %zu values is NULL", call, n);
    }
    if (p->replicas > KVCL_DIR_LOCS_MAX) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: replicas is %llu, at most %d", call,
                         (unsigned long long)p->replicas, KVCL_DIR_LOCS_MAX);
    }
    if (n > UINT32_MAX / 2) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %zu values are too many for one call", call, n);
    }
    if (kvcl_value_block(store) == 0) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "%s: no rank of the store has a pool: open one with dram_bytes", call);
    }
    return KVCL_OK;
}

static kvcl_status_t put_all_of(kvcl_store_h store, kvcl_store_tenant_t *tenant, const kvcl_key_t *keys, size_t n,
                                const kvcl_value_t *values, const kvcl_xfer_params_t *params, bool instead,
                                kvcl_req_h *req_p)
{
    kvcl_call_id_t     which = instead ? KVCL_CALL_STORE_UPSERT_VALUES : KVCL_CALL_STORE_PUT_VALUES;
    const char         *call = kvcl_call_name(which);
    kvcl_xfer_params_t p;
    kvcl_status_t      status = check(store, keys, n, values, params, which, &p);
    kvcl_value_far_t   far;
    kvcl_value_work_t  *work;

    status = (status == KVCL_OK) ? kvcl_tenant_number(tenant, &p.tenant, call) : status;
    if ((status != KVCL_OK) || (n == 0)) {
        return (status != KVCL_OK) ? status : kvcl_req_instant(store->ctx, KVCL_OK, 0, &p, req_p);
    }
    work = make(store, n);
    if (work == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for %zu values", call, n);
    }
    work->call            = call;
    work->values          = values;
    work->instead         = instead;
    work->put.copies      = (unsigned)((p.replicas != 0) ? p.replicas : store->replicas);
    work->put.for_tenant  = tenant;
    work->put.tenant      = p.tenant;
    work->put.flags       = p.flags;
    work->put.deadline_ns = kvcl_deadline_after(kvcl_timeout(store->ctx, p.timeout_ns));
    status                = check_values(work, keys);
    if (status == KVCL_OK) {
        status = kvcl_store_hold(store);
        if (status == KVCL_OK) {
            far    = (kvcl_value_far_t){.call = call, .values = values, .heads = work->heads, .n = n,
                                        .instead = instead, .params = &p, .for_tenant = tenant};
            status = (store->value_pool != NULL) ? put_all(work, keys, &p, req_p)
                                                 : kvcl_value_put_far(store, &far, work->put.deadline_ns, req_p);
            kvcl_store_release(store);
        }
    }
    free(work);
    return status;
}

static kvcl_status_t put(kvcl_store_h store, const kvcl_key_t *keys, size_t n, const kvcl_value_t *values,
                         const kvcl_xfer_params_t *params, bool instead, kvcl_req_h *req_p)
{
    kvcl_call_id_t which = instead ? KVCL_CALL_STORE_UPSERT_VALUES : KVCL_CALL_STORE_PUT_VALUES;
    kvcl_entry_t   entry;
    kvcl_status_t  status = kvcl_store_enter(&store, NULL, 0, kvcl_call_name(which), &entry);

    if (status == KVCL_OK) {
        status = put_all_of(store, entry.tenant, keys, n, values, params, instead, req_p);
    }
    kvcl_store_leave(&entry);
    return status;
}

kvcl_status_t kvcl_store_put_values(kvcl_store_h store, const kvcl_key_t *keys, size_t n, const kvcl_value_t *values,
                                    const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    return put(store, keys, n, values, params, false, req_p);
}

kvcl_status_t kvcl_store_upsert_values(kvcl_store_h store, const kvcl_key_t *keys, size_t n,
                                       const kvcl_value_t *values, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    return put(store, keys, n, values, params, true, req_p);
}

kvcl_status_t kvcl_store_put_value(kvcl_store_h store, const kvcl_key_t *key, const void *buf, size_t bytes,
                                   const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    union {
        const void *from;
        void       *addr; /* only read */
    } both = {.from = buf};
    kvcl_extent_t extent = {.addr = both.addr, .bytes = bytes};
    kvcl_value_t  value  = {.extents = &extent, .n_extents = 1};

    return kvcl_store_put_values(store, key, 1, &value, params, req_p);
}
