/*
 * Messages of the store room, as they travel (wire/wire.h says how).
 *
 * DIR_REQUEST goes to the home of keys, DIR_ANSWER comes back; WITHDRAW tells an owner that one of its keys was
 * removed, or (KVCL_WITHDRAW_CORRUPT, one record) that its copy does not match the record's checksum: the owner checks
 * it. Payloads, by kind: PUBLISH, REMOVE, LOOKUP   a message of dir/dir_wire.h, and so is the answer's payload PRESENT
 * n keys of 32 bytes          answer: n bytes of KVCL_PRESENT_* REMOVE_KEYS  n keys                      answer:
 * nothing FETCH        n keys, bytes of a block (u64)   answer: a LOOKUP_REPLY of dir_wire.h; n bytes: 0, or 1 and
 * more: the bytes of this location of the key come along; those bytes, a block each, in canonical order TABLE
 * nothing                     answer: a region's description (mem/region.h) COPY         kvcl_copy_head_t, n records of
 * blocks of one size   answer: kvcl_copy_tail_t, n bytes: how many copies were made USED         n kvcl_store_use_t:
 * blocks of the asked one that were got   no answer EVENTS       since, how many, ns to wait (u64 each)   answer: rows
 * (store/admin/rows_wire.h) LIST         cursor, how many (u64 each)  answer: cursor, newest event (u64 each), rows (as
 * above) PIN          holder, ns, flags, n (u64 each), n keys  answer: n bytes: pinned, not here, too many QUOTA
 * tenant, bytes (u64 each)     answer: nothing CLEAR        tenant, cursor (u64 each)    answer: cursor, copies removed
 * (u64 each) DISCARD        rank (i64), n (u64), n records  answer: copies given up (u64); rank -1: by key, listed or
 * not STATS        nothing                      answer: numbers (store/admin/stats_wire.h) STAGE        n records of
 * blocks in the asked one's tier   answer: n kvcl_stage_got_t FORGET       n keys that were removed: they leave the
 * tier   answer: nothing ALL_LISTED   nothing: what my tier held when I came is listed   answer: nothing RELEASE
 * n kvcl_stage_got_t: they have been read       no answer An ask whose op is 0 wants no answer. Everything is hostile:
 * counts are checked against the length first.
 */
#ifndef KVCL_STORE_WIRE_H
#define KVCL_STORE_WIRE_H

#include "wire/wire.h"
#include "dir/dir_wire.h"

enum {
    KVCL_RPC_PUBLISH     = 1,
    KVCL_RPC_REMOVE      = 2,
    KVCL_RPC_LOOKUP      = 3,
    KVCL_RPC_PRESENT     = 4,
    KVCL_RPC_REMOVE_KEYS = 5,
    KVCL_RPC_TABLE       = 6,
    KVCL_RPC_COPY        = 7,
    KVCL_RPC_USED        = 8, /* to an owner, no answer: blocks of yours that I got */
    KVCL_RPC_FETCH       = 9, /* a LOOKUP whose answer brings what the home itself holds */
    /* Of a rank about its own part (ops.h) */
    KVCL_RPC_EVENTS      = 16,
    KVCL_RPC_LIST        = 17,
    KVCL_RPC_PIN         = 18,
    KVCL_RPC_QUOTA       = 19,
    KVCL_RPC_CLEAR       = 20,
    KVCL_RPC_DISCARD       = 21,
    KVCL_RPC_STATS       = 22,
    /* Of the owner of a tier (cold/cold.h) */
    KVCL_RPC_STAGE       = 32,
    KVCL_RPC_RELEASE     = 33,
    KVCL_RPC_FORGET      = 34,
    KVCL_RPC_ALL_LISTED  = 35, /* to every rank */
    KVCL_RPC_KINDS /* a new kind: its number above, its row in kinds.c */
};

enum { KVCL_RPC_KEYS_MAX = 4096 }; /* in one ask; a longer list is several */

enum { KVCL_FETCH_MAX = 256 * 1024 }; /* bytes of blocks that one FETCH asks for */

enum { KVCL_STAGE_MAX = 1024 }; /* blocks in one STAGE or RELEASE */

/* Where a block of the tier has been read to. */
typedef struct kvcl_stage_got {
    int32_t  status;
    uint16_t cache;
    uint16_t reserved;
    uint32_t slot;
    uint32_t gen;
} kvcl_stage_got_t;
_Static_assert(sizeof(kvcl_stage_got_t) == 16, "wire format");

