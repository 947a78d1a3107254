/*
 * The segment log: the layout of the tier's file, the next writes, and the bytes known to be on the disk. A pure state
 * machine: it moves no bytes of records, does no I/O, calls no clock. Its driver (tier.c, or a test with a disk in
 * memory) takes an I/O with kvcl_seglog_next(), performs it, and reports its result with kvcl_seglog_done().
 *
 * Writing: records follow one another through staging chunks, each the next piece of the open segment. Every write has
 * a serial number; all writes below `written` have ended, all below `durable` were followed by a sync. A ticket is a
 * serial: its bytes are written (durable) once written (durable) has reached it. No byte is written twice in one use of
 * a segment: a flush pads the chunk, and the next one begins after it.
 *
 * A segment:  FREE -> OPEN (its trailer is durable as OPEN before any of its tickets is) -> DRAINING (full; its writes
 * end, then a sync) -> CLOSING (its footer is written) -> SEALED -> the oldest segment is opened again, and loses its
 * records. So all records that a footer names are on the disk, and none is copied: reuse is first in, first out.
 *
 * Keys: one index over the live records. A new record of a key replaces the old one; a drop leaves a tombstone.
 *
 * Owns: segments' records, the index, footers in flight. The staging memory is the caller's. One thread at a time.
 */
#ifndef KVCL_TIER_SEGLOG_H
#define KVCL_TIER_SEGLOG_H

#include "base/list.h"
#include "base/map.h"
#include "tier/segfmt.h"

enum { KVCL_SEGLOG_CHUNKS_MAX = 64, KVCL_SEGLOG_WINDOW = 4096 };

/* Where a block is. gen: the segment's use when it was written; another gen there means that it was evicted. */
typedef struct kvcl_tier_loc {
    uint32_t segment;
    uint32_t unit; /* of its data, in KVCL_SEG_UNIT */
    uint32_t gen;
    uint32_t len;
    uint64_t checksum;
} kvcl_tier_loc_t;

typedef enum {
    KVCL_SEGLOG_FREE,
    KVCL_SEGLOG_OPEN,
    KVCL_SEGLOG_DRAINING,
    KVCL_SEGLOG_CLOSING,
    KVCL_SEGLOG_SEALED
} kvcl_seglog_state_t;

typedef struct kvcl_seglog_seg {
    kvcl_list_t         link;  /* free or fifo (oldest first) */
    kvcl_list_t         due;   /* a trailer or footer to be written */
    kvcl_seglog_state_t state;
    kvcl_seg_use_t      use;
    uint32_t            n, room, live;
    kvcl_seg_rec_t      *recs; /* in the order of their units */
    uint64_t            used;  /* bytes from its beginning */
    uint64_t            last;  /* the ticket of its last write; since DRAINING */
    uint8_t             *buf;  /* trailer or footer in flight */
    uint64_t            buf_len;
    uint64_t            buf_serial;
} kvcl_seglog_seg_t;

typedef enum { KVCL_CHUNK_FREE, KVCL_CHUNK_FILLING, KVCL_CHUNK_CLOSED, KVCL_CHUNK_WRITING } kvcl_chunk_state_t;

typedef struct kvcl_seglog_chunk {
    uint8_t            *buf;
    kvcl_chunk_state_t state;
    uint32_t           segment;
    uint32_t           fillers; /* reservations whose bytes are still being copied */
    uint64_t           base;    /* in the segment */
    uint64_t           len;
    uint64_t           serial;
} kvcl_seglog_chunk_t;

/* Records of a segment that was opened again: those that are not dead were evicted. The taker frees recs and this. */
typedef struct kvcl_seglog_evicted {
    struct kvcl_seglog_evicted *next;
    kvcl_seg_rec_t             *recs;
    uint32_t                   n, segment, seq;
} kvcl_seglog_evicted_t;

