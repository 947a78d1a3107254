/*
 * Administration of a store: pins, quotas, copies and moves, draining, statistics.
 *
 * All of these query the ranks concerned. The plain forms block; the forms ..._post do not. kvcl_store.h has the rules
 * for both, and the cost of a silent rank. The status for a rank that does not reply is KVCL_ERR_TIMED_OUT, and for a
 * rank that this rank has excluded KVCL_ERR_UNREACHABLE; the replies of the other ranks count.
 */
#ifndef KVCL_STORE_ADMIN_H
#define KVCL_STORE_ADMIN_H

#include <kvcl/kvcl_store.h>

KVCL_BEGIN_DECLS

/* kvcl_store_pin, flags */
#define KVCL_PIN_SOFT UINT64_C(0x1) /* a pin that yields if nothing else can be evicted; a hard pin does not */

/**
 * Protect blocks from eviction, on all ranks, in pools and in caches that the store manages. A pin ends when ttl_ns
 * have passed, when the holder unpins the block, or when any rank removes it. holder: a number of the caller's choice.
 * Each holder has one pin a copy, and pinning again renews its time and kind. At most 7/8 of a rank's blocks can be
 * pinned hard. A block has at most 1024 pins, and a rank 4 for each block it has room for, and 1024 more. A pin belongs
 * to its copy: copies made later have none. copies (may be NULL): how many copies of each key are pinned now.
 * @return KVCL_OK (at least one copy of each); KVCL_ERR_NOT_FOUND, KVCL_ERR_NO_SPACE (no copy of some key could be
 *         pinned; the other keys are pinned all the same); KVCL_ERR_TIMED_OUT (no copy of some key could be pinned, and
 *         a rank was silent); KVCL_ERR_INVALID_PARAM (ttl_ns is 0; unknown flags).
 */
