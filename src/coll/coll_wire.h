/*
 * The wire format of the message of collectives (wire/wire.h).
 *
 * ANNOUNCE  bytes [off, off + len) of the sender's buffer may be pulled; the k-th announcement to this receiver in this
 *           collective. Payload: the bytes themselves (EAGER), or their block ids in a cache of the sender (SOURCE,
 *           once per collective and receiver, with any of its announcements), or nothing. STAGED: they are in the slot
 *           `cache` of the sender's stage (coll_stage.h), whose packed segment is the payload of the first such
 *           announcement in this collective to this receiver. op is the offer under which they may be pulled by
 *           message; 0 with EAGER and for announcements without bytes.
 *           NEAR: they are in the sender's memory, as the payload says (near/near.h).
 *           NO_ACK, with EAGER: the sender's step is done, and no ACK is sent.
 * ACK       the k-th announcement of the receiver has been pulled. UNMAPPED: not from the stage, which the sender of
 *           the ACK cannot map. UNREAD: it cannot read the memory of NEAR.
 * ABORT     status: the sender no longer reads the receiver's buffer and announces nothing more in this collective.
 *           Payload: a kvcl_coll_unlike_t, if the ranks' calls differ; or nothing.
 * COMPARE   the sender still waits, shortly before its deadline: a receiver whose call differs answers by ABORT.
 *
 * called: the sender's call; kind 0 where it does not know it (any more). Ranks compare it with their own. It came
 * later than the other fields: a header may end before it, which is as kind 0.
 *
 * token, n_blocks and block_bytes describe the sender's buffer, so that ranks whose selections differ detect that;
 * all are 0 for plain bytes.
 */
#ifndef KVCL_COLL_WIRE_H
#define KVCL_COLL_WIRE_H

#include "kv/side.h"
#include "wire/wire.h"

enum { KVCL_COLL_ANNOUNCE = 1, KVCL_COLL_ACK = 2, KVCL_COLL_ABORT = 3, KVCL_COLL_COMPARE = 4 };

/* msg.flags; ANSWER: an ABORT, no reply */
enum { KVCL_COLL_EAGER = 1, KVCL_COLL_SOURCE = 2, KVCL_COLL_ANSWER = 4, KVCL_COLL_STAGED = 8, KVCL_COLL_UNMAPPED = 16,
       KVCL_COLL_NO_ACK = 32, KVCL_COLL_NEAR = 64, KVCL_COLL_UNREAD = 128 };

/* kinds of kvcl_coll_called_t that are no collectives, but stand in one order with them (kvcl_recover.h) */
enum { KVCL_COLL_CALLED_AGREE = 1 << 16, KVCL_COLL_CALLED_SHRINK };

typedef struct kvcl_coll_called {
    uint64_t bytes;     /* as kvcl_coll_shape_t.len */
    uint32_t root;
    uint32_t kind;      /* 1 + kvcl_coll_kind_t; or one of the above */
    uint32_t blocks;    /* 1: a broadcast of blocks of caches */
    uint32_t reduction; /* as kvcl_coll_shape_t.reduction */
} kvcl_coll_called_t;
_Static_assert(sizeof(kvcl_coll_called_t) == 24, "wire format");

/* Two calls that differ, and their ranks. */
typedef struct kvcl_coll_unlike {
    uint32_t           ranks[2];
    kvcl_coll_called_t calls[2];
} kvcl_coll_unlike_t;
_Static_assert(sizeof(kvcl_coll_unlike_t) == 56, "wire format");

typedef struct kvcl_msg_coll {
    kvcl_msg_t   msg;
    uint64_t     comm;
    uint64_t     seq;       /* of the collective in its communicator, from 0 */
    uint32_t     rank;      /* the sender's */
    uint32_t     kind;      /* KVCL_COLL_ANNOUNCE, ... */
    uint32_t     k;
    uint32_t     signature; /* of the plan */
    uint64_t     off;
    uint64_t     len;
    int32_t      status;    /* ABORT */
    uint32_t     cache;     /* SOURCE: the sender's; STAGED: the slot */
    kvcl_token_t token;     /* shape of a selected block; layers 0: opaque */
    uint64_t     n_blocks;
    uint64_t     block_bytes;
    uint32_t     layers[2];
    uint32_t     heads[2];
    uint64_t     revoked;   /* ANNOUNCE: kvcl_revoked() at the sender; STAGED: kvcl_coll_stage_count() */
    kvcl_coll_called_t called;
} kvcl_msg_coll_t;
_Static_assert(sizeof(kvcl_msg_coll_t) == 176, "wire format");

#endif
