/*
 * The store's inside: one rank's part of a store, and how the files of this room meet.
 *
 *   store.c          open, close, the room
 *   home/ranks.c     who takes part, who is home to what, where copies go
 *   home/timer.c     doing something later
 *   home/silence.c   which ranks do not answer, and what waits for them
 *   home/call.h      a user's request of several rounds of questions: home/call.c
 *   home/find.h      where keys are: home/find.c
 *   home/ask.h       questions to homes: one message each way, in parallel
 *   home/home_answer.c what this rank answers as a home, and withdrawals it is told of
 *   home/lookup.c    match, exists; reading mapped tables
 *   copy/repair.c    what homes do after a rank has gone
 *   pool/owner.h     caches whose blocks are published here: slots, local index, eviction order
 *   pool/publish.c   listing and removing; pool/publish_own.c: publish, withdraw; pool/owed.c: homes that were silent
 *                    hear of it
 *   pool/pool.h      a pool and its classes: pool.c; pool/blocks.c: alloc, free, pin
 *   copy/put_blocks.c put; copy/chain.c: more copies of it; copy/copy_jobs.c: copies of others' blocks, made here
 *   get/fetch.h      small blocks that come along with a lookup's answer: get/fetch.c
 *   get/get_rounds.c get as a request; get/get_lookup.c: where blocks lie; get/get_now.c: inside the call;
 *                    get/verify.c: checksums off the lock; get/nearest.c: which copy next; get/hedge.c: not
 *                    waiting for a silent rank
 *   get/uses.c       blocks got from others: their owners are told; copy/hot.c: the hot ones are copied here
 *   copy/bcast.c     a prefix for every rank
 *   admin/ops.h      questions about a rank's own part: admin/ops.c; admin/follow.c, admin/list.c
 *   cold/cold.h      the second tier; it names its files
 *
 * Locks: the engine lock, but for what is marked otherwise; lookups in this rank's own table and in mapped ones take
 * none (dir/table.h).
 */
#ifndef KVCL_STORE_STORE_H
#define KVCL_STORE_STORE_H

#include "core/comm.h"
#include "dir/home.h"
#include "policy/delay.h"
#include "policy/events.h"
#include "req/req.h"
#include "store/home/rpc.h"
#include "store/pool/owner.h"
#include "policy/place.h"
#include "store/home/rpc_kind.h"
#include "store/listener.h"
#include <kvcl/kvcl_store.h>

/* How another rank's table can be read. */
enum { KVCL_VIEW_UNKNOWN, KVCL_VIEW_REQUESTED, KVCL_VIEW_MAPPED, KVCL_VIEW_BY_MESSAGE };

enum { KVCL_STORE_RCACHES = 12 };

/* Why a rank that takes part is avoided. */
enum { KVCL_AVOID_SILENT = 1, KVCL_AVOID_EXCLUDED = 2 };

typedef struct kvcl_store_rank {
    kvcl_peer_t              *peer;       /* NULL: me */
    _Atomic uint32_t         incarnation; /* 0: gone. Without the lock */
    _Atomic unsigned         avoided;     /* KVCL_AVOID_*: others are asked first. Without the lock */
    bool                     doubted;     /* a question is under way that finds out whether it is silent */
    uint64_t                 quiet_ns;    /* since when it leaves a question unanswered, if it is doubted or silent */
    uint64_t                 heard_ns;    /* when it last answered such a question */
    bool                     owed;        /* it has not been told of blocks of mine that it is a home of */
    bool                     telling;     /* it is being told: pool/owed.c */
    unsigned                 n_sizes;     /* of blocks that its pool takes; 0: it has none */
    uint32_t                 sizes[KVCL_SLABS_CLASSES_MAX];
    bool                     listing;     /* blocks of its tier that it found there may not be listed yet */
    _Atomic bool             leaving;     /* drained as well, or silent: its copies do not count for a drain of mine */
    _Atomic int              view_state;  /* KVCL_VIEW_*. Without the lock */
    kvcl_dir_view_t          view;        /* once MAPPED: immutable until the store is closed */
    kvcl_rregion_t           region;
    _Atomic(kvcl_rcache_t *) rcaches[KVCL_STORE_RCACHES]; /* mapped caches of it, by id. Without the lock */
    unsigned                 next_rcache;
} kvcl_store_rank_t;

