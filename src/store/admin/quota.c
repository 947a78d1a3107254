/*
 * Tenants across ranks: quotas, and the removal of the blocks of one tenant or of all (ops.h). A rank removes
 * REMOVED_MAX blocks a request, since its lock is held meanwhile; the requesting rank then continues from the answer's
 * cursor.
 *
 * Owns nothing. The serving functions and the steps of a call hold the engine lock; the public calls take none.
 */
#include "config.h"
#include "base/error.h"
#include "store/cold/cold.h"
#include "store/admin/ops.h"
#include "store/home/home_answer.h"
#include "store/pool/pool.h"
#include "store/tenant.h"
#include "store/pool/room.h"
#include "xfer/params.h"
#include <kvcl/kvcl_store_admin.h>

#include <stdlib.h>

enum { SLOTS_MAX = 65536, REMOVED_MAX = 1024 };
#define CURSOR_TIER (UINT64_C(1) << 63) /* in a cursor: the rest is a position in the tier */

typedef struct quota_request {
    uint64_t tenant;
    uint64_t bytes; /* 0: no quota */
} quota_request_t;

typedef struct clear_request {
    uint64_t tenant; /* 0: everything */
    uint64_t cursor; /* like a list's: (cache + 1, slot); then CURSOR_TIER */
} clear_request_t;

typedef struct clear_answer {
    uint64_t cursor; /* 0: nothing is left */
    uint64_t n;
} clear_answer_t;

/* ---- the serving rank: lock held ---- */

kvcl_status_t kvcl_op_quota(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out)
{
    quota_request_t request;

    (void)out;
    if (len != sizeof(request)) {
        return KVCL_ERR_PROTOCOL;
    }
    memcpy(&request, in, sizeof(request));
    if (store->pool == NULL) {
        return KVCL_OK; /* it holds no tenant's blocks */
    }
    kvcl_store_freed(store); /* a put that waits for room may fit now */
    return kvcl_tenants_quota(&store->pool->tenants, request.tenant,
                              (request.bytes != 0) ? request.bytes : KVCL_TENANT_NO_QUOTA);
}

static bool is_wanted(const kvcl_owner_t *owner, uint32_t slot, uint64_t tenant)
{
    return (owner->array[slot].state == KVCL_SLOT_PUBLISHED) &&
           ((tenant == 0) || (kvcl_owner_tenant(owner, slot) == tenant));
}

/* Drops blocks that only the second tier holds, REMOVED_MAX at a time. Their tenants are not known, so only the removal
 * of everything drops them. Returns the cursor to continue from; 0: nothing is left. */
static uint64_t drop_tier(kvcl_cold_t *cold, uint64_t cursor)
{
    kvcl_tier_item_t items[64];
    uint64_t         it = cursor & ~CURSOR_TIER;
    kvcl_key_t       key;
    size_t           dropped, n, i;

    if (cold == NULL) {
        return 0;
    }
    for (dropped = 0; dropped < REMOVED_MAX; dropped += n) {
        n = kvcl_tier_walk(cold->tier, &it, items, sizeof(items) / sizeof(items[0]));
        if (n == 0) {
            return 0;
        }
        for (i = 0; i < n; ++i) {
            memcpy(key.bytes, items[i].key, sizeof(key.bytes));
            kvcl_cold_drop(cold, &key);
        }
    }
    return CURSOR_TIER | it;
}

/* Answers only after the directory has been notified: the caller may check at once that the store is empty. */
static kvcl_status_t answer_clear(kvcl_store_h store, const clear_answer_t *answer, kvcl_op_out_t *out)
{
    kvcl_cold_notify_evicted(store->cold);
    memcpy(out->buf, answer, sizeof(*answer));
    out->len = sizeof(*answer);
    return KVCL_OK;
}

