/*
 * Lists of the blocks that a rank holds, page by page, for the rank itself and for other ranks.
 *
 * A cursor is the number of a cache (plus 1) and a slot of it. Caches are walked by number, so a cache that is attached
 * or detached meanwhile affects no other. A page covers SLOTS_MAX slots at most, since the lock is held.
 *
 * A tenant's handle lists the blocks that carry the tenant's number, under the keys that the tenant knows: the
 * requesting rank leaves out the others, so its pages may be short.
 *
 * Owns nothing. Engine lock held, except in the public calls.
 */
#include "config.h"
#include "base/error.h"
#include "base/structs.h"
#include "store/admin/ops.h"
#include "store/admin/rows_wire.h"
#include "store/tenant.h"
#include "xfer/params.h"

#include <stdlib.h>

enum { SLOTS_MAX = 65536 };

typedef struct list_request {
    uint64_t cursor;
    uint64_t cap;
} list_request_t;

typedef struct list_head {
    uint64_t cursor;
    uint64_t seq;
} list_head_t; /* rows follow */

static kvcl_store_item_t item_of(const kvcl_owner_t *owner, uint32_t slot)
{
    return (kvcl_store_item_t){.key = owner->array[slot].key, .bytes = (uint32_t)owner->cache->shape.block_bytes,
                               .tier = owner->array[slot].flags & KVCL_DIR_TIER_MASK,
                               .cache = (uint32_t)owner->cache->id, .slot = slot,
                               .tenant = kvcl_owner_tenant(owner, slot)};
}

/* Lock held. Writes the next page as rows to buf; returns their number. */
static size_t page(kvcl_store_h store, uint64_t *cursor, uint8_t *buf, size_t cap)
{
    uint64_t     cache = (*cursor != 0) ? (*cursor >> 32) - 1 : 0, slot = *cursor & UINT32_MAX;
    kvcl_owner_t *owner = kvcl_owner_next(store, cache);
    uint32_t     looked = 0;
    size_t       n = 0;

    kvcl_assert_locked(store->ctx);
    for (; owner != NULL; owner = kvcl_owner_next(store, owner->cache->id + 1ull)) {
        slot = (owner->cache->id == cache) ? slot : 0;
        for (; slot < owner->slots.n; ++slot) {
            if ((n == cap) || (looked++ == SLOTS_MAX)) {
                *cursor = ((owner->cache->id + 1ull) << 32) | slot;
                return n;
            }
            if (owner->array[slot].state == KVCL_SLOT_PUBLISHED) {
                const kvcl_store_item_t item = item_of(owner, (uint32_t)slot);
                kvcl_rows_put_item(buf, n++, &item);
            }
        }
    }
    *cursor = 0;
    return n;
}

kvcl_status_t kvcl_op_list(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out)
{
    list_head_t    head = {.seq = store->events.newest};
    list_request_t request;
    size_t         cap = kvcl_rows_room(out->cap - sizeof(head), KVCL_ITEM_ROW), n;

    if (len != sizeof(request)) {
        return KVCL_ERR_PROTOCOL;
    }
    memcpy(&request, in, sizeof(request));
    if ((request.cursor != 0) && ((request.cursor >> 32) == 0)) {
        return KVCL_ERR_INVALID_PARAM;
    }
    cap         = (request.cap < cap) ? (size_t)request.cap : cap;
    head.cursor = request.cursor;
    n           = page(store, &head.cursor, out->buf + sizeof(head), cap);
    memcpy(out->buf, &head, sizeof(head));
    out->n   = (uint32_t)n;
    out->len = sizeof(head) + kvcl_rows_head(out->buf + sizeof(head), (uint32_t)n, KVCL_ITEM_ROW);
    return KVCL_OK;
}

/* ---- the requesting rank ---- */

typedef struct list_call {
    kvcl_op_t         op;
    bool              requested;
    uint32_t          rank;
    list_request_t    request;
    kvcl_status_t     status;
    uint64_t          *cursor; /* the caller's, like the next four */
    kvcl_store_item_t *items;
    size_t            stride;
    size_t            *n_p;
    uint64_t          *seq_p;
    kvcl_store_tenant_t *tenant; /* whose call it is, held; NULL: none */
} list_call_t;

static void write_result(const list_call_t *call, const kvcl_rows_t *rows)
{
    kvcl_store_item_t item;
    size_t            n = 0, i;

    for (i = 0; i < rows->n; ++i) {
        kvcl_rows_item(rows, i, &item);
        if ((call->tenant == NULL) || (item.tenant == call->tenant->number)) {
            kvcl_tenant_keys_back(call->tenant, &item.key, 1);
            kvcl_struct_out_at(call->items, n++, call->stride, &item, sizeof(item));
        }
    }
    *call->n_p = n;
}

