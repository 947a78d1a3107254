/*
 * The store: a block directory spread over the ranks of a comm, with no master, and the blocks it points at.
 *
 * A key names a block's content; blocks are immutable while published. The directory says which ranks hold a key; a
 * get fetches the bytes one-sided from a holder, then checks the block's generation and checksum: a block that was
 * reused meanwhile reads as absent, never as another block's bytes.
 *
 * Two ways to use it, which mix: the engine manages its own cache blocks (publish, withdraw), or the store manages the
 * blocks of a cache given to it (alloc, free; it evicts by age and use, the ends of prefixes first).
 */
#ifndef KVCL_STORE_H
#define KVCL_STORE_H

#include <kvcl/kvcl_key.h>
#include <kvcl/kvcl_xfer.h>

KVCL_BEGIN_DECLS

typedef struct kvcl_store *kvcl_store_h;

enum {
    KVCL_STORE_NO_CHECKSUM = 1u << 0, /* publish without checksums: gets rely on generations alone */
    KVCL_STORE_NO_EVENTS   = 1u << 1  /* keep no events of this rank's blocks (kvcl_store_events.h) */
};

enum { KVCL_STORE_SIZES_MAX = 8 }; /* sizes of blocks in one pool */

/* Of a second tier. */
enum {
    KVCL_STORE_NVME_NONE = 0, /* there is none */
    KVCL_STORE_NVME_ON   = 1,
    KVCL_STORE_NVME_OFF  = 2  /* its disk has failed or is full: it takes no more blocks */
};

typedef struct kvcl_store_params {
    size_t       size;        /* sizeof(kvcl_store_params_t) */
    uint64_t     flags;       /* KVCL_STORE_* */
    uint64_t     dir_entries; /* room in this rank's part of the directory, in locations (64 bytes each; plan for
                               * four thirds of what is to be listed); 0: 1 Mi */
    kvcl_cache_h cache;       /* the cache whose blocks the store hands out and evicts; NULL: none */
    uint64_t     dram_bytes;  /* size of a pool for kvcl_store_put; 0: none */
    uint64_t     block_bytes; /* bytes of one pool block; needed with dram_bytes, or else block_sizes */
    uint64_t     replicas;    /* copies that kvcl_store_put makes of a block, at most 4; 0: 1. The ranks use the largest
                                 that any of them gives. From 2 on each key is listed at two homes */
    uint64_t     events;      /* how many events of its blocks this rank keeps for followers (64 bytes each, used when
                                 needed), a power of two or rounded up to one, at most 2^26; 0: 65,536 */
    const char   *nvme;       /* "/path/of/a/file:size": a second tier for the pool, on a local NVMe; NULL: what
                                 KVCL_STORE_NVME says (nothing, by default), "": none. %r in it is my rank. What the
                                 file holds from an earlier time, closed or killed, is there again, of the sizes that the
                                 pool has now; it is this rank's alone. A file that is not a tier's is refused. It
                                 holds one block of a key: of one put in two sizes, one */
    const uint64_t *block_sizes; /* further sizes of pool blocks, as the groups of a hybrid model have (attention, latent,
                                 state), with block_bytes at most KVCL_STORE_SIZES_MAX different ones; read during the
                                 call. The sizes share all of dram_bytes, which, rounded down to blocks of the first
                                 size (block_bytes, if given), must hold 4 blocks of the largest a size: what one does
                                 not use others have, and who lacks room takes it from whoever has used its blocks
                                 longest ago; each size always keeps a small part. Ranks may differ: copies go to ranks
                                 that have the size. But values use the first one, which should be the same on all */
    uint64_t     n_block_sizes; /* 0: block_bytes alone */
} kvcl_store_params_t;
#define KVCL_STORE_PARAMS_INIT {sizeof(kvcl_store_params_t), 0, 0, NULL, 0, 0, 0, 0, NULL, NULL, 0}

/* Blocks of one size in a pool. Fixed for ever, since it is inside kvcl_store_stats_t: 128 bytes; further numbers take
 * the place of the reserved ones, from the first on. */
typedef struct kvcl_store_size_stats {
    uint64_t block_bytes;
    uint64_t blocks;    /* that there is room for now */
    uint64_t free;      /* of those, without evicting */
    uint64_t published;
    uint64_t pinned;    /* that cannot be evicted now */
    uint64_t takes;     /* how many could be put without evicting: free ones, and in parts that no size has, or that
                           another has empty */
    uint64_t reserved[10];
} kvcl_store_size_stats_t;

