/*
 * The end of one attempt to fetch one block of a get.
 *
 * A copy that is missing is reported to its homes, a copy with other bytes to its owner. Engine lock held.
 */
#include "config.h"
#include "base/log.h"
#include "store/get/get.h"
#include "store/home/home_answer.h"

static void report_evicted(kvcl_store_h store, const kvcl_get_item_t *item)
{
    kvcl_store_rec_t rec = {.key = item->key, .loc = *kvcl_get_loc(item)};

    kvcl_store_notify_removed(store, &rec, 1);
}

/* The owner checks whether its block, the transfer or the directory is at fault. */
static void report_corrupt(kvcl_store_h store, const kvcl_get_item_t *item)
{
    kvcl_store_rec_t rec = {.key = item->key, .loc = *kvcl_get_loc(item)};

    kvcl_store_notify_owner(store, &rec, true);
}

/* The bytes that arrived have another checksum. The copy stays listed until its owner has checked it, so it may be
 * tried again. */
static void on_corrupt(kvcl_get_t *get, kvcl_get_item_t *item, bool from_tier)
{
    item->wrong = false;
    atomic_fetch_add_explicit(&get->store->corrupt, 1, memory_order_relaxed);
    kvcl_log_info("a block from rank %u does not have the bytes that were published", kvcl_get_loc(item)->rank);
    if (get->stopping == KVCL_OK) {
        item->again = true;
        if (!from_tier) {
            report_corrupt(get->store, item);
        }
    }
}

void kvcl_get_result(kvcl_get_t *get, uint32_t i, kvcl_status_t status)
{
    kvcl_get_item_t *item     = &get->items[i];
    kvcl_store_h    store     = get->store;
    const bool      from_tier = item->from_tier;

    kvcl_assert_locked(store->ctx);
    if (status == KVCL_OK) {
        item->why   = KVCL_OK;
        item->state = KVCL_GET_DONE;
        return;
    }
    item->state     = KVCL_GET_READY;
    item->from_tier = false;
    item->tried    |= (uint8_t)(1u << item->cur);
    if (item->wrong) {
        on_corrupt(get, item, from_tier);
        return;
    }
    switch (status) {
    case KVCL_ERR_STALE:
        atomic_fetch_add_explicit(&store->stale, 1, memory_order_relaxed);
        break;
    case KVCL_ERR_NOT_REGISTERED:
    case KVCL_ERR_OUT_OF_RANGE:
        break;
    default:
        item->why = status;
        return;
    }
    if (get->stopping == KVCL_OK) {
        item->again = true;
        report_evicted(store, item);
    }
}
