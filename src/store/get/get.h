/*
 * A store get in flight (get/get_rounds.c), and what its verification off the lock needs (get/verify.c).
 *
 * A get works in rounds. All homes of blocks without locations are queried at once (get/get_lookup.c). While those
 * queries run, and after they end, each block is fetched from its best untried copy, with one pull for each pair of
 * owner and cache. Arrived blocks are verified. When all of this is over, a block that failed tries its next copy, or
 * is looked up again; the number of lookups is bounded.
 */
#ifndef KVCL_STORE_GET_GET_H
#define KVCL_STORE_GET_GET_H

#include "base/clock.h"
#include "store/tenant.h"

enum { KVCL_GET_LOOKUPS_MAX = 4 };

typedef enum { KVCL_GET_LOOKUP, KVCL_GET_READY, KVCL_GET_BUSY, KVCL_GET_DONE } kvcl_get_state_t;

/* A staging block that its owner keeps for this get. */
typedef struct kvcl_get_held {
    uint32_t rank;
    uint16_t cache;
    uint32_t slot, gen;
} kvcl_get_held_t;

typedef struct kvcl_get_item {
    kvcl_key_t      key;       /* first member: scattered as keys with a stride */
    kvcl_dir_loc_t  locs[KVCL_DIR_LOCS_MAX];
    uint32_t        id;        /* block of the destination */
    kvcl_status_t   why;       /* DONE: final status; before: the failure of the last copy */
    kvcl_cache_h    src;       /* BUSY: local cache that the bytes are copied from, or NULL */
    uint8_t         n_locs;
    uint8_t         tried;     /* bits, by location */
    uint8_t         silent;    /* bits, subset of tried: dropped only for silence, so they may be tried again */
    uint8_t         hedges;    /* number of copies dropped for silence */
    kvcl_dir_loc_t  shunned;   /* source != 0: copies with this tag, or with this checksum, are not used */
    uint8_t         cur;       /* BUSY: index of the location in use */
    uint8_t         state;     /* kvcl_get_state_t */
    bool            again;     /* a copy was stale: a new lookup may find another */
    bool            staged;    /* held is not released yet */
    bool            from_tier; /* the copy in use is, or was, read out of a tier */
    bool            wrong;     /* the bytes arrived with another checksum; not set when a device fails */
    kvcl_get_held_t held;
    uint32_t        tier_slot, tier_gen; /* its place in the tier */
} kvcl_get_item_t;

/* The copy in use (BUSY), or the one that the bytes were fetched from (DONE). */
static inline const kvcl_dir_loc_t *kvcl_get_loc(const kvcl_get_item_t *item)
{
    return &item->locs[item->cur];
}

typedef struct kvcl_get {
    kvcl_req_t      req;
    kvcl_store_h    store;
    /* Lock held: continue if everything of this round is over. It may free the get. Set by get_rounds.c. */
    void            (*advance)(struct kvcl_get *get);
    kvcl_cache_h       cache;
    kvcl_status_t      *statuses[2]; /* the user's arrays, or NULL */
    kvcl_dir_loc_t     *from;        /* where each block came from, as listed; NULL: not wanted */
    uint64_t           deadline_ns;
    kvcl_list_t        rpcs;
    kvcl_list_t        pulls;
    kvcl_list_t        stages;       /* requests to owners of tiers (get/get_stage.c) */
    void               *local_stage; /* request to this rank's own tier, or NULL */
    kvcl_list_t        verify_link;  /* in the room's list while n_todo > 0 */
    uint32_t           *todo;        /* items to copy or verify off the lock; part of this allocation */
    size_t             n_todo;
    unsigned           outstanding;  /* rpcs, pulls, todo, and items being verified */
    unsigned           lookups;
    unsigned           hedges;       /* requests to homes that were dropped for silence */
    kvcl_status_t      stopping;
    bool               small;        /* verified under the lock, which is quicker for few bytes */
    bool               inner;        /* the store's own: not counted as a user's */
    kvcl_store_tenant_t *tenant;     /* whose call it is, held; NULL: none */
    kvcl_store_timer_t *hedge;       /* or NULL */
    kvcl_scatter_t     scatter;
    size_t             n;
    kvcl_get_item_t    items[];
} kvcl_get_t;

/* A pull of some blocks of a get. */
typedef struct kvcl_get_fetch {
    kvcl_list_t        link;    /* in get->pulls */
    kvcl_get_t         *get;
    struct kvcl_pull   *pull;
    uint64_t           begun_ns;
    uint64_t           seen_ns; /* when progress was last seen */
    uint64_t           seen;    /* bytes received by then */
    bool               hedged;  /* stopped for silence */
    size_t             n;
    uint64_t           *sums;   /* of the blocks, if pull->summed */
    kvcl_status_t      *status;
    uint32_t           *items;
} kvcl_get_fetch_t;