typedef struct kvcl_seglog {
    kvcl_seg_super_t      super;
    kvcl_seglog_seg_t     *segs;
    kvcl_list_t           free, fifo, due;
    uint32_t              next_seq, life;
    kvcl_seglog_seg_t     *open; /* or NULL */
    uint64_t              opened; /* the ticket of the last OPEN trailer */
    kvcl_seglog_chunk_t   chunks[KVCL_SEGLOG_CHUNKS_MAX];
    unsigned              n_chunks, free_chunks;
    uint64_t              chunk_bytes;
    kvcl_seglog_chunk_t   *chunk; /* FILLING, or NULL */
    uint32_t              reserved; /* reservations not committed yet */
    kvcl_map_t            index;
    kvcl_seglog_evicted_t *evicted; /* not taken yet */
    uint64_t              next_serial, written, durable;
    uint64_t              sync_upto;  /* of the sync in flight, or 0 */
    uint64_t              want, want_next; /* tickets of flushes, the first not durable yet; 0: none */
    uint8_t               ended[KVCL_SEGLOG_WINDOW]; /* by serial */
    bool                  off; /* a write or sync failed: nothing is written any more */
    uint64_t              bytes_in, bytes_out; /* of records; of writes */
    uint64_t              live_bytes;
    uint64_t              hash_seed; /* of the index: the keys of a hostile file must not meet in one place of it */
    uint32_t              left_out;  /* segments that recovery did not scan */
} kvcl_seglog_t;

typedef enum { KVCL_SEGLOG_WRITE, KVCL_SEGLOG_SYNC } kvcl_seglog_kind_t;

typedef struct kvcl_seglog_io {
    kvcl_seglog_kind_t  kind;
    uint64_t            off; /* in the file */
    uint8_t             *buf;
    uint64_t            len;
    uint64_t            serial;
    kvcl_seglog_chunk_t *chunk; /* of these two, what is written */
    kvcl_seglog_seg_t   *seg;
} kvcl_seglog_io_t;

typedef struct kvcl_seglog_frag {
    uint8_t             *ptr;
    uint64_t            len;
    kvcl_seglog_chunk_t *chunk;
} kvcl_seglog_frag_t;

/* A place for a record: its bytes and its tail, if the file has them, go, in order, to frag[]. A caller that learns the
 * checksum while it copies sets loc.checksum before it commits. */
typedef struct kvcl_seglog_put {
    kvcl_tier_loc_t    loc;
    kvcl_seglog_frag_t header;
    uint32_t           rec;
    uint64_t           ticket;
    unsigned           n;
    kvcl_seglog_frag_t frag[KVCL_SEGLOG_CHUNKS_MAX + 1];
} kvcl_seglog_put_t;

/**
 * An empty log over a file divided as super says. @a life: a random number. @a staging: n_chunks pieces of chunk_bytes
 * (a multiple of KVCL_SEG_ALIGN), the caller's until kvcl_seglog_fini. @return KVCL_OK, KVCL_ERR_NO_MEMORY,
 * KVCL_ERR_INVALID_PARAM.
 */
kvcl_status_t kvcl_seglog_init(kvcl_seglog_t *log, const kvcl_seg_super_t *super, uint32_t life, uint8_t *staging,
                               unsigned n_chunks, uint64_t chunk_bytes) KVCL_MUST_CHECK;
void          kvcl_seglog_fini(kvcl_seglog_t *log);

/* Reads len bytes at off of the file. */
typedef kvcl_status_t (*kvcl_seglog_read_t)(void *arg, uint64_t off, uint8_t *buf, size_t len);

enum { KVCL_SEGLOG_SCRATCH = 256 * 1024 };

/* Bytes of segments without a good footer that one recovery scans; a crash leaves a few such segments. */
#define KVCL_SEGLOG_SCAN_MAX (UINT64_C(4) << 30)

/**
 * Fill an empty log from the file: by footers; a segment without a good one is scanned, each record's checksum is
 * checked, and the first I/Os write its footer. Unreadable records are left out, and so are the segments beyond
 * KVCL_SEGLOG_SCAN_MAX. The time is linear in the bytes of the file, whatever they are. Reads are whole
 * multiples of KVCL_SEG_ALIGN, into @a scratch (KVCL_SEGLOG_SCRATCH bytes) or memory of that alignment.
 * @param scanned_p  how many segments had to be scanned. @return KVCL_OK, KVCL_ERR_NO_MEMORY.
 */
