/*
 * Messages of the store room on the wire (wire/wire.h has the encoding).
 *
 * DIR_REQUEST goes to a home or to another rank, and DIR_ANSWER answers it. WITHDRAW notifies an owner that one of its
 * keys was removed, or (KVCL_WITHDRAW_CORRUPT, one record) that its copy does not match the record's checksum: the
 * owner then checks the copy. Payloads of DIR_REQUEST, by kind:
 *   PUBLISH, REMOVE, LOOKUP   a message of dir/dir_wire.h, and so is the answer's payload
 *   PRESENT      n keys of 32 bytes          answer: n bytes of KVCL_PRESENT_*
 *   REMOVE_KEYS  n keys                      answer: nothing; with views KVCL_ERR_STALE until their holders have
 *                                            dropped the blocks (WITHDRAW), which they say by a REMOVE
 *   FETCH        n keys, bytes of a block (u64)   answer: a LOOKUP_REPLY of dir_wire.h; n bytes: 0, or 1 plus the
 *                number of the key's location whose bytes follow; those bytes, a block each, in canonical order
 *   TABLE        nothing                     answer: a region's description (mem/region.h)
 *   COPY         kvcl_copy_head_t, n records of blocks of one size   answer: kvcl_copy_tail_t, n bytes: copies made
 *   USED         n kvcl_store_use_t: blocks of the receiver that were got   no answer
 *   EVENTS       since, most events, ns to wait (u64 each)   answer: rows (store/admin/rows_wire.h)
 *   LIST         cursor, most blocks (u64 each)   answer: cursor, newest event (u64 each), rows (as above)
 *   PIN          holder, ns, flags, n (u64 each), n keys   answer: n bytes: 0 absent, 1 pinned, 2 too many pins
 *   QUOTA        tenant, bytes (u64 each)    answer: nothing
 *   CLEAR        tenant, cursor (u64 each)   answer: cursor, copies removed (u64 each)
 *   DISCARD      rank (i64), n (u64), n records   answer: copies discarded (u64); rank -1: by key, listed or not
 *   STATS        nothing, or a tenant (u64)  answer: numbers (store/admin/stats_wire.h)
 *   HELD         records that homes list     answer: a byte each: 1 if the receiver has that block, and keeps it
 *   STAGE        n records of blocks in the receiver's tier   answer: n kvcl_stage_got_t
 *   RELEASE      n kvcl_stage_got_t that have been read   no answer
 *   FORGET       n keys that were removed: they leave the tier   answer: nothing
 *   MOVED        kvcl_moved_t: what the sender has done while shards move   answer: nothing
 *   ASK          nothing; `store` is the name of the slots (store/grow/part.h)   answer: kvcl_part_t, as TAKE's
 *   TAKE         kvcl_part_t of a rank that comes, or leaves   answer: that of the receiver, who has taken it;
 *                KVCL_ERR_BUSY: not yet; KVCL_ERR_INVALID_PARAM: their parameters differ
 *   ALL_LISTED   nothing: the blocks that the sender's tier had at its opening are listed   answer: nothing
 * A request with op 0 gets no answer. All input is hostile: counts are checked against the length first.
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
    KVCL_RPC_USED        = 8, /* to an owner, no answer: the sender got these blocks */
    KVCL_RPC_MOVED       = 10, /* to every rank: shards move (dir/moves.h) */
    KVCL_RPC_ASK         = 11, /* of a rank that comes to an open store (store/grow/part.h): which store is it? */
    KVCL_RPC_TAKE        = 12, /* it comes, or a rank leaves */
    KVCL_RPC_FETCH       = 9, /* a LOOKUP whose answer has the bytes of blocks that the home holds */
    /* About a rank's own part (admin/ops.h) */
    KVCL_RPC_EVENTS      = 16,
    KVCL_RPC_LIST        = 17,
    KVCL_RPC_PIN         = 18,
    KVCL_RPC_QUOTA       = 19,
    KVCL_RPC_CLEAR       = 20,
    KVCL_RPC_DISCARD       = 21,
    KVCL_RPC_STATS       = 22,
    KVCL_RPC_HELD        = 23,
    /* To the owner of a tier (cold/cold.h) */
    KVCL_RPC_STAGE       = 32,
    KVCL_RPC_RELEASE     = 33,
    KVCL_RPC_FORGET      = 34,
    KVCL_RPC_ALL_LISTED  = 35, /* to every rank */
    KVCL_RPC_KINDS /* a new kind gets its number above and its row in kinds.c */
};

