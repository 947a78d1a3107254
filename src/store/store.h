/*
 * One rank's part of a store: the state that its rooms share, and the room's state in a context.
 *
 *   open.c, close.c  opening and closing; store.c: the room
 *   kinds.h          the table of RPC kinds
 *   listener.h       what the lower rooms report to the upper ones
 *   home/            the homes of keys; queries to them, and this rank's answers as a home
 *   pool/            the caches whose blocks are published here, the pool, publishing
 *   get/             gets, hedges, the checking of checksums, uses
 *   copy/            puts, copies of blocks of other ranks, moves, repair
 *   cold/            the second tier
 *   admin/           requests about one rank's part: lists, events, pins, tenants, statistics
 *
 * Locks: the engine lock, except where marked. Lookups in this rank's own table and in mapped tables take none
 * (dir/table.h).
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
    kvcl_peer_t              *peer;           /* NULL: this rank */
    _Atomic uint32_t         incarnation;     /* 0: failed or departed. Read without the lock */
    _Atomic unsigned         avoided;         /* KVCL_AVOID_*: other ranks are preferred. Read without the lock */
    bool                     checking;        /* a query that finds out whether it is silent is in flight */
    uint64_t                 silent_since_ns; /* when that query was sent, or the rank was suspected */
    uint64_t                 answered_ns;     /* when it last answered such a query */
    bool                     missed;          /* as a home it has missed records: pool/republish.c */
    bool                     republishing;    /* it is receiving them */
    unsigned                 n_sizes;         /* block sizes of its pool; 0: it has no pool */
    uint32_t                 sizes[KVCL_SLABS_CLASSES_MAX];
    bool                     listing;         /* the blocks that its tier had at the opening may not be listed yet */
    _Atomic bool             leaving;         /* it drains as well, or is silent: its copies do not count for a drain */
    _Atomic int              view_state;      /* KVCL_VIEW_*. Read without the lock */
    kvcl_dir_view_t          view;            /* once MAPPED: immutable until the store is closed */
    kvcl_rregion_t           region;
    _Atomic(kvcl_rcache_t *) rcaches[KVCL_STORE_RCACHES]; /* its mapped caches, by id. Read without the lock */
    unsigned                 next_rcache;
} kvcl_store_rank_t;

/* The homes of all shards, among the ranks that take part. */
typedef struct kvcl_store_map {
    kvcl_shard_map_t      shards;
    struct kvcl_store_map *before; /* readers without the lock may still use it: freed with the store */
} kvcl_store_map_t;

typedef struct kvcl_store_timer kvcl_store_timer_t;

