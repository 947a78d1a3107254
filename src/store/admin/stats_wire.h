/*
 * A rank's statistics on the wire. Pure: no lock, no allocation.
 *
 * Little-endian: u16 numbers, u16 sizes, u16 numbers of each size, u16 zero; the numbers (u64) in the order of
 * KVCL_STATS_NUMBERS; then, for each size of block, its numbers (u64) in the order of KVCL_STATS_SIZE_NUMBERS. Both
 * lists only grow at their ends. Numbers that a shorter answer lacks read as 0, and the rest of a longer one is
 * ignored.
 */
#ifndef KVCL_STORE_ADMIN_STATS_WIRE_H
#define KVCL_STORE_ADMIN_STATS_WIRE_H

#include <kvcl/kvcl_store.h>

#include <stdbool.h>

#define KVCL_STATS_NUMBERS(X)                                                                                          \
    X(blocks) X(published) X(evicted) X(gets) X(hits) X(stale) X(corrupt) X(entries) X(lookups) X(hits_cache)          \
    X(hits_dram) X(hits_nvme) X(demoted) X(promoted) X(dropped) X(nvme_blocks) X(nvme_bytes) X(nvme_bad) X(nvme_state) \
    X(block_bytes) X(pool_blocks) X(pool_free) X(pool_published) X(pinned) X(copied) X(moved) X(events) X(draining)    \
    X(bytes_in) X(bytes_out) X(hits_local) X(pool_bytes) X(pool_free_bytes) X(pool_taken) X(n_sizes)                   \
    X(get_p50_ns) X(get_p99_ns) X(put_p50_ns) X(put_p99_ns) X(match_p50_ns) X(match_p99_ns) X(bytes_served)            \
    X(bytes_native)
#define KVCL_STATS_SIZE_NUMBERS(X) X(block_bytes) X(blocks) X(free) X(published) X(pinned) X(takes)

enum {
    KVCL_STATS_WIRE_HEAD = 8,
    KVCL_STATS_WIRE_MAX  = 4096 /* room for an answer of a version that has more numbers */
};

/** @return the bytes written; 0: cap is too small. */
size_t kvcl_stats_pack(const kvcl_store_stats_t *stats, void *buf, size_t cap);

/** Unpacks bytes from any peer. Writes @a stats in any case; n_sizes never exceeds the sizes that it holds. False:
 * malformed. */
bool   kvcl_stats_unpack(const void *buf, size_t len, kvcl_store_stats_t *stats);

#endif
