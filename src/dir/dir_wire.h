/*
 * The directory's messages: batches of publishes, removes and lookups to a home, and its answers.
 *
 * Every message is a 32-byte header and a body, all little-endian, no padding:
 *    0 u16 magic 0x4b44   2 u8 version   3 u8 type   4 u32 bytes of the whole message
 *    8 u64 view of the sender   16 u64 id, chosen by the requester, returned in the reply
 *   24 u32 n   28 i32 status (replies: of the whole batch; requests: 0)
 * Bodies:  PUBLISH, REMOVE        n records of 64 bytes: key 32, location 32
 *          LOOKUP                 n keys of 32 bytes
 *          PUBLISH_, REMOVE_REPLY n statuses of 1 byte, signed
 *          LOOKUP_REPLY           n counts of 1 byte (0..4), then sum(counts) locations of 32 bytes
 *
 * Unpacking trusts nothing: n is bounded by the length before anything is read, every count and
 * every type is checked, and what passes may be iterated without further checks. It copies nothing:
 * kvcl_dir_msg_t points into the message, which must outlive it. Packing writes straight into the
 * send buffer. Pure: no allocation, no lock.
 */
#ifndef KVCL_DIR_DIR_WIRE_H
#define KVCL_DIR_DIR_WIRE_H

#include "dir/entry.h"
#include "kvcl/kvcl_status.h"

#include <string.h>

enum {
    KVCL_DIR_MSG_MAGIC        = 0x4b44,
    KVCL_DIR_MSG_VERSION      = 1,
    KVCL_DIR_MSG_HEADER_BYTES = 32,
    KVCL_DIR_REC_BYTES        = 64,
    KVCL_DIR_KEY_BYTES        = 32,
    KVCL_DIR_BATCH_MAX        = 65536 /* keys in one message */
};

typedef enum {
    KVCL_DIR_MSG_PUBLISH       = 1,
    KVCL_DIR_MSG_REMOVE        = 2,
    KVCL_DIR_MSG_LOOKUP        = 3,
    KVCL_DIR_MSG_PUBLISH_REPLY = 4,
    KVCL_DIR_MSG_REMOVE_REPLY  = 5,
    KVCL_DIR_MSG_LOOKUP_REPLY  = 6
} kvcl_dir_msg_type_t;

/* An unpacked message: pointers into the bytes it came from. */
typedef struct kvcl_dir_msg {
    kvcl_dir_msg_type_t type;
    kvcl_status_t       status;
    uint64_t            view;
    uint64_t            id;
    uint32_t            n;
    uint32_t            n_locs; /* LOOKUP_REPLY: sum of counts */
    const uint8_t      *items;  /* records, keys, statuses or counts */
    const uint8_t      *locs;   /* LOOKUP_REPLY */
} kvcl_dir_msg_t;

/* ---- In: decode ---------------------------------------------------------------------------- */

/**
 * Check a whole message of @a len bytes and fill *@a msg with pointers into it.
 * @return KVCL_OK, KVCL_ERR_PROTOCOL, KVCL_ERR_VERSION; *@a msg is untouched then.
 */
kvcl_status_t kvcl_dir_msg_unpack(kvcl_dir_msg_t *msg, const void *buf, size_t len) KVCL_MUST_CHECK;

/* Key of item i of PUBLISH, REMOVE (stride 64) or LOOKUP (stride 32), in place. */
static inline const kvcl_key_t *kvcl_dir_msg_key(const kvcl_dir_msg_t *msg, uint32_t i)
{
    size_t stride = (msg->type == KVCL_DIR_MSG_LOOKUP) ? KVCL_DIR_KEY_BYTES : KVCL_DIR_REC_BYTES;

    return (const kvcl_key_t *)(const void *)(msg->items + stride * i);
}

/* Location of item i of PUBLISH or REMOVE. */
static inline void kvcl_dir_msg_rec_loc(const kvcl_dir_msg_t *msg, uint32_t i, kvcl_dir_loc_t *loc)
{
    memcpy(loc, msg->items + (size_t)KVCL_DIR_REC_BYTES * i + KVCL_DIR_KEY_BYTES, sizeof(*loc));
}