struct kvcl_store {
    kvcl_context_h              ctx;
    kvcl_comm_h                 comm;        /* the store's own */
    uint64_t                    id;          /* the same on all ranks */
    uint64_t                    flags;       /* KVCL_STORE_* of its params */
    uint32_t                    me, n_ranks;
    uint16_t                    incarnation;
    const kvcl_store_listener_t *notify;     /* the upper rooms */
    _Atomic bool                closing;     /* set under the lock, read without it as well */
    kvcl_store_rank_t           *ranks;
    uint32_t                    replicas;    /* copies that a put makes by default; agreed between all ranks */
    _Atomic(kvcl_store_map_t *) map;         /* read without the lock */
    kvcl_store_map_t            *first_map;  /* of all ranks; a home in it has all its entries since the opening */
    /* As a home. */
    kvcl_region_t     *table_region;
    kvcl_dir_table_t  table;
    kvcl_home_t       home;
    uint16_t          *incarnations; /* by rank, for home; 0: failed or departed */
    /* As an owner. */
    kvcl_list_t       owners;      /* kvcl_owner_t.link */
    kvcl_owner_t      *own;        /* of params.cache, or NULL */
    struct kvcl_pool  *pool;       /* or NULL */
    kvcl_owner_t      *value_pool; /* the pool's first class, which has the blocks of values; or NULL */
    uint64_t          value_block; /* bytes of a block of values, of this pool or the first rank's; 0: no pools */
    kvcl_cache_h      stage;       /* of value/value_far.c; NULL: not used yet */
    bool              stage_taken;
    struct kvcl_cold  *cold;       /* the pool's second tier, or NULL */
    kvcl_map_t        index;       /* hash of key -> kvcl_owner_node_t, chained */
    uint64_t          n_published; /* blocks that are published now */
    uint64_t          n_ever, n_evicted; /* blocks published, and evicted, since the opening */
    /* Operations in flight. */
    kvcl_list_t        publishes;  /* kvcl_publish_t.link */
    kvcl_list_t        copies;     /* kvcl_copy_job_t.link: copy/copy_job.h */
    size_t             n_copying;  /* blocks in these jobs */
    kvcl_list_t        calls;      /* kvcl_call_t.link: home/call.h */
    kvcl_list_t        probes;     /* kvcl_rpc_t.link: probes of suspects, and checks of ranks that may be silent */
    kvcl_list_t        watched;    /* kvcl_rpc_t.watch_link: home/silence.c */
    kvcl_store_timer_t *silence_timer;
    kvcl_store_timer_t *republish_timer;
    uint64_t           republish_cache; /* the position of the walk of pool/republish.c */
    uint32_t           republish_slot;
    kvcl_list_t        op_rpcs;    /* kvcl_rpc_t.link: cold/relist.c */
    struct kvcl_repair *repair;    /* NULL until a rank fails */
    kvcl_events_t      events;     /* changes of this rank's blocks */
    kvcl_list_t        followers;  /* follower_t.link: admin/follow.c */
    unsigned           n_followers;
    kvcl_store_timer_t *follow_timer;
    uint64_t           n_freed;    /* calls of kvcl_store_freed() */
    unsigned           n_room_waiters;
    uint64_t           n_moved;    /* blocks that moved to other ranks */
    uint64_t           n_brought;  /* blocks that arrived with a home's answer (get/fetch.h) */
    uint64_t           n_copied;   /* copies of other ranks' blocks, made here */
    struct kvcl_hot    *hot;       /* counts of blocks that are got often; NULL: not counted */
    struct kvcl_uses   *uses;      /* uses of other ranks' blocks, to be sent to their owners; NULL: a single rank */
    bool               draining;   /* accepts no copies of other ranks' blocks */
    kvcl_place_t       *places;    /* by rank: placement state of its pool */
    uint8_t            *place_ok;  /* by rank: scratch of a placement */
    unsigned           ops;        /* operations in flight, and holds */
    kvcl_delay_t       delays[2][KVCL_DELAY_CLASSES]; /* of ranks on this host, and on others: get/hedge.c */
    _Atomic uint64_t   gets, hits, stale, corrupt, lookups; /* blocks */
    _Atomic uint64_t   tier_hits[KVCL_DIR_TIER_MASK + 1]; /* by KVCL_DIR_TIER_* */
    _Atomic uint64_t   local_hits; /* hits in this rank's memory, without the tier */
    kvcl_list_t        link;       /* kvcl_store_room_t.stores */
};

/* ---- the ranks (home/ranks.c) ---- */

static inline const kvcl_shard_map_t *kvcl_store_shards(const struct kvcl_store *store)
{
    return &atomic_load_explicit(&((struct kvcl_store *)store)->map, memory_order_acquire)->shards;
}

/* Is a location with these flags listed at two homes, the home and the backup of its key? */
static inline bool kvcl_store_two_homes(const struct kvcl_store *store, unsigned flags)
{
    return (store->replicas > 1) || (kvcl_loc_copies(flags) > 1);
}

/** The home of a key to query: its home or, while that is suspected, its backup if it has received all entries. Any
 * thread. */