static void on_page(kvcl_op_t *op, uint32_t rank, uint64_t tag, kvcl_status_t status, const void *data, size_t len)
{
    list_call_t *call = kvcl_container_of(op, list_call_t, op);
    list_head_t head;
    kvcl_rows_t rows;

    (void)rank;
    (void)tag;
    if ((status == KVCL_OK) &&
        ((len < sizeof(head)) || !kvcl_rows_open((const uint8_t *)data + sizeof(head), len - sizeof(head), &rows) ||
         (rows.n > call->request.cap))) {
        status = KVCL_ERR_PROTOCOL;
    }
    if (status == KVCL_OK) {
        memcpy(&head, data, sizeof(head));
        write_result(call, &rows);
        *call->cursor = head.cursor;
        if (call->seq_p != NULL) {
            *call->seq_p = head.seq;
        }
    }
    call->status = status;
}

static bool next(kvcl_call_t *base)
{
    list_call_t *call = kvcl_container_of(base, list_call_t, op.call);

    if (call->requested) {
        return false;
    }
    call->requested = true;
    kvcl_op_rpc(&call->op, call->rank, KVCL_RPC_LIST, &call->request, sizeof(call->request), 0, 0);
    return true;
}

static kvcl_status_t end(kvcl_call_t *base)
{
    list_call_t *call = kvcl_container_of(base, list_call_t, op.call);

    return (base->stopped != KVCL_OK) ? base->stopped : kvcl_op_why(base, call->status, (int)call->rank);
}

static void free_call(kvcl_call_t *base)
{
    list_call_t *call = kvcl_container_of(base, list_call_t, op.call);

    kvcl_tenant_release(call->tenant);
    free(call);
}

/* with: the caller's arguments. */
static kvcl_status_t start(kvcl_store_h store, int rank, const list_call_t *with, const kvcl_xfer_params_t *params,
                           kvcl_call_id_t id, kvcl_req_h *req_p)
{
    kvcl_status_t      status = kvcl_store_check(store, with->items, (size_t)with->request.cap, kvcl_call_name(id));
    kvcl_xfer_params_t p;
    list_call_t        *call;

    if (status == KVCL_OK) {
        status = kvcl_stride_check(with->stride, KVCL_UP_TO(kvcl_store_item_t, tier), "kvcl_store_item_t",
                                   kvcl_call_name(id));
    }
    if ((status == KVCL_OK) && ((with->cursor == NULL) || (with->n_p == NULL) || (with->request.cap == 0))) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: cursor or n_p is NULL, or cap is 0", kvcl_call_name(id));
    }
    status = (status == KVCL_OK) ? kvcl_op_check_rank(store, rank, kvcl_call_name(id)) : status;
    status = (status == KVCL_OK) ? kvcl_xfer_params(params, id, &p) : status;
    if (status != KVCL_OK) {
        return status;
    }
    call = malloc(sizeof(*call));
    if (call == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "%s: no memory for a request", kvcl_call_name(id));
    }
    *call                = *with;
    call->op             = (kvcl_op_t){.call = {.next = next, .end = end, .free = free_call}, .answered = on_page};
    call->rank           = (uint32_t)rank;
    call->request.cursor = *with->cursor;
    (void)kvcl_tenant_hold(call->tenant);
    return kvcl_call_start(&call->op.call, store, kvcl_call_name(id), &p, req_p);
}

static kvcl_status_t post(kvcl_store_h store, int rank, uint64_t *cursor, kvcl_store_item_t *items, size_t stride,
                          size_t cap, size_t *n_p, uint64_t *seq_p, const kvcl_xfer_params_t *params, kvcl_call_id_t id,
                          kvcl_req_h *req_p)
{
    list_call_t   with = {.request = {.cap = cap}, .cursor = cursor, .items = items, .stride = stride, .n_p = n_p,
                          .seq_p = seq_p};
    kvcl_entry_t  entry;
    kvcl_status_t status = kvcl_store_enter(&store, NULL, 0, kvcl_call_name(id), &entry);

    with.tenant = entry.tenant;
    status      = (status == KVCL_OK) ? start(store, rank, &with, params, id, req_p) : status;
    kvcl_store_leave(&entry);
    return status;
}

kvcl_status_t kvcl_store_list_post(kvcl_store_h store, int rank, uint64_t *cursor, kvcl_store_item_t *items,
                                   size_t stride, size_t cap, size_t *n_p, uint64_t *seq_p,
                                   const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    return post(store, rank, cursor, items, stride, cap, n_p, seq_p, params, KVCL_CALL_STORE_LIST, req_p);
}

kvcl_status_t kvcl_store_list(kvcl_store_h store, int rank, uint64_t *cursor, kvcl_store_item_t *items, size_t stride,
                              size_t cap, size_t *n_p, uint64_t *seq_p, const kvcl_xfer_params_t *params)
{
    kvcl_req_h    req;
    kvcl_status_t status = kvcl_xfer_params_of_wait(params, KVCL_CALL_STORE_LIST);

    status = (status == KVCL_OK) ? post(store, rank, cursor, items, stride, cap, n_p, seq_p, params,
                                        KVCL_CALL_STORE_LIST, &req) : status;
    return kvcl_call_wait(status, &req);
}
