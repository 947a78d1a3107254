/*
 * The store's inside: one rank's part of a store, and how the files of this room meet.
 *
 *   store.c          open, close, stats, the room
 *   owner.c          caches whose blocks are published here: slots, local index, eviction order
 *   store_ask.c      questions to homes: one message each way, in parallel
 *   store_home.c     what this rank answers as a home, and withdrawals it is told of
 *   store_lookup.c   match, exists; reading mapped tables
 *   store_publish.c  publish, withdraw, remove
 *   store_pool.c     alloc, free, pin, put
 *   store_get.c      get as a request; store_get_now.c: inside the call; store_verify.c: checksums off the lock
 *   store_bcast.c    a prefix for every rank
 *
 * Locks: the engine lock, but for what is marked otherwise; lookups in this rank's own table and in mapped ones take
 * none (dir/table.h).
 */
#ifndef KVCL_STORE_STORE_H
#define KVCL_STORE_STORE_H

#include "core/comm.h"
#include "core/req.h"
#include "dir/home.h"
#include "store/owner.h"
#include "store/store_wire.h"
#include <kvcl/kvcl_store.h>

/* How another rank's table can be read. */
enum { KVCL_VIEW_UNKNOWN, KVCL_VIEW_ASKED, KVCL_VIEW_MAPPED, KVCL_VIEW_BY_MESSAGE };

enum { KVCL_STORE_RCACHES = 4 };

typedef struct kvcl_store_rank {
    kvcl_peer_t              *peer;       /* NULL: me */
    _Atomic uint32_t         incarnation; /* 0: gone. Without the lock */
    _Atomic int              view_state;  /* KVCL_VIEW_*. Without the lock */
    kvcl_dir_view_t          view;        /* once MAPPED: immutable until the store is closed */
    kvcl_rregion_t           region;
    _Atomic(kvcl_rcache_t *) rcaches[KVCL_STORE_RCACHES]; /* mapped caches of it, by id. Without the lock */
    unsigned                 next_rcache;
} kvcl_store_rank_t;

struct kvcl_store {
    kvcl_context_h    ctx;
    kvcl_comm_h       comm;
    uint64_t          id;          /* the same on all ranks */
    uint64_t          flags;
    uint32_t          me, n_ranks;
    uint16_t          incarnation;
    bool              closing;
    kvcl_store_rank_t *ranks;
    kvcl_shard_map_t  map;
    /* As a home. */
    kvcl_region_t     *table_region;
    kvcl_dir_table_t  table;
    kvcl_home_t       home;
    uint16_t          *incarnations; /* for home; 0: gone */
    /* As an owner. */
    kvcl_list_t       owners;      /* kvcl_owner_t.link */
    kvcl_owner_t      *own;        /* of params.cache, or NULL */
    kvcl_owner_t      *pool;       /* or NULL */
    kvcl_cache_h      pool_cache;
    kvcl_map_t        index;       /* hash of key -> kvcl_owner_node_t, chained */
    uint64_t          n_published, n_ever, n_evicted;
    /* Operations in flight. */
    kvcl_list_t       publishes;   /* kvcl_publish_t.link */
    unsigned          ops;
    _Atomic uint64_t  gets, hits, stale, corrupt, lookups;
    kvcl_list_t       link;        /* the room's stores */
};

/* ---- the room (store.c) ---- */

typedef struct kvcl_store_room {
    kvcl_list_t stores;
    kvcl_list_t verifies; /* gets that have blocks to verify: store_verify.c */
    uint8_t     *scratch; /* answers are written here */
    size_t      scratch_room;
} kvcl_store_room_t;

static inline kvcl_store_room_t *kvcl_store_room(kvcl_context_h ctx)
{
    return ctx->rooms[KVCL_ROOM_STORE];
}

kvcl_store_h kvcl_store_by_id(kvcl_context_h ctx, uint64_t id);
/** The rank no longer takes part: its copies do not count, its shards are empty. */
void         kvcl_store_rank_gone(kvcl_store_h store, uint32_t rank);
/** Does this location's owner still exist as the one that published it? Any thread. */
static inline bool kvcl_store_loc_lives(const struct kvcl_store *store, const kvcl_dir_loc_t *loc)
{
    return (loc->rank < store->n_ranks) && (loc->incarnation != 0) &&
           (atomic_load_explicit(&store->ranks[loc->rank].incarnation, memory_order_relaxed) == loc->incarnation);
}
/** First lines of public calls: a store, and n keys. */
kvcl_status_t kvcl_store_check(kvcl_store_h store, const void *keys, size_t n, const char *call) KVCL_MUST_CHECK;

/* ---- asks (store_ask.c) ---- */