uint32_t      kvcl_store_home(const struct kvcl_store *store, const kvcl_shard_map_t *map, const kvcl_key_t *key);
static inline bool kvcl_store_suspects(const struct kvcl_store *store, uint32_t rank)
{
    return atomic_load_explicit(&((struct kvcl_store *)store)->ranks[rank].avoided, memory_order_relaxed) != 0;
}
/** Was the rank excluded with kvcl_store_exclude? Any thread. */
static inline bool kvcl_store_excludes(const struct kvcl_store *store, uint32_t rank)
{
    return (atomic_load_explicit(&((struct kvcl_store *)store)->ranks[rank].avoided, memory_order_relaxed) &
            KVCL_AVOID_EXCLUDED) != 0;
}
/** Lock held. The rank did not answer for a while: other ranks are preferred until it does. */
void          kvcl_store_suspect(kvcl_store_h store, uint32_t rank);
/** Makes a map of the ranks that take part. Lock held, or the store is not linked yet. */
kvcl_status_t kvcl_store_map_make(kvcl_store_h store) KVCL_MUST_CHECK;
void          kvcl_store_maps_free(kvcl_store_h store);
/** The number of other ranks that could take copies of blocks of this size. Lock held. */
unsigned      kvcl_store_places(kvcl_store_h store, uint64_t bytes);
/** Chooses n of them, at most KVCL_DIR_LOCS_MAX, that are not in skip[] (a byte a rank), by place.h: first those on
 * other hosts than this rank's and each other's. Returns how many. Lock held. */
unsigned      kvcl_store_place(kvcl_store_h store, uint64_t bytes, const uint8_t *skip, unsigned n, uint16_t *ranks);
/** The same, but the first is the nearest one, on this host if possible. It is set in skip[]. Lock held. */
unsigned      kvcl_store_place_near(kvcl_store_h store, uint64_t bytes, uint8_t *skip, unsigned n, uint16_t *ranks);
/** Has the rank, which may be this one, a pool with blocks of this size? Any thread. */
bool          kvcl_store_takes(const struct kvcl_store *store, uint32_t rank, uint64_t bytes);
/** The rank no longer takes part: its copies do not count, and its shards fall to their backups. Lock held. */
void          kvcl_store_rank_failed(kvcl_store_h store, uint32_t rank);

/* ---- the room (store.c) ---- */

typedef struct kvcl_store_room {
    kvcl_list_t           stores;
    kvcl_list_t           verifies; /* gets whose checksums are pending: get/verify.c */
    uint8_t               *scratch; /* buffer for answers */
    size_t                scratch_room;
    const kvcl_rpc_kind_t *kinds;   /* by KVCL_RPC_* */
} kvcl_store_room_t;

static inline kvcl_store_room_t *kvcl_store_room(kvcl_context_h ctx)
{
    return ctx->rooms[KVCL_ROOM_STORE];
}

/** No lock. Keeps the store from being freed while a call sleeps. KVCL_ERR_SHUTDOWN: it is being closed, and is not
 * held. */
kvcl_status_t kvcl_store_hold(kvcl_store_h store) KVCL_MUST_CHECK;
/** No lock. The store may be freed when this returns. */
void          kvcl_store_release(kvcl_store_h store);

kvcl_store_h kvcl_store_by_id(kvcl_context_h ctx, uint64_t id);
/** Is the location's rank live, with the incarnation that published it? Any thread. */
static inline bool kvcl_store_loc_lives(const struct kvcl_store *store, const kvcl_dir_loc_t *loc)
{
    return (loc->rank < store->n_ranks) && (loc->incarnation != 0) &&
           (atomic_load_explicit(&store->ranks[loc->rank].incarnation, memory_order_relaxed) == loc->incarnation);
}
/** The check of every public call: the handle, and an array of n elements. call: its name, for the error sentence. */
kvcl_status_t kvcl_store_check(kvcl_store_h store, const void *keys, size_t n, const char *call) KVCL_MUST_CHECK;

/** Any thread: counts the blocks of a user's get, by KVCL_DIR_TIER_*; local: those in this rank's memory. */
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

/* ---- uses of other ranks' blocks (get/uses.c) ---- */

kvcl_status_t kvcl_uses_open(kvcl_store_h store) KVCL_MUST_CHECK;
/** Notes that the block at this location was got; of a chain, note the end first. Any thread; locked: the caller holds
 * the lock. */
void          kvcl_uses_note(kvcl_store_h store, const kvcl_dir_loc_t *loc, bool locked);
/** A row of kinds.c. */
bool          kvcl_uses_on_request(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in,
                                   const void *data, size_t len);

/* ---- timers (home/timer.c): lock held ---- */

