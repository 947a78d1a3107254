/*
 * The table of one home: which locations hold which key. Open addressing over memory given by the
 * caller, one 64-byte entry per location, so a key with three copies has three entries.
 *
 * The memory is a 64-byte header, then `capacity` entries. A key's probe window is the
 * KVCL_DIR_WINDOW entries from its start index; starts are spread over capacity - WINDOW + 1
 * positions, so that a window never wraps. (Any capacity works: the start is a multiply, not a
 * mask, so no memory is lost to a power of two.)
 *
 * Invariants:
 *  - Only the home writes, one thread at a time (the caller's lock); readers take no lock.
 *  - From a key's start to each of its entries there is no EMPTY entry: a scan may stop there.
 *  - An insert may move other entries, within their windows, towards the end.
 *  - An entry is written under a per-entry sequence (state BUSY, words, final state) and carries a
 *    check word bound to its index. A reader accepts only a stable and verified copy; it retries
 *    KVCL_DIR_RETRIES times, then takes the entry as absent. A miss is allowed, a wrong location never.
 *  - Readers trust nothing in the mapped memory but what kvcl_dir_view_init checked once.
 * No I/O, no clock, no allocation. Expected outcomes (absent, stale, full) set no error sentence.
 */
#ifndef KVCL_DIR_TABLE_H
#define KVCL_DIR_TABLE_H

#include "dir/entry.h"
#include "kvcl/kvcl_status.h"

#include <stdbool.h>

enum {
    KVCL_DIR_WINDOW       = 64, /* entries a key may lie in: 4 KiB */
    KVCL_DIR_RETRIES      = 32, /* of a torn entry, by a mapped reader */
    KVCL_DIR_HEADER_BYTES = 64,
    KVCL_DIR_VERSION      = 1
};
#define KVCL_DIR_MAGIC     UINT64_C(0x315249444c43564b) /* "KVCLDIR1" */
#define KVCL_DIR_BYTES_MIN ((size_t)(KVCL_DIR_HEADER_BYTES + KVCL_DIR_WINDOW * KVCL_DIR_ENTRY_BYTES))

/* One entry as eight words, for copies that race with the home. */
typedef struct kvcl_dir_cell {
    _Alignas(64) _Atomic uint64_t word[8];
} kvcl_dir_cell_t;

/* What a reader keeps of a mapped table. The memory must stay mapped while the view is used. */
typedef struct kvcl_dir_view {
    const kvcl_dir_cell_t *cells;
    uint64_t               capacity; /* entries, checked against the mapped bytes */
    uint64_t               starts;   /* capacity - WINDOW + 1 */
} kvcl_dir_view_t;

/* The home's handle. Fields are private to table.c, counters may be read. */
typedef struct kvcl_dir_table {
    kvcl_dir_view_t  view;
    kvcl_dir_cell_t *cells; /* the caller's memory, writable */
    uint64_t         count; /* live entries */
    uint64_t         tombs; /* removed entries that scans must still step over */
} kvcl_dir_table_t;

/* ---- The home ---------------------------------------------------------------------------- */

/** Bytes of memory for @a entries entries (at least KVCL_DIR_BYTES_MIN). Plan for a load of at
 * most 3/4 (86 bytes a location): beyond that scans become long, and at 95% inserts fail. */
size_t kvcl_dir_table_bytes(uint64_t entries);

/**
 * Make @a mem an empty table and @a table the handle to write it. All of it is written once.
 * @a mem is aligned to 64 bytes, at least KVCL_DIR_BYTES_MIN long, stays the caller's and must
 * outlive the table.
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM.
 */
kvcl_status_t kvcl_dir_table_format(kvcl_dir_table_t *table, void *mem, size_t bytes) KVCL_MUST_CHECK;

/**
 * Add a location of @a key, or refresh the one with the same rank, cache and slot.
 * @return KVCL_OK; KVCL_ERR_STALE: a newer incarnation or generation of that slot is there, nothing
 *         changed; KVCL_ERR_EXISTS: KVCL_DIR_LOCS_MAX other copies are there; KVCL_ERR_NO_SPACE: the
 *         window is full, and no room could be made in it; KVCL_ERR_INVALID_PARAM: gen 0,
 *         KVCL_DIR_RANK_NONE, or unknown flags.
 */
kvcl_status_t kvcl_dir_table_insert(kvcl_dir_table_t *table, const kvcl_key_t *key,
                                    const kvcl_dir_loc_t *loc) KVCL_MUST_CHECK;

