/*
 * The second tier of a store's rank: how the store uses src/tier.
 *
 *   cold.c             opening, closing, the thread
 *   notes.c            notes for the thread: keys to drop, blocks that have left the tier
 *   clean.c            which blocks of the pool are in the tier
 *   demote.c           blocks on their way from the pool into the tier
 *   listing.c          listing blocks of the tier: those just written, and all of them at start
 *   relist.c           keys that are removed while a starting rank lists its tier
 *   stage.c            blocks on their way back to requesting ranks
 *   promote.c          and into the pool
 *   staging.c          the memory that they are read into
 *   get/get_stage.c    the requesting side of a get
 *
 * A block in the tier is listed at its homes like any other, by a location of KVCL_DIR_TIER_NVME: cache 0; slot and gen
 * are the place in its segment and the segment's use. Only its owner can read it. A rank that needs it sends the owner
 * KVCL_RPC_STAGE. The owner reads it from the disk, verified, into a block of its staging cache. The location of that
 * block is ordinary, with a generation, and the bytes take the same path as all others. Staged blocks are not listed.
 *
 * The tier holds blocks of any size, one a key. State that belongs to one size of the pool's blocks, such as staging
 * memory, is in a class of its own.
 *
 * Demotion runs ahead of eviction: blocks that are next in the pool's order are written while they are still in the
 * pool, and are then listed twice. An eviction never waits: a victim that is not in the tier is dropped, and counted.
 *
 * Locks: the engine lock, except where marked. kvcl_cold_t.lock is an innermost one.
 */
#ifndef KVCL_STORE_COLD_COLD_H
#define KVCL_STORE_COLD_COLD_H

#include "store/store.h"
#include "tier/tier.h"

#include <pthread.h>

enum { KVCL_COLD_CACHE = 0 };       /* no cache has this id */
enum { KVCL_COLD_AHEAD_MAX = 2048 }; /* most slots of a class that are kept free or clean ahead of eviction */

/* A block of the staging cache. */
typedef struct kvcl_stage {
    kvcl_list_t            link;    /* in idle or held, oldest first */
    kvcl_list_t            waiters; /* kvcl_stage_item_t.link, while it is read */
    struct kvcl_stage      *next;   /* with the same hash */
    struct kvcl_cold_class *cls;
    kvcl_store_rec_t       rec;     /* as listed */
    uint32_t               users;   /* readers that have not released it */
    uint64_t               held_ns; /* when the last reader began */
    bool                   reading;
    bool                   promote; /* requested again */
} kvcl_stage_t;

/* State of one size of the pool's blocks. */
typedef struct kvcl_cold_class {
    struct kvcl_cold *cold;
    kvcl_owner_t     *pool;    /* the pool's class */
    /* Staging. */
    kvcl_cache_h     cache;
    kvcl_slots_t     slots;
    kvcl_slot_t      *array;
    kvcl_stage_t     *stages;
    kvcl_list_t      idle, held;
    kvcl_list_t      jobs;     /* requests with blocks that are not begun, in order of arrival */
    /* Demotion; by pool slot. */
    uint8_t          *clean;   /* KVCL_COLD_* */
    uint64_t         *sums;    /* checksums, where the block has one */
    uint32_t         used;     /* clean slots used since the thread was last kicked for them */
    uint32_t         drain_at; /* draining: the next slot */
} kvcl_cold_class_t;

/* A slab of the pool that another class needs: its blocks are written into the tier first. */
typedef struct kvcl_cold_leaving {
    kvcl_cold_class_t *cls;    /* the owner of the slab; NULL: no slab is leaving */
    kvcl_slab_ids_t   ids;
    uint32_t          at;      /* the next slot */
    bool              written; /* all blocks that were in it are written */
    unsigned          rounds;  /* times that it was written */
} kvcl_cold_leaving_t;

