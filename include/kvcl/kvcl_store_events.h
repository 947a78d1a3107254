/*
 * Events of a store, for routers: which rank holds which blocks, and every change, in order; and where given keys are.
 *
 * Each rank numbers the changes of its own blocks 1, 2, 3, ... without gaps and keeps the latest in a ring. A follower
 * takes a snapshot once: kvcl_store_list from cursor 0, which returns the number of the newest event when it began.
 * Then it reads the events after that number. The listing may already include events that occur during it. A follower
 * applies them all the same, since adding a key twice, or removing one that is absent, changes nothing. A follower that
 * is too late gets KVCL_ERR_STALE and takes a new snapshot. A rank that fails (KVCL_ERR_RANK_FAILED) loses all its
 * blocks.
 */
#ifndef KVCL_STORE_EVENTS_H
#define KVCL_STORE_EVENTS_H

#include <kvcl/kvcl_store.h>

KVCL_BEGIN_DECLS

/* Numbers are append-only. */
typedef enum kvcl_store_event_kind {
    KVCL_STORE_STORED   = 1, /* this rank holds the block now */
    KVCL_STORE_EVICTED  = 2, /* dropped, to make room */
    KVCL_STORE_REMOVED  = 3, /* withdrawn by its owner, or removed by a rank */
    KVCL_STORE_MOVED    = 4, /* dropped, because rank to_rank has it now */
    KVCL_STORE_DEMOTED  = 5, /* now on a slower tier of this rank: the event's tier */
    KVCL_STORE_PROMOTED = 6, /* back on a faster tier of this rank: the event's tier */
    KVCL_STORE_SKIPPED  = 7  /* by a tenant's handle only: events up to this number are others'; no block */
} kvcl_store_event_kind_t;

typedef enum kvcl_store_tier {
    KVCL_STORE_TIER_CACHE = 0, /* an engine's own cache */
    KVCL_STORE_TIER_DRAM  = 1, /* the store's pool */
    KVCL_STORE_TIER_NVME  = 2
} kvcl_store_tier_t;

typedef struct kvcl_store_event {
    uint64_t   seq;
    uint32_t   kind;    /* kvcl_store_event_kind_t; ignore unknown kinds */
    uint32_t   tier;    /* kvcl_store_tier_t: tier of the copy, now or before. A rank may hold a key on several */
    kvcl_key_t key;
    uint64_t   tenant;  /* the tenant that the put named; 0: none */
    uint32_t   bytes;   /* bytes of the block */
    int32_t    to_rank; /* KVCL_STORE_MOVED; else -1 */
} kvcl_store_event_t;

/**
 * Read the events of a rank of the store's comm (the caller included) after number since, oldest first, at most cap of
 * them. stride: sizeof(kvcl_store_event_t). If there are none, the call waits up to wait_ns for one (0: not at all);
 * *n_p is then 0. params: timeout_ns is the time beyond wait_ns that the rank may take. Blocks, except for the ..._post
 * form (kvcl_store.h).
 * @return KVCL_OK; KVCL_ERR_STALE (events after since are no longer kept, or since is of an earlier incarnation of that
 *         rank: take a snapshot); KVCL_ERR_RANK_FAILED (the rank has failed, or has closed its part);
 *         KVCL_ERR_UNKNOWN_RANK; KVCL_ERR_UNSUPPORTED (it keeps no events); KVCL_ERR_TIMED_OUT (it does not reply).
 */