/**
 * Remove the location of @a key that equals @a loc in rank, incarnation, cache, slot and gen (the
 * other fields are not looked at), so that a late remove never kills a newer publish.
 * @return KVCL_OK; KVCL_ERR_NOT_FOUND; KVCL_ERR_STALE: that slot is there with another incarnation
 *         or generation, nothing changed.
 */
kvcl_status_t kvcl_dir_table_remove(kvcl_dir_table_t *table, const kvcl_key_t *key,
                                    const kvcl_dir_loc_t *loc) KVCL_MUST_CHECK;

/** Remove all locations of @a rank up to and including @a incarnation. @return how many. */
uint64_t kvcl_dir_table_remove_rank(kvcl_dir_table_t *table, uint16_t rank, uint16_t incarnation);

/** Remove the locations for which @a drop returns true; it must not access the table. @return their number. */
uint64_t kvcl_dir_table_remove_if(kvcl_dir_table_t *table,
                                  bool (*drop)(void *arg, const kvcl_key_t *key,
                                  const kvcl_dir_loc_t *loc),
                                  void *arg);

/** The locations of @a key. @return how many, 0 to KVCL_DIR_LOCS_MAX. */
unsigned kvcl_dir_table_find(const kvcl_dir_table_t *table, const kvcl_key_t *key,
                             kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX]);

/** Walk all live entries: start with *@a cursor 0. @return false at the end. The table may be
 * changed between two calls; an entry that stays is seen, and once if nothing was inserted meanwhile
 * (an insert may move others on). */
bool kvcl_dir_table_next(const kvcl_dir_table_t *table, uint64_t *cursor, kvcl_key_t *key,
                         kvcl_dir_loc_t *loc);
/** The same, as far as cell @a end: at false *@a cursor is the smaller of @a end and the capacity. */
bool kvcl_dir_table_next_to(const kvcl_dir_table_t *table, uint64_t *cursor, uint64_t end, kvcl_key_t *key,
                            kvcl_dir_loc_t *loc);

/** Invariant checker for tests and debug builds: counters, check words, reachability. */
bool kvcl_dir_table_check(const kvcl_dir_table_t *table);

/* ---- Readers: any process that maps the table, any thread, while the home writes ------------ */

/**
 * Check the header of a mapped table once. Whatever garbage the memory holds, reads through
 * @a view stay inside [mem, mem + bytes).
 * @return KVCL_OK, KVCL_ERR_PROTOCOL (no table), KVCL_ERR_VERSION, KVCL_ERR_OUT_OF_RANGE (its
 *         capacity exceeds @a bytes), KVCL_ERR_INVALID_PARAM (mem not aligned to 64).
 */
kvcl_status_t kvcl_dir_view_init(kvcl_dir_view_t *view, const void *mem, size_t bytes) KVCL_MUST_CHECK;

/** Bring the first lines that a read of @a key will need nearer. */
void kvcl_dir_prefetch(const kvcl_dir_view_t *view, const kvcl_key_t *key);

/** The locations of @a key now. Lock-free, bounded. @return how many; 0 is a miss. */
unsigned kvcl_dir_read(const kvcl_dir_view_t *view, const kvcl_key_t *key,
                       kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX]);

/** kvcl_dir_read for @a n keys with prefetch: locations of keys[i] at locs[i], how many at counts[i].
 * @return how many keys have at least one location. */
size_t kvcl_dir_read_batch(const kvcl_dir_view_t *view, const kvcl_key_t *keys, size_t n,
                           kvcl_dir_loc_t (*locs)[KVCL_DIR_LOCS_MAX], uint8_t *counts);

/* ---- Readers over a network: a key's window is copied as a whole, then read ---------------------- */

enum { KVCL_DIR_WINDOW_BYTES = KVCL_DIR_WINDOW * KVCL_DIR_ENTRY_BYTES };

/**
 * Check a copy of a table's first KVCL_DIR_HEADER_BYTES bytes; @a bytes is the length of the table's memory. The view
 * has no memory: only the two functions below take it. Windows lie inside the table.
 * @return as kvcl_dir_view_init().
 */
kvcl_status_t kvcl_dir_far_init(kvcl_dir_view_t *view, const void *first, size_t bytes) KVCL_MUST_CHECK;
/** Where @a key's window begins, in bytes from the table's begin. */
uint64_t      kvcl_dir_far_offset(const kvcl_dir_view_t *view, const kvcl_key_t *key);
/**
 * The locations of @a key in @a window, a copy of KVCL_DIR_WINDOW_BYTES at that offset, aligned to 64, which the home
 * may have written meanwhile. @return how many; -1: an entry of the key was being written, copy the window again.
 */
int           kvcl_dir_far_read(const kvcl_dir_view_t *view, const kvcl_key_t *key, const void *window,
                                kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX]);

#endif
