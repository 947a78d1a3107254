/*
 * The owner of a cache's blocks: what one cache contributes to a store.
 *
 * Owns: the slot states (dir/slots.h, over the cache's own generation words), the order of eviction where the store
 * hands the blocks out, and the links by which the store's index finds a local block by its key. A cache belongs to at
 * most one owner; kvcl_cache_t.store points to its first member.
 * All under the engine lock.
 */
#ifndef KVCL_STORE_POOL_OWNER_H
#define KVCL_STORE_POOL_OWNER_H

#include "dir/slots.h"
#include "cache/cache.h"
#include "policy/evict.h"
#include "store/pool/pins.h"
#include "policy/slabs.h"
#include "store/store_wire.h"
#include "policy/tenants.h"
#include <kvcl/kvcl_store_events.h>

struct kvcl_store;

/* A slot's place in the index: slots whose keys have one hash are chained. */
typedef struct kvcl_owner_node {
    struct kvcl_owner_node *next;
    struct kvcl_owner      *owner;
} kvcl_owner_node_t;

/* A slot's note: how many copies there are as far as is known (0: this one), whether its bytes are found to be wrong
 * (it is pinned, else it were gone), and whether a home lists this one. */
enum { KVCL_NOTE_COPIES = 0x0f, KVCL_NOTE_SPOILT = 0x40, KVCL_NOTE_LISTED = 0x80 };

typedef struct kvcl_owner {
    kvcl_cache_user_t user;      /* what the cache knows of us */
    struct kvcl_store *store;
    kvcl_cache_h      cache;
    bool              managed;   /* the store hands its blocks out and takes them back */
    bool              quiet;     /* for as long as the lock is held: what changes is no event */
    uint16_t          tier;      /* KVCL_DIR_TIER_* */
    kvcl_slots_t      slots;
    kvcl_slot_t       *array;
    kvcl_owner_node_t *nodes;
    kvcl_evict_t      evict;     /* managed */
    void              *evict_mem;
    uint32_t          *pins;     /* managed: by kvcl_owner_pin */
    uint32_t          pinned;    /* slots with pins */
    struct kvcl_pool  *pool;     /* it is one of this pool's classes, or NULL */
    unsigned          cls;       /* which */
    kvcl_slabs_t      *slabs;    /* the pool's, if it has several classes: slots out of them are FILLING */
    kvcl_tenants_t    *tenants;  /* managed: whose the blocks are; the pool's, or own_tenants */
    kvcl_tenants_t    own_tenants;
    size_t            n_copying; /* blocks that copy jobs (copy/copy_jobs.c) have taken */
    kvcl_pins_t       held;      /* managed: pins with a holder and an expiry, each a kvcl_owner_pin */
    kvcl_list_t       link;      /* store->owners */
} kvcl_owner_t;

/** Any lock. KVCL_ERR_UNSUPPORTED: locations, which have 16 bits for it, cannot name the cache: so many were made. */
kvcl_status_t kvcl_owner_check_id(kvcl_cache_h cache) KVCL_MUST_CHECK;
/** Engine lock held. KVCL_ERR_BUSY: another store uses the cache. An owner that is there already is returned. */
kvcl_status_t kvcl_owner_attach(struct kvcl_store *store, kvcl_cache_h cache, bool managed, uint16_t tier,
                                kvcl_owner_t **owner_p) KVCL_MUST_CHECK;
/** The same for a class of a pool that is being opened. */
kvcl_status_t kvcl_owner_attach_class(struct kvcl_store *store, kvcl_cache_h cache, struct kvcl_pool *pool, unsigned cls,
                                      kvcl_owner_t **owner_p) KVCL_MUST_CHECK;
/** Nothing of it is published. */
void          kvcl_owner_detach(kvcl_owner_t *owner);

/** Does it hold this, and does a home list it? */
bool          kvcl_owner_lists(const kvcl_owner_t *owner, const kvcl_key_t *key);
/** Some homes are gone: of blocks that had only one, nothing is known. */
void          kvcl_owner_unlist(kvcl_owner_t *owner);