/** Calls fn once, lock held, after after_ns; the timer is freed afterwards. NULL: no memory, or the store is being
 * closed. */
kvcl_store_timer_t *kvcl_store_timer_start(kvcl_store_h store, uint64_t after_ns, void (*fn)(void *arg), void *arg);
void                kvcl_store_timer_stop(kvcl_store_timer_t *timer); /* a timer that has not fired yet, or NULL */

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
/** Lock held: drops the keys keys[order[0..n)] (order NULL: keys[0..n)) from this home and notifies their owners. */
void kvcl_home_remove_keys(kvcl_store_h store, const kvcl_key_t *keys, const uint32_t *order, size_t n);
/** Lock held: notifies the homes that these blocks are no longer published; the homes do not answer. */
void kvcl_store_notify_removed(kvcl_store_h store, const kvcl_store_rec_t *recs, size_t n);
/** Lock held: notifies the rank that holds this copy. It discards the copy, which was removed; or (corrupt: a reader
 * got bytes that do not match rec) it checks the copy. */
void kvcl_store_notify_owner(kvcl_store_h store, const kvcl_store_rec_t *rec, bool corrupt);

/** Lock held: a buffer for an answer, valid until the next call. NULL: no memory. */
void *kvcl_home_scratch(kvcl_context_h ctx, size_t len);
/** Sends an answer, unless the request's op is 0. */
void kvcl_rpc_answer(kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, kvcl_status_t status, uint32_t n,
                     const void *data, size_t len);

/* ---- copies of other ranks' blocks in this rank's pool (copy/copy_jobs.c): lock held ---- */

bool kvcl_copy_on_request(kvcl_store_h store, kvcl_peer_t *peer, const kvcl_msg_dir_request_t *in, const void *data,
                          size_t len); /* a row of kinds.c */
/** Copies of the key that are being made here are not kept. */
void kvcl_copies_discard(kvcl_store_h store, const kvcl_key_t *key);
void kvcl_copies_stop(kvcl_store_h store); /* the store is being closed */
/** An RPC that requests copies of recs[order[0..n)] (order NULL: recs[0..n)), unposted. NULL: no memory. */
kvcl_rpc_t *kvcl_copy_request(kvcl_store_h store, uint32_t rank, const kvcl_copy_head_t *head,
                              const kvcl_store_rec_t *recs, const uint32_t *order, uint32_t n);
/** The time in ns that a rank may take for copies of n blocks of this size. */
uint64_t    kvcl_copy_time(uint32_t n, uint64_t bytes);

/** Copies recs[order[0..n)], of one size, into the local pool, without an answer to any rank. source: the location as
 * which the (only) block is listed, if its record has another; else NULL. KVCL_ERR_BUSY, KVCL_ERR_NO_MEMORY, ... */
kvcl_status_t kvcl_copy_here(kvcl_store_h store, const kvcl_copy_head_t *head, const kvcl_store_rec_t *recs,
                             const uint32_t *order, uint32_t n, const kvcl_dir_loc_t *source) KVCL_MUST_CHECK;

/* ---- homes that were silent (pool/republish.c): lock held ---- */

/** The rank answers again: sends it in the background the records of local blocks that it should list. */
void kvcl_republish_start(kvcl_store_h store, uint32_t rank);
void kvcl_republish_stop(kvcl_store_h store); /* the store is being closed */

/* ---- repair (copy/repair.c): lock held ---- */

typedef struct kvcl_repair kvcl_repair_t;
void kvcl_repair_start(kvcl_store_h store); /* a rank has failed, and the map is new */
void kvcl_repair_stop(kvcl_store_h store);  /* the store is being closed; its memory is freed with the store's */

/* ---- put (copy/put_blocks.c, copy/chain.c) ---- */

/** No lock. Lists blocks of a class of the local pool, and requests copies - 1 more of each from other ranks. item[i]:
 * the index of recs[i] in the caller's p->copies. timing: of the call that this request ends, or NULL: not timed. */
kvcl_status_t kvcl_chain_start(kvcl_owner_t *pool, const kvcl_store_rec_t *recs, const uint32_t *item, size_t n,
                               unsigned copies, const kvcl_timing_t *timing, const kvcl_xfer_params_t *p,
                               kvcl_req_h *req_p) KVCL_MUST_CHECK;