KVCL_API kvcl_status_t kvcl_store_events(kvcl_store_h store, int rank, uint64_t since, uint64_t wait_ns,
                                         kvcl_store_event_t *events, size_t stride, size_t cap, size_t *n_p,
                                         const kvcl_xfer_params_t *params) KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_store_events_post(kvcl_store_h store, int rank, uint64_t since, uint64_t wait_ns,
                                              kvcl_store_event_t *events, size_t stride, size_t cap, size_t *n_p,
                                              const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/* A block that a rank holds. */
typedef struct kvcl_store_item {
    kvcl_key_t key;
    uint64_t   tenant;
    uint32_t   bytes;
    uint32_t   tier;     /* kvcl_store_tier_t */
    uint32_t   cache;    /* the cache's number at that rank, for information only */
    uint32_t   slot;     /* the block's slot in that cache, for information only */
} kvcl_store_item_t;

/**
 * List the blocks that a rank of the store's comm holds, a page of at most cap of them. stride:
 * sizeof(kvcl_store_item_t). *cursor is 0 for the first page. Each call sets it for the next page; it is 0 again after
 * the last. A page may be empty without being the last. seq_p (may be NULL): the rank's newest event when this page was
 * made; events after that of the first page complete the listing. Nothing is locked between pages. Blocks, except for
 * the ..._post form (kvcl_store.h).
 * @return KVCL_OK; KVCL_ERR_RANK_FAILED, KVCL_ERR_UNKNOWN_RANK, KVCL_ERR_TIMED_OUT, KVCL_ERR_INVALID_PARAM.
 */
KVCL_API kvcl_status_t kvcl_store_list(kvcl_store_h store, int rank, uint64_t *cursor, kvcl_store_item_t *items,
                                       size_t stride, size_t cap, size_t *n_p, uint64_t *seq_p,
                                       const kvcl_xfer_params_t *params) KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_store_list_post(kvcl_store_h store, int rank, uint64_t *cursor, kvcl_store_item_t *items,
                                            size_t stride, size_t cap, size_t *n_p, uint64_t *seq_p,
                                            const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/* A copy of a block. Fixed for ever, since it is inside kvcl_store_places_t: 16 bytes. */
typedef struct kvcl_store_place {
    int32_t  rank;  /* of the store's comm */
    uint16_t tier;  /* kvcl_store_tier_t. A rank that holds the key on two tiers has two places */
    uint16_t state; /* kvcl_rank_state_t: KVCL_RANK_ALIVE, or KVCL_RANK_SUSPECT: a get takes this copy last */
    uint64_t bytes; /* of the block: a key may have been put in two sizes */
} kvcl_store_place_t;

enum { KVCL_STORE_PLACES = 4 }; /* a key has at most so many in the directory */

/* The copies of one key. It may grow at its end. */
typedef struct kvcl_store_places {
    uint32_t           n;        /* 0: no rank has the key */
    uint32_t           reserved; /* 0 */
    kvcl_store_place_t at[KVCL_STORE_PLACES]; /* n of them, this rank's own first; the rest is 0 */
} kvcl_store_places_t;

/**
 * Where n keys are: places[i] receives the copies of key i that the directory lists, with the rank and the tier of
 * each. stride: sizeof(kvcl_store_places_t). Keys whose homes' tables are memory of this rank are read at once; the
 * other homes are queried together, as by kvcl_store_exists, so the call takes one round trip for any n, or none.
 *
 * Use it to choose a rank, for example the one that holds most of a prompt. It promises nothing: a copy may be evicted,
 * moved or demoted before the call returns, and a new copy is listed a little after it exists. A get need not know a
 * place: it fetches from wherever the block is by then. Copies of ranks that are known to have failed are left out.
 * Keys whose homes do not reply have no place. The call marks no block as used. Through a tenant's handle the call sees
 * only the tenant's own blocks. Blocks, except for the ..._post form (kvcl_store.h). Any thread.
 * @return KVCL_OK; KVCL_ERR_TIMED_OUT (as kvcl_store_match), KVCL_ERR_INVALID_PARAM, KVCL_ERR_NO_MEMORY: places is
 *         untouched.
 */
KVCL_API kvcl_status_t kvcl_store_where(kvcl_store_h store, const kvcl_key_t *keys, size_t n,
                                        kvcl_store_places_t *places, size_t stride,
                                        const kvcl_xfer_params_t *params) KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_store_where_post(kvcl_store_h store, const kvcl_key_t *keys, size_t n,
                                             kvcl_store_places_t *places, size_t stride,
                                             const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

KVCL_END_DECLS

#endif