enum { KVCL_USES_MAX = 64 }; /* in one USED */

typedef struct kvcl_store_use {
    uint32_t cache;
    uint32_t slot;
    uint32_t gen;
} kvcl_store_use_t;
_Static_assert(sizeof(kvcl_store_use_t) == 12, "wire format");

enum { KVCL_COPY_MAX = 1024 }; /* records in one COPY */
enum { KVCL_COPY_UNLISTED = 0x1 }; /* no home lists the blocks that the records name: it takes copies all the same */

/* COPY: take copies of these blocks from where the records say into your pool, list them, then ask next[0] for the
 * same, of yours. */
typedef struct kvcl_copy_head {
    uint8_t  copies;  /* wanted of each block in all, 1 to KVCL_DIR_LOCS_MAX */
    uint8_t  n_next;  /* at most KVCL_DIR_LOCS_MAX - 2 */
    uint16_t next[KVCL_DIR_LOCS_MAX - 2];
    uint8_t  there;   /* of a put: how many copies there are before yours, the asker's counted (of a value's parts:
                         all that there shall be, since the asker's goes); else 0 */
    uint8_t  flags;   /* KVCL_COPY_* */
    uint64_t tenant;  /* whose blocks these are; 0: nobody's, or not known */
} kvcl_copy_head_t;
_Static_assert(sizeof(kvcl_copy_head_t) == 16, "wire format");

typedef struct kvcl_copy_tail {
    uint64_t pool_free; /* bytes of the answerer's pool that are free, for whatever size */
    uint64_t size_free; /* bytes that it could take of such blocks without evicting */
} kvcl_copy_tail_t;
_Static_assert(sizeof(kvcl_copy_tail_t) == 16, "wire format");

enum {
    KVCL_PRESENT_SOMEWHERE = 1,
    KVCL_PRESENT_YOURS     = 2 /* the asker itself holds a copy */
};

typedef struct kvcl_msg_dir_request {
    kvcl_msg_t msg;   /* op: the asker's, flags: KVCL_RPC_* */
    uint64_t   store;
    uint32_t   n;     /* items in the payload */
    uint32_t   rank;  /* the asker's */
} kvcl_msg_dir_request_t;
_Static_assert(sizeof(kvcl_msg_dir_request_t) == 48, "wire format");

typedef struct kvcl_msg_dir_answer {
    kvcl_msg_t msg;    /* op, flags: from the ask */
    int32_t    status; /* KVCL_OK, KVCL_ERR_NOT_FOUND: no such store here (any more), ... */
    uint32_t   n;
} kvcl_msg_dir_answer_t;
_Static_assert(sizeof(kvcl_msg_dir_answer_t) == 40, "wire format");

/* What a publish and a remove carry for each block: as a record of dir_wire.h. */
typedef struct kvcl_store_rec {
    kvcl_key_t     key;
    kvcl_dir_loc_t loc;
} kvcl_store_rec_t;
_Static_assert(sizeof(kvcl_store_rec_t) == KVCL_DIR_REC_BYTES, "wire format");

enum { KVCL_WITHDRAW_CORRUPT = 1 }; /* msg.flags */

typedef struct kvcl_msg_withdraw {
    kvcl_msg_t msg;
    uint64_t   store;
    uint32_t   n;     /* payload: n kvcl_store_rec_t */
    uint32_t   reserved;
} kvcl_msg_withdraw_t;
_Static_assert(sizeof(kvcl_msg_withdraw_t) == 48, "wire format");

/* Owner's bits of kvcl_dir_loc_t.flags beyond the tier. */
enum {
    KVCL_LOC_SUMMED       = 0x08, /* checksum is set */
    KVCL_LOC_COPIES_SHIFT = 4,    /* bits 4-5: how many copies of the block there shall be, less one */
    KVCL_LOC_COPIES_MASK  = 0x30
};

static inline bool kvcl_loc_is_nvme(const kvcl_dir_loc_t *loc)
{
    return (loc->flags & KVCL_DIR_TIER_MASK) == KVCL_DIR_TIER_NVME;
}

static inline unsigned kvcl_loc_copies(unsigned flags)
{
    return ((flags & KVCL_LOC_COPIES_MASK) >> KVCL_LOC_COPIES_SHIFT) + 1;
}

#endif