enum { KVCL_RPC_KEYS_MAX = 4096 }; /* keys in one request; a longer list takes several requests */

typedef struct kvcl_moved {
    uint64_t id;       /* of the set of ranks: kvcl_moves_t.id */
    uint8_t  listed;   /* 1: the sender's blocks are listed at their new homes */
    uint8_t  switched; /* 1: the sender looks keys up at them */
    uint8_t  asks;     /* 1: it wants to be told the same of the receiver */
    uint8_t  reserved[5];
} kvcl_moved_t;
_Static_assert(sizeof(kvcl_moved_t) == 16, "wire format");

enum { KVCL_FETCH_MAX = 256 * 1024 }; /* bytes of blocks in the answer of one FETCH */

enum { KVCL_STAGE_MAX = 1024 }; /* blocks in one STAGE or RELEASE */

/* The staging block into which a block of the tier was read. */
typedef struct kvcl_stage_got {
    int32_t  status;
    uint16_t cache;
    uint16_t reserved;
    uint32_t slot;
    uint32_t gen;
} kvcl_stage_got_t;
_Static_assert(sizeof(kvcl_stage_got_t) == 16, "wire format");

enum { KVCL_USES_MAX = 1024 }; /* in one USED */

typedef struct kvcl_store_use {
    uint32_t cache;
    uint32_t slot;
    uint32_t gen;
} kvcl_store_use_t;
_Static_assert(sizeof(kvcl_store_use_t) == 12, "wire format");

enum { KVCL_COPY_MAX = 1024 }; /* records in one COPY */
enum { KVCL_COPY_UNLISTED = 0x1 }; /* copy the blocks even though no home lists them */

/* COPY: the receiver copies these blocks from where the records say into its pool, lists them, and then requests the
 * same of next[0], with its own copies as the source. */
typedef struct kvcl_copy_head {
    uint8_t  copies;  /* copies of each block in all, 1 to KVCL_DIR_LOCS_MAX */
    uint8_t  n_next;  /* at most KVCL_DIR_LOCS_MAX - 2 */
    uint16_t next[KVCL_DIR_LOCS_MAX - 2];
    uint8_t  there;   /* of a put: copies that exist before the receiver's, the sender's included (of a value's parts:
                         copies in all, since the sender's is dropped); else 0 */
    uint8_t  flags;   /* KVCL_COPY_* */
    uint64_t tenant;  /* of the blocks; 0: none, or not known */
} kvcl_copy_head_t;
_Static_assert(sizeof(kvcl_copy_head_t) == 16, "wire format");

typedef struct kvcl_copy_tail {
    uint64_t pool_free; /* free bytes of the receiver's pool, for any block size */
    uint64_t size_free; /* bytes of blocks of this size that it can take without an eviction */
} kvcl_copy_tail_t;
_Static_assert(sizeof(kvcl_copy_tail_t) == 16, "wire format");

enum {
    KVCL_PRESENT_SOMEWHERE = 1,
    KVCL_PRESENT_YOURS     = 2 /* the sender of the request holds a copy */
};

typedef struct kvcl_msg_dir_request {
    kvcl_msg_t msg;   /* op: the sender's, 0: no answer; flags: KVCL_RPC_* */
    uint64_t   store;
    uint32_t   n;     /* items in the payload */
    uint32_t   rank;  /* the sender's */
} kvcl_msg_dir_request_t;
_Static_assert(sizeof(kvcl_msg_dir_request_t) == 48, "wire format");

typedef struct kvcl_msg_dir_answer {
    kvcl_msg_t msg;    /* op, flags: from the request */
    int32_t    status; /* KVCL_OK; KVCL_ERR_NOT_FOUND: the rank has no such store; ... */
    uint32_t   n;
} kvcl_msg_dir_answer_t;
_Static_assert(sizeof(kvcl_msg_dir_answer_t) == 40, "wire format");

/* The record of a block in a publish and a remove, as in dir_wire.h. */
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

/* The owner's bits of kvcl_dir_loc_t.flags, beyond those of the tier. */
enum {
    KVCL_LOC_SUMMED       = 0x08, /* checksum is set */
    KVCL_LOC_COPIES_SHIFT = 4,    /* bits 4-5: copies that the block is to have, less one */
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
