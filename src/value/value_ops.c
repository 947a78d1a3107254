/*
 * The calls about values (their sizes, their keys, their removal), and the queries that other files of this room make:
 * the heads of values, whether every part of a value is in the store, the removal of parts.
 *
 * Owns nothing: a query owns itself (value_query.h). No lock. kvcl_value_heads, kvcl_value_has_parts and the calls
 * without _post block, until their deadline at most.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "value/value_query.h"
#include "xfer/params.h"

#include <stdlib.h>

enum { DROP_KEYS = 4096 };

/* ---- parts ---- */

/* No lock. The keys of parts from .. from + n - 1; NULL: no memory. */
static kvcl_key_t *part_keys(const kvcl_store_tenant_t *tenant, const kvcl_value_head_t *head, uint64_t from,
                             uint64_t n)
{
    kvcl_key_t *keys = malloc((n + 1) * sizeof(*keys)), seed;
    uint64_t   i;

    if (keys != NULL) {
        kvcl_value_seed(head, &seed);
        for (i = 0; i < n; ++i) {
            kvcl_value_part_key(&seed, from + i, &keys[i]);
        }
        kvcl_tenant_keys(tenant, keys, n);
    }
    return keys;
}

void kvcl_value_drop_parts(kvcl_store_h store, const kvcl_store_tenant_t *tenant, const kvcl_value_head_t *head)
{
    kvcl_key_t *keys;
    uint64_t   from, n;

    for (from = 0; from < head->parts; from += n) {
        n    = (head->parts - from < DROP_KEYS) ? head->parts - from : DROP_KEYS;
        keys = part_keys(tenant, head, from, n);
        if (keys != NULL) {
            (void)!kvcl_store_remove(store, keys, n, NULL, NULL); /* a part that is not removed is evicted some time */
        }
        free(keys);
    }
}

bool kvcl_value_has_parts(kvcl_store_h store, const kvcl_store_tenant_t *tenant, const kvcl_value_head_t *head,
                          uint64_t deadline_ns)
{
    enum { SOME = 4096 };
    kvcl_xfer_params_t p        = {.size = sizeof(p)};
    uint8_t            *present = malloc(SOME);
    bool               all      = (present != NULL);
    kvcl_key_t         *keys;
    uint64_t           from, n;

    for (from = 0; all && (from < head->parts); from += n) {
        n            = (head->parts - from < SOME) ? head->parts - from : SOME;
        keys         = part_keys(tenant, head, from, n);
        p.timeout_ns = kvcl_deadline_left(deadline_ns) + 1;
        all          = (keys != NULL) && (kvcl_store_exists(store, keys, n, present, &p) == KVCL_OK) &&
              (memchr(present, 0, n) == NULL);
        free(keys);
    }
    free(present);
    return all;
}

/* ---- heads ---- */

kvcl_status_t kvcl_value_heads(kvcl_store_h store, kvcl_store_tenant_t *tenant, const kvcl_key_t *keys, size_t n,
                               kvcl_value_head_t *heads, kvcl_status_t *status, uint64_t deadline_ns)
{
    kvcl_xfer_params_t p       = {.size = sizeof(p), .timeout_ns = kvcl_deadline_left(deadline_ns) + 1};
    kvcl_vquery_t      *values = kvcl_vquery_new(store, tenant, keys, n, KVCL_VQUERY_HEADS);
    kvcl_status_t      result;

    if (values == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory to look at %zu values", n);
    }
    values->user_heads  = heads;
    values->user_status = status;
    result              = kvcl_call_run(&values->call, store, "a lookup of values", &p);
    return (result == KVCL_ERR_TIMED_OUT) ? KVCL_OK : result; /* each value has its own status */
}

/* ---- the calls ---- */

