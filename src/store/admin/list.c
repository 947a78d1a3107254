/*
 * What a rank holds, page by page: of itself, and for others who ask.
 *
 * A cursor is the number of a cache (plus 1) and a slot of it; caches are walked by number, so one that comes or goes
 * meanwhile disturbs no other. A page looks at SLOTS_MAX slots at most, since the lock is held.
 */
#include "config.h"
#include "base/error.h"
#include "store/admin/ops.h"

#include <stdlib.h>

enum { SLOTS_MAX = 65536 };

typedef struct list_ask {
    uint64_t cursor;
    uint64_t cap;
} list_ask_t;

typedef struct list_head {
    uint64_t cursor;
    uint64_t seq;
    uint64_t n;
} list_head_t;

static kvcl_store_item_t item_of(const kvcl_owner_t *owner, uint32_t slot)
{
    return (kvcl_store_item_t){.key = owner->array[slot].key, .bytes = (uint32_t)owner->cache->shape.block_bytes,
                               .tier = owner->array[slot].flags & KVCL_DIR_TIER_MASK,
                               .cache = (uint32_t)owner->cache->id, .slot = slot,
                               .tenant = kvcl_owner_tenant(owner, slot)};
}

/* Lock held. */
static size_t page(kvcl_store_h store, uint64_t *cursor, kvcl_store_item_t *items, size_t cap)
{
    uint64_t     cache = (*cursor != 0) ? (*cursor >> 32) - 1 : 0, slot = *cursor & UINT32_MAX;
    kvcl_owner_t *owner = kvcl_owner_next(store, cache);
    uint32_t     looked = 0;
    size_t       n = 0;

    for (; owner != NULL; owner = kvcl_owner_next(store, owner->cache->id + 1ull)) {
        slot = (owner->cache->id == cache) ? slot : 0;
        for (; slot < owner->slots.n; ++slot) {
            if ((n == cap) || (looked++ == SLOTS_MAX)) {
                *cursor = ((owner->cache->id + 1ull) << 32) | slot;
                return n;
            }
            if (owner->array[slot].state == KVCL_SLOT_PUBLISHED) {
                items[n++] = item_of(owner, (uint32_t)slot);
            }
        }
    }
    *cursor = 0;
    return n;
}

kvcl_status_t kvcl_op_list(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out)
{
    list_head_t head = {.seq = store->events.newest};
    list_ask_t  ask;
    size_t      cap = (out->cap - sizeof(head)) / sizeof(kvcl_store_item_t);

    if (len != sizeof(ask)) {
        return KVCL_ERR_PROTOCOL;
    }
    memcpy(&ask, in, sizeof(ask));
    if ((ask.cursor != 0) && ((ask.cursor >> 32) == 0)) {
        return KVCL_ERR_INVALID_PARAM;
    }
    cap         = (ask.cap < cap) ? (size_t)ask.cap : cap;
    head.cursor = ask.cursor;
    head.n      = page(store, &head.cursor, (kvcl_store_item_t *)(void *)(out->buf + sizeof(head)), cap);
    memcpy(out->buf, &head, sizeof(head));
    out->n   = (uint32_t)head.n;
    out->len = sizeof(head) + (head.n * sizeof(kvcl_store_item_t));
    return KVCL_OK;
}

kvcl_status_t kvcl_store_list(kvcl_store_h store, int rank, uint64_t *cursor, kvcl_store_item_t *items, size_t cap,
                              size_t *n_p, uint64_t *seq_p)
{
    kvcl_status_t status = kvcl_store_check(store, items, cap, "kvcl_store_list");
    kvcl_op_out_t out    = {.cap = KVCL_OP_ANSWER_MAX};
    list_head_t   head;
    list_ask_t    ask;

    if (status != KVCL_OK) {
        return status;
    }
    if ((cursor == NULL) || (n_p == NULL) || (cap == 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_list: cursor or n_p is NULL, or cap is 0");
    }
    out.buf = malloc(out.cap);
    if (out.buf == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_store_list: no memory for a page");
    }
    ask    = (list_ask_t){.cursor = *cursor, .cap = cap};
    status = kvcl_op_call(store, rank, KVCL_ASK_LIST, &ask, sizeof(ask), 0, &out, "kvcl_store_list");
    if (status == KVCL_OK) {
        if (out.len >= sizeof(head)) {
            memcpy(&head, out.buf, sizeof(head));
        }
        if ((out.len < sizeof(head)) || (head.n > cap) || (out.len - sizeof(head) != head.n * sizeof(*items))) {
            status = kvcl_fail(KVCL_ERR_PROTOCOL, "kvcl_store_list: rank %d gave a page that makes no sense", rank);
        }
    }
    if (status == KVCL_OK) {
        memcpy(items, out.buf + sizeof(head), out.len - sizeof(head));
        *cursor = head.cursor;
        *n_p    = (size_t)head.n;
        if (seq_p != NULL) {
            *seq_p = head.seq;
        }
    }
    free(out.buf);
    return status;
}
