/*
 * Waiting for room in this rank's pool (pool/room.c).
 */
#ifndef KVCL_STORE_POOL_ROOM_H
#define KVCL_STORE_POOL_ROOM_H

#include "store/store.h"

/** No lock; blocks until store->n_freed differs from `seen`, a pin has expired, or the deadline has passed. False: the
 * deadline has passed, or the store is being closed. */
bool kvcl_store_wait_room(kvcl_store_h store, uint64_t seen, uint64_t deadline_ns);

/** A block has become free or evictable: threads that wait for room try again. */
static inline void kvcl_store_freed(struct kvcl_store *store)
{
    ++store->n_freed;
    if (store->n_room_waiters != 0) {
        kvcl_engine_notify(store->ctx);
    }
}

#endif