/* Who is home to what, among the ranks that take part. */
typedef struct kvcl_store_map {
    kvcl_shard_map_t      shards;
    struct kvcl_store_map *before; /* readers without the lock may still look at it: freed with the store */
} kvcl_store_map_t;

typedef struct kvcl_store_timer kvcl_store_timer_t;

struct kvcl_store {
    kvcl_context_h    ctx;
    kvcl_comm_h       comm;
    uint64_t          id;          /* the same on all ranks */
    uint64_t          flags;
    uint32_t          me, n_ranks;
    uint16_t          incarnation;
    const kvcl_store_listener_t *notify; /* the rooms above */
    _Atomic bool      closing; /* set under the lock, looked at without it, too */
    kvcl_store_rank_t *ranks;
    uint32_t          replicas;    /* how many copies a put makes if it does not say; agreed */
    _Atomic(kvcl_store_map_t *) map; /* without the lock */
    kvcl_store_map_t  *first_map;  /* of all ranks: whoever is a home there has had all entries from the start */
    /* As a home. */
    kvcl_region_t     *table_region;
    kvcl_dir_table_t  table;
    kvcl_home_t       home;
    uint16_t          *incarnations; /* for home; 0: gone */
    /* As an owner. */
    kvcl_list_t       owners;      /* kvcl_owner_t.link */
    kvcl_owner_t      *own;        /* of params.cache, or NULL */
    struct kvcl_pool  *pool;       /* or NULL */
    kvcl_owner_t      *value_pool; /* its first class, which has the blocks of values; or NULL */
    uint64_t          value_block; /* bytes of a block of values, of my pool or the first rank's; 0: no pools */
    kvcl_cache_h      stage;       /* of value/value_far.c; NULL: not needed yet */
    bool              stage_taken;
    struct kvcl_cold  *cold;       /* the pool's second tier, or NULL */
    kvcl_map_t        index;       /* hash of key -> kvcl_owner_node_t, chained */
    uint64_t          n_published, n_ever, n_evicted;
    /* Operations in flight. */
    kvcl_list_t       publishes;   /* kvcl_publish_t.link */
    kvcl_list_t       copies;      /* kvcl_copy_job_t.link: copy/copy_job.h */
    size_t            n_copying;   /* blocks in them */
    kvcl_list_t       calls;       /* kvcl_call_t.link: home/call.h */
    kvcl_list_t       probes;      /* kvcl_rpc_t.link: of suspects, and of ranks that are doubted */
    kvcl_list_t       watched;     /* kvcl_rpc_t.watch_link: home/silence.c */
    kvcl_store_timer_t *silence_timer;
    kvcl_store_timer_t *owed_timer;
    uint64_t          owed_cache;  /* where pool/owed.c goes on */
    uint32_t          owed_slot;
    kvcl_list_t       op_rpcs;     /* kvcl_rpc_t.link: of cold/relist.c */
    struct kvcl_repair *repair;    /* NULL until a rank has gone */
    kvcl_events_t     events;      /* what changed among my blocks */
    kvcl_list_t       followers;   /* follower_t.link: admin/follow.c */
    unsigned          n_followers;
    kvcl_store_timer_t *follow_timer;
    uint64_t          n_freed;     /* kvcl_store_freed() so often */
    unsigned          n_room_waiters;
    uint64_t          n_moved;     /* blocks that others have taken over */
    uint64_t          n_brought;   /* blocks that came along with a home's answer (fetch.h) */
    uint64_t          n_copied;    /* of others' blocks, made here */
    struct kvcl_hot   *hot;        /* NULL: nothing is kept for being hot */
    struct kvcl_uses  *uses;       /* of others' blocks, to be told to them; NULL: I am alone */
    bool              draining;    /* takes no copies of others' any more */
    kvcl_place_t      *places;     /* by rank: of their pools */
    uint8_t           *place_ok;   /* by rank, while one is chosen */
    unsigned          ops;
    kvcl_delay_t      delays[2][KVCL_DELAY_CLASSES]; /* of ranks of my host, of others: get/hedge.c */
    _Atomic uint64_t  gets, hits, stale, corrupt, lookups;
    _Atomic uint64_t  tier_hits[KVCL_DIR_TIER_MASK + 1]; /* by KVCL_DIR_TIER_* */
    _Atomic uint64_t  local_hits; /* of them, tiers aside: out of my memory */
    kvcl_list_t       link;        /* the room's stores */
};