kvcl_status_t kvcl_op_clear(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out)
{
    kvcl_store_rec_t recs[REMOVED_MAX / 8];
    clear_answer_t   answer = {0};
    uint32_t         looked = 0, n = 0;
    uint64_t         cache, slot;
    kvcl_owner_t     *owner;
    clear_request_t  request;

    if (len != sizeof(request)) {
        return KVCL_ERR_PROTOCOL;
    }
    memcpy(&request, in, sizeof(request));
    if (request.cursor & CURSOR_TIER) {
        answer.cursor = (request.tenant == 0) ? drop_tier(store->cold, request.cursor) : 0;
        return answer_clear(store, &answer, out);
    }
    cache = (request.cursor != 0) ? (request.cursor >> 32) - 1 : 0;
    slot  = request.cursor & UINT32_MAX;
    for (owner = kvcl_owner_next(store, cache); (owner != NULL) && (answer.cursor == 0);
         owner = kvcl_owner_next(store, owner->cache->id + 1ull)) {
        slot = (owner->cache->id == cache) ? slot : 0;
        for (; (slot < owner->slots.n) && (answer.cursor == 0); ++slot) {
            if ((looked++ == SLOTS_MAX) || (answer.n == REMOVED_MAX)) {
                answer.cursor = ((owner->cache->id + 1ull) << 32) | slot;
            } else if (is_wanted(owner, (uint32_t)slot, request.tenant) &&
                       (kvcl_owner_withdraw(owner, (uint32_t)slot, KVCL_SLOT_FREE, &recs[n]) == KVCL_OK)) {
                kvcl_cold_drop(store->cold, &recs[n].key);
                ++answer.n;
                ++n;
            }
            if (n == sizeof(recs) / sizeof(recs[0])) {
                kvcl_store_notify_removed(store, recs, n);
                n = 0;
            }
        }
    }
    kvcl_store_notify_removed(store, recs, n);
    if ((request.tenant == 0) && (answer.cursor == 0) && (store->cold != NULL)) {
        answer.cursor = CURSOR_TIER;
    }
    return answer_clear(store, &answer, out);
}

/* ---- the requesting rank ---- */

/* A quota or a removal, for one rank or all at the same time. The blocks of a failed rank are lost anyway. A rank that
 * does not answer fails the call, but the other ranks complete their part. */
typedef struct tenant_call {
    kvcl_op_t       op;
    bool            requested;
    uint8_t         kind;       /* KVCL_RPC_QUOTA or KVCL_RPC_CLEAR */
    int             rank;       /* -1: all */
    quota_request_t quota;
    clear_request_t *clears;    /* a rank: its next request; cursor 0: it has ended */
    uint64_t        removed;
    uint64_t        *removed_p;
    kvcl_status_t   first;      /* the first failure, and its rank */
    int             first_rank;
} tenant_call_t;

/* Takes the answer of a clear: the next cursor of the rank, and its count. */
static kvcl_status_t take_cleared(tenant_call_t *call, uint32_t rank, const void *data, size_t len)
{
    clear_request_t *request = &call->clears[rank];
    clear_answer_t  answer;

    if (len != sizeof(answer)) {
        return KVCL_ERR_PROTOCOL;
    }
    memcpy(&answer, data, sizeof(answer));
    if ((answer.cursor != 0) && (answer.cursor <= request->cursor)) {
        return KVCL_ERR_PROTOCOL;
    }
    request->cursor = answer.cursor;
    call->removed += answer.n;
    return KVCL_OK;
}

static void on_done(kvcl_op_t *op, uint32_t rank, uint64_t tag, kvcl_status_t status, const void *data, size_t len)
{
    tenant_call_t *call = kvcl_container_of(op, tenant_call_t, op);

    (void)tag;
    if ((status == KVCL_OK) && (call->kind == KVCL_RPC_CLEAR)) {
        status = take_cleared(call, rank, data, len);
    }
    if ((status != KVCL_OK) && (call->kind == KVCL_RPC_CLEAR)) {
        call->clears[rank].cursor = 0;
    }
    if ((status == KVCL_ERR_RANK_FAILED) && (call->rank < 0)) {
        return;
    }
    if ((status != KVCL_OK) && (call->first == KVCL_OK)) {
        call->first      = status;
        call->first_rank = (int)rank;
    }
}

static bool next(kvcl_call_t *base)
{
    tenant_call_t *call = kvcl_container_of(base, tenant_call_t, op.call);
    bool          first = !call->requested, any = false;
    uint32_t      i;

    call->requested = true;
    for (i = 0; i < base->store->n_ranks; ++i) {
        if (call->kind == KVCL_RPC_CLEAR) {
            if (first || (call->clears[i].cursor != 0)) {
                any = true;
                kvcl_op_rpc(&call->op, i, call->kind, &call->clears[i], sizeof(call->clears[i]), 0, 0);
            }
        } else if (first && ((call->rank < 0) || ((uint32_t)call->rank == i))) {
            any = true;
            kvcl_op_rpc(&call->op, i, call->kind, &call->quota, sizeof(call->quota), 0, 0);
        }
    }
    return any;
}

static kvcl_status_t end(kvcl_call_t *base)
{
    tenant_call_t *call = kvcl_container_of(base, tenant_call_t, op.call);

    if (call->removed_p != NULL) {
        *call->removed_p = call->removed;
    }
    return (base->stopped != KVCL_OK) ? base->stopped : kvcl_op_why(base, call->first, call->first_rank);
}