typedef struct kvcl_cold {
    kvcl_store_h      store;
    unsigned          n;         /* classes, the same as the pool's */
    kvcl_cold_class_t classes[KVCL_SLABS_CLASSES_MAX];
    kvcl_tier_t       *tier;
    /* Staging. */
    kvcl_map_t         index;     /* hash of key -> kvcl_stage_t, chained: being read, or staged */
    kvcl_list_t        begun;     /* requests whose blocks are all begun, and not all over */
    unsigned           begin_at;  /* class whose requests are next */
    bool               pumping;   /* staging blocks are being assigned: do not start that again */
    kvcl_store_timer_t *timer;    /* while jobs wait for blocks that readers hold */
    unsigned           n_reading;
    size_t             n_waiting; /* blocks of all jobs */
    uint64_t           *seen;     /* hashes of blocks that were staged once */
    size_t             n_seen;    /* entries; a power of two */
    /* Demotion. */
    unsigned            choose_at;  /* class whose blocks are next */
    kvcl_cold_leaving_t leaving;
    unsigned            listing;    /* publishes in flight */
    uint64_t            drop_epoch; /* number of keys removed so far */
    bool                off;        /* the tier accepts no further blocks */
    uint64_t            scan;       /* position of the walk at start */
    bool                scanned;
    _Atomic bool        again;      /* the scan is to begin again: homes have changed */
    bool                notified;   /* the other ranks were notified that all of it is listed */
    /* The thread. */
    pthread_t       thread;
    bool            started;           /* engine lock */
    pthread_mutex_t lock;
    pthread_cond_t  wake;
    _Atomic bool    kicked;            /* there is work */
    _Atomic bool    draining;          /* the store closes: all of the pool is to be written into the tier */
    bool            drained, stopping; /* lock */
    kvcl_store_rec_t *evicted; size_t n_evicted, room_evicted; /* lock: blocks that left the tier */
    kvcl_key_t       *drops;   size_t n_drops, room_drops;     /* lock: keys to be dropped from it */
    _Atomic uint64_t n_demoted, n_promoted, n_dropped;
} kvcl_cold_t;

extern const kvcl_tio_ops_t *kvcl_cold_io; /* tests: faults before the disk; NULL: the tier's own choice */
extern _Atomic bool         kvcl_cold_late; /* tests: a start lists nothing while this is true */

/* LISTED_SOON: in the tier, and its listing is in flight. REFUSED: it is not written into the tier. */
enum { KVCL_COLD_DIRTY, KVCL_COLD_CLEAN, KVCL_COLD_REFUSED, KVCL_COLD_LISTED_SOON };

/* The class for blocks of this size, or NULL. */
static inline kvcl_cold_class_t *kvcl_cold_class_for(kvcl_cold_t *cold, uint64_t bytes)
{
    unsigned i;

    for (i = 0; i < cold->n; ++i) {
        if (kvcl_owner_bytes(cold->classes[i].pool) == bytes) {
            return &cold->classes[i];
        }
    }
    return NULL;
}

/* The class whose staging cache has this id; NULL: there is none, or there is no tier. */
static inline kvcl_cold_class_t *kvcl_cold_staging(kvcl_cold_t *cold, uint32_t cache)
{
    unsigned i;

    for (i = 0; (cold != NULL) && (i < cold->n); ++i) {
        if (cold->classes[i].cache->id == cache) {
            return &cold->classes[i];
        }
    }
    return NULL;
}

/* ---- cold/cold.c ---- */

/** No lock; the pool is open. spec: "/path:size", %r in it is the rank. origin: the field or variable that spec came
 * from, for sentences. flags: the store's; with KVCL_STORE_JOIN the file's blocks are dropped, since the others may
 * have removed or replaced their keys. Reads the disk. */
