/*
 * A store get under way (get/get_rounds.c) and what its verification off the lock needs (get/verify.c).
 *
 * Rounds: the blocks that lack locations are looked up, all homes at once (get/get_lookup.c); meanwhile, and when all
 * answers are here, each block's best untried copy is fetched, one pull per (owner, cache); what came is verified; when
 * all of that is over, blocks that failed try their next copy, or are looked up again a bounded number of times.
 */
#ifndef KVCL_STORE_GET_GET_H
#define KVCL_STORE_GET_GET_H

#include "base/clock.h"
#include "store/store.h"

enum { KVCL_GET_LOOKUPS_MAX = 4 };

typedef enum { KVCL_GET_LOOKUP, KVCL_GET_READY, KVCL_GET_BUSY, KVCL_GET_DONE } kvcl_get_state_t;

/* A staging block that its owner keeps for us. */
typedef struct kvcl_get_held {
    uint32_t rank;
    uint16_t cache;
    uint32_t slot, gen;
} kvcl_get_held_t;

typedef struct kvcl_get_item {
    kvcl_key_t     key;     /* first: dealt as keys with a stride */
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX];
    uint32_t       id;      /* block of the destination */
    kvcl_status_t  why;     /* DONE: its status; before: what the last copy failed with */
    kvcl_cache_h   src;     /* BUSY: a local cache that the bytes come from, or NULL */
    uint8_t        n_locs;
    uint8_t        tried;   /* bits, by location */
    uint8_t        silent;  /* of those: given up for their silence alone, so they may be tried again */
    uint8_t        hedges;  /* how often that was */
    kvcl_dir_loc_t shunned; /* source != 0: a copy of that tag is not taken, nor one of the same sum */
    uint8_t        cur;     /* BUSY: which */
    uint8_t        state;   /* kvcl_get_state_t */
    bool           again;   /* a copy had moved on: a new lookup may find another */
    bool            staged;  /* held is not let go yet */
    bool            from_tier; /* it came, if it came, out of a tier */
    bool            wrong;   /* its bytes are here, and their sum is another; a device that fails is no such thing */
    kvcl_get_held_t held;
    uint32_t        tier_slot, tier_gen; /* its place there */
} kvcl_get_item_t;

/* The copy that is chosen: BUSY, or what it came from. */
static inline const kvcl_dir_loc_t *kvcl_get_loc(const kvcl_get_item_t *item)
{
    return &item->locs[item->cur];
}

typedef struct kvcl_get {
    kvcl_req_t      req;
    kvcl_store_h    store;
    /* Lock held: go on if everything of this step is over. The get may be gone afterwards. get_rounds.c's. */
    void            (*advance)(struct kvcl_get *get);
    kvcl_cache_h    cache;
    kvcl_status_t   *statuses[2];  /* the user's, or NULL */
    kvcl_dir_loc_t  *from;         /* where each block came from, as it is listed; NULL: nobody asks */
    uint64_t        deadline_ns;
    kvcl_list_t     rpcs;
    kvcl_list_t     pulls;
    kvcl_list_t     stages;        /* questions to owners of tiers: get/get_stage.c */
    void            *here;         /* such a question to myself, or NULL */
    kvcl_list_t     verify_link;   /* the room's, while n_todo > 0 */
    uint32_t        *todo;         /* items to copy or verify off the lock; part of this allocation */
    size_t          n_todo;
    unsigned        outstanding;   /* asks, pulls, todo and those being verified */
    unsigned        lookups;
    unsigned        hedges;        /* questions to homes that were given up for their silence */
    kvcl_status_t   stopping;
    bool            small;         /* verified under the lock: that is quicker */
    bool            inner;         /* of the store itself: not counted as a user's */
    kvcl_store_timer_t *hedge;     /* or NULL */
    kvcl_scatter_t  scatter;
    size_t          n;
    kvcl_get_item_t items[];
} kvcl_get_t;

/* A pull of some of a get's blocks. */
typedef struct kvcl_get_fetch {
    kvcl_list_t        link;    /* get->pulls */
    kvcl_get_t         *get;
    struct kvcl_pull   *pull;
    uint64_t           begun_ns;
    uint64_t           seen_ns; /* when it was last seen to have moved */
    uint64_t           seen;    /* bytes by then */
    bool               hedged;  /* stopped for its silence */
    size_t             n;
    kvcl_status_t      *status;
    uint32_t           *items;
} kvcl_get_fetch_t;

