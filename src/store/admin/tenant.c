/*
 * Tenants across ranks: quotas, and removing what a tenant, or everybody, has put (ops.h). A rank removes some blocks a
 * question, since its lock is held meanwhile; the asker goes on from where it stopped.
 */
#include "config.h"
#include "base/error.h"
#include "store/cold/cold.h"
#include "store/admin/ops.h"
#include "store/pool/pool.h"
#include <kvcl/kvcl_store_admin.h>

enum { SLOTS_MAX = 65536, GONE_MAX = 1024 };
#define CURSOR_TIER (UINT64_C(1) << 63) /* and from where on in the tier */

typedef struct quota_ask {
    uint64_t tenant;
    uint64_t bytes; /* 0: no quota */
} quota_ask_t;

typedef struct clear_ask {
    uint64_t tenant; /* 0: everything */
    uint64_t cursor; /* as of a list: (cache + 1, slot); then CURSOR_TIER */
} clear_ask_t;

typedef struct clear_answer {
    uint64_t cursor; /* 0: that was all */
    uint64_t n;
} clear_answer_t;

/* ---- the rank that is asked: lock held ---- */

kvcl_status_t kvcl_op_quota(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out)
{
    quota_ask_t ask;

    (void)out;
    if (len != sizeof(ask)) {
        return KVCL_ERR_PROTOCOL;
    }
    memcpy(&ask, in, sizeof(ask));
    if (store->pool == NULL) {
        return KVCL_OK; /* it holds nothing of anybody */
    }
    kvcl_store_freed(store); /* who waits for room may have more of it */
    return kvcl_tenants_quota(&store->pool->tenants, ask.tenant,
                              (ask.bytes != 0) ? ask.bytes : KVCL_TENANT_NO_QUOTA);
}

static bool is_wanted(const kvcl_owner_t *owner, uint32_t slot, uint64_t tenant)
{
    return (owner->array[slot].state == KVCL_SLOT_PUBLISHED) &&
           ((tenant == 0) || (kvcl_owner_tenant(owner, slot) == tenant));
}

/* What only the second tier holds: whose it is nobody knows any more, so it goes with everything, some of it now. Where
 * to go on; 0: that was all. */
