/*
 * Waiting for room in the pool: back-pressure on puts. A waiting thread sleeps until a block becomes free or evictable
 * (kvcl_store_freed), a pin expires, or its deadline passes; its caller then tries again.
 *
 * Owns nothing. No lock held by the caller.
 */
#include "config.h"
#include "base/clock.h"
#include "store/pool/pool.h"
#include "store/pool/room.h"

typedef struct room_wait {
    kvcl_store_h store;
    uint64_t     seen;
} room_wait_t;

static bool is_freed(void *arg)
{
    const room_wait_t *wait = arg;

    return (wait->store->n_freed != wait->seen) || wait->store->closing;
}

bool kvcl_store_wait_room(kvcl_store_h store, uint64_t seen, uint64_t deadline_ns)
{
    room_wait_t wait = {.store = store, .seen = seen};
    uint64_t    until = KVCL_DEADLINE_NONE, next;
    unsigned    i;

    kvcl_lock(store->ctx);
    ++store->n_room_waiters;
    for (i = 0; i < store->pool->n; ++i) {
        next  = kvcl_pins_next(store->pool->owners[i]);
        until = (next < until) ? next : until;
    }
    kvcl_unlock(store->ctx);
    (void)kvcl_engine_wait(store->ctx, is_freed, &wait, (until < deadline_ns) ? until : deadline_ns);
    kvcl_lock(store->ctx);
    --store->n_room_waiters;
    kvcl_unlock(store->ctx);
    return !store->closing && !kvcl_deadline_passed(deadline_ns);
}
