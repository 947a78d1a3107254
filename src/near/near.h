/*
 * Reading bytes that a peer on this host offers, where they lie in its memory: one copy, made by the reader alone; the
 * peer may sleep. The peer describes the bytes in a message. They are valid only if the peer has revoked nothing
 * until they were read (mem/region.h, kvcl_revoked): its count is read after them, and where it differs, or the kernel
 * does not permit the read, the reader gets the bytes on another path. Address and process are the peer's word, which
 * the kernel checks; the bytes are no more trusted than those of a message.
 *
 * Engine lock throughout.
 */
#ifndef KVCL_NEAR_NEAR_H
#define KVCL_NEAR_NEAR_H

#include "core/peer.h"
#include "near/near_ops.h"

/* In messages. */
typedef struct kvcl_near_wire {
    uint64_t addr;     /* of the bytes */
    uint64_t count_at; /* of the process' count of revocations */
    uint64_t count;    /* its value now */
    uint8_t  self[KVCL_NEAR_SELF];
} kvcl_near_wire_t;
_Static_assert(sizeof(kvcl_near_wire_t) == 56, "wire format");

/* Embedded in the reader's object; the reader sets done. */
typedef struct kvcl_near_read kvcl_near_read_t;
struct kvcl_near_read {
    kvcl_xport_send_t send;
    kvcl_near_wire_t  from;
    kvcl_peer_t       *peer;
    uint64_t          count;
    bool              busy;      /* begun and not done: the destination may change */
    bool              has_bytes; /* the count is being read */
    /* KVCL_OK: the bytes are here. KVCL_ERR_INVALID_PARAM: the destination is not writable memory. Any other error:
     * they can be had on another path only. KVCL_ERR_STALE: the peer has revoked; KVCL_ERR_BUSY: a page of theirs is
     * absent. Neither says anything of other bytes. */
    void              (*done)(kvcl_near_read_t *read, kvcl_status_t status);
};

/** Describe bytes of this process for a peer. False: the peer could not read them. */
bool          kvcl_near_describe(const kvcl_peer_t *peer, const void *addr, kvcl_near_wire_t *wire);
/**
 * Read len bytes from off on of those described.
 * @return KVCL_OK: done is called later, and until then the read is busy; an error, without a sentence: the bytes can
 *         be had on another path only.
 */
kvcl_status_t kvcl_near_start(kvcl_near_read_t *read, kvcl_peer_t *peer, const kvcl_near_wire_t *from, uint64_t off,
                              void *buf, size_t len) KVCL_MUST_CHECK;
/** End a busy read before its bytes are here: done is called later, as it is without this call. */
void          kvcl_near_stop(kvcl_near_read_t *read);

#endif
