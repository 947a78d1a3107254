/*
 * Blocks of an engine's own caches: published in place, and withdrawn.
 *
 * The slots are taken under the engine lock and the checksums computed without it. Then all slots become PUBLISHED, or
 * none, and the homes are notified (publish.c). The engine may write a block again when kvcl_store_withdraw returns.
 * Puts into other ranks' pools take and show blocks in the same way, without listing them (copy/put_far.c).
 *
 * Owns nothing. No lock, except where marked.
 */
#include "config.h"
#include "base/error.h"
#include "store/home/home_answer.h"
#include "store/pool/publish_own.h"
#include "store/store.h"
#include "store/pool/publish.h"
#include "store/tenant.h"
#include "xfer/params.h"

#include <stdlib.h>

/* ---- kvcl_store_publish ---- */

uint64_t kvcl_store_block_sum(kvcl_cache_h cache, uint32_t block)
{
    kvcl_sel_t    sel  = {.blocks = &block, .n_blocks = 1};
    kvcl_side_t   side = kvcl_cache_side(cache, &sel);
    kvcl_stream_t stream;

    kvcl_stream_init(&stream, &side, KVCL_STREAM_CANONICAL);
    return kvcl_stream_checksum(&stream, stream.total_bytes);
}

/* The state of a block that its user holds, before a publish and after a withdraw. */
static kvcl_slot_state_t idle_state(const kvcl_owner_t *owner)
{
    return owner->managed ? KVCL_SLOT_FILLING : KVCL_SLOT_FREE;
}

/* A taken block is FILLING, and its note says TAKEN, by which one that is only allocated differs. */
static void untake(kvcl_owner_t *owner, uint32_t slot)
{
    owner->array[slot].note &= (uint8_t)~KVCL_NOTE_TAKEN;
    if (!owner->managed) {
        (void)!kvcl_slots_abort(&owner->slots, slot);
    }
}

static kvcl_status_t take_slot(kvcl_owner_t *owner, uint32_t slot, uint64_t tenant, const char *name)
{
    const kvcl_slot_t *at = &owner->array[slot];

    if ((at->state == KVCL_SLOT_FREE) && owner->managed) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: block %u was not allocated: allocate it with kvcl_store_alloc() "
                         "first", name, slot);
    }
    if ((at->state != (unsigned)idle_state(owner)) || (owner->managed && (at->note & KVCL_NOTE_TAKEN))) {
        return kvcl_fail(KVCL_ERR_BUSY, "%s: block %u is published already, or being put", name, slot);
    }
    if (!kvcl_owner_allows(owner, slot, tenant)) {
        return kvcl_fail(KVCL_ERR_ACCESS, "%s: block %u was not allocated by the handle of tenant %llu: publish it by "
                         "the handle that allocated it", name, slot, (unsigned long long)tenant);
    }
    if (!owner->managed) {
        (void)!kvcl_slots_take(&owner->slots, slot);
    }
    owner->array[slot].note |= KVCL_NOTE_TAKEN;
    return KVCL_OK;
}

kvcl_status_t kvcl_own_take(kvcl_store_h store, kvcl_cache_h cache, const uint32_t *ids, size_t n, uint64_t tenant,
                            const char *name, kvcl_owner_t **owner_p)
{
    kvcl_status_t status;
    size_t        i = 0;

    kvcl_lock(store->ctx);
    status = kvcl_owner_attach(store, cache, (store->own != NULL) && (store->own->cache == cache), KVCL_DIR_TIER_CACHE,
                               owner_p);
    while ((status == KVCL_OK) && (i < n)) {
        status = take_slot(*owner_p, ids[i], tenant, name);
        i += (status == KVCL_OK) ? 1 : 0;
    }
    while ((status != KVCL_OK) && (i-- > 0)) {
        untake(*owner_p, ids[i]);
    }
    kvcl_unlock_quietly(store->ctx);
    return status;
}

/* A published block is only taken again. */
static void retake(kvcl_owner_t *owner, kvcl_store_rec_t *rec)
{
    kvcl_store_rec_t withdrawn;

    (void)!kvcl_owner_withdraw(owner, rec->loc.slot, KVCL_SLOT_FILLING, &withdrawn);
    owner->array[rec->loc.slot].note |= KVCL_NOTE_TAKEN;
    rec->loc.gen = 0;
}

/* Lock held. A block without its tenant's number could not be withdrawn by the tenant, which then changes bytes that
 * are published. */