kvcl_status_t kvcl_cold_open(kvcl_store_h store, const char *spec, const char *origin, uint64_t flags) KVCL_MUST_CHECK;
/** No lock; all ranks have met. Lists the blocks of the tier, in the background. */
void          kvcl_cold_start(kvcl_cold_t *cold);
/** No lock. Write the pool into the tier, as far as it can be done within DRAIN_SECONDS. */
void          kvcl_cold_drain(kvcl_cold_t *cold);
/** Lock held. No work begins any more. */
void          kvcl_cold_stop(kvcl_cold_t *cold);
/** No lock, no operations in flight. NULL is allowed. */
void          kvcl_cold_close(kvcl_cold_t *cold);
/** No lock; NULL is allowed. */
void          kvcl_cold_stats(kvcl_cold_t *cold, kvcl_store_stats_t *stats);
/** No lock: was there a block in the tier when it was opened? NULL is allowed. */
bool          kvcl_cold_has_any(kvcl_cold_t *cold);

/* ---- cold/notes.c ---- */

typedef enum { KVCL_COLD_IDLE, KVCL_COLD_MORE, KVCL_COLD_WAIT } kvcl_cold_turn_t;

/** Any lock but cold->lock: the thread checks for work. */
void          kvcl_cold_kick(kvcl_cold_t *cold);
void          kvcl_cold_wake(kvcl_cold_t *cold); /* the same, and ends a pause */
/** Lock held. A key was removed: it leaves the tier now, or soon if the disk is slow. NULL is allowed. */
void          kvcl_cold_drop(kvcl_cold_t *cold, const kvcl_key_t *key);
/** Any thread; arg is a kvcl_cold_t. This block has left the tier: its homes are notified. */
void          kvcl_cold_dropped(void *arg, const uint8_t *key, const kvcl_tier_loc_t *at);
/** Lock held. Notify homes now of blocks that have left the tier, without waiting for the thread. NULL is allowed. */
void          kvcl_cold_notify_evicted(kvcl_cold_t *cold);
/** Any lock: a location in this rank's tier, as it is listed. */
kvcl_dir_loc_t kvcl_cold_loc(const kvcl_cold_t *cold, const kvcl_tier_loc_t *at, unsigned copies);
/** Any lock: does this location of this rank's tier still hold that block? */
bool          kvcl_cold_holds(const kvcl_cold_t *cold, const kvcl_key_t *key, const kvcl_dir_loc_t *loc);
/** No lock, the thread: drop the noted keys. WAIT: the tier has no room for all of their tombstones yet. */
kvcl_cold_turn_t kvcl_notes_drop(kvcl_cold_t *cold);
/** No lock, the thread: notify homes of the noted blocks. */
void           kvcl_notes_report(kvcl_cold_t *cold);

/* ---- cold/clean.c: for any owner of any store; without effect for one that is no pool's, or has no tier ---- */

/** A pool block was published. */
void kvcl_cold_published(const kvcl_owner_t *owner, uint32_t slot, uint64_t checksum);
/** Lock held. The homes of keys have changed: what the tier has is listed again. Has it been? True also where cold
 * is NULL, and before kvcl_cold_start(), which lists all of it. */
void          kvcl_cold_list_again(kvcl_cold_t *cold);
bool          kvcl_cold_is_listed(const kvcl_cold_t *cold);
/** A pool block is evicted. True: its homes are notified of that once they list the block in the tier. */
bool kvcl_cold_evicted(const kvcl_owner_t *owner, uint32_t slot);
/** Blocks of the pool were taken. */
void kvcl_cold_taken(const kvcl_owner_t *owner);
/** Another class of the pool needs the room of these slots. False: not yet, their blocks are written into the tier
 * first. */
bool kvcl_cold_may_release(const kvcl_owner_t *owner, kvcl_slab_ids_t ids);
/** The other class has got that room; a later need of the same slab starts from the beginning. */
void kvcl_cold_slab_removed(const kvcl_owner_t *owner, kvcl_slab_ids_t ids);
/** A block of the pool was used: it is no longer among the next victims, and another block is. */
void kvcl_cold_used(const kvcl_owner_t *owner, uint32_t slot);
/** These blocks have left the tier: their copies in the pool are not clean any more. If the tier now has no block of a
 * key, a pool block that was refused because of it may be written. */
void kvcl_cold_mark_dirty(kvcl_cold_t *cold, const kvcl_store_rec_t *recs, size_t n);

