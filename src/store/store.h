/*
 * One rank's part of a store: the state that its rooms share, and the room's state in a context.
 *
 *   open.c, close.c  opening and closing; store.c: the room
 *   kinds.h          the table of RPC kinds
 *   listener.h       what the lower rooms report to the upper ones
 *   tenant.h         handles for one tenant, and the entry of every public call
 *   home/            the homes of keys; queries to them, and this rank's answers as a home
 *   pool/            the caches whose blocks are published here, the pool, publishing
 *   get/             gets, hedges, the checking of checksums, uses
 *   copy/            puts, copies of blocks of other ranks, moves, repair
 *   cold/            the second tier
 *   grow/            ranks that come to an open store, and ranks that leave it
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
enum {
    KVCL_VIEW_UNKNOWN,
    KVCL_VIEW_REQUESTED, /* its description */
    KVCL_VIEW_READING,   /* its header, over the network */
    KVCL_VIEW_MAPPED,
    KVCL_VIEW_NATIVE,
    KVCL_VIEW_BY_MESSAGE
};

enum { KVCL_STORE_RCACHES = 12 };

/* Why a rank that takes part is avoided. */
enum {
    KVCL_AVOID_SILENT   = 1,
    KVCL_AVOID_EXCLUDED = 2,
    KVCL_AVOID_GONE     = 4 /* it has failed, and is a home until a view without it is there: home/follow_views.h */
};

/* A table that is mapped here. */
typedef struct kvcl_store_mapped {
    kvcl_dir_view_t          view;   /* immutable */
    kvcl_rregion_t           region;
    struct kvcl_store_mapped *before; /* of an earlier process of the rank: readers without the lock may still use it */
} kvcl_store_mapped_t;

typedef struct kvcl_store_rank {
    kvcl_peer_t *_Atomic     peer;            /* NULL: this rank; of a free slot store->nobody. Read without the lock */
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
    bool                     fresh;           /* it has come, and shards move to it: it gets no copies yet */
    _Atomic int              view_state;      /* KVCL_VIEW_*. Read without the lock */
    _Atomic(kvcl_store_mapped_t *) mapped;    /* MAPPED: its table, to the store's end. Read without the lock */
    kvcl_dir_view_t          view;            /* NATIVE: immutable, to the link's end */
    unsigned                 reads;           /* of its table, in flight: home/far_table.h */
    uint32_t                 links;           /* lost so far: reads that began before have failed */
    uint64_t                 learn_ns;        /* the access to its table is not queried again before */
    kvcl_rregion_t           region;
    _Atomic(kvcl_rcache_t *) rcaches[KVCL_STORE_RCACHES]; /* its mapped caches, by id. Read without the lock */
    unsigned                 next_rcache;
} kvcl_store_rank_t;

/* The homes of all shards, among the ranks that take part. */
typedef struct kvcl_store_map {
    kvcl_shard_map_t      shards; /* first: kvcl_store_shards() returns it */
    kvcl_shard_map_t      *old;   /* shards move from this map (dir/moves.h), owned; NULL: none do */
    kvcl_shard_map_t      *also;  /* owned; NULL: there is none. Without `old`: what the next move begins with */
    bool                  switched; /* keys are looked up by `shards`, though records are listed by both */
    struct kvcl_store_map *before; /* the one that was made before: readers without the lock may still use it */
} kvcl_store_map_t;

typedef struct kvcl_store_timer kvcl_store_timer_t;

/* Blocks of users' calls. */
typedef struct kvcl_store_counts {
    _Atomic uint64_t gets, hits, lookups;
    _Atomic uint64_t tier_hits[KVCL_DIR_TIER_MASK + 1]; /* by KVCL_DIR_TIER_* */
    _Atomic uint64_t local_hits; /* hits in this rank's memory, without the tier */
} kvcl_store_counts_t;

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
    kvcl_peer_t                 nobody;      /* has failed: stands for the process of a slot that has none */
    uint32_t                    replicas;    /* copies that a put makes by default; agreed between all ranks */
    _Atomic(kvcl_store_map_t *) map;         /* one of maps, read without the lock */
    kvcl_store_map_t            *maps;       /* owned: all that were made, the last one first */
    _Atomic(kvcl_store_map_t *) settled;     /* a home in it has all its entries: the first map, or the last one in
                                                which nothing moves */
    struct kvcl_store_views     *views;      /* home/follow_views.h; NULL: the map does not follow views */
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
    struct kvcl_rehome *rehome;    /* pool/rehome.c; NULL until shards move */
    kvcl_list_t        op_rpcs;    /* kvcl_rpc_t.link: cold/relist.c, grow */
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
    bool               drains_to_leave; /* by kvcl_leave alone: no more if that fails */
    kvcl_place_t       *places;    /* by rank: placement state of its pool */
    uint8_t            *place_ok;  /* by rank: scratch of a placement */
    unsigned           ops;        /* operations in flight, and holds */
    kvcl_delay_t       delays[2][KVCL_DELAY_CLASSES]; /* of ranks on this host, and on others: get/hedge.c */
    kvcl_store_counts_t counts;    /* of all calls */
    _Atomic uint64_t   stale, corrupt; /* blocks */
    kvcl_list_t        tenants;    /* tenant_handle_t.link: tenant.c */
    kvcl_list_t        link;       /* kvcl_store_room_t.stores */
};

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
           (atomic_load_explicit(&store->ranks[loc->rank].incarnation, memory_order_acquire) == loc->incarnation);
}
/** The check of every public call: the handle, and an array of n elements. call: its name, for the error sentence. */
kvcl_status_t kvcl_store_check(kvcl_store_h store, const void *keys, size_t n, const char *call) KVCL_MUST_CHECK;

/** Any thread: counts the blocks of a user's get, by KVCL_DIR_TIER_*; local: those in this rank's memory. */
static inline void kvcl_store_count_hits(kvcl_store_counts_t *counts, const size_t hits[KVCL_DIR_TIER_MASK + 1],
                                         size_t local)
{
    unsigned i;

    if (local != 0) {
        atomic_fetch_add_explicit(&counts->local_hits, local, memory_order_relaxed);
    }
    for (i = 0; i <= KVCL_DIR_TIER_NVME; ++i) {
        if (hits[i] != 0) {
            atomic_fetch_add_explicit(&counts->hits, hits[i], memory_order_relaxed);
            atomic_fetch_add_explicit(&counts->tier_hits[i], hits[i], memory_order_relaxed);
        }
    }
}

#endif
