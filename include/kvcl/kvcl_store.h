/*
 * The store: a block directory over the ranks of a comm, without a master, and the blocks that it lists.
 *
 * A key names a block's content; blocks are immutable while published. The directory lists the ranks that hold a key; a
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
    KVCL_STORE_NO_EVENTS   = 1u << 1, /* keep no events of this rank's blocks (kvcl_store_events.h) */
    KVCL_STORE_NVME_FORMAT = 1u << 2, /* drop what the file of the second tier holds, whatever it is */
    KVCL_STORE_ZERO        = 1u << 3, /* kvcl_store_alloc gives blocks of zeros */
    KVCL_STORE_JOIN        = 1u << 4  /* come to a store that others have open: kvcl_store_open */
};

enum { KVCL_STORE_SIZES_MAX = 8 }; /* sizes of blocks in one pool */

/* Of a second tier. */
enum {
    KVCL_STORE_NVME_NONE = 0, /* no second tier */
    KVCL_STORE_NVME_ON   = 1,
    KVCL_STORE_NVME_OFF  = 2  /* its disk has failed or is full: it accepts no further blocks */
};

typedef struct kvcl_store_params {
    size_t       size;        /* sizeof(kvcl_store_params_t) */
    uint64_t     flags;       /* KVCL_STORE_* */
    uint64_t     dir_entries; /* room in this rank's part of the directory, in locations (64 bytes each; plan for four
                               * thirds of what is to be listed, also when fewer ranks are left); 0: 1 Mi */
    kvcl_cache_h cache;       /* the cache whose blocks the store allocates and evicts; NULL: none */
    uint64_t     dram_bytes;  /* size of a pool for kvcl_store_put; 0: none */
    uint64_t     block_bytes; /* bytes of one pool block; needed with dram_bytes, or else block_sizes */
    uint64_t     replicas;    /* copies that kvcl_store_put makes of a block, at most 4; 0: 1. The ranks use the largest
                                 that any of them gives. From 2 on each key is listed at two homes */
    uint64_t     events;      /* how many events of its blocks this rank keeps for followers (64 bytes each, used when
                                 needed), a power of two or rounded up to one, at most 2^26; 0: 65,536 */
    const char   *nvme;       /* "/path/of/a/file:size": a second tier for the pool, on a local NVMe; NULL: the value of
                                 KVCL_STORE_NVME (none by default), "": none. %r stands for the rank. Blocks of an
                                 earlier run in the file, closed or killed, are available again if the pool has their
                                 size now, also blocks that others removed after its end. KVCL_STORE_NVME_FORMAT drops
                                 all of them, as does KVCL_STORE_JOIN once it has found a store. A file is one rank's
                                 and its user's (mode 0600, no symbolic link). A file of another kind is refused. One
                                 that is opened with another size, or with a key for the first time, loses its blocks,
                                 with a warning. The tier holds one block of a key, also when it was put in two sizes.
                                 Checksums detect errors, not intent: with KVCL_STORE_NVME_KEY a block is returned only
                                 if a process with that key put it there (a process that writes to the file may put back
                                 an older block, and remove blocks). The file is not encrypted: put it on dm-crypt */
    const uint64_t *block_sizes; /* further sizes of pool blocks, for the groups of a hybrid model (attention, latent,
                                 state); with block_bytes at most KVCL_STORE_SIZES_MAX different ones; read during the
                                 call. All sizes share dram_bytes, which, rounded down to blocks of the first size
                                 (block_bytes, if given), must hold 4 blocks of the largest size for each size. A size
                                 that lacks room takes unused parts first, then parts from the size whose blocks were
                                 used longest ago; each size always keeps a small part. Ranks may have different sizes:
                                 copies go to ranks that have the size. Values use the first size, which should be the
                                 same on all ranks */
    uint64_t     n_block_sizes; /* 0: block_bytes alone */
} kvcl_store_params_t;
#define KVCL_STORE_PARAMS_INIT {sizeof(kvcl_store_params_t), 0, 0, NULL, 0, 0, 0, 0, NULL, NULL, 0}