/* ---- the ranks (home/ranks.c) ---- */

static inline const kvcl_shard_map_t *kvcl_store_shards(const struct kvcl_store *store)
{
    return &atomic_load_explicit(&((struct kvcl_store *)store)->map, memory_order_acquire)->shards;
}

/* Is a location with these flags listed at the home and at the backup of its key? */
static inline bool kvcl_store_two_homes(const struct kvcl_store *store, unsigned flags)
{
    return (store->replicas > 1) || (kvcl_loc_copies(flags) > 1);
}

/** Which home of a key to ask: its home; while that is silent its backup, if it has been told everything.
 * Any thread. */
uint32_t      kvcl_store_home(const struct kvcl_store *store, const kvcl_shard_map_t *map, const kvcl_key_t *key);
static inline bool kvcl_store_suspects(const struct kvcl_store *store, uint32_t rank)
{
    return atomic_load_explicit(&((struct kvcl_store *)store)->ranks[rank].avoided, memory_order_relaxed) != 0;
}
/** Was it left out by kvcl_store_exclude? Any thread. */
static inline bool kvcl_store_excludes(const struct kvcl_store *store, uint32_t rank)
{
    return (atomic_load_explicit(&((struct kvcl_store *)store)->ranks[rank].avoided, memory_order_relaxed) &
            KVCL_AVOID_EXCLUDED) != 0;
}
/** Lock held. It did not answer for a while: others are preferred until it does. */
void          kvcl_store_suspect(kvcl_store_h store, uint32_t rank);
/** A map of the ranks that take part. Lock held, or nobody else knows the store yet. */
kvcl_status_t kvcl_store_map_make(kvcl_store_h store) KVCL_MUST_CHECK;
void          kvcl_store_maps_free(kvcl_store_h store);
/** Ranks that could take copies of blocks of this size: how many there are, me not counted. Lock held. */
unsigned      kvcl_store_places(kvcl_store_h store, uint64_t bytes);
/** n of them, at most KVCL_DIR_LOCS_MAX, that are not in skip[] (a byte a rank), by place.h: on other hosts than mine and
 * each other's first. Returns how many. Lock held. */
unsigned      kvcl_store_place(kvcl_store_h store, uint64_t bytes, const uint8_t *skip, unsigned n, uint16_t *ranks);
/** The same, but the first of them is the nearest: on this host if there is one. It is set in skip[]. Lock held. */
unsigned      kvcl_store_place_near(kvcl_store_h store, uint64_t bytes, uint8_t *skip, unsigned n, uint16_t *ranks);
/** Has the rank, this one too, a pool with blocks of this size? Any thread. */
bool          kvcl_store_takes(const struct kvcl_store *store, uint32_t rank, uint64_t bytes);
/** The rank no longer takes part: its copies do not count, its shards go to their backups. Lock held. */
void          kvcl_store_rank_failed(kvcl_store_h store, uint32_t rank);

/* ---- the room (store.c) ---- */

