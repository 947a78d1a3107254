/*
 * What the lower rooms of the store report to the upper ones: one listener, filled in one place (store.c). So owners,
 * the pool and homes name no function of the second tier, of copies, of events or of repair.
 *
 * Engine lock held. A function that has nothing to do returns at once; none is NULL.
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
    /** Free blocks were allocated: fewer are free now. */
    void (*taken)(const struct kvcl_owner *owner);
    /** True: the caller must not notify the homes; the listener does so later. */
    bool (*evicted)(const struct kvcl_owner *owner, uint32_t slot);
    /** May another class have the memory of these blocks? False: not yet. */
    bool (*may_release)(const struct kvcl_owner *owner, kvcl_slab_ids_t ids);
    void (*released)(const struct kvcl_owner *owner, kvcl_slab_ids_t ids);
    /** An event of a block that is PUBLISHED or was just withdrawn. */
    void (*event)(struct kvcl_owner *owner, uint32_t slot, kvcl_store_event_kind_t kind, int to_rank);
    /** The owner is being detached. */
    void (*detached)(struct kvcl_owner *owner);
    /** A rank has removed the key, whose block is on this rank. */
    void (*lost)(struct kvcl_store *store, const kvcl_key_t *key);
    /** This rank, as their home, has removed keys[order[0..n)] (order NULL: keys[0..n)). */
    void (*removed)(struct kvcl_store *store, const kvcl_key_t *keys, const uint32_t *order, size_t n);
    /** Does this rank's tier still hold the block at this location? */
    bool (*tier_holds)(const struct kvcl_store *store, const kvcl_key_t *key, const kvcl_dir_loc_t *loc);
    /** A block in the tier is got often: copy it into the pool from rec, a copy that is listed as `source`. False: not
     * now. */
    bool (*promote)(struct kvcl_store *store, const kvcl_store_rec_t *rec, unsigned copies,
                    const kvcl_dir_loc_t *source);
    /** A user's get has ended. */
    void (*got)(struct kvcl_get *get);
    /** A rank has failed or departed, and the map is new. */
    void (*rank_failed)(struct kvcl_store *store);
    /** Shards move to other homes, or begin anew to do so: home/follow_views.h. */
    void (*shards_move)(struct kvcl_store *store);
    /** The tier's blocks are to be listed again; are they listed? True without a tier. */
    void (*list_tier)(struct kvcl_store *store);
    bool (*tier_is_listed)(const struct kvcl_store *store);
    /** Has the rank heard of this rank's steps, and made its own? Asked until shards have moved: store/grow/part.h. */
    void (*ask_moved)(struct kvcl_store *store, uint32_t rank, uint64_t id, bool listed, bool switched);
    /** They have moved. */
    void (*shards_moved)(struct kvcl_store *store);
    /** A rank that was silent answers again, or one that was excluded is admitted again. */
    void (*rank_back)(struct kvcl_store *store, uint32_t rank);
} kvcl_store_listener_t;

extern const kvcl_store_listener_t kvcl_store_listener; /* store.c */

#endif