/** Lock held: every block that lacks locations is looked for. What is known at once is READY afterwards. */
kvcl_status_t kvcl_get_lookups(kvcl_get_t *get) KVCL_MUST_CHECK;
/* What is left of its deadline, never 0. */
static inline uint64_t kvcl_get_time_left(const kvcl_get_t *get)
{
    uint64_t left = kvcl_deadline_left(get->deadline_ns);

    return (left != 0) ? left : 1;
}

/** Lock held: after asks or pulls were posted. Those that stay silent are given up where there is another way. */
void          kvcl_hedge_arm(kvcl_get_t *get);
void          kvcl_hedge_disarm(kvcl_get_t *get);
/** Lock held: a pull of this item was stopped for its silence. True: this copy is all there is, and is waited for. */
bool          kvcl_hedge_stays(const kvcl_get_t *get, kvcl_get_item_t *item);
/** Lock held: a pull, or a question to a home, has ended: how long it took is noted. */
void          kvcl_hedge_fetched(const kvcl_get_fetch_t *fetch, kvcl_status_t status);
void          kvcl_hedge_answered(const kvcl_rpc_t *rpc, kvcl_status_t status);
/** Lock held: the nearest untried copy into item->cur; false: there is none. Ranks that want the same key start at
 * different ones. */
bool          kvcl_get_choose(const kvcl_get_t *get, kvcl_get_item_t *item);
/** Lock held: is this copy in memory of a rank that lives, not tried yet, and one that the getter wants? */
bool          kvcl_get_may_take(const kvcl_get_t *get, const kvcl_get_item_t *item, unsigned at);
/** Lock held: is there another copy than the one in use that has not been tried, or was only silent, of a rank that
 * answers? */
bool          kvcl_get_has_other(const kvcl_get_t *get, const kvcl_get_item_t *item);

/** Lock held: item i is chosen and lies in a tier: its owner is asked, and for what else of the get it has there. */
kvcl_status_t kvcl_get_stage(kvcl_get_t *get, uint32_t i) KVCL_MUST_CHECK;
void          kvcl_get_stage_stop(kvcl_get_t *get, kvcl_status_t status);
/** Lock held: questions to owners of tiers that are this old are given up where there is another copy. */
void          kvcl_get_stage_hedge(kvcl_get_t *get, uint64_t now_ns, uint64_t hedge_ns);
/** Where a block that came is listed: of one that was staged, its place in the tier. */
kvcl_dir_loc_t kvcl_get_origin(const kvcl_get_item_t *item);
/** Lock held: owners are told of staged blocks that are over; all: of all of them. */
void          kvcl_get_release(kvcl_get_t *get, bool all);

/** kvcl_store_listener_t.got: blocks that were got from afar often enough are kept (copy/hot.c). */
void          kvcl_hot_got(kvcl_get_t *get);

/** No lock: copy (if the source is local) and verify. KVCL_OK, KVCL_ERR_STALE, KVCL_ERR_IO: a device, or (item->wrong)
 * wrong bytes. */
kvcl_status_t kvcl_verify_item(const kvcl_get_t *get, kvcl_get_item_t *item);
void          kvcl_verify_push(kvcl_get_t *get, uint32_t item); /* lock held */
void          kvcl_verify_drop(kvcl_get_t *get);                /* lock held: those not begun */
/** Lock held: a copy of this item is over. */
void          kvcl_get_result(kvcl_get_t *get, uint32_t item, kvcl_status_t status);
/** Lock held: one pull for these items, which lie in one cache of one rank. */
kvcl_status_t kvcl_get_pull(kvcl_get_t *get, const uint32_t *items, size_t n) KVCL_MUST_CHECK;
/** Lock held: item i lies in a cache of mine. */
void          kvcl_get_local(kvcl_get_t *get, uint32_t i);

/** Of a block that no copy is left of: what its getter is told. Before the get's deadline a copy, or a home, was only
 * silent for long enough that others were asked, who had none: that is a miss. */
static inline kvcl_status_t kvcl_get_final(kvcl_status_t why, bool late)
{
    return ((why == KVCL_ERR_RANK_FAILED) || (why == KVCL_ERR_BAD_LAYOUT) || (why == KVCL_ERR_NO_MEMORY) ||
            (late && (why == KVCL_ERR_TIMED_OUT))) ? why : KVCL_ERR_NOT_FOUND;
}

#endif