/** Lock held: slots missing to those that must be free or clean: half of the slots that the class has room for now. */
uint32_t kvcl_cold_lacking(const kvcl_cold_class_t *cls);

/* ---- cold/demote.c ---- */

/** No lock, the thread: write some blocks into the tier. WAIT: not now. */
kvcl_cold_turn_t kvcl_cold_demote(kvcl_cold_t *cold);

/* ---- cold/listing.c ---- */

/** No lock, the thread: list some of the blocks that the tier held at start. */
kvcl_cold_turn_t kvcl_cold_list(kvcl_cold_t *cold);

/* ---- cold/relist.c: keys that are removed while a starting rank lists its tier; lock held ---- */

/** This home has removed these keys: ranks that are still listing their tiers drop them. */
void kvcl_relist_removed(kvcl_store_h store, const kvcl_key_t *keys, const uint32_t *order, size_t n);
/* Rows of kinds.c. */
bool kvcl_relist_on_forget(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                           size_t len);
bool kvcl_relist_on_all_listed(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in,
                               const void *data, size_t len);
/** All of this rank's tier is listed: notify every rank. */
void kvcl_relist_over(kvcl_store_h store);

/* ---- cold/staging.c: lock held ---- */

static inline uint32_t kvcl_stage_slot(const kvcl_stage_t *stage)
{
    return (uint32_t)(stage - stage->cls->stages);
}

kvcl_status_t kvcl_staging_init(kvcl_cold_t *cold) KVCL_MUST_CHECK; /* no lock */
void          kvcl_staging_fini(kvcl_cold_t *cold);                 /* no lock */
/** The block that is staged, or being read, for this listed record; or NULL. */
kvcl_stage_t *kvcl_staging_find(const kvcl_cold_t *cold, const kvcl_store_rec_t *rec);
/** Take a block to read this record into; it can be found from then on. NULL: all are being read or held. */
kvcl_stage_t *kvcl_staging_take(kvcl_cold_class_t *cls, const kvcl_store_rec_t *rec);
/** The read has ended: the block is idle; or, if it failed, it is free. @return status, or why it could not be
 * staged. */
kvcl_status_t kvcl_staging_read(kvcl_stage_t *stage, kvcl_status_t status) KVCL_MUST_CHECK;
/** Add one reader. */
void          kvcl_staging_hold(kvcl_stage_t *stage);
/** Remove one reader. got comes from any rank. */
void          kvcl_staging_release(kvcl_cold_t *cold, const kvcl_stage_got_t *got);
/** Any thread. The most blocks that one request may name to a rank whose pool has n_sizes sizes. */
uint32_t      kvcl_stage_window(uint64_t block_bytes, unsigned n_sizes);

/* ---- cold/promote.c: lock held ---- */

/** Was this block requested before? From now on it was. */
bool kvcl_promote_seen(kvcl_cold_t *cold, const kvcl_key_t *key);
/** Copy a staged block into the pool. */
void kvcl_promote(kvcl_stage_t *stage);

/* ---- cold/stage.c ---- */

typedef void (*kvcl_stage_cb_t)(void *arg, const kvcl_stage_got_t *got, uint32_t n);

/* Rows of kinds.c. */
bool          kvcl_stage_on_request(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in,
                                    const void *data, size_t len);
bool          kvcl_stage_on_release(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in,
                                    const void *data, size_t len);
/** data: n of kvcl_stage_got_t that their readers have read. */
void          kvcl_stage_release(kvcl_store_h store, const void *data, uint32_t n);
/** For this rank's own gets: cb runs once, possibly before this returns. */
kvcl_status_t kvcl_stage_here(kvcl_cold_t *cold, const kvcl_store_rec_t *recs, uint32_t n, kvcl_stage_cb_t cb,
                              void *arg) KVCL_MUST_CHECK;
/** cb does not run any more. */
void          kvcl_stage_forget(kvcl_cold_t *cold, const void *arg);
/** Answer every request; reads in flight end by themselves. */
void          kvcl_stage_stop(kvcl_cold_t *cold);

#endif