/** No lock; blocks until store->n_freed differs from `seen`, a pin has expired, or the deadline has passed. False: the
 * deadline has passed, or the store is being closed. */
bool kvcl_store_wait_room(kvcl_store_h store, uint64_t seen, uint64_t deadline_ns);

/** No lock: with KVCL_STORE_HOT and a pool, starts to count blocks that are got often (copy/hot.c). */
kvcl_status_t kvcl_hot_open(kvcl_store_h store) KVCL_MUST_CHECK;

/* ---- lookups (home/lookup.c): no lock ---- */

/** The mapped table of a key's home or, if that has failed, of its backup. NULL: a query is needed (*failed_p: no rank
 * would answer it). */
const kvcl_dir_view_t *kvcl_store_view(kvcl_store_h store, const kvcl_key_t *key, bool *failed_p);

/* ---- publishing in place (pool/publish_own.c) ---- */

uint64_t      kvcl_store_block_sum(kvcl_cache_h cache, uint32_t block); /* no lock */

/** No lock. Publishes n blocks of the caller's cache without listing them: a rank can get them only by slot and
 * generation. The caller sets recs[i].key, the call sets recs[i].loc. Followers get no event. All blocks, or none. */
kvcl_status_t kvcl_own_show(kvcl_store_h store, kvcl_cache_h cache, const uint32_t *ids, size_t n,
                            kvcl_store_rec_t *recs, kvcl_owner_t **owner_p, const char *name) KVCL_MUST_CHECK;
/** Lock held. Ends this: no rank can get the blocks any more. */
void          kvcl_own_hide(kvcl_store_h store, kvcl_owner_t *owner, const kvcl_store_rec_t *recs, size_t n);

/* ---- allocation of blocks (pool/blocks.c): lock held ---- */

/** Allocates n blocks of a managed owner for a tenant (0: none), which become FILLING; evicts others where needed.
 * KVCL_ERR_NO_SPACE: nothing was allocated. */
kvcl_status_t kvcl_owner_take_for(kvcl_owner_t *owner, uint64_t tenant, size_t n, uint32_t *ids) KVCL_MUST_CHECK;
/** The most blocks that the owner can ever have, whatever is evicted. */
uint64_t kvcl_owner_most(const kvcl_owner_t *owner);
static inline kvcl_status_t kvcl_owner_take(kvcl_owner_t *owner, size_t n, uint32_t *ids)
{
    return kvcl_owner_take_for(owner, 0, n, ids);
}
/** A block has become free or evictable: threads that wait for room try again. */
static inline void kvcl_store_freed(struct kvcl_store *store)
{
    ++store->n_freed;
    if (store->n_room_waiters != 0) {
        kvcl_engine_notify(store->ctx);
    }
}

/* ---- gets (get/get_rounds.c and its neighbours) ---- */

/** No lock. True: the get has ended, statuses are written and *final_p is its status. timing: of the call, or NULL. */
bool kvcl_get_now(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache, const uint32_t *ids,
                  kvcl_status_t *statuses[2], kvcl_timing_t *timing, kvcl_status_t *final_p);
bool kvcl_verify_work(kvcl_context_h ctx);
/** Lock held. Fetches the blocks that recs name into cache's blocks ids[], from the location of the record or from any
 * other copy (gen 0: the locations are looked up). recs and ids are copied. status: one each, the caller's. from (one
 * each, or NULL): of each block that arrives, its source as it is listed. If loc.source is not 0 (and gen is 0), a copy
 * with this tag, or with loc's checksum, is not used. user: hits are counted. cb runs without the lock. *req_p is valid
 * until cb has run. */
kvcl_status_t kvcl_get_recs(kvcl_store_h store, const kvcl_store_rec_t *recs, size_t n, kvcl_cache_h cache,
                            const uint32_t *ids, kvcl_status_t *status, kvcl_dir_loc_t *from, uint64_t timeout_ns,
                            bool user, kvcl_req_cb_t cb, void *cb_arg, kvcl_req_t **req_p) KVCL_MUST_CHECK;

#endif