typedef struct kvcl_store_room {
    kvcl_list_t stores;
    kvcl_list_t verifies; /* gets that have blocks to verify: get/verify.c */
    uint8_t     *scratch; /* answers are written here */
    size_t      scratch_room;
    const kvcl_rpc_kind_t *kinds; /* by KVCL_RPC_* */
} kvcl_store_room_t;

static inline kvcl_store_room_t *kvcl_store_room(kvcl_context_h ctx)
{
    return ctx->rooms[KVCL_ROOM_STORE];
}

/** No lock. A call that sleeps keeps the store from being freed; the status is KVCL_ERR_SHUTDOWN, and nothing is held,
 * if it is being closed. */
kvcl_status_t kvcl_store_hold(kvcl_store_h store) KVCL_MUST_CHECK;
/** No lock. The store may be gone when this returns. */
void          kvcl_store_release(kvcl_store_h store);

kvcl_store_h kvcl_store_by_id(kvcl_context_h ctx, uint64_t id);
/** Does this location's owner still exist as the one that published it? Any thread. */
static inline bool kvcl_store_loc_lives(const struct kvcl_store *store, const kvcl_dir_loc_t *loc)
{
    return (loc->rank < store->n_ranks) && (loc->incarnation != 0) &&
           (atomic_load_explicit(&store->ranks[loc->rank].incarnation, memory_order_relaxed) == loc->incarnation);
}
/** First lines of public calls: a store, and n keys. */
kvcl_status_t kvcl_store_check(kvcl_store_h store, const void *keys, size_t n, const char *call) KVCL_MUST_CHECK;

/** Any thread: blocks of a user's get, by KVCL_DIR_TIER_*; local: of those in memory, mine. */
static inline void kvcl_store_count_hits(kvcl_store_h store, const size_t hits[KVCL_DIR_TIER_MASK + 1], size_t local)
{
    unsigned i;

    if (local != 0) {
        atomic_fetch_add_explicit(&store->local_hits, local, memory_order_relaxed);
    }
    for (i = 0; i <= KVCL_DIR_TIER_NVME; ++i) {
        if (hits[i] != 0) {
            atomic_fetch_add_explicit(&store->hits, hits[i], memory_order_relaxed);
            atomic_fetch_add_explicit(&store->tier_hits[i], hits[i], memory_order_relaxed);
        }
    }
}

/* ---- uses of others' blocks (get/uses.c) ---- */

kvcl_status_t kvcl_uses_open(kvcl_store_h store) KVCL_MUST_CHECK;
/** This block was got from there. Of a chain, the end first. Any thread; locked: with the lock. */
void          kvcl_uses_note(kvcl_store_h store, const kvcl_dir_loc_t *loc, bool locked);
/** A row of kinds.c. */
bool          kvcl_uses_on_request(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in,
                                   const void *data, size_t len);

/* ---- timers (home/timer.c): lock held ---- */

/** fn is called once, lock held, after after_ns; the timer is gone then. NULL: no memory, or the store
 * is being closed. */
kvcl_store_timer_t *kvcl_store_timer_start(kvcl_store_h store, uint64_t after_ns, void (*fn)(void *arg), void *arg);
void                kvcl_store_timer_stop(kvcl_store_timer_t *timer); /* one that has not called yet, or NULL */

/* ---- homes (home/home_answer.c) ---- */

/* Rows of kinds.c. */
bool kvcl_home_on_dir(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                      size_t len);
bool kvcl_home_on_present(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                          size_t len);
bool kvcl_home_on_remove_keys(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                              size_t len);
bool kvcl_home_on_table(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                        size_t len);
void kvcl_home_on_withdraw(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                           const void *data, size_t len);
/** Lock held: this home forgets the keys and tells their owners. */
void kvcl_home_remove_keys(kvcl_store_h store, const kvcl_key_t *keys, const uint32_t *order, size_t n);
/** Lock held: tell the homes that these are gone; nobody answers. */
void kvcl_store_notify_removed(kvcl_store_h store, const kvcl_store_rec_t *recs, size_t n);
/** Lock held: who holds this copy gives it up: it was removed; or (spoilt) it came with other bytes than rec says, and
 * its owner finds them so. */
