/*
 * The owner of a cache's blocks: one cache's part of a store.
 *
 * Owns the slot states (dir/slots.h, over the cache's own generation words), the links by which the store's index finds
 * a local block by its key and, if the store allocates the blocks, their eviction order. A cache belongs to at most one
 * owner; kvcl_cache_t.store points to its first member. Engine lock held.
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

/* A slot's node in the index: slots whose keys have the same hash are chained. */
typedef struct kvcl_owner_node {
    struct kvcl_owner_node *next;
    struct kvcl_owner      *owner;
} kvcl_owner_node_t;

/* A slot's note: the number of copies known (0: this one only), whether its bytes were found corrupt (it stays only
 * because it is pinned), and whether its homes list it, as far as they have answered. While FILLING: whether a call
 * that publishes it has taken it. */
enum { KVCL_NOTE_COPIES = 0x0f, KVCL_NOTE_TAKEN = 0x20, KVCL_NOTE_CORRUPT = 0x40, KVCL_NOTE_LISTED = 0x80 };

typedef struct kvcl_owner {
    kvcl_cache_user_t user;      /* the cache's link to its owner */
    struct kvcl_store *store;
    kvcl_cache_h      cache;
    bool              managed;   /* the store allocates and evicts the blocks */
    bool              quiet;     /* set while the lock is held: changes make no events */
    uint16_t          tier;      /* KVCL_DIR_TIER_* */
    kvcl_slots_t      slots;
    kvcl_slot_t       *array;
    kvcl_owner_node_t *nodes;
    kvcl_evict_t      evict;     /* managed */
    void              *evict_mem;
    uint32_t          *pins;     /* managed: pins of each slot, set by kvcl_owner_pin */
    uint32_t          pinned;    /* slots with pins */
    size_t            promised;  /* managed: blocks that puts have been promised, and have not taken yet (blocks.h) */
    uint64_t          *takers;   /* managed, not a pool's: the tenant by whose handle each block was allocated, or 0 */
    struct kvcl_pool  *pool;     /* the pool of which this is a class, or NULL */
    unsigned          cls;       /* number of the class */
    kvcl_slabs_t      *slabs;    /* the pool's if it has several classes: slots outside the class's slabs are FILLING */
    kvcl_tenants_t    *tenants;  /* managed: the tenant of each block; the pool's, or own_tenants */
    kvcl_tenants_t    own_tenants;
    size_t            n_copying; /* blocks allocated by copy jobs (copy/copy_jobs.c) */
    kvcl_pins_t       held;      /* managed: pins with a holder and an expiry; each is one kvcl_owner_pin */
    kvcl_list_t       link;      /* store->owners */
} kvcl_owner_t;

/** Any thread. KVCL_ERR_UNSUPPORTED: the cache's number does not fit the 16 bits that locations have for it. */
kvcl_status_t kvcl_owner_check_id(kvcl_cache_h cache) KVCL_MUST_CHECK;
/** Engine lock held. Returns the cache's owner if it has one already. KVCL_ERR_BUSY: another store uses the cache. */
kvcl_status_t kvcl_owner_attach(struct kvcl_store *store, kvcl_cache_h cache, bool managed, uint16_t tier,
                                kvcl_owner_t **owner_p) KVCL_MUST_CHECK;
/** No lock held: the same for a class of a pool that is being opened. A large pool takes a while, and no beat of this
 * rank may wait for that. */
kvcl_status_t kvcl_owner_attach_class(struct kvcl_store *store, kvcl_cache_h cache, struct kvcl_pool *pool,
                                      unsigned cls, kvcl_owner_t **owner_p) KVCL_MUST_CHECK;
/** Frees the owner, none of whose blocks is published. */
void          kvcl_owner_detach(kvcl_owner_t *owner);

/** Does the owner hold the key in a block that a home lists? */
bool          kvcl_owner_lists(const kvcl_owner_t *owner, const kvcl_key_t *key);
/** Some homes have failed: blocks with only one home no longer count as listed. */
void          kvcl_owner_unlist(kvcl_owner_t *owner);

/** FILLING -> PUBLISHED, into the index and the eviction order. The index must have room: kvcl_owner_reserve().
 * copies: how many copies the block is to have, 1 to KVCL_DIR_LOCS_MAX. tenant: the block's, if the owner is managed;
 * 0: none. */
