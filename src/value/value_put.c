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
#include "store/cold/cold.h"
#include "store/admin/ops.h"
#include "value/value.h"
#include "xfer/params.h"

#include <stdlib.h>

typedef struct work {
    kvcl_value_put_t         put;
    const char               *call;
    const kvcl_value_t       *values;
    size_t                   n;
    bool                     instead;
    uint64_t                 block;
    uint8_t                  *skip;   /* n: the pool holds it already */
    kvcl_value_head_t        *heads;  /* n: of the new values; magic 0: plain blocks */
    kvcl_value_head_t        *before; /* n: the head that the key named, if it has parts; else parts is 0 */
    kvcl_status_t            *found;  /* n */
    kvcl_store_rec_t         *recs;   /* n: the first n_new are used, also of the next two */
    uint32_t                 *item;   /* index of the value */
    uint32_t                 *slots;
    size_t                   n_new;
} work_t;

static work_t *make(kvcl_store_h store, size_t n)
{
    work_t *work = calloc(1, sizeof(*work) + (n * (sizeof(*work->recs) + (2 * sizeof(*work->heads)) +
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

/* ---- what the pool holds already ---- */

/* The key under which a value is found. */
static void own_key(const work_t *work, size_t i, kvcl_key_t *key)
{
    if (kvcl_value_is_plain(&work->heads[i])) {
        *key = work->heads[i].key;
    } else {
        kvcl_store_value_key(&work->heads[i].key, key);
    }
}

/* Does the local pool hold it, with the same length and as many copies? *head: the head that it holds. */
static bool pool_holds(const work_t *work, size_t i, kvcl_value_head_t *head)
{
    kvcl_store_h      store = work->put.store;
    uint64_t          bytes = work->heads[i].bytes;
    kvcl_owner_node_t *node;
    kvcl_slot_t       *slot;
    kvcl_key_t        key;
    bool              held  = false;

    own_key(work, i, &key);
    memset(head, 0, sizeof(*head));
    kvcl_lock(store->ctx);
    node = kvcl_owner_find(store, &key, store->value_pool);
    if (node != NULL) {
        slot = &store->value_pool->array[kvcl_owner_slot(node)];
        held = (slot->note & KVCL_NOTE_LISTED) &&
               ((work->put.copies == 1) || ((slot->note & KVCL_NOTE_COPIES) >= work->put.copies));
        kvcl_owner_touch(store->value_pool, kvcl_owner_slot(node));
    }
    if ((node != NULL) && !kvcl_value_is_plain(&work->heads[i])) {
        const uint8_t *base = (const uint8_t *)store->value_pool->cache->bases[0];
        held = kvcl_value_head_read(base + (kvcl_owner_slot(node) * work->block), work->block, &work->heads[i].key,
                                    head) && (head->bytes == bytes) && held;
    }
    kvcl_unlock(store->ctx);
    return held;
}

static void check_pool(work_t *work)
{
    kvcl_value_head_t head;
    size_t            i;

    for (i = 0; !work->instead && (i < work->n); ++i) {
        work->skip[i] = pool_holds(work, i, &head) && kvcl_value_has_parts(work->put.store, &head, work->put.deadline_ns);
        if (!work->skip[i] && (head.parts != 0)) {
            work->before[i] = head; /* it is put again: what is left of it is removed */
        }
    }
}

/* ---- filling ---- */

static void fill_own(void *arg, size_t i, void *block)
{
    work_t                  *work = arg;
    const kvcl_value_head_t *head = &work->heads[work->item[i]];
    kvcl_value_at_t         at    = {.value = &work->values[work->item[i]]};
    uint8_t                 *to   = block;
    uint64_t                used  = 0;

    if (!kvcl_value_is_plain(head)) {
        memcpy(to, head, sizeof(*head));
        used = sizeof(*head);
    }
    if (head->parts == 0) {
        kvcl_value_read(&at, to + used, head->bytes);
        used += head->bytes;
    }
    memset(to + used, 0, work->block - used);
}

/* Fill blocks with what lies under the values' own keys; they are not published yet. */
static kvcl_status_t fill_new(work_t *work)
{
    kvcl_status_t status;
    size_t        i;

    for (i = 0; i < work->n; ++i) {
        if (!work->skip[i]) {
            own_key(work, i, &work->recs[work->n_new].key);
            work->item[work->n_new++] = (uint32_t)i;
        }
    }
    status = kvcl_value_take(&work->put, work->n_new, work->slots);
    if (status == KVCL_OK) {
        kvcl_value_fill(work->put.store, work->slots, work->n_new, fill_own, work, work->recs);
    }
    return status;
}

/* ---- publishing ---- */

static void drop_before(work_t *work)
{
    size_t i;

    for (i = 0; i < work->n; ++i) {
        if (!work->skip[i] && (work->before[i].parts != 0)) {
            kvcl_value_drop_parts(work->put.store, &work->before[i]);
        }
    }
}

/* For a put: must an old head of the value be removed at every rank, lest it counts as a copy of the new one? True for
 * a known one, and for one that other ranks may have where no checksums tell them apart (copy/copy_jobs.c). */
static bool is_stale(const work_t *work, size_t i)
{
    bool unsummed = (work->put.store->flags & KVCL_STORE_NO_CHECKSUM) && (work->put.copies > 1);

    return !work->skip[i] && !kvcl_value_is_plain(&work->heads[i]) && ((work->before[i].parts != 0) || unsummed);
}

/* Remove at every rank what lies under the keys of values that are replaced; for an upsert also plain blocks. */
static kvcl_status_t leave_all(work_t *work)
{
    kvcl_key_t    *keys = malloc(2 * work->n * sizeof(*keys));
    kvcl_status_t status = KVCL_OK;
    size_t        n      = 0, i;

    if (keys == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for %zu keys", work->call, work->n);
    }
    for (i = 0; i < work->n; ++i) {
        if (work->instead) {
            keys[n++] = work->heads[i].key;
        }
        if (work->instead || is_stale(work, i)) {
            kvcl_store_value_key(&work->heads[i].key, &keys[n++]);
        }
    }
    if (n != 0) {
        status = kvcl_leave_all(work->put.store, keys, n, kvcl_deadline_left(work->put.deadline_ns) + 1);
    }
    free(keys);
    return status;
}

/* Lock held. Remove the local block of the key, whose value lacks a part or copies. */
static void withdraw_local(kvcl_store_h store, const kvcl_key_t *key)
{
    kvcl_owner_node_t *node = kvcl_owner_find(store, key, store->value_pool);
    kvcl_store_rec_t  removed;

    kvcl_assert_locked(store->ctx);
    if ((node != NULL) &&
        (kvcl_owner_withdraw(store->value_pool, kvcl_owner_slot(node), KVCL_SLOT_FREE, &removed) == KVCL_OK)) {
        kvcl_store_notify_removed(store, &removed, 1);
    }
    kvcl_cold_drop(store->cold, key);
}

/* Publish what fill_new filled; returns how many. */
static size_t publish_new(work_t *work)
{
    kvcl_store_h store = work->put.store;
    size_t       n, i;

    kvcl_lock(store->ctx);
    for (i = 0; i < work->n_new; ++i) {
        if (work->instead) {
            (void)kvcl_leave_key(store, &work->recs[i].key); /* a block that was published here since */
        } else {
            withdraw_local(store, &work->recs[i].key);
        }
    }
    n = kvcl_value_publish(&work->put, work->slots, work->n_new, work->recs, work->item);
    kvcl_unlock(store->ctx);
    return n;
}

static void set_copies(const work_t *work, uint8_t *copies)
{
    size_t i;

    for (i = 0; (copies != NULL) && (i < work->n); ++i) {
        copies[i] = (uint8_t)(work->skip[i] ? work->put.copies : 1); /* copy/chain.c counts those of new blocks */
    }
}

/* ---- a put ---- */

static kvcl_status_t put_parts(work_t *work)
{
    kvcl_status_t status = KVCL_OK;
    size_t        i;

    for (i = 0; (status == KVCL_OK) && (i < work->n); ++i) {
        if (!work->skip[i] && (work->heads[i].parts != 0)) {
            status = kvcl_value_put_parts(&work->put, &work->heads[i], &work->values[i]);
        }
    }
    return (status == KVCL_OK) ? kvcl_value_parts_wait(&work->put) : status;
}

/* Read the heads that an upsert replaces. If a head cannot be read, its parts are left to eviction. */
static void read_before(work_t *work, const kvcl_key_t *keys)
{
    size_t i;

    if (work->instead && (kvcl_value_heads(work->put.store, keys, work->n, work->before, work->found,
                                           work->put.deadline_ns) != KVCL_OK)) {
        for (i = 0; i < work->n; ++i) {
            work->before[i].parts = 0;
        }
    }
}

/* List the blocks under the values' own keys, and have them copied. If other ranks are to have copies, parts stay
 * pinned until these have the heads: a copy of a head must not evict the parts that it names. */
static kvcl_status_t list_new(work_t *work, size_t n, const kvcl_xfer_params_t *p, kvcl_req_h *req_p)
{
    kvcl_owner_t       *pool = work->put.store->value_pool;
    kvcl_xfer_params_t inner = *p;
    kvcl_status_t      status;
    kvcl_req_h         req;

    if ((work->put.copies == 1) || kvcl_list_is_empty(&work->put.kept)) {
        return kvcl_chain_start(pool, work->recs, work->item, n, work->put.copies, NULL, p, req_p);
    }
    inner.cb     = NULL;
    inner.cb_arg = NULL;
    status       = kvcl_chain_start(pool, work->recs, work->item, n, work->put.copies, NULL, &inner, &req);
    if (status != KVCL_OK) {
        return status;
    }
    status = kvcl_req_wait(req, KVCL_WAIT_FOREVER); /* it has its deadline */
    return kvcl_req_instant(work->put.store->ctx, status, p->cb, p->cb_arg, req_p);
}

static kvcl_status_t put_all(work_t *work, const kvcl_key_t *keys, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_xfer_params_t p      = *params;
    bool               filled = false;
    kvcl_status_t      status;
    size_t             n, i;

    check_pool(work);
    read_before(work, keys);
    status = put_parts(work);
    if (status == KVCL_OK) {
        status = fill_new(work);
        filled = (status == KVCL_OK);
    }
    if (status == KVCL_OK) {
        status = leave_all(work);
    }
    if (status != KVCL_OK) {
        kvcl_value_parts_end(&work->put);
        if (filled) {
            kvcl_value_return(work->put.store, work->slots, work->n_new);
        }
        for (i = 0; i < work->n; ++i) {
            if (!work->skip[i] && (work->heads[i].parts != 0)) {
                kvcl_value_drop_parts(work->put.store, &work->heads[i]);
            }
        }
        return status;
    }
    n = publish_new(work);
    for (i = 0; (p.status != NULL) && (i < work->n); ++i) {
        p.status[i] = KVCL_OK;
    }
    p.status     = NULL;
    p.timeout_ns = kvcl_deadline_left(work->put.deadline_ns) + 1;
    set_copies(work, p.copies);
    status = list_new(work, n, &p, req_p);
    drop_before(work);
    kvcl_value_parts_end(&work->put);
    return status;
}

/* ---- the calls ---- */

/* Make the heads of the new values. */
static kvcl_status_t check_values(work_t *work, const kvcl_key_t *keys)
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
    if ((p->replicas > KVCL_DIR_LOCS_MAX) || (n > UINT32_MAX / 2)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: replicas is %llu, at most %d; or %zu values are too many", call,
                         (unsigned long long)p->replicas, KVCL_DIR_LOCS_MAX, n);
    }
    if (kvcl_value_block(store) == 0) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "%s: no rank of the store has a pool: open one with dram_bytes", call);
    }
    return KVCL_OK;
}