/* with: the caller's arguments; end() of value_query.c writes the results there. waits: the blocking form. */
static kvcl_status_t start_for(kvcl_store_h store, kvcl_store_tenant_t *tenant, const kvcl_key_t *keys, size_t n,
                               const kvcl_vquery_t *with, const kvcl_xfer_params_t *params, kvcl_call_id_t id,
                               bool waits, kvcl_req_h *req_p)
{
    const char         *name  = kvcl_call_name(id);
    kvcl_status_t      status = kvcl_store_check(store, keys, n, name);
    kvcl_xfer_params_t p;
    kvcl_vquery_t      *values;

    if (status == KVCL_OK) {
        status = waits ? kvcl_xfer_params_waits(params, id, &p) : kvcl_xfer_params(params, id, &p);
    }
    if ((status == KVCL_OK) && (n > UINT32_MAX / 2)) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: %zu values are too many for one call", name, n);
    }
    if (status != KVCL_OK) {
        return status;
    }
    values = kvcl_vquery_new(store, tenant, keys, n, with->about);
    if (values == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for %zu keys", name, n);
    }
    values->user_status = with->user_status;
    values->user_bytes  = with->user_bytes;
    values->user_keys   = with->user_keys;
    values->cap         = with->cap;
    values->n_p         = with->n_p;
    return waits ? kvcl_call_run(&values->call, store, name, &p)
                 : kvcl_call_start(&values->call, store, name, &p, req_p);
}

static kvcl_status_t start(kvcl_store_h store, const kvcl_key_t *keys, size_t n, const kvcl_vquery_t *with,
                           const kvcl_xfer_params_t *params, kvcl_call_id_t id, bool waits, kvcl_req_h *req_p)
{
    kvcl_entry_t  entry;
    kvcl_status_t status = kvcl_store_enter(&store, NULL, 0, kvcl_call_name(id), &entry);

    if (status == KVCL_OK) {
        status = start_for(store, entry.tenant, keys, n, with, params, id, waits, req_p);
    }
    kvcl_store_leave(&entry);
    return status;
}

static kvcl_status_t sizes(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t *bytes,
                           kvcl_status_t *status, const kvcl_xfer_params_t *params, bool waits, kvcl_req_h *req_p)
{
    kvcl_vquery_t with = {.about = KVCL_VQUERY_SIZES, .user_bytes = bytes, .user_status = status};

    if ((bytes == NULL) && (n != 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_value_sizes: bytes is NULL");
    }
    return start(store, keys, n, &with, params, KVCL_CALL_STORE_VALUE_SIZES, waits, req_p);
}

kvcl_status_t kvcl_store_value_sizes(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t *bytes,
                                     kvcl_status_t *status, const kvcl_xfer_params_t *params)
{
    return sizes(store, keys, n, bytes, status, params, true, NULL);
}

kvcl_status_t kvcl_store_value_sizes_post(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t *bytes,
                                          kvcl_status_t *status, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    return sizes(store, keys, n, bytes, status, params, false, req_p);
}

static kvcl_status_t keys_of(kvcl_store_h store, const kvcl_key_t *key, kvcl_key_t *keys, size_t cap, size_t *n_p,
                             const kvcl_xfer_params_t *params, bool waits, kvcl_req_h *req_p)
{
    kvcl_vquery_t with = {.about = KVCL_VQUERY_KEYS, .user_keys = keys, .cap = cap, .n_p = n_p};

    if ((n_p == NULL) || ((keys == NULL) && (cap != 0))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_value_keys: n_p is NULL, or keys");
    }
    return start(store, key, 1, &with, params, KVCL_CALL_STORE_VALUE_KEYS, waits, req_p);
}

kvcl_status_t kvcl_store_value_keys(kvcl_store_h store, const kvcl_key_t *key, kvcl_key_t *keys, size_t cap,
                                    size_t *n_p, const kvcl_xfer_params_t *params)
{
    return keys_of(store, key, keys, cap, n_p, params, true, NULL);
}

kvcl_status_t kvcl_store_value_keys_post(kvcl_store_h store, const kvcl_key_t *key, kvcl_key_t *keys, size_t cap,
                                         size_t *n_p, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    return keys_of(store, key, keys, cap, n_p, params, false, req_p);
}

kvcl_status_t kvcl_store_remove_values(kvcl_store_h store, const kvcl_key_t *keys, size_t n,
                                       const kvcl_xfer_params_t *params)
{
    const kvcl_vquery_t with = {.about = KVCL_VQUERY_REMOVE};

    return start(store, keys, n, &with, params, KVCL_CALL_STORE_REMOVE_VALUES, true, NULL);
}

kvcl_status_t kvcl_store_remove_values_post(kvcl_store_h store, const kvcl_key_t *keys, size_t n,
                                            const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    const kvcl_vquery_t with = {.about = KVCL_VQUERY_REMOVE};

    return start(store, keys, n, &with, params, KVCL_CALL_STORE_REMOVE_VALUES, false, req_p);
}