kvcl_status_t kvcl_owner_publish(kvcl_owner_t *owner, uint32_t slot, const kvcl_key_t *key, uint64_t checksum,
                                 bool summed, unsigned copies, uint64_t tenant, kvcl_dir_loc_t *loc_p) KVCL_MUST_CHECK;
kvcl_status_t kvcl_owner_reserve(struct kvcl_store *store, size_t n) KVCL_MUST_CHECK;

/**
 * PUBLISHED -> next: the generation is bumped on return. *rec_p: the record to remove from the directory. why, to_rank:
 * the event that followers receive.
 * @return KVCL_OK, KVCL_ERR_BUSY (not published).
 */
kvcl_status_t kvcl_owner_discard(kvcl_owner_t *owner, uint32_t slot, kvcl_slot_state_t next,
                                 kvcl_store_event_kind_t why, int to_rank, kvcl_store_rec_t *rec_p) KVCL_MUST_CHECK;

/** The same, with the event KVCL_STORE_REMOVED. */
static inline kvcl_status_t kvcl_owner_withdraw(kvcl_owner_t *owner, uint32_t slot, kvcl_slot_state_t next,
                                                kvcl_store_rec_t *rec_p)
{
    return kvcl_owner_discard(owner, slot, next, KVCL_STORE_REMOVED, -1, rec_p);
}

/** Keeps the slot from eviction until it is unpinned as often, or withdrawn. No effect on an owner that is not managed,
 * whose slots are never evicted. */
void kvcl_owner_pin(kvcl_owner_t *owner, uint32_t slot);
void kvcl_owner_unpin(kvcl_owner_t *owner, uint32_t slot);
/** Pins, or unpins, the local blocks that recs name, unless their generation has changed. */
void kvcl_owner_pin_recs(kvcl_owner_t *owner, const kvcl_store_rec_t *recs, size_t n, bool pin);

/** Marks the slot as used. Of a chain, mark the end first (evict.h). */
void kvcl_owner_touch(kvcl_owner_t *owner, uint32_t slot);

/** A local published copy of the key that is not corrupt: in owner `want`, or (NULL) in any owner: the store's own
 * cache first, its pool last. */
kvcl_owner_node_t *kvcl_owner_find(struct kvcl_store *store, const kvcl_key_t *key, const kvcl_owner_t *want);
/** What its homes list of the published block in this slot. */
kvcl_store_rec_t  kvcl_owner_record(const kvcl_owner_t *owner, uint32_t slot);
kvcl_owner_t      *kvcl_owner_by_cache_id(struct kvcl_store *store, uint32_t id);
/** The owner whose cache has the least number that is not below `least`: a walk over all owners, some of which may be
 * attached or detached meanwhile. NULL: none. */
kvcl_owner_t      *kvcl_owner_next(struct kvcl_store *store, uint64_t least);

static inline uint32_t kvcl_owner_slot(const kvcl_owner_node_t *node)
{
    return (uint32_t)(node - node->owner->nodes);
}

static inline uint64_t kvcl_owner_bytes(const kvcl_owner_t *owner)
{
    return owner->cache->shape.block_bytes;
}

/* Blocks that the owner has memory for now. */
static inline uint32_t kvcl_owner_room(const kvcl_owner_t *owner)
{
    return (owner->slabs != NULL) ? owner->slabs->classes[owner->cls].n_room : owner->slots.n;
}

static inline uint64_t kvcl_owner_tenant(const kvcl_owner_t *owner, uint32_t slot)
{
    return kvcl_tenants_of(owner->tenants, owner->cls, slot);
}

/* May this tenant free or publish an allocated block? 0: the store's own handle, which may. */
static inline bool kvcl_owner_allows(const kvcl_owner_t *owner, uint32_t slot, uint64_t tenant)
{
    return (tenant == 0) || (owner->takers == NULL) || (owner->takers[slot] == tenant);
}

static inline uint64_t kvcl_owner_hash(const kvcl_key_t *key)
{
    uint64_t a, b;

    memcpy(&a, key->bytes, sizeof(a));
    memcpy(&b, key->bytes + 8, sizeof(b));
    return a ^ (b * UINT64_C(0x9e3779b97f4a7c15));
}

#endif