void kvcl_store_notify_owner(kvcl_store_h store, const kvcl_store_rec_t *rec, bool corrupt);

/** Lock held: room for an answer; valid until the next call. NULL: no memory. */
void *kvcl_home_scratch(kvcl_context_h ctx, size_t len);
/** Nobody hears it if the ask's op is 0. */
void kvcl_rpc_answer(kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, kvcl_status_t status, uint32_t n,
                     const void *data, size_t len);

/* ---- copies of others' blocks in my pool (copy/copy_jobs.c): lock held ---- */

bool kvcl_copy_on_request(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                          size_t len); /* a row of kinds.c */
/** What is under way here of the key is not kept. */
void kvcl_copies_leave(kvcl_store_h store, const kvcl_key_t *key);
void kvcl_copies_stop(kvcl_store_h store); /* the store is being closed */
/** An ask for copies, unposted: recs[order[0..n)], or recs[0..n). NULL: no memory. */
kvcl_rpc_t *kvcl_copy_request(kvcl_store_h store, uint32_t rank, const kvcl_copy_head_t *head,
                              const kvcl_store_rec_t *recs, const uint32_t *order, uint32_t n);
/** How long a rank may take for n blocks of that many bytes. */
uint64_t    kvcl_copy_time(uint32_t n, uint64_t bytes);

/** Take copies of recs[order[0..n)], of one size, into my own pool, for nobody's answer. source: as what the (only) block
 * is listed, if its record does not say so; else NULL. KVCL_ERR_BUSY, KVCL_ERR_NO_MEMORY, ... */
kvcl_status_t kvcl_copy_here(kvcl_store_h store, const kvcl_copy_head_t *head, const kvcl_store_rec_t *recs,
                             const uint32_t *order, uint32_t n, const kvcl_dir_loc_t *source) KVCL_MUST_CHECK;

/* ---- homes that were silent (pool/owed.c): lock held ---- */

/** It answers again: it is told in the background what it should list of mine. */
void kvcl_owed_start(kvcl_store_h store, uint32_t rank);
void kvcl_owed_stop(kvcl_store_h store); /* the store is being closed */

/* ---- repair (copy/repair.c): lock held ---- */

typedef struct kvcl_repair kvcl_repair_t;
void kvcl_repair_start(kvcl_store_h store); /* a rank has gone, and the map is new */
void kvcl_repair_stop(kvcl_store_h store);  /* the store is being closed; its memory is freed with the store's */

/* ---- put (copy/put_blocks.c, copy/chain.c) ---- */

/** No lock. List blocks of a class of my pool, and get other ranks to make copies - 1 more of each. item[i]: which of
 * the user's p->copies is of recs[i]. timing: of the call that it is the end of, NULL: it is not timed. */
kvcl_status_t kvcl_chain_start(kvcl_owner_t *pool, const kvcl_store_rec_t *recs, const uint32_t *item, size_t n,
                               unsigned copies, const kvcl_timing_t *timing, const kvcl_xfer_params_t *p,
                               kvcl_req_h *req_p) KVCL_MUST_CHECK;

/** No lock: until a block was freed after `seen` of them were, a pin has expired, or the deadline. False: no use to try
 * again. */
bool kvcl_store_wait_room(kvcl_store_h store, uint64_t seen, uint64_t deadline_ns);

/** No lock: with KVCL_STORE_HOT, and a pool, what is got often is counted from now on (copy/hot.c). */
kvcl_status_t kvcl_hot_open(kvcl_store_h store) KVCL_MUST_CHECK;

/* ---- lookups (home/lookup.c): no lock ---- */

/** The table of a key's home as memory here, or NULL: a message is needed (*gone_p: nobody would answer). Of its
 * backup, where the home is gone. */
