/*
 * What the rooms below tell those above: one listener, filled in one place (store.c). So owners, the pool and homes
 * name no function of the second tier, of copies, of events, of repair.
 *
 * All under the engine lock. A function that has nothing to do returns at once; none is NULL.
 */
#ifndef KVCL_STORE_LISTENER_H
#define KVCL_STORE_LISTENER_H

#include "policy/slabs.h"
#include "store/store_wire.h"
#include <kvcl/kvcl_store_events.h>

struct kvcl_get;
struct kvcl_owner;
struct kvcl_store;

typedef struct kvcl_store_listener {
    /* Blocks of an owner. */
    void (*published)(const struct kvcl_owner *owner, uint32_t slot, uint64_t checksum);
    void (*used)(const struct kvcl_owner *owner, uint32_t slot);
    /** Free blocks were taken: fewer are free now. */
    void (*taken)(const struct kvcl_owner *owner);
    /** True: homes are not to be told yet, the listener does that later. */
    bool (*evicted)(const struct kvcl_owner *owner, uint32_t slot);
    /** May another class have the room of these? False: not yet. */
    bool (*may_release)(const struct kvcl_owner *owner, kvcl_slab_ids_t ids);
    void (*released)(const struct kvcl_owner *owner, kvcl_slab_ids_t ids);
    /** The block, PUBLISHED or just withdrawn, has changed so. */
    void (*event)(struct kvcl_owner *owner, uint32_t slot, kvcl_store_event_kind_t kind, int to_rank);
    /** The owner goes. */
    void (*detached)(struct kvcl_owner *owner);
    /* Keys: somebody removed a block of mine; this rank, as their home, has removed keys[order[0..n)] (or [0..n)). */
    void (*lost)(struct kvcl_store *store, const kvcl_key_t *key);
    void (*removed)(struct kvcl_store *store, const kvcl_key_t *keys, const uint32_t *order, size_t n);
    /** Is this location of mine, in the tier, still that block's? */
    bool (*tier_holds)(const struct kvcl_store *store, const kvcl_key_t *key, const kvcl_dir_loc_t *loc);
    /** Of a block in the tier that is wanted often: take this copy of it, which is listed as `source`, into the pool.
     * False: not now. */
    bool (*promote)(struct kvcl_store *store, const kvcl_store_rec_t *rec, unsigned copies,
                    const kvcl_dir_loc_t *source);
    /** A user's get has ended. */
    void (*got)(struct kvcl_get *get);
    /** A rank no longer takes part, and the map is new. */
    void (*rank_failed)(struct kvcl_store *store);
    /** A rank that was silent answers again, or one that was excluded is taken back. */
    void (*rank_back)(struct kvcl_store *store, uint32_t rank);
} kvcl_store_listener_t;

#endif