/* Status of item i of PUBLISH_REPLY or REMOVE_REPLY. */
static inline kvcl_status_t kvcl_dir_msg_status(const kvcl_dir_msg_t *msg, uint32_t i)
{
    return (kvcl_status_t)(int8_t)msg->items[i];
}

/* Walk a LOOKUP_REPLY in order: copy the locations of item i, *at (0 at first) moves on. */
static inline unsigned kvcl_dir_msg_locs(const kvcl_dir_msg_t *msg, uint32_t i, uint32_t *at,
                                         kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX])
{
    unsigned n = msg->items[i];

    memcpy(locs, msg->locs + (size_t)KVCL_DIR_LOC_BYTES * *at, (size_t)KVCL_DIR_LOC_BYTES * n);
    *at += n;
    return n;
}

/* ---- Out: encode --------------------------------------------------------------------------- */

/* A request that is being written. Fields are private. */
typedef struct kvcl_dir_pack {
    uint8_t *buf;
    size_t   cap;
    size_t   len;
    uint64_t view;
    uint64_t id;
    uint32_t n;
    uint8_t  type;
} kvcl_dir_pack_t;

/** Bytes of a request of @a n items of @a type; of the largest reply to one. */
size_t kvcl_dir_request_bytes(kvcl_dir_msg_type_t type, uint32_t n);
size_t kvcl_dir_reply_bytes_max(kvcl_dir_msg_type_t request, uint32_t n);

/** Begin a request in @a buf (the caller's). @return KVCL_OK, KVCL_ERR_NO_SPACE, KVCL_ERR_INVALID_PARAM. */
kvcl_status_t kvcl_dir_pack_begin(kvcl_dir_pack_t *pack, void *buf, size_t cap,
                                  kvcl_dir_msg_type_t type, uint64_t view, uint64_t id) KVCL_MUST_CHECK;

/** Append an item; @a loc is NULL for LOOKUP. @return KVCL_OK, KVCL_ERR_NO_SPACE: send what is there. */
kvcl_status_t kvcl_dir_pack_add(kvcl_dir_pack_t *pack, const kvcl_key_t *key,
                                const kvcl_dir_loc_t *loc) KVCL_MUST_CHECK;

/** Finish the header. @return the message's bytes. */
size_t kvcl_dir_pack_end(kvcl_dir_pack_t *pack);

/* A reply that is being written: items are put in order, one for each of the request's. */
typedef struct kvcl_dir_reply {
    uint8_t *buf;
    uint8_t *items; /* status or count of item i at items[i] */
    uint8_t *locs;  /* where the next location goes; the end of the message */
    uint64_t id;
    uint32_t n;
    uint8_t  type;
} kvcl_dir_reply_t;

/** Begin the reply to @a request in @a buf, kvcl_dir_reply_bytes_max() long.
 * @return KVCL_OK, KVCL_ERR_NO_SPACE. */
kvcl_status_t kvcl_dir_reply_begin(kvcl_dir_reply_t *reply, void *buf, size_t cap,
                                   const kvcl_dir_msg_t *request) KVCL_MUST_CHECK;

/* Answer item i of a PUBLISH or REMOVE. */
static inline void kvcl_dir_reply_status(kvcl_dir_reply_t *reply, uint32_t i, kvcl_status_t status)
{
    reply->items[i] = (uint8_t)(int8_t)status;
}

/* Answer item i of a LOOKUP; in order of i. */
static inline void kvcl_dir_reply_locs(kvcl_dir_reply_t *reply, uint32_t i, const kvcl_dir_loc_t *locs,
                                       unsigned n)
{
    reply->items[i] = (uint8_t)n;
    memcpy(reply->locs, locs, (size_t)n * KVCL_DIR_LOC_BYTES);
    reply->locs += (size_t)n * KVCL_DIR_LOC_BYTES;
}

/** Finish the header: @a view is the home's. @return the message's bytes. */
size_t kvcl_dir_reply_end(kvcl_dir_reply_t *reply, uint64_t view, kvcl_status_t status);

#endif
