/*
 * Blocks of values in this rank's pool: taken, filled by the caller's thread (value_fill.c), and published.
 *
 * A taken block is FILLING and belongs to its put, which fills it without the lock. It is published once, or returned.
 */
#include "config.h"
#include "base/error.h"
#include "value/value.h"
#include "store/pool/blocks.h"
#include "store/pool/publish_own.h"
#include "store/pool/room.h"

kvcl_status_t kvcl_value_take(const kvcl_value_put_t *put, size_t n, uint32_t *slots)
{
    kvcl_store_h  store = put->store;
    kvcl_status_t status;
    uint64_t      seen;

    do {
        kvcl_lock(store->ctx);
        seen   = store->n_freed;
        status = store->closing ? kvcl_fail(KVCL_ERR_SHUTDOWN, "the store is being closed")
                                : kvcl_owner_reserve(store, n);
        if (status == KVCL_OK) {
            status = kvcl_owner_take_for(store->value_pool, put->tenant, n, slots);
        }
        kvcl_unlock(store->ctx);
    } while ((status == KVCL_ERR_NO_SPACE) && (put->flags & KVCL_PUT_WAIT) &&
             (n <= kvcl_owner_most(store->value_pool)) && kvcl_store_wait_room(store, seen, put->deadline_ns));
    return status;
}

void kvcl_value_return(kvcl_store_h store, const uint32_t *slots, size_t n)
{
    size_t i;

    kvcl_lock(store->ctx);
    for (i = 0; i < n; ++i) {
        (void)!kvcl_slots_abort(&store->value_pool->slots, slots[i]);
        kvcl_store_freed(store);
    }
    kvcl_unlock(store->ctx);
}

size_t kvcl_value_publish(const kvcl_value_put_t *put, const uint32_t *slots, size_t n, kvcl_store_rec_t *recs,
                          uint32_t *item)
{
    kvcl_store_h store  = put->store;
    bool         summed = !(store->flags & KVCL_STORE_NO_CHECKSUM);
    size_t       kept   = 0, i;

    kvcl_assert_locked(store->ctx);
    for (i = 0; i < n; ++i) {
        if (store->closing || (kvcl_owner_find(store, &recs[i].key, store->value_pool) != NULL) ||
            (kvcl_owner_publish(store->value_pool, slots[i], &recs[i].key, recs[i].loc.checksum, summed, put->copies,
                                put->tenant, &recs[i].loc) != KVCL_OK)) {
            (void)!kvcl_slots_abort(&store->value_pool->slots, slots[i]);
            kvcl_store_freed(store);
            continue;
        }
        recs[kept] = recs[i];
        if (item != NULL) {
            item[kept] = item[i];
        }
        ++kept;
    }
    return kept;
}
