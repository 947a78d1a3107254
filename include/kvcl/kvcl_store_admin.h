/*
 * Administration of a store: pins, quotas, copies and moves, draining, statistics.
 *
 * All of these query the ranks concerned. The plain forms block; the forms ..._post do not (kvcl_store.h has the rules
 * for both, and the cost of a silent rank). A rank that does not reply is KVCL_ERR_TIMED_OUT, one that this rank has
 * excluded is KVCL_ERR_UNREACHABLE; the replies of the others count.
 */
#ifndef KVCL_STORE_ADMIN_H
#define KVCL_STORE_ADMIN_H

#include <kvcl/kvcl_store.h>

KVCL_BEGIN_DECLS

/* kvcl_store_pin, flags */
#define KVCL_PIN_SOFT UINT64_C(0x1) /* gives way when nothing else can be evicted; else a pin is hard: it does not */

/**
 * Protect blocks from eviction, on all ranks, in pools and in caches that the store manages, until ttl_ns have passed,
 * the holder unpins them, or any rank removes them. holder: a number of the caller's choice; each holder has one pin a
 * copy, and pinning again renews its time and kind. At most 7/8 of a rank's blocks can be pinned hard; a
 * block has at most 1024 pins, and a rank 4 for each block it has room for, and 1024 more. A pin stays with its copy:
 * copies made later have none. copies (may be NULL): how many copies of each key are pinned now.
 * @return KVCL_OK (at least one copy of each); KVCL_ERR_NOT_FOUND, KVCL_ERR_NO_SPACE (no copy of some key could be: the
 *         others are pinned all the same); KVCL_ERR_TIMED_OUT (no copy of some key could be, and a rank was silent);
 *         KVCL_ERR_INVALID_PARAM (ttl_ns is 0; unknown flags).
 */