/** FILLING -> PUBLISHED, into the index and the order of eviction. The index must have room: kvcl_owner_reserve().
 * copies: how many there shall be of it, 1 to KVCL_DIR_LOCS_MAX. tenant: whose it is, if the owner is managed. */
kvcl_status_t kvcl_owner_publish(kvcl_owner_t *owner, uint32_t slot, const kvcl_key_t *key, uint64_t checksum,
                                 bool summed, unsigned copies, uint64_t tenant, kvcl_dir_loc_t *loc_p) KVCL_MUST_CHECK;
kvcl_status_t kvcl_owner_reserve(struct kvcl_store *store, size_t n) KVCL_MUST_CHECK;

/**
 * PUBLISHED -> next: the generation is bumped on return. *rec_p: what to remove from the directory. why, to_rank: the
 * event that followers are told.
 * @return KVCL_OK, KVCL_ERR_BUSY (not published).
 */
kvcl_status_t kvcl_owner_give_up(kvcl_owner_t *owner, uint32_t slot, kvcl_slot_state_t next,
                                 kvcl_store_event_kind_t why, int to_rank, kvcl_store_rec_t *rec_p) KVCL_MUST_CHECK;

/** The same, for KVCL_STORE_REMOVED. */
static inline kvcl_status_t kvcl_owner_withdraw(kvcl_owner_t *owner, uint32_t slot, kvcl_slot_state_t next,
                                                kvcl_store_rec_t *rec_p)
{
    return kvcl_owner_give_up(owner, slot, next, KVCL_STORE_REMOVED, -1, rec_p);
}

/** Not to be evicted until unpinned as often, or withdrawn. A slot of an owner that is not managed is so anyway. */
void kvcl_owner_pin(kvcl_owner_t *owner, uint32_t slot);
void kvcl_owner_unpin(kvcl_owner_t *owner, uint32_t slot);
/** The blocks of mine that recs name, where they are still those. */
void kvcl_owner_pin_recs(kvcl_owner_t *owner, const kvcl_store_rec_t *recs, size_t n, bool pin);

/** It was used: of a chain, the end first (evict.h). */
void kvcl_owner_touch(kvcl_owner_t *owner, uint32_t slot);

/** A local published copy of key that is not spoilt: in owner `want`, or (NULL) in any: the store's own cache first,
 * its pool last. */
kvcl_owner_node_t *kvcl_owner_find(struct kvcl_store *store, const kvcl_key_t *key, const kvcl_owner_t *want);
kvcl_owner_t      *kvcl_owner_by_cache_id(struct kvcl_store *store, uint32_t id);
/** The owner whose cache has the least number from `least` on: how all are walked while they come and go. */
kvcl_owner_t      *kvcl_owner_next(struct kvcl_store *store, uint64_t least);

static inline uint32_t kvcl_owner_slot(const kvcl_owner_node_t *node)
{
    return (uint32_t)(node - node->owner->nodes);
}

static inline uint64_t kvcl_owner_bytes(const kvcl_owner_t *owner)
{
    return owner->cache->shape.block_bytes;
}

/* Blocks that it has room for now. */
static inline uint32_t kvcl_owner_room(const kvcl_owner_t *owner)
{
    return (owner->slabs != NULL) ? owner->slabs->classes[owner->cls].n_room : owner->slots.n;
}

static inline uint64_t kvcl_owner_tenant(const kvcl_owner_t *owner, uint32_t slot)
{
    return owner->managed ? kvcl_tenants_of(owner->tenants, owner->cls, slot) : 0;
}

static inline uint64_t kvcl_owner_hash(const kvcl_key_t *key)
{
    uint64_t a, b;

    memcpy(&a, key->bytes, sizeof(a));
    memcpy(&b, key->bytes + 8, sizeof(b));
    return a ^ (b * UINT64_C(0x9e3779b97f4a7c15));
}

#endif
