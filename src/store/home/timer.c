/*
 * Timers of a store. A timer is a request that no caller waits for, and its deadline is the event. So it ends with the
 * context like any request, and costs nothing while it waits.
 *
 * Invariant: fn runs at most once. Engine lock held.
 */
#include "config.h"
#include "store/home/timer.h"
#include "store/store.h"

#include <stdlib.h>

struct kvcl_store_timer {
    kvcl_req_t   req;
    kvcl_store_h store;
    bool         over;
    void         (*fn)(void *arg);
    void         *arg;
};

static void end(kvcl_store_timer_t *timer, kvcl_status_t status, bool fire)
{
    if (timer->over) {
        return;
    }
    timer->over = true;
    --timer->store->ops;
    if (fire) {
        timer->fn(timer->arg);
    }
    kvcl_req_complete(&timer->req, status);
}

/* The deadline has passed; or the context ends, after which the store starts nothing new. */
static void stop(kvcl_req_t *req, kvcl_status_t status)
{
    kvcl_store_h store = kvcl_container_of(req, kvcl_store_timer_t, req)->store;

    if (status != KVCL_ERR_TIMED_OUT) {
        store->closing = true;
    }
    end(kvcl_container_of(req, kvcl_store_timer_t, req), status, true);
}

static const kvcl_req_class_t timer_class = {.name = "store-timer", .stop = stop};

kvcl_store_timer_t *kvcl_store_timer_start(kvcl_store_h store, uint64_t after_ns, void (*fn)(void *arg), void *arg)
{
    kvcl_store_timer_t *timer;

    kvcl_assert_locked(store->ctx);
    /* Peers fail while their context is closed, after its requests were stopped: no request would stop this one. */
    timer = (store->closing || store->ctx->closing) ? NULL : calloc(1, sizeof(*timer));
    if (timer == NULL) {
        return NULL;
    }
    timer->store = store;
    timer->fn    = fn;
    timer->arg   = arg;
    if (kvcl_req_start(&timer->req, store->ctx, &timer_class, after_ns, NULL, NULL, false) != KVCL_OK) {
        free(timer);
        return NULL;
    }
    ++store->ops;
    return timer;
}

void kvcl_store_timer_stop(kvcl_store_timer_t *timer)
{
    if (timer != NULL) {
        end(timer, KVCL_ERR_CANCELED, false);
    }
}
