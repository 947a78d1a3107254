/*
 * Listing blocks of the tier at their homes: those that were just written, and those that a start has found.
 *
 * At most KVCL_COLD_LISTINGS_MAX listings are in flight. Each keeps the pool blocks that become clean when the homes
 * have answered; one that was evicted meanwhile stays listed in the pool until then, and is removed from its homes
 * here.
 *
 * The tier thread starts them; they end on any thread, under the engine lock.
 */
#include "config.h"
#include "base/error.h"
#include "base/log.h"
#include "store/cold/listing.h"
#include "store/home/home_answer.h"
#include "store/pool/pool.h"
#include "store/pool/publish.h"
#include "xfer/params.h"

#include <stdlib.h>

enum { LIST_BATCH = 1024 };

void kvcl_listing_settle(kvcl_cold_t *cold, const kvcl_cold_listing_t *listing)
{
    size_t i;

    kvcl_assert_locked(cold->store->ctx);
    for (i = 0; i < listing->n; ++i) {
        const kvcl_dir_loc_t *loc = &listing->blocks[i].rec.loc;
        kvcl_cold_class_t    *cls = listing->blocks[i].cls;
        if (kvcl_slots_gen(&cls->pool->slots, loc->slot) != loc->gen) {
            kvcl_store_notify_removed(cold->store, &listing->blocks[i].rec, 1);
        } else if (cls->clean[loc->slot] == KVCL_COLD_LISTED_SOON) {
            cls->clean[loc->slot] = KVCL_COLD_CLEAN;
        }
    }
}

static void on_listed(void *arg, kvcl_status_t status)
{
    kvcl_cold_listing_t *listing = arg;
    kvcl_cold_t         *cold    = listing->cold;
    kvcl_context_h      ctx      = cold->store->ctx;

    if (status != KVCL_OK) {
        kvcl_log_debug("blocks of a tier are not all listed: %s", kvcl_status_text(status));
    }
    kvcl_lock(ctx);
    if (!cold->store->closing) {
        kvcl_listing_settle(cold, listing);
    }
    free(listing);
    --cold->listing;
    if (cold->listing == KVCL_COLD_LISTINGS_MAX - 1) {
        kvcl_cold_wake(cold);
    } else if ((cold->listing == 0) && !cold->notified) {
        kvcl_cold_kick(cold);
    }
    --cold->store->ops; /* last: the store may be closed from here on */
    kvcl_engine_notify(ctx);
    kvcl_unlock(ctx);
}

bool kvcl_listing_start(kvcl_cold_t *cold, const kvcl_store_rec_t *recs, size_t n, kvcl_cold_listing_t *listing)
{
    kvcl_store_h       store = cold->store;
    kvcl_xfer_params_t p     = {.size = sizeof(p), .cb = on_listed, .cb_arg = listing};
    kvcl_status_t      status;
    bool               now;

    kvcl_lock(store->ctx);
    now = !store->closing && (cold->listing < KVCL_COLD_LISTINGS_MAX);
    if (now) {
        ++cold->listing;
        ++store->ops;
    }
    kvcl_unlock(store->ctx);
    if (!now) {
        return false;
    }
    status = kvcl_publish_start(cold->classes[0].pool, recs, n, NULL, &p, NULL);
    if (status != KVCL_OK) {
        on_listed(listing, status);
    }
    return true;
}

/* ---- the tier's blocks at start ---- */

void kvcl_cold_list_again(kvcl_cold_t *cold)
{
    if (cold != NULL) {
        kvcl_assert_locked(cold->store->ctx);
        cold->notified = false;
        atomic_store(&cold->again, true);
        kvcl_cold_kick(cold);
    }
}

/* Nothing is listed without the thread: a rank that comes to a store starts it when its shards have moved. */
bool kvcl_cold_is_listed(const kvcl_cold_t *cold)
{
    return (cold == NULL) || !cold->started || cold->notified;
}

/* Once all listings of a start are over. */
static void notify_others(kvcl_cold_t *cold)
{
    kvcl_store_h store = cold->store;

    kvcl_lock(store->ctx);
    if (!cold->notified && (cold->listing == 0) && !atomic_load(&cold->again) && !store->closing) {
        cold->notified = true;
        kvcl_relist_over(store);
    }
    kvcl_unlock(store->ctx);
}

kvcl_cold_turn_t kvcl_cold_list(kvcl_cold_t *cold)
{
    kvcl_tier_item_t    *items;
    kvcl_store_rec_t    *recs;
    kvcl_cold_listing_t *listing;
    uint64_t            scan;
    size_t              n, some = 0, i;
    bool                done = true;

    if (atomic_exchange(&cold->again, false)) {
        cold->scan    = 0;
        cold->scanned = false;
    }
    scan = cold->scan;
    if (cold->scanned || cold->store->closing) {
        notify_others(cold);
        return KVCL_COLD_IDLE;
    }
    items   = malloc(LIST_BATCH * (sizeof(*items) + sizeof(*recs)));
    listing = calloc(1, sizeof(*listing));
    if ((items == NULL) || (listing == NULL) || atomic_load(&kvcl_cold_late)) {
        free(items);
        free(listing);
        return KVCL_COLD_WAIT;
    }
    listing->cold = cold;
    recs          = (kvcl_store_rec_t *)(void *)(items + LIST_BATCH);
    n             = kvcl_tier_walk(cold->tier, &scan, items, LIST_BATCH);
    for (i = 0; i < n; ++i) {
        if (kvcl_cold_class_for(cold, items[i].loc.len) != NULL) {
            memcpy(recs[some].key.bytes, items[i].key, sizeof(recs[some].key.bytes));
            recs[some++].loc = kvcl_cold_loc(cold, &items[i].loc, cold->store->replicas);
        }
    }
    if (some != 0) {
        done    = kvcl_listing_start(cold, recs, some, listing);
        listing = done ? NULL : listing;
    }
    free(listing);
    free(items);
    if (done) {
        cold->scan    = scan;
        cold->scanned = (n == 0);
    }
    return done ? KVCL_COLD_MORE : KVCL_COLD_WAIT;
}