typedef struct kvcl_ask kvcl_ask_t;
struct kvcl_ask {
    kvcl_req_t         req;
    kvcl_store_h       store;
    kvcl_list_t        link;   /* for the poster: kvcl_asks_stop() */
    kvcl_peer_t        *peer;
    uint32_t           rank;
    uint8_t            kind;
    bool               over;
    uint32_t           n;
    const uint32_t     *order; /* item i of the ask is the poster's item order[i]; the poster's */
    kvcl_peer_waiter_t waiter;
    /* Lock held, once. status OK: data is the answer's payload, of the right kind and number. */
    void               (*done)(kvcl_ask_t *ask, kvcl_status_t status, const void *data, size_t len);
    void               *arg;
    size_t             len;
    unsigned char      payload[] __attribute__((aligned(8)));
};

/** No lock. payload_room bytes of payload to be filled; len and n by the poster. Freed by kvcl_ask_discard. */
kvcl_ask_t   *kvcl_ask_new(kvcl_store_h store, uint32_t rank, uint8_t kind, size_t payload_room);
void          kvcl_ask_discard(kvcl_ask_t *ask);
/** Lock held. done() comes later, or has come when this returns; the ask is freed after it. */
void          kvcl_ask_post(kvcl_ask_t *ask, uint64_t timeout_ns, kvcl_list_t *asks);
void          kvcl_asks_stop(kvcl_list_t *asks, kvcl_status_t status); /* lock held */
void          kvcl_ask_on_answer(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                                 const void *data, size_t len);
/** Lock held: find out how this rank's table can be read, once, in the background. */
void          kvcl_store_learn(kvcl_store_h store, uint32_t rank);

/* Items dealt to their homes: those of rank r are order[starts[r] .. starts[r + 1]). */
typedef struct kvcl_deal {
    uint32_t *starts; /* n_ranks + 1; owns both arrays */
    uint32_t *order;
} kvcl_deal_t;
/** keys: n items, stride bytes apart. skip (may be NULL): items with a nonzero byte are left out. Any thread. */
kvcl_status_t kvcl_deal(kvcl_store_h store, const void *keys, size_t stride, size_t n, const uint8_t *skip,
                        kvcl_deal_t *deal) KVCL_MUST_CHECK;
void          kvcl_deal_free(kvcl_deal_t *deal);

/** Make asks for the items of deal that rank homes, in pieces; each takes its keys from keys[] (stride as above) and,
 * where kind has records, its locations too. Links them into list, unposted. */
kvcl_status_t kvcl_asks_make(kvcl_store_h store, uint32_t rank, uint8_t kind, const void *keys, size_t stride,
                             const kvcl_deal_t *deal, kvcl_list_t *list) KVCL_MUST_CHECK;

/* ---- homes (store_home.c) ---- */

void kvcl_home_on_ask(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len, const void *data,
                      size_t len);
void kvcl_home_on_withdraw(kvcl_context_h ctx, kvcl_peer_t *peer, const kvcl_msg_t *msg, size_t hdr_len,
                           const void *data, size_t len);
/** Lock held: this home forgets the keys and tells their owners. */
void kvcl_home_remove_keys(kvcl_store_h store, const kvcl_key_t *keys, const uint32_t *order, size_t n);
/** Lock held: tell the homes that these are gone; nobody answers. */
void kvcl_store_tell_removed(kvcl_store_h store, const kvcl_store_rec_t *recs, size_t n);

/* ---- lookups (store_lookup.c): no lock ---- */

/** The table of a key's home as memory here, or NULL: a message is needed (*gone_p: nobody would answer). */
const kvcl_dir_view_t *kvcl_store_view(kvcl_store_h store, uint32_t home, bool *gone_p);

/* ---- publishing (store_publish.c) ---- */

typedef struct kvcl_publish kvcl_publish_t;
/** Send n records of blocks that are PUBLISHED in owner. Lock held; recs is copied. status (may be NULL): each
 * block's. */
kvcl_status_t kvcl_publish_start(kvcl_owner_t *owner, const kvcl_store_rec_t *recs, size_t n,
                                 const kvcl_xfer_params_t *p, kvcl_req_h *req_p) KVCL_MUST_CHECK;
/** Lock held: the owner goes; publishes in flight take their blocks as withdrawn. */
void          kvcl_publish_forget(kvcl_owner_t *owner);
uint64_t      kvcl_store_block_sum(kvcl_cache_h cache, uint32_t block); /* no lock */

/* ---- blocks to hand out (store_pool.c): lock held ---- */

kvcl_status_t kvcl_owner_take(kvcl_owner_t *owner, size_t n, uint32_t *ids) KVCL_MUST_CHECK;

/* ---- gets (store_get.c and its neighbours) ---- */

/** No lock. True: all is done, statuses are written and *final_p is the request's. */
bool kvcl_get_now(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache, const uint32_t *ids,
                  kvcl_status_t *statuses[2], kvcl_status_t *final_p);
bool kvcl_verify_work(kvcl_context_h ctx);

#endif
