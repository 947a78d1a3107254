/*
 * The second tier of a store: blocks in a file, on a local NVMe if there is one. Asynchronous; every read is verified.
 *
 *   tier_spec.c    "/path:size"
 *   tier_file.c    the file: created, checked, locked, opened with O_DIRECT where possible
 *   tier.c         open, close; issuing writes, handling their completions
 *   tier_blocks.c  append, drop, flush, find, walk
 *   tier_key.c     what the key of a file proves
 *   tier_read.c    reads: straight into the caller's memory where alignment allows it, otherwise by bounce buffers
 *   tier_io.h      the I/O contract; seglog.h: the layout of the file
 *
 * The tier is a cache: a block may disappear at any time (its segment is used again, its bytes fail their checksum),
 * but never turns into other bytes. After a failed write the tier warns once and accepts no further blocks; after
 * repeated failed reads it holds none.
 *
 * Threads: any thread may make every call. One mutex, never held during I/O (during copies, at most of staged bytes).
 * Callbacks run on an I/O thread, or in the thread that called append, with no lock of the tier held; they may make any
 * call but close.
 */
#ifndef KVCL_TIER_TIER_H
#define KVCL_TIER_TIER_H

#include "tier/seglog.h"
#include "tier/tier_io.h"
#include "tier/tier_key.h"
#include "weave/bulk.h"

typedef struct kvcl_tier kvcl_tier_t;

typedef void (*kvcl_tier_cb_t)(void *arg, kvcl_status_t status);
/* A block was evicted: its segment is used again. */
typedef void (*kvcl_tier_evicted_cb_t)(void *arg, const uint8_t *key, const kvcl_tier_loc_t *loc);

typedef struct kvcl_tier_item {
    uint8_t         key[KVCL_SEG_KEY];
    kvcl_tier_loc_t loc;
} kvcl_tier_item_t;

typedef struct kvcl_tier_params {
    const char             *path;
    uint64_t               size;  /* bytes of the file, rounded down to whole segments */
    uint64_t               segment; /* 0: as fits the size */
    unsigned               depth; /* operations in flight; 0: 16 */
    uint64_t               staging; /* bytes of chunks; 0: 32 MiB */
    uint64_t               chunk; /* bytes of a write; 0: 1 MiB */
    const struct iovec     *mem;  /* memory that reads will target: registered for I/O if possible */
    unsigned               n_mem;
    kvcl_tier_evicted_cb_t gone;  /* or NULL */
    void                   *arg;
    bool                   format; /* drop whatever the file holds */
    bool                   fresh;  /* drop the blocks of a tier; another file, or key, is refused as ever */
    const kvcl_tier_key_t  *key;   /* the file's (tier_key.h), copied; NULL: none */
    const kvcl_tio_ops_t   *io;   /* NULL: io_uring if it can be used, else threads */
} kvcl_tier_params_t;

typedef struct kvcl_tier_stats {
    uint64_t   blocks, bytes;      /* held */
    uint64_t   bytes_in, bytes_out; /* of blocks taken; written to the file */
    uint64_t   reads, bad, failed; /* reads done; of them those whose bytes were others; that the disk refused */
    uint32_t   segments, scanned;  /* scanned when it was opened */
    uint64_t   open_ns;            /* what finding the blocks took */
    bool       off, direct;
    const char *io;
} kvcl_tier_stats_t;

/** "/path:size": *path_p is malloc'ed, the caller's. @return KVCL_OK, KVCL_ERR_INVALID_PARAM, KVCL_ERR_NO_MEMORY. */
kvcl_status_t kvcl_tier_spec_parse(const char *spec, char **path_p, uint64_t *size_p) KVCL_MUST_CHECK;

/**
 * Open the tier of a file, which is created if it is missing; its blocks are found again. Reads from the disk before it
 * returns. A non-empty file that is no tier is refused and left alone, unless params->format is set; one with other
 * segment sizes is formatted. So is one whose formatting was cut short, one without a key where one is given, and any
 * tier with params->fresh. A file with another key, or with one where none is given, is refused.
 * @return KVCL_OK, KVCL_ERR_ACCESS (a symbolic link, of another user, open to others, or of another key),
 *         KVCL_ERR_INVALID_PARAM,
 *         KVCL_ERR_NO_SPACE, KVCL_ERR_BUSY (another process has it), KVCL_ERR_EXISTS (no tier of KVCL's), KVCL_ERR_IO,
 *         KVCL_ERR_NO_MEMORY.
 */
kvcl_status_t kvcl_tier_open(const kvcl_tier_params_t *params, kvcl_tier_t **tier_p) KVCL_MUST_CHECK;

/**
 * Writes all accepted blocks and the open segment's footer. Every callback has run when it returns, after at most 10 s
 * for a disk that does not answer (its memory is then leaked). No other call may be in progress. NULL is allowed.
 */