/* What has happened in a rank's part of a store. Numbers that only one side knows, the caller or a rank of an older
 * version, are 0. */
typedef struct kvcl_store_stats {
    size_t   size;       /* sizeof(kvcl_store_stats_t): set it before the call */
    uint64_t blocks;     /* published by this rank now */
    uint64_t published;  /* ever */
    uint64_t evicted;    /* blocks the store took back to reuse them */
    uint64_t gets;       /* blocks asked for */
    uint64_t hits;       /* blocks got */
    uint64_t stale;      /* copies refused because their generation had moved on */
    uint64_t corrupt;    /* copies refused by checksum: what is spoilt at its holder is given up */
    uint64_t entries;    /* locations in this rank's part of the directory */
    uint64_t lookups;    /* keys looked up by this rank */
    uint64_t hits_cache; /* of hits: out of caches that were published where they lie, ... */
    uint64_t hits_dram;  /* out of pools */
    uint64_t hits_nvme;  /* out of second tiers, mine and others' */
    uint64_t demoted;    /* blocks written into my second tier */
    uint64_t promoted;   /* copied from there into my pool, since they were asked for again */
    uint64_t dropped;    /* evicted from my pool and not in the tier: the disk was too slow, is off, or has the key in
                            another size */
    uint64_t nvme_blocks; /* in my second tier now */
    uint64_t nvme_bytes;
    uint64_t nvme_bad;   /* read from there with other bytes than were written; each was a miss */
    uint64_t nvme_state; /* KVCL_STORE_NVME_* */
    uint64_t block_bytes; /* of a pool block, the first size's; 0: no pool */
    uint64_t pool_blocks;    /* that there is room for, of all sizes together; so are the next two, and pinned */
    uint64_t pool_free;      /* free without evicting */
    uint64_t pool_published; /* of the pool's; the rest is free or being filled */
    uint64_t pinned;      /* pool blocks that cannot be evicted now */
    uint64_t copied;      /* copies of others' blocks made here */
    uint64_t moved;       /* blocks that another rank has taken over */
    uint64_t events;      /* number of the newest event (kvcl_store_events.h) */
    uint64_t draining;    /* 1: kvcl_store_drain was called */
    uint64_t bytes_in;    /* payload of the whole context, as kvcl_context_stats says: got or received, */
    uint64_t bytes_out;   /* sent, written or served */
    uint64_t hits_local;  /* of hits_cache and hits_dram: out of this rank's own memory */
    uint64_t pool_bytes;
    uint64_t pool_free_bytes; /* of free blocks, and of parts that no size has yet */
    uint64_t pool_taken;  /* parts of the pool that one size took over from another */
    uint64_t n_sizes;     /* of the pool's blocks */
    kvcl_store_size_stats_t sizes[KVCL_STORE_SIZES_MAX]; /* each; the first is block_bytes' above */
} kvcl_store_stats_t;
#define KVCL_STORE_STATS_INIT                                                                                          \
    {sizeof(kvcl_store_stats_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,   \
     0, 0, 0, 0, 0, 0, 0, {{0, 0, 0, 0, 0, 0, {0}}}}

/** Collective over comm, an intra-communicator; the caches are per rank. Blocks. If one rank's parameters, or its
 * tier's file, are bad, it fails everywhere. */
KVCL_API kvcl_status_t kvcl_store_open(kvcl_comm_h comm, const kvcl_store_params_t *params, kvcl_store_h *store_p)
    KVCL_MUST_CHECK;

/** Withdraws this rank's blocks; the others go on, without what this rank homed. With a second tier the pool is written
 * into it first, for at most 10 s. NULL is allowed. Blocks. Threads that wait for events, or in a put for room, are
 * woken, and their calls end; no call may begin after this one. */
KVCL_API void kvcl_store_close(kvcl_store_h store);

/*
 * Calls that ask other ranks have two forms. The plain one blocks until it is over. The one named ..._post never waits:
 * it posts the same question as a request (kvcl_req.h), which may be complete on return. Keys and other input arrays
 * are copied; results are written before completion, into memory that must stay until then. Of params both forms take
 * timeout_ns, and the posting form cb and cb_arg.
 *
 * A rank that does not answer costs a call KVCL_STORE_HEDGE (200 ms) where the key has a second home, else at most five
 * times that; it is then suspected (kvcl_rank_state), and until it answers again no match and no exists waits for it,
 * others wait for one hedge. Keys that only a suspect could tell of count as absent.
 */

/** The number of leading keys that somebody has: the longest leading run, in one call.
 * @return KVCL_OK, KVCL_ERR_TIMED_OUT (only where timeout_ns is shorter than the wait for a silent rank). */
KVCL_API kvcl_status_t kvcl_store_match(kvcl_store_h store, const kvcl_key_t *keys, size_t n, size_t *hit_p,
                                        const kvcl_xfer_params_t *params) KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_store_match_post(kvcl_store_h store, const kvcl_key_t *keys, size_t n, size_t *hit_p,
                                             const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/**
 * Collective over comm (NULL: the store's): each rank gives its own keys, for example those of its tensor-parallel
 * slice, and all get the least of what kvcl_store_match says to each: the leading run that all ranks have. It is a
 * collective of comm as any other, in the same order on all ranks. params: timeout_ns, for each of the two steps.
 * Blocks.
 * @return KVCL_OK; on any rank's error the same on all.
 */
KVCL_API kvcl_status_t kvcl_store_match_all(kvcl_store_h store, kvcl_comm_h comm, const kvcl_key_t *keys, size_t n,
                                            size_t *hit_p, const kvcl_xfer_params_t *params) KVCL_MUST_CHECK;

/** present[i] = 1 if somebody has key i, else 0. One round of questions, whatever n. */
KVCL_API kvcl_status_t kvcl_store_exists(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint8_t *present,
                                         const kvcl_xfer_params_t *params) KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_store_exists_post(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint8_t *present,
                                              const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/**
 * Fetch n blocks into my cache's blocks ids[0..n), verified. status (may be NULL) gets one entry a block: KVCL_OK,
 * KVCL_ERR_NOT_FOUND (absent, evicted meanwhile, of another size), KVCL_ERR_RANK_FAILED, KVCL_ERR_BAD_LAYOUT, ...
 * The request is KVCL_OK if all blocks came, else the first block's error. Blocks whose status is not KVCL_OK have
 * undefined bytes.
 */
KVCL_API kvcl_status_t kvcl_store_get(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                                      const uint32_t *ids, kvcl_status_t *status, const kvcl_xfer_params_t *params,
                                      kvcl_req_h *req_p) KVCL_MUST_CHECK;

/**
 * Copy n blocks of my cache into this rank's pool (dram_bytes), evicting as needed, and publish the copies. A key that
 * this rank's pool already holds in this size, with as many copies, is a no-op. With replicas R (params, or the
 * store's) other ranks' pools that have this size of block fetch R - 1 more copies: the first from here, the next from
 * the first, so the bytes leave this rank once; on other hosts first, in turn, by how much room they have. The source
 * may change when the call returns.
 *
 * Keys of a chain are given in the chain's order. Ends of chains are evicted before their beginnings; where only the
 * end of a chain is put, its beginning must have been used shortly before, as by the match that found it.
 *
 * Completes when the directory has all copies; params->copies says how many there are of each block. Where keys have
 * two homes (replicas of 2 or more) one of them is enough: one that does not answer is told when it does. Ranks that
 * are suspected get no copies. Where fewer than R ranks are there, there are as many copies as ranks, and the put is
 * KVCL_OK.
 *
 * Where the pool has no room (all of it pinned, in puts under way, or beyond the tenant's quota) the call fails at
 * once; with KVCL_PUT_WAIT it waits in the call until there is, or the deadline has passed: it then blocks.
 * @return KVCL_OK, KVCL_ERR_NO_SPACE, KVCL_ERR_BAD_LAYOUT (the pool has no such size of block),
 *         KVCL_ERR_INVALID_PARAM. Later: KVCL_ERR_NO_SPACE (my directory part, or another rank's pool),
 *         KVCL_ERR_TIMED_OUT, ...: what copies says is there all the same.
 */
KVCL_API kvcl_status_t kvcl_store_put(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                                      const uint32_t *ids, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
    KVCL_MUST_CHECK;

/*
 * Puts into other ranks' pools. A rank whose store was opened without a pool for blocks of this size, as a worker
 * beside kvcl_serve, puts into the pools of ranks that have one: the first copy on its own host if a rank there has one, the
 * others on other hosts, R in all. With KVCL_PUT_TO the first copy goes to rank to_rank, for which no other rank stands
 * in. The ranks fetch the blocks from the caller's cache: ids must be unpublished blocks, each once, whose bytes must
 * not change until the request has completed. The call never waits; with KVCL_PUT_WAIT the request does, for room. What
 * other pools hold already, in R copies, is a no-op. An upsert takes no room first: where it fails the keys are absent.
 * @return KVCL_ERR_UNSUPPORTED: no rank, or not to_rank, has a pool with blocks of this size; KVCL_ERR_UNKNOWN_RANK;
 *         KVCL_ERR_BUSY: a block is published, or in another put.
 */

/**
 * Put in place of whatever the keys name so far: room is taken in the pool and filled, then every rank gives up all
 * that it has of the keys, then as kvcl_store_put. In between the keys are absent; old bytes are found no more from
 * when the new ones are. Where there is no room for n more blocks the call fails, and has changed nothing. Calls for
 * one key at the same time, by several ranks, must be ordered by their callers. Blocks for the first parts.
 */
KVCL_API kvcl_status_t kvcl_store_upsert(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                                         const uint32_t *ids, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
    KVCL_MUST_CHECK;

/**
 * Publish n blocks of my cache where they lie. Their bytes must not change until they are withdrawn or evicted.
 * Completes when the directory has them; then every rank's match sees them.
 * @return KVCL_OK, KVCL_ERR_OUT_OF_RANGE, KVCL_ERR_BUSY (a block is published already), KVCL_ERR_UNSUPPORTED (the
 *         process has made 65,535 caches before this one: a store takes none then). Later: KVCL_ERR_NO_SPACE (the
 *         home's part of the directory is full; such blocks are simply not found).
 */
KVCL_API kvcl_status_t kvcl_store_publish(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                                          const uint32_t *ids, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
    KVCL_MUST_CHECK;

/** Take my blocks back: on return their bytes may change; a reader that is still at it will notice. Blocks not
 * published are skipped. The directory is told in the background. */
KVCL_API kvcl_status_t kvcl_store_withdraw(kvcl_store_h store, kvcl_cache_h cache, const uint32_t *ids, size_t n)
    KVCL_MUST_CHECK;

/** Remove keys everywhere: directory entries go and holders take the blocks back.
 * @return KVCL_OK. Later: KVCL_ERR_TIMED_OUT (the home of some key does not answer: what it lists may be found again).
 */
KVCL_API kvcl_status_t kvcl_store_remove(kvcl_store_h store, const kvcl_key_t *keys, size_t n,
                                         const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/**
 * Take n blocks of the store's cache for filling, evicting published ones as needed. They belong to the caller until
 * published (then the store may evict them) or freed.
 * @return KVCL_OK, KVCL_ERR_NO_SPACE (all blocks are in the callers' hands; nothing was taken).
 */
KVCL_API kvcl_status_t kvcl_store_alloc(kvcl_store_h store, size_t n, uint32_t *ids) KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_store_free(kvcl_store_h store, const uint32_t *ids, size_t n) KVCL_MUST_CHECK;

/** Where one of this rank's caches holds a key (its block id there; the store's own cache first), so that it need not
 * be fetched; and marks it used. In the store's own cache the block is pinned against eviction until
 * kvcl_store_unpin_local(). Copies in the pool of kvcl_store_put have no id a caller could use: they do not count.
 * @return KVCL_OK, KVCL_ERR_NOT_FOUND. */
KVCL_API kvcl_status_t kvcl_store_pin_local(kvcl_store_h store, const kvcl_key_t *key, uint32_t *id_p) KVCL_MUST_CHECK;
KVCL_API void          kvcl_store_unpin_local(kvcl_store_h store, uint32_t id);

/**
 * Give a prefix to every rank at once: collective over the store's comm, the same keys on all ranks, each rank's own
 * ids (blocks of cache, in the caller's hands). Sourced from whoever has the blocks, spread by kvcl_bcast, and
 * published on every rank. A rank that already holds a key keeps its copy as well. With KVCL_ERR_NOT_FOUND (some key is
 * nowhere) nothing was published.
 */
KVCL_API kvcl_status_t kvcl_store_bcast(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                                        const uint32_t *ids, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
    KVCL_MUST_CHECK;

/** This rank's own. @return KVCL_OK; KVCL_ERR_INVALID_PARAM: NULL, or stats->size is no size. */
KVCL_API kvcl_status_t kvcl_store_stats(kvcl_store_h store, kvcl_store_stats_t *stats) KVCL_MUST_CHECK;

KVCL_END_DECLS

#endif
