/*
 * The second tier of a store's rank: what the store does with src/tier.
 *
 *   cold.c             opening, closing, the thread, what is said of blocks that have left the tier
 *   demote.c           blocks on their way from the pool into the tier, and the tier's blocks found at a start
 *   relist.c           keys that are removed while a start lists the tier
 *   stage.c            blocks on their way back, for whoever asks, and promotion into the pool
 *   staging.c          the memory that they are read into
 *   get/get_stage.c    the asking side of a get
 *
 * A block in the tier is listed at its homes as any other, by a location of KVCL_DIR_TIER_NVME: cache 0, slot and gen
 * the place in its segment and the segment's use. Nobody but its owner can read it. Who wants it asks the owner
 * (KVCL_RPC_STAGE), who has it read from the disk, verified, into a block of its staging cache; that one's location is
 * ordinary, with a generation, and the bytes go the way that all bytes go. Staged blocks are not listed.
 *
 * The tier holds blocks of any size, one a key. What belongs to a size of the pool's blocks, staging memory too, is in
 * a class of its own.
 *
 * Demotion runs ahead of eviction: blocks that are next in the pool's order are written while they are still there, and
 * listed twice. An eviction never waits: a victim that is not in the tier is dropped, and counted.
 *
 * Locks: the engine lock, but for what is marked. kvcl_cold_t.lock is an innermost one.
 */
#ifndef KVCL_STORE_COLD_COLD_H
#define KVCL_STORE_COLD_COLD_H

#include "store/store.h"
#include "tier/tier.h"

#include <pthread.h>

enum { KVCL_COLD_CACHE = 0 }; /* no cache has this id */

/* A block of the staging cache. */
typedef struct kvcl_stage {
    kvcl_list_t       link;     /* idle or held, oldest first */
    kvcl_list_t       waiters;  /* kvcl_stage_item_t.link, while it is read */
    struct kvcl_stage *next;    /* of the same hash */
    struct kvcl_cold_class *cls;
    kvcl_store_rec_t  rec;      /* as listed */
    uint32_t          users;    /* readers that have not let go */
    uint64_t          held_ns;  /* when the last one came */
    bool              reading;
    bool              promote;  /* asked for again */
} kvcl_stage_t;

/* One size of the pool's blocks. */
typedef struct kvcl_cold_class {
    struct kvcl_cold *cold;
    kvcl_owner_t     *pool;    /* who has them */
    /* Staging. */
    kvcl_cache_h     cache;
    kvcl_slots_t     slots;
    kvcl_slot_t      *array;
    kvcl_stage_t     *stages;
    kvcl_list_t      idle, held;
    kvcl_list_t      jobs;     /* questions, in turn, of which blocks are not begun */
    /* Demotion; by pool slot. */
    uint8_t          *clean;   /* KVCL_COLD_* */
    uint64_t         *sums;    /* checksums, of those that have one */
    uint32_t         used;     /* clean slots used since the thread was last told of it */
    uint32_t         drain_at; /* draining: the next slot */
} kvcl_cold_class_t;

/* A slab of the pool's that another class wants: its blocks go into the tier first. */
typedef struct kvcl_cold_leaving {
    kvcl_cold_class_t *cls;    /* who has it; NULL: there is none */
    kvcl_slab_ids_t   ids;
    uint32_t          at;      /* the next one */
    bool              written; /* all that were there */
    unsigned          rounds;  /* so often */
} kvcl_cold_leaving_t;