static kvcl_status_t put(kvcl_store_h store, const kvcl_key_t *keys, size_t n, const kvcl_value_t *values,
                         const kvcl_xfer_params_t *params, bool instead, kvcl_req_h *req_p)
{
    kvcl_call_id_t     which = instead ? KVCL_CALL_STORE_UPSERT_VALUES : KVCL_CALL_STORE_PUT_VALUES;
    const char         *call  = kvcl_call_name(which);
    kvcl_xfer_params_t p;
    kvcl_status_t      status = check(store, keys, n, values, params, which, &p);
    kvcl_value_far_t   far;
    work_t             *work;

    if ((status != KVCL_OK) || (n == 0)) {
        return (status != KVCL_OK) ? status : kvcl_req_instant(store->ctx, KVCL_OK, p.cb, p.cb_arg, req_p);
    }
    work = make(store, n);
    if (work == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for %zu values", call, n);
    }
    work->call            = call;
    work->values          = values;
    work->instead         = instead;
    work->put.copies      = (unsigned)((p.replicas != 0) ? p.replicas : store->replicas);
    work->put.tenant      = p.tenant;
    work->put.flags       = p.flags;
    work->put.deadline_ns = kvcl_deadline_after(kvcl_timeout(store->ctx, p.timeout_ns));
    status = check_values(work, keys);
    if (status == KVCL_OK) {
        status = kvcl_store_hold(store);
        if (status == KVCL_OK) {
            far    = (kvcl_value_far_t){.call = call, .values = values, .heads = work->heads, .n = n,
                                        .instead = instead, .params = &p};
            status = (store->value_pool != NULL) ? put_all(work, keys, &p, req_p)
                                                 : kvcl_value_put_far(store, &far, work->put.deadline_ns, req_p);
            kvcl_store_release(store);
        }
    }
    free(work);
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