/** Lock held. Look up every block that lacks locations. Those that mapped tables answer are READY on return. */
kvcl_status_t kvcl_get_lookups(kvcl_get_t *get) KVCL_MUST_CHECK;
/* Time until the deadline in ns, never 0. */
static inline uint64_t kvcl_get_time_left(const kvcl_get_t *get)
{
    uint64_t left = kvcl_deadline_left(get->deadline_ns);

    return (left != 0) ? left : 1;
}

/** Lock held. Call after rpcs or pulls were posted: it watches them, and drops those that stay silent if there is
 * another path. */
void          kvcl_hedge_arm(kvcl_get_t *get);
void          kvcl_hedge_disarm(kvcl_get_t *get);
/** Lock held. A pull of this item was stopped for silence. True: no other copy exists, so this one is waited for. */
bool          kvcl_hedge_stays(const kvcl_get_t *get, kvcl_get_item_t *item);
/** Lock held. A pull, or a request to a home, has ended: record its latency. */
void          kvcl_hedge_fetched(const kvcl_get_fetch_t *fetch, kvcl_status_t status);
void          kvcl_hedge_answered(const kvcl_rpc_t *rpc, kvcl_status_t status);
/** Lock held. Set item->cur to the nearest untried copy; false: there is none. Ranks that get the same key start at
 * different copies. */
bool          kvcl_get_choose(const kvcl_get_t *get, kvcl_get_item_t *item);
/** Lock held. Is this copy in memory of a live rank, not tried yet, and acceptable to the getter? */
bool          kvcl_get_may_take(const kvcl_get_t *get, const kvcl_get_item_t *item, unsigned at);
/** Lock held. Is there a copy other than the one in use that was not tried, or was only silent, at a rank that
 * answers? */
bool          kvcl_get_has_other(const kvcl_get_t *get, const kvcl_get_item_t *item);

/** Lock held. Item i is chosen and lies in a tier: request it from its owner, with the get's other blocks in that
 * tier. */
kvcl_status_t kvcl_get_stage(kvcl_get_t *get, uint32_t i) KVCL_MUST_CHECK;
void          kvcl_get_stage_stop(kvcl_get_t *get, kvcl_status_t status);
/** Lock held. Requests to owners of tiers that are older than hedge_ns are dropped where another copy exists. */
void          kvcl_get_stage_hedge(kvcl_get_t *get, uint64_t now_ns, uint64_t hedge_ns);
/** The listed location of an arrived block; for a staged block its place in the tier. */
kvcl_dir_loc_t kvcl_get_origin(const kvcl_get_item_t *item);
/** Lock held. Notify owners that staged blocks are no longer needed; all: release every one of them. */
void          kvcl_get_release(kvcl_get_t *get, bool all);

/** kvcl_store_listener_t.got: keep copies of blocks that are often fetched from other ranks (copy/hot.c). */
void          kvcl_hot_got(kvcl_get_t *get);

/** No lock. Copy (if the source is local) and verify. KVCL_OK, KVCL_ERR_STALE, or KVCL_ERR_IO: a device failed, or the
 * bytes are wrong (item->wrong). */
kvcl_status_t kvcl_verify_item(const kvcl_get_t *get, kvcl_get_item_t *item);
/** Any lock. The item's bytes are here, with this checksum. @return as kvcl_verify_item(). */
kvcl_status_t kvcl_verify_sum(kvcl_get_item_t *item, uint64_t sum);
void          kvcl_verify_push(kvcl_get_t *get, uint32_t item); /* lock held */
void          kvcl_verify_drop(kvcl_get_t *get);                /* lock held: those not begun */
/** Lock held. The attempt to fetch this item from one copy has ended. */
void          kvcl_get_result(kvcl_get_t *get, uint32_t item, kvcl_status_t status);
/** Lock held. Start one pull for these items, which lie in one cache of one rank. */
kvcl_status_t kvcl_get_pull(kvcl_get_t *get, const uint32_t *items, size_t n) KVCL_MUST_CHECK;
/** Lock held. Item i lies in a local cache: copy it. */
void          kvcl_get_local(kvcl_get_t *get, uint32_t i);

/** The final status of a block that has no copy left. If the get's deadline has not passed, then a copy or a home was
 * silent for so long that others were tried, and they did not have the block: that is a miss. */
static inline kvcl_status_t kvcl_get_final(kvcl_status_t why, bool late)
{
    return ((why == KVCL_ERR_RANK_FAILED) || (why == KVCL_ERR_BAD_LAYOUT) || (why == KVCL_ERR_NO_MEMORY) ||
            (late && (why == KVCL_ERR_TIMED_OUT))) ? why : KVCL_ERR_NOT_FOUND;
}

#endif
