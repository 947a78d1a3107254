/*
 * The format of the tier's file. Pure encoders and decoders; every decoder treats its input as hostile.
 *
 *   file      head (KVCL_SEG_HEAD bytes: the super block, twice), then segments of one size
 *   segment   records in the order of their appends, free space, footer
 *   record    a header of one unit (64 bytes), then the data and, in a file with a key, a tail of 32 bytes that proves
 *             them (tier_key.h); a record of KVCL_SEG_BIG or more has its data on a bound
 *             of KVCL_SEG_ALIGN, so that it can be read straight into aligned memory; a smaller one follows at once
 *   footer    one entry of 48 bytes for each record, then a block of KVCL_SEG_ALIGN that ends with the trailer and
 *             holds nothing else, so that writing the trailer of the next use cannot tear the entries of this one
 *
 * A trailer is FREE (nothing was ever written here), OPEN (records may be here: scan) or SEALED (the entries before it
 * are complete, and all of them are on the disk). Every check word is seeded with the file's random id and covers its
 * position in the file, so bytes of another file, another place or another use of this place fail the check.
 * A use is a number (seq) and the random life of the log that began it: a use that a crash undid may leave records, and
 * its number is used again.
 * A record without data is a tombstone: it removes its key.
 */
#ifndef KVCL_TIER_SEGFMT_H
#define KVCL_TIER_SEGFMT_H

#include "kvcl/kvcl_status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    KVCL_SEG_UNIT  = 64,
    KVCL_SEG_ALIGN = 4096,
    KVCL_SEG_BIG   = 256 * 1024,
    KVCL_SEG_HEAD  = 64 * 1024,
    KVCL_SEG_ENTRY = 48,
    KVCL_SEG_KEY   = 32,
    KVCL_SEG_TAIL  = 32
};

typedef enum { KVCL_SEG_FREE = 1, KVCL_SEG_OPEN = 2, KVCL_SEG_SEALED = 3 } kvcl_seg_kind_t;

/* The super block: what the file is divided into. */
typedef struct kvcl_seg_super {
    uint64_t id;       /* random: the seed of all checks */
    uint64_t segment;  /* bytes of one; a multiple of KVCL_SEG_ALIGN */
    uint32_t n;        /* segments */
    uint32_t tail;     /* bytes behind the data of each record: 0, or KVCL_SEG_TAIL in a file with a key */
    uint64_t proof;    /* of that key (tier_key.h); 0: none */
} kvcl_seg_super_t;

/* A record, as memory and footers know it. */
typedef struct kvcl_seg_rec {
    uint8_t  key[KVCL_SEG_KEY];
    uint64_t checksum; /* kvcl_checksum of the data */
    uint32_t unit;     /* where the data begins, in units of its segment; KVCL_SEG_DEAD may be set, in memory only */
    uint32_t len;      /* 0: a tombstone */
} kvcl_seg_rec_t;

#define KVCL_SEG_DEAD UINT32_C(0x80000000)

/* Which use of a segment. */
typedef struct kvcl_seg_use {
    uint32_t seq;  /* rises from use to use of all segments; 0: none */
    uint32_t life; /* of the log that began it */
} kvcl_seg_use_t;

typedef struct kvcl_seg_trailer {
    kvcl_seg_kind_t kind;
    kvcl_seg_use_t  use; /* none for FREE */
    uint32_t        n;   /* entries; SEALED only */
    uint64_t        sum; /* of the entries */
} kvcl_seg_trailer_t;

static inline uint64_t kvcl_seg_align(uint64_t at, uint64_t to)
{
    return (at + to - 1) / to * to;
}

/* Bytes that a record's data and tail take. */
static inline uint64_t kvcl_seg_bytes(const kvcl_seg_super_t *super, uint32_t len)
{
    return (len > 0) ? (uint64_t)len + super->tail : 0;
}

/* Where in the file a segment begins. */
static inline uint64_t kvcl_seg_base(const kvcl_seg_super_t *super, uint32_t segment)
{
    return KVCL_SEG_HEAD + segment * super->segment;
}

/* The offset of a record's data after `used` bytes. */
static inline uint64_t kvcl_seg_place(uint64_t used, uint32_t len)
{
    uint64_t at = kvcl_seg_align(used, KVCL_SEG_UNIT) + KVCL_SEG_UNIT;

    return (len >= KVCL_SEG_BIG) ? kvcl_seg_align(at, KVCL_SEG_ALIGN) : at;
}

/* Bytes at the end of a segment that a footer of n entries takes, in whole KVCL_SEG_ALIGN. */
static inline uint64_t kvcl_seg_footer_bytes(uint64_t n)
{
    return kvcl_seg_align(n * KVCL_SEG_ENTRY, KVCL_SEG_ALIGN) + KVCL_SEG_ALIGN;
}

/** How a file of `size` bytes without a key is divided; segment 0: as fits the size.
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM. */
kvcl_status_t kvcl_seg_divide(uint64_t size, uint64_t segment, kvcl_seg_super_t *super) KVCL_MUST_CHECK;

/* The super block fills KVCL_SEG_ALIGN bytes; its two copies stand at 0 and at KVCL_SEG_HEAD / 2. */
void kvcl_seg_super_put(const kvcl_seg_super_t *super, uint8_t *block);
bool kvcl_seg_super_get(const uint8_t *block, kvcl_seg_super_t *super);
/* The first block of a file that is being formatted: KVCL_SEG_ALIGN bytes, in the place of the super block. */
void kvcl_seg_unfinished_put(uint8_t *block);
bool kvcl_seg_unfinished(const uint8_t *block);

/* A record's header, KVCL_SEG_UNIT bytes, `unit` - 1 units into the segment. */
void kvcl_seg_header_put(const kvcl_seg_super_t *super, uint32_t segment, kvcl_seg_use_t use,
                         const kvcl_seg_rec_t *rec, uint8_t *out);
bool kvcl_seg_header_get(const kvcl_seg_super_t *super, uint32_t segment, uint32_t unit, const uint8_t *in,
                         kvcl_seg_use_t *use_p, kvcl_seg_rec_t *rec);

void kvcl_seg_trailer_put(const kvcl_seg_super_t *super, uint32_t segment, const kvcl_seg_trailer_t *trailer,
                          uint8_t *out);
bool kvcl_seg_trailer_get(const kvcl_seg_super_t *super, uint32_t segment, const uint8_t *in,
                          kvcl_seg_trailer_t *trailer);

/**
 * The footer of recs[], as the last *bytes_p bytes of the segment. Records that are dead by now stand in it too: what
 * replaced them may not outlive a crash. @a out has room for kvcl_seg_footer_bytes(n).
 */
void kvcl_seg_footer_put(const kvcl_seg_super_t *super, uint32_t segment, kvcl_seg_use_t use,
                         const kvcl_seg_rec_t *recs, uint32_t n, uint8_t *out, uint64_t *bytes_p);
/** Entries of a footer: its first bytes. False if any of them is not what a log writes. */
bool kvcl_seg_entries_get(const kvcl_seg_super_t *super, const kvcl_seg_trailer_t *trailer, const uint8_t *entries,
                          kvcl_seg_rec_t *recs);

#endif