void kvcl_tier_close(kvcl_tier_t *tier);

/**
 * Take a block: its bytes are copied before this returns, and it can be read at once. cb (may be NULL): it is in the
 * file (KVCL_OK), or may not be (KVCL_ERR_IO); it is called when its chunk is full or after a flush, perhaps before
 * this returns. A key that exists with the same length and checksum is not written again.
 * @param checksum  kvcl_checksum of the bytes. @param loc_p  may be NULL.
 * @return KVCL_OK, KVCL_ERR_EXISTS (not written again; no cb), KVCL_ERR_BUSY (until writes in flight end),
 *         KVCL_ERR_INVALID_PARAM (the length), KVCL_ERR_IO (off), KVCL_ERR_NO_MEMORY.
 */
kvcl_status_t kvcl_tier_append(kvcl_tier_t *tier, const uint8_t *key, uint64_t checksum, const void *bytes, size_t len,
                               kvcl_tier_cb_t cb, void *arg, kvcl_tier_loc_t *loc_p) KVCL_MUST_CHECK;

/* A block of kvcl_tier_append_all(). Its owner may write its bytes meanwhile (weave/copy_racy.h). */
typedef struct kvcl_tier_block {
    const uint8_t   *key;
    const uint8_t   *bytes;
    size_t          len;
    uint64_t        checksum; /* kvcl_checksum of the bytes; set if not summed: of those that were copied */
    bool            summed;
    void            *arg;     /* of still */
    kvcl_status_t   status;   /* set: as kvcl_tier_append, or KVCL_ERR_STALE */
    kvcl_tier_loc_t loc;      /* set: if OK or EXISTS */
} kvcl_tier_block_t;

/* The bytes were copied: were they that block's all the while? No lock. */
typedef bool (*kvcl_tier_still_t)(void *arg);

/**
 * Take blocks, of other keys each, several at a time: their bytes are copied side by side, and summed in the same pass
 * where they have no checksum (weave/blocks.h). Those after the first one that is BUSY are BUSY. STALE: still returned
 * false, no lookup finds the block, its place is wasted. One that is not summed is written again if its key exists.
 * @param how_p  how the bytes of all calls together are copied (weave/bulk.h).
 */
void kvcl_tier_append_all(kvcl_tier_t *tier, kvcl_tier_block_t *blocks, unsigned n, kvcl_tier_still_t still,
                          kvcl_bulk_how_t *how_p);

/**
 * Read a block into memory, verified: OK says that these are the bytes of key with the length and checksum of loc and,
 * in a file with a key, that a process with that key put them there. The
 * iov itself is copied; the memory is the tier's until cb, and undefined after a failure. cb: KVCL_OK, KVCL_ERR_STALE
 * (its place was used again meanwhile), KVCL_ERR_IO (the disk refused, or the bytes are others: the block is
 * forgotten).
 * @return KVCL_OK (cb will come), KVCL_ERR_NOT_FOUND (not there any more), KVCL_ERR_INVALID_PARAM (the iov's length is
 * not
 *         the block's), KVCL_ERR_BUSY (too many reads), KVCL_ERR_NO_MEMORY.
 */
kvcl_status_t kvcl_tier_read(kvcl_tier_t *tier, const uint8_t *key, const kvcl_tier_loc_t *loc, const struct iovec *iov,
                             unsigned n_iov, kvcl_tier_cb_t cb, void *arg) KVCL_MUST_CHECK;

/** @return KVCL_OK, KVCL_ERR_NOT_FOUND; sets no sentence. */
kvcl_status_t kvcl_tier_find(kvcl_tier_t *tier, const uint8_t *key, kvcl_tier_loc_t *loc_p) KVCL_MUST_CHECK;
/** Forget a key; it does not come back after the next flush. @return KVCL_OK, KVCL_ERR_NOT_FOUND, KVCL_ERR_BUSY (as
 * append), KVCL_ERR_NO_MEMORY. */
kvcl_status_t kvcl_tier_drop(kvcl_tier_t *tier, const uint8_t *key) KVCL_MUST_CHECK;
/** cb: everything taken and dropped so far survives a loss of power (KVCL_OK), or may not (KVCL_ERR_IO). */
kvcl_status_t kvcl_tier_flush(kvcl_tier_t *tier, kvcl_tier_cb_t cb, void *arg) KVCL_MUST_CHECK;

/** The next blocks, at most room; *it_p begins with 0. Blocks added or removed meanwhile may be left out. Returns how
 * many; 0: the end. */
size_t kvcl_tier_walk(kvcl_tier_t *tier, uint64_t *it_p, kvcl_tier_item_t *items, size_t room);
void   kvcl_tier_stats(kvcl_tier_t *tier, kvcl_tier_stats_t *stats);

#endif