kvcl_status_t kvcl_seglog_recover(kvcl_seglog_t *log, kvcl_seglog_read_t read, void *arg, uint8_t *scratch,
                                  uint32_t *scanned_p) KVCL_MUST_CHECK;


/**
 * Reserve a place for a record. The caller copies its bytes to put->frag[], with or without the lock, and commits;
 * until then no lookup finds the key and the chunks are not written.
 * @return KVCL_OK, KVCL_ERR_BUSY (no chunk or segment is free until writes end), KVCL_ERR_INVALID_PARAM (the length),
 *         KVCL_ERR_NO_MEMORY, KVCL_ERR_IO (off). On failure nothing has changed; a full segment may be sealed.
 */
kvcl_status_t kvcl_seglog_reserve(kvcl_seglog_t *log, const uint8_t *key, uint32_t len, uint64_t checksum,
                                  kvcl_seglog_put_t *put) KVCL_MUST_CHECK;
void          kvcl_seglog_commit(kvcl_seglog_t *log, const kvcl_seglog_put_t *put);
/** Instead of commit: the bytes did not come. The place stays taken, as a tombstone of no key. */
void          kvcl_seglog_abort(kvcl_seglog_t *log, const kvcl_seglog_put_t *put);

/** @return KVCL_OK, KVCL_ERR_NOT_FOUND; sets no sentence. */
kvcl_status_t kvcl_seglog_find(const kvcl_seglog_t *log, const uint8_t *key, kvcl_tier_loc_t *loc_p) KVCL_MUST_CHECK;
/** Is this key still there, at this place, in this use? */
bool          kvcl_seglog_holds(const kvcl_seglog_t *log, const uint8_t *key, const kvcl_tier_loc_t *loc);
/** Forget it and leave a tombstone (*ticket_p). @return KVCL_OK, KVCL_ERR_NOT_FOUND, KVCL_ERR_BUSY, NO_MEMORY. */
kvcl_status_t kvcl_seglog_drop(kvcl_seglog_t *log, const uint8_t *key, uint64_t *ticket_p) KVCL_MUST_CHECK;
/** Forget one whose bytes turned out bad; no tombstone. */
void          kvcl_seglog_forget(kvcl_seglog_t *log, const uint8_t *key, const kvcl_tier_loc_t *loc);

/**
 * Bytes of a segment's present use that are still in staging memory: those at `at`, or NULL; *len_p (in: how many are
 * wanted): how many are there, or how many from `at` are on the disk.
 */
const uint8_t *kvcl_seglog_staged(const kvcl_seglog_t *log, uint32_t segment, uint64_t at, uint64_t *len_p);

/** Request that everything reserved so far becomes durable. @return the ticket. */
uint64_t kvcl_seglog_flush(kvcl_seglog_t *log);
/** The open segment gets its footer, so that the next start need not scan. */
void     kvcl_seglog_seal(kvcl_seglog_t *log);
/** Nothing is in flight or due. */
bool     kvcl_seglog_idle(const kvcl_seglog_t *log);

/** The next I/O to perform, if there is one now. Each needs one kvcl_seglog_done(); several may be in flight. */
bool kvcl_seglog_next(kvcl_seglog_t *log, kvcl_seglog_io_t *io);
void kvcl_seglog_done(kvcl_seglog_t *log, const kvcl_seglog_io_t *io, bool ok);

/** Walk the live records: *it_p begins with 0. False: the end. */
bool kvcl_seglog_walk(const kvcl_seglog_t *log, uint64_t *it_p, const uint8_t **key_p, kvcl_tier_loc_t *loc_p);

/** Every rule of this page that can be looked at holds; for tests. */
bool kvcl_seglog_check(const kvcl_seglog_t *log);

#endif