typedef struct kvcl_cold {
    kvcl_store_h      store;
    unsigned          n;         /* classes, as the pool has them */
    kvcl_cold_class_t classes[KVCL_SLABS_CLASSES_MAX];
    kvcl_tier_t       *tier;
    /* Staging. */
    kvcl_map_t        index;     /* hash of key -> kvcl_stage_t, chained: reading or staged */
    kvcl_list_t       begun;     /* questions of which all blocks are begun, not over */
    unsigned          begin_at;  /* whose questions are next */
    bool              pumping;   /* staging blocks are being given out: do not begin that anew */
    kvcl_store_timer_t *timer;   /* while jobs wait for blocks that readers hold */
    unsigned          n_reading;
    size_t            n_waiting; /* blocks of all jobs */
    uint64_t          *seen;     /* hashes of what was staged once */
    size_t            n_seen;    /* a power of two */
    /* Demotion. */
    unsigned          choose_at; /* whose blocks are next */
    kvcl_cold_leaving_t leaving;
    unsigned          listing;   /* publishes under way */
    uint64_t          drop_epoch; /* counts keys that were removed */
    bool              off;       /* the tier takes no more blocks */
    uint64_t          scan;      /* where the walk of a start is */
    bool              scanned;
    bool              notified;      /* the others know that all of it is listed */
    /* The thread. */
    pthread_t         thread;
    bool              started;
    pthread_mutex_t   lock;
    pthread_cond_t    wake;
    _Atomic bool      kicked;    /* there is something to do */
    _Atomic bool      draining;  /* the store closes: all of the pool shall go into the tier */
    bool              drained, stopping;            /* lock */
    kvcl_store_rec_t  *gone;     size_t n_gone, room_gone;   /* lock: what left the tier */
    kvcl_key_t        *drops;    size_t n_drops, room_drops; /* lock: what shall leave it */
    _Atomic uint64_t  n_demoted, n_promoted, n_dropped;
} kvcl_cold_t;

extern const kvcl_tio_ops_t *kvcl_cold_io; /* tests: faults before the disk; NULL: the tier's own choice */
extern _Atomic bool         kvcl_cold_late; /* tests: a start lists nothing as long as this is true */

/* LISTED_SOON: in the tier, and its homes are being told so. REFUSED: it does not go there. */
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

/* The class whose staging cache has this id; NULL: it is none, or there is no tier. */
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

/** No lock; the pool is there. spec: "/path:size", %r in it is the rank. origin: the field or variable that said so,
 * for sentences. Reads the disk. */
kvcl_status_t kvcl_cold_open(kvcl_store_h store, const char *spec, const char *origin) KVCL_MUST_CHECK;
/** No lock: all ranks have met; what the tier holds is listed, in the background. */
void          kvcl_cold_start(kvcl_cold_t *cold);
/** No lock: the pool goes into the tier, as far as that is done in some seconds. */
void          kvcl_cold_drain(kvcl_cold_t *cold);
/** Lock held: nothing begins any more. */
void          kvcl_cold_stop(kvcl_cold_t *cold);
/** No lock, no operations in flight. NULL is allowed. */
void          kvcl_cold_close(kvcl_cold_t *cold);
/** Any lock but cold->lock: the thread looks what there is to do. */
void          kvcl_cold_kick(kvcl_cold_t *cold);
void          kvcl_cold_wake(kvcl_cold_t *cold); /* the same, also out of a pause */
/** No lock; NULL is allowed. */
void          kvcl_cold_stats(kvcl_cold_t *cold, kvcl_store_stats_t *stats);
/** No lock: was anything in the tier when it was opened? NULL is allowed. */
bool          kvcl_cold_has_any(kvcl_cold_t *cold);
/** Lock held: a key was removed: it leaves the tier, now or, if the disk is slow, soon. NULL is allowed. */
void          kvcl_cold_drop(kvcl_cold_t *cold, const kvcl_key_t *key);
/** Any thread; arg is a kvcl_cold_t. This block is not there in the tier any more: its homes hear of that. */
void          kvcl_cold_dropped(void *arg, const uint8_t *key, const kvcl_tier_loc_t *at);
/** Lock held: homes hear at once of what has left the tier, not when the thread comes to it. NULL is allowed. */
void          kvcl_cold_notify_evicted(kvcl_cold_t *cold);
/** Any lock: a location of mine, as it is listed. */
kvcl_dir_loc_t kvcl_cold_loc(const kvcl_cold_t *cold, const kvcl_tier_loc_t *at, unsigned copies);
/** Any lock: is this location of mine still that block's? */
bool          kvcl_cold_holds(const kvcl_cold_t *cold, const kvcl_key_t *key, const kvcl_dir_loc_t *loc);

/* ---- cold/demote.c: of any owner, and of any store; what is no pool's, or has no tier, is passed over ---- */

