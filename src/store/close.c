/*
 * Closing a store: stopping its operations, withdrawing its blocks, and freeing its memory.
 *
 * Owns the memory of a store from the moment it is closed. Invariant: memory is freed only when no operation is in
 * flight and no thread holds the store (store->ops is 0). Locks as close.h says.
 */
#include "config.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "handle/handle.h"
#include "req/callback.h"
#include "store/admin/ops.h"
#include "store/close.h"
#include "store/cold/cold.h"
#include "store/copy/copy_jobs.h"
#include "store/copy/repair.h"
#include "store/home/far_table.h"
#include "store/home/home_answer.h"
#include "store/home/mapped.h"
#include "store/home/ranks.h"
#include "store/home/follow_views.h"
#include "store/pool/pool.h"
#include "store/pool/rehome.h"
#include "store/pool/republish.h"
#include "store/store.h"
#include "store/tenant.h"

#include <stdlib.h>

/* Lock held. */
static void close_views(kvcl_store_h store)
{
    uint32_t i;

    kvcl_assert_locked(store->ctx);
    for (i = 0; (store->ranks != NULL) && (i < store->n_ranks); ++i) {
        kvcl_far_close(store, i);
    }
}

void kvcl_store_unlink(kvcl_store_h store)
{
    kvcl_assert_locked(store->ctx);
    kvcl_list_del(&store->link);
    close_views(store);
    while (!kvcl_list_is_empty(&store->owners)) {
        kvcl_owner_detach(kvcl_list_head(&store->owners, kvcl_owner_t, link));
    }
}

void kvcl_store_free_memory(kvcl_store_h store)
{
    kvcl_tenants_close(store);
    kvcl_map_fini(&store->index);
    kvcl_store_maps_free(store);
    kvcl_events_fini(&store->events);
    free(store->hot);
    free(store->uses);
    free(store->repair);
    free(store->rehome);
    kvcl_views_free(store);
    free(store->incarnations);
    free(store->places);
    free(store->place_ok);
    kvcl_mapped_free(store);
    free(store->ranks);
    kvcl_object_free(store);
}

void kvcl_store_destroy(kvcl_store_h store)
{
    kvcl_cold_close(store->cold);
    kvcl_lock(store->ctx);
    kvcl_store_unlink(store);
    kvcl_unlock(store->ctx);
    kvcl_pool_close(store->pool);
    kvcl_cache_destroy(store->stage);
    if (store->table_region != NULL) {
        kvcl_region_destroy(store->table_region);
    }
    kvcl_comm_free(store->comm);
    kvcl_store_free_memory(store);
}

/* Lock held. In batches, so that no list of all blocks is needed. */
static void withdraw_all(kvcl_store_h store)
{
    enum { BATCH = 64 };
    kvcl_store_rec_t recs[BATCH];
    kvcl_owner_t     *owner;
    size_t           n;
    uint32_t         slot;

    kvcl_assert_locked(store->ctx);
    kvcl_list_foreach (owner, &store->owners, kvcl_owner_t, link) {
        n = 0;
        for (slot = 0; slot < owner->slots.n; ++slot) {
            if (kvcl_owner_withdraw(owner, slot, KVCL_SLOT_FREE, &recs[n]) == KVCL_OK) {
                ++n;
            }
            if ((n == BATCH) || (slot + 1 == owner->slots.n)) {
                kvcl_store_notify_removed(store, recs, n);
                n = 0;
            }
        }
    }
}

static bool no_ops(void *arg)
{
    return ((kvcl_store_h)arg)->ops == 0;
}

void kvcl_store_close(kvcl_store_h store)
{
    if (kvcl_tenant_close(store) || !kvcl_handle_may_free(store, KVCL_KIND_STORE, "kvcl_store_close")) {
        return;
    }
    if (kvcl_callback_inside(store->ctx)) {
        (void)kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_store_close: called from a callback of the store's context: the "
                        "store stays open: call it from another thread");
        kvcl_log_error("%s", kvcl_last_error());
        return;
    }
    kvcl_cold_drain(store->cold);
    kvcl_lock(store->ctx);
    store->closing = true;
    kvcl_cold_stop(store->cold);
    kvcl_copies_stop(store);
    kvcl_calls_stop(store);
    kvcl_silence_stop(store);
    kvcl_republish_stop(store);
    kvcl_rehome_stop(store);
    kvcl_views_stop(store);
    kvcl_rpcs_stop(&store->probes, KVCL_ERR_SHUTDOWN);
    kvcl_rpcs_stop(&store->op_rpcs, KVCL_ERR_SHUTDOWN);
    kvcl_repair_stop(store);
    kvcl_far_stop(store);
    withdraw_all(store);
    kvcl_follow_stop(store);
    kvcl_engine_notify(store->ctx); /* wakes threads that wait for events, or for room */
    kvcl_unlock(store->ctx);
    if (!kvcl_engine_wait(store->ctx, no_ops, store, kvcl_deadline_after(5 * KVCL_NS_PER_SEC))) {
        (void)kvcl_fail(KVCL_ERR_BUSY, "kvcl_store_close: the store still has %u operations in flight after 5 s and is "
                        "not freed: cancel or await them, then close it again (kvcl_finalize frees it, too)",
                        store->ops);
        kvcl_log_error("%s", kvcl_last_error());
        return;
    }
    kvcl_store_destroy(store);
}