KVCL_API kvcl_status_t kvcl_store_pin(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t holder,
                                      uint64_t ttl_ns, uint64_t flags, uint8_t *copies,
                                      const kvcl_xfer_params_t *params) KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_store_pin_post(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t holder,
                                           uint64_t ttl_ns, uint64_t flags, uint8_t *copies,
                                           const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/** Remove this holder's pins of these keys. If a key has none, or a rank does not reply, nothing happens: pins end by
 * their ttl_ns. */
KVCL_API kvcl_status_t kvcl_store_unpin(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t holder,
                                        const kvcl_xfer_params_t *params) KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_store_unpin_post(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t holder,
                                             const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/**
 * A tenant is a number that a put names. The number alone is for quotas, counts and kvcl_store_clear, and keeps nothing
 * secret: by the store's own handle lists, events and statistics show the keys of all tenants, and a match finds them.
 * A handle for each tenant, with a secret, separates them (kvcl_store_tenant); in the calls below it accepts its own
 * number, or 0 for it. Ranks trust each other: nothing keeps a rank from reading a pool.
 *
 * Set how many bytes of a rank's pool (rank -1: of each rank's pool) the blocks of a tenant may take
 * (kvcl_xfer_params_t.tenant, not 0). bytes 0: no limit; else bytes is rounded down to blocks. A put that would exceed
 * the quota first evicts the tenant's own blocks, the least recently used ones first. A tenant over a quota that was
 * lowered is the first to lose blocks when room is needed. Concurrent puts, and copies that ranks make of each other's
 * blocks after a death, may exceed the quota for a while.
 * @return KVCL_OK, or the first error of a rank; the other ranks have the quota all the same. With rank -1 a failed
 *         rank is no error.
 */
KVCL_API kvcl_status_t kvcl_store_quota(kvcl_store_h store, int rank, uint64_t tenant, uint64_t bytes,
                                        const kvcl_xfer_params_t *params) KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_store_quota_post(kvcl_store_h store, int rank, uint64_t tenant, uint64_t bytes,
                                             const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/**
 * Remove all blocks (tenant 0), or the blocks that a tenant has put, from all ranks that take part. Only tenant 0 also
 * withdraws blocks of engines' own caches, and removes blocks from second tiers that are in no pool. *removed_p (may be
 * NULL): the number of copies removed. Blocks put meanwhile may stay. After the call no get finds a removed block;
 * kvcl_store_exists of other ranks may report one until a message in flight has reached them.
 * @return KVCL_OK, or the first error of a rank: that rank keeps its blocks, the others have removed
 *         them.
 */
KVCL_API kvcl_status_t kvcl_store_clear(kvcl_store_h store, uint64_t tenant, uint64_t *removed_p,
                                        const kvcl_xfer_params_t *params) KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_store_clear_post(kvcl_store_h store, uint64_t tenant, uint64_t *removed_p,
                                             const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/* kvcl_store_copy, flags */
#define KVCL_STORE_MOVE UINT64_C(0x1) /* the other copies are dropped once the rank has the block */

/**
 * Make a rank copy blocks into its pool, from any holder; it evicts blocks as needed. Blocks that it already has count
 * as done. made (may be NULL): 1 for each key if the rank now holds a copy of it that the directory lists. (It lists at
 * most four copies of a key: a fifth does not count, and nothing is dropped for it.) The copies belong to no tenant (0)
 * and have no pins. With KVCL_STORE_MOVE every other rank then drops its copy and reports that to its
 * followers (KVCL_STORE_MOVED); no get fails in between. Blocks: no step begins after timeout_ns; one that has begun
 * may take up to KVCL_TIMEOUT for each rank involved. It has no posting form, since each of its many steps depends on
 * the one before.
 * @return KVCL_OK (the rank has all); KVCL_ERR_NOT_FOUND (a key has no copy); KVCL_ERR_NO_SPACE (there was no room for
 *         a copy); KVCL_ERR_BUSY (the rank makes copies for others until the deadline); KVCL_ERR_UNSUPPORTED (the rank
 *         has no pool, or no blocks of this size); KVCL_ERR_UNKNOWN_RANK, KVCL_ERR_RANK_FAILED, KVCL_ERR_TIMED_OUT.
 */
KVCL_API kvcl_status_t kvcl_store_copy(kvcl_store_h store, const kvcl_key_t *keys, size_t n, int rank, uint64_t flags,
                                       uint8_t *made, const kvcl_xfer_params_t *params) KVCL_MUST_CHECK;

/**
 * Call it before this rank closes the store. The rank accepts no further copies of other ranks' blocks. It moves the
 * blocks that no other rank holds to ranks with free room in their pools: first those of its pool, from the least
 * recently used on, then those of its second tier. No get fails because of it. A block without room elsewhere stays: it
 * is lost with the store, or the next store finds it in the tier's file. *moved_p (may be NULL): blocks moved, on
 * failure too. Where a rank is silent, or the home of a block fails, it tries again until timeout_ns have passed.
 * Blocks: no batch begins later; one that has begun may take up to KVCL_TIMEOUT for each rank involved. It has no
 * posting form, since it moves batch after batch and reads the second tier's file: a caller that must not wait calls it
 * in a thread of its own.
 * @return KVCL_OK (no block is left that only this rank has); KVCL_ERR_NO_SPACE (the other ranks all answer, and are
 *         full, or there are none: the sentence says how many blocks are left at least, and timeout_ns limits how many
 *         it counts); KVCL_ERR_TIMED_OUT (the sentence names a rank that does not answer); KVCL_ERR_NO_QUORUM (so few
 *         ranks answer that no block can be listed); KVCL_ERR_STALE (the others have excluded this rank);
 *         KVCL_ERR_SHUTDOWN (the store is closed meanwhile).
 */
KVCL_API kvcl_status_t kvcl_store_drain(kvcl_store_h store, uint64_t *moved_p, const kvcl_xfer_params_t *params)
    KVCL_MUST_CHECK;

/** kvcl_store_stats of any rank of the store's comm. Set stats->size before the call. KVCL_ERR_RANK_FAILED: the rank
 * has failed or closed its part. */
KVCL_API kvcl_status_t kvcl_store_rank_stats(kvcl_store_h store, int rank, kvcl_store_stats_t *stats,
                                             const kvcl_xfer_params_t *params) KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_store_rank_stats_post(kvcl_store_h store, int rank, kvcl_store_stats_t *stats,
                                                  const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/**
 * The statistics of ranks 0 to n - 1, all queried at the same time; n is the number of ranks of the store's comm.
 * stats[i] is of rank i if status[i] is KVCL_OK, else zero; stride: sizeof(kvcl_store_stats_t). The call takes as long
 * as the slowest rank, or as a silent rank costs.
 * @return KVCL_OK, for any status of the ranks; KVCL_ERR_INVALID_PARAM (n is another number), KVCL_ERR_NO_MEMORY,
 *         KVCL_ERR_SHUTDOWN.
 */
KVCL_API kvcl_status_t kvcl_store_all_stats(kvcl_store_h store, size_t n, kvcl_store_stats_t *stats, size_t stride,
                                            kvcl_status_t *status, const kvcl_xfer_params_t *params)
    KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_store_all_stats_post(kvcl_store_h store, size_t n, kvcl_store_stats_t *stats,
                                                 size_t stride, kvcl_status_t *status, const kvcl_xfer_params_t *params,
                                                 kvcl_req_h *req_p) KVCL_MUST_CHECK;

/**
 * Exclude a rank (on not 0) or include it again (on 0). The choice is local; no other rank is notified. An excluded
 * rank gets no copies of this rank's puts and no queries. Queries for keys homed there go to their second home, or the
 * keys count as absent. Its blocks are read only where that needs no message (mapped memory). It may still query this
 * rank. Any thread; does not block.
 * @return KVCL_OK; KVCL_ERR_UNKNOWN_RANK; KVCL_ERR_INVALID_PARAM: rank is the caller's own.
 */
KVCL_API kvcl_status_t kvcl_store_exclude(kvcl_store_h store, int rank, int on) KVCL_MUST_CHECK;

KVCL_END_DECLS

#endif
