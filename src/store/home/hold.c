/*
 * The first and last lines of every call on a store: the check of the handle, the lookup by id, and the hold that keeps
 * the store from being freed while a call uses it.
 *
 * Owns nothing. Invariant: store->ops counts the holds and the operations in flight; kvcl_store_close() frees the store
 * only when it is 0.
 */
#include "config.h"
#include "base/error.h"
#include "handle/handle.h"
#include "store/store.h"

kvcl_status_t kvcl_store_check(kvcl_store_h store, const void *keys, size_t n, const char *call)
{
    kvcl_status_t status = kvcl_handle_check(store, KVCL_KIND_STORE, call);

    if (status != KVCL_OK) {
        return status;
    }
    if ((keys == NULL) && (n != 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s: an array of %zu elements is NULL", call, n);
    }
    if (n > INT32_MAX) { /* so that no size computed from n overflows */
        return kvcl_fail(KVCL_ERR_OUT_OF_RANGE, "%s: %zu elements in one call, at most %d: split the call", call, n,
                         INT32_MAX);
    }
    if (store->closing) {
        return kvcl_fail(KVCL_ERR_SHUTDOWN, "%s: the store is being closed", call);
    }
    return KVCL_OK;
}

kvcl_store_h kvcl_store_by_id(kvcl_context_h ctx, uint64_t id)
{
    kvcl_store_h store;

    kvcl_list_foreach (store, &kvcl_store_room(ctx)->stores, struct kvcl_store, link) {
        if (store->id == id) {
            return store;
        }
    }
    return NULL;
}

kvcl_status_t kvcl_store_hold(kvcl_store_h store)
{
    kvcl_status_t status;

    kvcl_lock(store->ctx);
    status      = store->closing ? KVCL_ERR_SHUTDOWN : KVCL_OK;
    store->ops += (status == KVCL_OK) ? 1 : 0;
    kvcl_unlock(store->ctx);
    return (status == KVCL_OK) ? KVCL_OK : kvcl_fail(status, "the store is being closed");
}

void kvcl_store_release(kvcl_store_h store)
{
    kvcl_context_h ctx = store->ctx;

    kvcl_lock(ctx);
    --store->ops;
    if (store->closing) {
        kvcl_engine_notify(ctx);
    }
    kvcl_unlock(ctx);
}