static kvcl_status_t publish_slot(kvcl_owner_t *owner, kvcl_store_rec_t *rec, uint64_t tenant)
{
    bool          summed = !(owner->store->flags & KVCL_STORE_NO_CHECKSUM);
    kvcl_status_t status;

    kvcl_assert_locked(owner->store->ctx);
    status = kvcl_owner_publish(owner, rec->loc.slot, &rec->key, rec->loc.checksum, summed, 1, tenant, &rec->loc);
    if ((status == KVCL_OK) && (tenant != 0) && (kvcl_owner_tenant(owner, rec->loc.slot) != tenant)) {
        retake(owner, rec);
        status = KVCL_ERR_NO_MEMORY;
    }
    return status;
}

static uint32_t item(const uint32_t *order, size_t i)
{
    return (order != NULL) ? order[i] : (uint32_t)i;
}

/* Lock held. n taken blocks become PUBLISHED, the end of the chain first (policy/evict.h). On an error all of them are
 * only taken. */
static kvcl_status_t publish_slots(kvcl_owner_t *owner, kvcl_store_rec_t *recs, const uint32_t *order, size_t n,
                                   uint64_t tenant, const char *name)
{
    kvcl_status_t    status = KVCL_OK;
    kvcl_store_rec_t *rec   = NULL;
    size_t           i      = n;

    kvcl_assert_locked(owner->store->ctx);
    while ((status == KVCL_OK) && (i-- > 0)) {
        rec    = &recs[item(order, i)];
        status = publish_slot(owner, rec, tenant);
    }
    if (status == KVCL_OK) {
        return KVCL_OK;
    }
    status = (status == KVCL_ERR_NO_MEMORY)
                 ? kvcl_fail(status, "%s: no memory for the number of tenant %llu", name, (unsigned long long)tenant)
                 : kvcl_fail(KVCL_ERR_BUSY, "%s: block %u is published already", name, rec->loc.slot);
    while (++i < n) {
        retake(owner, &recs[item(order, i)]);
    }
    return status;
}

static void unpublish_slots(kvcl_owner_t *owner, const kvcl_store_rec_t *recs, size_t n)
{
    kvcl_store_rec_t withdrawn;
    size_t           i;

    kvcl_lock(owner->store->ctx);
    for (i = 0; i < n; ++i) {
        if (kvcl_owner_withdraw(owner, recs[i].loc.slot, idle_state(owner), &withdrawn) == KVCL_OK) {
            kvcl_store_notify_removed(owner->store, &withdrawn, 1);
        }
    }
    kvcl_unlock(owner->store->ctx);
}

/* No lock. Publishes taken blocks without notifying the homes. On an error they are the caller's again. */
static kvcl_status_t publish_here(kvcl_owner_t *owner, kvcl_store_rec_t *recs, size_t n, uint64_t tenant)
{
    kvcl_store_h  store = owner->store;
    kvcl_status_t status;
    size_t        i;

    for (i = 0; !(store->flags & KVCL_STORE_NO_CHECKSUM) && (i < n); ++i) {
        recs[i].loc.checksum = kvcl_store_block_sum(owner->cache, recs[i].loc.slot);
    }
    kvcl_lock(store->ctx);
    status = kvcl_owner_reserve(store, n);
    if (status == KVCL_OK) {
        status = publish_slots(owner, recs, NULL, n, tenant, "kvcl_store_publish");
    }
    for (i = 0; (status != KVCL_OK) && (i < n); ++i) {
        untake(owner, recs[i].loc.slot);
    }
    kvcl_unlock_quietly(store->ctx);
    return status;
}

kvcl_status_t kvcl_own_show(kvcl_owner_t *owner, kvcl_store_rec_t *recs, const uint32_t *order, size_t n,
                            const char *name)
{
    kvcl_status_t status = kvcl_owner_reserve(owner->store, n);
    size_t        i;

    kvcl_assert_locked(owner->store->ctx);
    if (status == KVCL_OK) {
        owner->quiet = true;
        status       = publish_slots(owner, recs, order, n, 0, name);
        owner->quiet = false;
    }
    for (i = 0; (status == KVCL_OK) && (i < n); ++i) {
        kvcl_owner_pin(owner, recs[order[i]].loc.slot);
    }
    return status;
}

void kvcl_own_hide(kvcl_owner_t *owner, const kvcl_store_rec_t *recs, size_t n)
{
    kvcl_store_rec_t withdrawn;
    size_t           i;

    kvcl_assert_locked(owner->store->ctx);
    owner->quiet = true;
    for (i = 0; i < n; ++i) {
        if (recs[i].loc.gen == 0) {
            untake(owner, recs[i].loc.slot);
        } else if (kvcl_slots_check(&owner->slots, recs[i].loc.slot, recs[i].loc.gen, &recs[i].key) == KVCL_OK) {
            (void)!kvcl_owner_withdraw(owner, recs[i].loc.slot, idle_state(owner), &withdrawn);
        }
    }
    owner->quiet = false;
}