/* Blocks of one size in a pool. Fixed for ever, since it is inside kvcl_store_stats_t: 128 bytes; further numbers take
 * the place of the reserved ones, from the first on. */
typedef struct kvcl_store_size_stats {
    uint64_t block_bytes;
    uint64_t blocks;    /* that the pool has room for now */
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
    uint64_t gets;       /* requested blocks */
    uint64_t hits;       /* blocks got */
    uint64_t stale;      /* copies refused because their generation had changed */
    uint64_t corrupt;    /* copies refused by checksum; a holder drops a copy that is corrupt in its memory */
    uint64_t entries;    /* locations in this rank's part of the directory */
    uint64_t lookups;    /* keys looked up by this rank */
    uint64_t hits_cache; /* hits from caches whose blocks were published in place, ... */
    uint64_t hits_dram;  /* out of pools */
    uint64_t hits_nvme;  /* from second tiers, of this rank and of others */
    uint64_t demoted;    /* blocks written into this rank's second tier */
    uint64_t promoted;   /* copied from the tier into this rank's pool when requested again */
    uint64_t dropped;    /* evicted from this rank's pool and not in the tier: the disk was too slow, the tier is off,
                            or holds the key in another size */
    uint64_t nvme_blocks; /* in this rank's second tier now */
    uint64_t nvme_bytes;
    uint64_t nvme_bad;   /* read from the tier with other bytes than written; each was a miss */
    uint64_t nvme_state; /* KVCL_STORE_NVME_* */
    uint64_t block_bytes; /* of a pool block, the first size's; 0: no pool */
    uint64_t pool_blocks;    /* that there is room for, of all sizes together; so are the next two, and pinned */
    uint64_t pool_free;      /* free without evicting */
    uint64_t pool_published; /* of the pool's; the rest is free or being filled */
    uint64_t pinned;      /* pool blocks that cannot be evicted now */
    uint64_t copied;      /* copies of other ranks' blocks made by this rank */
    uint64_t moved;       /* blocks that another rank has taken over */
    uint64_t events;      /* number of the newest event (kvcl_store_events.h) */
    uint64_t draining;    /* 1: kvcl_store_drain was called */
    uint64_t bytes_in;    /* payload of the whole context, as kvcl_context_stats says: got or received, */
    uint64_t bytes_out;   /* sent, written or served */
    uint64_t hits_local;  /* of hits_cache and hits_dram: out of this rank's own memory */
    uint64_t pool_bytes;
    uint64_t pool_free_bytes; /* of free blocks, and of parts that no size owns yet */
    uint64_t pool_taken;  /* parts of the pool that one size took over from another */
    uint64_t n_sizes;     /* of the pool's blocks */
    kvcl_store_size_stats_t sizes[KVCL_STORE_SIZES_MAX]; /* each; the first is block_bytes' above */
    /* Latency of this rank's calls that ended well, since kvcl_init, over all paths: the upper edge of the bucket
     * (kvcl_query_latency) that has the p50, the p99. 0: no such call. */
    uint64_t get_p50_ns; /* kvcl_store_get */
    uint64_t get_p99_ns;
    uint64_t put_p50_ns; /* kvcl_store_put, kvcl_store_upsert */
    uint64_t put_p99_ns;
    uint64_t match_p50_ns; /* kvcl_store_match */
    uint64_t match_p99_ns;
    uint64_t bytes_served; /* of the whole context: the members of kvcl_context_stats_t */
    uint64_t bytes_native;
} kvcl_store_stats_t;
#define KVCL_STORE_STATS_INIT                                                                                          \
    {sizeof(kvcl_store_stats_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,   \
     0, 0, 0, 0, 0, 0, 0, {{0, 0, 0, 0, 0, 0, {0}}}, 0, 0, 0, 0, 0, 0, 0, 0}

/** Collective over comm, an intra-communicator; the caches are per rank. Blocks. If one rank's parameters, or its
 * tier's file, are bad, it fails everywhere. With KVCL_VIEWS its ranks are those of comm that are members. By
 * KVCL_STORE_JOIN this rank alone, which has joined the job, comes to the store that others have open over these slots;
 * of several to the first, in the order of their opening, in which it takes no part. The call returns when its share of
 * the directory has moved here; nobody else waits for that. replicas 0: as the store has it.
 * @return KVCL_OK; then also KVCL_ERR_NOT_FOUND: no rank has such a store; KVCL_ERR_INVALID_PARAM: other replicas, or
 * another first block size; KVCL_ERR_UNSUPPORTED: no KVCL_VIEWS; KVCL_ERR_TIMED_OUT: shards have not moved yet. */
KVCL_API kvcl_status_t kvcl_store_open(kvcl_comm_h comm, const kvcl_store_params_t *params, kvcl_store_h *store_p)
    KVCL_MUST_CHECK;

/** Withdraws this rank's blocks; other ranks continue without this rank's part of the directory. With a second tier it
 * first writes the pool into it, for at most 10 s. Threads that wait for events, or in a put for room, are woken, and
 * their calls end; no call may begin after this one. If operations are still in flight 5 s later, the call fails: the
 * log and kvcl_last_error() give their number, the store keeps its memory, and the call may be repeated. NULL is
 * allowed. Blocks. Not from a callback. */
KVCL_API void kvcl_store_close(kvcl_store_h store);

/**
 * Open a handle of the store for one tenant. All calls that take a store accept it; through it they find, list, count
 * and remove this tenant's blocks only, on all ranks. So one pool and one process can serve many tenants, where a store
 * for each would divide the pool.
 *
 * Give each tenant a number and a random secret of its own, and open a handle with both on each rank that serves it.
 * Give the tenant's code this handle only: the store's own handle and the context reach all blocks. kvcl_store_close()
 * closes it; closing the store closes all of its handles.
 *
 * The handle renames the caller's keys by a permutation of all keys, which is made from the job's secret, the tenant's
 * secret and its number; ranks where all three are equal share blocks. Without the secret no other tenant can find,
 * name, time or guess a key, whatever keys and salts it chooses: for blocks of others, match and get do exactly what
 * they do for keys that no rank has put. Two secrets under one number are two sets of keys with one quota. By a handle:
 *   - kvcl_store_list, kvcl_store_events give the tenant's blocks, under the caller's keys. Numbers of events have gaps
 *     where others' are. A call that finds only others' gives one event of kind KVCL_STORE_SKIPPED: continue from it.
 *   - kvcl_store_stats and those of other ranks fill blocks, pool_published, gets, hits, hits_*, lookups (of handles
 *     that are open), block_bytes, events, draining, n_sizes and sizes[] (block_bytes, published); the rest is 0.
 *   - kvcl_store_quota, kvcl_store_clear and params.tenant take its own number, or 0 for it.
 *   - kvcl_store_alloc gives blocks of zeros. Of the store's cache, kvcl_store_free, _publish and _bcast take only such
 *     blocks of this tenant (KVCL_ERR_ACCESS); the store's own handle may free and publish those of all tenants.
 *     kvcl_store_withdraw and kvcl_store_unpin_local skip published blocks of others.
 *   - kvcl_store_drain, kvcl_store_exclude and kvcl_store_tenant return KVCL_ERR_ACCESS.
 *   - Error sentences show the first digits of the renamed key.
 *
 * What it does not do:
 *   - It does not protect from ranks: they trust each other, and each can read any pool.
 *   - It does not protect the bytes of a cache from code that has the handle of that cache. Where tenants must not
 *     reach each other's bytes, give each of them a cache of its own, and the store none (params.cache).
 *   - It does not hide load: tenants share room, so each can tell from its own evictions and times how busy the store
 *     is.
 *   - Copies that ranks make by themselves (after a failure, or of blocks that are requested often) and copies that
 *     return from a second tier have no number. The tenant's gets find them; lists and counts leave them out, and
 *     kvcl_store_clear keeps them (kvcl_store_remove does not).
 *   - Blocks of an earlier run in a second tier are found only if the job's secret is the same (KVCL_SECRET_FILE).
 *
 * tenant: its number, not 0. secret: 16 to 65,536 random bytes that only the tenant's ranks know, read during the call.
 * NULL with length 0: the bytes of the file that KVCL_STORE_TENANT_KEY names (mode 0600); a file and an argument of the
 * same bytes are the same secret. A key made from it is kept until the handle and the requests that it posted have
 * ended, in memory that core dumps leave out; what libcrypto makes of that key is in the heap, where they find it. The
 * call does not wait for other ranks. Any thread.
 * @return KVCL_OK; KVCL_ERR_INVALID_PARAM (tenant is 0, the secret is too short or too long, or neither it nor a file
 *         is given), KVCL_ERR_ACCESS (the file is not fit: its mode, owner, kind or length; the store is a tenant's
 *         handle), KVCL_ERR_NOT_FOUND, KVCL_ERR_IO (the file), KVCL_ERR_UNSUPPORTED (libcrypto has no AES),
 *         KVCL_ERR_NO_MEMORY.
 */
KVCL_API kvcl_status_t kvcl_store_tenant(kvcl_store_h store, uint64_t tenant, const void *secret, size_t secret_len,
                                         kvcl_store_h *tenant_p) KVCL_MUST_CHECK;

/*
 * Calls that query other ranks have two forms. The plain form blocks until it is done. The form ..._post never waits:
 * it posts the same query as a request (kvcl_req.h), which may be complete on return. Keys and other input arrays are
 * copied; results are written before completion, into memory that must stay valid until then. Both forms use
 * params->timeout_ns; the posting form also uses cb and cb_arg, which the plain form refuses.
 *
 * A rank that does not reply delays a call by KVCL_STORE_HEDGE (200 ms) where the key has a second home, otherwise by
 * about five times that. It is then suspected (kvcl_rank_state): until it replies again, match and exists do not wait
 * for it, and other calls wait for one hedge. Keys that only a suspected rank lists count as absent.
 */

/** The number of leading keys that the store has: the longest leading run, in one call.
 * @return KVCL_OK, KVCL_ERR_TIMED_OUT (only where timeout_ns is shorter than the wait for a silent rank). */
KVCL_API kvcl_status_t kvcl_store_match(kvcl_store_h store, const kvcl_key_t *keys, size_t n, size_t *hit_p,
                                        const kvcl_xfer_params_t *params) KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_store_match_post(kvcl_store_h store, const kvcl_key_t *keys, size_t n, size_t *hit_p,
                                             const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/**
 * Collective over comm (NULL: the store's): each rank gives its own keys, for example those of its tensor-parallel
 * slice, and all get the least of the results of kvcl_store_match: the leading run that all ranks have. It is a
 * collective of comm as any other, in the same order on all ranks. params: timeout_ns, for each of the two steps.
 * Blocks. It has no posting form: the collective begins when the rank's own match has ended, so its place in the order
 * of collectives would differ between ranks. Where a rank must not wait: kvcl_store_match_post, then kvcl_allgather.
 * @return KVCL_OK; on any rank's error the same on all.
 */
KVCL_API kvcl_status_t kvcl_store_match_all(kvcl_store_h store, kvcl_comm_h comm, const kvcl_key_t *keys, size_t n,
                                            size_t *hit_p, const kvcl_xfer_params_t *params) KVCL_MUST_CHECK;

/** present[i] = 1 if the store has key i, otherwise 0. One round of queries for any n. */
KVCL_API kvcl_status_t kvcl_store_exists(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint8_t *present,
                                         const kvcl_xfer_params_t *params) KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_store_exists_post(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint8_t *present,
                                              const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/**
 * Fetch n blocks into blocks ids[0..n) of a local cache, verified. status (may be NULL) gets one entry a block:
 * KVCL_OK, KVCL_ERR_NOT_FOUND (absent, evicted meanwhile, of another size), KVCL_ERR_RANK_FAILED, KVCL_ERR_BAD_LAYOUT,
 * ... params->status means the same; if both are given, both get the same entries. The request is KVCL_OK if all blocks
 * arrived, otherwise it has the first block's error. Blocks whose status is not KVCL_OK have undefined bytes.
 */
KVCL_API kvcl_status_t kvcl_store_get(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                                      const uint32_t *ids, kvcl_status_t *status, const kvcl_xfer_params_t *params,
                                      kvcl_req_h *req_p) KVCL_MUST_CHECK;

/**
 * Fetch a part of each of n blocks: some layers, heads or tokens, or blocks that were put with another number of tokens
 * or heads than the local cache has; or fetch blocks layer by layer. The two selections fit each other as those of
 * kvcl_get: the stored blocks take the place of the peer's cache.
 * @param stored  the layout that the blocks had when they were put. Its strides, bases and number of blocks do not
 *                matter. NULL: that of @a cache. The directory knows only the bytes of a block: with another layout of
 *                as many bytes the call cannot detect the mistake, and takes other parts.
 * @param part    layers, heads and tokens of the stored blocks; NULL: all. Its blocks and n_blocks are not looked at;
 *                tokens counts along the keys.
 * @param local   where they go in @a cache. Bytes outside of it are not written.
 * All arguments are copied; cache must outlive the request. status: one entry a key, as for kvcl_store_get.
 *
 * The call verifies what kvcl_store_get verifies. A checksum covers a whole block, so each block is fetched whole into
 * memory of the library; its generation and checksum are compared there, and the part is copied afterwards. So wrong
 * bytes are never returned, and the bytes of a block that fails are not written at all. A part saves no transfer: put
 * what is often read alone under a key of its own. The library allocates at most 32 MiB, or one larger block.
 *
 * KVCL_LAYERWISE: all n blocks are fetched and verified, then written layer by layer, in rising order, and
 * kvcl_req_layer_wait() returns when all bytes of a layer are in place: a model can begin with its first layers while
 * the others are copied, for example to a device. The library then allocates n blocks. If a block fails, no layer
 * arrives. Both selections must have the same number of layers, so it is not for opaque blocks.
 * @return as kvcl_store_get; KVCL_ERR_BAD_LAYOUT (the selections do not fit, or stored is no layout),
 *         KVCL_ERR_OUT_OF_RANGE, KVCL_ERR_NO_MEMORY. Later as kvcl_store_get.
 */
KVCL_API kvcl_status_t kvcl_store_get_part(kvcl_store_h store, const kvcl_key_t *keys, size_t n,
                                           const kvcl_layout_t *stored, const kvcl_sel_t *part, kvcl_cache_h cache,
                                           const kvcl_sel_t *local, kvcl_status_t *status,
                                           const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/**
 * Copy n blocks of a local cache into this rank's pool (dram_bytes), evicting as needed, and publish the copies. A key
 * that this rank's pool already holds in this size, with as many copies, is a no-op. With replicas R (params, or the
 * store's) the pools of other ranks with this size of block fetch R - 1 more copies: the first from this rank, the next
 * from the first, so the bytes leave this rank once. Ranks on other hosts come first, in turn, by their free room.
 *
 * The blocks must not change until the request has completed: the call copies at most KVCL_INLINE_COPY bytes (4 MiB).
 * For more it only finds room; the threads that progress the context evict other blocks, and copy. Keys and ids are
 * copied. Without cb and req_p it copies all bytes. A put that ends before its bytes are copied has put nothing.
 *
 * Keys of a chain are given in the chain's order. Ends of chains are evicted before their beginnings; where only the
 * end of a chain is put, its beginning must have been used shortly before, as by the match that found it.
 *
 * Completes when the directory lists all copies; params->copies receives the number of copies of each block. Where keys
 * have two homes (replicas of 2 or more) one home suffices: a silent home is notified when it replies again. A block of
 * two copies is found after any one rank has failed, if both homes replied. If one was silent and the other one fails
 * before the silent one has replied again, the block is absent until it replies. Suspected ranks get no copies. With
 * fewer than R ranks there are as many copies as ranks. With views (KVCL_VIEWS) a put waits for the homes and members
 * that it needs. It ends with KVCL_ERR_NO_QUORUM without a quorum, with KVCL_ERR_STALE if this rank is excluded.
 *
 * With KVCL_PUT_STAYS and R of 2 or more, the first of the other ranks fetches the blocks from the caller's cache while
 * this rank copies them into its pool. Those that the pool lacks must then not be published, and each may stand in the
 * call once; otherwise it fails with KVCL_ERR_BUSY. If the put ends before its bytes are copied, other ranks keep the
 * copies that they have made by then, which params->copies does not count. Puts that the call copies itself ignore the
 * flag. So do puts into other ranks' pools, whose blocks are always fetched from the caller's cache. After completion
 * no rank keeps bytes that it reads there.
 *
 * When the pool has no room (all of it pinned, in puts under way, or beyond the tenant's quota) the call fails at once;
 * with KVCL_PUT_WAIT it blocks until there is room or the deadline has passed.
 * @return KVCL_OK, KVCL_ERR_NO_SPACE, KVCL_ERR_BAD_LAYOUT (the pool has no such size of block),
 *         KVCL_ERR_INVALID_PARAM. Later: KVCL_ERR_NO_SPACE (this rank's part of the directory, or another
 *         rank's pool; or blocks of this rank's pool were pinned after the call, and nothing was put),
 *         KVCL_ERR_TIMED_OUT, ...: the copies that params->copies counts exist all the same.
 */
KVCL_API kvcl_status_t kvcl_store_put(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                                      const uint32_t *ids, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
    KVCL_MUST_CHECK;

/*
 * Puts into other ranks' pools. A rank whose store was opened without a pool for blocks of this size, such as a worker
 * next to kvcl_serve, puts into the pools of ranks that have one: the first copy on its own host if a rank of that host
 * has a pool, the others on other hosts, R in all. With KVCL_PUT_TO the first copy goes to rank to_rank and no other.
 * The ranks fetch the blocks from the caller's cache: ids must be unpublished blocks, each once, whose bytes must not
 * change until the request has completed. The call never waits; with KVCL_PUT_WAIT the request waits for room. The
 * call reads at most KVCL_INLINE_COPY bytes, for checksums, and leaves more to the threads that progress the context. A
 * key that other pools hold in R copies is a no-op. An upsert takes no room first: where it fails the keys are absent.
 * @return KVCL_ERR_UNSUPPORTED: no rank, or not to_rank, has a pool with blocks of this size; KVCL_ERR_UNKNOWN_RANK;
 *         KVCL_ERR_BUSY: a block is published, or in another put.
 */

/**
 * Replace the blocks of these keys: the call takes and fills room in the pool, makes every rank drop its copies of the
 * keys, then continues as kvcl_store_put. In between the keys are absent; once the new value is visible, the old one is
 * not. Without room for n more blocks it fails and has changed nothing. Callers order calls for one key by several
 * ranks. After KVCL_ERR_NO_QUORUM a rank may have old blocks: repeat the call. Blocks until the old copies are dropped.
 */
KVCL_API kvcl_status_t kvcl_store_upsert(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                                         const uint32_t *ids, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
    KVCL_MUST_CHECK;

/**
 * Publish n blocks of a local cache in place. Their bytes must not change until they are withdrawn or evicted.
 * Completes when the directory lists them; then every rank's match sees them. The call itself reads all bytes, for the
 * checksums, so that a withdraw after it finds the blocks published; with KVCL_STORE_NO_CHECKSUM it reads none.
 * @return KVCL_OK, KVCL_ERR_OUT_OF_RANGE, KVCL_ERR_BUSY (a block is published already), KVCL_ERR_UNSUPPORTED (the
 *         process has made 65,535 caches before this one: a store takes none then). Later: KVCL_ERR_NO_SPACE (the
 *         home's part of the directory is full; such blocks are simply not found).
 */
KVCL_API kvcl_status_t kvcl_store_publish(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                                          const uint32_t *ids, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
    KVCL_MUST_CHECK;

/** Withdraw published blocks: on return their bytes may change, and a reader under way detects it. Unpublished blocks
 * are skipped. The directory is notified in the background. */
KVCL_API kvcl_status_t kvcl_store_withdraw(kvcl_store_h store, kvcl_cache_h cache, const uint32_t *ids, size_t n)
    KVCL_MUST_CHECK;

/** Remove keys everywhere: the directory drops the entries and the holders withdraw the blocks; with KVCL_VIEWS it ends
 * when they have. @return KVCL_OK. Later: KVCL_ERR_TIMED_OUT (the home of some key, or with views a holder, does
 * not reply: its entries may be found again). */
KVCL_API kvcl_status_t kvcl_store_remove(kvcl_store_h store, const kvcl_key_t *keys, size_t n,
                                         const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/**
 * Take n blocks of the store's cache for filling, evicting published ones as needed. They belong to the caller until
 * published (then the store may evict them) or freed. A block has the bytes of its last use, which may be another
 * tenant's: fill all of it before it is published, or open the store with KVCL_STORE_ZERO, where each block that this
 * call gives is zeroed first (the time of one memset; other blocks of a store are always overwritten whole).
 * @return KVCL_OK, KVCL_ERR_NO_SPACE (all blocks are in the callers' hands; nothing was taken), KVCL_ERR_IO (zeroing
 *         device memory: the driver failed; nothing was taken).
 */
KVCL_API kvcl_status_t kvcl_store_alloc(kvcl_store_h store, size_t n, uint32_t *ids) KVCL_MUST_CHECK;
/** Return allocated blocks that are not published.
 * @return KVCL_OK; nothing was freed with KVCL_ERR_BUSY (a block is free or published), KVCL_ERR_OUT_OF_RANGE (the
 *         cache has no such block), KVCL_ERR_ACCESS (a tenant's handle, by which a block was not allocated). */
KVCL_API kvcl_status_t kvcl_store_free(kvcl_store_h store, const uint32_t *ids, size_t n) KVCL_MUST_CHECK;

/** Where one of this rank's caches holds a key (its block id there; the store's own cache first), so that it need not
 * be fetched; the call marks it used. In the store's own cache the block is pinned against eviction until
 * kvcl_store_unpin_local(). Copies in the pool of kvcl_store_put have no id a caller could use: they do not count.
 * @return KVCL_OK, KVCL_ERR_NOT_FOUND. */
KVCL_API kvcl_status_t kvcl_store_pin_local(kvcl_store_h store, const kvcl_key_t *key, uint32_t *id_p) KVCL_MUST_CHECK;
KVCL_API void          kvcl_store_unpin_local(kvcl_store_h store, uint32_t id);

/**
 * Give a prefix to every rank at once: collective over the store's comm, the same keys on all ranks, each rank's own
 * ids (blocks of cache that the caller owns). The bytes come from any holder, are spread by kvcl_bcast, and are
 * published on every rank. A rank that already holds a key keeps its copy as well. With KVCL_ERR_NOT_FOUND (a key has
 * no copy) nothing was published.
 */
KVCL_API kvcl_status_t kvcl_store_bcast(kvcl_store_h store, const kvcl_key_t *keys, size_t n, kvcl_cache_h cache,
                                        const uint32_t *ids, const kvcl_xfer_params_t *params, kvcl_req_h *req_p)
    KVCL_MUST_CHECK;

/** This rank's own. @return KVCL_OK; KVCL_ERR_INVALID_PARAM: NULL, or stats->size is no size. */
KVCL_API kvcl_status_t kvcl_store_stats(kvcl_store_h store, kvcl_store_stats_t *stats) KVCL_MUST_CHECK;

KVCL_END_DECLS

#endif