const kvcl_dir_view_t *kvcl_store_view(kvcl_store_h store, const kvcl_key_t *key, bool *gone_p);

/* ---- publishing (pool/publish.c) ---- */

typedef struct kvcl_publish kvcl_publish_t;
/** Send n records of blocks that are PUBLISHED in owner. Lock held; recs is copied. status (may be NULL): each
 * block's. timing: of the call that it is the end of, NULL: it is not timed. */
kvcl_status_t kvcl_publish_start(kvcl_owner_t *owner, const kvcl_store_rec_t *recs, size_t n,
                                 const kvcl_timing_t *timing, const kvcl_xfer_params_t *p,
                                 kvcl_req_h *req_p) KVCL_MUST_CHECK;
/** Lock held: the owner goes; publishes in flight take their blocks as withdrawn. */
void          kvcl_publish_forget(kvcl_owner_t *owner);
uint64_t      kvcl_store_block_sum(kvcl_cache_h cache, uint32_t block); /* no lock */

/** No lock. Show n blocks of the caller's cache to whoever names them by slot and generation: recs[i].key is set, and
 * recs[i].loc is then. No home lists them and no follower hears of it. All, or none. */
kvcl_status_t kvcl_own_show(kvcl_store_h store, kvcl_cache_h cache, const uint32_t *ids, size_t n,
                            kvcl_store_rec_t *recs, kvcl_owner_t **owner_p, const char *name) KVCL_MUST_CHECK;
/** Lock held. They are the caller's alone again. */
void          kvcl_own_hide(kvcl_store_h store, kvcl_owner_t *owner, const kvcl_store_rec_t *recs, size_t n);

/* ---- blocks to hand out (pool/blocks.c): lock held ---- */

/** n blocks of a managed owner, FILLING, for a tenant (0: nobody), evicting. KVCL_ERR_NO_SPACE: nothing was taken. */
kvcl_status_t kvcl_owner_take_for(kvcl_owner_t *owner, uint64_t tenant, size_t n, uint32_t *ids) KVCL_MUST_CHECK;
/** As many blocks it may have at most, whatever is evicted. */
uint64_t kvcl_owner_most(const kvcl_owner_t *owner);
static inline kvcl_status_t kvcl_owner_take(kvcl_owner_t *owner, size_t n, uint32_t *ids)
{
    return kvcl_owner_take_for(owner, 0, n, ids);
}
/** A block became free, or could be evicted now: those who wait for room look again. */
static inline void kvcl_store_freed(struct kvcl_store *store)
{
    ++store->n_freed;
    if (store->n_room_waiters != 0) {
        kvcl_engine_notify(store->ctx);
    }
}

/* ---- gets (get/get_rounds.c and its neighbours) ---- */

/** No lock. True: all is done, statuses are written and *final_p is the request's. timing: of the call, or NULL. */
bool kvcl_get_now(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache, const uint32_t *ids,
                  kvcl_status_t *statuses[2], kvcl_timing_t *timing, kvcl_status_t *final_p);
bool kvcl_verify_work(kvcl_context_h ctx);
/** Lock held. Fetch the blocks that recs name, from there or from any other copy (gen 0: it is looked for), into
 * cache's blocks ids[]; recs and ids are copied, status (one each) is the caller's, and from (one each, or NULL): of
 * blocks that came, the location that they came from, as it is listed. loc.source not 0 (and gen 0): a copy with this
 * tag, or with loc's sum, is not taken. user: hits count. cb runs without the lock. *req_p: until cb has run. */
kvcl_status_t kvcl_get_recs(kvcl_store_h store, const kvcl_store_rec_t *recs, size_t n, kvcl_cache_h cache,
                            const uint32_t *ids, kvcl_status_t *status, kvcl_dir_loc_t *from, uint64_t timeout_ns,
                            bool user, kvcl_req_cb_t cb, void *cb_arg, kvcl_req_t **req_p) KVCL_MUST_CHECK;

#endif
