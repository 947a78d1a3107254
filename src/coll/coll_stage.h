/*
 * Staging memory of a communicator: how plain bytes travel between the processes of one host.
 *
 * Each rank makes one segment (mem/segment.h), which its peers map for reading. A sender copies a piece into a slot and
 * announces the slot; the receiver copies or reduces the bytes out of it, and its ACK frees the slot. So no peer reads
 * or writes a caller's buffer, and no byte passes through the kernel or a message.
 *
 * One operation of a communicator at a time holds the slots: operations run in the order of their numbers, so the
 * holder needs no later one, and ends. With so many slots for each peer as may be announced to it, no sender waits for
 * a slot. Where there is none, or a peer cannot map the segment, the bytes go by message, from an offer.
 *
 * A failed operation leaves slots that peers may still read. It raises the count at the beginning of the segment before
 * another one writes to a slot; announcements carry the count, and a reader that finds another one after its copy drops
 * the bytes.
 *
 * Engine lock, except for kvcl_coll_stage_make().
 */
#ifndef KVCL_COLL_STAGE_H
#define KVCL_COLL_STAGE_H

#include "mem/segment.h"

#include <kvcl/kvcl_comm.h>

#include <stdbool.h>
#include <stdint.h>

enum {
    KVCL_COLL_STAGE_MIN    = 4096,      /* bytes: shorter collectives do not look for the path */
    KVCL_COLL_STAGE_SLOT   = 256 << 10, /* bytes */
    KVCL_COLL_STAGE_SLOTS  = 32,        /* at most */
    KVCL_COLL_STAGE_WINDOW = 4          /* slots for each peer, unless that makes too many */
};

/* What this rank knows of another one's segment. */
typedef struct kvcl_coll_stage_peer {
    kvcl_segment_view_t view; /* addr NULL: not mapped */
    uint8_t             packed[KVCL_SEGMENT_WIRE_BYTES];
    bool                known;   /* packed is set, and mapping it was tried */
    bool                refused; /* it does not map this rank's segment */
    bool                unread;  /* it does not read this rank's memory */
} kvcl_coll_stage_peer_t;

typedef struct kvcl_coll_stage_slot {
    uint32_t refs; /* ACKs that it waits for; 0: free */
    uint64_t off;  /* it has these bytes of the holder's buffer, as they are now */
    uint64_t len;  /* 0: they have changed */
} kvcl_coll_stage_slot_t;

typedef struct kvcl_coll_stage {
    bool                   tried; /* made, or it could not be */
    kvcl_segment_t         segment;
    uint8_t                packed[KVCL_SEGMENT_WIRE_BYTES];
    kvcl_coll_stage_peer_t *peers; /* by rank; NULL: there is no stage */
    uint32_t               slots;
    uint32_t               window;
    struct kvcl_coll_op    *holder;
    uint32_t               n_free;
    uint8_t                free[KVCL_COLL_STAGE_SLOTS];
    kvcl_coll_stage_slot_t use[KVCL_COLL_STAGE_SLOTS];
} kvcl_coll_stage_t;

enum { KVCL_COLL_STAGE_NO_SLOT = 0xff };

struct kvcl_coll_comm;
struct kvcl_coll_op;
struct kvcl_coll_peer;

/** No lock held. Make the stage of a communicator, once. Where that fails there is none, and the log says why. */
void          kvcl_coll_stage_make(kvcl_comm_h comm, struct kvcl_coll_comm *cc);
void          kvcl_coll_stage_free(kvcl_coll_stage_t *stage, uint32_t size);

/** The operation begins: it holds the slots if it may use them. */
void          kvcl_coll_stage_hold(struct kvcl_coll_op *op);
/** It ends: all slots are free. */
void          kvcl_coll_stage_release(struct kvcl_coll_op *op, bool failed);

/** Copy len bytes at bytes, off in op's buffer, into a slot that the peer maps, for the SEND at index of the plan.
 *  @return the slot, KVCL_COLL_STAGE_NO_SLOT. */
uint8_t       kvcl_coll_stage_write(struct kvcl_coll_op *op, const struct kvcl_coll_peer *to, uint32_t index,
                                    const void *bytes, uint64_t off, uint64_t len);
/** These bytes of op's buffer have changed. */
void          kvcl_coll_stage_changed(struct kvcl_coll_op *op, uint64_t off, uint64_t len);
/** The SEND at index is done. */
void          kvcl_coll_stage_acked(struct kvcl_coll_op *op, uint32_t index);
uint64_t      kvcl_coll_stage_count(const kvcl_coll_stage_t *stage); /* of this rank's failures */

/** A peer describes its segment. @return KVCL_OK, also where it cannot be mapped; KVCL_ERR_PROTOCOL. */
kvcl_status_t kvcl_coll_stage_describe(struct kvcl_coll_comm *cc, uint32_t rank, const void *packed, size_t len)
    KVCL_MUST_CHECK;
/** The bytes of a slot of a peer; NULL: not mapped, or there is no such slot. */
const void    *kvcl_coll_stage_read(const struct kvcl_coll_comm *cc, uint32_t rank, uint32_t slot, uint64_t len);
/** After reading: is the peer's count still this one? */
bool          kvcl_coll_stage_is_valid(const struct kvcl_coll_comm *cc, uint32_t rank, uint64_t count);

#endif