static uint64_t drop_tier(kvcl_cold_t *cold, uint64_t cursor)
{
    kvcl_tier_item_t items[64];
    uint64_t         it = cursor & ~CURSOR_TIER;
    kvcl_key_t       key;
    size_t           gone, n, i;

    if (cold == NULL) {
        return 0;
    }
    for (gone = 0; gone < GONE_MAX; gone += n) {
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

/* Not before the directory knows: who has cleared a store looks at once whether it is empty. */
static kvcl_status_t answer_clear(kvcl_store_h store, const clear_answer_t *answer, kvcl_op_out_t *out)
{
    kvcl_cold_tell_gone(store->cold);
    memcpy(out->buf, answer, sizeof(*answer));
    out->len = sizeof(*answer);
    return KVCL_OK;
}

kvcl_status_t kvcl_op_clear(kvcl_store_h store, const void *in, size_t len, kvcl_op_out_t *out)
{
    kvcl_store_rec_t recs[GONE_MAX / 8];
    clear_answer_t   answer = {0};
    uint32_t         looked = 0, gone = 0;
    uint64_t         cache, slot;
    kvcl_owner_t     *owner;
    clear_ask_t      ask;

    if (len != sizeof(ask)) {
        return KVCL_ERR_PROTOCOL;
    }
    memcpy(&ask, in, sizeof(ask));
    if (ask.cursor & CURSOR_TIER) {
        answer.cursor = (ask.tenant == 0) ? drop_tier(store->cold, ask.cursor) : 0;
        return answer_clear(store, &answer, out);
    }
    cache = (ask.cursor != 0) ? (ask.cursor >> 32) - 1 : 0;
    slot  = ask.cursor & UINT32_MAX;
    for (owner = kvcl_owner_next(store, cache); (owner != NULL) && (answer.cursor == 0);
         owner = kvcl_owner_next(store, owner->cache->id + 1ull)) {
        slot = (owner->cache->id == cache) ? slot : 0;
        for (; (slot < owner->slots.n) && (answer.cursor == 0); ++slot) {
            if ((looked++ == SLOTS_MAX) || (answer.n == GONE_MAX)) {
                answer.cursor = ((owner->cache->id + 1ull) << 32) | slot;
            } else if (is_wanted(owner, (uint32_t)slot, ask.tenant) &&
                       (kvcl_owner_withdraw(owner, (uint32_t)slot, KVCL_SLOT_FREE, &recs[gone]) == KVCL_OK)) {
                kvcl_cold_drop(store->cold, &recs[gone].key);
                ++answer.n;
                ++gone;
            }
            if (gone == sizeof(recs) / sizeof(recs[0])) {
                kvcl_store_tell_removed(store, recs, gone);
                gone = 0;
            }
        }
    }
    kvcl_store_tell_removed(store, recs, gone);
    if ((ask.tenant == 0) && (answer.cursor == 0) && (store->cold != NULL)) {
        answer.cursor = CURSOR_TIER;
    }
    return answer_clear(store, &answer, out);
}

/* ---- asking ---- */

kvcl_status_t kvcl_store_quota(kvcl_store_h store, int rank, uint64_t tenant, uint64_t bytes)
{
    kvcl_status_t status = kvcl_store_check(store, NULL, 0, "kvcl_store_quota");
    quota_ask_t   ask    = {.tenant = tenant, .bytes = bytes};
    kvcl_op_out_t out    = {.cap = 0};
    uint32_t      i;

    if (status != KVCL_OK) {
        return status;
    }
    if (tenant == 0) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_quota: tenant 0 is nobody");
    }
    if (rank != -1) {
        return kvcl_op_call(store, rank, KVCL_ASK_QUOTA, &ask, sizeof(ask), 0, &out, "kvcl_store_quota");
    }
    for (i = 0; (i < store->n_ranks) && (status == KVCL_OK); ++i) {
        status = kvcl_op_call(store, (int)i, KVCL_ASK_QUOTA, &ask, sizeof(ask), 0, &out, "kvcl_store_quota");
        status = (status == KVCL_ERR_RANK_FAILED) ? KVCL_OK : status; /* it holds nothing any more */
    }
    return status;
}

static kvcl_status_t clear_rank(kvcl_store_h store, int rank, uint64_t tenant, uint64_t *removed)
{
    clear_ask_t    ask    = {.tenant = tenant};
    clear_answer_t answer = {0};
    kvcl_status_t  status;

    do {
        kvcl_op_out_t out = {.buf = (uint8_t *)&answer, .cap = sizeof(answer)};
        status = kvcl_op_call(store, rank, KVCL_ASK_CLEAR, &ask, sizeof(ask), 0, &out, "kvcl_store_clear");
        if ((status == KVCL_OK) &&
            ((out.len != sizeof(answer)) || ((answer.cursor != 0) && (answer.cursor <= ask.cursor)))) {
            status = kvcl_fail(KVCL_ERR_PROTOCOL, "kvcl_store_clear: rank %d gave an answer that makes no sense", rank);
        }
        ask.cursor = answer.cursor;
        *removed += (status == KVCL_OK) ? answer.n : 0;
    } while ((status == KVCL_OK) && (answer.cursor != 0));
    return status;
}

kvcl_status_t kvcl_store_clear(kvcl_store_h store, uint64_t tenant, uint64_t *removed_p)
{
    kvcl_status_t status  = kvcl_store_check(store, NULL, 0, "kvcl_store_clear");
    uint64_t      removed = 0;
    uint32_t      i;

    if (status != KVCL_OK) {
        return status;
    }
    for (i = 0; (status == KVCL_OK) && (i < store->n_ranks); ++i) {
        status = clear_rank(store, (int)i, tenant, &removed);
        status = (status == KVCL_ERR_RANK_FAILED) ? KVCL_OK : status; /* what it had went with it */
    }
    if (removed_p != NULL) {
        *removed_p = removed;
    }
    return status;
}