/** A pool block was published. */
void kvcl_cold_published(const kvcl_owner_t *owner, uint32_t slot, uint64_t checksum);
/** A pool block is evicted. True: its homes are told of that when they list the one in the tier. */
bool kvcl_cold_evicted(const kvcl_owner_t *owner, uint32_t slot);
/** Blocks of the pool were taken. */
void kvcl_cold_taken(const kvcl_owner_t *owner);
/** Another class of the pool wants the room of these of an owner's. False: not yet, they go into the tier first. */
bool kvcl_cold_lets_go(const kvcl_owner_t *owner, kvcl_slab_ids_t ids);
/** It has got that room: when it is wanted of the owner once more, that begins anew. */
void kvcl_cold_slab_removed(const kvcl_owner_t *owner, kvcl_slab_ids_t ids);
/** A block of the pool was used: it is not among the next ones to go any more, and another one is. */
void kvcl_cold_used(const kvcl_owner_t *owner, uint32_t slot);
/** These have left the tier: copies of them in the pool are not clean any more; if the tier has nothing of a key now,
 * what was refused because it had that may go there. */
void kvcl_cold_mark_dirty(kvcl_cold_t *cold, const kvcl_store_rec_t *recs, size_t n);

typedef enum { KVCL_COLD_IDLE, KVCL_COLD_MORE, KVCL_COLD_WAIT } kvcl_cold_turn_t;

/** No lock, the thread: some blocks go into the tier. WAIT: not now. */
kvcl_cold_turn_t kvcl_cold_demote(kvcl_cold_t *cold);
/** No lock, the thread: some of what the tier held at the start is listed. */
kvcl_cold_turn_t kvcl_cold_list(kvcl_cold_t *cold);

/* ---- cold/relist.c: keys that are removed while a start is still listing its tier; lock held ---- */

/** A home has removed these keys: ranks that are still listing their tiers forget them. */
void kvcl_relist_removed(kvcl_store_h store, const kvcl_key_t *keys, const uint32_t *order, size_t n);
/* Rows of kinds.c. */
bool kvcl_relist_on_forget(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                           size_t len);
bool kvcl_relist_on_all_listed(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in,
                               const void *data, size_t len);
/** All of my tier is listed: every rank is told. */
void kvcl_relist_over(kvcl_store_h store);

/* ---- cold/staging.c: lock held ---- */

static inline uint32_t kvcl_stage_slot(const kvcl_stage_t *stage)
{
    return (uint32_t)(stage - stage->cls->stages);
}

kvcl_status_t kvcl_staging_init(kvcl_cold_t *cold) KVCL_MUST_CHECK; /* no lock */
void          kvcl_staging_fini(kvcl_cold_t *cold);                 /* no lock */
/** What is staged, or being read, as it is listed; or NULL. */
kvcl_stage_t *kvcl_staging_find(const kvcl_cold_t *cold, const kvcl_store_rec_t *rec);
/** A block to read this into, to be found from here on; NULL: all are being read or held. */
kvcl_stage_t *kvcl_staging_take(kvcl_cold_class_t *cls, const kvcl_store_rec_t *rec);
/** It was read, and is idle, or it was not, and its block is free. @return status, or why it could not be staged. */
kvcl_status_t kvcl_staging_read(kvcl_stage_t *stage, kvcl_status_t status) KVCL_MUST_CHECK;
/** One more reader has it. */
void          kvcl_staging_hold(kvcl_stage_t *stage);
/** One less. got: of anybody. */
void          kvcl_staging_release(kvcl_cold_t *cold, const kvcl_stage_got_t *got);
/** How many blocks one question asks a rank for at most, whose pool has so many sizes. Any thread. */
uint32_t      kvcl_stage_window(uint64_t block_bytes, unsigned n_sizes);

/* ---- cold/stage.c ---- */

typedef void (*kvcl_stage_cb_t)(void *arg, const kvcl_stage_got_t *got, uint32_t n);

/* Rows of kinds.c. */
bool          kvcl_stage_on_request(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in,
                                    const void *data, size_t len);
bool          kvcl_stage_on_release(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in,
                                    const void *data, size_t len);
/** data: n of kvcl_stage_got_t that have been read. */
void          kvcl_stage_release(kvcl_store_h store, const void *data, uint32_t n);
/** For myself: cb comes once, maybe before this returns. */
kvcl_status_t kvcl_stage_here(kvcl_cold_t *cold, const kvcl_store_rec_t *recs, uint32_t n, kvcl_stage_cb_t cb,
                              void *arg) KVCL_MUST_CHECK;
/** cb shall not come any more. */
void          kvcl_stage_forget(kvcl_cold_t *cold, const void *arg);
/** Every question is answered; reads under way end by themselves. */
void          kvcl_stage_stop(kvcl_cold_t *cold);

#endif