KVCL_API kvcl_status_t kvcl_store_pin(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t holder,
                                      uint64_t ttl_ns, uint64_t flags, uint8_t *copies,
                                      const kvcl_xfer_params_t *params) KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_store_pin_post(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t holder,
                                           uint64_t ttl_ns, uint64_t flags, uint8_t *copies,
                                           const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/** Take this holder's pins of these keys away; where there are none, or a rank does not answer, nothing happens: pins
 * end by their ttl_ns. */
KVCL_API kvcl_status_t kvcl_store_unpin(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t holder,
                                        const kvcl_xfer_params_t *params) KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_store_unpin_post(kvcl_store_h store, const kvcl_key_t *keys, size_t n, uint64_t holder,
                                             const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/**
 * How many bytes of the pool of a rank (-1: of each rank) a tenant's blocks may take (kvcl_xfer_params_t.tenant, not
 * 0); bytes 0: as many as there are. Rounded down to blocks. A put that would go beyond gives up the tenant's own
 * blocks first, those not used for longest; a tenant that has too much, because its quota was lowered, is the first to
 * give up blocks when room is needed. Puts under way at the same time, and copies that ranks make of each other's
 * blocks after a death, may go beyond for a while.
 * @return KVCL_OK, or the first error of a rank; the other ranks have the quota all the same. With rank -1 a rank that
 *         is gone is no error.
 */
KVCL_API kvcl_status_t kvcl_store_quota(kvcl_store_h store, int rank, uint64_t tenant, uint64_t bytes,
                                        const kvcl_xfer_params_t *params) KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_store_quota_post(kvcl_store_h store, int rank, uint64_t tenant, uint64_t bytes,
                                             const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/** Remove all blocks (tenant 0) or those that a tenant has put, from all ranks that take part. Only tenant 0 also
 * withdraws blocks of engines' own caches, and removes blocks from second tiers that are in no pool. *removed_p (may be
 * NULL): the number of copies removed. Blocks put meanwhile may stay. When the call returns no get finds a removed
 * block; kvcl_store_exists of other ranks may report one until a message under way has reached them.
 * @return KVCL_OK, or the first error of a rank: it keeps its blocks, the others have removed theirs. */
KVCL_API kvcl_status_t kvcl_store_clear(kvcl_store_h store, uint64_t tenant, uint64_t *removed_p,
                                        const kvcl_xfer_params_t *params) KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_store_clear_post(kvcl_store_h store, uint64_t tenant, uint64_t *removed_p,
                                             const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/* kvcl_store_copy, flags */
#define KVCL_STORE_MOVE UINT64_C(0x1) /* the other copies are given up once the rank has the block */

/**
 * Make a rank copy blocks into its pool, from any holder, evicting there as needed. Blocks that it already has count as
 * done. made (may be NULL): 1 for each key that the rank now holds and that is listed there. (The directory lists at
 * most four copies of a key: a fifth does not count, and nothing is dropped for it.) The copies belong to no tenant (0)
 * and have no pins. With KVCL_STORE_MOVE every other rank then drops its copy and reports that to its followers
 * (KVCL_STORE_MOVED); no get fails in between. Blocks: no step begins after timeout_ns; one that has begun may
 * take up to KVCL_TIMEOUT for each rank involved. It has no posting form, since each of its many steps depends on the
 * one before.
 * @return KVCL_OK (the rank has all); KVCL_ERR_NOT_FOUND (a key has no copy); KVCL_ERR_NO_SPACE (a copy found no room);
 *         KVCL_ERR_BUSY (it makes copies for others until the deadline); KVCL_ERR_UNSUPPORTED (it has no pool, or no
 *         blocks of this size); KVCL_ERR_UNKNOWN_RANK, KVCL_ERR_RANK_FAILED, KVCL_ERR_TIMED_OUT.
 */
KVCL_API kvcl_status_t kvcl_store_copy(kvcl_store_h store, const kvcl_key_t *keys, size_t n, int rank, uint64_t flags,
                                       uint8_t *made, const kvcl_xfer_params_t *params) KVCL_MUST_CHECK;

/**
 * Call it before this rank closes. The rank accepts no more copies of other ranks' blocks, and moves the blocks that no
 * other rank holds to ranks with free room in their pools: first those of its pool, from the least recently used on,
 * then those of its second tier. No get fails for it. A block without room elsewhere stays: it is lost with the store,
 * or the next store finds it in the tier's file. *moved_p (may be NULL): blocks moved, on failure too. Blocks: no batch
 * begins after timeout_ns; one that has begun may take up to KVCL_TIMEOUT for each rank involved. It has no posting
 * form, since it moves batch after batch and reads the second tier's file: call it in a thread of its own where the
 * caller must not wait.
 * @return KVCL_OK (nothing is left that only this rank has); KVCL_ERR_NO_SPACE (the others are full, or there are
 *         none); KVCL_ERR_TIMED_OUT.
 */
KVCL_API kvcl_status_t kvcl_store_drain(kvcl_store_h store, uint64_t *moved_p, const kvcl_xfer_params_t *params)
    KVCL_MUST_CHECK;

/** kvcl_store_stats of any rank of the store's comm; stats->size is set before. KVCL_ERR_RANK_FAILED: it is gone. */
KVCL_API kvcl_status_t kvcl_store_rank_stats(kvcl_store_h store, int rank, kvcl_store_stats_t *stats,
                                             const kvcl_xfer_params_t *params) KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_store_rank_stats_post(kvcl_store_h store, int rank, kvcl_store_stats_t *stats,
                                                  const kvcl_xfer_params_t *params, kvcl_req_h *req_p) KVCL_MUST_CHECK;

/**
 * The same of ranks 0 to n - 1, n as many as the store's comm has, all asked at the same time: stats[i] is of rank i
 * where status[i] is KVCL_OK, else zero; stride: sizeof(kvcl_store_stats_t). It takes as long as the slowest of them,
 * or as a silent one costs.
 * @return KVCL_OK, whatever the ranks say; KVCL_ERR_INVALID_PARAM (n is another number), KVCL_ERR_NO_MEMORY,
 *         KVCL_ERR_SHUTDOWN.
 */
KVCL_API kvcl_status_t kvcl_store_all_stats(kvcl_store_h store, size_t n, kvcl_store_stats_t *stats, size_t stride,
                                            kvcl_status_t *status, const kvcl_xfer_params_t *params)
    KVCL_MUST_CHECK;
KVCL_API kvcl_status_t kvcl_store_all_stats_post(kvcl_store_h store, size_t n, kvcl_store_stats_t *stats,
                                                 size_t stride, kvcl_status_t *status, const kvcl_xfer_params_t *params,
                                                 kvcl_req_h *req_p) KVCL_MUST_CHECK;

/**
 * Exclude a rank (on not 0) or include it again (on 0). This is a local choice; no other rank learns of it. An excluded
 * rank gets no copies of this rank's puts and no queries: queries for keys homed there go to their second home, or the
 * keys count as absent; its blocks are read only where that needs no message (mapped memory). It may still query this
 * rank. Any thread; does not block.
 * @return KVCL_OK; KVCL_ERR_UNKNOWN_RANK; KVCL_ERR_INVALID_PARAM: rank is the caller's own.
 */
KVCL_API kvcl_status_t kvcl_store_exclude(kvcl_store_h store, int rank, int on) KVCL_MUST_CHECK;

KVCL_END_DECLS

#endif