static kvcl_status_t post(kvcl_store_h store, const tenant_call_t *with, const kvcl_xfer_params_t *p, kvcl_call_id_t id,
                          kvcl_req_h *req_p)
{
    size_t        clears = (with->kind == KVCL_RPC_CLEAR) ? store->n_ranks : 0, i;
    tenant_call_t *call  = malloc(sizeof(*call) + (clears * sizeof(*call->clears)));

    if (call == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for requests to %u ranks", kvcl_call_name(id),
                         store->n_ranks);
    }
    *call              = *with;
    call->clears       = (clear_request_t *)(void *)(call + 1);
    call->op.answered  = on_done;
    call->op.call.next = next;
    call->op.call.end  = end;
    for (i = 0; i < clears; ++i) {
        call->clears[i] = (clear_request_t){.tenant = with->quota.tenant};
    }
    return kvcl_call_start(&call->op.call, store, kvcl_call_name(id), p, req_p);
}

static kvcl_status_t quota(kvcl_store_h store, int rank, uint64_t tenant, uint64_t bytes,
                           const kvcl_xfer_params_t *params, kvcl_call_id_t id, kvcl_req_h *req_p)
{
    tenant_call_t      with = {.kind = KVCL_RPC_QUOTA, .rank = rank, .quota = {.bytes = bytes}};
    kvcl_xfer_params_t p;
    kvcl_entry_t       entry;
    kvcl_status_t      status = kvcl_store_enter(&store, NULL, 0, kvcl_call_name(id), &entry);

    status = (status == KVCL_OK) ? kvcl_store_check(store, NULL, 0, kvcl_call_name(id)) : status;
    status = (status == KVCL_OK) ? kvcl_tenant_number(entry.tenant, &tenant, kvcl_call_name(id)) : status;
    if ((status == KVCL_OK) && (tenant == 0)) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: tenant is 0, which means no tenant: pass 1 or more",
                           kvcl_call_name(id));
    }
    with.quota.tenant = tenant;
    if ((status == KVCL_OK) && (rank != -1)) {
        status = kvcl_op_check_rank(store, rank, kvcl_call_name(id));
    }
    status = (status == KVCL_OK) ? kvcl_xfer_params(params, id, &p) : status;
    status = (status == KVCL_OK) ? post(store, &with, &p, id, req_p) : status;
    kvcl_store_leave(&entry);
    return status;
}

kvcl_status_t kvcl_store_quota_post(kvcl_store_h store, int rank, uint64_t tenant, uint64_t bytes,
                                    const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    return quota(store, rank, tenant, bytes, params, KVCL_CALL_STORE_QUOTA, req_p);
}

kvcl_status_t kvcl_store_quota(kvcl_store_h store, int rank, uint64_t tenant, uint64_t bytes,
                               const kvcl_xfer_params_t *params)
{
    kvcl_req_h    req;
    kvcl_status_t status = kvcl_xfer_params_of_wait(params, KVCL_CALL_STORE_QUOTA);

    status = (status == KVCL_OK) ? quota(store, rank, tenant, bytes, params, KVCL_CALL_STORE_QUOTA, &req) : status;
    return kvcl_call_wait(status, &req);
}

static kvcl_status_t clear(kvcl_store_h store, uint64_t tenant, uint64_t *removed_p, const kvcl_xfer_params_t *params,
                           kvcl_call_id_t id, kvcl_req_h *req_p)
{
    tenant_call_t      with = {.kind = KVCL_RPC_CLEAR, .rank = -1, .removed_p = removed_p};
    kvcl_xfer_params_t p;
    kvcl_entry_t       entry;
    kvcl_status_t      status = kvcl_store_enter(&store, NULL, 0, kvcl_call_name(id), &entry);

    status = (status == KVCL_OK) ? kvcl_store_check(store, NULL, 0, kvcl_call_name(id)) : status;
    status = (status == KVCL_OK) ? kvcl_tenant_number(entry.tenant, &tenant, kvcl_call_name(id)) : status;
    with.quota.tenant = tenant;
    status = (status == KVCL_OK) ? kvcl_xfer_params(params, id, &p) : status;
    status = (status == KVCL_OK) ? post(store, &with, &p, id, req_p) : status;
    kvcl_store_leave(&entry);
    return status;
}

kvcl_status_t kvcl_store_clear_post(kvcl_store_h store, uint64_t tenant, uint64_t *removed_p,
                                    const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    return clear(store, tenant, removed_p, params, KVCL_CALL_STORE_CLEAR, req_p);
}

kvcl_status_t kvcl_store_clear(kvcl_store_h store, uint64_t tenant, uint64_t *removed_p,
                               const kvcl_xfer_params_t *params)
{
    kvcl_req_h    req;
    kvcl_status_t status = kvcl_xfer_params_of_wait(params, KVCL_CALL_STORE_CLEAR);

    status = (status == KVCL_OK) ? clear(store, tenant, removed_p, params, KVCL_CALL_STORE_CLEAR, &req) : status;
    return kvcl_call_wait(status, &req);
}