static kvcl_status_t publish_blocks(kvcl_store_h store, kvcl_store_rec_t *recs, size_t n, kvcl_cache_h cache,
                                    const uint32_t *ids, uint64_t tenant, const kvcl_xfer_params_t *p,
                                    kvcl_req_h *req_p)
{
    kvcl_owner_t  *owner;
    kvcl_status_t status = kvcl_own_take(store, cache, ids, n, tenant, "kvcl_store_publish", &owner);

    if ((status != KVCL_OK) || ((status = publish_here(owner, recs, n, tenant)) != KVCL_OK)) {
        return status;
    }
    status = kvcl_publish_start(owner, recs, n, NULL, p, req_p);
    if (status != KVCL_OK) {
        unpublish_slots(owner, recs, n);
    }
    return status;
}

kvcl_status_t kvcl_own_publish(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                               const uint32_t *ids, uint64_t tenant, const kvcl_xfer_params_t *params,
                               kvcl_req_h *req_p)
{
    kvcl_sel_t         sel    = {.blocks = ids, .n_blocks = n};
    kvcl_status_t      status = kvcl_store_check(store, keys, n, "kvcl_store_publish");
    kvcl_xfer_params_t p;
    kvcl_store_rec_t   *recs;
    size_t             i;

    if ((status != KVCL_OK) || ((status = kvcl_xfer_params(params, KVCL_CALL_STORE_PUBLISH, &p)) != KVCL_OK) ||
        ((status = kvcl_xfer_local(store->ctx, cache, &sel, "kvcl_store_publish")) != KVCL_OK)) {
        return status;
    }
    if (n == 0) {
        return kvcl_req_instant(store->ctx, KVCL_OK, 0, &p, req_p);
    }
    recs = calloc(n, sizeof(*recs));
    if (recs == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_store_publish: no memory for %zu blocks", n);
    }
    for (i = 0; i < n; ++i) {
        recs[i].key      = keys[i];
        recs[i].loc.slot = ids[i];
    }
    status = publish_blocks(store, recs, n, cache, ids, tenant, &p, req_p);
    free(recs);
    return status;
}

kvcl_status_t kvcl_store_publish(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                                 const uint32_t *ids, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
{
    kvcl_entry_t  entry;
    kvcl_status_t status = kvcl_store_enter(&store, &keys, n, "kvcl_store_publish", &entry);

    if (status == KVCL_OK) {
        status = kvcl_own_publish(store, keys, n, cache, ids, kvcl_tenant_of(entry.tenant), params, req_p);
    }
    kvcl_store_leave(&entry);
    return status;
}

/* ---- kvcl_store_withdraw ---- */

/* tenant: 0, or only its blocks are withdrawn. */
static kvcl_status_t withdraw(kvcl_store_h store, uint64_t tenant, kvcl_cache_h cache, const uint32_t *ids, size_t n)
{
    kvcl_sel_t       sel    = {.blocks = ids, .n_blocks = n};
    kvcl_status_t    status = kvcl_store_check(store, ids, n, "kvcl_store_withdraw");
    kvcl_store_rec_t *recs;
    kvcl_owner_t     *owner;
    size_t           i, n_done = 0;

    if (status == KVCL_OK) {
        status = kvcl_xfer_local(store->ctx, cache, &sel, "kvcl_store_withdraw");
    }
    if ((status != KVCL_OK) || (n == 0)) {
        return status;
    }
    recs = malloc(n * sizeof(*recs));
    if (recs == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "kvcl_store_withdraw: no memory for %zu blocks", n);
    }
    kvcl_lock(store->ctx);
    owner = cache->store;
    if ((owner != NULL) && (owner->store == store)) {
        for (i = 0; i < n; ++i) {
            if (((tenant == 0) || (kvcl_owner_tenant(owner, ids[i]) == tenant)) &&
                (kvcl_owner_withdraw(owner, ids[i], idle_state(owner), &recs[n_done]) == KVCL_OK)) {
                ++n_done;
            }
        }
        kvcl_store_notify_removed(store, recs, n_done);
    }
    kvcl_unlock(store->ctx);
    free(recs);
    return KVCL_OK;
}

kvcl_status_t kvcl_store_withdraw(kvcl_store_h store, kvcl_cache_h cache, const uint32_t *ids, size_t n)
{
    kvcl_entry_t  entry;
    kvcl_status_t status = kvcl_store_enter(&store, NULL, 0, "kvcl_store_withdraw", &entry);

    if (status == KVCL_OK) {
        status = withdraw(store, kvcl_tenant_of(entry.tenant), cache, ids, n);
    }
    kvcl_store_leave(&entry);
    return status;
}
